"""Formats of tables: how each is read and written, by Spark's own readers and writers.

A format is a subclass of :class:`Format` with a ``name``, which ``--format`` and ``--output-format`` take;
it registers itself. One whose files Spark lists, reads and writes is a :class:`FileFormat`, a few lines long.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import condition, failing
from dptext_spark.spark.table.fields import quoted
from dptext_spark.spark.table.nanoseconds import in_microseconds
from dptext_spark.spark.table.output import check_unfinished, write_whole
from dptext_spark.spark.table.source import Source, is_settled, unreadable
from dptext_spark.spark.table.storage import Places, Storage, literal

FORMATS: Final[dict[str, type[Format]]] = {}
"""By name."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a table goes.

    Attributes:
        place: As ``--output`` says it.
        partitions: Columns that name its folders, the outermost first.
        compression: As ``--compression`` says it; None where the format chooses.
        overwrite: Replace what is there.
        append: Add to what is there.
    """

    place: str
    partitions: tuple[str, ...] = ()
    compression: str | None = None
    overwrite: bool = False
    append: bool = False


@dataclass(frozen=True)
class Format(ABC):
    """A format of tables, with the options that its reader or writer was given.

    A run asks in this order: :meth:`check_input` and :meth:`check_output` before Spark starts,
    :meth:`check_place` and :meth:`open` before the first task, :meth:`write` once. Whatever is wrong with the
    options, the input or the output is said as early as that.

    A format that keeps an account of its files, as Delta and Iceberg do, lists the live files in :meth:`open`
    and gives them to Spark as Parquet; in :meth:`write` it has Spark write Parquet files where its readers
    do not look yet, and then commits them in one step.

    Attributes:
        options: ``--read-option`` or ``--write-option``, by name.
        name: What ``--format`` takes.
        has_positions: Whether Spark numbers the rows of its files, so that a row can be named by file and
            position; without it runs need ``--id``.
        has_path: Whether a table lies at a path, and not under a name that a catalog knows.
        names_are_data: Whether the names of columns may be a first row in truth, which no message quotes.
        cannot_hold: Types of columns that no file of it can have.
        can_append: Whether rows can be added to a table in one step, which readers see whole or not at all.
        can_grow: Whether files that are new can be told from those that were read, for ``--incremental``, and
            added to the output batch by batch.
    """

    options: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str]
    has_positions: ClassVar[bool] = False
    has_path: ClassVar[bool] = True
    names_are_data: ClassVar[bool] = False
    cannot_hold: ClassVar[tuple[type[DataType], ...]] = ()
    can_append: ClassVar[bool] = False
    can_grow: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            FORMATS[cls.name] = cls

    @staticmethod
    def named(name: str, options: Mapping[str, str]) -> Format:
        """Choose a format by its name.

        Raises:
            ConfigError: There is none of this name.
        """
        if name not in FORMATS:
            raise ConfigError("The format is unknown", allowed=", ".join(sorted(FORMATS)), got=repr(name))
        return FORMATS[name](options)

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        """Refuse what this format cannot do for an input, before Spark starts.

        Raises:
            ConfigError: Rows have no names without ``--id``, or the input shall grow and cannot.
        """
        if not has_id and not self.has_positions:
            raise ConfigError(
                f"Rows of format {self.name} cannot be named by file and position",
                allowed=f"that for {_listed('has_positions')}",
                do="Name the rows with --id",
            )
        if grows and not self.can_grow:
            raise ConfigError(
                f"Option --incremental cannot read format {self.name}", allowed=_listed("can_grow")
            )

    def check_output(self, output: Output, *, grows: bool) -> None:
        """Refuse what this format cannot do for an output, before Spark starts.

        Raises:
            ConfigError: Rows shall be added, and cannot be.
        """
        if output.append and not self.can_append:
            raise ConfigError(
                f"Option --append does not go with an output of format {self.name}",
                allowed=_listed("can_append"),
                do="Write a table of its own, or add new files with --incremental",
            )
        if grows and not self.can_grow:
            raise ConfigError(
                f"Option --incremental cannot write format {self.name}", allowed=_listed("can_grow")
            )

    @abstractmethod
    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        """Look at a table; no row of it comes out, though a reader may look at rows to find their types.

        Raises:
            InputError: There is no such table, or it cannot be read whole.
        """

    @abstractmethod
    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        """Refuse an output that must not be written, before anything is read.

        For files it is called before Spark starts too, without a session, where they are on this machine.

        Raises:
            ConfigError: Something is there and shall not be replaced or added to, or is no such table.
        """

    def check_schema(self, storage: Storage, schema: StructType, output: Output) -> None:
        """Refuse columns that the output cannot have, before the first task.

        Raises:
            ConfigError: A column has such a type, or the table that is there has other columns.
        """
        if wrong := [
            f"{f.name} ({f.dataType.simpleString()})"
            for f in schema.fields
            if isinstance(f.dataType, self.cannot_hold)
        ]:
            raise ConfigError(
                f"Columns have types that format {self.name} cannot hold",
                got=", ".join(wrong),
                do="Choose another --output-format",
            )

    @abstractmethod
    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        """Write a table; what is under its name is always whole.

        ``result`` is evaluated once: each evaluation counts.

        Raises:
            DptextError: It cannot be written, or another run took over.
        """


class FileFormat(Format):
    """Files in a folder, which Spark lists, reads and writes.

    Attributes:
        read_defaults, write_defaults: Options of Spark's reader and writer, unless others are given.
        codecs: What ``--compression`` may be, and Spark's name for it; the first is the default.
    """

    can_grow = True
    read_defaults: ClassVar[Mapping[str, str]] = {}
    write_defaults: ClassVar[Mapping[str, str]] = {}
    codecs: ClassVar[Mapping[str, str]]

    def check_output(self, output: Output, *, grows: bool) -> None:
        super().check_output(output, grows=grows)
        if output.compression not in {None, *self.codecs}:
            raise ConfigError(
                f"Option --compression has a wrong value for format {self.name}",
                allowed=", ".join(self.codecs),
                got=repr(output.compression),
            )

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        self.check_files(storage, place)
        try:
            read, prepare = self.look(spark, place)
            return Source.of_files(storage, place, read, self, prepare)
        except (PySparkException, Py4JJavaError) as error:
            damaged = not isinstance(error, AnalysisException)
            do = _package(spark, error)
            raise unreadable(place, _cause(error), damaged=damaged, title=self.title, do=do) from None

    def check_files(self, storage: Places, place: str) -> None:
        """Refuse files that belong to a table of another format.

        Raises:
            ConfigError: They do.
        """
        for path in storage.matches(place) or [place]:
            refuse_accounted(storage, "input", path)

    def look(self, spark: SparkSession, path: str) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
        """Give the files below ``path`` as they are read, and what makes of them what they mean."""
        return self.load(spark.read, path), lambda df: df

    def load(self, reader: Any, path: str) -> DataFrame:
        """Give the files below ``path`` as a frame, by a reader or a reader of streams."""
        options = {**self.read_defaults, **self.options}
        frame: DataFrame = reader.format(self.name).options(**options).load(path)
        return frame

    @property
    def title(self) -> str:
        """The name as people write it."""
        return self.name.upper()

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        refuse_accounted(storage, "output", output.place)
        exists = storage.exists(output.place)
        if exists and not output.overwrite:
            raise ConfigError(
                f"The output {output.place} exists",
                do="Choose another --output, or replace it with --overwrite",
            )
        if exists and not storage.exists(f"{output.place}/_SUCCESS"):
            raise ConfigError(
                f"The output {output.place} is not a table that a finished job wrote",
                allowed="with --overwrite, a folder with a _SUCCESS file",
                do="Remove it by hand if it may go",
            )
        if not output.overwrite:
            check_unfinished(storage, output.place)

    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        write_whole(
            storage,
            output.place,
            lambda place: self._writer(result, output).save(place),
            run=str(result.sparkSession.sparkContext.applicationId),
            overwrite=output.overwrite,
        )

    def add_files(self, result: DataFrame, output: Output, name: str) -> None:
        """Add files to a folder, in one step, whose names begin with ``name``."""
        writer = self._writer(result, output).option("mapreduce.output.basename", name)
        writer.mode("append").save(output.place)

    def _writer(self, result: DataFrame, output: Output) -> DataFrameWriter:
        codec = self.codecs[output.compression or next(iter(self.codecs))]
        options = {"compression": codec, **self.write_defaults, **self.options}
        return result.write.format(self.name).partitionBy(*output.partitions).options(**options)


class Parquet(FileFormat):
    """Parquet files, whose rows Spark numbers."""

    name = "parquet"
    title = "Parquet"
    has_positions = True
    codecs: ClassVar = {name: name for name in ("snappy", "zstd", "gzip", "lz4_raw", "none")}

    def look(self, spark: SparkSession, path: str) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
        read = self.load(spark.read, path)
        return read, in_microseconds(read, lambda: self.load(spark.read.option("mergeSchema", "true"), path))


class Orc(FileFormat):
    """ORC files."""

    name = "orc"
    codecs: ClassVar = {"snappy": "snappy", "zstd": "zstd", "gzip": "zlib", "lz4_raw": "lz4", "none": "none"}


class Avro(FileFormat):
    """Avro files, by a package of Spark's that it does not bring along."""

    name = "avro"
    title = "Avro"
    codecs: ClassVar = {"snappy": "snappy", "zstd": "zstandard", "gzip": "deflate", "none": "uncompressed"}


