"""Means from batches, and what one setting gains over another."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.batches import gains, mean_interval
from tests.helpers.calibration_oracle import grid


def test_a_mean_has_students_interval() -> None:
    batches = np.array([0.2, 0.3, 0.25, 0.4])
    mean, low, high = mean_interval(batches, np.full(4, 7.0), 0.05)
    expected = stats.ttest_1samp(batches, 0.0).confidence_interval(0.90)
    assert mean == pytest.approx(0.2875)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    uneven, *_ = mean_interval(batches, np.array([1.0, 2.0, 1.0, 1.0]), 0.05)
    assert uneven == pytest.approx((0.2 + 2 * 0.3 + 0.25 + 0.4) / 5)


def test_gains_are_differences_within_batches() -> None:
    """Rejects an interval of each setting for itself, a one-sided tail, and the first against itself."""
    rng = np.random.default_rng(2)
    shared = rng.normal(size=16)  # what the rays of a batch do to both settings
    means = {
        (name, epsilon): {"n_w": shared + shift + 0.01 * rng.normal(size=16), "s_w": shared, "n": np.ones(16)}
        for name, shift in (("a", 0.0), ("b", 0.3))
        for epsilon in (2.0, 40.0)
    }
    settings = tuple((name, grid().settings[0][1]) for name in "ab")
    found = list(gains(means, grid(settings=settings)))
    assert [(g["setting"], g["baseline"], g["epsilon"], g["statistic"]) for g in found] == [
        ("b", "a", epsilon, name) for epsilon in (2.0, 40.0) for name in ("n_w", "s_w")
    ]
    apart = means["b", 2.0]["n_w"] - means["a", 2.0]["n_w"]
    expected = stats.ttest_1samp(apart, 0.0).confidence_interval(0.95)
    assert (found[0]["low"], found[0]["high"]) == pytest.approx((expected.low, expected.high))
    assert found[1]["difference"] == found[1]["high"] == 0.0
    assert not list(gains({}, grid()))
