"""What counts of independent trials say about a probability, exactly."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

Counts = NDArray[np.int64] | NDArray[np.float64] | int


def lower_limit(hits: Counts, runs: int, tail: float) -> NDArray[np.float64]:
    """Bound a probability from below, by hits of any shape in so many trials; it may fail with ``tail``.

    Source: Clopper and Pearson 1934.
    """
    return np.where(hits > 0, scipy.special.betaincinv(np.maximum(hits, 1), runs - hits + 1, tail), 0.0)


def upper_limit(hits: Counts, runs: int, tail: float) -> NDArray[np.float64]:
    """Bound a probability from above; see :func:`lower_limit`."""
    return np.where(hits < runs, scipy.special.betainccinv(hits + 1, np.maximum(runs - hits, 1), tail), 1.0)


def tail_probability(
    counts: NDArray[np.int64], probabilities: NDArray[np.float64], runs: int
) -> NDArray[np.float64]:
    """Give the one-sided probability of each count of ``runs`` trials, or of one farther out."""
    share = np.clip(probabilities, 0.0, 1.0)
    as_many = np.where(
        counts > 0, scipy.special.betainc(np.maximum(counts, 1), runs - counts + 1, share), 1.0
    )
    as_few = np.where(
        counts < runs, scipy.special.betaincc(counts + 1, np.maximum(runs - counts, 1), share), 1.0
    )
    return np.minimum(as_many, as_few)
