"""Files in a folder, by Spark's own readers and writers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import ConfigError, InputError, nearest
from dptext_spark.spark.failures import file_fault, plain_path
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.source import Prepare, Source
from dptext_spark.tables.storage import LocalFiles, Storage, cause, partition_columns

# What all readers of files take; not what would pass over a stream's files, or remove them.
_READ: Final = """
    basePath ignoreCorruptFiles ignoreMissingFiles modifiedAfter modifiedBefore pathGlobFilter
    recursiveFileLookup
"""
# What a whole table has in its folder: Spark's own sign, or ours where Spark was told to leave none.
_SUCCESS: Final = "_SUCCESS"
_WHOLE: Final = "_dptext_spark"
# Spark would take the columns of one file, and read others' values as that file's types without a word.
MERGED: Final = {"mergeSchema": "true"}
_ACCOUNTS: Final = (
    ("a Delta table", "delta", "_delta_log"),
    ("an Iceberg table", "iceberg", "metadata/*.metadata.json"),
    ("a Hudi table", "table, and its name in a catalog of Spark's", ".hoodie"),
)


class FileFormat(Format):
    """Files in a folder, which Spark lists, reads and writes.

    Attributes:
        title: The name as people write it.
        known, read_alone: Names of Spark's options for this format, to read or to write; to read alone.
        read_defaults, write_defaults: Options of Spark's reader and writer, unless others are given.
        read_always: Options of its reader, whatever is given.
    """

    can_grow = True
    title: ClassVar[str]
    known: ClassVar[str] = ""
    read_alone: ClassVar[str] = ""
    read_defaults: ClassVar[Mapping[str, str]] = {}
    read_always: ClassVar[Mapping[str, str]] = {}
    write_defaults: ClassVar[Mapping[str, str]] = {}

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        batches = "maxFilesPerTrigger" if grows else ""
        self._check_names("--read-option", f"{_READ} {self.read_alone} {batches}")

    def check_output(self, *, grows: bool) -> None:
        super().check_output(grows=grows)
        self._check_names("--write-option", "codec compression maxRecordsPerFile partitionOverwriteMode")

    def _check_names(self, option: str, others: str) -> None:
        """Refuse options that Spark would pass over; those with a point are a library's own."""
        known = {name.lower(): name for name in f"{self.known} {others}".split()}
        for name in self.options:
            if "." not in name and name.lower() not in known:
                raise ConfigError(
                    f"Option {option} has a name that format {self.name} does not take",
                    allowed=", ".join(sorted(known.values())),
                    got=name,
                    do=nearest([name], known.values()),
                )

    def check_files(self, storage: LocalFiles) -> None:
        """Refuse an input whose files belong to a table of another format."""
        for path in storage.matches(self.place) or [self.place]:
            _refuse_accounted(storage, "input", path)

    def open(self, spark: SparkSession) -> Source:
        storage = Storage(spark)
        self.check_files(storage)
        try:
            return self._whole(storage, self.source(spark))
        except (PySparkException, Py4JJavaError) as error:
            if fault := file_fault(error):
                raise fault from None
            raise self.unreadable(cause(error)) from None

    def unreadable(self, got: str) -> InputError:
        """Make the error of an input that is no table of this format."""
        allowed = f"a file of {self.title}, or a folder of such files"
        return InputError(f"The input {self.place} cannot be read as a table", allowed=allowed, got=got)

    def source(self, spark: SparkSession) -> Source:
        """Give the table as it is read, without what the names of its files say."""
        return Source(place=self.place, read=self.load(spark.read))

    def load(self, reader: Any) -> DataFrame:
        """Give the files as a frame, by a reader or a reader of streams."""
        storage, options = Storage(reader._spark), self.reader_options  # both kinds of reader have it
        pattern = storage.pattern(self.place)
        if pattern != self.place and not storage.folder(self.place)[1]:
            options = {"basePath": self.place, **options}  # a stream of a pattern has no partitions without
        frame: DataFrame = reader.format(self.name).options(**options).load(pattern)
        return frame

    @property
    def reader_options(self) -> dict[str, str]:
        """What Spark's reader is told."""
        return {**self.read_defaults, **self.options, **self.read_always}

    def _whole(self, storage: Storage, source: Source) -> Source:
        """Give a table with its partitions, and with what names its rows; refuse one that is read in part."""
        read, place, files = source.read, self.place, source.read.inputFiles()
        everywhere = read.sparkSession.read.option("recursiveFileLookup", "true").schema(read.schema)
        if unread := {*self.load(everywhere).inputFiles()}.difference(files):
            raise InputError(
                f"The input {place} has files in subfolders that are not part of the table",
                allowed="files in the folder itself, or in subfolders named COLUMN=VALUE, not both",
                got=f"{len(unread)} more files, for example {plain_path(min(unread))}",
                do="Give each folder to a run of its own, name the subfolders so, or read all files with "
                "--read-option recursiveFileLookup=true",
            )
        names, prepare = partition_columns(read), source.prepare
        partitions = names
        if names:
            around = storage.matches(self.option("basePath") or place)
            _check_inside(files, [storage.folder(match)[0] for match in around], names, place)
            # Other programs write percent-encoded UTF-8 into such names; Spark takes each byte for a letter.
            if any(re.search("%25[89A-Fa-f]", file) for file in files):
                meant = {name: _utf8(name) for name in names}
                partitions, prepare = tuple(meant.values()), partial(_in_utf8, prepare, meant)
        folder, is_file = storage.folder(place)
        pattern = rf"^[^/]*:(//[^/]*)?{re.escape(folder)}/"
        root = pattern if all(re.match(pattern, file) for file in files) else None
        load = None if root is None or is_file else self.load
        return replace(source, prepare=prepare, partitions=partitions, root=root, load=load)

    def check_place(self, storage: LocalFiles, spark: SparkSession | None = None) -> None:
        _refuse_accounted(storage, "output", self.place)
        exists, overwrite = storage.exists(self.place), self.mode == "overwrite"
        if exists and not overwrite:
            raise ConfigError(
                f"The output {self.place} exists",
                do="Choose another --output, or replace it with --mode overwrite",
            )
        is_whole = any(storage.exists(f"{self.place}/{sign}") for sign in (_SUCCESS, _WHOLE))
        if exists and not is_whole:
            raise ConfigError(
                f"The output {self.place} is not a table that a finished job wrote",
                allowed=f"with --mode overwrite, a folder with a file {_SUCCESS} or {_WHOLE}",
                do="Remove it by hand if it may go",
            )
        if not overwrite:
            check_unfinished(storage, self.place)

    def write(self, result: DataFrame) -> None:
        spark = result.sparkSession
        write = partial(self._write_signed, result)
        write_whole(spark, self.place, write, overwrite=self.mode == "overwrite")

    def _write_signed(self, result: DataFrame, folder: str) -> None:
        """Write a table to a folder, and at last a sign that it is whole."""
        self._writer(result).save(folder)
        storage = Storage(result.sparkSession)
        # Some committers leave no sign, as with mapreduce.fileoutputcommitter.marksuccessfuljobs=false.
        if not storage.exists(f"{folder}/{_SUCCESS}"):
            storage.write(f"{folder}/{_WHOLE}", "")

    def add_files(self, result: DataFrame, name: str) -> None:
        """Add files to a folder whose names begin with ``name``."""
        storage, hidden = Storage(result.sparkSession), f"{self.place}/.{name}"
        self._writer(result).mode("overwrite").save(hidden)
        for file in storage.below(hidden, f"{'*/' * len(self.partitions)}part-*"):
            folder, _, part = file.removeprefix(f"{storage.qualified(hidden)}/").rpartition("/")
            storage.make_folder(f"{self.place}/{folder}".rstrip("/"))
            storage.rename(file, f"{self.place}/{folder}/{name}{part.removeprefix('part')}")
        storage.delete(hidden)
        storage.write(f"{self.place}/{_SUCCESS}", "")

    def _writer(self, result: DataFrame) -> DataFrameWriter:
        options = {**self.write_defaults, **self.options, "compression": self.compression}
        return result.write.format(self.name).partitionBy(*self.partitions).options(**options)


