"""Noise in the Poincaré ball: points and guarantees against high precision, and at the extremes."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Hyperbolic, HyperbolicIcdm, mechanism
from dptext_spark.mechanisms.hyperbolic import HyperbolicNoise
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among, near

SCRIPT = Path(__file__).parents[2] / "scripts" / "experiments" / "metropolis_hastings.py"


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
