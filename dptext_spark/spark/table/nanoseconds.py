"""Timestamps in nanoseconds, which Parquet has and Spark has not, as timestamps in microseconds.

Under Spark's setting for them they are read as integers. Here they become the timestamps that they are, when
a query uses them, and a digit that would be lost fails the run with the column's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dptext_spark.errors import InputError
from dptext_spark.spark.failures import failing
from dptext_spark.spark.table.fields import quoted

SETTING: Final = "spark.sql.legacy.parquet.nanosAsLong"
"""Without it Spark refuses the whole table, whichever columns are read."""


def in_microseconds(
    read: DataFrame, merged: Callable[[], DataFrame], *, several: bool
) -> Callable[[DataFrame], DataFrame]:
    """Find the nanoseconds of a table's files; what comes back makes them timestamps in a frame of them.

    Args:
        read: The frame as Spark reads it under :data:`SETTING`.
        merged: Looks at the schemas of all files; Spark raises where a column's types differ. Read as an
            integer, a file with microseconds would go for one with nanoseconds.
        several: Whether the frame's columns are those of all files, and not of the first alone.

    Raises:
        InputError: Nanoseconds lie beside what cannot be told from them.
    """
    files = sorted(read.inputFiles())
    if several and len(files) > 1:
        wanted = read.schema if _without(read, merged) else _timestamps(read, files)
    else:
        wanted = _timestamps(read, files[:1])
    if wanted == read.schema:
        return lambda df: df
    alike = len(files) == 1 or _succeeds(merged)

    def convert(df: DataFrame) -> DataFrame:
        return df.select(
            *[
                quoted(had.name)
                if had.dataType == has.dataType
                else _converted(quoted(had.name), had.dataType, has.dataType, had.name, alike).alias(
                    had.name, metadata=had.metadata
                )
                for had, has in zip(df.schema.fields, wanted.fields, strict=True)
            ]
        )

    return convert


def _succeeds(merged: Callable[[], DataFrame]) -> bool:
    try:
        merged()
    except (PySparkException, Py4JJavaError):
        return False
    return True


def _without(read: DataFrame, merged: Callable[[], DataFrame]) -> bool:
    """Say whether no file has nanoseconds: Spark looks at all footers at once, and refuses them."""
    conf = read.sparkSession.conf
    conf.set(SETTING, "false")
    try:
        return _succeeds(merged)
    finally:
        conf.set(SETTING, "true")


def _timestamps(read: DataFrame, files: list[str]) -> StructType:
    """Give the schema of a frame with timestamps where a file's footer says nanoseconds."""
    leaves: dict[str, list[str]] = {}
    for file in files:
        for name, found in _leaves(read, file).items():
            # Of a struct whose fields were merged a file may have some.
            if len(found) > len(leaves.get(name, [])):
                leaves[name] = found
    return StructType([_retyped(field, leaves.get(field.name, [])) for field in read.schema.fields])


def _leaves(read: DataFrame, file: str) -> dict[str, list[str]]:
    """Give what the footer of a file with nanoseconds says of the leaves of each column."""
    jvm: Any = read.sparkSession._jvm
    conf: Any = read.sparkSession.sparkContext._jsc.hadoopConfiguration()
    place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
    parquet = jvm.org.apache.parquet.hadoop
    opened = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(place, conf))
    try:
        schema = opened.getFileMetaData().getSchema()
    finally:
        opened.close()
    if "TIMESTAMP(NANOS" not in str(schema.toString()):  # one call, where there may be thousands of columns
        return {}
    leaves: dict[str, list[str]] = {}
    for column in schema.getColumns():
        annotation = column.getPrimitiveType().getLogicalTypeAnnotation()
        leaves.setdefault(str(column.getPath()[0]), []).append(str(annotation or ""))
    return leaves


def _retyped(field: StructField, leaves: list[str]) -> StructField:
    if not any(leaf.startswith("TIMESTAMP(NANOS") for leaf in leaves):
        return field
    if len(leaves) != _width(field.dataType):
        raise InputError(
            f"Column {field.name} has timestamps in nanoseconds beside a type that is not understood",
            do="Leave the column out of the table, or write it in microseconds",
        )
    return StructField(field.name, _typed(field.dataType, iter(leaves)), field.nullable, field.metadata)


def _width(data_type: Any) -> int:
    """Count the leaves of a type."""
    if isinstance(data_type, StructType):
        return sum(_width(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _width(data_type.elementType)
    if isinstance(data_type, MapType):
        return _width(data_type.keyType) + _width(data_type.valueType)
    return 1


def _typed(data_type: Any, leaves: Iterator[str]) -> DataType:
    """Put timestamps into a type, whose leaves have these annotations in the file."""
    if isinstance(data_type, StructType):
        return StructType(
            [
                StructField(f.name, _typed(f.dataType, leaves), f.nullable, f.metadata)
                for f in data_type.fields
            ]
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(_typed(data_type.elementType, leaves), data_type.containsNull)
    if isinstance(data_type, MapType):
        key, value = _typed(data_type.keyType, leaves), _typed(data_type.valueType, leaves)
        return MapType(key, value, data_type.valueContainsNull)
    leaf = next(leaves, "")
    if isinstance(data_type, LongType) and leaf.startswith("TIMESTAMP(NANOS"):
        return TimestampType() if leaf.endswith("true)") else TimestampNTZType()
    kept: DataType = data_type
    return kept


def _converted(column: Column, had: Any, has: Any, name: str, alike: bool) -> Column:
    if had == has:
        return column
    if isinstance(had, ArrayType):
        return F.transform(column, lambda e: _converted(e, had.elementType, has.elementType, name, alike))
    if isinstance(had, MapType):
        keys = F.transform_keys(column, lambda k, _: _converted(k, had.keyType, has.keyType, name, alike))
        return F.transform_values(keys, lambda _, v: _converted(v, had.valueType, has.valueType, name, alike))
    if isinstance(had, StructType):
        fields = [
            _converted(column.getField(f.name), f.dataType, has[f.name].dataType, name, alike).alias(
                f.name, metadata=f.metadata
            )
            for f in had.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if not alike:
        return failing(
            InputError(
                f"Column {name} is in nanoseconds in some files of the input",
                allowed="one type of each column in all files",
                do="Leave it out, or write the files again",
            )
        ).cast(has)
    micros = F.call_function("div", column, F.lit(1000))
    epoch = F.lit("1970-01-01").cast(TimestampNTZType())
    exact = (
        F.timestamp_micros(micros)
        if isinstance(has, TimestampType)
        else F.timestamp_add("MICROSECOND", micros, epoch)
    )
    lost = InputError(
        f"Column {name} has timestamps with digits below a microsecond, which Spark cannot write",
        do="Round them before the run, or leave the column out",
    )
    return F.when(column % 1000 != 0, failing(lost).cast(has)).otherwise(exact)
