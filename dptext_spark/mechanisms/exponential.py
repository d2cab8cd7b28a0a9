"""Words drawn straight from a law that falls off with their distance: ``exponential``.

Every word's law is written down once, as a list of its near words with cumulative probabilities; a draw is
a binary search in it. Far words share one probability, so that a list need not name them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dptext_spark.accounting.laws import BoundedRange
from dptext_spark.accounting.resolution import listed_word_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, PoincareBall, Space
from dptext_spark.geometry.metric import EuclideanMetric, Metric
from dptext_spark.geometry.products import ExactProduct
from dptext_spark.geometry.rounding import gamma, longest_of
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.mechanism import ByRung, Law, Mechanism, RungPerturbation
from dptext_spark.search.exact import WORD_BLOCK
from dptext_spark.search.nearest import Search

DISTANCE_BITS: Final = 30
"""Of a computed distance, at least; see :class:`AllByProducts`."""

# A word on a list of all words, in operations of a matrix product; measured at 50 and 300 dimensions.
_LISTING: Final = 3300.0

CACHE_BYTES: Final = 256 << 20
"""Memory for the lists of a bound mechanism, one per process."""

# Distances held at once (32 MiB), pairs whose vectors are, and matrix rows that are multiplied at once.
_CELLS: Final = 1 << 22
_PAIRS: Final = 1024
_ROWS: Final = 2048

KeyT = TypeVar("KeyT", np.float64, np.int64)


class Exponential(Mechanism):
    """P[u | w] proportional to exp(-epsilon min(d(w, u), truncate) / 2) over all released words u.

    Not a candidate list: every released word can come out of every word, or the guarantee would be void.

    Source: McSherry and Talwar 2007, Theorem 6; without truncation SanText (Yue et al. 2021), with it the
    truncated exponential mechanism TEM (Carvalho et al. 2021), whose Gumbel noise draws from this law.
    """

    name: ClassVar[str] = "exponential"
    spaces: ClassVar[tuple[type[Space], ...]] = (EuclideanSpace, PoincareBall)
    # Equal uniforms under two vocabularies give a pair of words that only some inputs can give.
    release_words_shape_law: ClassVar[bool] = True

    truncate: float | None = Field(
        default=None,
        gt=0.0,
        allow_inf_nan=False,
        strict=True,
        description="distance from which on all words are equally likely; default: none, which is far slower",
    )

    def law(self, dimension: int) -> Law:
        truncate = "none" if self.truncate is None else self.truncate
        return {"law": "exponential", "epsilon": self.epsilon, "truncate": truncate}

    def uniforms_per_token(self, dimension: int) -> int:
        """Two: one for the place on the list or the far words together, one for the choice among those."""
        return 2

    def operations(self, embedding: Embedding, search: Search) -> float:
        """See :meth:`Mechanism.operations`; without truncation a word's list has all words."""
        drawn = super().operations(embedding, search)
        return drawn if self.truncate is not None else drawn + _LISTING * search.release_words

    def bind(self, embedding: Embedding, search: Search) -> ExponentialChoice:
        """Get ready to draw; of the search only the number of released words matters."""
        return self._bind(embedding, search, CACHE_BYTES)

    def bind_rungs(self, embedding: Embedding, search: Search, epsilons: Sequence[float]) -> RungPerturbation:
        """See :meth:`Mechanism.bind_rungs`; the rungs share the memory for lists."""
        size = CACHE_BYTES // ByRung.most
        return ByRung(bind=lambda rung: self.at(epsilons[rung])._bind(embedding, search, size))

    def _bind(self, embedding: Embedding, search: Search, size: int) -> ExponentialChoice:
        near, words = self._near_words(embedding, search.release_words), len(embedding.words)
        whole = self.truncate is None
        cache = ListCache.empty(words=words, release_words=near.release_words, whole=whole, size=size)
        return ExponentialChoice(near=near, epsilon=self.epsilon, cache=cache)

    def _near_words(self, embedding: Embedding, release_words: int) -> NearWords:
        metric, space = self.metric(embedding), embedding.space
        radius = math.inf if self.truncate is None else self.truncate
        if not isinstance(space, EuclideanSpace):
            return NearByDifferences(metric=metric, release_words=release_words, radius=radius)
        if self.truncate is None:
            return AllByProducts(metric=space.metric(), release_words=release_words)
        return NearByScreening(
            metric=space.metric(),
            release_words=release_words,
            radius=radius,
            half_norms=space.half_norms[:release_words],
        )

    def claim(self, embedding: Embedding) -> Claim:
        """Epsilon in the truncated distance, itself a metric.

        For min(d, truncate) the triangle inequality bounds a weight's ratio between two inputs by
        exp(epsilon d / 2), and with every weight their sum's, by as much.
        """
        return Claim(
            epsilon=self.epsilon,
            law=BoundedRange(epsilon=self.epsilon, truncation=self.truncate),
            delta_num=listed_word_distance(embedding.releasable),
            noise_bits=DISTANCE_BITS,
            truncation=self.truncate,
            euclidean_epsilon=self.epsilon if isinstance(embedding.space, EuclideanSpace) else None,
            source="McSherry and Talwar 2007, Theorem 6, for a metric as in Yue et al. 2021 (SanText) and "
            "Carvalho et al. 2021 (TEM), by the triangle inequality",
        )


