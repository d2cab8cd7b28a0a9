"""Distances between words, against formulas of another form."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.geometry import metric as module
from dptext_spark.geometry.metric import EuclideanMetric, HyperbolicMetric
from tests.helpers import worlds


def ball_points(count: int, n: int, *, seed: int = 0) -> np.ndarray:
    """Points at all depths, the last ones within 10^-6 of the rim."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((count, n))
    radii = 1 - 10.0 ** -rng.uniform(0, 6, count)
    radii[0], radii[-2:] = 0.0, 1 - 1e-6
    return points / np.linalg.norm(points, axis=1, keepdims=True) * radii[:, None]


def arcosh_distances(points: np.ndarray) -> np.ndarray:
    """arcosh(1 + 2|p - q|² / ((1 - |p|²)(1 - |q|²))), in extended precision."""
    wide = points.astype(np.longdouble)
    rims = 1 - np.square(wide).sum(axis=1)
    gaps = np.square(wide[:, None] - wide[None]).sum(axis=2)
    return np.arccosh(1 + 2 * gaps / (rims[:, None] * rims[None])).astype(np.float64)


@pytest.mark.parametrize("n", [1, 2, 10])
def test_hyperbolic_distances(n: int) -> None:
    """Rejects the Euclidean distance, half the distance, and 1 - |p|² rounded near the rim."""
    points = ball_points(40, n)
    metric, expected = HyperbolicMetric(vectors=points), arcosh_distances(points)
    np.testing.assert_allclose(metric.to_all(np.arange(40)), expected, rtol=1e-12, atol=1e-12)
    rows, others = np.divmod(np.arange(1600), 40)
    np.testing.assert_allclose(metric.between(rows, others).reshape(40, 40), expected, rtol=1e-12, atol=1e-12)
    assert expected.max() <= metric.largest()


@pytest.mark.parametrize("mapped", [False, True])
def test_euclidean_distances(mapped: bool) -> None:
    vectors = worlds.uneven(9000, 5)  # more than one block
    matrix = np.random.default_rng(1).standard_normal((5, 5)) if mapped else None
    metric = EuclideanMetric(vectors=vectors, map=matrix)
    points = vectors.astype(np.float64) @ (np.eye(5) if matrix is None else matrix)
    rows = np.array([0, 17, 8999])
    expected = np.linalg.norm(points[rows][:, None] - points[None], axis=2)
    np.testing.assert_allclose(metric.to_all(rows), expected, atol=1e-6)
    np.testing.assert_allclose(metric.between(rows, rows[::-1]), expected[range(3), rows[::-1]], atol=1e-12)
    assert expected.max() <= metric.largest()


@pytest.mark.parametrize("block", [7, 8192])
def test_the_nearest_words_are_those_of_a_stable_sort(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects an order of equals by chance, of a later block before an earlier one, and one word for all."""
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(3)
    points = rng.integers(-2, 3, (300, 2)).astype(np.float32)  # many at one place, or equally far
    metric, ranks = EuclideanMetric(vectors=points), [0, 1, 10, 10, 100]
    words, distances, farthest = metric.nearest(np.array([7, 150]), ranks)
    for row, word in enumerate((7, 150)):
        far = metric.to_all(np.array([word]))[0]
        order = np.argsort(far, kind="stable")[ranks]
        assert words[row].tolist() == order.tolist()
        assert distances[row].tolist() == far[order].tolist()
        assert farthest[row] == far.max()


def test_the_sample_is_spread_over_the_vocabulary() -> None:
    for words, size in ((3, 3), (256, 256), (257, 129), (1000, 250)):
        sample = EuclideanMetric(vectors=np.zeros((words, 1), np.float32)).sample()
        (step,) = {*np.diff(sample).tolist()}
        assert len(sample) == size and sample[0] == 0 and sample[-1] + step >= words
