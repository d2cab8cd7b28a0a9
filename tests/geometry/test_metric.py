"""Distances, nearest words and samples of a metric."""

import numpy as np
import pytest

from dptext_spark.geometry import metric as module
from dptext_spark.geometry.metric import EuclideanMetric, HyperbolicMetric
from tests.helpers import worlds


@pytest.mark.parametrize("n", [1, 2, 10])
def test_hyperbolic_distances(n):
    """Rejects the Euclidean distance, half the distance, and 1 - |p|² rounded near the rim."""
    rng = np.random.default_rng(0)
    points, radii = rng.standard_normal((40, n)), 1 - 10.0 ** -rng.uniform(0, 6, 40)
    radii[0], radii[-2:] = 0.0, 1 - 1e-6
    points = points / np.linalg.norm(points, axis=1, keepdims=True) * radii[:, None]
    wide = points.astype(np.longdouble)
    rims = 1 - np.square(wide).sum(axis=1)
    squares = np.square(wide[:, None] - wide).sum(axis=2)
    expected = np.arccosh(1 + 2 * squares / (rims[:, None] * rims)).astype(np.float64)
    metric, (rows, others) = HyperbolicMetric(vectors=points), np.divmod(np.arange(1600), 40)
    for found in (metric.to_all(np.arange(40)), metric.between(rows, others).reshape(40, 40)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert expected.max() <= metric.largest()


@pytest.mark.parametrize("mapped", [False, True])
def test_euclidean_distances(mapped):
    vectors = worlds.uneven(9000, 5)  # more than one block
    matrix = np.random.default_rng(1).standard_normal((5, 5)) if mapped else None
    metric = EuclideanMetric(vectors=vectors, map=matrix)
    points = vectors.astype(np.float64) @ (np.eye(5) if matrix is None else matrix)
    rows = np.array([0, 17, 8999])
    expected = np.linalg.norm(points[rows][:, None] - points[None], axis=2)
    np.testing.assert_allclose(metric.to_all(rows), expected, atol=1e-6)
    np.testing.assert_allclose(
        metric.between(rows, rows[::-1]), expected[range(3), rows[::-1]], atol=1e-12
    )
    assert expected.max() <= metric.largest() and metric.words == 9000


@pytest.mark.parametrize("block", [7, 8192])
def test_the_nearest_words_are_those_of_a_stable_sort(block, monkeypatch):
    """Rejects an order of equals by chance, of a later block before an earlier one, and one word for all."""
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(3)
    points = rng.integers(-2, 3, (300, 2)).astype(np.float32)  # many at one place, or equally far
    metric, ranks, from_ = EuclideanMetric(vectors=points), [0, 1, 10, 10, 100], np.array([7, 150])
    words, distances, farthest = metric.nearest(from_, ranks)
    far = metric.to_all(from_)
    order = np.argsort(far, axis=1, kind="stable")[:, ranks]
    np.testing.assert_array_equal(words, order)
    np.testing.assert_array_equal(distances, np.take_along_axis(far, order, axis=1))
    assert farthest.tolist() == far.max(axis=1).tolist()


def test_the_sample_is_spread_over_the_vocabulary():
    for words, size in ((3, 3), (256, 256), (257, 129), (1000, 250)):
        sample = EuclideanMetric(vectors=np.zeros((words, 1), np.float32)).sample()
        (step,) = {*np.diff(sample).tolist()}
        assert len(sample) == size and sample[0] == 0 and sample[-1] + step >= words
