"""Files of text, checked before Spark reads their records: what it would replace, or leave out."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any, ClassVar, Final, Self
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import failing, path_of_url
from dptext_spark.spark.java import java_class
from dptext_spark.spark.versions import metadata
from dptext_spark.tables.fields import Path, pruned, quoted, without
from dptext_spark.tables.formats import quotes
from dptext_spark.tables.formats.digits import (
    CUT,
    RESPELLED,
    ROUNDED,
    JsonReader,
    changed_fields,
    field_name,
    fields_of,
    text_changes,
)
from dptext_spark.tables.formats.files import FileFormat
from dptext_spark.tables.formats.quotes import Fault, Grammar, first_fault
from dptext_spark.tables.source import TableSource
from dptext_spark.tables.storage import Storage, partition_columns

# Options that decide which texts are read, and where they end.
_CHOOSING: Final = (
    *("ignorecorruptfiles", "ignoremissingfiles", "linesep", "modifiedafter", "modifiedbefore"),
    "pathglobfilter",
)
_MODES: Final = ("DROPMALFORMED", "FAILFAST", "PERMISSIVE")
_MALFORMED: Final = "__dptext_malformed"
# What Spark writes by default has milliseconds, and no seconds of an offset, as times before 1900
# have them.
_ALL_DIGITS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXXXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
# What keeps the digits of numbers that become texts, where Spark has it.
_MANY_DIGITS: Final = "numbers with more digits than a double has"
# What doubles are in CSV besides numbers, by the options that name them.
_NO_NUMBERS: Final = (("nanValue", "NaN"), ("positiveInf", "Inf"), ("negativeInf", "-Inf"))
_UNREAD: Final = "unread"
_HALF: Final = re.compile("[\ud800-\udfff]")
_EXACT_TEXTS: Final = "spark.sql.json.enableExactStringParsing"
# Where Java does not know the name that Python gives an encoding.
_OF_JAVA: Final = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "cp932": "windows-31j"}


class RecordFormat(FileFormat):
    """Files of text; a malformed record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log; a ``mode`` that is given is
    used.
    """

    codecs = ("none", "gzip")
    read_always: ClassVar = {"columnNameOfCorruptRecord": _MALFORMED}

    def check_can_read(self, *, has_id: bool, grows: bool) -> None:
        super().check_can_read(has_id=has_id, grows=grows)
        _ = self.encoding
        mode = self.option("mode", "PERMISSIVE")
        if mode.upper() not in _MODES:
            raise ConfigError(
                "Option --read-option mode has a wrong value, which Spark takes for PERMISSIVE",
                allowed=", ".join(_MODES),
                got=repr(mode),
            )

    @property
    def encoding(self) -> str:
        """Return Java's name for the files' encoding, whose lines end in one byte."""
        name = self.option("encoding", "UTF-8")
        with suppress(LookupError, ValueError):  # codecs of other than text; a name with a NUL
            codec = codecs.lookup(name).name
            if codec in _OF_JAVA or "\n".encode(codec) == b"\n":
                return _OF_JAVA.get(codec, codec)
        raise ConfigError(
            "Option --read-option encoding has a wrong value",
            allowed="one that extends ASCII, such as windows-1252, gb18030 or Shift_JIS",
            got=repr(name),
            do="Convert the files to UTF-8",
        )

    def is_on(self, option: str) -> bool:
        """Return whether an option of the reader is ``true``."""
        default = self.read_defaults.get(option, "")
        return self.option(option, default).lower() == "true"

    def texts(self, spark: SparkSession, *, whole: bool = False, ending: str = "") -> DataFrame:
        """Read the files' lines, or ``whole`` files, as Spark reads text: bytes stay as they are.

        Lines end in ``ending``, or in any of CR LF, CR and LF.
        """
        options = self.options_of(_CHOOSING)
        if ending:
            options["lineSep"] = ending
        # Partitions' columns would be in the way.
        reader = spark.read.options(**options).option("recursiveFileLookup", "true")
        return reader.text(Storage(spark).pattern(self.place), wholetext=whole)

    def check_texts(self, spark: SparkSession) -> None:
        """Check in one pass that bytes are letters: Spark would replace others by U+FFFD."""
        value = F.col("value")
        if self.encoding == "UTF-8":  # which may have U+FFFD of its own
            replaced = F.decode(F.encode(value, "UTF-16BE"), "UTF-16BE")
            is_wrong = replaced.cast("binary") != value.cast("binary")
        else:
            is_wrong = F.decode(value.cast("binary"), self.encoding).contains("\ufffd")
        texts = self.texts(spark).where(is_wrong)
        files = texts.select(F.col("_metadata.file_path")).limit(1).collect()
        if files:
            raise InputError(
                f"The input {self.place} has bytes that are not {self.encoding}",
                got=f"some in {unquote(files[0][0]).rpartition('/')[2]}",
                do="Name the encoding of the files, such as --read-option encoding=windows-1252, "
                "or convert them to UTF-8",
            )

    def open(self, spark: SparkSession) -> TableSource:
        source = super().open(spark)
        return replace(source, recheck=partial(self._recheck, spark, source))

    def _recheck(self, spark: SparkSession, source: TableSource) -> None:
        """Check the files again if others came since the table was opened as ``source``."""
        listed = self.load(spark.read.schema(source.read.schema))
        if {*listed.inputFiles()}.difference(source.read.inputFiles()):
            self.check_files(Storage(spark))
            again = super().open(spark)
            for name, error in again.refused.items():
                if name not in source.refused:
                    raise error

    def checked(self, spark: SparkSession) -> Self:
        self.check_texts(spark)
        return self

    def source(self, spark: SparkSession) -> TableSource:
        source = super().source(spark)
        if self.option("mode"):
            return source
        what = f"has records that are not {self.title}, or not of its schema"
        do = (
            "Correct them, or see which --read-option the files need; with --read-option "
            "mode=DROPMALFORMED such records are left out; a file that is no part of the table, by "
            "pathGlobFilter=PATTERN"
        )
        fields = [field for field in source.read.schema if field.name != _MALFORMED]
        if not fields and source.read.schema:
            raise InputError(f"The input {self.place} {what}", do=do)
        marked = StructType([*fields, StructField(_MALFORMED, StringType())])

        def without_malformed(df: DataFrame) -> DataFrame:
            failure = failing(InputError(what, do=do), metadata(df)["file_path"]).cast("boolean")
            is_sound = F.when(F.col(_MALFORMED).isNull(), True).otherwise(failure)
            return df.where(is_sound).drop(_MALFORMED)

        read = self.load(spark.read.schema(marked))
        return replace(source, read=read, prepare=without_malformed)


class Json(RecordFormat):
    """One JSON object on a line; Spark reads all of them once to find columns and types."""

    name = "json"
    title = "JSON"
    option_names = """
        allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers
        allowNumericLeadingZeros allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames
        dateFormat dropFieldIfAllNull enableDateTimeParsingFallback ignoreNullFields inferTimestamp
        lineSep locale mode multiLine prefersDecimal pretty primitivesAsString sortKeys timeFormat
        timestampFormat timestampNTZFormat timeZone writeNonAsciiCharacterAsCodePoint
    """
    # A column of nulls is a column.
    write_defaults: ClassVar = {"ignoreNullFields": "false", **_ALL_DIGITS}

    def source(self, spark: SparkSession) -> TableSource:
        faults = self._faults(spark)
        if "several" in faults:
            raise InputError(
                f"The input {self.place} has JSON values of several lines, or several values in "
                "one record, of which Spark reads the first",
                allowed="one value on each line, or with --read-option multiLine=true one in each "
                "file",
                do="Give --read-option multiLine=true if each file is one array or one object; "
                "else write each value on a line of its own",
            )
        if "half" in faults:
            raise InputError(
                f"The input {self.place} has escapes of half a letter, such as \\ud83d alone, "
                "which Spark replaces",
                do="Correct the program that wrote them",
            )
        source = super().source(spark)
        changes: list[tuple[str, Path]] = []
        for kind in (ROUNDED, RESPELLED, CUT):
            changes += [(kind, path) for path in faults.get(kind, ())]
        fields = changed_fields(source.read.schema, changes)
        if _UNREAD in faults and not self._has_malformed(source):
            fields |= dict.fromkeys(fields_of(source.read.schema, ROUNDED), _UNREAD)
        errors = {path: self._lost_digits(path, kind) for path, kind in fields.items()}
        return _without(source, errors)

    def _faults(self, spark: SparkSession) -> dict[str, set[Path]]:
        """Return faults of JSON values, and the paths of numbers and times that may lose digits."""
        texts = self.texts(spark, whole=self.is_on("multiLine"))
        spells_anew = spark.conf.get(_EXACT_TEXTS, "false") != "true"
        faults = partial(_json_faults, texts=spells_anew, times=self.is_on("inferTimestamp"))
        paths: dict[str, set[Path]] = {}
        for kind, path in texts.mapInArrow(faults, "kind string, path string").distinct().collect():
            paths.setdefault(kind, set()).add(tuple(json.loads(path)))
        return paths

    def _has_malformed(self, source: TableSource) -> bool:
        """Return whether Spark finds a malformed record, which fails with a better message."""
        if self.option("mode"):
            return False
        return bool(source.read.where(quoted(_MALFORMED).isNotNull()).head(1))

    def _lost_digits(self, path: Path, kind: str) -> InputError:
        """Return the error of a field whose values would lose digits."""
        name = field_name(path)
        if kind == CUT:
            return InputError(
                f"Column {name} has timestamps with digits below a microsecond",
                do="Leave out --read-option inferTimestamp: they are strings then",
            )
        if kind == RESPELLED:
            return InputError(
                f"Column {name} has numbers among its strings, which this version of Spark writes "
                "anew",
                do="Take Spark 4, or write these numbers as strings",
            )
        what = _MANY_DIGITS
        if kind == _UNREAD:
            what = "numbers in records that are no strict JSON, so their digits cannot be checked"
        do = "Give --read-option primitivesAsString=true, and numbers are strings"
        if not self.is_on("prefersDecimal"):
            do += "; or prefersDecimal=true, if none has more than 38 digits"
        return InputError(f"Column {name} has {what}", do=do)


def _json_faults(
    batches: Iterable[pa.RecordBatch], *, texts: bool, times: bool
) -> Iterator[pa.RecordBatch]:
    """Yield faults of JSON values, and what may lose digits; runs in Python workers."""
    reader = JsonReader(texts=texts, times=times)
    for batch in batches:
        faults: set[tuple[str, Path]] = set()
        for text in batch.column(0).to_pylist():
            text = text.lstrip("\ufeff \t\r\n")
            try:
                value, end = reader.read(text)
            except (ValueError, RecursionError):
                if text:
                    faults.add((_UNREAD, ()))  # malformed, or in one of Spark's laxer forms
                continue
            faults.update(reader.changes(value))
            if text[end:].strip(" \t\r\n\0"):
                faults.add(("several", ()))
            if "\\ud" in text.lower():
                unescaped = json.dumps(value, ensure_ascii=False, default=str)
                if _HALF.search(unescaped):
                    faults.add(("half", ()))
        rows = [{"kind": kind, "path": json.dumps(path)} for kind, path in faults]
        schema = pa.schema([("kind", pa.string()), ("path", pa.string())])
        yield from pa.Table.from_pylist(rows, schema).to_batches()


def _without(source: TableSource, refused: Mapping[Path, InputError]) -> TableSource:
    """Return a table without some fields, which are refused by name."""
    if not refused:
        return source

    def prepare(df: DataFrame) -> DataFrame:
        prepared = source.prepare(df)
        columns = []
        for field in without(prepared.schema, [*refused]) or StructType():
            full_type = prepared.schema[field.name].dataType
            column = pruned(quoted(field.name), full_type, field.dataType)
            columns.append(column.alias(field.name))
        return prepared.select(*columns)

    names = {field_name(path): error for path, error in refused.items()}
    return replace(source, prepare=prepare, refused=names)


class Csv(RecordFormat):
    """CSV as in RFC 4180 and pandas: names in the first line, quotes doubled, lines inside quotes.

    Values are strings, unless ``inferSchema`` says otherwise. A value without quotes and letters is
    null.
    """

    name = "csv"
    title = "CSV"
    option_names = """
        charToEscapeQuoteEscaping comment dateFormat delimiter emptyValue
        enableDateTimeParsingFallback enforceSchema escape escapeQuotes extension header
        ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep locale
        maxCharsPerColumn maxColumns mode multiLine nanValue negativeInf nullValue positiveInf
        preferDate quote quoteAll samplingRatio sep timeFormat timestampFormat timestampNTZFormat
        timeZone
    """
    # What is written in another encoding than UTF-8 would have question marks in place of letters.
    read_option_names = "encoding"
    cannot_hold = ("array", "map", "struct", "binary")
    finds_by_name = False
    names_remedy = (
        "Where values have another separator, give --read-option 'sep=;'. The first line names "
        "columns: _c0 is one without a name, note2 and note3 are two of one name; where it names "
        "none, give --read-option header=false and name them _c0, _c1 and so on"
    )
    read_defaults: ClassVar = {
        "header": "true",
        # With it a file whose columns lie in another order is read all the same.
        "enforceSchema": "false",
        "multiLine": "true",
        "nullValue": "\x00",  # none that occurs: by default an empty string in quotes is null too
    }
    write_defaults: ClassVar = {
        "header": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **_ALL_DIGITS,
    }

    @property
    def reader_options(self) -> dict[str, str]:
        defaults_and_options = super().reader_options.items()
        options = {
            name: value for name, value in defaults_and_options if name.lower() != "encoding"
        }
        return {"escape": self._quote, **options, "encoding": self.encoding}

    @property
    def writer_options(self) -> dict[str, str]:
        # What stands for an empty text is not null.
        return {"escape": self._quote, "emptyValue": 2 * self._quote, **super().writer_options}

    def _writer(self, result: DataFrame) -> DataFrameWriter:
        """Write no line breaks inside values, which Spark writes as the files' line ends."""
        has_break = F.lit(False)
        for column in result.schema:
            if isinstance(column.dataType, StringType):
                has_break |= F.coalesce(quoted(column.name).contains("\n"), F.lit(False))
        if self.option("lineSep", "\n") != "\n":
            error = InputError(
                "Values have line breaks, which Spark would write as --write-option lineSep",
                do="Leave that option out",
            )
            result = result.where(F.when(has_break, failing(error).cast("boolean")).otherwise(True))
        return super()._writer(result)

    @property
    def _quote(self) -> str:
        """Return the quote, which is doubled in quoted values unless another escape is chosen."""
        return self.option("quote", '"')

    def checked(self, spark: SparkSession) -> Self:
        table = super().checked(spark)
        ending = self._check_quotes(spark)
        if ending is None:
            return table
        return replace(table, options={**table.options, "lineSep": ending})

    def _check_quotes(self, spark: SparkSession) -> str | None:
        """Check that Spark reads values as quotes have it; an error has the file and line.

        Returns:
            How lines end, if Spark must be told so as to keep such line ends inside quotes.
        """
        grammar = self._grammar(spark)
        splits = self._lines(spark, grammar).mapInArrow(grammar.splits, quotes.SPLITS)
        outside = F.col("outside")
        has_fault = outside["fault"].isNotNull() | outside["opened"].isNotNull()
        is_suspect = has_fault | outside["changed"].isNotNull()
        parts = F.collect_list(F.struct("*")).alias("splits")
        files = splits.groupBy("file").agg(parts, F.max(is_suspect).alias("is_suspect"))
        changed: tuple[str, Fault] | None = None
        for row in files.where("is_suspect").orderBy("file").toLocalIterator():
            fault, change = first_fault(row["splits"])
            if fault:
                raise self._misread(row["file"], fault)
            if change and changed is None:
                changed = row["file"], change
        if changed is None:
            return None
        endings = splits.where("start = 0").select("ending").distinct().collect()
        if len(endings) > 1:
            raise self._misread(*changed)
        return str(endings[0]["ending"])

    def _grammar(self, spark: SparkSession) -> Grammar:
        """Return how the reader's options cut lines into values."""
        jvm: Any = spark.sparkContext._jvm
        csv = java_class(jvm, "org.apache.spark.sql.catalyst.csv.CSVExprUtils")
        separator = self.option("sep", self.option("delimiter", ","))
        escape = self.option("escape", self._quote)
        escape_escape = self.option("charToEscapeQuoteEscaping")
        if not escape_escape and escape != self._quote:
            escape_escape = escape
        return Grammar(
            separator=csv.toDelimiterStr(separator),
            quote=self._quote,
            escape=escape,
            escape_escape=escape_escape,
            comment=self.option("comment"),
            blanks_before=self.is_on("ignoreLeadingWhiteSpace"),
            blanks_after=self.is_on("ignoreTrailingWhiteSpace"),
            spans_lines=self.is_on("multiLine"),
            finds_ends=self.is_on("multiLine") and not self.option("lineSep"),
        )

    def _lines(self, spark: SparkSession, grammar: Grammar) -> DataFrame:
        """Read what :meth:`Grammar.splits` takes."""
        texts = self.texts(spark, ending="\n" if grammar.finds_ends else "")
        value = F.col("value")
        if self.encoding != "UTF-8":
            value = F.decode(value.cast("binary"), self.encoding)
        marks = {grammar.quote, grammar.escape_escape, "\0"} - {""}
        has_marks = reduce(or_, [value.contains(mark) for mark in sorted(marks)])
        has_cr_inside = F.instr(value, "\r").between(1, F.length(value) - 1)
        place = F.col("_metadata")
        columns = (
            place["file_path"],
            place["file_block_start"],
            F.when(has_marks | has_cr_inside, value),
            value.endswith("\r"),
        )
        return texts.select(*columns).toDF(*quotes.LINE)

    def _misread(self, file: str, fault: Fault) -> InputError:
        """Return the error of a line that Spark would read otherwise than it is written."""
        path = path_of_url(file)
        line = f"line {fault.line}"
        match fault.kind:
            case quotes.OPEN:
                return InputError(
                    f"The file {path} has records that are not {self.title}: a value begins with a "
                    "quote and does not end with one",
                    allowed="quoted values that end with a quote, before a separator or the end of "
                    "the line",
                    got=f"a value that begins in {line}",
                    do="Close the value, and double the quotes inside it; where quotes are letters "
                    "like others, give --read-option quote=",
                )
            case quotes.DROPPED:
                return InputError(
                    f"The file {path} has characters that Spark would drop: NUL, or one that "
                    "charToEscapeQuoteEscaping names, inside quotes",
                    got=line,
                    do="Correct the program that wrote them",
                )
        return InputError(
            f"The file {path} has line ends inside quotes that Spark would change",
            allowed="one kind of line ends in all files, CR LF or LF, if quoted values have CR LF "
            "or CR",
            got=line,
            do="Give files of each kind to a run of their own, with --read-option "
            "pathGlobFilter=PATTERN",
        )

    def source(self, spark: SparkSession) -> TableSource:
        source = self._with_header(spark, super().source(spark))
        if not self.is_on("inferSchema"):
            return source
        return _without(source, self._lost_digits(spark, source.read.schema))

    def _lost_digits(self, spark: SparkSession, schema: StructType) -> dict[Path, InputError]:
        """Return errors of columns whose values have more digits than their types, by path."""
        kinds: dict[str, str] = {}
        for kind in (ROUNDED, CUT):
            kinds |= dict.fromkeys(map(field_name, fields_of(schema, kind)), kind)
        if not kinds:
            return {}
        fields = [StructField(f.name, StringType()) for f in schema if f.name != _MALFORMED]
        texts = self.load(spark.read.schema(StructType(fields))).select(*map(quoted, kinds))
        no_numbers = [self.option(*option) for option in _NO_NUMBERS]
        changed = texts.mapInArrow(text_changes([*kinds.items()], no_numbers), "name string")
        names = {name for (name,) in changed.distinct().collect()}
        errors: dict[Path, InputError] = {}
        for name, kind in kinds.items():
            if name in names:
                what = _MANY_DIGITS
                if kind == CUT:
                    what = "timestamps with digits below a microsecond"
                errors[(name,)] = InputError(
                    f"Column {name} has {what}",
                    do="Leave out --read-option inferSchema: values are strings then, as they are "
                    "written",
                )
        return errors

    def _with_header(self, spark: SparkSession, source: TableSource) -> TableSource:
        """Check that each file begins with one header; return a source that checks later files."""
        unnamed = (_MALFORMED, *partition_columns(source.read))
        names = [name for name in source.read.columns if name not in unnamed]
        is_enforced = self.option("enforceSchema").lower() == "true"
        has_header = self.option("header", "true").lower() == "true"
        if is_enforced or not has_header or not names:
            return source
        strings = StructType([StructField(f"c{i}", StringType()) for i in range(len(names) + 1)])
        reader = spark.read.schema(strings).option("recursiveFileLookup", "true")
        options = self.options_without("header", "inferschema", "mode")
        headless = replace(self, options={**options, "header": "false"})
        if _check_headers(headless.load(reader), names, self.place):
            # Spark's own check, of files that come later too, takes no name that Spark made.
            checked = replace(self, options={**self.options, "enforceSchema": "true"})
            source = replace(source, read=checked.load(spark.read.schema(source.read.schema)))
        return source


