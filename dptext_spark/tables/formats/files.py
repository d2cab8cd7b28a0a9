"""Files in a folder, by Spark's own readers and writers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Self
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from dptext_spark.errors import ConfigError, InputError, nearest
from dptext_spark.spark.failures import file_fault, path_of_url
from dptext_spark.tables.folders import (
    FILES_ALONE,
    IGNORE_SINK,
    Folders,
    check_accounts,
    check_logged,
    decoded,
    differing,
    files_without_values,
    in_utf8,
    partition_folders,
)
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.source import TableSource, setting
from dptext_spark.tables.storage import (
    NO_FILE,
    LocalFiles,
    Storage,
    cause,
    check_target,
    columns_in_both,
    literal,
    partition_columns,
)

# What all readers of files take; not what would pass over a stream's files, or remove them.
_READ: Final = """
    basePath ignoreCorruptFiles ignoreMissingFiles modifiedAfter modifiedBefore pathGlobFilter
    recursiveFileLookup
"""
# Those that decide which files are read.
_CHOOSING: Final = ("modifiedafter", "modifiedbefore", "pathglobfilter")
# What a whole table has in its folder: Spark's own sign, or ours where Spark was told to leave
# none.
_SUCCESS: Final = "_SUCCESS"
_WHOLE: Final = "_dptext_spark"
# Spark would take the columns of one file, and read others' values as that file's types without a
# word.
MERGED: Final = {"mergeSchema": "true"}


class FileFormat(Format):
    """Files in a folder, which Spark lists, reads and writes.

    Attributes:
        title: The name as people write it.
        option_names: Names of Spark's options for this format, of its reader or its writer.
        read_option_names: Those of its reader alone.
        read_defaults: Options of Spark's reader, unless others are given.
        write_defaults: Options of its writer, unless others are given.
        read_always: Options of its reader, whatever is given.
        finds_by_name: Whether Spark finds columns in a file by their names, and not by their order.
    """

    can_grow = True
    title: ClassVar[str]
    option_names: ClassVar[str] = ""
    read_option_names: ClassVar[str] = ""
    read_defaults: ClassVar[Mapping[str, str]] = {}
    read_always: ClassVar[Mapping[str, str]] = {}
    write_defaults: ClassVar[Mapping[str, str]] = {}
    finds_by_name: ClassVar[bool] = True

    def check_can_read(self, *, has_id: bool, grows: bool) -> None:
        super().check_can_read(has_id=has_id, grows=grows)
        batches = "maxFilesPerTrigger" if grows else ""
        self._check_names("--read-option", f"{_READ} {self.read_option_names} {batches}")

    def check_can_write(self, *, grows: bool) -> None:
        super().check_can_write(grows=grows)
        self._check_names(
            "--write-option", "codec compression maxRecordsPerFile partitionOverwriteMode"
        )

    def _check_names(self, option: str, more_names: str) -> None:
        """Check that Spark knows the options; those with a point are a library's own."""
        allowed_names = {name.lower(): name for name in f"{self.option_names} {more_names}".split()}
        for name in self.options:
            if "." not in name and name.lower() not in allowed_names:
                raise ConfigError(
                    f"Option {option} has a name that format {self.name} does not take",
                    allowed=", ".join(sorted(allowed_names.values())),
                    got=name,
                    do=nearest([name], allowed_names.values()),
                )

    def check_files(self, storage: LocalFiles) -> None:
        if not storage.sees(self.place):
            return
        check_accounts(storage, "input", storage.matches(self.place) or [self.place])
        if literal(self.place) == self.place and not storage.exists(self.place):
            raise self.unreadable(NO_FILE)

    def open(self, spark: SparkSession) -> TableSource:
        storage = Storage(spark)
        storage.check_file_names(self.place)
        try:
            table = self.checked(spark)
            return table._whole(storage, table.source(spark))
        except (PySparkException, Py4JJavaError) as error:
            fault = file_fault(error)
            if fault is not None:
                raise fault from None
            raise self.unreadable(cause(error)) from None

    def checked(self, spark: SparkSession) -> Self:
        """Check what is in the files; return the format with the options that read it unchanged."""
        return self

    def unreadable(self, got: str) -> InputError:
        """Return the error of an input that is no table of this format."""
        allowed = f"a file of {self.title}, or a folder of such files"
        return InputError(
            f"The input {self.place} cannot be read as a table", allowed=allowed, got=got
        )

    def source(self, spark: SparkSession) -> TableSource:
        """Return the table as it is read, without what the names of its files say."""
        read = self.load(spark.read)
        in_both = columns_in_both(read)
        if in_both and not self.finds_by_name:
            raise InputError(
                f"Column {in_both[0].name} is in the files of the input {self.place} and in the "
                "names of its folders",
                allowed=f"in {self.title}, one of both",
                do=f"Rename the column in the files or in the folders; or {FILES_ALONE}",
            )
        return TableSource(place=self.place, read=read, in_both=in_both)

    def load(self, reader: Any) -> DataFrame:
        """Return the files as a frame, by a reader or a reader of streams."""
        storage = Storage(reader._spark)  # both kinds of reader have it
        options = self.reader_options
        pattern = storage.pattern(self.place)
        if pattern != self.place and not storage.folder(self.place)[1]:
            # A stream of a pattern has no partitions without.
            options = {"basePath": self.place, **options}
        frame: DataFrame = reader.format(self.name).options(**options).load(pattern)
        return frame

    @property
    def reader_options(self) -> dict[str, str]:
        """Return the options of Spark's reader."""
        return {**self.read_defaults, **self.options, **self.read_always}

    @property
    def writer_options(self) -> dict[str, str]:
        """Return the options of Spark's writer, apart from the codec."""
        return {**self.write_defaults, **self.options}

    def _whole(self, storage: Storage, source: TableSource) -> TableSource:
        """Return a table with its partitions, and with what names its rows."""
        place = self.place
        files = source.read.inputFiles()
        self._check_whole(storage, source.read, files)
        partitions = partition_columns(source.read)
        prepare = source.prepare
        if partitions:
            around = storage.matches(self.option("basePath") or place)
            bases = [storage.folder(match)[0] for match in around]
            folders = partition_folders(files, bases, partitions, place)
            decoded_names = decoded(folders, partitions, place)
            if decoded_names:
                partitions = tuple(decoded_names.values())
                prepare = in_utf8(prepare, decoded_names)
            if source.in_both:
                self._check_values(source.read.sparkSession, source.in_both, folders)
        folder, is_file = storage.folder(place)
        pattern = rf"^[^/]*:(//[^/]*)?{re.escape(folder)}/"
        is_below = all(re.match(pattern, file) for file in files)
        return replace(
            source,
            prepare=prepare,
            partitions=partitions,
            root=pattern if is_below else None,
            load=self.load if is_below and not is_file else None,
            list_files=partial(self._list_files, source.read.sparkSession),
        )

    def _check_whole(self, storage: Storage, read: DataFrame, files: Sequence[str]) -> None:
        """Check that Spark reads all files, and that an account of a table names them."""
        spark = read.sparkSession
        place = self.place
        everywhere = spark.read.option("recursiveFileLookup", "true").schema(read.schema)
        with setting(spark, IGNORE_SINK, "true"):
            listed = self.load(everywhere).inputFiles()
        paths = storage.matches(place) or [place]
        # Other tables may lie in its folders.
        if self.option("recursiveFileLookup").lower() == "true":
            paths += sorted({unquote(file).rpartition("/")[0] for file in listed})
            check_accounts(storage, "input", paths)
        if str(spark.conf.get(IGNORE_SINK)).lower() != "true":
            check_logged(storage, place, paths, listed)
        unread = {*listed}.difference(files)
        if unread:
            raise InputError(
                f"The input {place} has files in subfolders that are not part of the table",
                allowed="files in the folder itself, or in subfolders named COLUMN=VALUE, not both",
                got=f"{len(unread)} more files, for example {path_of_url(min(unread))}",
                do="Give each folder to a run of its own, name the subfolders so, or read all "
                "files with --read-option recursiveFileLookup=true",
            )

    def _list_files(self, spark: SparkSession) -> DataFrame:
        """Return path, modification time and length of each file, without opening any."""
        reader = spark.read.format("binaryFile").options(**self.options_of(_CHOOSING))
        files = reader.option("recursiveFileLookup", "true").load(
            Storage(spark).pattern(self.place)
        )
        return files.select("path", "modificationTime", "length")

    def _check_values(self, spark: SparkSession, columns: StructType, folders: Folders) -> None:
        """Check that columns have the values in files that the names of their folders have."""
        reader = spark.read.option("recursiveFileLookup", "true").schema(columns)
        without_values: dict[str, list[str]] = {}
        for name, file in files_without_values(self.load(reader), folders, self.place):
            without_values.setdefault(name, []).append(file)
        for name, files in without_values.items():
            if name.lower() in self.names_in(spark, files):  # whose values of it are null
                raise differing(name, files[0], self.place)

    def names_in(self, spark: SparkSession, files: Sequence[str]) -> set[str]:
        """Return the names, in small letters, of all columns that some of these files have."""
        reader = spark.read.format(self.name).options(**self.reader_options)
        paths = [literal(unquote(file)) for file in files]
        columns = reader.option("recursiveFileLookup", "true").load(paths).columns
        return {*map(str.lower, columns)}

    def check_place(self, storage: LocalFiles) -> None:
        if not storage.sees(self.place):
            return
        check_accounts(storage, "output", [self.place])
        if not storage.exists(self.place):
            check_target(self.place)
        exists = storage.exists(self.place)
        overwrite = self.mode == "overwrite"
        if exists and not overwrite:
            raise ConfigError(
                f"The output {self.place} exists",
                do="Choose another --output, or replace it with --mode overwrite",
            )
        has_success = storage.exists(f"{self.place}/{_SUCCESS}")
        is_whole = has_success or storage.exists(f"{self.place}/{_WHOLE}")
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
        # Some committers leave no sign, as with
        # mapreduce.fileoutputcommitter.marksuccessfuljobs=false.
        if not storage.exists(f"{folder}/{_SUCCESS}"):
            storage.write(f"{folder}/{_WHOLE}", "")

    def add_files(self, result: DataFrame, name: str) -> None:
        """Write more files to a folder, whose names begin with ``name``."""
        storage = Storage(result.sparkSession)
        hidden = f"{self.place}/.{name}"
        self._writer(result).mode("overwrite").save(hidden)
        for file in storage.below(hidden, f"{'*/' * len(self.partitions)}part-*"):
            folder, _, part = file.removeprefix(f"{storage.qualified(hidden)}/").rpartition("/")
            storage.make_folder(f"{self.place}/{folder}".rstrip("/"))
            storage.rename(file, f"{self.place}/{folder}/{name}{part.removeprefix('part')}")
        storage.delete(hidden)
        storage.write(f"{self.place}/{_SUCCESS}", "")

    def _writer(self, result: DataFrame) -> DataFrameWriter:
        options = {**self.writer_options, "compression": self.compression}
        return result.write.format(self.name).partitionBy(*self.partitions).options(**options)


class Orc(FileFormat):
    """ORC files, in which Spark writes times without a zone as numbers that it alone reads so."""

    name = "orc"
    title = "ORC"
    option_names = "mergeSchema"
    read_always = MERGED
    cannot_hold = ("timestamp_ntz",)
    codecs = ("snappy", "zstd", "zlib", "lz4", "none")
