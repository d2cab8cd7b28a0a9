"""The table that is read: its files and partitions, the rows that are wanted, and what names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import plain_path
from dptext_spark.spark.session import change, is_connect
from dptext_spark.spark.versions import ARROW_BATCH, condition_of, metadata, settings
from dptext_spark.tables import parquet_types, text_files
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.storage import Storage, has_subquery, is_settled, partition_columns

Prepare: TypeAlias = Callable[[DataFrame], DataFrame]
Load: TypeAlias = Callable[[Any, str], DataFrame]
"""Gives the files below a path as a frame, by a reader or a reader of streams."""

_SETTINGS: Final = {
    # The values of partition columns stay as they are written.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    parquet_types.SETTING: "true",
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
    # A sum or a cast that overflows is an error; else it is null, and a budget would take that for nothing.
    "spark.sql.ansi.enabled": "true",
}


# As Spark 4 takes dates before 1900, which 3.5 refuses unless it is told.
_DEFAULTS: Final = {
    f"spark.sql.{what}RebaseModeIn{way}": "CORRECTED"
    for what in ("parquet.datetime", "parquet.int96", "avro.datetime")
    for way in ("Read", "Write")
}


def own_session(spark: SparkSession) -> SparkSession:
    """Give a session with the settings that tables need, and all others as in ``spark``, which keeps its own.

    Spark reads settings when it looks at files and again when it plans a job, so they must last.
    """
    if is_connect(spark):  # it has no second session, or one that hangs as the process ends (4.3)
        change(spark, {**_DEFAULTS, **_SETTINGS})
        return spark
    session = spark.newSession()
    for name, value in {**ARROW_BATCH, **_DEFAULTS, **settings(spark), **_SETTINGS}.items():
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
        refused: Columns that files have and the table has not, and what to say where a run asks for one.
    """

    place: str
    read: DataFrame
    prepare: Prepare = field(default_factory=lambda: lambda df: df)
    partitions: tuple[str, ...] = ()
    root: str | None = None
    load: Load | None = None
    refused: Mapping[str, InputError] = field(default_factory=dict)

    @classmethod
    def of_files(
        cls, storage: Storage, path: str, read: DataFrame, load: Load, prepare: Prepare, base: str
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
                got=f"{len(unread)} more files, for example {plain_path(min(unread))}",
                do="Give each folder to a run of its own, name the subfolders so, or read all files with "
                "--read-option recursiveFileLookup=true",
            )
        partitions = partition_columns(read)
        if partitions:
            bases = {storage.folder(place)[0] for place in storage.matches(base or path)}
            paths = [re.sub("^[^/]*:(//[^/]*)?", "", file) for file in files]
            columns, values = _folder_names(paths, bases, partitions, path)
            partitions = tuple(columns.get(name, name) for name in partitions)
            prepare = _corrected(prepare, columns, values)
        folder, is_file = storage.folder(path)
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

    def stream(self) -> Source:
        """Give the same table as a stream of its files."""
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
    """
    try:
        with parquet_types.setting(df.sparkSession, "spark.sql.ansi.enabled", "false"):
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


# Folders COLUMN=VALUE. Other programs write percent-encoded UTF-8 into such names; Spark takes each byte of
# it for a letter.

_Names: TypeAlias = dict[str, str]
"""What names mean, by what Spark reads."""


def _folder_names(
    files: Sequence[str], bases: Collection[str], partitions: Sequence[str], place: str
) -> tuple[_Names, dict[str, _Names]]:
    """Read the names of the folders in which files lie, below the ``bases``, none of which is a partition.

    Returns:
        The names of columns, and for each column as Spark names it those of its values.
    """
    columns, values, outside = _Names(), dict[str, _Names](), list[str]()
    wanted = [name.lower() for name in partitions]
    for folder in {file.rpartition("/")[0]: None for file in sorted(files)}:
        parts = _parts(folder, bases)
        if [_as_spark(column).lower() for column, _ in parts] != wanted:
            outside.append(folder)
            continue
        for column, value in parts:
            for known, name in ((columns, column), (values.setdefault(_as_spark(column), {}), value)):
                try:
                    meant = _as_utf8(name)
                except UnicodeDecodeError:
                    raise InputError(
                        f"The input {place} has folders whose percent-encoded names are not UTF-8",
                        got=f"{column}={value}",
                        do="Rename them",
                    ) from None
                if (other := known.setdefault(_as_spark(name), meant)) != meant:
                    raise InputError(
                        f"The input {place} has folders of different names that Spark reads as one",
                        got=" and ".join(sorted(f"{_as_utf8(column)}={each}" for each in (other, meant))),
                        do="Rename one of them, without percent signs",
                    )
    if outside:
        missed = sorted(file for file in files if file.rpartition("/")[0] in outside)
        above = max((len(base) + 1 for base in bases if missed[0].startswith(f"{base}/")), default=0)
        raise InputError(
            f"The input {place} has files outside its partitions, which Spark does not read",
            allowed=f"files in folders {'/'.join(f'{name}=VALUE' for name in partitions)}",
            got=f"{len(missed)} files, for example {unquote(missed[0][above:])}",
            do="Move them into such folders, or give them to a run of their own",
        )
    return columns, values


def _parts(folder: str, bases: Collection[str]) -> list[tuple[str, str]]:
    """Take the columns and values out of a folder's URL, from the inside out, as Spark does."""
    parts: list[tuple[str, str]] = []
    while folder not in bases:
        folder, slash, name = folder.rpartition("/")
        column, equals, value = unquote(name).partition("=")
        if equals:
            parts.insert(0, (column, value))
        if not slash or (parts and not equals):
            break
    return parts


def _as_spark(name: str) -> str:
    """Undo percent-encoding as Spark does, a letter for each byte."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda escape: chr(int(escape[1], 16)), name)


def _as_utf8(name: str) -> str:
    def decoded(escapes: re.Match[str]) -> str:
        return bytes.fromhex(escapes[0].replace("%", "")).decode()

    return re.sub("(%[0-9A-Fa-f]{2})+", decoded, name)


def _corrected(prepare: Prepare, columns: _Names, values: dict[str, _Names]) -> Prepare:
    """Give ``prepare`` with the right names and values, and as it is where none are misread."""
    names = {read: meant for read, meant in columns.items() if read != meant}
    wrong = {name: {r: meant for r, meant in each.items() if r != meant} for name, each in values.items()}
    if not names and not any(wrong.values()):
        return prepare

    def column(name: str) -> Column:
        if not wrong.get(name):
            return quoted(name)
        meant = F.create_map(*[F.lit(text) for pair in wrong[name].items() for text in pair])
        return F.coalesce(meant[quoted(name)], quoted(name))

    return lambda df: prepare(df).select(*[column(n).alias(names.get(n, n)) for n in df.columns])
