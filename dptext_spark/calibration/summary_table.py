"""What a statistic comes to over all words: its summary, how sure a mean is, gains between settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.calibration.grid import PRIORS, Grid, Prior
from dptext_spark.calibration.limits import mean_limits, most_below
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.calibration.transitions import judged_runs

KEYS: Final = ("setting", "epsilon")
NUMBERS: Final = ("mean", "low", "high", "floor", "sd", *LEVELS)
"""The mean with its limits, what comes without any look at an output, and the distribution over words."""

OF_WORDS: Final = ("n_w", "s_w", "unseen", "s_eta", "entropy", "h_0", "h_inf", "posterior")
OF_OUTPUTS: Final = ("k_w",)
SINGLE: Final = ("n_w_zipf", "deniability", *(f"bayes_risk_{prior}" for prior in PRIORS))
"""Statistics of all words together: they have a mean with limits and no other numbers."""

COMPARED: Final = ("n_w", "s_w")
"""Statistics whose gains between settings are told."""

AVERAGED: Final = (*COMPARED, "posterior", "n_w_zipf")
"""Statistics whose means over batches are wanted; the last is n_w over the word's rank."""

BatchMeans: TypeAlias = Mapping[str, NDArray[np.float64]]
"""Means of statistics over each of b batches, float64 (b,), and under ``n`` the batches' words."""


def summary(
    grid: Grid,
    moments: Iterable[Mapping[str, Any]],
    batches: Mapping[tuple[str, float], BatchMeans],
    guesses: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Give the rows of the summary, in the order of settings, epsilons and statistics.

    All limits are of the measured words' mean, at the grid's confidence: they say what the runs leave
    open, not how far other words may lie.

    Args:
        grid: What was measured.
        moments: For each setting, epsilon and statistic ``n``, the ``sum`` of the values, and of those cut to
            nine digits ``short_sum`` and the sum of ``squares``; and the quantiles of ``LEVELS``.
        batches: Means of ``AVERAGED``.
        guesses: For each setting and epsilon, under each prior, the sum over outputs of the most likely
            input's weight times its count in all runs; and as ``uniform_judged`` and ``zipf_judged`` the same
            of the input that leads in one half of the runs, times its count in the other half.
    """
    rows = []
    for row in moments:
        key, name = _key(row), row["statistic"]
        found = _spread(row)
        limits = _mean_limits(grid, name, found["mean"], batches[key])
        rows.append(_row(key, name, **found, **limits))
    for key, own in batches.items():
        zipf = float((own["n_w_zipf"] * own["n"]).sum() / (1.0 / grid.ranks).sum())
        rows.append(_row(key, "n_w_zipf", mean=zipf, **_n_w_limits(grid, zipf, "zipf")))
        rows.append(_row(key, "deniability", floor=float(grid.words), **_deniability(grid, own)))
    for row in guesses:
        rows += [_row(_key(row), f"bayes_risk_{prior}", **_risk(grid, row, prior)) for prior in PRIORS]
    order = (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
    rows.sort(key=lambda r: (grid.names.index(r["setting"]), r["epsilon"], order.index(r["statistic"])))
    return [{"mechanism": grid.mechanism, **row} for row in rows]


def _key(row: Mapping[str, Any]) -> tuple[str, float]:
    return row["setting"], row["epsilon"]


def _row(key: tuple[str, float], statistic: str, **numbers: float) -> dict[str, Any]:
    return {**dict(zip(KEYS, key, strict=True)), "statistic": statistic, **dict.fromkeys(NUMBERS), **numbers}


def _mean_limits(grid: Grid, name: str, mean: float, batches: BatchMeans) -> dict[str, float]:
    """Limits of the mean of a statistic of words, where it has some."""
    if name == "n_w":
        return _n_w_limits(grid, mean, "uniform")
    if name == "posterior":
        low, high = _posterior_limits(grid, batches)
        return {"low": low, "high": high, "floor": 1.0 / grid.words}
    return {}


def _n_w_limits(grid: Grid, mean: float, prior: Prior) -> dict[str, float]:
    if grid.exact:
        return {"low": mean, "high": mean}
    heaviest, tail = float(grid.units(prior).max()), (1.0 - grid.confidence) / 2.0
    return dict(zip(("low", "high"), mean_limits(min(mean, 1.0), grid.runs, heaviest, tail), strict=True))


def _posterior_limits(grid: Grid, batches: BatchMeans) -> tuple[float, float]:
    """Limits of the mean posterior, which is at least the prior, by Cauchy's inequality, and 1 at most."""
    mean, low, high = mean_interval(batches["posterior"], batches["n"], (1.0 - grid.confidence) / 2.0)
    return (mean, mean) if grid.exact else (max(low, 1.0 / grid.words), min(high, 1.0))


def _deniability(grid: Grid, batches: BatchMeans) -> dict[str, float]:
    low, high = _posterior_limits(grid, batches)
    mean = mean_interval(batches["posterior"], batches["n"], 0.5)[0]
    return {"mean": 1.0 / max(mean, 1.0 / grid.words), "low": 1.0 / high, "high": 1.0 / low}


def _risk(grid: Grid, sums: Mapping[str, Any], prior: Prior) -> dict[str, float]:
    """How often the best guesser names the input, of the measured words by their prior.

    The mean is what a guesser wins in one half of the runs that learns from the other, so that no guesser
    of whom it is the success does better; and at least what the likeliest word beforehand wins. The upper
    limit is from what the counts of all runs say of themselves, which is too much in expectation, by
    Jensen's inequality.
    """
    weights, units, tail = grid.weights(prior), grid.units(prior), (1.0 - grid.confidence) / 2.0
    # A word of rank 1 has weight 1 in the sums.
    learned = float(sums[prior]) * float(weights[0]) / grid.runs
    floor = float(weights[0])
    if grid.exact:
        return dict.fromkeys(("mean", "low", "high"), min(learned, 1.0)) | {"floor": floor}
    runs = judged_runs(grid.runs)
    won = min(float(sums[f"{prior}_judged"]) * floor / runs, 1.0) if runs else 0.0
    low, _ = mean_limits(won, runs, float(units.max()), tail)
    high = learned + most_below(grid.runs, float(np.square(units).sum()), tail)
    return {"mean": max(won, floor), "low": max(low, floor), "high": min(high, 1.0), "floor": floor}


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
