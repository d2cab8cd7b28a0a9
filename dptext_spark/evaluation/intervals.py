"""Shares and means of words, with intervals that allow for the words of a row belonging together.

Rows are the independent units. Only sums over rows are kept, so parts of a table add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.calibration.statistics import lower_limit, upper_limit
from dptext_spark.geometry import Floats, Ints

Interval: TypeAlias = tuple[float, float, float]
"""A value and the ends of its interval, NaN of nothing."""

# Terms are kept as multiples of a coarse and of a fine unit, so that their sums are exact up to
# 2^40.
_COARSE: Final = 2.0**-12
_FINE: Final = 2.0**-46

_TINY: Final = 1e-300
_NEARLY_ONE: Final = 1.0 - 2.0**-40
# A variance below this share of the mean square is rounding.
_CONSTANT: Final = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterSums:
    """Sums over the rows that have words, for c classes of words.

    A row has a value v, such as how many of its words were guessed, and a size n, its number of
    words. Sums are the same to the last bit in whatever order and parts rows come.
    """

    # (2, 6, c), two parts of each sum: rows with a size above 0, v, n, v², v n and n².
    parts: Floats

    @classmethod
    def of(
        cls, rows: Ints, values: NDArray[Any], classes: Ints | int = 0, count: int = 1
    ) -> ClusterSums:
        """Add up values (t,) of words (t,), given the row of each, and its class below ``count``.

        The words of a row must come in one order, for its own value to be the same number.
        """
        pairs, places = np.unique(rows * count + classes, return_inverse=True)
        value = np.bincount(places, weights=values, minlength=len(pairs))
        size = np.bincount(places, minlength=len(pairs)).astype(np.float64)
        terms = np.stack(
            [np.ones(len(pairs)), value, size, value * value, value * size, size * size]
        )
        coarse = np.rint(terms / _COARSE) * _COARSE
        fine = np.rint((terms - coarse) / _FINE) * _FINE
        class_of_pair = pairs % count
        parts = [*coarse, *fine]
        sums = [np.bincount(class_of_pair, weights=part, minlength=count) for part in parts]
        return cls(parts=np.array(sums, dtype=np.float64).reshape(2, 6, count))

    @classmethod
    def banded(cls, rows: Ints, values: NDArray[Any], bands: Ints, count: int) -> ClusterSums:
        """Add up values (t,) for ``count`` + 1 classes: all words, then the bands, from 0 on."""
        classes = np.concatenate([np.zeros(len(bands), dtype=np.int64), bands + 1])
        return cls.of(np.tile(rows, 2), np.tile(values, 2), classes, count + 1)

    @classmethod
    def of_rows(cls, hits: int, rows: int) -> ClusterSums:
        """Add up rows that are hits or not."""
        terms = np.array([rows, hits, rows, hits, hits, rows], dtype=np.float64)
        return cls(parts=np.stack([terms, np.zeros(6)])[:, :, None])

    def __add__(self, other: ClusterSums) -> ClusterSums:
        """Add the sums of other rows."""
        return ClusterSums(parts=self.parts + other.parts)

    @property
    def sums(self) -> Floats:
        """The rows with a size above 0, and the sums of v, n, v², v n and n²: float64 (6, c)."""
        return np.asarray(self.parts.sum(axis=0))

    @property
    def rows(self) -> Floats:
        """Rows with a size above 0, (c,)."""
        return np.asarray(self.sums[0])

    @property
    def size(self) -> Floats:
        """Sum of n, (c,)."""
        return np.asarray(self.sums[2])

    @property
    def ratio(self) -> Floats:
        """Value per word, float64 (c,); NaN where there are no words."""
        return _divided(self.sums[1], self.size)

    @property
    def standard_error(self) -> Floats:
        """Standard error of the ratio, float64 (c,), by linearization; NaN for fewer than two rows.

        Source: Cochran 1977, "Sampling Techniques", section 6.5, without a finite population.
        """
        rows, _, size, value_value, value_size, size_size = self.sums
        ratio = self.ratio
        spread = value_value - 2.0 * ratio * value_size + ratio * ratio * size_size
        return np.sqrt(_divided(np.maximum(spread, 0.0) * rows, (rows - 1.0) * size * size))

    def share_interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Bound a share of words from both sides, (c,) each; 0 and 1 for fewer than two rows.

        An exact interval for the number of independent words that would give the same standard
        error. Where no word or every word counts there is no spread: each row counts as one word.

        Source: Korn and Graubard 1998, "Confidence intervals for proportions with small expected
        number of positive counts estimated from survey data", section 2.
        """
        ratio = np.nan_to_num(np.clip(self.ratio, 0.0, 1.0))
        tail = (1.0 - confidence) / 2.0
        words = np.maximum(self.size, 2.0)
        rows = np.maximum(self.rows, 2.0)
        effective = _divided(ratio * (1.0 - ratio), np.square(np.nan_to_num(self.standard_error)))
        # A spread estimated from few rows is uncertain itself.
        of_words = scipy.special.stdtrit(words - 1, tail)
        of_rows = scipy.special.stdtrit(rows - 1, tail)
        effective *= np.square(of_words / of_rows)
        has_spread = effective > 0.0  # not for NaN
        effective = np.where(has_spread, np.minimum(effective, self.size), self.rows)
        hits = ratio * effective
        low = lower_limit(hits, effective, tail)
        high = upper_limit(hits, effective, tail)
        return np.where(self.rows > 1.0, low, 0.0), np.where(self.rows > 1.0, high, 1.0)

    def share(self, confidence: float) -> Interval:
        """Return the share of the first class with its interval."""
        low, high = self.share_interval(confidence)
        return float(self.ratio[0]), float(low[0]), float(high[0])

    def mean(self, confidence: float) -> Interval:
        """Return the mean of the first class with its interval by Student's law.

        The interval is NaN for one row or none.
        """
        freedom = max(float(self.rows[0]) - 1.0, 1.0)
        mean = float(self.ratio[0])
        quantile = scipy.special.stdtrit(freedom, 0.5 + confidence / 2.0)
        reach = float(quantile * self.standard_error[0])
        return mean, mean - reach, mean + reach


