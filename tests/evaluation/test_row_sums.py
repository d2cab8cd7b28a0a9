"""Shares and means over rows against sums written out, and what their intervals promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dptext_spark.evaluation.row_sums import RowSums


def sums(rows: list[int], values: list[float]) -> RowSums:
    return RowSums.of(
        np.array(rows, dtype=np.int64), np.array(values), np.zeros(len(rows), dtype=np.int64), 1
    )


def test_sums_are_those_of_rows() -> None:
    """Rejects sums over words: v² of a row is not the sum of its words' squares."""
    found = RowSums.of(
        np.array([0, 0, 0, 2, 2, 5]), np.array([1.0, 0, 1, 1, 0, 1]), np.array([0, 0, 1, 0, 0, 1]), 3
    )
    assert found.rows.tolist() == [2, 2, 0]
    assert found.value.tolist() == [2, 2, 0]
    assert found.size.tolist() == [4, 2, 0]
    assert found.value_value.tolist() == [2, 2, 0]
    assert found.value_size.tolist() == [4, 2, 0]
    assert found.size_size.tolist() == [8, 2, 0]
    assert found.ratio.tolist()[:2] == [0.5, 1.0] and np.isnan(found.ratio[2])


def test_the_standard_error_is_that_of_residuals() -> None:
    rng = np.random.default_rng(1)
    rows, values = np.repeat(np.arange(40), rng.integers(1, 9, 40)), rng.random
    value = values(len(rows))
    found = sums(rows.tolist(), value.tolist())
    size, total = np.bincount(rows), np.bincount(rows, weights=value)
    residuals = total - found.ratio[0] * size
    expected = np.sqrt(np.square(residuals).sum() * 40 / 39) / size.sum()
    assert found.standard_error[0] == pytest.approx(expected, rel=1e-12)
    low, high = found.mean_interval(0.9)
    assert (high - low)[0] == pytest.approx(2 * stats.t.ppf(0.95, 39) * expected, rel=1e-9)


def test_parts_of_a_table_add_up() -> None:
    rng = np.random.default_rng(2)
    rows, values, classes = np.repeat(np.arange(20), 5), rng.random(100), rng.integers(0, 3, 100)
    whole = RowSums.of(rows, values, classes, 3)
    parts = [RowSums.of(rows[p], values[p], classes[p], 3) for p in (slice(0, 35), slice(35, 100))]
    added = parts[0] + parts[1]
    for name in ("rows", "value", "size", "value_value", "value_size", "size_size"):
        np.testing.assert_allclose(getattr(added, name), getattr(whole, name), rtol=1e-12)


def test_sums_are_the_same_in_any_order_and_parts() -> None:
    """Rejects sums of plain floats, which differ in their last bits."""
    rng = np.random.default_rng(4)
    rows, values = np.repeat(np.arange(300), 3), rng.random(900) * 20.0
    whole, naive = sums(rows.tolist(), values.tolist()), set()
    for _ in range(20):
        order = rng.permutation(300)
        ends = np.split(order, np.sort(rng.integers(0, 300, 5)))
        chosen = [np.concatenate([3 * p[:, None] + np.arange(3)]).ravel() for p in ends if len(p)]
        parts = [sums(rows[c].tolist(), values[c].tolist()) for c in chosen]
        added = parts[0]
        for part in parts[1:]:
            added = added + part
        assert np.array_equal(added.parts, whole.parts)
        naive.add(sum(float(values[c].sum()) for c in chosen))
    assert len(naive) > 1
    assert whole.value[0] == pytest.approx(values.sum(), rel=1e-13)


def test_nothing_and_everything_leave_an_interval() -> None:
    """Where no word is recovered, each row tells as much as one word; rejects an interval of no width."""
    none, all_of_them = sums([0, 0, 1, 1, 2, 3], [0.0] * 6), sums([0, 0, 1, 1, 2, 3], [1.0] * 6)
    assert none.share_interval(0.95)[0][0] == 0.0
    assert none.share_interval(0.95)[1][0] == pytest.approx(1 - 0.025 ** (1 / 4))
    assert all_of_them.share_interval(0.95)[0][0] == pytest.approx(0.025 ** (1 / 4))
    assert all_of_them.share_interval(0.95)[1][0] == 1.0


@pytest.mark.parametrize("rows", [[], [3, 3]])
def test_fewer_than_two_rows_tell_nothing(rows: list[int]) -> None:
    low, high = sums(rows, [1.0] * len(rows)).share_interval(0.95)
    assert (low[0], high[0]) == (0.0, 1.0)


def test_words_of_independent_rows_have_the_exact_interval() -> None:
    """One word to a row is a binomial share, whose interval is Clopper and Pearson's, but for m/(m-1)."""
    found = sums(list(range(200)), [1.0] * 30 + [0.0] * 170)
    low, high = found.share_interval(0.95)
    expected = stats.binomtest(30, 200).proportion_ci(0.95, "exact")
    assert low[0] == pytest.approx(expected.low, abs=1e-3)
    assert high[0] == pytest.approx(expected.high, abs=1e-3)


@pytest.mark.statistical
def test_intervals_cover_although_the_words_of_a_row_go_together() -> None:
    """800 tables of 60 rows, of which each is recovered whole or not at all, at probability 0.3.

    An interval that covers 95 % falls below 735 of 800 with probability 6e-5. Rejects the interval that
    takes words for independent.
    """
    rng, good, mutant = np.random.default_rng(3), 0, 0
    for _ in range(800):
        sizes = rng.integers(1, 20, 60)
        rows = np.repeat(np.arange(60), sizes)
        values = (rng.random(60) < 0.3)[rows].astype(float)
        low, high = sums(rows.tolist(), values.tolist()).share_interval(0.95)
        good += low[0] <= 0.3 <= high[0]
        naive = stats.binomtest(int(values.sum()), len(values)).proportion_ci(0.95, "exact")
        mutant += naive.low <= 0.3 <= naive.high
    print(f"covered {good} and {mutant} of 800")
    assert good >= 735
    assert mutant < 735
