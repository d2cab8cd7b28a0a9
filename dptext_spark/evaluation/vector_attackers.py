"""How many words attackers find behind released vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms.vectors import VectorNoise
from dptext_spark.text.bags import KgramBags

VECTOR_ATTACKERS: Final[dict[str, type[VectorAttacker]]] = {}
"""Attackers that look for words behind vectors, by name; each subclass enters itself."""

# Vectors whose words are scored at once, in scores.
_SCORES: Final = 1 << 22
# The penalty of squared weights, over the mean variance of a number.
_RIDGE: Final = 0.01
# Original vectors are released vectors with noise of this scale.
_NO_NOISE: Final = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private vectors and words
class VectorRows:
    """Vectors before and after a release, t of some rows, with the words behind each."""

    originals: Floats  # (t, n)
    released: Floats  # (t, m)
    rows: Ints  # (t,), the row of each, from 0 on
    row_count: int
    word_offsets: Ints  # (t + 1,), where the words of each vector start
    words: Ints  # ids of distinct words of each vector
    classes: Mapping[str, NDArray[Any]]  # by column, of each row; None for none
    by_word: bool = False  # whether each word has a vector of its own
    # (t, k), dense or sparse: what distances and inner products are compared with, if not originals
    references: Any = None

    def __len__(self) -> int:
        return len(self.originals)

    @property
    def word_counts(self) -> Ints:
        """int64 (t,), how many distinct words each vector has."""
        return np.diff(self.word_offsets)

    @cached_property
    def vector_of_word(self) -> Ints:
        """The vector that each of ``words`` belongs to."""
        return np.repeat(np.arange(len(self)), self.word_counts)

    def row_means(self, vectors: Floats) -> Floats:
        """Return the mean of each row's vectors, (rows, k), zero where there is none."""
        counts = np.bincount(self.rows, minlength=self.row_count)
        sums = np.zeros((self.row_count, vectors.shape[1]))
        np.add.at(sums, self.rows, vectors)
        return np.asarray(sums / np.maximum(counts, 1)[:, None])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VectorKnowledge:
    """What attackers of vectors have: the mechanism, the embedding, and known rows."""

    matrix: Floats  # (m, n), public
    scale: float  # of the noise, whose density is proportional to exp(-|z| / scale)
    images: Floats  # (V, m), of the vocabulary
    known_rows: VectorRows  # which they release themselves
    decay: float = 1.0  # a text of l words has l**-decay of the image of each

    @classmethod
    def of(
        cls,
        noise: VectorNoise,
        embedding: Embedding,
        known_rows: VectorRows,
        bags: KgramBags | None = None,
    ) -> Self:
        """Project the vocabulary; of ``bags`` its words, or known texts with each word."""
        matrix = noise.projection.matrix
        decay = 1.0
        if bags is None:
            images = np.asarray(embedding.vectors, dtype=np.float64) @ matrix.T
        elif bags.kgrams == 1:
            images = bags.read(embedding.words, "words").vectors @ matrix.T
            decay = 0.5
        else:
            texts = known_rows.originals @ matrix.T
            sums = np.zeros((len(embedding.words), len(matrix)))
            np.add.at(sums, known_rows.words, texts[known_rows.vector_of_word])
            counts = np.bincount(known_rows.words, minlength=len(sums))[:, None]
            images = np.where(counts, sums / np.maximum(counts, 1), texts.mean(axis=0))
            decay = 0.0
        return cls(
            matrix=matrix, scale=noise.scale, images=images, known_rows=known_rows, decay=decay
        )

    @classmethod
    def of_originals(cls, embedding: Embedding, known_rows: VectorRows) -> Self:
        """Return what attackers would have where original vectors are released."""
        vectors = np.asarray(embedding.vectors, dtype=np.float64)
        known_rows = replace(known_rows, released=known_rows.originals)
        identity = np.eye(vectors.shape[1])
        return cls(matrix=identity, scale=_NO_NOISE, images=vectors, known_rows=known_rows)

    @cached_property
    def word_shares(self) -> Floats:
        """The share of vectors with each word, float64 (V,); unseen words by their rank."""
        words = len(self.images)
        counts = np.bincount(self.known_rows.words, minlength=words)
        by_rank = 1.0 / np.arange(2.0, words + 2.0)
        by_rank /= by_rank.sum()
        return np.asarray((counts + by_rank) / (len(self.known_rows) + 1.0))


class VectorAttacker(ABC):
    """Guesses the words behind vectors; every one of ``VECTOR_ATTACKERS`` is tried."""

    name: ClassVar[str]
    knows: ClassVar[str]  # what it guesses from, as reports say it

    def __init_subclass__(cls) -> None:
        """Enter the class under its name; the floor has none."""
        super().__init_subclass__()
        if "name" in vars(cls):
            VECTOR_ATTACKERS[cls.name] = cls

    @classmethod
    @abstractmethod
    def learn(cls, knowledge: VectorKnowledge) -> Self:
        """Learn from known rows and what the mechanism makes of them."""

    @abstractmethod
    def score(self, released: Floats) -> Floats:
        """Score all words for each released vector, (t, m) to (t, V): higher is likelier."""


