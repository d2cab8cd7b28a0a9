"""Identifiers: what patterns recognize in texts, and what stands in its place.

A span's own characters alone decide whether it matches and as what. No word around it counts. Signs
and figures next to it count: no word may go on there, and an address or a date may go on with signs
of its own. Figures that stand one space or sign after a phone number, or next to a number in
groups, may be taken for a part of it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import regex
from regex import Pattern

from dptext_spark.errors import ConfigError, nearest
from dptext_spark.noise import NoiseKey
from dptext_spark.text.joined import cut_marked
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.tokens import (
    UNSPACED_LETTERS,
    Tokenizer,
    all_visible,
    between,
    cut_visible,
    lookup_form,
    straight,
)

# Letters and digits, except those of scripts without spaces: they may stand next to a span.
_IN: Final = rf"\p{{L}}\p{{M}}\p{{N}}--[{UNSPACED_LETTERS}]"
_W: Final = f"[{_IN}]"
_LABEL: Final = rf"{_W}(?:{_W}|-){{0,62}}"
_TAIL: Final = rf"[[{_IN}]||[-._~:/?#\[\]@!$&'()*+,;=%]]{{1,2000}}(?<![-.,;:!?)'\]])"
_DAY: Final = "(?:0?[1-9]|[12][0-9]|3[01])"
_MONTH: Final = "(?:0?[1-9]|1[0-2])"
_YEAR: Final = "[12][0-9]{3}"
_NAMED_MONTH: Final = (
    "(?i:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|m\u00e4rz|apr(?:il)?|may|mai|june?|juni"
    "|july?|juli|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\\b\\.?"
)
_NAMED_DAY: Final = (
    rf"(?:{_DAY}(?:st|nd|rd|th|\.)? (?:of )?{_NAMED_MONTH}(?:,? {_YEAR})?"
    rf"|{_NAMED_MONTH} {_DAY}(?:st|nd|rd|th)?(?:,? {_YEAR})?|{_NAMED_MONTH} {_YEAR})"
)
# With four figures of the year, and no other number behind a sign.
_FULL_DAY: Final = (
    rf"(?<!\p{{Nd}}[./-])(?:{_DAY}([./-]){_MONTH}\1{_YEAR}|{_MONTH}([./-]){_DAY}\2{_YEAR}"
    rf"|{_YEAR}([./-]){_MONTH}\3{_DAY})(?![./-]\p{{Nd}})"
)
_TIME: Final = (
    r"(?:[T ][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
# In small or in capital letters, but no word that begins a sentence after a full stop: "end.Info".
_DOMAIN: Final = "com|net|org|edu|gov|info|io|biz|COM|NET|ORG|EDU|GOV|INFO|IO|BIZ"
# What stands before a number without a plus: 44 before (0)20, and the 1 of North America.
_CODE: Final = r"\p{Nd}{1,3} ?(?=\(0\))|1 (?=\(|\p{Nd}{3}[ -]\p{Nd}{3}[ -]\p{Nd}{4})"
_AREA: Final = r"\(\p{Nd}{1,5}\)[ -]?\p{Nd}"
_GROUPS: Final = (
    r"\p{Nd}{0,6}(?:(?:\.\p{Nd}{2,8}){1,5}|/?(?:[ -]?\p{Nd}{2,8}){0,5})"
    r"(?i: ?(?:x|ext\.?) ?\p{Nd}{1,5})?(?!@)"
)
_PATTERNS: Final = {
    "email": rf"{_W}[[{_IN}]||[._%+'-]]{{0,63}}@{_LABEL}(?:\.{_LABEL}){{1,8}}",
    "url": rf"(?i:(?:https?|ftp)://|www\.){_TAIL}"
    rf"|(?:{_LABEL}\.){{1,5}}(?:{_DOMAIN})(?:[/?](?:{_TAIL})?)?",
    "iban": r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"
    r"|[a-z]{2}[0-9]{2}[a-z0-9]{11,30}",
    "card": r"\p{Nd}(?:[ -]?\p{Nd}){11,18}",
    "ip": r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}",
    "date": rf"(?:{_DAY}([./-]){_MONTH}\1(?:{_YEAR}|[0-9]{{2}})"
    rf"|{_MONTH}([./-]){_DAY}\2(?:{_YEAR}|[0-9]{{2}})|{_YEAR}([./-]){_MONTH}\3{_DAY}){_TIME}",
    "phone": rf"(?<!\p{{Nd}}[,'])(?:\+?\p{{Nd}}{{1,4}}[.-]?|\+\p{{Nd}}{{1,4}} |{_CODE})?"
    rf"(?:{_AREA}|\p{{Nd}}{{2}}){_GROUPS}",
    "number": r"\p{Nd}+(?:[-.,/:']\p{Nd}+)*",
}
# Spans that are found before all others: a longer phone number would take parts of them along.
_CERTAIN: Final = {
    "email": _PATTERNS["email"],
    "url": _PATTERNS["url"],
    "iban": _PATTERNS["iban"],
    "card": r"\p{Nd}{4}([ -])\p{Nd}{4}\1\p{Nd}{4}\1\p{Nd}{4}|\p{Nd}{4}([ -])\p{Nd}{6}\2\p{Nd}{4,5}"
    r"|\p{Nd}{12,19}",
    "date": rf"(?:{_FULL_DAY}|{_NAMED_DAY}){_TIME}",
    "phone": rf"(?<!\p{{Nd}}[.,/-])(?:\+\p{{Nd}}{{1,4}}[ .-]?(?:{_AREA}|\p{{Nd}}{{2}})"
    rf"|(?:{_CODE})?{_AREA}|(?=(?:\p{{Nd}}[ ./-]?){{9}})0\p{{Nd}}){_GROUPS}",
}
TYPES: Final = tuple(_PATTERNS)[:-1]
NUMBER: Final = "number"
SPAN: Final = "mask"  # what a column of spans marks, in place of a pattern
MARKS: Final = (*TYPES, NUMBER, SPAN)


def _compiled(pattern: str) -> Pattern[str]:
    return regex.compile(rf"(?<!{_W})(?:{pattern})(?!{_W})", regex.V1)


_REVISION: Final = "2"  # another one whenever `find`, a check below or what it is tried on changes
VERSION: Final = hashlib.sha256(f"{_PATTERNS}{_CERTAIN}{_REVISION}".encode()).hexdigest()[:12]
"""Of the patterns: another one may give a row other words, so it is in the noise's context."""
_CERTAIN_PATTERNS: Final = {name: _compiled(pattern) for name, pattern in _CERTAIN.items()}
_OTHER_PATTERNS: Final = {
    name: _compiled(pattern) for name, pattern in _PATTERNS.items() if pattern != _CERTAIN.get(name)
}
# Of these a span may begin inside of what their pattern finds first.
_OVERLAPPING: Final = ("iban", "card", "date")
_MAYBE: Final = regex.compile(rf"\p{{Nd}}|@|://|(?i:www\.)|\.(?:{_DOMAIN})")
_FIGURES: Final = regex.compile(r"\p{Nd}{3}")


