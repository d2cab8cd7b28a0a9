"""What a row is about: topics that its words share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import scipy

from dptext_spark.geometry import Floats, Ints

TOPICS: Final = 24

_ROUNDS: Final = 30
# Words of a topic that are imagined, by the words' own frequencies; and the weight of each word of
# a row, since words of a row repeat one another's evidence.
_IMAGINED: Final = 20.0
_WEIGHT: Final = 0.7
_LEAST_SHARE: Final = 1e-3

# Of the iteration that finds main axes: its rounds, axes on top, and how short one is that is none.
_ITERATIONS: Final = 12
_MORE_AXES: Final = 12
_LEAST_AXIS: Final = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Topics:
    """A mixture of unigram models: each row has one of K topics, whose law its words follow.

    Source: Nigam, McCallum, Thrun and Mitchell 2000, "Text classification from labeled and
    unlabeled documents using EM", without labels.
    """

    shares: Floats  # (K,)
    ratios: Floats  # (K, V), P[word | topic] / P[word]

    @classmethod
    def learn(cls, words: Ints, offsets: Ints, *, vocabulary: int, count: int = TOPICS) -> Self:
        """Learn from rows of words (t,), -1 outside the vocabulary, by expectation maximization.

        It begins with the rows dealt out by the words that they have most in common with: no random
        start.
        """
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        is_word = words >= 0
        if not is_word.any():
            return cls(shares=np.full(count, 1.0 / count), ratios=np.ones((count, vocabulary)))
        shape = (len(offsets) - 1, vocabulary)
        ones = np.ones(int(is_word.sum()))
        table = scipy.sparse.csr_matrix((ones, (rows[is_word], words[is_word])), shape=shape)
        frequency = np.asarray(table.sum(axis=0)).ravel() + 0.01
        frequency /= frequency.sum()
        belonging = _beginning(table, frequency, count)
        for _ in range(_ROUNDS):
            in_topic = np.asarray((table.T @ belonging).T)
            total = in_topic.sum(axis=1, keepdims=True) + _IMAGINED
            ratios = (in_topic / frequency + _IMAGINED) / total
            shares = belonging.mean(axis=0) + _LEAST_SHARE
            shares /= shares.sum()
            scores = _WEIGHT * np.asarray(table @ np.log(ratios).T) + np.log(shares)
            belonging = np.exp(scores - scipy.special.logsumexp(scores, axis=1, keepdims=True))
        return cls(shares=shares, ratios=ratios)

    def evidence(self, words: Ints, probability: Floats, offsets: Ints) -> Floats:
        """Return ln P[word | the other words of the row] / P[word] for candidates, float64 (t, K).

        ``words`` (t, K) are candidates, V or more or negative where there is none, ``probability``
        (t, K) how likely each is.
        """
        is_word = (words >= 0) & (words < self.ratios.shape[1])
        of_word = np.ascontiguousarray(self.ratios.T)
        ratios = of_word[np.where(is_word, words, 0)]  # (t, K, topics)
        likely = np.where(is_word, probability, 0.0)
        unknown = np.maximum(1.0 - likely.sum(axis=1), 0.0)
        expected = np.matmul(likely[:, None, :], ratios)[:, 0]
        of_token = _WEIGHT * np.log(expected + unknown[:, None])  # (t, topics)
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        of_row = np.zeros((len(offsets) - 1, len(self.shares)))
        np.add.at(of_row, rows, of_token)
        of_rest = of_row[rows] - of_token + np.log(self.shares)
        of_rest -= scipy.special.logsumexp(of_rest, axis=1, keepdims=True)
        evidence = np.log(np.matmul(ratios, np.exp(of_rest)[:, :, None])[:, :, 0])
        return np.asarray(np.where(is_word, evidence, 0.0))


def _beginning(table: scipy.sparse.csr_matrix, frequency: Floats, count: int) -> Floats:
    """Deal rows out to topics by where they lie on the main axes of their words.

    Returns float64 (rows, count).
    """
    rows = table.shape[0]
    weighted = table @ scipy.sparse.diags(1.0 / np.sqrt(frequency))
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    weighted = scipy.sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ weighted
    places = _main_axes(weighted, count // 2)
    places *= np.sign(places.sum(axis=0) + 1e-12)
    both = np.concatenate([places, -places], axis=1)
    belonging = np.full((rows, count), 1.0 / count)
    belonging[np.arange(rows), both.argmax(axis=1)] += 1.0
    return np.asarray(belonging / belonging.sum(axis=1, keepdims=True))


def _main_axes(table: scipy.sparse.csr_matrix, count: int) -> Floats:
    """Locate rows on the main axes of a table, float64 (rows, a), the longest axes first.

    There are at most ``count`` axes, found by subspace iteration from rows that lie evenly: a
    Lanczos solver draws at random where it stops short.
    """
    rows = np.flatnonzero(np.diff(table.indptr))
    start = np.linspace(0, len(rows) - 1, min(len(rows), count + _MORE_AXES)).astype(np.int64)
    axes = table[rows[start]].toarray().T
    for _ in range(_ITERATIONS):
        basis, _ = np.linalg.qr(table @ axes)
        axes = np.asarray(table.T @ basis)
    turned, values, _ = np.linalg.svd(axes.T, full_matrices=False)
    values[values < _LEAST_AXIS * values[0]] = 0.0
    return np.asarray((basis @ turned * values)[:, :count])
