"""Rows as vectors and likely words: what an attacker knows of them, made easy to use.

Each output is looked at by itself, P[word | output] under the estimated frequencies of words; or,
as the attacker in context does it, all outputs of a row together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from dptext_spark.channel.channel import Channel
from dptext_spark.channel.matrix import ChannelMatrix
from dptext_spark.evaluation.attackers import CANDIDATES, Evidence
from dptext_spark.evaluation.candidates import NO_WORD, Candidates
from dptext_spark.evaluation.chains import links
from dptext_spark.evaluation.language import Language, PairCounts
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Floats32, Ints, WordVectors

LIKELIEST: Final = 10
"""Words that are listed of a row."""

_WORDS_OF_OUTPUT: Final = 64  # the likeliest words of an output that rows are listed by
_OUTPUTS_AT_ONCE: Final = 512
_TOKENS: Final = 1 << 13  # that are looked at together with their rows

RowFeatures: TypeAlias = tuple[NDArray[Any] | None, NDArray[Any], NDArray[Any]]
"""A vector, and words with their weights."""

NOTHING: Final[RowFeatures] = (None, np.zeros(0, dtype=np.int64), np.zeros(0))
"""What is known of a row without an output."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputFeatures:
    """What each output says of its word: the mean vector, and the likeliest words."""

    means: Floats32  # (outputs, n)
    words: Ints  # (outputs, m), ids
    probabilities: Floats32  # (outputs, m)

    @classmethod
    def of(cls, matrix: ChannelMatrix, shares: Floats32, vectors: WordVectors) -> OutputFeatures:
        """Look at outputs of words (k,) with these shares, whose vectors are rows of (V, n)."""
        named = np.flatnonzero(matrix.words >= 0)
        of_words = vectors[matrix.words[named]].astype(np.float32)
        most = min(_WORDS_OF_OUTPUT, len(named))
        means = np.empty((matrix.outputs, vectors.shape[1]), dtype=np.float32)
        words = np.empty((matrix.outputs, most), dtype=np.int64)
        probabilities = np.empty((matrix.outputs, most), dtype=np.float32)
        for start in range(0, matrix.outputs, _OUTPUTS_AT_ONCE):
            block = slice(start, start + _OUTPUTS_AT_ONCE)
            posterior = (matrix.table[named, block] * shares[named, None]).T
            totals = posterior.sum(axis=1, keepdims=True)
            posterior /= np.maximum(totals, np.finfo(np.float32).tiny)
            means[block] = posterior @ of_words
            places = np.argpartition(-posterior, most - 1, axis=1)[:, :most]
            words[block] = matrix.words[named[places]]
            probabilities[block] = np.take_along_axis(posterior, places, axis=1)
        return cls(means=means, words=words, probabilities=probabilities)

    def rows(self, outputs: Ints, offsets: Ints, vocabulary: pa.StringArray) -> pa.Table:
        """Return vector, words and weights of rows of outputs (t,), -1 for what is aside.

        A row without an output has no vector. Weights are expected numbers of words.
        """
        rows: list[RowFeatures] = []
        for start, stop in pairwise(offsets.tolist()):
            row = outputs[start:stop]
            row = row[row >= 0]
            if not len(row):
                rows.append(NOTHING)
                continue
            words, places = np.unique(self.words[row], return_inverse=True)
            totals = np.bincount(places.ravel(), weights=self.probabilities[row].ravel())
            vector = self.means[row].mean(axis=0)
            rows.append((vector, *_likeliest(words, totals)))
        return _table(rows, vocabulary)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowPosterior:
    """What all outputs of a row say of its words, by which word follows which two."""

    channel: Channel
    language: Language
    trust: float  # from 0 to 1, how far which word follows which is as in the corpus
    vectors: WordVectors  # (V, n)

    @classmethod
    def of(
        cls,
        matrix: ChannelMatrix,
        shares: Floats,
        vectors: WordVectors,
        *,
        corpus: tuple[Ints, Ints],
        released: tuple[Ints, Ints],
    ) -> RowPosterior:
        """Learn a language from public rows, as far as released ones bear it out.

        Which words there are and how frequent comes of the table alone.

        Args:
            shares: (k,), of the matrix's words in the table.
            corpus: Words (t,) of public rows, -1 for what the vocabulary lacks, and where each row
                starts.
            released: The same of outputs of some rows of the table.
        """
        channel, frequencies = matrix.channel(shares, vocabulary=len(vectors))
        counts = PairCounts.of_rows(*corpus, vocabulary=len(vectors))
        learned = Language.learn(counts, *corpus)
        unknown = learned.pairs.lower[-1]
        lower = np.append(frequencies * (1.0 - unknown), unknown)
        language = replace(learned, words=frequencies, pairs=replace(learned.pairs, lower=lower))
        trust = _trust(_released_rows(*released), channel, language)
        return cls(
            channel=channel, language=_trusted(language, trust), trust=trust, vectors=vectors
        )

    def expected(self, rows: SimulatedRows) -> scipy.sparse.csr_matrix:
        """Return the expected number of each word in some rows, sparse (rows, V)."""
        evidence = Evidence.of(rows, self.channel, self.language, most=CANDIDATES)
        words = evidence.candidates.words
        is_guess = rows.perturbed[:, None] & (words >= 0)
        posterior = np.where(is_guess, evidence.by_triples, 0.0)
        totals = posterior.sum(axis=1, keepdims=True)
        posterior /= np.maximum(totals, np.finfo(np.float64).tiny)
        of_rows = np.broadcast_to(rows.rows[:, None], words.shape)
        cells = (posterior[is_guess], (of_rows[is_guess], words[is_guess]))
        return scipy.sparse.csr_matrix(cells, shape=(len(rows.offsets) - 1, len(self.vectors)))

    def rows(self, outputs: Ints, offsets: Ints, vocabulary: pa.StringArray) -> pa.Table:
        """Return vector, words and weights of rows, as OutputFeatures does."""
        released = _released_rows(outputs, offsets)
        rows = [NOTHING] * (len(offsets) - 1)
        for tokens, part in released.batches(_TOKENS):
            expected = self.expected(part)
            numbers = np.bincount(part.rows[part.perturbed], minlength=expected.shape[0])
            words = np.unique(expected.indices)
            sums = expected[:, words] @ self.vectors[words].astype(np.float64)
            vectors = sums / np.maximum(numbers, 1)[:, None]
            places = released.rows[tokens[part.offsets[:-1]]]
            for number in np.flatnonzero(numbers).tolist():
                row = expected[number]
                listed = _likeliest(row.indices, row.data)
                rows[places[number]] = (vectors[number], *listed)
        return _table(rows, vocabulary)


