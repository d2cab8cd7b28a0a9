"""The laws of mechanisms as one table: parameters, oracle, wrong implementations that must be rejected.

Noise is seen at production dimension, words on few words, both through the path that releases take. A wrong
implementation is the package with one part replaced: of each kind the one that is hardest to see. The key is
fixed: a run is deterministic, and over keys each case of the real mechanism would fail at the rate REAL. The
only asymptotics are those of the chi-square, Kolmogorov's and Pearson's laws at 20,000 draws.
"""

import pkgutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special, stats
from threadpoolctl import threadpool_limits

from dptext_spark.geometry.projection import gaussian_projection
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.noise import SEED_UNIFORMS, ReleaseNoise, to_uniform
from dptext_spark.search.exact import ExactSearch
from dptext_spark.vector_sanitizer import VectorSanitizer
from tests.helpers import worlds
from tests.statistical import oracles

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one case of the real mechanism, over keys
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right
ROWS, TOKENS = 200, 100
MOST = 1 - 2.0**-53


@pytest.fixture(autouse=True)
def one_thread():
    """Many small products wait for each other's threads on a busy machine."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@dataclass(frozen=True)
class Wrong:
    """What makes another part of one of the package, ``module:name``; or uniforms that are not fresh."""

    part: str = ""
    change: Callable[[Any], Any] = lambda real: real
    uniforms: Callable[[np.ndarray], np.ndarray] = lambda uniforms: uniforms

    def plant(self, patch):
        if self.part:
            real = pkgutil.resolve_name(f"dptext_spark.{self.part}")
            patch.setattr(f"dptext_spark.{self.part.replace(':', '.')}", self.change(real))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism on a world; what is planted first does not make it wrong."""

    mechanism: Mechanism
    world: str
    mutants: Mapping[str, Wrong] = field(default_factory=dict)
    planted: tuple[Wrong, ...] = ()

    @property
    def draws(self):
        """How often each word is released; a truncation hides much of a wrong epsilon."""
        return 45_000 if getattr(self.mechanism, "truncate", None) else 20_000


def case(spec, world, *mutants, planted=(), epsilon):
    wrong = {key: each for table in mutants for key, each in table.items()}
    return Case(mechanism=mechanism(spec, epsilon=epsilon), world=world, planted=planted, mutants=wrong)


def some(table, *names):
    return {name: table[name] for name in names}


