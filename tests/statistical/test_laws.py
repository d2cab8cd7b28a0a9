"""The laws of mechanisms as one table: parameters, oracle, wrong implementations that must be rejected.

Noise is seen at production dimension, words on few words, both through the path that releases take. A wrong
implementation is the package with one part replaced: of each kind the one that is hardest to see. The key is
fixed: a run is deterministic, and over keys each case of the real mechanism would fail at the rate REAL. The
only asymptotics are those of the chi-square, Kolmogorov's and Pearson's laws at 20,000 draws.
"""

import pkgutil
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptext_spark.geometry.ball import translated, volume_radii
from dptext_spark.geometry.lebesgue import BallRadii
from dptext_spark.geometry.projection import gaussian_projection
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.mechanisms import mechanism
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

# What is wrong: a part of the package, ``module:name``, and another one in its place, by what it really is.


class Case(NamedTuple):
    """A mechanism on a world; what is planted first does not make it wrong."""

    mechanism: Any
    world: str
    mutants: dict[str, tuple]
    planted: tuple


def case(spec, world, *mutants, planted=(), epsilon):
    wrong = {key: each for table in mutants for key, each in table.items()}
    return Case(mechanism(spec, epsilon=epsilon), world, wrong, planted)


def some(table, *names):
    return {name: table[name] for name in names}


