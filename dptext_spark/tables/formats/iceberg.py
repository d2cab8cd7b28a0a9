"""Iceberg tables by the library ``pyiceberg``, which finds them by its own catalogs.

The snapshot of a table lists the files that count. Iceberg knows columns by numbers, Spark's Parquet reader
by names: a table whose schema changed is read once all its files have the columns of today.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dptext_spark.errors import ConfigError, DptextError, InputError, JobError
from dptext_spark.spark.failures import condition
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import Output
from dptext_spark.tables.formats.lakehouse import (
    LakehouseFormat,
    WrittenFile,
    check_fits,
    read_files,
    told,
    url_of,
    write_and_commit,
)
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import Places, Storage
from dptext_spark.version import __version__

_SNAPSHOT: Final = "snapshot-id"
_METADATA: Final = ".metadata.json"
_PART: Final = "__dptext_part"
_READERS: Final = 16


class Iceberg(LakehouseFormat):
    """A table ``CATALOG.NAMESPACE.TABLE`` of a catalog that pyiceberg is configured for.

    An input may be the path of a table's ``...metadata.json`` as well. Options are properties of the catalog;
    ``snapshot-id`` among the reader's chooses a snapshot.
    """

    name = "iceberg"
    title = "Iceberg"
    library = "pyiceberg"
    spark_package = "org.apache.iceberg:iceberg-spark-runtime"
    has_path = False

    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        with _plain(f"The Iceberg table {place} cannot be opened", InputError):
            if place.endswith(_METADATA):
                url = url_of(storage, place)
                table = self.module(".table").StaticTable.from_metadata(url, self._properties)
            else:
                catalog, name = self._catalog(place)
                table = catalog.load_table(name)
            snapshot = self.options.get(_SNAPSHOT)
            scan = table.scan(snapshot_id=None if snapshot is None else int(snapshot))
            schema, tasks = scan.projection(), list(scan.plan_files())
        _check_readable(table, schema, tasks, place)
        paths = [_hadoop(task.file.file_path) for task in tasks]
        df = read_files(spark, _spark_schema(schema), paths, place)
        return Source(place=place, read=df, partitions=_identities(table, schema))

    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        table = self._existing(output.place)
        if table is None:
            self._check_namespace(output.place)
            return
        self.check_known(storage, output, _hadoop(table.location()), exists=True)
        _check_writable(table, output.place)

    def check_schema(self, storage: Storage, schema: StructType, output: Output) -> None:
        self._transaction(self._existing(output.place), schema, output)

    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        table = self._existing(output.place)
        transaction, partitions = self._transaction(table, result.schema, output)
        location = _hadoop(transaction.table_metadata.location).rstrip("/")
        write_and_commit(
            storage,
            result.withColumns(_parted(partitions)),
            _Account(self, output, transaction, replaces=table is not None and output.overwrite),
            output=output,
            compression=self.compression,
            table=location,
            folder=f"{location}/data",
            partitions=[*_parted(partitions)],
        )

    def _transaction(self, table: Any, schema: StructType, output: Output) -> tuple[Any, tuple[str, ...]]:
        """Get ready to add files of this schema to a table, or to make one of them; with its partitions.

        Raises:
            ConfigError: The columns do not fit the table, or Iceberg has no such types.
        """
        with _plain(f"The Iceberg table {output.place} cannot have the output's columns", ConfigError):
            columns = _arrow_schema(schema)
            if table is None:
                catalog, name = self._catalog(output.place)
                made = catalog.create_table_transaction(name, columns)
                with made.update_spec() as spec:
                    for column in output.partitions:
                        spec.add_identity(column)
                return made, output.partitions
            there, names = _spark_schema(table.schema()), table.schema().name_mapping
            if {*there.names} == {*schema.names}:
                schema = _spark_schema(self.module(".io.pyarrow").pyarrow_to_schema(columns, names))
            check_fits(schema, there, f"the Iceberg table {output.place}")
            return table.transaction(), _identities(table, table.schema())

    @property
    def _properties(self) -> dict[str, str]:
        mine = (_SNAPSHOT, "compression")
        return {name: value for name, value in self.options.items() if name.lower() not in mine}

    def _catalog(self, place: str) -> tuple[Any, str]:
        """Open the catalog of a table; the table's name in it comes second."""
        catalog, _, name = place.partition(".")
        if "." not in name:
            raise ConfigError(
                "The name of an Iceberg table has three parts",
                allowed="CATALOG.NAMESPACE.TABLE, with a catalog that ~/.pyiceberg.yaml or variables "
                "PYICEBERG_CATALOG__NAME__... describe; as input, the path of a metadata.json as well",
                got=place,
            )
        return self.module(".catalog").load_catalog(catalog, **self._properties), name

    def _existing(self, place: str) -> Any:
        """Open a table; None where there is none."""
        with _plain(f"The Iceberg table {place} cannot be opened", ConfigError):
            catalog, name = self._catalog(place)
            return catalog.load_table(name) if catalog.table_exists(name) else None

    def _check_namespace(self, place: str) -> None:
        with _plain(f"The Iceberg table {place} cannot be made", ConfigError):
            catalog, name = self._catalog(place)
            namespace = name.rpartition(".")[0]
            if not catalog.namespace_exists(namespace):
                raise ConfigError(
                    f"The namespace {namespace} of the output is not in its catalog",
                    do="Make it, or choose another --output",
                )

    def has(self, place: str, run: str) -> bool:
        """Say whether a table has the snapshot of a run."""
        table = self._existing(place)
        return table is not None and any(
            snapshot.summary is not None and snapshot.summary.additional_properties.get(_RUN) == run
            for snapshot in table.snapshots()
        )


