"""Delta tables by the library ``deltalake``.

Its account of a table, the log, lists the files that count: what was deleted or replaced lies in the folder
still, and a reader of plain Parquet would release it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dptext_spark.errors import ConfigError, DptextError, InputError, JobError
from dptext_spark.spark.failures import failing
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import Output
from dptext_spark.tables.formats.lakehouse import (
    LOCAL_URL,
    LakehouseFormat,
    WrittenFile,
    check_fits,
    file_url,
    read_files,
    told,
    url_of,
    write_and_commit,
)
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import Places, Storage
from dptext_spark.version import __version__

# Features that change the log only, or that are looked at where they are used.
_READABLE: Final = frozenset(
    {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}
)
_WRITABLE: Final = _READABLE | {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
}
_TYPES: Final = (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
_RULES: Final = "delta."
_FILE: Final = "__dptext_file"
_FILE_FIELD: Final = StructField(_FILE, StringType())
_OUTSIDE: Final = re.compile(r"/|[A-Za-z][\w+.-]*:/")


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
        table = self.table(storage, place)
        if table is None:
            raise InputError(f"The input {place} is no Delta table", allowed="a folder with a _delta_log")
        _check_readable(table, f"The Delta table {place} cannot be read")
        with _plain(f"The log of the Delta table {place} cannot be read", InputError):
            schema = StructType.fromJson(json.loads(table.schema().to_json()))
            partitions = tuple(table.metadata().partition_columns)
            actions = pa.table(table.get_add_actions())
        df = _live_rows(spark, storage, place, schema, partitions, actions)
        return Source(place=place, read=df, partitions=partitions)

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        table = self.table(storage, output.place)
        if table is None and storage.exists(output.place):
            raise ConfigError(
                f"The output {output.place} exists and is no Delta table",
                do="Choose another --output, or remove it by hand if it may go",
            )
        self.check_known(storage, output, output.place, exists=table is not None)
        if table is None:
            return
        _check_readable(table, f"Nothing can be written to the Delta table {output.place}")
        _check_writable(table, output)

    def check_schema(self, storage: Storage, schema: StructType, output: Output) -> None:
        self.account(storage, output, self.table(storage, output.place), schema)

    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        table = self.table(storage, output.place)
        account, place = self.account(storage, output, table, result.schema), output.place.rstrip("/")
        try:
            write_and_commit(
                storage,
                result,
                account,
                output=output,
                compression=self.compression,
                table=place,
                folder=place,
                partitions=account.partitions,
            )
        except BaseException:
            if table is None and not storage.exists(f"{place}/_delta_log"):
                storage.delete(place)
            raise

    @property
    def library_options(self) -> dict[str, str]:
        """Options of the library's storage."""
        return {n: value for n, value in self.options.items() if n.lower() not in ("version", "compression")}

    def table(self, storage: Places, place: str) -> Any:
        """Open a table by the library; None where there is none."""
        module = self.module()
        options = self.library_options
        version = self.options.get("version")
        if version is not None and not version.isdecimal():
            raise ConfigError("The version of a Delta table is a number", got=repr(version))
        url = url_of(storage, place)
        with _plain(f"The Delta table {place} cannot be opened", InputError):
            if not module.DeltaTable.is_deltatable(url, options):
                return None
            return module.DeltaTable(url, None if version is None else int(version), options)

    def account(self, storage: Storage, output: Output, table: Any, schema: StructType) -> _Account:
        """Get ready to add files of this schema to a table, or to make one of them.

        Raises:
            ConfigError: The columns do not fit the table, or Delta has no such types.
        """
        if table is not None:
            there = StructType.fromJson(json.loads(table.schema().to_json()))
            check_fits(schema, there, f"the Delta table {output.place}")
            partitions = table.metadata().partition_columns
            return _Account(self, storage, output, table.schema(), tuple(partitions), table)
        if unknown := [f"{f.name} ({f.dataType.simpleString()})" for f in schema if not _known(f.dataType)]:
            raise ConfigError(
                "Columns have types that Delta tables lack",
                got=", ".join(unknown),
                do="Choose another --output-format",
            )
        own = self.module().Schema.from_json(schema.json())
        return _Account(self, storage, output, own, output.partitions, None)


