"""Timestamps in nanoseconds, which Parquet has and Spark has not, as timestamps in microseconds.

Under Spark's setting for them they are read as integers. Here they become timestamps again when a query uses
them. A digit that would be lost fails the run with the column's name, and so do nested nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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

    Args:
        storage, read: The table as Spark reads it under :data:`SETTING`.
        merged: Reads the schemas of all files, where the table has the columns of all; None where it has
            those of one file.
    """
    files = sorted(read.inputFiles())
    if merged is None or len(files) < 2:
        names = {*_kinds(storage, files[0])} if files else set()
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
        found = [*readers.map(lambda file: _kinds(storage, file, names), files)]
    kinds = {name: {kind for each in found for kind in each.get(name, ())} for name in names}
    fine = {name for name, each in kinds.items() if each - {""}}

    def convert(df: DataFrame) -> DataFrame:
        return df.select(
            *[
                _converted(field, kinds[field.name.lower()]).alias(field.name, metadata=field.metadata)
                if field.name.lower() in fine
                else quoted(field.name)
                for field in df.schema.fields
            ]
        )

    return convert


def _kinds(storage: Storage, file: str, names: set[str] | None = None) -> dict[str, set[str]]:
    """Say by column what nanoseconds a file has: utc, local or inside; for those in ``names`` also none."""
    found: dict[str, set[str]] = {}
    for field in storage.footer(file).schema_arrow:
        kind = _kind(field.type)
        if kind if names is None else field.name.lower() in names:  # as Spark finds columns, in any capitals
            found.setdefault(field.name.lower(), set()).add(kind)
    return found


def _kind(data_type: Any) -> str:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return "utc" if data_type.tz else "local"
    inner = [data_type.field(i).type for i in range(data_type.num_fields)]
    return "inside" if any(map(_kind, inner)) else ""


def _converted(field: StructField, kinds: set[str]) -> Column:
    zoned = "utc" in kinds
    has = TimestampType() if zoned else TimestampNTZType()
    if len(kinds) > 1:
        differ = InputError(
            f"Column {field.name} is in nanoseconds in some files of the input",
            allowed="one type of each column in all files",
            do="Leave it out, or write the files again",
        )
        return failing(differ).cast(has if isinstance(field.dataType, LongType) else field.dataType)
    if not isinstance(field.dataType, LongType):
        inside = InputError(
            f"Column {field.name} has timestamps in nanoseconds inside it, which cannot be converted",
            do="Write it in microseconds, make them columns of their own, or leave the column out",
        )
        return failing(inside).cast(field.dataType)
    lost = InputError(
        f"Column {field.name} has timestamps with digits below a microsecond, which Spark cannot write",
        do="Round them before the run, or leave the column out",
    )
    column = quoted(field.name)
    micros = F.call_function("div", column, F.lit(1000))
    epoch = F.lit("1970-01-01").cast(TimestampNTZType())
    exact = F.timestamp_micros(micros) if zoned else F.timestamp_add("MICROSECOND", micros, epoch)
    return F.when(column % 1000 != 0, failing(lost).cast(has)).otherwise(exact)
