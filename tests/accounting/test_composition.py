"""What words lose together, against other people's figures, samples and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptext_spark.accounting.composition import loss_beyond, on_grid
from dptext_spark.accounting.laws import BoundedRange, SphericalLaplace
from tests.statistical.oracles import delta as delta_of


@pytest.mark.parametrize(
    ("n", "s", "words", "delta", "t"),
    [
        (50, 28.8, 1, 1e-6, 21.1),
        (50, 14.4, 1, 1e-6, 9.5),
        (300, 30.0, 1, 1e-6, 9.0),
        (300, 30.0, 1, 1e-9, 11.0),
        (300, 67.5, 1, 1e-6, 24.3),
        (300, 30.0, 10, 1e-6, 40.0),
        (50, 14.4, 10, 1e-6, 48.0),
    ],
)
def test_known_figures(n: int, s: float, words: int, delta: float, t: float) -> None:
    found = loss_beyond(SphericalLaplace(dimension=n, epsilon=1.0), s, words=words, delta=delta)
    assert found == pytest.approx(t, rel=0.01)


def test_atoms_on_a_grid_never_lose_less() -> None:
    """Rejects rounding down and to the nearest."""
    rng = np.random.default_rng(1)
    losses, masses = rng.uniform(-3, 3, 200), rng.dirichlet(np.ones(200))
    first, on = on_grid((losses, masses), 0.25)
    grid = (first + np.arange(len(on))) * 0.25
    assert on.sum() == pytest.approx(1.0, abs=1e-12) and on.min() >= 0.0
    assert (on * np.exp(-grid)).sum() == pytest.approx((masses * np.exp(-losses)).sum(), rel=1e-12)

    down, near = np.floor(losses / 0.25) * 0.25, np.round(losses / 0.25) * 0.25
    told = set()
    for t in np.linspace(-3, 3, 97):
        exact = delta_of((losses, masses), t)
        assert exact - 1e-12 <= delta_of((grid, on), t)
        told |= {
            name
            for name, wrong in (("down", down), ("near", near))
            if delta_of((wrong, masses), t) < exact - 1e-9
        }
    assert told == {"down", "near"}


@pytest.mark.parametrize("words", [1, 3, 10])
def test_noise_on_a_line(words: int) -> None:
    """Its loss has atoms at both ends; by 400,000 draws: false alarms below 10^-6.

    Rejects a bound below the loss, and one a tenth too large.
    """
    s, delta, law = 1.5, 0.02, SphericalLaplace(dimension=1, epsilon=1.5)
    rng = np.random.default_rng(2)
    noise = rng.laplace(size=(200_000, words))
    losses = (np.abs(noise - s) - np.abs(noise)).sum(axis=1)
    most = loss_beyond(law, 1.0, words=words, delta=delta)

    def sampled(at: float) -> tuple[float, float]:
        gains = -np.expm1(np.minimum(at - losses, 0.0))
        return float(gains.mean()), 5.0 * float(gains.std()) / math.sqrt(len(gains))

    mean, error = sampled(most)
    assert mean - error <= delta
    mean, error = sampled(0.9 * most)
    assert mean - error > delta


def test_two_words_of_an_exponential_mechanism() -> None:
    """All pairs of outputs, enumerated."""
    law = BoundedRange(epsilon=2.0)
    points = np.array([0.0, 0.4, 1.1, 2.0])
    weights = np.exp(-np.abs(points[:, None] - points[None]))
    rows = weights / weights.sum(axis=1, keepdims=True)
    for one, other in itertools.permutations(range(4), 2):
        distance = abs(points[one] - points[other])
        for delta in (0.2, 0.02):
            t = loss_beyond(law, distance, words=2, delta=delta)
            joint = np.outer(rows[one], rows[one]), np.outer(rows[other], rows[other])
            assert np.maximum(joint[0] - math.exp(t) * joint[1], 0.0).sum() <= delta * (1 + 1e-9)


@pytest.mark.parametrize("words", [1, 3, 100])
def test_no_loss_is_above_the_pure_one(words: int) -> None:
    law = BoundedRange(epsilon=2.0)
    assert loss_beyond(law, 1.0, words=words, delta=1e-300) == pytest.approx(2.0 * words, rel=1e-3)
    assert loss_beyond(law, 0.0, words=words, delta=1e-6) == 0.0
    assert 0.0 <= loss_beyond(law, 1e-9, words=words, delta=1e-6) <= 2e-9 * words