class Orc(FileFormat):
    """ORC files, in which Spark writes times without a zone as numbers, which it alone reads as times."""

    name = "orc"
    title = "ORC"
    known = "mergeSchema"
    read_always = MERGED
    cannot_hold = ("timestamp_ntz",)
    codecs = ("snappy", "zstd", "zlib", "lz4", "none")


def _check_inside(files: Sequence[str], bases: Sequence[str], partitions: Sequence[str], place: str) -> None:
    """Refuse files that lie below a base, but in none of its partitions."""
    outside, wanted = list[str](), [name.lower() for name in partitions]
    for file in files:
        path = re.sub("^[^/]*:(//[^/]*)?", "", file)
        below = unquote(min((path.removeprefix(f"{base}/") for base in bases), key=len))
        parts = [name.partition("=")[0] for name in below.split("/")[:-1] if "=" in name]
        escaped = (re.sub("%([0-9A-Fa-f]{2})", lambda hex_: chr(int(hex_[1], 16)), name) for name in parts)
        if [name.lower() for name in escaped][-len(wanted) :] != wanted:
            outside.append(below)
    if outside:
        raise InputError(
            f"The input {place} has files outside its partitions, which Spark does not read",
            allowed=f"files in folders {'/'.join(f'{name}=VALUE' for name in partitions)}",
            got=f"{len(outside)} files, for example {min(outside)}",
            do="Move them into such folders, or give them to a run of their own",
        )


