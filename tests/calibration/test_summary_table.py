"""The rows of a summary, from sums as Spark gives them; means from batches, and gains of settings."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.summary_table import NUMBERS, gains, mean_interval, summary
from tests.helpers.calibration_oracle import grid

LEVELS = {"min": 1.0, "p5": 1.0, "p50": 2.0, "p95": 4.0, "max": 4.0}


def sums(setting: str, epsilon: float, statistic: str, values: list[str]) -> dict[str, Any]:
    numbers = list(map(Decimal, values))
    return {
        "setting": setting,
        "epsilon": epsilon,
        "statistic": statistic,
        "n": len(numbers),
        "sum": sum(numbers),
        "short_sum": sum(numbers),
        "squares": sum(number * number for number in numbers),
        **LEVELS,
    }


def test_rows_come_in_the_order_of_settings_epsilons_and_statistics() -> None:
    settings = tuple((name, grid().settings[0][1]) for name in ("lambda=0", "lambda=0.9", "lambda=0.10"))
    keys = [
        (name, epsilon, statistic)
        for name, _ in settings
        for epsilon in (2.0, 40.0)
        for statistic in ("n_w", "s_w", "deniability_p5", "k_w")
    ]
    rows = summary(grid(settings=settings), [sums(*key, ["1"]) for key in sorted(keys)[::-1]], [])
    assert [(row["setting"], row["epsilon"], row["statistic"]) for row in rows] == keys
    assert list(rows[0]) == ["mechanism", "setting", "epsilon", "statistic", *NUMBERS]
    assert {row["mechanism"] for row in rows} == {"laplace"}


def test_mean_and_deviation_are_exact() -> None:
    """Rejects a variance over n - 1, and rounding that leaves one where all values are equal."""
    first, equal = summary(
        grid(), [sums("", 2.0, "n_w", ["1", "3", "2", "4"]), sums("", 2.0, "s_w", ["0.1"] * 3)], []
    )
    assert (first["mean"], first["sd"]) == (2.5, 1.25**0.5)
    assert (equal["mean"], equal["sd"]) == (0.1, 0.0)
    assert {name: first[name] for name in LEVELS} == LEVELS


def test_a_risk_is_the_share_of_runs_and_prior_that_the_guesser_wins() -> None:
    """Zipf's weights are those of the sample's words, not of the first words."""
    sample = grid(3, 30)
    zipf = sum(1.0 / (row + 1) for row in (0, 10, 20))
    guesses = [{"setting": "", "epsilon": 2.0, "uniform": Decimal(90), "zipf": Decimal(30)}]
    uniform, ranked = summary(sample, [], guesses)
    assert (uniform["statistic"], ranked["statistic"]) == ("bayes_risk_uniform", "bayes_risk_zipf")
    assert uniform["mean"] == 90 / (60 * 3)
    assert ranked["mean"] == pytest.approx(30 / (60 * zipf), rel=1e-15)
    assert [ranked[name] for name in NUMBERS[1:]] == [None] * 6
    assert np.isclose(zipf, 1 + 1 / 11 + 1 / 21)


# Means from batches, and gains


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
