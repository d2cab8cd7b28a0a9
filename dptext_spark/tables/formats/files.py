"""Files in a folder, by Spark's own readers and writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import unquote

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
from dptext_spark.spark import failures
from dptext_spark.spark.failures import condition, failing
from dptext_spark.spark.versions import NAMES_FILES, metadata
from dptext_spark.tables import parquet_types
from dptext_spark.tables.fields import Field, quoted
from dptext_spark.tables.formats.format import FORMATS, PARQUET_CODECS, Format, Output
from dptext_spark.tables.output import check_unfinished, write_whole
from dptext_spark.tables.source import Prepare, Source
from dptext_spark.tables.storage import Places, Storage, cause, literal, partition_columns
from dptext_spark.tables.text_files import check_encoding, check_headers, java_encoding, look_at_json

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
_ACCOUNTS: Final = (
    ("a Delta table", "delta", "_delta_log"),
    ("an Iceberg table", "iceberg", "metadata/*.metadata.json"),
    ("a Hudi table", "hudi", ".hoodie"),
)

Look: TypeAlias = tuple[DataFrame, Prepare, dict[str, InputError]]


class FileFormat(Format):
    """Files in a folder, which Spark lists, reads and writes.

    Attributes:
        title: The name as people write it.
        known: Names of Spark's options for this format, to read or to write.
        read_defaults, write_defaults: Options of Spark's reader and writer, unless others are given.
    """

    can_grow = True
    title: ClassVar[str]
    known: ClassVar[str] = ""
    read_defaults: ClassVar[Mapping[str, str]] = {}
    write_defaults: ClassVar[Mapping[str, str]] = {}

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        self._check_names("--read-option", f"{_READ} maxFilesPerTrigger" if grows else _READ)

    def check_output(self, output: Output, *, grows: bool) -> None:
        super().check_output(output, grows=grows)
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

    def check_files(self, storage: Places, place: str) -> None:
        """Refuse an input whose files belong to a table of another format."""
        for path in storage.matches(place) or [place]:
            _refuse_accounted(storage, "input", path)

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        self.check_files(storage, place)
        try:
            read, prepare, refused = self.look(spark, storage, place)
            base = self.option("basePath")
            source = Source.of_files(storage, place, read, self.load, prepare, base)
            return replace(source, refused=refused)
        except (PySparkException, Py4JJavaError) as error:
            if fault := failures.file_fault(error):
                raise fault from None
            package = f"org.apache.spark:spark-avro_{storage.scala}:{spark.version}"
            missing = "Failed to find data source: avro" in str(error)
            do = f"Give Spark the library by spark-submit --packages {package}" if missing else ""
            damaged = not isinstance(error, AnalysisException)
            raise self.unreadable(place, cause(error), damaged=damaged, do=do) from None

    def unreadable(self, place: str, got: str, *, damaged: bool = False, do: str = "") -> InputError:
        """Make the error of an input that is no table of this format."""
        what = f"is not {self.title}, or is damaged" if damaged else "cannot be read as a table"
        allowed = f"a {self.title} file, or a folder of {self.title} files"
        return InputError(f"The input {place} {what}", allowed=allowed, got=got, do=do)

    def look(self, spark: SparkSession, storage: Storage, path: str) -> Look:
        """Give the files below ``path`` as they are read, what makes of them what they mean, and what is not.

        Columns that cannot be read come third.
        """
        return self.load(spark.read, path), lambda df: df, {}

    def load(self, reader: Any, path: str) -> DataFrame:
        """Give the files below ``path`` as a frame, by a reader or a reader of streams."""
        storage, options = Storage(reader._spark), self.reader_options  # both kinds of reader have it
        pattern = storage.pattern(path)
        if pattern != path and not storage.folder(path)[1]:
            options = {"basePath": path, **options}  # a stream of a pattern has no partitions without
        frame: DataFrame = reader.format(self.name).options(**options).load(pattern)
        return frame

    @property
    def reader_options(self) -> dict[str, str]:
        """What Spark's reader is told."""
        return {**self.read_defaults, **self.options}

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        _refuse_accounted(storage, "output", output.place)
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
        writer, run = self._writer(result, output), str(result.sparkSession.conf.get("spark.app.id"))
        write_whole(storage, output.place, writer.save, run=run, overwrite=output.overwrite)

    def add_files(self, storage: Storage, result: DataFrame, output: Output, name: str) -> None:
        """Add files to a folder whose names begin with ``name``."""
        if NAMES_FILES:
            writer = self._writer(result, output).option("mapreduce.output.basename", name)
            writer.mode("append").save(output.place)
            return
        hidden = f"{output.place}/.{name}"
        self._writer(result, output).mode("overwrite").save(hidden)
        for file in storage.matches(f"{literal(hidden)}{'/*' * len(output.partitions)}/part-*"):
            folder, _, part = file.removeprefix(f"{storage.qualified(hidden)}/").rpartition("/")
            storage.make_folder(f"{output.place}/{folder}".rstrip("/"))
            storage.rename(file, f"{output.place}/{folder}/{name}{part.removeprefix('part')}")
        storage.delete(hidden)
        storage.write(f"{output.place}/_SUCCESS", "")

    def _writer(self, result: DataFrame, output: Output) -> DataFrameWriter:
        options = {**self.write_defaults, **self.options, "compression": self.compression}
        return result.write.format(self.name).partitionBy(*output.partitions).options(**options)


