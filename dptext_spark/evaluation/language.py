"""The language as an attacker knows it: which word follows which, smoothed, from counts of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        first = np.concatenate([[vocabulary + 1], second[:-1]])[: len(second)]
        first[offsets[:-1][np.diff(offsets) > 0]] = vocabulary + 1
        return cls.of(first, second, np.ones(len(words), dtype=np.int64), vocabulary=vocabulary)

    def __add__(self, other: PairCounts) -> PairCounts:
        """Add the pairs of other rows."""
        names = ("first", "second", "count")
        both = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in names)
        return PairCounts.of(*both, vocabulary=self.vocabulary)

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
    """P[second | first] = back_off[first] lower[second], plus ``beyond`` for pairs that were seen."""

    lower: (
        Floats  # (V + 1,), a probability of each word; V stands for tokens outside the vocabulary
    )
    back_off: Floats  # (V + 2,), by first word; V + 1 is the start of a row
    keys: Ints  # (c,), first * (V + 2) + second of the pairs seen, ascending
    beyond: Floats  # (c,), what they have beyond the first term

    @classmethod
    def of(cls, pairs: PairCounts) -> BigramModel:
        """Smooth counts by interpolation with absolute discounting; no pair has a probability of 0.

        Source: Kneser and Ney 1995, with the interpolation and the discount n1 / (n1 + 2 n2) of Chen and
        Goodman 1999, sections 2.7 and 2.8: ``lower`` counts the words before a word, not the word.
        """
        states, discount = pairs.vocabulary + 2, discount_of(pairs.count)
        total = np.bincount(pairs.first, weights=pairs.count, minlength=states)
        followers = np.bincount(pairs.first, minlength=states)
        seen = np.maximum(total, 1.0)
        return cls(
            lower=smoothed(np.bincount(pairs.second, minlength=pairs.vocabulary + 1)),
            back_off=np.where(total > 0, discount * followers / seen, 1.0),
            keys=pairs.first * states + pairs.second,
            beyond=(pairs.count - discount) / seen[pairs.first],
        )

    def probability(self, first: Ints, second: Ints) -> Floats:
        """P[second | first] of pairs, arrays that go together."""
        keys = first * len(self.back_off) + second
        at = self._index.get_indexer(keys.ravel()).reshape(keys.shape)  # -1 where it was not seen
        return np.asarray(
            self.back_off[first] * self.lower[second] + np.append(self.beyond, 0.0)[at]
        )

    def seen(self, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints, Floats]:
        """Find the pairs seen among all words of (p, i) and of (p, j): p, i, j and ``beyond``, (f,)."""
        keys = (first * len(self.back_off))[:, :, None] + second[:, None, :]
        at = self._index.get_indexer(keys.ravel())
        places = np.flatnonzero(at >= 0)
        pair, i, j = np.unravel_index(places, keys.shape)
        return pair, i, j, self.beyond[at[places]]

    @cached_property
    def _index(self) -> Any:
        import pandas as pd  # slow to load

        return pd.Index(self.keys)


def discount_of(counts: NDArray[Any]) -> float:
    """Give how much counts (c,) above 0 overstate, strictly between 0 and 1.

    Half an imagined count of one keeps it from the ends. Source: Ney, Essen and Kneser 1994, section 4.
    """
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return (once + 0.5) / (once + 2.0 * twice + 1.0)


def smoothed(counts: Ints) -> Floats:
    """Turn counts (c,) into probabilities above 0: all share equally what is discounted."""
    some = counts > 0
    if not some.any():
        return np.full(len(counts), 1.0 / len(counts))
    discount = discount_of(counts[some])
    shared = discount * np.count_nonzero(some) / len(counts)
    return np.asarray((np.maximum(counts - discount, 0.0) + shared) / counts.sum())
