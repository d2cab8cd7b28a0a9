"""The laws of mechanisms as one table: parameters, world, wrong implementations that must be rejected.

Noisy points, at production dimension, and the words chosen near them are functions of uniforms: they are
compared with the same functions, written down anew. ``exponential`` draws in any number of rounds: its
outputs are counted, through the path that releases take. A wrong implementation is the package with one part
replaced: of each kind the one that is hardest to see. The key is fixed, so a run is deterministic; over keys
a case of the real ``exponential`` would fail at the rate REAL.
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

from dptext_spark.geometry.projection import gaussian_projection
from dptext_spark.mechanisms import mechanism
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.noise import SEED_UNIFORMS
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.statistical import oracles

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one case of the real mechanism, over keys
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right
DRAWS = 2000
MOST = 1 - 2.0**-53
PACKAGE = "dptext_spark.mechanisms"

# What is wrong: a part of the package, ``module:name``, and another one in its place, by what it really is.


class Case(NamedTuple):
    """A mechanism on a world; what is planted first does not make it wrong."""

    mechanism: Any
    world: str
    mutants: dict[str, tuple]
    planted: tuple = ()


def case(spec, world, *mutants, planted=(), epsilon):
    wrong = {key: each for table in mutants for key, each in table.items()}
    return Case(mechanism(spec, epsilon=epsilon), world, wrong, planted)


def some(table, *names):
    return {name: table[name] for name in names}


def normalised(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def ball_points(n):
    """A word at the origin and three farther and farther out."""
    return normalised(np.random.default_rng(n).standard_normal((4, n))) * [[0.0], [0.5], [0.99], [1 - 1e-6]]


# The last two near to each other, far out, and not released.
EIGHT = np.array(
    [[0.3, 0.1], [-0.2, 0.4], [0.0, -0.5], [0.6, 0.5], [-0.7, -0.2], [0.1, 0.2], [0.5, -0.7], [0.6, -0.6]]
)
FLAT = {"eight": 1.8 * EIGHT, "small": worlds.uneven(300, 50), "large": worlds.uneven(700, 300)}
CURVED = {
    "ball-50": ball_points(50),
    "disc": [[0.05, 0.1], [0.45, -0.2], [-0.3, 0.35], [-0.35, 0.55], *ball_points(2)[1:]],
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


def lengths(module):
    """Wrong laws of the length, in place of Gamma quantiles of a shape n."""
    part = f"dptext_spark.{module}:gamma_quantile"
    return {
        "epsilon 5 % too large": (part, lambda real: lambda n, u: real(n, u) / 1.05),
        "Gamma shape n - 1": (part, lambda real: lambda n, u: real(n - 1, u)),
    }


EIGENVALUES = f"{PACKAGE}.euclidean:Laplace._eigenvalues"
MIXTURES = {
    "trace of Sigma too large": (EIGENVALUES, lambda real: lambda self, v: real(self, 1.05 * v)),
    "renormalised after the root": (
        f"{PACKAGE}.euclidean:ExactProduct.times",
        lambda real: lambda self, directions: normalised(real(self, directions)),
    ),
}
DELTA = {
    "Delta 1 % too large": (
        f"{PACKAGE}.projected:vocabulary_stretch",
        lambda real: lambda *given: 1.01 * real(*given),
    )
}


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


RADII, MOVED = f"{PACKAGE}.hyperbolic:VolumeLaw.radii", f"{PACKAGE}.hyperbolic:translated"
BALL = {
    "epsilon too large": of_law(lambda law: replace(law, epsilon=1.05 * law.epsilon)),
    "one dimension too few": of_law(lambda law: replace(law, dimension=law.dimension - 1)),
    "Klein radius": (RADII, lambda real: lambda law, u: 2 * real(law, u)),
    "not moved to the word": (MOVED, lambda real: lambda words, *rest: real(0 * words, *rest)),
    "Euclidean sum, clipped": (MOVED, _clipped),
}


def drawing(part, draw):
    """A method that draws otherwise, by what it really is, its object, words and uniforms."""
    return part, lambda real: lambda self, words, uniforms, *_: draw(real, self, words, uniforms)


def _redrawn(real, self, words, uniforms):
    """Draws again, once, where the word did not change: what comes out then hangs on the input itself."""
    again = uniforms[::-1].copy()
    first = real(self, words, uniforms)
    return np.where(first == words, real(self, words, again), first)


def _never_itself(real, self, words, uniforms):
    """Leaves the true word out of the choice between two."""
    two = self.search.nearest_two(self.points(words, uniforms[:, :-1]))[0]
    return np.where(two[:, 0] == words, two[:, 1], two[:, 0])


CALL = f"{PACKAGE}.noisy:NoisyNearest.__call__"
REDRAWN = {"redrawn where unchanged": drawing(CALL, _redrawn)}
NEVER_ITSELF = {"drops the true word": drawing(CALL, _never_itself)}
COORDINATES = {
    "Laplace in each coordinate": (
        f"{PACKAGE}.euclidean:uniform_directions",
        lambda real: lambda u: normalised(stats.laplace.ppf(u)),
    )
}
LENGTHS, IMAGES = lengths("mechanisms.euclidean"), lengths("geometry.projection")
T = "select=vickrey,t=0.3"

NOISE = {
    "laplace": case("laplace", "small", LENGTHS, COORDINATES, REDRAWN, epsilon=8.0),
    "laplace-300": case("laplace", "large", some(LENGTHS, "Gamma shape n - 1"), epsilon=10.0),
    "mahalanobis": case(f"mahalanobis:lambda=0.25,{T}", "small", MIXTURES, NEVER_ITSELF, epsilon=8.0),
    "projection": case(f"projection:{T}", "large", IMAGES, DELTA, epsilon=20.0),
    "vectors": Case(ProjectedVectors(epsilon=10.0), "large", IMAGES),
    "hyperbolic-2": case("hyperbolic", "disc", BALL, epsilon=1.7),
    "hyperbolic-50": case("hyperbolic", "ball-50", some(BALL, *[*BALL][:2]), epsilon=100.0),
    "icdm": case(f"hyperbolic-icdm:{T}", "disc", some(BALL, "not moved to the word"), epsilon=1.2),
}


def space_of(configured, world):
    """Of Euclidean noise: words without noise, the scale of its length, and what directions are turned by."""
    vectors, epsilon = world.vectors[:].astype(np.float64), configured.epsilon
    if configured.name != "projection":
        return vectors, 1 / epsilon, oracles.mixture_root(vectors, getattr(configured, "lambda_", 0.0))
    matrix = gaussian_projection(0, 54, 300)
    return vectors @ matrix.T, oracles.largest_stretch(world.vectors, matrix) / epsilon, np.eye(54)


def right_share(configured, world):
    """How many points, and how many words, are those of the formulas."""
    rng = np.random.default_rng(1)
    if isinstance(configured, ProjectedVectors):
        used, rows = configured.of_length(300), rng.normal(0, 1, (DRAWS, 300))
        matrix, uniforms = gaussian_projection(0, 54, 300), rng.random((DRAWS, 55))
        scale = np.linalg.norm(matrix, ord=2) / configured.epsilon
        noise = stats.gamma(54, scale=scale).ppf(uniforms[:, :1]) * oracles.directions(uniforms[:, 1:])
        gaps = used(rows, uniforms) - rows @ matrix.T - noise
        return (np.abs(gaps).max(axis=1) <= 0.5001 * used.grid).mean(), 1.0
    bound, words = configured.bind(world, ExactSearch.over(world)), np.arange(DRAWS) % len(world.words)
    uniforms = rng.random((DRAWS, configured.uniforms_per_token(world.dimension)))
    points = bound.points(words, uniforms[:, :-1].copy())
    ways = oracles.directions(uniforms[:, 1:-1])
    if configured.name.startswith("hyperbolic"):
        far, seen = oracles.seen_from(world.vectors[words], points)
        law = oracles.ball_radii(configured.name, world.dimension, configured.epsilon)
        quantiles = np.interp(np.log(far), *law)
        right = (np.abs(quantiles - uniforms[:, 0]) < 1e-3) & (np.abs(seen - ways).max(axis=1) < 1e-3)
        distances = [oracles.seen_from(word[None], points)[0] for word in world.vectors]
    else:
        centres, scale, root = space_of(configured, world)
        noise = stats.gamma(centres.shape[1], scale=scale).ppf(uniforms[:, :1]) * (ways @ root)
        right = np.linalg.norm(points - centres[words] - noise, axis=1) < 1e-5 * scale
        distances = [np.linalg.norm(points - centre, axis=1) for centre in centres]
    expected = oracles.chosen(np.array(distances).T, configured.t, uniforms[:, -1])
    return right.mean(), (bound(words, uniforms.copy()) == expected).mean()


def planted(monkeypatch, *parts):
    for part, change in parts:
        monkeypatch.setattr(part.replace(":", "."), change(pkgutil.resolve_name(part)))


def runs(table):
    """Each case of a table as it is and with each of its mutants."""
    names = [(name, mutant) for name, each in table.items() for mutant in (None, *each.mutants)]
    return pytest.mark.parametrize(("name", "mutant"), names)


@runs(NOISE)
def test_noise_and_words_are_those_of_the_formulas(name, mutant, worlds_by_name, monkeypatch):
    case = NOISE[name]
    planted(monkeypatch, *([case.mutants[mutant]] if mutant else []))
    with np.errstate(all="ignore") if mutant else nullcontext():
        points, words = right_share(case.mechanism, worlds_by_name(case.world))
    print(f"{name}, {mutant}: {points:.4f} of the points, {words:.4f} of the words")
    assert min(points, words) < 0.9 if mutant else min(points, words) > 0.998  # borders are rounded


def bound(**changes):
    """The exponential mechanism bound otherwise."""
    return f"{PACKAGE}.exponential:Exponential.bind", lambda real: lambda *g: replace(real(*g), **changes)


def _listed_alone(real):
    """Candidate lists: of each word only what is listed."""

    def lists(self, words, radii):
        made = real(self, words, radii)
        whole = made.shares[made.starts + made.lengths - 1]
        return replace(made, shares=made.shares / np.repeat(whole, made.lengths))

    return lists


def _later(real, self, words, uniforms):
    """No first round accepts what a part of word 6's tokens are offered."""
    uniforms[np.flatnonzero(words == 6)[::6], :-SEED_UNIFORMS] = MOST
    return real(self, words, uniforms)


