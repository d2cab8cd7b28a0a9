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

COLUMN: Final = "tokens"
"""The column that is sanitized."""

_NAME: Final = "audit"
_ROW_WORDS: Final = 200

Tally: TypeAlias = Callable[[pa.Table, Release, NoiseKey], pa.Table]
"""Sanitizes rows and counts by ``place`` and output; see :func:`tallied`."""


def row_of(embedding: Embedding, word: str) -> int:
    """Find a word of the vocabulary in the form in which tables' words are looked up; -1 for none."""
    return int(pc.index(embedding.words, match_form(word, lower=False)).as_py())


def sampled(
    embedding: Embedding,
    mechanism: Mechanism,
    words: NDArray[np.int64],
    runs: int,
    key: NoiseKey,
    search: Search,
    tally: Tally,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Perturb words (k,), ascending rows of the bundle, so many times each, and an unknown word likewise.

    Returns:
        Counts of each word's outputs, int64 (k, release_words), and of forbidden outputs, int64 (k + 1,): of
        each word, words outside the release vocabulary; last, of the unknown word, anything but the
        placeholder.
    """
    if isinstance(mechanism, ProjectedVectors):
        # Each vector is a row of its own; its output is the word of the nearest image.
        noise = mechanism.release_noise(key, salt=_NAME, embedding=embedding, search=search)
        sanitizer = VectorSanitizer(mechanism=mechanism.of_length(embedding.dimension), noise=noise)
        of = np.repeat(np.arange(len(words)), runs)
        ids = pa.array([f"{word}-{run}" for word in words for run in range(runs)])
        vectors = pa.array(list(embedding.vectors[words[of]].astype(np.float64)), pa.list_(pa.float64()))
        points = sanitizer.sanitize(vectors, ids, column=COLUMN).values.flatten().to_numpy()
        nearest = nearest_images(embedding, sanitizer.mechanism.projection, search)
        counts = _counted(of, embedding.words.take(pa.array(nearest(points.reshape(len(ids), -1)))))
    else:
        unknown = "unheardof"
        while row_of(embedding, unknown) >= 0:
            unknown += "x"
        texts, rows = [*embedding.words.take(pa.array(words)).to_pylist(), unknown], -(-runs // _ROW_WORDS)
        table = pa.table(
            {
                # It names the word itself, so that a pair that is audited alone has the same noise.
                "id": [f"{word}-{row}" for word in (*words, -1) for row in range(rows)],
                "place": np.repeat(np.arange(len(texts)), rows),
                "text": np.repeat(texts, rows),
                "times": np.tile(np.minimum(_ROW_WORDS, runs - _ROW_WORDS * np.arange(rows)), len(texts)),
            }
        )
        release = Release(bundle=embedding, mechanism=mechanism, search=search, name=_NAME)
        counts = tally(table, release, key)
    places, outputs, times = counts.columns
    columns = pc.index_in(outputs, value_set=embedding.words[: embedding.releasable])
    masked = pc.fill_null(pc.equal(outputs, PLACEHOLDER), False).to_numpy() & (
        places.to_numpy() == len(words)
    )
    found = np.zeros((len(words) + 1, embedding.releasable + 1), dtype=np.int64)
    cells = places.to_numpy(), pc.fill_null(columns, embedding.releasable).to_numpy()
    np.add.at(found, cells, np.where(masked, 0, times.to_numpy()))
    return found[:-1, :-1], np.append(found[:-1, -1], found[-1].sum())


def tallied(rows: pa.Table, release: Release, key: NoiseKey) -> pa.Table:
    """Sanitize rows in this process: each has the word ``text`` so many ``times``.

    Args:
        rows: Columns ``id``, ``place`` (of the word), ``text`` and ``times``.

    Returns:
        Columns of the place, the output and how often it came.
    """
    texts, times = rows["text"].to_pylist(), rows["times"].to_numpy()
    lists = pa.array([[text] * n for text, n in zip(texts, times, strict=True)], pa.list_(pa.string()))
    ids = rows["id"].combine_chunks()
    outputs = Sanitizer.open(release, key).sanitize(lists, ids, column=COLUMN).values.flatten()
    return _counted(np.repeat(rows["place"].to_numpy(), times), outputs)


def _counted(places: NDArray[np.int64], outputs: pa.Array) -> pa.Table:
    table = pa.table({"place": places, "output": outputs})
    return table.group_by(table.column_names).aggregate([([], "count_all")])
