"""Iceberg tables, as their own library wrote them: what their files alone do not say is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.transforms import DayTransform
from pyiceberg.types import StringType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.tables.formats.iceberg import Iceberg
from dptext_spark.tables.storage import Storage
from tests.helpers.lakes import KEPT, SCHEMA, read
from tests.helpers.tables import refused

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_files_of_another_schema_are_refused(spark, icebergs):
    """Rejects nulls for what a file has under another name, and values of a column that was deleted."""
    for name, named, *changes in (
        ("added", "later", lambda it: it.add_column("later", StringType())),
        ("renamed", "text, words", lambda it: it.rename_column("text", "words")),
        # By its name it would be the deleted column.
        (
            "again",
            "text",
            lambda it: it.delete_column("text"),
            lambda it: it.add_column("text", StringType()),
        ),
    ):
        table = icebergs.write(name, pa.table(KEPT).select(["id", "text", "place"]))
        for each in changes:
            with table.update_schema(allow_incompatible_changes=True) as change:
                each(change)
        with pytest.raises(InputError, match=f"schema and some file do not share: {named}[.] Read"):
            read(spark, icebergs, f"lake.db.{name}")


def test_rows_that_files_alone_do_not_tell_are_refused(spark, icebergs, monkeypatch):
    """Rejects nulls for partition values that stand in the metadata alone, and rows of delete files."""
    table = icebergs.write(
        "in", pa.table(KEPT).select(["id", "text", "place"]).slice(3), ("place",)
    )
    (task,) = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read(columns=["id", "text"]), path)  # as Hive would have it
    with pytest.raises(InputError, match="schema and some file do not share: place"):
        read(spark, icebergs, "lake.db.in")
    # The library writes no delete files: it rewrites the others.
    monkeypatch.setattr(DataScan, "plan_files", lambda _: [FileScanTask(task.file, {task.file})])
    with pytest.raises(InputError, match=r"delete files for 1 files.*rewrite_data_files"):
        read(spark, icebergs, "lake.db.in")


def test_what_cannot_be_an_iceberg_table_here_is_refused(run, icebergs, spark):
    for place, message in (
        ("lake.db.nothing", "Table does not exist: db.nothing"),
        ("nowhere.db.in", "URI missing"),
        ("lake.in", ""),
        ("nowhere", ""),
    ):
        with pytest.raises(InputError, match=f"{place} cannot be opened. Got: {message}"):
            read(spark, icebergs, place)
    days = pa.schema([("id", pa.int64()), ("at", pa.date32())])
    with icebergs.catalog.create_table("db.days", schema=days).update_spec() as spec:
        spec.add_field("at", DayTransform(), "day")
    with pytest.raises(ConfigError, match=r"Nothing can be written to .*Got: partitions by day"):
        Iceberg("lake.db.days", mode="append").check_place(Storage(spark))
    with pytest.raises(
        ConfigError, match=r"other.out cannot be made of .*Got: Namespace other does not exist"
    ):
        Iceberg("lake.other.out").check_schema(spark, spark.createDataFrame([], SCHEMA).schema)
    assert refused(run(icebergs, "--mode", "append", output="in"), "Input and output are one table")
