"""Parquet files, also those with types that Spark has not, or with several types of one column.

Spark merges the schemas of all files. Where it cannot, the files' footers say why: timestamps in
nanoseconds are read as integers and become microseconds, a column without values in some file is
null there, the wider of two numbers holds both. Any other such column is left out, and refused by
name where a run asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dptext_spark.errors import InputError
from dptext_spark.parsing import json_value
from dptext_spark.spark.failures import condition, failing, path_of_url, two_types
from dptext_spark.tables.columns import TableColumns, absent_columns
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.files import MERGED, FileFormat
from dptext_spark.tables.formats.format import PARQUET_CODECS
from dptext_spark.tables.source import NANOS_AS_LONG, TableSource, setting
from dptext_spark.tables.storage import (
    LocalFiles,
    Storage,
    local_path,
    partition_columns,
    table_files,
)

# What Spark says of files whose columns have no type in common, or one that it has not.
_TYPES: Final = ("CANNOT_MERGE_SCHEMAS", "PARQUET_TYPE_", "UNSUPPORTED_TIME_TYPE")
_READERS: Final = 16
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_SIGNED: Final[dict[Any, Any]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
}
_BINARY_AS_STRING: Final = "spark.sql.parquet.binaryAsString"
_WIDER: Final = (
    ["tinyint", "smallint", "int", "bigint"],
    ["tinyint", "smallint", "int", "double"],
    ["float", "double"],
    ["date", "timestamp_ntz"],
)
_NANOS: Final = "timestamp[ns"
_NO_VALUES: Final = "void"
_NEVER_EMPTY: Final = ("array", "map", "struct", "timestamp")
"""Types for which no reader of Spark's takes a column without values."""


class _Type(NamedTuple):
    """A column's type in a file: Spark's, if it has one, and its name; nanoseconds are integers."""

    spark: DataType | None
    name: str


class Parquet(FileFormat):
    """Parquet files, whose rows Spark numbers."""

    name = "parquet"
    title = "Parquet"
    has_positions = True
    option_names = "datetimeRebaseMode int96RebaseMode mergeSchema"
    read_always = MERGED
    codecs = PARQUET_CODECS

    def source(self, spark: SparkSession) -> TableSource:
        storage = Storage(spark)
        try:
            with setting(spark, NANOS_AS_LONG, "false"):
                source = super().source(spark)
            # The first file may have a column without values and type, which Spark takes for
            # integers.
            if {"int", _NO_VALUES}.isdisjoint(dict(source.read.dtypes).values()):
                return source
            first = _types(storage, _SIGNED, min(source.read.inputFiles()))
            if not any(kind.name == _NO_VALUES for kind in first.values()):
                return source
        except (PySparkException, Py4JJavaError) as error:
            if not condition(error).startswith(_TYPES):
                raise
        return self._merged(storage, self.load(spark.read.schema(StructType())))

    def _merged(self, storage: Storage, listed: DataFrame) -> TableSource:
        """Return the columns that a frame's files have together, without those of their folders."""
        spark = listed.sparkSession
        partitions = {*map(str.lower, partition_columns(listed))}
        fields = []
        nanos: dict[str, Column] = {}
        refused: dict[str, InputError] = {}
        in_both = StructType()
        for lower, (name, places) in _places_of_types(storage, listed).items():
            kinds = [kind for kind in places if kind.name != _NO_VALUES]
            has_void = len(kinds) < len(places)
            wide = _widest(kinds or [_Type(StringType(), "string")])
            is_refused = has_void and wide is not None and wide.name.startswith(_NEVER_EMPTY)
            if wide is None or wide.spark is None or is_refused:
                # Whether the values are those of the folders cannot be seen.
                if lower in partitions:
                    raise _refusal(name, places)
                refused[name] = _refusal(name, places)
                continue
            if has_void:  # the other reader does not take a column without values for another type
                spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
            if lower in partitions:
                in_both.add(name, wide.spark)
                continue
            fields.append(StructField(name, wide.spark))
            if wide.name.startswith(_NANOS):
                nanos[lower] = _in_microseconds(name, zoned="tz" in wide.name)

        def converted(df: DataFrame) -> DataFrame:
            if not nanos:
                return df
            columns = []
            for name in df.columns:
                column = nanos.get(name.lower(), quoted(name))
                columns.append(column.alias(name))
            return df.select(*columns)

        read = self.load(spark.read.schema(StructType(fields)))
        return TableSource(
            place=self.place, read=read, prepare=converted, refused=refused, in_both=in_both
        )

    def check_columns(self, storage: LocalFiles, columns: TableColumns) -> None:
        """Refuse columns that no file of this machine has; name near ones of the first file."""
        place = Path(local_path(self.place) or "")
        if storage.spark is not None or not storage.sees(self.place) or self.options:
            return
        missing = columns.mentioned
        allowed: list[str] = []
        try:
            for file in table_files(place):
                names = pq.read_schema(file).names
                for folder in file.relative_to(place).parts[:-1]:
                    name, sign, _ = folder.partition("=")
                    if sign:
                        names.append(unquote(name))
                inside = tuple(f"{name}{mark}" for name in names for mark in (".", "["))
                missing = [
                    name for name in missing if name not in names and not name.startswith(inside)
                ]
                allowed = allowed or names
                if not missing:
                    return
        except (OSError, UnicodeDecodeError, pa.ArrowException):
            return  # Spark finds what is wrong
        if allowed:
            raise absent_columns(missing, allowed, columns.path)

    def names_in(self, spark: SparkSession, files: Sequence[str]) -> set[str]:
        names = set[str]()
        for types in _types_of(Storage(spark), _SIGNED, files):
            names.update(map(str.lower, types))
        return names


