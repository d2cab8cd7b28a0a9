"""Parquet in, Parquet out: the job around the sanitized frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Self

from pyspark.sql import Column, DataFrame, DataFrameWriter, Observation

from dptext_spark.errors import ConfigError
from dptext_spark.options import TableOptions
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.spark.session import session
from dptext_spark.spark.table.columns import TableColumns, WorkPlan
from dptext_spark.spark.table.output import check_unfinished, write_whole
from dptext_spark.spark.table.source import Source, where
from dptext_spark.spark.table.storage import Places, Storage


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run over a table: what is read, what names its rows, and where it goes.

    Its columns are those of the options, with the names that ``--keep '*'`` stands for.
    """

    options: TableOptions
    columns: TableColumns
    storage: Storage
    source: Source

    @classmethod
    def open(cls, app: str, options: TableOptions, columns: TableColumns) -> Self:
        """Start Spark and check paths, columns and filter; no row is read.

        Raises:
            DptextError: Options or input are wrong.
        """
        spark = session(app)
        storage = Storage(spark)
        with plain_errors("The paths of input, output or report could not be looked up"):
            check_places(storage, options.places)
            cls.check_output(storage, options)
        source = Source.open(spark, storage, options.input)
        columns = columns.named(source.df.schema)
        columns.check(source.df, source.partitions)
        job = cls(options=options, columns=columns, storage=storage, source=source)
        _ = job.df, job.row_id  # what is wrong with them is said now
        return job

    @classmethod
    def check_output(cls, storage: Places, options: TableOptions) -> None:
        """Refuse to replace what exists, unless told to.

        Raises:
            ConfigError: Output or report exist, or the output is none of a finished job.
        """
        for what, option, path in options.files:
            if not options.overwrite and storage.exists(path):
                raise ConfigError(
                    f"The {what.lower()} {path} exists",
                    do=f"Choose another place with {option}, or replace it with --overwrite",
                )
        exists = storage.exists(options.output)
        if exists and not options.overwrite:
            raise ConfigError(
                f"The output {options.output} exists",
                do="Choose another --output, or replace it with --overwrite",
            )
        if exists and not storage.exists(f"{options.output}/_SUCCESS"):
            raise ConfigError(
                f"The output {options.output} is not a table that a finished job wrote",
                allowed="with --overwrite, a folder with a _SUCCESS file",
                do="Remove it by hand if it may go",
            )
        if not options.overwrite:
            check_unfinished(storage, options.output)

    @cached_property
    def df(self) -> DataFrame:
        """The rows that are wanted."""
        return where(self.source.df, self.options.where) if self.options.where else self.source.df

    @property
    def row_id(self) -> Column | None:
        """What names the rows where no column does."""
        return self.source.position if self.options.id is None else None

    @property
    def row_id_words(self) -> str:
        """What names the rows, in words."""
        if self.options.id is not None:
            return f"Rows are named by column {self.options.id}."
        return (
            "Rows are named by their file's path below the input and their position in it: a copy of the "
            "table in other files gets other noise. Name them by a column with --id where there is one."
        )

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partition columns of the output."""
        return tuple(name for name in self.source.partitions if name in self.columns.keep)

    @property
    def remarks(self) -> list[str]:
        """Say what else the output tells or lacks."""
        said = []
        if self.options.where:
            said.append(
                "Only rows that meet the filter --where are in the output, which tells that they meet it. "
                "The filter is not in this report: it may quote private values."
            )
        if lost := [name for name in self.source.partitions if name not in self.partitions]:
            said.append(
                f"The input is partitioned by {', '.join(lost)}, the output is not: pass these columns "
                "through with --keep to keep the folders."
            )
        return said

    @property
    def checked_id(self) -> str | None:
        """The id column that is to be checked, if any."""
        return None if self.options.trust_id else self.options.id

    def sanitize(self, plan: WorkPlan, look: Callable[[DataFrame], None] | None = None) -> Mapping[str, Any]:
        """Sanitize the table and write the output; what is under its name is always whole.

        Args:
            plan: What workers do.
            look: Called with the rows, as :meth:`TableColumns.select` gives them, before they are sanitized.

        Returns:
            The number of ``rows`` and the sums of the counters.

        Raises:
            JobError: Spark or the file system failed.
        """
        observation = Observation("dptext")
        selected = self.columns.select(self.df, self.row_id)
        if look is not None:
            look(selected)
        result = self.columns.sanitize(selected, self.df.schema, plan, observation)
        with progress(result.sparkSession, "Sanitizing"):
            write_whole(
                self.storage,
                self.options.output,
                lambda place: self.writer(result).parquet(place),
                run=str(result.sparkSession.sparkContext.applicationId),
                overwrite=self.options.overwrite,
            )
        return observation.get

    def writer(self, result: DataFrame) -> DataFrameWriter:
        """Get ready to write in the input's partitions."""
        return result.write.partitionBy(*self.partitions).option("compression", self.options.compression)

    def write_dry(self, report: str) -> None:
        """Write the report of a dry run, where one is asked for by its path.

        Raises:
            JobError: It cannot be written.
        """
        if self.options.report is not None:
            with plain_errors("The report of the dry run could not be written"):
                self.storage.write(self.options.report, report)

    def write_beside(self, what: str, path: str, text: str) -> None:
        """Write a file that belongs to the output, which is there already.

        Raises:
            JobError: It cannot be written.
        """
        with plain_errors(f"The output was written, but its {what} could not be"):
            self.storage.write(path, text)


def check_places(storage: Places, places: Iterable[tuple[str, str, str]]) -> None:
    """Refuse places, as options have them, of which one lies inside another.

    Raises:
        ConfigError: Two of them do.
    """
    for (other, _, source), (what, option, target) in combinations(places, 2):
        goal = storage.real(target)
        for place in map(storage.real, storage.matches(source) or [source]):
            if f"{place}/".startswith(f"{goal}/") or f"{goal}/".startswith(f"{place}/"):
                raise ConfigError(
                    f"{what} and {other.lower()} lie inside one another",
                    got=f"{place} and {goal}",
                    do=f"Choose another {option}",
                )
