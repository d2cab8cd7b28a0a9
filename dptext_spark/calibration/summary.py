"""What a statistic comes to over all words, and how sure its mean is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from dptext_spark.calibration.grid import PRIORS, Grid, Prior
from dptext_spark.calibration.statistics import LEVELS, mean_interval, mean_limits, most_below
from dptext_spark.geometry import Floats

KEYS: Final = ("mechanism", "epsilon")
NUMBERS: Final = ("mean", "low", "high", "floor", "sd", *LEVELS)
"""The mean with its limits, what comes without any look at an output, and the distribution over words."""

OF_WORDS: Final = ("n_w", "s_w", "unseen", "s_eta", "entropy", "h_0", "h_inf", "posterior")
OF_OUTPUTS: Final = ("k_w",)
SINGLE: Final = ("n_w_zipf", "deniability", *(f"bayes_risk_{prior}" for prior in PRIORS))
"""Statistics of all words together: they have a mean with limits and no other numbers."""

AVERAGED: Final = ("posterior", "n_w_zipf")
"""Statistics whose means over batches are wanted; the last is n_w over the word's rank."""

Key: TypeAlias = tuple[str, float]
Rows: TypeAlias = list[dict[str, Any]]
BatchMeans: TypeAlias = Mapping[str, Floats]
"""Means of statistics over each of b batches, (b,), and under ``n`` the batches' words."""


def summary(
    grids: Iterable[Grid],
    moments: Mapping[Key, Rows],
    batches: Mapping[Key, BatchMeans],
    guesses: Mapping[Key, Mapping[str, Any]],
) -> Rows:
    """Give the rows of the summary, in the order of mechanisms, epsilons and statistics.

    All limits are of the measured words' mean, at the grid's confidence: they say what the runs leave
    open, not how far other words may lie.

    Args:
        grids: What was measured, by mechanism.
        moments: By statistic ``n``, the ``sum`` of the values, and of those cut to nine digits ``short_sum``
            and the sum of ``squares``; and the quantiles of ``LEVELS``.
        batches: Means of ``AVERAGED``.
        guesses: Under each prior, the sum over outputs of the most likely input's weight times its count in
            all runs; and as ``uniform_judged`` and ``zipf_judged`` the same of the input that leads in one
            half of the runs, times its count in the other half.
    """
    rows = []
    for grid in grids:
        for key in ((grid.name, epsilon) for epsilon in grid.epsilons):
            found = _numbers(grid, moments[key], batches[key])
            found |= {f"bayes_risk_{prior}": _risk(grid, guesses[key], prior) for prior in PRIORS}
            named = dict(zip(KEYS, key, strict=True))
            rows += [
                {**named, "statistic": name, **dict.fromkeys(NUMBERS), **found[name]}
                for name in (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
            ]
    return rows


def _numbers(grid: Grid, moments: Rows, batches: BatchMeans) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in moments:
        n = int(row["n"])
        variance = Fraction(row["squares"]) / n - (Fraction(row["short_sum"]) / n) ** 2
        numbers = {"mean": float(Fraction(row["sum"]) / n), "sd": float(max(variance, Fraction(0))) ** 0.5}
        found[row["statistic"]] = numbers | {level: float(row[level]) for level in LEVELS}
    tail, least = (1.0 - grid.confidence) / 2.0, 1.0 / grid.words
    zipf = float((batches["n_w_zipf"] * batches["n"]).sum() / (1.0 / np.arange(1, grid.words + 1)).sum())
    found["n_w_zipf"] = {"mean": zipf}
    for name, prior in zip(("n_w", "n_w_zipf"), PRIORS, strict=True):
        mean = low = high = found[name]["mean"]
        if not grid.exact:
            low, high = mean_limits(min(mean, 1.0), grid.runs, float(grid.units(prior).max()), tail)
        found[name] |= {"low": low, "high": high}
    # The mean posterior is at least the prior, by Cauchy's inequality.
    mean, low, high = mean_interval(batches["posterior"], batches["n"], tail)
    low, high = (mean, mean) if grid.exact else (max(low, least), min(high, 1.0))
    found["posterior"] |= {"low": low, "high": high, "floor": least}
    found["deniability"] = {"mean": 1.0 / max(mean, least), "low": 1.0 / high, "high": 1.0 / low}
    found["deniability"]["floor"] = float(grid.words)
    return found


def _risk(grid: Grid, sums: Mapping[str, Any], prior: Prior) -> dict[str, float]:
    """How often the best guesser names the input, of the measured words by their prior.

    The mean is what a guesser wins in one half of the runs that learns from the other, so that no guesser
    of whom it is the success does better; and at least what the likeliest word beforehand wins. The upper
    limit is from what the counts of all runs say of themselves, which is too much in expectation, by
    Jensen's inequality.
    """
    units, tail = grid.units(prior), (1.0 - grid.confidence) / 2.0
    floor = float(grid.weights(prior)[0])  # a word of rank 1 has weight 1 in the sums
    learned = float(sums[prior]) * floor / grid.runs
    if grid.exact:
        return dict.fromkeys(("mean", "low", "high"), min(learned, 1.0)) | {"floor": floor}
    runs = grid.runs // 2
    won = min(float(sums[f"{prior}_judged"]) * floor / runs, 1.0) if runs else 0.0
    low, _ = mean_limits(won, runs, float(units.max()), tail)
    high = learned + most_below(grid.runs, float(np.square(units).sum()), tail)
    return {"mean": max(won, floor), "low": max(low, floor), "high": min(high, 1.0), "floor": floor}
