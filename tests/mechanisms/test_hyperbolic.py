"""Noise in the Poincaré ball: radii, points and guarantees against high precision, and at the extremes."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from decimal import Decimal, localcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import LARGEST_BALL_RADIUS
from dptext_spark.errors import ConfigError
from dptext_spark.geometry.ball import SHARPEST_EPSILON, LebesgueRadii, translated, volume_radii
from dptext_spark.mechanisms import Hyperbolic, HyperbolicIcdm, mechanism
from dptext_spark.mechanisms.hyperbolic import HyperbolicNoise
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among

EDGES = np.array([2.0**-53, 1e-12, 1e-3, 0.25, 0.5, 0.75, 0.999, 1 - 1e-12, 1 - 2.0**-53])
SCRIPT = Path(__file__).parents[2] / "scripts" / "experiments" / "metropolis_hastings.py"


def near(n: int) -> list[float]:
    """Epsilons that exist by ever less."""
    return [n - 1 + gap for gap in (0.05, 1e-3, 1e-6, 1e-9)] + [math.nextafter(n - 1, math.inf)][: n - 1]


# Radii of density by volume


def log_above(radius: float, n: int, epsilon: float) -> Decimal:
    """ln P[R > radius]: for whole n, P[U < x] = x^a sum_(j<n) (a)_j / j! (1 - x)^j."""
    a = (Decimal(epsilon) - n + 1) / 2
    log_u = -2 * Decimal(float(radius))
    rest, term, total = 1 - log_u.exp(), Decimal(1), Decimal(0)
    for j in range(n):
        total += term
        term *= (a + j) / (j + 1) * rest
    return a * log_u + total.ln()


@pytest.mark.parametrize("n", [1, 2, 5, 50, 300])
def test_volume_radii_invert_their_law(n: int) -> None:
    """To 10^-12 of the radius, in 80 digits, from the smallest uniform to the largest."""
    for epsilon in [*near(n), n - 0.5, 2.0 * n, 1e6]:
        radii = volume_radii(EDGES, dimension=n, epsilon=epsilon)
        assert (np.diff(radii) > 0).all()
        with localcontext() as context:
            context.prec = 80
            for radius, u in zip(radii.tolist(), EDGES.tolist(), strict=True):
                wanted = (1 - Decimal(u)).ln()
                low, high = (log_above(radius * (1 + side * 1e-12), n, epsilon) for side in (-1, 1))
                assert low > wanted > high, (epsilon, u)


def test_small_radii_keep_their_digits() -> None:
    """Near the word P[R < r] = (2 r)^n / (n B(a, n)) (1 + O(epsilon r))."""
    n, epsilon = 3, 100.0
    radius = volume_radii(np.array([2.0**-53]), dimension=n, epsilon=epsilon)[0]
    a = (epsilon - n + 1) / 2
    leading = (n * special.beta(a, n) * 2.0**-53) ** (1 / n) / 2
    assert radius == pytest.approx(leading, rel=epsilon * radius)
    assert radius < 1e-6


# Radii of the paper's density


@pytest.mark.parametrize("n", [1, 2, 5, 50, 300])
@pytest.mark.parametrize("epsilon", [1e-12, 0.1, 1.0, 10.0, 1000.0])
def test_lebesgue_radii_invert_their_law(n: int, epsilon: float) -> None:
    """Against adaptive quadrature of rho^(n-1) ((1 - rho) / (1 + rho))^epsilon, from both ends."""

    def density(x: float) -> float:
        r = math.exp(x)  # rho = tanh(r / 2), (1 - rho) / (1 + rho) = exp(-r), drho = (1 - rho^2) / 2 r dx
        log = x + (n - 1) * math.log(math.tanh(r / 2)) - 2 * math.log(math.cosh(r / 2)) - epsilon * r
        return math.exp(log - law.log_mass)

    def mass(start: float, end: float) -> float:
        cuts = np.linspace(start, end, 60)
        parts = [integrate.quad(density, *ends, epsrel=1e-13, epsabs=0)[0] for ends in pairwise(cuts)]
        return sum(parts)

    law = LebesgueRadii.of(dimension=n, epsilon=epsilon)
    first, last = law.edges[[0, -1]]
    total = mass(first, last)
    for u, r in zip(EDGES.tolist(), law(EDGES).tolist(), strict=True):
        part = mass(first, math.log(r)) / total if u <= 0.5 else mass(math.log(r), last) / total
        assert part == pytest.approx(min(u, 1 - u), rel=1e-10, abs=0)


@pytest.mark.parametrize("n", [1, 2, 50, 1000])
@pytest.mark.parametrize("epsilon", [1e-12, 1.0, 1e6, 1e15, 1e300])
def test_lebesgue_radii_are_finite_everywhere(n: int, epsilon: float) -> None:
    with np.errstate(all="raise"):
        radii = LebesgueRadii.of(dimension=n, epsilon=epsilon)(EDGES)
    assert np.isfinite(radii).all()
    assert (np.diff(radii) > 0).all() and radii[0] > 0


def test_beyond_the_sharpest_epsilon_noise_stays() -> None:
    for n in (2, 50):
        sharpest, sharper = (
            volume_radii(EDGES, dimension=n, epsilon=epsilon) for epsilon in (SHARPEST_EPSILON, 1e300)
        )
        assert (sharpest == sharper).all() and (sharpest > 0).all()


# Translation


def exactly(point: np.ndarray, radius: float, direction: np.ndarray) -> tuple[Decimal, list[Decimal]]:
    """ln q0 and w of the boosted point, in Decimal, with the direction at length 1."""
    p, u = ([Decimal(x) for x in vector.tolist()] for vector in (point, direction))
    size = sum(x * x for x in u).sqrt()  # type: ignore[union-attr]
    u = [x / size for x in u]
    rim = 1 - sum(x * x for x in p)
    r = Decimal(radius)
    cosh, sinh = (r.exp() + (-r).exp()) / 2, (r.exp() - (-r).exp()) / 2
    m0, m = (2 - rim) / rim, [2 * x / rim for x in p]
    along = sinh * sum(a * b for a, b in zip(m, u, strict=True))
    q0 = cosh * m0 + along
    q = [sinh * b + (cosh + along / (1 + m0)) * a for a, b in zip(m, u, strict=True)]
    return q0.ln(), [x / q0 for x in q]


def placed(n: int, norm: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A word at a norm, and directions in which formulas could cancel."""
    rng = np.random.default_rng(n)
    way, other = rng.standard_normal((2, n))
    way /= np.linalg.norm(way)
    directions = {"out": way, "back": -way, "nearly back": -way + 1e-4 * other, "aside": other}
    return norm * way, {name: u / np.linalg.norm(u) for name, u in directions.items()}


