"""A table in, a table out: the job around the sanitized frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from dptext_spark.bars import progress, stage
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.options import TableOptions
from dptext_spark.report.facts import Facts, Report, describe, has_arrays, key_scope
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import LEASE, is_connect, session
from dptext_spark.spark.versions import metadata
from dptext_spark.tables.batch import ID, ROW
from dptext_spark.tables.columns import TableColumns, Worker, check_refused
from dptext_spark.tables.formats.catalog import CatalogTable
from dptext_spark.tables.formats.files import FileFormat
from dptext_spark.tables.formats.format import FORMATS, Format
from dptext_spark.tables.partitioning import POSITION, Partitioning
from dptext_spark.tables.source import Source, check_met, own_session, where
from dptext_spark.tables.storage import (
    NO_FILE,
    LocalFiles,
    Storage,
    is_absent,
    is_partition,
    is_plain,
    local_path,
)

Entered: TypeAlias = Callable[[DataFrame], AbstractContextManager[object]]
"""Called with rows, as :meth:`TableColumns.select` gives them; what it gives is entered while they
are sanitized and written."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A private table that is open, and the output that it becomes."""

    grows: ClassVar[bool] = False  # whether runs add files to one output

    options: TableOptions
    columns: TableColumns  # those of the options, with the names that ``--keep '*'`` stands for
    storage: LocalFiles
    source: Source
    written: Format  # the output, in the input's partitions
    identity: str  # where the rows come from: one place has one
    # (V,), how many rows have each word, where rows are counted that show a rare one.
    row_counts: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def check_paths(cls, options: TableOptions) -> None:
        """Refuse, before Spark starts, places of this machine that overlap, or must not exist, or must."""
        read, written = chosen_formats(options, grows=cls.grows)
        if is_plain():
            places, files = _places(options, read, written), LocalFiles()
            local = [place for place in places if local_path(place[2])]
            check_places(files, local)
            _check_partition(files, written, local)
            if isinstance(written, FileFormat) and all(
                p in local for p in places if p[0] != "Input"
            ):
                cls.check_output(files, options, written)
            check_input(read)

    @classmethod
    def open(cls, app: str, options: TableOptions, columns: TableColumns) -> Self:
        """Start Spark under this name and check paths, columns and filter; no row is released."""
        spark = own_session(session(app, on_connect=options.on_connect))
        with stage("Opening the table"):
            read, written = chosen_formats(options, grows=cls.grows)
            if is_connect(spark):
                _check_connect(options, read, written)
            # On Spark Connect only reports are files, of this machine or of a volume that it
            # mounts.
            storage = LocalFiles() if is_connect(spark) else Storage(spark)
            with spark_errors("The paths of input, output or report could not be looked up"):
                places = _places(options, read, written)
                check_places(storage, places)
                _check_partition(storage, written, places)
                cls.check_output(storage, options, written, spark)
                place = (
                    storage.real(options.input) if read.has_path else f"{read.name} {options.input}"
                )
            source = read.open(spark)
            columns = check_refused(source, columns)
            try:
                columns = columns.named(source.df.schema)
                columns.check(source.df, source.partitions)
                folders = tuple(name for name in source.partitions if name in columns.keep)
                table = cls(
                    options=options,
                    columns=columns,
                    storage=storage,
                    source=source,
                    written=replace(written, partitions=folders),
                    identity=place,
                )
                _ = (
                    table.rows
                )  # what is wrong with the filter, or with the names of rows, is said now
            except (ConfigError, InputError) as error:
                if not (read.names_remedy and error.allowed):
                    raise
                # What is allowed would quote names that may be a row.
                raise type(error)(error.what, got=error.got, do=read.names_remedy) from None
            table.written.check_schema(spark, columns.released(source.df.schema))
            return table

    @classmethod
    def check_output(
        cls,
        storage: LocalFiles,
        options: TableOptions,
        written: Format,
        spark: SparkSession | None = None,
    ) -> None:
        """Refuse to replace what exists, unless told to: the output before its reports."""
        written.check_place(storage, spark)
        for what, path in options.files:
            if options.mode == "error" and storage.exists(path):
                raise ConfigError(
                    f"The {what.lower()} {path} exists",
                    do="Choose another place with --reports, or replace it with --mode overwrite",
                )

    @cached_property
    def df(self) -> DataFrame:
        """The rows that are wanted."""
        return where(self.source.df, self.options.where) if self.options.where else self.source.df

    @cached_property
    def rows(self) -> DataFrame:
        """What workers read of them, and where each lies, if its format knows."""
        row_id = self.source.position if self.options.id is None else None
        selected = self.columns.select(self.df, row_id)
        if not FORMATS[self.options.format].has_positions:
            return selected
        file, row = POSITION
        lies = metadata(self.source.read)
        return selected.withColumns({file: lies["file_path"], row: lies["row_index"]})

    def check_rows(self) -> None:
        """Refuse a filter that leaves no row; a table that grows may meet it later."""
        if self.options.where and not self.grows:
            check_met(self.df, self.source.df)

    @property
    def checked_id(self) -> str | None:
        """The id column that is to be checked, if any."""
        return None if self.options.trust_id else self.options.id

    def sanitize(
        self, worker: Worker, partitioning: Partitioning, entered: Entered = nullcontext
    ) -> Mapping[str, Any]:
        """Sanitize, and write the output, whole or not at all; give ``rows`` and sums of counters."""
        selected = self.rows.drop(*POSITION)
        if partitioning.sample is not None:
            partitioning.sample(selected)
        result, observation = self.released_rows(self.rows, worker, partitioning)
        with entered(selected), progress(result.sparkSession, "Sanitizing"):
            self.written.write(result)
        return observation.get

    def released_rows(
        self, rows: DataFrame, worker: Worker, partitioning: Partitioning
    ) -> tuple[DataFrame, Observation]:
        """Spread and sanitize rows, lazily; the observation is as :meth:`TableColumns.sanitize` says."""
        observation = Observation("dptext")
        folders = [F.col(ROW).getField(name) for name in self.written.partitions]
        spread = partitioning.spread(rows, F.col(ID), folders)
        schema = self.source.df.schema
        return self.columns.sanitize(
            spread, schema, worker, observation, self.row_counts
        ), observation

    def table_facts(self, partitioning: Partitioning) -> Facts:
        """Give what a report says of the table, for :func:`~dptext_spark.report.facts.table_facts`."""
        options, sanitized = self.options, self.columns.sanitized
        remarks = key_scope(
            kept=options.key_file is not None,
            what="text or vector" if self.columns.vectors else "text",
            arrays=has_arrays(sanitized),
            by_position=options.id is None,
            grows=self.grows,
        )
        if options.trust_id and options.id is not None:
            remarks.append(
                "Whether ids are unique was not checked: rows of one id show whether their texts are equal."
            )
        if options.where:
            remarks.append(
                "Only rows that meet the filter --where are in the output, which shows that they meet it. "
                "The filter is not in this report: it may quote private values."
            )
        private_remarks = list(partitioning.private_remarks)
        if lost := [name for name in self.source.partitions if name not in self.written.partitions]:
            private_remarks.insert(
                0,
                f"The input is partitioned by {', '.join(lost)}, the output is not: pass these columns "
                "through with --keep to keep the folders.",
            )
        if changed := LEASE.get((None, []))[1]:
            private_remarks.append(f"Changed in the session, and put back: {', '.join(changed)}.")
        return {
            "options": options.to_json(),
            "row_id": (
                "Rows are named by their file's path below the input and their position in it: a copy of the "
                "table in other files gets other noise. Name them by a column with --id where there is one."
                if options.id is None
                else f"Rows are named by column {options.id}."
            ),
            "kept": self.columns.keep,
            "sanitized": sanitized,
            "remarks": remarks,
            "private_remarks": private_remarks,
            "keeps_order": partitioning.keeps_order,
        }

    def write_reports(self, facts: Facts, found: Facts) -> Report:
        """Write the report that may be shared, and the one that may not, next to the output that is there.

        Of a dry run the private one alone, where there is a folder for it. ``facts`` are there in
        any case; of those ``found`` some may be missing.
        """
        others = {name: value for name, value in found.items() if value not in (None, {}, [])}
        whole = {**facts, **others, "rows": found.get("rows"), "columns": found.get("columns", {})}
        report = Report(facts=whole, text=describe(whole))
        failed = "The report of the dry run could not be written"
        if not self.options.dry_run:
            failed = "The output was written, but its report could not be"
            public = report.to_publish(self.options.published)
            self.write_beside("public report", self.options.public_report_path, public)
        if self.options.reports is not None or not self.options.dry_run:
            with spark_errors(failed):
                self.storage.make_folder(self.options.beside("private"), private=True)
                self.storage.write(self.options.report_path, report.to_json(), private=True)
        return report

    def write_beside(self, what: str, path: str, text: str) -> None:
        """Write a file that belongs to the output, which is there already."""
        with spark_errors(f"The output was written, but its {what} could not be"):
            self.storage.write(path, text)


