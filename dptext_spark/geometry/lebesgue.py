"""The density exp(-epsilon d(x, p)) by Lebesgue measure of the ball, drawn by random balls.

exp(-epsilon d) is the integral of epsilon exp(-epsilon t) over all t above d. So x is a uniform
point of the ball of hyperbolic radius t around p, where t has a density proportional to
exp(-epsilon t) times that ball's volume. The ball is a Euclidean one as well: with z = exp(-t),
q = 1 - |p|² and H = 4 z + q (1 - z)² its centre is 4 z p / H and its radius s = q (1 - z²) / H.
The volume is s^n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np
import scipy

from dptext_spark.geometry import Floats
from dptext_spark.geometry.ball import SHARPEST_EPSILON, rims

_NODES: Final = 12
# A density this many nats under its peak holds less than 1e-20 of the mass, which no uniform sees.
# The ends are looked for among these values of ln t.
_DEPTH: Final = 80.0
_LOG_RADII: Final = (-130.0, 40.0)
# Nats by which the density of any word changes within a cell, at most.
_NATS: Final = 2.0
_NEWTON_STEPS: Final = 6
_NUMBERS: Final = 1 << 20  # that are held at once

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

        log_t = np.linspace(*_LOG_RADII, 1 << 13)

        def ends(rim: float) -> Floats:
            logs = _log_density(np.exp(log_t), np.array(rim), dimension, epsilon)
            return np.asarray(np.exp(log_t[logs > logs.max() - _DEPTH][[0, -1]]))

        last = ends(least_rim)[1]
        rim_radius = 2.0 * math.atanh(math.sqrt(1.0 - least_rim))
        edges = [float(ends(1.0)[0])]
        while edges[-1] < last:
            t = edges[-1]
            # The slope of ln s is below coth t, and below this, for all words.
            slope = min(1.0 / math.tanh(t), 2.0 / least_rim / math.sinh(min(t, 700.0)))
            steps = t, max(1.0, (t - rim_radius) / 2.0), _NATS / max(dimension * slope, epsilon)
            edges.append(t + min(steps))
        return cls(dimension=dimension, epsilon=epsilon, edges=np.array(edges))

    def log_masses(self, word_rims: Floats) -> Floats:
        """Compute ln of the integral of s(t)^n exp(-epsilon t), for words (k,)."""
        blocks = np.array_split(word_rims, -(-len(word_rims) // self._block))
        return np.concatenate([self._masses(block)[1] for block in blocks])

    def radii(self, word_rims: Floats, uniforms: Floats) -> Floats:
        """Turn uniforms (t,) into radii (t,) around words of these rims (t,)."""
        radii = np.empty(len(uniforms))
        order = np.argsort(word_rims, kind="stable")
        for start in range(0, len(order), self._block):
            tokens = order[start : start + self._block]
            distinct, rows = np.unique(word_rims[tokens], return_inverse=True)
            with np.errstate(under="ignore"):
                masses, levels = self._masses(distinct)
                # Each half is counted from its own end, where probabilities keep their digits.
                shares = uniforms[tokens]
                for half, inner, edges, cells in (
                    (shares <= 0.5, shares, self.edges, masses),
                    (shares > 0.5, 1.0 - shares, self.edges[::-1], masses[:, ::-1]),
                ):
                    below = np.cumsum(np.pad(cells, ((0, 0), (1, 0))), axis=1)[rows[half]]
                    words = distinct[rows[half]], levels[rows[half]]
                    radii[tokens[half]] = self._quantiles(inner[half], edges, below, *words)
        return radii

    @property
    def _block(self) -> int:
        return max(1, _NUMBERS // (len(self.edges) * _NODES))

    def _masses(self, word_rims: Floats) -> tuple[Floats, Floats]:
        """Integrate over cells: shares of the whole (k, cells), and ln of the whole, (k,)."""
        nodes, weights = _gauss_legendre()
        widths = np.diff(self.edges)
        t = self.edges[:-1, None] + widths[:, None] * nodes
        logs = _log_density(t, word_rims[:, None, None], self.dimension, self.epsilon)
        tops = logs.max(axis=(1, 2))
        with np.errstate(under="ignore"):
            masses = (np.exp(logs - tops[:, None, None]) * weights).sum(axis=2) * widths
            wholes = masses.sum(axis=1)
            return masses / wholes[:, None], np.log(wholes) + tops

    def _quantiles(
        self, shares: Floats, edges: Floats, below: Floats, rim: Floats, level: Floats
    ) -> Floats:
        """Compute radii (t,) from the probability (t,) between them and the first edge.

        ``below`` (t, cells + 1) has that of all edges, ``level`` (t,) is ln of the whole integral.
        """
        rows = np.arange(len(shares))
        cell = (below < shares[:, None]).sum(axis=1) - 1
        start = edges[cell]
        width = edges[cell + 1] - start
        inside = shares - below[rows, cell]
        part = inside / (below[rows, cell + 1] - below[rows, cell])
        nodes, weights = _gauss_legendre()
        law = self.dimension, self.epsilon
        for _ in range(_NEWTON_STEPS):
            reach = part * width
            t = start[:, None] + reach[:, None] * nodes
            density = np.exp(_log_density(t, rim[:, None], *law) - level[:, None])
            missing = inside - np.abs(reach) * (density * weights).sum(axis=1)
            slope = np.abs(width) * np.exp(_log_density(start + reach, rim, *law) - level)
            part = np.clip(part + missing / slope, 0.0, 1.0)
        return np.asarray(start + part * width)


@cache
def _gauss_legendre() -> tuple[Floats, Floats]:
    """Return nodes and weights of Gauss and Legendre's rule on the interval from 0 to 1."""
    nodes, weights = scipy.special.roots_legendre(_NODES)
    return (1.0 + nodes) / 2.0, weights / 2.0


def _log_density(t: Floats, rim: Floats, dimension: int, epsilon: float) -> Floats:
    """Compute ln of s(t)^n exp(-epsilon t)."""
    return np.asarray(dimension * np.log(ball_radius(t, rim)) - epsilon * t)


def ball_radius(t: Floats, rim: Floats) -> Floats:
    """Compute the Euclidean radius s(t) of the ball of hyperbolic radius t around a word."""
    with np.errstate(under="ignore"):
        spread = 4.0 * np.exp(-t) + rim * np.square(np.expm1(-t))
        return np.asarray(rim * -np.expm1(-2.0 * t) / spread)


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
