"""Fingerprints of released rows, by which a ledger knows them again.

A line for each row and column holds keyed hashes: of the row's id, of what the column holds, of its
slots or masked spans if there are any, of the key that its noise is drawn from, and of each token
that is released raw with its place. Elements of an array that move to another place get fresh noise
there, and nobody can tell which one came from where: so all that a column holds in a row is one
content. Without the user's key the hashes show how many tokens go out raw, and which contents,
spans and raw tokens of one row are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from dptext_spark.accounting.exposure import is_known, recorded_policy
from dptext_spark.noise import NoiseKey
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.tables.batch import Batch, FieldPaths, FieldValues
from dptext_spark.tables.columns import shared
from dptext_spark.text.columns import Spans, column_kind, id_bytes
from dptext_spark.text.policies import TextPolicy

LINES: Final = (
    "row binary, column string, content binary, spans binary, context binary, "
    "unprotected array<bigint>, unknown array<bigint>"
)
"""The columns of fingerprints; the last two are null where a policy from elsewhere decides."""

_BYTES: Final = 16
_BYTES_OF_TOKEN: Final = 8


def fingerprint_batches(
    key: NoiseKey, sanitizer: Sanitizer, paths: FieldPaths, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield fingerprints of rows that ``TableColumns.select`` left; runs in Python workers."""
    sanitizer = shared(sanitizer)
    for batch in Batch.parts(batches, paths):
        row_ids = id_bytes(batch.ids)
        for column, field in batch.fields(sanitizer.visible_words):
            yield _of_column(key, sanitizer, row_ids, column, field)


def _of_column(
    key: NoiseKey, sanitizer: Sanitizer, row_ids: Sequence[bytes], column: str, field: FieldValues
) -> pa.RecordBatch:
    """Return a line for each row of a column."""
    policy = sanitizer.release.policy
    contents: list[list[bytes]] = []
    spans: list[list[bytes]] = []
    contexts: list[list[bytes]] = []
    unprotected: list[list[int]] = []
    unknown: list[list[int]] = []
    for row_id in row_ids:
        # Under any spelling of the column's name.
        contents.append([b"content", row_id, column.lower().encode()])
        spans.append([b"spans", row_id])
        contexts.append([b"context"])
        unprotected.append([])
        unknown.append([])
    # In a text a masked span is one letter, in a list as many elements as before.
    moves_tokens = policy.masks_spans and column_kind(field.values.type, column) == "text"
    values = zip(
        field.rows.tolist(),
        field.positions.astype("<i8"),
        # The first to read values: it refuses what is no Unicode.
        sanitizer.contexts(field.values, field.ids, column=column, **field.of_rows),
        _contents(field.values),
        _spans(field, policy),
        strict=True,
    )
    for row, positions, context, content, value_spans in values:
        place = positions.tobytes()
        contexts[row].append(context.key)
        contents[row] += (place, content)
        spans[row] += (place, _span_bytes(value_spans))
        masked = value_spans if moves_tokens else None
        for hashes, tokens in ((unprotected, context.unprotected), (unknown, context.unknown)):
            if tokens:
                unmasked = _unmasked(tokens, masked)
                hashes[row] += _token_hashes(key, row_ids[row], place, unmasked)
    knows_tokens = is_known(recorded_policy(policy))
    span_hashes = pa.nulls(len(spans), pa.binary())
    if policy.spans_source:
        span_hashes = _hashes(key, spans)
    return pa.RecordBatch.from_pydict(
        {
            "row": _hashes(key, zip(repeat(b"row"), row_ids)),
            "column": pa.repeat(column, len(row_ids)),
            "content": _hashes(key, contents),
            "spans": span_hashes,
            "context": _hashes(key, contexts),
            "unprotected": _token_lists(unprotected, knows_tokens),
            "unknown": _token_lists(unknown, knows_tokens),
        }
    )


def _hashes(key: NoiseKey, rows: Iterable[Sequence[bytes]]) -> pa.Array:
    return pa.array([key.derive(*parts).secret[:_BYTES] for parts in rows], pa.binary())


def _token_hashes(
    key: NoiseKey, row_id: bytes, place: bytes, tokens: Iterable[tuple[int, str]]
) -> Iterator[int]:
    for start, token in tokens:
        token_place = start.to_bytes(8, "little")
        digest = key.derive(b"token", row_id, place, token_place, token.encode()).secret
        yield int.from_bytes(digest[:_BYTES_OF_TOKEN], "little", signed=True)


def _token_lists(rows: Sequence[list[int]], knows_tokens: bool) -> pa.Array:
    """Return lists of hashes without the order of their tokens; nulls where they are not known."""
    kind = pa.list_(pa.int64())
    if not knows_tokens:
        return pa.nulls(len(rows), kind)
    return pa.array([sorted(hashes) for hashes in rows], kind)


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
            numbers = [len(strings)]
            content = []
            for string in strings:
                if string is None:
                    numbers.append(-1)
                else:
                    content.append(string.encode())
                    numbers.append(len(content[-1]))
            yield b"".join([b"list", np.array(numbers, dtype="<i8").tobytes(), *content])


def _spans(field: FieldValues, policy: TextPolicy) -> Spans:
    """Return each value's slots or masked spans; None without any, or where they cannot be read."""
    spans = policy.row_spans(field.values, field.slots)
    return [None] * len(field.values) if spans is None else spans


def _span_bytes(spans: Sequence[tuple[int, int]] | None) -> bytes:
    return b"unreadable" if spans is None else np.array(spans, dtype="<i8").tobytes()


def measures() -> list[Column]:
    """Return aggregates of fingerprints that show whether files hold what was written."""
    names = [field.partition(" ")[0] for field in LINES.split(", ")]
    checksum = F.bit_xor(F.xxhash64(*names))
    return [
        F.count(F.lit(1)).alias("lines"),
        F.coalesce(checksum, F.lit(0)).alias("checksum"),
    ]
