"""A look at some rows of a table before it is sanitized: how many of their words the vocabulary has.

Workers count; no row and no word leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Final

import click
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dptext_spark.coverage import Coverage
from dptext_spark.lookup import WordReader
from dptext_spark.tables.batch import Batch, Fields
from dptext_spark.tables.columns import TableColumns, shared
from dptext_spark.text.columns import slices
from dptext_spark.text.nested import FieldValues

SAMPLE_TASKS: Final = 4
SAMPLE_ROWS: Final = 1000
"""Rows that each of so many tasks looks at, at most: little work, whatever the size of the table."""

_NUMBERS: Final = (
    "coverage array<array<double>>, rows long, counted long, median long, longest long, words long"
)


@dataclass(kw_only=True)
class Sample:
    """Finds, once, how many words of a table's columns the vocabulary has, and warns where they are few.

    Attributes:
        columns: The columns of the run; texts and token lists are looked at.
        table: The schema of the table.
        reader: How they are read.
        fate: What becomes of unknown words, and what to do about it, in sentences.
        found: What the first call found, by column.
        lengths: How many words its rows have, all columns together; None before it, and for no rows.
        words: How many they have on average, likewise.
        rows: How many rows each of Spark's partitions has; None where the sample is not the whole table.
    """

    columns: TableColumns
    table: StructType
    reader: WordReader
    fate: str
    found: dict[str, Coverage] = field(default_factory=dict)
    lengths: dict[str, int | None] | None = None
    words: float | None = None
    rows: list[int] | None = None

    def __call__(self, selected: DataFrame) -> None:
        """Look at rows as :meth:`TableColumns.select` gives them; later calls do nothing."""
        if self.found:
            self.rows = None  # of another batch of a growing table
            return
        self._measure(selected)
        for column, coverage in self.found.items():
            if warning := coverage.warning(column, self.fate):
                click.echo(f"Warning, for those who run the job: {warning}", err=True)

    def _measure(self, selected: DataFrame) -> None:
        ways, texts = self.columns.ways(self.table), {*self.columns.text, *self.columns.tokens}
        ways = replace(ways, routes=tuple(way for way in ways.routes if way[0] in texts))
        # Spark would ask one task first, and all cores but one would wait for it and for its Python worker.
        selected.sparkSession.conf.set("spark.sql.limit.initialNumPartitions", SAMPLE_TASKS)
        counted = selected.mapInArrow(partial(_count, self.reader, ways), _NUMBERS)
        tasks = counted.limit(SAMPLE_TASKS).collect()  # numbers of each task, no data
        if tasks:
            columns = zip(*(task["coverage"] for task in tasks), strict=True)
            names = (name for name, _ in ways.routes)
            parts = ([Coverage(*own) for own in column] for column in columns)
            self.found = {name: Coverage.sum(own) for name, own in zip(names, parts, strict=True)}
        if counts := sorted((t["median"], t["counted"], t["longest"]) for t in tasks if t["counted"]):
            # The median is that of the tasks' medians, each for its rows.
            medians, rows, longest = (np.array(column) for column in zip(*counts, strict=True))
            middle = int(np.searchsorted(np.cumsum(rows), rows.sum() / 2.0))
            sample = int(rows.sum())
            self.lengths = {
                "median": int(medians[middle]),
                "longest": int(longest.max()),
                "sample": sample,
            }
            self.words = sum(task["words"] for task in tasks) / sample
        if len(tasks) < SAMPLE_TASKS and all(task["rows"] is not None for task in tasks):
            self.rows = [task["rows"] for task in tasks]


def _count(reader: WordReader, ways: Fields, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count words in the first rows of a task; runs in Python workers.

    A task without rows gives zeros: no other task is asked in its place, however few rows there are.
    """
    reader, batches = shared(reader), iter(batches)
    first = next(batches, None)
    rows: int | None = 0 if first is None else len(first)
    coverage, words = [Coverage() for _ in ways.routes], np.zeros(0, dtype=np.int64)
    if first is not None and rows:
        batch = Batch.from_arrow(first.slice(0, SAMPLE_ROWS), ways)
        fields = [found for _, _, found in batch.fields()]
        coverage = [Coverage.measure(found.values, reader, found.slots) for found in fields]
        words = np.sort(_words(fields, len(batch), reader))
        # Where this is the end, Spark uses the worker again.
        rows = rows if rows <= SAMPLE_ROWS and next(batches, None) is None else None
    counted = len(words)
    numbers = {
        "coverage": [[[float(number) for number in astuple(own)] for own in coverage]],
        "rows": [rows],
        "counted": [counted],
        "median": [int(words[(counted - 1) // 2]) if counted else 0],
        "longest": [int(words[-1]) if counted else 0],
        "words": [int(words.sum())],
    }
    types = [pa.list_(pa.list_(pa.float64())), *[pa.int64()] * 5]
    arrays = [pa.array(values, kind) for values, kind in zip(numbers.values(), types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, names=list(numbers))


def _words(fields: list[FieldValues], rows: int, reader: WordReader) -> np.ndarray:
    """int64 (counted,): count the words of the first rows, as many as a MB of each field covers whole."""
    firsts = [next(slices(found.values), slice(0, 0)) for found in fields]
    whole = [
        int(found.rows[first.stop]) if first.stop < len(found.rows) else rows
        for first, found in zip(firsts, fields, strict=True)
    ]
    counted = min(whole, default=0) or min(rows, 1)
    words = np.zeros(counted, dtype=np.int64)
    for found in fields:
        chosen = int(np.searchsorted(found.rows, counted))
        slots = None if found.slots is None else found.slots[:chosen]
        shown = reader.visible_words(found.values[:chosen], slots)
        words += np.bincount(found.rows[:chosen], weights=shown, minlength=counted).astype(np.int64)
    return words
