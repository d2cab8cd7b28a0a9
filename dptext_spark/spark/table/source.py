"""The table that is read: its files and partitions, the rows that are wanted, and what names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import condition, quiet
from dptext_spark.spark.table.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Source:
    """A Parquet table as it lies in its files.

    Attributes:
        df: All its rows.
        partitions: Columns that are named by folders ``COLUMN=VALUE``, the outermost first; strings, so
            that ``007`` stays ``007``.
        is_folder: Whether files may be added to it.
        root: Regular expression of what stands before a file's path below the input; None for a pattern,
            which is no folder that files lie below.
    """

    path: str
    df: DataFrame
    partitions: tuple[str, ...]
    is_folder: bool
    root: str | None

    @classmethod
    def open(cls, spark: SparkSession, storage: Storage, path: str) -> Source:
        """Look at a table's files; no row is read.

        Raises:
            InputError: There is no table, or Spark would read a part of it only.
        """
        try:
            with _setting(spark, "spark.sql.sources.partitionColumnTypeInference.enabled", "false"):
                df = spark.read.parquet(path)
            _check_complete(df, path)
        except (PySparkException, Py4JJavaError) as error:
            damaged = not isinstance(error, AnalysisException)
            raise unreadable(path, condition(error), damaged=damaged) from None
        partitions = tuple(_analyzed(df).relation().partitionSchema().fieldNames())
        root = _root(storage, path, df.inputFiles())
        is_folder = root is not None and not storage.is_file(path)
        return cls(path=path, df=df, partitions=partitions, is_folder=is_folder, root=root)

    @property
    def position(self) -> Column:
        """Name each row by its position in its file and the file's path below the input.

        Raises:
            ConfigError: The input is a pattern.
        """
        if self.root is None:
            raise unnamed_rows(self.path)
        metadata = self.df.metadataColumn("_metadata")  # unlike a name it cannot mean a column of the table
        path = F.regexp_replace(metadata["file_path"], self.root, "")
        return F.concat_ws("\n", metadata["row_index"].cast("string"), path)

    def stream(self, batch_files: int | None) -> Source:
        """Give the same table as a stream of its files, in batches of at most so many.

        Raises:
            ConfigError: It is no folder, to which files could be added.
        """
        if not self.is_folder:
            raise ConfigError(
                "New files cannot be told apart under this --input", allowed="a folder", got=self.path
            )
        # By default Spark passes over files that are a week older than the newest one it saw.
        reader = self.df.sparkSession.readStream.schema(self.df.schema).option("maxFileAge", "36500d")
        if batch_files is not None:
            reader = reader.option("maxFilesPerTrigger", batch_files)
        return replace(self, df=reader.parquet(self.path))


def unreadable(path: str, got: str, *, damaged: bool = False) -> InputError:
    """Make the error of an input that is no table; ``got`` is Spark's condition."""
    what = "is not Parquet, or is damaged" if damaged else "cannot be read as a table"
    allowed = "a Parquet file, or a folder of Parquet files"
    return InputError(f"The input {path} {what}", allowed=allowed, got=got)


def unnamed_rows(pattern: str) -> ConfigError:
    """Make the error of an input that is no folder, and of which no column names the rows."""
    return ConfigError(
        "Rows cannot be named by file and position under this --input",
        allowed="a file or a folder",
        got=pattern,
        do="Name the rows with --id, or give the folder",
    )


def _root(storage: Storage, path: str, files: Iterable[str]) -> str | None:
    folder = storage.url_path(path)
    if storage.is_file(path):
        folder = folder.rpartition("/")[0]
    root = rf"^[^/]*:(//[^/]*)?{re.escape(folder)}/"
    return root if all(re.match(root, file) for file in files) else None


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _check_complete(df: DataFrame, path: str) -> None:
    """Refuse a folder of which Spark would leave files out without a word."""
    everything = df.sparkSession.read.option("recursiveFileLookup", "true").schema(df.schema).parquet(path)
    if unread := set(everything.inputFiles()).difference(df.inputFiles()):
        raise InputError(
            f"The input {path} has files in subfolders that are not part of the table",
            allowed="files in the folder itself, or in subfolders named COLUMN=VALUE, not both",
            got=f"{len(unread)} more files",
            do="Give each folder to a run of its own, or name the subfolders so",
        )


def where(df: DataFrame, sql: str) -> DataFrame:
    """Filter a table by an SQL condition, which Spark pushes down to its files and partitions.

    A value that a cast cannot read is null, as in SQL without ANSI mode, whose error would quote it.
    Messages do not quote the condition either.

    Raises:
        ConfigError: It is not SQL, not on this table's columns alone, or not the same at every evaluation.
    """
    try:
        with quiet(), _setting(df.sparkSession, "spark.sql.ansi.enabled", "false"):
            filtered = df.where(sql)
    except AnalysisException as error:
        raise ConfigError(
            "The filter --where cannot be understood",
            allowed=f"an SQL condition on the columns {', '.join(df.columns)}",
            got=str(error.getCondition()),
            do="Put names with odd letters into `backticks` and strings into 'quotes'",
        ) from None
    plan = _analyzed(filtered)
    jvm: Any = df.sparkSession._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.containsPattern(patterns.PLAN_EXPRESSION()):
        raise ConfigError(
            "The filter --where has a subquery",
            allowed="a condition on the row's own columns",
            do="Join the other table before the run",
        )
    if not plan.deterministic() or plan.containsPattern(patterns.CURRENT_LIKE()):
        raise ConfigError(
            "The filter --where gives another answer each time",
            allowed="functions of the row's columns alone",
            got="chance, the clock, the user or the place of a row",
            do="Write dates and numbers out",
        )
    return filtered


def _analyzed(df: DataFrame) -> Any:
    """The frame's plan, an object of the JVM."""
    plan: Any = df._jdf.queryExecution().analyzed()
    return plan
