"""Identifiers: what stands in texts in the place of what patterns find."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final

from dptext_spark.errors import ConfigError, nearest
from dptext_spark.noise import NoiseKey
from dptext_spark.text.joined import cut_marked
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.patterns.find import NUMBER, OPTIONAL, TYPES, find
from dptext_spark.text.patterns.forms import canonical
from dptext_spark.text.tokens import (
    Tokenizer,
    all_visible,
    cut_visible,
    lookup_form,
    straight,
)

SPAN: Final = "mask"  # what a column of spans marks, in place of a pattern
_NAMES: Final = (*TYPES, *OPTIONAL)
MARKS: Final = (*_NAMES, NUMBER, SPAN)


@dataclass(frozen=True)
class Marker:
    """A tokenizer for which each span of some types is one token, with the rest of its word."""

    base: Tokenizer  # cuts all else
    types: frozenset[str]
    letter: str  # stands in texts for what a column of spans marks

    @property
    def words(self) -> Collection[str]:
        return getattr(self.base, "words", ())

    def __call__(self, text: str) -> list[str]:
        text = straight(text)
        if all_visible(text):
            return self._cut(text)
        return cut_visible(text, self._cut)

    def _cut(self, text: str) -> list[str]:
        spans = find(text, self.types)
        if not spans:
            return self.base(text)
        places = [(start, end) for start, end, _ in spans]
        tokens, _ = cut_marked(text, places, self.base, whole=True)
        return tokens

    def kind(self, token: str) -> str | None:
        """Return the type of the longest span in a token or an element; None for a word."""
        form = lookup_form(token)
        if self.letter and self.letter in form:
            return SPAN
        spans = find(form, self.types)
        if not spans:
            return None
        _, _, name = max(spans, key=lambda span: span[1] - span[0])
        return name


class Identifiers(NamedPolicy):
    """A policy for spans that patterns recognize: of some types, or of all where none is named."""

    kind = "policy for identifiers"
    option = "--identifiers"
    policies: ClassVar[dict[str, type[Identifiers]]] = {}
    types: str

    @property
    def advice(self) -> str:
        """What to do where some are found that become no marks; empty if all become marks."""
        if self.marked == TYPES:
            return ""
        return (
            f"With --identifiers {self} they are words like all others. "
            "Mark them with --identifiers mask."
        )

    @property
    def marked(self) -> tuple[str, ...]:
        """The types that become marks."""
        if not self.types:
            return TYPES
        names = self.types.split(",")
        return tuple(name for name in _NAMES if name in names)

    def __post_init__(self) -> None:
        unknown_types = {*filter(None, self.types.split(","))} - {*_NAMES}
        if unknown_types:
            raise ConfigError(
                f"Types of {self.option} are unknown",
                allowed=", ".join(_NAMES),
                got=", ".join(sorted(unknown_types)),
                do=nearest(sorted(unknown_types), _NAMES),
            )
        # One spelling, as it decides on the noise.
        spelling = ""
        if self.marked != TYPES:
            spelling = ",".join(self.marked)
        object.__setattr__(self, "types", spelling)

    def key(self, key: NoiseKey | None) -> NoiseKey | None:
        """Return the key of stand-ins, the same for all releases under the user's key, if any."""
        return None

    def stand_in(self, kind: str, token: str, key: NoiseKey | None) -> str:
        """Return what is released in place of a token of this type, by the derived key."""
        return f"[{kind.upper()}]"


_SCOPE: Final = (
    "Each span that a pattern recognizes ({listed}) becomes one mark{such}, with the rest of the "
    "word or the list's element that it is in: its type and place are visible. "
    "Between a mark and a word, or marks of two types, there is no bound: the factor is infinite. "
)


@dataclass(frozen=True)
class MaskIdentifiers(Identifiers):
    """A mark with the type's name, whatever the span holds."""

    name = "mask"
    scope = _SCOPE.replace("{such}", " such as [{first}]") + (
        "Names, and what no pattern recognizes, are words or numbers like all others."
    )

    types: str = ""


@dataclass(frozen=True)
class Surrogates(Identifiers):
    """A mark with the type's name and a keyed tag; equal spans, keys and labels have equal tags."""

    name = "surrogate"
    scope = _SCOPE.replace("{such}", " with a tag, such as [{first}-3f9a2c51d07be644]") + (
        "THE TAGS ARE PSEUDONYMS, OUTSIDE OF THE BOUND: equal marked spans have equal tags in all "
        "rows, columns and tables under one key and surrogate name, and anyone with the key can "
        "test guesses."
    )

    label: str
    types: str = ""

    def key(self, key: NoiseKey | None) -> NoiseKey:
        if key is None:
            raise ConfigError(
                f"Option --identifiers {self} needs a key that is kept",
                do="Give --key-file, in Python key=, or take --identifiers mask",
            )
        return key.derive(b"surrogates", self.label.encode())

    def stand_in(self, kind: str, token: str, key: NoiseKey | None) -> str:
        if kind not in _NAMES or key is None:
            return super().stand_in(kind, token, key)
        span = self._longest_span(kind, lookup_form(token))
        span = canonical(kind, span)
        tag = key.derive(kind.encode(), span.encode()).secret.hex()
        return f"[{kind.upper()}-{tag[:16]}]"

    def _longest_span(self, kind: str, form: str) -> str:
        """Return the longest span of a type, the first of equal ones; the form if it has none.

        A token has the rest of a word too, and an element of a list any text.
        """
        spans = [form[start:end] for start, end, name in find(form, self.marked) if name == kind]
        return max(spans, key=len, default=form)


class IdentifiersOff(Identifiers):
    """Identifiers are words like all others."""

    name = "off"
    scope = (
        "E-mail addresses, phone numbers and other identifiers are words and numbers like all "
        "others."
    )
    marked = ()


NUMBERS: Final = {
    "mask": "Numbers with more than two figures in a row become [NUMBER], unless they are in "
    "another mark: places are visible, with no bound to a word.",
    "words": "Numbers that are no marks are words: noise in the embedding space means little for "
    "them.",
}
"""What runs of more than two figures become: the scope of each choice."""