def normalised(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def ball_points(n):
    """A word at the origin and three farther and farther out."""
    return normalised(np.random.default_rng(n).standard_normal((4, n))) * [
        [0.0],
        [0.5],
        [0.99],
        [1 - 1e-6],
    ]


# The last two near to each other, far out, and not released.
EIGHT = np.array(
    [
        [0.3, 0.1],
        [-0.2, 0.4],
        [0.0, -0.5],
        [0.6, 0.5],
        [-0.7, -0.2],
        [0.1, 0.2],
        [0.5, -0.7],
        [0.6, -0.6],
    ]
)
PLANE = np.array([[1.2, 0.9], [-1.1, -0.7], [0.4, -0.3], [-0.2, 0.6], [1.9, 1.6], [-0.9, 0.1]])
FLAT = {
    "plane": PLANE,
    "space": np.column_stack([PLANE, [0.3, 0.8, -1.0, 0.1, -0.4, -0.7]]),
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


def shared(change):
    """Uniforms (ROWS, TOKENS, k), some of which serve twice."""
    return f"{__name__}:uniforms_of", lambda real: lambda *given: change(real(*given))


def _of_row(u):
    return np.concatenate([u[..., :1], np.repeat(u[:, :1, 1:], TOKENS, axis=1)], axis=-1)


UNIFORMS = {
    "length of the direction": shared(lambda u: np.concatenate([u[..., 1:2], u[..., 1:]], axis=-1)),
    "a row's tokens share a direction": shared(_of_row),
    "a seed for each partition": shared(lambda u: np.tile(u[: ROWS // 4], (4, 1, 1))),
}
MECHANISMS = "dptext_spark.mechanisms"


def lengths(module):
    """Wrong laws of the length, in place of Gamma quantiles of a shape n."""
    part = f"dptext_spark.{module}:gamma_quantile"
    return {
        "epsilon 5 % too large": (part, lambda real: lambda n, u: real(n, u) / 1.05),
        "Gamma shape n - 1": (part, lambda real: lambda n, u: real(n - 1, u)),
    }


COORDINATES = {
    "Laplace in each coordinate": (
        f"{MECHANISMS}.euclidean:uniform_directions",
        lambda real: lambda u: normalised(stats.laplace.ppf(u)),
    )
}
EIGENVALUES = f"{MECHANISMS}.euclidean:Laplace._eigenvalues"
MIXTURES = {
    "trace of Sigma 15 % too large": (
        EIGENVALUES,
        lambda real: lambda self, v: real(self, 1.15 * v),
    ),
    "trace of Sigma 15 % too small": (
        EIGENVALUES,
        lambda real: lambda self, v: real(self, 0.85 * v),
    ),
    "renormalised after the root": (
        f"{MECHANISMS}.euclidean:ExactProduct.times",
        lambda real: lambda self, directions: normalised(real(self, directions)),
    ),
}


def drawing(part, draw):
    """A method that draws otherwise, by what it really is, its object, words and uniforms."""
    return part, lambda real: lambda self, words, uniforms, *_: draw(real, self, words, uniforms)


STRETCH = f"{MECHANISMS}.projected:vocabulary_stretch"
DELTA = {"Delta 5 % too large": (STRETCH, lambda real: lambda *given: 1.05 * real(*given))}


def _clipped(real):
    """The paper's Euclidean sum of word and noise, clipped into the ball."""

    def translated(words, radii, ways):
        z = words + np.tanh(radii / 2)[:, None] * ways
        z *= np.minimum(1, (1 - 1e-5) / np.linalg.norm(z, axis=1))[:, None]
        squares = np.square(z).sum(axis=1, keepdims=True)
        return np.hstack([np.log((1 + squares) / (1 - squares)), 2 * z / (1 + squares)])

    return translated


def of_law(change):
    """Radii of another law."""
    return RADII, lambda real: lambda law, uniforms: real(change(law), uniforms)


RADII, MOVED = f"{MECHANISMS}.hyperbolic:VolumeLaw.radii", f"{MECHANISMS}.hyperbolic:translated"
DIMENSION, CLOSE, ORIGIN = (
    "one dimension too few",
    "epsilon 10 % too large",
    "not moved to the word",
)
BALL = {
    CLOSE: of_law(lambda law: replace(law, epsilon=1.1 * law.epsilon)),
    DIMENSION: of_law(lambda law: replace(law, dimension=law.dimension - 1)),
    "Klein radius": (RADII, lambda real: lambda law, u: 2 * real(law, u)),
    ORIGIN: (MOVED, lambda real: lambda words, *rest: real(0 * words, *rest)),
    "Euclidean sum, clipped": (MOVED, _clipped),
}


def by_volume(self, words, uniforms, epsilons=None):
    """Points of ``hyperbolic``, by Riemannian measure."""
    points = np.asarray(self.vectors[words])
    radii = volume_radii(uniforms[:, 0], dimension=points.shape[1], epsilon=self.law.epsilon)
    return translated(points, radii, uniform_directions(uniforms[:, 2:]))


def of_ball(change):
    """Balls whose radii have another law."""
    return f"{LEBESGUE}:LebesgueNoise.radii_law", lambda real: lambda *given: change(real, *given)


def in_balls(change):
    """Points that are placed otherwise in their balls, by points, radii, shares and directions."""
    return f"{LEBESGUE}:uniform_in_balls", lambda real: lambda *given: real(*change(*given))


def _fewer(_, noise, epsilon):
    n = noise.vectors.shape[1] - 1
    return BallRadii.of(dimension=n, epsilon=epsilon, least_rim=noise.least_rim)


LEBESGUE, HALF, VOLUME = f"{MECHANISMS}.lebesgue", "epsilon taken for twice itself", "by volume"
RANDOM_BALLS = {
    CLOSE: of_ball(lambda real, noise, epsilon: real(noise, 1.1 * epsilon)),
    HALF: of_ball(lambda real, noise, epsilon: real(noise, epsilon / 2)),
    DIMENSION: of_ball(_fewer),
    ORIGIN: in_balls(lambda points, *rest: (0 * points, *rest)),
    VOLUME: (f"{LEBESGUE}:LebesgueNoise.points", lambda _: by_volume),
    "on the ball's surface": in_balls(lambda p, r, shares, ways: (p, r, 0 * shares + MOST, ways)),
    "shares of a length": in_balls(lambda p, r, shares, ways: (p, r, shares ** p.shape[1], ways)),
}
LENGTHS, IMAGES = lengths("mechanisms.euclidean"), lengths("geometry.projection")
ONE_KEY = {
    "one key for all rows": (
        "dptext_spark.noise:ColumnNoise.row_key",
        lambda real: lambda self, row_id, content: real(self, b"", ()),
    )
}

NOISE = {
    "laplace": case("laplace", "small", LENGTHS, COORDINATES, UNIFORMS, epsilon=8.0),
    "laplace-300": case("laplace", "large", some(LENGTHS, "Gamma shape n - 1"), epsilon=8.0),
    "mahalanobis": case("mahalanobis:lambda=0.25", "small", MIXTURES, epsilon=8.0),
    "mahalanobis-1": case("mahalanobis:lambda=1", "small", epsilon=8.0),
    "projection": case("projection", "large", IMAGES, DELTA, epsilon=8.0),
    "vectors": Case(ProjectedVectors(epsilon=10.0), "large", IMAGES | ONE_KEY, ()),
    "vectors-paper": Case(ProjectedVectors(epsilon=10.0, sensitivity="paper"), "large", {}, ()),
    "hyperbolic-2": case("hyperbolic", "ball-2", BALL, epsilon=4.0),
    "hyperbolic-50": case("hyperbolic", "ball-50", some(BALL, DIMENSION, CLOSE), epsilon=100.0),
    "icdm-2": case("hyperbolic-icdm", "ball-2", some(BALL, ORIGIN), epsilon=4.0),
    "icdm-50": case("hyperbolic-icdm", "ball-50", epsilon=100.0),
    "icdm-50-little": case("hyperbolic-icdm", "ball-50", epsilon=0.2),
    "lebesgue-2": case("hyperbolic-lebesgue", "ball-2", RANDOM_BALLS, epsilon=4.0),
    "lebesgue-50": case(
        "hyperbolic-lebesgue", "ball-50", some(RANDOM_BALLS, DIMENSION, CLOSE), epsilon=100.0
    ),
    "lebesgue-50-little": case("hyperbolic-lebesgue", "ball-50", epsilon=0.2),
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
    rows = (
        np.random.default_rng(1)
        .normal(0, 10 / np.sqrt(300), (ROWS * TOKENS, 300))
        .astype(np.float32)
    )
    noise = ReleaseNoise.of(
        worlds.KEY, salt="", noise_parameters=used.noise_parameters(), fingerprint=""
    )
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 300).cast(
        pa.list_(pa.float32())
    )
    sanitizer = VectorSanitizer(mechanism=used, noise=noise)
    values = sanitizer.sanitize(lists, pa.array(range(len(rows))), column="v").values
    released = values.flatten().to_numpy().reshape(len(rows), -1)
    return released - rows.astype(np.float64) @ np.array(used.to_json()["matrix"]).T


def noise_of(configured, world):
    """Draw noise around four words in turn and look at it from them."""
    epsilon, vectors = configured.epsilon, world.vectors
    if isinstance(configured, ProjectedVectors):
        noise = released_noise(configured)
        largest = np.linalg.norm(gaussian_projection(0, noise.shape[1], 300), ord=2)
        scale = (1.9 if configured.sensitivity == "paper" else largest) / epsilon
        return oracles.seen_in_space(noise, ROWS, scale)
    width = configured.uniforms_per_token(world.dimension)
    uniforms = uniforms_of(worlds.release(configured, world), width).reshape(-1, width)
    words = np.arange(ROWS * TOKENS) % 4
    points = configured.bind(world, ExactSearch.over(world)).points(words, uniforms[:, :-1].copy())
    if configured.name == "hyperbolic-lebesgue":
        return oracles.seen_by_lebesgue(vectors[:4], words, points, ROWS, epsilon)
    if configured.name.startswith("hyperbolic"):
        return oracles.seen_in_ball(vectors[words], points, ROWS, configured.name, epsilon)
    if configured.name == "projection":
        matrix = gaussian_projection(0, 54, 300)
        noise = points - (vectors[:4].astype(np.float64) @ matrix.T)[words]
        return oracles.seen_in_space(
            noise, ROWS, oracles.largest_stretch(vectors, matrix) / epsilon
        )
    noise = points - vectors[words]
    if weight := getattr(configured, "lambda_", 0.0):
        # In A's axes, least variance first, and over its deviations it must be what laplace noise is.
        values, axes = np.linalg.eigh(oracles.mixture_root(vectors, weight))
        noise = (noise @ axes) / values
    return oracles.seen_in_space(noise, ROWS, 1 / epsilon)


CALL = f"{MECHANISMS}.noisy:NoisyNearest.__call__"
CHOICE = f"{MECHANISMS}.exponential:ExponentialChoice"


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


def _from_before(_, uniforms):
    """Every second token has the first uniform of the token before."""
    np.copyto(uniforms[1::2, 0], uniforms[: len(uniforms) // 2 * 2 : 2, 0])


CHOICES = {
    "redrawn where unchanged": drawing(CALL, _redrawn),
    "a length shared with the token before": of_uniforms(CALL, _from_before),
}
NEVER_ITSELF = {"drops the true word": drawing(CALL, _never_itself)}


def bound(**changes):
    """The exponential mechanism bound otherwise."""
    return (
        f"{MECHANISMS}.exponential:Exponential.bind",
        lambda real: lambda *g: replace(real(*g), **changes),
    )


def _listed_alone(real):
    """Candidate lists: of each word only what is listed."""

    def lists(self, words, radii):
        made = real(self, words, radii)
        whole = made.shares[made.starts + made.lengths - 1]
        return replace(made, shares=made.shares / np.repeat(whole, made.lengths))

    return lists


def _later(words, uniforms):
    """No first round accepts what a part of word 6's tokens are offered."""
    uniforms[np.flatnonzero(words == 6)[::6], :-SEED_UNIFORMS] = MOST


SHORT, DRAW = bound(listed=10.0), f"{CHOICE}.__call__"
LATER, NO_MORE = of_uniforms(DRAW, _later), (f"{MECHANISMS}.exponential:_MORE", lambda real: 0)
ACCEPTS = {
    "accepts all": (
        f"{CHOICE}.round",
        lambda real: (
            lambda *given: real(*given[:-1], np.where([False, False, True], 1e-300, given[-1]))
        ),
    )
}
CANDIDATES = {"candidate lists": (f"{CHOICE}.lists", _listed_alone)}
LARGE = {"epsilon 5 % too large": bound(epsilon=1.05 * 1.5)}
T, WHOLE, TRUNCATED, ROUND = (
    "select=vickrey,t=0.3",
    "exponential",
    "exponential:truncate",
    "ball of eight",
)

OUTPUTS = {
    "laplace": case(
        "laplace", "plane", some(LENGTHS, "epsilon 5 % too large"), CHOICES, epsilon=2.0
    ),
    "laplace-vickrey": case(f"laplace:{T}", "plane", NEVER_ITSELF, epsilon=2.0),
    "mahalanobis-vickrey": case(f"mahalanobis:lambda=0.7,{T}", "plane", epsilon=2.0),
    "projection-vickrey": case(f"projection:dimension=2,{T}", "space", DELTA, epsilon=2.5),
    "hyperbolic": case("hyperbolic", "disc", some(BALL, CLOSE, ORIGIN), epsilon=1.7),
    "icdm-vickrey": case(f"hyperbolic-icdm:{T}", "disc", epsilon=1.2),
    "lebesgue": case(
        "hyperbolic-lebesgue", "disc", some(RANDOM_BALLS, CLOSE, HALF, ORIGIN, VOLUME), epsilon=1.7
    ),
    "lebesgue-vickrey": case(f"hyperbolic-lebesgue:{T}", "disc", epsilon=0.6),
    "truncated": case(f"{TRUNCATED}=1.2", "eight", LARGE, epsilon=1.5),
    "all far": case(f"{TRUNCATED}=0.5", "eight", epsilon=1.5),
    "short lists": case(WHOLE, "eight", CANDIDATES, ACCEPTS, planted=(SHORT,), epsilon=1.5),
    "short lists, truncated": case(
        f"{TRUNCATED}=2.6", "eight", ACCEPTS, planted=(SHORT,), epsilon=1.5
    ),
    "later rounds": case(WHOLE, "eight", planted=(SHORT, LATER), epsilon=1.5),
    "in the ball": case(f"{TRUNCATED}=1.2", ROUND, epsilon=1.5),
    "short lists in the ball": case(
        f"{TRUNCATED}=3.2", ROUND, ACCEPTS, planted=(SHORT,), epsilon=1.5
    ),
    "no rounds in the ball": case(WHOLE, ROUND, planted=(SHORT, LATER, NO_MORE), epsilon=1.5),
}


@cache
def probabilities(configured, world):
    """The law (words, released) of a mechanism's outputs."""
    t, epsilon = getattr(configured, "t", None), configured.epsilon
    points = (
        np.array(FLAT[world], np.float32).astype(float)
        if world in FLAT
        else np.array(CURVED[world])
    )
    if configured.name == "hyperbolic-lebesgue":
        return oracles.lebesgue_outputs(points, epsilon, t)
    if configured.name.startswith("hyperbolic"):
        return oracles.ball_outputs(points, configured.name, epsilon, t)
    if configured.name == "exponential":
        gaps = np.sqrt(np.square(points[:, None] - points[None, :6]).sum(axis=2))
        if world in CURVED:
            rims = 1 - np.square(points).sum(axis=1)
            gaps = np.arccosh(1 + 2 * gaps**2 / np.outer(rims, rims[:6]))
        return oracles.exponential_law(gaps, epsilon, configured.truncate or np.inf)
    if configured.name == "projection":
        matrix = gaussian_projection(0, 2, 3)
        scale = oracles.largest_stretch(points, matrix) / epsilon
        return oracles.plane_outputs(points @ matrix.T, scale, np.eye(2), t)
    root = oracles.mixture_root(points, getattr(configured, "lambda_", 0.0))
    return oracles.plane_outputs(points, 1 / epsilon, root, t)


def outputs_of(configured, world):
    """Outputs (words, draws): a text of each word alone, through the sanitizer."""
    # A truncation hides much of a wrong epsilon.
    draws = 45_000 if getattr(configured, "truncate", None) else 20_000
    private, names = worlds.sanitizer(world, configured), world.words.to_pylist()
    texts = pa.array([f"{name} " * draws for name in names])
    released = private.sanitize(
        texts, pa.array(range(len(names))), column="text"
    ).values.to_pylist()
    rows = {name: row for row, name in enumerate(names)}
    return np.array([[rows[word] for word in text.split()] for text in released])


LAWS = {f"noise of {name}": each for name, each in NOISE.items()}
LAWS |= {f"outputs of {name}": each for name, each in OUTPUTS.items()}


@pytest.mark.parametrize(
    ("name", "mutant"),
    [(name, mutant) for name, each in LAWS.items() for mutant in (None, *each.mutants)],
)
def test_a_law_holds_and_its_mutants_fail(name, mutant, worlds_by_name, monkeypatch):
    case, world = LAWS[name], worlds_by_name(LAWS[name].world)
    for part, change in (*case.planted, *([case.mutants[mutant]] if mutant else [])):
        monkeypatch.setattr(part.replace(":", "."), change(pkgutil.resolve_name(part)))
    with np.errstate(all="ignore") if mutant else nullcontext():
        if name.startswith("noise"):
            values = oracles.noise_p_values(*noise_of(case.mechanism, world))
        else:
            law = probabilities(case.mechanism, case.world)
            np.testing.assert_allclose(law.sum(axis=1), 1.0, atol=1e-9)
            values = oracles.output_p_values(outputs_of(case.mechanism, world), law)
    print(f"p-values of {name}:", {check: f"{value:.3g}" for check, value in values.items()})
    together = len(values) * min(values.values())  # Bonferroni
    assert together < MUTANT if mutant else together > REAL


def test_the_choice_at_the_ends():
    distances = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 3.0], [np.inf, np.inf]])
    ends = ((0.0, [1, 1, 1, 1, 1]), (0.5, [0.5, 1, 0.5, 0.75, 0.5]), (1.0, [0, 1, 0, 0, 0]))
    with np.errstate(all="raise"):
        for t, expected in ends:
            np.testing.assert_allclose(vickrey_probability(t, distances), expected)
