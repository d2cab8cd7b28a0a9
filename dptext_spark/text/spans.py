"""Slots, the parts of a row that its table marks by position: how spans are read, and texts cut at them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, islice

import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.errors import InputError
from dptext_spark.text.joined import unused_letter
from dptext_spark.text.tokens import Tokenizer, between, straight, token_spans

Span = tuple[int, int]
"""Where something starts and ends, the end exclusive: code points of a text, or elements of a token list."""

Spans = Sequence[Sequence[Span] | None]
"""The spans of each row, in order, none touching the next; None for a row that is marked as a whole."""


def check_positions(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold positions."""
    integers: set[str] = set()
    if _is_list(data_type) and pa.types.is_struct(kind := data_type.value_type):
        # The index of a name that occurs twice is -1.
        integers = {f.name for f in kind if pa.types.is_integer(f.type) and kind.get_field_index(f.name) >= 0}
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
        sound = not null and all(None not in pair and 0 <= pair[0] < pair[1] <= size for pair in own)
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


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def cut_marked(
    text: str, spans: Sequence[Span] | None, tokenizer: Tokenizer, *, whole: bool = False
) -> tuple[list[str], list[bool]]:
    """Cut a text into tokens so that those outside of its spans do not depend on what the spans hold.

    The text is cut with one letter in place of each span. A token without such a letter is outside, and
    stands as it is. What a token with one covers in the text belongs to the spans, and is cut on its own, or
    is one token where it stays ``whole``. Gives the tokens in their order, and which of them belong to spans.
    """
    if not spans:
        tokens = tokenizer(text)
        return tokens, [spans is None] * len(tokens)
    outside = [text[start:end] for start, end in between(spans, len(text))]
    covered = straight(unused_letter(tokenizer).join(outside))
    letters = [end + n for n, end in enumerate(accumulate(map(len, outside[:-1])))]
    longer = [0, *accumulate(end - start - 1 for start, end in spans)]
    tokens, marked = [], []
    for start, end in token_spans(covered, tokenizer(covered)):
        first, after = bisect_left(letters, start), bisect_left(letters, end)
        inside = first < after
        held = text[start + longer[first] : end + longer[after]] if inside else covered[start:end]
        own = tokenizer(held) if inside and not whole else [held]
        tokens += own
        marked += [inside] * len(own)
    return tokens, marked