def _is_card(text: str) -> bool:
    """Return whether the last digit is the check digit (Luhn)."""
    digits = [int(letter) for letter in text[::-1] if letter.isdecimal()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """Return whether the check digits are right (ISO 7064)."""
    code = text.replace(" ", "")
    if len(code) < 15:
        return False
    numbers = "".join(str(int(letter, 36)) for letter in code[4:] + code[:4])
    return int(numbers) % 97 == 1


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text)) and any(map(str.isdecimal, text))
    except ValueError:
        return False


def _is_phone(text: str) -> bool:
    """Return whether there are digits for a phone number, and signs or a leading zero."""
    digits = sum(map(str.isdecimal, text))
    return 7 <= digits <= 20 and (digits < len(text) or text[0] == "0")


_CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "iban": _is_iban,
    "card": _is_card,
    "ip": _is_address,
    "phone": _is_phone,
    "number": lambda text: _FIGURES.search(text) is not None,
}


def find(text: str, types: Collection[str]) -> list[tuple[int, int, str]]:
    """Find spans of these types in a visible text: start, end and type, in order.

    Certain ones come first, then the longest, of equal ones the first of ``MARKS``. The text
    between them is searched again.
    """
    if not types or _MAYBE.search(text) is None:
        return []
    candidates = _candidates(text, types, _CERTAIN_PATTERNS)
    is_final = not candidates
    if is_final:
        candidates = _candidates(text, types, _OTHER_PATTERNS)
    covered = bytearray(len(text))
    spans = []
    for _, _, start, end, name in sorted(candidates):
        if covered.find(1, start, end) < 0:
            covered[start:end] = b"\1" * (end - start)
            spans.append((start, end, name))
    if not is_final or len(spans) < len(candidates):
        for first, last in between(_places(spans), len(text)):
            for start, end, name in find(text[first:last], types):
                spans.append((first + start, first + end, name))
    return sorted(spans)


def _places(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Return where spans start and end, in order."""
    return sorted((start, end) for start, end, _ in spans)


def _candidates(
    text: str, types: Collection[str], patterns: Mapping[str, Pattern[str]]
) -> set[tuple[int, int, int, int, str]]:
    """Return all spans that a type's pattern and check take.

    Each has what it is sorted by (the longest first, then the type's place in ``MARKS``), its
    start, end and type.
    """
    candidates = set()
    for name, pattern in patterns.items():
        if name not in types:
            continue
        check = _CHECKS.get(name, bool)
        overlapped = patterns is _CERTAIN_PATTERNS and name in _OVERLAPPING
        for match in pattern.finditer(text, overlapped=overlapped):
            start, end = match.span()
            if name == "iban":
                end = _iban_end(text, start, end)
            if check(text[start:end]):
                candidates.add((start - end, MARKS.index(name), start, end, name))
    return candidates


def _iban_end(text: str, start: int, end: int) -> int:
    """Return where an IBAN ends: a word in capitals may follow it."""
    while not _is_iban(text[start:end]):
        space = text.rfind(" ", start, end)
        if space <= 0:
            break
        end = space
    return end


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
        tokens, _ = cut_marked(text, _places(spans), self.base, whole=True)
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
        return tuple(name for name in TYPES if name in names)

    def __post_init__(self) -> None:
        unknown_types = {*filter(None, self.types.split(","))} - {*TYPES}
        if unknown_types:
            raise ConfigError(
                f"Types of {self.option} are unknown",
                allowed=", ".join(TYPES),
                got=", ".join(sorted(unknown_types)),
                do=nearest(sorted(unknown_types), TYPES),
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
        if kind not in TYPES or key is None:
            return super().stand_in(kind, token, key)
        span = self._longest_span(kind, lookup_form(token))
        span = unicodedata.normalize("NFKC", span).casefold()
        if kind in ("phone", "card", "iban"):
            span = "".join(letter for letter in span if letter.isalnum() or letter == "+")
        if kind == "phone" and span.startswith("00"):
            span = f"+{span[2:]}"
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
