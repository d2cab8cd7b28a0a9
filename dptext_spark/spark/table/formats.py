"""Formats of tables: how each is read and written, by Spark's own readers and writers.

A format is a subclass of :class:`Format` with a ``name``, which ``--format`` and ``--output-format`` take;
it registers itself. One whose files Spark lists, reads and writes is a :class:`FileFormat`, a few lines long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import condition
from dptext_spark.spark.table.output import check_unfinished, write_whole
from dptext_spark.spark.table.source import Source
from dptext_spark.spark.table.storage import Storage

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
        can_append: Whether rows can be added to a table in one step, which readers see whole or not at all.
        can_grow: Whether files that are new can be told from those that were read, for ``--incremental``, and
            added to the output batch by batch.
    """

    options: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str]
    has_positions: ClassVar[bool] = False
    has_path: ClassVar[bool] = True
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
    def check_place(self, spark: SparkSession, storage: Storage, output: Output) -> None:
        """Refuse an output that must not be written, before anything is read.

        Raises:
            ConfigError: Something is there and shall not be replaced or added to, or is no such table.
        """

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
        try:
            read = self.load(spark.read, place)
            source = Source.of_files(storage, place, read, self)
        except (PySparkException, Py4JJavaError) as error:
            analyzed = isinstance(error, AnalysisException)
            what = "cannot be read as a table" if analyzed else f"is not {self.title}, or is damaged"
            raise InputError(
                f"The input {place} {what}",
                allowed=f"a {self.title} file, or a folder of {self.title} files",
                got=condition(error),
            ) from None
        return source

    def load(self, reader: Any, path: str) -> DataFrame:
        """Give the files below ``path`` as a frame, by a reader or a reader of streams."""
        options = {**self.read_defaults, **self.options}
        frame: DataFrame = reader.format(self.name).options(**options).load(path)
        return frame

    @property
    def title(self) -> str:
        """The name as people write it."""
        return self.name.upper()

    def check_place(self, spark: SparkSession, storage: Storage, output: Output) -> None:
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


def _listed(ability: str) -> str:
    return ", ".join(sorted(name for name, kind in FORMATS.items() if getattr(kind, ability))) or "none"