class RecordFormat(FileFormat):
    """Files of text, whose records may be malformed: one such record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log. Whoever gives a ``mode`` gets that.
    """

    codecs: ClassVar = {"none": "none", "gzip": "gzip"}

    def look(self, spark: SparkSession, path: str) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
        if any(name.lower() == "mode" for name in self.options):
            return super().look(spark, path)
        malformed = InputError(
            f"The input has records that are not {self.title}, or not of its schema",
            do="Mend them, or see which --read-option the files need; with --read-option mode=DROPMALFORMED "
            "such records are left out",
        )
        found = self.load(spark.read, path).schema
        if _MALFORMED in found.names:
            raise malformed
        read = self.load(spark.read.schema(StructType([*found.fields, _MALFORMED_FIELD])), path)

        def check(df: DataFrame) -> DataFrame:
            sound = F.when(F.col(_MALFORMED).isNull(), True).otherwise(failing(malformed).cast("boolean"))
            return df.where(sound).drop(_MALFORMED)

        return read, check

    def load(self, reader: Any, path: str) -> DataFrame:
        return super().load(reader.option("columnNameOfCorruptRecord", _MALFORMED), path)


class Json(RecordFormat):
    """One JSON object on a line; Spark reads all of them once to find the columns and their types."""

    name = "json"
    write_defaults: ClassVar = {"ignoreNullFields": "false"}  # a column of nulls is a column


