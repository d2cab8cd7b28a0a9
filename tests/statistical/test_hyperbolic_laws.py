"""The laws of noise and outputs in the Poincaré ball, through the path that releases take.

The expected laws come from quadrature of the densities that the mechanisms promise, in complex numbers and
textbook formulas of the ball, and from nothing of the package. Every check gives a p-value and is applied to
the real noise and to named wrong implementations. The only asymptotics are those of the chi-square and of
Kolmogorov's law at 5,000 draws and more. The key is fixed, so a run is deterministic; over keys each check of
the real noise would fail at the rate REAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import noisy as additive
from dptext_spark.mechanisms.hyperbolic import BallNoise, Hyperbolic, HyperbolicIcdm, HyperbolicNoise
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.statistical.test_noise_laws import cosine_law, normal_scores, report, uniforms_of

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one check of the real noise, over keys
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right
ROWS, TOKENS = 200, 100
NORMS = (0.0, 0.5, 0.99, 1 - 1e-6)
KINDS: dict[str, type[BallNoise]] = {kind.name: kind for kind in (Hyperbolic, HyperbolicIcdm)}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many small products wait for each other's threads on a busy machine."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


# The promised laws of the radius, by quadrature


@cache
def radius_law(name: str, n: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Grid of ln r and the distribution function of the hyperbolic radius r on it.

    ``hyperbolic`` from its density by volume, sinh(r)^(n-1) exp(-epsilon r) dr; ``hyperbolic-icdm`` from the
    paper's in the ball, rho^(n-1) ((1 - rho) / (1 + rho))^epsilon drho at rho = tanh(r/2).
    """
    decay = epsilon - n + 1 if name == "hyperbolic" else 1.0
    x = np.linspace(np.log(1e-9), np.log(800 / min(1.0, decay)), 2**19)
    r = np.exp(x)
    if name == "hyperbolic":
        logs = (n - 1) * (r + np.log(-np.expm1(-2 * r))) - epsilon * r
    else:
        rest = 2 / (np.exp(np.minimum(r, 700)) + 1)  # 1 - rho
        rho = np.where(r < 1, np.tanh(r / 2), 1 - rest)
        logs = (n - 1) * np.log(rho) + epsilon * np.log(rest / (1 + rho)) + np.log(rest * (1 + rho))
    density = np.exp(logs + x - (logs + x).max())
    below = integrate.cumulative_simpson(density, x=x, initial=0.0)
    return x, below / below[-1]


def radius_cdf(name: str, n: int, epsilon: float, radii: np.ndarray) -> np.ndarray:
    x, below = radius_law(name, n, epsilon)
    return np.interp(np.log(radii), x, below)


# What a word sees of its noise, by formulas of the ball that do not cancel near the edge


