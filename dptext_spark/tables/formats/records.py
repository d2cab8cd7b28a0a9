"""Files of text, looked at before Spark reads their records: what it would replace, or leave out."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import failing
from dptext_spark.spark.versions import metadata
from dptext_spark.tables.formats.files import FileFormat
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import Storage, partition_columns

# Options that decide which texts are read, and where they end.
_CHOOSING: Final = (
    *("ignorecorruptfiles", "ignoremissingfiles", "linesep", "modifiedafter", "modifiedbefore"),
    "pathglobfilter",
)
_MODES: Final = ("DROPMALFORMED", "FAILFAST", "PERMISSIVE")
_MALFORMED: Final = "__dptext_malformed"
# Where Java does not know the name that Python gives an encoding.
_OF_JAVA: Final = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "cp932": "windows-31j"}


class RecordFormat(FileFormat):
    """Files of text, whose records may be malformed: one such record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log; a ``mode`` that is given is used.
    """

    codecs = ("none", "gzip")
    read_always: ClassVar = {"columnNameOfCorruptRecord": _MALFORMED}

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        super().check_input(has_id=has_id, grows=grows)
        _ = self.encoding
        if (mode := self.option("mode", "PERMISSIVE")).upper() not in _MODES:
            raise ConfigError(
                "Option --read-option mode has a wrong value, which Spark takes for PERMISSIVE",
                allowed=", ".join(_MODES),
                got=repr(mode),
            )

    @property
    def encoding(self) -> str:
        """A name that Java knows of the files' encoding, whose lines end in one byte."""
        name = self.option("encoding", "UTF-8")
        with suppress(LookupError, ValueError):  # codecs of other than text; a name with a NUL
            known = codecs.lookup(name).name
            if known in _OF_JAVA or "\n".encode(known) == b"\n":
                return _OF_JAVA.get(known, known)
        raise ConfigError(
            "Option --read-option encoding has a wrong value",
            allowed="one that extends ASCII, such as windows-1252, gb18030 or Shift_JIS",
            got=repr(name),
            do="Convert the files to UTF-8",
        )

    def texts(self, spark: SparkSession, *, whole: bool = False) -> DataFrame:
        """Give the files' lines, or ``whole`` files, as Spark reads text: bytes stay as they are."""
        chosen = {name: value for name, value in self.options.items() if name.lower() in _CHOOSING}
        # Partitions' columns would be in the way.
        reader = spark.read.options(**chosen).option("recursiveFileLookup", "true")
        return reader.text(Storage(spark).pattern(self.place), wholetext=whole)

    def check_texts(self, spark: SparkSession) -> None:
        """Refuse bytes that are no letters, in one pass: Spark would replace them by U+FFFD."""
        texts, value = self.texts(spark), F.col("value")
        if self.encoding == "UTF-8":  # which may have U+FFFD of its own
            replaced = F.decode(F.encode(value, "UTF-16BE"), "UTF-16BE")
            wrong = replaced.cast("binary") != value.cast("binary")
        else:
            wrong = F.decode(value.cast("binary"), self.encoding).contains("\ufffd")
        if files := texts.where(wrong).select(F.col("_metadata.file_path")).limit(1).collect():
            raise InputError(
                f"The input {self.place} has bytes that are not {self.encoding}",
                got=f"some in {unquote(files[0][0]).rpartition('/')[2]}",
                do="Name the encoding of the files, such as --read-option encoding=windows-1252, or convert "
                "them to UTF-8",
            )

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

        def sound(df: DataFrame) -> DataFrame:
            fails = failing(InputError(what, do=do), metadata(df)["file_path"]).cast("boolean")
            return df.where(F.when(F.col(_MALFORMED).isNull(), True).otherwise(fails)).drop(_MALFORMED)

        return replace(source, read=self.load(spark.read.schema(marked)), prepare=sound)


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
        """Refuse JSON that Spark would read, or replace, in part, too."""
        super().check_texts(spark)
        texts = self.texts(spark, whole=self.option("multiLine").lower() == "true")
        faults = {kind for (kind,) in texts.mapInArrow(_faults, "kind string").distinct().collect()}
        if "several" in faults:
            raise InputError(
                f"The input {self.place} has JSON values of several lines, or several values in one record, "
                "of which Spark reads the first",
                allowed="one value on each line, or with --read-option multiLine=true one in each file",
                do="Give --read-option multiLine=true if each file is one array or one object; else write "
                "each value on a line of its own",
            )
        if faults:
            raise InputError(
                f"The input {self.place} has escapes of half a letter, such as \\ud83d alone, which Spark "
                "replaces",
                do="Correct the program that wrote them",
            )


