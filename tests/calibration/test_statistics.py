"""Draws counted, statistics of words against examples made by hand; limits hold, and are of use."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptext_spark.calibration import Transitions, word_statistics
from dptext_spark.calibration.statistics import mean_limits
from tests.helpers.calibration_oracle import DRAWS, WORDS, cells, counted

SEVENS = [(0, 7, y, 1, y > 4) for y in (0, 1, 2, 3, 4, 5, 6, 8)] + [(0, 7, 9, 2, 2)]
CELLS = [(0, 1, 1, 6, 3), (0, 1, 2, 4, 2), (0, 2, 2, 10, 5), *SEVENS]


@pytest.mark.parametrize(
    ("draws", "words", "expected"),
    [
        (DRAWS, WORDS, CELLS),
        (DRAWS[:, [2, 0, 1]], WORDS[[2, 0, 1]], CELLS),
        (
            [[[3, 3], [3, 3]], [[3, 4], [4, 4]]],
            [0, 1],
            [(0, 0, 3, 2, 1), (0, 1, 3, 2, 1), (1, 0, 3, 1, 0), (1, 0, 4, 1, 1), (1, 1, 4, 2, 1)],
        ),
        ([[[3, 3, 5, 3, 5]]], [0], [(0, 0, 3, 3, 1), (0, 0, 5, 2, 1)]),
        ([[[3]]], [0], [(0, 0, 3, 1, 0)]),
    ],
)
def test_draws_are_counted(draws, words, expected):
    """In any order of words. The last half of the runs judges, of an odd number the smaller half."""
    # Rejects outputs that go on from one word or epsilon to the next, and counts of the first runs.
    found = cells(counted(np.array(draws, np.int32), np.array(words)))
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
    assert found.schema.types == [pa.int16(), pa.int32(), pa.int32(), pa.int32(), pa.int32()]


def test_word_statistics_of_an_example():
    with np.errstate(all="raise"):
        table = word_statistics(counted(), eta=0.1, confidence=0.9)
    intervals = [
        stats.binomtest(hits, 10).proportion_ci(0.9, method="exact") for hits in (6, 10, 0)
    ]
    even = -0.6 * math.log2(0.6) - 0.4 * math.log2(0.4)
    many = 8 * 0.1 * math.log2(10) + 0.2 * math.log2(5)
    # One nat for every 20 outputs beyond the first, but at most as much as ten words can have.
    more = np.array([1, 0, 8]) / 20.0 / math.log(2.0)
    expected = {
        "word": [1, 2, 7],
        "n_w": [0.6, 1.0, 0.0],
        "n_w_low": [interval.low for interval in intervals],
        "n_w_high": [interval.high for interval in intervals],
        "s_w": [2, 1, 9],
        "s_eta": [2, 1, 8],  # word 7: 2 + 7 ones hold nine tenths
        "entropy": np.minimum(np.array([even, 0.0, many]) + more, math.log2(10)),
        "unseen": [0.0, 0.0, 0.8],
        "h_0": [1.0, 0.0, math.log2(9)],
        "h_inf": [-math.log2(0.6), 0.0, math.log2(5)],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table[name].to_numpy(), values, err_msg=name)


def test_word_statistics_of_an_exact_law():
    """Rejects cells that may come up counted as cells that have."""
    # Word 0 becomes 0 or 1 evenly, word 1 itself but once in a million.
    count = np.array([5.0, 5.0, 1e-5, 10.0 - 1e-5])
    index, word, output = (
        np.zeros(4, np.int16),
        np.array([0, 0, 1, 1], np.int32),
        np.array([0, 1, 0, 1], np.int32),
    )
    keys = {"epsilon_index": index, "word": word, "output": output}
    with np.errstate(all="raise"):
        found = Transitions(**keys, count=count, judged=count / 2.0, runs=10, release_words=2)
        first, second = word_statistics(found).to_pylist()
    assert first["n_w"] == first["n_w_low"] == first["n_w_high"] == 0.5
    assert [first["s_w"], second["s_w"]] == pytest.approx([2 * (1 - 0.5**10), 1 + 1e-5], rel=1e-9)
    assert (first["s_eta"], second["s_eta"]) == (2, 1)
    assert first["entropy"] == first["h_inf"] == 1.0 and first["unseen"] == second["unseen"] == 0.0


def test_a_single_run_has_statistics():
    """Rejects a division by none."""
    with np.errstate(all="raise"):
        found = counted(np.array([[[0], [4], [4]]], np.int32), np.arange(3), release_words=5)
        first, *_ = word_statistics(found).to_pylist()
    assert (first["n_w"], first["n_w_high"], first["unseen"], first["s_eta"]) == (
        1.0,
        1.0,
        1.0,
        1.0,
    )


@pytest.mark.parametrize("runs", [1, 7, 200])
def test_alike_trials_have_chernoffs_limits(runs):
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
