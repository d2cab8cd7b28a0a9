"""Fields inside Arrow columns: taken out as flat arrays, and put back in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.text.columns import list_offsets

ELEMENTS: Final = -1
"""The step of a route from an array to its elements; other steps number the fields of a struct."""

Route = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FieldValues:
    """What a field holds in all rows of a column, flat."""

    values: pa.Array  # null also where a struct around it is null
    rows: NDArray[np.int64]  # (values,), the row of each
    positions: NDArray[
        np.int64
    ]  # (values, arrays on the route), the place in each array, the outermost first
    ids: pa.Array | None = None  # of each value's row, where rows have any
    slots: pa.Array | None = None

    @classmethod
    def of(cls, column: pa.Array, route: Route) -> FieldValues:
        """Take a field out of a column; the empty route is the column itself."""
        rows = np.arange(len(column))
        positions = np.empty((len(column), 0), dtype=np.int64)
        for step in route:
            children = column.flatten()  # of the rows of a slice, under the nulls of the column
            if step == ELEMENTS:
                offsets = list_offsets(column)
                parents = np.repeat(np.arange(len(column)), np.diff(offsets))
                places = np.arange(offsets[-1]) - offsets[parents]
                rows, positions = rows[parents], np.column_stack([positions[parents], places])
            column = children if step == ELEMENTS else children[step]
        return cls(values=column, rows=rows, positions=positions)

    def sum_by_row(self, counts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """int64 (rows,): add up the values' counts in each row."""
        return np.bincount(self.rows, weights=counts, minlength=rows).astype(np.int64)


def replace_values(column: pa.Array, route: Route, values: pa.Array) -> pa.Array:
    """Give the column with other values in the place that :meth:`FieldValues.of` took them from."""
    if not route:
        return values
    step, *rest = route
    children = column.flatten()
    nulls = column.is_null()
    if step == ELEMENTS:
        elements = replace_values(children, tuple(rest), values)
        kind = pa.LargeListArray if pa.types.is_large_list(column.type) else pa.ListArray
        offsets = pa.array(list_offsets(column), pa.int64() if kind is pa.LargeListArray else pa.int32())
        return kind.from_arrays(offsets, elements, mask=nulls)
    children[step] = replace_values(children[step], tuple(rest), values)
    # The children of a null struct are null, whatever its type says of them.
    names = [field.name for field in column.type]
    fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=nulls)