class MergedFormat(FileFormat):
    """Files that say their columns themselves: the table has those of all, whatever ``mergeSchema`` says.

    Spark would take the columns of one file, and read others' values as that file's types without a word.
    """

    @property
    def reader_options(self) -> dict[str, str]:
        return {**super().reader_options, "mergeSchema": "true"}


class Parquet(MergedFormat):
    """Parquet files, whose rows Spark numbers."""

    name = "parquet"
    title = "Parquet"
    has_positions = True
    known = "datetimeRebaseMode int96RebaseMode mergeSchema"
    codecs = PARQUET_CODECS

    def look(self, spark: SparkSession, storage: Storage, path: str) -> Look:
        try:
            with parquet_types.setting(spark, parquet_types.SETTING, "false"):
                read = self.load(spark.read, path)
            if not parquet_types.has_no_values(storage, read):
                return read, lambda df: df, {}
        except (PySparkException, Py4JJavaError) as error:
            if not condition(error).startswith(_TYPES):
                raise
        listed = self.load(spark.read.schema(StructType()), path)
        schema, prepare, refused = parquet_types.columns_of_files(storage, listed)
        return self.load(spark.read.schema(schema), path), prepare, refused


class Orc(MergedFormat):
    """ORC files, in which Spark writes times without a zone as numbers, which it alone reads as times."""

    name = "orc"
    title = "ORC"
    known = "mergeSchema"
    cannot_hold = (TimestampNTZType,)
    codecs = ("snappy", "zstd", "zlib", "lz4", "none")

    def look(self, spark: SparkSession, storage: Storage, path: str) -> Look:
        try:
            return super().look(spark, storage, path)
        except Py4JJavaError as error:
            if condition(error) == "CANNOT_MERGE_SCHEMAS":
                fields = error.java_exception.getMessageParameters()
                sides = [spark.createDataFrame([], fields[n].strip('"')).schema for n in ("left", "right")]
                one, other = ({f.name: f.dataType.simpleString() for f in side} for side in sides)
                name = next(name for name in one if one[name] != other.get(name, one[name]))
                raise failures.two_types(name, (one[name], "some"), (other[name], "others")) from None
            if failures.file_fault(error):
                raise
            for file in self.load(spark.read.schema(StructType()), path).inputFiles():
                try:  # some of ORC's own exceptions name no file
                    self.load(spark.read, literal(unquote(file)))
                except Py4JJavaError:
                    raise failures.file_error(failures.plain_path(file)) from None
            raise


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
            f"Spark looks at one Avro file of the input {source.place}: others may have more columns",
            do="Name one by one with --keep what passes through, or all columns by --read-option avroSchema",
        )


