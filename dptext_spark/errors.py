"""Errors in one form: what is wrong, what is allowed, what was given, what to do; named values.

Messages never hold row text, tokens of a table or key material.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_SIGNS: Final = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
# Controls, line ends, what turns the direction of writing, and halves of characters.
_UNSEEN: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class DptextError(Exception):
    """An error that a user can fix; the command line prints it and exits with code 2.

    Args:
        what: What is wrong, one clause without a full stop.
        allowed: What would be accepted.
        got: What was given; never row content or key material.
        do: What to do about it.
        faults: Messages of errors that this one lists, one per line.
    """

    def __init__(
        self,
        what: str,
        *,
        allowed: str = "",
        got: str = "",
        do: str = "",
        faults: Sequence[str] = (),
    ) -> None:
        super().__init__(what)  # what unpickling gives back; the rest comes with the attributes
        self.what = what
        self.allowed = allowed
        self.got = got
        self.do = do
        self.faults = faults

    def __str__(self) -> str:
        parts = [printable(f"{self.what}.")]
        if self.faults:
            parts = ["\n  ".join([f"{self.what}:", *self.faults])]
        if self.allowed:
            parts.append(printable(f"Allowed: {self.allowed}."))
        if self.got:
            parts.append(printable(f"Got: {self.got}."))
        if self.do:
            parts.append(printable(f"{self.do}."))
        return " ".join(parts)


class ConfigError(DptextError):
    """An option or a combination of options is wrong."""


class InputError(DptextError):
    """An input table, or a column of it, cannot be used."""


class BundleError(DptextError):
    """An embedding source or an embedding bundle cannot be used."""


class JobError(DptextError):
    """A run failed although its options and its input's shape are right; the exit code is 1."""


def printable(line: str) -> str:
    """Write as escapes what would break a line of a terminal or a page, such as a line break."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), line)


def not_utf8(what: str, error: UnicodeDecodeError | UnicodeEncodeError) -> ConfigError:
    """Return the error of bytes that are not UTF-8; its message has none of them."""
    return ConfigError(
        f"{what} is not valid UTF-8 (byte {error.start + 1})", do="Convert or rename it"
    )


def nearest(given: Iterable[str], known: Iterable[str]) -> str:
    """Return the names that mistyped ones are close to, as an error's ``do``; empty for none."""
    names = {name.lower(): name for name in known}
    suggestions: dict[str, None] = {}  # in order, each once
    for name in given:
        if name not in names.values():
            for match in difflib.get_close_matches(name.lower(), names, 1):
                suggestions[names[match]] = None
    if not suggestions:
        return ""
    return f"Perhaps you meant {', '.join(suggestions)}"


def all_of(*steps: Callable[[], Any]) -> list[Any]:
    """Return the results of independent checks; raise the one failure, or a list of them."""
    results = []
    failures = []
    for step in steps:
        try:
            results.append(step())
        except DptextError as error:
            failures.append(error)
    distinct = {str(error): error for error in failures}
    if len(distinct) == 1:
        raise failures[0]
    if distinct:
        raise ConfigError(f"{len(distinct)} things are wrong", faults=[*distinct])
    return results


def parsed(spec: str) -> tuple[str, dict[str, float | str]]:
    """Read ``NAME:PARAMETER=VALUE,PARAMETER=VALUE``; a value that reads as a number is one."""
    name, colon, listed = spec.partition(":")
    values: dict[str, float | str] = {}
    if not colon:
        return name, values
    for pair in listed.split(","):
        parameter, _, text = pair.partition("=")
        if not parameter or not text or parameter in values:
            raise ConfigError(
                f"Parameters of {name} cannot be read",
                allowed="NAME:PARAMETER=VALUE,PARAMETER=VALUE, each once",
                got=repr(spec),
            )
        values[parameter] = number(text)
    return name, values


