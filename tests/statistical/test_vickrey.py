"""Vickrey selection: decoded words against quadrature of the coin's probability over the noise's law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, linalg, stats

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mahalanobis
from dptext_spark.mechanisms.euclidean import EuclideanNoise
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.privatizer import Privatizer
from tests.helpers import worlds
from tests.helpers.worlds import among

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one check of the real mechanism, over keys
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right
EPSILON = 2.0
DRAWS = 30_000


@cache
def _expected(vectors: bytes, root: bytes, t: float) -> np.ndarray:
    """P[M(x) = y] (x, y): adaptive over the angle, Gauss-Legendre between the radii where ranks swap."""
    points = np.frombuffer(vectors, np.float32).reshape(-1, 2).astype(np.float64)
    matrix = np.frombuffer(root).reshape(2, 2)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    pairs = np.triu_indices(len(points), 1)

    def on_ray(angle: float, x: int) -> np.ndarray:
        ray = matrix @ [np.cos(angle), np.sin(angle)]
        # |x + g ray - y|² = |x - y|² + 2 g ray·(x - y) + ...: two words swap ranks at one radius.
        gaps = ((points[x] - points) ** 2).sum(axis=1)
        slopes = 2 * (points[x] - points) @ ray
        with np.errstate(divide="ignore", invalid="ignore"):
            swaps = -(gaps[pairs[0]] - gaps[pairs[1]]) / (slopes[pairs[0]] - slopes[pairs[1]])
        end = 40.0 / EPSILON
        cuts = np.concatenate([[0.0], np.sort(swaps[(swaps > 0) & (swaps < end)]), [end]])
        radii = (cuts[:-1, None] + np.diff(cuts)[:, None] * (nodes + 1) / 2).ravel()
        mass = (np.diff(cuts)[:, None] / 2 * weights).ravel() * EPSILON**2 * radii * np.exp(-EPSILON * radii)
        distances = np.linalg.norm(points[x] + radii[:, None] * ray - points[:, None], axis=2)
        first, second = np.argsort(distances, axis=0)[:2]
        d1, d2 = np.sort(distances, axis=0)[:2]
        chance = (1 - t) * d2 / (t * d1 + (1 - t) * d2)
        total = np.bincount(first, mass * chance, len(points))
        return total + np.bincount(second, mass * (1 - chance), len(points))

    rows = [
        sum(
            integrate.quad_vec(on_ray, a, a + np.pi / 4, args=(x,), epsabs=1e-6, limit=400)[0]
            for a in np.arange(8) * np.pi / 4
        )
        for x in range(len(points))
    ]
    return np.array(rows) / (2 * np.pi)


def root_of(world: Embedding, weight: float) -> np.ndarray:
    covariance = np.cov(world.vectors.astype(np.float64), rowvar=False)
    mixture = weight * covariance * 2 / np.trace(covariance) + (1 - weight) * np.eye(2)
    root: np.ndarray = linalg.sqrtm(mixture).real
    return root


def check(private: Privatizer, weight: float, t: float) -> float:
    """Chi-square of the outputs of each word of the plane, 6 x 5 degrees of freedom."""
    names = private.embedding.words.to_pylist()
    texts = pa.array([f"{name} " * DRAWS for name in names])
    outputs = private.sanitize(texts, pa.array(range(len(names))), column="text").values.to_pylist()
    seen = np.array([[text.split().count(name) for name in names] for text in outputs])
    probabilities = _expected(
        private.embedding.vectors.tobytes(), root_of(private.embedding, weight).tobytes(), t
    )
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-4)
    expected = DRAWS * probabilities
    assert expected.min() > 20
    statistic = ((seen - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, df=len(names) * (len(names) - 1)))


def private_plane(world: Embedding, weight: float, t: float) -> Privatizer:
    configured = Mahalanobis(epsilon=EPSILON, select="vickrey", t=t, **{"lambda": weight})
    return Privatizer(embedding=world, mechanism=configured, noise=worlds.release(configured, world))


CASES = pytest.mark.parametrize(("weight", "t"), [(0.0, 0.3), (0.0, 0.9), (0.7, 0.3)])


@CASES
def test_vickrey_words_follow_the_coin(plane: Embedding, weight: float, t: float) -> None:
    value = check(private_plane(plane, weight, t), weight, t)
    print(f"p-value of vickrey, lambda {weight}, t {t}: {value:.3g}")
    assert value > REAL


@dataclass(frozen=True, kw_only=True)
class NeverTheInput(EuclideanNoise):
    """Drops the true word from the candidates, as if it had to be replaced."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        coins = uniforms[:, -1].copy()
        points = self.points(words, uniforms[:, :-1])
        distances = np.linalg.norm(points[:, None] - self.vectors[None], axis=2)
        distances[np.arange(len(words)), words] = np.inf
        ranks, ordered = np.argsort(distances, axis=1)[:, :2], np.sort(distances, axis=1)[:, :2]
        first = coins < vickrey_probability(self.vickrey or 0.0, ordered)
        return np.where(first, ranks[:, 0], ranks[:, 1])