CHOICE = f"{PACKAGE}.exponential:ExponentialChoice"
SHORT, LATER = bound(listed=10.0), drawing(f"{CHOICE}.__call__", _later)
NO_MORE = f"{PACKAGE}.exponential:_MORE", lambda real: 0
ACCEPTS = {
    "accepts all": (
        f"{CHOICE}.round",
        lambda real: lambda *given: real(*given[:-1], np.where([False, False, True], 1e-300, given[-1])),
    )
}
CANDIDATES = {"candidate lists": (f"{CHOICE}.lists", _listed_alone)}
LARGE = {"epsilon 5 % too large": bound(epsilon=1.05 * 1.5)}
WHOLE, TRUNCATED = "exponential", "exponential:truncate"

OUTPUTS = {
    "all listed": case(f"{TRUNCATED}=1.2", "eight", LARGE, epsilon=1.5),
    "short lists": case(f"{TRUNCATED}=1.6", "eight", CANDIDATES, ACCEPTS, planted=(SHORT,), epsilon=1.5),
    "later rounds": case(WHOLE, "eight", planted=(SHORT, LATER), epsilon=1.5),
    "no rounds": case(WHOLE, "ball of eight", planted=(SHORT, LATER, NO_MORE), epsilon=1.5),
}


@runs(OUTPUTS)
def test_the_exponential_mechanism_draws_by_its_law(name, mutant, worlds_by_name, monkeypatch):
    case, world = OUTPUTS[name], worlds_by_name(OUTPUTS[name].world)
    planted(monkeypatch, *case.planted, *([case.mutants[mutant]] if mutant else []))
    points, truncate = world.vectors[:].astype(np.float64), case.mechanism.truncate
    gaps = np.sqrt(np.square(points[:, None] - points[None, :6]).sum(axis=2))
    if case.world in CURVED:
        rims = 1 - np.square(points).sum(axis=1)
        gaps = np.arccosh(1 + 2 * gaps**2 / np.outer(rims, rims[:6]))
    law = np.exp(-case.mechanism.epsilon * np.minimum(gaps, truncate or np.inf) / 2)
    # A text of each word alone; a truncation hides much of a wrong epsilon.
    private, names = worlds.sanitizer(world, case.mechanism), world.words.to_pylist()
    texts = pa.array([f"{name} " * (45_000 if truncate else 20_000) for name in names])
    released = private.sanitize(texts, pa.array(range(len(names))), column="text").values.to_pylist()
    counts = np.array([[text.split().count(name) for name in names[:6]] for text in released])
    expected = law / law.sum(axis=1, keepdims=True) * counts.sum(axis=1, keepdims=True)
    assert expected.min() > 20
    statistic = float((np.square(counts - expected) / expected).sum())
    value = stats.chi2.sf(statistic, df=len(names) * 5)
    print(f"{name}, {mutant}: {value:.3g}")
    assert value < MUTANT if mutant else value > REAL


def test_the_choice_at_the_ends():
    distances = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 3.0], [np.inf, np.inf]])
    ends = ((0.0, [1, 1, 1, 1, 1]), (0.5, [0.5, 1, 0.5, 0.75, 0.5]), (1.0, [0, 1, 0, 0, 0]))
    with np.errstate(all="raise"):
        for t, expected in ends:
            np.testing.assert_allclose(vickrey_probability(t, distances), expected)
