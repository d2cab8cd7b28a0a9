"""The largest epsilon at which a target is met, found by measuring some."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.record import option_line
from dptext_spark.calibration.target import Target
from dptext_spark.errors import ConfigError

# Half the epsilons that are tried at most, beside those to begin with.
_STEPS: Final = 12


def tuned(
    target: Target,
    grid: Grid,
    number: int,
    measure: Callable[[float], tuple[float, float]],
    *,
    release_words: int | None,
) -> dict[str, Any]:
    """Find the largest epsilon at which a setting meets a target, and tell all that was seen on the way.

    Args:
        target: What is wanted.
        grid: The settings, with the epsilons to begin with.
        number: Of the setting.
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
    measured, bound, options = None, None, None
    if epsilon is not None:
        measured, bound = tried[epsilon]
        options = option_line(first.model_copy(update={"epsilon": epsilon}))
        options += "" if release_words is None else f" --release-words {release_words}"
    return {
        "target": str(target),
        "confidence": grid.confidence,
        "setting": setting,
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

    Each epsilon is judged by itself. The chance that one is found that only seemed to meet the target is
    that of the few judged near the border, not of one.

    Args:
        meets: Says whether an epsilon does; raises ConfigError where the mechanism has no such epsilon.
        epsilons: Where to begin, 1 or more.

    Returns:
        The largest epsilon tried that does, None where none did; and the smallest tried above it that does
        not, None where all did.
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
    return met, None if math.isinf(high) else high


def _between(low: float, high: float) -> float:
    """The next epsilon to try, of three digits."""
    if math.isinf(high):
        return _rounded(2.0 * low)
    return _rounded(high / 2.0 if low == 0.0 else math.sqrt(low * high))


def _rounded(epsilon: float) -> float:
    return float(f"{epsilon:.3g}")
