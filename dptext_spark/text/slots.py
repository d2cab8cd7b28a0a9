"""Slots, the parts of a row's text that its table names: how they are read, and where they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text.joined_words import parts_of
from dptext_spark.text.marks import Marks, Span
from dptext_spark.text.token_columns import column_kind, list_offsets
from dptext_spark.text.tokens import PLAIN, Tokenizer, match_form

POSITIONS: Final = "array<struct<start: int, end: int>>, the end exclusive, or a string with the same as JSON"
PIECES: Final = "array<struct<text: string, slot: string>>, or a string with the same as JSON"
TEXTS: Final = "array<string>, array<struct<text: string>>, or a string with either as JSON"

_NAMES: Final = ("slot", "slot_name", "entity")
"""Fields of a piece of text; it is a slot where one of them is not null."""

_LARGEST: Final = 1 << 31  # code points of a text

_GIVEN_AS_TEXTS: Final = (
    "Slots are given as texts, which do not say where they stand: wherever else such a text occurs, what "
    "becomes of it there tells what the slot is"
)
_DO: Final = (
    "Give positions, or all pieces of the text in their order (slots-in-order:{column}); "
    "slots-by-text:{column} takes texts, and proves less"
)


def check_positions(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold positions.

    Raises:
        InputError: It cannot; slots as texts are told apart.
    """
    fields = _fields(data_type)
    places = [fields.get(name, pa.null()) for name in ("start", "end")]
    if _is_string(data_type) or all(map(pa.types.is_integer, places)):
        return
    texts = (_is_list(data_type) and _is_string(data_type.value_type)) or _is_string(fields.get("text"))
    raise InputError(
        _GIVEN_AS_TEXTS if texts else f"Column {column} cannot hold the positions of slots",
        allowed=POSITIONS,
        got=f"{column}, {data_type}",
        do=_DO.format(column=column) if texts else "",
    )


def check_pieces(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold the pieces of a text.

    Raises:
        InputError: It cannot.
    """
    fields = _fields(data_type)
    if _is_string(data_type) or (_is_string(fields.get("text")) and {*fields} & {*_NAMES}):
        return
    raise InputError(
        f"Column {column} cannot hold the pieces of texts", allowed=PIECES, got=f"{column}, {data_type}"
    )


def check_texts(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold texts of slots.

    Raises:
        InputError: It cannot.
    """
    listed = _is_list(data_type) and _is_string(data_type.value_type)
    if _is_string(data_type) or listed or _is_string(_fields(data_type).get("text")):
        return
    raise InputError(
        f"Column {column} cannot hold the texts of slots", allowed=TEXTS, got=f"{column}, {data_type}"
    )


def marks_of_positions(slots: pa.Array, values: pa.Array, column: str) -> Marks:
    """Read spans: structs with integers ``start`` and ``end``, or JSON of them.

    A row whose spans are null, malformed, empty or outside its text is marked whole: in doubt nothing passes.

    Args:
        slots: The spans of each row, in code points of a text or in elements of a token list.
        values: Texts or token lists.
        column: What the slots' column is called in messages.

    Raises:
        InputError: The type is none of these, or JSON gives slots as texts.
    """
    if no_values(slots):
        slots = slots.cast(pa.string()) if pa.types.is_null(slots.type) else _no_positions(slots)
    check_positions(slots.type, column)
    if _is_string(slots.type):
        read = [_json_positions(value, column) for value in slots.to_pylist()]
        return _of_rows(read, _lengths(values))
    elements, counts, doubtful = _flattened(slots)
    starts, ends = (_integers(pc.struct_field(elements, name)) for name in ("start", "end"))
    return Marks.within(starts, ends, counts, _lengths(values), doubtful)


def marks_of_pieces(slots: pa.Array, values: pa.Array, column: str) -> Marks:
    """Read all pieces of each text in their order: structs with ``text`` and a name, or JSON of them.

    Those with a name (``slot``, ``slot_name`` or ``entity`` that is not null) are slots. Where the pieces do
    not make up the text, character for character, it is marked whole.

    Args:
        slots: The pieces of each row.
        values: Texts.
        column: What the slots' column is called in messages.

    Raises:
        InputError: A type is none of these.
    """
    if column_kind(values.type, "") != "text":
        raise InputError("Only texts have pieces", allowed="string", got=str(values.type))
    if no_values(slots):
        slots = pa.nulls(len(slots), pa.string())
    check_pieces(slots.type, column)
    if _is_string(slots.type):
        rows = zip(slots.to_pylist(), values.to_pylist(), strict=True)
        return _of_rows([_json_pieces(value, text or "") for value, text in rows], _lengths(values))
    elements, counts, doubtful = _flattened(slots)
    texts = pc.struct_field(elements, "text").cast(pa.large_string())
    offsets = np.concatenate([[0], np.cumsum(counts)])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), texts)
    joined = pc.binary_join(lists, pa.scalar("", pa.large_string()))
    same = pc.fill_null(pc.equal(joined, values.cast(pa.large_string())), False)
    ends = np.cumsum(_integers(pc.utf8_length(texts), absent=0))
    before = np.concatenate([[0], ends])
    row_starts = np.repeat(before[offsets[:-1]], counts)
    named = np.zeros(len(elements), dtype=np.bool_)
    for name in {*_fields(slots.type)} & {*_NAMES}:
        named |= _flags(pc.is_valid(pc.struct_field(elements, name)))
    named &= ends > before[:-1]
    return Marks.within(
        (before[:-1] - row_starts)[named],
        (ends - row_starts)[named],
        np.bincount(np.repeat(np.arange(len(counts)), counts)[named], minlength=len(counts)),
        _lengths(values),
        doubtful | ~_flags(same),
    )