def _places_of_types(
    storage: Storage, listed: DataFrame
) -> dict[str, tuple[str, dict[_Type, str]]]:
    """Return, by its name in small letters, each column's name and a file for each of its types."""
    read_as = dict(_SIGNED)
    if str(listed.sparkSession.conf.get(_BINARY_AS_STRING)).lower() == "true":
        read_as[pa.binary()] = pa.string()
    columns: dict[str, tuple[str, dict[_Type, str]]] = {}
    files = sorted(listed.inputFiles())
    for file, types in zip(files, _types_of(storage, read_as, files), strict=True):
        for name, kind in types.items():  # in any capitals, as Spark finds them
            _, places = columns.setdefault(name.lower(), (name, {}))
            places.setdefault(kind, path_of_url(file))
    return columns


def _types_of(
    storage: Storage, read_as: Mapping[Any, Any], files: Sequence[str]
) -> Iterator[dict[str, _Type]]:
    """Read the footers of several files at once, as :func:`_types` does."""
    with ThreadPoolExecutor(_READERS) as readers:
        yield from readers.map(partial(_types, storage, read_as), files)


def _types(storage: Storage, read_as: Mapping[Any, Any], file: str) -> dict[str, _Type]:
    """Read each column's type in a file's footer; ``read_as`` maps types to those Spark reads."""
    try:
        footer = storage.footer(file)
        schema = footer.schema_arrow
        types = {field.name: field.type for field in schema}
        leaves = {}
        for i in range(len(footer.schema.names)):
            leaf = footer.schema.column(i)
            leaves[leaf.path] = leaf
    except pa.ArrowInvalid:  # a file of no bytes, which Spark passes over
        return {}
    except (OSError, UnicodeDecodeError, pa.ArrowException):  # what Arrow says may quote it
        raise InputError(
            "A file of the input has a damaged footer",
            got=path_of_url(file),
            do="Write it again, or restore it from a copy",
        ) from None
    spark_types = _spark_types((schema.metadata or {}).get(_SPARK_SCHEMA))
    if spark_types:
        return spark_types
    return {name: _type(kind, leaves.get(name), read_as) for name, kind in types.items()}


def _spark_types(schema: bytes | None) -> dict[str, _Type]:
    """Read the schema that Spark writes; of one that it cannot read it takes no notice either."""
    try:
        fields = StructType.fromJson(json_value(schema or b"{}"))
        return {f.name: _Type(f.dataType, f.dataType.simpleString()) for f in fields}
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, PySparkException):
        return {}


def _type(kind: pa.DataType, leaf: pq.ColumnSchema | None, read_as: Mapping[Any, Any]) -> _Type:
    """Return the type that Spark gives to a column; ``leaf`` is Parquet's type, without fields."""
    if str(kind).startswith(_NANOS):
        if kind.tz:
            return _Type(LongType(), f"{_NANOS}, tz=UTC]")
        return _Type(LongType(), f"{_NANOS}]")
    if leaf is not None and leaf.physical_type == "INT96":
        kind = pa.timestamp("us", tz="UTC")
    elif leaf is not None and leaf.converted_type == "INTERVAL":
        return _Type(None, "interval")
    try:
        spark_type = from_arrow_type(_as_spark(kind, read_as), prefer_timestamp_ntz=True)
    except PySparkException:
        return _Type(None, str(kind))
    return _Type(spark_type, spark_type.simpleString())


def _as_spark(kind: Any, read_as: Mapping[Any, Any]) -> Any:
    """Return the type that Spark reads, or one that it has not."""
    if pa.types.is_dictionary(kind):
        return _as_spark(kind.value_type, read_as)
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_spark(field.type, read_as)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_spark(kind.key_type, read_as), _as_spark(kind.item_type, read_as))
    if pa.types.is_nested(kind):
        return pa.list_(_as_spark(kind.value_type, read_as))
    if pa.types.is_time(kind) or str(kind).startswith(_NANOS):
        return pa.float16()
    return pa.int64() if pa.types.is_duration(kind) else read_as.get(kind, kind)


def _widest(kinds: Sequence[_Type]) -> _Type | None:
    """Return the type that holds the values of all; None where there is none."""
    names = [kind.name for kind in kinds]
    for order in (*_WIDER, names[:1]):
        if {*names}.issubset(order):
            return max(kinds, key=lambda kind: order.index(kind.name))
    return None


def _refusal(name: str, places: Mapping[_Type, str]) -> InputError:
    """Return why a column cannot be read."""
    for kind, file in places.items():
        if kind.spark is None:
            return InputError(
                f"Column {name} has a type that Spark cannot read",
                got=f"{kind.name} in {file}",
                do="Write it as strings, or timestamps in microseconds; or name the other columns "
                "one by one with --keep",
            )
    (first, first_file), (second, second_file), *_ = places.items()
    return two_types(name, (first.name, first_file), (second.name, second_file))


def _in_microseconds(name: str, *, zoned: bool) -> Column:
    """Convert integers to timestamps."""
    error = InputError(
        f"Column {name} has timestamps with digits below a microsecond, which Spark cannot write",
        do="Round them before the run, or leave the column out",
    )
    column = quoted(name)
    micros = F.call_function("div", column, F.lit(1000))
    if zoned:
        exact = F.timestamp_micros(micros)
        failure = failing(error).cast(TimestampType())
    else:
        epoch = F.lit("1970-01-01").cast(TimestampNTZType())
        seconds = (micros * F.lit(Decimal("0.000001"))).cast("decimal(18, 6)")
        exact = epoch + F.make_dt_interval(secs=seconds)
        failure = failing(error).cast(TimestampNTZType())
    return F.when(column % 1000 != 0, failure).otherwise(exact)
