"""Losses of one word and of several, against laws computed in other ways; bounds must lie above, and near."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from dptext_spark.accounting.laws import (
    BoundedRange,
    LebesgueLaw,
    SphericalLaplace,
    VolumeLaw,
    loss_beyond,
    on_grid,
)
from dptext_spark.geometry.ball import translated
from dptext_spark.geometry.sphere import uniform_directions
from tests.statistical.oracles import delta

ALL = [
    *(
        SphericalLaplace(dimension=n, epsilon=e)
        for n, e in ((1, 2.0), (2, 2.0), (50, 14.4), (300, 30.0))
    ),
    *(VolumeLaw(dimension=n, epsilon=e) for n, e in ((2, 1.5), (10, 12.0))),
    *(LebesgueLaw(dimension=n, epsilon=e) for n, e in ((2, 1.0), (10, 5.0))),
    *(BoundedRange(epsilon=3.0, truncation=most) for most in (None, 0.5)),
]
FARTHER = np.geomspace(0.05, 8.0, 8)


@pytest.mark.parametrize("law", ALL, ids=repr)
def test_atoms_are_a_law_of_losses_and_farther_words_lose_more(law):
    """What lets one distance stand for all that are less, by what is computed; t below 0 as well."""
    for distance in (1e-9, 0.1, 1.0, 5.0):
        losses, masses = law.atoms(distance)
        bound = law.bound(distance)
        assert masses.min() >= 0.0 and masses.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.abs(losses).max() <= bound * (1 + 1e-9)
        assert losses.max() == pytest.approx(
            bound, rel=1e-9
        )  # an output of the pure bound always exists
        # The mean of exp(-loss) is the mass of the other word's law that this one's outputs have.
        assert (masses * np.exp(-losses)).sum() <= 1.0 + 1e-9
    atoms = [law.atoms(distance, coarse=True) for distance in FARTHER]
    for scale in FARTHER[1::4]:
        for t in np.linspace(-0.9, 0.9, 5) * law.bound(scale):
            assert np.diff([delta(each, t) for each in atoms]).min() >= -1e-12


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
@pytest.mark.parametrize("kind", [SphericalLaplace, LebesgueLaw, BoundedRange])
def test_extreme_epsilons_warn_of_nothing(kind, epsilon):
    """Rejects numpy's overflow warnings on a user's terminal."""
    losses, masses = kind(
        epsilon=epsilon, **({} if kind is BoundedRange else {"dimension": 5})
    ).atoms(1.0)
    assert np.isfinite(losses).all() and masses.sum() == pytest.approx(1.0, abs=1e-12)


def exact_delta(n, s, t):
    """E[(1 - exp(t - L))+] over the noise's length and, inside, its cosine, by quadrature."""
    half = (n - 1) / 2.0

    def given_length(g):
        last = min((s * s - t * t - 2.0 * t * g) / (2.0 * g * s), 1.0)

        def gain(c):
            loss = math.sqrt(g * g + s * s - 2.0 * g * s * c) - g
            return -math.expm1(t - loss) * stats.beta.pdf((1.0 + c) / 2.0, half, half) / 2.0

        within = integrate.quad(gain, -1.0, last, limit=200)[0] if last > -1.0 else 0.0
        return float(within) * stats.gamma.pdf(g, n)

    ends = stats.gamma.ppf([1e-15, 1 - 1e-13], n)
    return float(integrate.quad(given_length, *ends, points=[n - math.sqrt(n), n], limit=400)[0])


@pytest.mark.parametrize(("n", "s", "t"), [(3, 2.0, 1.0), (50, 14.4, 9.5)])
def test_spherical_noise(n, s, t):
    """Rejects another dimension's cosine, and losses at the wrong end of a cell."""
    exact = exact_delta(n, s, t)
    assert exact <= delta(SphericalLaplace(dimension=n, epsilon=s).atoms(1.0), t) <= 1.06 * exact


def sampled_losses(law, distance, count):
    """Losses of noise as the mechanisms draw it, the other word's distance by Lorentz coordinates."""
    rng, n = np.random.default_rng(7), law.dimension
    radii = law.radii(rng.random(count))
    noisy = translated(np.zeros((1, n)), radii, uniform_directions(rng.random((count, n))))
    product = np.exp(noisy[:, 0]) * (math.cosh(distance) - math.sinh(distance) * noisy[:, 1])
    away = np.arccosh(np.maximum(product, 1.0))
    # The density by volume, written down anew.
    power = 0.0 if isinstance(law, VolumeLaw) else 2.0 * n
    return law.epsilon * (away - radii) + power * np.log(np.cosh(away / 2.0) / np.cosh(radii / 2.0))


