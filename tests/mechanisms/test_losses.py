"""What outputs of mechanisms lose, computed over all of them in tiny worlds, against the law of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from dptext_spark.accounting.laws import BoundedRange, LebesgueLaw, LossLaw, VolumeLaw
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.mechanisms import MECHANISMS, mechanism
from dptext_spark.mechanisms.mechanism import KnownLaw
from tests.helpers import worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import delta

SIDE = 17
# Two words one above the other, a few steps apart, in the middle.
PAIR = np.array([SIDE * (SIDE // 2 + 2) + SIDE // 2]), np.array([SIDE * (SIDE // 2 - 2) + SIDE // 2])
T = "select=vickrey,t=0.4"
CASES = {
    "laplace": 1.5,
    f"laplace:{T}": 1.5,
    f"mahalanobis:lambda=0.9,{T}": 1.0,
    "vectors:dimension=2": 1.5,
    "projection:dimension=2": 1.5,
    f"projection:dimension=2,sensitivity=paper,beta=0.1,{T}": 1.5,
    f"hyperbolic:{T}": 3.0,
    "hyperbolic-icdm": 1.5,
    "exponential": 3.0,
    "exponential:truncate=3": 3.0,
}
"""Mechanisms and their epsilons."""
ERROR = 0.004  # by how much enumeration may err, in probability


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Embedding]:
    """Words on a grid in a plane, half as high as it is wide, and in a disc: whether Euclidean."""
    places = np.stack(np.meshgrid(*[np.arange(SIDE) - SIDE // 2] * 2), axis=-1).reshape(-1, 2).astype(float)
    plane, disc = places * [0.4, 0.2] + [1e-3, 2e-3], places * 0.04
    return {
        True: worlds.build(tmp_path_factory.mktemp("plane"), plane),
        False: worlds.build(tmp_path_factory.mktemp("disc"), disc, geometry="poincare"),
    }


def uniforms(width: int) -> np.ndarray:
    """All noise of the plane, by 2^16 places: lengths by midpoints, directions in turn, coins by theirs."""
    midpoints = (np.arange(2**8) + 0.5) / 2**8
    normals = special.ndtr(np.stack([np.cos(2 * np.pi * midpoints), np.sin(2 * np.pi * midpoints)], axis=1))
    places = [np.repeat(midpoints, 2**8)[:, None], np.tile(normals, (2**8, 1))]
    coins = np.modf(np.arange(2**16) * (np.sqrt(5.0) - 1.0) / 2.0)[0]
    return np.concatenate([*places, coins[:, None]], axis=1)[:, :width].copy()


def too_small(law: LossLaw, distance: float, straight: float, t: float) -> Iterator[tuple[str, float]]:
    """Deltas by wrong ways to compute them."""
    if isinstance(law, BoundedRange):  # of all such laws the worst, which these words do not reach
        yield "half of the range", delta(replace(law, epsilon=law.epsilon / 2.0).atoms(distance), t)
        return
    losses, masses = law.atoms(distance)
    step = law.bound(distance) / 3.0
    yield "rounded down", delta((np.floor(losses / step) * step, masses), t)
    if isinstance(law, LebesgueLaw):
        yield "as the paper has it", delta(VolumeLaw(dimension=2, epsilon=law.epsilon).atoms(distance), t)
    else:
        yield "another dimension", delta(replace(law, dimension=3).atoms(distance), t)  # type: ignore[call-arg]
    if straight < 0.99 * distance:
        yield "without A", delta(law.atoms(straight), t)


def test_every_mechanism_is_looked_at() -> None:
    assert {spec.partition(":")[0] for spec in CASES} == MECHANISMS.keys()


@pytest.mark.parametrize("spec", CASES)
def test_outputs_lose_no_more_than_the_law_says(spec: str, squares: dict[bool, Embedding]) -> None:
    """The nearest word and Vickrey's choice; fewer released words where these shape the law.

    Rejects losses rounded down, the cosine of another dimension, distances without A, half the range, and
    an epsilon that counts Lebesgue measure.
    """
    configured = mechanism(spec, epsilon=CASES[spec])
    world = squares[EuclideanSpace in configured.spaces]
    distance, straight = (
        float(metric.between(*PAIR)[0]) for metric in (configured.metric(world), world.space.metric())
    )
    law, told = configured.claim(world).law, dict[str, bool]()
    some = [world.releasable // 2 + SIDE] if configured.release_words_shape_law else []
    for released in (world.releasable, *some):
        bound = configured.bind(world, among(released))
        if isinstance(bound, KnownLaw):
            one, other = (bound.probabilities(word)[0] for word in PAIR)
        else:
            noise = uniforms(configured.uniforms_per_token(2))
            drawn = [bound(np.repeat(word, len(noise)), noise.copy()) for word in PAIR]
            one, other = (np.bincount(words, minlength=released) / len(noise) for words in drawn)
        for t in np.array([0.0, 0.2, 0.4, 0.6, 0.8]) * law.bound(distance):
            lost = float(np.maximum(one - np.exp(t) * other, 0.0).sum())
            assert lost <= delta(law.atoms(distance), t) + ERROR
            for wrong, value in too_small(law, distance, straight, t):
                told[wrong] = told.get(wrong, False) or lost > value + ERROR
    assert all(told.values()), told
    assert ("without A" in told) == (configured.name == "mahalanobis")
