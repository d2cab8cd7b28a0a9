"""Columns of any library as Arrow arrays, and these as arrays of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.arguments import type_name
from dptext_spark.errors import InputError
from dptext_spark.text.joined import cut_marked
from dptext_spark.text.tokens import PLAIN, Tokenizer, between, by_form

PLACEHOLDER: Final = "[MASK]"

# Released in place of a token, other than a word: the placeholder, the token, nothing, a mark. Each
# type of mark has a code of its own, from MARK down.
MASK: Final = -1
KEEP: Final = -2
DROP: Final = -3
MARK: Final = -4

# Bytes of text held as Python strings at once; a longer row is a slice of its own.
SLICE_BYTES: Final = 1 << 20

Kind = Literal["text", "tokens"]

PythonColumn: TypeAlias = Any
"""An Arrow array, chunked or not, a pandas Series, a NumPy array, or a sequence of values."""

Span = tuple[int, int]
"""Start and end, the end exclusive: code points of a text, or elements of a token list."""

Spans = Sequence[Sequence[Span] | None]
"""The spans of each row, in order, none touching the next; None for a row marked as a whole."""

_ALLOWED: Final = "an Arrow array, a pandas Series, a NumPy array of one dimension, or a list"


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def column_kind(data_type: pa.DataType, column: str) -> Kind:
    """Return whether a column holds texts or token lists."""
    if _is_text(data_type):
        return "text"
    if _is_list(data_type) and _is_text(data_type.value_type):
        return "tokens"
    raise InputError(
        f"Column {column} cannot be sanitized", allowed="string, list<string>", got=str(data_type)
    )


def check_unicode(values: pa.Array, column: str) -> None:
    """Check that strings are UTF-8: Parquet and Spark do not check what is in a string column."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:  # it quotes the data, so nothing is chained to it
        raise InputError(
            f"Column {column} has strings that are not valid UTF-8", do="Repair them before the job"
        ) from None


def as_arrow(values: PythonColumn, what: str) -> pa.Array:
    """Convert a column to Arrow: pandas' missing values become null, categories are decoded."""
    kind_name = type_name(values)
    do = ""
    if kind_name.endswith((".DataFrame", ".Table")):
        do = "Take one column of it, such as df['text']"
    # Arrow would silently take these apart: a text into letters, a table into its columns' names.
    if isinstance(values, str | bytes | Mapping | Set | pa.Table | pa.RecordBatch):
        raise InputError(f"{what} is not a column", allowed=_ALLOWED, got=kind_name, do=do)
    array = None
    with suppress(
        pa.ArrowException, TypeError, ValueError, LookupError, OverflowError, AttributeError
    ):
        array = _decoded(values)
    if array is None:  # not raised above, as what it would be chained to quotes values
        allowed = f"{_ALLOWED}, with values of one kind and no more than 2 GiB"
        raise InputError(f"{what} cannot be read", allowed=allowed, got=kind_name, do=do)
    # Without a value nothing shows the type.
    if not isinstance(values, pa.Array) and array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_list(array.type) and pa.types.is_null(array.type.value_type):
        return array.cast(pa.list_(pa.string()))
    return array


def _decoded(values: PythonColumn) -> pa.Array:
    """Return a column as one Arrow array without a dictionary."""
    array = values
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        array = pa.array(values, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array


def id_bytes(ids: pa.Array) -> list[bytes]:
    """Return row ids for the noise's context: equal numbers give equal bytes at any width."""
    _check_ids(ids)
    return [str(value).encode() for value in ids.to_pylist()]


def _check_ids(ids: pa.Array) -> None:
    """Check that row ids are integers or strings, without nulls."""
    kind = ids.type
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if not (is_whole or _is_text(kind)):
        raise InputError(
            "The row ids have the wrong type", allowed="integer, string", got=str(kind)
        )
    if ids.null_count:
        raise InputError(
            "Row ids must not be null", got=f"{ids.null_count} nulls in one batch of rows"
        )


def check_unique(ids: pa.Array) -> None:
    """Check that no row id comes twice."""
    _check_ids(ids)
    distinct = pc.count_distinct(ids, mode="all").as_py()
    if distinct < len(ids):
        raise InputError(
            "Row ids must be unique: rows of one id show whether their texts are equal",
            got=f"{len(ids):,} rows, {distinct:,} distinct ids",
            do="Give other ids, or vouch for these with trust_id=True",
        )


def check_lengths(column: str, rows: int, length: int, what: str) -> None:
    """Check that each row of a column has one of what belongs to it."""
    if length != rows:
        of_rows = "row" if rows == 1 else "rows"
        of_length = what if length == 1 else f"{what}s"
        raise InputError(
            f"Column {column} has {rows:,} {of_rows} but {length:,} {of_length}",
            do="Take both from the same rows",
        )


def slices(values: pa.Array) -> Iterator[slice]:
    """Yield runs of rows with about ``SLICE_BYTES`` of text, one row at least."""
    is_text = column_kind(values.type, "") == "text"
    strings = values if is_text else values.flatten()
    sizes = pc.fill_null(pc.binary_length(strings), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(sizes.astype(np.int64) + 1)])
    if not is_text:
        ends = ends[list_offsets(values)]
    start = 0
    while start < len(values):
        stop = max(start + 1, int(np.searchsorted(ends[1:], ends[start] + SLICE_BYTES)))
        yield slice(start, stop)
        start = stop


