"""A target for words, its bound over them, and the search for the epsilon that meets it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import scipy

from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import LEVELS, OF_WORD, mean_interval
from dptext_spark.calibration.summary import BatchMeans
from dptext_spark.errors import ConfigError
from dptext_spark.limit import Limit, Meaning

# The sign of a meaningful target: n_w grows with epsilon, the others fall.
_SIGNS: Final = {"n_w": "<=", "s_w": ">=", "s_eta": ">=", "entropy": ">=", "h_0": ">=", "h_inf": ">="}

# Half the epsilons that are tried at most, besides those to begin with.
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit for a statistic over words, such as ``p95(n_w) <= 0.5``."""

    allowed = (
        "STATISTIC(n_w) <= NUMBER between 0 and 1, or STATISTIC(COLUMN) >= NUMBER above 0, "
        f"COLUMN {', '.join([*_SIGNS][1:])}; STATISTIC {', '.join(('mean', *LEVELS))}"
    )

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        if measure not in ("mean", *LEVELS) or len(arguments) != 1 or arguments[0] not in _SIGNS:
            return None
        return arguments, _SIGNS[arguments[0]], 1.0 if arguments[0] == "n_w" else math.inf

    @property
    def bounding(self) -> str:
        """The column that bounds the statistic: each word's limit, where it has one.

        A mean of n_w is bounded by n_w itself, which is unbiased.
        """
        column = self.arguments[0]
        limit = f"{column}_{'high' if self.upper else 'low'}"
        return limit if limit in OF_WORD and (self.measure, column) != ("mean", "n_w") else column


# The bound of a statistic of words


def looks(target: Target, grid: Grid) -> int:
    """Say among how many looks, at one epsilon each, the chance of error is divided.

    One where a quantile of n_w and its bound only grow with epsilon, as words and noise are the same at
    all: if an epsilon that misses the target seems to meet it, then so do all smaller ones that miss it.
    Elsewhere, as for a mean, whose bound need not grow, each look has its share (Bonferroni).
    """
    once = grid.monotone and target.arguments == ("n_w",) and target.measure != "mean"
    return 1 if once or grid.certain else len(grid.mechanisms) + 2 * _STEPS


def searched(target: Target, grid: Grid) -> Grid:
    """Give the grid with the confidence that each look must have, so that the search has the grid's."""
    number = looks(target, grid)
    return grid if number == 1 else replace(grid, confidence=1.0 - (1.0 - grid.confidence) / number)


def bounded_mean(target: Target, means: BatchMeans, grid: Grid) -> tuple[float, float]:
    """Give the column's mean over the words, and its bound on the side that matters."""
    mean, *_ = mean_interval(means[target.arguments[0]], means["n"], 0.5)
    if grid.certain:
        return mean, mean
    _, low, high = mean_interval(means[target.bounding], means["n"], 1.0 - grid.confidence)
    return mean, high if target.upper else low


def bounding_rank(target: Target, grid: Grid) -> int | None:
    """Say which of the words' values, in ascending order from 1, bounds the quantile; None for the mean.

    A sample's words count as drawn at random, and the runs of different words as independent. Where
    words have limits, at a tail of (1 - confidence) / 2 each, the values are these, so that some lie on
    the wrong side; the other columns are counts in these runs, and taken as they are.

    Raises:
        ConfigError: So many words cannot bound this quantile.

    Source: order statistics bound a quantile by the binomial law, David and Nagaraja 2003, "Order
        Statistics", section 7.1.
    """
    if target.measure == "mean":
        return None
    words, level, alpha = grid.words, LEVELS[target.measure], 1.0 - grid.confidence
    limited = target.bounding != target.arguments[0] and not grid.exact
    missed = alpha / 2.0 if limited else 0.0
    if grid.words == grid.vocabulary:
        own = max(1, math.ceil(level * words))
        wrong = words - own + 1 if target.upper else own  # so many may be on the wrong side
        below = int(scipy.stats.binom.isf(alpha, wrong, missed)) if missed else 0
        rank = own + below if target.upper else own - below
    elif target.upper:
        rank = 1 + int(scipy.stats.binom.isf(alpha, words, level + (1.0 - level) * missed))
    else:
        # The largest rank such that, with chance alpha at most, fewer words are at or below the quantile.
        level *= 1.0 - missed
        rank = int(scipy.stats.binom.ppf(alpha, words, level))
        rank += int(scipy.stats.binom.cdf(rank, words, level) <= alpha)
    if not 1 <= rank <= words:
        raise ConfigError(
            f"{words} words are too few for --target {target} with confidence {grid.confidence:g}",
            do="Give --words all, or more of them",
        )
    return rank


# The search


def tuned(
    target: Target,
    grid: Grid,
    measure: Callable[[float], tuple[float, float]],
    *,
    release_words: int | None,
) -> dict[str, Any]:
    """Find the largest epsilon at which a mechanism meets a target: a row of calibration.json's ``target``.

    Where there are several mechanisms, each search has the confidence for itself.

    Args:
        target: What is wanted.
        grid: The mechanism, at the epsilons to begin with.
        measure: Gives the target's statistic at an epsilon, and its bound on the side that matters; raises
            ConfigError where the mechanism has no such epsilon.
        release_words: As a release is to be given it; None for all.
    """
    tried: dict[float, tuple[float, float]] = {}

    def meets(epsilon: float) -> bool:
        tried[epsilon] = measure(epsilon)
        return target.met(tried[epsilon][1])

    epsilon, missed = largest_epsilon(meets, grid.epsilons)
    measured = bound = options = None
    if epsilon is not None:
        measured, bound = tried[epsilon]
        chosen = {"mechanism": grid.name, "epsilon": repr(epsilon).removesuffix(".0")}  # all its digits
        chosen |= {} if release_words is None else {"release-words": str(release_words)}
        chosen |= {name: str(value) for name, value in grid.search.options.items()}
        options = " ".join(f"--{name} {value}" for name, value in chosen.items())
    return {
        "target": str(target),
        "confidence": grid.confidence,
        "looks": looks(target, grid),
        "mechanism": grid.name,
        "epsilon": epsilon,
        "missed": missed,
        "measured": measured,
        "bound": bound,
        "options": options,
        "tried": [{"epsilon": e, "measured": m, "bound": b} for e, (m, b) in sorted(tried.items())],
    }


def largest_epsilon(
    meets: Callable[[float], bool], epsilons: Sequence[float]
) -> tuple[float | None, float | None]:
    """Find the largest epsilon that meets a target, to three significant digits, by doubling and bisection.

    Args:
        meets: Says whether an epsilon does; raises ConfigError where the mechanism has no such epsilon.
        epsilons: Where to begin, 1 or more.

    Returns:
        The largest epsilon tried that does, None where none did; and the smallest tried above it that does
        not, None where all did.
    """
    low, met, high = 0.0, None, math.inf
    begin = iter(sorted(epsilons))
    for _ in range(len(epsilons) + 2 * _STEPS):
        epsilon = next(begin, None) if math.isinf(high) else None
        if epsilon is None:
            between = 2.0 * low if math.isinf(high) else math.sqrt(low * high) if low else high / 2.0
            epsilon = float(f"{between:.3g}")
        if not low < epsilon < high:
            break
        try:
            if meets(epsilon):
                low = met = epsilon
            else:
                high = epsilon
        except ConfigError:  # too low for this mechanism
            low = epsilon
    return met, None if math.isinf(high) else high
