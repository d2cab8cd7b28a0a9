"""What a statistic comes to over all words, how sure its mean is, and how mechanisms differ in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.calibration.grid import PRIORS, Grid, Prior
from dptext_spark.calibration.statistics import LEVELS, mean_interval, mean_limits, most_below
from dptext_spark.calibration.transitions import judged_runs

KEYS: Final = ("mechanism", "epsilon")
NUMBERS: Final = ("mean", "low", "high", "floor", "sd", *LEVELS)
"""The mean with its limits, what comes without any look at an output, and the distribution over words."""

OF_WORDS: Final = ("n_w", "s_w", "unseen", "s_eta", "entropy", "h_0", "h_inf", "posterior")
OF_OUTPUTS: Final = ("k_w",)
SINGLE: Final = ("n_w_zipf", "deniability", *(f"bayes_risk_{prior}" for prior in PRIORS))
"""Statistics of all words together: they have a mean with limits and no other numbers."""

COMPARED: Final = ("n_w", "s_w")
"""Statistics of which mechanisms are compared."""

AVERAGED: Final = (*COMPARED, "posterior", "n_w_zipf")
"""Statistics whose means over batches are wanted; the last is n_w over the word's rank."""

N_W_EDGES: Final = [k / 20 for k in range(21)]
# Each small number has a bar of its own, so that no bar is empty only because no whole number falls in it.
S_W_EDGES: Final[list[float]] = (np.unique(np.rint(np.geomspace(1.0, 1e7, 57))) - 0.5).tolist()

Key: TypeAlias = tuple[str, float]
BatchMeans: TypeAlias = Mapping[str, NDArray[np.float64]]
"""Means of statistics over each of b batches, float64 (b,), and under ``n`` the batches' words."""


def summary(
    grids: Sequence[Grid],
    moments: Iterable[Mapping[str, Any]],
    batches: Mapping[Key, BatchMeans],
    guesses: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Give the rows of the summary, in the order of mechanisms, epsilons and statistics.

    All limits are of the measured words' mean, at the grid's confidence: they say what the runs leave
    open, not how far other words may lie.

    Args:
        grids: What was measured, by mechanism.
        moments: For each mechanism, epsilon and statistic ``n``, the ``sum`` of the values, and of those cut
            to nine digits ``short_sum`` and the sum of ``squares``; and the quantiles of ``LEVELS``.
        batches: Means of ``AVERAGED``.
        guesses: For each mechanism and epsilon, under each prior, the sum over outputs of the most likely
            input's weight times its count in all runs; and as ``uniform_judged`` and ``zipf_judged`` the same
            of the input that leads in one half of the runs, times its count in the other half.
    """
    of = {grid.name: grid for grid in grids}
    rows: list[dict[str, Any]] = []

    def add(key: Key, statistic: str, numbers: Mapping[str, float]) -> None:
        rows.append({**dict(zip(KEYS, key, strict=True)), "statistic": statistic})
        rows[-1] |= {**dict.fromkeys(NUMBERS), **numbers}

    for row in moments:
        key, name, n = (row["mechanism"], row["epsilon"]), row["statistic"], int(row["n"])
        grid, mean = of[key[0]], float(Fraction(row["sum"]) / n)
        variance = Fraction(row["squares"]) / n - (Fraction(row["short_sum"]) / n) ** 2
        numbers = {"mean": mean, "sd": float(max(variance, Fraction(0))) ** 0.5}
        numbers |= {level: float(row[level]) for level in LEVELS}
        if name == "n_w":
            numbers |= _n_w_limits(grid, mean, "uniform")
        elif name == "posterior":
            low, high = _posterior_limits(grid, batches[key])
            numbers |= {"low": low, "high": high, "floor": 1.0 / grid.words}
        add(key, name, numbers)
    for key, own in batches.items():
        grid = of[key[0]]
        zipf = float((own["n_w_zipf"] * own["n"]).sum() / (1.0 / np.arange(1, grid.words + 1)).sum())
        add(key, "n_w_zipf", {"mean": zipf, **_n_w_limits(grid, zipf, "zipf")})
        low, high = _posterior_limits(grid, own)
        mean = 1.0 / max(mean_interval(own["posterior"], own["n"], 0.5)[0], 1.0 / grid.words)
        numbers = {"mean": mean, "low": 1.0 / high, "high": 1.0 / low, "floor": float(grid.words)}
        add(key, "deniability", numbers)
    for row in guesses:
        key = row["mechanism"], row["epsilon"]
        for prior in PRIORS:
            add(key, f"bayes_risk_{prior}", _risk(of[key[0]], row, prior))
    names, order = list(of), (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
    rows.sort(key=lambda r: (names.index(r["mechanism"]), r["epsilon"], order.index(r["statistic"])))
    return rows


def _n_w_limits(grid: Grid, mean: float, prior: Prior) -> dict[str, float]:
    if grid.exact:
        return {"low": mean, "high": mean}
    heaviest, tail = float(grid.units(prior).max()), (1.0 - grid.confidence) / 2.0
    return dict(zip(("low", "high"), mean_limits(min(mean, 1.0), grid.runs, heaviest, tail), strict=True))


def _posterior_limits(grid: Grid, batches: BatchMeans) -> tuple[float, float]:
    """Limits of the mean posterior, which is at least the prior, by Cauchy's inequality, and 1 at most."""
    mean, low, high = mean_interval(batches["posterior"], batches["n"], (1.0 - grid.confidence) / 2.0)
    return (mean, mean) if grid.exact else (max(low, 1.0 / grid.words), min(high, 1.0))


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


def gains(means: Mapping[Key, BatchMeans], grids: Sequence[Grid]) -> Iterator[dict[str, Any]]:
    """Compare each mechanism with the first, word by word: what their shared rays have in common cancels.

    Args:
        means: Of ``COMPARED``.
        grids: What was measured.

    Yields:
        Rows of calibration.json's ``gains``, at the epsilons of both.
    """
    baseline, *others = grids
    for grid in others:
        for epsilon in (e for e in grid.epsilons if e in baseline.epsilons):
            own, first = means[grid.name, epsilon], means[baseline.name, epsilon]
            for name in COMPARED:
                low_to_high = mean_interval(own[name] - first[name], own["n"], (1.0 - grid.confidence) / 2.0)
                key = {"mechanism": grid.name, "baseline": baseline.name, "epsilon": epsilon}
                numbers = dict(zip(("difference", "low", "high"), low_to_high, strict=True))
                yield key | {"statistic": name} | numbers