@pytest.mark.parametrize("kind", [VolumeLaw, LebesgueLaw])
@pytest.mark.parametrize(("dimension", "distance"), [(2, 1.0), (10, 0.5)])
def test_noise_in_the_ball(kind, dimension, distance):
    """Within five standard errors of 200,000 draws, false alarms below 10^-6."""
    # Rejects the loss of a dimension less, and the other law's.
    law = kind(dimension=dimension, epsilon=(2.0 if kind is VolumeLaw else 1.0) * dimension)
    losses, atoms = sampled_losses(law, distance, 200_000), law.atoms(distance)
    other = LebesgueLaw if kind is VolumeLaw else VolumeLaw
    wrong = [
        replace(law, dimension=dimension - 1).atoms(distance),
        other(dimension=dimension, epsilon=law.epsilon + 0.01 * dimension).atoms(distance),
    ]
    told = np.zeros(2, dtype=bool)
    for t in np.array([0.0, 0.3, 0.6]) * law.bound(distance):
        gains = -np.expm1(np.minimum(t - losses, 0.0))
        error = 5.0 * gains.std() / math.sqrt(len(gains)) + 1e-6
        assert gains.mean() - error <= delta(atoms, t) <= 1.02 * gains.mean() + error
        told |= [abs(delta(each, t) - gains.mean()) > error + 0.02 * gains.mean() for each in wrong]
    assert told.all()


def test_the_worst_laws_of_a_bounded_range():
    """The largest delta over all such laws, in closed form; rejects half the range."""
    atoms = BoundedRange(epsilon=3.0).atoms(1.0)
    for t in np.linspace(-2.9, 2.9, 23):
        exact = (math.exp(1.5) - math.exp(t / 2)) ** 2 / math.expm1(3.0)
        assert exact - 1e-12 <= delta(atoms, t) <= exact + 1e-5


@pytest.mark.parametrize(
    ("n", "s", "words", "delta", "t"),
    [
        (50, 28.8, 1, 1e-6, 21.1),
        (300, 30.0, 1, 1e-9, 11.0),
        (300, 67.5, 1, 1e-6, 24.3),
        (300, 30.0, 10, 1e-6, 40.0),
        (50, 14.4, 10, 1e-6, 48.0),
    ],
)
def test_known_figures(n, s, words, delta, t):
    """Other people's."""
    found = loss_beyond(SphericalLaplace(dimension=n, epsilon=1.0), s, words=words, delta=delta)
    assert found == pytest.approx(t, rel=0.01)


def test_atoms_on_a_grid_never_lose_less():
    """Rejects rounding down and to the nearest."""
    rng = np.random.default_rng(1)
    losses, masses = rng.uniform(-3, 3, 200), rng.dirichlet(np.ones(200))
    first, on = on_grid((losses, masses), 0.25)
    grid = (first + np.arange(len(on))) * 0.25
    assert on.sum() == pytest.approx(1.0, abs=1e-12) and on.min() >= 0.0
    assert (on * np.exp(-grid)).sum() == pytest.approx((masses * np.exp(-losses)).sum(), rel=1e-12)
    for t in np.linspace(-3, 3, 97):
        assert delta((losses, masses), t) - 1e-12 <= delta((grid, on), t)


@pytest.mark.parametrize("words", [1, 10])
def test_noise_on_a_line(words):
    """Its loss has atoms at both ends; by 200,000 draws: false alarms below 10^-6."""
    # Rejects a bound below the loss, and one a tenth too large.
    noise = np.random.default_rng(2).laplace(size=(200_000, words))
    losses = (np.abs(noise - 1.5) - np.abs(noise)).sum(axis=1)
    most = loss_beyond(SphericalLaplace(dimension=1, epsilon=1.5), 1.0, words=words, delta=0.02)
    for t, enough in ((most, True), (0.9 * most, False)):
        gains = -np.expm1(np.minimum(t - losses, 0.0))
        error = 5.0 * float(gains.std()) / math.sqrt(len(gains))
        assert (gains.mean() - error <= 0.02) == enough


@pytest.mark.parametrize("words", [1, 100])
def test_no_loss_is_above_the_pure_one(words):
    law = BoundedRange(epsilon=2.0)
    assert loss_beyond(law, 1.0, words=words, delta=1e-300) == pytest.approx(2.0 * words, rel=1e-3)
    assert loss_beyond(law, 0.0, words=words, delta=1e-6) == 0.0
    assert 0.0 <= loss_beyond(law, 1e-9, words=words, delta=1e-6) <= 2e-9 * words
