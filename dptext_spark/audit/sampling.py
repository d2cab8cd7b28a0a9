"""Perturbs words many times, by the code that sanitizes tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.projected import nearest_images
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.noise import NoiseKey
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.columns import PLACEHOLDER
from dptext_spark.text.tokens import match_form
from dptext_spark.vector_sanitizer import VectorSanitizer

# The table that is perturbed has a column of this name, and its release this salt.
COLUMN: Final = "tokens"
SALT: Final = "audit"
_ROW_WORDS: Final = 200

Samples: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Counts of each word's outputs, int64 (k, release_words), and of forbidden outputs, int64 (k + 1,).

Forbidden are, of each word, words outside the release vocabulary; last, of an unknown word, anything but the
placeholder.
"""

Sampler: TypeAlias = Callable[[Embedding, Mechanism, NDArray[np.int64], int, NoiseKey, Search], Samples]
"""Perturbs words (k,), ascending rows of the bundle, so many times each under a key, as a table's are."""


def row_of(embedding: Embedding, word: str) -> int:
    """Find a word of the vocabulary in the form in which tables' words are looked up; -1 for none."""
    return int(pc.index(embedding.words, match_form(word, lower=False)).as_py())


def rows_of(embedding: Embedding, words: NDArray[np.int64], runs: int) -> pa.Table:
    """Give rows that hold each word ``runs`` times, and an unknown word likewise.

    Their columns are ``id``, ``place`` (of the word in ``words``), ``text`` and ``times``.
    """
    unknown = "unheardof"
    while row_of(embedding, unknown) >= 0:
        unknown += "x"
    texts, rows = [*embedding.words.take(pa.array(words)).to_pylist(), unknown], -(-runs // _ROW_WORDS)
    # An id names the word itself, so that a pair that is audited alone has the same noise.
    return pa.table(
        {
            "id": [f"{word}-{row}" for word in (*words, -1) for row in range(rows)],
            "place": np.repeat(np.arange(len(texts)), rows),
            "text": np.repeat(texts, rows),
            "times": np.tile(np.minimum(_ROW_WORDS, runs - _ROW_WORDS * np.arange(rows)), len(texts)),
        }
    )


def counted(embedding: Embedding, words: int, tally: pa.Table) -> Samples:
    """Read a tally: columns ``place`` (``words`` for the unknown word), ``output`` and ``count``."""
    places, times = tally["place"].to_numpy(), tally["count"].to_numpy()
    outputs = pc.index_in(tally["output"], value_set=embedding.words[: embedding.releasable])
    masked = pc.fill_null(pc.equal(tally["output"], PLACEHOLDER), False).to_numpy()
    counts = np.zeros((words + 1, embedding.releasable + 1), dtype=np.int64)
    columns = pc.fill_null(outputs, embedding.releasable).to_numpy()
    np.add.at(counts, (places, columns), np.where((places == words) & masked, 0, times))
    return counts[:-1, :-1], np.append(counts[:-1, -1], counts[-1].sum())


def sampled(
    embedding: Embedding,
    mechanism: Mechanism,
    words: NDArray[np.int64],
    runs: int,
    key: NoiseKey,
    search: Search,
) -> Samples:
    """Sample in this process; see :data:`Sampler`."""
    noise = mechanism.release_noise(key, salt=SALT, embedding=embedding, search=search)
    if isinstance(mechanism, ProjectedVectors):
        # Each vector is a row of its own; its output is the word of the nearest image.
        places = np.repeat(np.arange(len(words)), runs)
        ids = pa.array([f"{word}-{run}" for word in words for run in range(runs)])
        vectors = pa.array(list(embedding.vectors[words[places]].astype(np.float64)), pa.list_(pa.float64()))
        release = VectorSanitizer(mechanism=mechanism.of_length(embedding.dimension), noise=noise)
        points = release.sanitize(vectors, ids, column=COLUMN).values.flatten().to_numpy()
        nearest = nearest_images(embedding, release.mechanism.projection, search)(
            points.reshape(len(ids), -1)
        )
        outputs = embedding.words.take(pa.array(nearest))
    else:
        rows = rows_of(embedding, words, runs)
        times = rows["times"].to_numpy()
        texts = zip(rows["text"].to_pylist(), times, strict=True)
        columns = pa.array([[text] * n for text, n in texts], pa.list_(pa.string()))
        words_release = Release(bundle=embedding, mechanism=mechanism, search=search, name=SALT)
        sanitizer = Sanitizer(release=words_release, noise=noise)
        ids = rows["id"].combine_chunks()
        outputs = sanitizer.sanitize(columns, ids, column=COLUMN).values.flatten()
        places = np.repeat(rows["place"].to_numpy(), times)
    tally = pa.table({"place": places, "output": outputs}).group_by(["place", "output"])
    counts = tally.aggregate([([], "count_all")]).rename_columns({"count_all": "count"})
    return counted(embedding, len(words), counts)
