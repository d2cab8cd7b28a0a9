"""Slots, the parts of a row's text that its table names: their positions."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text.marks import Marks
from dptext_spark.text.token_columns import column_kind, list_offsets

POSITIONS: Final = "array<struct<start: int, end: int>>, the end exclusive"


def check_positions(data_type: pa.DataType, column: str) -> None:
    """Check that a column's type can hold positions.

    Raises:
        InputError: It cannot, as texts and JSON cannot.
    """
    integers: set[str] = set()
    if _is_list(data_type) and pa.types.is_struct(data_type.value_type):
        spans = data_type.value_type
        # Not a field whose name is there twice.
        integers = {
            field.name
            for field in spans
            if pa.types.is_integer(field.type) and spans.get_field_index(field.name) >= 0
        }
    if not {"start", "end"} <= integers:
        raise InputError(
            f"Column {column} cannot hold the positions of slots",
            allowed=POSITIONS,
            got=f"{column}, {data_type}",
            do="Give positions, not texts: a text does not say where it stands. Parse JSON before the run",
        )


def marks_of_positions(slots: pa.Array, values: pa.Array, column: str) -> Marks:
    """Read spans: structs with integers ``start`` and ``end``.

    A row whose spans are null, malformed, empty or outside its text is marked whole: in doubt nothing passes.

    Args:
        slots: The spans of each row, in code points of a text or in elements of a token list.
        values: Texts or token lists.
        column: What the slots' column is called in messages.

    Raises:
        InputError: The type is none of these.
    """
    is_empty = slots.null_count == len(slots) or (_is_list(slots.type) and not len(slots.flatten()))
    if is_empty:  # nothing is there to see the type by
        kind = pa.list_(pa.struct({"start": pa.int64(), "end": pa.int64()}))
        slots = pa.array([None if null else [] for null in slots.is_null().to_pylist()], kind)
    check_positions(slots.type, column)
    spans = slots.flatten()
    starts, ends = (_integers(pc.struct_field(spans, name), absent=-1) for name in ("start", "end"))
    if column_kind(values.type, "") == "tokens":
        lengths = np.diff(list_offsets(values))
    else:
        lengths = _integers(pc.utf8_length(values), absent=0)
    doubtful = np.array(slots.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    return Marks.within(starts, ends, np.diff(list_offsets(slots)), lengths, doubtful)


def _integers(array: pa.Array, absent: int) -> NDArray[np.int64]:
    # What is too large for the type becomes negative, and so is outside of any text.
    filled = pc.fill_null(array.cast(pa.int64(), safe=False), absent)
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))
