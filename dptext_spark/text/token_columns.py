"""Arrow columns as arrays of tokens, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text.marks import Marks, cut_marked
from dptext_spark.text.tokens import PLAIN, Tokenizer, hides

PLACEHOLDER: Final = "[MASK]"

# What is released in place of a token, where it is no word: the placeholder, the token itself, nothing.
MASK: Final = -1
KEEP: Final = -2
DROP: Final = -3

# Bytes of text held as Python strings at once; a longer row is a slice of its own.
SLICE_BYTES: Final = 1 << 20

Kind = Literal["text", "tokens"]


def column_kind(data_type: pa.DataType, column: str) -> Kind:
    """Tell a text column from a token column.

    Raises:
        InputError: The type is neither.
    """
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return "text"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        inner = data_type.value_type
        if pa.types.is_string(inner) or pa.types.is_large_string(inner):
            return "tokens"
    raise InputError(
        f"Column {column} cannot be sanitized", allowed="string, list<string>", got=str(data_type)
    )


def check_unicode(values: pa.Array, column: str) -> None:
    """Refuse strings that are not UTF-8: Parquet and Spark do not check what is in a string column.

    Raises:
        InputError: A string is not valid UTF-8.
    """
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:  # its text is left out of the chain: it belongs to the data
        raise InputError(
            f"Column {column} has strings that are not valid UTF-8", do="Repair them before the job"
        ) from None


def id_bytes(ids: pa.Array) -> list[bytes]:
    """Encode row ids for the noise's context: equal numbers of different widths give equal bytes.

    Raises:
        InputError: The type is neither integer nor string, or an id is null.
    """
    kind = ids.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError("The row ids have the wrong type", allowed="integer, string", got=str(kind))
    if ids.null_count:
        raise InputError("Row ids must not be null", got=f"{ids.null_count} nulls in one batch of rows")
    return [str(value).encode() for value in ids.to_pylist()]


def slices(values: pa.Array) -> Iterator[slice]:
    """Cut rows into runs of about ``SLICE_BYTES`` of text, one row at least."""
    strings = values if column_kind(values.type, "") == "text" else values.flatten()
    sizes = pc.fill_null(pc.binary_length(strings), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(sizes + 1)
    if strings is not values:
        ends = np.concatenate([[0], ends])[list_offsets(values)[1:]]
    start = 0
    while start < len(values):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + SLICE_BYTES)))
        yield slice(start, stop)
        start = stop


def list_offsets(lists: pa.ListArray) -> NDArray[np.int64]:
    """int64 (rows + 1,), where each row's elements start in ``lists.flatten()``."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of some rows of a column, flattened and dictionary-encoded.

    Attributes:
        distinct: The distinct tokens, as they stand in the rows.
        codes: int64 (tokens,), index into ``distinct``; -1 for a null element.
        offsets: int64 (rows + 1,), where each row's tokens start.
        null_rows: bool (rows,).
        data_type: The column's Arrow type.
        content: The column's strings, from which the rows' bytes are read.
        content_offsets: int64 (rows + 1,), where each row's strings start in ``content``.
        tokenizer: Of texts.
        marks: The marked spans of the rows, if there are any.
        marked: bool (tokens,), those that belong to them.
    """

    distinct: pa.StringArray
    codes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    null_rows: NDArray[np.bool_]
    data_type: pa.DataType
    content: pa.LargeStringArray
    content_offsets: NDArray[np.int64]
    tokenizer: Tokenizer = PLAIN
    marks: Marks | None = None
    marked: NDArray[np.bool_]

    @classmethod
    def of(cls, values: pa.Array, tokenizer: Tokenizer = PLAIN, marks: Marks | None = None) -> Tokens:
        """Read a column of texts, which the tokenizer splits, or of token lists; ``marks`` are its spans."""
        lists, strings = values, values
        apart: dict[int, tuple[list[str], list[bool]]] = {}
        if is_text := column_kind(values.type, "") == "text":
            texts = values.to_pylist()
            if marks is not None:
                apart = {row: cut_marked(texts[row], spans, tokenizer) for row, spans in marks.spans.items()}
            tokens = [
                apart[row][0] if row in apart else None if text is None else tokenizer(text)
                for row, text in enumerate(texts)
            ]
            lists = pa.array(tokens, type=pa.list_(pa.string()))
        else:
            strings = values.flatten()
        encoded = lists.flatten().cast(pa.string()).dictionary_encode()
        offsets = list_offsets(lists)
        marked = np.zeros(offsets[-1], dtype=np.bool_)
        if marks is not None:
            marked = np.repeat(marks.whole, np.diff(offsets)) if is_text else marks.elements(offsets)
        for row, (_, flags) in apart.items():
            marked[offsets[row] : offsets[row + 1]] = flags
        return cls(
            distinct=encoded.dictionary,
            codes=encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False),
            offsets=offsets,
            null_rows=values.is_null().to_numpy(zero_copy_only=False),
            data_type=values.type,
            content=strings.cast(pa.large_string()),
            content_offsets=np.arange(len(values) + 1) if is_text else list_offsets(values),
            tokenizer=tokenizer,
            marks=marks,
            marked=marked,
        )

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def kind(self) -> Kind:
        """Whether the column holds texts or token lists."""
        return column_kind(self.data_type, "")

    @property
    def units(self) -> str:
        """What the tokens are, as the noise's context has it: two tokenizers of texts share no noise."""
        if self.kind == "tokens" or not self.tokenizer.identity:
            return f"{self.kind} word"
        return f"{self.kind} word, {self.tokenizer.identity}"

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
        """Give each row's tokens as Python strings, for policies that look at a row whole."""
        tokens = self.distinct.take(pa.array(self.codes, mask=self.codes < 0)).to_pylist()
        return (tokens[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    @cached_property
    def _bytes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], memoryview]:
        filled = self.content.fill_null("")
        _, offsets, data = filled.buffers()
        bounds = np.frombuffer(offsets, np.int64)[filled.offset :][: len(filled) + 1]
        lengths = np.diff(bounds)
        lengths[self.content.is_null().to_numpy(zero_copy_only=False)] = -1
        return lengths, bounds, memoryview(data or b"")

    def row_content(self, row: int) -> tuple[bytes, memoryview]:
        """A row's content for the noise's context: its strings' lengths (-1 for null) and bytes.

        To a text belongs what else decides its tokens: its spans, and by which rule it is cut where it has
        invisible characters. Equal contents have equal tokens at equal positions.
        """
        lengths, bounds, data = self._bytes
        start, stop = self.content_offsets[row], self.content_offsets[row + 1]
        content = data[bounds[start] : bounds[stop]]
        rules = b""
        if self.kind == "text":
            spans = b"" if self.marks is None else self.marks.to_bytes(row)
            rules = b"visible" * hides(str(content, "utf-8")) + b"slots" * bool(spans) + spans
        return lengths[start:stop].astype("<i8").tobytes() + rules, content
