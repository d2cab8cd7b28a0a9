"""What folders say of the files in them: partitions by names, and accounts of which files count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import path_of_url
from dptext_spark.spark.versions import metadata
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.source import Prepare
from dptext_spark.tables.storage import LOCAL_URL, LocalFiles, file_url, spark_log

_ACCOUNTS: Final = (
    ("a Delta table", "delta", "_delta_log"),
    ("an Iceberg table", "iceberg", "metadata/*.metadata.json"),
    ("a Hudi table", "table, and its name in a catalog of Spark's", ".hoodie"),
)
_SINK: Final = "_spark_metadata"
IGNORE_SINK: Final = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# What other programs write for a letter outside ASCII, in the URL of a file.
_ESCAPED: Final = re.compile("%25[89A-Fa-f]")
_URL: Final = "url"
FILES_ALONE: Final = (
    "take the files' values, and none of the folders', with --read-option recursiveFileLookup=true"
)

Folders = Mapping[str, Sequence[str]]
"""By a file's URL the names ``COLUMN=VALUE`` of its partition folders as they are written."""


def partition_folders(
    files: Sequence[str], bases: Sequence[str], partitions: Sequence[str], place: str
) -> Folders:
    """Find the partition folders of files that lie below one of several bases.

    Raises:
        InputError: A file lies in none of the partitions.
    """
    columns = [*map(str.lower, partitions)]
    folders = dict[str, Sequence[str]]()
    outside = list[str]()
    for file in files:
        path = re.sub("^[^/]*:(//[^/]*)?", "", file)
        below = unquote(min((path.removeprefix(f"{base}/") for base in bases), key=len))
        named = [name for name in below.split("/")[:-1] if "=" in name]
        inner = named[-len(columns) :]
        if [_as_spark_reads(name.partition("=")[0]).lower() for name in inner] == columns:
            folders[file] = inner
        else:
            outside.append(below)
    if outside:
        raise InputError(
            f"The input {place} has files outside its partitions, which Spark does not read",
            allowed=f"files in folders {'/'.join(f'{name}=VALUE' for name in partitions)}",
            got=f"{len(outside)} files, for example {min(outside)}",
            do="Move them into such folders, or give them to a run of their own",
        )
    return folders


def decoded(folders: Folders, partitions: Sequence[str], place: str) -> dict[str, str]:
    """Return what the names of partition columns mean, where Spark takes escaped bytes for letters.

    It is empty where no folder's name has such bytes.

    Raises:
        InputError: Escapes in a folder's name are not UTF-8.
    """
    if not any(map(_ESCAPED.search, folders)):
        return {}
    for name in sorted(set[str]().union(*folders.values())):
        for part in name.split("=", 1):
            if _meaning(part) != _utf8(_as_spark_reads(part)):
                raise InputError(
                    f"The input {place} has a partition folder whose name cannot be read",
                    allowed="percent-encoded UTF-8, next to ASCII letters alone",
                    got=name,
                    do="Rename the folder",
                )
    return dict(zip(partitions, map(_utf8, partitions), strict=True))


def _as_spark_reads(name: str) -> str:
    """Read escapes as Spark does, each as a letter."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda digits: chr(int(digits[1], 16)), name)


def _meaning(name: str) -> str | None:
    """Read escapes as UTF-8; None where they are not."""
    try:
        return unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        return None


def _utf8(name: str) -> str:
    """Read letters that are bytes as UTF-8, where they are."""
    try:
        return name.encode("latin-1").decode()
    except UnicodeError:
        return name


def in_utf8(prepare: Prepare, names: Mapping[str, str]) -> Prepare:
    """Read the names and values of partitions as :func:`_utf8` does, where ``names`` has them."""
    return partial(_in_utf8, prepare, names)


def _in_utf8(prepare: Prepare, names: Mapping[str, str], df: DataFrame) -> DataFrame:
    def column(name: str) -> Column:
        if name not in names:
            return quoted(name)
        value = quoted(name)
        as_bytes = F.encode(value, "ISO-8859-1")
        meaning = F.decode(as_bytes, "UTF-8")
        has_bytes = F.decode(as_bytes, "ISO-8859-1") == value
        is_utf8 = F.encode(meaning, "UTF-8") == as_bytes
        return F.when(has_bytes & is_utf8, meaning).otherwise(value).alias(names[name])

    prepared = prepare(df)
    return prepared.select(*map(column, prepared.columns))


def files_without_values(
    flat: DataFrame, folders: Folders, place: str
) -> Iterator[tuple[str, str]]:
    """Compare columns of files, which ``flat`` has, with their values in names of folders.

    Yields:
        A column, and the URL of a file that has no value of it where its folder has one: the file
        may lack the column, or have nulls.

    Raises:
        InputError: A file has another value than its folder.
    """
    for field in flat.schema:
        if not isinstance(field.dataType, AtomicType):
            raise differing(field.name, min(folders), place)
        for row in _compared(flat, field, folders).collect():
            lacks_values = row["folder"] is not None and row["values"] < row["rows"]
            if not row["same"] or (lacks_values and row["values"]):
                raise differing(field.name, row[_URL], place)
            if lacks_values:
                yield field.name, row[_URL]


def _compared(flat: DataFrame, field: StructField, folders: Folders) -> DataFrame:
    """Count, by file, rows and values of a column, and compare the values with the folder's."""
    rows = list[tuple[str, str | None]]()
    for file, names in folders.items():
        value = None
        for name in names:
            column, _, text = name.partition("=")
            if _as_spark_reads(column).lower() == field.name.lower() and text != _NULL:
                value = _meaning(text)
        rows.append((file_url(file), value))
    schema = StructType([StructField(_URL, StringType()), StructField("folder", StringType())])
    folder_values = flat.sparkSession.createDataFrame(rows, schema)
    url = F.regexp_replace(metadata(flat)["file_path"], *LOCAL_URL)
    values = flat.select(url.alias(_URL), quoted(field.name).alias("value"))
    converted = F.expr(f"try_cast(folder AS {field.dataType.simpleString()})")
    is_same = F.col("value").isNull() | F.coalesce(F.col("value") == converted, F.lit(False))
    counts = (F.count(F.lit(1)).alias("rows"), F.count("value").alias("values"))
    joined = values.join(F.broadcast(folder_values), _URL)
    return joined.groupBy(_URL, "folder").agg(F.every(is_same).alias("same"), *counts)


