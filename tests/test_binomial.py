"""Exact bounds and tails of a binomial law, against another library function's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dptext_spark.binomial import lower_limit, tail_probability, upper_limit


@pytest.mark.parametrize(("hits", "runs"), [(0, 10), (10, 10), (3, 10), (412, 20_000), (19_999, 20_000)])
def test_the_bounds_are_those_of_clopper_and_pearson(hits: int, runs: int) -> None:
    exact = stats.binomtest(hits, runs).proportion_ci(0.998, method="exact")
    low, high = lower_limit(hits, runs, 0.001), upper_limit(hits, runs, 0.001)
    assert float(low) == pytest.approx(exact.low, rel=1e-9)
    assert float(high) == pytest.approx(exact.high, rel=1e-9)


def test_tails_are_those_of_the_binomial_law() -> None:
    counts, shares = np.array([[0, 5, 40, 100]]), np.array([[0.1, 0.1, 0.1, 0.1]])
    law = stats.binom(100, 0.1)
    tails = [min(law.cdf(c), law.sf(c - 1)) for c in counts[0]]
    np.testing.assert_allclose(tail_probability(counts, shares, 100)[0], tails, rtol=1e-9)
    assert tail_probability(np.array([[1, 0]]), np.array([[0.0, 0.0]]), 100).tolist() == [[0, 1]]
