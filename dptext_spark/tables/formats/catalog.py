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
from dptext_spark.tables.formats.format import Format, check_fits
from dptext_spark.tables.source import TableSource
from dptext_spark.tables.storage import LocalFiles, Storage, is_settled, roots

_CATALOGS: Final = (
    "Give Spark the catalog by spark.sql.catalog.NAME, and its library by spark-submit --packages: "
    "io.delta:delta-spark or org.apache.iceberg:iceberg-spark-runtime, of Spark's own version"
)


class CatalogTable(Format):
    """Tables and views by their names, ``catalog.schema.table``, in the catalogs that Spark has."""

    name = "table"
    has_path = False
    can_append = True

    def open(self, spark: SparkSession) -> TableSource:
        place = self.place
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
        if not is_connect(spark):
            storage = Storage(spark)
            for folder in roots(df):
                storage.check_file_names(folder)
        # On Spark Connect no view is known to have the same rows at every evaluation.
        if is_connect(spark):
            has_other_rows = "VIEW" in spark.catalog.getTable(place).tableType
        else:
            has_other_rows = not is_settled(df)
        if has_other_rows:
            raise InputError(
                f"The view {place} can give different rows each time",
                do="Write it as a table, and give that",
            )
        return TableSource(place=place, read=df, partitions=partitions)

    def check_place(self, storage: LocalFiles) -> None:
        if storage.spark is None:
            return
        try:
            exists = storage.spark.catalog.tableExists(self.place)
        except (PySparkException, Py4JJavaError) as error:
            raise ConfigError(
                f"The output table {self.place} cannot be looked up",
                allowed="[[CATALOG.]SCHEMA.]NAME",
                got=condition(error),
                do=_CATALOGS,
            ) from None
        if exists and self.mode != "append":
            raise ConfigError(
                f"The output table {self.place} exists",
                allowed="a new name, or --mode append: not every catalog replaces a table in one "
                "step",
                do="Choose another --output, or drop the table before the run",
            )

    def write(self, result: DataFrame) -> None:
        spark = result.sparkSession
        if not spark.catalog.tableExists(self.place):
            writer = result.write.options(**self.options).partitionBy(*self.partitions)
            writer.mode("error").saveAsTable(self.place)
            return
        table = spark.read.table(self.place)
        if {*table.inputFiles()} & {*result.inputFiles()}:
            raise ConfigError(
                f"The output table {self.place} is the input", do="Choose another --output"
            )
        check_fits(result.schema, table.schema, f"the output table {self.place}")
        ordered = result.select(*map(quoted, table.columns))
        ordered.write.options(**self.options).insertInto(self.place)