@dataclass(frozen=True, kw_only=True)
class CoinOfTheRadius(EuclideanNoise):
    """Tosses the coin with the uniform that gave the radius."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        uniforms[:, -1] = uniforms[:, 0]
        return super().__call__(words, uniforms)


def as_kind(kind: type[EuclideanNoise], b: EuclideanNoise) -> EuclideanNoise:
    return kind(vectors=b.vectors, epsilon=b.epsilon, root=b.root, search=b.search, vickrey=b.vickrey)


MUTANTS: dict[str, Callable[[EuclideanNoise], EuclideanNoise]] = {
    "drops the true word": lambda b: as_kind(NeverTheInput, b),
    "ratio upside down": lambda b: replace(b, vickrey=1.0 - (b.vickrey or 0.0)),
    "t 0.05 too large": lambda b: replace(b, vickrey=(b.vickrey or 0.0) + 0.05),
    "nearest always": lambda b: replace(b, vickrey=None),
    "epsilon doubled": lambda b: replace(b, epsilon=2 * b.epsilon),
    "coin and radius share a uniform": lambda b: as_kind(CoinOfTheRadius, b),
}


@pytest.mark.parametrize("mutant", MUTANTS)
@CASES
def test_wrong_choices_are_rejected(
    plane: Embedding, weight: float, t: float, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = private_plane(plane, weight, t)
    monkeypatch.setattr(private, "_perturb", MUTANTS[mutant](private._perturb))  # type: ignore[arg-type]
    value = check(private, weight, t)
    print(f"p-value of mutant {mutant}, lambda {weight}, t {t}: {value:.3g}")
    assert value < MUTANT


def test_the_choice_and_the_nearest_word_see_the_same_point(plane: Embedding) -> None:
    """Rejects another noise for another choice: two such releases would spend epsilon twice."""
    near, never_second, always_second = (
        Mahalanobis(epsilon=EPSILON, **{"lambda": 0.5}, **choice)
        for choice in ({}, {"select": "vickrey", "t": 0.0}, {"select": "vickrey", "t": 1.0})
    )
    assert near.law(2) == never_second.law(2) == always_second.law(2)
    uniforms = np.random.default_rng(0).random((500, near.uniforms_per_token(2)))
    outputs = [
        m.bind(plane, among(6))(np.arange(500) % 6, uniforms.copy())
        for m in (near, never_second, always_second)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not (outputs[0] == outputs[2]).any()


def test_the_choice_at_the_ends() -> None:
    distances = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 3.0], [np.inf, np.inf]])
    with np.errstate(all="raise"):
        for t, expected in (
            (0.0, [1, 1, 1, 1, 1]),
            (0.5, [0.5, 1, 0.5, 0.75, 0.5]),
            (1.0, [0, 1, 0, 0, 0]),
        ):
            np.testing.assert_allclose(vickrey_probability(t, distances), expected)
