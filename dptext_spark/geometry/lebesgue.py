"""The density exp(-epsilon d(x, p)) by Lebesgue measure of the Poincaré ball, drawn by random balls.

exp(-epsilon d) is the integral of epsilon exp(-epsilon t) over all t above d. So x is a uniform
point of the ball of hyperbolic radius t around p, where t has a density proportional to
exp(-epsilon t) times that ball's volume. The ball is a Euclidean one as well: with z = exp(-t),
q = 1 - |p|² and H = 4 z + q (1 - z)² its centre is 4 z p / H and its radius s = q (1 - z²) / H.
The volume is s^n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np
import scipy

from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.ball import SHARPEST_EPSILON, rims

_gauss_legendre = cache(lambda: scipy.special.roots_legendre(12))  # on the interval from -1 to 1
# A density this many nats under its peak holds less than 1e-20 of the mass, which no uniform sees.
_DEPTH: Final = 60.0
# Nats by which the density of any word changes within a cell, at most.
_NATS: Final = 2.0
_NEWTON_STEPS: Final = 6
_CELLS: Final = 1 << 20  # numbers that are held at once

# Of noise that is computed, as a Euclidean distance: measured against 60 digits, below half of it.
POINT_ERROR: Final = 2.0**-50


@dataclass(frozen=True, kw_only=True, eq=False)
class BallRadii:
    """The law of the random balls' radius t, for words p by their rims q = 1 - |p|².

    Its density is proportional to s(t)^n exp(-epsilon t), log-concave in t. The radius grows, in
    distribution, as q falls: so the ends of one list of cells serve all words.
    """

    dimension: int
    epsilon: float
    edges: Floats  # (cells + 1,), radii, ascending

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, *, dimension: int, epsilon: float, least_rim: float) -> BallRadii:
        """Cut the radii of all words with this rim or a larger one into cells."""
        epsilon = min(epsilon, SHARPEST_EPSILON)

        def fall(log_t: float, rim: float) -> float:
            return epsilon - dimension * _growth(math.exp(log_t), rim)

        def height(log_t: float, rim: float, level: float = 0.0) -> float:
            t = np.array(math.exp(log_t))
            return float(_log_density(t, np.array(rim), dimension, epsilon)) - level

        def end(rim: float, way: float) -> float:
            """Return where the density of a rim is far under its peak, on one side of it."""
            ratio = dimension / epsilon
            low = math.log(math.asinh(ratio))
            high = math.log(math.asinh(ratio * 2.0 / rim))
            peak = scipy.optimize.brentq(fall, low - 1e-9, high + 1e-9, args=(rim,))
            level = height(peak, rim) - _DEPTH
            outside = peak + way
            while height(outside, rim) > level:
                outside += way
            return math.exp(scipy.optimize.brentq(height, peak, outside, args=(rim, level)))

        last = end(least_rim, 1.0)
        rim_radius = 2.0 * math.atanh(math.sqrt(1.0 - least_rim))
        edges = [end(1.0, -1.0)]
        while edges[-1] < last:
            t = edges[-1]
            steepest = max(dimension * _growth(t, least_rim), epsilon)
            edges.append(t + min(t, max(1.0, (t - rim_radius) / 2.0), _NATS / steepest))
        return cls(dimension=dimension, epsilon=epsilon, edges=np.array(edges))

    def log_masses(self, word_rims: Floats) -> Floats:
        """Compute ln of the integral of s(t)^n exp(-epsilon t), for words (k,)."""
        logs = np.empty(len(word_rims))
        for part in self._parts(len(word_rims)):
            masses, tops = self._masses(word_rims[part])
            logs[part] = np.log(masses.sum(axis=1)) + tops
        return logs

    def radii(self, word_rims: Floats, places: Ints, uniforms: Floats) -> Floats:
        """Turn uniforms (t,) into radii (t,) of words that are ``places`` (t,) in rims (k,)."""
        order = np.argsort(places, kind="stable")
        radii = np.empty(len(uniforms))
        for part in self._parts(len(word_rims)):
            ends = np.searchsorted(places[order], [part.start, part.stop])
            tokens = order[ends[0] : ends[1]]
            radii[tokens] = self._of_words(
                word_rims[part], places[tokens] - part.start, uniforms[tokens]
            )
        return radii

    def _parts(self, words: int) -> Iterator[slice]:
        size = max(1, _CELLS // (len(self.edges) * len(_gauss_legendre()[0])))
        for start in range(0, words, size):
            yield slice(start, min(start + size, words))

    def _masses(self, word_rims: Floats) -> tuple[Floats, Floats]:
        """Integrate over cells: (k, cells), in units of exp(tops), (k,)."""
        nodes, weights = _gauss_legendre()
        widths = np.diff(self.edges)
        t = self.edges[:-1, None] + widths[:, None] * ((1.0 + nodes) / 2.0)
        logs = self._log_density(t, word_rims[:, None, None])
        tops = logs.max(axis=(1, 2))
        logs -= tops[:, None, None]
        with np.errstate(under="ignore"):
            np.exp(logs, out=logs)
            logs *= weights / 2.0
            return logs.sum(axis=2) * widths, tops

    def _of_words(self, word_rims: Floats, places: Ints, uniforms: Floats) -> Floats:
        with np.errstate(under="ignore"):
            masses, tops = self._masses(word_rims)
            totals = masses.sum(axis=1)
            masses /= totals[:, None]
            zeros = np.zeros((len(masses), 1))
            below = np.concatenate([zeros, np.cumsum(masses, axis=1)], axis=1)
            above = np.concatenate([zeros, np.cumsum(masses[:, ::-1], axis=1)], axis=1)
            levels = np.log(totals) + tops
            radii = np.empty(len(uniforms))
            upper = uniforms > 0.5
            size = max(1, _CELLS // len(self.edges))
            # Each half is counted from its own end, where probabilities keep their digits.
            for half, edges, table in (
                (~upper, self.edges, below),
                (upper, self.edges[::-1], above),
            ):
                tokens = np.flatnonzero(half)
                for start in range(0, len(tokens), size):
                    block = tokens[start : start + size]
                    words = places[block]
                    inner = uniforms[block]
                    if table is above:
                        inner = 1.0 - inner
                    radii[block] = self._quantiles(
                        inner, edges, table[words], word_rims[words], levels[words]
                    )
        return radii

    def _quantiles(
        self, masses: Floats, edges: Floats, edge_masses: Floats, rim: Floats, level: Floats
    ) -> Floats:
        """Compute radii (t,) from the probability (t,) between them and the first edge."""
        rows = np.arange(len(masses))
        cell = (edge_masses < masses[:, None]).sum(axis=1) - 1
        start = edges[cell]
        width = edges[cell + 1] - start
        inside = masses - edge_masses[rows, cell]
        share = inside / (edge_masses[rows, cell + 1] - edge_masses[rows, cell])
        nodes, weights = _gauss_legendre()
        column = rim[:, None]
        for _ in range(_NEWTON_STEPS):
            reach = share * width
            t = start[:, None] + reach[:, None] * ((1.0 + nodes) / 2.0)
            density = np.exp(self._log_density(t, column) - level[:, None])
            missing = inside - np.abs(reach) * (density * (weights / 2.0)).sum(axis=1)
            slope = np.abs(width) * np.exp(self._log_density(start + reach, rim) - level)
            share = np.clip(share + missing / slope, 0.0, 1.0)
        return np.asarray(start + share * width)

    def _log_density(self, t: Floats, rim: Floats) -> Floats:
        return _log_density(t, rim, self.dimension, self.epsilon)


def _log_density(t: Floats, rim: Floats, dimension: int, epsilon: float) -> Floats:
    """Compute ln of s(t)^n exp(-epsilon t)."""
    logs = np.log(euclidean_radius(t, rim))
    logs *= dimension
    logs -= epsilon * t
    return np.asarray(logs)


def euclidean_radius(t: Floats, rim: Floats) -> Floats:
    """Compute the Euclidean radius s(t) of the ball of hyperbolic radius t around a word."""
    with np.errstate(under="ignore"):
        spread = 4.0 * np.exp(-t)
        spread = spread + rim * np.square(np.expm1(-t))
        return np.asarray(rim * -np.expm1(-2.0 * t) / spread)


def _growth(t: float, rim: float) -> float:
    """Compute the slope of ln s(t), which falls with t and with the rim."""
    z = math.exp(-t)
    over = 2.0 * z * (2.0 * z * rim + (2.0 - rim) * (1.0 + z * z))
    return over / (-math.expm1(-2.0 * t) * (4.0 * z + rim * math.expm1(-t) ** 2))


def uniform_in_balls(points: Floats, radii: Floats, shares: Floats, directions: Floats) -> Floats:
    """Place uniform points of the balls of hyperbolic radius t around points p of the ball.

    Points are (t, n), radii (t,) above 0, directions unit vectors (t, n), and ``shares`` (t,) the
    volumes, from 0 to 1, of what is nearer to a ball's Euclidean centre. With y, a uniform point
    of the unit ball, x = (4 z p + q (1 - z²) y) / H, and h = (1 - |x|²) / 2 is a sum of positive
    terms: no difference cancels near the edge.

    Returns float64 (t, n + 1), as :func:`dptext_spark.geometry.ball.translated` does.
    """
    q = rims(points)
    logs = np.log(shares) / points.shape[1]
    reach = np.exp(logs)
    inner = -np.expm1(2.0 * logs)  # 1 - |y|²
    y = reach[:, None] * directions
    with np.errstate(under="ignore"):
        z = np.exp(-radii)
        ring = -np.expm1(-2.0 * radii)
        spread = 4.0 * z + q * np.square(np.expm1(-radii))
        gaps = np.square(points - y).sum(axis=1) + inner
        half_rims = 4.0 * z * z * q + q * inner * ring * ring / 2.0
        half_rims += 4.0 * (2.0 - q) * z * z * z + 2.0 * z * ring * gaps
        half_rims *= q / (spread * spread)
        placed = np.empty((len(points), points.shape[1] + 1))
        placed[:, 1:] = (4.0 * z / spread)[:, None] * points + (q * ring / spread)[:, None] * y
    placed[:, 1:] /= 1.0 - half_rims[:, None]
    # Rounding may leave the origin itself a little below q0 = 1.
    placed[:, 0] = np.maximum(np.log1p(-half_rims) - np.log(half_rims), 0.0)
    return placed
