"""Batches of blocks, alike and independent, whose means tell how sure a mean over all words is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dptext_spark.calibration.grid import Grid

COMPARED: Final = ("n_w", "s_w")
"""Statistics whose gains between settings are told."""

BatchMeans: TypeAlias = Mapping[str, NDArray[np.float64]]
"""Means of statistics over each of b batches, float64 (b,), and under ``n`` the batches' words."""


def mean_interval(
    batches: NDArray[np.float64], sizes: NDArray[np.float64], tail: float
) -> tuple[float, float, float]:
    """Give the mean over all words and its Student limits from batches that are alike and independent.

    Args:
        batches: float64 (b,), the batches' means, 2 or more.
        sizes: float64 (b,), their words.
        tail: The chance of error on either side.

    Source: batch means; the words of a batch may share their rays, those of two batches do not.
    """
    weights = sizes / sizes.sum()
    mean = float((weights * batches).sum())
    freedom = len(batches) - 1
    error = math.sqrt(float(np.square(weights * (batches - mean)).sum()) * len(batches) / freedom)
    width = float(stats.t.isf(tail, freedom)) * error
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
                yield {
                    "setting": setting,
                    "baseline": baseline,
                    "epsilon": epsilon,
                    "statistic": name,
                    **dict(zip(("difference", "low", "high"), found, strict=True)),
                }
