"""Limits of means over words that share noise: they hold, and are of use; mutants fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.limits import least_count, mean_limits, most_below


@pytest.mark.parametrize("runs", [1, 7, 200])
def test_alike_trials_have_chernoffs_limits(runs: int) -> None:
    """As the binomial law itself has them, or wider; by the divergence to twelve digits."""
    for hits in range(0, runs + 1, max(1, runs // 5)):
        share = hits / runs
        low, high = mean_limits(share, runs, 1.0, 0.05)
        exact = stats.binomtest(hits, runs).proportion_ci(0.9, method="exact")
        assert low <= exact.low + 1e-12 and high >= exact.high - 1e-12
        for p in {low, high} - {0.0, 1.0}:
            divergence = stats.entropy([share, 1 - share], [p, 1 - p])
            assert divergence * runs == pytest.approx(np.log(20.0), rel=1e-9)
    assert mean_limits(0.0, 100, 0.1, 0.05)[1] == pytest.approx(1 - 0.05 ** (0.1 / 100), rel=1e-9)
    assert mean_limits(0.3, 0, 1.0, 0.05) == (0.0, 1.0)


@pytest.mark.statistical
def test_limits_hold_where_words_share_noise_and_weigh_unevenly() -> None:
    """4,000 calibrations of 40 words in 4 blocks, each block's words all hit or all missed by a run.

    At 90 % each side misses 1 in 20 at most, false alarm 1e-4. Refused: words that count as independent.
    """
    rng = np.random.default_rng(8)
    weights = 1.0 / np.arange(1, 41)
    units = np.bincount(np.arange(40) % 4, weights / weights.sum())
    p, runs, seeds = np.array([0.1, 0.3, 0.2, 0.05]), 20, 4000
    shares = rng.binomial(runs, p, (seeds, 4)) / runs @ units
    truth = float(p @ units)

    def misses(heaviest: float) -> tuple[float, float]:
        found = np.array([mean_limits(share, runs, heaviest, 0.05) for share in shares])
        outside = (found[:, 0] > truth).sum(), (found[:, 1] < truth).sum()
        low, high = (stats.binomtest(int(n), seeds, 0.05, "greater").pvalue for n in outside)
        return float(low), float(high)

    assert min(misses(float(units.max()))) > 1e-4
    assert min(misses(float(units.max()) / 10.0)) < 1e-6
    # And they are of use: less than three times as wide as a normal law's.
    low, high = mean_limits(truth, runs, float(units.max()), 0.05)
    normal = 2 * 1.645 * np.sqrt((p * (1 - p)) @ np.square(units) / runs)
    assert high - low < 3 * normal


def test_mcdiarmids_bound() -> None:
    assert most_below(100, 0.25, 0.05) == pytest.approx(0.5 * np.sqrt(np.log(20.0) / 200))


@pytest.mark.parametrize(("runs", "share", "tail"), [(10, 0.95, 0.025), (200, 0.95, 0.025), (1000, 0.5, 0.1)])
def test_the_least_count(runs: int, share: float, tail: float) -> None:
    found = least_count(runs, share, tail)
    assert stats.binom.cdf(found - 1, runs, share) <= tail < stats.binom.cdf(found, runs, share)
