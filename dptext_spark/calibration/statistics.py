"""Privacy statistics of words, estimated from as many runs as there were, or exact where counts are."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.binomial import lower_limit, upper_limit
from dptext_spark.calibration.transitions import Transitions
from dptext_spark.errors import ConfigError

CONFIDENCE: Final = 0.95
ETA: Final = 0.05
GAMMA: Final = 2.0

LEVELS: Final = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}
"""Quantiles by which the distribution of a statistic over words is described."""


def word_statistics(
    transitions: Transitions, *, confidence: float = CONFIDENCE, eta: float = ETA
) -> pa.Table:
    """Say of each word how often it stays, and how many words it may become.

    Args:
        transitions: Of any words.
        confidence: Of the interval of n_w, for each word by itself; not for all words at once.
        eta: Mass that s_eta may leave out.

    Returns:
        One row for each epsilon_index (int16) and word (int32), in that order, and float64 columns: n_w =
        P[M(w) = w] with its Clopper-Pearson interval n_w_low, n_w_high (no wider than n_w itself where
        counts are exact); s_w, the number of distinct outputs in these runs; s_eta, the size of the
        smallest set of outputs that holds 1 - eta of the mass; in bits entropy (Shannon), h_0 = log2 s_w,
        h_inf = -log2 of the largest probability. From counts, s_w, s_eta and the entropies of a word that
        has more outputs than runs are too low.

    Raises:
        ConfigError: The confidence or eta is not between 0 and 1.

    Source: Feyisetan et al. 2020, section 3, for N_w and S_w.
    """
    for name, value in (("confidence", confidence), ("eta", eta)):
        if not 0.0 < value < 1.0:
            what = f"The value of {name} is impossible"
            raise ConfigError(what, allowed="between 0 and 1", got=f"{value!r}")
    starts, probability = transitions.starts, transitions.probability
    stays = np.where(transitions.output == transitions.word, transitions.count, 0)
    n_w = np.add.reduceat(stays, starts) / transitions.runs
    hits, runs, tail = np.rint(n_w * transitions.runs), transitions.runs, (1.0 - confidence) / 2.0
    s_w = np.add.reduceat(transitions.seen, starts)
    return pa.table(
        {
            "epsilon_index": transitions.epsilon_index[starts],
            "word": transitions.word[starts],
            "n_w": n_w,
            "n_w_low": n_w if transitions.exact else lower_limit(hits, runs, tail),
            "n_w_high": n_w if transitions.exact else upper_limit(hits, runs, tail),
            "s_w": s_w,
            "s_eta": _smallest_sets(transitions, starts, eta),
            "entropy": np.add.reduceat(-probability * np.log2(probability), starts) + 0.0,
            "h_0": np.log2(s_w),
            "h_inf": -np.log2(np.minimum(np.maximum.reduceat(probability, starts), 1.0)) + 0.0,
        }
    )


def _smallest_sets(transitions: Transitions, starts: NDArray[np.int64], eta: float) -> NDArray[np.float64]:
    """Size of the smallest set of outputs that holds 1 - eta of each group's mass."""
    count = transitions.count.astype(np.float64)
    # Groups stay where they are.
    count = count[np.lexsort((-count, transitions.word, transitions.epsilon_index))]
    before = np.cumsum(count) - count
    before -= np.repeat(before[starts], np.diff(starts, append=len(count)))
    needed = before < (1.0 - eta) * transitions.runs * (1.0 - 1e-9)
    return np.add.reduceat(needed.astype(np.float64), starts)
