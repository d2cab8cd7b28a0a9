"""CSV lines, and what quotes make of them: where a quoted value is open, and where it ends wrongly.

Spark's parser takes any text for a value. It reads on behind a quote that nobody closed, until the
file ends or another quote comes, and what it reads are the rows below. It also drops NUL inside
quotes, and writes line ends inside quotes anew. So lines are looked at before it reads them, by the
grammar that its options name. A file's lines may be cut into splits, so each split is read as if it
began outside of quotes and as if it began inside; :func:`first_fault` joins a file's splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

_READING: Final = "opened bigint, fault string, line bigint, changed bigint"
SPLITS: Final = (
    f"file string, start bigint, lines bigint, ending string, "
    f"outside struct<{_READING}>, inside struct<{_READING}>"
)
"""Columns of what :meth:`Grammar.splits` gives: those of :class:`Split`."""

LINE: Final = ("file", "start", "text", "ends_in_cr")
"""Columns of lines: their file, where their split starts, the text, and whether it ends in CR."""

BEFORE: Final = 0
"""The line of a value that was open when a split began."""

OPEN: Final = "open"
DROPPED: Final = "dropped"
SEVERAL: Final = "several"
"""Faults: a quoted value that ends wrongly, a character that is dropped, several line ends."""


@dataclass
class Reading:
    """A split, read from one state; lines are numbers, the first is 1.

    Attributes:
        opened: The line where the value begins that is open at the end, if one is.
        fault: The first fault, if there is one.
        line: Its line: of a quoted value where it begins.
        changed: The first line whose end is inside quotes, and that ends in CR.
    """

    opened: int | None
    fault: str | None = None
    line: int | None = None
    changed: int | None = None


class Split(NamedTuple):
    """A split of a file: its start, its number of lines, how the first one ends, its readings."""

    file: str
    start: int
    lines: int
    ending: str
    outside: Any
    inside: Any


class Fault(NamedTuple):
    """What is wrong with a file, and in which line."""

    kind: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """How a CSV file is cut into values.

    Attributes:
        separator: What stands between values.
        quote: What is around a quoted value; empty where no value is quoted.
        escape: What makes a quote inside such a value a part of it.
        escape_escape: What makes an escape there a part of the value; empty where nothing does.
        comment: What a line begins with that is none of the table; empty where no line does.
        blanks_before: Whether blanks before a value are no part of it.
        blanks_after: Whether blanks after it are none.
        spans_lines: Whether a quoted value may have line breaks.
        finds_ends: Whether Spark finds out by a file's first line how its lines end.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    escape_escape: str = ""
    comment: str = ""
    blanks_before: bool = False
    blanks_after: bool = False
    spans_lines: bool = True
    finds_ends: bool = True

    def splits(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read lines of files; runs in Python workers.

        Args:
            batches: Lines, with the columns :data:`LINE`; the text is null where it has neither
                quote nor NUL, and no CR but at its end.
        """
        for (file, start), group in groupby(_lines_of(batches), key=itemgetter(0, 1)):
            split = self._split(file, start, (line[2:] for line in group))
            row = split._asdict()
            row["outside"] = asdict(split.outside)
            row["inside"] = asdict(split.inside)
            yield from pa.Table.from_pylist([row], _SCHEMA).to_batches()

    def _split(self, file: str, start: int, texts: Iterator[tuple[str | None, bool]]) -> Split:
        outside = Reading(opened=None)
        inside = Reading(opened=BEFORE)
        number = 0
        ending = ""
        for text, ends_in_cr in texts:
            if number == 0 and start == 0:
                ending = _ending(text, ends_in_cr) if self.finds_ends else "\n"
                text = text and text.removeprefix("\ufeff")
            parts = [text]
            if text and ending == "\r":  # this line is several
                parts = [*text.split("\r")]
            for part in parts:
                number += 1
                ends = ends_in_cr or ending == "\r"
                for reading in (outside, inside):
                    self._read(reading, part, number, ends)
        return Split(file, start, number, ending, outside, inside)

    def _read(self, reading: Reading, line: str | None, number: int, ends_in_cr: bool) -> None:
        """Read a line; what lies behind a fault is not read."""
        if reading.fault:
            return
        if line is not None:
            line = line.removesuffix("\r")
            place: int | None = 0
            if reading.opened is not None:
                place = self._read_rest(reading, line, number)
            if place is not None:
                self._read_values(reading, line, place, number)
        if reading.opened is not None and ends_in_cr and reading.changed is None:
            reading.changed = number

    def _read_rest(self, reading: Reading, line: str, number: int) -> int | None:
        """Read the rest of an open value; return where the next value begins, if one does."""
        place = _past(self._content, line, 0)
        if place == len(line):
            return None
        end = self._close.match(line, place)
        if end is None:
            self._fail(reading, line, place, number)
            return None
        reading.opened = None
        if not end["more"]:
            return None
        return end.end()

    def _read_values(self, reading: Reading, line: str, place: int, number: int) -> None:
        """Read whole values from a place on, and the last one, which may stay open."""
        if place == 0 and self.comment and line.startswith(self.comment):
            return
        place = _past(self._values, line, place)
        if self._last.match(line, place):
            return
        begin = self._open.match(line, place)
        if begin is None:
            self._fail(reading, line, place, number)
            return
        reading.opened = number
        place = _past(self._content, line, begin.end())
        if place < len(line) or not self.spans_lines:
            self._fail(reading, line, place, number)

    def _fail(self, reading: Reading, line: str, place: int, number: int) -> None:
        """Note the fault at a place."""
        if line[place : place + 1] in {"\0", self.escape_escape} - {"", self.escape}:
            reading.fault = DROPPED
            reading.line = number
            return
        reading.fault = OPEN
        reading.line = number if reading.opened is None else reading.opened

    @cached_property
    def _content(self) -> re.Pattern[str]:
        """Match text inside quotes, up to the line's end, the value's end, or what is dropped."""
        quote, escape, over = map(re.escape, (self.quote, self.escape, self.escape_escape))
        marks = "".join({self.quote, self.escape, self.escape_escape, "\0"})
        parts = [f"[^{re.escape(marks)}]++"]
        if self.escape_escape and self.escape != self.quote:
            parts.append(over + escape)
        if self.escape:
            parts.append(escape + quote)
        if self.escape and self.escape != self.quote:
            parts.append(f"{escape}(?!{quote})")
        return re.compile(f"(?:{'|'.join(parts)})*+", re.DOTALL)

    @cached_property
    def _close(self) -> re.Pattern[str]:
        """Match the end of a quoted value: its quote, then the line's end or ``more`` values."""
        return re.compile(f"{re.escape(self.quote)}{self._after}(?:(?P<more>{self._between})|\\Z)")

    @cached_property
    def _values(self) -> re.Pattern[str]:
        return re.compile(f"(?:{self._value}{self._between})*+", re.DOTALL)

    @cached_property
    def _last(self) -> re.Pattern[str]:
        ends_in_quote = ""
        # Where separators have several characters, Spark doubles a quote that a file ends in.
        if self.quote and len(self.separator) > 1:
            ends_in_quote = f"(?![^{re.escape(self.quote)}].*{re.escape(self.quote)}\\Z)"
        return re.compile(f"(?:{self._quoted}|{ends_in_quote}{self._bare})\\Z", re.DOTALL)

    @cached_property
    def _open(self) -> re.Pattern[str]:
        if not self.quote:
            return re.compile("(?!)")
        return re.compile(f"{self._before}{re.escape(self.quote)}")

    @property
    def _value(self) -> str:
        return f"(?:{self._quoted}|{self._bare})"

    @property
    def _quoted(self) -> str:
        if not self.quote:
            return "(?!)"
        quote = re.escape(self.quote)
        return f"{self._before}{quote}{self._content.pattern}{quote}{self._after}"

    @property
    def _bare(self) -> str:
        """Match a value without quotes around it; one of NUL alone would be null."""
        begin = re.escape(self.quote) if self.quote else "\0"
        alone = f"\0(?:{self._between}|\\Z)"
        return f"{self._before}(?!{begin}|{alone})(?:(?!{self._between}).)*+"

    @property
    def _between(self) -> str:
        return re.escape(self.separator)

    @property
    def _before(self) -> str:
        return self._blanks if self.blanks_before else ""

    @property
    def _after(self) -> str:
        return self._blanks if self.blanks_after else ""

    @property
    def _blanks(self) -> str:
        return f"(?:(?!{self._between})[\1-\40])*+"


def _past(pattern: re.Pattern[str], line: str, place: int) -> int:
    """Return where a pattern ends that begins at a place, or the place where it does not match."""
    match = pattern.match(line, place)
    if match is None:
        return place
    return match.end()


def _lines_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the lines of batches, with their file and where their split starts."""
    for batch in batches:
        columns = batch.select([*LINE]).to_pydict().values()
        yield from zip(*columns, strict=True)


def first_fault(splits: Sequence[Split]) -> tuple[Fault | None, Fault | None]:
    """Return the first fault of a file's splits, and the first line whose end Spark would change.

    Such a line ends inside quotes as lines of the file end, and not in LF.
    """
    changed = None
    opened: int | None = None
    before = 0
    ending = ""
    for split in sorted(splits, key=attrgetter("start")):
        ending = ending or split.ending
        reading = split.outside if opened is None else split.inside
        if ending == "\r" and split.start:
            return Fault(SEVERAL, before + 1), None
        if reading.fault:
            if reading.line == BEFORE:
                return Fault(reading.fault, opened or 0), changed
            return Fault(reading.fault, before + reading.line), changed
        if reading.changed is not None and changed is None and ending != "\n":
            changed = Fault(ending, before + reading.changed)
        if reading.opened is None:
            opened = None
        elif reading.opened != BEFORE:
            opened = before + reading.opened
        before += split.lines
    if opened is not None:
        return Fault(OPEN, opened), changed
    return None, changed


def _ending(first: str | None, ends_in_cr: bool) -> str:
    """Return how the first line of a file ends, as Spark's parser finds it."""
    if first is not None and "\r" in first.removesuffix("\r"):
        return "\r"
    return "\r\n" if ends_in_cr else "\n"


_READ: Final = pa.struct(
    [("opened", pa.int64()), ("fault", pa.string()), ("line", pa.int64()), ("changed", pa.int64())]
)
_SCHEMA: Final = pa.schema(
    [
        ("file", pa.string()),
        ("start", pa.int64()),
        ("lines", pa.int64()),
        ("ending", pa.string()),
        ("outside", _READ),
        ("inside", _READ),
    ]
)
