"""Privacy loss of words: the law of ln P[q | w] / P[q | w'] when w was perturbed, and what losses add up to.

A law is given by atoms, losses with their probabilities, that bound the true one from above: the mass of a
small cell of noise lies at the largest loss in it. So whatever is computed from them bounds delta(t) =
E[(1 - exp(t - loss))+] from above, except for roundings. The library dp-accounting composes them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from dptext_spark.geometry import Floats
from dptext_spark.geometry.ball import LebesgueRadii, volume_radii
from dptext_spark.geometry.sphere import gamma_quantile

Atoms = tuple[Floats, Floats]
"""Losses and their probabilities, float64 (a,) each."""

# Cells of the noise's length, and of its cosine with the difference of the words, which tells far more. The
# coarse ones are for where many laws are wanted: losses are a little larger then.
_CELLS: Final = (600, 2400)
_COARSE: Final = (120, 2400)
# Of the losses of a bounded range.
_EDGES: Final = 2400
# Normal quantiles of the outermost cells: they hold 1e-16 each.
_OUTERMOST: Final = 8.2
# Radii beyond which no loss changes by what a float can hold.
_FAR: Final = 300.0


class LossLaw(ABC):
    """The privacy loss of a word, as a function of how far away the word is that it is told apart from.

    Sources: the loss of spherical noise as in Joseph, Kulesza and Yu 2025 (arXiv 2502.15929); atoms at the
    end of their cells as in Koskela et al. 2020 and Doroshenko et al. 2022.
    """

    @abstractmethod
    def bound(self, distance: float) -> float:
        """The largest loss of two words at a distance: what is proven without any delta."""

    @abstractmethod
    def atoms(self, distance: float) -> Atoms:
        """Give the law for words at a distance above 0; it bounds that of words less far apart as well."""

    def coarse(self) -> LossLaw:
        """Give the same law in fewer atoms, which bound it as well, if not as closely."""
        return self


@dataclass(frozen=True, kw_only=True)
class RadialLaw(LossLaw):
    """Noise of a random length in a direction of the sphere in n dimensions, independent of each other."""

    dimension: int
    epsilon: float
    cells: tuple[int, int] = field(default=_CELLS, repr=False)  # of length and cosine, to cut the noise into

    def bound(self, distance: float) -> float:
        return self.epsilon * distance

    @abstractmethod
    def radii(self, uniforms: Floats) -> Floats:
        """Quantile of the noise's length: uniforms (k,) in [0, 1) to lengths (k,)."""

    @abstractmethod
    def losses(self, distance: float, radii: Floats, cosines: Floats) -> Floats:
        """Bound the loss of words at a distance in cells of noise from above, float64 (r, c).

        ``radii`` (r + 1,) are ascending edges of lengths, the last one infinite, ``cosines`` (c,) the least
        of a cell.
        """

    def atoms(self, distance: float) -> Atoms:
        shares = _shares(self.cells[0])
        cosines, weights = _cosines(self.dimension, self.cells[1])
        radii = np.append(self.radii(shares[:-1]), np.inf)
        losses = self.losses(distance, radii, cosines)
        return losses.ravel(), np.outer(np.diff(shares), weights).ravel()

    def coarse(self) -> LossLaw:
        return replace(self, cells=_COARSE)


def _shares(cells: int) -> Floats:
    """float64 (cells + 1,): edges of cells as shares of their law, finer and finer towards both ends."""
    from scipy import special  # slow to load, and the command line needs no losses

    inner = special.ndtr(np.linspace(-_OUTERMOST, _OUTERMOST, cells - 1))
    return np.concatenate([[0.0], inner, [1.0]])


@lru_cache(maxsize=8)
def _cosines(dimension: int, cells: int) -> tuple[Floats, Floats]:
    """Give the least cosine of a direction in each cell, and its probability, (c,) each."""
    from scipy import special  # slow to load, as above

    if dimension == 1:
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    half, shares = (dimension - 1) / 2.0, _shares(cells)
    return np.asarray(2.0 * special.betaincinv(half, half, shares) - 1.0)[:-1], np.diff(shares)


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
        s, c = self.epsilon * distance, cosines[None]
        other = np.sqrt(np.square(g - s) + 2.0 * g * s * (1.0 - c))
        # The difference of the lengths, without cancellation.
        return np.asarray(s * (s - 2.0 * g * c) / (other + g))


