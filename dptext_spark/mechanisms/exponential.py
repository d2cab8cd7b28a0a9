"""Words drawn straight from a law that falls off with their distance: ``exponential``.

For every input word, the near words are listed once with their weights; all others, the far
words, have one bound of their weights. Rounds follow each other: a listed word is proposed by its
weight, a far one by the bound. A listed word is the output. Of a far one the distance is computed,
and it is the output with the probability of its weight over the bound; else the next round
proposes. So every word has its exact weight in a round, and in the output, whatever is listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.accounting.laws import BoundedRange
from dptext_spark.accounting.resolution import proposed_word_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, PoincareBall, Space
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.geometry.metric import EuclideanMetric, Metric
from dptext_spark.geometry.products import ExactProduct, gamma, longest_of
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.mechanism import NUMBER, Mechanism, NoiseParameters
from dptext_spark.noise import SEED_UNIFORMS, further_uniforms
from dptext_spark.search.exact import WORD_BLOCK
from dptext_spark.search.nearest import Search

DISTANCE_BITS: Final = 30
"""Minimum number of correct bits of a computed distance; see :class:`NearByScreening`."""

CACHE_BYTES: Final = 256 << 20
"""Memory for the lists of a bound mechanism, one per process; the epsilons of rows share it."""
EPSILONS: Final = 64

# Uniforms of a round: the place on the list, which far word, whether it is accepted. A token's own
# uniforms serve its first rounds and a further draw some more; after so many draws all words are
# listed.
ROUND_UNIFORMS: Final = 3
FIRST_ROUNDS: Final = 16
_MORE_ROUNDS: Final = 32
_MORE: Final = 31

# Words by which a list's length is chosen; how often far words may be proposed where no shorter
# list is worth it; what a listed word costs, in far proposals of one draw: it is made for several.
_SAMPLE: Final = 2048
_EASY: Final = 0.25
LISTED: Final = 1.0 / 100

# Listed words whose distances are held at once (8 MiB), pairs whose vectors are, matrix rows and
# words that are multiplied at once.
_CELLS: Final = 1 << 20
_PAIRS: Final = 512
_ROWS: Final = 2048
_WORDS: Final = 512

# More than what roundings do to a weight that is not 0, whose exponent is above -746.
_ROUNDINGS: Final = 1e-9

# Words that are drawn by one list, as in texts of some ten thousand words; a draw in operations of
# a product.
_DRAWS_OF_LIST: Final = 10.0
_DRAWING: Final = 3e5


class Exponential(Mechanism):
    """P[u | w] proportional to exp(-epsilon min(d(w, u), truncate) / 2) over all released words u.

    It is no candidate list: every released word can replace every word; otherwise the guarantee
    would be void. Which words are released follows from policy and bundle alone.

    Source: McSherry and Talwar 2007, Theorem 6; without truncation SanText (Yue et al. 2021), with
    it the truncated exponential mechanism TEM (Carvalho et al. 2021), whose Gumbel noise draws from
    this law.
    """

    name: ClassVar[str] = "exponential"
    spaces: ClassVar[tuple[type[Space], ...]] = (EuclideanSpace, PoincareBall)
    # Equal uniforms under two vocabularies give a pair of words that only some inputs can give.
    release_words_shape_law: ClassVar[bool] = True

    truncate: float | None = NUMBER(
        default=None,
        gt=0.0,
        description="distance from which on all words are equally likely; default: none",
    )

    def noise_parameters(self, dimension: int) -> NoiseParameters:
        truncate: float | str = "none"
        if self.truncate is not None:
            truncate = self.truncate
        return {"law": "exponential", "epsilon": self.epsilon, "truncate": truncate}

    def uniforms_per_token(self, dimension: int) -> int:
        return FIRST_ROUNDS * ROUND_UNIFORMS + SEED_UNIFORMS

    def operations(self, embedding: Embedding, search: Search) -> float:
        return 2.0 * search.release_words * embedding.dimension / _DRAWS_OF_LIST + _DRAWING

    def bind(self, embedding: Embedding, search: Search) -> ExponentialChoice:
        """Bind to an embedding; of the search only the released words matter."""
        space = embedding.space
        outputs = search.outputs
        released = len(outputs)
        word_ids = outputs if search.withheld else None
        near = NearByDifferences(
            metric=self.metric(embedding), release_words=released, word_ids=word_ids
        )
        if isinstance(space, EuclideanSpace):
            near = NearByScreening(
                metric=space.metric(),
                release_words=released,
                word_ids=word_ids,
                half_norms=np.asarray(space.half_norms)[outputs],
            )
        truncate = math.inf
        if self.truncate is not None:
            truncate = self.truncate

        def choice(epsilon: float, size: int = CACHE_BYTES // EPSILONS) -> ExponentialChoice:
            cache = Lists.cache(words=len(embedding.words), release_words=released, size=size)
            return ExponentialChoice(
                near=near,
                epsilon=epsilon,
                truncate=truncate,
                cache=cache,
                outputs=search.release_words,
            )

        return replace(choice(self.epsilon, CACHE_BYTES), at=lru_cache(maxsize=EPSILONS)(choice))

    def claim(self, embedding: Embedding) -> Claim:
        """Return epsilon in the truncated distance, itself a metric.

        For min(d, truncate) the triangle inequality bounds a weight's ratio between two inputs by
        exp(epsilon d / 2), and with every weight their sum's, by as much: whichever words are
        released, as long as they are the same ones for both.
        """
        euclidean_epsilon = None
        if isinstance(embedding.space, EuclideanSpace):
            euclidean_epsilon = self.epsilon
        return Claim(
            epsilon=self.epsilon,
            law=BoundedRange(epsilon=self.epsilon, truncation=self.truncate),
            delta_num=proposed_word_distance(embedding.releasable),
            noise_bits=DISTANCE_BITS,
            truncation=self.truncate,
            euclidean_epsilon=euclidean_epsilon,
            source="McSherry and Talwar 2007, Theorem 6, for a metric as in Yue et al. 2021 "
            "(SanText) and Carvalho et al. 2021 (TEM), by the triangle inequality",
        )


# The near words of a word


@dataclass(frozen=True, kw_only=True)
class NearByDifferences:
    """Finds near released words in any metric; those of a word do not depend on other words.

    Released words have rows, in the order of their ids; words that come in have their ids.
    """

    metric: Metric
    release_words: int  # how many words may be output
    word_ids: Ints | None = (
        None  # of each row, (release_words,); None where they are the first ones
    )

    def ids(self, rows: Ints) -> Ints:
        """Return the ids of released words, by their rows."""
        if self.word_ids is None:
            return rows
        return self.word_ids[rows]

    def are_released(self, words: Ints) -> NDArray[np.bool_]:
        """Return which words may be output, by their ids."""
        if self.word_ids is None:
            return words < self.release_words
        return np.isin(words, self.word_ids)

    def __call__(self, words: Ints, radii: Floats) -> list[tuple[Ints, Floats]]:
        """List for distinct words (k,) the released words nearer than radii (k,), and how far.

        They are in ascending order.
        """
        lists = []
        every = np.arange(self.release_words)
        for word, radius, rows in zip(words, radii, self._candidates(words, radii), strict=True):
            if radius == np.inf:
                lists.append((every, self.to_rows(word[None], every)[0]))
            else:
                distances = self.between(np.full(len(rows), word), rows)
                near = distances < radius
                lists.append((rows[near], distances[near]))
        return lists

    def _candidates(self, words: Ints, radii: Floats) -> Sequence[Ints]:
        """Return for each word the rows, ascending, that may be nearer than a finite radius."""
        return [np.arange(self.release_words)] * len(words)

    def to_rows(self, words: Ints, rows: Ints) -> Floats:
        """Compute distances of words (k,) to rows (r,), float64 (k, r)."""
        distances = self.between(np.repeat(words, len(rows)), np.tile(rows, len(words)))
        return distances.reshape(len(words), -1)

    def between(self, words: Ints, rows: Ints) -> Floats:
        """Compute distances of pairs (t,), by differences: those by which words are near."""
        distances = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS):
            part = slice(start, start + _PAIRS)
            distances[part] = self.metric.between(words[part], self.ids(rows[part]))
        return distances

    def bounds(self, words: Ints, rows: Ints) -> tuple[Floats, Floats]:
        """Bound what :meth:`between` computes for pairs (t,) from both sides; NaN says nothing."""
        distances = self.between(words, rows)
        return distances, distances


@dataclass(frozen=True, kw_only=True)
class NearByScreening(NearByDifferences):
    """Near words in Euclidean distance: a single-precision product rules out the far ones."""

    metric: EuclideanMetric  # without a map
    half_norms: Floats32  # (release_words,), half the squared length of each released row

    def _candidates(self, words: Ints, radii: Floats) -> Sequence[Ints]:
        """Screen the released words.

        A word y at distance d has the score q·y - |y|²/2 = (|q|² - d²)/2, computed within gamma_(n
        + 4) (|q| + longest)² of that: words below (|q|² - r²)/2 less this bound are farther than r.
        More than half of the bound is to spare (a product in any order is good to gamma_n |q||y|,
        Higham 2002, eq. 3.5; half norm and subtraction cost two roundings more) and pays for the
        roundings of the distance and of the bound. Products that underflow cost the last term.
        """
        queries = self.metric.vectors[words].astype(np.float32, copy=False)
        terms = queries.shape[1] + 4
        squares = np.square(queries, dtype=np.float64).sum(axis=1)
        slack = gamma(terms) * np.square(np.sqrt(squares) + longest_of(self.half_norms))
        slack += terms * float(np.finfo(np.float32).tiny)
        finite = np.where(radii < np.inf, radii, 0.0)
        floor = ((squares - np.square(finite)) / 2 - slack).astype(np.float32)
        floor = np.nextafter(floor, np.float32(-np.inf))
        places = []
        rows = []
        for start in range(0, self.release_words, WORD_BLOCK):
            half_norms = self.half_norms[start : start + WORD_BLOCK]
            block = slice(start, start + len(half_norms))
            vectors = self.metric.vectors[block]
            if self.word_ids is not None:
                vectors = self.metric.vectors[self.word_ids[block]]
            scores = queries @ vectors.astype(np.float32, copy=False).T
            scores -= half_norms
            # Not "scores >= floor": what overflows to NaN is no far word.
            hot = np.flatnonzero(~(scores.max(axis=1) < floor))
            place, row = np.divmod(
                np.flatnonzero(~(scores[hot] < floor[hot, None])), len(half_norms)
            )
            places.append(hot[place])
            rows.append(row + start)
        word_places = np.concatenate(places)
        order = np.argsort(word_places, kind="stable")
        ends = np.cumsum(np.bincount(word_places, minlength=len(words)))
        return np.split(np.concatenate(rows)[order], ends[:-1])

    def bounds(self, words: Ints, rows: Ints) -> tuple[Floats, Floats]:
        """Bound distances by differences in single precision, at a third of the time.

        A difference and its square are good to three roundings and their sum to n - 1 (Higham 2002,
        eq. 3.5); the rest of gamma_(n + 8) pays for both distances. Squares that underflow cost the
        last term.
        """
        vectors = self.metric.vectors
        squares = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS):
            part = slice(start, start + _PAIRS)
            differences = vectors[words[part]].astype(np.float32, copy=False)
            differences -= vectors[self.ids(rows[part])]
            squares[part] = np.einsum("ij,ij->i", differences, differences)
        terms = vectors.shape[1] + 8
        slack = squares * gamma(terms) + terms * float(np.finfo(np.float32).tiny)
        return np.sqrt(np.maximum(squares - slack, 0.0)), np.sqrt(squares + slack)

    def to_rows(self, words: Ints, rows: Ints) -> Floats:
        """Compute distances (k, r), by products that no order of summation changes.

        Where more than 2^-31 of a distance was lost to cancellation, it is computed by differences.
        """
        points = self.metric.vectors[words].astype(np.float64)
        # Powers of two for each point by itself: the digits it keeps are not the batch's business.
        scales = np.ldexp(1.0, np.frexp(np.abs(points).max(axis=1))[1])
        distances = np.empty((len(words), len(rows)))
        for start in range(0, len(rows), _ROWS):
            block = rows[start : start + _ROWS]
            targets = self.metric.vectors[self.ids(block)].astype(np.float64)
            squares = np.square(points).sum(axis=1)[:, None] + np.square(targets).sum(axis=1)
            unsure = squares == 0.0
            if targets.any():
                product = ExactProduct.of(targets.T)
                squares -= product.times(points / scales[:, None]) * (2.0 * scales[:, None])
                # Factors are good to 2^(-1 - 2 bits) of their scale, squares to n 2^-53 of
                # themselves.
                unit = points.shape[1] * 2.0 ** (2 - 2 * product.bits)
                error = unit * np.square(scales + product.scale)
                unsure = squares < 2.0**30 * error[:, None]
            places, close = np.nonzero(unsure)
            part = distances[:, start : start + _ROWS]
            part[:] = np.sqrt(np.maximum(squares, 0.0))
            part[places, close] = self.between(words[places], block[close])
        return distances


# Drawing


@dataclass(kw_only=True)
class Lists:
    """Near words with their shares of a round, list after list, each in ascending order.

    Shares add up. What the last one of a list lacks to 1 is that of all released words that are not
    on it, which are proposed equally often. Word number j of a list is in row j + skips.

    A cache has a list for each word, in bounded memory. When it is full it stays as it is: frequent
    words came first.
    """

    shares: Floats  # (c,)
    skips: NDArray[np.int32]  # (c,), released words before this one that are not on its list
    starts: Ints  # (k,), where each list starts; -1 where a word has none
    lengths: Ints  # (k,), words on each list
    radii: Floats  # (k,), below which words are on the list
    end: int = 0  # of a cache's memory that is taken

    @classmethod
    def cache(cls, *, words: int, release_words: int, size: int = CACHE_BYTES) -> Lists:
        """Build a cache of ``size`` bytes, besides 24 a word, that takes memory as it fills."""
        capacity = min(size // 12, words * release_words)
        return cls(
            shares=np.zeros(capacity),
            skips=np.zeros(capacity, dtype=np.int32),
            starts=np.full(words, -1),
            lengths=np.zeros(words, dtype=np.int64),
            radii=np.zeros(words),
        )

    def add(self, words: Ints, lists: Lists) -> None:
        """Keep the lists of words (k,), one after the other, if there is room for them."""
        size = len(lists.shares)
        if self.end + size > len(self.shares):
            return
        self.shares[self.end : self.end + size] = lists.shares
        self.skips[self.end : self.end + size] = lists.skips
        self.starts[words] = self.end + lists.starts
        self.lengths[words] = lists.lengths
        self.radii[words] = lists.radii
        self.end += size

    def propose(self, lists: Ints, uniforms: Floats, release_words: int) -> tuple[Ints, Ints]:
        """Propose a word (t,) of each named list (t,), by uniforms (t, 2).

        Returns:
            The words, and the places of those that are on no list.
        """
        starts = self.starts[lists]
        lengths = self.lengths[lists]
        drawn = _count(self.shares, starts, lengths, uniforms[:, 0])
        is_listed = drawn < lengths
        near = np.flatnonzero(is_listed)
        far = np.flatnonzero(~is_listed)
        drawn[near] += self.skips[starts[near] + drawn[near]]
        # Among the words that are not listed, number ``rank`` comes after the listed ones that skip
        # fewer.
        rank = (uniforms[far, 1] * (release_words - lengths[far])).astype(np.int64)
        drawn[far] = rank + _count(self.skips, starts[far], lengths[far], rank)
        return drawn, far


def _count(
    values: Floats | NDArray[np.int32], starts: Ints, lengths: Ints, keys: Floats | Ints
) -> Ints:
    """Count the values[start : start + length], ascending, that are at most each key (t,).

    Returns:
        int64 (t,).
    """
    count = np.zeros(len(keys), dtype=np.int64)
    step = 1 << int(lengths.max(initial=0)).bit_length() >> 1
    while step:
        trial = count + step
        fits = trial <= lengths
        fits &= values[starts + np.minimum(trial, lengths) - 1] <= keys
        count += step * fits
        step >>= 1
    return count


@dataclass(frozen=True, kw_only=True)
class ExponentialChoice:
    """The exponential mechanism bound to an embedding; see :class:`Perturbation`.

    The cache saves time and changes nothing: a word's list is the same whenever it is made.
    """

    near: NearByDifferences
    epsilon: float
    cache: Lists
    outputs: int  # the words that may be output are among the first so many
    truncate: float = math.inf  # from this distance on all words are equally likely
    listed: float = LISTED  # what a word on a list costs
    at: Callable[[float], ExponentialChoice] | None = None  # the same at another epsilon
    lock: Lock = field(default_factory=Lock)  # held while the cache is read or changed

    def __call__(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Ints:
        """Draw a released word for each word."""
        if epsilons is None or self.at is None:
            return self.near.ids(self._rows(words, uniforms))
        drawn = np.empty(len(words), dtype=np.int64)
        for epsilon in np.unique(epsilons).tolist():
            places = np.flatnonzero(epsilons == epsilon)
            drawn[places] = self.at(epsilon)(words[places], uniforms[places])
        return drawn

    def _rows(self, words: Ints, uniforms: Floats) -> Ints:
        """Draw the row of a released word for each word."""
        drawn = np.empty(len(words), dtype=np.int64)
        with self.lock:
            is_cached = self.cache.starts[words] >= 0
            cached_words = words[is_cached]
            drawn[is_cached] = self._draw(
                self.cache, cached_words, cached_words, uniforms[is_cached]
            )
            new = np.flatnonzero(~is_cached)
            distinct, places = np.unique(words[new], return_inverse=True)
            for start in range(0, len(distinct), _WORDS):
                radii, sizes = self.reach(distinct[start : start + _WORDS])
                # In groups whose lists fit bounded memory.
                borders = np.flatnonzero(np.diff(np.cumsum(sizes) // _CELLS)) + 1
                for group in np.split(start + np.arange(len(radii)), borders):
                    lists = self.lists(distinct[group], radii[group - start])
                    self.cache.add(distinct[group], lists)
                    in_group = np.flatnonzero((places >= group[0]) & (places <= group[-1]))
                    tokens = new[in_group]
                    drawn[tokens] = self._draw(
                        lists, places[in_group] - group[0], words[tokens], uniforms[tokens]
                    )
                    del lists  # before the next are made
        return drawn

    def _draw(self, lists: Lists, places: Ints, words: Ints, uniforms: Floats) -> Ints:
        """Draw for words (t,), whose lists are at these places, round after round."""
        drawn = np.empty(len(words), dtype=np.int64)
        tokens = np.arange(len(words))  # those without a word so far
        numbers = uniforms[:, :-SEED_UNIFORMS]
        seeds = uniforms[:, -SEED_UNIFORMS:]
        count = _MORE_ROUNDS * ROUND_UNIFORMS
        for turn in range(_MORE + 1):
            rows = np.arange(len(tokens))
            for first in range(0, numbers.shape[1], ROUND_UNIFORMS):
                if not len(tokens):
                    return drawn
                of_round = numbers[rows, first : first + ROUND_UNIFORMS]
                drawn[tokens] = self.round(lists, places[tokens], words[tokens], of_round)
                rejected = np.flatnonzero(drawn[tokens] < 0)
                rows = rows[rejected]
                tokens = tokens[rejected]
            numbers = further_uniforms(seeds[tokens], turn * count, count)
        for row, place in zip(numbers, tokens.tolist(), strict=True):
            word = words[place : place + 1]
            complete = self.lists(word, np.full(1, self.truncate))
            drawn[place : place + 1] = self.round(
                complete, np.zeros(1, dtype=np.int64), word, row[None]
            )
        return drawn

    def round(self, lists: Lists, places: Ints, words: Ints, uniforms: Floats) -> Ints:
        """Propose a word for each word (t,), by uniforms (t, 3); -1 where it is not accepted.

        A far word is accepted where the last uniform is below its weight over the bound at the
        list's radius: by bounds of the distances where they decide.
        """
        drawn, far = lists.propose(places, uniforms, self.near.release_words)
        far = far[lists.radii[places[far]] < self.truncate]
        inputs = words[far]
        outputs = drawn[far]
        radii = lists.radii[places[far]]
        last = uniforms[far, 2]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            least, most = self.near.bounds(inputs, outputs)
            accepted = last < self._weights(most, radii) * (1.0 - _ROUNDINGS)
            rejected = last >= self._weights(least, radii) * (1.0 + _ROUNDINGS)
            unsure = np.flatnonzero(~(accepted | rejected))
            distances = self.near.between(inputs[unsure], outputs[unsure])
            accepted[unsure] = last[unsure] < self._weights(distances, radii[unsure])
        drawn[far[~accepted]] = -1
        return drawn

    def _weights(self, distances: Floats, radii: Floats) -> Floats:
        weights: Floats = np.exp(
            (np.minimum(distances, self.truncate) - radii) * (-self.epsilon / 2.0)
        )
        return weights

    def reach(self, words: Ints) -> tuple[Floats, Floats]:
        """Choose by cost how far the lists of distinct words (k,) reach; estimate their lengths.

        A far proposal costs a distance; a listed word costs ``listed`` of that, for a list serves
        many draws. Where all words are listed, up to the truncation, nothing is rejected.
        """
        released = self.near.release_words
        size = min(max(released // 32, 256), _SAMPLE)
        sample = np.arange(0, released, -(-released // size))
        step = released / len(sample)
        is_released = self.near.are_released(words)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            distances = self.near.to_rows(words, sample)
            np.minimum(distances, self.truncate, out=distances)
            # It counts by itself.
            distances[self.near.ids(sample) == words[:, None]] = np.inf
            # Weights relative to that of the nearest, which is 1 whatever epsilon.
            least = np.where(is_released, 0.0, distances.min(axis=1))
            weights = np.exp((distances - least[:, None]) * (-self.epsilon / 2.0))
            total = weights.sum(axis=1) * step + is_released
            # No farther than where far words are hardly ever proposed.
            easy = least + np.log(released / (_EASY * total)) * (2.0 / self.epsilon)
            ranks = [rank for rank in 2 ** np.arange(9) if rank < len(sample)]
            radii = np.partition(distances, ranks, axis=1)[:, ranks]
            radii = np.minimum(np.minimum(radii, easy[:, None]), self.truncate)
            radii = np.append(radii, np.full((len(words), 1), self.truncate), axis=1)
            nearer = [(distances < radius[:, None]).sum(axis=1) for radius in radii.T]
            sizes = np.stack(nearer, axis=1) * step
            sizes += is_released[:, None]
            bounds = np.exp((radii - least[:, None]) * (-self.epsilon / 2.0)) / total[:, None]
            rejections = np.where(radii < self.truncate, (released - sizes) * bounds, 0.0)
        rows = np.arange(len(words))
        best = np.argmin(rejections + self.listed * sizes, axis=1)
        return radii[rows, best], sizes[rows, best]

    def lists(self, words: Ints, radii: Floats) -> Lists:
        """Build the lists of distinct words (k,) up to their radii (k,)."""
        # Far weights vanish against near ones, and truncation and epsilon may be as large as they
        # like; what overflows while screening stays a candidate.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            near = self.near(words, radii)
            lengths = np.array([len(rows) for rows, _ in near])
            empty = (lengths == 0) & (radii < self.truncate)
            if empty.any():  # how often far words are accepted rests on listed ones
                return self.lists(words, np.where(empty, self.truncate, radii))
            # Distances become shares.
            for (_, part), radius in zip(near, radii.tolist(), strict=True):
                # Weights relative to the greatest one, which is 1 whatever epsilon.
                least = part.min(initial=radius)
                far_words = self.near.release_words - len(part)
                far = 0.0
                if far_words:
                    far = far_words * np.exp(self.epsilon * (least - radius) / 2.0)
                part -= least
                part *= -self.epsilon / 2.0
                np.exp(part, out=part)
                np.cumsum(part, out=part)
                part /= part[-1:] + far
        skips = [(rows - np.arange(len(rows))).astype(np.int32) for rows, _ in near]
        return Lists(
            shares=np.concatenate([shares for _, shares in near]),
            skips=np.concatenate(skips),
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            radii=radii,
        )

    def probabilities(self, words: Ints) -> Floats:
        """Compute output probabilities (k, outputs) of words (k,), exactly; slow.

        It is by the defining formula, and shares no lists, screening, rounds or cache with the
        draws, which can be checked against it.
        """
        rows = np.arange(self.near.release_words)
        to_words = [self.near.between(np.full(len(rows), word), rows) for word in words.tolist()]
        distances = np.stack(to_words)
        np.minimum(distances, self.truncate, out=distances)
        nearest = distances.min(axis=1, keepdims=True)
        with np.errstate(over="ignore", under="ignore"):
            weights = np.exp(-self.epsilon / 2.0 * (distances - nearest))
            of_rows = weights / weights.sum(axis=1, keepdims=True)
        probabilities = np.zeros((len(words), self.outputs))
        probabilities[:, self.near.ids(rows)] = of_rows
        return probabilities
