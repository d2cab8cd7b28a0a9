"""Privacy loss of words: the law of ln P[q | w] / P[q | w'] for a perturbed word w, and its sums.

A law is given by atoms, losses with their probabilities, that bound the true one from above: the
mass of a small cell of noise lies at the largest loss in it. So whatever is computed from them
bounds delta(t) = E[(1 - exp(t - loss))+] from above, except for roundings. The library
dp-accounting composes them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from dptext_spark.geometry import Floats
from dptext_spark.geometry.ball import LebesgueRadii, volume_radii
from dptext_spark.geometry.sphere import gamma_quantile

Atoms = tuple[Floats, Floats]
"""Losses and their probabilities, float64 (a,) each."""

# Cells of the noise's length, fine or coarse, and of its cosine with the difference of the words,
# which matters far more.
_LENGTHS: Final = {False: 600, True: 120}
_COSINES: Final = 2400
# Of the losses of a bounded range.
_EDGES: Final = 2400
# Normal quantiles of the outermost cells: they hold 1e-16 each.
_OUTERMOST: Final = 8.2
# Radii beyond which no loss changes by what a float can hold.
_FAR: Final = 300.0


class LossLaw(ABC):
    """The privacy loss of a word, by its distance to the word that it is compared with.

    Sources: the loss of spherical noise as in Joseph, Kulesza and Yu 2025 (arXiv 2502.15929); atoms
    at the end of their cells as in Koskela et al. 2020 and Doroshenko et al. 2022.
    """

    @abstractmethod
    def bound(self, distance: float) -> float:
        """The largest loss of two words at a distance: what is proven without any delta."""

    @abstractmethod
    def atoms(self, distance: float, *, coarse: bool = False) -> Atoms:
        """Return the law for words at a distance above 0; it also bounds that of nearer words.

        With ``coarse`` there are fewer atoms, which bound the law less closely.
        """


@dataclass(frozen=True, kw_only=True)
class RadialLaw(LossLaw):
    """Noise with a random length and, independently, a random direction in n dimensions."""

    dimension: int
    epsilon: float

    def bound(self, distance: float) -> float:
        return self.epsilon * distance

    @abstractmethod
    def radii(self, uniforms: Floats) -> Floats:
        """Return quantiles of the noise's length: uniforms (k,) in (0, 1) to lengths (k,)."""

    @abstractmethod
    def losses(self, distance: float, radii: Floats, cosines: Floats) -> Floats:
        """Compute upper bounds of the loss at a distance in cells of noise, float64 (r, c).

        ``radii`` (r + 1,) are ascending edges of lengths, the last one infinite. ``cosines`` (c,)
        are the least of each cell.
        """

    def atoms(self, distance: float, *, coarse: bool = False) -> Atoms:
        shares = _shares(_LENGTHS[coarse])
        cosines, weights = _cosines(self.dimension)
        radii = np.concatenate([[0.0], self.radii(shares[1:-1]), [np.inf]])
        losses = self.losses(distance, radii, cosines)
        return losses.ravel(), np.outer(np.diff(shares), weights).ravel()


def _shares(cells: int) -> Floats:
    """Return float64 (cells + 1,): edges of cells as shares of a law, finer towards both ends."""
    from scipy import special  # slow to load, and the command line needs no losses

    inner = special.ndtr(np.linspace(-_OUTERMOST, _OUTERMOST, cells - 1))
    return np.concatenate([[0.0], inner, [1.0]])


@lru_cache(maxsize=8)
def _cosines(dimension: int) -> tuple[Floats, Floats]:
    """Return the least cosine of a direction in each cell, and its probability, (c,) each."""
    from scipy import special  # slow to load, as above

    if dimension == 1:
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    half = (dimension - 1) / 2.0
    shares = _shares(_COSINES)
    edges = np.asarray(2.0 * special.betaincinv(half, half, shares) - 1.0)
    return edges[:-1], np.diff(shares)


@dataclass(frozen=True, kw_only=True)
class SphericalLaplace(RadialLaw):
    """Density proportional to exp(-epsilon |z|), in the norm in which distances count.

    With g = epsilon |z| ~ Gamma(n), s = epsilon * distance and the cosine c, the loss is
    sqrt(g² + s² - 2 g s c) - g. It falls in g as well as in c.
    """

    def radii(self, uniforms: Floats) -> Floats:
        return gamma_quantile(self.dimension, uniforms)

    def losses(self, distance: float, radii: Floats, cosines: Floats) -> Floats:
        g = radii[:-1, None]
        s = self.epsilon * distance
        c = cosines[None]
        other_g = np.sqrt(np.square(g - s) + 2.0 * g * s * (1.0 - c))
        # The difference of the lengths, without cancellation.
        return np.asarray(s * (s - 2.0 * g * c) / (other_g + g))


