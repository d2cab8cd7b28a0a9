"""Vectors in, projected noisy vectors out, in NumPy and Arrow, free of Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.mechanisms.vectors import VectorNoise
from dptext_spark.noise import ColumnNoise, ReleaseNoise, to_uniform
from dptext_spark.sanitizer import CHUNK, CountT, token_uniforms
from dptext_spark.text.bags import KgramBags
from dptext_spark.text.columns import PythonColumn, as_arrow, check_lengths, check_unique, id_bytes
from dptext_spark.word_reader import WordReader


class VectorCounts(NamedTuple, Generic[CountT]):
    """What was done to the rows of a column: int64 (rows,) each, or the sums."""

    released: CountT  # 1 for a released vector
    null: CountT  # 1 for a row that is null and stays so
    wordless: CountT  # 1 for a text without any known token, released as the zero vector
    known: CountT  # tokens of a text that its average is over, or with own vectors; its K-grams
    unknown: CountT  # tokens of a text outside the vocabulary, left out of it or zero vectors


class ReleasedVectors(NamedTuple):
    """A released column: lists of floats, and what was done to each row."""

    values: pa.Array
    counts: VectorCounts[NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class VectorSanitizer:
    """Releases columns of vectors, or of texts and token lists by their words' vectors."""

    mechanism: VectorNoise
    noise: ReleaseNoise = field(repr=False)  # of the mechanism's law
    # Of columns of texts: averages their words' vectors, or hashes their K-grams.
    reader: WordReader | KgramBags | None = None
    by_word: bool = False  # whether each token has a vector of its own instead

    def sanitize(
        self, values: PythonColumn, ids: PythonColumn, *, column: str, trust_id: bool = False
    ) -> ReleasedVectors:
        """Release rows of lists of floats, or of texts as lists of float32; null stays null.

        ``trust_id`` takes ids that repeat.
        """
        values = as_arrow(values, f"Column {column}")
        ids = as_arrow(ids, "The column of row ids")
        if not trust_id:
            check_unique(ids)
        row_ids = id_bytes(ids)
        kind = values.type
        check_lengths(column, len(values), len(row_ids), "id")
        self._check_type(kind, column)
        if isinstance(self.reader, WordReader) and self.by_word:
            return self._sanitize_words(values, row_ids, self.reader, column)
        released_kind = kind if self.reader is None else pa.list_(pa.float32())
        lists = [pa.array([], released_kind)]
        counts = [_counts(0)]
        for start in range(0, len(values), CHUNK):
            chunk = slice(start, start + CHUNK)
            part = self._sanitize(values[chunk], row_ids[chunk], column)
            lists.append(part.values.cast(released_kind))
            counts.append(part.counts)
        return ReleasedVectors(
            pa.concat_arrays(lists), VectorCounts(*np.concatenate(counts, axis=1))
        )

    def _check_type(self, kind: pa.DataType, column: str) -> None:
        """Check that a column has lists of floats, or texts where their words are averaged."""
        if self.reader is not None:
            is_allowed = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            allowed = "string"
            if self.by_word:
                return  # texts or token lists, as the reader checks
        else:
            is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
            is_allowed = is_list and kind.value_type in (pa.float32(), pa.float64())
            allowed = "list of float32 or float64"
        if not is_allowed:
            what = f"Column {column} cannot be released as vectors"
            raise InputError(what, allowed=allowed, got=str(kind))

    def _sanitize(self, values: pa.Array, ids: list[bytes], column: str) -> ReleasedVectors:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        counts = _counts(len(values))
        counts.null[~present] = 1
        counts.released[present] = 1
        purpose = "vector"
        if self.reader is None:
            vectors = _read_vectors(values.drop_null(), self.mechanism.input_dimension, column)
            contents: list[tuple[bytes, ...]] = [(row.astype("<f8").tobytes(),) for row in vectors]
        elif isinstance(self.reader, KgramBags):
            purpose = self.reader.identity
            bags = self.reader.read(values.drop_null(), column)
            vectors = bags.vectors.toarray()
            contents = bags.contents
            counts.known[present] = bags.grams
            counts.wordless[present] = bags.grams == 0
        else:
            tokenizer = self.reader.policy.tokenizer.identity
            if tokenizer:
                purpose = f"{purpose}, {tokenizer}"
            vectors, contents, known_counts, unknown_counts = average_texts(
                values.drop_null(), self.reader, column
            )
            counts.known[present] = known_counts
            counts.unknown[present] = unknown_counts
            counts.wordless[present] = known_counts == 0
        self._check_lengths(vectors, column)
        noise = self._noise(purpose, column)
        uint64s = np.empty((len(vectors), noise.uint64s_per_token), dtype=np.uint64)
        for row, (row_id, content) in enumerate(zip(compress(ids, present), contents, strict=True)):
            noise.fill(uint64s[row : row + 1], noise.row_key(row_id, content), 0)
        released = self.mechanism(vectors, to_uniform(uint64s))
        offsets = np.concatenate([[0], np.cumsum(np.where(present, self.mechanism.dimension, 0))])
        lists = pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(released.ravel()), mask=pa.array(~present)
        )
        return ReleasedVectors(lists, counts)

    def _sanitize_words(
        self, values: pa.Array, ids: list[bytes], reader: WordReader, column: str
    ) -> ReleasedVectors:
        """Release one vector for each token, in its place; a blank element stays null."""
        embedding = reader.bundle.shared()
        counts = _counts(len(values))
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        counts.null[is_null] = 1
        kind = pa.list_(pa.list_(pa.float32()))
        lists = [pa.array([], kind)]
        for run in reader.runs(values, column=column):
            tokens = run.tokens
            purpose = f"vectors of {tokens.kind} words, {reader.policy.tokenizer.identity}"
            noise = self._noise(purpose, column)
            row_names = [(row_id,) for row_id in ids[run.rows]]
            released = np.zeros((len(tokens), self.mechanism.dimension), dtype=np.float32)
            for places, uniforms in token_uniforms(
                noise, tokens, row_names, np.flatnonzero(~run.blank)
            ):
                word_ids = run.word_ids[places]
                # A word outside the vocabulary is the zero vector.
                vectors = embedding.vectors[word_ids].astype(np.float64)
                vectors[word_ids < 0] = 0.0
                self._check_lengths(vectors, column)
                released[places] = self.mechanism(vectors, uniforms)
            is_known = run.word_ids >= 0
            counts.known[run.rows] = tokens.count(is_known)
            counts.unknown[run.rows] = tokens.count(~is_known & ~run.blank)
            counts.released[run.rows] = tokens.count(~run.blank)
            numbers = pa.array(released.ravel())
            vectors_of_run = pa.FixedSizeListArray.from_arrays(numbers, self.mechanism.dimension)
            elements = vectors_of_run.cast(kind.value_type)
            elements = pc.if_else(pa.array(run.blank), None, elements)
            offsets = pa.array(tokens.offsets, pa.int32())
            lists.append(
                pa.ListArray.from_arrays(offsets, elements, mask=pa.array(tokens.null_rows))
            )
        embedding.check_unchanged()
        return ReleasedVectors(pa.concat_arrays(lists), counts)

    def _noise(self, purpose: str, column: str) -> ColumnNoise:
        return self.noise.column(
            column, purpose=purpose, uint64s_per_token=self.mechanism.dimension + 1
        )

    def _check_lengths(self, vectors: NDArray[np.float64], column: str) -> None:
        """Refuse vectors that the grid of released numbers does not reach."""
        longest = self.mechanism.longest
        with np.errstate(under="ignore"):
            lengths = np.sqrt(np.square(np.clip(vectors, -longest, longest)).sum(axis=1))
        long_vectors = int((lengths >= longest).sum())
        if long_vectors:
            raise InputError(
                f"Column {column} has vectors that are too long to be released at this epsilon",
                allowed=f"length below {0.9995 * longest:.4g}, so that numbers on the noise's grid "
                "fit float32",
                got=f"{long_vectors} longer vectors in one batch of rows",
                do="Scale the vectors down by a public factor, or lower --epsilon",
            )


