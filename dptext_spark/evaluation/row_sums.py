"""Shares and means of words, with intervals that know that the words of a row belong together.

Rows are the independent units. Sums over rows are all that is kept, so parts of a table add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

# Terms are kept as multiples of a coarse and of a fine unit, so that their sums are exact up to 2^40.
_COARSE: Final = 2.0**-12
_FINE: Final = 2.0**-46


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSums:
    """Sums over the rows that have words, float64 (c,), for c classes of words.

    A row has a value v, such as how many words of it were guessed, and a size n, how many it has. Sums are
    the same to the last bit in whatever order and parts rows come.

    Attributes:
        parts: float64 (2, 6, c), two parts of each sum: how many rows have a size above 0, and the sums of v,
            n, v², v n and n².
    """

    parts: NDArray[np.float64]

    @classmethod
    def of(
        cls, rows: NDArray[np.int64], values: NDArray[np.float64], classes: NDArray[np.int64], count: int
    ) -> RowSums:
        """Add up values (t,) of words (t,), given the row and the class, below ``count``, of each.

        The words of a row must come in one order, for its own value to be the same number.
        """
        pairs, places = np.unique(rows * count + classes, return_inverse=True)
        value = np.bincount(places, weights=values, minlength=len(pairs))
        size = np.bincount(places, minlength=len(pairs)).astype(np.float64)
        terms = np.stack([np.ones(len(pairs)), value, size, value * value, value * size, size * size])
        coarse = np.rint(terms / _COARSE) * _COARSE
        fine = np.rint((terms - coarse) / _FINE) * _FINE
        parts = np.zeros((2, len(terms), count))
        for sums, kept in zip(parts, (coarse, fine), strict=True):
            for total, term in zip(sums, kept, strict=True):
                total += np.bincount(pairs % count, weights=term, minlength=count)
        return cls(parts=parts)

    def __add__(self, other: RowSums) -> RowSums:
        """Add the sums of other rows."""
        return RowSums(parts=self.parts + other.parts)

    @property
    def rows(self) -> NDArray[np.float64]:
        """Rows with a size above 0."""
        return self._sum(0)

    @property
    def value(self) -> NDArray[np.float64]:
        """Sum of v."""
        return self._sum(1)

    @property
    def size(self) -> NDArray[np.float64]:
        """Sum of n."""
        return self._sum(2)

    @property
    def value_value(self) -> NDArray[np.float64]:
        """Sum of v²."""
        return self._sum(3)

    @property
    def value_size(self) -> NDArray[np.float64]:
        """Sum of v n."""
        return self._sum(4)

    @property
    def size_size(self) -> NDArray[np.float64]:
        """Sum of n²."""
        return self._sum(5)

    def _sum(self, term: int) -> NDArray[np.float64]:
        total: NDArray[np.float64] = self.parts[:, term].sum(axis=0)
        return total

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Value per word, float64 (c,); NaN where there are no words."""
        return _divided(self.value, self.size)

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Standard error of the ratio, float64 (c,), by linearization; NaN for fewer than two rows.

        Source: Cochran 1977, "Sampling Techniques", section 6.5, without a finite population.
        """
        ratio = self.ratio
        spread = self.value_value - 2.0 * ratio * self.value_size + ratio * ratio * self.size_size
        variance = _divided(np.maximum(spread, 0.0) * self.rows, (self.rows - 1.0) * self.size * self.size)
        return np.sqrt(variance)

    def mean_interval(self, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound the mean per word from both sides, (c,) each, by Student's law; NaN for one row or none."""
        freedom = np.maximum(self.rows - 1.0, 1.0)
        reach = scipy.special.stdtrit(freedom, 0.5 + confidence / 2.0) * self.standard_error
        return self.ratio - reach, self.ratio + reach

    def share_interval(self, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound a share of words from both sides, (c,) each; 0 and 1 where there are no rows to tell it.

        An exact interval for as many independent words as would tell as much. Where no word or every word
        counts, no spread tells how many those are: each row counts as one.

        Source: Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of
        positive counts estimated from survey data", section 2.
        """
        ratio, tail = np.nan_to_num(np.clip(self.ratio, 0.0, 1.0)), (1.0 - confidence) / 2.0
        words, rows = np.maximum(self.size, 2.0), np.maximum(self.rows, 2.0)
        told = _divided(ratio * (1.0 - ratio), np.square(np.nan_to_num(self.standard_error)))
        # Few rows know their own spread badly.
        told *= np.square(scipy.special.stdtrit(words - 1, tail) / scipy.special.stdtrit(rows - 1, tail))
        told = np.where(told > 0.0, np.minimum(told, self.size), self.rows)  # NaN is not above 0
        hits, misses = ratio * told, (1.0 - ratio) * told
        some, all_but_some = (self.rows > 1.0) & (hits > 0.0), (self.rows > 1.0) & (misses > 0.0)
        low, high = np.zeros(len(ratio)), np.ones(len(ratio))
        low[some] = scipy.special.betaincinv(hits[some], misses[some] + 1.0, tail)
        high[all_but_some] = scipy.special.betainccinv(hits[all_but_some] + 1.0, misses[all_but_some], tail)
        return low, high


def _divided(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    result = np.full(len(top), np.nan)
    np.divide(top, bottom, out=result, where=bottom > 0.0)
    return result