def _released_rows(outputs: Ints, offsets: Ints) -> SimulatedRows:
    """Return rows of outputs (t,), -1 for what is aside, as an attacker sees them."""
    return SimulatedRows(
        offsets=offsets,
        inputs=np.full(len(outputs), -1),
        outputs=outputs[None],
        perturbed=outputs >= 0,
    )


def _trust(rows: SimulatedRows, channel: Channel, language: Language) -> float:
    """Return how much of the language's pairs makes neighbouring outputs of rows likeliest."""
    candidates = Candidates.of(rows, channel, language.words, most=CANDIDATES)
    is_word = rows.perturbed[:, None] & (candidates.words >= 0)
    words = np.where(is_word, candidates.words, NO_WORD)
    posterior = np.where(is_word, np.exp(candidates.log_emission) * language.words[words], 0.0)
    posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    follows = rows.perturbed[1:] & rows.perturbed[:-1] & (np.diff(rows.rows) == 0)
    second = np.flatnonzero(follows) + 1
    first = second - 1
    # That a word follows which the vocabulary has is seen, and says nothing of which one.
    unknown = len(language.words)
    in_vocabulary = 1.0 - language.pairs.probability(
        words[first], np.full_like(words[first], unknown)
    )
    leading = posterior[first] / in_vocabulary
    sources, targets, beyond = links(words[first], words[second], language.pairs)
    ratio = beyond / language.words[words[second].ravel()[targets]]
    seen_pairs = leading.ravel()[sources] * posterior[second].ravel()[targets] * ratio
    pairs = (leading * language.pairs.back_off[words[first]]).sum(axis=1)
    pairs *= 1.0 - language.pairs.lower[-1]
    pairs += np.bincount(targets // words.shape[1], weights=seen_pairs, minlength=len(second))

    def loss(trust: float) -> float:
        """Minus the likelihood of all pairs of neighbours, over that of independent words."""
        return -float(np.log1p(trust * (pairs - 1.0)).sum())

    best = scipy.optimize.minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded")
    return float(best.x)


def _trusted(language: Language, trust: float) -> Language:
    """Return a language whose words follow others to this extent, and else by frequency alone."""
    pairs = replace(
        language.pairs,
        back_off=1.0 - trust * (1.0 - language.pairs.back_off),
        beyond=trust * language.pairs.beyond,
    )
    triples = replace(
        language.triples,
        pairs=pairs,
        back_off=1.0 - trust * (1.0 - language.triples.back_off),
        beyond=trust * language.triples.beyond,
    )
    return replace(language, pairs=pairs, triples=triples)


def _likeliest(words: NDArray[Any], weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the words with the largest weights, the largest first."""
    places = np.argsort(-weights, kind="stable")[:LIKELIEST]
    return words[places], weights[places]


def _table(rows: Sequence[RowFeatures], vocabulary: pa.StringArray) -> pa.Table:
    """Write what is known of rows; words are ids."""
    vectors = [None if vector is None else vector.tolist() for vector, _, _ in rows]
    offsets = np.cumsum([0, *(len(words) for _, words, _ in rows)])
    words = np.concatenate([NOTHING[1], *(words for _, words, _ in rows)])
    weights = np.concatenate([NOTHING[2], *(weights for _, _, weights in rows)])
    starts = pa.array(offsets, pa.int32())
    columns = {
        "vector": pa.array(vectors, pa.list_(pa.float32())),
        "words": pa.ListArray.from_arrays(starts, vocabulary.take(pa.array(words))),
        "weights": pa.ListArray.from_arrays(starts, pa.array(weights)),
    }
    return pa.table(columns)
