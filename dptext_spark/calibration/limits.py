"""Limits for what runs say of several words together: they hold for any number of runs.

Words may share the noise of a run: a *unit* is a run of the words that share it, and units are independent.
Weights w of words add up to 1, and those of the words of one unit to at most ``heaviest`` (W below).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

_BISECTIONS: Final = 60


def mean_limits(share: float, runs: int, heaviest: float, tail: float) -> tuple[float, float]:
    """Bound a weighted mean of probabilities by the same mean of shares of runs; each may fail with ``tail``.

    As if n = runs / W trials had been made: the limits are where n kl(share, p) = ln(1 / tail). For log E
    exp(u X) of an independent part X in [0, w] is convex in w and 0 at 0, so that it is at most w / W times
    that of a part in [0, W]; and concave in the parts' means, so that the sum's is at most that of n parts
    alike.

    Source: Hoeffding 1963, theorem 1, here with unequal weights.
    """
    if runs == 0:
        return 0.0, 1.0
    most = math.log(1.0 / tail) * heaviest / runs

    def border(there: float) -> float:
        """The p between the share and an end of [0, 1] at which the divergence is as large as it may be."""
        near, far = share, there
        for _ in range(_BISECTIONS):
            p = 0.5 * (near + far)
            near, far = (p, far) if _divergence(share, p) <= most else (near, p)
        return far

    return border(0.0), border(1.0)


def _divergence(q: float, p: float) -> float:
    """Relative entropy of two coins, in nats."""
    return float(scipy.special.rel_entr(q, p) + scipy.special.rel_entr(1.0 - q, 1.0 - p))


def most_below(runs: int, squares: float, tail: float) -> float:
    """Bound how far a function of units falls below its expectation, or rises above it, but for ``tail``.

    Args:
        runs: Runs of each word, 1 or more.
        squares: The sum of the squared weights of the words of a unit, over the units of one run.
        tail: The chance of error. If one word of weight 1 has another output in the only run, the function
            changes by 1 at most.

    Source: McDiarmid 1989, "On the method of bounded differences", lemma 1.2.
    """
    return math.sqrt(math.log(1.0 / tail) * squares / (2.0 * runs))


def least_count(runs: int, share: float, tail: float) -> int:
    """The largest count below which so many trials of probability ``share`` stay with chance ``tail``."""
    below: NDArray[np.float64] = scipy.special.bdtr(np.arange(runs, dtype=np.float64), runs, share)
    return int(np.searchsorted(below, tail, side="right"))
