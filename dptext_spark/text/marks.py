"""Spans that are marked in rows of a column, and the tokens that they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]
"""Where something starts and ends, the end exclusive: code points of a text, or elements of a token list."""

_ROW_BITS: Final = 32  # places in a row are fewer than 2^32


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The marked spans of some rows, flat.

    Attributes:
        starts: int64 (spans,), where each span starts in its row.
        ends: int64 (spans,), where it ends, exclusive.
        offsets: int64 (rows + 1,), where each row's spans begin.
        whole: bool (rows,), rows that are marked from end to end, and have no spans.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    whole: NDArray[np.bool_]

    @classmethod
    def within(
        cls,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        counts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        doubtful: NDArray[np.bool_],
    ) -> Self:
        """Mark spans; a row with one that is empty or leaves the row is marked whole.

        Args:
            starts: int64 (spans,).
            ends: int64 (spans,).
            counts: int64 (rows,), how many spans each row has.
            lengths: int64 (rows,), of what the spans lie in.
            doubtful: bool (rows,), rows that are marked whole all the same.
        """
        rows = np.repeat(np.arange(len(counts)), counts)
        wrong = (starts < 0) | (ends <= starts) | (ends > lengths[rows])
        whole = doubtful | (np.bincount(rows[wrong], minlength=len(counts)) > 0)
        taken = ~whole[rows]
        kept = np.where(whole, 0, counts)
        return cls(
            starts=starts[taken],
            ends=ends[taken],
            offsets=np.concatenate([[0], np.cumsum(kept, dtype=np.int64)]),
            whole=whole,
        )

    @property
    def rows(self) -> NDArray[np.int64]:
        """int64 (spans,), the row of each span."""
        return np.repeat(np.arange(len(self.whole)), np.diff(self.offsets))

    @cached_property
    def spans(self) -> dict[int, list[Span]]:
        """The spans of each row that has some."""
        spans = list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))
        bounds = pairwise(self.offsets.tolist())
        return {row: spans[start:end] for row, (start, end) in enumerate(bounds) if start < end}

    def to_bytes(self, row: int) -> bytes:
        """Encode the spans of a row that has some."""
        return np.array(self.spans[row], dtype="<i8").tobytes()

    def touched(
        self, rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """bool (tokens,): which tokens lie in a span, be it with a part of them, or in a row marked whole.

        Args:
            rows: int64 (tokens,), ascending.
            starts: int64 (tokens,), where each token starts in its row; ascending in a row.
            ends: int64 (tokens,), where it ends.
        """
        row = self.rows << _ROW_BITS
        first = np.searchsorted((rows << _ROW_BITS) + ends, row + self.starts, side="right")
        last = np.searchsorted((rows << _ROW_BITS) + starts, row + self.ends, side="left")
        found = first < last
        steps = np.zeros(len(rows) + 1, dtype=np.int64)
        np.add.at(steps, first[found], 1)
        np.add.at(steps, last[found], -1)
        touched: NDArray[np.bool_] = np.cumsum(steps[:-1]) > 0
        return touched | self.whole[rows]


def touches(span: Span, marked: Sequence[Span]) -> bool:
    """Whether a span has something in common with one of the marked ones."""
    start, end = span
    return any(start < last and first < end for first, last in marked)
