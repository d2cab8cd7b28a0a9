"""Files in a folder, by Spark's own readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError, nearest
from dptext_spark.spark import failures
from dptext_spark.spark.failures import condition, failing
from dptext_spark.spark.versions import metadata
from dptext_spark.tables import parquet_types
from dptext_spark.tables.formats.format import PARQUET_CODECS, Format
from dptext_spark.tables.local import LocalFiles
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.source import Source, of_files
from dptext_spark.tables.storage import Storage, cause, partition_columns
from dptext_spark.tables.text_files import check_encoding, check_headers, check_json, java_encoding

# What all readers of files take; not what would pass over a stream's files, or remove them.
_READ: Final = """
    basePath ignoreCorruptFiles ignoreMissingFiles modifiedAfter modifiedBefore pathGlobFilter
    recursiveFileLookup
"""
_WRITTEN: Final = "codec compression maxRecordsPerFile partitionOverwriteMode"
# Options that decide which texts are read, and where they end.
_CHOOSING: Final = (
    *("ignorecorruptfiles", "ignoremissingfiles", "linesep", "modifiedafter", "modifiedbefore"),
    "pathglobfilter",
)
_MODES: Final = ("DROPMALFORMED", "FAILFAST", "PERMISSIVE")
# What Spark says of files whose columns have no type in common, or one that it has not.
_TYPES: Final = ("CANNOT_MERGE_SCHEMAS", "PARQUET_TYPE_", "UNSUPPORTED_TIME_TYPE")
_MALFORMED: Final = "__dptext_malformed"
# Spark would take the columns of one file, and read others' values as that file's types without a word.
_MERGED: Final = {"mergeSchema": "true"}
_ACCOUNTS: Final = (
    ("a Delta table", "delta", "_delta_log"),
    ("an Iceberg table", "iceberg", "metadata/*.metadata.json"),
    ("a Hudi table", "table, and its name in a catalog of Spark's", ".hoodie"),
)


class FileFormat(Format):
    """Files in a folder, which Spark lists, reads and writes.

    Attributes:
        title: The name as people write it.
        known: Names of Spark's options for this format, to read or to write.
        read_defaults, write_defaults: Options of Spark's reader and writer, unless others are given.
        read_always: Options of its reader, whatever is given.
    """

    can_grow = True
    title: ClassVar[str]
    known: ClassVar[str] = ""
    read_defaults: ClassVar[Mapping[str, str]] = {}
    read_always: ClassVar[Mapping[str, str]] = {}
    write_defaults: ClassVar[Mapping[str, str]] = {}

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        self._check_names("--read-option", f"{_READ} maxFilesPerTrigger" if grows else _READ)

    def check_output(self, *, grows: bool) -> None:
        super().check_output(grows=grows)
        self._check_names("--write-option", _WRITTEN)

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
            return of_files(storage, self.source(spark), self.load, self.option("basePath"))
        except (PySparkException, Py4JJavaError) as error:
            if fault := failures.file_fault(error):
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

    def check_place(self, storage: LocalFiles, spark: SparkSession | None = None) -> None:
        _refuse_accounted(storage, "output", self.place)
        exists, overwrite = storage.exists(self.place), self.mode == "overwrite"
        if exists and not overwrite:
            raise ConfigError(
                f"The output {self.place} exists",
                do="Choose another --output, or replace it with --mode overwrite",
            )
        if exists and not storage.exists(f"{self.place}/_SUCCESS"):
            raise ConfigError(
                f"The output {self.place} is not a table that a finished job wrote",
                allowed="with --mode overwrite, a folder with a _SUCCESS file",
                do="Remove it by hand if it may go",
            )
        if not overwrite:
            check_unfinished(storage, self.place)

    def write(self, result: DataFrame) -> None:
        spark = result.sparkSession
        write_whole(spark, self.place, self._writer(result).save, overwrite=self.mode == "overwrite")

    def add_files(self, result: DataFrame, name: str) -> None:
        """Add files to a folder whose names begin with ``name``."""
        storage, hidden = Storage(result.sparkSession), f"{self.place}/.{name}"
        self._writer(result).mode("overwrite").save(hidden)
        for file in storage.below(hidden, f"{'*/' * len(self.partitions)}part-*"):
            folder, _, part = file.removeprefix(f"{storage.qualified(hidden)}/").rpartition("/")
            storage.make_folder(f"{self.place}/{folder}".rstrip("/"))
            storage.rename(file, f"{self.place}/{folder}/{name}{part.removeprefix('part')}")
        storage.delete(hidden)
        storage.write(f"{self.place}/_SUCCESS", "")

    def _writer(self, result: DataFrame) -> DataFrameWriter:
        options = {**self.write_defaults, **self.options, "compression": self.compression}
        return result.write.format(self.name).partitionBy(*self.partitions).options(**options)


class Parquet(FileFormat):
    """Parquet files, whose rows Spark numbers."""

    name = "parquet"
    title = "Parquet"
    has_positions = True
    known = "datetimeRebaseMode int96RebaseMode mergeSchema"
    read_always = _MERGED
    codecs = PARQUET_CODECS

    def source(self, spark: SparkSession) -> Source:
        storage = Storage(spark)
        try:
            with parquet_types.setting(spark, parquet_types.SETTING, "false"):
                source = super().source(spark)
            if not parquet_types.has_no_values(storage, source.read):
                return source
        except (PySparkException, Py4JJavaError) as error:
            if not condition(error).startswith(_TYPES):
                raise
        listed = self.load(spark.read.schema(StructType()))
        schema, prepare, refused = parquet_types.columns_of_files(storage, listed)
        read = self.load(spark.read.schema(schema))
        return Source(place=self.place, read=read, prepare=prepare, refused=refused)


class Orc(FileFormat):
    """ORC files, in which Spark writes times without a zone as numbers, which it alone reads as times."""

    name = "orc"
    title = "ORC"
    known = "mergeSchema"
    read_always = _MERGED
    cannot_hold = ("timestamp_ntz",)
    codecs = ("snappy", "zstd", "zlib", "lz4", "none")


class RecordFormat(FileFormat):
    """Files of text, whose records may be malformed: one such record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log; a ``mode`` that is given is used.
    """

    codecs = ("none", "gzip")
    read_always: ClassVar = {"columnNameOfCorruptRecord": _MALFORMED}

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        if (mode := self.option("mode", "PERMISSIVE")).upper() not in _MODES:
            raise ConfigError(
                "Option --read-option mode has a wrong value, which Spark takes for PERMISSIVE",
                allowed=", ".join(_MODES),
                got=repr(mode),
            )

    def texts(self, spark: SparkSession, *, whole: bool = False) -> DataFrame:
        """Give the files' lines, or ``whole`` files, as Spark reads text: bytes stay as they are."""
        chosen = {name: value for name, value in self.options.items() if name.lower() in _CHOOSING}
        # Partitions' columns would be in the way.
        reader = spark.read.options(**chosen).option("recursiveFileLookup", "true")
        return reader.text(Storage(spark).pattern(self.place), wholetext=whole)

    def check_texts(self, spark: SparkSession) -> None:
        """Refuse files of which Spark would read a part only, or replace one, without a word."""
        check_encoding(self.texts(spark), "UTF-8", self.place)

    def source(self, spark: SparkSession) -> Source:
        self.check_texts(spark)
        source = super().source(spark)
        if self.option("mode"):
            return source
        what = f"has records that are not {self.title}, or not of its schema"
        do = "Correct them, or see which --read-option the files need; with --read-option mode=DROPMALFORMED "
        do += "such records are left out; a file that is no part of the table, by pathGlobFilter=PATTERN"
        fields = [field for field in source.read.schema if field.name != _MALFORMED]
        if not fields and source.read.schema:
            raise InputError(f"The input {self.place} {what}", do=do)
        marked = StructType([*fields, StructField(_MALFORMED, StringType())])
        read = self.load(spark.read.schema(marked))
        return replace(source, read=read, prepare=partial(_sound, InputError(what, do=do)))