@dataclass(frozen=True, kw_only=True, eq=False)
class Dyads:
    """Moments of two numbers x and y of pairs of vectors, whose correlation is asked for.

    A row is in many pairs, so they are not independent: the moments are also kept by row, squared.
    """

    sums: Floats  # (6,), over pairs: of 1, x, y, x², y² and xy
    by_row: Floats  # (6, 6), over rows: what a row's pairs sum up to, times itself

    @classmethod
    def of(cls, numbers: Sequence[Floats], rows: tuple[Ints, Ints]) -> Self:
        """Add up x and y of pairs (p,), and the two rows of each, from 0 on."""
        x, y = numbers
        first, second = rows
        moments = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
        sums_of_rows = np.zeros((int(max(first.max(initial=-1), second.max(initial=-1))) + 1, 6))
        np.add.at(sums_of_rows, first, moments)
        is_of_two = first != second
        np.add.at(sums_of_rows, second[is_of_two], moments[is_of_two])
        return cls(sums=moments.sum(axis=0), by_row=sums_of_rows.T @ sums_of_rows)

    def __add__(self, other: Dyads) -> Dyads:
        """Add the pairs of other rows."""
        return Dyads(sums=self.sums + other.sums, by_row=self.by_row + other.by_row)

    def correlation(self, confidence: float) -> Interval:
        """Return the correlation of x and y, 0 where one is constant; NaN without pairs.

        The interval is symmetric in Fisher's transform of it. Source for the standard error:
        Aronow, Samii and Assenova 2015, "Cluster-robust variance estimation for dyadic data".
        """
        pairs = self.sums[0]
        if pairs == 0.0:
            return np.nan, np.nan, np.nan
        _, x, y, xx, yy, xy = self.sums / pairs
        variances = xx - x * x, yy - y * y
        if min(variances[0] / max(xx, _TINY), variances[1] / max(yy, _TINY)) <= _CONSTANT:
            return 0.0, 0.0, 0.0
        spread = np.sqrt(variances[0] * variances[1])
        value = float(np.clip((xy - x * y) / spread, -1.0, 1.0))
        # What a pair adds to the correlation, as a linear function of its moments.
        of_products = np.array([x * y, -y, -x, 0.0, 0.0, 1.0]) / spread
        of_x = np.array([x * x, -2.0 * x, 0.0, 1.0, 0.0, 0.0]) / variances[0]
        of_y = np.array([y * y, 0.0, -2.0 * y, 0.0, 1.0, 0.0]) / variances[1]
        influence = of_products - value / 2.0 * (of_x + of_y)
        error = math.sqrt(max(float(influence @ self.by_row @ influence), 0.0)) / pairs
        reach = float(scipy.special.ndtri(0.5 + confidence / 2.0)) * error
        reach /= max(1.0 - value * value, _TINY)
        centre = np.arctanh(np.clip(value, -_NEARLY_ONE, _NEARLY_ONE))
        return value, float(np.tanh(centre - reach)), float(np.tanh(centre + reach))


def _divided(top: Floats, bottom: Floats) -> Floats:
    """Divide numbers (c,); NaN where the divisor is not above 0."""
    result = np.full(len(top), np.nan)
    np.divide(top, bottom, out=result, where=bottom > 0.0)
    return result