@dataclass(frozen=True)
class _Account:
    """A table's log, which is about to name more files; ``table`` is None for one that is made."""

    delta: Delta
    storage: Storage
    output: Output
    schema: Any
    partitions: tuple[str, ...]
    table: Any

    def commit(self, run: str, folder: str, files: Sequence[WrittenFile]) -> None:
        add = self.delta.module(".transaction")
        actions = [
            add.AddAction(
                path=f"{run}/{file.path}",
                size=file.size,
                partition_values=file.partition,
                modification_time=file.modified,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        properties = add.CommitProperties(
            custom_metadata={"dptext-spark": __version__}, app_transactions=[add.Transaction(run, 0)]
        )
        chosen = {"partition_by": [*self.partitions], "commit_properties": properties}
        with _plain(f"The files could not be made part of the Delta table {self.output.place}", JobError):
            if self.table is None:
                url, options = url_of(self.storage, self.output.place), self.delta.library_options
                add.create_table_with_add_actions(
                    url, self.schema, actions, "error", storage_options=options, **chosen
                )
            else:
                mode = "overwrite" if self.output.overwrite else "append"
                self.table.create_write_transaction(actions, mode, self.schema, **chosen)

    def has(self, run: str) -> bool:
        table = self.delta.table(self.storage, self.output.place)
        return table is not None and table.transaction_version(run) is not None


def _live_rows(
    spark: SparkSession,
    storage: Storage,
    place: str,
    schema: StructType,
    partitions: Sequence[str],
    actions: pa.Table,
) -> DataFrame:
    """Read the live files; values of partition columns come from the log: the files lack them."""
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    if outside := [path for path in paths if _OUTSIDE.match(path)]:
        raise InputError(
            f"The Delta table {place} has files outside its folder",
            got=f"{len(outside)} files",
            do="It is a shallow clone: copy it whole",
        )
    root = storage.qualified(place)
    inside = [f"{root}/{path}" for path in paths]
    if not (partitions and inside):
        return read_files(spark, schema, inside, place)
    data, named = (
        StructType([field for field in schema if (field.name in partitions) == wanted])
        for wanted in (False, True)
    )
    df = read_files(spark, data, inside, place)
    urls = {unquote(file_url(url)): file_url(url) for url in df.inputFiles()}
    values = actions["partition"].combine_chunks()
    columns = {_FILE: [urls[path] for path in inside], **{n: values.field(n) for n in named.fieldNames()}}
    known = spark.createDataFrame(pa.table(columns), StructType([_FILE_FIELD, *named]))
    url = F.regexp_replace(df.metadataColumn("_metadata")["file_path"], *LOCAL_URL)
    joined = df.join(F.broadcast(known), url == known[_FILE], "left")
    unknown = failing(InputError(f"Spark read a file that the log of {place} does not name"))
    return joined.select(
        *[
            F.when(known[_FILE].isNotNull(), quoted(field.name))
            .otherwise(unknown)
            .alias(field.name, metadata=field.metadata)
            if field.name in partitions
            else quoted(field.name)
            for field in schema
        ]
    )


def _check_readable(table: Any, what: str) -> None:
    """Refuse a table whose files alone do not tell its rows.

    Raises:
        InputError: It has features that are not known here, maps columns, or marks rows as deleted.
    """
    faults, cures = [], ["Read it by Delta's own Spark package with --format table"]
    if unknown := sorted({*(table.protocol().reader_features or ())} - _READABLE):
        faults.append(f"reader features {', '.join(unknown)}")
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        faults.append("column mapping")
        cures.append("copy it: CREATE TABLE ... AS SELECT")
    with _plain(what, InputError):
        deleted = 0 if faults else sum(batch.num_rows for batch in table.deletion_vectors())
    if deleted:
        faults.append(f"deletion vectors of {deleted} files")
        cures.append("rewrite these files: REORG TABLE ... APPLY (PURGE)")
    if faults:
        raise InputError(what, got="; ".join(faults), do=", or ".join(cures))


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
        if rule.startswith(_RULES)
    ]
    if output.overwrite and configuration.get("delta.appendOnly") == "true":
        faults.append("delta.appendOnly, with --mode overwrite")
    if faults:
        raise ConfigError(
            f"Nothing can be written to the Delta table {output.place}",
            got=", ".join(sorted(faults)),
            do="Write a new table, and have Delta's own writer add its rows",
        )


def _known(kind: DataType) -> bool:
    """Say whether Delta tables have a type, by any reader."""
    if isinstance(kind, StructType):
        return all(_known(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _known(kind.elementType)
    if isinstance(kind, MapType):
        return _known(kind.keyType) and _known(kind.valueType)
    return isinstance(kind, _TYPES)


@contextmanager
def _plain(what: str, kind: type[DptextError]) -> Iterator[None]:
    """Turn the library's errors into this package's."""
    exceptions = Delta.module(".exceptions")
    try:
        yield
    except (exceptions.DeltaError, OSError, ValueError, TypeError) as error:
        raise kind(what, got=told(error, kind, exceptions.CommitFailedError)) from None