def _sound(malformed: InputError, df: DataFrame) -> DataFrame:
    """Give a frame that fails where a record is malformed."""
    fails = failing(malformed, metadata(df)["file_path"]).cast("boolean")
    return df.where(F.when(F.col(_MALFORMED).isNull(), True).otherwise(fails)).drop(_MALFORMED)


class Json(RecordFormat):
    """One JSON object on a line; Spark reads all of them once to find the columns and their types."""

    name = "json"
    title = "JSON"
    known = """
        allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros
        allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames dateFormat dropFieldIfAllNull
        enableDateTimeParsingFallback ignoreNullFields inferTimestamp lineSep locale mode multiLine
        prefersDecimal pretty primitivesAsString sortKeys timeFormat timestampFormat timestampNTZFormat
        timeZone writeNonAsciiCharacterAsCodePoint
    """
    write_defaults: ClassVar = {"ignoreNullFields": "false"}  # a column of nulls is a column

    def check_texts(self, spark: SparkSession) -> None:
        super().check_texts(spark)
        check_json(self.texts(spark, whole=self.option("multiLine").lower() == "true"), self.place)


class Csv(RecordFormat):
    """CSV as RFC 4180 and pandas have it: names in the first line, quotes doubled, lines inside quotes.

    Values are strings, unless ``inferSchema`` says otherwise. A value without quotes and letters is null.
    """

    name = "csv"
    title = "CSV"
    known = """
        charToEscapeQuoteEscaping comment dateFormat delimiter emptyValue enableDateTimeParsingFallback
        enforceSchema escape escapeQuotes extension header ignoreLeadingWhiteSpace
        ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep locale maxCharsPerColumn maxColumns
        mode multiLine nanValue negativeInf nullValue positiveInf preferDate quote quoteAll samplingRatio
        sep timeFormat timestampFormat timestampNTZFormat timeZone unescapedQuoteHandling
    """
    cannot_hold = ("array", "map", "struct", "binary")
    names_remedy = (
        "Where values have another separator, give --read-option 'sep=;'. The first line names columns: _c0 "
        "is one without a name, note2 and note3 are two of one name; where it names none, give --read-option "
        "header=false and name them _c0, _c1 and so on"
    )
    read_defaults: ClassVar = {
        "header": "true",
        "enforceSchema": "false",  # with it a file whose columns lie in another order is read all the same
        "multiLine": "true",
        "escape": '"',
        "nullValue": "\x00",  # none that occurs: by default an empty string in quotes is null too
    }
    write_defaults: ClassVar = {
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    }

    def _check_names(self, option: str, others: str) -> None:
        # What is written in another encoding than UTF-8 would have question marks in place of letters.
        super()._check_names(option, others if option == "--write-option" else f"{others} encoding")

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        _ = self.encoding

    @property
    def encoding(self) -> str:
        """Java's name of the files' encoding."""
        return java_encoding(self.option("encoding", "UTF-8"))

    @property
    def reader_options(self) -> dict[str, str]:
        given = {name: value for name, value in super().reader_options.items() if name.lower() != "encoding"}
        return {**given, "encoding": self.encoding}

    def check_texts(self, spark: SparkSession) -> None:
        check_encoding(self.texts(spark), self.encoding, self.place)

    def source(self, spark: SparkSession) -> Source:
        source = super().source(spark)
        names = [n for n in source.read.columns if n not in (_MALFORMED, *partition_columns(source.read))]
        own = self.option("enforceSchema").lower() == "true"
        if own or self.option("header", "true").lower() != "true" or not names:
            return source
        given = {n: v for n, v in self.options.items() if n.lower() not in ("header", "inferschema", "mode")}
        strings = StructType([StructField(f"c{i}", StringType()) for i in range(len(names) + 1)])
        reader = spark.read.schema(strings).option("recursiveFileLookup", "true")
        headless = replace(self, options={**given, "header": "false"})
        if check_headers(headless.load(reader), names, self.place):
            # Spark's own check, of files that come later too, takes no name that Spark made.
            checked = replace(self, options={**self.options, "enforceSchema": "true"})
            source = replace(source, read=checked.load(spark.read.schema(source.read.schema)))
        return source


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
