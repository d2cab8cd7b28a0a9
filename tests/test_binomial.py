"""Exact bounds of a binomial law, against another library function's."""

from __future__ import annotations

import pytest
from scipy import stats

from dptext_spark.binomial import lower_limit, upper_limit


@pytest.mark.parametrize(("hits", "runs"), [(0, 10), (10, 10), (3, 10), (412, 20_000), (19_999, 20_000)])
def test_the_bounds_are_those_of_clopper_and_pearson(hits: int, runs: int) -> None:
    exact = stats.binomtest(hits, runs).proportion_ci(0.998, method="exact")
    low, high = lower_limit(hits, runs, 0.001), upper_limit(hits, runs, 0.001)
    assert float(low) == pytest.approx(exact.low, rel=1e-9)
    assert float(high) == pytest.approx(exact.high, rel=1e-9)
