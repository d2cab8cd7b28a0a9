"""Rows as vectors and likely words: what an attacker knows of them, made easy to use.

Each output is looked at by itself: P[word | output] under the estimated frequencies of words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dptext_spark.channel.matrix import ChannelMatrix
from dptext_spark.geometry import Floats32, Ints

LIKELIEST: Final = 10
"""Words that are listed of a row."""

_WORDS_OF_OUTPUT: Final = 64  # the likeliest words of an output that rows are listed by
_OUTPUTS_AT_ONCE: Final = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputFeatures:
    """What each output says of its word: the mean vector, and the likeliest words."""

    means: Floats32  # (outputs, n)
    words: Ints  # (outputs, m), ids
    probabilities: Floats32  # (outputs, m)

    @classmethod
    def of(cls, matrix: ChannelMatrix, shares: Floats32, vectors: Floats32) -> OutputFeatures:
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
        vectors: list[list[float] | None] = []
        listed: list[list[str]] = []
        weights: list[list[float]] = []
        for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            row = outputs[start:stop]
            row = row[row >= 0]
            if not len(row):
                vectors.append(None)
                listed.append([])
                weights.append([])
                continue
            vectors.append(self.means[row].mean(axis=0).tolist())
            words, places = np.unique(self.words[row], return_inverse=True)
            totals = np.bincount(places.ravel(), weights=self.probabilities[row].ravel())
            likeliest = np.argsort(-totals, kind="stable")[:LIKELIEST]
            listed.append(vocabulary.take(pa.array(words[likeliest])).to_pylist())
            weights.append(totals[likeliest].tolist())
        return pa.table(
            {
                "vector": pa.array(vectors, pa.list_(pa.float32())),
                "words": pa.array(listed, pa.list_(pa.string())),
                "weights": pa.array(weights, pa.list_(pa.float64())),
            }
        )
