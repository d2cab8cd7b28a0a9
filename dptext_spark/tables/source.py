"""The table that is read: its files and partitions, the rows that are wanted, and what names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import quiet
from dptext_spark.tables import nanoseconds, text_files
from dptext_spark.tables.partitions import corrected, partition_names
from dptext_spark.tables.storage import Storage, has_subquery, is_settled, partition_columns

Prepare: TypeAlias = Callable[[DataFrame], DataFrame]
Load: TypeAlias = Callable[[Any, str], DataFrame]
"""Gives the files below a path as a frame, by a reader or a reader of streams."""

_SETTINGS: Final = {
    # The values of partition columns stay as they are written.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    nanoseconds.SETTING: "true",
    **text_files.SETTINGS,
    # Files that are damaged or gone are an error, whatever the cluster's settings are.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreInvalidPartitionPaths": "false",
    # What Parquet calls a timestamp, with and without a zone; not INT96, which has neither.
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A table's name is not a path in disguise, as in parquet.`/folder`.
    "spark.sql.runSQLOnFiles": "false",
}


def own_session(spark: SparkSession) -> SparkSession:
    """Give a session with the settings that tables need, and all others as in ``spark``, which keeps its own.

    Spark reads settings when it looks at files and again when it plans a job, so they must last.
    """
    session = spark.newSession()
    for name, value in {**spark.conf.getAll, **_SETTINGS}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table that is open.

    Attributes:
        place: Its path or name.
        read: All its rows, as they are read.
        prepare: Makes of what is read what it means; lazily.
        partitions: Columns that name its folders ``COLUMN=VALUE``, the outermost first; of a path they are
            strings, so that ``007`` stays ``007``.
        root: Regular expression of what stands before a file's path below the input; None where rows are
            not to be named by file and position: a pattern is no folder that files lie below.
        load: Reads files that are added; None where files cannot be added.
    """

    place: str
    read: DataFrame
    prepare: Prepare = field(default_factory=lambda: lambda df: df)
    partitions: tuple[str, ...] = ()
    root: str | None = None
    load: Load | None = None

    @classmethod
    def of_files(
        cls,
        storage: Storage,
        path: str,
        read: DataFrame,
        load: Load,
        prepare: Prepare,
        base: str | None = None,
    ) -> Source:
        """Look at the files of a frame that ``load`` gave for a path.

        ``base`` is the folder below which folders' names are partitions, if not the path.

        Raises:
            InputError: Spark would read a part of them only, or misread folders' names for good.
        """
        files = read.inputFiles()
        spread = read.sparkSession.read.option("recursiveFileLookup", "true").schema(read.schema)
        if unread := {*load(spread, path).inputFiles()}.difference(files):
            raise InputError(
                f"The input {path} has files in subfolders that are not part of the table",
                allowed="files in the folder itself, or in subfolders named COLUMN=VALUE, not both",
                got=f"{len(unread)} more files",
                do="Give each folder to a run of its own, or name the subfolders so",
            )
        is_file, partitions = storage.is_file(path), partition_columns(read)
        if partitions:
            around = {
                p.rpartition("/")[0] if storage.is_file(p) else p for p in storage.matches(base or path)
            }
            bases = [storage.url_path(folder) for folder in around]
            paths = [re.sub("^[^/]*:(//[^/]*)?", "", file) for file in files]
            columns, values = partition_names(paths, bases, partitions, path)
            partitions = tuple(columns.get(name, name) for name in partitions)
            prepare = corrected(prepare, columns, values)
        folder = storage.url_path(path)
        folder = folder.rpartition("/")[0] if is_file else folder
        pattern = rf"^[^/]*:(//[^/]*)?{re.escape(folder)}/"
        root = pattern if all(re.match(pattern, file) for file in files) else None
        added = None if root is None or is_file else load
        return cls(place=path, read=read, prepare=prepare, partitions=partitions, root=root, load=added)

    @cached_property
    def df(self) -> DataFrame:
        """All rows."""
        return self.prepare(self.read)

    @property
    def position(self) -> Column:
        """Name each row by its position in its file and the file's path below the input.

        Raises:
            ConfigError: The input is a pattern.
        """
        if self.root is None:
            raise ConfigError(
                "Rows cannot be named by file and position under this --input",
                allowed="a file or a folder",
                got=self.place,
                do="Name the rows with --id, or give the folder",
            )
        metadata = self.read.metadataColumn("_metadata")  # unlike a name it cannot mean a column of the table
        path = F.regexp_replace(metadata["file_path"], self.root, "")
        return F.concat_ws("\n", metadata["row_index"].cast("string"), path)

    def stream(self) -> Source:
        """Give the same table as a stream of its files.

        Raises:
            ConfigError: It is no folder, to which files could be added.
        """
        if self.load is None:
            raise ConfigError(
                "Option --incremental cannot find new files under this --input",
                allowed="a folder",
                got=self.place,
            )
        # By default Spark passes over files that are a week older than the newest one it saw.
        reader = self.read.sparkSession.readStream.schema(self.read.schema).option("maxFileAge", "36500d")
        return replace(self, read=self.load(reader, self.place))


def where(df: DataFrame, sql: str) -> DataFrame:
    """Filter a table by an SQL condition, which Spark pushes down to its files and partitions.

    A value that a cast cannot read is null, as in SQL without ANSI mode, whose error would quote it.
    Messages do not quote the condition either.

    Raises:
        ConfigError: It is not SQL, not on this table's columns alone, or not the same at every evaluation.
    """
    try:
        with quiet(), nanoseconds.setting(df.sparkSession, "spark.sql.ansi.enabled", "false"):
            filtered = df.where(sql)
    except AnalysisException as error:
        raise ConfigError(
            "The filter --where cannot be understood",
            allowed=f"an SQL condition on the columns {', '.join(df.columns)}",
            got=str(error.getCondition()),
            do="Put names with special characters into `backticks` and strings into 'quotes'",
        ) from None
    if has_subquery(filtered):
        raise ConfigError(
            "The filter --where has a subquery",
            allowed="a condition on the row's own columns",
            do="Join the other table before the run",
        )
    if not is_settled(filtered):
        raise ConfigError(
            "The filter --where can give another answer each time",
            allowed="functions of the row's columns alone",
            got="chance, the clock, the user or the place of a row",
            do="Write dates and numbers out",
        )
    return filtered
