"""Delta tables by the library ``deltalake``.

Its account of a table, the log, lists the files that count: what was deleted or replaced lies in
the folder still, and a reader of plain Parquet would release it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.spark.failures import failing
from dptext_spark.spark.versions import from_arrow, metadata
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import check_fits
from dptext_spark.tables.formats.lakehouse import (
    Addition,
    LakehouseFormat,
    WrittenFile,
    hadoop_url,
    library_errors,
    read_files,
    unreadable,
    url_of,
)
from dptext_spark.tables.source import TableSource
from dptext_spark.tables.storage import LOCAL_URL, LocalFiles, Storage, file_url
from dptext_spark.version import __version__

# Features that change the log only, or that are looked at where they are used.
_READABLE: Final = {
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "deletionVectors",
    "columnMapping",
}
# The library makes no commit to a table with any other.
_WRITABLE: Final = (_READABLE - {"vacuumProtocolCheck"}) | {
    *("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"),
}
_FILE: Final = "__dptext_file"
_URL: Final = "__dptext_url"


class Delta(LakehouseFormat):
    """A Delta table at a path; the reader's option ``version`` chooses a version of it."""

    name = "delta"
    library = "deltalake"
    spark_package = "io.delta:delta-spark"
    chooser = "version"
    # The library takes these for types of Delta's; it refuses all others that Delta lacks.
    cannot_hold = ("interval", "void", "variant")

    def open(self, spark: SparkSession) -> TableSource:
        storage = Storage(spark)
        table = self.existing(storage)
        if table is None:
            raise InputError(
                f"The input {self.place} is not a Delta table", allowed="a folder with a _delta_log"
            )
        _check_readable(table, self.place)
        with library_errors(f"The log of the Delta table {self.place} cannot be read", InputError):
            schema = StructType.fromJson(json.loads(table.schema().to_json()))
            partitions = tuple(table.metadata().partition_columns)
            actions = pa.table(table.get_add_actions())
        df = _live_rows(spark, storage.qualified(self.place), schema, partitions, actions)
        return TableSource(place=self.place, read=df, partitions=partitions)

    def check_writable(self, table: Any) -> None:
        _check_readable(table, self.place)
        configuration = table.metadata().configuration
        features = {*(table.protocol().writer_features or ())} - _WRITABLE
        faults = [f"writer feature {name}" for name in features]
        faults += [name for name in configuration if name.startswith("delta.constraints.")]
        for column in table.schema().fields:
            for rule in column.metadata:
                if rule.startswith("delta."):
                    faults.append(f"{rule} of column {column.name}")
        if self.mode == "overwrite" and configuration.get("delta.appendOnly") == "true":
            faults.append("delta.appendOnly, with --mode overwrite")
        if faults:
            raise ConfigError(
                f"Nothing can be written to the Delta table {self.place}",
                got=", ".join(sorted(faults)),
                do="Write a new table, and have Delta's own writer add its rows",
            )

    def addition(self, spark: SparkSession, schema: StructType) -> Addition:
        storage = Storage(spark)
        table = self.existing(storage)
        partitions = [*self.partitions]
        if table is not None:
            delta_schema = table.schema()
            partitions = table.metadata().partition_columns
            table_schema = StructType.fromJson(json.loads(delta_schema.to_json()))
            check_fits(schema, table_schema, f"the Delta table {self.place}")
        else:
            with library_errors(
                f"The Delta table {self.place} cannot have the output's columns", ConfigError
            ):
                delta_schema = self.module().Schema.from_json(schema.json())

        def commit(run: str, files: list[WrittenFile]) -> None:
            log = self.module(".transaction")
            actions = []
            for path, size, modified, rows, values in files:
                statistics = json.dumps({"numRecords": rows})
                place = f"{run}/{path}"
                actions.append(log.AddAction(place, size, values, modified, True, statistics))
            properties = log.CommitProperties(
                custom_metadata={"dptext-spark": __version__},
                app_transactions=[log.Transaction(run, 0)],
            )
            settings = {"partition_by": partitions, "commit_properties": properties}
            with library_errors(
                f"The files could not be made part of the Delta table {self.place}", JobError
            ):
                if table is None:
                    log.create_table_with_add_actions(
                        *(url_of(storage, self.place), delta_schema, actions, "error"),
                        storage_options=self.library_options,
                        **settings,
                    )
                else:
                    mode = "overwrite" if self.mode == "overwrite" else "append"
                    table.create_write_transaction(actions, mode, delta_schema, **settings)

        folder = self.place.rstrip("/")
        return folder, folder, {name: quoted(name) for name in partitions}, commit

    def has(self, storage: LocalFiles, run: str) -> bool:
        table = self.existing(storage)
        return table is not None and table.transaction_version(run) is not None

    def existing(self, storage: LocalFiles) -> Any:
        delta_table = self.module().DeltaTable
        url = url_of(storage, self.place)
        with library_errors(f"The Delta table {self.place} cannot be opened", InputError):
            if not delta_table.is_deltatable(url, self.library_options):
                return None
            return delta_table(url, self.chosen, self.library_options)


