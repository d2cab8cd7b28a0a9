"""The language as an attacker knows it: which word follows which, smoothed, by counts of pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dptext_spark.channel.counts import discount_of, smoothed
from dptext_spark.evaluation.topics import Topics
from dptext_spark.geometry import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class PairCounts:
    """How often words follow each other, each pair once, in ascending order of first and second."""

    first: Ints  # (c,), word ids; V is any token outside the vocabulary, V + 1 the start of a row
    second: Ints  # (c,), word ids and V
    count: Ints  # (c,), 1 or more
    vocabulary: int  # V, the number of words

    @classmethod
    def of(cls, first: Ints, second: Ints, count: Ints, *, vocabulary: int) -> PairCounts:
        """Add up counts (c,) of pairs that may come several times."""
        keys, places = np.unique(first * (vocabulary + 2) + second, return_inverse=True)
        total = np.zeros(len(keys), dtype=np.int64)
        np.add.at(total, places, count)
        first, second = np.divmod(keys, vocabulary + 2)
        return cls(first=first, second=second, count=total, vocabulary=vocabulary)

    @classmethod
    def of_rows(cls, words: Ints, offsets: Ints, *, vocabulary: int) -> PairCounts:
        """Count the pairs of rows of words (t,), -1 for a token outside the vocabulary."""
        second = np.where(words < 0, vocabulary, words)
        first = before(second, offsets, start=vocabulary + 1)
        return cls.of(first, second, np.ones(len(words), dtype=np.int64), vocabulary=vocabulary)

    def __add__(self, other: PairCounts) -> PairCounts:
        """Add the pairs of other rows."""
        return PairCounts.of(
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
            np.concatenate([self.count, other.count]),
            vocabulary=self.vocabulary,
        )

    def __sub__(self, other: PairCounts) -> PairCounts:
        """Take away the pairs of some of the rows."""
        rest = self + replace(other, count=-other.count)
        is_left = rest.count > 0
        return PairCounts(
            first=rest.first[is_left],
            second=rest.second[is_left],
            count=rest.count[is_left],
            vocabulary=self.vocabulary,
        )

    @property
    def words(self) -> Ints:
        """How often each word came, int64 (V + 1,), tokens outside the vocabulary last."""
        words = np.zeros(self.vocabulary + 1, dtype=np.int64)
        np.add.at(words, self.second, self.count)
        return words

    @property
    def distinct(self) -> Ints:
        """The words of the vocabulary that came, ascending."""
        return np.flatnonzero(self.words[:-1])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class BigramModel:
    """P[second | first] = back_off[first] lower[second], plus ``beyond`` for pairs seen."""

    # (V + 1,), a probability of each word; V stands for tokens outside the vocabulary.
    lower: Floats
    back_off: Floats  # (V + 2,), by first word; V + 1 is the start of a row
    keys: Ints  # (c,), first * (V + 2) + second of the pairs seen, ascending
    beyond: Floats  # (c,), what they have beyond the first term

    @classmethod
    def of(cls, pairs: PairCounts) -> BigramModel:
        """Smooth counts by interpolation with absolute discounting; no pair has a probability of 0.

        Source: Kneser and Ney 1995, with the interpolation and the discount n1 / (n1 + 2 n2) of
        Chen and Goodman 1999, sections 2.7 and 2.8: ``lower`` counts the words before a word, not
        the word.
        """
        states = pairs.vocabulary + 2
        discount = discount_of(pairs.count)
        total = np.bincount(pairs.first, weights=pairs.count, minlength=states)
        followers = np.bincount(pairs.first, minlength=states)
        divisor = np.maximum(total, 1.0)
        precursors = np.bincount(pairs.second, minlength=pairs.vocabulary + 1)
        back_off = np.where(total > 0, discount * followers / divisor, 1.0)
        return cls(
            lower=smoothed(precursors),
            back_off=back_off,
            keys=pairs.first * states + pairs.second,
            beyond=(pairs.count - discount) / divisor[pairs.first],
        )

    def probability(self, first: Ints, second: Ints) -> Floats:
        """P[second | first] of pairs, arrays that go together."""
        keys = first * len(self.back_off) + second
        at = self._index.get_indexer(keys.ravel()).reshape(keys.shape)  # -1 where it was not seen
        beyond = np.append(self.beyond, 0.0)[at]
        return np.asarray(self.back_off[first] * self.lower[second] + beyond)

    def seen(self, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints, Floats]:
        """Return the pairs seen of words (p, i) and (p, j): p, i, j and ``beyond``, (f,).

        Words of one p differ from each other; negative ones are none.
        """
        states = len(self.back_off)
        # Where each word is among the second ones: only words that follow are looked up.
        place_of = np.full((len(second), states), -1, dtype=np.int32)
        row, place = np.nonzero(second >= 0)
        place_of[row, second[row, place]] = place
        words = np.where(first < 0, states, first).ravel()  # a word without followers
        followers = self.followers(words)
        ends = np.cumsum(followers)
        at = np.arange(followers.sum()) + np.repeat(
            self._starts[words] - ends + followers, followers
        )
        pair = np.repeat(np.arange(len(first)), followers.reshape(first.shape).sum(axis=1))
        j = place_of.ravel()[pair * states + self._seconds[at]]
        places = np.flatnonzero(j >= 0)
        pair = pair[places]
        i = np.searchsorted(ends, places, side="right") - pair * first.shape[1]
        return pair, i, j[places].astype(np.int64), self.beyond[at[places]]

    def followers(self, words: Ints) -> Ints:
        """Count the words seen after each word, int64; none after a negative one."""
        places = np.where(words < 0, len(self.back_off), words)
        return np.asarray(self._starts[places + 1] - self._starts[places])

    @cached_property
    def _starts(self) -> Ints:
        """Where each word's pairs start among the keys, int64 (V + 4,); the last word has none."""
        states = len(self.back_off)
        return np.searchsorted(self.keys, np.arange(states + 2) * states)

    @cached_property
    def _seconds(self) -> Ints:
        """The second words of the keys, int64 (c,)."""
        return self.keys % len(self.back_off)

    @cached_property
    def _index(self) -> Any:
        import pandas as pd  # slow to load

        return pd.Index(self.keys)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class TrigramModel:
    """P[third | first second] = back_off[first second] P[third | second], plus ``beyond``.

    The last term is for triples that were seen.
    """

    pairs: BigramModel  # the lower order
    contexts: Ints  # (m,), first * (V + 2) + second of pairs that something followed, ascending
    back_off: Floats  # (m,), of each of them; 1 of all others
    keys: Ints  # (c,), context * (V + 2) + third of the triples seen, ascending
    beyond: Floats  # (c,), what they have beyond the first term

    @classmethod
    def of(cls, words: Ints, offsets: Ints, pairs: BigramModel) -> TrigramModel:
        """Count the triples of rows of words (t,), -1 outside the vocabulary, and smooth them.

        Two starts of a row precede its first word. Source: as for :meth:`BigramModel.of`.
        """
        states = len(pairs.back_off)
        third = np.where(words < 0, states - 2, words)
        second = before(third, offsets, start=states - 1)
        first = before(second, offsets, start=states - 1)
        contexts, places = np.unique(first * states + second, return_inverse=True)
        keys, count = np.unique(places * states + third, return_counts=True)
        context = keys // states
        discount = discount_of(count)
        total = np.bincount(context, weights=count, minlength=len(contexts))
        followers = np.bincount(context, minlength=len(contexts))
        return cls(
            pairs=pairs,
            contexts=contexts,
            back_off=discount * followers / total,
            keys=keys,
            beyond=(count - discount) / total[context],
        )

    def context(self, first: Ints, second: Ints) -> tuple[Ints, Floats]:
        """Look up pairs, arrays that go together: places, -1 for one not seen, and back-offs."""
        places = self._context_index.get_indexer((first * self._states + second).ravel())
        places = places.reshape(first.shape)
        return places, np.append(self.back_off, 1.0)[places]

    def seen(self, contexts: Ints, third: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the triples seen of contexts (p,), 0 or more, and words (p, k).

        They are p, k and ``beyond``, (f,) each.
        """
        places = self._index.get_indexer((contexts[:, None] * self._states + third).ravel())
        triples = np.flatnonzero(places >= 0)
        context, word = np.divmod(triples, third.shape[1])
        return context, word, self.beyond[places[triples]]

    @property
    def _states(self) -> int:
        """Return V + 2: words, what is outside the vocabulary, and the start of a row."""
        return len(self.pairs.back_off)

    @cached_property
    def _context_index(self) -> Any:
        import pandas as pd  # slow to load

        return pd.Index(self.contexts)

    @cached_property
    def _index(self) -> Any:
        import pandas as pd  # slow to load

        return pd.Index(self.keys)


def before(words: Ints, offsets: Ints, *, start: int) -> Ints:
    """Return the word before each of the words (t,) of rows, ``start`` before the first ones."""
    previous = np.concatenate([[start], words[:-1]])[: len(words)]
    previous[offsets[:-1][np.diff(offsets) > 0]] = start
    return previous


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Language:
    """A language as attackers know it from a corpus."""

    # (V,), how frequent words are, 0 for those that the corpus lacks: they are never guessed.
    words: Floats
    pairs: BigramModel
    triples: TrigramModel
    topics: Topics

    @classmethod
    def learn(cls, counts: PairCounts, words: Ints, offsets: Ints) -> Language:
        """Learn words and pairs from a corpus's counts, longer contexts from its words (t,)."""
        pairs = BigramModel.of(counts)
        return cls(
            words=word_prior(counts),
            pairs=pairs,
            triples=TrigramModel.of(words, offsets, pairs),
            topics=Topics.learn(words, offsets, vocabulary=counts.vocabulary),
        )


def word_prior(counts: PairCounts) -> Floats:
    """Return how likely each word of the vocabulary is, float64 (V,); 0 for words not counted."""
    count = counts.words[:-1]
    likely = np.where(count > 0, smoothed(count), 0.0)
    return np.asarray(likely / max(likely.sum(), np.finfo(np.float64).tiny))
