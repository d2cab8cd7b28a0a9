"""Files in a folder, by Spark's own readers and writers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from dptext_spark.errors import ConfigError, InputError, nearest
from dptext_spark.spark.failures import condition, failing
from dptext_spark.tables.fields import Field, field_names
from dptext_spark.tables.formats.format import FORMATS, PARQUET_CODECS, Format, Output
from dptext_spark.tables.nanoseconds import in_microseconds
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.source import Source, unreadable
from dptext_spark.tables.storage import Places, Storage, literal
from dptext_spark.tables.text_files import (
    check_encoding,
    check_values,
    empty_objects,
    is_wide,
    java_encoding,
)


class FileFormat(Format):
    """Files in a folder, which Spark lists, reads and writes.

    Attributes:
        read_defaults, write_defaults: Options of Spark's reader and writer, unless others are given.
        known: Names of Spark's options for this format, to read or to write.
    """

    can_grow = True
    read_defaults: ClassVar[Mapping[str, str]] = {}
    write_defaults: ClassVar[Mapping[str, str]] = {}
    known: ClassVar[str] = ""

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        self._check_names("--read-option", f"{_READ} maxFilesPerTrigger" if grows else _READ)

    def check_output(self, output: Output, *, grows: bool) -> None:
        super().check_output(output, grows=grows)
        self._check_names("--write-option", _WRITTEN)

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        self.check_files(storage, place)
        try:
            read, prepare = self.look(spark, place)
            return Source.of_files(storage, place, read, self, prepare, self.option("basePath"))
        except (PySparkException, Py4JJavaError) as error:
            damaged = not isinstance(error, AnalysisException)
            do = _package(spark, error)
            raise unreadable(place, _cause(error), damaged=damaged, title=self.title, do=do) from None

    def option(self, name: str) -> str | None:
        """Give an option's value; Spark takes their names in any capitals."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), None)

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

    def check_files(self, storage: Places, place: str) -> None:
        """Refuse files that belong to a table of another format.

        Raises:
            ConfigError: They do.
        """
        for path in storage.matches(place) or [place]:
            refuse_accounted(storage, "input", path)

    def look(self, spark: SparkSession, path: str) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
        """Give the files below ``path`` as they are read, and what makes of them what they mean."""
        return self.load(spark.read, path), lambda df: df

    def load(self, reader: Any, path: str) -> DataFrame:
        """Give the files below ``path`` as a frame, by a reader or a reader of streams."""
        frame: DataFrame = reader.format(self.name).options(**self._given()).load(path)
        return frame

    def _given(self) -> dict[str, str]:
        """Give what Spark's reader is told."""
        return {**self.read_defaults, **self.options}

    @property
    def title(self) -> str:
        """The name as people write it."""
        return self.name.upper()

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        refuse_accounted(storage, "output", output.place)
        exists = storage.exists(output.place)
        if exists and not output.overwrite:
            raise ConfigError(
                f"The output {output.place} exists",
                do="Choose another --output, or replace it with --mode overwrite",
            )
        if exists and not storage.exists(f"{output.place}/_SUCCESS"):
            raise ConfigError(
                f"The output {output.place} is not a table that a finished job wrote",
                allowed="with --mode overwrite, a folder with a _SUCCESS file",
                do="Remove it by hand if it may go",
            )
        if not output.overwrite:
            check_unfinished(storage, output.place)

    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        write_whole(
            storage,
            output.place,
            lambda place: self._writer(result, output).save(place),
            run=str(result.sparkSession.sparkContext.applicationId),
            overwrite=output.overwrite,
        )

    def add_files(self, result: DataFrame, output: Output, name: str) -> None:
        """Add files to a folder, in one step, whose names begin with ``name``."""
        writer = self._writer(result, output).option("mapreduce.output.basename", name)
        writer.mode("append").save(output.place)

    def _writer(self, result: DataFrame, output: Output) -> DataFrameWriter:
        options = {**self.write_defaults, **self.options, "compression": self.compression}
        return result.write.format(self.name).partitionBy(*output.partitions).options(**options)


