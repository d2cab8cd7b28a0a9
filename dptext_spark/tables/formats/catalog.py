"""Tables that Spark's catalogs know by their names."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import condition
from dptext_spark.spark.session import is_connect
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import Format, Output
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import Places, Storage, is_settled

_CATALOGS: Final = (
    "Give Spark the catalog by spark.sql.catalog.NAME, and its library by spark-submit --packages: "
    "io.delta:delta-spark or org.apache.iceberg:iceberg-spark-runtime, of Spark's own version"
)


class CatalogTable(Format):
    """Tables and views by their names, ``catalog.schema.table``, in the catalogs that Spark has."""

    name = "table"
    has_path = False
    can_append = True

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        try:
            df = spark.read.options(**self.options).table(place)
            partitions = tuple(c.name for c in spark.catalog.listColumns(place) if c.isPartition)
        except (PySparkException, Py4JJavaError) as error:
            raise InputError(
                f"The input table {place} cannot be read",
                allowed="the name of a table or view, [[CATALOG.]SCHEMA.]NAME",
                got=condition(error),
                do=_CATALOGS,
            ) from None
        if not _is_settled(spark, df, place):
            raise InputError(
                f"The view {place} can give other rows each time", do="Write it as a table, and give that"
            )
        return Source(place=place, read=df, partitions=partitions)

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        try:
            exists = spark is not None and spark.catalog.tableExists(output.place)
        except (PySparkException, Py4JJavaError) as error:
            raise ConfigError(
                f"The output table {output.place} cannot be looked up",
                allowed="[[CATALOG.]SCHEMA.]NAME",
                got=condition(error),
                do=_CATALOGS,
            ) from None
        if exists and not output.append:
            raise ConfigError(
                f"The output table {output.place} exists",
                allowed="a new name, or --mode append: not every catalog replaces a table in one step",
                do="Choose another --output, or drop the table before the run",
            )

    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        spark = result.sparkSession
        if not spark.catalog.tableExists(output.place):
            writer = result.write.options(**self.options).partitionBy(*output.partitions)
            writer.mode("error").saveAsTable(output.place)
            return
        there = spark.read.table(output.place)
        if {*there.inputFiles()} & {*result.inputFiles()}:
            raise ConfigError(f"The output table {output.place} is the input", do="Choose another --output")
        columns, given = (sorted(f"{name} {kind}" for name, kind in df.dtypes) for df in (there, result))
        if columns != given:
            raise ConfigError(
                f"The output table {output.place} has other columns than this release",
                allowed=", ".join(columns),
                got=", ".join(given),
                do="Choose another --output",
            )
        ordered = result.select(*map(quoted, there.columns))
        ordered.write.options(**self.options).insertInto(output.place)


def _is_settled(spark: SparkSession, df: DataFrame, place: str) -> bool:
    """Say whether a table has the same rows at every evaluation; on Spark Connect no view is known to."""
    if is_connect(spark):
        return "VIEW" not in spark.catalog.getTable(place).tableType
    return is_settled(df)
