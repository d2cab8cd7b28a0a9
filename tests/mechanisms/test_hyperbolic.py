"""Noise in the Poincaré ball: points and guarantees against high precision, and at the extremes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Hyperbolic, HyperbolicIcdm, mechanism
from dptext_spark.mechanisms.hyperbolic import HyperbolicNoise
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among, near


@pytest.fixture(scope="module", params=[2, 50])
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


def test_guarantees_say_what_is_proven(ball: Embedding) -> None:
    plain = Hyperbolic(epsilon=2.5).guarantee(ball)
    paper = HyperbolicIcdm(epsilon=2.5).guarantee(ball)
    assert (plain.configured_epsilon, plain.epsilon) == (2.5, 2.5)
    assert (paper.configured_epsilon, paper.epsilon) == (2.5, 4.5)
    assert "epsilon + 2" in paper.describe() and plain.remarks == ()
    assert plain.metric == paper.metric == Hyperbolic(epsilon=2.5).metric(ball).description
    assert plain.euclidean_epsilon is None and plain.distances is not None
