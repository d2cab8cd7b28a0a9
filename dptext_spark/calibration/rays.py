"""Nearest words of points on rays from a word, most of them found without a look at most words.

At x + s a the word y scores (x·y - |y|²/4) + (s a·y - |y|²/4), the nearest word the most. The first
part has nothing of the ray in it, and the second nothing of the word x: the second is worked out
once for all words x of a block. What is neither among the k words that lead in the first part nor
among the k that lead in the second scores no more than the best of the rest do in both; a point
whose nearest word beats that is done (Fagin, Lotem and Naor 2003, "Optimal aggregation algorithms
for middleware", section 4, in lists of fixed lengths). Half of -|y|²/2 in either part keeps words
that are long, and words that are short, from leading in one part without a chance in the sum: with
all of it in one, lists must be three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.geometry.products import score_slack, words_times
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.search.exact import EuclideanNearest, largest

# How many leading words of either part are looked at, step by step, before the search looks at all.
LEADERS: Final = (64, 192, 512, 1536, 4096, 12288)

_CELLS: Final = 1 << 20  # scores held at once (4 MiB)
_CACHE_LINE: Final = 16
_STRIDE: Final = 16  # every so many words are a sample of where about k words begin to lead


class NearestOnRays:
    """Finds the words that ``search`` finds, to the last tie, on the same rays from many words."""

    def __init__(self, search: EuclideanNearest, directions: Floats, lengths: Floats) -> None:
        """Prepare rays along ``directions`` (r, n), of any length, for ``lengths`` (e, r)."""
        self._search = search
        self._directions = directions
        self._lengths = lengths
        self._norms = np.sqrt(np.square(directions).sum(axis=1))
        self._steps = lengths.astype(np.float32)
        self._share = np.float32(0.5) * search.half_norms
        self._along = words_times(search.vectors, directions.astype(np.float32))  # (V, r)
        # The words that lead in the ray's part of the score, and that part, (e, r, k).
        shape = (*lengths.shape, max(_steps(len(self._along)), default=0))
        self._leaders = np.empty(shape, dtype=np.int32)
        self._reaches = np.empty(shape, dtype=np.float32)
        for start in range(0, len(directions), _CACHE_LINE):
            columns = np.ascontiguousarray(self._along[:, start : start + _CACHE_LINE].T)
            for ray, column in enumerate(columns, start):
                for epsilon, step in enumerate(self._steps[:, ray]):
                    reach = column * step
                    reach -= self._share
                    leaders = _leaders(reach)
                    self._leaders[epsilon, ray] = leaders
                    self._reaches[epsilon, ray] = reach[leaders]

    def chosen(self, centres: Floats, t: float | None, coins: Floats) -> Ints:
        """Return the nearest word of each point, or by Vickrey's coin one of the nearest two.

        Centres are (k, n), ``t`` as in :func:`vickrey_probability`, coins (r,); words (k, e, r).
        """
        coins = np.tile(coins, len(self._lengths))
        choice = 1 if t is None else 2
        words = np.empty((len(centres), coins.size), dtype=np.int64)
        # Points that leading words do not settle.
        rows: list[Ints] = []
        columns: list[Ints] = []
        points: list[Floats] = []
        products = words_times(self._search.vectors, centres.astype(np.float32))
        starts = np.ascontiguousarray(products.T)
        starts -= self._share
        for row, (centre, start) in enumerate(zip(centres, starts, strict=True)):
            parts = zip(*self._candidates(centre, start, choice), strict=True)
            owners, candidates = (np.concatenate(part) for part in parts)
            counts = np.bincount(owners, minlength=coins.size)
            words[row, owners] = candidates
            several = np.flatnonzero(counts > 1)  # chosen among as the mechanism itself does
            among = counts[owners] > 1
            disputed = self._points(centre, several)
            places = np.searchsorted(several, owners[among])
            _, nearest, scores = self._search.settled(disputed, places, candidates[among], choice)
            words[row, several] = nearest[:, 0]
            if t is not None:
                distances = self._search.distances(disputed, nearest, scores)
                words[row, several] = _by_coin(t, coins[several], nearest, distances)
            unsettled = np.flatnonzero(counts == 0)
            rows.append(np.full(len(unsettled), row))
            columns.append(unsettled)
            points.append(self._points(centre, unsettled))
        column = np.concatenate(columns)
        spots = (np.concatenate(rows), column)
        rest = np.concatenate(points)
        if t is None:
            words[spots] = self._search(rest)
        else:
            nearest, distances = self._search.nearest_two(rest)
            words[spots] = _by_coin(t, coins[column], nearest, distances)
        return words.reshape(len(centres), *self._lengths.shape)

    def _points(self, centre: Floats, numbers: Ints) -> Floats:
        """Return points (c, n) by their numbers: the mechanism's own operations, for its bits."""
        points = self._directions[numbers % len(self._directions)]
        points *= self._lengths.ravel()[numbers, None]
        points += centre
        return points

    def _candidates(
        self, centre: Floats, starts: Floats32, choice: int
    ) -> Iterator[tuple[Ints, NDArray[np.int32]]]:
        """Yield all words that may be among the nearest of each point that leading words settle.

        Each time numbers of points, epsilon * r + ray, and words, (c,) each, for a point all at
        once; ``choice`` is how many nearest words a point needs.
        """
        yield np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        # How far two scores of one point can stray: as for EuclideanNearest, with 9 more terms. The
        # products are of the centre and of the direction; rounding these, the length, the second
        # product with it, the half norm, the three sums and the threshold are paid for by the terms
        # added to n.
        reach = np.sqrt(np.square(centre).sum()) + self._lengths * self._norms
        slack = score_slack(len(centre) + 9, reach, self._search.longest)
        pending = np.ones(self._steps.shape, dtype=np.bool_)
        leading = _leaders(starts)
        for width in _steps(len(starts)):
            leaders = leading[:width]
            offsets = starts[leaders] - self._share[leaders]
            slopes = self._along.take(leaders, axis=0)
            rest = starts.copy()
            rest[leaders] = -np.inf  # looked at once, though they may lead along the ray as well
            best_of_rest = rest.max()
            rays = np.flatnonzero(pending.any(axis=0))
            size = max(1, _CELLS // width)
            for start in range(0, len(rays), size):
                block = rays[start : start + size]
                along = np.ascontiguousarray(slopes[:, block].T)
                for epsilon, step in enumerate(self._steps):
                    columns = np.flatnonzero(pending[epsilon, block])
                    pending_rays = block[columns]
                    near = along[columns]
                    near *= step[pending_rays, None]
                    near += offsets
                    ray_leaders = self._leaders[epsilon][pending_rays, :width]
                    far = self._reaches[epsilon][pending_rays, :width]
                    # Rounding is monotonous: no other word's score is above this.
                    best_elsewhere = far[:, -1] + best_of_rest
                    far += rest.take(ray_leaders)
                    peaks = np.full((len(pending_rays), choice), -np.inf, dtype=np.float32)
                    best = largest(largest(peaks, near), far)
                    floor = best.min(axis=1) - slack[epsilon, pending_rays]
                    is_settled = best_elsewhere < floor
                    least = np.where(is_settled, floor, np.float32(np.inf))[:, None]
                    # Flat: NumPy finds the nonzeros of one dimension several times as fast.
                    near_cells = np.flatnonzero(near >= least)
                    far_cells = np.flatnonzero(far >= least)
                    pending[epsilon, pending_rays[is_settled]] = False
                    numbers = epsilon * len(self._directions) + pending_rays
                    near_words = leaders[near_cells % width]
                    words = np.concatenate([near_words, ray_leaders.ravel()[far_cells]])
                    yield numbers[np.concatenate([near_cells, far_cells]) // width], words


def _by_coin(t: float, coins: Floats, nearest: Ints, distances: Floats) -> Ints:
    """Choose the nearest word (p,) of two (p, 2), or by Vickrey's coin the second nearest."""
    first, second = nearest.T
    words: Ints = np.where(coins < vickrey_probability(t, distances), first, second)
    return words


def _steps(words: int) -> tuple[int, ...]:
    """Return the numbers of leaders worth a look before all words are looked at."""
    return tuple(k for k in LEADERS if 16 * k <= words)


def _leaders(scores: Floats32) -> NDArray[np.int32]:
    """Return the words that lead by their scores (V,): of each step's, the least comes last."""
    steps = _steps(len(scores))
    k = max(steps, default=0)
    sample = scores[::_STRIDE]
    about = k // _STRIDE + k // (4 * _STRIDE) + 8
    leaders = np.zeros(0, dtype=np.int64)
    if about < len(sample):
        threshold = np.partition(sample, len(sample) - about)[-about]
        leaders = np.flatnonzero(scores >= threshold)
    if len(leaders) < k:  # the sample was not like all words, or there are few
        threshold = np.partition(scores, len(scores) - k)[-k]
        leaders = np.flatnonzero(scores >= threshold)
    if steps:
        places = np.array(steps, dtype=np.intp) - 1
        leaders = leaders[np.argpartition(-scores[leaders], places)]
    return leaders[:k].astype(np.int32)


def cells(words: int, epsilons: int) -> int:
    """Return how many numbers a ray takes room for."""
    return words + 2 * epsilons * max(_steps(words), default=0)