def _faults(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find faults of JSON values; runs in Python workers."""
    decoder = json.JSONDecoder()
    for batch in batches:
        faults = set[str]()
        for text in batch.column(0).to_pylist():
            text = text.lstrip("\ufeff \t\r\n")
            try:
                value, end = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                continue  # an empty line, or a malformed record, which Spark names
            if text[end:].strip(" \t\r\n\0"):
                faults.add("several")
            if "\\ud" in text.lower() and re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False)):
                faults.add("half")
        yield pa.RecordBatch.from_pydict({"kind": pa.array(sorted(faults), pa.string())})


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
    # What is written in another encoding than UTF-8 would have question marks in place of letters.
    read_alone = "encoding"
    cannot_hold = ("array", "map", "struct", "binary")
    finds_by_name = False
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

    @property
    def reader_options(self) -> dict[str, str]:
        given = {name: value for name, value in super().reader_options.items() if name.lower() != "encoding"}
        return {**given, "encoding": self.encoding}

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
        if _check_headers(headless.load(reader), names, self.place):
            # Spark's own check, of files that come later too, takes no name that Spark made.
            checked = replace(self, options={**self.options, "enforceSchema": "true"})
            source = replace(source, read=checked.load(spark.read.schema(source.read.schema)))
        return source


def _check_headers(records: DataFrame, names: Sequence[str], place: str) -> bool:
    """Refuse files that do not begin with a table's header, or have it among their rows again.

    ``records`` are all of the files, headers too, as strings, with a column more than there are ``names``:
    those that Spark gave, which numbers what has no name, or one of several. Says whether it did.
    """
    stems, same = [name.removesuffix(str(i)) for i, name in enumerate(names)], [F.isnull(records.columns[-1])]
    numbered, made = [stem.lower() for name, stem in zip(names, stems, strict=True) if stem != name], False
    for i, (name, stem) in enumerate(zip(names, stems, strict=True)):
        repeated = stem != name and numbered.count(stem.lower()) > 1
        forms = {name, *([""] if name == f"_c{i}" else []), *([stem] if repeated else [])}
        made |= len(forms) > 1
        own = F.regexp_replace(F.coalesce(records.columns[i], F.lit("")), "^\ufeff", "")
        same.append(own.isin(*forms) | F.lower(own).isin(*map(str.lower, forms)))
    metadata, whole = F.col("_metadata"), F.least(*same).alias("same")
    at = F.when(metadata["file_block_start"] == 0, F.monotonically_increasing_id()).alias("at")
    lines = records.select(whole, at, metadata["file_path"].alias("file"))
    begins, headers = F.min_by("same", "at").alias("begins"), F.count_if(F.col("same")).alias("headers")
    files = lines.groupBy("file").agg(begins, headers).where("not begins or headers > 1")
    for file, _, count in files.orderBy("begins", "file").limit(1).collect():
        raise InputError(
            f"The input {place} has a file that does not begin with the header of others, or has it twice",
            allowed="one header, of the same names in the same order, in the first line of each file",
            got=f"{unquote(file).rpartition('/')[2]}, which has it {count} times",
            do="Write the files so, or give each kind to a run of its own; where none has a header, give "
            "--read-option header=false",
        )
    return made
