"""The laws of ``projection``: its public matrix, its noise in 54 dimensions, and its words by quadrature.

The key is fixed, so a run is deterministic; over keys each check of the real mechanism would fail at the
rate REAL. Asymptotics: Kolmogorov's law at 20,000 draws, the chi-square law at 20 expected outputs or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.spatial import distance

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.projection import gaussian_projection
from dptext_spark.mechanisms import Projection
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.mechanisms.projected import ProjectedNoise
from dptext_spark.noise import to_uniform
from dptext_spark.privatizer import Privatizer
from tests.helpers import worlds
from tests.helpers.worlds import among

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one check of the real mechanism, over keys
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right


def report(name: str, value: float) -> None:
    print(f"p-value of {name}: {value:.3g}")


def stretch(world: Embedding, matrix: np.ndarray) -> float:
    """The largest stretch of two words' difference, by brute force."""
    points = world.vectors.astype(np.float64)
    return float((distance.pdist(points @ matrix.T) / distance.pdist(points)).max())


# The matrix

MATRICES: dict[str, tuple[bool, Callable[[], np.ndarray]]] = {
    "seed 0": (True, lambda: gaussian_projection(0, 54, 300)),
    "seed 1": (True, lambda: gaussian_projection(1, 200, 300)),
    "variance 1 / n": (False, lambda: gaussian_projection(0, 54, 300) * np.sqrt(54 / 300)),
    "one row for all": (False, lambda: np.repeat(gaussian_projection(0, 54, 300)[:1], 54, axis=0)),
    "uniform entries": (False, lambda: np.random.default_rng(0).uniform(-1, 1, (54, 300)) * np.sqrt(3 / 54)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_the_entries_of_the_matrix(name: str) -> None:
    """Entries are N(0, 1/m), and each row's squared length, their sum, is chi-square (Bonferroni)."""
    right, make = MATRICES[name]
    normals = make() * np.sqrt(len(make()))
    value = 2 * min(
        stats.kstest(normals.ravel(), "norm").pvalue,
        stats.kstest((normals**2).sum(axis=0), stats.chi2(len(normals)).cdf).pvalue,
    )
    report(f"matrix, {name}", value)
    assert value > REAL if right else value < MUTANT


# The noise, at m = 54 and n = 300

EPSILON = 8.0
ROWS, TOKENS = 200, 100


@pytest.fixture(scope="module")
def real(large: Embedding) -> np.ndarray:
    """Noise (ROWS * TOKENS, 54) of a release: noisy points less the exact images of their words."""
    configured = Projection(epsilon=EPSILON)
    width = configured.uniforms_per_token(300)
    noise = worlds.release(configured, large).column("text", purpose="text word", uint64s_per_token=width)
    words = np.empty((ROWS, TOKENS, width), dtype=np.uint64)
    for row in range(ROWS):
        noise.fill(words[row], noise.row_key(str(row).encode(), (b"content",)), 0)
    uniforms = to_uniform(words).reshape(-1, width)
    inputs = np.arange(len(uniforms)) % 700
    points = configured.bind(large, among(700)).points(inputs, uniforms[:, :-1])
    images = large.vectors[inputs].astype(np.float64) @ gaussian_projection(0, 54, 300).T
    difference: np.ndarray = points - images
    return difference


def noise_check(noise: np.ndarray, world: Embedding) -> float:
    """Kolmogorov-Smirnov of |z| ~ Gamma(54, Delta / epsilon) and of three cosines of z (Bonferroni)."""
    delta = stretch(world, gaussian_projection(0, 54, 300))
    lengths = np.linalg.norm(noise, axis=1)
    unit = noise / lengths[:, None]
    neighbours = (unit[::2] * unit[1::2]).sum(axis=1)
    cosine = stats.beta(53 / 2, 53 / 2)
    values = [stats.kstest(lengths, stats.gamma(54, scale=delta / EPSILON).cdf).pvalue]
    values += [
        stats.kstest(cosine.cdf((1 + cosines) / 2), "uniform").pvalue
        for cosines in (unit[:, 0], unit.sum(axis=1) / np.sqrt(54), neighbours)
    ]
    scores = stats.rankdata(lengths), stats.rankdata(np.abs(unit[:, 0]))
    values.append(stats.pearsonr(*scores).pvalue)
    return len(values) * float(min(values))


def wrong(
    world: Embedding, *, shape: int = 54, epsilon: float = EPSILON, delta: float | None = None
) -> np.ndarray:
    """Noise of another stream, right but for what is given."""
    rng = np.random.default_rng(5)
    normals = rng.standard_normal((ROWS * TOKENS, 54))
    scale = (delta or stretch(world, gaussian_projection(0, 54, 300))) / epsilon
    return (
        normals / np.linalg.norm(normals, axis=1, keepdims=True) * rng.gamma(shape, scale, (ROWS * TOKENS, 1))
    )


def before_projecting(world: Embedding) -> np.ndarray:
    """Noise in 300 dimensions, of the length that is right in 54, then projected."""
    matrix, rng = gaussian_projection(0, 54, 300), np.random.default_rng(6)
    normals = rng.standard_normal((ROWS * TOKENS, 300))
    radii = rng.gamma(54, stretch(world, matrix) / EPSILON, (ROWS * TOKENS, 1))
    return normals / np.linalg.norm(normals, axis=1, keepdims=True) * radii @ matrix.T


def of_one_direction(world: Embedding) -> np.ndarray:
    noise = wrong(world)
    return np.linalg.norm(noise, axis=1, keepdims=True) * noise[:1] / np.linalg.norm(noise[0])


def per_coordinate(world: Embedding) -> np.ndarray:
    scale = stretch(world, gaussian_projection(0, 54, 300)) / EPSILON
    return np.random.default_rng(7).laplace(scale=scale, size=(ROWS * TOKENS, 54))


NOISE_MUTANTS: dict[str, Callable[[Embedding], np.ndarray]] = {
    "Gamma shape m - 1": lambda w: wrong(w, shape=53),
    "Gamma shape n": lambda w: wrong(w, shape=300),
    "Delta forgotten": lambda w: wrong(w, delta=1.0),
    "the paper's Delta": lambda w: wrong(w, delta=1.9),
    "epsilon doubled": lambda w: wrong(w, epsilon=2 * EPSILON),
    "noise before projecting": before_projecting,
    "one direction": of_one_direction,
    "Laplace in each coordinate": per_coordinate,
}


def test_the_noise_follows_its_law(large: Embedding, real: np.ndarray) -> None:
    value = noise_check(real, large)
    report("noise in 54 dimensions", value)
    assert value > REAL
    assert len(np.unique(real[:, 0])) == len(real)
    assert noise_check(wrong(large), large) > REAL  # it is not the other stream that is rejected below


@pytest.mark.parametrize("mutant", NOISE_MUTANTS)
def test_wrong_noise_is_rejected(large: Embedding, mutant: str) -> None:
    value = noise_check(NOISE_MUTANTS[mutant](large), large)
    report(f"mutant {mutant}", value)
    assert value < MUTANT


# The words, on six words of a space of three dimensions projected to two or one

WORD_EPSILON = 2.5
DRAWS = 30_000
POINTS = [
    [1.2, 0.9, 0.3],
    [-1.1, -0.7, 0.8],
    [0.4, -0.3, -1.0],
    [-0.2, 0.6, 0.1],
    [1.9, 1.6, -0.4],
    [-0.9, 0.1, -0.7],
]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    folder: Path = tmp_path_factory.mktemp("space")
    return worlds.build(folder, POINTS)


def chances(distances: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest and the second word of points, distances (6, r), and the chance of the nearest (r,)."""
    first, second = np.argsort(distances, axis=0)[:2]
    near, far = np.sort(distances, axis=0)[:2]
    return first, second, (1 - t) * far / (t * near + (1 - t) * far)


def on_ray(ray: np.ndarray, start: np.ndarray, points: np.ndarray, rate: float, t: float) -> np.ndarray:
    """Probabilities (6,) of words on a ray, by Gauss-Legendre between the radii where ranks swap."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    dimension, end = len(ray), 40.0 / rate
    gaps, slopes = ((start - points) ** 2).sum(axis=1), 2 * (start - points) @ ray
    one, other = np.triu_indices(len(points), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        swaps = -(gaps[one] - gaps[other]) / (slopes[one] - slopes[other])
    cuts = np.concatenate([[0.0], np.sort(swaps[(swaps > 0) & (swaps < end)]), [end]])
    radii = (cuts[:-1, None] + np.diff(cuts)[:, None] * (nodes + 1) / 2).ravel()
    mass = (np.diff(cuts)[:, None] / 2 * weights).ravel() * rate * np.exp(-rate * radii)
    mass *= (rate * radii) ** (dimension - 1)  # Gamma(dimension): dimension is 1 or 2
    distances = np.linalg.norm(start + radii[:, None] * ray - points[:, None], axis=2)
    first, second, chance = chances(distances, t)
    total = np.bincount(first, mass * chance, len(points))
    return total + np.bincount(second, mass * (1 - chance), len(points))


@cache
def expected(rows: int, t: float, rate: float) -> np.ndarray:
    """P[M(x) = y] (x, y) for noise of density proportional to exp(-rate |z|) on projected words."""
    points = np.float32(POINTS).astype(np.float64) @ gaussian_projection(0, rows, 3).T
    # Continuous on the circle with kinks, which the midpoint rule takes to 10^-5.
    angles = 2 * np.pi * (np.arange(1000) + 0.5) / 1000
    rays = np.array([[1.0], [-1.0]]) if rows == 1 else np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.array([np.mean([on_ray(ray, x, points, rate, t) for ray in rays], axis=0) for x in points])


def private(world: Embedding, rows: int, t: float | None, sensitivity: str = "vocabulary") -> Privatizer:
    choice = {} if t is None else {"select": "vickrey", "t": t}
    configured = Projection(
        **{"epsilon": WORD_EPSILON, "dimension": rows, "sensitivity": sensitivity, **choice}
    )
    return Privatizer(embedding=world, mechanism=configured, noise=worlds.release(configured, world))


def words_check(release: Privatizer, rows: int, t: float | None) -> float:
    """Chi-square of the outputs of each word against quadrature, 6 x 5 degrees of freedom."""
    names = release.embedding.words.to_pylist()
    texts = pa.array([f"{name} " * DRAWS for name in names])
    outputs = release.sanitize(texts, pa.array(range(6)), column="text").values.to_pylist()
    seen = np.array([[text.split().count(name) for name in names] for text in outputs])
    rate = WORD_EPSILON / stretch(release.embedding, gaussian_projection(0, rows, 3))
    probabilities = expected(rows, t or 0.0, rate)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-4)
    counts = DRAWS * probabilities
    assert counts.min() > 20
    return float(stats.chi2.sf(((seen - counts) ** 2 / counts).sum(), df=30))


CASES = pytest.mark.parametrize(("rows", "t"), [(1, None), (1, 0.3), (2, None), (2, 0.3)])


@CASES
def test_words_follow_the_law_of_their_cells(space: Embedding, rows: int, t: float | None) -> None:
    value = words_check(private(space, rows, t), rows, t)
    report(f"words, m = {rows}, t = {t}", value)
    assert value > REAL


@dataclass(frozen=True, kw_only=True)
class NoiseFirst(ProjectedNoise):
    """Moves the vector itself and projects it then."""

    def points(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(0)
        normals = rng.standard_normal((len(words), 3))
        normals *= rng.gamma(3, self.image.scale, (len(words), 1)) / np.linalg.norm(
            normals, axis=1, keepdims=True
        )
        return self.image.projection.times(self.vectors[words] + normals)


@dataclass(frozen=True, kw_only=True)
class NeverTheInput(ProjectedNoise):
    """Drops the true word from the candidates, as if it had to be replaced."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        coins = uniforms[:, -1].copy()
        points = self.points(words, uniforms[:, :-1])
        images = self.image.projection.times(self.vectors.astype(np.float64))
        distances = np.linalg.norm(points[:, None] - images[None], axis=2)
        distances[np.arange(len(words)), words] = np.inf
        ranks, ordered = np.argsort(distances, axis=1)[:, :2], np.sort(distances, axis=1)[:, :2]
        first = coins < vickrey_probability(self.vickrey or 0.0, ordered)
        return np.where(first, ranks[:, 0], ranks[:, 1])


def as_kind(kind: type[ProjectedNoise], b: ProjectedNoise) -> ProjectedNoise:
    return kind(vectors=b.vectors, image=b.image, search=b.search, vickrey=b.vickrey)


def scaled(b: ProjectedNoise, scale: float) -> ProjectedNoise:
    return replace(b, image=replace(b.image, scale=scale))


WORD_MUTANTS: dict[str, Callable[[ProjectedNoise], ProjectedNoise]] = {
    "noise before projecting": lambda b: as_kind(NoiseFirst, b),
    "Delta 1": lambda b: scaled(b, 1.0 / WORD_EPSILON),
    "Delta 5 % too large": lambda b: scaled(b, 1.05 * b.image.scale),
    "epsilon doubled": lambda b: scaled(b, b.image.scale / 2),
    "drops the true word": lambda b: as_kind(NeverTheInput, b),
    "the other choice": lambda b: replace(b, vickrey=0.3 if b.vickrey is None else None),
}


@pytest.mark.parametrize("mutant", WORD_MUTANTS)
@CASES
def test_wrong_words_are_rejected(
    space: Embedding, rows: int, t: float | None, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = private(space, rows, t)
    monkeypatch.setattr(release, "_perturb", WORD_MUTANTS[mutant](release._perturb))  # type: ignore[arg-type]
    value = words_check(release, rows, t)
    report(f"mutant {mutant}, m = {rows}, t = {t}", value)
    assert value < MUTANT


@pytest.mark.parametrize("sensitivity", ["spectral", "paper"])
def test_another_sensitivity_is_another_law(space: Embedding, sensitivity: str) -> None:
    value = words_check(private(space, 2, None, sensitivity), 2, None)
    report(f"sensitivity {sensitivity} for vocabulary", value)
    assert value < MUTANT