def _utf8(name: str) -> str:
    """Read letters that are bytes as UTF-8, where they are."""
    try:
        return name.encode("latin-1").decode()
    except UnicodeError:
        return name


def _in_utf8(prepare: Prepare, names: Mapping[str, str], df: DataFrame) -> DataFrame:
    """Read the names and values of partitions as :func:`_utf8` does, where ``names`` has them."""

    def column(name: str) -> Column:
        if name not in names:
            return quoted(name)
        read, as_bytes = quoted(name), F.encode(quoted(name), "ISO-8859-1")
        meant = F.decode(as_bytes, "UTF-8")
        has_bytes = F.decode(as_bytes, "ISO-8859-1") == read
        is_utf8 = F.encode(meant, "UTF-8") == as_bytes
        return F.when(has_bytes & is_utf8, meant).otherwise(read).alias(names[name])

    return prepare(df).select(*map(column, df.columns))


def _refuse_accounted(storage: LocalFiles, what: str, path: str) -> None:
    """Refuse a path at or inside a table whose own account says which of its files count.

    Such a folder has files whose rows were deleted or replaced.
    """
    scheme, _, rest = storage.qualified(path).partition(":")
    place = PurePosixPath(rest)
    for around in (place, *place.parents):
        folder = f"{scheme}:{around}".rstrip("/")
        if str(around) == "//":  # nothing lies above a host
            break
        for title, name, mark in _ACCOUNTS:
            try:
                marked = storage.below(folder, mark)
            except (PySparkException, Py4JJavaError):
                break  # a folder around it that may not be listed; what lies in the path itself is read next
            if marked:
                option = "--format" if what == "input" else "--output-format"
                raise ConfigError(
                    f"The {what} {path} is {title}, or lies in one: its files by themselves are no table, "
                    "as rows that were deleted or replaced are still in them",
                    got=f"{mark.partition('/')[0]} in {folder}",
                    do=f"Give {option} {name}",
                )
