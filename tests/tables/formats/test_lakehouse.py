"""Delta and Iceberg tables, as their own libraries wrote them, without any package of Spark's."""

import datetime as dt
import json
import shutil
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from deltalake.table import TableFeatures
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.transforms import DayTransform
from pyiceberg.types import StringType

from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.tables.formats.delta import Delta
from dptext_spark.tables.formats.iceberg import Iceberg
from dptext_spark.tables.source import where
from dptext_spark.tables.storage import Storage
from tests.helpers.lakes import DeltaLake, IcebergLake
from tests.helpers.tables import RING_WORDS, hashes, names, refused, rows_of, spark_settings, texts

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

KEPT = {
    "id": [1, 2, 3, 4],
    "text": texts(4),
    "place": ["a b/c=%d é #?%41", "x", None, "x"],
    "day": [dt.date(2026, 1, 1), None, dt.date(2026, 1, 2), dt.date(2026, 1, 2)],
    "number": pa.array([7, None, 8, 8], pa.int32()),
    "at": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us", "UTC")),
    "local": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us")),
    "good": [True, False, None, True],
    "turns": [[{"who": "x"}], [], None, [{"who": None}]],
}

SCHEMA = "id bigint, text string"


@pytest.fixture
def deltas(tmp_path, monkeypatch):
    return DeltaLake(tmp_path, monkeypatch)


@pytest.fixture
def icebergs(tmp_path, monkeypatch):
    return IcebergLake(tmp_path, monkeypatch)


@pytest.fixture(params=["deltas", "icebergs"])
def lake(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def run(dptext, tmp_path):
    """``dptext privatize`` from one table of a lake to another."""

    def invoke(lake, *arguments, output="out"):
        given = ["--format", lake.kind.name, "--id", "id", "--trust-id", "--keep", "id", *arguments]
        shutil.rmtree(tmp_path / "reports", ignore_errors=True)
        given += ["--reports", str(tmp_path / "reports")]
        return dptext(lake.place("in"), *given, output=lake.place(output))

    return invoke


@pytest.fixture
def write(spark):
    """Write six rows to the table ``out`` of a lake, as a run does."""

    def invoke(lake, mode="error", count=6):
        out = lake.kind(lake.place("out"), mode=mode)
        out.check_place(Storage(spark))
        out.write(spark.createDataFrame(rows([*range(count)]).to_pylist(), SCHEMA))

    return invoke


def rows(ids):
    return pa.table({"id": ids, "text": texts(len(ids))})


def read(spark, lake, place, **options):
    return lake.kind(place, options).open(spark).df


def test_deleted_and_replaced_rows_are_not_read(lake, spark):
    """Rejects the folder's files as they are, an input that changes, and the newest version always."""
    lake.write("in", rows([*range(6)]))
    lake.change("in")
    lake.write("in", rows([10, 11]), mode="append")
    before, live = hashes(lake.files("in")), lake.rows("in")
    df = read(spark, lake, lake.place("in"))
    assert [row.asDict() for row in df.orderBy("id").collect()] == live
    assert [row["id"] for row in live] == [0, 2, 3, 5, 10, 11] and live[1]["text"] == RING_WORDS[9]
    assert len(rows_of(lake.files("in"))) > len(live)
    first = read(spark, lake, lake.place("in"), **lake.old())
    assert sorted(row["id"] for row in first.collect()) == [*range(6)]
    assert hashes(lake.files("in")) == before


def test_partitions_keep_their_types_and_values(run, lake, spark):
    """Rejects partitions that are strings, times of the session's zone, and files that only Spark reads."""
    table = pa.table(KEPT | {"place": ["a b/c=%d é #?%41", lake.other, None, "x"]})
    lake.write("in", table, lake.partitions)
    lake.write("empty", table.slice(0, 0), lake.partitions)
    empty = read(spark, lake, lake.place("empty"))
    assert empty.collect() == [] and empty.dtypes == read(spark, lake, lake.place("in")).dtypes
    kept = [name for name in KEPT if name not in {"id", "text"}]
    if isinstance(lake, DeltaLake):
        lake.table("in").alter.add_columns([Field("later", PrimitiveType("double"))])
        kept.append("later")
    with spark_settings(spark, session_timeZone="America/New_York"):
        result = run(lake, *[part for name in kept for part in ("--keep", name)])
    assert result.exit_code == 0, result.output
    assert lake.types("out") == lake.types("in")
    before, after = (
        [{n: row[n] for n in ("id", *kept)} for row in lake.rows(name)] for name in ("in", "out")
    )
    assert before == after and len(before) == 4
    given, again = (read(spark, lake, lake.place(name)) for name in ("in", "out"))
    assert again.dtypes == given.select("id", "text", *kept).dtypes
    for df in (given, again):
        assert [row["id"] for row in where(df, "place is null and day is not null").collect()] == [
            3
        ]


def test_rows_are_added_and_replaced_in_one_commit_each(write, lake, spark):
    write(lake, count=0)
    assert read(spark, lake, lake.place("out")).collect() == lake.rows("out") == []
    for mode, times in (("append", 1), ("append", 2), ("overwrite", 1)):
        write(lake, mode)
        assert [row["id"] for row in lake.rows("out")] == sorted([*range(6)] * times)
    assert lake.commits("out") == 4
    assert names(lake.folder) == {"out"}
    lake.write("other", pa.table({"id": ["a"], "text": ["b"], "more": [1]}))
    before = hashes(lake.folder)
    schema = spark.createDataFrame([], SCHEMA).schema
    lacking = "id is bigint in the output and string in the table; more is absent in the output and bigint"
    with pytest.raises(ConfigError, match=lacking):
        lake.kind(lake.place("other"), mode="append").check_schema(spark, schema)
    assert hashes(lake.folder) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_commit_that_fails_leaves_nothing(write, lake, tmp_path, exists):
    """Rejects files that stay, and a message that quotes values of the files."""
    if exists:
        lake.write("out", rows([0]))
    error, said = (
        (ValueError("quartz is no date"), "ValueError") if exists else (lake.failed, "no room")
    )

    def failing(_):
        def fail(*_, **__):
            raise error

        return fail

    with lake.broken_commits(failing), pytest.raises(JobError, match=rf"part of .*Got: {said}\."):
        write(lake, "append")
    assert not [*tmp_path.rglob("*dptext*")]
    if exists:
        assert [row["id"] for row in lake.rows("out")] == [0]
    else:
        write(lake)


def test_a_commit_whose_answer_is_lost_is_made_once(write, lake):
    """Rejects files that are removed after their commit, and a second commit."""
    lake.write("out", rows([0]))

    def losing(commit):
        def lose(*arguments, **options):
            commit(*arguments, **options)
            raise OSError("connection reset")

        return lose

    before = lake.commits("out")
    with lake.broken_commits(losing):
        write(lake, "overwrite")
    assert [row["id"] for row in lake.rows("out")] == [*range(6)]
    assert lake.commits("out") == before + 1


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
