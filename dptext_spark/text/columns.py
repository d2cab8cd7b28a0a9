"""Columns of any library as Arrow arrays, and these as arrays of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text.joined import cut_marked
from dptext_spark.text.tokens import PLAIN, Tokenizer, between, by_form

PLACEHOLDER: Final = "[MASK]"

# Released in place of a token instead of a word: the placeholder, the token itself, nothing, a mark.
MASK: Final = -1
KEEP: Final = -2
DROP: Final = -3
MARK: Final = -4

# Bytes of text held as Python strings at once; a longer row is a slice of its own.
SLICE_BYTES: Final = 1 << 20

Kind = Literal["text", "tokens"]

PythonColumn: TypeAlias = Any
"""An Arrow array, chunked or not, a pandas Series, a NumPy array, or any sequence of Python values."""

Span = tuple[int, int]
"""Where something starts and ends, the end exclusive: code points of a text, or elements of a token list."""

Spans = Sequence[Sequence[Span] | None]
"""The spans of each row, in order, none touching the next; None for a row that is marked as a whole."""

_ALLOWED: Final = "an Arrow array, a pandas Series, a NumPy array of one dimension, or a list"


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def column_kind(data_type: pa.DataType, column: str) -> Kind:
    """Say whether a column holds texts or token lists."""
    if _is_text(data_type):
        return "text"
    if _is_list(data_type) and _is_text(data_type.value_type):
        return "tokens"
    raise InputError(
        f"Column {column} cannot be sanitized", allowed="string, list<string>", got=str(data_type)
    )


def check_unicode(values: pa.Array, column: str) -> None:
    """Refuse strings that are not UTF-8: Parquet and Spark do not check what is in a string column."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:  # it quotes the data, so nothing is chained to it
        raise InputError(
            f"Column {column} has strings that are not valid UTF-8", do="Repair them before the job"
        ) from None


def as_arrow(values: PythonColumn, what: str) -> pa.Array:
    """Give a column as an Arrow array: what pandas takes for missing is null, categories are their values."""
    got = f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}".removeprefix(
        "builtins."
    )
    # Arrow would silently take these apart: a text into letters, a table into its columns' names.
    if isinstance(values, str | bytes | Mapping | Set | pa.Table | pa.RecordBatch):
        raise InputError(f"{what} is not a column", allowed=_ALLOWED, got=got)
    array = None
    with suppress(
        pa.ArrowException, TypeError, ValueError, LookupError, OverflowError, AttributeError
    ):
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        read = values if is_arrow else pa.array(values, from_pandas=True)
        flat = read.combine_chunks() if isinstance(read, pa.ChunkedArray) else read
        array = flat.dictionary_decode() if pa.types.is_dictionary(flat.type) else flat
    if array is None:  # not raised above, as what it would be chained to quotes values
        allowed = f"{_ALLOWED}, with values of one kind and no more than 2 GiB"
        raise InputError(f"{what} cannot be read", allowed=allowed, got=got)
    # Without a value nothing shows the type.
    if not isinstance(values, pa.Array) and array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_list(array.type) and pa.types.is_null(array.type.value_type):
        return array.cast(pa.list_(pa.string()))
    return array


def id_bytes(ids: pa.Array) -> list[bytes]:
    """Encode row ids for the noise's context: equal numbers of different widths give equal bytes."""
    kind = ids.type
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if not (whole or _is_text(kind)):
        raise InputError(
            "The row ids have the wrong type", allowed="integer, string", got=str(kind)
        )
    if ids.null_count:
        raise InputError(
            "Row ids must not be null", got=f"{ids.null_count} nulls in one batch of rows"
        )
    return [str(value).encode() for value in ids.to_pylist()]


def slices(values: pa.Array) -> Iterator[slice]:
    """Cut rows into runs of about ``SLICE_BYTES`` of text, one row at least."""
    is_text = column_kind(values.type, "") == "text"
    sizes = pc.fill_null(pc.binary_length(values if is_text else values.flatten()), 0)
    ends = np.cumsum([0, *(sizes.to_numpy(zero_copy_only=False).astype(np.int64) + 1)])
    ends = ends if is_text else ends[list_offsets(values)]
    start = 0
    while start < len(values):
        stop = max(start + 1, int(np.searchsorted(ends[1:], ends[start] + SLICE_BYTES)))
        yield slice(start, stop)
        start = stop


def list_offsets(lists: pa.ListArray) -> NDArray[np.int64]:
    """int64 (rows + 1,), where each row's elements start in ``lists.flatten()``."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def check_positions(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold positions."""
    integers: set[str] = set()
    if _is_list(data_type) and pa.types.is_struct(kind := data_type.value_type):
        # The index of a name that occurs twice is -1.
        integers = {
            f.name
            for f in kind
            if pa.types.is_integer(f.type) and kind.get_field_index(f.name) >= 0
        }
    if not {"start", "end"} <= integers:
        raise InputError(
            f"Column {column} cannot hold the positions of slots",
            allowed="array<struct<start: int, end: int>>, the end exclusive",
            got=f"{column}, {data_type}",
            do="Give positions, not texts: a text does not say where it stands. Parse JSON before the run",
        )