def differing(column: str, file: str, place: str) -> InputError:
    """Return the error of a column that a file and its folder's name do not give the same value."""
    return InputError(
        f"Column {column} is in the files of the input {place} and in the names of its folders, "
        "with different values",
        allowed="the folder's value in each row of its files",
        got=f"another value in {path_of_url(file)}",
        do=f"Rename the column in the files or in the folders; or {FILES_ALONE}",
    )


def check_accounts(storage: LocalFiles, what: str, paths: Iterable[str]) -> None:
    """Refuse paths at or inside a table whose own account says which of its files count.

    Such a folder has files whose rows were deleted or replaced.
    """
    for path, folder in _around(storage, paths):
        for title, name, mark in _ACCOUNTS:
            if _has(storage, folder, mark):
                option = "--format" if what == "input" else "--output-format"
                raise ConfigError(
                    f"The {what} {path} is {title}, or lies in one: its files by themselves are no "
                    "table, as rows that were deleted or replaced are still in them",
                    got=f"{mark.partition('/')[0]} in {folder}",
                    do=f"Give {option} {name}",
                )
        if what == "output" and _has(storage, folder, _SINK):
            raise ConfigError(
                f"The output {path} is a table of a streaming job, or lies in one: Spark would not "
                "read the files, which the job's log does not name",
                got=f"{_SINK} in {folder}",
                do="Choose another --output",
            )


def check_logged(
    storage: LocalFiles, place: str, paths: Iterable[str], files: Iterable[str]
) -> None:
    """Refuse files in or below the folder of a streaming job whose log does not name them.

    Spark passes over them in the folder itself, and reads them in a folder below.
    """
    for _, folder in _around(storage, paths):
        if not _has(storage, folder, _SINK):
            continue
        entries = spark_log(storage, f"{folder}/{_SINK}")
        logged = {_plain(entry["path"]) for entry in entries if entry.get("action", "add") == "add"}
        unlogged = sorted(file for file in files if _plain(file) not in logged)
        if unlogged:
            raise InputError(
                f"The input {place} is a table of a streaming job, or lies in one, whose log does "
                "not name all files",
                got=f"{len(unlogged)} files that {folder}/{_SINK} does not name, for example "
                f"{path_of_url(unlogged[0])}",
                do="If the job is at work, run again when it has ended; if it left these files "
                "behind, remove them; if they are part of the table, give --spark-conf "
                f"{IGNORE_SINK}=true",
            )


def _plain(url: str) -> str:
    return file_url(unquote(url))


def _has(storage: LocalFiles, folder: str, mark: str) -> bool:
    try:
        return bool(storage.below(folder, mark))
    except (PySparkException, Py4JJavaError):
        # A folder around it that may not be listed; what lies in the path itself is read next.
        return False


def _around(storage: LocalFiles, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each folder once that is one of the paths, or lies around it, and that path."""
    folders = set[str]()
    for path in paths:
        scheme, _, rest = storage.qualified(path).partition(":")
        place = PurePosixPath(rest)
        for around in (place, *place.parents):
            folder = f"{scheme}:{around}".rstrip("/")
            if str(around) == "//" or folder in folders:  # nothing lies above a host
                break
            folders.add(folder)
            yield path, folder
