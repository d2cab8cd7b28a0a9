"""Timestamps in nanoseconds, which Parquet has and Spark has not, as timestamps in microseconds.

Under Spark's setting for them they are read as integers. Here they become timestamps again when a query uses
them. A digit that would be lost fails the run with the column's name, and so do nested nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, TimestampNTZType, TimestampType

from dptext_spark.errors import InputError
from dptext_spark.spark.failures import failing
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.storage import Storage

SETTING: Final = "spark.sql.legacy.parquet.nanosAsLong"
"""Without it Spark refuses the whole table, whichever columns are read."""
_READERS: Final = 16


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting for a moment."""
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def in_microseconds(
    storage: Storage, read: DataFrame, merged: Callable[[], DataFrame] | None
) -> Callable[[DataFrame], DataFrame]:
    """Find the nanoseconds of a table's files; the result makes them timestamps in a frame of the table.

    ``read`` is the table under :data:`SETTING`; ``merged`` reads the schemas of all files, where the table
    has the columns of all.
    """

    def kinds_of(file: str) -> dict[str, set[str]]:
        """Say by column, in any capitals as Spark finds them, what nanoseconds a file has."""
        kinds: dict[str, set[str]] = {}
        for field in storage.footer(file).schema_arrow:
            kinds.setdefault(field.name.lower(), set()).add(_kind(field.type))
        return kinds

    files = sorted(read.inputFiles())
    if merged is None or len(files) < 2:
        names = {name for file in files[:1] for name, kinds in kinds_of(file).items() if kinds - {""}}
    else:
        try:  # without the setting Spark refuses nanoseconds, in one look at all files
            with setting(read.sparkSession, SETTING, "false"):
                merged()
            names = set()
        except (PySparkException, Py4JJavaError):
            names = {name.lower() for name in read.columns}
    if not names:
        return lambda df: df
    # Read as an integer, a file with microseconds would pass for one with nanoseconds.
    with ThreadPoolExecutor(_READERS) as readers:
        by_file = [*readers.map(kinds_of, files)]
    kinds = {name: set[str]().union(*(each.get(name, ()) for each in by_file)) for name in names}

    def column(field: StructField) -> Column:
        found = kinds.get(field.name.lower(), set())
        if not found - {""}:
            return quoted(field.name)
        return _converted(field, found).alias(field.name, metadata=field.metadata)

    return lambda df: df.select(*map(column, df.schema.fields))


def _kind(data_type: Any) -> str:
    """Say what nanoseconds a type is: utc, local, inside or none."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return "utc" if data_type.tz else "local"
    inner = [data_type.field(i).type for i in range(data_type.num_fields)]
    return "inside" if any(map(_kind, inner)) else ""


def _converted(field: StructField, kinds: set[str]) -> Column:
    """Make integers timestamps, or fail where they are something else in some file."""
    zoned, is_integer = "utc" in kinds, isinstance(field.dataType, LongType)
    has = TimestampType() if zoned else TimestampNTZType()
    if len(kinds) > 1:
        error = InputError(
            f"Column {field.name} is in nanoseconds in some files of the input",
            allowed="one type of each column in all files",
            do="Leave it out, or write the files again",
        )
        return failing(error).cast(has if is_integer else field.dataType)
    if not is_integer:
        error = InputError(
            f"Column {field.name} has timestamps in nanoseconds inside it, which cannot be converted",
            do="Write it in microseconds, make them columns of their own, or leave the column out",
        )
        return failing(error).cast(field.dataType)
    error = InputError(
        f"Column {field.name} has timestamps with digits below a microsecond, which Spark cannot write",
        do="Round them before the run, or leave the column out",
    )
    column = quoted(field.name)
    micros = F.call_function("div", column, F.lit(1000))
    epoch = F.lit("1970-01-01").cast(TimestampNTZType())
    seconds = (micros * F.lit(Decimal("0.000001"))).cast("decimal(18, 6)")
    exact = F.timestamp_micros(micros) if zoned else epoch + F.make_dt_interval(secs=seconds)
    return F.when(column % 1000 != 0, failing(error).cast(has)).otherwise(exact)
