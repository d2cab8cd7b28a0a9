"""Targets of a calibration, the bound that meets one, and the largest epsilon that does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import scipy

from dptext_spark.calibration.estimators import Grid
from dptext_spark.calibration.limit import Limit, Meaning
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.errors import ConfigError

# The sign of a meaningful target: n_w grows with epsilon, the others fall.
_SIGNS: Final = {
    "n_w": "<=",
    "s_w": ">=",
    "s_eta": ">=",
    "entropy": ">=",
    "h_0": ">=",
    "h_inf": ">=",
    "k_gamma": ">=",
}

# Half the epsilons that are tried at most, besides those to begin with.
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit for a statistic over words, such as ``p95(n_w) <= 0.5``."""

    allowed = (
        "STATISTIC(n_w) <= NUMBER between 0 and 1, or STATISTIC(COLUMN) >= NUMBER above 0, "
        f"COLUMN {', '.join([*_SIGNS][1:])}; STATISTIC {', '.join(LEVELS)}"
    )

    example = "p95(n_w) <= 0.5"

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        if measure not in LEVELS or len(arguments) != 1:
            return None
        (column,) = arguments
        if column not in _SIGNS:
            return None
        ceiling = 1.0 if column == "n_w" else math.inf
        return arguments, _SIGNS[column], ceiling


def searched(target: Target, grid: Grid) -> Grid:
    """Return the grid with the confidence that one look takes, so that the search has the grid's.

    A look keeps the grid's own confidence where a quantile of n_w and its bound only grow with
    epsilon, as words and noise are the same at all: if an epsilon that misses the target seems to
    meet it, then so do all smaller ones that miss it. Likewise where nothing is left to chance.
    Elsewhere each look has its share (Bonferroni).
    """
    is_certain = grid.exact and grid.words == grid.vocabulary
    if is_certain or (grid.monotone and target.arguments == ("n_w",)):
        return grid
    looks = len(grid.mechanisms) + 2 * _STEPS
    return replace(grid, confidence=1.0 - (1.0 - grid.confidence) / looks)


def bounding_rank(target: Target, grid: Grid) -> int:
    """Compute which of the words' values, in ascending order from 1, bounds the quantile.

    A sample's words count as drawn at random, and the runs of different words as independent. The
    values of n_w are upper limits, at a tail of (1 - confidence) / 2 each: some lie on the wrong
    side.

    Source: David and Nagaraja 2003, "Order Statistics", section 7.1.
    """
    words = grid.words
    level = LEVELS[target.measure]
    alpha = 1.0 - grid.confidence
    missed = alpha / 2.0 if target.upper and not grid.exact else 0.0
    if grid.words == grid.vocabulary:
        rank = max(1, math.ceil(level * words))
        if missed:
            # Of these and the words above, so many may be on the wrong side.
            rank += int(scipy.stats.binom.isf(alpha, words - rank + 1, missed))
    elif target.upper:
        rank = 1 + int(scipy.stats.binom.isf(alpha, words, level + (1.0 - level) * missed))
    else:
        # The largest rank such that, with chance alpha at most, fewer words are at or below the
        # quantile.
        rank = int(scipy.stats.binom.ppf(alpha, words, level))
    if not 1 <= rank <= words:
        raise ConfigError(
            f"{words} words are too few for --target {target} with confidence {grid.confidence:g}",
            do="Give --words all, or more of them",
        )
    return rank


def tuned(
    target: Target,
    grid: Grid,
    measure: Callable[[float], tuple[float, float]],
    *,
    release_options: Mapping[str, object],
) -> dict[str, Any]:
    """Return facts of the largest epsilon that meets a target.

    ``measure`` returns the target's statistic at an epsilon, and its bound.
    """
    numbers: dict[float, tuple[float, float]] = {}

    def meets(epsilon: float) -> bool:
        numbers[epsilon] = measure(epsilon)
        bound = numbers[epsilon][1]
        return target.met(bound)

    epsilon, missed = largest_epsilon(meets, grid.epsilons)
    measured = bound = options = None
    if epsilon is not None:
        measured, bound = numbers[epsilon]
        options = grid.mechanisms[0].at(epsilon).options
        for name, value in {**release_options, **grid.search.options}.items():
            options += f" --{name} {value}"
    return {
        "target": str(target),
        "confidence": grid.confidence,
        "mechanism": grid.name,
        "epsilon": epsilon,
        "missed": missed,
        "measured": measured,
        "bound": bound,
        "options": options,
    }


def largest_epsilon(
    meets: Callable[[float], bool], epsilons: Sequence[float]
) -> tuple[float | None, float | None]:
    """Compute the largest epsilon that meets a target, to three significant digits.

    The search begins with ``epsilons``, then doubles and bisects. It returns the largest epsilon
    tried that meets the target, None where none did; and the smallest tried above it that does not,
    None where all did.
    """
    low = 0.0
    high = math.inf
    largest_met = None
    first_epsilons = iter(sorted(epsilons))
    for _ in range(len(epsilons) + 2 * _STEPS):
        epsilon = next(first_epsilons, None) if math.isinf(high) else None
        if epsilon is None:
            epsilon = _between(low, high)
        if not low < epsilon < high:
            break
        try:
            if meets(epsilon):
                low = largest_met = epsilon
            else:
                high = epsilon
        except ConfigError:  # too low for this mechanism
            low = epsilon
    return largest_met, None if math.isinf(high) else high


def _between(low: float, high: float) -> float:
    """Return the next epsilon to try between two, to three significant digits."""
    if math.isinf(high):
        epsilon = 2.0 * low
    elif low == 0.0:
        epsilon = high / 2.0
    else:
        epsilon = math.sqrt(low * high)
    return float(f"{epsilon:.3g}")
