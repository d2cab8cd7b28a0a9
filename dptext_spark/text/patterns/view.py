"""The view of a text that patterns match: one sign for all that look or mean the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

import regex

from dptext_spark.text.tokens import UNSPACED_LETTERS

BLANK: Final = "\ue000"
"""Stands for letters of scripts without spaces and for spans: neither a letter nor a space."""
YEAR_SIGN: Final = "\ue001"
MONTH_SIGN: Final = "\ue002"
DAY_SIGN: Final = "\ue003"
SPOKEN_DOT: Final = "\u2024"

_UNSPACED: Final = regex.compile(f"[{UNSPACED_LETTERS}]")
_MARK: Final = "\u0301"  # stands for all accents, which the view leaves out
_MARK_LETTER: Final = "\u02b0"  # stands for marks that are parts of letters
_SIGNS: Final = {
    **dict.fromkeys("\u2018\u2019\u02bc\u02b9\u2032\uff07\u05f3", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u2033\u05f4", '"'),
    **dict.fromkeys("\u00ba\u00aa\u02da", "\u00b0"),
    **dict.fromkeys("\u2022\u2219\u22c5\u30fb\u2027", "\u00b7"),
    **dict.fromkeys("\u2014\u2015\u2e3a\u2e3b", "\u2014"),  # a dash between clauses
    "\u0131": "i",
    "\u2212": "-",
    "\u5e74": YEAR_SIGN,
    "\u6708": MONTH_SIGN,
    "\u65e5": DAY_SIGN,
}


class _Signs(dict[int, str]):
    """The sign that the view has for a character, found when it is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = _sign(chr(code))
        return self[code]


def _sign(character: str) -> str:
    category = unicodedata.category(character)
    parts = unicodedata.normalize("NFKD", character)
    sign = character
    if character in _SIGNS:
        sign = _SIGNS[character]
    elif character.isspace() or category[0] == "Z":
        sign = " "
    elif category == "Nd":
        sign = str(unicodedata.decimal(character))
    elif category == "Pd":
        sign = "-"
    elif category[0] == "M":
        sign = _MARK if "\u0300" <= character <= "\u036f" else _MARK_LETTER
    elif _UNSPACED.match(character):
        sign = BLANK
    elif all(map(unicodedata.combining, parts[1:])):
        sign = parts[0]
    return sign


_TABLE: Final = _Signs()

# What stands for another sign, in any capitals: the names are of groups below. Its first sign is
# one of a few, so that the search is fast.
_ESCAPED: Final = re.compile(
    rf"[ &%=\\\[({{<{_MARK}](?:"
    r"(?P<space>(?<= )(?: +|&(?:nbsp|\#0*160|\#xa0); ?)|(?<=&)(?:nbsp|\#0*160|\#xa0); ?"
    r"|(?<=[0-9][%=])20(?=[0-9])|(?<=[0-9]=)(?:c2=)?a0(?=[0-9]))"
    rf"|(?P<nothing>(?<={_MARK}){_MARK}*)"
    r"|(?P<at>(?:(?<= )[\[({<] ?|(?<=[\[({<]) ?)(?:at|@|arroba|arobase) ?[\])}>] ?"
    r"|(?<=&)(?:\#0*64|\#x0*40|commat);|(?<=%)40|(?<=\\)u0040"
    r"|(?<=[^\W_]\()a\)(?=[a-z0-9-]{1,63}\.[a-z])"
    r"|(?<=[^\W_]=)40(?=[a-z0-9-]{1,63}\.[a-z]))"
    r"|(?P<dot>(?:(?<= )[\[({<] ?|(?<=[\[({<]) ?)(?:dot|\.|punkt|punto|point) ?[\])}>] ?"
    r"|(?<=&)(?:\#0*46|period);|(?<=[^\W_]%)2e)"
    r"|(?P<spoken>(?<=[^\W_] )dot (?=[^\W_]))"
    r"|(?P<colon>(?<=[\[({<]) ?: ?[\])}>])"
    r"|(?P<scheme>(?<=%)3a%2f%2f|(?<=[\[({<])://[\])}>]))",
    re.IGNORECASE,
)
_MEANINGS: Final = {
    "space": " ",
    "nothing": "",
    "at": "@",
    "dot": ".",
    "spoken": SPOKEN_DOT,
    "colon": ":",
    "scheme": "://",
}


class View:
    """The view of a text, and where its signs stand in the text.

    Attributes:
        text: What patterns match.
    """

    text: str
    _places: Sequence[int]  # where each sign begins in the text, and where the text ends

    def __init__(self, text: str) -> None:
        self.text = text.translate(_TABLE)
        self._places = range(len(text) + 1)
        if _ESCAPED.search(self.text) is None:
            return
        pieces: list[str] = []
        places: list[int] = []
        end = 0
        for match in _ESCAPED.finditer(self.text):
            meaning = _MEANINGS[str(match.lastgroup)]
            pieces += [self.text[end : match.start()], meaning]
            places += range(end, match.start())
            places += range(match.start(), match.start() + len(meaning))
            end = match.end()
        pieces.append(self.text[end:])
        places += range(end, len(text) + 1)
        self.text = "".join(pieces)
        self._places = places

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return where a span of the view starts and ends in the text."""
        return self._places[start], self._places[end]


# Each span has one of these, and none of its words is far from one. A full stop counts before a
# letter, as in hosts.
_TRIGGER: Final = re.compile(
    r"[\d@\\/\uff20\uff3c\uff0f]+|\.(?=[^\W\d_])"
    r"|[\[({<]\s?(?:at|dot|[.:@])|\sdot\s|&(?:#|comm|peri)",
    re.IGNORECASE,
)
_REACH: Final = 80
"""How many characters a span may go on without such a sign, at least."""


def zones(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each part of a text that may have spans starts and ends, at spaces."""
    start = end = 0
    for match in _TRIGGER.finditer(text):
        if match.end() + _REACH <= end:
            continue
        first = max(match.start() - _REACH, end)
        first = max(text.rfind(" ", end, first), text.rfind("\n", end, first))
        if first > end:
            if end:
                yield start, end
            start = first
        end = text.find(" ", min(match.end() + _REACH, len(text)))
        if end < 0:
            end = len(text)
    if end:
        yield start, end
