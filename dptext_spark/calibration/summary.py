"""The summary of a calibration: numbers of each statistic, by mechanism and epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from dptext_spark.calibration.estimators import PRIORS, Grid, Prior
from dptext_spark.calibration.statistics import LEVELS, mean_limits

Facts: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, float]
Moments: TypeAlias = Mapping[Key, Mapping[str, Facts]]
Rows: TypeAlias = list[dict[str, Any]]

STATISTICS: Final = {
    "n_w": ("N_w: share of runs in which a word is unchanged", "lower"),
    "s_w": ("S_w: different outputs of a word in these runs", "higher"),
    "unseen": ("Chance that one more run gives a new output (large: too few runs)", ""),
    "s_eta": ("S_eta: outputs that hold most of a word's runs", "higher"),
    "entropy": ("Entropy of the output, bits", "higher"),
    "h_0": ("H_0 = log2 S_w, bits", "higher"),
    "h_inf": ("H_inf: min-entropy of the output, bits", "higher"),
    "posterior": ("Probability of the input given its output, on average", "lower"),
    "k_gamma": (
        "(k, γ)-deniability: measured words that give a word's output as likely, to a factor γ",
        "higher",
    ),
    "k_w": ("K_w: measured words that gave an output in these runs", "higher"),
    "deniability": (
        "Deniability: how many words could equally well have produced this output",
        "higher",
    ),
    "bayes_risk_uniform": (
        "Chance that a guesser names the input, all words equally likely",
        "lower",
    ),
    "bayes_risk_zipf": (
        "Chance that a guesser names the input, the k-th word with weight 1/k",
        "lower",
    ),
}
"""What each statistic is, and which direction hides a word better.

``OF_WORDS`` are of single words, ``k_w`` is of outputs. The others are of all words together: they
have a mean with limits, and no distribution.
"""

OF_WORDS: Final = (
    "n_w",
    "s_w",
    "unseen",
    "s_eta",
    "entropy",
    "h_0",
    "h_inf",
    "posterior",
    "k_gamma",
)
KEYS: Final = ("mechanism", "epsilon")
NUMBERS: Final = ("mean", "low", "high", "floor", "sd", *LEVELS)
"""The mean with its limits, its value without any look at an output, and the distribution."""


def rows_of(facts: Facts, mechanism: str, statistic: str) -> list[Facts]:
    """Return a mechanism's rows of the summary for one statistic, the epsilons ascending."""
    key = (mechanism, statistic)
    return [row for row in facts["summary"] if (row["mechanism"], row["statistic"]) == key]


def summary(grids: Iterable[Grid], words: Moments, outputs: Moments) -> Rows:
    """Return the rows of the summary, in the order of mechanisms, epsilons and statistics.

    All limits are of the measured words' mean, at the grid's confidence. Moments are those of
    :mod:`~dptext_spark.calibration.measure`: of words, and of outputs with what guessers win there.
    """
    rows: Rows = []
    for grid in grids:
        for epsilon in grid.epsilons:
            numbers = _numbers(grid, words[grid.name, epsilon], outputs[grid.name, epsilon])
            for statistic in STATISTICS:
                row = {"mechanism": grid.name, "epsilon": epsilon, "statistic": statistic}
                rows.append({**row, **dict.fromkeys(NUMBERS), **numbers[statistic]})
    return rows


def _numbers(
    grid: Grid, of_words: Mapping[str, Facts], of_outputs: Mapping[str, Facts]
) -> dict[str, dict[str, float]]:
    """Return the numbers of each statistic at one epsilon of a grid."""
    numbers = {statistic: _distribution(moments) for statistic, moments in of_words.items()}
    numbers["k_w"] = _distribution(of_outputs["k_w"])
    n_w = numbers["n_w"]
    n_w["low"], n_w["high"] = _n_w_limits(grid, n_w["mean"])
    # The mean posterior is at least the prior, by Cauchy's inequality.
    least = 1.0 / grid.words
    posterior = numbers["posterior"]
    posterior["floor"] = least
    numbers["deniability"] = {
        "mean": 1.0 / max(posterior["mean"], least),
        "floor": float(grid.words),
    }
    for prior in PRIORS:
        numbers[f"bayes_risk_{prior}"] = _risk(grid, of_outputs, prior)
    return numbers


def _distribution(moments: Facts) -> dict[str, float]:
    """Compute mean, standard deviation and quantiles from one statistic's moments."""
    count = int(moments["n"])
    mean = Fraction(moments["sum"]) / count
    short_mean = Fraction(moments["short_sum"]) / count
    variance = Fraction(moments["squares"]) / count - short_mean**2
    numbers = {"mean": float(mean), "sd": float(max(variance, Fraction(0))) ** 0.5}
    for level in LEVELS:
        numbers[level] = float(moments[level])
    return numbers


def _n_w_limits(grid: Grid, mean: float) -> tuple[float, float]:
    """Bound the mean of n_w; a computed one is its own bound."""
    if grid.exact:
        return mean, mean
    tail = (1.0 - grid.confidence) / 2.0
    heaviest = float(grid.units("uniform").max())
    return mean_limits(min(mean, 1.0), grid.runs, heaviest, tail)


def _risk(grid: Grid, gains: Mapping[str, Facts], prior: Prior) -> dict[str, float]:
    """Bound how often the best guesser names the input, of the measured words by their prior.

    The mean is what a guesser wins in one half of the runs that learns from the other, so that no
    guesser of whom it is the success does better; and at least what the likeliest word beforehand
    wins. The upper limit is from what the counts of all runs say of themselves, which is too much
    in expectation, by Jensen's inequality.
    """
    floor = float(grid.weights(prior)[0])  # a word of rank 1 has weight 1 in the sums
    learned = float(gains[prior]["sum"]) * floor / grid.runs
    if grid.exact:
        computed = min(learned, 1.0)
        return {"mean": computed, "low": computed, "high": computed, "floor": floor}
    units = grid.units(prior)
    tail = (1.0 - grid.confidence) / 2.0
    judging_runs = grid.runs // 2
    share = 0.0
    if judging_runs:
        share = min(float(gains[f"{prior}_judged"]["sum"]) * floor / judging_runs, 1.0)
    low, _ = mean_limits(share, judging_runs, float(units.max()), tail)
    # How far the gain falls below its expectation:
    # McDiarmid 1989, "On the method of bounded differences".
    squares = float(np.square(units).sum())
    high = learned + math.sqrt(math.log(1.0 / tail) * squares / (2.0 * grid.runs))
    return {
        "mean": max(share, floor),
        "low": max(low, floor),
        "high": min(high, 1.0),
        "floor": floor,
    }
