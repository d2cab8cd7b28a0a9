"""Transitions: how often each output came of each word, for a grid of epsilons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """Sparse counts in ascending order of epsilon, word and output; a word has cells at every epsilon.

    Attributes:
        epsilon_index: int16 (c,), position in the grid of epsilons.
        word: int32 (c,), the input's row in the embedding.
        output: int32 (c,), the output's row in the embedding.
        count: int32 (c,), in how many of the runs the word became the output; float64 where it was
            computed, not counted: the expected number.
        judged: Of ``count``'s type (c,), how many of them are among the last :func:`judged_runs` runs.
        runs: Runs of each word at each epsilon.
        release_words: How many words may be output.
    """

    epsilon_index: NDArray[np.int16]
    word: NDArray[np.int32]
    output: NDArray[np.int32]
    count: NDArray[np.int32] | NDArray[np.float64]
    judged: NDArray[np.int32] | NDArray[np.float64]
    runs: int
    release_words: int

    @property
    def exact(self) -> bool:
        """Whether the counts are expected numbers, computed from exact probabilities."""
        return self.count.dtype == np.float64

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the cells of each pair of epsilon and word begin, int64."""
        pairs = self.epsilon_index.astype(np.int64) << 32 | self.word
        return np.flatnonzero(np.diff(pairs, prepend=-1))

    @property
    def probability(self) -> NDArray[np.float64]:
        """P[output | word] of each cell, float64 (c,)."""
        return np.asarray(self.count / np.float64(self.runs))

    @property
    def seen(self) -> NDArray[np.float64]:
        """How likely each cell is to come up in that many runs, float64 (c,); 1 for a counted one."""
        if not self.exact:
            return np.ones(len(self.count))
        # A probability of 1 has no logarithm of its complement, and beyond 40 nats it makes no difference.
        never = self.runs * np.log1p(-np.minimum(self.probability, 1.0 - 2.0**-53))
        return np.asarray(-np.expm1(np.maximum(never, -40.0)))

    @classmethod
    def of_draws(
        cls, words: NDArray[np.int64], outputs: NDArray[np.int32], *, release_words: int
    ) -> Transitions:
        """Count the outputs (epsilons, k, runs), overwritten, of distinct words (k,)."""
        outputs = outputs[:, np.argsort(words)]
        runs = outputs.shape[2]
        # The lowest bit says that a run is one to judge by; so one sort counts both.
        outputs <<= 1
        outputs[:, :, runs - judged_runs(runs) :] |= 1
        outputs.sort(axis=2)
        judged = outputs.ravel() & 1
        outputs >>= 1
        borders = np.ones(outputs.shape, dtype=np.bool_)
        borders[:, :, 1:] = outputs[:, :, 1:] != outputs[:, :, :-1]
        starts = np.flatnonzero(borders)
        rows, _ = np.divmod(starts, runs)
        return cls(
            epsilon_index=(rows // len(words)).astype(np.int16),
            word=np.sort(words).astype(np.int32)[rows % len(words)],
            output=outputs.ravel()[starts],
            count=np.diff(starts, append=outputs.size).astype(np.int32),
            judged=np.add.reduceat(judged, starts, dtype=np.int32),
            runs=runs,
            release_words=release_words,
        )


def judged_runs(runs: int) -> int:
    """Say how many of the runs, the last ones, judge what the others taught: half of them, rounded down."""
    return runs // 2