def normalised(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def ball_points(n):
    """A word at the origin and three farther and farther out."""
    return normalised(np.random.default_rng(n).standard_normal((4, n))) * [[0.0], [0.5], [0.99], [1 - 1e-6]]


EIGHT = np.array(
    [[0.3, 0.1], [-0.2, 0.4], [0.0, -0.5], [0.6, 0.5], [-0.7, -0.2], [0.1, 0.2], [0.5, -0.7], [0.6, -0.6]]
)
FLAT = {
    "plane": [[1.2, 0.9], [-1.1, -0.7], [0.4, -0.3], [-0.2, 0.6], [1.9, 1.6], [-0.9, 0.1]],
    "space": [
        *([1.2, 0.9, 0.3], [-1.1, -0.7, 0.8], [0.4, -0.3, -1.0], [-0.2, 0.6, 0.1]),
        *([1.9, 1.6, -0.4], [-0.9, 0.1, -0.7]),
    ],
    # Eight words, the last two near to each other, far out, and not released.
    "eight": 1.8 * EIGHT,
    "small": worlds.uneven(300, 50),
    "large": worlds.uneven(700, 300),
}
CURVED = {
    "ball-2": ball_points(2),
    "ball-50": ball_points(50),
    "disc": [[0.05, 0.1], [0.45, -0.2], [-0.3, 0.35], [-0.35, 0.55], [0.1, -0.75], [0.9, 0.32]],
    "ball of eight": EIGHT,
}


@pytest.fixture(scope="module")
def worlds_by_name(tmp_path_factory):
    @cache
    def world(name):
        options = {"geometry": "poincare"} if name in CURVED else {}
        options |= {"release_words": 6} if "eight" in name else {}
        return worlds.build(tmp_path_factory.mktemp("world"), {**FLAT, **CURVED}[name], **options)

    return world


def _of_direction(uniforms):
    return np.concatenate([uniforms[..., 1:2], uniforms[..., 1:]], axis=-1)


def _of_row(uniforms):
    return np.concatenate([uniforms[..., :1], np.repeat(uniforms[:, :1, 1:], TOKENS, axis=1)], axis=-1)


UNIFORMS = {  # (ROWS, TOKENS, k), some of which serve twice
    "length from the direction's uniform": Wrong(uniforms=_of_direction),
    "a row's tokens share a direction": Wrong(uniforms=_of_row),
    "a seed for each partition": Wrong(uniforms=lambda u: np.tile(u[: ROWS // 4], (4, 1, 1))),
}


def lengths(part):
    """Wrong laws of the length, in place of Gamma quantiles of a shape n."""
    return {
        "epsilon 5 % too large": Wrong(part, lambda real: lambda n, u: real(n, u) / 1.05),
        "Gamma shape n - 1": Wrong(part, lambda real: lambda n, u: real(n - 1, u)),
    }


def ways(part):
    """Wrong directions."""
    return {
        "Laplace in each coordinate": Wrong(part, lambda real: lambda u: normalised(stats.laplace.ppf(u))),
        "within a cube": Wrong(part, lambda real: lambda u: normalised(2 * u - 1)),
        "not normalised": Wrong(part, lambda real: lambda u: special.ndtri(u) / np.sqrt(u.shape[1])),
    }


EIGENVALUES = "mechanisms.euclidean:EllipticalLaplace._eigenvalues"
MIXTURES = {
    "trace of Sigma 15 % too large": Wrong(EIGENVALUES, lambda real: lambda self, v: real(self, 1.15 * v)),
    "trace of Sigma 15 % too small": Wrong(EIGENVALUES, lambda real: lambda self, v: real(self, 0.85 * v)),
    "A instead of its root": Wrong(EIGENVALUES, lambda real: lambda self, values: real(self, values) ** 2),
    "renormalised after the root": Wrong(
        "mechanisms.euclidean:EuclideanNoise.directions",
        lambda real: lambda self, uniforms: normalised(real(self, uniforms)),
    ),
}


def drawing(part, draw):
    """A method that draws otherwise, by what it really is, its object, words and uniforms."""
    return Wrong(part, lambda real: lambda self, words, uniforms, *_: draw(real, self, words, uniforms))


def _noise_first(real, self, words, uniforms):
    """Moves the vector itself by noise of the length that is right for its image, and projects it then."""
    normals = np.random.default_rng(0).standard_normal((len(words), self.vectors.shape[1]))
    noise = normalised(normals) * self.lengths(uniforms[:, 0])[:, None]
    return self.image.projection.times(self.vectors[words] + noise)


CONSTANT = "mechanisms.projected:vocabulary_stretch"
DELTAS = {
    "the paper's Delta": Wrong(CONSTANT, lambda real: lambda *given: 1.9),
    "Delta 5 % too large": Wrong(CONSTANT, lambda real: lambda *given: 1.05 * real(*given)),
    "noise before projecting": drawing("mechanisms.projected:ProjectedNoise.points", _noise_first),
}


def _clipped(real):
    """The paper's Euclidean sum of word and noise, clipped into the ball."""

    def translated(words, radii, ways):
        z = words + np.tanh(radii / 2)[:, None] * ways
        z *= np.minimum(1, (1 - 1e-5) / np.linalg.norm(z, axis=1))[:, None]
        squares = np.square(z).sum(axis=1, keepdims=True)
        return np.hstack([np.log((1 + squares) / (1 - squares)), 2 * z / (1 + squares)])

    return translated


def radii(kind, other):
    """Wrong laws of the radius in the ball, and wrong ways to move it to the word."""
    part, move = f"mechanisms.hyperbolic:{kind}.quantile", "mechanisms.hyperbolic:translated"
    changes = {
        "epsilon 10 % too large": lambda real: lambda self, n: real(self.at(1.1 * self.epsilon), n),
        "polar coordinates without volume": lambda real: lambda self, n: lambda u: -np.log(u) / self.epsilon,
        "the other law": lambda real: lambda self, n: mechanism(other, epsilon=self.epsilon).quantile(n),
        "Klein radius taken for Poincaré's": lambda real: lambda self, n: lambda u: 2 * real(self, n)(u),
        "one dimension too few": lambda real: lambda self, n: real(self, n - 1),
    }
    return {
        **{name: Wrong(part, change) for name, change in changes.items()},
        "not moved to the word": Wrong(move, lambda real: lambda words, *rest: real(0 * words, *rest)),
        "Euclidean sum, clipped": Wrong(move, _clipped),
    }


BALL, ICDM = radii("Hyperbolic", "hyperbolic-icdm"), radii("HyperbolicIcdm", "hyperbolic")
DIMENSION, CLOSE, ORIGIN = "one dimension too few", "epsilon 10 % too large", "not moved to the word"
LENGTHS = lengths("mechanisms.euclidean:gamma_quantile")
DIRECTIONS = ways("mechanisms.noisy:uniform_directions"), ways("mechanisms.hyperbolic:uniform_directions")
IMAGES = lengths("geometry.projection:gamma_quantile")
IMAGE_WAYS = {
    **some(ways("geometry.projection:uniform_directions"), "Laplace in each coordinate"),
    "one key for all rows": Wrong(
        "noise:ColumnNoise.row_key", lambda real: lambda self, row_id, content: real(self, b"", ())
    ),
}

NOISE = {
    "laplace": case("laplace", "small", LENGTHS, DIRECTIONS[0], UNIFORMS, epsilon=8.0),
    "laplace-300": case("laplace", "large", some(LENGTHS, "Gamma shape n - 1"), epsilon=8.0),
    "mahalanobis": case("mahalanobis:lambda=0.25", "small", MIXTURES, epsilon=8.0),
    "mahalanobis-1": case("mahalanobis:lambda=1", "small", epsilon=8.0),
    "projection": case("projection", "large", IMAGES, DELTAS, epsilon=8.0),
    "vectors": case("vectors", "large", IMAGES, IMAGE_WAYS, epsilon=10.0),
    "vectors-paper": case("vectors:sensitivity=paper", "large", epsilon=10.0),
    "hyperbolic-2": case("hyperbolic", "ball-2", BALL, some(DIRECTIONS[1], "within a cube"), epsilon=4.0),
    "hyperbolic-50": case("hyperbolic", "ball-50", some(BALL, DIMENSION, CLOSE), epsilon=100.0),
    "icdm-2": case("hyperbolic-icdm", "ball-2", some(ICDM, "the other law", ORIGIN), epsilon=4.0),
    "icdm-50": case("hyperbolic-icdm", "ball-50", some(ICDM, DIMENSION, CLOSE), epsilon=100.0),
    "icdm-50-little": case("hyperbolic-icdm", "ball-50", epsilon=0.2),
}


def uniforms_of(noise, width):
    """Uniforms (ROWS, TOKENS, width) of a column as the sanitizer derives them."""
    column = noise.column("text", purpose="text word", uint64s_per_token=width)
    words = np.empty((ROWS, TOKENS, width), dtype=np.uint64)
    for row in range(ROWS):
        column.fill(words[row], column.row_key(str(row).encode(), (b"content",)), 0)
    return to_uniform(words)


def released_noise(configured):
    """Released vectors less their images; inputs are long against the noise."""
    used = configured.of_length(300)
    rows = np.random.default_rng(1).normal(0, 10 / np.sqrt(300), (ROWS * TOKENS, 300)).astype(np.float32)
    private = VectorSanitizer(
        mechanism=used, noise=ReleaseNoise.of(worlds.KEY, salt="", law=used.law(), fingerprint="")
    )
    starts = pa.array(np.arange(0, rows.size + 1, 300, dtype=np.int32))
    lists = pa.ListArray.from_arrays(starts, pa.array(rows.ravel()))
    values = private.sanitize(lists, pa.array(range(len(rows))), column="v").values
    released = values.flatten().to_numpy().reshape(len(rows), -1)
    return released - rows.astype(np.float64) @ np.array(used.to_json()["matrix"]).T


def noise_of(configured, world, wrong):
    """Draw noise around four words in turn and look at it from them."""
    epsilon, vectors = configured.epsilon, world.vectors
    if isinstance(configured, ProjectedVectors):
        noise = released_noise(configured)
        largest = np.linalg.norm(gaussian_projection(0, noise.shape[1], 300), ord=2)
        scale = (1.9 if configured.sensitivity == "paper" else largest) / epsilon
        return oracles.seen_in_space(noise, ROWS, scale)
    width = configured.uniforms_per_token(world.dimension)
    uniforms = wrong.uniforms(uniforms_of(worlds.release(configured, world), width)).reshape(-1, width)
    words = np.arange(ROWS * TOKENS) % 4
    bound = configured.bind(world, ExactSearch.over(world))
    points = bound.points(words, uniforms[:, :-1].copy())
    if configured.name.startswith("hyperbolic"):
        return oracles.seen_in_ball(vectors[words], points, ROWS, configured.name, epsilon)
    if configured.name == "projection":
        matrix = gaussian_projection(0, 54, 300)
        noise = points - (vectors[:4].astype(np.float64) @ matrix.T)[words]
        return oracles.seen_in_space(noise, ROWS, oracles.largest_stretch(vectors, matrix) / epsilon)
    noise = points - vectors[words]
    if weight := getattr(configured, "lambda_", 0.0):
        # In A's axes, least variance first, and over its deviations it must be what laplace noise is.
        values, axes = np.linalg.eigh(oracles.mixture_root(vectors, weight))
        noise = (noise @ axes) / values
    return oracles.seen_in_space(noise, ROWS, 1 / epsilon)


CALL, COIN = "mechanisms.noisy:NoisyNearest.__call__", "mechanisms.noisy:vickrey_probability"
DRAW, TRY = (f"mechanisms.exponential:ExponentialChoice.{name}" for name in ("__call__", "round"))


def _redrawn(real, self, words, uniforms):
    """Draws again, once, where the word did not change: what comes out then hangs on the input itself."""
    again = uniforms[::-1].copy()
    first = real(self, words, uniforms)
    return np.where(first == words, real(self, words, again), first)


def _never_itself(real, self, words, uniforms):
    """Leaves the true word out of the choice between two."""
    two = self.search.nearest_two(self.points(words, uniforms[:, :-1]))[0]
    return np.where(two[:, 0] == words, two[:, 1], two[:, 0])


def of_uniforms(part, change):
    """Other uniforms than a token's own, by words and uniforms."""

    def draw(real, self, words, uniforms):
        change(words, uniforms)
        return real(self, words, uniforms)

    return drawing(part, draw)


def from_before(part, place):
    """Every second token has one uniform of the token before."""
    return of_uniforms(part, lambda _, u: np.copyto(u[1::2, place], u[: len(u) // 2 * 2 : 2, place]))


CHOICES = {
    "redrawn where unchanged": drawing(CALL, _redrawn),
    "a length shared with the token before": from_before(CALL, 0),
}
VICKREY = {
    "drops the true word": drawing(CALL, _never_itself),
    "ratio upside down": Wrong(COIN, lambda real: lambda t, distances: real(t, distances[:, ::-1])),
    "t 0.05 too large": Wrong(COIN, lambda real: lambda t, distances: real(t + 0.05, distances)),
    "coin and length share a uniform": of_uniforms(CALL, lambda _, u: np.copyto(u[:, -1], u[:, 0])),
}


def by_table(law):
    """Draws by the first uniform from a table of probabilities."""

    def draw(real, self, words, uniforms):
        gaps = self.near.to_rows(np.arange(8), np.arange(self.near.release_words))
        cumulative = np.cumsum(law(gaps, self.epsilon, self.truncate), axis=1)[words]
        return np.minimum((cumulative <= uniforms[:, :1]).sum(axis=1), gaps.shape[1] - 1)

    return drawing(DRAW, draw)


def _later(words, uniforms):
    """No first round accepts what a part of word 6's tokens are offered."""
    uniforms[np.flatnonzero(words == 6)[::6], :-SEED_UNIFORMS] = MOST


SHORT = Wrong(
    "mechanisms.exponential:Exponential.bind", lambda real: lambda *given: replace(real(*given), listed=10.0)
)
LATER, NO_MORE = of_uniforms(DRAW, _later), Wrong("mechanisms.exponential:_MORE", lambda real: 0)
ROUNDS = {
    "accepts all": Wrong(
        TRY, lambda real: lambda *given: real(*given[:-1], np.where([False, False, True], 1e-300, given[-1]))
    ),
    "proposed by a shorter list": Wrong(
        TRY,
        lambda real: lambda self, lists, *rest: real(self, replace(lists, radii=0.9 * lists.radii), *rest),
    ),
    "one acceptance for all rounds": of_uniforms(
        DRAW, lambda _, u: np.copyto(u[:, 2:-SEED_UNIFORMS:3], u[:, 2:3])
    ),
    "overlapping rounds": of_uniforms(
        DRAW, lambda _, u: np.copyto(u[:, :48], sliding_window_view(u, 3, axis=1)[:, :16].reshape(-1, 48))
    ),
}
# The least that shows that lists are short, and leave words to propose that are not all alike.
ACCEPTS = some(ROUNDS, "accepts all")
TABLES = {name: by_table(law) for name, law in oracles.WRONG_LAWS.items()}
FAR_SHARED = {"a far word shared with the token before": from_before(DRAW, 1)}
T, WHOLE, TRUNCATED = "select=vickrey,t=0.3", "exponential", "exponential:truncate"
ROUND, TABLE = "ball of eight", by_table(oracles.exponential_law)
DELTA, ROOT = some(DELTAS, "Delta 5 % too large"), some(MIXTURES, "renormalised after the root")

OUTPUTS = {
    "laplace": case("laplace", "plane", some(LENGTHS, "epsilon 5 % too large"), CHOICES, epsilon=2.0),
    "laplace-vickrey": case(f"laplace:{T}", "plane", VICKREY, epsilon=2.0),
    "mahalanobis-vickrey": case(f"mahalanobis:lambda=0.7,{T}", "plane", ROOT, epsilon=2.0),
    "projection-vickrey": case(f"projection:dimension=2,{T}", "space", DELTA, epsilon=2.5),
    "hyperbolic": case("hyperbolic", "disc", some(BALL, CLOSE, ORIGIN), epsilon=1.7),
    "icdm-vickrey": case(f"hyperbolic-icdm:{T}", "disc", some(VICKREY, "ratio upside down"), epsilon=1.2),
    "exponential": case(WHOLE, "eight", epsilon=1.5),
    "truncated": case(f"{TRUNCATED}=1.2", "eight", TABLES, epsilon=1.5),
    "truncated, another sampler": case(f"{TRUNCATED}=1.2", "eight", planted=(TABLE,), epsilon=1.5),
    "all far": case(f"{TRUNCATED}=0.5", "eight", FAR_SHARED, epsilon=1.5),
    "short lists": case(WHOLE, "eight", ROUNDS, planted=(SHORT,), epsilon=1.5),
    "short lists, truncated": case(f"{TRUNCATED}=2.6", "eight", ACCEPTS, planted=(SHORT,), epsilon=1.5),
    "later rounds": case(WHOLE, "eight", planted=(SHORT, LATER), epsilon=1.5),
    "no rounds": case(WHOLE, "eight", planted=(SHORT, LATER, NO_MORE), epsilon=1.5),
    "in the ball": case(f"{TRUNCATED}=1.2", ROUND, epsilon=1.5),
    "short lists in the ball": case(WHOLE, ROUND, ACCEPTS, planted=(SHORT,), epsilon=1.5),
    "short lists in the ball, truncated": case(
        f"{TRUNCATED}=3.2", ROUND, ACCEPTS, planted=(SHORT,), epsilon=1.5
    ),
    "no rounds in the ball": case(WHOLE, ROUND, planted=(SHORT, LATER, NO_MORE), epsilon=1.5),
}


@cache
def probabilities(configured, world):
    """The law (words, released) of a mechanism's outputs."""
    t, epsilon = getattr(configured, "t", None), configured.epsilon
    points = np.array(FLAT[world], np.float32).astype(float) if world in FLAT else np.array(CURVED[world])
    if configured.name.startswith("hyperbolic"):
        return oracles.ball_outputs(points, configured.name, epsilon, t)
    if configured.name == "exponential":
        gaps = np.sqrt(np.square(points[:, None] - points[None, :6]).sum(axis=2))
        if world in CURVED:
            rims = 1 - np.square(points).sum(axis=1)
            gaps = np.arccosh(1 + 2 * gaps**2 / np.outer(rims, rims[:6]))
        return oracles.exponential_law(gaps, epsilon, getattr(configured, "truncate", None) or np.inf)
    if configured.name == "projection":
        matrix = gaussian_projection(0, 2, 3)
        scale = oracles.largest_stretch(points, matrix) / epsilon
        return oracles.plane_outputs(points @ matrix.T, scale, np.eye(2), t)
    root = oracles.mixture_root(points, getattr(configured, "lambda_", 0.0))
    return oracles.plane_outputs(points, 1 / epsilon, root, t)


def outputs_of(case, world):
    """Outputs (words, draws): a text of each word alone, through the sanitizer."""
    private, names = worlds.sanitizer(world, case.mechanism), world.words.to_pylist()
    texts = pa.array([f"{name} " * case.draws for name in names])
    released = private.sanitize(texts, pa.array(range(len(names))), column="text").values.to_pylist()
    rows = {name: row for row, name in enumerate(names)}
    return np.array([[rows[word] for word in text.split()] for text in released])


LAWS = {f"noise of {name}": each for name, each in NOISE.items()}
LAWS |= {f"outputs of {name}": each for name, each in OUTPUTS.items()}


@pytest.mark.parametrize(
    ("name", "mutant"), [(name, mutant) for name, each in LAWS.items() for mutant in (None, *each.mutants)]
)
def test_a_law_holds_and_its_mutants_fail(name, mutant, worlds_by_name, monkeypatch):
    case, world = LAWS[name], worlds_by_name(LAWS[name].world)
    wrong = case.mutants[mutant] if mutant else Wrong()
    for part in (*case.planted, wrong):
        part.plant(monkeypatch)
    with np.errstate(all="ignore") if mutant else nullcontext():
        if name.startswith("noise"):
            values = oracles.noise_p_values(noise_of(case.mechanism, world, wrong))
        else:
            law = probabilities(case.mechanism, case.world)
            np.testing.assert_allclose(law.sum(axis=1), 1.0, atol=1e-9)
            values = oracles.output_p_values(outputs_of(case, world), law)
    print(f"p-values of {name}:", {check: f"{value:.3g}" for check, value in values.items()})
    together = len(values) * min(values.values())  # Bonferroni
    assert together < MUTANT if mutant else together > REAL


def test_the_choice_at_the_ends():
    distances = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 3.0], [np.inf, np.inf]])
    ends = ((0.0, [1, 1, 1, 1, 1]), (0.5, [0.5, 1, 0.5, 0.75, 0.5]), (1.0, [0, 1, 0, 0, 0]))
    with np.errstate(all="raise"):
        for t, expected in ends:
            np.testing.assert_allclose(vickrey_probability(t, distances), expected)