@pytest.mark.parametrize("norm", [0.0, 1e-9, 0.5, 0.99, 1 - 1e-6, 1 - 1e-9])
@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.1, 1.0, 5.0, 14.5, 30.0, 300.0, 700.0])
def test_translation_is_exact_to_the_digits_that_float64_has(norm: float, radius: float) -> None:
    """A direction's rounding of 10^-16 moves a point by 10^-16 / (1 - |p|) at most."""
    for n in (1, 2, 20):
        point, directions = placed(n, norm)
        for name, direction in directions.items():
            with np.errstate(all="raise"):
                found = translated(point[None], np.array([radius]), direction[None].copy())[0]
            with localcontext() as context:
                context.prec = 700
                log_q0, w = exactly(point, radius, direction)
            tolerance = 1e-15 / (1 - norm) if "back" in name else 1e-15
            assert abs(found[0] - float(log_q0)) <= tolerance + 1e-15 * float(log_q0), (n, name)
            assert np.abs(found[1:] - np.array(w, dtype=float)).max() <= tolerance, (n, name)


def strays(point: np.ndarray, radius: float, direction: np.ndarray) -> float:
    """How far, in hyperbolic distance, noise ends up from where it should."""
    found = translated(point[None], np.array([radius]), direction[None].copy())[0].tolist()
    with localcontext() as context:
        context.prec = 100
        log_q0, w = exactly(point, radius, direction)
        q0, r0 = log_q0.exp(), Decimal(found[0]).exp()
        # As the search does: q0 tells how far the point is, w in which direction.
        size = sum((Decimal(x) ** 2 for x in found[1:]), Decimal(0)).sqrt() / (1 - 1 / r0**2).sqrt()
        cosh = q0 * r0 * (1 - sum(Decimal(x) / size * y for x, y in zip(found[1:], w, strict=True)))
        return float((2 * max(cosh - 1, Decimal(0))).sqrt())