def no_values(slots: pa.Array) -> bool:
    """Whether all rows are null or without slots: nothing is there to tell the form by."""
    return pa.types.is_null(slots.type) or (_is_list(slots.type) and not len(slots.flatten()))


def _no_positions(slots: pa.Array) -> pa.Array:
    spans = pa.array([], pa.struct({"start": pa.int64(), "end": pa.int64()}))
    offsets = pa.array(np.zeros(len(slots) + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, spans, mask=slots.is_null())


def _flattened(slots: pa.Array) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.bool_]]:
    """The slots of all rows, int64 (rows,) how many each has, and bool (rows,) which are null."""
    return slots.flatten(), np.diff(list_offsets(slots)), _flags(slots.is_null())


def _of_rows(rows: list[list[Span] | None], lengths: NDArray[np.int64]) -> Marks:
    spans = np.array([span for row in rows for span in row or ()], dtype=np.int64).reshape(-1, 2)
    counts = np.array([len(row or ()) for row in rows], dtype=np.int64)
    return Marks.within(
        spans[:, 0], spans[:, 1], counts, lengths, np.array([row is None for row in rows], dtype=np.bool_)
    )


def _json_positions(value: str | None, column: str) -> list[Span] | None:
    slots = _json(value)
    if slots is not None and any(map(_is_text, slots)):
        raise InputError(
            _GIVEN_AS_TEXTS,
            allowed=POSITIONS,
            got=f"texts in the JSON of {column}",
            do=_DO.format(column=column),
        )
    places = [place for slot in slots or () for place in (_place(slot, "start"), _place(slot, "end"))]
    return None if slots is None else list(zip(places[::2], places[1::2], strict=True))


def _place(slot: object, name: str) -> int:
    """A number of a slot in JSON; -1, which is in no text, where there is none."""
    place = slot.get(name) if isinstance(slot, dict) else None
    return place if type(place) is int and 0 <= place < _LARGEST else -1


