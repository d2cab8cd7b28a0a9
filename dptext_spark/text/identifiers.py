"""Identifiers: what patterns recognize in texts, and what stands in its place.

A span's own characters alone decide whether it matches and as what; of its neighbours no more is asked than
that a word does not go on there. No word around it counts.
"""

from __future__ import annotations

import hashlib
import ipaddress
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar, Final

import regex

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
    "(?i:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|m\u00e4rz|apr(?:il)?|may|mai|june?|juni|july?|juli|"
    "aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\\b\\.?"
)
_TIME: Final = r"(?:[T ][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
_PATTERNS: Final = {
    "email": rf"{_W}[[{_IN}]||[._%+'-]]{{0,63}}@{_LABEL}(?:\.{_LABEL}){{1,8}}",
    "url": rf"(?:(?:https?|ftp)://|www\.){_TAIL}"
    rf"|(?:{_LABEL}\.){{1,5}}(?:com|net|org|edu|gov|info|io|biz)(?:[/?](?:{_TAIL})?)?",
    "iban": r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?|[a-z]{2}[0-9]{2}[a-z0-9]{11,30}",
    "card": r"\p{Nd}(?:[ -]?\p{Nd}){11,18}",
    "ip": r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}",
    "date": rf"(?:{_DAY}([./-]){_MONTH}\1(?:{_YEAR}|[0-9]{{2}})|{_MONTH}([./-]){_DAY}\2(?:{_YEAR}|[0-9]{{2}})"
    rf"|{_YEAR}([./-]){_MONTH}\3{_DAY}|{_DAY}(?:st|nd|rd|th|\.)? (?:of )?{_NAMED_MONTH}(?:,? {_YEAR})?"
    rf"|{_NAMED_MONTH} {_DAY}(?:st|nd|rd|th)?(?:,? {_YEAR})?|{_NAMED_MONTH} {_YEAR}){_TIME}",
    "phone": r"(?:\+?\p{Nd}{1,4}[ .-]?)?(?:\(\p{Nd}{1,5}\)[ -]?\p{Nd}|\p{Nd}{2})\p{Nd}{0,6}"
    r"(?:(?:\.\p{Nd}{2,8}){1,5}|/?(?:[ -]?\p{Nd}{2,8}){0,5})(?: ?(?:x|ext\.?) ?\p{Nd}{1,5})?",
    "number": r"\p{Nd}+(?:[-.,/:']\p{Nd}+)*",
}
TYPES: Final = tuple(_PATTERNS)[:-1]
NUMBER: Final = "number"
SPAN: Final = "mask"  # what a column of spans marks, in place of a pattern
MARKS: Final = (*TYPES, NUMBER, SPAN)

_REVISION: Final = ""  # another one whenever `find`, a check below or what it is tried on changes
VERSION: Final = hashlib.sha256(f"{_PATTERNS}{_REVISION}".encode()).hexdigest()[:12]
"""Of the patterns: another one may give a row other words, so it is in the noise's context."""
_COMPILED: Final = {
    name: regex.compile(rf"(?<!{_W})(?:{pattern})(?!{_W})", regex.V1) for name, pattern in _PATTERNS.items()
}
_MAYBE: Final = regex.compile(r"\p{Nd}|@|://|www\.|\.(?:com|net|org|edu|gov|info|io|biz)")
_FIGURES: Final = regex.compile(r"\p{Nd}{3}")


def _is_card(text: str) -> bool:
    """Whether the last digit is the check digit (Luhn)."""
    digits = [int(letter) for letter in text[::-1] if letter.isdecimal()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """Whether the check digits are right (ISO 7064)."""
    code = text.replace(" ", "")
    return len(code) >= 15 and int("".join(str(int(letter, 36)) for letter in code[4:] + code[:4])) % 97 == 1


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text)) and any(map(str.isdecimal, text))
    except ValueError:
        return False