class MergedFormat(FileFormat):
    """Files that say their columns themselves; without ``mergeSchema`` Spark takes those of one file."""

    remedy = (
        "Read the columns of all files with --read-option mergeSchema=true, or name one by one with --keep "
        "what passes through"
    )

    def left_out(self, source: Source) -> list[str]:
        known = source.read.schema
        if (self.option("mergeSchema") or "").lower() == "true" or len(source.read.inputFiles()) < 2:
            return []
        reader = source.read.sparkSession.read.option("mergeSchema", "true")
        try:
            merged = self.load(reader, source.place).schema
        except (PySparkException, Py4JJavaError) as error:
            raise InputError(
                f"Whether all files of the input {source.place} have the same columns cannot be told",
                allowed="one type of each column in all files",
                got=condition(error),
                do="Name one by one with --keep what passes through, or write the files again",
            ) from None
        return [name for name in field_names(merged) if not Field.find(known, name)]


class Parquet(MergedFormat):
    """Parquet files, whose rows Spark numbers."""

    name = "parquet"
    title = "Parquet"
    has_positions = True
    known = "datetimeRebaseMode int96RebaseMode mergeSchema"
    codecs = PARQUET_CODECS

    def look(self, spark: SparkSession, path: str) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
        read = self.load(spark.read, path)
        several = self.option("mergeSchema") or str(spark.conf.get("spark.sql.parquet.mergeSchema"))
        return read, in_microseconds(
            read,
            lambda: self.load(spark.read.option("mergeSchema", "true"), path),
            several=several.lower() == "true",
        )


class Orc(MergedFormat):
    """ORC files.

    Spark writes timestamps without a time zone as numbers, which it alone reads as times again.
    """

    name = "orc"
    known = "mergeSchema"
    cannot_hold = (TimestampNTZType,)
    codecs = ("snappy", "zstd", "zlib", "lz4", "none")


class Avro(FileFormat):
    """Avro files, by a package of Spark's that it does not bring along."""

    name = "avro"
    title = "Avro"
    known = """
        avroSchema avroSchemaUrl datetimeRebaseMode enableStableIdentifiersForUnionType ignoreExtension mode
        positionalFieldMatching recordName recordNamespace recursiveFieldMaxDepth
        stableIdentifierPrefixForUnionType
    """
    codecs = ("snappy", "zstandard", "deflate", "uncompressed")

    def left_out(self, source: Source) -> list[str]:
        if len(source.read.inputFiles()) < 2 or self.option("avroSchema") or self.option("avroSchemaUrl"):
            return []
        raise InputError(
            f"Whether all files of the input {source.place} have the same columns cannot be told: Spark "
            "looks at one Avro file",
            do="Name one by one with --keep what passes through, or all columns by --read-option avroSchema",
        )


