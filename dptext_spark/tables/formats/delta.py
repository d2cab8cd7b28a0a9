"""Delta tables by the library ``deltalake``.

Its account of a table, the log, lists the files that count: what was deleted or replaced lies in the folder
still, and a reader of plain Parquet would release it.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.spark.failures import failing
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import Output, parts
from dptext_spark.tables.formats.lakehouse import (
    LOCAL_URL,
    LakehouseFormat,
    Target,
    WrittenFile,
    check_fits,
    file_url,
    plain,
    read_files,
    url_of,
)
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import Places, Storage
from dptext_spark.version import __version__

# Features that change the log only, or that are looked at where they are used.
_READABLE: Final = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}
_WRITABLE: Final = _READABLE | {
    *("appendOnly", "changeDataFeed", "checkConstraints", "domainMetadata", "generatedColumns"),
    *("identityColumns", "invariants"),
}
_TYPES: Final = (
    *(ArrayType, BinaryType, BooleanType, DateType, MapType, NumericType, StringType, StructType),
    *(TimestampNTZType, TimestampType),
)
_FILE: Final = "__dptext_file"


class Delta(LakehouseFormat):
    """A Delta table at a path; ``version`` among the options of the reader chooses a version of it.

    All other options but ``compression`` are those of the library's storage, as access keys of an object
    store.
    """

    name = "delta"
    title = "Delta"
    library = "deltalake"
    spark_package = "io.delta:delta-spark"

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        table = self._table(storage, place)
        if table is None:
            raise InputError(f"The input {place} is no Delta table", allowed="a folder with a _delta_log")
        _check_readable(table, f"The Delta table {place} cannot be read")
        with plain(f"The log of the Delta table {place} cannot be read", InputError):
            schema = StructType.fromJson(json.loads(table.schema().to_json()))
            partitions = tuple(table.metadata().partition_columns)
            actions = pa.table(table.get_add_actions())
        df = _live_rows(spark, storage, place, schema, partitions, actions)
        return Source(place=place, read=df, partitions=partitions)

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        table = self._table(storage, output.place)
        if table is None and storage.exists(output.place):
            raise ConfigError(
                f"The output {output.place} exists and is no Delta table",
                do="Choose another --output, or remove it by hand if it may go",
            )
        self.check_known(storage, output, output.place, exists=table is not None)
        if table is not None:
            _check_readable(table, f"Nothing can be written to the Delta table {output.place}")
            _check_writable(table, output)

    def target(self, storage: Storage, output: Output, schema: StructType) -> Target:
        table, own, partitions = self._table(storage, output.place), None, list(output.partitions)
        if table is not None:
            own, partitions = table.schema(), table.metadata().partition_columns
            there = StructType.fromJson(json.loads(own.to_json()))
            check_fits(schema, there, f"the Delta table {output.place}")
        elif lacking := [
            f"{field.name} ({field.dataType.simpleString()})"
            for field in schema
            if not all(isinstance(part, _TYPES) for part in parts(field.dataType))
        ]:
            raise ConfigError(
                "Columns have types that Delta tables lack",
                got=", ".join(lacking),
                do="Choose another --output-format",
            )
        else:
            own = self.module().Schema.from_json(schema.json())

        def commit(run: str, files: list[WrittenFile]) -> None:
            add = self.module(".transaction")
            actions = [
                add.AddAction(f"{run}/{path}", size, values, modified, True, json.dumps({"numRecords": rows}))
                for path, size, modified, rows, values in files
            ]
            properties = add.CommitProperties(
                custom_metadata={"dptext-spark": __version__}, app_transactions=[add.Transaction(run, 0)]
            )
            chosen = {"partition_by": partitions, "commit_properties": properties}
            with plain(f"The files could not be made part of the Delta table {output.place}", JobError):
                if table is None:
                    url, options = url_of(storage, output.place), self._library_options
                    add.create_table_with_add_actions(
                        url, own, actions, "error", storage_options=options, **chosen
                    )
                else:
                    mode = "overwrite" if output.overwrite else "append"
                    table.create_write_transaction(actions, mode, own, **chosen)

        def has(run: str) -> bool:
            now = self._table(storage, output.place)
            return now is not None and now.transaction_version(run) is not None

        place = output.place.rstrip("/")
        return Target(folder=place, files=place, partitions=partitions, added={}, commit=commit, has=has)

    @property
    def _library_options(self) -> dict[str, str]:
        return {n: value for n, value in self.options.items() if n.lower() not in ("version", "compression")}

    def _table(self, storage: Places, place: str) -> Any:
        """Open a table by the library; None where there is none."""
        module, options, url = self.module(), self._library_options, url_of(storage, place)
        version = self.options.get("version")
        with plain(f"The Delta table {place} cannot be opened", InputError):
            if not module.DeltaTable.is_deltatable(url, options):
                return None
            return module.DeltaTable(url, None if version is None else int(version), options)


def _live_rows(
    spark: SparkSession,
    storage: Storage,
    place: str,
    schema: StructType,
    partitions: tuple[str, ...],
    actions: pa.Table,
) -> DataFrame:
    """Read the live files; values of partition columns come from the log: the files lack them."""
    root = storage.qualified(place)
    inside = [f"{root}/{unquote(path)}" for path in actions["path"].to_pylist()]
    if not (partitions and inside):
        return read_files(spark, schema, inside, place)
    df = read_files(spark, StructType([f for f in schema if f.name not in partitions]), inside, place)
    urls = {unquote(file_url(url)): file_url(url) for url in df.inputFiles()}
    values, named = actions["partition"].combine_chunks(), [f for f in schema if f.name in partitions]
    columns = {_FILE: [urls[path] for path in inside], **{f.name: values.field(f.name) for f in named}}
    known = spark.createDataFrame(pa.table(columns), StructType([StructField(_FILE, StringType()), *named]))
    url = F.regexp_replace(df.metadataColumn("_metadata")["file_path"], *LOCAL_URL)
    joined = df.join(F.broadcast(known), url == known[_FILE], "left")
    unknown = failing(InputError(f"Spark read a file that the log of {place} does not name"))
    is_known, value = known[_FILE].isNotNull(), {name: quoted(name) for name in schema.names}
    for f in named:
        value[f.name] = F.when(is_known, value[f.name]).otherwise(unknown).alias(f.name, metadata=f.metadata)
    return joined.select(*value.values())


def _check_readable(table: Any, what: str) -> None:
    """Refuse a table whose files alone do not say what its rows are.

    Raises:
        InputError: It has features that are not known here, maps columns, or marks rows as deleted.
    """
    faults = [f"reader feature {n}" for n in sorted({*(table.protocol().reader_features or ())} - _READABLE)]
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        faults.append("column mapping")
    with plain(what, InputError):
        deleted = 0 if faults else sum(batch.num_rows for batch in table.deletion_vectors())
    if deleted:
        faults.append(f"deletion vectors of {deleted} files")
    if faults:
        raise InputError(
            what,
            got="; ".join(faults),
            do="Read it by Delta's own Spark package with --format table; or first copy it (CREATE TABLE ... "
            "AS SELECT), or rewrite files with deletion vectors (REORG TABLE ... APPLY (PURGE))",
        )


def _check_writable(table: Any, output: Output) -> None:
    """Refuse a table that asks more of a writer than to name files.

    Raises:
        ConfigError: It has rules for its rows, or features that are not known here.
    """
    configuration = table.metadata().configuration
    faults = [f"writer feature {name}" for name in {*(table.protocol().writer_features or ())} - _WRITABLE]
    faults += [name for name in configuration if name.startswith("delta.constraints.")]
    faults += [
        f"{rule} of column {field.name}"
        for field in table.schema().fields
        for rule in field.metadata
        if rule.startswith("delta.")
    ]
    if output.overwrite and configuration.get("delta.appendOnly") == "true":
        faults.append("delta.appendOnly, with --mode overwrite")
    if faults:
        raise ConfigError(
            f"Nothing can be written to the Delta table {output.place}",
            got=", ".join(sorted(faults)),
            do="Write a new table, and have Delta's own writer add its rows",
        )
