"""What words lose together, against other people's figures, samples and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptext_spark.accounting.composition import loss_beyond, on_grid, under_grid
from dptext_spark.accounting.laws import BoundedRange, SphericalLaplace


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


@pytest.mark.parametrize("shift", [0.0, 0.25, -0.4])
def test_atoms_on_and_under_a_grid(shift: float) -> None:
    """They never lose less, or more; reject rounding the other way and to the nearest.

    What is under a grid is nearer to the truth than what is rounded down.
    """
    rng, step = np.random.default_rng(1), 0.25
    losses, masses = rng.uniform(-3, 3, 200) + shift, rng.dirichlet(np.ones(200))

    def delta(values: np.ndarray, weights: np.ndarray, t: float) -> float:
        return float((weights * -np.expm1(np.minimum(t - values, 0.0))).sum())

    down, near, up = (step * cut(losses / step) for cut in (np.floor, np.round, np.ceil))
    ts = np.linspace(-3, 3, 97)
    exact = np.array([delta(losses, masses, t) for t in ts])
    for gridded, side in ((on_grid, 1), (under_grid, -1)):
        first, on = gridded((losses, masses), step)
        grid = (first + np.arange(len(on))) * step
        assert on.sum() == pytest.approx(1.0, abs=1e-12) and on.min() >= 0.0
        excess = side * (np.array([delta(grid, on, t) for t in ts]) - exact)
        assert excess.min() >= -1e-12
        for wrong in (near, down if side > 0 else up):
            assert (side * (np.array([delta(wrong, masses, t) for t in ts]) - exact)).min() < -1e-9
        if side > 0:
            assert (on * np.exp(-grid)).sum() == pytest.approx((masses * np.exp(-losses)).sum(), rel=1e-12)
        else:
            assert excess.sum() < 0.5 * (exact - [delta(down, masses, t) for t in ts]).sum()


@pytest.mark.parametrize("words", [1, 3, 10])
def test_a_loss_lies_between_its_bounds(words: int) -> None:
    """Of noise on a line, whose loss has atoms at both ends, by 400,000 draws: false alarms below 10^-6.

    Rejects an upper bound in place of the lower one, and either a tenth off.
    """
    s, delta, law = 1.5, 0.02, SphericalLaplace(dimension=1, epsilon=1.5)
    rng = np.random.default_rng(2)
    noise = rng.laplace(size=(200_000, words))
    losses = (np.abs(noise - s) - np.abs(noise)).sum(axis=1)
    least, most = (loss_beyond(law, 1.0, words=words, delta=delta, least=low) for low in (True, False))
    assert least < most <= least * 1.02

    def sampled(at: float) -> tuple[float, float]:
        gains = -np.expm1(np.minimum(at - losses, 0.0))
        return float(gains.mean()), 5.0 * float(gains.std()) / math.sqrt(len(gains))

    mean, error = sampled(least)
    assert mean + error >= delta
    mean, error = sampled(most)
    assert mean - error <= delta
    assert sampled(1.1 * most)[0] + error < delta < sampled(0.9 * least)[0] - error


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