def _json_pieces(value: str | None, text: str) -> list[Span] | None:
    pieces = _json(value)
    if pieces is None or not all(
        isinstance(piece, dict) and isinstance(piece.get("text"), str) for piece in pieces
    ):
        return None
    if "".join(piece["text"] for piece in pieces) != text:
        return None
    places = pairwise(accumulate((len(piece["text"]) for piece in pieces), initial=0))
    named = (any(piece.get(name) is not None for name in _NAMES) for piece in pieces)
    return [place for place, slot in zip(places, named, strict=True) if slot and place[0] < place[1]]


def _json(value: str | None) -> list[Any] | None:
    if value is None:
        return None
    try:
        slots = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return slots if isinstance(slots, list) else None


def _is_text(slot: object) -> bool:
    """Whether a slot in JSON is a text, with no word of where it stands."""
    if isinstance(slot, dict):
        return "text" in slot and "start" not in slot and "end" not in slot
    return isinstance(slot, str)


def _lengths(values: pa.Array) -> NDArray[np.int64]:
    """int64 (rows,): code points of texts, elements of token lists; 0 for null."""
    if column_kind(values.type, "") == "tokens":
        return np.diff(list_offsets(values))
    return _integers(pc.utf8_length(values), absent=0)


def _integers(array: pa.Array, absent: int = -1) -> NDArray[np.int64]:
    # What is too large for the type becomes negative, and so is outside of any text.
    filled = pc.fill_null(array.cast(pa.int64(), safe=False), absent)
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _flags(array: pa.Array) -> NDArray[np.bool_]:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _is_string(data_type: pa.DataType | None) -> bool:
    kind = pa.null() if data_type is None else data_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def _fields(data_type: pa.DataType) -> dict[str, pa.DataType]:
    """The fields of the structs of a list by name, those apart whose name is there twice."""
    if not _is_list(data_type) or not pa.types.is_struct(data_type.value_type):
        return {}
    inner = data_type.value_type
    return {field.name: field.type for field in inner if inner.get_field_index(field.name) >= 0}


# Slots as texts


def slot_values(slots: object) -> list[str] | None:
    """Read a row's slots that are given as texts: strings, structs with a ``text`` field, or JSON of these.

    Returns:
        The slots' texts; None when they are absent or not understood.
    """
    if isinstance(slots, str):
        slots = _json(slots)
    if not isinstance(slots, Iterable) or isinstance(slots, str | bytes | dict):
        return None
    values = [slot.get("text") if isinstance(slot, dict) else slot for slot in slots]
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(values) else None


def protected_by_texts(
    tokens: Sequence[str | None], slots: object, tokenizer: Tokenizer = PLAIN
) -> list[bool]:
    """Mark the tokens of a row that are those of one of its slots, which :func:`slot_values` reads.

    Every occurrence of a slot's tokens is protected, and a joined word whole where a slot has a part of it. A
    row whose slots are null, malformed or not found in its tokens is protected whole: in doubt nothing
    passes.
    """
    parts = [[None] if token is None else parts_of(token, tokenizer) for token in tokens]
    flags = _found([_form(part) for token in parts for part in token], slots, tokenizer)
    ends = list(accumulate(map(len, parts), initial=0))
    return [any(flags[start:end]) for start, end in pairwise(ends)]


def _found(forms: list[str | None], slots: object, tokenizer: Tokenizer) -> list[bool]:
    values = slot_values(slots)
    if values is None:
        return [True] * len(forms)
    protected = [False] * len(forms)
    for value in values:
        wanted = [_form(part) for token in tokenizer(value) for part in parts_of(token, tokenizer)]
        size = len(wanted)
        starts = [i for i in range(len(forms) - size + 1) if size and forms[i : i + size] == wanted]
        if value.strip() and not starts:
            return [True] * len(forms)
        for start in starts:
            protected[start : start + size] = [True] * size
    return protected


def _form(token: str | None) -> str | None:
    return None if token is None else match_form(token, lower=True)