@dataclass(frozen=True, kw_only=True)
class BallLaw(RadialLaw):
    """Noise in the Poincaré ball: density by volume ~ exp(-epsilon r) sech(r / 2)^(2 k).

    Its log-density falls by epsilon + k tanh(r / 2) per unit. So the loss grows where the other
    word is farther away than this one, by k (tanh(other / 2) - tanh(r / 2)) at most.
    """

    @property
    @abstractmethod
    def power(self) -> int:
        """The number k."""

    def bound(self, distance: float) -> float:
        return (self.epsilon + self.power) * distance

    def fall(self, radii: Floats) -> Floats:
        """Return how far the log-density at these hyperbolic distances is below that at 0."""
        log_cosh = radii / 2.0 + np.log1p(np.exp(-radii)) - math.log(2.0)
        return np.asarray(self.epsilon * radii + 2.0 * self.power * log_cosh)

    def losses(self, distance: float, radii: Floats, cosines: Floats) -> Floats:
        bounded = np.minimum(radii, _FAR)[:, None]
        start = bounded[:-1]
        stop = bounded[1:]
        first = _third_side(start, distance, cosines)
        last = _third_side(stop, distance, cosines)
        # A distance is convex on a geodesic, so that the farthest point of a cell is an end.
        farther = np.tanh(np.maximum(first, last) / 2.0) - np.tanh(start / 2.0)
        excess = (stop - start) * self.power * np.maximum(farther, 0.0)
        losses = self.fall(first) - self.fall(start) + excess
        return np.asarray(np.clip(losses, -self.bound(distance), self.bound(distance)))


def _third_side(side: Floats, distance: float, cosines: Floats) -> Floats:
    """Return the side opposite to an angle between two sides of a hyperbolic triangle."""
    square = np.square(np.sinh((side - distance) / 2.0))
    square = square + np.sinh(side) * math.sinh(distance) * (1.0 - cosines[None]) / 2.0
    return 2.0 * np.arcsinh(np.sqrt(square))


