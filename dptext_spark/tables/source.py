"""A table as it is read: its files and partitions, the filter of its rows, and what names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.session import change, is_connect
from dptext_spark.spark.versions import ARROW_BATCH, condition_of, metadata, settings
from dptext_spark.tables.storage import has_subquery, is_settled

Prepare: TypeAlias = Callable[[DataFrame], DataFrame]

NANOS_AS_LONG: Final = "spark.sql.legacy.parquet.nanosAsLong"
"""Without it Spark refuses all of a table with timestamps in nanoseconds, whatever is read."""
_SETTINGS: Final = {
    # The values of partition columns stay as they are written.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    NANOS_AS_LONG: "true",
    # Spark 4 knows seven encodings without the first, and fails where it decodes without the
    # second.
    "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.codingErrorAction": "true",
    # Files that are damaged or gone are an error, whatever the cluster's settings are.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreInvalidPartitionPaths": "false",
    # What Parquet calls a timestamp, with and without a zone; not INT96, which has neither.
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A table's name is not a path in disguise, as in parquet.`/folder`.
    "spark.sql.runSQLOnFiles": "false",
    # Numbers that become texts keep their digits, as in Spark 4 by default.
    "spark.sql.json.enableExactStringParsing": "true",
    # A sum or a cast that overflows is an error; else it is null, and a budget would take that for
    # nothing.
    "spark.sql.ansi.enabled": "true",
}


_DEFAULTS: Final = {
    # Rows that are read at once. Spark's 4096 of half a MB are more than its readers can hold.
    "spark.sql.parquet.columnarReaderBatchSize": "256",
    "spark.sql.orc.columnarReaderBatchSize": "256",
    # As Spark 4 takes dates before 1900, which 3.5 refuses unless it is told.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session with the settings that tables need, and all others as in ``spark``.

    Spark reads settings when it looks at files and again when it plans a job, so they must last.
    """
    if is_connect(spark):  # it has no second session, or one that hangs as the process ends (4.3)
        missing = {name: v for name, v in _DEFAULTS.items() if spark.conf.get(name, None) is None}
        change(spark, {**missing, **_SETTINGS})
        return spark
    session = spark.newSession()
    for name, value in {**ARROW_BATCH, **_DEFAULTS, **settings(spark), **_SETTINGS}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting for a moment."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table that is open.

    Attributes:
        place: Its path or name.
        read: All its rows, as they are read.
        prepare: Makes of what is read what it means; lazily.
        partitions: Columns that name its folders ``COLUMN=VALUE``, the outermost first; of a path
            they are strings, so that ``007`` stays ``007``.
        root: Regular expression of what stands before a file's path below the input; None where
            rows are not to be named by file and position: a pattern is no folder that files lie
            below.
        load: Reads its files, by a reader or a reader of streams; None where files cannot be added.
        list_files: Gives each file's path, modification time and length; no row is read.
        refused: Columns that files have and the table has not, and what to say where a run asks for
            one.
        in_both: Columns that the files have and the names of their folders too, with the files'
            types.
        recheck: Checks files that came after the table was opened.
    """

    place: str
    read: DataFrame
    prepare: Prepare = field(default_factory=lambda: lambda df: df)
    partitions: tuple[str, ...] = ()
    root: str | None = None
    load: Callable[[Any], DataFrame] | None = None
    list_files: Callable[[], DataFrame] | None = None
    refused: Mapping[str, InputError] = field(default_factory=dict)
    in_both: StructType = field(default_factory=StructType)
    recheck: Callable[[], None] = lambda: None

    @cached_property
    def df(self) -> DataFrame:
        """All rows."""
        return self.prepare(self.read)

    @property
    def position(self) -> Column:
        """Name each row by its position in its file and the file's path below the input."""
        if self.root is None:
            raise ConfigError(
                "Rows cannot be named by file and position under this --input",
                allowed="a file or a folder",
                got=self.place,
                do="Name the rows with --id, or give the folder",
            )
        lies = metadata(self.read)
        path = F.regexp_replace(lies["file_path"], self.root, "")
        return F.concat_ws("\n", lies["row_index"].cast("string"), path)

    def stream(self) -> TableSource:
        """Return the same table as a stream of its files."""
        if self.load is None:
            raise ConfigError(
                "Option --incremental cannot find new files under this --input",
                allowed="a folder",
                got=self.place,
            )
        # By default Spark passes over files that are a week older than the newest one it saw.
        reader = self.read.sparkSession.readStream.schema(self.read.schema).option(
            "maxFileAge", "36500d"
        )
        return replace(self, read=self.load(reader))


def where(df: DataFrame, sql: str) -> DataFrame:
    """Filter a table by an SQL condition, which Spark pushes down to its files and partitions.

    A value that a cast cannot read is null, as in SQL without ANSI mode, whose error would quote
    it. Messages do not quote the condition either.
    """
    try:
        with setting(df.sparkSession, "spark.sql.ansi.enabled", "false"):
            filtered = df.where(sql)
    except AnalysisException as error:
        raise ConfigError(
            "The filter --where cannot be understood",
            allowed=f"an SQL condition on the columns {', '.join(df.columns)}",
            got=condition_of(error) or type(error).__name__,
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


def check_met(filtered: DataFrame, unfiltered: DataFrame) -> None:
    """Refuse a filter that no row meets, unless the table has no rows at all."""
    if filtered.isEmpty() and not unfiltered.isEmpty():
        raise InputError(
            "No row of the input meets the filter --where",
            do="Compare it with values of the input: arithmetic on text, such as id % 6 where ids "
            "are T100000, is null. Text ids are split with crc32(id) % 6",
        )