def chosen_formats(options: TableOptions, *, grows: bool) -> tuple[Format, Format]:
    """Choose the formats of input and output, and refuse what they cannot do; needs no Spark."""
    read = Format.named(options.format, options.input, options.read_options)
    name = options.output_format or options.format
    written = Format.named(name, options.output, options.write_options, options.mode)
    if not (read.has_path or written.has_path) and options.input == options.output:
        raise ConfigError(
            "Input and output are one table", got=options.input, do="Choose another --output"
        )
    read.check_input(has_id=options.id is not None, grows=grows)
    written.check_output(grows=grows)
    if not (written.has_path or options.reports or options.dry_run):
        raise ConfigError(
            "Option --reports is missing: an --output that is a name has no folder for them",
            do="Name a folder for the reports",
        )
    if written.has_path and is_partition(options.output) and not options.reports:
        raise ConfigError(
            f"Option --reports is missing: the output {options.output} is a partition, and next to it its "
            "reports would lie inside the table, with counts that are private",
            do="Name a folder outside the table for them",
        )
    return read, written


def _check_partition(
    storage: LocalFiles, written: Format, places: Iterable[tuple[str, str, str]]
) -> None:
    """Refuse a run's files inside the table of which the output is a partition."""
    if not written.has_path:
        return
    folder = storage.real(written.place)
    if not is_partition(folder):
        return
    while is_partition(folder):
        folder = folder.rpartition("/")[0]
    for what, option, path in places:
        if option in ("--input", "--output"):
            continue
        place = storage.real(path)
        if place.startswith(f"{folder}/"):
            raise ConfigError(
                f"{what} lies inside the table of which the output is a partition",
                got=f"{place} in {folder}",
                do=f"Choose another {option}",
            )


