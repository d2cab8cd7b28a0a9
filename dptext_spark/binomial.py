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
