"""The summary of a calibration: how each statistic is spread over words or outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np

from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import LEVELS

NUMBERS: Final = ("mean", "sd", *LEVELS)

OF_WORDS: Final = ("n_w", "s_w", "s_eta", "entropy", "h_0", "h_inf", "deniability", "deniability_p5")
OF_OUTPUTS: Final = ("k_w",)
SINGLE: Final = ("bayes_risk_uniform", "bayes_risk_zipf")
"""Statistics of all words together: they have a mean and no other numbers."""


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
    rows = [{**_key(row), "statistic": row["statistic"], **_spread(row)} for row in moments]
    weights = {"uniform": grid.words, "zipf": float(np.sort(1.0 / (grid.word_ids + 1.0)).sum())}
    for row in guesses:
        for prior, weight in weights.items():
            mean = float(row[prior]) / (grid.runs * weight)
            rows.append(
                {**_key(row), "statistic": f"bayes_risk_{prior}", **dict.fromkeys(NUMBERS), "mean": mean}
            )
    order = (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
    rows.sort(key=lambda r: (grid.names.index(r["setting"]), r["epsilon"], order.index(r["statistic"])))
    return [{"mechanism": grid.mechanism, **row} for row in rows]


def _key(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("setting", "epsilon")}


def _spread(moments: Mapping[str, Any]) -> dict[str, float]:
    n = int(moments["n"])
    variance = Fraction(moments["squares"]) / n - (Fraction(moments["short_sum"]) / n) ** 2
    numbers = {"mean": float(Fraction(moments["sum"]) / n), "sd": float(max(variance, Fraction(0))) ** 0.5}
    return numbers | {name: float(moments[name]) for name in LEVELS}