class RecordFormat(FileFormat):
    """Files of text, whose records may be malformed: one such record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log. Whoever gives a ``mode`` gets that.
    """

    codecs = ("none", "gzip")

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        if (mode := self.option("mode") or "PERMISSIVE").upper() not in _MODES:
            raise ConfigError(
                "Option --read-option mode has a wrong value, which Spark takes for PERMISSIVE",
                allowed=", ".join(_MODES),
                got=repr(mode),
            )
        if is_wide(self.encoding) and not self.multi_line:
            raise ConfigError(
                f"Files in {self.encoding} cannot be cut into lines",
                allowed="--read-option multiLine=true",
                do="Convert them to UTF-8, or give that",
            )

    def check_output(self, output: Output, *, grows: bool) -> None:
        super().check_output(output, grows=grows)
        if not self.encoding.startswith("UTF"):
            raise ConfigError(
                f"In {self.encoding} letters of the output would be replaced by question marks",
                allowed="--write-option encoding=UTF-8",
            )

    @property
    def encoding(self) -> str:
        """Java's name of the files' encoding.

        Raises:
            ConfigError: It is unknown.
        """
        return java_encoding(self.option("encoding") or self.option("charset") or "UTF-8")

    @property
    def multi_line(self) -> bool:
        """Whether records may have several lines."""
        return (self.option("multiLine") or self.read_defaults.get("multiLine", "")).lower() == "true"

    def check_texts(self, spark: SparkSession, path: str) -> None:
        """Refuse files of which Spark would read a part only, or replace one, without a word.

        Raises:
            InputError: There are such files.
        """
        check_encoding(self.texts(spark, path, whole=is_wide(self.encoding)), self.encoding, path)

    def texts(self, spark: SparkSession, path: str, *, whole: bool) -> DataFrame:
        """Give the files' lines, or ``whole`` files, as Spark reads text: bytes stay as they are."""
        chosen = {name: value for name, value in self.options.items() if name.lower() in _CHOOSING}
        # Partitions' columns would be in the way.
        return spark.read.options(**chosen).option("recursiveFileLookup", "true").text(path, wholetext=whole)

    def look(self, spark: SparkSession, path: str) -> tuple[DataFrame, Callable[[DataFrame], DataFrame]]:
        self.check_texts(spark, path)
        if self.option("mode") is not None:
            return super().look(spark, path)
        malformed = InputError(
            f"The input has records that are not {self.title}, or not of its schema",
            do="Mend them, or see which --read-option the files need; with --read-option mode=DROPMALFORMED "
            "such records are left out",
        )
        found = self.load(spark.read, path).schema
        if _MALFORMED in found.names:
            raise malformed
        read = self.load(spark.read.schema(StructType([*found.fields, _MALFORMED_FIELD])), path)

        def check(df: DataFrame) -> DataFrame:
            sound = F.when(F.col(_MALFORMED).isNull(), True).otherwise(failing(malformed).cast("boolean"))
            return df.where(sound).drop(_MALFORMED)

        return read, check

    def load(self, reader: Any, path: str) -> DataFrame:
        return super().load(reader.option("columnNameOfCorruptRecord", _MALFORMED), path)

    def _given(self) -> dict[str, str]:
        given = {n: v for n, v in super()._given().items() if n.lower() not in ("encoding", "charset")}
        return given if self.encoding == "UTF-8" else {**given, "encoding": self.encoding}


class Json(RecordFormat):
    """One JSON object on a line; Spark reads all of them once to find the columns and their types."""

    name = "json"
    remedy = (
        "They hold nothing but empty objects. Give these a field, or name one by one with --keep what passes "
        "through"
    )
    known = """
        allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros
        allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames charset dateFormat
        dropFieldIfAllNull enableDateTimeParsingFallback encoding ignoreNullFields inferTimestamp lineSep
        locale mode multiLine prefersDecimal pretty primitivesAsString singleVariantColumn sortKeys timeFormat
        timestampFormat timestampNTZFormat timeZone writeNonAsciiCharacterAsCodePoint
    """
    write_defaults: ClassVar = {"ignoreNullFields": "false"}  # a column of nulls is a column

    def left_out(self, source: Source) -> list[str]:
        spark, known = source.read.sparkSession, source.read.schema
        found = empty_objects(self._values(spark, source.place))
        return [name for name in found if not Field.find(known, name)]

    def check_texts(self, spark: SparkSession, path: str) -> None:
        super().check_texts(spark, path)
        check_values(self._values(spark, path), path)

    def _values(self, spark: SparkSession, path: str) -> DataFrame:
        """Give the texts of which each is to be one value, decoded."""
        texts = self.texts(spark, path, whole=self.multi_line)
        if self.encoding == "UTF-8":
            return texts
        return texts.select(F.decode(F.col("value").cast("binary"), self.encoding).alias("value"))

    def _given(self) -> dict[str, str]:
        given = super()._given()
        named = "encoding" in given and not self.multi_line
        # Spark does not guess the ends of lines where an encoding is named.
        return {"lineSep": "\n", **given} if named else given


