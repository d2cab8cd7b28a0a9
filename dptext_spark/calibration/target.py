"""A target for a privacy statistic, its bound, and the search for the largest epsilon that meets it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import scipy

from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.record import option_line
from dptext_spark.calibration.statistics import LEVELS, OF_WORD
from dptext_spark.calibration.summary_table import BatchMeans, mean_interval
from dptext_spark.errors import ConfigError

STATISTICS: Final = ("mean", *LEVELS)

# The sign of a meaningful target: n_w grows with epsilon, the others fall.
COLUMNS: Final = {"n_w": "<=", "s_w": ">=", "s_eta": ">=", "entropy": ">=", "h_0": ">=", "h_inf": ">="}

# Half the epsilons that are tried at most, beside those to begin with.
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Target:
    """A limit for a statistic of the words, such as ``p95(n_w) <= 0.5``.

    Attributes:
        statistic, column: One of ``STATISTICS``, of the distribution over words of one of ``COLUMNS``.
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
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        possible = statistic in STATISTICS and COLUMNS.get(column) == sign
        if not possible or not 0.0 < limit < (1.0 if column == "n_w" else math.inf):
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
        """The column whose order statistic bounds a quantile: each word's limit, where it has one."""
        end = "high" if self.upper else "low"
        return f"{self.column}_{end}" if f"{self.column}_{end}" in OF_WORD else self.column

    @property
    def mean_column(self) -> str:
        """The column whose mean is bounded: n_w itself, which is unbiased, and of others what bounds them."""
        return "n_w" if self.column == "n_w" else self.bounded_column

    def looks(self, grid: Grid) -> int:
        """Say among how many looks, at one epsilon each, the chance of error is divided.

        The search looks at the same words and noise at every epsilon. Where a run in which a word stays is
        one at every larger epsilon too, a quantile of n_w and its bound only grow with epsilon. If an
        epsilon that misses the target seems to meet it, then so do all smaller ones that miss it: that this
        happens to any of them is no likelier than to the smallest. Elsewhere each look has its share of the
        chance of error, and so it has for a mean, whose bound need not grow with epsilon.

        Source: the events that the bound fails, at epsilons that come down to the border, contain each
            other; for the rest Bonferroni's inequality.
        """
        once = grid.monotone and self.column == "n_w" and self.statistic != "mean"
        certain = grid.exact and grid.whole
        return 1 if once or certain else most_looks(max(len(own) for _, own in grid.settings))

    def searched(self, grid: Grid) -> Grid:
        """Give the grid with the confidence that each look must have, so that the search has the grid's."""
        looks = self.looks(grid)
        return grid if looks == 1 else replace(grid, confidence=1.0 - (1.0 - grid.confidence) / looks)

    def met(self, bound: float) -> bool:
        """Say whether a confidence bound keeps to the limit."""
        return bound <= self.limit if self.upper else bound >= self.limit

    def bounded_mean(self, means: BatchMeans, grid: Grid) -> tuple[float, float]:
        """Give the column's mean over the words, and its bound on the side that matters."""
        mean, *_ = mean_interval(means[self.column], means["n"], 0.5)
        if grid.exact and grid.whole:
            return mean, mean
        _, low, high = mean_interval(means[self.mean_column], means["n"], 1.0 - grid.confidence)
        return mean, high if self.upper else low

    def rank(self, grid: Grid) -> int | None:
        """Say which of the words' values, in ascending order from 1, bounds the quantile; None for the mean.

        A sample's words count as drawn at random, and the runs of different words as independent. Where
        words have limits, at a tail of (1 - confidence) / 2 each, the values are these, so that some lie on
        the wrong side; the other columns are counts in these runs, and taken as they are.

        Raises:
            ConfigError: So many words cannot bound this quantile.

        Source: order statistics bound a quantile by the binomial law, David and Nagaraja 2003, "Order
            Statistics", section 7.1.
        """
        if self.statistic == "mean":
            return None
        words, level, alpha = grid.words, LEVELS[self.statistic], 1.0 - grid.confidence
        own = max(1, math.ceil(level * words))
        limited = self.bounded_column != self.column and not grid.exact
        missed = alpha / 2.0 if limited else 0.0
        if grid.whole:
            wrong = words - own + 1 if self.upper else own  # so many may be on the wrong side
            below = int(scipy.stats.binom.isf(alpha, wrong, missed)) if missed else 0
            rank = own + below if self.upper else own - below
        elif self.upper:
            rank = 1 + int(scipy.stats.binom.isf(alpha, words, level + (1.0 - level) * missed))
        else:
            # The largest rank such that, with chance alpha at most, fewer words are at or below the quantile.
            level *= 1.0 - missed
            rank = int(scipy.stats.binom.ppf(alpha, words, level))
            rank += int(scipy.stats.binom.cdf(rank, words, level) <= alpha)
        if not 1 <= rank <= words:
            raise ConfigError(
                f"The --target {self} cannot be told from {words} words with confidence {grid.confidence:g}",
                do="Give --words all, or more of them",
            )
        return rank


