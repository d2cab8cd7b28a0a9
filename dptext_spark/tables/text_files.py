"""Files of text, looked at before Spark reads their records: what it would replace, or leave out."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.errors import ConfigError, InputError

SETTINGS: Final = {
    # Spark 4 knows seven encodings without the first, and fails where it decodes without the second.
    "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.codingErrorAction": "true",
}
# Where Java does not know the name that Python gives an encoding.
_OF_JAVA: Final = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "cp932": "windows-31j"}


def java_encoding(name: str) -> str:
    """Give a name, which Java knows, of an encoding in whatever spelling, whose lines end in one byte."""
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


def check_encoding(texts: DataFrame, encoding: str, place: str) -> None:
    """Refuse bytes that are no letters of an encoding, in one pass: Spark would replace them by U+FFFD.

    ``texts`` are lines of files, or whole files, as Spark reads them as text: it keeps their bytes.
    """
    value = F.col("value")
    if encoding == "UTF-8":  # which may have U+FFFD of its own
        replaced = F.decode(F.encode(value, "UTF-16BE"), "UTF-16BE")
        wrong = replaced.cast("binary") != value.cast("binary")
    else:
        wrong = F.decode(value.cast("binary"), encoding).contains("\ufffd")
    if files := texts.where(wrong).select(F.col("_metadata.file_path")).limit(1).collect():
        raise InputError(
            f"The input {place} has bytes that are not {encoding}",
            got=f"some in {unquote(files[0][0]).rpartition('/')[2]}",
            do="Name the encoding of the files, such as --read-option encoding=windows-1252, or convert them "
            "to UTF-8",
        )


def check_headers(records: DataFrame, names: Sequence[str], place: str) -> bool:
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


def check_json(texts: DataFrame, place: str) -> None:
    """Refuse JSON that Spark would read, or replace, in part; ``texts`` are lines or whole files."""
    faults = {kind for (kind,) in texts.mapInArrow(_look, "kind string").distinct().collect()}
    if "several" in faults:
        raise InputError(
            f"The input {place} has JSON values of several lines, or several values in one record, of which "
            "Spark reads the first",
            allowed="one value on each line, or with --read-option multiLine=true one in each file",
            do="Give --read-option multiLine=true if each file is one array or one object; else write each "
            "value on a line of its own",
        )
    if faults:
        raise InputError(
            f"The input {place} has escapes of half a letter, such as \\ud83d alone, which Spark replaces",
            do="Correct the program that wrote them",
        )


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
