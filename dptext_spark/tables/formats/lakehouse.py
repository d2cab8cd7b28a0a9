"""Tables that keep an account of their files: what Delta and Iceberg have in common.

Their own Python libraries read and write the account, so Spark needs no package for them: it reads
the live files as Parquet, and writes Parquet files under a hidden name, which become part of the
table in one commit.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dptext_spark.errors import ConfigError, DptextError, InputError, JobError
from dptext_spark.spark.failures import condition
from dptext_spark.spark.versions import metadata
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import PARQUET_CODECS, Format
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.storage import LocalFiles, Storage, cause, file_url, literal

_HOMES: Final = ("_internal", "deltalake", "pyiceberg", "sqlalchemy")
# Errors of commits that quote no values.
_HARMLESS: Final = ("CommitFailedError", "CommitFailedException")

WrittenFile: TypeAlias = tuple[str, int, int, int, dict[str, str | None]]
"""A Parquet file that Spark wrote: its path in the folder, size in bytes, modification time in
milliseconds, number of rows, and values of the partition columns as folders name them."""


Addition: TypeAlias = tuple[str, str, dict[str, Column], Callable[[str, list[WrittenFile]], None]]


class LakehouseFormat(Format):
    """A format whose account of files is kept by a Python library.

    Attributes:
        library: The library's name, which is that of its module too.
        spark_package: What serves the format inside Spark.
        oldest_arrow: The pyarrow that the library needs, as its metadata say.
        chooser: The reader's option that chooses an older state of a table; all others but
            ``compression`` are the library's.
    """

    can_append = True
    codecs = PARQUET_CODECS

    library: ClassVar[str]
    spark_package: ClassVar[str]
    oldest_arrow: ClassVar[int] = 0
    chooser: ClassVar[str]

    def check_can_read(self, *, has_id: bool, grows: bool) -> None:
        super().check_can_read(has_id=has_id, grows=grows)
        self.module()

    def check_can_write(self, *, grows: bool) -> None:
        super().check_can_write(grows=grows)
        self.module()

    @classmethod
    def module(cls, name: str = "") -> ModuleType:
        """Import the library, or a module of it."""
        try:
            module = importlib.import_module(f"{cls.library}{name}")
        except ImportError:
            raise ConfigError(
                f"Tables of format {cls.name} need the Python package {cls.library}",
                do="Install it with: pip install 'dptext-spark[tables]'; or give Spark "
                f"{cls.spark_package} (spark-submit --packages), where there is one for its "
                "version, and name the table with --format table",
            ) from None
        if int(pa.__version__.partition(".")[0]) < cls.oldest_arrow:
            allowed = f"pyarrow {cls.oldest_arrow} or newer"
            what = f"Tables of format {cls.name} need a newer pyarrow"
            raise ConfigError(what, allowed=allowed, got=pa.__version__, do="Install it")
        return module

    @property
    def library_options(self) -> dict[str, str]:
        """Return the library's options, such as access keys of an object store."""
        return self.options_without(self.chooser, "compression")

    @property
    def chosen(self) -> int | None:
        """Return the state of the table that the reader's options choose; None for the latest."""
        if self.chooser not in self.options:
            return None
        return int(self.options[self.chooser])

    @abstractmethod
    def existing(self, storage: LocalFiles) -> Any:
        """Open the table by the library; None where there is none."""

    @abstractmethod
    def check_writable(self, table: Any) -> None:
        """Check that a table asks no more of a writer than to name files."""

    @abstractmethod
    def addition(self, spark: SparkSession, schema: StructType) -> Addition:
        """Return what adds files of this schema to the table, or creates it from them.

        Returns:
            The table's own folder; the one for its files; what names folders of files; and what
            makes the files in the latter's folder RUN part of the table, in a step of this name.

        Raises:
            ConfigError: The columns do not fit the table, or the format has no such types.
        """

    @abstractmethod
    def has(self, storage: LocalFiles, run: str) -> bool:
        """Return whether the table has the commit of this run."""

    def check_place(self, storage: LocalFiles) -> None:
        if storage.spark is None:
            return
        table, folder = self.existing(storage), self.place if self.has_path else None
        if table is None and folder and storage.exists(folder):
            raise ConfigError(
                f"The output {self.place} exists and is not a table of format {self.name}",
                do="Choose another --output, or remove it by hand if it may go",
            )
        if table is not None and self.mode == "error":
            raise ConfigError(
                f"The output {self.place} exists",
                do="Choose another --output, replace its rows with --mode overwrite, or add to "
                "them with --mode append",
            )
        if table is not None:
            self.check_writable(table)
            folder = folder or hadoop_url(table.location())
        if folder and self.mode != "overwrite":
            check_unfinished(storage, folder)

    def check_schema(self, spark: SparkSession, schema: StructType) -> None:
        super().check_schema(spark, schema)
        self.addition(spark, schema)

    def write(self, result: DataFrame) -> None:
        spark = result.sparkSession
        storage = Storage(spark)
        run = f"dptext-{uuid4().hex}"
        folder, files, partitions, commit = self.addition(spark, result.schema)
        run_folder = f"{files}/{run}"

        def write(place: str) -> None:
            # In partitions' names times are those of UTC, in which the accounts have them.
            writer = result.withColumns(partitions).write.partitionBy(*partitions)
            writer.options(timeZone="UTC", compression=self.compression).parquet(place)

        def publish(place: str) -> None:
            is_new = not storage.exists(folder)
            storage.make_folder(files)
            storage.rename(place, run_folder)
            try:
                commit(run, [*_written(spark, storage, run_folder, [*partitions])])
            except BaseException as error:
                # An answer that got lost may have been "done": then the files must stay.
                if not self.has(storage, run):
                    storage.delete(folder if is_new else run_folder)
                    raise
                if not isinstance(error, Exception):
                    raise

        write_whole(spark, folder, write, overwrite=self.mode == "overwrite", publish=publish)


