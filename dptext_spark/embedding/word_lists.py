"""Lists of words that users write, one a line, and which words of an embedding their entries are."""

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
    """Fold a word: equal for all its spellings in other capitals, and of one lookup form.

    Equal are also dotted and dotless i, wide and narrow letters, a space and ``_``.
    """
    for _ in range(2):  # what is decomposed may have capitals, and what is folded may be composed
        word = unicodedata.normalize("NFKD", lookup_form(word)).casefold().replace("\u0131", "i")
    return "_".join(word.replace("_", " ").split()) or word


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Which ``words`` of an embedding, bool (V,), a list names, and which of its lines name none."""

    option: str
    name: str
    entries: int
    unmatched: Sequence[int]
    words: NDArray[np.bool_]

    def to_json(self) -> dict[str, Any]:
        """Give the counts, and the lines that name no word."""
        matched = self.entries - len(self.unmatched)
        return {"entries": self.entries, "matched": matched, "unmatched_lines": [*self.unmatched]}

    def describe(self) -> str:
        """Say how many entries name a word and which lines do not."""
        matched = self.entries - len(self.unmatched)
        said = f"{self.option} {self.name}: {matched:,} of {self.entries:,} entries match words"
        return f"{said}; no match: {_lines(self.unmatched)}" if self.unmatched else said


@dataclass(frozen=True, kw_only=True)
class WordList:
    """A list of words of an option's file; ``lines`` are those with a word, by number, as they stand."""

    name: str
    option: str
    lines: Mapping[int, str]

    @classmethod
    def read(cls, path: Path | str, option: str, allowed: str = ALLOWED) -> WordList:
        """Read a list: with or without byte order mark, with any line ends; empty lines count for nothing."""
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
        """Match in any capitals, and as a part of joined words; refuse a list that would deny nothing."""
        keys = {number: caseless(line) for number, line in self.lines.items()}
        return self._matches(keys, map(_forms, words))

    def chosen(self, words: Sequence[str]) -> Matches:
        """Match as written, or in any capitals where no word is written so; refuse a list without a match."""
        known = {*words}
        keys: dict[int, Hashable] = {}
        for number, line in self.lines.items():
            forms = (line, line.strip(), lookup_form(line.strip()))
            written = next((form for form in forms if form in known), None)
            keys[number] = caseless(line) if written is None else (written,)
        return self._matches(keys, ({(word,), caseless(word)} for word in words))

    def _matches(self, keys: Mapping[int, Hashable], forms: Iterable[Set[Hashable]]) -> Matches:
        """Match the lines' keys with the forms of each word."""
        wanted = {*keys.values()} - {""}
        shared = [wanted & each for each in forms]
        matched = set().union(*shared)
        unmatched = [number for number, key in keys.items() if key not in matched]
        if not matched:
            what = f"No entry of {self.name} ({self.option}) is a word of the embedding"
            got = f"a word in none of {_lines(unmatched)}" if unmatched else "an empty list"
            raise BundleError(
                what, allowed=ALLOWED, got=got, do="Correct the list, or leave it out"
            )
        return Matches(
            option=self.option,
            name=self.name,
            entries=len(self.lines),
            unmatched=unmatched,
            words=np.array([*map(bool, shared)], dtype=np.bool_),
        )


def _forms(word: str) -> set[Hashable]:
    """Give the caseless form of a word, and those of all parts of a joined one."""
    form = caseless(word)
    forms: set[Hashable] = {form}
    spans = [] if form.isalnum() else [*token_spans(form, tokenize(form))]
    for first, (start, _) in enumerate(spans):
        for _, end in spans[first:]:
            forms |= {form[start:end], form[start : end + form.startswith(".", end)]}
    return forms


def _lines(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:_SHOWN]))
    more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {listed}{more}"