@dataclass(frozen=True, kw_only=True)
class VectorWorker:
    """Releases columns of a table, each by its own sanitizer; see ``tables.columns.Worker``."""

    counters: ClassVar = VectorCounts
    visible_words: ClassVar[Any] = None

    sanitizers: tuple[tuple[str, VectorSanitizer], ...]

    def sanitize(
        self, values: pa.Array, ids: pa.Array, *, column: str, **_: Any
    ) -> ReleasedVectors:
        """Release rows of one column; one without a sanitizer had no vector when the job began."""
        sanitizer = dict(self.sanitizers).get(column)
        if sanitizer is not None:
            return sanitizer.sanitize(values, ids, column=column, trust_id=True)
        if values.null_count != len(values):
            what = f"Column {column} has vectors that were not there when the job began"
            raise InputError(what, do="Run the job again and leave the table alone meanwhile")
        counts = _counts(len(values))
        counts.null[:] = 1
        return ReleasedVectors(values, counts)


def _counts(rows: int) -> VectorCounts[NDArray[np.int64]]:
    return VectorCounts(*np.zeros((len(VectorCounts._fields), rows), dtype=np.int64))


def _read_vectors(values: pa.Array, dimension: int, column: str) -> NDArray[np.float64]:
    """Read lists of floats; equal numbers of either width have equal content."""
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    flat = values.flatten().cast(pa.float64())
    numbers = flat.fill_null(0.0).to_numpy(zero_copy_only=False)
    faults = {
        f"vectors of another length than {dimension}": int((lengths != dimension).sum()),
        "elements that are null": flat.null_count,
        "elements that are infinite or no number": int((~np.isfinite(numbers)).sum()),
    }
    counted_faults = [f"{count} {fault}" for fault, count in faults.items() if count]
    if counted_faults:
        raise InputError(
            f"Column {column} has vectors that cannot be released",
            allowed=f"vectors of {dimension} finite numbers, or null in place of a whole vector",
            got=f"{', '.join(counted_faults)} in one batch of rows",
            do="Repair them before the job",
        )
    return np.asarray(numbers.reshape(-1, dimension) + 0.0)  # one zero, not two


