"""Directions, radii, products and distances: exact at the edges, and bits that do not depend on the batch."""

import mpmath
import numpy as np
import pytest
from scipy import special

from dptext_spark.geometry import metric as module
from dptext_spark.geometry.metric import EuclideanMetric, HyperbolicMetric
from dptext_spark.geometry.products import ExactProduct
from dptext_spark.geometry.sphere import QUANTILE_ERROR, gamma_quantile, uniform_directions
from tests.helpers import worlds

# Uniforms over the whole range, and at its ends and its middle, exact in 52 bits.
SPREAD = np.concatenate(
    [
        [2.0**-53, 1 - 2.0**-53],
        (np.arange(0, 2**52, 2**48) + 0.5) * 2.0**-52,
        2.0 ** -np.arange(2, 50.0),
    ]
)


@pytest.mark.parametrize("n", [1, 2, 300])
def test_directions_have_length_one_and_bits_of_their_row_alone(n):
    """Rejects norms by BLAS, whose last bits follow the shape of the batch."""
    uniforms = np.random.default_rng(n).random((300, n)) / 2 + 0.1
    uniforms[:2] = [[2.0**-53], [1 - 2.0**-53]]
    given = uniforms.copy()
    whole = uniform_directions(given)
    assert np.shares_memory(whole, given)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1.0, rtol=1e-14)
    assert n > 1 or (whole == np.where(uniforms < 0.5, -1.0, 1.0)).all()
    for size in (1, 2, 7, 64):
        parts = [uniform_directions(uniforms[i : i + size].copy()) for i in range(0, 300, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("shape", [0, 1, 50, 1000])
def test_quantiles_are_as_good_as_noise_bits_suppose(shape):
    """Against 40 digits, the normal law (shape 0) and Gamma laws; rejects single precision."""

    def error(quantile, uniform):
        """By how much probability it misses its uniform, over the density, relative."""
        x = mpmath.mpf(quantile)
        if shape == 0:
            below, density = mpmath.ncdf(x), mpmath.npdf(x)
        else:
            below = mpmath.gammainc(shape, 0, x, regularized=True)
            density = mpmath.exp((shape - 1) * mpmath.log(x) - x - mpmath.loggamma(shape))
        return float(abs((below - mpmath.mpf(uniform)) / density / x))

    quantiles = special.ndtri(SPREAD) if shape == 0 else gamma_quantile(shape, SPREAD)
    assert np.isfinite(quantiles).all()
    with mpmath.workdps(40):
        double, single = (
            max(error(q, u) for q, u in zip(values.tolist(), SPREAD.tolist(), strict=True))
            for values in (quantiles, np.float32(quantiles).astype(np.float64))
        )
    assert double <= QUANTILE_ERROR / 2.0 < single


@pytest.mark.parametrize("size", [1, 7, 50, 300])
def test_a_product_is_exact_and_depends_on_the_row_alone(size):
    """Rejects a cut that loses more bits than it says, a forgotten part, and sums of BLAS."""
    rng = np.random.default_rng(size)
    rows, matrix = rng.uniform(-1, 1, (200, size)), rng.normal(size=(size, size)) * 37.0
    product = ExactProduct.of(matrix)
    whole, exact = product.times(rows), rows.astype(np.longdouble) @ matrix.astype(np.longdouble)
    assert np.abs(whole - exact).max() < size * np.abs(matrix).max() * 2.0**-39
    single = np.concatenate([product.times(rows[i : i + 1]) for i in range(len(rows))])
    plain = np.concatenate([rows[i : i + 1] @ matrix for i in range(len(rows))])
    assert whole.tobytes() == single.tobytes()
    assert size < 300 or (rows @ matrix).tobytes() != plain.tobytes()


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
