"""Lists of words that users write, one a line, and which words of an embedding their entries are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.errors import BundleError
from dptext_spark.text.tokens import INVISIBLE, straight, token_spans, tokenize

ALLOWED: Final = "a UTF-8 file with one word a line, without quotes, commas or comments"

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_SHOWN: Final = 10


def caseless(word: str) -> str:
    """Give what a word has in common with all its spellings in other capitals.

    That is full case folding, with dotted and dotless i as one. Composed and decomposed letters are one too,
    wide and narrow ones, straight and curly apostrophes, a space and ``_``. It has no invisible characters.
    """
    if word.isascii():
        word = word.lower()
    else:
        for _ in range(2):  # what is decomposed may have capitals, and what is folded may be composed
            word = unicodedata.normalize("NFKD", word).casefold().replace("\u0131", "i")
        # Capital dotted i leaves its dot when it becomes small.
        word = straight(INVISIBLE.sub("", word).replace("i\u0307", "i"))
    return "_".join(word.replace("_", " ").split()) or word


@dataclass(frozen=True, kw_only=True)
class Matches:
    """Which words of an embedding a list names, and which of its entries name none.

    Attributes:
        option: The option that took the list.
        name: Of its file.
        words: bool (V,), the words that it names.
        entries: How many entries it has.
        unmatched: Numbers of the lines that name no word.
    """

    option: str
    name: str
    words: NDArray[np.bool_]
    entries: int
    unmatched: Sequence[int]

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
    """A list of words.

    Attributes:
        name: Of its file.
        option: The option that took it.
        lines: The lines with a word, by their number from 1, as they stand.
    """

    name: str
    option: str
    lines: dict[int, str]

    @classmethod
    def read(cls, path: Path | str, option: str, allowed: str = ALLOWED) -> WordList:
        """Read a list: with or without byte order mark, with any line ends; empty lines count for nothing.

        Raises:
            BundleError: The file cannot be read or is not UTF-8.
        """
        path = Path(path)
        try:
            content = path.read_bytes()
        except OSError:
            what = f"The file of {option} cannot be read"
            raise BundleError(what, allowed=allowed, got=str(path)) from None
        if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content:
            what = f"The file of {option} is not UTF-8"
            raise BundleError(
                what, allowed=allowed, got=f"UTF-16, UTF-32 or no text: {path}", do="Save it as UTF-8"
            )
        lines = {}
        for number, line in enumerate(_LINE_END.split(content), 1):
            try:
                lines[number] = line.decode("utf-8").replace("\ufeff", "")
            except UnicodeDecodeError:
                what = f"{path.name}, line {number}: the word is not valid UTF-8"
                raise BundleError(what, do="Save the file as UTF-8") from None
        return cls(
            name=path.name,
            option=option,
            lines={number: line for number, line in lines.items() if line.strip()},
        )

    @property
    def words(self) -> list[str]:
        """The words, without the blanks around them."""
        return [line.strip() for line in self.lines.values()]

    def denied(self, words: Sequence[str]) -> Matches:
        """Match in any capitals, and as a part of joined words.

        Raises:
            BundleError: No entry matches: the list would deny nothing.
        """
        numbers = self._by_form(self.lines)
        found = [{form for form in _forms(word) if form in numbers} for word in words]
        return self._matches([bool(forms) for forms in found], self._lines_of(numbers, set().union(*found)))

    def chosen(self, words: Sequence[str]) -> Matches:
        """Match as written; in any capitals where no word is written so.

        Raises:
            BundleError: No entry matches.
        """
        known = {*words}
        exact = {
            number: written
            for number, line in self.lines.items()
            if (written := next((form for form in (line, line.strip()) if form in known), None)) is not None
        }
        as_written = {*exact.values()}
        numbers = self._by_form(self.lines.keys() - exact.keys())
        forms = [caseless(word) for word in words] if numbers else [""] * len(words)
        flags = [word in as_written or form in numbers for word, form in zip(words, forms, strict=True)]
        return self._matches(flags, exact.keys() | self._lines_of(numbers, forms))

    def _by_form(self, chosen: Iterable[int]) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number in chosen:
            if form := caseless(self.lines[number]):
                numbers.setdefault(form, []).append(number)
        return numbers

    @staticmethod
    def _lines_of(numbers: Mapping[str, list[int]], forms: Iterable[str]) -> set[int]:
        return {number for form in {*forms} & numbers.keys() for number in numbers[form]}

    def _matches(self, flags: list[bool], matched: Set[int]) -> Matches:
        unmatched = sorted(self.lines.keys() - matched)
        if not matched:
            raise BundleError(
                f"No entry of {self.name} ({self.option}) is a word of the embedding",
                allowed=ALLOWED,
                got=f"a word in none of {_lines(unmatched)}" if unmatched else "an empty list",
                do="Write one word a line, or leave the list out",
            )
        return Matches(
            option=self.option,
            name=self.name,
            words=np.array(flags, dtype=np.bool_),
            entries=len(self.lines),
            unmatched=unmatched,
        )


def _forms(word: str) -> Iterator[str]:
    """Give the caseless form of a word, and those of all parts of a joined one."""
    form = caseless(word)
    yield form
    if form.isalnum():
        return
    spans = [*token_spans(form, tokenize(form))]
    for first, (start, _) in enumerate(spans):
        for _, end in spans[first:]:
            yield form[start:end]
            if form.startswith(".", end):
                yield form[start : end + 1]


def _lines(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:_SHOWN]))
    more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {listed}{more}"