@pytest.mark.parametrize("radius", [0.1, 1.0, 5.0, 14.0])
def test_noise_has_thirty_bits_at_every_point_that_a_bundle_takes(radius: float) -> None:
    """Of its length where it is short, of its direction where it is long."""

    def worst(norm: float) -> float:
        words = [placed(n, norm) for n in (2, 5, 50)]
        return max(strays(point, radius, u) for point, directions in words for u in directions.values())

    allowed = 2**-30 * max(1, math.sinh(radius))
    assert worst(math.tanh(LARGEST_BALL_RADIUS / 2)) <= allowed
    # At points farther out, which bundles refuse, there are fewer.
    assert worst(1 - 1e-8) > allowed


@pytest.mark.parametrize("radius", [1e3, 1e9, 1e17])
def test_translation_reaches_the_edge_of_the_ball(radius: float) -> None:
    point, directions = placed(3, 1 - 1e-6)
    with np.errstate(all="raise"):
        moved = [translated(point[None], np.array([radius]), u[None].copy())[0] for u in directions.values()]
    for found in moved:
        assert found[0] == pytest.approx(radius, abs=20 + 1e-15 * radius)
        assert np.linalg.norm(found[1:]) == pytest.approx(1.0, abs=1e-9)


def test_a_radius_of_zero_stays_at_the_word() -> None:
    points = np.random.default_rng(5).uniform(-0.5, 0.5, (50, 3))
    directions = np.eye(3)[np.arange(50) % 3]
    moved = translated(points, np.zeros(50), directions)
    squares = np.square(points).sum(axis=1)
    np.testing.assert_allclose(moved[:, 0], np.log((1 + squares) / (1 - squares)), atol=1e-14)
    np.testing.assert_allclose(moved[:, 1:], 2 * points / (1 + squares)[:, None], atol=1e-14)


# The mechanisms


@pytest.fixture(scope="module", params=[2, 5, 50])
def edge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """Words from the origin to the edge."""
    n = int(request.param)
    directions = np.random.default_rng(n).standard_normal((6, n))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = directions * np.array([0.0, 0.3, 0.8, 0.99, 1 - 1e-5, 1 - 1e-6])[:, None]
    return worlds.build(tmp_path_factory.mktemp("edge"), points, geometry="poincare")


def bound_to(embedding: Embedding, name: str, epsilon: float) -> HyperbolicNoise:
    bound = mechanism(name, epsilon=epsilon).bind(embedding, ExactSearch.over(embedding))
    assert isinstance(bound, HyperbolicNoise)
    return bound


def uniforms_for(embedding: Embedding, rows: int = 300) -> np.ndarray:
    uniforms = np.random.default_rng(7).integers(0, 2**52, (rows, embedding.dimension + 2)).astype(float)
    uniforms = (uniforms + 0.5) * 2.0**-52
    uniforms[0], uniforms[1] = 2.0**-53, 1 - 2.0**-53
    uniforms[2:20, 0], uniforms[20:40, 0] = 2.0**-53, 1 - 2.0**-53
    return uniforms


