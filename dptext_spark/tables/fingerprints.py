"""Fingerprints of released rows, by which a ledger knows them again.

A line for each row and column holds keyed hashes: of the row's id, of what the column holds, of its
slots or masked spans if there are any, of the key that its noise is drawn from, and of each token
that goes out raw with its place. Elements of an array that move to another place get fresh noise
there, and nobody can tell which one came from where: so all that a column holds in a row is one
content. Without the user's key the hashes show how many tokens go out raw, and which contents,
spans and raw tokens of one row are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from dptext_spark.accounting.exposure import is_known, recorded_policy
from dptext_spark.noise import NoiseKey
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.tables.batch import Batch, Fields, FieldValues
from dptext_spark.tables.columns import shared
from dptext_spark.text.columns import Spans, column_kind, id_bytes, read_spans

LINES: Final = (
    "row binary, column string, content binary, spans binary, context binary, "
    "unprotected array<bigint>, unknown array<bigint>"
)
"""The columns of fingerprints; the last two are null where a policy from elsewhere decides."""

_FIELDS: Final = [field.split() for field in LINES.split(", ")]
_BYTES: Final = 16
_BYTES_OF_TOKEN: Final = 8


def fingerprint_batches(
    key: NoiseKey, sanitizer: Sanitizer, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield fingerprints of rows that ``TableColumns.select`` gave, in workers, by a derived key."""
    sanitizer = shared(sanitizer)
    policy = sanitizer.release.policy
    spans_column = policy.spans_column
    knows_tokens = is_known(recorded_policy(policy))

    def hashed(*parts: bytes | memoryview) -> bytes:
        return key.derive(*parts).secret[:_BYTES]

    def hashed_tokens(
        row_id: bytes, place: bytes, tokens: Iterable[tuple[int, str]]
    ) -> Iterator[int]:
        for start, token in tokens:
            token_place = start.to_bytes(8, "little")
            digest = key.derive(b"token", row_id, place, token_place, token.encode()).secret
            yield int.from_bytes(digest[:_BYTES_OF_TOKEN], "little", signed=True)

    for batch in Batch.parts(batches, ways):
        row_ids = id_bytes(batch.ids)
        rows = pa.array([hashed(b"row", row_id) for row_id in row_ids], pa.binary())
        for column, found in batch.fields(sanitizer.visible_words):
            # Under any spelling of the column's name.
            contents = [[b"content", row_id, column.lower().encode()] for row_id in row_ids]
            spans = [[b"spans", row_id] for row_id in row_ids]
            keys = [[b"context"] for _ in row_ids]
            unprotected: list[list[int]] = [[] for _ in row_ids]
            unknown: list[list[int]] = [[] for _ in row_ids]
            # In a text a masked span is one letter, in a list as many elements as before.
            moves_tokens = (
                bool(policy.mask_spans) and column_kind(found.values.type, column) == "text"
            )
            of_values = zip(
                found.rows.tolist(),
                found.positions.astype("<i8"),
                # The first to read values: it refuses what is no Unicode.
                sanitizer.contexts(found.values, found.ids, column=column, **found.given),
                _contents(found.values),
                _spans(found, spans_column),
                strict=True,
            )
            for row, positions, context, content, value_spans in of_values:
                place = positions.tobytes()
                keys[row].append(context.key)
                contents[row] += (place, content)
                spans[row] += (place, _span_bytes(value_spans))
                masked = value_spans if moves_tokens else None
                for tokens, raw in ((unprotected, context.unprotected), (unknown, context.unknown)):
                    if raw:
                        tokens[row] += hashed_tokens(row_ids[row], place, _unmasked(raw, masked))
            yield pa.RecordBatch.from_pydict(
                {
                    "row": rows,
                    "column": pa.array([column] * len(rows), pa.string()),
                    "content": pa.array([hashed(*parts) for parts in contents], pa.binary()),
                    "spans": pa.array(
                        [hashed(*parts) if spans_column else None for parts in spans], pa.binary()
                    ),
                    "context": pa.array([hashed(*parts) for parts in keys], pa.binary()),
                    "unprotected": _sorted(unprotected if knows_tokens else [None] * len(rows)),
                    "unknown": _sorted(unknown if knows_tokens else [None] * len(rows)),
                }
            )


def _sorted(tokens: Sequence[list[int] | None]) -> pa.Array:
    """Return lists of hashes without the order of their tokens."""
    return pa.array(
        [None if of_row is None else sorted(of_row) for of_row in tokens], pa.list_(pa.int64())
    )


def _unmasked(
    tokens: Iterable[tuple[int, str]], spans: Sequence[tuple[int, int]] | None
) -> Iterator[tuple[int, str]]:
    """Yield tokens with their places in the text as it was before each span became a letter."""
    for start, token in tokens:
        for first, end in spans or ():
            if first < start:
                start += end - first - 1
        yield start, token


def _contents(values: pa.Array) -> Iterator[bytes]:
    """Yield what each text or token list holds; other contents are other bytes."""
    for value in values:
        strings = value.as_py()
        if strings is None:
            yield b"null"
        elif isinstance(strings, str):
            yield b"text" + strings.encode()
        else:
            encoded = [None if string is None else string.encode() for string in strings]
            lengths = [-1 if string is None else len(string) for string in encoded]
            numbers = np.array([len(lengths), *lengths], dtype="<i8").tobytes()
            yield b"".join([b"list", numbers, *filter(None, encoded)])


def _spans(found: FieldValues, column: str | None) -> Spans:
    """Read each value's slots or masked spans; None where there are none, or they cannot be read."""
    if column is None or found.slots is None:
        return [None] * len(found.values)
    return read_spans(found.slots, found.values, column)


def _span_bytes(spans: Sequence[tuple[int, int]] | None) -> bytes:
    return b"unreadable" if spans is None else np.array(spans, dtype="<i8").tobytes()


def measures() -> list[Column]:
    """Aggregates of fingerprints that say whether files hold what was written."""
    lines = F.xxhash64(*(name for name, _ in _FIELDS))
    return [
        F.count(F.lit(1)).alias("lines"),
        F.coalesce(F.bit_xor(lines), F.lit(0)).alias("checksum"),
    ]
