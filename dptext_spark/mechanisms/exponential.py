"""Words drawn straight from a law that falls off with their distance: ``exponential``.

Of every word that comes in, the near words are listed once with their weights; all others, the far words,
have one bound of their weights. Rounds follow each other: a listed word is proposed by its weight, a far one
by the bound. A listed word is the output. Of a far one the distance is computed, and it is the output with
the probability of its weight over the bound; else the next round proposes. So every word has its exact
weight in a round, and in the output, whatever is listed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import Lock
from typing import ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dptext_spark.accounting.laws import BoundedRange
from dptext_spark.accounting.resolution import proposed_word_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, PoincareBall, Space
from dptext_spark.geometry.metric import EuclideanMetric, Metric
from dptext_spark.geometry.products import ExactProduct
from dptext_spark.geometry.rounding import gamma, longest_of
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.mechanism import Law, Mechanism
from dptext_spark.noise import SEED_UNIFORMS, further_uniforms
from dptext_spark.search.exact import WORD_BLOCK
from dptext_spark.search.nearest import Search

DISTANCE_BITS: Final = 30
"""Of a computed distance, at least; see :class:`NearByScreening`."""

# Words that are drawn by one list, as in texts of some ten thousand words; a draw in operations of a product.
_DRAWS_OF_LIST: Final = 10.0
_DRAWING: Final = 3e5


CACHE_BYTES: Final = 256 << 20
"""Memory for the lists of a bound mechanism, one per process."""

EPSILONS: Final = 64
"""So many epsilons of rows have lists at once."""

# What a round takes: the place on the list, which far word, whether it is accepted.
ROUND_UNIFORMS: Final = 3
# Rounds that a token's own uniforms serve, those of one more draw, and how many such draws there are before
# all words are listed.
FIRST_ROUNDS: Final = 16
_MORE_ROUNDS: Final = 32
_MORE: Final = 31

# Words by which a list's length is chosen; how often these proposals may be far words where no shorter list
# is worth it; what a listed word costs, in far proposals of one draw: it is made for several.
_SAMPLE: Final = 2048
_EASY: Final = 0.25
LISTED: Final = 1.0 / 100

# Listed words whose distances are held at once (8 MiB), pairs whose vectors are, matrix rows and words that
# are multiplied at once.
_CELLS: Final = 1 << 20
_PAIRS: Final = 512
_ROWS: Final = 2048
_WORDS: Final = 512

# More than what roundings do to a weight that is not 0, whose exponent is above -746.
_ROUNDINGS: Final = 1e-9

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
        description="distance from which on all words are equally likely; default: none",
    )

    def law(self, dimension: int) -> Law:
        truncate = "none" if self.truncate is None else self.truncate
        return {"law": "exponential", "epsilon": self.epsilon, "truncate": truncate}

    def uniforms_per_token(self, dimension: int) -> int:
        """Those of the first rounds, and the seeds of all later ones."""
        return FIRST_ROUNDS * ROUND_UNIFORMS + SEED_UNIFORMS

    def operations(self, embedding: Embedding, search: Search) -> float:
        """See :meth:`Mechanism.operations`: lists are made by a product with all words."""
        return 2.0 * search.release_words * embedding.dimension / _DRAWS_OF_LIST + _DRAWING

    def bind(self, embedding: Embedding, search: Search) -> ExponentialChoice:
        """Get ready to draw; of the search only the number of released words matters."""
        space, release_words = embedding.space, search.release_words
        near = NearByDifferences(metric=self.metric(embedding), release_words=release_words)
        if isinstance(space, EuclideanSpace):
            half_norms = np.asarray(space.half_norms)[:release_words]
            near = NearByScreening(metric=space.metric(), release_words=release_words, half_norms=half_norms)
        truncate = math.inf if self.truncate is None else self.truncate

        def choice(epsilon: float, size: int) -> ExponentialChoice:
            cache = ListCache.empty(words=len(embedding.words), release_words=release_words, size=size)
            return ExponentialChoice(near=near, epsilon=epsilon, truncate=truncate, cache=cache)

        # Rows that have an epsilon each share the memory for lists.
        at = lru_cache(maxsize=EPSILONS)(partial(choice, size=CACHE_BYTES // EPSILONS))
        return replace(choice(self.epsilon, CACHE_BYTES), at=at)

    def claim(self, embedding: Embedding) -> Claim:
        """Epsilon in the truncated distance, itself a metric.

        For min(d, truncate) the triangle inequality bounds a weight's ratio between two inputs by
        exp(epsilon d / 2), and with every weight their sum's, by as much.
        """
        return Claim(
            epsilon=self.epsilon,
            law=BoundedRange(epsilon=self.epsilon, truncation=self.truncate),
            delta_num=proposed_word_distance(embedding.releasable),
            noise_bits=DISTANCE_BITS,
            truncation=self.truncate,
            euclidean_epsilon=self.epsilon if isinstance(embedding.space, EuclideanSpace) else None,
            source="McSherry and Talwar 2007, Theorem 6, for a metric as in Yue et al. 2021 (SanText) and "
            "Carvalho et al. 2021 (TEM), by the triangle inequality",
        )


# The near words of a word


@dataclass(frozen=True, kw_only=True)
class NearByDifferences:
    """Finds near released words in any metric; what it gives of a word never depends on the other words."""

    metric: Metric
    release_words: int  # how many words, the first rows, may be output

    def __call__(
        self, words: NDArray[np.int64], radii: NDArray[np.float64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """List the released words nearer to distinct words (k,) than their radii (k,).

        Returns:
            For each word the rows, int64 (c,), ascending, and their distances, float64 (c,).
        """
        lists, everything = [], np.arange(self.release_words)
        for word, radius in zip(words, radii, strict=True):
            distances = self.to_rows(word[None], everything)[0]
            near = np.flatnonzero(distances < radius)
            lists.append((near, distances[near]))
        return lists

    def to_rows(self, words: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances of words (k,) to rows (r,), float64 (k, r)."""
        return self.between(np.repeat(words, len(rows)), np.tile(rows, len(words))).reshape(len(words), -1)

    def between(self, words: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances of pairs (t,), by differences: those by which words are near."""
        distances = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS):
            part = slice(start, start + _PAIRS)
            distances[part] = self.metric.between(words[part], rows[part])
        return distances

    def bounds(
        self, words: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound the distances that :meth:`between` computes for pairs (t,), from below and from above.

        A bound that is not finite says nothing.
        """
        distances = self.between(words, rows)
        return distances, distances


@dataclass(frozen=True, kw_only=True)
class NearByScreening(NearByDifferences):
    """Near words in Euclidean distance: a single-precision product rules out the far ones."""

    metric: EuclideanMetric  # without a map
    half_norms: NDArray[np.float32]  # (release_words,), half the squared length of each released row

    def __call__(
        self, words: NDArray[np.int64], radii: NDArray[np.float64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        everything = np.arange(self.release_words)
        part = np.flatnonzero(radii < np.inf)
        lists, rows = self._candidates(words[part], radii[part])
        distances = self.between(words[part][lists], rows)
        near = np.flatnonzero(distances < radii[part][lists])
        starts = np.searchsorted(lists[near], np.arange(1, len(part)))
        short = iter(zip(np.split(rows[near], starts), np.split(distances[near], starts), strict=True))
        return [
            next(short) if radius < np.inf else (everything, self.to_rows(word[None], everything)[0])
            for word, radius in zip(words, radii, strict=True)
        ]

    def _candidates(
        self, words: NDArray[np.int64], radii: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs that may be near, in order: places among the words, and rows of released words.

        The floor is the least score q·y - |y|²/2, as computed, of a word y whose computed distance is below
        the radius. In real numbers that score is (|q|² - d²)/2. It is computed within gamma_(n + 4) (|q| +
        longest)² of that, and more than half of this is to spare (a product in any order is good to gamma_n
        |q||y|, Higham 2002, eq. 3.5; half norm and subtraction cost two roundings more): that pays for the
        roundings of the distance, in double precision, and of this bound. Products that underflow cost the
        last term.
        """
        queries = self.metric.vectors[words]
        terms = queries.shape[1] + 4
        squares = np.square(queries, dtype=np.float64).sum(axis=1)
        slack = gamma(terms) * np.square(np.sqrt(squares) + longest_of(self.half_norms))
        slack += terms * float(np.finfo(np.float32).tiny)
        floor = ((squares - np.square(radii)) / 2 - slack).astype(np.float32)
        floor = np.nextafter(floor, np.float32(-np.inf))
        places, rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for start in range(0, self.release_words, WORD_BLOCK):
            half_norms = self.half_norms[start : start + WORD_BLOCK]
            scores = queries @ self.metric.vectors[start : start + len(half_norms)].T
            scores -= half_norms
            # Not "scores >= floor": what overflows to NaN is no far word.
            hot = np.flatnonzero(~(scores.max(axis=1) < floor))
            if not len(hot):
                continue
            place, row = np.divmod(np.flatnonzero(~(scores[hot] < floor[hot, None])), len(half_norms))
            places.append(hot[place])
            rows.append(row + start)
        joined = np.concatenate(places)
        order = np.argsort(joined, kind="stable")
        return joined[order], np.concatenate(rows)[order]

    def bounds(
        self, words: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound distances by differences in single precision, at a third of the time.

        A difference and its square are good to three roundings and their sum to n - 1 (Higham 2002, eq. 3.5);
        the rest of gamma_(n + 8) pays for the distance in double precision, and for this one. Squares that
        underflow cost the last term.
        """
        squares, vectors = np.empty(len(rows)), self.metric.vectors
        for start in range(0, len(rows), _PAIRS):
            part = slice(start, start + _PAIRS)
            differences = vectors[words[part]]
            differences -= vectors[rows[part]]
            squares[part] = np.einsum("ij,ij->i", differences, differences)
        terms = vectors.shape[1] + 8
        slack = squares * gamma(terms) + terms * float(np.finfo(np.float32).tiny)
        return np.sqrt(np.maximum(squares - slack, 0.0)), np.sqrt(squares + slack)

    def to_rows(self, words: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances (k, r), by products that no order of summation changes.

        Where more than 2^-31 of a distance was lost to cancellation, it is computed by differences.
        """
        points = self.metric.vectors[words].astype(np.float64)
        # Powers of two for each point by itself: the digits it keeps are not the batch's business.
        scales = np.ldexp(1.0, np.frexp(np.abs(points).max(axis=1))[1])
        distances = np.empty((len(words), len(rows)))
        for start in range(0, len(rows), _ROWS):
            block = rows[start : start + _ROWS]
            targets = self.metric.vectors[block].astype(np.float64)
            squares = np.square(points).sum(axis=1)[:, None] + np.square(targets).sum(axis=1)
            unsure = squares == 0.0
            if targets.any():
                product = ExactProduct.of(targets.T)
                squares -= product.times(points / scales[:, None]) * (2.0 * scales[:, None])
                # Factors are good to 2^(-1 - 2 bits) of their scale, squares to n 2^-53 of themselves.
                error = points.shape[1] * 2.0 ** (2 - 2 * product.bits) * np.square(scales + product.scale)
                unsure = squares < 2.0**30 * error[:, None]
            places, close = np.nonzero(unsure)
            part = distances[:, start : start + _ROWS]
            part[:] = np.sqrt(np.maximum(squares, 0.0))
            part[places, close] = self.between(words[places], block[close])
        return distances


# Drawing


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Near words with their shares of a round, list after list, each in ascending order.

    Attributes:
        shares: float64 (c,), cumulative shares of a list's words; what its last one lacks to 1 is that of all
            released words that are not on the list, which are proposed equally often.
        skips: int32 (c,), how many released words before this one are not on its list: word number j of a
            list is in row j + skips.
        starts: int64 (k,), where each list starts.
        lengths: int64 (k,), words on each list.
        radii: float64 (k,), below which words are on the list.
    """

    shares: NDArray[np.float64]
    skips: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    radii: NDArray[np.float64]

    def propose(
        self, lists: NDArray[np.int64], uniforms: NDArray[np.float64], release_words: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Propose one word (t,) for each list (t,) named, by uniforms (t, 2).

        Returns:
            The words, and which of them, ascending, are on no list.
        """
        starts, lengths = self.starts[lists], self.lengths[lists]
        drawn = _at_most(self.shares, starts, lengths, uniforms[:, 0])
        listed = drawn < lengths
        near, far = np.flatnonzero(listed), np.flatnonzero(~listed)
        drawn[near] += self.skips[starts[near] + drawn[near]]
        # Among the words that are not listed, number ``rank`` comes after the listed ones that skip fewer.
        rank = (uniforms[far, 1] * (release_words - lengths[far])).astype(np.int64)
        drawn[far] = rank + _at_most(self.skips, starts[far], lengths[far], rank)
        return drawn, far


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
        lock: Held while the cache is read or changed.
    """

    lists: Lists
    uses: NDArray[np.int64]
    end: int = 0
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def empty(cls, *, words: int, release_words: int, size: int = CACHE_BYTES) -> ListCache:
        """Make a cache of ``size`` bytes, besides 32 bytes a word, that takes memory as it fills."""
        capacity = min(size // 12, words * release_words)
        lists = Lists(
            shares=np.zeros(capacity),
            skips=np.zeros(capacity, dtype=np.int32),
            starts=np.full(words, -1),
            lengths=np.zeros(words, dtype=np.int64),
            radii=np.zeros(words),
        )
        return cls(lists=lists, uses=np.zeros(words, dtype=np.int64))

    def add(self, words: NDArray[np.int64], lists: Lists) -> None:
        """Keep the lists of words (k,), one after the other, if they fit at all."""
        size, capacity, held = len(lists.shares), len(self.lists.shares), self.lists
        if size > capacity:
            return
        if self.end + size > capacity:
            self._drop(min(capacity // 2, capacity - size))
        held.shares[self.end : self.end + size] = lists.shares
        held.skips[self.end : self.end + size] = lists.skips
        held.starts[words] = self.end + lists.starts
        held.lengths[words] = lists.lengths
        held.radii[words] = lists.radii
        self.end += size

    def _drop(self, room: int) -> None:
        """Drop the least used lists, until the others fit into ``room``, and close the gaps."""
        starts, lengths = self.lists.starts, self.lists.lengths
        held = np.flatnonzero(starts >= 0)
        held = held[np.argsort(-self.uses[held], kind="stable")]
        kept = held[np.cumsum(lengths[held]) <= room]
        kept = kept[np.argsort(starts[kept], kind="stable")].tolist()
        places = {word: int(starts[word]) for word in kept}
        starts[held] = -1
        self.end = 0
        for word, place in places.items():
            length = int(lengths[word])
            for values in (self.lists.shares, self.lists.skips):
                values[self.end : self.end + length] = values[place : place + length]
            starts[word] = self.end
            self.end += length
        self.uses >>= 1


@dataclass(frozen=True, kw_only=True)
class ExponentialChoice:
    """The exponential mechanism bound to an embedding; see :class:`Perturbation`.

    The cache saves time and changes nothing: a word's list is the same whenever it is made.

    Attributes:
        near: Finds near words.
        epsilon: The mechanism's.
        truncate: From this distance on all words are equally likely; infinity for none.
        cache: Lists that are made.
        listed: What a word on a list costs; see ``LISTED``.
        at: Gives the same at another epsilon.
    """

    near: NearByDifferences
    epsilon: float
    cache: ListCache
    truncate: float = math.inf
    listed: float = LISTED
    at: Callable[[float], ExponentialChoice] | None = None

    def __call__(
        self,
        words: NDArray[np.int64],
        uniforms: NDArray[np.float64],
        epsilons: NDArray[np.float64] | None = None,
    ) -> NDArray[np.int64]:
        """Draw a released word for each word."""
        drawn = np.empty(len(words), dtype=np.int64)
        if epsilons is not None and self.at is not None:
            for epsilon in np.unique(epsilons).tolist():
                own = np.flatnonzero(epsilons == epsilon)
                drawn[own] = self.at(epsilon)(words[own], uniforms[own])
            return drawn
        with self.cache.lock:
            np.add.at(self.cache.uses, words, 1)
            known = self.cache.lists.starts[words] >= 0
            drawn[known] = self._draw(self.cache.lists, words[known], words[known], uniforms[known])
            new = np.flatnonzero(~known)
            distinct, places = np.unique(words[new], return_inverse=True)
            for group, radii in self._groups(distinct):
                lists = self.lists(distinct[group], radii)
                self.cache.add(distinct[group], lists)
                chosen = np.flatnonzero((places >= group.start) & (places < group.stop))
                own = new[chosen]
                drawn[own] = self._draw(lists, places[chosen] - group.start, words[own], uniforms[own])
                del lists  # before the next are made
        return drawn

    def _groups(self, words: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Cut words into groups whose lists fit bounded memory, with the radii of their lists."""
        for start in range(0, len(words), _WORDS):
            radii, sizes = self.reach(words[start : start + _WORDS])
            full = np.cumsum(sizes) // _CELLS
            borders = [0, *(np.flatnonzero(np.diff(full)) + 1).tolist(), len(radii)]
            for first, last in itertools.pairwise(borders):
                yield slice(start + first, start + last), radii[first:last]

    def _draw(
        self,
        lists: Lists,
        places: NDArray[np.int64],
        words: NDArray[np.int64],
        uniforms: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Draw for words (t,), whose lists are at these places, round after round."""
        drawn = np.empty(len(words), dtype=np.int64)
        left = np.arange(len(words))
        numbers, seeds = uniforms[:, :-SEED_UNIFORMS], uniforms[:, -SEED_UNIFORMS:]
        count = _MORE_ROUNDS * ROUND_UNIFORMS
        for more in range(_MORE + 1):
            rows = np.arange(len(left))
            for first in range(0, numbers.shape[1], ROUND_UNIFORMS):
                if not len(left):
                    return drawn
                own = numbers[rows, first : first + ROUND_UNIFORMS]
                drawn[left] = found = self.round(lists, places[left], words[left], own)
                rejected = np.flatnonzero(found < 0)
                rows, left = rows[rejected], left[rejected]
            numbers = further_uniforms(seeds[left], more * count, count)
        for row, place in zip(numbers, left.tolist(), strict=True):
            word = words[place : place + 1]
            complete = self.lists(word, np.full(1, self.truncate))
            drawn[place : place + 1] = self.round(complete, np.zeros(1, dtype=np.int64), word, row[None])
        return drawn

    def round(
        self,
        lists: Lists,
        places: NDArray[np.int64],
        words: NDArray[np.int64],
        uniforms: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Propose a word for each word (t,), by uniforms (t, 3); -1 where it is not accepted.

        A far word is accepted where the last uniform is below its weight over the bound at the list's radius.
        Bounds of the distances decide nearly all; where they do not, the distances do.
        """
        drawn, far = lists.propose(places, uniforms, self.near.release_words)
        far = far[lists.radii[places[far]] < self.truncate]
        pairs, radii, last = (words[far], drawn[far]), lists.radii[places[far]], uniforms[far, 2]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            least, most = self.near.bounds(*pairs)
            accepted = last < self._weights(most, radii) * (1.0 - _ROUNDINGS)
            rejected = last >= self._weights(least, radii) * (1.0 + _ROUNDINGS)
            unsure = np.flatnonzero(~(accepted | rejected))
            distances = self.near.between(pairs[0][unsure], pairs[1][unsure])
            accepted[unsure] = last[unsure] < self._weights(distances, radii[unsure])
        drawn[far[~accepted]] = -1
        return drawn

    def _weights(self, distances: NDArray[np.float64], radii: NDArray[np.float64]) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = np.exp(
            (np.minimum(distances, self.truncate) - radii) * (-self.epsilon / 2.0)
        )
        return weights

    def reach(self, words: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Choose by cost how far the lists of distinct words (k,) reach.

        Near and far words are counted in a sample of the released words. A far proposal costs a distance; a
        listed word costs ``listed`` of that, for a list serves many draws. Where all words are listed, up to
        the truncation, nothing is rejected.

        Returns:
            Radii, float64 (k,), and about how many words are nearer, float64 (k,).
        """
        wanted = min(max(self.near.release_words // 32, 256), _SAMPLE)
        sample = np.arange(0, self.near.release_words, -(-self.near.release_words // wanted))
        step = self.near.release_words / len(sample)
        own = words < self.near.release_words
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            distances = self.near.to_rows(words, sample)
            np.minimum(distances, self.truncate, out=distances)
            distances[sample == words[:, None]] = np.inf  # it counts by itself
            # Weights relative to that of the nearest, which is 1 whatever epsilon.
            least = np.where(own, 0.0, distances.min(axis=1))
            total = np.exp((distances - least[:, None]) * (-self.epsilon / 2.0)).sum(axis=1) * step + own
            # No farther than where far words are hardly ever proposed.
            easy = least + np.log(self.near.release_words / (_EASY * total)) * (2.0 / self.epsilon)
            ranks = [rank for rank in 2 ** np.arange(9) if rank < len(sample)]
            radii = np.partition(distances, ranks, axis=1)[:, ranks]
            radii = np.minimum(np.minimum(radii, easy[:, None]), self.truncate)
            radii = np.append(radii, np.full((len(words), 1), self.truncate), axis=1)
            sizes = np.stack([(distances < r[:, None]).sum(axis=1) for r in radii.T], axis=1) * step
            sizes += own[:, None]
            bounds = np.exp((radii - least[:, None]) * (-self.epsilon / 2.0)) / total[:, None]
            rejections = np.where(radii < self.truncate, (self.near.release_words - sizes) * bounds, 0.0)
        rows, best = np.arange(len(words)), np.argmin(rejections + self.listed * sizes, axis=1)
        return radii[rows, best], sizes[rows, best]

    def lists(self, words: NDArray[np.int64], radii: NDArray[np.float64]) -> Lists:
        """Make the lists of distinct words (k,) up to their radii (k,)."""
        # Far weights vanish against near ones, and truncation and epsilon may be as large as they like;
        # what overflows while screening stays a candidate.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            near = self.near(words, radii)
            lengths = np.array([len(rows) for rows, _ in near])
            empty = (lengths == 0) & (radii < self.truncate)
            if empty.any():  # how often far words are accepted rests on listed ones
                return self.lists(words, np.where(empty, self.truncate, radii))
            for (_, part), radius in zip(near, radii.tolist(), strict=True):  # distances become shares
                # Weights relative to the greatest one, which is 1 whatever epsilon.
                least = part.min(initial=radius)
                far_words = self.near.release_words - len(part)
                far = far_words * np.exp(self.epsilon * (least - radius) / 2.0) if far_words else 0.0
                part -= least
                part *= -self.epsilon / 2.0
                np.exp(part, out=part)
                np.cumsum(part, out=part)
                part /= part[-1:] + far
        return Lists(
            shares=np.concatenate([shares for _, shares in near]),
            skips=np.concatenate([(rows - np.arange(len(rows))).astype(np.int32) for rows, _ in near]),
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            radii=radii,
        )

    def probabilities(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact output probabilities of words (k,), float64 (k, release_words).

        By the defining formula, from distances by differences: it shares no lists, screening, rounds or cache
        with the draws, so that these can be checked against it. Slow for a large vocabulary.
        """
        rows = np.arange(self.near.release_words)
        distances = np.stack([self.near.between(np.full(len(rows), word), rows) for word in words.tolist()])
        np.minimum(distances, self.truncate, out=distances)
        with np.errstate(over="ignore", under="ignore"):
            weights = np.exp(-self.epsilon / 2.0 * (distances - distances.min(axis=1, keepdims=True)))
            probabilities: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
        return probabilities
