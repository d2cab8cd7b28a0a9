"""Vectors in, projected noisy vectors out, in NumPy and Arrow, free of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.counts import Counts, CountT
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.lookup import joining, look_up
from dptext_spark.mechanisms.vectors import VectorNoise
from dptext_spark.noise import ColumnNoise, ReleaseNoise, to_uniform
from dptext_spark.sanitizer import CHUNK
from dptext_spark.text.columns import Tokens, check_unicode, id_bytes, slices
from dptext_spark.text.tokens import PLAIN, Tokenizer


@dataclass(frozen=True, kw_only=True)
class VectorCounts(Counts[CountT]):
    """What was done to the rows of a column.

    Attributes:
        released: 1 for a released vector.
        null: 1 for a row that is null and stays so.
        wordless: 1 for a text without any known token, released as the zero vector.
        known: Tokens of a text that its average is over.
        unknown: Tokens of a text outside the vocabulary, left out of it.
    """

    released: CountT
    null: CountT
    wordless: CountT
    known: CountT
    unknown: CountT


@dataclass(frozen=True, kw_only=True)
class ReleasedVectors:
    """A released column: lists of floats, and what was done to each row."""

    values: pa.Array
    counts: VectorCounts[NDArray[np.int64]]


class VectorSanitizer:
    """Releases columns of vectors, or of texts as averages of their words' vectors.

    What a row becomes is a pure function of the key, the row's id and its content, whatever its batch.

    Args:
        mechanism: For the columns' vectors.
        noise: The release's noise, of the mechanism's law.
        embedding: The words' vectors, for columns of texts.
        tokenizer: Of texts; joined words of the vocabulary are one token each.
    """

    def __init__(
        self,
        *,
        mechanism: VectorNoise,
        noise: ReleaseNoise,
        embedding: Embedding | None = None,
        tokenizer: Tokenizer = PLAIN,
    ) -> None:
        self.mechanism = mechanism
        self._noise = noise
        self._embedding = embedding
        self._tokenizer = tokenizer

    def sanitize(self, values: pa.Array, ids: pa.Array, *, column: str) -> ReleasedVectors:
        """Release rows of one column; for ids and column see :meth:`Sanitizer.sanitize`.

        Args:
            values: Lists of floats, or texts where there is an embedding; null stays null. They become lists
                of the input's type, or of float32 for texts.

        Raises:
            InputError: Types, lengths or numbers are wrong, a vector is too long, or an id is null.
        """
        row_ids = id_bytes(ids)
        if len(row_ids) != len(values):
            raise InputError(
                f"Column {column} has other rows than its ids", got=f"{len(values)} rows, {len(row_ids)} ids"
            )
        _check_type(values.type, column, texts=self._embedding is not None)
        parts = [self._sanitize(values[part], row_ids[part], column) for part in _row_slices(values)]
        kind = self._released_type(values.type)
        return ReleasedVectors(
            values=pa.concat_arrays([part.values for part in parts] or [pa.array([], kind)]),
            counts=VectorCounts.concat(part.counts for part in parts),
        )

    def _released_type(self, kind: pa.DataType) -> pa.DataType:
        return kind if self._embedding is None else pa.list_(pa.float32())

    def _sanitize(self, values: pa.Array, ids: list[bytes], column: str) -> ReleasedVectors:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        if self._embedding is None:
            inputs = _read_vectors(values.drop_null(), self.mechanism.input_dimension, column)
        else:
            inputs = _read_texts(values.drop_null(), self._embedding, self._tokenizer, column)
        _check_lengths(inputs.vectors, self.mechanism.longest, column)
        noise = self._noise.column(
            column, purpose=inputs.purpose, uint64s_per_token=self.mechanism.dimension + 1
        )
        uniforms = _uniforms(noise, list(compress(ids, present)), inputs.contents)
        released = self.mechanism(inputs.vectors, uniforms)
        counts = _nulls(~present)
        counts.released[present] = 1
        for name, count in inputs.counts.items():
            getattr(counts, name)[present] = count
        lists = _lists(released, present, self._released_type(values.type))
        return ReleasedVectors(values=lists, counts=counts)


def nothing_released(values: pa.Array, column: str) -> ReleasedVectors:
    """Pass a column in which no vector was found, and which must be null in all rows.

    Raises:
        InputError: It is not.
    """
    if values.null_count != len(values):
        raise InputError(
            f"Column {column} has vectors that were not there when the job began",
            do="Run the job again and leave the table alone meanwhile",
        )
    return ReleasedVectors(values=values, counts=_nulls(np.ones(len(values), dtype=np.bool_)))


def _nulls(flags: NDArray[np.bool_]) -> VectorCounts[NDArray[np.int64]]:
    counts: VectorCounts[NDArray[np.int64]] = VectorCounts.zeros(len(flags))
    counts.null[flags] = 1
    return counts


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """Rows of a column, none of them null.

    Attributes:
        vectors: float64 (t, n).
        contents: The rows' content for the noise's context.
        purpose: Of their noise.
        counts: Counters of :class:`VectorCounts` that only texts have, int64 (t,) each.
    """

    vectors: NDArray[np.float64]
    contents: Iterable[tuple[bytes | memoryview, ...]]
    purpose: str = "vector"
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


def _read_vectors(values: pa.Array, dimension: int, column: str) -> _Inputs:
    """Read lists of floats; equal numbers of either width have equal content."""
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    flat = values.flatten().cast(pa.float64())
    numbers = flat.fill_null(0.0).to_numpy(zero_copy_only=False)
    faults = {
        f"vectors of another length than {dimension}": int((lengths != dimension).sum()),
        "elements that are null": flat.null_count,
        "elements that are infinite or no number": int((~np.isfinite(numbers)).sum()),
    }
    if found := [f"{count} {fault}" for fault, count in faults.items() if count]:
        raise InputError(
            f"Column {column} has vectors that cannot be released",
            allowed=f"vectors of {dimension} finite numbers, or null in place of a whole vector",
            got=f"{', '.join(found)} in one batch of rows",
            do="Repair them before the job",
        )
    vectors = numbers.reshape(-1, dimension) + 0.0  # one zero, not two
    return _Inputs(vectors=vectors, contents=((row.astype("<f8").tobytes(),) for row in vectors))


def _read_texts(values: pa.Array, embedding: Embedding, tokenizer: Tokenizer, column: str) -> _Inputs:
    """Average the vectors of each text's known tokens."""
    check_unicode(values, column)
    tokens = Tokens.of(values, joining(embedding, tokenizer))
    word_ids = look_up(tokens, embedding)
    known, unknown = tokens.count(word_ids >= 0), tokens.count(word_ids < 0)
    vectors = np.zeros((len(values), embedding.dimension))
    ends = np.cumsum(known)
    for row, chosen in enumerate(np.split(word_ids[word_ids >= 0], ends[:-1])):
        # Plain sums in the text's order, cut from its start: nothing hangs on the rows around it.
        for start in range(0, len(chosen), CHUNK):
            vectors[row] += embedding.vectors[chosen[start : start + CHUNK]].sum(axis=0, dtype=np.float64)
    vectors /= np.maximum(known, 1)[:, None]
    embedding.check_unchanged()
    return _Inputs(
        vectors=vectors,
        contents=map(tokens.row_content, range(len(values))),
        purpose=", ".join(filter(None, ["vector", tokenizer.identity])),
        counts={"known": known, "unknown": unknown, "wordless": (known == 0).astype(np.int64)},
    )


