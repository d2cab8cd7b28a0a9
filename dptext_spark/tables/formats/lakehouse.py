"""Tables that keep an account of their files: what Delta and Iceberg have in common.

Their own Python libraries read and write the account, so Spark needs no package for them: it reads the live
files as Parquet, and writes Parquet files beside the table, which become part of it in one commit.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, Final, Protocol
from urllib.parse import quote, unquote
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dptext_spark.errors import ConfigError, DptextError, InputError, JobError
from dptext_spark.spark.failures import condition
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import PARQUET_CODECS, Format, Output
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.storage import Places, Storage, literal

LOCAL_URL: Final = ("^file:/+", "file:/")
"""Spark writes the URL of a local file in two ways: a pattern, and what stands for it in one way."""


class LakehouseFormat(Format):
    """A format whose account of files is kept by a Python library.

    Attributes:
        title: The name as people write it.
        library: The library's name, which is that of its module too.
        spark_package: What serves the format inside Spark.
    """

    can_append = True
    codecs = PARQUET_CODECS

    title: ClassVar[str]
    library: ClassVar[str]
    spark_package: ClassVar[str]

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        if not has_id:
            raise ConfigError(
                f"Rows of {self.title} tables cannot be named by file and position: their files are "
                "rewritten whenever rows change or files are merged",
                do="Name the rows with --id",
            )
        self._check_grows(grows)
        self.module()

    def check_output(self, output: Output, *, grows: bool) -> None:
        self._check_grows(grows)
        super().check_output(output, grows=grows)
        self.module()

    def check_known(self, storage: Places, output: Output, place: str, *, exists: bool) -> None:
        """Refuse to replace a table, unless told to.

        Raises:
            ConfigError: The table exists, or another run is writing it to this place.
        """
        if exists and not (output.overwrite or output.append):
            raise ConfigError(
                f"The output {output.place} exists",
                do="Choose another --output, replace its rows with --mode overwrite, or add to them with "
                "--mode append",
            )
        if not output.overwrite:
            check_unfinished(storage, place)

    def _check_grows(self, grows: bool) -> None:
        if grows:
            raise ConfigError(
                f"Option --incremental does not go with {self.title} tables: their files are rewritten, so a "
                "new file may hold old rows",
                do="Select the new rows with --where and add them with --mode append; under the same "
                "--key-file a row that is released again gets the same words",
            )

    @classmethod
    def module(cls, name: str = "") -> ModuleType:
        """Import the library, or a module of it.

        Raises:
            ConfigError: It is not installed.
        """
        try:
            return importlib.import_module(f"{cls.library}{name}")
        except ImportError:
            raise ConfigError(
                f"Tables of format {cls.name} need the Python package {cls.library}",
                do=f"Install it with: pip install 'dptext-spark[tables]'; or give Spark {cls.spark_package} "
                "(spark-submit --packages), where there is one for its version, and name the table with "
                "--format table",
            ) from None


def told(error: Exception, raised: type[DptextError], harmless: type[Exception]) -> str:
    """Say what a library found, or where that may quote values of rows only what kind of error it is.

    Args:
        error: The library's.
        raised: What it becomes; a JobError where files with rows are looked at.
        harmless: The library's error whose text never quotes any.
    """
    if issubclass(raised, JobError) and not isinstance(error, OSError | harmless):
        return type(error).__name__
    return str(error).strip().partition("\n")[0].rstrip(".")


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A Parquet file that Spark wrote.

    Attributes:
        path: Below the folder that was written.
        size: In bytes.
        rows: Their number.
        modified: When, in milliseconds.
        partition: Values of the partition columns as folders name them, by column.
    """

    path: str
    size: int
    rows: int
    modified: int
    partition: dict[str, str | None]


def read_files(spark: SparkSession, schema: StructType, paths: Sequence[str], table: str) -> DataFrame:
    """Read Parquet files and nothing else, by the names of their columns; what a file lacks is null.

    Raises:
        InputError: Files are gone, or Spark passes over some.
    """
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.option("recursiveFileLookup", "true")  # takes no folder's name for a partition
    try:
        df = reader.schema(schema).parquet(*map(literal, paths))
        found = len(df.inputFiles())
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(f"The files of the table {table} cannot be read", got=condition(error)) from None
    if found != len({*paths}):
        raise InputError(
            f"Spark passes over files of the table {table}",
            got=f"{len({*paths}) - found} files",
            do="Rewrite the table: names of files must not begin with a dot or an underscore",
        )
    return df