def _is_phone(text: str) -> bool:
    """Whether it has as many digits as a phone number, and more than digits, or a leading zero."""
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

    The longest come first, of equal ones the first of ``MARKS``; what they leave is searched once more.
    """
    if not types or _MAYBE.search(text) is None:
        return []
    candidates = []
    for order, (name, pattern) in enumerate(_COMPILED.items()):
        for match in pattern.finditer(text) if name in types else ():
            start, end = match.span()
            check = _CHECKS.get(name, bool)
            while name == "iban" and not check(text[start:end]) and (cut := text.rfind(" ", start, end)) > 0:
                end = cut  # a word in capitals may follow
            if check(text[start:end]):
                candidates.append((start - end, order, start, end, name))
    taken, found = bytearray(len(text)), []
    for _, _, start, end, name in sorted(candidates):
        if taken.find(1, start, end) < 0:
            taken[start:end] = b"\1" * (end - start)
            found.append((start, end, name))
    if len(found) < len(candidates):
        for first, last in between(sorted(span[:2] for span in found), len(text)):
            found += [(first + a, first + b, name) for a, b, name in find(text[first:last], types)]
    return sorted(found)


@dataclass(frozen=True)
class Marker:
    """A tokenizer that gives each span of some types as one token, with the rest of a word that goes on."""

    base: Tokenizer  # cuts all else
    types: frozenset[str]
    letter: str  # stands in texts for what a column of spans marks

    @property
    def words(self) -> Collection[str]:
        return getattr(self.base, "words", ())

    def __call__(self, text: str) -> list[str]:
        text = straight(text)
        return self._cut(text) if all_visible(text) else cut_visible(text, self._cut)

    def _cut(self, text: str) -> list[str]:
        spans = [(start, end) for start, end, _ in find(text, self.types)]
        return cut_marked(text, spans, self.base, whole=True)[0] if spans else self.base(text)

    def kind(self, token: str) -> str | None:
        """Give the type of what a token or an element of a list holds, the longest; None for a word."""
        form = lookup_form(token)
        if self.letter and self.letter in form:
            return SPAN
        return max(find(form, self.types), key=lambda span: span[1] - span[0], default=(0, 0, None))[2]


class Identifiers(NamedPolicy):
    """A policy for spans that patterns recognize, of some types or, where these are empty, of all."""

    kind = "policy for identifiers"
    option = "--identifiers"
    policies: ClassVar[dict[str, type[Identifiers]]] = {}
    types: str

    @property
    def advice(self) -> str:
        """Say what to do where some are found that become no marks; empty if there are none."""
        said = f"With --identifiers {self} they are words like all others. Mark them with --identifiers mask."
        return "" if self.marked == TYPES else said

    @property
    def marked(self) -> tuple[str, ...]:
        """The types that become marks."""
        return tuple(name for name in TYPES if not self.types or name in self.types.split(","))

    def __post_init__(self) -> None:
        if unknown := sorted({*filter(None, self.types.split(","))} - {*TYPES}):
            got, do = ", ".join(unknown), nearest(unknown, TYPES)
            raise ConfigError(f"Types of {self.option} are unknown", allowed=", ".join(TYPES), got=got, do=do)
        # One spelling, as it decides on the noise.
        object.__setattr__(self, "types", ",".join(self.marked) if len(self.marked) < len(TYPES) else "")

    def key(self, key: NoiseKey | None) -> NoiseKey | None:
        """Derive what stand-ins follow from, if anything: the same for all releases under the user's key."""
        return None

    def stand_in(self, kind: str, token: str, key: NoiseKey | None) -> str:
        """Give what is released in place of a token of this type, by the derived key."""
        return f"[{kind.upper()}]"


_SCOPE: Final = (
    "Each span that a pattern recognizes ({listed}) becomes one mark{such}: its type and place are visible. "
    "Between a mark and a word, or marks of two types, there is no bound: the factor is infinite. "
)


@dataclass(frozen=True)
class MaskIdentifiers(Identifiers):
    """A mark with the type's name, whatever the span holds."""

    name = "mask"
    scope = _SCOPE.replace("{such}", " such as [EMAIL]") + "Names, and what no pattern recognizes, are words."

    types: str = ""


@dataclass(frozen=True)
class Surrogates(Identifiers):
    """A mark with the type's name and a keyed tag, equal for equal spans wherever key and label are equal."""

    name = "surrogate"
    scope = _SCOPE.replace("{such}", " with a tag, such as [EMAIL-3f9a2c51d07be644]") + (
        "THE TAGS ARE PSEUDONYMS, OUTSIDE OF THE BOUND: equal identifiers have equal tags in all rows, "
        "columns and tables under one key and surrogate name, and anyone with the key can test guesses."
    )

    label: str
    types: str = ""

    def key(self, key: NoiseKey | None) -> NoiseKey:
        if key is None:
            do = "Give --key-file, in Python key=, or take --identifiers mask"
            raise ConfigError(f"Option --identifiers {self} needs a key that is kept", do=do)
        return key.derive(b"surrogates", self.label.encode())

    def stand_in(self, kind: str, token: str, key: NoiseKey | None) -> str:
        if kind not in TYPES or key is None:
            return super().stand_in(kind, token, key)
        form = unicodedata.normalize("NFKC", lookup_form(token)).casefold()
        if kind in ("phone", "card", "iban"):
            form = "".join(letter for letter in form if letter.isalnum() or letter == "+")
            form = f"+{form[2:]}" if kind == "phone" and form.startswith("00") else form
        tag = key.derive(kind.encode(), form.encode()).secret.hex()
        return f"[{kind.upper()}-{tag[:16]}]"


class Identifiable(Identifiers):
    """They are words like all others."""

    name = "off"
    scope = "E-mail addresses, phone numbers and other identifiers are words like all others."
    marked = ()


NUMBERS: Final = {
    "mask": "Numbers of more than two figures become [NUMBER]: places are visible, with no bound to a word.",
    "words": "Numbers that the vocabulary has are words: noise in the embedding space means little for them.",
}
"""What runs of more than two figures become: the scope of each choice."""
