"""How far single-precision products can stray: one bound for all searches that settle near ties exactly."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dptext_spark.geometry import Floats, Floats32

UNIT_ROUNDOFF: Final = 2.0**-24
"""Of single precision."""


def gamma(terms: float) -> float:
    """Give gamma_n = n u / (1 - n u): a sum of n products in any order strays by gamma_n sum |x_i y_i|.

    ``terms`` is n, and one more for each further rounding that the bound shall pay for.

    Source: Higham 2002, "Accuracy and Stability of Numerical Algorithms", eq. 3.5.
    """
    return terms * UNIT_ROUNDOFF / (1.0 - terms * UNIT_ROUNDOFF)


def longest_of(half_norms: Floats32) -> float:
    """Length of the longest vector, from half the squared lengths (V,)."""
    return float(np.sqrt(2.0 * float(half_norms.max())))


def score_slack(terms: int, lengths: Floats, longest: float) -> Floats32:
    """Bound how far two single-precision scores q·y - |y|²/2 of one point can stray from their difference.

    ``terms`` are as in :func:`gamma`, ``lengths`` the points' |q|, ``longest`` is |y|. The
    bound is rounded up.
    """
    # Twice, for two scores.
    bound = 2.0 * gamma(terms) * longest * (lengths + longest)
    # The bound itself is rounded up on its way to float32, as are the thresholds made with it.
    return (bound * (1.0 + 8 * UNIT_ROUNDOFF)).astype(np.float32)


def bits_left(error: float, dimension: int) -> int:
    """Give the bits that noise of length 1 keeps in one coordinate of n, 1 / sqrt(n), beside an error."""
    return max(0, math.floor(-math.log2(error * math.sqrt(dimension))))
