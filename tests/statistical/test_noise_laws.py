"""The laws of noise and outputs at production dimension, through the path that releases take.

Every check gives a p-value and is applied to the real noise and to named wrong implementations. The only
asymptotics are those of the chi-square, Kolmogorov's and Spearman's laws at 20,000 draws and more. The key
is fixed, so a run is deterministic; over keys each check of the real noise would fail at the rate REAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, linalg, stats
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace, Mahalanobis, Mechanism
from dptext_spark.mechanisms.euclidean import EuclideanNoise
from dptext_spark.noise import ReleaseNoise, to_uniform
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one check of the real noise, over keys
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right
EPSILON = 8.0
ROWS, TOKENS = 200, 100


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many small products wait for each other's threads on a busy machine."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def elliptical(weight: float, epsilon: float = EPSILON) -> Mechanism:
    return Mahalanobis(epsilon=epsilon, **{"lambda": weight}) if weight else Laplace(epsilon=epsilon)


def uniforms_of(noise: ReleaseNoise, width: int, rows: int = ROWS, tokens: int = TOKENS) -> np.ndarray:
    """Uniforms (rows, tokens, width) of a column as the privatizer derives them."""
    column = noise.column("text", purpose="text word", uint64s_per_token=width)
    words = np.empty((rows, tokens, width), dtype=np.uint64)
    for row in range(rows):
        column.fill(words[row], column.row_key(str(row).encode(), (b"content",)), 0)
    return to_uniform(words)


def real_noise(world: Embedding, weight: float, epsilon: float = EPSILON) -> np.ndarray:
    """Noise vectors (ROWS, TOKENS, n)."""
    configured = elliptical(weight, epsilon)
    width = configured.uniforms_per_token(world.dimension)
    uniforms = uniforms_of(worlds.release(configured, world), width).reshape(-1, width)
    bound = configured.bind(world, ExactSearch.over(world))
    assert isinstance(bound, EuclideanNoise)
    return bound.noise(uniforms[:, :-1]).reshape(ROWS, TOKENS, world.dimension)


def mixture(world: Embedding, weight: float, trace: float = 1.0) -> np.ndarray:
    """A from the vectors alone, Sigma by numpy.cov; ``trace`` puts its scale wrong."""
    covariance = np.cov(world.vectors.astype(np.float64), rowvar=False)
    covariance *= trace * world.dimension / np.trace(covariance)
    return weight * covariance + (1 - weight) * np.eye(world.dimension)


# Wrong implementations, from an independent random stream


def gaussian_directions(rng: np.random.Generator, n: int) -> np.ndarray:
    normals = rng.standard_normal((ROWS, TOKENS, n))
    return normals / np.linalg.norm(normals, axis=2, keepdims=True)


def wrong(
    n: int,
    *,
    shape: float | None = None,
    epsilon: float = EPSILON,
    root: np.ndarray | None = None,
    renormalised: bool = False,
) -> np.ndarray:
    rng = np.random.default_rng(20)
    direction = gaussian_directions(rng, n)
    if root is not None:
        direction = direction @ root
    if renormalised:
        direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    return direction * rng.gamma(shape or n, 1 / epsilon, (ROWS, TOKENS, 1))


def per_coordinate(n: int) -> np.ndarray:
    return np.random.default_rng(21).laplace(scale=1 / EPSILON, size=(ROWS, TOKENS, n))


def per_coordinate_of_right_length(n: int) -> np.ndarray:
    noise = per_coordinate(n)
    return noise / np.linalg.norm(noise, axis=2, keepdims=True) * lengths(wrong(n))[..., None]


def fixed_direction(n: int) -> np.ndarray:
    noise = wrong(n)
    return lengths(noise)[..., None] * noise[0, 0] / np.linalg.norm(noise[0, 0])


def direction_of_each_row(n: int) -> np.ndarray:
    """A row's tokens share a direction: one cipher stream read from its start for every token."""
    noise = wrong(n)
    return lengths(noise)[..., None] * noise[:, :1] / lengths(noise)[:, :1, None]


