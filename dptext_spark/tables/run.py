"""A table in, a table out: the job around the sanitized frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, Self, TypeAlias

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.options import ALL, TableOptions
from dptext_spark.report.facts import Facts, Report, describe, has_arrays, key_scope
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.spark.session import session
from dptext_spark.tables.batch import ID, ROW
from dptext_spark.tables.columns import TableColumns, Worker
from dptext_spark.tables.fields import Field
from dptext_spark.tables.formats.format import FORMATS, Format, Output
from dptext_spark.tables.partitioning import POSITION, Partitioning
from dptext_spark.tables.source import Source, own_session, where
from dptext_spark.tables.storage import Places, Storage

Entered: TypeAlias = Callable[[DataFrame], AbstractContextManager[object]]
"""What must hold while rows are perturbed and written."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run over a table: what is read, what names its rows, and where it goes.

    Attributes:
        columns: Those of the options, with the names that ``--keep '*'`` stands for.
        written: The output's format.
        grows: Whether runs add files to one output.
    """

    grows: ClassVar[bool] = False

    options: TableOptions
    columns: TableColumns
    storage: Storage
    source: Source
    written: Format

    @classmethod
    def open(cls, app: str, options: TableOptions, columns: TableColumns) -> Self:
        """Start Spark and check paths, columns and filter; no row is released.

        Args:
            app: Spark's name for the run.
            options, columns: What is asked for.

        Raises:
            DptextError: Options or input are wrong.
        """
        read, written = chosen_formats(options, grows=cls.grows)
        spark = own_session(session(app))
        storage = Storage(spark)
        with plain_errors("The paths of input, output or report could not be looked up"):
            check_places(storage, paths(options, read, written))
            cls.check_output(storage, options, written, spark)
        source = read.open(spark, storage, options.input)
        check_left_out(read, source, columns)
        with _discreet(read):
            columns = columns.named(source.df.schema)
            columns.check(source.df, source.partitions)
        written.check_schema(storage, columns.released(source.df.schema), _output(options))
        job = cls(options=options, columns=columns, storage=storage, source=source, written=written)
        with _discreet(read):
            _ = job.df, job.row_id  # what is wrong with them is said now
        return job

    @classmethod
    def check_output(
        cls, storage: Places, options: TableOptions, written: Format, spark: SparkSession | None = None
    ) -> None:
        """Refuse to replace what exists, unless told to.

        Raises:
            ConfigError: Output or report exist, or the output is none of a finished job.
        """
        for what, path in options.files:
            if not (options.overwrite or options.append) and storage.exists(path):
                raise ConfigError(
                    f"The {what.lower()} {path} exists",
                    do="Choose another place with --reports, or replace it with --mode overwrite",
                )
        written.check_place(spark, storage, _output(options))

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
        """Say what else the output tells."""
        said = key_scope(
            kept=self.options.key_file is not None,
            what="text or vector" if self.columns.vectors else "text",
            arrays=has_arrays(self.columns.sanitized),
            by_position=self.options.id is None,
            grows=self.grows,
        )
        if self.options.trust_id and self.options.id is not None:
            said.append(
                "Whether ids are unique was not checked: rows of one id show whether their texts are equal."
            )
        if self.options.where:
            said.append(
                "Only rows that meet the filter --where are in the output, which tells that they meet it. "
                "The filter is not in this report: it may quote private values."
            )
        return said

    @property
    def private_remarks(self) -> list[str]:
        """Say what the output lacks, for those who run the job: it names columns that stay behind."""
        if lost := [name for name in self.source.partitions if name not in self.partitions]:
            return [
                f"The input is partitioned by {', '.join(lost)}, the output is not: pass these columns "
                "through with --keep to keep the folders."
            ]
        return []

    @property
    def checked_id(self) -> str | None:
        """The id column that is to be checked, if any."""
        return None if self.options.trust_id else self.options.id

    def sanitize(
        self,
        worker: Worker,
        partitioning: Partitioning,
        look: Callable[[DataFrame], None] | None = None,
        entered: Entered = nullcontext,
    ) -> Mapping[str, Any]:
        """Sanitize the table and write the output; what is under its name is always whole.

        Args:
            worker: What sanitizes columns.
            partitioning: How rows are spread over tasks.
            look: Called with the rows, as :meth:`TableColumns.select` gives them, before they are sanitized.
            entered: Called with them too; what it gives is entered while they are sanitized and written.

        Returns:
            The number of ``rows`` and the sums of the counters.

        Raises:
            JobError: Spark or the file system failed.
        """
        observation = Observation("dptext")
        rows = self.placed_rows()
        selected = rows.drop(*POSITION)
        if look is not None:
            look(selected)
        spread = self.spread(rows, partitioning)
        result = self.columns.sanitize(spread, self.df.schema, worker, observation)
        with entered(selected), progress(result.sparkSession, "Sanitizing"):
            self.written.write(self.storage, result, self.output)
        return observation.get

    def placed_rows(self) -> DataFrame:
        """Give the rows as :meth:`TableColumns.select` does, and where each lies, where its format knows."""
        selected = self.columns.select(self.df, self.row_id)
        if not FORMATS[self.options.format].has_positions:
            return selected
        metadata = self.source.read.metadataColumn("_metadata")
        places = (metadata["file_path"], metadata["row_index"])
        return selected.withColumns(dict(zip(POSITION, places, strict=True)))

    def spread(self, rows: DataFrame, partitioning: Partitioning) -> DataFrame:
        """Spread rows that :meth:`placed_rows` gave over tasks."""
        partitions = [F.col(ROW).getField(name) for name in self.partitions]
        return partitioning.spread(rows, F.col(ID), partitions)

    @property
    def identity(self) -> str:
        """Where the rows come from: one place has one."""
        read = Format.named(self.options.format, self.options.read_options)
        return self.storage.real(self.options.input) if read.has_path else f"{read.name} {self.options.input}"

    @property
    def output(self) -> Output:
        """Where the table goes: in the input's partitions."""
        return _output(self.options, self.partitions)

    def table_facts(self, partitioning: Partitioning) -> Facts:
        """Give what a report says of the table, for :func:`~dptext_spark.report.facts.table_facts`."""
        return {
            "options": self.options.to_json(),
            "row_id": self.row_id_words,
            "kept": self.columns.keep,
            "sanitized": self.columns.sanitized,
            "remarks": self.remarks,
            "private_remarks": [*self.private_remarks, *partitioning.private_remarks],
            "keeps_order": partitioning.keeps_order,
        }

    def report(self, facts: Facts, found: Facts) -> Report:
        """Make the report, of facts that there are in any case, and of others that may be missing."""
        order = ("row_lengths", "persons", "coverage", "rows", "added_rows", "ledger", "columns")
        others = {name: found[name] for name in order if found.get(name) not in (None, {}, [])}
        before = {name: value for name, value in facts.items() if name != "rows"}
        rows = {"rows": found.get("rows")}
        columns = {"columns": found.get("columns", {})}
        whole = {**before, **others, **rows, **columns}
        return Report(facts=whole, text=describe(whole))

    def write_dry(self, report: Report) -> None:
        """Write the private report of a dry run, where there is a folder for it.

        Raises:
            JobError: It cannot be written.
        """
        if self.options.reports is not None:
            with plain_errors("The report of the dry run could not be written"):
                self.storage.make_private_folder(self.options.private_folder)
                self.storage.write(self.options.report_path, report.to_json())

    def write_reports(self, report: Report) -> None:
        """Write the report that may be shared, and the one that may not, to their places.

        The output is there already.

        Raises:
            JobError: They cannot be written.
        """
        public = report.to_publish(self.options.published)
        self.write_beside("public report", self.options.public_report_path, public)
        with plain_errors("The output was written, but its report could not be"):
            self.storage.make_private_folder(self.options.private_folder)
        self.write_beside("report", self.options.report_path, report.to_json())

    def write_beside(self, what: str, path: str, text: str) -> None:
        """Write a file that belongs to the output, which is there already.

        Raises:
            JobError: It cannot be written.
        """
        with plain_errors(f"The output was written, but its {what} could not be"):
            self.storage.write(path, text)