class RecordFormat(FileFormat):
    """Files of text, whose records may be malformed: one such record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log; a ``mode`` that is given is used.
    """

    codecs = ("none", "gzip")

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        if (mode := self.option("mode", "PERMISSIVE")).upper() not in _MODES:
            raise ConfigError(
                "Option --read-option mode has a wrong value, which Spark takes for PERMISSIVE",
                allowed=", ".join(_MODES),
                got=repr(mode),
            )
        if self._is_wide and not self._multi_line:
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
        """Java's name of the files' encoding."""
        return java_encoding(self.option("encoding") or self.option("charset") or "UTF-8")

    @property
    def _is_wide(self) -> bool:
        """Whether a line's end has several bytes, so that lines cannot be cut before they are decoded."""
        return self.encoding.startswith(("UTF-16", "UTF-32"))

    @property
    def _multi_line(self) -> bool:
        return self.option("multiLine", self.read_defaults.get("multiLine", "")).lower() == "true"

    @property
    def reader_options(self) -> dict[str, str]:
        given = {n: v for n, v in super().reader_options.items() if n.lower() not in ("encoding", "charset")}
        return given if self.encoding == "UTF-8" else {**given, "encoding": self.encoding}

    def texts(self, spark: SparkSession, path: str, *, whole: bool) -> DataFrame:
        """Give the files' lines, or ``whole`` files, as Spark reads text: bytes stay as they are."""
        chosen = {name: value for name, value in self.options.items() if name.lower() in _CHOOSING}
        # Partitions' columns would be in the way.
        reader = spark.read.options(**chosen).option("recursiveFileLookup", "true")
        return reader.text(Storage(spark).pattern(path), wholetext=whole)

    def check_texts(self, spark: SparkSession, path: str) -> None:
        """Refuse files of which Spark would read a part only, or replace one, without a word."""
        check_encoding(self.texts(spark, path, whole=self._is_wide), self.encoding, path)

    def load(self, reader: Any, path: str) -> DataFrame:
        return super().load(reader.option("columnNameOfCorruptRecord", _MALFORMED), path)

    def look(self, spark: SparkSession, storage: Storage, path: str) -> Look:
        self.check_texts(spark, path)
        if self.option("mode"):
            return super().look(spark, storage, path)
        do = "Correct them, or see which --read-option the files need; with --read-option mode=DROPMALFORMED "
        do += "such records are left out; a file that is no part of the table, by pathGlobFilter=PATTERN"
        malformed = InputError(f"has records that are not {self.title}, or not of its schema", do=do)
        schema = self.load(spark.read, path).schema
        if _MALFORMED in schema.names:
            read = self.load(spark.read.schema(schema), path)
            file = F.when(F.col(_MALFORMED).isNotNull(), metadata(read)["file_path"])
            # Spark finds no malformed record where it is asked for nothing else.
            others = [F.count(quoted(name)) for name in schema.names if name != _MALFORMED]
            if others and (found := read.agg(F.min(file), *others).collect()[0][0]):
                raise InputError(f"The file {failures.plain_path(found)} {malformed.what}", do=do)
            raise InputError(f"The input {path} {malformed.what}", do=do)
        marked = StructType([*schema.fields, StructField(_MALFORMED, StringType())])

        def sound(df: DataFrame) -> DataFrame:
            fails = failing(malformed, metadata(df)["file_path"]).cast("boolean")
            return df.where(F.when(F.col(_MALFORMED).isNull(), True).otherwise(fails)).drop(_MALFORMED)

        return self.load(spark.read.schema(marked), path), sound, {}