@pytest.mark.parametrize("name", ["hyperbolic", "hyperbolic-icdm"])
def test_words_come_out_at_every_epsilon(edge: Embedding, name: str) -> None:
    """No NaN, overflow or underflow, from noise that reaches infinity to noise that does not show."""
    words = np.arange(300) % 6
    for epsilon in [*near(edge.dimension), 2.0 * edge.dimension, 1e6, 1e300]:
        bound = bound_to(edge, name, epsilon)
        with np.errstate(all="raise"):
            points = bound.points(words, uniforms_for(edge)[:, :-1])
            outputs = bound(words, uniforms_for(edge))
        assert np.isfinite(points).all() and (points[:, 0] >= 0).all()
        assert ((outputs >= 0) & (outputs < 6)).all()
        if epsilon >= 1e6:
            assert (outputs == words).all()


@pytest.mark.parametrize("name", ["hyperbolic", "hyperbolic-icdm"])
def test_points_do_not_depend_on_the_batch(edge: Embedding, name: str) -> None:
    for epsilon in (edge.dimension - 0.9, 2.0 * edge.dimension):
        bound, words = bound_to(edge, name, epsilon), np.arange(300) % 6
        whole = bound.points(words, uniforms_for(edge)[:, :-1])
        for size in (1, 7, 64):
            parts = [slice(start, start + size) for start in range(0, 300, size)]
            cut = [bound.points(words[part], uniforms_for(edge)[part, :-1]) for part in parts]
            np.testing.assert_array_equal(np.concatenate(cut), whole)


@pytest.mark.parametrize(
    ("epsilon", "dimensions"), [(1.0, 1), (0.5, 1), (1e-3, 1), (3.2, 4), (4.0, 4), (48.999, 49)]
)
def test_a_small_epsilon_is_refused_with_the_dimension_that_would_do(
    tmp_path: Path, epsilon: float, dimensions: int
) -> None:
    too_many = worlds.build(tmp_path, np.eye(dimensions + 1) / 2, geometry="poincare")
    message = (
        f"Got: epsilon {epsilon!r}. .*at most {dimensions} dimensions, or hyperbolic-icdm, which takes any"
    )
    for refused in (Hyperbolic.bind, lambda m, e, _: m.metric(e), lambda m, e, _: m.prepare(e)):
        with pytest.raises(ConfigError, match=message.replace("+", r"\+")):
            refused(Hyperbolic(epsilon=epsilon), too_many, 2)
    HyperbolicIcdm(epsilon=epsilon).bind(too_many, among(2))
    (tmp_path / "fits").mkdir()
    fits = worlds.build(
        tmp_path / "fits", np.vstack([np.eye(dimensions), -np.eye(dimensions)]) / 2, geometry="poincare"
    )
    Hyperbolic(epsilon=epsilon).bind(fits, among(2))


def test_euclidean_bundles_are_refused(plane: Embedding) -> None:
    for name in ("hyperbolic", "hyperbolic-icdm"):
        with pytest.raises(ConfigError, match="geometry poincare"):
            mechanism(name, epsilon=8.0).bind(plane, among(2))


def test_guarantees_say_what_is_proven(ball: Embedding) -> None:
    plain = Hyperbolic(epsilon=2.5).guarantee(ball)
    paper = HyperbolicIcdm(epsilon=2.5).guarantee(ball)
    assert (plain.configured_epsilon, plain.epsilon) == (2.5, 2.5)
    assert (paper.configured_epsilon, paper.epsilon) == (2.5, 4.5)
    assert "epsilon + 2" in paper.describe() and plain.remarks == ()
    assert plain.metric == paper.metric == Hyperbolic(epsilon=2.5).metric(ball).description
    assert plain.euclidean_epsilon is None and plain.distances is not None


def test_the_law_names_the_mechanism_and_epsilon_only() -> None:
    chosen = mechanism("hyperbolic", epsilon=3.0, select="vickrey", t=0.3)
    assert (
        dict(chosen.law(2)) == dict(Hyperbolic(epsilon=3.0).law(2)) == {"law": "hyperbolic", "epsilon": 3.0}
    )
    assert HyperbolicIcdm(epsilon=3.0).law(2)["law"] == "hyperbolic-icdm"


