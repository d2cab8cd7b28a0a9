"""P[output | word], whichever way it became known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry import Floats, Floats32, Ints, WordVectors

Method: TypeAlias = Literal["computed", "posteriors", "draws", "none"]
"""How a channel became known: computed from the mechanism's formula; by whole posteriors of
simulated noisy points; by counting draws of each word, which knows it badly; or not at all."""

_OUTPUTS_AT_ONCE: Final = 512

MOST_CELLS: Final = 256
"""Words of an output whose probabilities are kept one by one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Channel:
    """P[output | word] for words of a vocabulary of V: cells, and a product for what has none.

    For each output it may be off by one factor, the same for all words: Bayes' rule divides by it.
    """

    method: Method
    keys: Ints  # (c,), output * V + word of each cell, ascending
    probability: Floats32  # (c,), above 0
    # What has no cell has the product of both: a share of its word, (V,), 0 where the word was not
    # looked at, and a share of its output, (outputs,).
    of_word: Floats
    of_output: Floats
    size: int = 0  # simulated points, or draws of each word
    # The share of words that a guesser who sees one output gets back less with half of the points:
    # about what more points could still add. None where the channel is computed or drawn.
    difference: float | None = None

    @property
    def vocabulary(self) -> int:
        """V, how many words there are."""
        return len(self.of_word)

    @property
    def outputs(self) -> int:
        """How many words, the first ones, may be output."""
        return len(self.of_output)

    @classmethod
    def uniform(cls, vocabulary: int, outputs: int) -> Channel:
        """Return the channel of attackers without any output: each word becomes any other alike."""
        return cls(
            method="none",
            keys=np.zeros(0, dtype=np.int64),
            probability=np.zeros(0, dtype=np.float32),
            of_word=np.ones(vocabulary),
            of_output=np.full(outputs, 1.0 / outputs),
        )

    def __call__(self, outputs: Ints, words: Ints) -> Floats:
        """P[output | word] of pairs, arrays that go together, up to a factor for each output."""
        has_cell, cells = self.look_up(outputs, words)
        probability = np.asarray(self.of_word[words] * self.of_output[outputs])
        probability[has_cell] = self.probability[cells[has_cell]]
        return probability

    def table(self, outputs: Ints, words: Ints) -> Floats:
        """P[output | word] of all pairs of distinct outputs (u,) and words (k,): float64 (u, k)."""
        probability = np.outer(self.of_output[outputs], self.of_word[words])
        places, cell_words, of_cells = self.cells(outputs)
        column_of = np.full(self.vocabulary, -1)
        column_of[words] = np.arange(len(words))
        columns = column_of[cell_words]
        has_column = columns >= 0
        probability[places[has_column], columns[has_column]] = of_cells[has_column]
        return probability

    def means(self, prior: Floats, vectors: WordVectors) -> Floats32:
        """Compute the mean vector of each output's word under a prior (V,): float32 (outputs, n).

        ``vectors`` (V, n) are those of the words.
        """
        words = np.flatnonzero(prior)
        of_words = vectors[words].astype(np.float32, copy=False)
        means = np.empty((self.outputs, vectors.shape[1]), dtype=np.float32)
        for start in range(0, self.outputs, _OUTPUTS_AT_ONCE):
            outputs = np.arange(start, min(start + _OUTPUTS_AT_ONCE, self.outputs))
            posterior = self.table(outputs, words) * prior[words]
            posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
            means[outputs] = posterior.astype(np.float32) @ of_words
        return means

    def look_up(self, outputs: Ints, words: Ints) -> tuple[NDArray[np.bool_], Ints]:
        """Return which pairs, of arrays that go together, have a cell, and where those are."""
        keys = outputs * self.vocabulary + words
        cells = np.searchsorted(self.keys, keys)
        has_cell = cells < len(self.keys)
        has_cell[has_cell] = self.keys[cells[has_cell]] == keys[has_cell]
        return has_cell, cells

    def cells(self, outputs: Ints) -> tuple[Ints, Ints, Floats32]:
        """Return the cells of outputs (u,): their places, ascending, words, probabilities, (c,)."""
        starts = np.searchsorted(self.keys, outputs * self.vocabulary)
        counts = np.searchsorted(self.keys, (outputs + 1) * self.vocabulary) - starts
        places = np.repeat(np.arange(len(outputs)), counts)
        cells = np.arange(len(places)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return places, self.keys[cells] % self.vocabulary, self.probability[cells]