def _live_rows(
    spark: SparkSession,
    place: str,
    schema: StructType,
    partitions: tuple[str, ...],
    actions: pa.Table,
) -> DataFrame:
    """Read the live files; values of partition columns come from the log: the files lack them."""
    paths = [_location(place, path) for path in actions["path"].to_pylist()]
    if not (partitions and paths):
        return read_files(spark, schema, paths, place)
    in_files = StructType([column for column in schema if column.name not in partitions])
    in_log = StructType([column for column in schema if column.name in partitions])
    df = read_files(spark, in_files, paths, place)
    urls = {}
    for file in df.inputFiles():
        url = file_url(file)
        urls[unquote(url)] = url
    values = actions["partition"].combine_chunks()
    columns: dict[str, Any] = {_FILE: [urls[path] for path in paths]}
    for column in in_log:
        columns[column.name] = values.field(column.name)
    log_schema = StructType([StructField(_FILE, StringType()), *in_log])
    log_rows = from_arrow(spark, pa.table(columns), log_schema)
    # Spark 3.5 fails where a join's condition has a column of metadata itself.
    with_url = df.withColumn(_URL, F.regexp_replace(metadata(df)["file_path"], *LOCAL_URL))
    joined = with_url.join(F.broadcast(log_rows), F.col(_URL) == log_rows[_FILE], "left")
    is_in_log = log_rows[_FILE].isNotNull()
    failure = failing(InputError(f"Spark read a file that the log of {place} does not name"))
    selected = []
    for column in schema:
        value = quoted(column.name)
        if column.name in partitions:
            value = F.when(is_in_log, value).otherwise(failure)
            value = value.alias(column.name, metadata=column.metadata)
        selected.append(value)
    return joined.select(*selected)


def _location(table: str, path: str) -> str:
    """Return where a file of a log lies: below the table, or elsewhere, as in a shallow clone."""
    if re.match("[A-Za-z][A-Za-z0-9+.-]*:", path):
        return file_url(hadoop_url(unquote(path)))
    if path.startswith("/"):
        file_system = re.sub("(?<=:)(//[^/]*)?/.*", r"\1", table)
        return f"{file_system}{unquote(path)}"
    return f"{table}/{unquote(path)}"


def _check_readable(table: Any, place: str) -> None:
    """Check for unknown features, mapped columns, and rows that are marked as deleted."""
    features = {*(table.protocol().reader_features or ())} - _READABLE
    faults = [f"reader feature {name}" for name in sorted(features)]
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        faults.append("column mapping")
    with library_errors(f"The Delta table {place} cannot be read", InputError):
        if not faults:
            deletion_vectors = sum(batch.num_rows for batch in table.deletion_vectors())
            if deletion_vectors:
                faults.append(f"deletion vectors of {deletion_vectors} files")
    if faults:
        raise unreadable("Delta", place, faults, "deletion vectors (REORG TABLE ... APPLY (PURGE))")
