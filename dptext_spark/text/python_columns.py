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
    """Give a column as an Arrow array: what pandas takes for missing is null, categories are their values."""
    got = f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}".removeprefix("builtins.")
    # Arrow would silently take these apart: a text into letters, a table into its columns' names.
    if isinstance(values, str | bytes | Mapping | Set | pa.Table | pa.RecordBatch):
        raise InputError(f"{what} is not a column", allowed=_ALLOWED, got=got)
    array = None
    with suppress(pa.ArrowException, TypeError, ValueError, LookupError, OverflowError, AttributeError):
        read = (
            values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=True)
        )
        flat = read.combine_chunks() if isinstance(read, pa.ChunkedArray) else read
        array = flat.dictionary_decode() if pa.types.is_dictionary(flat.type) else flat
    if array is None:  # not raised above, as what it would be chained to quotes values
        raise InputError(
            f"{what} cannot be read",
            allowed=f"{_ALLOWED}, with values of one kind and no more than 2 GiB",
            got=got,
        )
    # Without a value nothing shows the type.
    if not isinstance(values, pa.Array) and array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_list(array.type) and pa.types.is_null(array.type.value_type):
        return array.cast(pa.list_(pa.string()))
    return array
