"""What a statistic comes to over all words: its summary, how sure a mean is, gains between settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import LEVELS

KEYS: Final = ("setting", "epsilon")
NUMBERS: Final = ("mean", "sd", *LEVELS)

OF_WORDS: Final = ("n_w", "s_w", "s_eta", "entropy", "h_0", "h_inf", "deniability", "deniability_p5")
OF_OUTPUTS: Final = ("k_w",)
SINGLE: Final = ("bayes_risk_uniform", "bayes_risk_zipf")
"""Statistics of all words together: they have a mean and no other numbers."""

COMPARED: Final = ("n_w", "s_w")
"""Statistics whose gains between settings are told."""

BatchMeans: TypeAlias = Mapping[str, NDArray[np.float64]]
"""Means of statistics over each of b batches, float64 (b,), and under ``n`` the batches' words."""


def summary(
    grid: Grid, moments: Iterable[Mapping[str, Any]], guesses: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Give the rows of the summary, in the order of settings, epsilons and statistics.

    Args:
        grid: What was measured.
        moments: For each setting, epsilon and statistic ``n``, the ``sum`` of the values, and of those cut to
            nine digits ``short_sum`` and the sum of ``squares``; and the quantiles of ``LEVELS``.
        guesses: For each setting and epsilon, under each prior (``uniform``, ``zipf``), the sum over outputs
            of the most likely input's weight times its count.
    """
    rows = [{**{name: row[name] for name in (*KEYS, "statistic")}, **_spread(row)} for row in moments]
    weights = {"uniform": grid.words, "zipf": float(np.sort(1.0 / (grid.word_ids + 1.0)).sum())}
    for row in guesses:
        for prior, weight in weights.items():
            mean = float(row[prior]) / (grid.runs * weight)
            key = {name: row[name] for name in KEYS}
            rows.append({**key, "statistic": f"bayes_risk_{prior}", **dict.fromkeys(NUMBERS), "mean": mean})
    order = (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
    rows.sort(key=lambda r: (grid.names.index(r["setting"]), r["epsilon"], order.index(r["statistic"])))
    return [{"mechanism": grid.mechanism, **row} for row in rows]


def _spread(moments: Mapping[str, Any]) -> dict[str, float]:
    n = int(moments["n"])
    variance = Fraction(moments["squares"]) / n - (Fraction(moments["short_sum"]) / n) ** 2
    numbers = {"mean": float(Fraction(moments["sum"]) / n), "sd": float(max(variance, Fraction(0))) ** 0.5}
    return numbers | {name: float(moments[name]) for name in LEVELS}


def mean_interval(
    batches: NDArray[np.float64], sizes: NDArray[np.float64], tail: float
) -> tuple[float, float, float]:
    """Give the mean over all words and its Student limits from batches that are alike and independent.

    Args:
        batches, sizes: float64 (b,), the means and the words of 2 batches or more.
        tail: The chance of error on either side.

    Source: batch means; the words of a batch may share their rays, those of two batches do not.
    """
    weights = sizes / sizes.sum()
    mean = float((weights * batches).sum())
    freedom = len(batches) - 1
    error = math.sqrt(float(np.square(weights * (batches - mean)).sum()) * len(batches) / freedom)
    width = float(scipy.stats.t.isf(tail, freedom)) * error
    return mean, mean - width, mean + width


def gains(means: Mapping[tuple[str, float], BatchMeans], grid: Grid) -> Iterator[dict[str, Any]]:
    """Compare each setting with the first, word by word: what their shared rays have in common cancels.

    Args:
        means: Of ``COMPARED``, by setting and epsilon; none are needed of a single setting.
        grid: What was measured.

    Yields:
        Rows of calibration.json's ``gains``.
    """
    baseline, *others = grid.names
    for setting in others:
        for epsilon in grid.epsilons(0):
            own, first = means[setting, epsilon], means[baseline, epsilon]
            for name in COMPARED:
                found = mean_interval(own[name] - first[name], own["n"], (1.0 - grid.confidence) / 2.0)
                key = {"setting": setting, "baseline": baseline, "epsilon": epsilon, "statistic": name}
                yield key | dict(zip(("difference", "low", "high"), found, strict=True))
