"""How often each output of a word came, what follows for the word, and limits for many words.

Words may share the noise of a run: a *unit* is a run of the words that share it; units are
independent. Weights of words add up to 1, and those of the words of one unit to ``heaviest`` at
most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from dptext_spark.geometry import Floats, Ints

CONFIDENCE: Final = 0.95
ETA: Final = 0.05
GAMMA: Final = 2.0

OF_WORD: Final = (
    "n_w",
    "n_w_low",
    "n_w_high",
    "s_w",
    "unseen",
    "s_eta",
    "entropy",
    "h_0",
    "h_inf",
)
"""Columns of the statistics of a word."""

LEVELS: Final = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}
"""Quantiles by which the distribution of a statistic over words is described."""

Counts = NDArray[np.int32] | Floats
Hits = NDArray[np.int64] | Floats | int


@dataclass(frozen=True, kw_only=True, eq=False)
class Transitions:
    """Cells in ascending order of epsilon, word and output; a word has some at every epsilon."""

    epsilon_index: NDArray[np.int16]  # (c,), position in the grid of epsilons
    word: NDArray[np.int32]
    output: NDArray[np.int32]
    # (c,), in how many of the runs; float64 where it was computed: the expected number
    count: Counts
    judged: Counts  # (c,), how many of them are among the last half of the runs, rounded down
    runs: int  # of each word at each epsilon
    release_words: int  # how many words may be output

    @classmethod
    def of_draws(
        cls, words: Ints, outputs: NDArray[np.int32], *, release_words: int
    ) -> Transitions:
        """Count the outputs (epsilons, k, runs), overwritten, of distinct words (k,)."""
        outputs = outputs[:, np.argsort(words)]
        runs = outputs.shape[2]
        # The lowest bit says that a run is one to judge by; so one sort counts both.
        outputs <<= 1
        outputs[:, :, runs - runs // 2 :] |= 1
        outputs.sort(axis=2)
        is_judged = outputs.ravel() & 1
        outputs >>= 1
        borders = np.ones(outputs.shape, dtype=np.bool_)
        borders[:, :, 1:] = outputs[:, :, 1:] != outputs[:, :, :-1]
        starts = np.flatnonzero(borders)
        rows = starts // runs
        ordered_words = np.sort(words).astype(np.int32)
        count = np.diff(starts, append=outputs.size).astype(np.int32)
        judged = np.add.reduceat(is_judged, starts, dtype=np.int32)
        return cls(
            epsilon_index=(rows // len(words)).astype(np.int16),
            word=ordered_words[rows % len(words)],
            output=outputs.ravel()[starts],
            count=count,
            judged=judged,
            runs=runs,
            release_words=release_words,
        )

    @property
    def exact(self) -> bool:
        """Whether the counts are expected numbers, computed from exact probabilities."""
        return self.count.dtype == np.float64

    @property
    def starts(self) -> Ints:
        """Places where the cells of each pair of epsilon and word begin."""
        pairs = self.epsilon_index.astype(np.int64) << 32 | self.word
        return np.flatnonzero(np.diff(pairs, prepend=-1))

    @property
    def presence(self) -> Floats:
        """Probability that each cell (c,) comes up in that many runs; 1 for a counted one."""
        if not self.exact:
            return np.ones(len(self.count))
        # A probability of 1 has no logarithm of its complement, and beyond 40 nats it makes no
        # difference.
        probability = np.minimum(self.count / np.float64(self.runs), 1.0 - 2.0**-53)
        never = self.runs * np.log1p(-probability)
        return np.asarray(-np.expm1(np.maximum(never, -40.0)))


def word_statistics(
    transitions: Transitions, *, confidence: float = CONFIDENCE, eta: float = ETA
) -> pa.Table:
    """Compute for each word how often it stays itself, and how many words it becomes.

    One row for each epsilon_index (int16) and word (int32), in that order, and float64 columns:

    - n_w = P[M(w) = w]; n_w_low and n_w_high, Clopper-Pearson limits, of each word by itself.
    - s_w, the number of distinct outputs in these runs; h_0 = log2 s_w. They grow with the runs.
    - unseen, the chance that one more run gives a new output, by Good and Turing: the share of
      outputs that came once. Where it is large, so many runs say little of s_eta and entropy.
    - s_eta, the size of the smallest set of outputs that holds 1 - eta of the runs.
    - entropy (Shannon), in bits, as counted plus (s_w - 1) / (2 runs) nats (Miller 1955).
    - h_inf = -log2 of the largest probability, as counted: too low where runs are few.

    Source: Feyisetan et al. 2020, section 3, for N_w and S_w; Good 1953.
    """
    cells = transitions
    starts = cells.starts
    runs = cells.runs
    stays = np.where(cells.output == cells.word, cells.count, 0)
    n_w = np.add.reduceat(stays, starts) / runs
    s_w = np.add.reduceat(cells.presence, starts)
    probability = np.asarray(cells.count / np.float64(runs))
    entropy = np.add.reduceat(scipy.special.entr(probability), starts) / math.log(2.0) + 0.0
    likeliest = np.minimum(np.maximum.reduceat(probability, starts), 1.0)
    n_w_low = n_w_high = n_w
    unseen = np.zeros(len(s_w))
    if not cells.exact:
        hits = np.rint(n_w * runs)
        tail = (1.0 - confidence) / 2.0
        n_w_low = lower_limit(hits, runs, tail)
        n_w_high = upper_limit(hits, runs, tail)
        unseen = np.add.reduceat(cells.count == 1, starts, dtype=np.float64) / runs
        correction = (s_w - 1.0) / (2.0 * runs * math.log(2.0))
        entropy = np.minimum(entropy + correction, math.log2(cells.release_words))
    h_inf = -np.log2(likeliest) + 0.0
    columns = {"epsilon_index": cells.epsilon_index[starts], "word": cells.word[starts]}
    columns |= {
        "n_w": n_w,
        "n_w_low": n_w_low,
        "n_w_high": n_w_high,
        "s_w": s_w,
        "unseen": unseen,
        "s_eta": _s_eta(cells, starts, eta),
        "entropy": entropy,
        "h_0": np.log2(s_w),
        "h_inf": h_inf,
    }
    return pa.table(columns)


def _s_eta(cells: Transitions, starts: Ints, eta: float) -> Floats:
    """Compute the size of the smallest set of a word's outputs that holds 1 - eta of its runs."""
    # Outputs of a word, the most frequent first, and how many runs those before each have.
    count = cells.count.astype(np.float64)
    count = count[np.lexsort((-count, cells.word, cells.epsilon_index))]
    before = np.cumsum(count) - count
    before -= np.repeat(before[starts], np.diff(starts, append=len(count)))
    needed = before < max((1.0 - eta) * cells.runs * (1.0 - 1e-9), 0.5)
    return np.add.reduceat(needed.astype(np.float64), starts)