def _check_type(kind: pa.DataType, column: str, *, texts: bool) -> None:
    if texts:
        fits, allowed = pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"
    else:
        fits = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        fits, allowed = fits and kind.value_type in (pa.float32(), pa.float64()), "list of float32 or float64"
    if not fits:
        raise InputError(f"Column {column} cannot be released as vectors", allowed=allowed, got=str(kind))


def _row_slices(values: pa.Array) -> Iterator[slice]:
    """Cut rows into runs of at most ``CHUNK``, and texts by their size as well."""
    texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    for part in slices(values) if texts else [slice(0, len(values))]:
        for start in range(part.start, part.stop, CHUNK):
            yield slice(start, min(start + CHUNK, part.stop))


def _check_lengths(vectors: NDArray[np.float64], longest: float, column: str) -> None:
    with np.errstate(under="ignore"):
        lengths = np.sqrt(np.square(np.clip(vectors, -longest, longest)).sum(axis=1))
    if longer := int((lengths >= longest).sum()):
        raise InputError(
            f"Column {column} has vectors that are too long to be released at this epsilon",
            allowed=f"length below {0.9995 * longest:.4g}, so that numbers on the noise's grid fit float32",
            got=f"{longer} longer vectors in one batch of rows",
            do="Scale the vectors down by a public factor, or lower --epsilon",
        )


def _uniforms(
    noise: ColumnNoise, ids: Iterable[bytes], contents: Iterable[tuple[bytes | memoryview, ...]]
) -> NDArray[np.float64]:
    """float64 (t, uint64s_per_token): uniforms of rows by id and content; a row is one token."""
    keys = [noise.row_key(row_id, content) for row_id, content in zip(ids, contents, strict=True)]
    uint64s = np.empty((len(keys), noise.uint64s_per_token), dtype=np.uint64)
    for row, key in enumerate(keys):
        noise.fill(uint64s[row : row + 1], key, 0)
    return to_uniform(uint64s)


def _lists(vectors: NDArray[np.float64], present: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Make vectors (t, m) the rows that are present of an Arrow column."""
    lengths = np.where(present, vectors.shape[1], 0)
    numbers = pa.array(vectors.ravel()).cast(kind.value_type)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    return pa.LargeListArray.from_arrays(offsets, numbers, mask=pa.array(~present)).cast(kind)
