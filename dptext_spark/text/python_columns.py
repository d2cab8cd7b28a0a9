"""Columns as Python has them, in whatever library, as Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from dptext_spark.errors import InputError

PythonColumn: TypeAlias = Any
"""An Arrow array, chunked or not, a pandas Series, a NumPy array, or any sequence of Python values."""

_ALLOWED = "an Arrow array, a pandas Series, a NumPy array of one dimension, or a list"


def as_arrow(values: PythonColumn, what: str) -> pa.Array:
    """Give a column as an Arrow array; what pandas takes for missing is null, categories are their values.

    Raises:
        InputError: It is no column, has values of several kinds, or is too large for one array.
    """
    array = None
    with suppress(pa.ArrowException, TypeError, ValueError, LookupError, OverflowError, AttributeError):
        array = _flat(values if isinstance(values, pa.Array | pa.ChunkedArray) else _read(values, what))
    if array is None:  # not raised above, as what it would be chained to quotes values
        raise InputError(
            f"{what} cannot be read",
            allowed=f"{_ALLOWED}, with values of one kind and no more than 2 GiB",
            got=_kind(values),
        )
    if not isinstance(values, pa.Array) and array.null_count == len(array):
        return pa.nulls(len(array), pa.string())  # without a value there is nothing to tell the type by
    return _typed(array)


def _read(values: PythonColumn, what: str) -> pa.Array | pa.ChunkedArray:
    # What Arrow would take apart without a word: a text into letters, a table into its columns' names.
    if isinstance(values, str | bytes | Mapping | Set | pa.Table | pa.RecordBatch):
        raise InputError(f"{what} is no column", allowed=_ALLOWED, got=_kind(values))
    return pa.array(values, from_pandas=True)


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _typed(array: pa.Array) -> pa.Array:
    """Take lists in which every element is null for lists of words."""
    if pa.types.is_list(array.type) and pa.types.is_null(array.type.value_type):
        return array.cast(pa.list_(pa.string()))
    return array


def _kind(values: object) -> str:
    return f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}".removeprefix("builtins.")
