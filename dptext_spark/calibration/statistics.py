"""Privacy statistics of words, estimated from runs or exact, and limits of what runs say of many words.

Words may share the noise of a run: a *unit* is a run of the words that share it; units are independent.
Weights of words add up to 1, and those of the words of one unit to ``heaviest`` at most.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from dptext_spark.binomial import lower_limit, upper_limit
from dptext_spark.calibration.transitions import Transitions
from dptext_spark.errors import ConfigError

CONFIDENCE: Final = 0.95
ETA: Final = 0.05

OF_WORD: Final = (
    *("n_w", "n_w_low", "n_w_high", "s_w", "unseen", "s_eta", "s_eta_low"),
    *("entropy", "h_0", "h_inf"),
)
"""Columns of what is said of a word."""

LEVELS: Final = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}
"""Quantiles by which the distribution of a statistic over words is described."""


def word_statistics(
    transitions: Transitions, *, confidence: float = CONFIDENCE, eta: float = ETA
) -> pa.Table:
    """Say of each word how often it stays itself, and how many words it becomes.

    Args:
        confidence: Of each interval, for each word by itself; not for all words at once.
        eta: Mass that s_eta may leave out.

    Returns:
        One row for each epsilon_index (int16) and word (int32), in that order, and float64 columns, which
        end with ``_low`` and ``_high`` where they are limits (equal to the value where counts are exact):

        - n_w = P[M(w) = w], Clopper-Pearson limits.
        - s_w, the number of distinct outputs in these runs; h_0 = log2 s_w. They grow with the runs.
        - unseen, the chance that one more run gives a new output, by Good and Turing: the share of outputs
          that came once. Where it is large, so many runs say little of s_eta and entropy.
        - s_eta, the size of the smallest set of outputs that holds 1 - eta of the runs, and s_eta_low.
        - entropy (Shannon), in bits, as counted plus (s_w - 1) / (2 runs) nats. That leaves a bias of second
          order where runs are many, and too little where outputs are more than runs.
        - h_inf = -log2 of the largest probability, as counted: too low where runs are few.

    Source: Feyisetan et al. 2020, section 3, for N_w and S_w; Good 1953; Miller 1955, "Note on the bias of
        information estimates".
    """
    for name, value in (("confidence", confidence), ("eta", eta)):
        if not 0.0 < value < 1.0:
            what = f"The value of {name} is impossible"
            raise ConfigError(what, allowed="between 0 and 1", got=repr(value))
    starts, runs, tail = transitions.starts, transitions.runs, (1.0 - confidence) / 2.0
    stays = np.where(transitions.output == transitions.word, transitions.count, 0)
    n_w = np.add.reduceat(stays, starts) / runs
    s_w = np.add.reduceat(transitions.seen, starts)
    s_eta = _smallest_sets(transitions, starts, (1.0 - eta) * runs)
    entropy = np.add.reduceat(scipy.special.entr(transitions.probability), starts) / math.log(2.0) + 0.0
    likeliest = np.minimum(np.maximum.reduceat(transitions.probability, starts), 1.0)
    columns = {"n_w": n_w, "n_w_low": n_w, "n_w_high": n_w, "s_w": s_w, "unseen": np.zeros(len(s_w))}
    columns |= {"s_eta": s_eta, "s_eta_low": s_eta}
    columns |= {"entropy": entropy, "h_0": np.log2(s_w), "h_inf": -np.log2(likeliest) + 0.0}
    if not transitions.exact:
        hits = np.rint(n_w * runs)
        columns |= {"n_w_low": lower_limit(hits, runs, tail), "n_w_high": upper_limit(hits, runs, tail)}
        columns["unseen"] = np.add.reduceat(transitions.count == 1, starts, dtype=np.float64) / runs
        columns["s_eta_low"] = _smallest_sets(transitions, starts, least_count(runs, 1.0 - eta, tail))
        most = math.log2(transitions.release_words)
        columns["entropy"] = np.minimum(entropy + (s_w - 1.0) / (2.0 * runs * math.log(2.0)), most)
    keys = {"epsilon_index": transitions.epsilon_index[starts], "word": transitions.word[starts]}
    return pa.table(keys | {name: columns[name] for name in OF_WORD})


def _smallest_sets(transitions: Transitions, starts: NDArray[np.int64], least: float) -> NDArray[np.float64]:
    """Size of the smallest set of outputs that has at least so many of each word's runs, 1 or more.

    At 1 - eta of the runs it is s_eta; at ``least_count`` a lower limit, as no set of its size has more runs
    than the most frequent outputs.
    """
    count = transitions.count.astype(np.float64)
    # Groups stay where they are.
    count = count[np.lexsort((-count, transitions.word, transitions.epsilon_index))]
    before = np.cumsum(count) - count
    before -= np.repeat(before[starts], np.diff(starts, append=len(count)))
    needed = before < max(least * (1.0 - 1e-9), 0.5)
    return np.add.reduceat(needed.astype(np.float64), starts)


def least_count(runs: int, share: float, tail: float) -> int:
    """The largest count below which so many trials of probability ``share`` stay with chance ``tail``."""
    below = np.asarray(scipy.special.bdtr(np.arange(runs, dtype=np.float64), runs, share))
    return int(np.searchsorted(below, tail, side="right"))


def mean_limits(share: float, runs: int, heaviest: float, tail: float) -> tuple[float, float]:
    """Bound a weighted mean of probabilities by the same mean of shares of runs; each may fail with ``tail``.

    As if n = runs / heaviest trials had been made: the limits are where n kl(share, p) = ln(1 / tail). For
    log E exp(u X) of an independent part X in [0, w] is convex in w and 0 at 0, so that it is at most w / W
    times that of a part in [0, W]; and concave in the parts' means, so that the sum's is at most that of n
    parts alike.

    Source: Hoeffding 1963, theorem 1, here with unequal weights.
    """
    if runs == 0:
        return 0.0, 1.0
    most = math.log(1.0 / tail) * heaviest / runs
    limits = []
    for far in (0.0, 1.0):
        near = share
        for _ in range(60):  # bisections
            p = 0.5 * (near + far)
            divergence = scipy.special.rel_entr(share, p) + scipy.special.rel_entr(1.0 - share, 1.0 - p)
            near, far = (p, far) if divergence <= most else (near, p)
        limits.append(far)
    return limits[0], limits[1]


def most_below(runs: int, squares: float, tail: float) -> float:
    """Bound how far a function of units falls below its expectation, or rises above it, but for ``tail``.

    If one word of weight 1 has another output in the only run, the function changes by 1 at most.

    Args:
        squares: The sum of the squared weights of the words of a unit, over the units of one run.

    Source: McDiarmid 1989, "On the method of bounded differences", lemma 1.2.
    """
    return math.sqrt(math.log(1.0 / tail) * squares / (2.0 * runs))


def mean_interval(
    batches: NDArray[np.float64], sizes: NDArray[np.float64], tail: float
) -> tuple[float, float, float]:
    """Give the mean over all words and its Student limits, each of which may fail with ``tail``.

    ``batches`` and ``sizes`` (b,) are the means and words of 2 batches or more, which share no rays.
    """
    weights = sizes / sizes.sum()
    mean = float((weights * batches).sum())
    freedom = len(batches) - 1
    error = math.sqrt(float(np.square(weights * (batches - mean)).sum()) * len(batches) / freedom)
    width = float(scipy.stats.t.isf(tail, freedom)) * error
    return mean, mean - width, mean + width
