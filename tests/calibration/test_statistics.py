"""Statistics of words against examples made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration import Transitions, word_statistics
from dptext_spark.errors import ConfigError
from tests.helpers.calibration_oracle import counted


def expected_counts() -> Transitions:
    """A law known exactly: word 0 becomes 0 or 1 evenly, word 1 itself but once in a million."""
    return Transitions(
        epsilon_index=np.zeros(4, np.int16),
        word=np.array([0, 0, 1, 1], np.int32),
        output=np.array([0, 1, 0, 1], np.int32),
        count=np.array([5.0, 5.0, 1e-5, 10.0 - 1e-5]),
        runs=10,
    )


def test_word_statistics_of_an_example() -> None:
    with np.errstate(all="raise"):
        table = word_statistics(counted(), eta=0.1, confidence=0.9)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    assert columns["word"].tolist() == [1, 2, 7]
    assert columns["n_w"].tolist() == [0.6, 1.0, 0.0]
    assert columns["s_w"].tolist() == [2, 1, 9]
    assert columns["s_eta"].tolist() == [2, 1, 8]  # word 7: 2 + 7 ones hold nine tenths
    even = -0.6 * math.log2(0.6) - 0.4 * math.log2(0.4)
    many = 8 * 0.1 * math.log2(10) + 0.2 * math.log2(5)
    np.testing.assert_allclose(columns["entropy"], [even, 0.0, many])
    np.testing.assert_allclose(columns["h_0"], [1.0, 0.0, math.log2(9)])
    np.testing.assert_allclose(columns["h_inf"], [-math.log2(0.6), 0.0, math.log2(5)])
    for row, hits in enumerate((6, 10, 0)):
        interval = stats.binomtest(hits, 10).proportion_ci(0.9, method="exact")
        assert columns["n_w_low"][row] == pytest.approx(interval.low)
        assert columns["n_w_high"][row] == pytest.approx(interval.high)


def test_word_statistics_of_an_exact_law() -> None:
    """Rejects cells that may come up counted as cells that have."""
    with np.errstate(all="raise"):
        table = word_statistics(expected_counts())
    first, second = table.to_pylist()
    assert first["n_w"] == first["n_w_low"] == first["n_w_high"] == 0.5
    assert first["s_w"] == pytest.approx(2 * (1 - 0.5**10))
    assert second["s_w"] == pytest.approx(1 + 1e-5, rel=1e-9)
    assert second["s_eta"] == 1 and first["s_eta"] == 2
    assert first["entropy"] == 1.0 and first["h_inf"] == 1.0


@pytest.mark.parametrize("wrong", [{"eta": 1.0}, {"confidence": 0.0}])
def test_impossible_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        word_statistics(counted(), **wrong)