def number(text: str) -> float | str:
    """Read a number; text that is none stays text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def leaves(kind: Any) -> list[Any]:
    """Return the types, values and marks that an annotation is made of."""
    parts = get_args(kind)
    if not parts:
        return [kind]
    all_leaves: list[Any] = []
    for part in parts:
        all_leaves += leaves(part)
    return all_leaves


def range_of(field: FieldInfo) -> str:
    """Return which values a field takes, as ``0 to 1`` or ``nearest or vickrey``; empty for any."""
    kinds = leaves(field.annotation)
    names = [leaf for leaf in kinds if isinstance(leaf, str)]
    if names and int not in kinds and float not in kinds:
        return " or ".join(names)
    marks = [*field.metadata]
    for kind in kinds:
        if isinstance(kind, FieldInfo):
            marks += kind.metadata
    bounds = {}
    for mark in marks:
        for sign in _SIGNS:
            bound = getattr(mark, sign, None)
            if bound is not None and abs(bound) < 2.0**53:  # as integers have it
                bounds[sign] = f"{bound:g}"
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']} to {bounds['le']}"
    if bounds.keys() == {"gt", "lt"}:
        return f"between {bounds['gt']} and {bounds['lt']}"
    return ", ".join(form.format(bounds[sign]) for sign, form in _SIGNS.items() if sign in bounds)


def faults(
    error: ValidationError,
    called: Callable[[ErrorDetails], str],
    *,
    unknown: str,
    known: Collection[str],
    hidden: Callable[[ErrorDetails], bool] = lambda _: False,
) -> list[str]:
    """Write pydantic's findings in this package's form; kinds of value that one name allows as one.

    ``called`` names a value, ``unknown`` ends the sentence on a name that is none of ``known``; a
    ``hidden`` value is not quoted.
    """

    def name_and_value(detail: ErrorDetails) -> tuple[str, str]:
        return called(detail), "" if hidden(detail) else _quoted(detail["input"])

    sentences = []
    for (name, value), group in groupby(error.errors(), key=name_and_value):
        details = [*group]
        first = details[0]
        if first["type"] == "value_error":  # in this form already
            sentences.append(first["msg"].removeprefix("Value error, ").rstrip(".") + ".")
        elif first["type"] == "missing":
            sentences.append(f"{name} is missing.")
        elif first["type"] == "extra_forbidden":
            do = nearest([str(first["loc"][-1])], known)
            sentences.append(str(ConfigError(f"{name} {unknown}", do=do)))
        else:
            allowed = ", or ".join(dict.fromkeys(map(_allowed, details)))
            choices: list[str] = []
            if first["type"] == "literal_error":
                choices = re.findall(r"[\w-]+", allowed)
            wrong_value = ConfigError(
                f"{name} has a wrong value",
                allowed=allowed,
                got=value or "a value that is not shown",
                do=nearest([str(first["input"])], choices),
            )
            sentences.append(str(wrong_value))
    return sentences


def _quoted(value: object) -> str:
    """Quote texts, numbers and lists of them; other values may hold anything."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return type(value).__name__


def _allowed(error: ErrorDetails) -> str:
    """Return what a finding of pydantic allows."""
    bounds = error.get("ctx", {})
    by_type = {
        "greater_than": f"a number above {bounds.get('gt', 0):g}",
        "greater_than_equal": f"a number, {bounds.get('ge', 0):g} or more",
        "less_than": f"a number below {bounds.get('lt', 0):g}",
        "less_than_equal": f"a number, {bounds.get('le', 0):g} or less",
        "finite_number": "a finite number",
        "path_type": "a path",
        "string_pattern_mismatch": "NAME=VALUE",
        "literal_error": str(bounds.get("expected", "")).replace("'", ""),
    }
    return by_type.get(error["type"], error["msg"].removeprefix("Input should be "))


def check_parameters(
    owner: str, names: Collection[str], unnamed: Collection[object], unknown: Iterable[str] = ()
) -> None:
    """Check that parameters have a name, and one that exists."""
    wrong_names = [*unknown]
    if unnamed or wrong_names:
        raise ConfigError(
            f"{owner} takes its parameters by name",
            allowed=", ".join(names),
            got=", ".join(wrong_names) or f"{len(unnamed)} without a name",
            do=nearest(wrong_names, names) or f"Write {owner}({next(iter(names))}=...)",
        )
