"""Perturbs words many times, by the code that sanitizes tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.token_columns import PLACEHOLDER
from dptext_spark.text.tokens import match_form
from dptext_spark.vectors.projected_vectors import ProjectedVectors
from dptext_spark.vectors.vector_privatizer import VectorPrivatizer

# The table that is perturbed has a column of this name, and its release this salt.
COLUMN: Final = "tokens"
SALT: Final = "audit"
_ROW_WORDS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Samples:
    """How often each word came out.

    Attributes:
        counts: int64 (k, release_words).
        strays: int64 (k,), outputs that no release may have: words outside the release vocabulary, or
            something else than the placeholder for an unknown word.
    """

    counts: NDArray[np.int64]
    strays: NDArray[np.int64]

    @classmethod
    def of(cls, embedding: Embedding, words: NDArray[np.int64], tally: pa.Table) -> Samples:
        """Read a tally with the columns ``word``, ``unknown`` (the input was), ``output`` and ``count``."""
        released = pc.index_in(tally["output"], value_set=embedding.words[: embedding.releasable])
        outputs = pc.fill_null(released, -1).to_numpy().astype(np.int64)
        unknown = tally["unknown"].to_numpy()
        places, times = np.searchsorted(words, tally["word"].to_numpy()), tally["count"].to_numpy()
        masked = pc.fill_null(pc.equal(tally["output"], PLACEHOLDER), False).to_numpy()
        samples = cls(
            counts=np.zeros((len(words), embedding.releasable), dtype=np.int64),
            strays=np.zeros(len(words), dtype=np.int64),
        )
        good = ~unknown & (outputs >= 0)
        np.add.at(samples.counts, (places[good], outputs[good]), times[good])
        stray = np.where(unknown, ~masked, outputs < 0)
        np.add.at(samples.strays, places[stray], times[stray])
        return samples


Sampler: TypeAlias = Callable[[Embedding, Mechanism, NDArray[np.int64], int, NoiseKey, Search], Samples]
"""Perturbs words (k,), ascending rows of the bundle, so many times each under a key, as a table's are."""


def rows_of(embedding: Embedding, words: NDArray[np.int64], runs: int, length: int = _ROW_WORDS) -> pa.Table:
    """Give rows that hold each word ``runs`` times: columns ``id``, ``word``, ``text`` and ``times``."""
    rows = -(-runs // length)
    repeated = np.repeat(words, rows)
    return pa.table(
        {
            "id": [f"{word}-{row}" for word in words for row in range(rows)],
            "word": repeated,
            "text": embedding.words.take(pa.array(repeated)),
            "times": np.tile(np.minimum(length, runs - length * np.arange(rows)), len(words)),
        }
    )


def row_of(embedding: Embedding, word: str) -> int:
    """Find a word of the vocabulary in the form in which tables' words are looked up; -1 for none."""
    return int(pc.index(embedding.words, match_form(word, lower=False)).as_py())


def unknown_word(embedding: Embedding) -> str:
    """Give a word that the vocabulary lacks."""
    word = "unheardof"
    while row_of(embedding, word) >= 0:
        word += "x"
    return word


def sampled(
    embedding: Embedding,
    mechanism: Mechanism,
    words: NDArray[np.int64],
    runs: int,
    key: NoiseKey,
    search: Search,
) -> Samples:
    """Sample in this process; see :class:`Sampler`."""
    rows = rows_of(embedding, words, runs)
    tokens = released(embedding, mechanism, rows, key, search).flatten()
    lengths = rows["times"].to_numpy() + 1
    unknown = np.zeros(int(lengths.sum()), dtype=np.bool_)
    unknown[np.cumsum(lengths) - 1] = True
    words_of_tokens = np.repeat(rows["word"].to_numpy(), lengths)
    outputs = pa.table({"word": words_of_tokens, "unknown": unknown, "output": tokens})
    tally = outputs.group_by(["word", "unknown", "output"]).aggregate([([], "count_all")])
    return Samples.of(embedding, words, tally.rename_columns({"count_all": "count"}))


def released(
    embedding: Embedding, mechanism: Mechanism, rows: pa.Table, key: NoiseKey, search: Search
) -> pa.Array:
    """Sanitize rows: each one's text so many times, and an unknown word at its end."""
    if isinstance(mechanism, ProjectedVectors):
        return _released_vectors(embedding, mechanism, rows, key, search)
    unknown = unknown_word(embedding)
    repeated = zip(rows["text"].to_pylist(), rows["times"].to_pylist(), strict=True)
    tokens = pa.array([[text] * times + [unknown] for text, times in repeated], pa.list_(pa.string()))
    noise = mechanism.release_noise(key, salt=SALT, embedding=embedding, search=search)
    privatizer = Privatizer(embedding=embedding, mechanism=mechanism, noise=noise, search=search)
    return privatizer.sanitize(tokens, rows["id"].combine_chunks(), column=COLUMN).values


def _released_vectors(
    embedding: Embedding, mechanism: ProjectedVectors, rows: pa.Table, key: NoiseKey, search: Search
) -> pa.Array:
    """Release the vector of each row's word so many times, and name the words of the nearest images.

    An unknown word has no vector: the placeholder stands for it.
    """
    noise = mechanism.release_noise(key, salt=SALT, embedding=embedding, search=search)
    times = rows["times"].to_numpy()
    ids = [
        f"{row}-{place}" for row, n in zip(rows["id"].to_pylist(), times, strict=True) for place in range(n)
    ]
    words = np.repeat(rows["word"].to_numpy(), times)
    names = nearest_to_vectors(embedding, mechanism, words, pa.array(ids), noise, search).to_pylist()
    starts = np.cumsum(times) - times
    lists = [[*names[start : start + n], PLACEHOLDER] for start, n in zip(starts, times, strict=True)]
    return pa.array(lists, pa.list_(pa.string()))


def nearest_to_vectors(
    embedding: Embedding,
    mechanism: ProjectedVectors,
    words: NDArray[np.int64],
    ids: pa.Array,
    noise: ReleaseNoise,
    search: Search,
) -> pa.Array:
    """Release the vectors of words (t,), each in a row of its own, and name the nearest images' words."""
    release = VectorPrivatizer(mechanism=mechanism.of_length(embedding.dimension), noise=noise)
    vectors = embedding.vectors[words].astype(np.float64)
    values = pa.array(list(vectors), pa.list_(pa.float64()))
    points = release.sanitize(values, ids, column=COLUMN).values.flatten().to_numpy()
    nearest = mechanism.bind(embedding, search).search
    return embedding.words.take(pa.array(nearest(points.reshape(len(ids), -1))))
