"""Lists of words that users write, one a line, and the words of an embedding that they match."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.errors import BundleError
from dptext_spark.text.tokens import lookup_form, token_spans, tokenize

ALLOWED: Final = "a UTF-8 file with one word a line, without quotes, commas or comments"

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_NOT_UTF8: Final = re.compile("[\0\ud800-\udfff]")  # UTF-16 and UTF-32 have bytes of 0
_SHOWN: Final = 10


def caseless(word: str) -> str:
    """Fold a word, so that spellings in other capitals or with the same lookup form are equal.

    Dotted and dotless i, wide and narrow letters, a space and ``_`` are equal, too.
    """
    for _ in range(2):  # what is decomposed may have capitals, and what is folded may be composed
        word = unicodedata.normalize("NFKD", lookup_form(word)).casefold().replace("\u0131", "i")
    return "_".join(word.replace("_", " ").split()) or word


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Which ``words`` of an embedding, bool (V,), a list names, and its lines that name none."""

    option: str
    name: str
    entries: int
    unmatched: Sequence[int]
    words: NDArray[np.bool_]

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and the lines that name no word."""
        matched = self.entries - len(self.unmatched)
        return {"entries": self.entries, "matched": matched, "unmatched_lines": [*self.unmatched]}

    def describe(self) -> str:
        """Describe how many entries name a word and which lines do not."""
        matched = self.entries - len(self.unmatched)
        sentence = f"{self.option} {self.name}: {matched:,} of {self.entries:,} entries match words"
        if self.unmatched:
            sentence += f"; no match: {_lines(self.unmatched)}"
        return sentence


@dataclass(frozen=True, kw_only=True)
class WordList:
    """The words of an option's file; ``lines`` are its lines with a word, by number."""

    name: str
    option: str
    lines: Mapping[int, str]

    @classmethod
    def read(cls, path: Path | str, option: str, allowed: str = ALLOWED) -> WordList:
        """Read a list, with or without byte order mark, with any line ends; skip empty lines."""
        path = Path(path)
        try:
            content = path.read_bytes()
        except OSError:
            what = f"The file of {option} cannot be read"
            raise BundleError(what, allowed=allowed, got=str(path)) from None
        lines = {}
        for number, line in enumerate(_LINE_END.split(content), 1):
            text = line.decode("utf-8", "surrogateescape").replace("\ufeff", "")
            if _NOT_UTF8.search(text):
                what = f"{path.name}, line {number}: the word is not valid UTF-8"
                raise BundleError(what, do="Save the file as UTF-8")
            if text.strip():
                lines[number] = text
        return cls(name=path.name, option=option, lines=lines)

    def denied(self, words: Sequence[str]) -> Matches:
        """Match in any capitals, also parts of joined words; refuse a list that denies nothing."""
        keys = {number: caseless(line) for number, line in self.lines.items()}
        return self._matches(keys, map(_forms, words))

    def chosen(self, words: Sequence[str]) -> Matches:
        """Match as written, or in any capitals if no word is written so.

        Refuses a list without a match.
        """
        vocabulary = {*words}
        keys: dict[int, Hashable] = {}
        for number, line in self.lines.items():
            forms = (line, line.strip(), lookup_form(line.strip()))
            for form in forms:
                if form in vocabulary:
                    keys[number] = (form,)
                    break
            else:
                keys[number] = caseless(line)
        return self._matches(keys, ({(word,), caseless(word)} for word in words))

    def _matches(self, keys: Mapping[int, Hashable], forms: Iterable[Set[Hashable]]) -> Matches:
        """Match the lines' keys with the forms of each word."""
        entries = {*keys.values()} - {""}
        matches = [entries & word_forms for word_forms in forms]
        matched = set().union(*matches)
        unmatched = [number for number, key in keys.items() if key not in matched]
        if not matched:
            got = f"a word in none of {_lines(unmatched)}" if unmatched else "an empty list"
            raise BundleError(
                f"No entry of {self.name} ({self.option}) is a word of the embedding",
                allowed=ALLOWED,
                got=got,
                do="Correct the list, or leave it out",
            )
        return Matches(
            option=self.option,
            name=self.name,
            entries=len(self.lines),
            unmatched=unmatched,
            words=np.array([*map(bool, matches)], dtype=np.bool_),
        )


def _forms(word: str) -> set[Hashable]:
    """Return the caseless form of a word, and those of all parts of a joined word."""
    form = caseless(word)
    forms: set[Hashable] = {form}
    if form.isalnum():
        return forms
    spans = [*token_spans(form, tokenize(form))]
    for first, (start, _) in enumerate(spans):
        for _, end in spans[first:]:
            forms |= {form[start:end], form[start : end + form.startswith(".", end)]}
    return forms


def _lines(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:_SHOWN]))
    if len(numbers) == 1:
        return f"line {listed}"
    if len(numbers) > _SHOWN:
        listed += f" and {len(numbers) - _SHOWN:,} more"
    return f"lines {listed}"