_RUN: Final = "dptext-spark.run"


@dataclass(frozen=True)
class _Account:
    """A transaction of a table, which is about to name more files."""

    iceberg: Iceberg
    output: Output
    transaction: Any
    replaces: bool

    def commit(self, run: str, folder: str, files: Sequence[WrittenFile]) -> None:
        root = f"{self.transaction.table_metadata.location.rstrip('/')}/data/{run}"
        about = {"dptext-spark.version": __version__, _RUN: run}
        with _plain(f"The files could not be made part of the Iceberg table {self.output.place}", JobError):
            if self.replaces:
                always = self.iceberg.module(".expressions").AlwaysTrue()
                self.transaction.delete(always)
            self.transaction.add_files([f"{root}/{file.path}" for file in files], snapshot_properties=about)
            self.transaction.commit_transaction()

    def has(self, run: str) -> bool:
        return self.iceberg.has(self.output.place, run)


def _check_readable(table: Any, schema: Any, tasks: Iterable[Any], place: str) -> None:
    """Refuse a table whose files alone, read by the names of columns, do not tell its rows.

    Raises:
        InputError: It has delete files, other files than Parquet, or files of another schema.
    """
    faults, cures = [], ["Read it by Iceberg's own Spark package with --format table"]
    if deleted := sum(bool(task.delete_files) for task in tasks):
        faults.append(f"delete files for {deleted} files")
        cures.append("rewrite these files (procedure rewrite_data_files)")
    if fine := [n for n in schema.column_names if str(schema.find_field(n).field_type).endswith("_ns")]:
        faults.append(f"columns of nanoseconds: {', '.join(fine)}")
    if others := sorted({task.file.file_format.value for task in tasks} - {"PARQUET"}):
        faults.append(f"files of format {', '.join(others)}")
    if not faults and (evolved := sorted(_evolved(table, schema, tasks, place))):
        faults.append(f"columns that its schema and some file do not share: {', '.join(evolved)}")
        cures.append("copy it: CREATE TABLE ... AS SELECT")
    if faults:
        raise InputError(
            f"The Iceberg table {place} cannot be read", got="; ".join(faults), do=", or ".join(cures)
        )


def _evolved(table: Any, schema: Any, tasks: Iterable[Any], place: str) -> set[str]:
    """Name the columns that a file does not have under the table's name and number, or has in addition."""
    convert, mapping = Iceberg.module(".io.pyarrow").pyarrow_to_schema, table.name_mapping()
    wanted = {(name, schema.find_field(name).field_id) for name in schema.column_names}

    def look(task: Any) -> set[str]:
        with table.io.new_input(task.file.file_path).open() as stream:
            own = convert(pq.read_schema(stream), name_mapping=mapping)
        return {n for n, _ in wanted ^ {(name, own.find_field(name).field_id) for name in own.column_names}}

    with (
        _plain(f"The files of the table {place} cannot be read", InputError),
        ThreadPoolExecutor(_READERS) as readers,
    ):
        return set().union(*readers.map(look, tasks))


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Give Arrow's form of a schema, by Spark itself.

    Raises:
        ValueError: A type has none.
    """
    try:
        return SparkSession.active().createDataFrame([], schema).toArrow().schema
    except (PySparkException, Py4JJavaError) as error:
        raise ValueError(condition(error)) from None


def _spark_schema(schema: Any) -> StructType:
    found: StructType = from_arrow_schema(schema.as_arrow(), prefer_timestamp_ntz=True)
    return found


def _identities(table: Any, schema: Any) -> tuple[str, ...]:
    """Columns whose values name the parts of a table."""
    fields = [field for field in table.spec().fields if str(field.transform) == "identity"]
    return tuple(name for field in fields if (name := schema.find_column_name(field.source_id)))


def _parted(partitions: Sequence[str]) -> dict[str, Column]:
    """Give a column that names a folder for each part of a table.

    Not the columns themselves: Iceberg's files hold them, and Spark leaves out what it names folders by; and
    it puts the empty text into the folder of nulls.
    """
    facts = [fact for column in map(quoted, partitions) for fact in (column.isNull(), column)]
    return {_PART: F.xxhash64(*facts)} if facts else {}


def _check_writable(table: Any, place: str) -> None:
    if others := [
        str(field.transform) for field in table.spec().fields if str(field.transform) != "identity"
    ]:
        raise ConfigError(
            f"Nothing can be written to the Iceberg table {place}",
            allowed="partitions by a column's values",
            got=f"partitions by {', '.join(others)}",
            do="Write a new table, and have Iceberg's own writer add its rows",
        )


def _hadoop(url: str) -> str:
    """Write the URL of a file as Spark knows it."""
    return f"s3a{url.removeprefix('s3')}" if url.startswith("s3://") else url


@contextmanager
def _plain(what: str, raised: type[DptextError]) -> Iterator[None]:
    """Turn the library's errors, and those of the databases below it, into this package's."""
    modules = [Iceberg.module(name) for name in (".exceptions", ".io.pyarrow")]
    kinds = [kind for module in modules for kind in vars(module).values()]
    own = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)]
    known: tuple[type[Exception], ...] = (*own, OSError, ValueError, TypeError, NotImplementedError)
    databases: tuple[type[Exception], ...] = ()
    with suppress(ImportError):  # catalogs in databases need it, others do not
        databases = (importlib.import_module("sqlalchemy.exc").SQLAlchemyError,)
    try:
        yield
    except databases as error:  # may quote addresses with passwords
        raise raised(what, got=type(error).__name__) from None
    except known as error:
        raise raised(what, got=told(error, raised, modules[0].CommitFailedException)) from None