class Csv(RecordFormat):
    """CSV as RFC 4180 and pandas have it: names in the first line, quotes doubled, lines inside quotes.

    Values are strings, unless ``inferSchema`` says otherwise. A value without quotes and letters is null.
    """

    name = "csv"
    names_are_data = True
    cannot_hold = (ArrayType, MapType, StructType, BinaryType)
    read_defaults: ClassVar = {
        "header": "true",
        "enforceSchema": "false",  # with it a file whose columns lie in another order is read all the same
        "multiLine": "true",
        "escape": '"',
        "nullValue": "\x00",  # none that occurs: by default an empty string in quotes is null too
    }
    write_defaults: ClassVar = {
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    }


class CatalogTable(Format):
    """Tables and views by their names, ``catalog.schema.table``, in the catalogs that Spark has."""

    name = "table"
    has_path = False
    can_append = True

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        try:
            df = spark.read.options(**self.options).table(place)
            partitions = tuple(c.name for c in spark.catalog.listColumns(place) if c.isPartition)
        except (PySparkException, Py4JJavaError) as error:
            raise InputError(
                f"The input table {place} cannot be read",
                allowed="the name of a table or view, [[CATALOG.]SCHEMA.]NAME",
                got=_cause(error),
                do=_CATALOGS,
            ) from None
        if not is_settled(df):
            raise InputError(
                f"The view {place} gives other rows each time", do="Write it as a table, and give that"
            )
        return Source(place=place, read=df, partitions=partitions)

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        if spark is None:
            return
        try:
            exists = spark.catalog.tableExists(output.place)
        except (PySparkException, Py4JJavaError) as error:
            raise ConfigError(
                f"The output table {output.place} cannot be looked up",
                allowed="[[CATALOG.]SCHEMA.]NAME",
                got=_cause(error),
                do=_CATALOGS,
            ) from None
        if exists and not output.append:
            raise ConfigError(
                f"The output table {output.place} exists",
                allowed="a new name, or --append: no catalog replaces a table in one step for certain",
                do="Choose another --output, or drop the table before the run",
            )

    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        spark = result.sparkSession
        if not spark.catalog.tableExists(output.place):
            writer = result.write.options(**self.options).partitionBy(*output.partitions)
            writer.mode("error").saveAsTable(output.place)
            return
        there = spark.read.table(output.place)
        if {*there.inputFiles()} & {*result.inputFiles()}:
            raise ConfigError(f"The output table {output.place} is the input", do="Choose another --output")
        if _types(there) != _types(result):
            raise ConfigError(
                f"The output table {output.place} has other columns than this release",
                allowed=", ".join(_types(there)),
                got=", ".join(_types(result)),
                do="Choose another --output",
            )
        ordered = result.select(*[quoted(name) for name in there.columns])
        ordered.write.options(**self.options).insertInto(output.place)


