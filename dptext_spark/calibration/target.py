"""A target for a privacy statistic, and the bound by which it is judged."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from scipy import stats

from dptext_spark.calibration.batches import BatchMeans, mean_interval
from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.errors import ConfigError

STATISTICS: Final = ("mean", *LEVELS)

# The sign of a meaningful target: n_w grows with epsilon, the others fall.
COLUMNS: Final = {"n_w": "<=", "s_w": ">=", "s_eta": ">=", "entropy": ">=", "h_0": ">=", "h_inf": ">="}


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

    def bounded_mean(self, means: BatchMeans, grid: Grid) -> tuple[float, float]:
        """Give the column's mean over the words, and its bound on the side that matters."""
        mean, low, high = mean_interval(means[self.column], means["n"], 1.0 - grid.confidence)
        if grid.exact and grid.whole:
            return mean, mean
        return mean, high if self.upper else low

    def rank(self, grid: Grid) -> int | None:
        """Say which of the words' values, in ascending order from 1, bounds the quantile; None for the mean.

        A sample's words count as drawn at random, and the runs of different words as independent. For n_w
        the values are the words' upper limits at a tail of (1 - confidence) / 2 each, so that some lie too
        low; the other columns are taken as measured.

        Raises:
            ConfigError: So many words cannot bound this quantile.

        Source: order statistics bound a quantile by the binomial law, David and Nagaraja 2003, "Order
            Statistics", section 7.1.
        """
        if self.statistic == "mean":
            return None
        words, level, alpha = grid.words, LEVELS[self.statistic], 1.0 - grid.confidence
        own = max(1, math.ceil(level * words))
        missed = alpha / 2.0 if self.column == "n_w" and not grid.exact else 0.0
        if grid.whole:
            below = stats.binom.isf(alpha, words - own + 1, missed) if missed else 0
            rank = own + int(below) if self.upper else own
        elif self.upper:
            rank = 1 + int(stats.binom.isf(alpha, words, level + (1.0 - level) * missed))
        else:
            rank = _largest_below(alpha, words, level)
        if not 1 <= rank <= words:
            raise ConfigError(
                f"The --target {self} cannot be told from {words} words with confidence {grid.confidence:g}",
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