def in_ball(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (t, n + 1) as the mechanism gives them, in the ball, and ln (1 - |z|^2)."""
    log_q0 = points[:, :1]
    return points[:, 1:] / (1 + np.exp(-log_q0)), np.log(2) - np.logaddexp(0, log_q0[:, 0])


def seen_from(words: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hyperbolic distance (t,) and direction (t, n) of each point from its word (t, n)."""
    z, log_rim = in_ball(points)
    rim = 1 - np.square(words).sum(axis=1)
    gap = z - words
    squares = np.square(gap).sum(axis=1)
    log_sinh = (np.log(squares) - log_rim - np.log(rim)) / 2  # ln sinh(d / 2)
    distances = 2 * np.where(
        log_sinh < 20, np.arcsinh(np.exp(np.minimum(log_sinh, 20))), log_sinh + np.log(2)
    )
    # The numerator of the Möbius sum (-word) + z, rearranged.
    back = rim[:, None] * gap - squares[:, None] * words
    return distances, back / np.linalg.norm(back, axis=1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Noise as its words see it: quantiles of distances (ROWS, TOKENS), directions (ROWS, TOKENS, n)."""

    quantiles: np.ndarray
    directions: np.ndarray
    outward: np.ndarray
    """Cosine with the way from the origin to the word, (ROWS, words off the origin)."""


Change = Callable[[HyperbolicNoise], HyperbolicNoise]


def seen(kind: str, world: Embedding, epsilon: float, change: Change | None = None) -> Seen:
    """Draw noise around the world's four words in turn and look at it from them."""
    configured, n = KINDS[kind](epsilon=epsilon), world.dimension
    width = configured.uniforms_per_token(n)
    uniforms = uniforms_of(worlds.release(configured, world), width).reshape(-1, width)
    bound = configured.bind(world, ExactSearch.over(world))
    bound = change(bound) if change else bound
    rows = np.tile(np.arange(len(NORMS)), ROWS * TOKENS // len(NORMS))
    distances, directions = seen_from(world.vectors[rows], bound.points(rows, uniforms[:, :-1]))
    quantiles = radius_cdf(kind, n, epsilon, distances)
    far = rows > 0
    ways = world.vectors[rows[far]] / np.linalg.norm(world.vectors[rows[far]], axis=1, keepdims=True)
    return Seen(
        quantiles=quantiles.reshape(ROWS, TOKENS),
        directions=directions.reshape(ROWS, TOKENS, n),
        outward=(directions[far] * ways).sum(axis=1).reshape(ROWS, -1),
    )


# Checks: Seen -> p-value


def uniform_p(quantiles: np.ndarray) -> float:
    return float(stats.kstest(quantiles.ravel(), "uniform").pvalue)


def radius(noise: Seen) -> float:
    """Kolmogorov-Smirnov of the distance from the word, for each word and for all (Bonferroni)."""
    words = len(NORMS)
    each = [uniform_p(noise.quantiles[:, word::words]) for word in range(words)]
    return (words + 1) * min(*each, uniform_p(noise.quantiles))


def direction(noise: Seen) -> float:
    """Kolmogorov-Smirnov of the direction's first and last coordinate, diagonal, and outward (Bonferroni)."""
    unit, n = noise.directions, noise.directions.shape[2]
    cosines = [unit[..., 0], unit[..., -1], unit.sum(axis=2) / np.sqrt(n), noise.outward]
    return len(cosines) * min(uniform_p(cosine_law(n).cdf((1 + c) / 2)) for c in cosines)


def independence(noise: Seen) -> float:
    """Correlations of normal scores: radius with direction, next tokens, next rows (Bonferroni)."""
    n = noise.directions.shape[2]
    radii = normal_scores(noise.quantiles)
    cosine = cosine_law(n).cdf((1 + noise.directions[..., 0]) / 2)
    coordinate, spread = normal_scores(cosine), normal_scores(np.abs(2 * cosine - 1))
    far = radii.reshape(ROWS, -1, len(NORMS))[..., 1:].reshape(ROWS, -1)
    pairs = [(radii, coordinate), (radii, spread), (far, noise.outward)]
    for scores in (radii, coordinate):
        pairs += [(scores[:, ::2], scores[:, 1::2]), (scores[::2], scores[1::2])]
    values = [float(stats.pearsonr(one.ravel(), other.ravel()).pvalue) for one, other in pairs]
    return len(values) * min(values)


CHECKS: dict[str, Callable[[Seen], float]] = {c.__name__: c for c in (radius, direction, independence)}


# Wrong implementations


def as_kind(kind: type[HyperbolicNoise], bound: HyperbolicNoise, **changes: object) -> HyperbolicNoise:
    return kind(**({field.name: getattr(bound, field.name) for field in fields(bound)} | changes))


class Clipped(HyperbolicNoise):
    """The paper's Euclidean sum of word and noise, clipped into the ball."""

    def points(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        radii, directions = self.noise(uniforms)
        z = self.vectors[words] + np.tanh(radii / 2)[:, None] * directions
        z *= np.minimum(1, (1 - 1e-5) / np.linalg.norm(z, axis=1))[:, None]
        squares = np.square(z).sum(axis=1, keepdims=True)
        return np.hstack([np.log((1 + squares) / (1 - squares)), 2 * z / (1 + squares)])


class RadiusByDirection(HyperbolicNoise):
    """The uniform of the radius serves the first coordinate as well."""

    def noise(self, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        uniforms[:, 1] = uniforms[:, 0]
        return super().noise(uniforms)


def with_radii(radii: Callable[[np.ndarray, int, float], np.ndarray], n: int, epsilon: float) -> Change:
    """Draw the radius otherwise; ``radii`` takes uniforms, n and epsilon."""
    return lambda bound: as_kind(HyperbolicNoise, bound, quantile=lambda u: radii(u, n, epsilon))


def rightly(kind: str) -> Callable[[np.ndarray, int, float], np.ndarray]:
    return lambda u, n, epsilon: KINDS[kind](epsilon=epsilon).quantile(n)(u)


def beta_radii(u: np.ndarray, n: int, epsilon: float) -> np.ndarray:
    """The Beta law with shape n - 1 for n."""
    return -np.log(stats.beta((epsilon - n + 1) / 2, n - 1).ppf(1 - u)) / 2


def mutants(kind: str, n: int, epsilon: float) -> dict[str, Change]:
    real = rightly(kind)
    other = next(name for name in KINDS if name != kind)
    wrong: dict[str, Callable[[np.ndarray, int, float], np.ndarray]] = {
        "epsilon doubled": lambda u, n, e: real(u, n, 2 * e),
        "polar coordinates without their volume": lambda u, n, e: -np.log(u) / e,
        f"{other} taken for {kind}": rightly(other),
        "Klein radius taken for Poincaré's": lambda u, n, e: 2 * real(u, n, e),
        "one dimension too few": beta_radii if kind == "hyperbolic" else lambda u, n, e: real(u, n - 1, e),
    }
    return {name: with_radii(radii, n, epsilon) for name, radii in wrong.items()} | {
        "not moved to the word": lambda b: as_kind(HyperbolicNoise, b, vectors=np.zeros_like(b.vectors)),
        "Euclidean sum, clipped": lambda b: as_kind(Clipped, b),
    }


MUTANTS = {kind: list(mutants(kind, 2, 4.0)) for kind in KINDS}


@pytest.fixture(scope="module", params=[2, 5, 10, 50])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """A word at the origin and three farther and farther out."""
    n = int(request.param)
    directions = np.random.default_rng(n).standard_normal((len(NORMS), n))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = directions * np.array(NORMS)[:, None]
    return worlds.build(tmp_path_factory.mktemp(f"ball-{n}"), points, geometry="poincare")


EPSILONS: dict[str, Callable[[int], float]] = {
    "2n": lambda n: 2.0 * n,
    "n-1+0.05": lambda n: n - 1 + 0.05,
    "n-1+0.001": lambda n: n - 1 + 0.001,
    "0.2": lambda n: 0.2,
}
CASES = [(kind, e) for kind in KINDS for e in EPSILONS if not (kind == "hyperbolic" and e == "0.2")]


@pytest.mark.parametrize(("kind", "epsilon"), CASES)
def test_noise_follows_its_law_around_every_word(world: Embedding, kind: str, epsilon: str) -> None:
    noise = seen(kind, world, EPSILONS[epsilon](world.dimension))
    values = {name: check(noise) for name, check in CHECKS.items()}
    for name, value in values.items():
        report(f"{kind}, {name}, n={world.dimension}, epsilon {epsilon}", value)
    assert min(values.values()) > REAL
    assert len(np.unique(noise.directions[..., 0])) == ROWS * TOKENS


@pytest.mark.parametrize(("kind", "mutant"), [(kind, m) for kind in KINDS for m in MUTANTS[kind]])
def test_wrong_noise_is_rejected(world: Embedding, kind: str, mutant: str) -> None:
    n = world.dimension
    value = radius(seen(kind, world, 2.0 * n, mutants(kind, n, 2.0 * n)[mutant]))
    report(f"mutant {mutant}, {kind}, radius, n={n}", value)
    assert value < MUTANT


@pytest.mark.parametrize("kind", KINDS)
def test_a_radius_that_hangs_on_the_direction_is_rejected(world: Embedding, kind: str) -> None:
    noise = seen(kind, world, 2.0 * world.dimension, lambda bound: as_kind(RadiusByDirection, bound))
    value = independence(noise)
    report(f"mutant radius from the direction's uniform, {kind}, n={world.dimension}", value)
    assert radius(noise) > REAL
    assert value < MUTANT


# The output law on a tiny vocabulary: probabilities by quadrature over geodesic rays from each word

POINTS = np.array([0.05 + 0.1j, 0.45 - 0.2j, -0.3 + 0.35j, -0.35 + 0.55j, 0.1 - 0.75j, 0.9 + 0.32j])
OUTPUT_EPSILON = {"hyperbolic": 1.7, "hyperbolic-icdm": 1.2}
DRAWS = 20_000
T = 0.3
CHOICES: dict[str, dict[str, object]] = {"nearest": {}, "vickrey": {"select": "vickrey", "t": T}}


def cosh_to_all(z: np.ndarray, rim: np.ndarray) -> np.ndarray:
    """cosh d(z, y) (len(z), words) for complex z of the ball whose 1 - |z|^2 is ``rim``."""
    return 1 + 2 * np.abs(z[:, None] - POINTS) ** 2 / (rim[:, None] * (1 - np.abs(POINTS) ** 2))


def on_geodesic(word: complex, angle: float, radii: np.ndarray) -> np.ndarray:
    """cosh of the distances (radii, words) from points at hyperbolic ``radii`` from a word."""
    step = np.tanh(radii / 2) * np.exp(1j * angle)
    moved = 1 + np.conj(word) * step
    return cosh_to_all(
        (word + step) / moved, (1 - abs(word) ** 2) / (np.cosh(radii / 2) * np.abs(moved)) ** 2
    )


@cache
def expected(kind: str) -> dict[str, np.ndarray]:
    """P[M(x) = y] (x, y): adaptive over the angle, Gauss-Legendre between the radii where ranks swap."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    one, other = np.triu_indices(len(POINTS), 1)
    epsilon, end = OUTPUT_EPSILON[kind], 40.0

    def density(r: np.ndarray) -> np.ndarray:
        if kind == "hyperbolic":
            return np.sinh(r) * np.exp(-epsilon * r)
        rho = np.tanh(r / 2)
        return rho * ((1 - rho) / (1 + rho)) ** epsilon * (1 - rho**2) / 2

    total = integrate.quad(density, 0, end, limit=500, epsabs=1e-12)[0] * 2 * np.pi

    def on_ray(angle: float, word: complex) -> np.ndarray:
        # cosh d(q(r), y) = a cosh r + b sinh r, so that two words swap ranks at one radius.
        a, at_one = on_geodesic(word, angle, np.array([0.0, 1.0]))
        b = (at_one - a * np.cosh(1)) / np.sinh(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            swaps = -(a[one] - a[other]) / (b[one] - b[other])
        swaps = np.arctanh(swaps[(swaps > 0) & (swaps < 1)])
        cuts = np.concatenate([[0.0], np.sort(swaps), [end]])
        radii = (cuts[:-1, None] + np.diff(cuts)[:, None] * (nodes + 1) / 2).ravel()
        mass = (np.diff(cuts)[:, None] / 2 * weights).ravel() * density(radii) / total
        distances = np.arccosh(np.maximum(on_geodesic(word, angle, radii), 1))
        ranked = np.argsort(distances, axis=1)[:, :2]
        d1, d2 = np.take_along_axis(distances, ranked, axis=1).T
        chance = (1 - T) * d2 / (T * d1 + (1 - T) * d2)
        nearest, first, second = (
            np.bincount(ranked[:, rank], mass * weight, len(POINTS))
            for rank, weight in ((0, 1), (0, chance), (1, 1 - chance))
        )
        return np.stack([nearest, first + second])

    def around(word: complex) -> np.ndarray:
        return sum(
            integrate.quad_vec(on_ray, a, a + np.pi / 4, args=(word,), epsabs=1e-4, quadrature="gk15")[0]
            for a in np.arange(8) * np.pi / 4
        )

    return dict(zip(CHOICES, np.stack([around(word) for word in POINTS], axis=1), strict=True))


@pytest.fixture(scope="module")
def disc(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """Six words of the disc, two of them close together, one near the edge."""
    points = np.stack([POINTS.real, POINTS.imag], axis=1)
    return worlds.build(tmp_path_factory.mktemp("disc"), points, geometry="poincare")


def private_disc(disc: Embedding, kind: str, choice: str) -> Privatizer:
    configured = KINDS[kind](epsilon=OUTPUT_EPSILON[kind], **CHOICES[choice])
    return Privatizer(embedding=disc, mechanism=configured, noise=worlds.release(configured, disc))


def output_check(private: Privatizer, kind: str, choice: str) -> float:
    """Chi-square of the outputs of each word of the disc; cells below 20 join the row's fullest."""
    names = private.embedding.words.to_pylist()
    texts = pa.array([f"{name} " * DRAWS for name in names])
    outputs = private.sanitize(texts, pa.array(range(len(names))), column="text").values.to_pylist()
    probabilities = expected(kind)[choice]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)
    statistic, freedom = 0.0, 0
    for text, counts in zip(outputs, DRAWS * probabilities, strict=True):
        words = text.split()
        gaps = np.array([words.count(name) for name in names]) - counts
        rare, fullest = counts < 20, counts.argmax()
        gaps[fullest] += gaps[rare].sum()
        counts[fullest] += counts[rare].sum()
        statistic += float((gaps**2 / counts)[~rare].sum())
        freedom += int((~rare).sum()) - 1
    return float(stats.chi2.sf(statistic, df=freedom))


class NeverItself(HyperbolicNoise):
    """Vickrey among the words that are not the input: what comes out then hangs on the input itself."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        coins = uniforms[:, -1].copy()
        z, log_rim = in_ball(self.points(words, uniforms[:, :-1]))
        distances = np.arccosh(np.maximum(cosh_to_all(z[:, 0] + 1j * z[:, 1], np.exp(log_rim)), 1))
        distances[np.arange(len(words)), words] = np.inf
        order = np.argsort(distances, axis=1)[:, :2]
        two = np.take_along_axis(distances, order, axis=1)
        first = coins < additive.vickrey_probability(self.vickrey or 0.0, two)
        return np.where(first, order[:, 0], order[:, 1])


class UpsideDown(HyperbolicNoise):
    """Vickrey with the distances of the ratio swapped."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        coins = uniforms[:, -1].copy()
        nearest, distances = self.search.nearest_two(self.points(words, uniforms[:, :-1]))
        first = coins < additive.vickrey_probability(self.vickrey or 0.0, distances[:, ::-1])
        return np.where(first, nearest[:, 0], nearest[:, 1])


def output_mutants(kind: str, choice: str) -> dict[str, Change]:
    epsilon = OUTPUT_EPSILON[kind]
    sharper = with_radii(lambda u, n, e: rightly(kind)(u, n, e + 0.15), 2, epsilon)
    if choice == "nearest":
        return mutants(kind, 2, epsilon) | {"epsilon 0.15 too large": sharper}
    return {
        "epsilon 0.15 too large": sharper,
        "not moved to the word": mutants(kind, 2, epsilon)["not moved to the word"],
        "true word dropped": lambda bound: as_kind(NeverItself, bound),
        "ratio upside down": lambda bound: as_kind(UpsideDown, bound),
        "nearest taken": lambda bound: as_kind(HyperbolicNoise, bound, vickrey=None),
    }


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("kind", KINDS)
def test_decoded_words_follow_the_law_of_their_cells(disc: Embedding, kind: str, choice: str) -> None:
    value = output_check(private_disc(disc, kind, choice), kind, choice)
    report(f"outputs, {kind}, {choice}", value)
    assert value > REAL


@pytest.mark.parametrize(
    ("kind", "choice", "mutant"), [(k, c, m) for k in KINDS for c in CHOICES for m in output_mutants(k, c)]
)
def test_wrongly_decoded_words_are_rejected(
    disc: Embedding, kind: str, choice: str, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = private_disc(disc, kind, choice)
    monkeypatch.setattr(private, "_perturb", output_mutants(kind, choice)[mutant](private._perturb))
    value = output_check(private, kind, choice)
    report(f"mutant {mutant}, outputs, {kind}, {choice}", value)
    assert value < MUTANT
