"""Words of a text, and the policies for unknown and unprotected ones."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

import regex

from dptext_spark.errors import ConfigError

PLACEHOLDER: Final = "[MASK]"

# A word is a run of letters and digits with their combining marks; inner apostrophes stay, and the
# clitics of English are words of their own ("do" + "n't"), as in GloVe's vocabularies.
_CHARACTER: Final = r"[\p{L}\p{M}\p{N}]"
_STEM: Final = rf"[\p{{L}}\p{{N}}]{_CHARACTER}*"
_NEGATION: Final = rf"n't(?!{_CHARACTER})"
_CLITIC: Final = rf"'(?:s|m|d|ll|re|ve)(?!{_CHARACTER})"
_WORD: Final = regex.compile(
    rf"(?<=\p{{L}}){_NEGATION}"
    rf"|(?<={_CHARACTER}){_CLITIC}"
    rf"|[\p{{L}}\p{{N}}]{_CHARACTER}*?(?={_NEGATION})"
    rf"|{_STEM}(?:'(?!(?:s|m|d|ll|re|ve)(?!{_CHARACTER})){_STEM})*",
    regex.IGNORECASE,
)
_PLAIN_WORD: Final = regex.compile(_STEM)
_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u02bc": "'", "\uff07": "'"})


class Oov(StrEnum):
    """What becomes of a word outside the vocabulary."""

    MASK = "mask"
    DROP = "drop"
    RANDOM = "random"
    FAIL = "fail"
    KEEP_UNPROTECTED = "keep-unprotected"


@dataclass(frozen=True, kw_only=True)
class TextPolicy:
    """Which words are perturbed and what becomes of unknown ones.

    Args:
        oov: Treatment of words outside the vocabulary.
        protect: ``all``, ``content`` (stop words pass) or ``slots:COLUMN`` (all but slots passes).

    Raises:
        ConfigError: ``oov`` or ``protect`` is none of these.
    """

    oov: Oov | str = Oov.MASK
    protect: str = "all"

    def __post_init__(self) -> None:
        if self.oov not in list(Oov):
            raise ConfigError(
                "The out-of-vocabulary policy (--oov) is unknown",
                allowed=", ".join(Oov),
                got=repr(self.oov),
            )
        if self.protect not in ("all", "content") and not self.slots_column:
            raise ConfigError(
                "The protection policy (--protect) is unknown",
                allowed="all, content, slots:COLUMN",
                got=repr(self.protect),
            )

    @property
    def slots_column(self) -> str | None:
        """The column that names the slots, if only slots are protected."""
        kind, _, column = self.protect.partition(":")
        return column if kind == "slots" and column else None

    def describe(self) -> list[str]:
        """Say what the guarantee does not cover under this policy."""
        covered = {
            "all": "Every word of the sanitized columns that the vocabulary has is covered.",
            "content": "Stop words are released as they are; the other words of the vocabulary are covered.",
        }.get(
            self.protect,
            f"Only words inside the slots of column {self.slots_column} that the vocabulary has are covered; "
            "all others are released as they are.",
        )
        unknown = {
            Oov.MASK: f"become {PLACEHOLDER}: their positions are visible.",
            Oov.DROP: "are left out.",
            Oov.RANDOM: "become a uniformly random word.",
            Oov.FAIL: "fail the run: there are none.",
            Oov.KEEP_UNPROTECTED: "ARE RELEASED AS THEY ARE, WITHOUT ANY PROTECTION.",
        }[Oov(self.oov)]
        return [
            covered,
            f"Words outside the vocabulary {unknown}",
            "The number of words in each row and which rows are null or empty are released as they are.",
            "Capitals, punctuation, emoji and spacing of the covered words are not in the output.",
        ]


def tokenize(text: str) -> list[str]:
    """Split a text into its words; everything between them is dropped.

    >>> tokenize("Don't e-mail bob@example.com, it's 5 o\u2019clock!")
    ['Do', "n't", 'e', 'mail', 'bob', 'example', 'com', 'it', "'s", '5', "o'clock"]
    """
    text = text.translate(_APOSTROPHES)
    # Without apostrophes both patterns find the same words, this one four times as fast.
    words: list[str] = (_WORD if "'" in text else _PLAIN_WORD).findall(text)
    return words


def match_form(word: str, *, lower: bool) -> str:
    """Give the form in which a word is looked up: Unicode NFC, and lower case if ``lower``."""
    word = unicodedata.normalize("NFC", word)
    return unicodedata.normalize("NFC", word.lower()) if lower else word


@cache
def stop_words() -> frozenset[str]:
    """The 179 English stop words of NLTK (as the papers use), as ``bm25s`` carries them."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # a large package, rarely needed

    return frozenset(part for word in STOPWORDS_EN_PLUS for part in tokenize(word))


def slot_values(slots: object) -> list[str] | None:
    """Read a row's slots: strings, structs with a ``text`` field, or either of these as JSON.

    Returns:
        The slots' texts; None when they are absent or not understood.
    """
    if isinstance(slots, str):
        try:
            slots = json.loads(slots)
        except (ValueError, RecursionError):
            return None
    if not isinstance(slots, Iterable) or isinstance(slots, str | bytes | dict):
        return None
    values = [slot.get("text") if isinstance(slot, dict) else slot for slot in slots]
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(values) else None


def protected_by_slots(words: Sequence[str | None], slots: object) -> list[bool]:
    """Mark the words that lie inside a slot.

    Every occurrence of a slot's words is protected. A row whose slots are null, malformed or not
    found in its words is protected whole: in doubt nothing passes.

    Args:
        words: The row's words.
        slots: The row's slots, as :func:`slot_values` reads them.
    """
    forms = [None if word is None else match_form(word, lower=True) for word in words]
    values = slot_values(slots)
    if values is None:
        return [True] * len(forms)
    protected = [False] * len(forms)
    for value in values:
        wanted = [match_form(word, lower=True) for word in tokenize(value)]
        starts = _occurrences(forms, wanted) if wanted else []
        if value.strip() and not starts:
            return [True] * len(forms)
        for start in starts:
            protected[start : start + len(wanted)] = [True] * len(wanted)
    return protected


def _occurrences(words: Sequence[str | None], wanted: Sequence[str]) -> list[int]:
    size = len(wanted)
    return [i for i in range(len(words) - size + 1) if list(words[i : i + size]) == list(wanted)]