def tuned(
    target: Target,
    grid: Grid,
    number: int,
    measure: Callable[[float], tuple[float, float]],
    *,
    release_words: int | None,
) -> dict[str, Any]:
    """Find the largest epsilon at which a setting meets a target, and tell all that was seen on the way.

    Of a setting: where there are several, each search has the confidence for itself.

    Args:
        target: What is wanted.
        grid, number: The settings, with the epsilons to begin with, and which of them.
        measure: Gives the target's statistic at an epsilon, and its bound on the side that matters; raises
            ConfigError where the mechanism has no such epsilon.
        release_words: As a release is to be given it; None for all.

    Returns:
        A row of calibration.json's ``target``.
    """
    tried: dict[float, tuple[float, float]] = {}

    def meets(epsilon: float) -> bool:
        tried[epsilon] = measure(epsilon)
        return target.met(tried[epsilon][1])

    setting, (first, *_) = grid.settings[number]
    epsilon, missed = largest_epsilon(meets, grid.epsilons(number))
    found = dict.fromkeys(("measured", "bound", "options"))
    if epsilon is not None:
        options = option_line(first.model_copy(update={"epsilon": epsilon}))
        options += "" if release_words is None else f" --release-words {release_words}"
        options += "".join(f" --{name} {value}" for name, value in grid.search.options.items())
        found = dict(zip(found, (*tried[epsilon], options), strict=True))
    return {
        "target": str(target),
        "confidence": grid.confidence,
        "looks": target.looks(grid),
        "setting": setting,
        "epsilon": epsilon,
        "missed": missed,
        **found,
        "tried": [{"epsilon": e, "measured": m, "bound": b} for e, (m, b) in sorted(tried.items())],
    }


def largest_epsilon(
    meets: Callable[[float], bool], epsilons: Sequence[float]
) -> tuple[float | None, float | None]:
    """Find the largest epsilon that meets a target, to three significant digits, by doubling and bisection.

    At most :func:`most_looks` are judged.

    Args:
        meets: Says whether an epsilon does; raises ConfigError where the mechanism has no such epsilon.
        epsilons: Where to begin, 1 or more.

    Returns:
        The largest epsilon tried that does, None where none did; and the smallest tried above it that does
        not, None where all did.
    """
    low, met, high = 0.0, None, math.inf
    tried = iter(sorted(epsilons))
    for _ in range(most_looks(len(epsilons))):
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
    return met, None if math.isinf(high) else high


def most_looks(epsilons: int) -> int:
    """Say how many epsilons a search that begins with so many judges at most."""
    return epsilons + 2 * _STEPS


def _between(low: float, high: float) -> float:
    """The next epsilon to try, of three digits."""
    epsilon = 2.0 * low if math.isinf(high) else math.sqrt(low * high) if low else high / 2.0
    return float(f"{epsilon:.3g}")