def _output(options: TableOptions, partitions: tuple[str, ...] = ()) -> Output:
    return Output(
        place=options.output,
        partitions=partitions,
        overwrite=options.overwrite,
        append=options.append,
    )


@contextmanager
def _discreet(read: Format) -> Iterator[None]:
    """Leave out of errors what is allowed where that would quote names that may be a row."""
    try:
        yield
    except (ConfigError, InputError) as error:
        if not read.names_are_data or not error.allowed:
            raise
        do = "Its first line names its columns; where none does, give --read-option header=false and name "
        do += "them _c0, _c1 and so on"
        raise type(error)(error.what, got=error.got, do=do) from None


def chosen_formats(options: TableOptions, *, grows: bool) -> tuple[Format, Format]:
    """Choose the formats of input and output, and refuse what they cannot do; needs no Spark.

    Raises:
        ConfigError: A format is unknown, or lacks what is asked for.
    """
    read = Format.named(options.format, options.read_options)
    written = Format.named(options.output_format or options.format, options.write_options)
    if not (read.has_path or written.has_path) and options.input == options.output:
        raise ConfigError("Input and output are one table", got=options.input, do="Choose another --output")
    read.check_input(has_id=options.id is not None, grows=grows)
    written.check_output(_output(options), grows=grows)
    if not (written.has_path or options.reports or options.dry_run):
        raise ConfigError(
            "Option --reports is missing: nothing can lie beside an --output that is a name",
            do="Name a folder for the reports",
        )
    return read, written