def list_offsets(lists: pa.ListArray) -> NDArray[np.int64]:
    """Return int64 (rows + 1,): where each row's elements start in ``lists.flatten()``."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def check_positions(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold positions."""
    integers: set[str] = set()
    if _is_list(data_type) and pa.types.is_struct(data_type.value_type):
        struct = data_type.value_type
        for field in struct:
            is_unique = struct.get_field_index(field.name) >= 0  # -1 where the name occurs twice
            if is_unique and pa.types.is_integer(field.type):
                integers.add(field.name)
    if not {"start", "end"} <= integers:
        raise InputError(
            f"Column {column} cannot hold the positions of slots",
            allowed="array<struct<start: int, end: int>>, the end exclusive",
            got=f"{column}, {data_type}",
            do="Give positions, not texts. Parse JSON before the run",
        )


def read_spans(slots: pa.Array, values: pa.Array, column: str) -> Spans:
    """Read the spans of texts or token lists (rows,) from structs of ``start`` and ``end``.

    A row whose spans are null, malformed, empty or outside its text is marked as a whole.
    """
    nulls = slots.is_null().to_pylist()
    if all(nulls) or (_is_list(slots.type) and not len(slots.flatten())):  # no value shows the type
        return [None if null else [] for null in nulls]
    check_positions(slots.type, column)
    structs = slots.flatten()
    starts = pc.struct_field(structs, "start").to_pylist()
    ends = pc.struct_field(structs, "end").to_pylist()
    pairs = zip(starts, ends, strict=True)
    lengths = pc.fill_null(pc.list_value_length(slots), 0).to_pylist()
    measure = pc.list_value_length if _is_list(values.type) else pc.utf8_length
    sizes = pc.fill_null(measure(values), 0).to_pylist()
    spans: list[list[Span] | None] = []
    for is_null, length, size in zip(nulls, lengths, sizes, strict=True):
        row_pairs = [*islice(pairs, length)]
        if is_null or not all(is_inside(pair, size) for pair in row_pairs):
            spans.append(None)
        else:
            spans.append(merged(row_pairs))
    return spans


def is_inside(pair: tuple[int | None, int | None], size: int) -> bool:
    """Return whether a start and an end make a span of a text of that size."""
    start, end = pair
    return start is not None and end is not None and 0 <= start < end <= size


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; those that overlap or touch become one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            first, last = merged.pop()
            merged.append((first, max(last, end)))
        else:
            merged.append((start, end))
    return merged


