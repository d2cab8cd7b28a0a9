"""Arrow batches as workers get them: rows, their ids, and slots if there are any; and fields inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.tables.fields import Path
from dptext_spark.text.columns import list_offsets

ROW: Final = "row"
ID: Final = "id"
SLOTS: Final = "slots"
"""Columns of a frame that workers read: a struct of what comes out, the row's name, and its slots."""

# What workers hold at once of a batch of long rows, or one row. A column of Arrow's strings ends at
# 2 GB, and words that come out may be many times as long as those that came in.
_PART_BYTES: Final = 1 << 25

CountWords = Callable[..., NDArray[np.int64]]
"""Counts the words of values and slots as :meth:`WordReader.visible_words` does."""


@dataclass(frozen=True, kw_only=True)
class FieldValues:
    """What a field holds in all rows of a column, flat."""

    values: pa.Array  # null also where a struct around it is null
    rows: NDArray[np.int64]  # (values,), the row of each
    positions: NDArray[
        np.int64
    ]  # (values, arrays on the path), the place in each, the outermost first
    ids: pa.Array | None = None  # of each value's row
    slots: pa.Array | None = None
    words: NDArray[np.int64] | None = (
        None  # of all sanitized fields of each value's row, where they count
    )

    @classmethod
    def of(cls, column: pa.Array, path: Path) -> FieldValues:
        """Take a field out of a column; the empty path is the column itself."""
        rows = np.arange(len(column))
        positions = np.empty((len(column), 0), dtype=np.int64)
        for step in path:
            children = column.flatten()  # of the rows of a slice, under the nulls of the column
            if step is None:
                offsets = list_offsets(column)
                parents = np.repeat(np.arange(len(column)), np.diff(offsets))
                places = np.arange(offsets[-1]) - offsets[parents]
                rows, positions = rows[parents], np.column_stack([positions[parents], places])
            column = children if step is None else children[_names(column).index(step)]
        return cls(values=column, rows=rows, positions=positions)

    @property
    def given(self) -> dict[str, Any]:
        """What a sanitizer reads next to values and ids."""
        return {"slots": self.slots, "positions": self.positions, "words": self.words}

    def sum_by_row(self, counts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """int64 (rows,): add up the values' counts in each row."""
        return np.bincount(self.rows, weights=counts, minlength=rows).astype(np.int64)


def _names(column: pa.StructArray) -> list[str]:
    return [field.name for field in column.type]


def replace_values(column: pa.Array, path: Sequence[str | None], values: pa.Array) -> pa.Array:
    """Give the column with other values in the place that :meth:`FieldValues.of` took them from."""
    if not path:
        return values
    (step, *rest), children, nulls = path, column.flatten(), column.is_null()
    if step is None:
        elements = replace_values(children, rest, values)
        kind = pa.LargeListArray if pa.types.is_large_list(column.type) else pa.ListArray
        offsets = pa.array(
            list_offsets(column), pa.int64() if kind is pa.LargeListArray else pa.int32()
        )
        return kind.from_arrays(offsets, elements, mask=nulls)
    names = _names(column)
    children[names.index(step)] = replace_values(children[names.index(step)], rest, values)
    # The children of a null struct are null, whatever its type says of them.
    fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=nulls)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The paths to what is sanitized."""

    paths: dict[str, Path]  # of each field, by its name, inside the rows
    slots: Path | None = None  # inside the column of slots


@dataclass(kw_only=True)
class Batch:
    """Rows of an Arrow batch; nothing else reads or writes its columns."""

    row: pa.StructArray  # what comes out of each row
    ids: pa.Array
    slots: pa.Array | None  # in the same arrays as the texts that they are of
    ways: Fields

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch, ways: Fields) -> Self:
        """Read a batch with the columns ``row``, ``id`` and perhaps ``slots``; others are passed over."""
        slots = (
            None if ways.slots is None else FieldValues.of(batch.column(SLOTS), ways.slots).values
        )
        return cls(row=batch.column(ROW), ids=batch.column(ID), slots=slots, ways=ways)

    @classmethod
    def parts(cls, batches: Iterable[pa.RecordBatch], ways: Fields) -> Iterator[Self]:
        """Read all batches of a task, those of long rows in halves until a part is small, or one row."""
        for batch in batches:
            parts = [batch]
            while parts:
                part = parts.pop()
                if part.nbytes > _PART_BYTES and len(part) > 1:
                    parts += part.slice(len(part) // 2), part.slice(0, len(part) // 2)
                else:
                    yield cls.from_arrow(part, ways)

    def __len__(self) -> int:
        return len(self.row)

    def fields(self, count: CountWords | None = None) -> Iterator[tuple[str, FieldValues]]:
        """Take out all sanitized fields, one after the other; with ``count`` also the words of their rows."""
        words = count and self.words(count)
        for name, path in self.ways.paths.items():
            found = FieldValues.of(self.row, path)
            ids, own = (
                self.ids.take(pa.array(found.rows)),
                None if words is None else words[found.rows],
            )
            yield name, replace(found, ids=ids, slots=self.slots, words=own)

    def put(self, name: str, values: pa.Array) -> None:
        """Put other values in the place of a field's."""
        self.row = replace_values(self.row, self.ways.paths[name], values)

    def words(self, count: CountWords) -> NDArray[np.int64]:
        """int64 (rows,): add up the words of each row."""
        words = np.zeros(len(self), dtype=np.int64)
        for name, found in self.fields():
            words += found.sum_by_row(count(found.values, found.slots, column=name), len(self))
        return words

    def to_arrow(self, counts: Sequence[NDArray[np.int64]] = ()) -> pa.RecordBatch:
        """Give the rows and counts of each: the columns ``row``, ``c0``, ``c1`` and so on."""
        arrays = [self.row, *map(pa.array, counts)]
        return pa.RecordBatch.from_arrays(
            arrays, names=[ROW, *(f"c{i}" for i in range(len(counts)))]
        )
