"""A sample of a table, to tell the vocabulary's coverage before the table is sanitized.

Workers count; no row and no word leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from functools import partial
from typing import Final

import click
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType

from dptext_spark.coverage import Coverage
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.lookup import visible_words
from dptext_spark.report.row_lengths import RowLengths
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.tables.columns import TableColumns, opened, positional, slots_of
from dptext_spark.text.nested import FieldValues, Route
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.token_columns import slices

SAMPLE_TASKS: Final = 4
SAMPLE_ROWS: Final = 1000
"""Rows that each of so many tasks looks at, at most: little work, whatever the size of the table."""


@dataclass(frozen=True, kw_only=True)
class CoveragePlan:
    """All that workers need to count known words; hashable, and without a key."""

    bundle: BundleFiles
    policy: TextPolicy

    def open(self) -> Embedding:
        """Open the bundle."""
        return self.bundle.shared()


@dataclass(kw_only=True)
class Sample:
    """Tells, once, how many words of a table's columns the vocabulary has, and warns where they are few.

    Attributes:
        columns: The columns of the run; texts and token lists are looked at.
        table: The schema of the table.
        fate: What becomes of unknown words, and what to do about it, in sentences.
        found: What the first call found, by column.
        lengths: How many words its rows have, all columns together; None before it, and for no rows.
        words: How many they have on average, likewise.
        rows: How many rows each of Spark's partitions has; None where the sample is not the whole table.
    """

    columns: TableColumns
    table: StructType
    plan: CoveragePlan
    fate: str
    found: dict[str, Coverage] = field(default_factory=dict)
    lengths: RowLengths | None = None
    words: float | None = None
    rows: list[int] | None = None

    def __call__(self, selected: DataFrame) -> None:
        """Look at rows as :meth:`TableColumns.select` gives them; later calls do nothing."""
        if self.found:
            self.rows = None  # of another batch of a growing table
            return
        self.found = self._measure(selected)
        for column, coverage in self.found.items():
            if warning := coverage.warning(column, self.fate):
                click.echo(f"Warning, for those who run the job: {warning}", err=True)

    def _measure(self, selected: DataFrame) -> dict[str, Coverage]:
        words = {*self.columns.text, *self.columns.tokens}
        routes = [(name, route) for name, route in self.columns.routes(self.table) if name in words]
        slots = selected.columns[-1:] if self.columns.slots else []
        way = self.columns.slots_route(self.table)
        wanted = sorted({column for _, (column, *_) in routes})
        inside = tuple((wanted.index(column), *rest) for _, (column, *rest) in routes)
        narrow = selected.select(*(selected.columns[column] for column in wanted), *slots)
        names = positional(len(routes) * len(fields(Coverage)) + _LENGTHS)
        sums = StructType([StructField(name, DoubleType()) for name in names])
        counted = narrow.mapInArrow(partial(_count, self.plan, inside, way), sums)
        # Spark would ask one task first, and all cores but one would wait for it and for its Python worker.
        selected.sparkSession.conf.set("spark.sql.limit.initialNumPartitions", SAMPLE_TASKS)
        rows = counted.limit(SAMPLE_TASKS).collect()  # sums of each task, no data
        self.lengths = _together([row[-_LENGTHS:-2] for row in rows])
        if self.lengths is not None:
            self.words = sum(row[-2] for row in rows) / self.lengths.sample
        if len(rows) < SAMPLE_TASKS and all(row[-1] >= 0.0 for row in rows):
            self.rows = [int(row[-1]) for row in rows]
        width = len(fields(Coverage))
        return {
            name: Coverage.sum(Coverage(*row[i * width : (i + 1) * width]) for row in rows)
            for i, (name, _) in enumerate(routes)
            if rows
        }


# Of each task: rows whose words were counted, their median and longest number, all words; and how many rows
# the task has, -1 where they are more than were looked at.
_LENGTHS: Final = 5


def _together(tasks: list[tuple[float, float, float]]) -> RowLengths | None:
    """Put the numbers of tasks together; the median is that of their medians, each for its rows."""
    counted = sorted((median, rows, longest) for rows, median, longest in tasks if rows)
    if not counted:
        return None
    medians, rows, longest = (np.array(column) for column in zip(*counted, strict=True))
    middle = int(np.searchsorted(np.cumsum(rows), rows.sum() / 2.0))
    return RowLengths(median=int(medians[middle]), longest=int(longest.max()), sample=int(rows.sum()))


def _words(
    columns: Sequence[tuple[FieldValues, pa.Array | None]], rows: int, plan: CoveragePlan
) -> tuple[float, float, float, float]:
    """Count the words of the first rows, as many as the first MB of each column covers whole."""
    parts = [next(slices(leaves.values), slice(0, 0)) for leaves, _ in columns]
    whole = [
        int(leaves.rows[part.stop]) if part.stop < len(leaves.rows) else rows
        for part, (leaves, _) in zip(parts, columns, strict=True)
    ]
    looked_at = min(whole, default=0) or min(rows, 1)
    words = np.zeros(rows, dtype=np.int64)
    for leaves, marks in columns:
        chosen = int(np.searchsorted(leaves.rows, looked_at))
        values, slots = leaves.values[:chosen], None if marks is None else marks[:chosen]
        told = visible_words(values, slots, opened(plan), plan.policy)
        words += np.bincount(leaves.rows[:chosen], weights=told, minlength=rows).astype(np.int64)
    if not looked_at:
        return 0.0, 0.0, 0.0, 0.0
    words = np.sort(words[:looked_at])
    return float(looked_at), float(words[(looked_at - 1) // 2]), float(words[-1]), float(words.sum())


def _count(
    plan: CoveragePlan, routes: tuple[Route, ...], slots: Route | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count words in the first rows of a task; runs in Python workers.

    A task without rows gives sums of nothing: others are not asked in its place, however few rows there are.
    """
    batches = iter(batches)
    batch = next(batches, None)
    sums: list[float] = []
    looked_at: list[tuple[FieldValues, pa.Array | None]] = []
    for column, *inside in routes:
        if batch is None or not len(batch):
            sums += astuple(Coverage())
            continue
        first = batch.slice(0, SAMPLE_ROWS)
        leaves = FieldValues.of(first.column(column), tuple(inside))
        marks = slots_of(first.columns[-1], slots, leaves)
        sums += astuple(Coverage.measure(leaves.values, opened(plan), plan.policy, marks))
        looked_at.append((leaves, marks))
    rows = 0 if batch is None else len(batch)
    sums += _words(looked_at, min(rows, SAMPLE_ROWS), plan)
    # Where this is the end, Spark uses the worker again.
    sums.append(rows if rows <= SAMPLE_ROWS and next(batches, None) is None else -1.0)
    yield pa.RecordBatch.from_arrays(
        [pa.array([float(value)]) for value in sums], names=positional(len(sums))
    )
