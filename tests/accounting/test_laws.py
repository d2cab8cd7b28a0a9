"""Losses of one word against laws that were computed in other ways; bounds must lie above, and near."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dptext_spark.accounting.laws import (
    BoundedRange,
    LebesgueLaw,
    LossLaw,
    SphericalLaplace,
    VolumeLaw,
)
from dptext_spark.geometry.ball import translated
from dptext_spark.geometry.sphere import uniform_directions
from tests.statistical.oracles import delta

ALL = [
    SphericalLaplace(dimension=1, epsilon=2.0),
    SphericalLaplace(dimension=2, epsilon=2.0),
    SphericalLaplace(dimension=50, epsilon=14.4),
    SphericalLaplace(dimension=300, epsilon=30.0),
    VolumeLaw(dimension=2, epsilon=1.5),
    VolumeLaw(dimension=10, epsilon=12.0),
    LebesgueLaw(dimension=2, epsilon=1.0),
    LebesgueLaw(dimension=10, epsilon=5.0),
    BoundedRange(epsilon=3.0),
    BoundedRange(epsilon=3.0, truncation=0.5),
]


@pytest.mark.parametrize("law", ALL, ids=repr)
@pytest.mark.parametrize("distance", [1e-9, 0.1, 1.0, 5.0])
def test_atoms_are_a_law_of_losses(law: LossLaw, distance: float) -> None:
    losses, masses = law.atoms(distance)
    bound = law.bound(distance)
    assert masses.min() >= 0.0 and masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(losses).max() <= bound * (1 + 1e-9)
    assert losses.max() == pytest.approx(bound, rel=1e-9)  # an output of the pure bound always exists
    # The mean of exp(-loss) is the mass of the other word's law that this one's outputs have.
    assert (masses * np.exp(-losses)).sum() <= 1.0 + 1e-9


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
@pytest.mark.parametrize("kind", [SphericalLaplace, LebesgueLaw, BoundedRange])
def test_extreme_epsilons_warn_of_nothing(kind: Any, epsilon: float) -> None:
    """Rejects numpy's overflow warnings on a user's terminal."""
    losses, masses = kind(epsilon=epsilon, **({} if kind is BoundedRange else {"dimension": 5})).atoms(1.0)
    assert np.isfinite(losses).all() and masses.sum() == pytest.approx(1.0, abs=1e-12)


FARTHER = np.geomspace(0.05, 8.0, 8)


@pytest.mark.parametrize("law", ALL, ids=repr)
def test_farther_words_lose_more(law: LossLaw) -> None:
    """What lets one distance stand for all that are less, by what is computed; t below 0 as well."""
    atoms = [law.coarse().atoms(distance) for distance in FARTHER]
    for scale in FARTHER[1::4]:
        for t in np.linspace(-0.9, 0.9, 5) * law.bound(scale):
            assert np.diff([delta(each, t) for each in atoms]).min() >= -1e-12


def radial_deltas(density: Callable[[np.ndarray], np.ndarray], dimension: int, curved: bool) -> np.ndarray:
    """Deltas (distances, ts) of noise of a density by volume, in flat or hyperbolic space, by midpoints."""
    radii, angles = ((np.arange(k) + 0.5) / k for k in (600, 120))
    r, c = 15.0 * radii[:, None], np.cos(np.pi * angles)[None]
    volume = (np.sinh(r) if curved else r) ** (dimension - 1) * (1.0 - c * c) ** ((dimension - 2) / 2.0)
    own, found = density(r), []
    for s in np.linspace(0.1, 6.0, 30):
        away = np.sqrt(np.maximum(r * r + s * s - 2.0 * r * s * c, 0.0))
        if curved:
            away = np.arccosh(np.maximum(np.cosh(r) * np.cosh(s) - np.sinh(r) * np.sinh(s) * c, 1.0))
        gains = [own - np.exp(t) * density(away) for t in (-1.0, -0.2, 0.0, 0.5, 2.0)]
        found.append([(np.maximum(gain, 0.0) * volume).sum() for gain in gains])
    return np.array(found) / (own * volume).sum()


@pytest.mark.parametrize(
    ("density", "dimension", "curved"),
    [
        pytest.param(lambda r: np.exp(-1.5 * r), 3, False, id="laplace"),
        pytest.param(lambda r: np.exp(-4.0 * r), 3, True, id="hyperbolic"),
        pytest.param(lambda r: np.exp(-r) / np.cosh(r / 2.0) ** 4, 2, True, id="hyperbolic-icdm"),
        pytest.param(lambda r: 1.0 / (1.0 + r * r) ** 3, 2, False, id="other decreasing"),
    ],
)
def test_deltas_grow_with_the_distance_where_densities_fall(
    density: Callable[[np.ndarray], np.ndarray], dimension: int, curved: bool
) -> None:
    """The lemma of docs/mathematics.md; noise on a ring, whose density rises again, breaks it."""
    found = radial_deltas(density, dimension, curved)
    assert np.diff(found, axis=0).min() >= -1e-5 and found.max() > 0.9
    ring = radial_deltas(lambda r: np.exp(-(((r - 2.0) / 0.1) ** 2)), 2, curved)
    assert np.diff(ring, axis=0).min() < -0.005


# Spherical noise by quadrature


def exact_delta(n: int, s: float, t: float) -> float:
    """E[(1 - exp(t - L))+] over the noise's length and, inside, its cosine."""

    def given_length(g: float) -> float:
        last = min((s * s - t * t - 2.0 * t * g) / (2.0 * g * s), 1.0)
        if last <= -1.0:
            return 0.0

        def gain(c: float) -> float:
            loss = math.sqrt(g * g + s * s - 2.0 * g * s * c) - g
            return -math.expm1(t - loss) * stats.beta.pdf((1.0 + c) / 2.0, half, half) / 2.0

        half = (n - 1) / 2.0
        return float(integrate.quad(gain, -1.0, last, limit=200)[0]) * stats.gamma.pdf(g, n)

    ends = stats.gamma.ppf([1e-15, 1 - 1e-13], n)
    return float(integrate.quad(given_length, *ends, points=[n - math.sqrt(n), n], limit=400)[0])


