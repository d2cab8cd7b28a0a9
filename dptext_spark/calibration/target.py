"""A target for a privacy statistic, and the largest epsilon that meets it within confidence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dptext_spark.errors import ConfigError

LEVELS: Final = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}
STATISTICS: Final = ("mean", *LEVELS)

# The sign of a meaningful target: n_w grows with epsilon, the others fall.
COLUMNS: Final = {"n_w": "<=", "s_w": ">=", "s_eta": ">=", "entropy": ">=", "h_0": ">=", "h_inf": ">="}

# Half the epsilons that are tried at most, beside those to begin with.
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Target:
    """A limit for a statistic of the words, such as ``p95(n_w) <= 0.5``.

    Attributes:
        statistic: One of ``STATISTICS``: of the distribution over words.
        column: One of ``COLUMNS``.
        limit: For n_w the most that is allowed, for the others the least.
    """

    statistic: str
    column: str
    limit: float

    def __str__(self) -> str:
        return f"{self.statistic}({self.column}) {COLUMNS[self.column]} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``STATISTIC(COLUMN) <= NUMBER``, or ``>=``.

        Raises:
            ConfigError: The text says something else, or the target has no meaning.
        """
        found = re.fullmatch(r"\s*(\w+)\s*\(\s*(\w+)\s*\)\s*(<=|>=)\s*(\S+)\s*", text)
        statistic, column, sign, number = found.groups() if found else ("", "", "", "")
        limit = _number(number)
        possible = statistic in STATISTICS and COLUMNS.get(column) == sign and math.isfinite(limit)
        if not possible or limit <= 0.0 or (column == "n_w" and limit >= 1.0):
            least = [name for name, sign in COLUMNS.items() if sign == ">="]
            raise ConfigError(
                "The --target has a wrong value",
                allowed=f"STATISTIC(n_w) <= NUMBER between 0 and 1, or STATISTIC(COLUMN) >= NUMBER above 0, "
                f"COLUMN {', '.join(least)}; STATISTIC {', '.join(STATISTICS)}",
                got=repr(text),
            )
        return cls(statistic=statistic, column=column, limit=limit)

    @property
    def upper(self) -> bool:
        """Whether the limit is the most that is allowed."""
        return COLUMNS[self.column] == "<="

    @property
    def bounded_column(self) -> str:
        """The column whose order statistic bounds a quantile: each word's upper limit of n_w, else itself."""
        return "n_w_high" if self.column == "n_w" else self.column

    def met(self, bound: float) -> bool:
        """Say whether a confidence bound keeps to the limit."""
        return bound <= self.limit if self.upper else bound >= self.limit

    def rank(self, words: int, *, whole: bool, exact: bool, confidence: float) -> int:
        """Say which of the words' values, in ascending order from 1, bounds the quantile.

        A sample's words count as drawn at random, and the runs of different words as independent. For n_w
        the values are the words' upper limits at a tail of (1 - confidence) / 2 each, so that some lie too
        low; the other columns are taken as measured.

        Args:
            words: Number of values.
            whole: They are all words of the vocabulary, not a sample.
            exact: The values are computed, without error of runs.
            confidence: Of the bound, one-sided.

        Raises:
            ConfigError: So many words cannot bound this quantile.

        Source: order statistics bound a quantile by the binomial law, David and Nagaraja 2003, "Order
            Statistics", section 7.1.
        """
        level, alpha = LEVELS[self.statistic], 1.0 - confidence
        own = max(1, math.ceil(level * words))
        missed = alpha / 2.0 if self.column == "n_w" and not exact else 0.0
        if whole:
            below = stats.binom.isf(alpha, words - own + 1, missed) if missed else 0
            rank = own + int(below) if self.upper else own
        elif self.upper:
            rank = 1 + int(stats.binom.isf(alpha, words, level + (1.0 - level) * missed))
        else:
            rank = _largest_below(alpha, words, level)
        if not 1 <= rank <= words:
            raise ConfigError(
                f"The --target {self} cannot be told from {words} words with confidence {confidence:g}",
                do="Give --words all, or more of them",
            )
        return rank


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _largest_below(alpha: float, words: int, level: float) -> int:
    """Largest k such that, with chance alpha at most, fewer than k words are at or below the quantile."""
    k = int(stats.binom.ppf(alpha, words, level))
    return k + 1 if stats.binom.cdf(k, words, level) <= alpha else k


def mean_interval(
    batches: NDArray[np.float64], sizes: NDArray[np.float64], tail: float
) -> tuple[float, float, float]:
    """Give the mean over all words and its Student limits from batches that are alike and independent.

    Args:
        batches: float64 (b,), the batches' means, 2 or more.
        sizes: float64 (b,), their words.
        tail: The chance of error on either side.

    Source: batch means; the words of a batch may share their rays, those of two batches do not.
    """
    weights = sizes / sizes.sum()
    mean = float((weights * batches).sum())
    freedom = len(batches) - 1
    error = math.sqrt(float(np.square(weights * (batches - mean)).sum()) * len(batches) / freedom)
    width = float(stats.t.isf(tail, freedom)) * error
    return mean, mean - width, mean + width


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """Where a search ended.

    Attributes:
        met: The largest epsilon tried that met the target; None where none did.
        missed: The smallest epsilon above it that did not; None where all did.
    """

    met: float | None
    missed: float | None


def largest_epsilon(meets: Callable[[float], bool], epsilons: Sequence[float]) -> Bracket:
    """Find the largest epsilon that meets a target, to three significant digits, by doubling and bisection.

    Each epsilon is judged by itself. The chance that one is found that only seemed to meet the target is
    that of the few judged near the border, not of one.

    Args:
        meets: Says whether an epsilon does; raises ConfigError where the mechanism has no such epsilon.
        epsilons: Where to begin, 1 or more.
    """
    low, met, high = 0.0, None, math.inf
    tried = iter(sorted(epsilons))
    for _ in range(len(epsilons) + 2 * _STEPS):
        epsilon = next(tried, None) if math.isinf(high) else None
        epsilon = epsilon or _between(low, high)
        if not low < epsilon < high:
            break
        try:
            if not meets(epsilon):
                high = epsilon
                continue
            low = met = epsilon
        except ConfigError:  # too low for this mechanism
            low = epsilon
    return Bracket(met=met, missed=None if math.isinf(high) else high)


def _between(low: float, high: float) -> float:
    """The next epsilon to try, of three digits."""
    if math.isinf(high):
        return _rounded(2.0 * low)
    return _rounded(high / 2.0 if low == 0.0 else math.sqrt(low * high))


def _rounded(epsilon: float) -> float:
    return float(f"{epsilon:.3g}")
