"""Delta tables, as their own library wrote them: what cannot be read or written, and shallow clones."""

import json
import shutil
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableFeatures

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.tables.formats.delta import Delta
from dptext_spark.tables.storage import Storage
from tests.helpers.lakes import KEPT, read, rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def add_commit(table, *lines):
    """Commit by hand what the library cannot."""
    number = DeltaTable(table).version() + 1
    file = table / "_delta_log" / f"{number:020d}.json"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def mark_as_deleted(table):
    """Give the second row of the only file a deletion vector."""
    features = [TableFeatures.DeletionVectors]
    DeltaTable(table).alter.add_feature(features, allow_protocol_versions_increase=True)
    log = [
        line for file in table.glob("_delta_log/*.json") for line in file.read_text().splitlines()
    ]
    (added,) = [line["add"] for line in map(json.loads, log) if "add" in line]
    vector = {"storageType": "i", "sizeInBytes": 34, "cardinality": 1}
    vector["pathOrInlineDv"] = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91"
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}
    add_commit(table, {"remove": removed}, {"add": {**added, "deletionVector": vector}})


def ask_for_a_feature(table):
    features = {"readerFeatures": ["somethingNew"], "writerFeatures": ["somethingNew"]}
    add_commit(table, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})


def remove_files(table):
    for file in table.glob("*.parquet"):
        file.unlink()


@pytest.mark.parametrize("prefix", ["file:", "file://", ""])
def test_a_shallow_clone_is_read_from_where_its_log_says(deltas, spark, prefix):
    """Rejects a path that is taken to lie below the clone, and partitions that are lost on the way."""
    for name, partitions in {"flat": (), "parts": ("place",)}.items():
        deltas.write(name, pa.table(KEPT).select(["id", "text", "place"]), partitions)
        clone = deltas.files(f"clone of {name}")
        shutil.copytree(deltas.files(name) / "_delta_log", clone / "_delta_log")
        (commit,) = clone.glob("_delta_log/*.json")
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                line["add"]["path"] = f"{prefix}{quote(deltas.place(name))}/{line['add']['path']}"
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
        df = read(spark, deltas, str(clone))
        assert [row.asDict() for row in df.orderBy("id").collect()] == deltas.rows(name)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({}, mark_as_deleted, "deletion vectors of 1 files.*REORG TABLE"),
        (
            {"configuration": {"delta.columnMapping.mode": "name"}},
            None,
            "column mapping.*CREATE TABLE",
        ),
        ({}, ask_for_a_feature, "somethingNew"),
        ({}, remove_files, "The files of the table .* cannot be read. Got: no such file"),
        ({}, lambda table: (table / "_delta_log").rename(table / "log"), "is not a Delta table"),
    ],
)
def test_delta_tables_that_cannot_be_read(deltas, spark, options, change, message):
    deltas.write("in", rows([0, 1, 2]), **options)
    if change is not None:
        change(deltas.files("in"))
    with pytest.raises((InputError, ConfigError), match=message):
        read(spark, deltas, deltas.place("in"))
    if change is mark_as_deleted:  # the feature stays, the vectors are gone
        deltas.write("in", rows([7]), mode="overwrite")
        assert read(spark, deltas, deltas.place("in")).count() == 1


def test_delta_tables_that_cannot_be_written(deltas, spark, table):
    place = deltas.place
    deltas.write("rules", rows([0])).alter.add_constraint({"positive": "id >= 0"})
    deltas.write("kept", rows([0]), configuration={"delta.appendOnly": "true"})
    deltas.write("more", rows([0]))
    feature = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}
    add_commit(deltas.files("more"), {"protocol": feature})
    for out, mode, message in (
        (place("more"), "append", "Got: writer feature domainMetadata"),
        (place("rules"), "append", "delta.constraints.positive"),
        (place("kept"), "overwrite", "delta.appendOnly, with --mode overwrite"),
        (str(table), "error", "exists and is not a table of format delta"),
    ):
        with pytest.raises(ConfigError, match=message):
            Delta(out, mode=mode).check_place(Storage(spark))
    with pytest.raises(InputError, match=r"cannot be opened\. Got: invalid literal"):
        read(spark, deltas, place("kept"), version="x")
