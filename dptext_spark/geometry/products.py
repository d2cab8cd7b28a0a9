"""Matrix products whose bits depend on the row alone, and error bounds in single precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from dptext_spark.geometry import Floats, Floats32, WordVectors

UNIT_ROUNDOFF: Final = 2.0**-24
"""The unit roundoff of single precision."""

_BLOCK_FLOATS: Final = 2**18


@dataclass(frozen=True, kw_only=True)
class ExactProduct:
    """A matrix that multiplies rows so that a row's product does not depend on other rows.

    BLAS sums in an order that follows the shape of its operands and the number of threads. Here
    both factors are cut into parts of so few bits that every partial sum is exact, so that no order
    matters (Ozaki et al. 2012). Both factors keep twice those bits: 42 at n = 300.
    """

    high: Floats  # (n, m), leading bits of the matrix, scaled to at most 1
    low: Floats  # (n, m), the bits after them
    scale: float  # power of two by which the matrix was divided
    bits: int  # of each part

    @classmethod
    def of(cls, matrix: Floats) -> ExactProduct:
        """Cut a matrix (n, m), not all zero."""
        # n products of two parts need 2 bits + log2(n) bits, and float64 holds 53.
        bits = (53 - int(matrix.shape[0]).bit_length()) // 2 - 1
        scale = float(2.0 ** np.ceil(np.log2(np.abs(matrix).max())))
        high, low = _cut(matrix / scale, bits)
        return cls(high=high, low=low, scale=scale, bits=bits)

    def times(self, rows: Floats) -> Floats:
        """Multiply rows (t, n), entries in [-1, 1], with the matrix; float64 (t, m)."""
        high, low = _cut(rows, self.bits)
        product: Floats = high @ self.low
        product += low @ self.high
        product += high @ self.high
        product *= self.scale
        return product

    def error(self, matrix: Floats) -> float:
        """Bound |computed - exact| of rows of length 1 times the matrix, without the rows' own cut.

        That is the remainder of the cut matrix, the product of the two low parts, which is left
        out, and two sums. The remainder of cut rows is sqrt(n) 2^-(2 bits + 1) of them at most.
        """
        remainder = matrix / self.scale - self.high - self.low  # exact
        low_norm = float(np.linalg.norm(self.low, 2))
        low_product = low_norm * math.sqrt(len(self.low)) * 2.0 ** -(self.bits + 1)
        sums = 2.0**-51 * float(np.linalg.norm(matrix))
        return self.scale * (float(np.linalg.norm(remainder)) + low_product) + sums


def _cut(values: Floats, bits: int) -> tuple[Floats, Floats]:
    """Cut values in [-1, 1] into multiples of 2^-bits and, of the rest, of 2^(-2 bits)."""
    unit = 2.0**bits
    high = np.rint(values * unit) / unit
    low = np.rint((values - high) * unit**2) / unit**2
    return high, low


def words_times(vectors: WordVectors, points: Floats32) -> Floats32:
    """Multiply words' vectors (V, n) with points (k, n) in single precision: float32 (V, k)."""
    if vectors.dtype == np.float32:
        return np.asarray(vectors @ points.T)
    products = np.empty((len(vectors), len(points)), dtype=np.float32)
    step = _BLOCK_FLOATS // vectors.shape[1] + 1
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step].astype(np.float32)
        np.matmul(block, points.T, out=products[start : start + step])
    return products


def gamma(terms: float) -> float:
    """Compute gamma_n = n u / (1 - n u).

    A sum of n products in any order strays by at most gamma_n sum |x_i y_i|. ``terms`` is n, and
    one more for each further rounding that the bound covers.

    Source: Higham 2002, "Accuracy and Stability of Numerical Algorithms", eq. 3.5.
    """
    return terms * UNIT_ROUNDOFF / (1.0 - terms * UNIT_ROUNDOFF)


def longest_of(half_norms: Floats32) -> float:
    """Compute the length of the longest vector from half the squared lengths (V,)."""
    return float(np.sqrt(2.0 * float(half_norms.max())))


def score_slack(terms: int, lengths: Floats, longest: float) -> Floats32:
    """Bound the error of the difference of a point's two single-precision scores q·y - |y|²/2.

    ``terms`` are as in :func:`gamma`, ``lengths`` the points' |q|, ``longest`` is |y|. The bound is
    rounded up.
    """
    # Twice, for two scores.
    bound = 2.0 * gamma(terms) * longest * (lengths + longest)
    # The bound itself is rounded up on its way to float32, as are the thresholds made with it.
    return (bound * (1.0 + 8 * UNIT_ROUNDOFF)).astype(np.float32)