def lower_limit(hits: Hits, runs: Floats | int, tail: float) -> NDArray[np.float64]:
    """Bound a probability from below, by hits of any shape in so many trials.

    The bound may fail with probability ``tail``. Source: Clopper and Pearson 1934.
    """
    some = np.asarray(hits) > 0
    limits = scipy.special.betaincinv(np.where(some, hits, 1), runs - hits + 1, tail)
    return np.where(some, limits, 0.0)


def upper_limit(hits: Hits, runs: Floats | int, tail: float) -> NDArray[np.float64]:
    """Bound a probability from above; see :func:`lower_limit`."""
    some = np.asarray(hits) < runs
    limits = scipy.special.betainccinv(hits + 1, np.where(some, runs - hits, 1), tail)
    return np.where(some, limits, 1.0)


def mean_limits(share: float, runs: int, heaviest: float, tail: float) -> tuple[float, float]:
    """Bound a weighted mean of probabilities by the same mean of shares of runs.

    Each bound may fail with ``tail``. As if n = runs / heaviest trials had been made: the limits
    are where n kl(share, p) = ln(1 / tail). For log E exp(u X) of an independent part X in [0, w]
    is convex in w and 0 at 0, so that it is at most w / W times that of a part in [0, W]; and
    concave in the parts' means, so that the sum's is at most that of n parts alike.

    Source: Hoeffding 1963, theorem 1, here with unequal weights.
    """
    if runs == 0:
        return 0.0, 1.0
    most = math.log(1.0 / tail) * heaviest / runs
    return _limit(share, 0.0, most), _limit(share, 1.0, most)


def _limit(share: float, far: float, most: float) -> float:
    """Compute by bisection the mean whose divergence from the share is ``most``."""
    near = share
    for _ in range(60):
        p = 0.5 * (near + far)
        hits = scipy.special.rel_entr(share, p)
        misses = scipy.special.rel_entr(1.0 - share, 1.0 - p)
        if hits + misses <= most:
            near = p
        else:
            far = p
    return far