def average_texts(
    values: pa.Array, reader: WordReader, column: str
) -> tuple[NDArray[np.float64], list[tuple[bytes, ...]], NDArray[np.int64], NDArray[np.int64]]:
    """Return the mean vector of each text's known words, its content, and counts of its tokens."""
    embedding = reader.bundle.shared()
    vectors = np.zeros((len(values), embedding.dimension))
    known_counts = np.zeros(len(values), dtype=np.int64)
    unknown_counts = known_counts.copy()
    contents: list[tuple[bytes, ...]] = []
    for run in reader.runs(values, column=column):
        is_known = run.word_ids >= 0
        known_counts[run.rows] = run.tokens.count(is_known)
        unknown_counts[run.rows] = run.tokens.count(~is_known)
        borders = np.cumsum(known_counts[run.rows])[:-1]
        for row, word_ids in enumerate(np.split(run.word_ids[is_known], borders), run.rows.start):
            # Sums in the text's order, cut from its start: nothing hangs on the rows around it.
            for start in range(0, len(word_ids), CHUNK):
                chunk = embedding.vectors[word_ids[start : start + CHUNK]]
                vectors[row] += chunk.sum(axis=0, dtype=np.float64)
        contents += map(run.tokens.row_content, range(len(run.tokens.null_rows)))
    vectors /= np.maximum(known_counts, 1)[:, None]
    embedding.check_unchanged()
    return vectors, contents, known_counts, unknown_counts