@dataclass(frozen=True, kw_only=True)
class BallLaw(RadialLaw):
    """Noise in the Poincaré ball whose density by volume is a function of the hyperbolic distance alone."""

    @abstractmethod
    def quantile(self, uniforms: Floats) -> Floats:
        """Quantile of the noise's hyperbolic length: uniforms (k,) in (0, 1) to lengths (k,)."""

    def radii(self, uniforms: Floats) -> Floats:
        radii = np.zeros_like(uniforms)
        inner = uniforms > 0.0
        radii[inner] = self.quantile(uniforms[inner])
        return radii

    @abstractmethod
    def fall(self, radii: Floats) -> Floats:
        """By how much the log-density is less at these hyperbolic distances than at 0."""

    @abstractmethod
    def excess(self, start: Floats, stop: Floats, other: Floats) -> Floats | float:
        """Bound how much the loss can grow in a cell, ``other`` the largest distance from the other word."""

    def losses(self, distance: float, radii: Floats, cosines: Floats) -> Floats:
        bounded = np.minimum(radii, _FAR)[:, None]
        start, stop = bounded[:-1], bounded[1:]
        first, last = (_third_side(side, distance, cosines) for side in (start, stop))
        # A distance is convex on a geodesic, so that the farthest point is an end.
        excess = self.excess(start, stop, np.maximum(first, last))
        found = self.fall(first) - self.fall(start) + excess
        return np.clip(found, -self.bound(distance), self.bound(distance))


def _third_side(side: Floats, distance: float, cosines: Floats) -> Floats:
    """The side opposite to an angle between two sides of a hyperbolic triangle."""
    square = np.square(np.sinh((side - distance) / 2.0))
    square = square + np.sinh(side) * math.sinh(distance) * (1.0 - cosines[None]) / 2.0
    return 2.0 * np.arcsinh(np.sqrt(square))


@dataclass(frozen=True, kw_only=True)
class VolumeLaw(BallLaw):
    """Density by volume proportional to exp(-epsilon r)."""

    def quantile(self, uniforms: Floats) -> Floats:
        return volume_radii(uniforms, dimension=self.dimension, epsilon=self.epsilon)

    def fall(self, radii: Floats) -> Floats:
        return self.epsilon * radii

    def excess(self, start: Floats, stop: Floats, other: Floats) -> float:
        return 0.0  # the log-density falls evenly, and the loss by the triangle inequality


@dataclass(frozen=True, kw_only=True)
class LebesgueLaw(BallLaw):
    """Density by volume proportional to exp(-epsilon r) sech(r / 2)^(2n).

    Its log-density falls by epsilon + n tanh(r / 2) per unit, so that the loss grows where the other word is
    farther away than this one, by n (tanh(other / 2) - tanh(r / 2)) at most.
    """

    def bound(self, distance: float) -> float:
        return (self.epsilon + self.dimension) * distance

    def quantile(self, uniforms: Floats) -> Floats:
        return LebesgueRadii.of(dimension=self.dimension, epsilon=self.epsilon)(uniforms)

    def fall(self, radii: Floats) -> Floats:
        log_cosh = radii / 2.0 + np.log1p(np.exp(-radii)) - math.log(2.0)
        return np.asarray(self.epsilon * radii + 2.0 * self.dimension * log_cosh)

    def excess(self, start: Floats, stop: Floats, other: Floats) -> Floats:
        slope = self.dimension * np.maximum(np.tanh(other / 2.0) - np.tanh(start / 2.0), 0.0)
        return np.asarray((stop - start) * slope)


@dataclass(frozen=True, kw_only=True)
class BoundedRange(LossLaw):
    """All losses lie in some interval that is epsilon * distance long, as for exponential mechanisms.

    Of all such pairs of laws, those with two outputs lose the most; the largest delta(t) among them, with
    R = epsilon * distance, is (exp(R/2) - exp(t/2))² / (exp(R) - 1) for -R <= t <= R, which is itself the
    delta of a pair of laws.

    Source: Dong, Durfee and Rogers 2020 for bounded range; the largest delta by differentiation.
    """

    epsilon: float
    truncation: float | None = None  # distances count up to here; None counts them whole

    def bound(self, distance: float) -> float:
        return self.epsilon * (distance if self.truncation is None else min(distance, self.truncation))

    def atoms(self, distance: float) -> Atoms:
        most = self.bound(distance)
        edges = np.linspace(-most, most, _EDGES + 1)
        deltas = np.square(-np.expm1((edges - most) / 2.0)) / -math.expm1(-most)
        # Atoms at the edges whose delta(t) is given there and nowhere smaller (Doroshenko et al. 2022).
        steps, falls = np.diff(edges), -np.diff(deltas)
        below = np.concatenate([[1.0 - deltas[0]], falls / -np.expm1(-steps)])
        with np.errstate(over="ignore"):  # of a step of thousands of nats nothing is left
            above = np.append(falls / np.expm1(steps), 0.0)
        return edges, np.maximum(below - above, 0.0)