CASES = [(3, 2.0, 1.0), (50, 14.4, 5.0), (50, 14.4, 9.5), (300, 30.0, 9.0), (300, 30.0, 3.0)]


@pytest.mark.parametrize(("n", "s", "t"), CASES)
def test_spherical_noise(n: int, s: float, t: float) -> None:
    """Rejects another dimension's cosine and too short a distance."""
    exact, law = exact_delta(n, s, t), SphericalLaplace(dimension=n, epsilon=s)
    assert exact <= delta(law.atoms(1.0), t) <= 1.06 * exact
    for wrong in (replace(law, dimension=n + 2).atoms(1.0), law.atoms(0.97)):
        assert delta(wrong, t) < exact


# Noise in the ball by sampling


def sampled_losses(law: VolumeLaw | LebesgueLaw, distance: float, count: int) -> np.ndarray:
    """Losses of noise as the mechanisms draw it, the other word's distance by Lorentz coordinates."""
    rng = np.random.default_rng(7)
    radii = law.radii(rng.random(count))
    noisy = translated(
        np.zeros((1, law.dimension)), radii, uniform_directions(rng.random((count, law.dimension)))
    )
    product = np.exp(noisy[:, 0]) * (math.cosh(distance) - math.sinh(distance) * noisy[:, 1])
    away = np.arccosh(np.maximum(product, 1.0))
    # The density by volume, written down anew.
    power = 0.0 if isinstance(law, VolumeLaw) else 2.0 * law.dimension
    return law.epsilon * (away - radii) + power * np.log(np.cosh(away / 2.0) / np.cosh(radii / 2.0))


@pytest.mark.parametrize(
    ("law", "distance"),
    [
        (VolumeLaw(dimension=2, epsilon=3.0), 1.0),
        (VolumeLaw(dimension=10, epsilon=20.0), 0.5),
        (LebesgueLaw(dimension=2, epsilon=1.0), 1.0),
        (LebesgueLaw(dimension=10, epsilon=10.0), 0.5),
    ],
)
def test_noise_in_the_ball(law: VolumeLaw | LebesgueLaw, distance: float) -> None:
    """Within five standard errors of 200,000 draws, false alarms below 10^-6.

    Rejects the loss of a dimension less, and the other law's.
    """
    losses, atoms = sampled_losses(law, distance, 200_000), law.atoms(distance)
    wrong = [replace(law, dimension=law.dimension - 1 or 1).atoms(distance)]
    kind = LebesgueLaw if isinstance(law, VolumeLaw) else VolumeLaw
    wrong.append(kind(dimension=law.dimension, epsilon=law.epsilon + 0.01 * law.dimension).atoms(distance))
    told = [False] * len(wrong)
    for t in np.array([0.0, 0.3, 0.6]) * law.bound(distance):
        gains = -np.expm1(np.minimum(t - losses, 0.0))
        error = 5.0 * gains.std() / math.sqrt(len(gains)) + 1e-6
        assert gains.mean() - error <= delta(atoms, t) <= 1.02 * gains.mean() + error
        told = [
            was or abs(delta(other, t) - gains.mean()) > error + 0.02 * gains.mean()
            for was, other in zip(told, wrong, strict=True)
        ]
    assert all(told)


# Exponential mechanisms by enumeration


def test_the_worst_laws_of_a_bounded_range() -> None:
    """The largest delta over all such laws, in closed form; rejects half the range."""
    most = 3.0
    for t in np.linspace(-2.9, 2.9, 23):
        exact = (math.exp(most / 2) - math.exp(t / 2)) ** 2 / math.expm1(most)
        assert exact - 1e-12 <= delta(BoundedRange(epsilon=most).atoms(1.0), t) <= exact + 1e-5
    assert delta(BoundedRange(epsilon=most / 2).atoms(1.0), 0.0) < 0.9 * delta(
        BoundedRange(epsilon=most).atoms(1.0), 0.0
    )
