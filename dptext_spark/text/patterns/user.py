"""Types of identifiers that a user names in a TOML file, and what is never marked.

.. code-block:: toml

    allow = ["support@example.com"]  # no marks, in any spelling
    allow_patterns = ['2[0-9]{3}']

    [[types]]
    name = "customer"
    pattern = 'K-[0-9]{8}'
    check = "luhn"

    [[types]]
    name = "project"
    words = ["Falcon", "Blue Harbour"]  # words and phrases, in any capitals
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self

import regex
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import (
    no_info_plain_validator_function,
    plain_serializer_function_ser_schema,
)

from dptext_spark.errors import ConfigError, nearest
from dptext_spark.parsing import toml_table
from dptext_spark.text.patterns.forms import canonical
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.patterns.numbers import is_luhn
from dptext_spark.text.patterns.pattern import W
from dptext_spark.text.patterns.view import View

CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {"luhn": is_luhn}
_NAME: Final = regex.compile("[a-z][a-z0-9_]{0,31}")
_SECONDS: Final = 1.0
"""How long one pattern may look at one text."""
_TRIED: Final = 5_000
"""Signs of a text that a pattern is tried on."""


@dataclass(frozen=True)
class UserType:
    """A type of a user's own: a pattern, or words and phrases.

    Attributes:
        check: The name of a check of the figures; empty for none.
    """

    name: str
    pattern: str = ""
    words: tuple[str, ...] = ()
    check: str = ""

    @property
    def expression(self) -> str:
        """The pattern, or one of all words; it never matches inside of a word."""
        inner = self.pattern
        if self.words:
            longest_first = sorted((View(word).text for word in self.words), key=len, reverse=True)
            inner = f"(?i:{'|'.join(map(regex.escape, longest_first))})"
        return f"(?<!{W})(?:{inner})(?!{W})"


@dataclass(frozen=True)
class UserPatterns:
    """A user's own types and allow list: small, picklable, comparable."""

    types: tuple[UserType, ...] = ()
    allow: tuple[str, ...] = ()
    allow_patterns: tuple[str, ...] = ()
    place: str = field(default="", compare=False)  # the file, where they are from one

    def __str__(self) -> str:
        return self.place

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Build the schema of a field: read from a file's path or its content, written as that."""
        return no_info_plain_validator_function(
            cls._validated, serialization=plain_serializer_function_ser_schema(cls.to_json)
        )

    @classmethod
    def _validated(cls, value: Self | Path | str | Mapping[str, Any]) -> Self:
        if isinstance(value, cls):
            return value
        try:
            if isinstance(value, Mapping):
                return cls.of(value, MARKS)
            return cls.read(Path(str(value)), MARKS)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def to_json(self) -> dict[str, Any]:
        """Return the content of a file with these patterns."""
        types = []
        for user_type in self.types:
            entries = asdict(user_type).items()
            types.append({name: entry for name, entry in entries if entry})
        lists = {"allow": [*self.allow], "allow_patterns": [*self.allow_patterns]}
        return {"types": types, **lists}

    @property
    def names(self) -> list[str]:
        """The names of the types."""
        return [user_type.name for user_type in self.types]

    def of_types(self, names: Collection[str]) -> Self:
        """Return these patterns without types of other names."""
        types = tuple(user_type for user_type in self.types if user_type.name in names)
        return replace(self, types=types)

    @classmethod
    def read(cls, path: Path, known: tuple[str, ...]) -> Self:
        """Read a file, and check it; no type may have one of the ``known`` names."""
        try:
            table = toml_table(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"The file of patterns cannot be read: {error.strerror}", got=str(path)
            ) from None
        except ValueError as error:  # TOML's own faults have their line
            raise ConfigError(
                "The file of patterns is not TOML", got=f"{path.name}: {error}"
            ) from None
        return replace(cls.of(table, known), place=str(path))

    @classmethod
    def of(cls, table: Mapping[str, Any], known: tuple[str, ...]) -> Self:
        """Return the patterns of a table, checked."""
        _check_keys(table, ("types", "allow", "allow_patterns"), "the file of patterns")
        types = []
        for entry in table.get("types", ()):
            _check_keys(entry, ("name", "pattern", "words", "check"), "a type")
            user_type = UserType(
                name=str(entry.get("name", "")),
                pattern=str(entry.get("pattern", "")),
                words=_texts(entry, "words"),
                check=str(entry.get("check", "")),
            )
            types.append(user_type)
        patterns = cls(
            types=tuple(types),
            allow=_texts(table, "allow"),
            allow_patterns=_texts(table, "allow_patterns"),
        )
        patterns._check(known)
        return patterns

    def _check(self, known: tuple[str, ...]) -> None:
        names = [*known]
        for user_type in self.types:
            if not _NAME.fullmatch(user_type.name) or user_type.name in names:
                raise ConfigError(
                    "A type of your own has a wrong name",
                    allowed="small letters, figures and _, up to 32, and no name that is taken",
                    got=user_type.name,
                )
            names.append(user_type.name)
            if bool(user_type.pattern) == bool(user_type.words):
                raise ConfigError(f"Type {user_type.name} needs a pattern, or words, and not both")
            if user_type.check and user_type.check not in CHECKS:
                raise ConfigError(
                    f"The check of type {user_type.name} is unknown",
                    allowed=", ".join(CHECKS),
                    got=user_type.check,
                    do=nearest([user_type.check], CHECKS),
                )
            self._check_pattern(user_type.name, user_type.expression)
        for number, pattern in enumerate(self.allow_patterns, 1):
            self._check_pattern(f"allow_patterns, number {number}", pattern)

    def _check_pattern(self, name: str, expression: str) -> None:
        """Check that a pattern compiles, matches no empty text, and ends on hostile texts."""
        try:
            compiled = _compiled(expression)
        except regex.error as error:
            raise ConfigError(f"The pattern of {name} is wrong", got=str(error)) from None
        for sign in sorted({*expression, *"aA1 -.@"}):
            for end in ("", "!"):
                for match in _matches(compiled, name, sign * _TRIED + end):
                    if match.start() == match.end():
                        raise ConfigError(f"The pattern of {name} matches an empty text")
        if compiled.fullmatch(""):
            raise ConfigError(f"The pattern of {name} matches an empty text")

    @property
    def identity(self) -> str:
        """What decides which parts of texts are marks, for the noise's context."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()[:12]

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """Find spans of the user's types: the first type that takes a place has it."""
        if not self.types:
            return []
        view = View(text)
        spans: list[tuple[int, int, str]] = []
        covered = bytearray(len(view.text))
        for user_type in self.types:
            check = CHECKS.get(user_type.check, bool)
            for match in _matches(_compiled(user_type.expression), user_type.name, view.text):
                start, end = match.span()
                if check(match[0]) and covered.find(1, start, end) < 0:
                    covered[start:end] = b"\1" * (end - start)
                    spans.append((*view.place(start, end), user_type.name))
        return sorted(spans)

    def allows(self, name: str, span: str) -> bool:
        """Return whether what a span of a type holds is never marked."""
        form = canonical(name, span)
        if any(canonical(name, entry) == form for entry in self.allow):
            return True
        view = View(span).text
        for number, pattern in enumerate(self.allow_patterns, 1):
            matches = _matches(_compiled(pattern), f"allow_patterns, number {number}", view)
            if any(match.span() == (0, len(view)) for match in matches):
                return True
        return False


@lru_cache(maxsize=256)
def _compiled(expression: str) -> regex.Pattern[str]:
    return regex.compile(expression)


def _texts(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts, none of them empty."""
    texts = entry.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{key} must be a list of texts, none of them empty")
    return tuple(texts)


def _matches(pattern: regex.Pattern[str], name: str, text: str) -> Iterator[regex.Match[str]]:
    """Yield matches; a pattern that looks too long fails, as a mark must not depend on speed."""
    try:
        yield from pattern.finditer(text, timeout=_SECONDS)
    except TimeoutError:
        raise ConfigError(
            f"The pattern of {name} looks at one text for more than {_SECONDS:g} s",
            do="Write it so that repeated parts have one way to match, as [a-z]+ and not ([a-z]+)+",
        ) from None


def _check_keys(entry: Mapping[str, Any], keys: tuple[str, ...], what: str) -> None:
    unknown = sorted({*entry} - {*keys})
    if unknown:
        raise ConfigError(
            f"Keys of {what} are unknown",
            allowed=", ".join(keys),
            got=", ".join(unknown),
            do=nearest(unknown, keys),
        )
