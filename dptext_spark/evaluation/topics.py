"""What a row is about: topics that its words share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import scipy
from scipy.special import logsumexp

from dptext_spark.geometry import Floats, Ints

TOPICS: Final = 24

_ROUNDS: Final = 30
# Words of a topic that are imagined, by the words' own frequencies; and the weight of each word of a row,
# since words of a row repeat one another's evidence.
_IMAGINED: Final = 20.0
_WEIGHT: Final = 0.7
_LEAST_SHARE: Final = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Topics:
    """A mixture of unigram models: each row has one of K topics, and its words follow the topic's law.

    Source: Nigam, McCallum, Thrun and Mitchell 2000, "Text classification from labeled and unlabeled
    documents using EM", without labels.
    """

    shares: Floats  # (K,)
    ratios: Floats  # (K, V), P[word | topic] / P[word]

    @classmethod
    def learn(cls, words: Ints, offsets: Ints, *, vocabulary: int, count: int = TOPICS) -> Self:
        """Learn from rows of words (t,), -1 outside the vocabulary, by expectation maximization.

        It begins with the rows dealt out by the words that they have most in common with: no random start.
        """
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        known = words >= 0
        shape = (len(offsets) - 1, vocabulary)
        ones = np.ones(int(known.sum()))
        table = scipy.sparse.csr_matrix((ones, (rows[known], words[known])), shape=shape)
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
            belonging = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        return cls(shares=shares, ratios=ratios)

    def evidence(self, words: Ints, probability: Floats, offsets: Ints) -> Floats:
        """Return ln P[word | the other words of the row] / P[word] for candidates, float64 (t, K).

        ``words`` (t, K) are candidates, V or more or negative where there is none, ``probability`` (t, K) how
        likely each is.
        """
        known = (words >= 0) & (words < self.ratios.shape[1])
        ratios = self.ratios[:, np.where(known, words, 0)]
        likely = np.where(known, probability, 0.0)
        unknown = np.maximum(1.0 - likely.sum(axis=1), 0.0)
        own = _WEIGHT * np.log((ratios * likely).sum(axis=2) + unknown)  # (topics, t)
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        of_row = np.zeros((len(offsets) - 1, len(self.shares)))
        np.add.at(of_row, rows, own.T)
        others = of_row[rows].T - own + np.log(self.shares)[:, None]
        others -= logsumexp(others, axis=0, keepdims=True)
        evidence = np.log(np.einsum("kt,ktj->tj", np.exp(others), ratios))
        return np.asarray(np.where(known, evidence, 0.0))


def _beginning(table: scipy.sparse.csr_matrix, frequency: Floats, count: int) -> Floats:
    """Deal rows out to topics by where they lie on the main axes of their words: float64 (rows, count)."""
    rows = table.shape[0]
    weighted = table @ scipy.sparse.diags(1.0 / np.sqrt(frequency))
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    weighted = scipy.sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ weighted
    axes = min(count // 2, min(weighted.shape) - 1)
    belonging = np.full((rows, count), 1.0 / count)
    if axes < 1:
        return belonging
    start = np.ones(min(weighted.shape))
    left, values, _ = scipy.sparse.linalg.svds(weighted, k=axes, v0=start)
    places = left * values
    places *= np.sign(places.sum(axis=0) + 1e-12)
    both = np.concatenate([places, -places], axis=1)
    topic = both.argmax(axis=1)
    belonging[np.arange(rows), topic] += 1.0
    return np.asarray(belonging / belonging.sum(axis=1, keepdims=True))
