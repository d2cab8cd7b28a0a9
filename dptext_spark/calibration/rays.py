"""Nearest words of points on rays from a word, most of them found without a look at most words.

At x + s a the word y scores (x·y - |y|²/4) + (s a·y - |y|²/4), the nearest word the most. The first part has
nothing of the ray in it, and the second nothing of the word x: the second is worked out once for all words x
of a block. What is neither among the k words that lead in the first part nor among the k that lead in the
second scores no more than the best of the rest do in both; a point whose nearest word beats that is done
(Fagin, Lotem and Naor 2003, "Optimal aggregation algorithms for middleware", section 4, in lists of fixed
lengths). Half of -|y|²/2 in either part keeps words that are long, and words that are short, from leading in
one part without a chance in the sum: with all of it in one, lists must be three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry.rounding import longest_of, score_slack
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.search.exact import EuclideanNearest

# How many leading words of either part are looked at, step by step, before the search looks at all.
LEADERS: Final = (64, 192, 512, 1536, 4096, 12288)

# Scores held at once (4 MiB).
_CELLS: Final = 1 << 20
_CACHE_LINE: Final = 16

# Every so many words are a sample that tells where about k words begin to lead.
_STRIDE: Final = 16


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
        directions, norms: float64 (r, n), of any length, and (r,), their lengths.
        lengths: float64 (e, r), lengths along the rays, for e epsilons.
        along: float32 (V, r), product of each word with each direction.
        leaders, reaches: int32 and float32 (e, r, k), the words that lead in the part of the score that the
            ray has, and that part.
    """

    search: EuclideanNearest
    directions: NDArray[np.float64]
    lengths: NDArray[np.float64]
    along: NDArray[np.float32]
    leaders: NDArray[np.int32]
    reaches: NDArray[np.float32]
    norms: NDArray[np.float64]

    @classmethod
    def of(
        cls, search: EuclideanNearest, directions: NDArray[np.float64], lengths: NDArray[np.float64]
    ) -> NearestOnRays:
        """Prepare rays for any number of words."""
        along = search.vectors @ directions.astype(np.float32).T
        share = np.float32(0.5) * search.half_norms
        k = max(_steps(len(along)), default=0)
        leaders = np.empty((*lengths.shape, k), dtype=np.int32)
        reaches = np.empty(leaders.shape, dtype=np.float32)
        for start in range(0, len(directions), _CACHE_LINE):
            columns = np.ascontiguousarray(along[:, start : start + _CACHE_LINE].T)
            for ray, column in enumerate(columns, start):
                for epsilon, step in enumerate(lengths[:, ray].astype(np.float32)):
                    reach = column * step
                    reach -= share
                    leaders[epsilon, ray] = _leaders(reach)
                    reaches[epsilon, ray] = reach[leaders[epsilon, ray]]
        return cls(
            search=search,
            directions=directions,
            lengths=lengths,
            along=along,
            leaders=leaders,
            reaches=reaches,
            norms=np.sqrt(np.square(directions).sum(axis=1)),
        )

    def chosen(
        self, centres: NDArray[np.float64], t: float | None, coins: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Find the nearest word of each point, or by Vickrey's coin the nearest or the second nearest.

        Args:
            centres: float64 (k, n).
            t: See :func:`vickrey_probability`; None for the nearest.
            coins: float64 (r,), one for each ray.

        Returns:
            int64 (k, e, r).
        """
        coins = np.tile(coins, len(self.lengths))
        chosen = np.empty((len(centres), self.lengths.size), dtype=np.int64)
        left = []
        for row, (centre, starts) in enumerate(zip(centres, self._starts(centres), strict=True)):
            slack = self._slack(centre)
            found, rest = self._candidates(starts, slack, 1 if t is None else 2)
            if t is None:
                chosen[row, found.points] = found.words
                contested = np.bincount(found.points, minlength=coins.size) > 1
                chosen[row, contested] = self._settled(centre, found, contested, 1)[1][:, 0]
            else:
                self._toss(centre, found, slack.ravel(), t, coins, chosen[row])
            left.append(rest)
        rows = np.repeat(np.arange(len(left)), [len(points) for points in left])
        columns = np.concatenate(left)
        points = np.concatenate([self._points(*one) for one in zip(centres, left, strict=True)])
        if t is None:
            chosen[rows, columns] = self.search(points)
        else:
            chosen[rows, columns] = _tossed(t, coins[columns], *self.search.nearest_two(points))
        return chosen.reshape(len(centres), *self.lengths.shape)

    def _toss(
        self,
        centre: NDArray[np.float64],
        found: _Found,
        slack: NDArray[np.float32],
        t: float,
        coins: NDArray[np.float64],
        chosen: NDArray[np.int64],
    ) -> None:
        """Choose between the two nearest of each point's candidates, into chosen (e * r,)."""
        counts = np.bincount(found.points, minlength=chosen.size)
        done = np.flatnonzero(counts)
        order = np.lexsort((-found.scores, found.points))
        first = (np.cumsum(counts) - counts)[done]
        best = order[np.stack([first, first + 1], axis=1)]
        scores = found.scores[best]
        low, high = self._chances(centre, done, scores.astype(np.float64), slack[done], t)
        chosen[done] = np.where(coins[done] < low, *found.words[best].T)
        unsure = np.zeros(chosen.size, dtype=np.bool_)
        unsure[done] = (counts[done] > 2) | (scores[:, 0] - scores[:, 1] <= slack[done])
        unsure[done] |= (low <= coins[done]) & (coins[done] < high)
        points, words, exact = self._settled(centre, found, unsure, 2)
        chosen[unsure] = _tossed(t, coins[unsure], words, self.search.distances(points, words, exact))

    def _starts(self, centres: NDArray[np.float64]) -> NDArray[np.float32]:
        """Work out the part of the scores that rays have none in: centres (k, n) to float32 (k, V)."""
        starts = centres.astype(np.float32) @ self.search.vectors.T
        starts -= np.float32(0.5) * self.search.half_norms
        return np.asarray(starts)

    def _points(self, centre: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Points (c, n) by their numbers: the mechanism's own operations, in its order, for its bits."""
        points = self.directions[chosen % len(self.directions)]
        points *= self.lengths.ravel()[chosen, None]
        points += centre
        return points

    def _settled(
        self, centre: NDArray[np.float64], found: _Found, unsure: NDArray[np.bool_], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Choose the k nearest candidates of unsure points (e * r,) as the mechanism itself does.

        Returns:
            The points (c, n), their words (c, k) and scores (c, k).
        """
        pairs = unsure[found.points]
        rows = (np.cumsum(unsure) - 1)[found.points[pairs]]
        points = self._points(centre, np.flatnonzero(unsure))
        _, words, scores = self.search.settled(points, rows, found.words[pairs], k)
        return points, words, scores

    def _chances(
        self,
        centre: NDArray[np.float64],
        chosen: NDArray[np.int64],
        scores: NDArray[np.float64],
        slack: NDArray[np.float32],
        t: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound the chance of the nearest word of points (c,), given the scores (c, 2) of the best two.

        A squared distance is |q|² - 2 score, and half the slack is one score's.
        """
        squares = np.square(self.lengths * self.norms) + np.square(centre).sum()
        # A generous bound for any order of summation.
        error = slack + len(centre) * 2.0**-50 * squares.ravel()[chosen]
        squares += 2.0 * self.lengths * (self.directions @ centre)
        distances = squares.ravel()[chosen, None] - 2.0 * scores
        near, far = distances.T
        least, ones = np.maximum(near - error, 0.0) / (far + error), np.ones(len(far))
        most = np.divide(near + error, far - error, out=ones.copy(), where=far - error > near + error)
        low, high = (vickrey_probability(t, np.stack([np.sqrt(x), ones], axis=1)) for x in (most, least))
        return low, high

    def _candidates(
        self, starts: NDArray[np.float32], slack: NDArray[np.float32], k: int
    ) -> tuple[_Found, NDArray[np.int64]]:
        """Find all words that may be among the k nearest of each point, k or more for each.

        Returns:
            The candidates, and the numbers of the points that leading words did not settle.
        """
        steps = self.lengths.astype(np.float32)
        left = np.ones(steps.shape, dtype=np.bool_)
        found = [_Found(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))]
        leading = _leaders(starts)
        for width in _steps(len(starts)):
            here, rest = leading[:width], starts.copy()
            rest[here] = -np.inf  # looked at once, though they may lead along the ray as well
            offsets = starts[here] - np.float32(0.5) * self.search.half_norms[here]
            most, slopes = rest.max(), np.take(self.along, here, axis=0)
            rays_left = np.flatnonzero(left.any(axis=0))
            size = max(1, _CELLS // width)  # rays at once
            for rays in (rays_left[start : start + size] for start in range(0, len(rays_left), size)):
                own = np.ascontiguousarray(slopes[:, rays].T)
                for epsilon in range(len(steps)):
                    columns = np.flatnonzero(left[epsilon, rays])
                    chosen = rays[columns]
                    near = own[columns]
                    near *= steps[epsilon, chosen, None]
                    near += offsets
                    there = self.leaders[epsilon][chosen, :width]
                    far = self.reaches[epsilon][chosen, :width]
                    # Rounding is monotonous: as computed, no other word's score is above this one.
                    others = far[:, -1] + most
                    far += np.take(rest, there)
                    settled, (points, words, scores) = _settle(
                        near, far, here, there, others=others, slack=slack[epsilon, chosen], k=k
                    )
                    left[epsilon, chosen[settled]] = False
                    found.append(_Found(epsilon * steps.shape[1] + chosen[points], words, scores))
        return _Found(*(np.concatenate(parts) for parts in zip(*found, strict=True))), np.flatnonzero(left)

    def _slack(self, centre: NDArray[np.float64]) -> NDArray[np.float32]:
        """Bound how far two scores of one point can stray from their exact difference, float32 (e, r).

        As for :class:`EuclideanNearest`, with 9 more terms: the products are of the centre and of the
        direction, and rounding these, the length, the second product with it, the half norm, the three sums
        and the threshold are paid for by the terms added to n.
        """
        reach = np.sqrt(np.square(centre).sum()) + self.lengths * self.norms
        return score_slack(len(centre) + 9, reach, longest_of(self.search.half_norms))


def _tossed(
    t: float, coins: NDArray[np.float64], words: NDArray[np.int64], distances: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Toss coins (c,) for the first or the second of words (c, 2) at distances (c, 2)."""
    return np.where(coins < vickrey_probability(t, distances), words[:, 0], words[:, 1])


def _settle(
    near: NDArray[np.float32],
    far: NDArray[np.float32],
    here: NDArray[np.int32],
    there: NDArray[np.int32],
    *,
    others: NDArray[np.float32],
    slack: NDArray[np.float32],
    k: int,
) -> tuple[NDArray[np.bool_], _Found]:
    """See which points no word comes near that is not among those looked at.

    Args:
        near, far: float32 (c, w), scores of words that lead where the points' rays start, and along them.
        here, there: int32 (w,) and (c, w), those words.
        others: float32 (c,), what all other words score at most.
        slack: float32 (c,), how far two scores can stray.
        k: How many words are wanted, 1 or 2.

    Returns:
        The settled points, bool (c,), and their candidates.
    """
    near_peak, far_peak = near.max(axis=1), far.max(axis=1)
    largest = np.maximum(near_peak, far_peak)  # the k-th of both
    if k == 2:
        largest = np.maximum(np.minimum(near_peak, far_peak), np.maximum(_second(near), _second(far)))
    floor = largest - slack
    settled = others < floor
    least = np.where(settled, floor, np.float32(np.inf))[:, None]
    # Flat, for NumPy finds the nonzeros of one dimension several times as fast as of two.
    first, second = (np.flatnonzero(scores >= least) for scores in (near, far))
    width = len(here)
    return settled, _Found(
        np.concatenate([first, second]) // width,
        np.concatenate([here[first % width], there.ravel()[second]]).astype(np.int64),
        np.concatenate([near.ravel()[first], far.ravel()[second]]),
    )


def _second(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The second largest score of each row."""
    rows, first = np.arange(len(scores)), scores.argmax(axis=1)
    largest = scores[rows, first]
    scores[rows, first] = -np.inf
    second = scores.max(axis=1)
    scores[rows, first] = largest
    return np.asarray(second)


def _steps(words: int) -> tuple[int, ...]:
    """Numbers of leaders worth a look before all words are looked at."""
    return tuple(k for k in LEADERS if 16 * k <= words)


def _leaders(scores: NDArray[np.float32]) -> NDArray[np.int32]:
    """The words that lead by their scores (V,): for each step, the first so many, the least of them last."""
    steps = _steps(len(scores))
    k = max(steps, default=0)
    sample = scores[::_STRIDE]
    about = k // _STRIDE + k // (4 * _STRIDE) + 8
    found = np.zeros(0, dtype=np.int64)
    if about < len(sample):
        found = np.flatnonzero(scores >= np.partition(sample, len(sample) - about)[-about])
    if len(found) < k:  # the sample was not like all words, or there are few
        found = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[-k])
    order = np.argpartition(-scores[found], np.array(steps, dtype=np.intp) - 1) if steps else slice(0)
    return found[order][:k].astype(np.int32)


def cells(words: int, epsilons: int) -> int:
    """Numbers that a ray takes room for."""
    return words + 2 * epsilons * max(_steps(words), default=0)
