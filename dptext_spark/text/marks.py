"""Spans that are marked in rows of a column, and the tokens that they touch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.text.joined_words import unused_letter
from dptext_spark.text.tokens import Tokenizer, straight, token_spans

Span = tuple[int, int]
"""Where something starts and ends, the end exclusive: code points of a text, or elements of a token list."""


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

    @cached_property
    def spans(self) -> dict[int, list[Span]]:
        """The spans of each row that has some, in order; those that touch or overlap are one."""
        spans = list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))
        bounds = pairwise(self.offsets.tolist())
        return {row: _merged(spans[start:end]) for row, (start, end) in enumerate(bounds) if start < end}

    def to_bytes(self, row: int) -> bytes:
        """Encode the spans of a row; nothing where it has none."""
        return np.array(self.spans.get(row, ()), dtype="<i8").tobytes()

    def elements(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool (elements,): mark those of token lists, of which each row's start at an offset."""
        rows = np.repeat(np.arange(len(self.whole)), np.diff(self.offsets))
        steps = np.zeros(offsets[-1] + 1, dtype=np.int64)
        np.add.at(steps, offsets[rows] + self.starts, 1)
        np.add.at(steps, offsets[rows] + self.ends, -1)
        inside: NDArray[np.bool_] = np.cumsum(steps[:-1]) > 0
        return inside | np.repeat(self.whole, np.diff(offsets))


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            start, last = merged.pop()
            end = max(end, last)
        merged.append((start, end))
    return merged


def cut_marked(text: str, spans: Sequence[Span], tokenizer: Tokenizer) -> tuple[list[str], list[bool]]:
    """Cut a text into tokens so that those outside of spans do not depend on what is inside.

    The text is cut with one letter in place of each span. A token without such a letter is outside, and
    stands as it is. Whatever a token with one covers in the text belongs to the spans, and is cut by itself.

    Args:
        text: A text.
        spans: Of the text, merged.
        tokenizer: Its tokenizer.

    Returns:
        The tokens in their order, and which of them belong to spans.
    """
    borders = [0, *(border for span in spans for border in span), len(text)]
    outside = [text[start:end] for start, end in zip(borders[::2], borders[1::2], strict=True)]
    covered = straight(unused_letter(tokenizer).join(outside))
    letters = [end + n for n, end in enumerate(accumulate(map(len, outside[:-1])))]
    longer = [0, *accumulate(end - start - 1 for start, end in spans)]
    tokens: list[str] = []
    marked: list[bool] = []
    for start, end in token_spans(covered, tokenizer(covered)):
        first, after = bisect_left(letters, start), bisect_left(letters, end)
        inside = first < after
        own = tokenizer(text[start + longer[first] : end + longer[after]]) if inside else [covered[start:end]]
        tokens += own
        marked += [inside] * len(own)
    return tokens, marked
