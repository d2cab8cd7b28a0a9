"""Arrow batches as workers get them: rows, their ids, and slots if there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.text.nested import FieldValues, Route, replace_values

ROW: Final = "row"
ID: Final = "id"
SLOTS: Final = "slots"
"""Columns of a frame that workers read: a struct of what comes out, the row's name, and its slots."""

# What workers hold at once of a batch of long rows, or one row. A column of Arrow's strings ends at 2 GB, and
# words that come out may be many times as long as those that came in.
_PART_BYTES: Final = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The ways to what is sanitized."""

    routes: tuple[tuple[str, Route], ...]  # of each field, by its name, inside the rows
    slots: Route | None = None  # inside the column of slots


@dataclass(kw_only=True)
class Batch:
    """Rows of an Arrow batch; nothing else reads or writes its columns."""

    row: pa.StructArray  # what comes out of each row
    ids: pa.Array
    slots: pa.Array | None
    ways: Fields

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch, ways: Fields) -> Self:
        """Read a batch with the columns ``row``, ``id`` and perhaps ``slots``; others are passed over."""
        slots = None if ways.slots is None else batch.column(SLOTS)
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

    def fields(self) -> Iterator[tuple[str, Route, FieldValues]]:
        """Take out all fields that are sanitized, one after the other, with the ids of their rows.

        Their slots lie in the same arrays.
        """
        for name, route in self.ways.routes:
            found, slots = FieldValues.of(self.row, route), None
            if self.slots is not None and self.ways.slots is not None:
                slots = FieldValues.of(self.slots, self.ways.slots).values
            yield name, route, replace(found, ids=self.ids.take(pa.array(found.rows)), slots=slots)

    def put(self, route: Route, values: pa.Array) -> None:
        """Put other values in the place of a field's."""
        self.row = replace_values(self.row, route, values)

    def words(self, count: Callable[..., NDArray[np.int64]]) -> NDArray[np.int64]:
        """int64 (rows,): add up the words of each row, counted as :meth:`WordReader.visible_words` does."""
        words = np.zeros(len(self), dtype=np.int64)
        for name, _, found in self.fields():
            words += found.sum_by_row(count(found.values, found.slots, column=name), len(self))
        return words

    def to_arrow(self, counts: Sequence[NDArray[np.int64]] = ()) -> pa.RecordBatch:
        """Give the rows and counts of each: the columns ``row``, ``c0``, ``c1`` and so on."""
        arrays = [self.row, *map(pa.array, counts)]
        return pa.RecordBatch.from_arrays(arrays, names=[ROW, *(f"c{i}" for i in range(len(counts)))])