# The near words of a word


@dataclass(frozen=True, kw_only=True)
class Near:
    """Released words near to some words, list after list, each in ascending order.

    Attributes:
        lengths: int64 (k,), words on each list.
        distances: float64 (c,), c the sum of the lengths.
        skips: int32 (c,), how many released words before this one are not on its list: word number j of a
            list is in row j + skips. None where the lists hold all released words.
    """

    lengths: NDArray[np.int64]
    distances: NDArray[np.float64]
    skips: NDArray[np.int32] | None

    @classmethod
    def of(cls, lists: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Near:
        """Join lists, each as rows (ascending) and distances."""
        return cls(
            lengths=np.array([len(rows) for rows, _ in lists]),
            distances=np.concatenate([distances for _, distances in lists]),
            skips=np.concatenate([(rows - np.arange(len(rows))).astype(np.int32) for rows, _ in lists]),
        )

    @classmethod
    def of_all(cls, distances: NDArray[np.float64]) -> Near:
        """Make lists that hold all released words, from distances (k, release_words)."""
        return cls(lengths=np.full(*distances.shape), distances=distances.ravel(), skips=None)


@dataclass(frozen=True, kw_only=True)
class NearWords(ABC):
    """Finds near released words; a word's list does not depend on what else is asked, to the last bit."""

    metric: Metric
    release_words: int  # how many words, the first rows, may be output
    radius: float = math.inf  # words nearer than this are near

    @abstractmethod
    def __call__(self, words: NDArray[np.int64]) -> Near:
        """List the near words of distinct words (k,)."""

    def distances(self, word: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances of one word to rows (r,), by differences."""
        distances = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS):
            part = rows[start : start + _PAIRS]
            distances[start : start + _PAIRS] = self.metric.between(np.full(len(part), word), part)
        return distances

    def within(self, word: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Those of the rows that are near to a word, and their distances."""
        distances = self.distances(word, rows)
        near = np.flatnonzero(distances < self.radius)
        return rows[near], distances[near]


@dataclass(frozen=True, kw_only=True)
class NearByDifferences(NearWords):
    """Near words in any metric."""

    def __call__(self, words: NDArray[np.int64]) -> Near:
        rows = np.arange(self.release_words)
        if self.radius == math.inf:
            return Near.of_all(np.stack([self.distances(word, rows) for word in words.tolist()]))
        return Near.of([self.within(word, rows) for word in words.tolist()])


@dataclass(frozen=True, kw_only=True)
class NearByScreening(NearWords):
    """Near words in Euclidean distance: a single-precision product rules out the far ones."""

    metric: EuclideanMetric  # without a map
    half_norms: NDArray[np.float32]  # (release_words,), half the squared length of each released row

    def __call__(self, words: NDArray[np.int64]) -> Near:
        candidates = zip(words.tolist(), self._candidates(words), strict=True)
        return Near.of([self.within(word, np.flatnonzero(row)) for word, row in candidates])

    def _candidates(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a released word may be near, bool (k, release_words)."""
        queries = self.metric.vectors[words]
        floor = self._floor(queries)[:, None]
        candidates = np.empty((len(words), self.release_words), dtype=np.bool_)
        for start in range(0, self.release_words, WORD_BLOCK):
            half_norms = self.half_norms[start : start + WORD_BLOCK]
            scores = queries @ self.metric.vectors[start : start + len(half_norms)].T
            scores -= half_norms
            # Not "scores >= floor": what overflows to NaN is no far word.
            candidates[:, start : start + WORD_BLOCK] = ~(scores < floor)
        return candidates

    def _floor(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """The least score q·y - |y|²/2, as computed, of a word y whose computed distance is below the radius.

        In real numbers that score is (|q|² - d²)/2. It is computed within gamma_(n + 4) (|q| + longest)² of
        that, and more than half of this is to spare (a product in any order is good to gamma_n |q||y|,
        Higham 2002, eq. 3.5; half norm and subtraction cost two roundings more): that pays for the roundings
        of the distance, in double precision, and of this bound. Products that underflow cost the last term.
        """
        terms = queries.shape[1] + 4
        squares = np.square(queries, dtype=np.float64).sum(axis=1)
        slack = gamma(terms) * np.square(np.sqrt(squares) + longest_of(self.half_norms))
        slack += terms * float(np.finfo(np.float32).tiny)
        floor = ((squares - np.square(np.float64(self.radius))) / 2 - slack).astype(np.float32)
        below: NDArray[np.float32] = np.nextafter(floor, np.float32(-np.inf))
        return below


@dataclass(frozen=True, kw_only=True)
class AllByProducts(NearWords):
    """All released words with their Euclidean distances, by products that no order of summation changes."""

    metric: EuclideanMetric  # without a map

    def __call__(self, words: NDArray[np.int64]) -> Near:
        distances = np.empty((len(words), self.release_words))
        for start in range(0, self.release_words, _ROWS):
            part = distances[:, start : start + _ROWS]
            part[:], unsure = self._by_products(words, slice(start, start + part.shape[1]))
            for row in np.flatnonzero(unsure.any(axis=1)).tolist():
                close = np.flatnonzero(unsure[row])
                part[row, close] = self.distances(int(words[row]), close + start)
        return Near.of_all(distances)

    def _by_products(
        self, words: NDArray[np.int64], rows: slice
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Distances (k, r) to rows, and which of them lost more than 2^-31 of themselves to cancellation."""
        points = self.metric.vectors[words].astype(np.float64)
        targets = self.metric.vectors[rows].astype(np.float64)
        # Powers of two for each point by itself: the digits it keeps are not the batch's business.
        scales = np.ldexp(1.0, np.frexp(np.abs(points).max(axis=1))[1])
        squares = np.square(points).sum(axis=1)[:, None] + np.square(targets).sum(axis=1)
        if not targets.any():
            return np.sqrt(squares), squares == 0.0
        product = ExactProduct.of(targets.T)
        squares -= product.times(points / scales[:, None]) * (2.0 * scales[:, None])
        # Each factor is good to 2^(-1 - 2 bits) of its scale, sums of squares to n 2^-53 of themselves.
        error = points.shape[1] * 2.0 ** (2 - 2 * product.bits) * np.square(scales + product.scale)
        return np.sqrt(np.maximum(squares, 0.0)), squares < 2.0**30 * error[:, None]


# Drawing


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Near words with their probabilities, list after list.

    Attributes:
        shares: float64 (c,), cumulative probabilities of a list's words; what its last one lacks to 1 is
            shared equally by all released words that are not on the list.
        skips: See :class:`Near`.
        starts: int64 (k,), where each list starts.
        lengths: int64 (k,), words on each list.
    """

    shares: NDArray[np.float64]
    skips: NDArray[np.int32] | None
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def draw(
        self, lists: NDArray[np.int64], uniforms: NDArray[np.float64], release_words: int
    ) -> NDArray[np.int64]:
        """Draw one word (t,) from each list (t,) named, by uniforms (t, 2)."""
        starts, lengths = self.starts[lists], self.lengths[lists]
        drawn = _at_most(self.shares, starts, lengths, uniforms[:, 0])
        if self.skips is None:
            return drawn
        listed = drawn < lengths
        near, far = np.flatnonzero(listed), np.flatnonzero(~listed)
        drawn[near] += self.skips[starts[near] + drawn[near]]
        # Among the words that are not listed, number ``rank`` comes after the listed ones that skip fewer.
        rank = (uniforms[far, 1] * (release_words - lengths[far])).astype(np.int64)
        drawn[far] = rank + _at_most(self.skips, starts[far], lengths[far], rank)
        return drawn


def _at_most(
    values: NDArray[np.float64] | NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    keys: NDArray[KeyT],
) -> NDArray[np.int64]:
    """Count the values[start : start + length], ascending, that are at most each key (t,): int64 (t,)."""
    count = np.zeros(len(keys), dtype=np.int64)
    step = 1 << int(lengths.max(initial=0)).bit_length() >> 1
    while step:
        trial = count + step
        fits = trial <= lengths
        fits &= values[starts + np.minimum(trial, lengths) - 1] <= keys
        count += step * fits
        step >>= 1
    return count


@dataclass(kw_only=True)
class ListCache:
    """Lists of words, bounded in memory; when it is full, the least used ones go until half of it is free.

    Attributes:
        lists: The lists by word; a start of -1 says that a word has none.
        uses: int64 (V,), how often each word was asked for, halved whenever lists are dropped.
        end: How much of the memory is taken.
        lock: Held by whoever reads or changes the cache.
    """

    lists: Lists
    uses: NDArray[np.int64]
    end: int = 0
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def empty(cls, *, words: int, release_words: int, whole: bool, size: int = CACHE_BYTES) -> ListCache:
        """Make a cache of ``size`` bytes, beside 24 bytes a word, that takes memory as it fills.

        V ``words`` may have a list, of ``release_words`` at most; all lists hold all of these if ``whole``.
        """
        capacity = min(size // (8 if whole else 12), words * release_words)
        lists = Lists(
            shares=np.zeros(capacity),
            skips=None if whole else np.zeros(capacity, dtype=np.int32),
            starts=np.full(words, -1),
            lengths=np.zeros(words, dtype=np.int64),
        )
        return cls(lists=lists, uses=np.zeros(words, dtype=np.int64))

    def add(self, words: NDArray[np.int64], lists: Lists) -> None:
        """Keep the lists of words (k,), one after the other, if they fit at all."""
        size, capacity = len(lists.shares), len(self.lists.shares)
        if size > capacity:
            return
        if self.end + size > capacity:
            self._drop(min(capacity // 2, capacity - size))
        self._write(self.end, lists.shares, lists.skips)
        self.lists.starts[words] = self.end + lists.starts
        self.lists.lengths[words] = lists.lengths
        self.end += size

    def _drop(self, room: int) -> None:
        """Drop the least used lists, until the others fit into ``room``, and close the gaps."""
        held = np.flatnonzero(self.lists.starts >= 0)
        held = held[np.argsort(-self.uses[held], kind="stable")]
        kept = held[np.cumsum(self.lists.lengths[held]) <= room]
        kept = kept[np.argsort(self.lists.starts[kept], kind="stable")]
        old, lengths = self.lists.starts[kept], self.lists.lengths[kept]
        self.lists.starts[held] = -1
        self.lists.starts[kept] = np.cumsum(lengths) - lengths
        moves = zip(self.lists.starts[kept].tolist(), old.tolist(), lengths.tolist(), strict=True)
        for to, start, length in moves:
            part = slice(start, start + length)
            skips = None if self.lists.skips is None else self.lists.skips[part]
            self._write(to, self.lists.shares[part], skips)
        self.end = int(lengths.sum())
        self.uses >>= 1

    def _write(self, to: int, shares: NDArray[np.float64], skips: NDArray[np.int32] | None) -> None:
        self.lists.shares[to : to + len(shares)] = shares
        if self.lists.skips is not None and skips is not None:
            self.lists.skips[to : to + len(skips)] = skips


@dataclass(frozen=True, kw_only=True)
class ExponentialChoice:
    """The exponential mechanism bound to an embedding; see :class:`Perturbation`.

    The cache saves time and changes nothing: a word's list is the same whenever it is made.
    """

    near: NearWords
    epsilon: float
    cache: ListCache

    def __call__(self, words: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw a released word for each word."""
        drawn = np.empty(len(words), dtype=np.int64)
        with self.cache.lock:
            np.add.at(self.cache.uses, words, 1)
            known = self.cache.lists.starts[words] >= 0
            drawn[known] = self.cache.lists.draw(words[known], uniforms[known], self.near.release_words)
            drawn[~known] = self._draw_new(words[~known], uniforms[~known])
        return drawn

    def _draw_new(self, words: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw for words whose lists are still to be made, in groups of bounded memory."""
        drawn = np.empty(len(words), dtype=np.int64)
        distinct, places = np.unique(words, return_inverse=True)
        size = max(1, _CELLS // self.near.release_words)
        for start in range(0, len(distinct), size):
            chosen = np.flatnonzero((places >= start) & (places < start + size))
            group = distinct[start : start + size]
            lists = self.lists(group)
            self.cache.add(group, lists)
            drawn[chosen] = lists.draw(places[chosen] - start, uniforms[chosen], self.near.release_words)
            del lists  # before the next are made
        return drawn

    def lists(self, words: NDArray[np.int64]) -> Lists:
        """Make the lists of distinct words (k,)."""
        # Far weights vanish against near ones, and truncation and epsilon may be as large as they like;
        # what overflows while screening stays a candidate.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            near = self.near(words)
            starts = np.cumsum(near.lengths) - near.lengths
            shares = near.distances  # overwritten list by list
            for start, length in zip(starts.tolist(), near.lengths.tolist(), strict=True):
                part, radius = shares[start : start + length], self.near.radius
                # Weights relative to the greatest one, which is 1 whatever epsilon.
                least = part.min(initial=radius)
                far_words = self.near.release_words - length
                far = far_words * np.exp(self.epsilon * (least - radius) / 2.0) if far_words else 0.0
                part -= least
                part *= -self.epsilon / 2.0
                np.exp(part, out=part)
                np.cumsum(part, out=part)
                part /= part[-1:] + far
        return Lists(shares=shares, skips=near.skips, starts=starts, lengths=near.lengths)

    def probabilities(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact output probabilities of words (k,), float64 (k, release_words).

        By the defining formula, from distances by differences: it shares no lists, screening or cache with
        the draws, so that these can be checked against it. Slow for a large vocabulary.
        """
        rows = np.arange(self.near.release_words)
        distances = np.stack([self.near.distances(word, rows) for word in words.tolist()])
        np.minimum(distances, self.near.radius, out=distances)
        with np.errstate(over="ignore", under="ignore"):
            weights = np.exp(-self.epsilon / 2.0 * (distances - distances.min(axis=1, keepdims=True)))
            probabilities: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
        return probabilities