LAWS: Final[dict[str, type[LossLaw]]] = {
    kind.__name__: kind for kind in (SphericalLaplace, VolumeLaw, LebesgueLaw, BoundedRange)
}
"""Laws that their names and parameters make again."""


if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Steps of the grid of losses from 0 to the largest one, and of a coarse one, fewer for many words: what a
# step adds to the variance of a word's loss is a share of that variance, however many words there are.
_STEPS: Final = 4000
_COARSE_STEPS: Final = (100, 800)
# Words, beyond which the fine grid's transforms would be too long.
_MANY: Final = 1 << 14
# Part of delta that composition may cut off; it is added again.
_TRUNCATED: Final = 1e-3
# More than what Fourier transforms in double precision err by, for each word: at most 1.6 * 2^-52 were
# measured against transforms in extended precision, for 10 to 16,384 words.
FOURIER: Final = 2.0**-49
# Of the pure loss, to which t is searched for, and where a coarse answer will do.
_PRECISION: Final = 1e-8
_COARSELY: Final = 1e-5


@lru_cache(maxsize=256)  # both reports of a run, and what it prints, state the same losses
def loss_beyond(
    law: LossLaw, distance: float, *, words: int = 1, delta: float, coarse: bool = False
) -> float:
    """Find t such that words, each moved by a distance at most, are (t, delta)-indistinguishable, in nats.

    It is never above what is proven without a delta; ``coarse`` bounds it less closely, far faster.
    """
    pure = words * law.bound(distance)
    if pure == 0.0:
        return 0.0
    steps = _STEPS
    if coarse or words > _MANY:
        law, steps = law.coarse(), max(_COARSE_STEPS[0], min(_COARSE_STEPS[1], int(6400 / words**0.5)))
    composed = _words(law, distance, law.bound(distance) / steps)
    if words > 1:
        cut_off, erred = _TRUNCATED * delta, FOURIER * words
        composed = composed.self_compose(words, tail_mass_truncation=cut_off)
        delta -= erred
    low, high = 0.0, pure
    if composed.get_delta_for_epsilon(low) <= delta:
        return low
    while high - low > (_COARSELY if coarse else _PRECISION) * pure:
        middle = (low + high) / 2.0
        if composed.get_delta_for_epsilon(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def joint_loss_beyond(laws: Mapping[LossLaw, int], distance: float, *, delta: float) -> float:
    """Find t, as above, for one word that was released several times, so often with noise of each law."""
    pure = sum(times * law.bound(distance) for law, times in laws.items())
    if pure == 0.0:
        return 0.0
    # One grid for all: that of the largest loss.
    interval = max(law.bound(distance) for law in laws) / _STEPS
    # Each composition may cut off a part of its own.
    cut = _TRUNCATED * delta / (2 * len(laws))
    parts = [
        _words(law, distance, interval).self_compose(times, tail_mass_truncation=cut)
        for law, times in laws.items()
    ]
    composed = reduce(lambda one, other: one.compose(other, tail_mass_truncation=cut), parts)
    return min(max(float(composed.get_epsilon_for_delta(delta)), 0.0), pure)


@lru_cache(maxsize=64)
def _words(law: LossLaw, distance: float, interval: float) -> PrivacyLossDistribution:
    # A large package, and all that a release of words without an account does without.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    first, masses = on_grid(law.atoms(distance), interval)
    return PrivacyLossDistribution.create_from_rounded_probability(
        {first + i: float(mass) for i, mass in enumerate(masses) if mass > 0.0},
        infinity_mass=0.0,
        value_discretization_interval=interval,
        pessimistic_estimate=True,
    )


def on_grid(atoms: Atoms, interval: float) -> tuple[int, Floats]:
    """Move atoms to multiples of an interval, the first and the masses from there on; no delta(t) falls.

    Equal mass and equal mean of exp(-loss): "connect the dots", Doroshenko et al. 2022.
    """
    losses, masses = atoms
    below = np.floor(losses / interval)
    upper = np.expm1(below * interval - losses) / np.expm1(-interval)  # 0 on the grid point, 1 on the next
    upper = np.clip(upper, 0.0, 1.0) * masses
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    on = np.zeros(size)
    on += np.bincount(index, weights=masses - upper, minlength=size)
    on += np.bincount(index + 1, weights=upper, minlength=size)
    return first, on
