"""Timestamps in nanoseconds, which Parquet has and Spark has not, as timestamps in microseconds.

Under Spark's setting for them they are read as integers. Here they become the timestamps that they are, when
a query uses them. A digit that would be lost fails the run with the column's name; so does a column that has
nanoseconds inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, TimestampNTZType, TimestampType

from dptext_spark.errors import InputError
from dptext_spark.spark.failures import failing
from dptext_spark.tables.fields import quoted

SETTING: Final = "spark.sql.legacy.parquet.nanosAsLong"
"""Without it Spark refuses the whole table, whichever columns are read."""


def in_microseconds(
    read: DataFrame, merged: Callable[[], DataFrame], *, several: bool
) -> Callable[[DataFrame], DataFrame]:
    """Find the nanoseconds of a table's files; what comes back makes them timestamps in a frame of them.

    Args:
        read: The frame as Spark reads it under :data:`SETTING`.
        merged: Looks at the schemas of all files; Spark raises where a column's types differ. Read as an
            integer, a file with microseconds would pass for one with nanoseconds.
        several: Whether the frame's columns are those of all files, and not of the first alone.
    """
    files = sorted(read.inputFiles())
    if not (several and len(files) > 1):
        columns = _columns(read, files[:1])
    else:
        columns = {} if _without(read, merged) else _columns(read, files)
    if not columns:
        return lambda df: df
    alike = len(files) == 1 or _succeeds(merged)
    return lambda df: df.select(
        *[
            _converted(field, columns[field.name], alike).alias(field.name, metadata=field.metadata)
            if field.name in columns
            else quoted(field.name)
            for field in df.schema.fields
        ]
    )


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


def _columns(read: DataFrame, files: list[str]) -> dict[str, str]:
    """Give the columns with nanoseconds in a file, and what its footer says of them."""
    jvm: Any = read.sparkSession._jvm
    conf: Any = read.sparkSession.sparkContext._jsc.hadoopConfiguration()
    parquet = jvm.org.apache.parquet.hadoop
    found = {}
    for file in files:
        place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        opened = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(place, conf))
        try:
            schema = opened.getFileMetaData().getSchema()
        finally:
            opened.close()
        if "TIMESTAMP(NANOS" not in str(
            schema.toString()
        ):  # one call, where there may be thousands of columns
            continue
        for column in schema.getColumns():
            annotation = str(column.getPrimitiveType().getLogicalTypeAnnotation() or "")
            if annotation.startswith("TIMESTAMP(NANOS"):
                found[str(column.getPath()[0])] = annotation
    return found


def _converted(field: StructField, annotation: str, alike: bool) -> Column:
    zoned = annotation.endswith("true)")
    has = TimestampType() if zoned else TimestampNTZType()
    if not isinstance(field.dataType, LongType):
        inside = InputError(
            f"Column {field.name} has timestamps in nanoseconds inside it, which cannot be converted",
            do="Write it in microseconds, make them columns of their own, or leave the column out",
        )
        return failing(inside).cast(field.dataType)
    if not alike:
        differ = InputError(
            f"Column {field.name} is in nanoseconds in some files of the input",
            allowed="one type of each column in all files",
            do="Leave it out, or write the files again",
        )
        return failing(differ).cast(has)
    lost = InputError(
        f"Column {field.name} has timestamps with digits below a microsecond, which Spark cannot write",
        do="Round them before the run, or leave the column out",
    )
    column = quoted(field.name)
    micros = F.call_function("div", column, F.lit(1000))
    epoch = F.lit("1970-01-01").cast(TimestampNTZType())
    exact = F.timestamp_micros(micros) if zoned else F.timestamp_add("MICROSECOND", micros, epoch)
    return F.when(column % 1000 != 0, failing(lost).cast(has)).otherwise(exact)