@dataclass(frozen=True, eq=False)
class Nearest(VectorAttacker):
    """Guesses the words whose images are nearest."""

    name = "nearest"
    knows = "the embedding"

    images: Floats

    @classmethod
    def learn(cls, knowledge: VectorKnowledge) -> Self:
        return cls(knowledge.images)

    def score(self, released: Floats) -> Floats:
        return np.asarray(released @ self.images.T - np.square(self.images).sum(axis=1) / 2.0)


@dataclass(frozen=True, eq=False)
class Likelihood(VectorAttacker):
    """Weighs how frequent words are against how well the vector fits a text with them.

    Of one word's vector it has the exact posterior. A text with a word is moved by what the word
    is off the mean, over the text's length, or of bags over its root; released texts are taken for
    normal around that.
    """

    name = "likelihood"
    knows = "how frequent words are, and how released vectors spread"

    log_shares: Floats  # (V,)
    weights: Floats  # (V, m), or the images of words
    offsets: Floats  # (V,)
    scale: float  # of the noise of single words, 0 for texts

    @classmethod
    def learn(cls, knowledge: VectorKnowledge) -> Self:
        log_shares = np.log(knowledge.word_shares)
        images = knowledge.images
        if knowledge.known_rows.by_word:
            return cls(log_shares, images, np.zeros(len(images)), knowledge.scale)
        released = knowledge.known_rows.released
        rows = len(released)
        mean = released.mean(axis=0)
        centred = released - mean
        # Never less than the noise alone: few rows spread less than they should.
        noise = (released.shape[1] + 1.0) * knowledge.scale**2 / (rows + 1.0)
        covariance = (centred.T @ centred) / rows + noise * np.eye(released.shape[1])
        lengths = np.maximum(knowledge.known_rows.word_counts, 1)
        shares = knowledge.word_shares
        usual = shares @ images / shares.sum()
        shifts = (images - usual) * float(np.mean(lengths**-knowledge.decay))
        weights = np.linalg.solve(covariance, shifts.T).T
        offsets = -(weights * (mean + shifts / 2.0)).sum(axis=1)
        return cls(log_shares, weights, offsets, 0.0)

    def score(self, released: Floats) -> Floats:
        if self.scale:
            return self.log_shares - distances_between(released, self.weights) / self.scale
        return self.log_shares + self.offsets + released @ self.weights.T


@dataclass(frozen=True, eq=False)
class Regression(VectorAttacker):
    """Predicts which words a vector has from known rows that it releases itself."""

    name = "regression"
    knows = "known rows, and releases of them that it makes itself"

    mean: Floats  # (m,)
    weights: Floats  # (m, V)
    shares: Floats  # (V,)

    @classmethod
    def learn(cls, knowledge: VectorKnowledge) -> Self:
        known_rows = knowledge.known_rows
        mean = known_rows.released.mean(axis=0)
        centred = known_rows.released - mean
        products = np.zeros((len(knowledge.images), centred.shape[1]))
        np.add.at(products, known_rows.words, centred[known_rows.vector_of_word])
        scatter = centred.T @ centred
        ridge = _RIDGE * (np.trace(scatter) / len(scatter) + np.finfo(np.float64).tiny)
        weights = np.linalg.solve(scatter + ridge * np.eye(len(scatter)), products.T)
        return cls(mean, weights, knowledge.word_shares)

    def score(self, released: Floats) -> Floats:
        return self.shares + (released - self.mean) @ self.weights


@dataclass(frozen=True, eq=False)
class MostFrequent(VectorAttacker):
    """Guesses the most frequent words whatever the vector: the floor of all others."""

    shares: Floats

    @classmethod
    def learn(cls, knowledge: VectorKnowledge) -> Self:
        return cls(knowledge.word_shares)

    def score(self, released: Floats) -> Floats:
        return np.broadcast_to(self.shares, (len(released), len(self.shares)))


def distances_between(left: Floats, right: Floats) -> Floats:
    """Return the distances of vectors (s, k) and (t, k), float64 (s, t)."""
    squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares - 2.0 * left @ right.T, 0.0)))


def words_recovered(
    rows: VectorRows, attackers: Mapping[str, VectorAttacker], *, vocabulary: int
) -> dict[str, ClusterSums]:
    """Count the words behind vectors that are among as many guesses as a vector has words."""
    sums = {}
    step = max(1, _SCORES // vocabulary)
    for name, attacker in attackers.items():
        hits = [np.zeros(0)]
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            scores = attacker.score(rows.released[part])
            hits.append(_hits(scores, rows, start))
        sums[name] = ClusterSums.of(rows.rows[rows.vector_of_word], np.concatenate(hits))
    return sums


def _hits(scores: Floats, rows: VectorRows, start: int) -> Floats:
    """Compute whether the words of some vectors are among the guesses with the best scores."""
    hits = [np.zeros(0)]
    for place, of_vector in enumerate(scores, start):
        words = rows.words[rows.word_offsets[place] : rows.word_offsets[place + 1]]
        if not len(words):
            continue
        least = -np.partition(-of_vector, len(words) - 1)[len(words) - 1]
        above = int((of_vector > least).sum())
        tied = int((of_vector == least).sum())
        # Of words with the last guess's score some are guessed, by chance.
        chance = (len(words) - above) / tied
        scores_of_words = of_vector[words]
        hits.append((scores_of_words > least) + chance * (scores_of_words == least))
    return np.concatenate(hits)