def absent(columns: TableColumns, table: StructType) -> list[str]:
    """Give the names of columns that a table does not have."""
    return [name for name in mentioned(columns) if not Field.find(table, name)]


def mentioned(columns: TableColumns) -> list[str]:
    """Give the names of columns that options mention."""
    beside = [name for name in (columns.id, columns.slots, columns.person) if name is not None]
    names = dict.fromkeys([*columns.sanitized, *columns.keep, *columns.left_out, *beside])
    return [name for name in names if name != ALL]


def check_left_out(read: Format, source: Source, columns: TableColumns) -> None:
    """Refuse fields that only some of the files have, where they are named or are among what passes through.

    Raises:
        InputError: There are such fields, or it cannot be told.
    """
    table = source.df.schema
    missing = absent(columns, table)
    # What is inside a column that passes through whole passes with it.
    whole = [
        name for name in columns.keep for field in Field.find(table, name) if _has_fields(field.data_type)
    ]
    if ALL not in columns.keep and not missing and not whole:
        return
    spared = [name for name in columns.left_out if name not in missing]
    wanted = [
        name
        for name in read.left_out(source)
        if (ALL in columns.keep or _within(name, [*missing, *whole])) and not _within(name, spared)
    ]
    if wanted:
        raise InputError(
            f"The input {source.place} has columns that not all files show, and that Spark leaves out",
            got=", ".join(wanted),
            do=read.remedy,
        )


def _within(name: str, others: Iterable[str]) -> bool:
    return any(name == other or name.startswith((f"{other}.", f"{other}[]")) for other in others)


def _has_fields(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_fields(kind.elementType)
        case MapType():
            return _has_fields(kind.keyType) or _has_fields(kind.valueType)
    return isinstance(kind, StructType)


def paths(options: TableOptions, read: Format, written: Format) -> list[tuple[str, str, str]]:
    """Give the places of a run that are paths, as options have them."""
    names = [*(["Input"] * (not read.has_path)), *(["Output"] * (not written.has_path))]
    return [place for place in options.places if place[0] not in names]


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