class Csv(RecordFormat):
    """CSV as RFC 4180 and pandas have it: names in the first line, quotes doubled, lines inside quotes.

    Values are strings, unless ``inferSchema`` says otherwise. A value without quotes and letters is null.
    """

    name = "csv"
    known = """
        charset charToEscapeQuoteEscaping comment dateFormat delimiter emptyValue
        enableDateTimeParsingFallback encoding enforceSchema escape escapeQuotes extension header
        ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep locale
        maxCharsPerColumn maxColumns mode multiLine nanValue negativeInf nullValue positiveInf preferDate
        quote quoteAll samplingRatio sep singleVariantColumn timeFormat timestampFormat timestampNTZFormat
        timeZone unescapedQuoteHandling
    """
    names_are_data = True
    cannot_hold = (ArrayType, MapType, StructType, BinaryType)
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


# What all readers of files take; not what would pass over a stream's files, or remove them.
_READ: Final = """
    basePath ignoreCorruptFiles ignoreMissingFiles modifiedAfter modifiedBefore pathGlobFilter
    recursiveFileLookup
"""
_WRITTEN: Final = "codec compression maxRecordsPerFile partitionOverwriteMode"
# What of them decides which texts are read, and where they end.
_CHOOSING: Final = {
    *("ignorecorruptfiles", "ignoremissingfiles", "linesep", "modifiedafter", "modifiedbefore"),
    "pathglobfilter",
}
_MODES: Final = ("DROPMALFORMED", "FAILFAST", "PERMISSIVE")


def refuse_accounted(storage: Places, what: str, path: str) -> None:
    """Refuse a path in a table of a format that keeps an account of its files.

    Such a folder has files whose rows were deleted or replaced, which only its account tells apart.

    Raises:
        ConfigError: There is such a table, at the path or around it.
    """
    for folder in _up_from(storage.qualified(path)):
        for title, name, mark in _ACCOUNTS:
            try:
                marked = storage.matches(f"{literal(folder)}/{mark}")
            except (PySparkException, Py4JJavaError):
                break  # a folder around it that may not be listed; what lies in the path itself is read next
            if marked:
                option = "--format" if what == "input" else "--output-format"
                raise ConfigError(
                    f"The {what} {path} is {title}, or lies in one: its files by themselves are no table, "
                    "as rows that were deleted or replaced are still in them",
                    got=f"{mark.partition('/')[0]} in {folder}",
                    do=f"Give {option} {name}"
                    if name in FORMATS
                    else f"Give its name with {option} table to a Spark that has its catalog, or copy its "
                    "rows to plain files first",
                )


def _up_from(path: str) -> Iterator[str]:
    """Give a full path, and those of the folders around it, without a slash at the end."""
    path = path.rstrip("/")
    root = re.match(r"([^/]*:)?(//[^/]*)?", path)
    shortest = root.end() if root else 0
    while len(path) > shortest:
        yield path
        path = path[: max(path.rfind("/"), shortest)]
    yield path


_ACCOUNTS: Final = (
    ("a Delta table", "delta", "_delta_log"),
    ("an Iceberg table", "iceberg", "metadata/*.metadata.json"),
    ("a Hudi table", "hudi", ".hoodie"),
)
_MALFORMED: Final = "__dptext_malformed"
_MALFORMED_FIELD: Final = StructField(_MALFORMED, StringType())


def _cause(error: Exception) -> str:
    """Name an error of Spark's, with the type that it cannot read."""
    illegal = re.search(r"Illegal Parquet type: ([A-Z0-9_]+( \([A-Z]+(\([A-Z]+,\w+\))?\))?)", str(error))
    return f"{condition(error)}: {illegal[1]}" if illegal else condition(error)


def _package(spark: SparkSession, error: Exception) -> str:
    if "AVRO_DATA_SOURCE_NOT_ENABLED" not in str(error):
        return ""
    return (
        f"Give Spark the library by spark-submit --packages org.apache.spark:spark-avro_2.13:{spark.version}"
    )