def url_of(storage: Places, path: str) -> str:
    """Write a path as a full URL."""
    scheme, _, rest = storage.qualified(path).partition(":")
    return f"{scheme}:{quote(rest, safe='/:@')}"


def file_url(url: str) -> str:
    """Write the URL of a file in one way, as :data:`LOCAL_URL` says."""
    return re.sub(*LOCAL_URL, url)


def check_fits(schema: StructType, there: StructType, table: str) -> None:
    """Check that rows can be added to a table that exists.

    Raises:
        ConfigError: It has other columns or types, or columns that must not be null.
    """
    ours, theirs = ({f.name: f.dataType.simpleString() for f in each} for each in (schema, there))
    faults = [f"{name} is in the output only" for name in ours if name not in theirs]
    faults += [f"{name} is in the table only" for name in theirs if name not in ours]
    faults += [
        f"{name} is {kind} in the output and {theirs[name]} in the table"
        for name, kind in ours.items()
        if kind != theirs.get(name, kind)
    ]
    faults += [f"{field.name} is NOT NULL in the table" for field in there if not field.nullable]
    if faults:
        raise ConfigError(
            f"The output's columns do not fit {table}",
            allowed="columns of the same names and types, all of which may be null",
            got="; ".join(faults),
            do="Choose other columns with --keep, or another --output",
        )


class Account(Protocol):
    """The account of a table's files, which is about to be given more of them."""

    def commit(self, run: str, folder: str, files: Sequence[WrittenFile]) -> None:
        """Make the files in a folder part of the table, in one step that bears the run's name."""

    def has(self, run: str) -> bool:
        """Say whether the table has the commit of this run."""


def write_and_commit(
    storage: Storage,
    result: DataFrame,
    account: Account,
    *,
    output: Output,
    compression: str,
    table: str,
    folder: str,
    partitions: Sequence[str],
) -> None:
    """Have Spark write Parquet files under a hidden name, move them into the table's folder and commit them.

    Args:
        storage, result, output: As for :meth:`Format.write`.
        account: What the files are to be part of.
        compression: Their codec.
        table: The table's own folder.
        folder: Where its files go.
        partitions: Columns that name folders.
    """
    spark = result.sparkSession
    run = f"dptext-{uuid4().hex}"

    def write(place: str) -> None:
        # In partitions' names times are those of UTC, in which the accounts have them.
        options = {"timeZone": "UTC", "compression": compression}
        result.write.partitionBy(*partitions).options(**options).parquet(place)

    def publish(place: str) -> None:
        goal = f"{folder}/{run}"
        storage.make_folder(folder)
        storage.rename(place, goal)
        try:
            account.commit(run, goal, [*_written(spark, storage, goal, partitions)])
        except BaseException as error:
            # An answer that got lost may have been "done": then the files must stay.
            if not account.has(run):
                storage.delete(goal)
                raise
            if not isinstance(error, Exception):
                raise

    application = str(spark.sparkContext.applicationId)
    write_whole(storage, table, write, run=application, overwrite=output.overwrite, publish=publish)


def _written(
    spark: SparkSession, storage: Storage, folder: str, partitions: Sequence[str]
) -> Iterator[WrittenFile]:
    """List the files that have rows."""
    schema = StructType([StructField(name, StringType()) for name in partitions])
    df = spark.read.schema(schema).parquet(literal(folder))
    file = df.metadataColumn("_metadata")
    facts = [file["file_path"], file["file_size"], F.unix_millis(file["file_modification_time"])]
    root = f"{storage.qualified(folder)}/"
    for url, size, modified, *values, rows in df.groupBy(*facts, *map(quoted, partitions)).count().collect():
        path = unquote(file_url(url)).removeprefix(root)
        partition = dict(zip(partitions, values, strict=True))
        yield WrittenFile(path=path, size=size, rows=rows, modified=modified, partition=partition)
