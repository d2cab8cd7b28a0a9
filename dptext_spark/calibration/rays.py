"""Nearest words of points on rays from a word, most of them found without a look at most words.

At x + s a the word y scores (x·y - |y|²/2) + s (a·y), the nearest word the most. The first part has nothing
of the ray in it, and the second, but for the factor s, nothing of the word x. What is neither among the k
words that lead in the first part nor among the k that lead in the second scores no more than the best of the
rest do in both; a point whose nearest word beats that is done (Fagin, Lotem and Naor 2003, "Optimal
aggregation algorithms for middleware", section 4, in lists of fixed lengths).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dptext_spark.mechanisms.additive import vickrey_probability
from dptext_spark.search import EuclideanNearest

# How many leading words of either part are looked at, step by step, before all words are.
LEADERS: Final = (64, 192, 512, 1536, 4096)

# Scores held at once (4 MiB).
_CELLS: Final = 1 << 20
_CACHE_LINE: Final = 16
_UNIT_ROUNDOFF: Final = 2.0**-24

ScalarT = TypeVar("ScalarT", np.float32, np.int32)


class _Lot(NamedTuple):
    """Words to look at on c rays: all, or those that lead.

    Attributes:
        words: (w, c), or None for all words in order.
        slopes: float32 (w, c), the words' products with each ray's direction.
        offsets: float32 (w, c) or (w, 1), the words' scores where the rays start.
        slope: float32 (c,), no other word has more, and
        offset: nor more than this.
    """

    words: NDArray[np.int32] | None
    slopes: NDArray[np.float32]
    offsets: NDArray[np.float32]
    slope: NDArray[np.float32]
    offset: np.float32


class _Found(NamedTuple):
    """Candidates (c,) of points: the points' numbers, epsilon * r + ray, the words, and their scores."""

    points: NDArray[np.int64]
    words: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestOnRays:
    """Finds the words that ``search`` finds, to the last tie, for points on the same rays from many words.

    Attributes:
        search: Exact nearest words of any point.
        directions: float64 (r, n), of any length.
        lengths: float64 (e, r), lengths along the rays, for e epsilons.
        along: float32 (V, r), product of each word with each direction.
        leaders: int32 (k, r), the words that lead along each ray, in order.
        slopes: float32 (k, r), their products.
        norms: float64 (r,), lengths of the directions.
    """

    search: EuclideanNearest
    directions: NDArray[np.float64]
    lengths: NDArray[np.float64]
    along: NDArray[np.float32]
    leaders: NDArray[np.int32]
    slopes: NDArray[np.float32]
    norms: NDArray[np.float64]

    @classmethod
    def of(
        cls, search: EuclideanNearest, directions: NDArray[np.float64], lengths: NDArray[np.float64]
    ) -> NearestOnRays:
        """Prepare rays for any number of words."""
        along = search.vectors @ directions.astype(np.float32).T
        k = max(_steps(len(along)), default=0)
        leaders = np.empty((k, len(directions)), dtype=np.int32)
        slopes = np.empty(leaders.shape, dtype=np.float32)
        for start in range(0, len(directions), _CACHE_LINE):
            columns = np.ascontiguousarray(along[:, start : start + _CACHE_LINE].T)
            for ray, column in enumerate(columns, start):
                leaders[:, ray] = _leaders(column, k)
                slopes[:, ray] = column[leaders[:, ray]]
        return cls(
            search=search,
            directions=directions,
            lengths=lengths,
            along=along,
            leaders=leaders,
            slopes=slopes,
            norms=np.sqrt(np.square(directions).sum(axis=1)),
        )

    def offsets(self, centres: NDArray[np.float64]) -> NDArray[np.float32]:
        """Score all words where rays start, x·y - |y|²/2: centres (k, n) to float32 (k, V)."""
        offsets: NDArray[np.float32] = centres.astype(np.float32) @ self.search.vectors.T
        offsets -= self.search.half_norms
        return offsets

    def nearest(self, centre: NDArray[np.float64], offsets: NDArray[np.float32]) -> NDArray[np.int64]:
        """Find the nearest word of each point, int64 (e, r), from a centre (n,) and its offsets (V,)."""
        found = self._candidates(offsets, self._slack(centre), 1)
        nearest = np.empty(self.lengths.size, dtype=np.int64)
        nearest[found.points] = found.words
        contested = np.bincount(found.points) > 1
        _, settled, _ = self._settled(centre, found, contested, 1)
        nearest[contested] = settled[:, 0]
        return nearest.reshape(self.lengths.shape)

    def first_or_second(
        self,
        centre: NDArray[np.float64],
        offsets: NDArray[np.float32],
        t: float,
        coins: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Find the nearest or the second nearest word of each point, int64 (e, r), by Vickrey's coin.

        Args:
            centre: float64 (n,).
            offsets: float32 (V,), its offsets.
            t: See :func:`vickrey_probability`.
            coins: float64 (r,), one for each ray.
        """
        slack = self._slack(centre)
        found = self._candidates(offsets, slack, 2)
        order = np.lexsort((-found.scores, found.points))
        counts = np.bincount(found.points)
        first = order[np.cumsum(counts) - counts]
        second = order[np.cumsum(counts) - counts + 1]
        scores = found.scores[np.stack([first, second], axis=1)]
        coins = np.tile(coins, len(self.lengths))
        low, high = self._chances(centre, scores.astype(np.float64), slack.ravel(), t)
        chosen: NDArray[np.int64] = np.where(coins < low, found.words[first], found.words[second])
        unsure = (counts > 2) | (scores[:, 0] - scores[:, 1] <= slack.ravel())
        unsure |= (low <= coins) & (coins < high)
        points, words, exact = self._settled(centre, found, unsure, 2)
        chances = vickrey_probability(t, self.search.distances(points, words, exact))
        chosen[unsure] = np.where(coins[unsure] < chances, words[:, 0], words[:, 1])
        return chosen.reshape(self.lengths.shape)

    def _settled(
        self, centre: NDArray[np.float64], found: _Found, unsure: NDArray[np.bool_], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Choose the k nearest candidates of unsure points (e * r,) as the mechanism itself does.

        Returns:
            The points (c, n), their words (c, k) and scores (c, k).
        """
        pairs = unsure[found.points]
        rows = (np.cumsum(unsure) - 1)[found.points[pairs]]
        # The mechanism's own operations, in its order: its bits.
        chosen = np.flatnonzero(unsure)
        points = self.directions[chosen % len(self.directions)]
        points *= self.lengths.ravel()[chosen, None]
        points += centre
        _, words, scores = self.search.settled(points, rows, found.words[pairs], k)
        return points, words, scores

    def _chances(
        self,
        centre: NDArray[np.float64],
        scores: NDArray[np.float64],
        slack: NDArray[np.float32],
        t: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound the chance of the nearest word of each point, given the scores (e * r, 2) of the best two.

        A squared distance is |q|² - 2 score, and half the slack is one score's.
        """
        squares = np.square(self.lengths * self.norms) + np.square(centre).sum()
        # A generous bound for any order of summation.
        error = slack + len(centre) * 2.0**-50 * squares.ravel()
        squares += 2.0 * self.lengths * (self.directions @ centre)
        distances = squares.ravel()[:, None] - 2.0 * scores
        near, far = distances.T
        least = np.maximum(near - error, 0.0) / (far + error)
        most = np.ones(len(far))
        np.divide(near + error, far - error, out=most, where=far - error > near + error)
        ones = np.ones(len(far))
        low, high = (
            vickrey_probability(t, np.stack([np.sqrt(ratio), ones], axis=1)) for ratio in (most, least)
        )
        return low, high

    def _candidates(self, offsets: NDArray[np.float32], slack: NDArray[np.float32], k: int) -> _Found:
        """Find all words that may be among the k nearest of each point; k or more for each point."""
        steps = self.lengths.astype(np.float32)
        unsettled = np.ones(steps.shape, dtype=np.bool_)
        found = []
        for rays, lot in self._lots(offsets, unsettled):
            for epsilon in range(len(steps)):
                columns = np.flatnonzero(unsettled[epsilon, rays])
                chosen = rays[columns]
                settled, candidates = _look(lot, columns, steps[epsilon, chosen], slack[epsilon, chosen], k)
                unsettled[epsilon, chosen[settled]] = False
                points = epsilon * steps.shape[1] + chosen[candidates.points]
                found.append(candidates._replace(points=points))
        return _Found(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def _lots(
        self, offsets: NDArray[np.float32], unsettled: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.int64], _Lot]]:
        """More and more words to look at, for rays that have points (e, r) still unsettled by then."""
        leaders = _leaders(offsets, len(self.leaders))
        for k in _steps(len(offsets)):
            rest = offsets.copy()
            rest[leaders[:k]] = -np.inf  # looked at once, though they may lead along the ray as well
            for rays in _parts(unsettled, 2 * k):
                yield rays, self._leading(rays, leaders[:k], offsets, rest)
        for rays in _parts(unsettled, len(offsets)):
            nothing = np.full(len(rays), -np.inf, dtype=np.float32)
            yield (
                rays,
                _Lot(None, _columns(self.along, rays), offsets[:, None], nothing, np.float32(-np.inf)),
            )

    def _leading(
        self,
        rays: NDArray[np.int64],
        leaders: NDArray[np.int32],
        offsets: NDArray[np.float32],
        rest: NDArray[np.float32],
    ) -> _Lot:
        shape = (len(leaders), len(rays))
        # Flat, for NumPy picks elements by one index several times as fast as by two.
        here = np.take(self.along, leaders[:, None] * np.int64(self.along.shape[1]) + rays)
        there = _columns(self.leaders[: len(leaders)], rays)
        slopes = _columns(self.slopes[: len(leaders)], rays)
        return _Lot(
            words=np.concatenate([np.broadcast_to(leaders[:, None], shape), there]),
            slopes=np.concatenate([here, slopes]),
            offsets=np.concatenate([np.broadcast_to(offsets[leaders, None], shape), np.take(rest, there)]),
            slope=slopes[-1],
            offset=rest.max(),
        )

    def _slack(self, centre: NDArray[np.float64]) -> NDArray[np.float32]:
        """Bound how far two scores of one point can stray from their exact difference, float32 (e, r).

        As for :class:`EuclideanNearest`, with gamma_(n + 8): the products are of the centre and of the
        direction, and rounding these, the length, the second product with it, the half norm, the two sums and
        the threshold are paid for by the terms added to n.
        """
        terms = (len(centre) + 8) * _UNIT_ROUNDOFF
        longest = np.sqrt(2.0 * float(self.search.half_norms.max()))
        start = np.sqrt(np.square(centre).sum())
        reach = self.lengths * self.norms
        bound = 2.0 * terms / (1.0 - terms) * longest * (start + reach + longest)
        slack: NDArray[np.float32] = (bound * (1.0 + 8 * _UNIT_ROUNDOFF)).astype(np.float32)
        return slack


def _look(
    lot: _Lot, columns: NDArray[np.int64], steps: NDArray[np.float32], slack: NDArray[np.float32], k: int
) -> tuple[NDArray[np.bool_], _Found]:
    """Look at a lot's words for one point on each of its chosen rays (c,).

    Returns:
        Which points (c,) no other word comes near, and the candidates of those.
    """
    scores = _columns(lot.slopes, columns) * steps
    scores += lot.offsets if lot.words is None else _columns(lot.offsets, columns)
    floor = _largest(scores, k) - slack
    # Rounding is monotonous: as computed, no other word's score is above this one.
    settled = steps * lot.slope[columns] + lot.offset < floor
    flat = np.flatnonzero(scores >= np.where(settled, floor, np.float32(np.inf)))
    row, point = np.divmod(flat, scores.shape[1])
    words = row if lot.words is None else lot.words[row, columns[point]].astype(np.int64)
    return settled, _Found(point, words, scores.ravel()[flat])


def _columns(matrix: NDArray[ScalarT], columns: NDArray[np.int64]) -> NDArray[ScalarT]:
    """Columns of a matrix, distinct and in order; ``[:, columns]`` would lay its result out by columns."""
    return matrix if len(columns) == matrix.shape[1] else np.take(matrix, columns, axis=1)


def _largest(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """The k-th largest score of each column, k 1 or 2."""
    largest: NDArray[np.float32] = scores.max(axis=0)
    if k == 1:
        return largest
    first, columns = scores.argmax(axis=0), np.arange(scores.shape[1])
    scores[first, columns] = -np.inf
    second: NDArray[np.float32] = scores.max(axis=0)
    scores[first, columns] = largest
    return second


def _steps(words: int) -> tuple[int, ...]:
    """Numbers of leaders worth a look before all words are looked at."""
    return tuple(k for k in LEADERS if 4 * k <= words)


def _leaders(scores: NDArray[np.float32], k: int) -> NDArray[np.int32]:
    """The words of the k largest scores (V,), in order; faster than a partial argument sort."""
    if not k:
        return np.zeros(0, dtype=np.int32)
    found = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[-k])
    return found[np.argsort(-scores[found])[:k]].astype(np.int32)


def _parts(unsettled: NDArray[np.bool_], width: int) -> Iterator[NDArray[np.int64]]:
    """Rays with unsettled points, as many at once as there may be scores of that many words."""
    rays = np.flatnonzero(unsettled.any(axis=0))
    size = max(1, _CELLS // width)
    return (rays[start : start + size] for start in range(0, len(rays), size))
