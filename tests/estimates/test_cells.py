"""Estimates of groups: their intervals, their differences, and how sure those are together."""

import numpy as np
import pytest
from scipy import stats

from dptext_spark.estimates.cells import Cells, cluster_terms, judged, row_values

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(0.2, 0.5, (1, 6, 2))


def sums_of(rows):
    """Sums over rows of outputs, each an array."""
    outputs = np.concatenate(rows)
    places = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    values, sizes = row_values(outputs, places, WEIGHTS, np.zeros(len(rows), dtype=np.int64))
    return np.stack([term.sum(axis=0) for term in cluster_terms(values, sizes)])


def made_rows(count, seed, low=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 6, rng.integers(low, 6)) for _ in range(count)]


def test_values_of_rows_are_sums_and_products():
    """Rejects rows without an output that take those of the next one, and epsilons of other rows."""
    weights = np.concatenate([WEIGHTS, 2.0 * WEIGHTS])
    outputs, rows = np.array([1, 4, 4]), np.array([1, 1, 3])
    values, sizes = row_values(outputs, rows, weights, np.array([0, 1, 0, 0]))
    second = 2.0 * WEIGHTS[0, [1, 4]]
    assert np.allclose(values[1, :2], second.sum(axis=0))
    assert np.allclose(values[1, 2:], 1.0 - (1.0 - second).prod(axis=0))
    assert np.allclose(values[3], np.concatenate([WEIGHTS[0, 4]] * 2))
    assert not values[[0, 2]].any()
    assert sizes.tolist() == [[0, 0, 1, 1], [2, 2, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]]


def test_a_share_has_the_interval_of_its_rows():
    """Rejects words as the independent units, and the error of the channel left out."""
    rows = made_rows(50, 1)
    errors = np.array([0.0, 0.5, 0.0, 0.0])
    cells = Cells(columns=(), sums={(): sums_of(rows)}, errors=errors)
    first, second = cells.rows(["a", "b"], 0.9)
    lengths = np.array([len(row) for row in rows])
    totals = np.array([WEIGHTS[0, row, 0].sum() for row in rows])
    share = totals.sum() / lengths.sum()
    residuals = totals - share * lengths
    variance = 50 / 49 * (residuals @ residuals) / lengths.sum() ** 2
    reach = stats.t.ppf(0.95, 49) * np.sqrt(variance + (1.5 / lengths.sum()) ** 2)
    assert first["share"] == pytest.approx(share)
    assert (first["low"], first["high"]) == pytest.approx((share - reach, share + reach))
    assert second["high"] - second["low"] > 1.6  # by the channel
    assert (first["words"], first["rows"], first["clusters"]) == (lengths.sum(), 50, 50)


def test_one_row_has_no_interval_and_none_seen_is_not_none_there():
    """Rejects an interval of zero length where nothing was seen, and NaN in what becomes JSON."""
    cells = Cells(columns=(), sums={(): sums_of([np.array([1, 2])])}, errors=np.zeros(4))
    row = next(cells.rows(["a", "b"], 0.95))
    assert row["low"] is None and row["share"] is not None and row["share_of_rows"] is None
    sums = sums_of(made_rows(1000, 2))
    sums[[1, 3, 4]] = 0.0
    nothing = next(Cells(columns=(), sums={(): sums}, errors=np.zeros(4)).rows(["a", "b"], 0.95))
    assert nothing["high"] * nothing["words"] == pytest.approx(3.0, rel=0.03)


def test_shares_of_rows_are_given_where_they_say_something():
    """Rejects the product over a long row, whose interval has everything."""
    few = Cells(columns=(), sums={(): sums_of(made_rows(20, 3))}, errors=np.zeros(4))
    many = Cells(columns=(), sums={(): sums_of(made_rows(5000, 3))}, errors=np.zeros(4))
    assert next(few.rows(["a", "b"], 0.95))["share_of_rows"] is None
    row = next(many.rows(["a", "b"], 0.95))
    assert row["share_of_rows_low"] < row["share_of_rows"] < row["share_of_rows_high"]


def test_groups_are_compared_with_all_others_or_with_the_one_before():
    """Rejects a group that is compared with all rows, its own among them, and times in another order."""
    parts = {("b",): made_rows(60, 4), ("a",): made_rows(70, 5), ("c",): made_rows(80, 6)}
    sums = {group: sums_of(rows) for group, rows in parts.items()}
    cells = Cells(columns=("x",), sums=sums, errors=np.zeros(4))
    names = [row["x"] for row in cells.rows(["a", "b"], 0.95)]
    assert names == ["a", "a", "b", "b", "c", "c"]
    others = Cells(columns=(), sums={(): sums[("a",)] + sums[("c",)]}, errors=np.zeros(4))
    (value, *_), (other, *_) = cells.value(("b",))[0], others.value(())[0]
    of_b = [row for row in cells.differences(["t", "u"], in_order=False) if row["group"] == "b"]
    assert of_b[0]["difference"] == pytest.approx(value - other)
    in_order = [*cells.differences(["t", "u"], in_order=True)]
    assert [(row["group"], row["against"]) for row in in_order[::2]] == [("b", "a"), ("c", "b")]


def test_differences_are_judged_together():
    """Rejects p-values that are judged one by one, and adjusted ones that do not rise."""
    chances = [0.2, 0.001, 0.04, 0.03, 0.9]
    rows = [
        {"topic": "t", "group": str(p), "difference": 0.1, "error": 0.05, "clusters": 9.0, "p": p}
        for p in chances
    ]
    ordered = judged(rows, 0.95)
    expected = stats.false_discovery_control(sorted(chances))
    assert [row["adjusted_p"] for row in ordered] == pytest.approx(expected.tolist())
    assert [row["differs"] for row in ordered] == [True, False, False, False, False]
    reach = stats.t.ppf(0.975, 8) * 0.05
    assert (ordered[0]["low"], ordered[0]["high"]) == pytest.approx((0.1 - reach, 0.1 + reach))