def _check_headers(records: DataFrame, names: Sequence[str], place: str) -> bool:
    """Check that files begin with a table's header, and do not have it among their rows again.

    ``records`` are all of the files, headers too, as strings, with a column more than there are
    ``names``: those that Spark gave, which numbers what has no name, or one of several.

    Returns:
        Whether Spark numbered any.
    """
    is_header = [F.isnull(records.columns[-1])]
    has_numbered = False
    for i, forms in enumerate(_header_forms(names)):
        has_numbered |= len(forms) > 1
        value = F.regexp_replace(F.coalesce(records.columns[i], F.lit("")), "^\ufeff", "")
        is_header.append(value.isin(*forms) | F.lower(value).isin(*map(str.lower, forms)))
    file = F.col("_metadata")
    position = F.when(file["file_block_start"] == 0, F.monotonically_increasing_id())
    lines = records.select(F.least(*is_header), position, file["file_path"])
    files = (
        lines.toDF("is_header", "position", "file")
        .groupBy("file")
        .agg(
            F.min_by("is_header", "position").alias("begins"),
            F.count_if(F.col("is_header")).alias("headers"),
        )
    )
    wrong_files = files.where("not begins or headers > 1").orderBy("begins", "file")
    for path, _, count in wrong_files.limit(1).collect():
        raise InputError(
            f"The input {place} has a file that does not begin with the header of others, or has "
            "it twice",
            allowed="one header, of the same names in the same order, in the first line of each "
            "file",
            got=f"{unquote(path).rpartition('/')[2]}, which has it {count} times",
            do="Write the files so, or give each kind to a run of its own; where none has a "
            "header, give --read-option header=false",
        )
    return has_numbered


def _header_forms(names: Sequence[str]) -> Iterator[set[str]]:
    """Yield how a file may write each name that Spark gave: as it is, or as before its number."""
    stems = [name.removesuffix(str(i)) for i, name in enumerate(names)]
    numbered: Counter[str] = Counter()
    for name, stem in zip(names, stems, strict=True):
        if stem != name:
            numbered[stem.lower()] += 1
    for i, (name, stem) in enumerate(zip(names, stems, strict=True)):
        forms = {name}
        if name == f"_c{i}":
            forms.add("")
        if stem != name and numbered[stem.lower()] > 1:
            forms.add(stem)
        yield forms
