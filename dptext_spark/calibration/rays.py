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

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.geometry.products import longest_of, score_slack
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.search.exact import EuclideanNearest, largest

# How many leading words of either part are looked at, step by step, before the search looks at all.
LEADERS: Final = (64, 192, 512, 1536, 4096, 12288)

_CELLS: Final = 1 << 20  # scores held at once (4 MiB)
_CACHE_LINE: Final = 16
_STRIDE: Final = 16  # every so many words are a sample that tells where about k words begin to lead


class NearestOnRays:
    """Finds the words that ``search`` finds, to the last tie, for points on the same rays from many words."""

    def __init__(self, search: EuclideanNearest, directions: Floats, lengths: Floats) -> None:
        """Prepare rays along ``directions`` (r, n), of any length, for ``lengths`` (e, r), by epsilon."""
        self._search, self._directions, self._lengths = search, directions, lengths
        self._norms, self._steps = (
            np.sqrt(np.square(directions).sum(axis=1)),
            lengths.astype(np.float32),
        )
        self._share = np.float32(0.5) * search.half_norms
        self._along = search.vectors @ directions.astype(np.float32).T  # (V, r)
        # The words that lead in the ray's part of the score, and that part, (e, r, k).
        shape = (*lengths.shape, max(_steps(len(self._along)), default=0))
        self._leaders, self._reaches = (
            np.empty(shape, dtype=np.int32),
            np.empty(shape, dtype=np.float32),
        )
        for start in range(0, len(directions), _CACHE_LINE):
            columns = np.ascontiguousarray(self._along[:, start : start + _CACHE_LINE].T)
            for ray, column in enumerate(columns, start):
                for epsilon, step in enumerate(self._steps[:, ray]):
                    reach = column * step
                    reach -= self._share
                    self._leaders[epsilon, ray] = leading = _leaders(reach)
                    self._reaches[epsilon, ray] = reach[leading]

    def chosen(self, centres: Floats, t: float | None, coins: Floats) -> Ints:
        """Find the nearest word of each point, or by Vickrey's coin the nearest or the second nearest.

        Centres are (k, n), ``t`` as in :func:`vickrey_probability`, coins (r,); words (k, e, r).
        """
        coins, wanted = np.tile(coins, len(self._lengths)), 1 if t is None else 2
        chosen = np.empty((len(centres), coins.size), dtype=np.int64)
        rows, columns, points = [], [], []
        starts = centres.astype(np.float32) @ self._search.vectors.T
        starts -= self._share
        for row, (centre, start) in enumerate(zip(centres, starts, strict=True)):
            parts = zip(*self._candidates(centre, start, wanted), strict=True)
            owners, words = (np.concatenate(part) for part in parts)
            counts = np.bincount(owners, minlength=coins.size)
            chosen[row, owners] = words
            several = np.flatnonzero(counts > 1)  # chosen among as the mechanism itself does
            pairs = counts[owners] > 1
            at, own = self._points(centre, several), np.searchsorted(several, owners[pairs])
            _, nearest, scores = self._search.settled(at, own, words[pairs], wanted)
            if t is not None:
                far = self._search.distances(at, nearest, scores)
                nearest[:, 0] = np.where(coins[several] < vickrey_probability(t, far), *nearest.T)
            chosen[row, several] = nearest[:, 0]
            columns.append(np.flatnonzero(counts == 0))
            rows.append(np.full(len(columns[-1]), row))
            points.append(self._points(centre, columns[-1]))
        spots, rest = (np.concatenate(rows), np.concatenate(columns)), np.concatenate(points)
        if t is None:
            chosen[spots] = self._search(rest)
        else:
            nearest, far = self._search.nearest_two(rest)
            chosen[spots] = np.where(coins[spots[1]] < vickrey_probability(t, far), *nearest.T)
        return chosen.reshape(len(centres), *self._lengths.shape)

    def _points(self, centre: Floats, numbers: Ints) -> Floats:
        """Points (c, n) by their numbers: the mechanism's own operations, in its order, for its bits."""
        points = self._directions[numbers % len(self._directions)]
        points *= self._lengths.ravel()[numbers, None]
        points += centre
        return points

    def _candidates(
        self, centre: Floats, starts: Floats32, wanted: int
    ) -> Iterator[tuple[Ints, NDArray[np.int32]]]:
        """Find all words that may be among the nearest of each point that leading words settle.

        Yields numbers of points, epsilon * r + ray, and words, (c,) each, for a point all at once.
        """
        yield np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        # How far two scores of one point can stray: as for EuclideanNearest, with 9 more terms. The products
        # are of the centre and of the direction; rounding these, the length, the second product with it, the
        # half norm, the three sums and the threshold are paid for by the terms added to n.
        reach = np.sqrt(np.square(centre).sum()) + self._lengths * self._norms
        slack = score_slack(len(centre) + 9, reach, longest_of(self._search.half_norms))
        left, leading = np.ones(self._steps.shape, dtype=np.bool_), _leaders(starts)
        for width in _steps(len(starts)):
            here, rest = leading[:width], starts.copy()
            rest[here] = -np.inf  # looked at once, though they may lead along the ray as well
            offsets, most, slopes = (
                starts[here] - self._share[here],
                rest.max(),
                self._along.take(here, axis=0),
            )
            rays_left, size = np.flatnonzero(left.any(axis=0)), max(1, _CELLS // width)
            for rays in (
                rays_left[start : start + size] for start in range(0, len(rays_left), size)
            ):
                own = np.ascontiguousarray(slopes[:, rays].T)
                for epsilon, step in enumerate(self._steps):
                    columns = np.flatnonzero(left[epsilon, rays])
                    chosen = rays[columns]
                    near = own[columns]
                    near *= step[chosen, None]
                    near += offsets
                    there = self._leaders[epsilon][chosen, :width]
                    far = self._reaches[epsilon][chosen, :width]
                    others = (
                        far[:, -1] + most
                    )  # rounding is monotonous: no other word's score is above this
                    far += rest.take(there)
                    peaks = np.full((len(chosen), wanted), -np.inf, dtype=np.float32)
                    floor = largest(largest(peaks, near), far).min(axis=1) - slack[epsilon, chosen]
                    done = others < floor
                    least = np.where(done, floor, np.float32(np.inf))[:, None]
                    # Flat, for NumPy finds the nonzeros of one dimension several times as fast as of two.
                    first, second = (np.flatnonzero(scores >= least) for scores in (near, far))
                    left[epsilon, chosen[done]] = False
                    numbers = epsilon * len(self._directions) + chosen
                    words = np.concatenate([here[first % width], there.ravel()[second]])
                    yield numbers[np.concatenate([first, second]) // width], words


def _steps(words: int) -> tuple[int, ...]:
    """Numbers of leaders worth a look before all words are looked at."""
    return tuple(k for k in LEADERS if 16 * k <= words)


def _leaders(scores: Floats32) -> NDArray[np.int32]:
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
    order = (
        np.argpartition(-scores[found], np.array(steps, dtype=np.intp) - 1) if steps else slice(0)
    )
    return found[order][:k].astype(np.int32)


def cells(words: int, epsilons: int) -> int:
    """Numbers that a ray takes room for."""
    return words + 2 * epsilons * max(_steps(words), default=0)
