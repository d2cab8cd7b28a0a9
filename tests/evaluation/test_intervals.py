"""Shares and means over rows against sums written out, and what their intervals promise."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from scipy import stats

from dptext_spark.evaluation.intervals import ClusterSums, Dyads


def sums(rows, values):
    return ClusterSums.of(np.array(rows, dtype=np.int64), np.array(values))


def test_sums_are_those_of_rows():
    """Rejects sums over words: v² of a row is not the sum of its words' squares."""
    rows, values, classes = [0, 0, 0, 2, 2, 5], [1.0, 0, 1, 1, 0, 1], [0, 0, 1, 0, 0, 1]
    found = ClusterSums.of(np.array(rows), np.array(values), np.array(classes), 3)
    expected = [[2, 2, 0], [2, 2, 0], [4, 2, 0], [2, 2, 0], [4, 2, 0], [8, 2, 0]]
    assert found.sums.tolist() == expected
    assert found.ratio.tolist()[:2] == [0.5, 1.0] and np.isnan(found.ratio[2])
    one_thing_each = sums([0, 1, 2], [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(ClusterSums.of_rows(2, 3).parts, one_thing_each.parts)


def test_the_standard_error_is_that_of_residuals():
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(40), rng.integers(1, 9, 40))
    value = rng.random(len(rows))
    found = sums(rows.tolist(), value.tolist())
    size, total = np.bincount(rows), np.bincount(rows, weights=value)
    residuals = total - found.ratio[0] * size
    expected = np.sqrt(np.square(residuals).sum() * 40 / 39) / size.sum()
    assert found.standard_error[0] == pytest.approx(expected, rel=1e-12)
    _, low, high = found.mean(0.9)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.95, 39) * expected, rel=1e-9)


def test_sums_are_the_same_in_any_order_and_parts():
    """Rejects sums of plain floats, which differ in their last bits."""
    rng = np.random.default_rng(4)
    rows, values = np.repeat(np.arange(300), 3), rng.random(900) * 20.0
    whole = sums(rows.tolist(), values.tolist())
    for _ in range(20):
        ends = np.split(rng.permutation(300), np.sort(rng.integers(0, 300, 5)))
        chosen = [(3 * p[:, None] + np.arange(3)).ravel() for p in ends if len(p)]
        first, *others = (sums(rows[c].tolist(), values[c].tolist()) for c in chosen)
        assert np.array_equal(sum(others, first).parts, whole.parts)
    assert whole.sums[1, 0] == pytest.approx(values.sum(), rel=1e-13)


BINOMIAL = stats.binomtest(30, 200).proportion_ci(0.95, "exact")


@pytest.mark.parametrize(
    ("rows", "values", "low", "high"),
    [
        ([0, 0, 1, 1, 2, 3], [0.0] * 6, 0.0, 1 - 0.025 ** (1 / 4)),
        ([0, 0, 1, 1, 2, 3], [1.0] * 6, 0.025 ** (1 / 4), 1.0),
        ([], [], 0.0, 1.0),
        ([3, 3], [1.0, 1.0], 0.0, 1.0),
        ([*range(200)], [1.0] * 30 + [0.0] * 170, BINOMIAL.low, BINOMIAL.high),
        ([*range(200)] * 5, ([1.0] * 30 + [0.0] * 170) * 5, BINOMIAL.low, BINOMIAL.high),
    ],
)
def test_shares_whose_intervals_are_known(rows, values, low, high):
    """Where no word is recovered, each row counts as one word; rejects an interval of no width."""
    # Fewer than two rows say nothing. One word to a row is a binomial share, whose interval is Clopper and
    # Pearson's, except for m/(m-1); so have rows whose words all go together. Rejects independent words.
    ends = [end[0] for end in sums(rows, values).share_interval(0.95)]
    assert ends == pytest.approx([low, high], abs=1e-3 if len(rows) > 6 else 1e-12)


def pairs_of(count, rng):
    first = np.repeat(np.arange(count), 8)
    return first, (first + np.tile(np.arange(1, 9), count)) % count


def test_a_correlation_is_numpys_and_adds_up():
    """Rejects moments that are averaged over parts, and a constant that correlates."""
    rng = np.random.default_rng(9)
    parts, numbers = [], []
    for count in (30, 50):
        rows = pairs_of(count, rng)
        x = rng.standard_normal(len(rows[0])) + 5.0
        y = x + rng.standard_normal(len(x))
        parts.append(Dyads.of((x, y), rows))
        numbers.append((x, y))
    x, y = np.concatenate(numbers, axis=1)
    whole = reduce(add, parts)
    value, low, high = whole.correlation(0.95)
    assert value == pytest.approx(np.corrcoef(x, y)[0, 1]) and low < value < high
    flat = Dyads.of((x, np.full(len(x), 3.1)), (np.arange(len(x)), np.arange(len(x))))
    assert flat.correlation(0.95) == (0.0, 0.0, 0.0)
    nothing = Dyads.of((x[:0], x[:0]), pairs_of(0, rng))
    assert np.isnan(nothing.correlation(0.95)).all()


def test_intervals_of_correlations_allow_for_shared_rows():
    """Rejects intervals of independent pairs, which cover a third less: 95 % of 300 worlds, 89 % at least."""
    rng = np.random.default_rng(10)

    def correlation(count):
        points = rng.standard_normal((count, 3))
        noisy = points + rng.standard_normal((count, 3))
        first, second = pairs_of(count, rng)
        lengths = [np.linalg.norm(p[first] - p[second], axis=1) for p in (points, noisy)]
        return Dyads.of(lengths, (first, second)).correlation(0.95)

    truth, _, _ = correlation(200_000)
    covered = 0
    for _ in range(300):
        _, low, high = correlation(60)
        covered += low <= truth <= high
    assert covered >= 267