def _check_connect(options: TableOptions, read: Format, written: Format) -> None:
    """Refuse what needs files, a plan or a scheduler, none of which a client of Spark Connect sees."""
    formats = {"--format": read, "--output-format": written}
    folders = (("reports", options.reports), ("ledger", getattr(options, "ledger", None)))
    given = {
        **{
            f"{name} {chosen.name}": chosen.name != CatalogTable.name
            for name, chosen in formats.items()
        },
        **{f"--{name}": getattr(options, name, None) for name in ("where", "incremental")},
        f"--mode {options.mode}": options.mode != "error",
        **{f"--{name} {path}": not local_path(path) for name, path in folders if path},
    }
    if refused := [name for name, is_given in given.items() if is_given]:
        raise ConfigError(
            "Spark Connect sanitizes a catalog's table into a new one",
            allowed="--format table, without --where, --incremental and --mode; --reports and --ledger in "
            "folders of this machine, such as a volume",
            got=", ".join(refused),
            do="Make a table of the wanted rows first, or start a session that is not remote",
        )


def check_input(read: Format) -> None:
    """Refuse, before Spark starts, an input of this machine that is absent or of another format."""
    if is_plain() and isinstance(read, FileFormat):
        read.check_files(LocalFiles())
        if is_absent(read.place):
            raise read.unreadable(NO_FILE)


def _places(options: TableOptions, read: Format, written: Format) -> list[tuple[str, str, str]]:
    """Give the places of a run that are paths."""
    is_path = {"Input": read.has_path, "Output": written.has_path}
    return [place for place in options.places if is_path.get(place[0], True)]


def check_places(storage: LocalFiles, places: Iterable[tuple[str, str, str]]) -> None:
    """Refuse places of which one lies inside another: what lies there, the option that moves it, a path."""
    for (other, _, source), (what, option, target) in combinations(places, 2):
        goal = storage.real(target)
        for place in map(storage.real, (other == "Input" and storage.matches(source)) or [source]):
            if f"{place}/".startswith(f"{goal}/") or f"{goal}/".startswith(f"{place}/"):
                raise ConfigError(
                    f"{what} and {other.lower()} lie inside one another",
                    got=f"{place} and {goal}",
                    do=f"Choose another {option}",
                )
