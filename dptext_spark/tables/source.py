"""The table that is read: its files and partitions, the rows that are wanted, and what names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import quiet
from dptext_spark.tables import nanoseconds, text_files
from dptext_spark.tables.partitions import PartitionNames, check_partitions
from dptext_spark.tables.storage import Storage

_SETTINGS: Final = {
    # The values of partition columns stay as they are written.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    nanoseconds.SETTING: "true",
    **text_files.SETTINGS,
    # Files that are damaged or gone are an error, whatever the cluster's settings are.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreInvalidPartitionPaths": "false",
    # What Parquet calls a timestamp, with and without a zone; not INT96, which tells neither.
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A table's name is not a path in disguise, as in parquet.`/folder`.
    "spark.sql.runSQLOnFiles": "false",
}


def own_session(spark: SparkSession) -> SparkSession:
    """Give a session with the settings that tables need, and all else as in ``spark``, which keeps its own.

    Spark reads settings when it looks at files and again when it plans a job, so they must last.
    """
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def _as_read(df: DataFrame) -> DataFrame:
    return df


class Reader(Protocol):
    """What reads a table again, as a stream of its files."""

    def load(self, reader: Any, path: str) -> DataFrame:
        """Give the files below ``path`` as a frame, by a reader or a reader of streams."""


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
        reader: What reads files that are added; None where files cannot be added.
    """

    place: str
    read: DataFrame
    prepare: Callable[[DataFrame], DataFrame] = field(default_factory=lambda: _as_read)
    partitions: tuple[str, ...] = ()
    root: str | None = None
    reader: Reader | None = None

    @classmethod
    def of_files(
        cls,
        storage: Storage,
        path: str,
        read: DataFrame,
        reader: Reader,
        prepare: Callable[[DataFrame], DataFrame],
        base: str | None = None,
    ) -> Source:
        """Look at the files of a frame that ``reader`` gave for a path.

        ``base`` is the folder below which folders' names are partitions, if it is not the path.

        Raises:
            InputError: Spark would read a part of them only, or misread folders' names for good.
        """
        _check_complete(read, path, reader)
        partitions = tuple(_analyzed(read).relation().partitionSchema().fieldNames())
        files = read.inputFiles()
        root = _root(storage, path, files)
        is_folder = root is not None and not storage.is_file(path)
        if partitions:
            paths = [_path(file) for file in files]
            bases = _bases(storage, base or path)
            check_partitions(paths, bases, partitions, path)
            names = PartitionNames.of(paths, bases, path)
            partitions, prepare = names.named(partitions), names.mend(prepare)
        return cls(
            place=path,
            read=read,
            prepare=prepare,
            partitions=partitions,
            root=root,
            reader=reader if is_folder else None,
        )

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
            raise unnamed_rows(self.place)
        metadata = self.read.metadataColumn("_metadata")  # unlike a name it cannot mean a column of the table
        path = F.regexp_replace(metadata["file_path"], self.root, "")
        return F.concat_ws("\n", metadata["row_index"].cast(StringType()), path)

    def stream(self) -> Source:
        """Give the same table as a stream of its files.

        Raises:
            ConfigError: It is no folder, to which files could be added.
        """
        if self.reader is None:
            raise ConfigError(
                "New files cannot be told apart under this --input", allowed="a folder", got=self.place
            )
        # By default Spark passes over files that are a week older than the newest one it saw.
        reader = self.read.sparkSession.readStream.schema(self.read.schema).option("maxFileAge", "36500d")
        return replace(self, read=self.reader.load(reader, self.place))


def unreadable(
    path: str, got: str, *, damaged: bool = False, title: str = "Parquet", do: str = ""
) -> InputError:
    """Make the error of an input that is no table of a format; ``got`` is Spark's condition."""
    what = f"is not {title}, or is damaged" if damaged else "cannot be read as a table"
    allowed = f"a {title} file, or a folder of {title} files"
    return InputError(f"The input {path} {what}", allowed=allowed, got=got, do=do)


def unnamed_rows(pattern: str) -> ConfigError:
    """Make the error of an input that is no folder, and of which no column names the rows."""
    return ConfigError(
        "Rows cannot be named by file and position under this --input",
        allowed="a file or a folder",
        got=pattern,
        do="Name the rows with --id, or give the folder",
    )


def _path(url: str) -> str:
    """Take scheme and host from a URL."""
    return re.sub("^[^/]*:(//[^/]*)?", "", url)


def _bases(storage: Storage, path: str) -> list[str]:
    """Give the folders that a path or pattern stands for; of a file, the one that it lies in."""
    places = storage.matches(path)
    folders = {place.rpartition("/")[0] if storage.is_file(place) else place for place in places}
    return [storage.url_path(folder) for folder in folders]


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


def _check_complete(df: DataFrame, path: str, reader: Reader) -> None:
    """Refuse a folder of which Spark would leave files out without a word."""
    spread = df.sparkSession.read.option("recursiveFileLookup", "true").schema(df.schema)
    everything = reader.load(spread, path)
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
    if _analyzed(filtered).containsPattern(_patterns(df).PLAN_EXPRESSION()):
        raise ConfigError(
            "The filter --where has a subquery",
            allowed="a condition on the row's own columns",
            do="Join the other table before the run",
        )
    if not is_settled(filtered):
        raise ConfigError(
            "The filter --where gives another answer each time",
            allowed="functions of the row's columns alone",
            got="chance, the clock, the user or the place of a row",
            do="Write dates and numbers out",
        )
    return filtered


def is_settled(df: DataFrame) -> bool:
    """Say whether a frame has the same rows at every evaluation, if the tables that it reads have."""
    plan = _analyzed(df)
    return bool(plan.deterministic() and not plan.containsPattern(_patterns(df).CURRENT_LIKE()))


def _patterns(df: DataFrame) -> Any:
    jvm: Any = df.sparkSession._jvm
    return jvm.org.apache.spark.sql.catalyst.trees.TreePattern


def _analyzed(df: DataFrame) -> Any:
    """The frame's plan, an object of the JVM."""
    plan: Any = df._jdf.queryExecution().analyzed()
    return plan