def test_only_released_words_come_out(ball: Embedding) -> None:
    private = Privatizer(embedding=ball, mechanism=Hyperbolic(epsilon=1.1), search=among(3))
    outputs = private._perturb(np.arange(20).repeat(50), np.random.default_rng(8).random((1000, 4)))
    assert set(outputs.tolist()) == {0, 1, 2}


# The bound, from densities written down in complex numbers


def grid() -> np.ndarray:
    """Points of the disc, up to its edge."""
    radii = np.concatenate([np.linspace(0.02, 0.98, 25), 1 - np.geomspace(1e-3, 1e-9, 7)])
    return (radii[:, None] * np.exp(2j * np.pi * np.arange(72) / 72)).ravel()


def distance(z: np.ndarray, point: complex) -> np.ndarray:
    return 2 * np.arctanh(np.abs((z - point) / (1 - np.conj(point) * z)))


def log_paper(z: np.ndarray, point: complex, epsilon: float) -> np.ndarray:
    """ln of the Lebesgue density of the paper's noise moved to a point, by the change of variables."""
    rho = np.abs((z - point) / (1 - np.conj(point) * z))
    stretch = (1 - np.abs(point) ** 2) / np.abs(1 - np.conj(point) * z) ** 2
    return epsilon * np.log((1 - rho) / (1 + rho)) + 2 * np.log(stretch)


WORDS = [0j, 0.3 + 0.1j, -0.6j, 0.8 + 0.1j, -0.9 + 0.3j, 0.3 + 0.11j]


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_log_densities_differ_by_no_more_than_is_proven(epsilon: float) -> None:
    """And the paper's noise does not keep to the paper's own bound."""
    z, excess = grid(), []
    for one in WORDS:
        for other in WORDS:
            apart = float(distance(np.array([one]), other)[0])
            plain = epsilon * np.abs(distance(z, one) - distance(z, other)).max()
            paper = np.abs(log_paper(z, one, epsilon) - log_paper(z, other, epsilon)).max()
            assert plain <= epsilon * apart * (1 + 1e-6) + 1e-9
            assert paper <= (epsilon + 2) * apart * (1 + 1e-6) + 1e-9
            excess += [paper / apart - epsilon] if apart else []
    assert max(excess) > 1.9  # of the 2 that the correction allows


def test_a_claim_of_epsilon_alone_is_seen_to_fail_in_the_words_that_come_out() -> None:
    """Probabilities of a half-plane far out, by quadrature: their ratio exceeds exp(epsilon d)."""
    epsilon, words = 1.0, (0.0, 0.6)
    z, weight = cells(2000, 400)
    far = distance(z, 0.95 + 0j) < distance(z, 0.6 + 0j)
    log_ratio = np.diff(
        [np.log((np.exp(log_paper(z, word, epsilon)) * weight)[far].sum()) for word in words]
    )[0]
    apart = 2 * math.atanh(0.6)
    assert epsilon * apart * 1.3 < log_ratio < (epsilon + 2) * apart


def cells(radial: int, angular: int) -> tuple[np.ndarray, np.ndarray]:
    """Midpoints and areas of a polar grid of the disc, finer towards the edge."""
    edges = np.tanh(np.linspace(0, 16, radial + 1) / 2)
    radii, areas = (edges[1:] + edges[:-1]) / 2, np.diff(edges**2) * np.pi / angular
    angles = np.exp(2j * np.pi * (np.arange(angular) + 0.5) / angular)
    return (radii[:, None] * angles).ravel(), np.repeat(areas, angular)


# The experiment beside the package


def test_the_papers_sampler_does_not_sample_its_target() -> None:
    command = [sys.executable, SCRIPT, "--chains", "1000", "--steps", "200"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    values = {
        name: [float(re.findall(r"p (\S+)", line)[0]) for line in lines if name in line]
        for name in ("the target", "the hyperboloid's space", "own stationary law")
    }
    assert [len(v) for v in values.values()] == [8, 8, 4]
    assert max(values["the target"]) < 1e-6
    assert min(values["own stationary law"]) > 1e-4
    assert min(values["the hyperboloid's space"][1:4:2]) > 1e-4
