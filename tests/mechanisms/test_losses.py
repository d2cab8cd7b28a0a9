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
from dptext_spark.mechanisms import MECHANISMS, Mechanism, mechanism
from dptext_spark.mechanisms.mechanism import KnownLaw
from tests.helpers import bundles, worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import delta

SIDE = 17
STEP = {"plane": 0.4, "disc": 0.06}
# Two words one above the other, a few steps apart, in the middle.
ONE, OTHER = (SIDE * (SIDE // 2 + 2) + SIDE // 2, SIDE * (SIDE // 2 - 2) + SIDE // 2)
T = "select=vickrey,t=0.4"
CASES = [
    *(("laplace", 1.5), (f"laplace:{T}", 1.5), (f"mahalanobis:lambda=0.9,{T}", 1.0)),
    *(("projection:dimension=2", 1.5), (f"projection:dimension=2,sensitivity=paper,beta=0.1,{T}", 1.5)),
    *(("vectors:dimension=2", 1.5), (f"hyperbolic:{T}", 3.0), ("hyperbolic-icdm", 1.5)),
    *(("exponential", 3.0), ("exponential:truncate=3", 3.0)),
]
# By how much enumeration may err, in probability.
ERROR = 0.004


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Embedding]:
    """Words on a grid in a plane, half as high as it is wide, and in a disc."""
    places = np.stack(np.meshgrid(*[np.arange(SIDE) - SIDE // 2] * 2), axis=-1).reshape(-1, 2).astype(float)
    plane = places * STEP["plane"] * [1.0, 0.5] + [1e-3, 2e-3]
    return {
        "plane": worlds.build(tmp_path_factory.mktemp("plane"), plane),
        "disc": bundles.poincare_bundle(tmp_path_factory.mktemp("disc"), places * STEP["disc"] / 1.5),
    }


def uniforms(width: int) -> np.ndarray:
    """All noise of the plane, by 2^16 places: lengths by midpoints, directions in turn, coins by theirs."""
    lengths = (np.arange(2**8) + 0.5) / 2**8
    angles = 2.0 * np.pi * (np.arange(2**8) + 0.5) / 2**8
    normals = special.ndtr(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    places = [np.repeat(lengths, len(normals))[:, None], np.tile(normals, (len(lengths), 1))]
    coins = np.modf(np.arange(2**16) * (np.sqrt(5.0) - 1.0) / 2.0)[0]
    return np.concatenate([*places, coins[:, None]], axis=1)[:, :width].copy()


def output_laws(configured: Mechanism, world: Embedding, released: int) -> np.ndarray:
    """Probabilities (2, released) of the outputs of two words."""
    bound = configured.bind(world, among(released))
    if isinstance(bound, KnownLaw):
        return bound.probabilities(np.array([ONE, OTHER]))
    noise = uniforms(configured.uniforms_per_token(2))
    drawn = [bound(np.full(len(noise), word), noise.copy()) for word in (ONE, OTHER)]
    return np.stack([np.bincount(d, minlength=released) / len(noise) for d in drawn])


def too_small(law: LossLaw, distance: float, straight: float, t: float) -> Iterator[tuple[str, float]]:
    """Deltas by wrong ways to compute them."""
    if isinstance(law, BoundedRange):  # of all such laws the worst, which these words do not reach
        yield "half of the range", delta(replace(law, epsilon=law.epsilon / 2.0).atoms(distance), t)
        return
    losses, masses = law.atoms(distance)
    step = law.bound(distance) / 3.0
    down = np.floor(losses / step) * step
    yield "rounded down", delta((down, masses), t)
    if isinstance(law, LebesgueLaw):
        yield "as the paper has it", delta(VolumeLaw(dimension=2, epsilon=law.epsilon).atoms(distance), t)
    else:
        yield "another dimension", delta(replace(law, dimension=3).atoms(distance), t)  # type: ignore[call-arg]
    if straight < 0.99 * distance:
        yield "without A", delta(law.atoms(straight), t)


def test_every_mechanism_is_looked_at() -> None:
    assert {spec.partition(":")[0] for spec, _ in CASES} == MECHANISMS.keys()


@pytest.mark.parametrize(("spec", "epsilon"), CASES)
def test_outputs_lose_no_more_than_the_law_says(
    spec: str, epsilon: float, squares: dict[str, Embedding]
) -> None:
    """The nearest word and Vickrey's choice; fewer released words where these shape the law.

    Rejects losses rounded down, the cosine of another dimension, distances without A, half the range, and
    an epsilon that counts Lebesgue measure.
    """
    configured = mechanism(spec, epsilon=epsilon)
    world = squares["plane" if EuclideanSpace in configured.spaces else "disc"]
    pair = np.array([ONE]), np.array([OTHER])
    distance = float(configured.metric(world).between(*pair)[0])
    straight = float(world.space.metric().between(*pair)[0])
    law, told = configured.claim(world).law, dict[str, bool]()
    some = [world.releasable // 2 + SIDE] if configured.release_words_shape_law else []
    for released in (world.releasable, *some):
        one, other = output_laws(configured, world, released)
        for t in np.array([0.0, 0.2, 0.4, 0.6, 0.8]) * law.bound(distance):
            lost = float(np.maximum(one - np.exp(t) * other, 0.0).sum())
            assert lost <= delta(law.atoms(distance), t) + ERROR
            for wrong, value in too_small(law, distance, straight, t):
                told[wrong] = told.get(wrong, False) or lost > value + ERROR
    assert all(told.values()), told
    assert ("without A" in told) == (configured.name == "mahalanobis")