def _types(df: DataFrame) -> list[str]:
    return sorted(f"{field.name} {field.dataType.simpleString()}" for field in df.schema.fields)


def refuse_accounted(storage: Places, what: str, path: str) -> None:
    """Refuse a path in a table of a format that keeps an account of its files.

    Such a folder has files whose rows were deleted or replaced, which only its account tells apart.

    Raises:
        ConfigError: There is such a table, at the path or around it.
    """
    for folder in _up_from(storage.qualified(path)):
        for title, name, mark in _ACCOUNTS:
            try:
                marked = storage.matches(f"{literal(folder)}/{mark}")
            except (PySparkException, Py4JJavaError):
                break  # a folder around it that may not be listed; what lies in the path itself is read next
            if marked:
                option = "--format" if what == "input" else "--output-format"
                raise ConfigError(
                    f"The {what} {path} is {title}, or lies in one: its files by themselves are no table, "
                    "as rows that were deleted or replaced are still in them",
                    got=f"{mark.partition('/')[0]} in {folder}",
                    do=f"Give {option} {name}"
                    if name in FORMATS
                    else f"Give its name with {option} table to a Spark that has its catalog, or copy its "
                    "rows to plain files first",
                )


def _up_from(path: str) -> Iterator[str]:
    """Give a full path, and those of the folders around it, without a slash at the end."""
    path = path.rstrip("/")
    root = re.match(r"([^/]*:)?(//[^/]*)?", path)
    shortest = root.end() if root else 0
    while len(path) > shortest:
        yield path
        path = path[: max(path.rfind("/"), shortest)]
    yield path


_ACCOUNTS: Final = (
    ("a Delta table", "delta", "_delta_log"),
    ("an Iceberg table", "iceberg", "metadata/*.metadata.json"),
    ("a Hudi table", "hudi", ".hoodie"),
)
_CATALOGS: Final = (
    "Give Spark the catalog by spark.sql.catalog.NAME, and its library by spark-submit --packages: "
    "io.delta:delta-spark or org.apache.iceberg:iceberg-spark-runtime, of Spark's own version"
)
_MALFORMED: Final = "__dptext_malformed"
_MALFORMED_FIELD: Final = StructField(_MALFORMED, StringType())


def _cause(error: Exception) -> str:
    """Name an error of Spark's, with the type that it cannot read."""
    illegal = re.search(r"Illegal Parquet type: ([A-Z0-9_]+( \([A-Z]+(\([A-Z]+,\w+\))?\))?)", str(error))
    return f"{condition(error)}: {illegal[1]}" if illegal else condition(error)


def _package(spark: SparkSession, error: Exception) -> str:
    if "AVRO_DATA_SOURCE_NOT_ENABLED" not in str(error):
        return ""
    return (
        f"Give Spark the library by spark-submit --packages org.apache.spark:spark-avro_2.13:{spark.version}"
    )


def _listed(ability: str) -> str:
    return ", ".join(sorted(name for name, kind in FORMATS.items() if getattr(kind, ability))) or "none"
