"""Files of text, looked at before Spark reads their records: what it would replace, or leave out."""

from __future__ import annotations

import codecs
import json
import re
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
from dptext_spark.spark.failures import failing, plain_path
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
from dptext_spark.tables.source import Source
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
    """Files of text, whose records may be malformed: one such record fails the run, and is not quoted.

    Spark's own way to fail, ``mode=FAILFAST``, quotes it in the log; a ``mode`` that is given is
    used.
    """

    codecs = ("none", "gzip")
    read_always: ClassVar = {"columnNameOfCorruptRecord": _MALFORMED}

    def check_can_read(self, *, has_id: bool, grows: bool) -> None:
        super().check_can_read(has_id=has_id, grows=grows)
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

    def is_on(self, option: str) -> bool:
        """Say whether an option of the reader is ``true``."""
        default = self.read_defaults.get(option, "")
        return self.option(option, default).lower() == "true"

    def texts(self, spark: SparkSession, *, whole: bool = False, ending: str = "") -> DataFrame:
        """Read the files' lines, or ``whole`` files, as Spark reads text: bytes stay as they are.

        Lines end in ``ending``, or in any of CR LF, CR and LF.
        """
        chosen = {name: value for name, value in self.options.items() if name.lower() in _CHOOSING}
        if ending:
            chosen["lineSep"] = ending
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

    def open(self, spark: SparkSession) -> Source:
        source = super().open(spark)
        return replace(source, recheck=partial(self._recheck, spark, source))

    def _recheck(self, spark: SparkSession, source: Source) -> None:
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

    def source(self, spark: SparkSession) -> Source:
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
            return df.where(F.when(F.col(_MALFORMED).isNull(), True).otherwise(fails)).drop(
                _MALFORMED
            )

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
    # A column of nulls is a column.
    write_defaults: ClassVar = {"ignoreNullFields": "false", **_ALL_DIGITS}

    def source(self, spark: SparkSession) -> Source:
        faults = self._faults(spark)
        if "several" in faults:
            raise InputError(
                f"The input {self.place} has JSON values of several lines, or several values in one record, "
                "of which Spark reads the first",
                allowed="one value on each line, or with --read-option multiLine=true one in each file",
                do="Give --read-option multiLine=true if each file is one array or one object; else write "
                "each value on a line of its own",
            )
        if "half" in faults:
            raise InputError(
                f"The input {self.place} has escapes of half a letter, such as \\ud83d alone, which Spark "
                "replaces",
                do="Correct the program that wrote them",
            )
        source = super().source(spark)
        changes = [
            (kind, path) for kind in (ROUNDED, RESPELLED, CUT) for path in faults.get(kind, ())
        ]
        changed = changed_fields(source.read.schema, changes)
        if _UNREAD in faults and not self._has_malformed(source):
            changed |= dict.fromkeys(fields_of(source.read.schema, ROUNDED), _UNREAD)
        return _without(
            source, {path: self._lost_digits(path, kind) for path, kind in changed.items()}
        )

    def _faults(self, spark: SparkSession) -> dict[str, set[Path]]:
        """Find what is wrong with JSON values, and the paths of numbers and times that may lose digits."""
        texts = self.texts(spark, whole=self.is_on("multiLine"))
        spells_anew = spark.conf.get(_EXACT_TEXTS, "false") != "true"
        faults = partial(_json_faults, texts=spells_anew, times=self.is_on("inferTimestamp"))
        paths: dict[str, set[Path]] = {}
        for kind, path in texts.mapInArrow(faults, "kind string, path string").distinct().collect():
            paths.setdefault(kind, set()).add(tuple(json.loads(path)))
        return paths

    def _has_malformed(self, source: Source) -> bool:
        """Say whether Spark itself finds a malformed record, which fails the run with a better message."""
        if self.option("mode"):
            return False
        return bool(source.read.where(quoted(_MALFORMED).isNotNull()).head(1))

    def _lost_digits(self, path: Path, kind: str) -> InputError:
        """Make the error of a field whose values would lose digits."""
        name = field_name(path)
        if kind == CUT:
            return InputError(
                f"Column {name} has timestamps with digits below a microsecond",
                do="Leave out --read-option inferTimestamp: they are strings then",
            )
        if kind == RESPELLED:
            return InputError(
                f"Column {name} has numbers among its strings, which this version of Spark writes anew",
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
    """Find faults of JSON values, and what may lose digits; runs in Python workers."""
    reader = JsonReader(texts=texts, times=times)
    for batch in batches:
        faults = set[tuple[str, Path]]()
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
            if "\\ud" in text.lower() and _HALF.search(
                json.dumps(value, ensure_ascii=False, default=str)
            ):
                faults.add(("half", ()))
        rows = [{"kind": kind, "path": json.dumps(path)} for kind, path in faults]
        schema = pa.schema([("kind", pa.string()), ("path", pa.string())])
        yield from pa.Table.from_pylist(rows, schema).to_batches()


def _without(source: Source, refused: Mapping[Path, InputError]) -> Source:
    """Leave fields out of a table, and refuse them by name."""
    if not refused:
        return source

    def prepare(df: DataFrame) -> DataFrame:
        prepared = source.prepare(df)
        kept = without(prepared.schema, [*refused]) or StructType()
        columns = [
            pruned(quoted(f.name), prepared.schema[f.name].dataType, f.dataType) for f in kept
        ]
        return prepared.select(*(c.alias(f.name) for c, f in zip(columns, kept, strict=True)))

    names = {field_name(path): error for path, error in refused.items()}
    return replace(source, prepare=prepare, refused=names)


class Csv(RecordFormat):
    """CSV as RFC 4180 and pandas have it: names in the first line, quotes doubled, lines inside quotes.

    Values are strings, unless ``inferSchema`` says otherwise. A value without quotes and letters is
    null.
    """

    name = "csv"
    title = "CSV"
    known = """
        charToEscapeQuoteEscaping comment dateFormat delimiter emptyValue enableDateTimeParsingFallback
        enforceSchema escape escapeQuotes extension header ignoreLeadingWhiteSpace
        ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep locale maxCharsPerColumn maxColumns
        mode multiLine nanValue negativeInf nullValue positiveInf preferDate quote quoteAll samplingRatio
        sep timeFormat timestampFormat timestampNTZFormat timeZone
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
        given = {
            name: value
            for name, value in super().reader_options.items()
            if name.lower() != "encoding"
        }
        return {"escape": self._quote, **given, "encoding": self.encoding}

    @property
    def writer_options(self) -> dict[str, str]:
        # What stands for an empty text is not null.
        return {"escape": self._quote, "emptyValue": 2 * self._quote, **super().writer_options}

    def _writer(self, result: DataFrame) -> DataFrameWriter:
        """Fail the run at line breaks inside values, which Spark writes as the files' line ends."""
        strings = [f.name for f in result.schema if isinstance(f.dataType, StringType)]
        if self.option("lineSep", "\n") != "\n" and strings:
            has_break = reduce(
                or_, [F.coalesce(quoted(n).contains("\n"), F.lit(False)) for n in strings]
            )
            error = InputError(
                "Values have line breaks, which Spark would write as --write-option lineSep",
                do="Leave that option out",
            )
            result = result.where(F.when(has_break, failing(error).cast("boolean")).otherwise(True))
        return super()._writer(result)

    @property
    def _quote(self) -> str:
        """The quote, which is doubled inside quoted values unless another escape is given."""
        return self.option("quote", '"')

    def checked(self, spark: SparkSession) -> Self:
        table = super().checked(spark)
        ending = self._check_quotes(spark)
        if ending is None:
            return table
        return replace(table, options={**table.options, "lineSep": ending})

    def _check_quotes(self, spark: SparkSession) -> str | None:
        """Refuse values that Spark would read otherwise than quotes have it, by their file and line.

        Returns:
            How lines end, if Spark must be told so as to keep such line ends inside quotes.
        """
        grammar = self._grammar(spark)
        splits = self._lines(spark, grammar).mapInArrow(grammar.splits, quotes.SPLITS)
        outside = F.col("outside")
        is_suspect = [outside[name].isNotNull() for name in ("fault", "opened", "changed")]
        parts = F.collect_list(F.struct("*")).alias("splits")
        files = splits.groupBy("file").agg(
            parts, F.max(reduce(or_, is_suspect)).alias("is_suspect")
        )
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
        separator = self.option("sep", self.option("delimiter", ","))
        escape = self.option("escape", self._quote)
        over = self.option("charToEscapeQuoteEscaping")
        return Grammar(
            separator=jvm.org.apache.spark.sql.catalyst.csv.CSVExprUtils.toDelimiterStr(separator),
            quote=self._quote,
            escape=escape,
            escape_escape=over or ("" if escape == self._quote else escape),
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
        return texts.select(*(c.alias(name) for c, name in zip(columns, quotes.LINE, strict=True)))

    def _misread(self, file: str, fault: Fault) -> InputError:
        """Make the error of a line that Spark would read otherwise than it is written."""
        path = plain_path(file)
        line = f"line {fault.line}"
        match fault.kind:
            case quotes.OPEN:
                return InputError(
                    f"The file {path} has records that are not {self.title}: a value begins with a quote and "
                    "does not end with one",
                    allowed="quoted values that end with a quote, before a separator or the end of the line",
                    got=f"a value that begins in {line}",
                    do="Close the value, and double the quotes inside it; where quotes are letters like "
                    "others, give --read-option quote=",
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
            allowed="one kind of line ends in all files, CR LF or LF, if quoted values have CR LF or CR",
            got=line,
            do="Give files of each kind to a run of their own, with --read-option pathGlobFilter=PATTERN",
        )

    def source(self, spark: SparkSession) -> Source:
        source = self._with_header(spark, super().source(spark))
        if not self.is_on("inferSchema"):
            return source
        return _without(source, self._lost_digits(spark, source.read.schema))

    def _lost_digits(self, spark: SparkSession, schema: StructType) -> dict[Path, InputError]:
        """Find columns of numbers and times whose values have more digits than the types that Spark found."""
        kinds = [(path, kind) for kind in (ROUNDED, CUT) for path in fields_of(schema, kind)]
        if not kinds:
            return {}
        strings = StructType(
            [StructField(f.name, StringType()) for f in schema if f.name != _MALFORMED]
        )
        texts = self.load(spark.read.schema(strings)).select(
            *(quoted(str(name)) for (name,), _ in kinds)
        )
        spared = [self.option(*option) for option in _NO_NUMBERS]
        changed = texts.mapInArrow(
            text_changes([(str(n), k) for (n,), k in kinds], spared), "name string"
        )
        names = {name for (name,) in changed.distinct().collect()}
        errors: dict[Path, InputError] = {}
        for (name,), kind in kinds:
            if name in names:
                what = "timestamps with digits below a microsecond" if kind == CUT else _MANY_DIGITS
                do = "Leave out --read-option inferSchema: values are strings then, as they are written"
                errors[(name,)] = InputError(f"Column {name} has {what}", do=do)
        return errors

    def _with_header(self, spark: SparkSession, source: Source) -> Source:
        """Check that each file begins with one header; return a source that checks files that come later."""
        names = [
            n for n in source.read.columns if n not in (_MALFORMED, *partition_columns(source.read))
        ]
        own = self.option("enforceSchema").lower() == "true"
        if own or self.option("header", "true").lower() != "true" or not names:
            return source
        given = {
            n: v
            for n, v in self.options.items()
            if n.lower() not in ("header", "inferschema", "mode")
        }
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

    ``records`` are all of the files, headers too, as strings, with a column more than there are
    ``names``: those that Spark gave, which numbers what has no name, or one of several. Says
    whether it did.
    """
    stems, same = (
        [name.removesuffix(str(i)) for i, name in enumerate(names)],
        [F.isnull(records.columns[-1])],
    )
    numbered, made = (
        [stem.lower() for name, stem in zip(names, stems, strict=True) if stem != name],
        False,
    )
    for i, (name, stem) in enumerate(zip(names, stems, strict=True)):
        repeated = stem != name and numbered.count(stem.lower()) > 1
        forms = {name, *([""] if name == f"_c{i}" else []), *([stem] if repeated else [])}
        made |= len(forms) > 1
        own = F.regexp_replace(F.coalesce(records.columns[i], F.lit("")), "^\ufeff", "")
        same.append(own.isin(*forms) | F.lower(own).isin(*map(str.lower, forms)))
    metadata, whole = F.col("_metadata"), F.least(*same).alias("same")
    at = F.when(metadata["file_block_start"] == 0, F.monotonically_increasing_id()).alias("at")
    lines = records.select(whole, at, metadata["file_path"].alias("file"))
    begins, headers = (
        F.min_by("same", "at").alias("begins"),
        F.count_if(F.col("same")).alias("headers"),
    )
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
