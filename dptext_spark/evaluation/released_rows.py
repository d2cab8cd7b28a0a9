"""Rows of words with what became of them: what attackers see, and what they are after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class ReleasedRows:
    """Rows in k versions, each a release of its own, as word ids; a token has one place in all of them.

    Attributes:
        offsets: int64 (rows + 1,), where each row's tokens start.
        inputs: int64 (t,), the words; -1 for a token outside the vocabulary.
        outputs: int64 (k, t), the released words; of no meaning where tokens are not perturbed.
        perturbed: bool (t,). What is not perturbed is known to attackers: the word itself, or that it is
            outside the vocabulary.
    """

    offsets: NDArray[np.int64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    perturbed: NDArray[np.bool_]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """int64 (t,), the row of each token."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def released(self) -> NDArray[np.int64]:
        """int64 (t,), the words of the first version; -1 for a token outside the vocabulary."""
        return np.where(self.perturbed, self.outputs[0], self.inputs)

    def without_noise(self) -> ReleasedRows:
        """Give the same rows as if every word had come out unchanged."""
        return self.with_outputs(self.inputs[None])

    def with_outputs(self, outputs: NDArray[np.int64]) -> ReleasedRows:
        """Give the same rows with other outputs (k, t)."""
        return ReleasedRows(
            offsets=self.offsets, inputs=self.inputs, outputs=outputs, perturbed=self.perturbed
        )

    def batches(self, tokens: int) -> Iterator[tuple[NDArray[np.int64], ReleasedRows]]:
        """Give rows of about equal lengths together, about so many tokens at once, but always a whole row.

        Yields:
            int64 (b,), which tokens these are, and the rows, the longest first.
        """
        lengths = np.diff(self.offsets)
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        before = np.cumsum(lengths[order]) - lengths[order]
        for rows in np.split(order, np.flatnonzero(np.diff(before // tokens)) + 1):
            sizes = lengths[rows]
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            chosen = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
            part = ReleasedRows(
                offsets=offsets,
                inputs=self.inputs[chosen],
                outputs=self.outputs[:, chosen],
                perturbed=self.perturbed[chosen],
            )
            yield chosen, part