def read_spans(slots: pa.Array, values: pa.Array, column: str) -> Spans:
    """Read the spans of texts or token lists (rows,) from structs with the integers ``start`` and ``end``.

    A row whose spans are null, malformed, empty or outside its text is marked as a whole.
    """
    nulls = slots.is_null().to_pylist()
    if all(nulls) or (_is_list(slots.type) and not len(slots.flatten())):  # no value shows the type
        return [None if null else [] for null in nulls]
    check_positions(slots.type, column)
    starts, ends = (pc.struct_field(slots.flatten(), name).to_pylist() for name in ("start", "end"))
    pairs = zip(starts, ends, strict=True)
    lengths = pc.fill_null(pc.list_value_length(slots), 0).to_pylist()
    measure = pc.list_value_length if _is_list(values.type) else pc.utf8_length
    sizes = pc.fill_null(measure(values), 0).to_pylist()
    spans: list[list[Span] | None] = []
    for null, length, size in zip(nulls, lengths, sizes, strict=True):
        own = [*islice(pairs, length)]
        sound = not null and all(
            None not in pair and 0 <= pair[0] < pair[1] <= size for pair in own
        )
        merged: list[Span] = []
        for start, end in sorted(own) if sound else ():
            if merged and start <= merged[-1][1]:
                first, last = merged.pop()
                start, end = first, max(last, end)
            merged.append((start, end))
        spans.append(merged if sound else None)
    return spans


def with_letter(values: pa.Array, spans: Spans, letter: str) -> pa.Array:
    """Put one letter in place of each span of texts, or of each element that one covers."""
    rows: list[str | list[str | None] | None] = []
    for value, own in zip(values.to_pylist(), spans, strict=True):
        if isinstance(value, str):
            pieces = [value[start:end] for start, end in between(own or (), len(value))]
            value = letter * bool(value) if own is None else letter.join(pieces)
        elif value is not None:
            for start, end in [(0, len(value))] if own is None else own:
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
            rows = zip(strings, [()] * len(strings) if spans is None else spans, strict=True)
            cuts = [cut_marked(text or "", own, tokenizer) for text, own in rows]
            elements = pa.array([token for tokens, _ in cuts for token in tokens], pa.string())
            offsets = np.cumsum([0, *(len(tokens) for tokens, _ in cuts)], dtype=np.int64)
            marked = np.array([flag for _, flags in cuts for flag in flags], dtype=np.bool_)
        else:
            elements, offsets = values.flatten(), list_offsets(values)
            strings = elements.to_pylist()
            marked = np.zeros(len(elements), dtype=np.bool_)
            for own, first, after in zip(
                spans or (), offsets[:-1], offsets[1:], strict=bool(spans)
            ):
                for start, end in [(0, after - first)] if own is None else own:
                    marked[first + start : first + end] = True
        encoded = elements.cast(pa.string()).dictionary_encode()
        return cls(
            distinct=encoded.dictionary,
            codes=encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False),
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
        """int64 (tokens,), the row of each token."""
        return np.repeat(np.arange(len(self.null_rows)), np.diff(self.offsets))

    def flag(self, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        """bool (tokens,): apply a test once per distinct token; null elements give False."""
        flags = np.array([*map(test, self.distinct.to_pylist()), False], dtype=np.bool_)
        return flags[self.codes]  # code -1, a null element, picks the last entry

    def count(self, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64 (rows,): how many tokens of each row are flagged."""
        return np.bincount(self.rows[flags], minlength=len(self.null_rows))

    def row_tokens(self) -> Iterator[list[str | None]]:
        """Give each row's tokens as Python strings."""
        tokens = [*self.distinct.to_pylist(), None]
        return (
            [tokens[code] for code in self.codes[a:b].tolist()] for a, b in pairwise(self.offsets)
        )

    def row_content(self, row: int) -> tuple[bytes, bytes]:
        """A row's content for the noise's context: its strings' lengths (-1 for null) and bytes.

        What else decides on words comes in too: the spans of a text, and whether lookup forms do. Equal
        contents have equal words at equal positions.
        """
        elements = self.kind == "tokens"
        strings = (
            self.strings[self.offsets[row] : self.offsets[row + 1]]
            if elements
            else [self.strings[row]]
        )
        rules = b"form" * by_form("\n".join(filter(None, strings)), elements=elements)
        if (
            spans := b""
            if elements or not self.spans
            else np.array(self.spans[row] or (), "<i8").tobytes()
        ):
            rules += b"slots" + spans
        content = [None if string is None else string.encode() for string in strings]
        lengths = np.array(
            [-1 if string is None else len(string) for string in content], dtype="<i8"
        )
        return lengths.tobytes() + rules, b"".join(filter(None, content))
