"""Arrow batches as workers read them: rows, their ids, perhaps slots, and fields inside them."""

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
PERSON: Final = "person"
"""Columns of a frame that workers read: a struct of what comes out, the row's name, its slots."""

# What workers hold at once of a batch of long rows, or one row. A column of Arrow's strings ends at
# 2 GB, and words that come out may be many times as long as those that came in.
_PART_BYTES: Final = 1 << 25

CountWords = Callable[..., NDArray[np.int64]]
"""Counts the words of values and slots as :meth:`WordReader.visible_words` does."""


@dataclass(frozen=True, kw_only=True)
class FieldValues:
    """What a field holds in all rows of a column, flat.

    Attributes:
        values: Null also where a struct around it is null.
        rows: (values,), the row of each.
        positions: (values, arrays on the path), the place in each, the outermost first.
        ids: Of each value's row.
        words: Of all sanitized fields of each value's row, where they count.
        persons: What names the person of each value's row.
    """

    values: pa.Array
    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    ids: pa.Array | None = None
    slots: pa.Array | None = None
    words: NDArray[np.int64] | None = None
    persons: pa.Array | None = None

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
                rows = rows[parents]
                positions = np.column_stack([positions[parents], places])
                column = children
            else:
                column = children[_names(column).index(step)]
        return cls(values=column, rows=rows, positions=positions)

    @property
    def of_rows(self) -> dict[str, Any]:
        """What a sanitizer reads besides values and ids."""
        return {
            "slots": self.slots,
            "positions": self.positions,
            "words": self.words,
            "persons": self.persons,
        }

    def sum_by_row(self, counts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """int64 (rows,): add up the values' counts in each row."""
        return np.bincount(self.rows, weights=counts, minlength=rows).astype(np.int64)


def _names(column: pa.StructArray) -> list[str]:
    return [field.name for field in column.type]


def replace_values(column: pa.Array, path: Sequence[str | None], values: pa.Array) -> pa.Array:
    """Return the column with other values where :meth:`FieldValues.of` took them from."""
    if not path:
        return values
    step, *rest = path
    children = column.flatten()
    nulls = column.is_null()
    if step is None:
        elements = replace_values(children, rest, values)
        offsets = list_offsets(column)
        if pa.types.is_large_list(column.type):
            large_offsets = pa.array(offsets, pa.int64())
            return pa.LargeListArray.from_arrays(large_offsets, elements, mask=nulls)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, mask=nulls)
    names = _names(column)
    number = names.index(step)
    children[number] = replace_values(children[number], rest, values)
    # The children of a null struct are null, whatever its type says of them.
    return pa.StructArray.from_arrays(children, names=names, mask=nulls)


@dataclass(frozen=True, kw_only=True)
class FieldPaths:
    """The paths to what is sanitized: by name, inside the rows; to slots, inside their column."""

    paths: dict[str, Path]
    slots: Path | None = None


@dataclass(kw_only=True)
class Batch:
    """Rows of an Arrow batch; nothing else reads or writes its columns.

    Attributes:
        row: What comes out of each row.
        slots: In the same arrays as the texts that they are of.
        persons: What names the person of each row; None where no column does.
        paths: To what is sanitized.
    """

    row: pa.StructArray
    ids: pa.Array
    slots: pa.Array | None
    persons: pa.Array | None
    paths: FieldPaths

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch, paths: FieldPaths) -> Self:
        """Read a batch with columns ``row`` and ``id``, perhaps ``slots`` and ``person``."""
        slots = None
        if paths.slots is not None:
            slots = FieldValues.of(batch.column(SLOTS), paths.slots).values
        persons = None
        if PERSON in batch.schema.names:
            persons = batch.column(PERSON)
        return cls(
            row=batch.column(ROW), ids=batch.column(ID), slots=slots, persons=persons, paths=paths
        )

    @classmethod
    def parts(cls, batches: Iterable[pa.RecordBatch], paths: FieldPaths) -> Iterator[Self]:
        """Read all batches of a task, those of long rows in parts that are small, or one row."""
        for batch in batches:
            parts = [batch]
            while parts:
                part = parts.pop()
                if part.nbytes > _PART_BYTES and len(part) > 1:
                    middle = len(part) // 2
                    parts += [part.slice(middle), part.slice(0, middle)]
                else:
                    yield cls.from_arrow(part, paths)

    def part(self, rows: slice) -> Self:
        """Return some of the rows, without a copy."""
        return replace(
            self,
            row=self.row[rows],
            ids=self.ids[rows],
            slots=None if self.slots is None else self.slots[rows],
            persons=None if self.persons is None else self.persons[rows],
        )

    def __len__(self) -> int:
        return len(self.row)

    def fields(self, count: CountWords | None = None) -> Iterator[tuple[str, FieldValues]]:
        """Take out sanitized fields one by one; with ``count`` also the words of their rows."""
        words = None
        if count is not None:
            words = self.words(count)
        for name, path in self.paths.paths.items():
            field = FieldValues.of(self.row, path)
            ids = self.ids.take(pa.array(field.rows))
            field = replace(field, ids=ids, slots=self.slots)
            if self.persons is not None:
                field = replace(field, persons=self.persons.take(pa.array(field.rows)))
            if words is not None:
                field = replace(field, words=words[field.rows])
            yield name, field

    def set_values(self, name: str, values: pa.Array) -> None:
        """Replace the values of a field."""
        self.row = replace_values(self.row, self.paths.paths[name], values)

    def words(self, count: CountWords) -> NDArray[np.int64]:
        """int64 (rows,): add up the words of each row."""
        words = np.zeros(len(self), dtype=np.int64)
        for name, field in self.fields():
            words += field.sum_by_row(count(field.values, field.slots, column=name), len(self))
        return words

    def to_arrow(self, counts: Sequence[NDArray[np.int64]] = ()) -> pa.RecordBatch:
        """Return the rows and counts of each: the columns ``row``, ``c0``, ``c1`` and so on."""
        arrays = [self.row, *map(pa.array, counts)]
        names = [ROW, *(f"c{number}" for number in range(len(counts)))]
        return pa.RecordBatch.from_arrays(arrays, names=names)