def _written(
    spark: SparkSession, storage: Storage, folder: str, partitions: Sequence[str]
) -> Iterator[WrittenFile]:
    """Yield the files that have rows."""
    schema = StructType([StructField(name, StringType()) for name in partitions])
    df = spark.read.schema(schema).parquet(literal(folder))
    file = metadata(df)
    facts = [file["file_path"], file["file_size"], F.unix_millis(file["file_modification_time"])]
    root = f"{storage.qualified(folder)}/"
    files = df.groupBy(*facts, *map(quoted, partitions)).count()
    for url, size, modified, *values, rows in files.collect():
        path = unquote(file_url(url)).removeprefix(root)
        yield path, size, modified, rows, dict(zip(partitions, values, strict=True))


@contextmanager
def library_errors(what: str, raised: type[DptextError]) -> Iterator[None]:
    """Raise this package's errors for those of the libraries, and of the databases below them.

    A JobError comes from looking at files with rows: it quotes only errors that have no values of
    them.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise raised(what, got=condition(error)) from None
    except Exception as error:
        home = type(error).__module__.partition(".")[0]
        is_usual = isinstance(error, OSError | ValueError | TypeError | NotImplementedError)
        if isinstance(error, DptextError) or not (is_usual or home in _HOMES):
            raise
        is_harmless = isinstance(error, OSError) or type(error).__name__ in _HARMLESS
        if home == "sqlalchemy" or (issubclass(raised, JobError) and not is_harmless):
            text = type(error).__name__
        else:
            text = str(error).strip().partition("\n")[0].rstrip(".")
        raise raised(what, got=text) from None


def read_files(
    spark: SparkSession, schema: StructType, paths: Sequence[str], table: str
) -> DataFrame:
    """Read these Parquet files alone, by the names of their columns; what a file lacks is null."""
    if not paths:
        return spark.createDataFrame([], schema)
    for path in paths:
        if not path.isascii():
            Storage(spark).qualified(path)  # or refuse the name
            break
    # Takes no folder's name for a partition.
    reader = spark.read.option("recursiveFileLookup", "true")
    try:
        df = reader.schema(schema).parquet(*map(literal, paths))
        unread = len({*paths}) - len(df.inputFiles())
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            f"The files of the table {table} cannot be read", got=cause(error)
        ) from None
    if unread:
        raise InputError(
            f"Spark does not read all files of the table {table}",
            got=f"{unread} files that are left out",
            do="Rewrite the table: names of files must not begin with a dot or an underscore",
        )
    return df


def hadoop_url(url: str) -> str:
    """Write the URL of a file as Spark knows it."""
    if not url.startswith("s3://"):
        return url
    return f"s3a{url.removeprefix('s3')}"


def url_of(storage: LocalFiles, path: str) -> str:
    """Write a path as a full URL."""
    scheme, _, rest = storage.qualified(path).partition(":")
    return f"{scheme}:{quote(rest, safe='/:@')}"


def unreadable(title: str, place: str, faults: Sequence[str], rewrite: str) -> InputError:
    """Return the error of a table whose files alone do not say what its rows are."""
    return InputError(
        f"The {title} table {place} cannot be read",
        got="; ".join(faults),
        do=f"Read it by {title}'s own Spark package with --format table; or first copy it "
        f"(CREATE TABLE ... AS SELECT), or rewrite files with {rewrite}",
    )