@dataclass(frozen=True, kw_only=True)
class VolumeLaw(BallLaw):
    """Density by volume proportional to exp(-epsilon r)."""

    power = 0

    def radii(self, uniforms: Floats) -> Floats:
        return volume_radii(uniforms, dimension=self.dimension, epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class LebesgueLaw(BallLaw):
    """Density by volume proportional to exp(-epsilon r) sech(r / 2)^(2 n)."""

    @property
    def power(self) -> int:
        return self.dimension

    def radii(self, uniforms: Floats) -> Floats:
        return LebesgueRadii.of(dimension=self.dimension, epsilon=self.epsilon)(uniforms)


@dataclass(frozen=True, kw_only=True)
class BoundedRange(LossLaw):
    """All losses are in an interval of length epsilon * distance, as for exponential mechanisms.

    Of all such pairs of laws, those with two outputs lose the most; the largest delta(t) among
    them, with R = epsilon * distance, is (exp(R/2) - exp(t/2))² / (exp(R) - 1) for -R <= t <= R,
    which is itself the delta of a pair of laws.

    Source: Dong, Durfee and Rogers 2020 for bounded range; the largest delta by differentiation.
    """

    epsilon: float
    truncation: float | None = None  # distances count up to here; None counts them whole

    def bound(self, distance: float) -> float:
        if self.truncation is not None:
            distance = min(distance, self.truncation)
        return self.epsilon * distance

    def atoms(self, distance: float, *, coarse: bool = False) -> Atoms:
        most = self.bound(distance)
        edges = np.linspace(-most, most, _EDGES + 1)
        deltas = np.square(-np.expm1((edges - most) / 2.0)) / -math.expm1(-most)
        # Atoms at the edges whose delta(t) is given there and nowhere smaller (Doroshenko et al.
        # 2022).
        steps = np.diff(edges)
        falls = -np.diff(deltas)
        below = np.concatenate([[1.0 - deltas[0]], falls / -np.expm1(-steps)])
        with np.errstate(over="ignore"):  # of a step of thousands of nats nothing is left
            above = np.append(falls / np.expm1(steps), 0.0)
        return edges, np.maximum(below - above, 0.0)


@dataclass(frozen=True, kw_only=True)
class LebesgueRange(LossLaw):
    """Density by Lebesgue measure of the ball proportional to exp(-epsilon d(x, word)).

    The distances differ by the words' distance at most, either way: all losses are in an interval
    of twice epsilon times it. The constants' logarithms differ by epsilon times it at most, and by
    n times it.
    """

    dimension: int
    epsilon: float

    def bound(self, distance: float) -> float:
        return (self.epsilon + min(self.epsilon, self.dimension)) * distance

    def atoms(self, distance: float, *, coarse: bool = False) -> Atoms:
        return BoundedRange(epsilon=2.0 * self.epsilon).atoms(distance, coarse=coarse)


LAWS: Final[dict[str, type[LossLaw]]] = {
    kind.__name__: kind
    for kind in (SphericalLaplace, VolumeLaw, LebesgueLaw, BoundedRange, LebesgueRange)
}
"""Laws that their names and parameters make again."""


if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Steps of the grid of losses from 0 to the largest one, and of a coarse one, fewer for many words:
# what a step adds to the variance of a word's loss is a share of that variance, however many words
# there are.
_STEPS: Final = 4000
_COARSE_STEPS: Final = (100, 800)
# Words, beyond which the fine grid's transforms would be too long.
_MANY: Final = 1 << 14
# Part of delta that composition may cut off; it is added again.
_TRUNCATED: Final = 1e-3
# More than what Fourier transforms in double precision err by, for each word: at most 1.6 * 2^-52
# were measured against transforms in extended precision, for 10 to 16,384 words.
FOURIER: Final = 2.0**-49
# Of the pure loss, to which t is searched for, and where a coarse answer will do.
_PRECISION: Final = 1e-8
_COARSELY: Final = 1e-5


@lru_cache(maxsize=256)  # both reports of a run, and what it prints, state the same losses
def loss_beyond(
    law: LossLaw, distance: float, *, words: int = 1, delta: float, coarse: bool = False
) -> float:
    """Compute the loss t in nats of words that are each moved by a distance, up to delta.

    They are (t, delta)-indistinguishable. The loss is never above what is proven without a delta.
    ``coarse`` bounds it less closely, but far faster.
    """
    return joint_loss_beyond({law: words}, distance, delta=delta, coarse=coarse)


def joint_loss_beyond(
    laws: Mapping[LossLaw, int], distance: float, *, delta: float, coarse: bool = False
) -> float:
    """Compute t, as above, for words or releases of one word: so many with noise of each law."""
    pure = sum(times * law.bound(distance) for law, times in laws.items())
    words = sum(laws.values())
    if pure == 0.0:
        return 0.0
    precision = _COARSELY if coarse else _PRECISION
    steps = _STEPS
    if coarse or words > _MANY:
        coarse = True
        steps = max(_COARSE_STEPS[0], min(_COARSE_STEPS[1], int(6400 / words**0.5)))
    # One grid for all: that of the largest loss.
    interval = max(law.bound(distance) for law in laws) / steps
    # Each composition may cut off a part of its own.
    cut_off = _TRUNCATED * delta / (2 * len(laws) - 1)
    distributions = []
    for law, times in laws.items():
        distribution = _words(law, distance, interval, coarse)
        if times != 1:
            distribution = distribution.self_compose(times, tail_mass_truncation=cut_off)
        distributions.append(distribution)
    composed = reduce(
        lambda one, other: one.compose(other, tail_mass_truncation=cut_off), distributions
    )
    if words > 1:
        delta -= FOURIER * words
    low = 0.0
    high = pure
    if composed.get_delta_for_epsilon(low) <= delta:
        return low
    while high - low > precision * pure:
        middle = (low + high) / 2.0
        if composed.get_delta_for_epsilon(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=64)
def _words(law: LossLaw, distance: float, interval: float, coarse: bool) -> PrivacyLossDistribution:
    # A large package, which a release of words without an account does not need.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    first, masses = on_grid(law.atoms(distance, coarse=coarse), interval)
    return PrivacyLossDistribution.create_from_rounded_probability(
        {first + i: float(mass) for i, mass in enumerate(masses) if mass > 0.0},
        infinity_mass=0.0,
        value_discretization_interval=interval,
        pessimistic_estimate=True,
    )


def on_grid(atoms: Atoms, interval: float) -> tuple[int, Floats]:
    """Return atoms moved to multiples of an interval: the first multiple, and masses from there on.

    No delta(t) falls. Mass and mean of exp(-loss) stay equal: "connect the dots", Doroshenko et al.
    2022.
    """
    losses, masses = atoms
    below = np.floor(losses / interval)
    # 0 on the grid point, 1 on the next.
    shares = np.expm1(below * interval - losses) / np.expm1(-interval)
    upper_masses = np.clip(shares, 0.0, 1.0) * masses
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    grid_masses = np.zeros(size)
    grid_masses += np.bincount(index, weights=masses - upper_masses, minlength=size)
    grid_masses += np.bincount(index + 1, weights=upper_masses, minlength=size)
    return first, grid_masses