class Json(RecordFormat):
    """One JSON object on a line; Spark reads all of them once to find the columns and their types."""

    name = "json"
    title = "JSON"
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

    @property
    def reader_options(self) -> dict[str, str]:
        given = super().reader_options
        # Spark does not guess the ends of lines where an encoding is named.
        return {"lineSep": "\n", **given} if "encoding" in given and not self._multi_line else given

    def check_texts(self, spark: SparkSession, path: str) -> None:
        super().check_texts(spark, path)
        self._empty_objects(spark, path)

    def left_out(self, source: Source) -> list[str]:
        empty = self._empty_objects(source.read.sparkSession, source.place)
        return [name for name in empty if not Field.find(source.read.schema, name)]

    def _empty_objects(self, spark: SparkSession, path: str) -> list[str]:
        """Name fields that are empty objects, and refuse values that Spark would read in part."""
        texts = self.texts(spark, path, whole=self._multi_line)
        if self.encoding != "UTF-8":
            texts = texts.select(F.decode(F.col("value").cast("binary"), self.encoding).alias("value"))
        return look_at_json(texts, path, whole=self._multi_line)


class Csv(RecordFormat):
    """CSV as RFC 4180 and pandas have it: names in the first line, quotes doubled, lines inside quotes.

    Values are strings, unless ``inferSchema`` says otherwise. A value without quotes and letters is null.
    """

    name = "csv"
    title = "CSV"
    known = """
        charset charToEscapeQuoteEscaping comment dateFormat delimiter emptyValue
        enableDateTimeParsingFallback encoding enforceSchema escape escapeQuotes extension header
        ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep locale
        maxCharsPerColumn maxColumns mode multiLine nanValue negativeInf nullValue positiveInf preferDate
        quote quoteAll samplingRatio sep singleVariantColumn timeFormat timestampFormat timestampNTZFormat
        timeZone unescapedQuoteHandling
    """
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

    def look(self, spark: SparkSession, storage: Storage, path: str) -> Look:
        read, prepare, refused = super().look(spark, storage, path)
        names = [n for n in read.schema.names if n not in (_MALFORMED, *partition_columns(read))]
        own = self.option("enforceSchema").lower() == "true" or self.option("singleVariantColumn")
        if own or self.option("header", "true").lower() != "true" or not names:
            return read, prepare, refused
        given = {n: v for n, v in self.options.items() if n.lower() not in ("header", "inferschema", "mode")}
        strings = StructType([StructField(f"c{i}", StringType()) for i in range(len(names) + 1)])
        reader = spark.read.schema(strings).option("recursiveFileLookup", "true")
        if check_headers(Csv({**given, "header": "false"}).load(reader, path), names, path):
            # Spark's own check, of files that come later too, takes no name that Spark made.
            checked = Csv({**self.options, "enforceSchema": "true"})
            read = checked.load(spark.read.schema(read.schema), path)
        return read, prepare, refused

    def names_remedy(self, names: Sequence[str], wrong: str) -> str:
        wanted = {name.strip().lower(): name for name in wrong.split(", ")}
        for sep, shown in {";": ";", "\t": "\\t", "|": "|"}.items():
            if any(part.strip(' "').lower() in wanted for n in names if sep in n for part in n.split(sep)):
                return f"Its columns have another separator: give --read-option 'sep={shown}'"
        if near := [n for n in names if wanted.get(n.strip().lower(), n) != n]:  # the user's own words
            return f"Perhaps you meant {', '.join(map(repr, near))}"
        return (
            "Its first line names columns: _c0 is one without a name, note2 and note3 are two of one name; "
            "where it names none, give --read-option header=false and name them _c0, _c1 and so on"
        )


def _refuse_accounted(storage: Places, what: str, path: str) -> None:
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
                other = f"Give its name with {option} table to a Spark that has its catalog, or copy its rows"
                raise ConfigError(
                    f"The {what} {path} is {title}, or lies in one: its files by themselves are no table, "
                    "as rows that were deleted or replaced are still in them",
                    got=f"{mark.partition('/')[0]} in {folder}",
                    do=f"Give {option} {name}" if name in FORMATS else f"{other} to plain files first",
                )
