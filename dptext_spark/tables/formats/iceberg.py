"""Iceberg tables by the library ``pyiceberg``, which finds them by its own catalogs.

The snapshot of a table lists the files that count. Iceberg knows columns by numbers, Spark's
Parquet reader by names: a table whose schema changed is read once all its files have the columns of
today.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.format import check_fits
from dptext_spark.tables.formats.lakehouse import (
    Addition,
    LakehouseFormat,
    WrittenFile,
    hadoop_url,
    plain,
    read_files,
    unreadable,
)
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import LocalFiles, Storage
from dptext_spark.version import __version__

_PART: Final = "__dptext_part"
_RUN: Final = "dptext-spark.run"
_READERS: Final = 16


class Iceberg(LakehouseFormat):
    """A table ``CATALOG.NAMESPACE.TABLE`` of a catalog that pyiceberg is configured for.

    Options are properties of the catalog; ``snapshot-id`` among the reader's chooses a snapshot.
    """

    name = "iceberg"
    library = "pyiceberg"
    spark_package = "org.apache.iceberg:iceberg-spark-runtime"
    oldest_arrow = 18
    chooser = "snapshot-id"
    has_path = False

    def open(self, spark: SparkSession) -> Source:
        with plain(f"The Iceberg table {self.place} cannot be opened", InputError):
            catalog, name = self._catalog()
            table = catalog.load_table(name)
            scan = table.scan(snapshot_id=self.chosen)
            schema, tasks = scan.projection(), list(scan.plan_files())
        _check_readable(table, schema, tasks, self.place)
        paths = [hadoop_url(task.file.file_path) for task in tasks]
        df = read_files(spark, _spark_schema(schema), paths, self.place)
        return Source(place=self.place, read=df, partitions=_identities(table, schema))

    def check_writable(self, table: Any) -> None:
        if others := {str(field.transform) for field in table.spec().fields} - {"identity"}:
            raise ConfigError(
                f"Nothing can be written to the Iceberg table {self.place}",
                allowed="partitions by a column's values",
                got=f"partitions by {', '.join(sorted(others))}",
                do="Write a new table, and have Iceberg's own writer add its rows",
            )

    def addition(self, spark: SparkSession, schema: StructType) -> Addition:
        table, partitions = self.existing(Storage(spark)), self.partitions
        with plain(
            f"The Iceberg table {self.place} cannot be made of the output's columns", ConfigError
        ):
            columns = to_arrow(spark.createDataFrame([], schema)).schema
            if table is None:
                catalog, name = self._catalog()
                transaction = catalog.create_table_transaction(name, columns)
                with transaction.update_spec() as spec:
                    for column in partitions:
                        spec.add_identity(column)
            else:
                there, names = _spark_schema(table.schema()), table.schema().name_mapping
                if {*there.names} == {*schema.names}:
                    schema = _spark_schema(
                        self.module(".io.pyarrow").pyarrow_to_schema(columns, names)
                    )
                check_fits(schema, there, f"the Iceberg table {self.place}")
                transaction, partitions = table.transaction(), _identities(table, table.schema())
        location = transaction.table_metadata.location.rstrip("/")

        def commit(run: str, files: list[WrittenFile]) -> None:
            paths = [f"{location}/data/{run}/{path}" for path, *_ in files]
            about = {"dptext-spark.version": __version__, _RUN: run}
            with plain(
                f"The files could not be made part of the Iceberg table {self.place}", JobError
            ):
                if table is not None and self.mode == "overwrite":
                    transaction.delete(self.module(".expressions").AlwaysTrue())
                transaction.add_files(paths, snapshot_properties=about)
                transaction.commit_transaction()

        # A folder for each part, not the columns themselves: Iceberg's files hold them, and Spark
        # leaves out what it names folders by; and it puts the empty text into the folder of nulls.
        facts = [fact for column in map(quoted, partitions) for fact in (column.isNull(), column)]
        folder = hadoop_url(location)
        return folder, f"{folder}/data", {_PART: F.xxhash64(*facts)} if facts else {}, commit

    def has(self, storage: LocalFiles, run: str) -> bool:
        table = self.existing(storage)
        summaries = [] if table is None else [snapshot.summary for snapshot in table.snapshots()]
        return any(
            each is not None and each.additional_properties.get(_RUN) == run for each in summaries
        )

    def _catalog(self) -> tuple[Any, str]:
        """Open the catalog of the table; the table's name in it comes second."""
        catalog, _, name = self.place.partition(".")
        return self.module(".catalog").load_catalog(catalog, **self.library_options), name

    def existing(self, storage: LocalFiles) -> Any:
        with plain(f"The Iceberg table {self.place} cannot be opened", ConfigError):
            catalog, name = self._catalog()
            return catalog.load_table(name) if catalog.table_exists(name) else None


def _check_readable(table: Any, schema: Any, tasks: Sequence[Any], place: str) -> None:
    """Refuse a table with delete files, other files than Parquet, or files of another schema."""
    faults = []
    if deleted := sum(bool(task.delete_files) for task in tasks):
        faults.append(f"delete files for {deleted} files")
    if fine := [
        n for n in schema.column_names if str(schema.find_field(n).field_type).endswith("_ns")
    ]:
        faults.append(f"columns of nanoseconds: {', '.join(fine)}")
    if others := sorted({task.file.file_format.value for task in tasks} - {"PARQUET"}):
        faults.append(f"files of format {', '.join(others)}")
    if not faults:
        convert, mapping = Iceberg.module(".io.pyarrow").pyarrow_to_schema, table.name_mapping()

        def numbered(given: Any) -> set[tuple[str, int]]:
            return {(name, given.find_field(name).field_id) for name in given.column_names}

        def evolved(task: Any) -> set[str]:
            with table.io.new_input(task.file.file_path).open() as stream:
                own = convert(pq.read_schema(stream), name_mapping=mapping)
            return {name for name, _ in numbered(schema) ^ numbered(own)}

        with (
            plain(f"The files of the table {place} cannot be read", InputError),
            ThreadPoolExecutor(_READERS) as readers,
        ):
            names = set[str]().union(*readers.map(evolved, tasks))
        if names:
            faults.append(
                f"columns that its schema and some file do not share: {', '.join(sorted(names))}"
            )
    if faults:
        raise unreadable("Iceberg", place, faults, "delete files (procedure rewrite_data_files)")


def _spark_schema(schema: Any) -> StructType:
    spark: StructType = from_arrow_schema(schema.as_arrow(), prefer_timestamp_ntz=True)
    return spark


def _identities(table: Any, schema: Any) -> tuple[str, ...]:
    """Columns whose values name the parts of a table."""
    fields = [field for field in table.spec().fields if str(field.transform) == "identity"]
    return tuple(name for field in fields if (name := schema.find_column_name(field.source_id)))