def seed_per_partition(n: int) -> np.ndarray:
    """Four partitions whose workers start from the same seed."""
    return np.tile(wrong(n)[: ROWS // 4], (4, 1, 1))


def radius_by_direction(n: int) -> np.ndarray:
    """The uniform of the radius serves the first coordinate as well."""
    rng = np.random.default_rng(22)
    uniforms = rng.random((ROWS, TOKENS, n))
    normals = stats.norm.ppf(uniforms)
    radii = stats.gamma(n, scale=1 / EPSILON).ppf(uniforms[..., :1])
    return normals / np.linalg.norm(normals, axis=2, keepdims=True) * radii


# Checks: noise (ROWS, TOKENS, n) -> p-value


def lengths(noise: np.ndarray) -> np.ndarray:
    return np.linalg.norm(noise, axis=2)


def directions(noise: np.ndarray) -> np.ndarray:
    return noise / lengths(noise)[..., None]


def radius(noise: np.ndarray) -> float:
    """Kolmogorov-Smirnov: |z| ~ Gamma(n, 1 / epsilon)."""
    law = stats.gamma(noise.shape[2], scale=1 / EPSILON)
    return float(stats.kstest(law.cdf(lengths(noise).ravel()), "uniform").pvalue)


def cosine_law(n: int) -> stats.rv_continuous:
    """(1 + u·v) / 2 for a uniform direction u and any independent direction v."""
    return stats.beta((n - 1) / 2, (n - 1) / 2)


def direction(noise: np.ndarray) -> float:
    """Kolmogorov-Smirnov of direction coordinates: first, last and the diagonal (Bonferroni)."""
    unit, n = directions(noise), noise.shape[2]
    cosines = [unit[..., 0], unit[..., -1], unit.sum(axis=2) / np.sqrt(n)]
    return 3 * min(
        float(stats.kstest(cosine_law(n).cdf((1 + c.ravel()) / 2), "uniform").pvalue) for c in cosines
    )


def neighbours(noise: np.ndarray) -> float:
    """Kolmogorov-Smirnov of the cosine of next tokens and of next rows, disjoint pairs (Bonferroni)."""
    unit, law = directions(noise), cosine_law(noise.shape[2])
    pairs = [(unit[:, ::2], unit[:, 1::2]), (unit[::2], unit[1::2])]
    cosines = [np.einsum("rtn,rtn->rt", one, other).ravel() for one, other in pairs]
    return 2 * min(float(stats.kstest(law.cdf((1 + c) / 2), "uniform").pvalue) for c in cosines)


def normal_scores(uniforms: np.ndarray) -> np.ndarray:
    return stats.norm.ppf(np.clip(uniforms, 1e-12, 1 - 1e-12))


def independence(noise: np.ndarray) -> float:
    """Correlations of normal scores, with exact null laws: radius with direction, next tokens, next rows."""
    n = noise.shape[2]
    radii = normal_scores(stats.gamma(n, scale=1 / EPSILON).cdf(lengths(noise)))
    unit = directions(noise)[..., 0]
    coordinate = normal_scores(cosine_law(n).cdf((1 + unit) / 2))
    pairs = [(radii, coordinate), (radii, normal_scores(cosine_law(n).cdf((1 + np.abs(unit)) / 2) * 2 - 1))]
    for scores in (radii, coordinate):
        pairs += [(scores[:, ::2], scores[:, 1::2]), (scores[::2], scores[1::2])]
    values = [float(stats.pearsonr(one.ravel(), other.ravel()).pvalue) for one, other in pairs]
    return len(values) * min(values)


def no_repeats(noise: np.ndarray) -> float:
    """1 without a repeated coordinate; two of 20,000 draws agree in 50 bits with probability 10^-6."""
    return float(len(np.unique(noise[..., 0])) == noise[..., 0].size)


CHECKS: dict[str, Callable[[np.ndarray], float]] = {
    check.__name__: check for check in (radius, direction, neighbours, independence, no_repeats)
}


def report(name: str, value: float) -> None:
    print(f"p-value of {name}: {value:.3g}")


@pytest.fixture(params=[50, 300])
def world(request: pytest.FixtureRequest, small: Embedding, large: Embedding) -> Embedding:
    return small if request.param == 50 else large


@pytest.mark.parametrize("check", CHECKS)
def test_laplace_noise_follows_its_law(world: Embedding, check: str) -> None:
    value = CHECKS[check](real_noise(world, 0.0))
    report(f"laplace, {check}, n={world.dimension}", value)
    assert value > REAL


SPHERICAL_MUTANTS: list[tuple[str, str, Callable[[int], np.ndarray]]] = [
    ("epsilon doubled", "radius", lambda n: wrong(n, epsilon=2 * EPSILON)),
    ("Gamma shape n-1", "radius", lambda n: wrong(n, shape=n - 1)),
    ("Gamma shape 1", "radius", lambda n: wrong(n, shape=1)),
    ("Laplace in each coordinate", "radius", per_coordinate),
    ("Laplace in each coordinate, rescaled", "direction", per_coordinate_of_right_length),
    ("fixed direction", "direction", fixed_direction),
    ("fixed direction", "neighbours", fixed_direction),
    ("one direction per row", "neighbours", direction_of_each_row),
    ("radius from the direction's uniform", "independence", radius_by_direction),
    ("seed repeated per partition", "no_repeats", seed_per_partition),
]


@pytest.mark.parametrize(
    ("name", "check", "sampler"), SPHERICAL_MUTANTS, ids=[f"{m[0]}-{m[1]}" for m in SPHERICAL_MUTANTS]
)
@pytest.mark.parametrize("n", [50, 300])
def test_wrong_laplace_noise_is_rejected(
    n: int, name: str, check: str, sampler: Callable[[int], np.ndarray]
) -> None:
    value = CHECKS[check](sampler(n))
    report(f"mutant {name}, {check}, n={n}", value)
    assert value < MUTANT


def test_an_independent_sampler_passes_the_checks() -> None:
    """The checks reject what is wrong about the mutants, not that they come from another stream."""
    assert min(check(wrong(50)) for check in CHECKS.values()) > REAL


# Mahalanobis: A^(-1/2) z must be what laplace noise is


def whitened(noise: np.ndarray, world: Embedding, weight: float) -> np.ndarray:
    """A^(-1/2) z in the eigenvectors' axes, least variance first, A independent of the package."""
    values, axes = linalg.eigh(mixture(world, weight))
    return (noise @ axes) / np.sqrt(values)


def elliptical_check(noise: np.ndarray, world: Embedding, weight: float) -> float:
    """Radius, direction and their independence for A^(-1/2) z (Bonferroni)."""
    white = whitened(noise, world, weight)  # its first and last axes are those of A's extreme variances
    return 3 * min(radius(white), direction(white), stretching(white, world, weight))


def stretching(white: np.ndarray, world: Embedding, weight: float) -> float:
    """Rank correlation of the radius with how far A^(1/2) stretches the direction."""
    stretch = (directions(white) ** 2 @ linalg.eigvalsh(mixture(world, weight))).ravel()
    return float(stats.spearmanr(lengths(white).ravel(), stretch).pvalue)


def root_of(world: Embedding, weight: float, trace: float = 1.0) -> np.ndarray:
    values, axes = linalg.eigh(mixture(world, weight, trace))
    return (axes * np.sqrt(values)) @ axes.T


ELLIPTICAL_MUTANTS: dict[str, Callable[[Embedding, float], np.ndarray]] = {
    "epsilon doubled": lambda w, k: wrong(w.dimension, root=root_of(w, k), epsilon=2 * EPSILON),
    "renormalised after the root": lambda w, k: wrong(w.dimension, root=root_of(w, k), renormalised=True),
    "trace of Sigma 15 % too large": lambda w, k: wrong(w.dimension, root=root_of(w, k, 1.15)),
    "trace of Sigma 15 % too small": lambda w, k: wrong(w.dimension, root=root_of(w, k, 0.85)),
    "Sigma left out": lambda w, k: wrong(w.dimension),
    "A instead of its root": lambda w, k: wrong(w.dimension, root=mixture(w, k)),
}


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_mahalanobis_noise_follows_its_law(world: Embedding, weight: float) -> None:
    noise = real_noise(world, weight)
    value = elliptical_check(noise, world, weight)
    report(f"mahalanobis lambda {weight}, n={world.dimension}", value)
    assert value > REAL
    white = whitened(noise, world, weight)
    assert min(neighbours(white), independence(white), no_repeats(noise)) > REAL


@pytest.mark.parametrize("mutant", ELLIPTICAL_MUTANTS)
@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_wrong_mahalanobis_noise_is_rejected(world: Embedding, weight: float, mutant: str) -> None:
    value = elliptical_check(ELLIPTICAL_MUTANTS[mutant](world, weight), world, weight)
    report(f"mutant {mutant}, lambda {weight}, n={world.dimension}", value)
    assert value < MUTANT


# The output law on a tiny vocabulary: probabilities by quadrature over the angles of the noise


def cell_probabilities(points: np.ndarray, root: np.ndarray, epsilon: float) -> np.ndarray:
    """P[M(x) = y] (x, y) for z = g·A^(1/2)u in the plane.

    Along a ray a word's Voronoi cell, which is convex, is one interval of the radius; the radius is
    Gamma(2, 1 / epsilon) and is integrated in closed form, the angle by adaptive quadrature.
    """
    biases = points @ points.T - (points**2).sum(axis=1) / 2  # score of y at radius 0, from x

    def on_ray(angle: float, x: int, y: int) -> float:
        slopes = points @ (root @ [np.cos(angle), np.sin(angle)])
        # y beats w where (slope_y - slope_w) g >= bias_w - bias_y.
        rise, lag = slopes[y] - slopes, biases[x] - biases[x, y]
        others = np.arange(len(points)) != y
        starts = lag[others & (rise > 0)] / rise[others & (rise > 0)]
        stops = lag[others & (rise < 0)] / rise[others & (rise < 0)]
        low = starts.max(initial=0.0)
        high = max(low, stops.min(initial=np.inf))
        tail = [(1 + epsilon * g) * np.exp(-epsilon * g) if np.isfinite(g) else 0.0 for g in (low, high)]
        return (tail[0] - tail[1]) / (2 * np.pi)

    count = len(points)
    cells = [
        # Quarters of the circle, so that the adaptive rule meets no cell by chance only.
        sum(
            integrate.quad(on_ray, a, a + np.pi / 4, args=(x, y), limit=200, epsabs=1e-8)[0]
            for a in np.arange(8) * np.pi / 4
        )
        for x in range(count)
        for y in range(count)
    ]
    return np.reshape(cells, (count, count))


OUTPUT_EPSILON = 2.0
DRAWS = 30_000


@cache
def _expected(vectors: bytes, root: bytes, count: int) -> np.ndarray:
    points = np.frombuffer(vectors, np.float32).reshape(count, 2).astype(np.float64)
    return cell_probabilities(points, np.frombuffer(root).reshape(2, 2), OUTPUT_EPSILON)


def output_check(private: Privatizer, weight: float) -> float:
    """Chi-square of the outputs of each word of the plane against quadrature, 6 x 5 degrees of freedom."""
    world = private.embedding
    names = world.words.to_pylist()
    texts = pa.array([f"{name} " * DRAWS for name in names])
    outputs = private.sanitize(texts, pa.array(range(len(names))), column="text").values.to_pylist()
    seen = np.array([[text.split().count(name) for name in names] for text in outputs])
    root = root_of(world, weight)
    probabilities = _expected(world.vectors.tobytes(), root.tobytes(), len(names))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    expected = DRAWS * probabilities
    assert expected.min() > 20
    statistic = ((seen - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, df=len(names) * (len(names) - 1)))


@dataclass(frozen=True, kw_only=True)
class Renormalised(EuclideanNoise):
    """Scales the direction back to length 1 after A^(1/2)."""

    def noise(self, uniforms: np.ndarray) -> np.ndarray:
        sphere = replace(self, root=None)
        straight = EuclideanNoise.noise(sphere, uniforms.copy())  # type: ignore[arg-type]
        turned = EuclideanNoise.noise(self, uniforms)
        scale = np.linalg.norm(straight, axis=1) / np.linalg.norm(turned, axis=1)
        return turned * scale[:, None]


@dataclass(frozen=True, kw_only=True)
class NeverItself(EuclideanNoise):
    """Draws again, once, where the word did not change: what comes out then hangs on the input itself."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        again = uniforms[::-1].copy()
        first = super().__call__(words, uniforms)
        second = super().__call__(words, again)
        return np.where(first == words, second, first)


def as_kind(kind: type[EuclideanNoise], bound: EuclideanNoise, **changes: object) -> EuclideanNoise:
    fields = {name: getattr(bound, name) for name in ("vectors", "epsilon", "root", "search")}
    return kind(**(fields | changes))


OUTPUT_MUTANTS: dict[str, Callable[[EuclideanNoise], EuclideanNoise]] = {
    "epsilon doubled": lambda b: as_kind(EuclideanNoise, b, epsilon=2 * b.epsilon),
    "epsilon 5 % too large": lambda b: as_kind(EuclideanNoise, b, epsilon=1.05 * b.epsilon),
    "redrawn where unchanged": lambda b: as_kind(NeverItself, b),
    "renormalised after the root": lambda b: as_kind(Renormalised, b),
    "Sigma left out": lambda b: as_kind(EuclideanNoise, b, root=None),
}


def private_plane(world: Embedding, weight: float) -> Privatizer:
    configured = elliptical(weight, OUTPUT_EPSILON)
    return Privatizer(embedding=world, mechanism=configured, noise=worlds.release(configured, world))


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_decoded_words_follow_the_law_of_their_cells(plane: Embedding, weight: float) -> None:
    value = output_check(private_plane(plane, weight), weight)
    report(f"outputs, lambda {weight}", value)
    assert value > REAL


@pytest.mark.parametrize(
    ("weight", "mutant"),
    [(w, m) for w in (0.0, 0.7) for m in OUTPUT_MUTANTS if w or m not in list(OUTPUT_MUTANTS)[3:]],
)
def test_wrongly_decoded_words_are_rejected(
    plane: Embedding, weight: float, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = private_plane(plane, weight)
    monkeypatch.setattr(private, "_perturb", OUTPUT_MUTANTS[mutant](private._perturb))
    value = output_check(private, weight)
    report(f"mutant {mutant}, outputs, lambda {weight}", value)
    assert value < MUTANT


# Two releases at two epsilons


def combined(world: Embedding, law_without_epsilon: bool) -> float:
    """Largest error of x = (e1 y1 - e2 y2) / (e1 - e2), in units of the vectors' scale."""
    epsilons, points = (5.0, 8.0), []
    for epsilon in epsilons:
        configured = Laplace(epsilon=epsilon)
        law = dict(configured.law(world.dimension))
        if law_without_epsilon:
            del law["epsilon"]
        noise = ReleaseNoise.of(worlds.KEY, salt="", law=law, fingerprint=world.fingerprint)
        uniforms = uniforms_of(noise, configured.uniforms_per_token(world.dimension), rows=1)[0]
        points.append(configured.bind(world, among(2)).points(np.arange(TOKENS), uniforms[:, :-1]))
    (e1, e2), (y1, y2) = epsilons, points
    guess = (e1 * y1 - e2 * y2) / (e1 - e2)
    errors = np.linalg.norm(guess - world.vectors[:TOKENS], axis=1)
    return float(np.median(errors) / np.linalg.norm(world.vectors[:TOKENS], axis=1).mean())


def test_two_releases_cannot_be_combined_into_the_input(world: Embedding) -> None:
    """Rejects noise without epsilon in its context: two releases then give every word away exactly."""
    assert combined(world, law_without_epsilon=True) < 1e-12
    assert combined(world, law_without_epsilon=False) > 1.0