def with_letter(values: pa.Array, spans: Spans, letter: str) -> pa.Array:
    """Return values with one letter in place of each span of texts, or of each covered element."""
    rows: list[str | list[str | None] | None] = []
    for value, row_spans in zip(values.to_pylist(), spans, strict=True):
        if value is not None and len(value) > 0:
            if row_spans is None:
                row_spans = [(0, len(value))]
            if isinstance(value, str):
                pieces = [value[start:end] for start, end in between(row_spans, len(value))]
                value = letter.join(pieces)
            else:
                for start, end in row_spans:
                    value[start:end] = [letter] * (end - start)
        rows.append(value)
    return pa.array(rows, values.type)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of some rows of a column, flattened and dictionary-encoded."""

    distinct: pa.StringArray  # as they stand in the rows
    codes: NDArray[np.int64]  # (tokens,), index into ``distinct``; -1 for a null element
    offsets: NDArray[np.int64]  # (rows + 1,), where each row's tokens start
    null_rows: NDArray[np.bool_]
    data_type: pa.DataType
    strings: list[str | None]  # the texts, or the elements of all token lists
    tokenizer: Tokenizer = PLAIN
    spans: Spans | None = None
    marked: NDArray[np.bool_]  # (tokens,), which of them belong to spans

    @classmethod
    def of(
        cls, values: pa.Array, tokenizer: Tokenizer = PLAIN, spans: Spans | None = None
    ) -> Tokens:
        """Read a column of texts, which the tokenizer splits, or of token lists."""
        if column_kind(values.type, "") == "text":
            strings = values.to_pylist()
            tokens, offsets, marked = _cut_texts(strings, tokenizer, spans)
            elements = pa.array(tokens, pa.string())
        else:
            elements = values.flatten()
            strings = elements.to_pylist()
            offsets = list_offsets(values)
            marked = _marked_elements(offsets, spans)
        encoded = elements.cast(pa.string()).dictionary_encode()
        codes = encoded.indices.cast(pa.int64()).fill_null(-1)
        return cls(
            distinct=encoded.dictionary,
            codes=codes.to_numpy(zero_copy_only=False),
            offsets=offsets,
            null_rows=values.is_null().to_numpy(zero_copy_only=False),
            data_type=values.type,
            strings=strings,
            tokenizer=tokenizer,
            spans=spans,
            marked=marked,
        )

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def kind(self) -> Kind:
        return column_kind(self.data_type, "")

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Return int64 (tokens,): the row of each token."""
        return np.repeat(np.arange(len(self.null_rows)), np.diff(self.offsets))

    def flag(self, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Return bool (tokens,): a test, run once per distinct token; False for null elements."""
        flags = np.array([*map(test, self.distinct.to_pylist()), False], dtype=np.bool_)
        return flags[self.codes]  # code -1, a null element, picks the last entry

    def count(self, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return int64 (rows,): how many tokens of each row are flagged."""
        return np.bincount(self.rows[flags], minlength=len(self.null_rows))

    def row_tokens(self) -> Iterator[list[str | None]]:
        """Yield each row's tokens as Python strings."""
        tokens = [*self.distinct.to_pylist(), None]
        for start, end in pairwise(self.offsets):
            yield [tokens[code] for code in self.codes[start:end].tolist()]

    def row_content(self, row: int) -> tuple[bytes, bytes]:
        """Return a row's content for the noise's context: its strings' lengths and its bytes.

        The length of null is -1. The first part also has what else decides on words: whether lookup
        forms do, and the spans of a text. Equal contents have equal words at equal positions.
        """
        is_list = self.kind == "tokens"
        if is_list:
            strings = self.strings[self.offsets[row] : self.offsets[row + 1]]
        else:
            strings = [self.strings[row]]
        rules = b""
        if by_form("\n".join(filter(None, strings)), elements=is_list):
            rules += b"form"
        if self.spans and not is_list:
            row_spans = self.spans[row]
            if row_spans:
                rules += b"slots" + np.array(row_spans, "<i8").tobytes()
        contents: list[bytes] = []
        lengths: list[int] = []
        for string in strings:
            if string is None:
                lengths.append(-1)
            else:
                contents.append(string.encode())
                lengths.append(len(contents[-1]))
        return np.array(lengths, dtype="<i8").tobytes() + rules, b"".join(contents)


def _cut_texts(
    texts: Sequence[str | None], tokenizer: Tokenizer, spans: Spans | None
) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the tokens of texts, where each text's tokens start, and which belong to spans."""
    if spans is None:
        spans = [()] * len(texts)
    tokens: list[str] = []
    marked: list[bool] = []
    offsets = [0]
    for text, text_spans in zip(texts, spans, strict=True):
        text_tokens, flags = cut_marked(text or "", text_spans, tokenizer)
        tokens += text_tokens
        marked += flags
        offsets.append(len(tokens))
    return tokens, np.array(offsets, dtype=np.int64), np.array(marked, dtype=np.bool_)


def _marked_elements(offsets: NDArray[np.int64], spans: Spans | None) -> NDArray[np.bool_]:
    """Return bool (tokens,): which elements of token lists their rows' spans cover."""
    marked = np.zeros(offsets[-1], dtype=np.bool_)
    if spans is None:
        return marked
    for row_spans, (first, after) in zip(spans, pairwise(offsets), strict=True):
        if row_spans is None:
            marked[first:after] = True
        else:
            for start, end in row_spans:
                marked[first + start : first + end] = True
    return marked
