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
    library_errors,
    read_files,
    unreadable,
)
from dptext_spark.tables.source import TableSource
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

    def open(self, spark: SparkSession) -> TableSource:
        with library_errors(f"The Iceberg table {self.place} cannot be opened", InputError):
            catalog, name = self._catalog()
            table = catalog.load_table(name)
            scan = table.scan(snapshot_id=self.chosen)
            schema = scan.projection()
            tasks = list(scan.plan_files())
        _check_readable(table, schema, tasks, self.place)
        paths = [hadoop_url(task.file.file_path) for task in tasks]
        df = read_files(spark, _spark_schema(schema), paths, self.place)
        return TableSource(place=self.place, read=df, partitions=_identities(table, schema))

    def check_writable(self, table: Any) -> None:
        transforms = {str(field.transform) for field in table.spec().fields} - {"identity"}
        if transforms:
            raise ConfigError(
                f"Nothing can be written to the Iceberg table {self.place}",
                allowed="partitions by a column's values",
                got=f"partitions by {', '.join(sorted(transforms))}",
                do="Write a new table, and have Iceberg's own writer add its rows",
            )

    def addition(self, spark: SparkSession, schema: StructType) -> Addition:
        table = self.existing(Storage(spark))
        partitions = self.partitions
        with library_errors(
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
                table_schema = _spark_schema(table.schema())
                if {*table_schema.names} == {*schema.names}:
                    convert = self.module(".io.pyarrow").pyarrow_to_schema
                    schema = _spark_schema(convert(columns, table.schema().name_mapping))
                check_fits(schema, table_schema, f"the Iceberg table {self.place}")
                transaction = table.transaction()
                partitions = _identities(table, table.schema())
        location = transaction.table_metadata.location.rstrip("/")

        def commit(run: str, files: list[WrittenFile]) -> None:
            paths = [f"{location}/data/{run}/{path}" for path, *_ in files]
            properties = {"dptext-spark.version": __version__, _RUN: run}
            with library_errors(
                f"The files could not be made part of the Iceberg table {self.place}", JobError
            ):
                if table is not None and self.mode == "overwrite":
                    transaction.delete(self.module(".expressions").AlwaysTrue())
                transaction.add_files(paths, snapshot_properties=properties)
                transaction.commit_transaction()

        # A folder for each part, not the columns themselves: Iceberg's files hold them, and Spark
        # leaves out what it names folders by; and it puts the empty text into the folder of nulls.
        values = []
        for value in map(quoted, partitions):
            values += [value.isNull(), value]
        folder_columns = {}
        if values:
            folder_columns[_PART] = F.xxhash64(*values)
        folder = hadoop_url(location)
        return folder, f"{folder}/data", folder_columns, commit

    def has(self, storage: LocalFiles, run: str) -> bool:
        table = self.existing(storage)
        if table is None:
            return False
        for snapshot in table.snapshots():
            summary = snapshot.summary
            if summary is not None and summary.additional_properties.get(_RUN) == run:
                return True
        return False

    def _catalog(self) -> tuple[Any, str]:
        """Open the catalog of the table; the table's name in it comes second."""
        catalog, _, name = self.place.partition(".")
        return self.module(".catalog").load_catalog(catalog, **self.library_options), name

    def existing(self, storage: LocalFiles) -> Any:
        with library_errors(f"The Iceberg table {self.place} cannot be opened", ConfigError):
            catalog, name = self._catalog()
            if not catalog.table_exists(name):
                return None
            return catalog.load_table(name)


def _check_readable(table: Any, schema: Any, tasks: Sequence[Any], place: str) -> None:
    """Check for delete files, other files than Parquet, and files of another schema."""
    faults = []
    delete_files = sum(bool(task.delete_files) for task in tasks)
    if delete_files:
        faults.append(f"delete files for {delete_files} files")
    nanosecond_columns = [
        name
        for name in schema.column_names
        if str(schema.find_field(name).field_type).endswith("_ns")
    ]
    if nanosecond_columns:
        faults.append(f"columns of nanoseconds: {', '.join(nanosecond_columns)}")
    file_formats = sorted({task.file.file_format.value for task in tasks} - {"PARQUET"})
    if file_formats:
        faults.append(f"files of format {', '.join(file_formats)}")
    if not faults:
        names = sorted(_evolved_columns(table, schema, tasks, place))
        if names:
            faults.append(f"columns that its schema and some file do not share: {', '.join(names)}")
    if faults:
        raise unreadable("Iceberg", place, faults, "delete files (procedure rewrite_data_files)")


def _evolved_columns(table: Any, schema: Any, tasks: Sequence[Any], place: str) -> set[str]:
    """Return the names of columns that the schema of a table and some file do not share."""
    convert = Iceberg.module(".io.pyarrow").pyarrow_to_schema
    mapping = table.name_mapping()
    numbers = _column_numbers(schema)

    def evolved(task: Any) -> set[str]:
        with table.io.new_input(task.file.file_path).open() as stream:
            file_schema = convert(pq.read_schema(stream), name_mapping=mapping)
        return {name for name, _ in numbers ^ _column_numbers(file_schema)}

    with (
        library_errors(f"The files of the table {place} cannot be read", InputError),
        ThreadPoolExecutor(_READERS) as readers,
    ):
        return set[str]().union(*readers.map(evolved, tasks))


def _column_numbers(schema: Any) -> set[tuple[str, int]]:
    """Return the names of all columns with Iceberg's numbers for them."""
    return {(name, schema.find_field(name).field_id) for name in schema.column_names}


def _spark_schema(schema: Any) -> StructType:
    spark_schema: StructType = from_arrow_schema(schema.as_arrow(), prefer_timestamp_ntz=True)
    return spark_schema


def _identities(table: Any, schema: Any) -> tuple[str, ...]:
    """Return the columns whose values name the parts of a table."""
    names = []
    for field in table.spec().fields:
        if str(field.transform) == "identity":
            name = schema.find_column_name(field.source_id)
            if name:
                names.append(name)
    return tuple(names)
