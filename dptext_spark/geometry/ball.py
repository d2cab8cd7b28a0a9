"""Formulas of the Poincaré ball: coordinates, radii of noise, and translated noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np
import scipy

from dptext_spark.geometry import Floats

# Above this epsilon the noise is finer than float64 tells points apart; less noise would not show.
SHARPEST_EPSILON: Final = 1e15

# From here on ln U, U = exp(-2 r), is its own leading term to the last bit.
_FAR: Final = -230.0

_gauss_legendre = cache(lambda: scipy.special.roots_legendre(10))  # on the interval from -1 to 1
_CELLS: Final = 4096
_NEWTON_STEPS: Final = 5
# A density this many nats under its peak holds less than 1e-30 of the mass.
_DEPTH: Final = 75.0
# exp(-700) is still a normal float64, which raises no flag.
_LARGEST_EXPONENT: Final = 700.0

# Squares of multiples of 2^-26 add up without rounding as long as the sum is below 2.
_SPLIT: Final = 2.0**26
_LEAST_RIM: Final = 2.0**-53


def lorentz(points: Floats) -> tuple[Floats, Floats]:
    """Compute Lorentz coordinates u0 (1, v) of points p of the Poincaré ball, float64 (t, n).

    Returns the space part u0 v = 2 p / (1 - |p|²), (t, n), and the time part
    u0 = (1 + |p|²) / (1 - |p|²), (t,). Each |p| is below 1.
    """
    rim = rims(points)
    return 2.0 * points / rim[:, None], (2.0 - rim) / rim


@np.errstate(under="ignore")
def rims(points: Floats) -> Floats:
    """Compute 1 - |p|² of points (t, n) of the ball, at least 2^-53, precisely even at the edge.

    The squares of the points' leading 26 bits add up exactly; only the remainder is rounded.
    """
    leading = np.rint(points * _SPLIT) / _SPLIT
    rim = 1.0 - np.square(leading).sum(axis=1)
    rim -= ((points + leading) * (points - leading)).sum(axis=1)
    clipped: Floats = np.maximum(rim, _LEAST_RIM)
    return clipped


def volume_radii(uniforms: Floats, *, dimension: int, epsilon: float) -> Floats:
    """Compute radii of noise whose density by volume falls as exp(-epsilon r), to about 13 digits.

    The radius has density proportional to sinh(r)^(n-1) exp(-epsilon r), so U = exp(-2 r) is
    Beta((epsilon - n + 1) / 2, n). The law exists only for epsilon > n - 1.
    """
    shape = (min(epsilon, SHARPEST_EPSILON) - (dimension - 1)) / 2.0
    # P[U < x] -> x^a / (a B(a, n)) as x -> 0; for whole n, a B(a, n) is a product without
    # cancellation.
    logs = np.log1p(-uniforms) - np.log1p(shape / np.arange(1, dimension)).sum()
    logs /= shape
    radii: Floats = -0.5 * logs
    # Nearer, by whichever of U and 1 - U is the smaller and keeps its digits.
    near = logs > _FAR
    u = uniforms[near]
    rest = scipy.special.betaincinv(dimension, shape, u)  # 1 - U
    near_radii = -0.5 * np.log1p(-np.minimum(rest, 0.5))
    far = rest > 0.5
    v = u[far]
    from_below = scipy.special.betaincinv(shape, dimension, 1.0 - v)
    from_above = scipy.special.betainccinv(shape, dimension, v)
    near_radii[far] = -0.5 * np.log(np.where(v < 0.5, from_above, from_below))
    radii[near] = near_radii
    return radii


@dataclass(frozen=True, kw_only=True, eq=False)
class LebesgueRadii:
    """Radii of noise with the density ((1 - |z|) / (1 + |z|))^epsilon by Lebesgue measure.

    With |z| = tanh(r / 2) the hyperbolic radius r has density proportional to tanh(r/2)^(n-1)
    sech(r/2)^2 exp(-epsilon r). It is tabulated over x = ln r: there it is log-concave, and the
    quantile has the same relative accuracy at both ends.

    Source: Feyisetan et al. 2019, equation 7, in n dimensions.
    """

    dimension: int
    epsilon: float
    log_mass: float  # ln of the integral that makes the density one of probability
    edges: Floats  # (cells + 1,), values of x, ascending
    below: Floats  # (cells + 1,), probability below each edge
    above: Floats  # (cells + 1,), probability above each edge

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, *, dimension: int, epsilon: float) -> LebesgueRadii:
        """Tabulate the radii of a dimension and an epsilon above 0, once in a process."""
        epsilon = min(epsilon, SHARPEST_EPSILON)

        def slope(x: float) -> float:
            r = math.exp(x)
            return 1.0 + (dimension - 1) * r / math.sinh(r) - r * math.tanh(r / 2.0) - epsilon * r

        def height(x: float, level: float = 0.0) -> float:
            return float(_log_density(np.array(x), dimension, epsilon, level))

        largest = math.log(_LARGEST_EXPONENT)
        peak = scipy.optimize.brentq(slope, -100.0, largest)
        top = height(peak)
        level = (top - _DEPTH,)
        first = float(scipy.optimize.brentq(height, peak - 2 * _DEPTH, peak, args=level))
        last = float(scipy.optimize.brentq(height, largest, peak, args=level))
        edges = np.linspace(first, last, _CELLS + 1)
        widths = np.diff(edges)
        cells = widths * _mean_density(edges[:-1], widths, dimension, epsilon, top)
        mass = float(cells.sum())
        below = np.cumsum(cells / mass)
        above = np.cumsum(cells[::-1] / mass)[::-1]
        return cls(
            dimension=dimension,
            epsilon=epsilon,
            log_mass=top + math.log(mass),
            edges=edges,
            below=np.concatenate([[0.0], below]),
            above=np.concatenate([above, [0.0]]),
        )

    def __call__(self, uniforms: Floats) -> Floats:
        """Turn uniforms (t,) in (0, 1) into hyperbolic radii (t,), to about 13 digits."""
        radii = np.empty(len(uniforms))
        upper = uniforms > 0.5
        # Each half is counted from its own end, where probabilities keep their digits.
        radii[~upper] = self._quantiles(uniforms[~upper], self.edges, self.below)
        radii[upper] = self._quantiles(1.0 - uniforms[upper], self.edges[::-1], self.above[::-1])
        return radii

    def _quantiles(self, masses: Floats, edges: Floats, edge_masses: Floats) -> Floats:
        """Compute radii (t,) from the probability (t,) between them and the first edge."""
        density = (self.dimension, self.epsilon, self.log_mass)
        cell = np.searchsorted(edge_masses, masses) - 1
        start = edges[cell]
        width = edges[cell + 1] - edges[cell]
        cell_masses = masses - edge_masses[cell]
        share = cell_masses / (edge_masses[cell + 1] - edge_masses[cell])
        for _ in range(_NEWTON_STEPS):
            reach = share * width
            missing = cell_masses - np.abs(reach) * _mean_density(start, reach, *density)
            slope = np.abs(width) * np.exp(_log_density(start + reach, *density))
            # The density hardly changes within a cell, so that no step leads astray.
            share = np.clip(share + missing / slope, 0.0, 1.0)
        radii: Floats = np.exp(start + share * width)
        return radii


def _log_density(x: Floats, dimension: int, epsilon: float, log_scale: float) -> Floats:
    """Compute ln of the density of x = ln r, less ``log_scale`` and a constant."""
    r = np.exp(x)
    bend = (dimension - 1) * np.log(-np.expm1(-r))
    density: Floats = x + bend - (dimension + 1) * np.log1p(np.exp(-r)) - (1.0 + epsilon) * r
    return density - log_scale


def _mean_density(
    start: Floats, reach: Floats, dimension: int, epsilon: float, log_scale: float
) -> Floats:
    """Compute the mean density from ``start`` to ``start + reach``, (t,), by Gauss and Legendre."""
    nodes, weights = _gauss_legendre()
    places = start[:, None] + reach[:, None] * ((1.0 + nodes) / 2.0)
    values = np.exp(_log_density(places, dimension, epsilon, log_scale))
    mean: Floats = (values * (weights / 2.0)).sum(axis=1)
    return mean


def translated(points: Floats, radii: Floats, directions: Floats) -> Floats:
    """Move noise from the origin to points of the ball, by the Lorentz boost that does so.

    With the point p, t = tanh r and the direction u, the boosted point is q = q0 (1, w) where g =
    ((1 - t)(1 + |p|²) + t |u + p|²) / (1 - |p|²), q0 = g cosh r and w = (t u + (1 + g) p) / g. No
    difference in it cancels, also where p is near the edge, u points back, or r is large.

    Points are (t, n), or (1, n), the same one for all noise; hyperbolic radii (t,), 0 or more;
    directions unit vectors (t, n). Returns float64 (t, n + 1): ln q0, then w, the point's Klein
    coordinates.
    """
    fall = np.exp(-np.minimum(2.0 * radii, _LARGEST_EXPONENT))
    tanh = np.tanh(radii)
    squares = np.square(points).sum(axis=1)
    gaps = np.square(directions + points).sum(axis=1)
    growth = 2.0 * fall / (1.0 + fall) * (1.0 + squares) + tanh * gaps
    growth /= rims(points)
    moved = np.empty((len(directions), points.shape[1] + 1))
    # Rounding may leave the origin itself a little below q0 = 1.
    moved[:, 0] = np.maximum(radii + np.log1p(fall) - math.log(2.0) + np.log(growth), 0.0)
    moved[:, 1:] = tanh[:, None] * directions + (1.0 + growth)[:, None] * points
    moved[:, 1:] /= growth[:, None]
    return moved


def translation_error(time: float) -> float:
    """Bound the rounding error of translated noise of radius r, as a distance over max(1, sinh r).

    It grows as 1 / (1 - |p|²) = (1 + u0) / 2 for a point p whose Lorentz time is u0. The factor is
    measured, against 100 digits.
    """
    return 2.0**-49 * (1.0 + time) / 2.0
