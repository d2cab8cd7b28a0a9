"""A sample of a table, to tell the vocabulary's coverage before the table is sanitized.

Workers count; no row and no word leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, fields
from functools import partial
from typing import Final

import click
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType

from dptext_spark.coverage import Coverage
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.table.columns import TableColumns, opened, positional
from dptext_spark.text.nested import Leaves, Route
from dptext_spark.text.policies import TextPolicy

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
        return self.bundle.open()


@dataclass(kw_only=True)
class Sample:
    """Tells, once, how many words of a table's columns the vocabulary has, and warns where they are few.

    Attributes:
        columns: The columns of the run; texts and token lists are looked at.
        table: The schema of the table.
        fate: What becomes of unknown words, and what to do about it, in sentences.
        found: What the first call found, by column.
    """

    columns: TableColumns
    table: StructType
    plan: CoveragePlan
    fate: str
    found: dict[str, Coverage] = field(default_factory=dict)

    def __call__(self, selected: DataFrame) -> None:
        """Look at rows as :meth:`TableColumns.select` gives them; later calls do nothing."""
        if self.found:
            return
        self.found = self._measure(selected)
        for column, coverage in self.found.items():
            if warning := coverage.warning(column, self.fate):
                click.echo(f"Warning, for those who run the job: {warning}", err=True)

    def _measure(self, selected: DataFrame) -> dict[str, Coverage]:
        words = {*self.columns.text, *self.columns.tokens}
        routes = [(name, route) for name, route in self.columns.routes(self.table) if name in words]
        slots = selected.columns[-1:] if self.columns.slots else []
        wanted = sorted({column for _, (column, *_) in routes})
        inside = tuple((wanted.index(column), *rest) for _, (column, *rest) in routes)
        narrow = selected.select(*(selected.columns[column] for column in wanted), *slots)
        names = positional(len(routes) * len(fields(Coverage)))
        sums = StructType([StructField(name, DoubleType()) for name in names])
        counted = narrow.mapInArrow(partial(_count, self.plan, inside, bool(slots)), sums)
        rows = counted.limit(SAMPLE_TASKS).collect()  # sums of each task, no data
        width = len(fields(Coverage))
        return {
            name: Coverage.sum(Coverage(*row[i * width : (i + 1) * width]) for row in rows)
            for i, (name, _) in enumerate(routes)
            if rows
        }


def _count(
    plan: CoveragePlan, routes: tuple[Route, ...], slots: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count words in the first rows of a task; runs in Python workers.

    A task without rows gives sums of nothing: others are not asked in its place, however few rows there are.
    """
    batches = iter(batches)
    batch = next(batches, None)
    sums: list[float] = []
    for column, *inside in routes:
        if batch is None or not len(batch):
            sums += astuple(Coverage())
            continue
        rows = batch.slice(0, SAMPLE_ROWS)
        leaves = Leaves.of(rows.column(column), tuple(inside))
        marks = rows.columns[-1].take(pa.array(leaves.rows)) if slots else None
        sums += astuple(Coverage.measure(leaves.values, opened(plan), plan.policy, marks))
    yield pa.RecordBatch.from_arrays(
        [pa.array([float(value)]) for value in sums], names=positional(len(sums))
    )
    next(batches, None)  # where this is the end, Spark uses the worker again
