"""``laplace`` and ``mahalanobis``: the norm that a guarantee counts in, and the digits of the noise."""

import math

import numpy as np
import pytest
from scipy import special
from scipy.spatial import distance

from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms import (
    Mahalanobis,
)
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import mixture_root


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.999, 1.0])
def test_mahalanobis_counts_in_its_own_norm(plane, small, weight):
    """Rejects Euclidean distances where epsilon counts in another norm, and a word as its own neighbour."""
    # Also a covariance that is not scaled to trace n, and the largest eigenvalue instead of the least.
    for world in (plane, small):
        points = world.vectors[:].astype(np.float64)
        root = mixture_root(points, weight)
        guarantee = Mahalanobis(epsilon=2.0, **{"lambda": weight}).guarantee(world)
        assert guarantee.euclidean_epsilon == pytest.approx(
            2.0 / np.linalg.eigvalsh(root)[0], rel=1e-6
        )
        said = (
            f"the proven epsilon is {rounded_up(guarantee.euclidean_epsilon, 6)}"
            in guarantee.describe()
        )
        assert said == (weight > 0)
        stated = guarantee.distances
        between = distance.squareform(distance.pdist(np.linalg.solve(root, points.T).T))
        ordered = np.sort(between, axis=1)[:: -(-len(points) // 256)]
        medians = np.median(ordered[:, np.minimum([1, 10, 100], len(points) - 1)], axis=0)
        assert [stated.nearest, stated.tenth, stated.hundredth] == pytest.approx(medians, rel=1e-9)
        assert between.max() <= stated.largest * (1 + 1e-12) <= 2 * between.max()


def test_a_singular_covariance_cannot_be_the_whole_noise(flat):
    """Words of a plane would stay in it: their third coordinate is released as it is."""
    whole = Mahalanobis(epsilon=1.0, **{"lambda": 1.0})
    for refused in (lambda: whole.bind(flat, among(2)), lambda: whole.guarantee(flat)):
        with pytest.raises(ConfigError, match=r"without noise.*Lower lambda"):
            refused()
    Mahalanobis(epsilon=1.0, **{"lambda": 0.5}).bind(flat, among(2))


@pytest.mark.parametrize(("weight", "epsilon"), [(0.0, 10.0), (0.5, 1e9), (1.0, 10.0)])
def test_noise_keeps_the_bits_that_are_stated(tmp_path, weight, epsilon):
    """Rejects "at least 30" where an eigenvalue is 10^-9, and where noise is short."""
    n, words, rng = 300, np.arange(400), np.random.default_rng(3)
    points = rng.standard_normal((2 * n, n))
    points = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[0] * math.sqrt(2 * n)
    points[:, 0] *= math.sqrt(1.05e-9)
    thin = worlds.build(
        tmp_path, (points @ np.linalg.qr(rng.standard_normal((n, n)))[0]).astype(np.float32)
    )
    configured = Mahalanobis(epsilon=epsilon, **{"lambda": weight})
    uniforms = np.random.default_rng(3).random((400, n + 1))
    uniforms[:, 0] = 0.5
    points = configured.bind(thin, ExactSearch.over(thin)).points(words, uniforms.copy())
    # The same noise in the axes of the covariance, over its deviations there, in extended precision.
    normals = special.ndtri(uniforms[:, 1:]).astype(np.longdouble)
    normals /= np.sqrt(np.square(normals).sum(axis=1))[:, None]
    basis = np.asarray(thin.space.covariance_vectors).astype(np.longdouble) if weight else np.eye(n)
    values = np.asarray(thin.space.covariance_values).astype(np.longdouble)
    deviations = np.sqrt(weight * values + (1 - np.longdouble(weight)))
    length = np.longdouble(special.gammaincinv(n, 0.5)) / np.longdouble(epsilon)
    noise = (
        (points.astype(np.longdouble) - thin.vectors[words].astype(np.longdouble))
        @ basis
        / deviations
    )
    errors = np.sqrt(np.square(noise / length - normals @ basis).sum(axis=1)).astype(np.float64)
    bits, stated = -math.log2(errors.max() * math.sqrt(n)), configured.claim(thin).noise_bits
    assert stated <= bits <= stated + 10
    assert (bits < 30) == (weight > 0)
