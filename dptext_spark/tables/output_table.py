"""The table that a run writes, and the reports next to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.options import TableOptions
from dptext_spark.report.facts import Facts, Report, describe, now
from dptext_spark.report.release_page import release_page, release_text
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.batch import ROW
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.storage import LocalFiles


@dataclass(frozen=True, kw_only=True)
class OutputTable:
    """A table to be written, with what belongs to it."""

    options: TableOptions
    written: Format  # in the input's partitions
    storage: LocalFiles
    started: str = field(default_factory=now)
    _clock: float = field(default_factory=time.monotonic)
    _run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def folders(self) -> list[Column]:
        """The columns of sanitized rows that name its folders."""
        return [*map(F.col(ROW).getField, self.written.partitions)]

    @property
    def place(self) -> str:
        """The full path of the output, or its name."""
        if not self.written.has_path:
            return self.options.output
        return self.storage.real(self.options.output)

    def write(self, result: DataFrame) -> None:
        """Write the table, whole or not at all."""
        self.written.write(result)

    def texts(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """Read what was written to some columns, in one text for each row.

        Of a format of text it is the lines: it may be written with options that do not read it.
        """
        if self.written.name in ("csv", "json"):
            return spark.read.text(self.options.output)
        df = self.written.open(spark).df
        # As JSON, fields inside arrays and structs are text like the others.
        names = {name.partition(".")[0].removesuffix("[]"): None for name in columns}
        return df.select(F.to_json(F.struct(*map("`{}`".format, names))).alias("value"))

    def write_reports(self, facts: Facts, findings: Facts) -> Report:
        """Write the report that may be shared, and the one that may not, next to the output.

        Of a dry run the private one alone, where there is a folder for it. ``facts`` are there in
        any case; of ``findings`` some may be missing.
        """
        seconds = round(time.monotonic() - self._clock, 1)
        present = {name: value for name, value in findings.items() if value not in (None, {}, [])}
        private_facts = {
            **facts,
            "started": self.started,
            "seconds": seconds,
            "run": self._run,
            **present,
            "rows": findings.get("rows"),
            "columns": findings.get("columns", {}),
        }
        public_facts = Report(facts=private_facts, text="").public(self.options.published)
        text = describe(private_facts)
        if self.options.dry_run:
            text = f"{text}\n\n{release_text(public_facts)}"
        report = Report(facts=private_facts, text=text)
        failed = "The report of the dry run could not be written"
        if not self.options.dry_run:
            failed = "The output was written, but its report could not be"
            public_report = report.to_publish(self.options.published)
            self.write_beside("public report", self.options.public_report_path, public_report)
        if self.options.reports is not None or not self.options.dry_run:
            with spark_errors(failed):
                self.storage.make_folder(self.options.beside("private"), private=True)
                self.storage.write(self.options.page_path, release_page(public_facts))
                self.storage.write(self.options.report_path, report.to_json(), private=True)
        return report

    def write_beside(self, what: str, path: str, text: str) -> None:
        """Write a file that belongs to the output, which is there already."""
        with spark_errors(f"The output was written, but its {what} could not be"):
            self.storage.write(path, text)
