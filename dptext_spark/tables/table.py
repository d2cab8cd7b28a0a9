"""A table in, a table out: the job around the sanitized frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from dptext_spark.bars import progress
from dptext_spark.options import TableOptions
from dptext_spark.report.facts import Facts, has_arrays, key_scope
from dptext_spark.spark.session import LEASE, PORTS, uses_ports
from dptext_spark.tables.batch import ID
from dptext_spark.tables.columns import TableColumns, Worker
from dptext_spark.tables.formats.format import FORMATS
from dptext_spark.tables.input_table import InputTable
from dptext_spark.tables.output_table import OutputTable
from dptext_spark.tables.partitioning import Partitioning

Reservation: TypeAlias = Callable[[DataFrame], AbstractContextManager[object]]
"""Called with rows, as :meth:`TableColumns.select` returns them; returns the context in which they
are sanitized and written: the ledger's reservation."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A private table that is open, and the output that it becomes."""

    grows: ClassVar[bool] = False  # whether runs add files to one output

    options: TableOptions
    input: InputTable
    output: OutputTable
    # (V,), how many rows have each word, where rows are counted that show a rare one.
    row_counts: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)

    @property
    def spark(self) -> SparkSession:
        """The session of the run."""
        return self.input.df.sparkSession

    @property
    def columns(self) -> TableColumns:
        """The columns of the input, with the names that ``--keep '*'`` stands for."""
        return self.input.columns

    @property
    def identity(self) -> str:
        """Where the rows come from: one place has one."""
        path = self.options.input
        if FORMATS[self.options.format].has_path:
            return self.output.storage.real(path)
        return f"{self.options.format} {path}"

    def sanitize(
        self, worker: Worker, partitioning: Partitioning, reservation: Reservation = nullcontext
    ) -> Mapping[str, Any]:
        """Sanitize and write the output, whole or not at all; return ``rows`` and counters."""
        rows = self.input.rows
        if partitioning.sample is not None:
            partitioning.sample(rows)
        result, observation = self.released_rows(self.input.positioned_rows, worker, partitioning)
        with reservation(rows), progress(self.spark, "Sanitizing"):
            self.output.write(result)
        return observation.get

    def released_rows(
        self, rows: DataFrame, worker: Worker, partitioning: Partitioning
    ) -> tuple[DataFrame, Observation]:
        """Spread and sanitize rows, lazily; observe them as ``TableColumns.sanitize`` does."""
        observation = Observation("dptext")
        spread = partitioning.spread(rows, F.col(ID), self.output.folders)
        schema = self.input.source.df.schema
        result = self.columns.sanitize(
            spread, schema, worker, observation, self.row_counts, partitioning.gathered
        )
        return result, observation

    def table_facts(self, partitioning: Partitioning) -> Facts:
        """Return what a report says of the table, for ``report.facts.table_facts``."""
        options = self.options
        row_id = f"Rows are named by column {options.id}."
        if options.id is None:
            row_id = (
                "Rows are named by their file's path below the input and their position in it: a "
                "copy of the table in other files gets other noise. Name them by a column with "
                "--id where there is one."
            )
        return {
            "options": options.to_json(),
            "row_id": row_id,
            "kept": self.columns.keep,
            "sanitized": self.columns.sanitized,
            "remarks": self._remarks(),
            "private_remarks": self._private_remarks(partitioning),
            "keeps_order": partitioning.keeps_order,
        }

    def _remarks(self) -> list[str]:
        """Return what a report says of keys, ids and filter."""
        options = self.options
        remarks = key_scope(
            kept=options.key_file is not None,
            what="text or vector" if self.columns.vectors else "text",
            arrays=has_arrays(self.columns.sanitized),
            by_position=options.id is None,
            grows=self.grows,
        )
        if options.trust_id and options.id is not None:
            remarks.append(
                "Whether ids are unique was not checked: rows of one id show whether their texts "
                "are equal."
            )
        if options.where:
            remarks.append(
                "Only rows that meet the filter --where are in the output, which shows that they "
                "meet it. The filter is not in this report: it may quote private values."
            )
        return remarks

    def _private_remarks(self, partitioning: Partitioning) -> list[str]:
        """Return what those who run the job learn of partitions and settings."""
        remarks = list(partitioning.private_remarks)
        if uses_ports(self.spark):
            remarks.append(PORTS)
        partitions = self.output.written.partitions
        dropped = [name for name in self.input.source.partitions if name not in partitions]
        if dropped:
            remarks.insert(
                0,
                f"The input is partitioned by {', '.join(dropped)}, the output is not: name "
                "these columns with --keep to keep the folders.",
            )
        _, changed_settings = LEASE.get((None, []))
        if changed_settings:
            remarks.append(f"Changed in the session, and put back: {', '.join(changed_settings)}.")
        return remarks
