"""Iceberg tables, as ``pyiceberg`` wrote them: read and written without any package of Spark's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.table.formats.format import Output
from dptext_spark.spark.table.formats.iceberg import Iceberg
from dptext_spark.spark.table.storage import Storage
from tests.helpers.tables import RING_WORDS, hashes, names, refused, rows_of, texts, write_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ICEBERG = ["--format", "iceberg", "--id", "id", "--keep", "id"]
KEPT = pa.table(
    {
        "id": [1, 2, 3, 4],
        "text": texts(4),
        "place": ["a b/c=%d é #?%41", "", None, "x"],
        "day": [dt.date(2026, 1, 1), None, dt.date(2026, 1, 2), dt.date(2026, 1, 2)],
        "number": pa.array([7, None, 8, 8], pa.int32()),
        "at": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us", "UTC")),
        "local": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us")),
        "turns": [[{"who": "x"}], [], None, [{"who": None}]],
    }
)
PARTITIONS = ["place", "day", "number"]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog ``lake`` in SQLite, by the variables that users set, with a namespace ``db``."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when the module was
    found = load_catalog("lake")
    found.create_namespace("db")
    return found


def write(catalog: Catalog, name: str, rows: pa.Table, partitions: list[str] | None = None) -> Table:
    """Make a table of these rows."""
    table = catalog.create_table(name, schema=rows.schema)
    with table.update_spec() as spec:
        for column in partitions or []:
            spec.add_identity(column)
    table.append(rows)
    return table


def ring(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "text": texts(len(ids))})


def rows(catalog: Catalog, name: str = "db.out") -> list[dict[str, Any]]:
    """The rows that the library's own reader finds, by id."""
    return catalog.load_table(name).scan().to_arrow().sort_by("id").to_pylist()


@pytest.fixture
def live(catalog: Catalog) -> Table:
    """A table of which rows were deleted, changed and added: its folder has rows that do not count."""
    table = write(catalog, "db.in", ring([*range(6)]))
    table.delete("id in (1, 4)")
    table.overwrite(pa.table({"id": [2], "text": [RING_WORDS[9]]}), overwrite_filter="id = 2")
    table.append(ring([10, 11]))
    return table


@pytest.fixture
def run(dptext: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    """``dptext privatize`` from ``lake.db.in`` to ``lake.db.out``."""

    def invoke(*arguments: str, source: str = "lake.db.in", output: str = "lake.db.out") -> Result:
        given = []
        for option in ("--report", "--public-report"):
            report = tmp_path / f"{option}.json"
            report.unlink(missing_ok=True)
            given += [option, report]
        return dptext(source, *ICEBERG, *arguments, *given, output=output)

    return invoke


def done(result: Result) -> bool:
    assert result.exit_code == 0, result.output
    return True


# Reading


def test_deleted_and_replaced_rows_are_not_released(
    run: Callable[..., Result],
    dptext: Callable[..., Result],
    catalog: Catalog,
    live: Table,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "warehouse" / "db" / "in"
    before = hashes(folder)
    assert done(run())
    assert hashes(folder) == before
    found = rows(catalog, "db.in")
    assert [row["id"] for row in found] == [0, 2, 3, 5, 10, 11]
    assert len(rows_of(folder)) > len(found)
    plain = write_table(tmp_path / "plain.parquet", {n: [r[n] for r in found] for n in ("id", "text")})
    assert done(dptext(plain, "--id", "id", "--keep", "id", output=tmp_path / "again"))
    # The same words as for the same rows in a plain file: the noise is that of the row.
    assert rows(catalog) == sorted(rows_of(tmp_path / "again"), key=lambda row: row["id"])


def test_a_snapshot_and_a_table_without_a_catalog(
    run: Callable[..., Result], live: Table, tmp_path: Path
) -> None:
    first = str(live.snapshots()[0].snapshot_id)
    target = ["--output-format", "parquet"]
    path = live.metadata_location
    for place in (path, path.removeprefix("file://")):
        out = tmp_path / f"out{len(place)}"
        assert done(run(*target, "--read-option", f"snapshot-id={first}", source=place, output=str(out)))
        assert sorted(row["id"] for row in rows_of(out)) == [*range(6)]


def test_partitions_keep_their_types_and_values(run: Callable[..., Result], catalog: Catalog) -> None:
    write(catalog, "db.in", KEPT, PARTITIONS)
    kept = [name for name in KEPT.column_names if name not in {"id", "text"}]
    named = [part for name in kept for part in ("--keep", name)]
    assert done(run(*named))
    out = catalog.load_table("db.out")
    assert [(f.name, str(f.transform)) for f in out.spec().fields] == [(n, "identity") for n in PARTITIONS]
    there = catalog.load_table("db.in").schema()
    assert {f.name: str(f.field_type) for f in out.schema().fields if f.name != "turns"} == {
        f.name: str(f.field_type) for f in there.fields if f.name != "turns"
    }

    def facts(name: str) -> list[dict[str, Any]]:
        return [{n: row[n] for n in kept} for row in rows(catalog, name)]

    assert facts("db.out") == facts("db.in")
    # An empty text and none at all lie in parts of their own.
    empty = out.scan(row_filter="place is null").to_arrow().column("id").to_pylist()
    assert empty == [3]
    assert done(run(*named, source="lake.db.out", output="lake.db.again"))
    assert facts("db.again") == facts("db.in")


def test_an_empty_table_is_read_and_written(run: Callable[..., Result], catalog: Catalog) -> None:
    catalog.create_table("db.in", schema=ring([1]).schema)
    assert done(run())
    assert rows(catalog) == []


# What cannot be read


def test_delete_files_are_refused(
    run: Callable[..., Result], live: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library writes none: it rewrites the files.
    tasks = [FileScanTask(task.file, {task.file}) for task in live.scan().plan_files()]
    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", lambda _: tasks)
    assert refused(run(), f"delete files for {len(tasks)} files.*rewrite_data_files")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([lambda it: it.add_column("later", StringType())], "later"),
        ([lambda it: it.rename_column("text", "words")], "text, words"),
        ([lambda it: it.delete_column("place")], "place"),
        # By its name it would be the deleted column.
        ([lambda it: it.delete_column("text"), lambda it: it.add_column("text", StringType())], "text"),
    ],
    ids=["added", "renamed", "dropped", "added again"],
)
def test_files_of_another_schema_are_refused(
    spark: SparkSession, catalog: Catalog, changes: list[Callable[..., Any]], named: str
) -> None:
    """Rejects nulls for what a file has under another name, and values of a column that was deleted."""
    table = write(catalog, "db.in", KEPT.select(["id", "text", "place"]))
    for each in changes:
        with table.update_schema(allow_incompatible_changes=True) as change:
            each(change)
    with pytest.raises(InputError, match=f"schema and some file do not share: {named}[.] Read"):
        Iceberg({}).open(spark, Storage(spark), "lake.db.in")


def test_values_that_stand_in_the_metadata_alone_are_refused(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    table = write(catalog, "db.in", KEPT.select(["id", "text", "place"]).slice(3), ["place"])
    (task,) = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read(columns=["id", "text"]), path)  # as Hive would have it
    with pytest.raises(InputError, match="schema and some file do not share: place"):
        Iceberg({}).open(spark, Storage(spark), "lake.db.in")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("lake.db.nothing", "cannot be opened. Got: Table does not exist: db.nothing"),
        ("nowhere.db.in", "cannot be opened. Got: URI missing"),
        ("lake.in", "The name of an Iceberg table has three parts.*pyiceberg.yaml"),
        ("/no/such/0.metadata.json", "cannot be opened"),
    ],
)
def test_what_is_no_iceberg_table_is_refused(
    run: Callable[..., Result], catalog: Catalog, place: str, message: str
) -> None:
    assert refused(run(source=place), message)


# What is told before Spark starts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "iceberg"], "Rows of Iceberg tables cannot be named by file and position.*--id"),
        (
            [*ICEBERG, "--trust-id", "--incremental", "checkpoint"],
            "--incremental does not go with Iceberg tables.*--where",
        ),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(
    dptext: Callable[..., Result], catalog: Catalog, arguments: list[str], message: str
) -> None:
    assert refused(dptext("lake.db.in", *arguments, output="lake.db.out"), message)


def test_the_library_that_is_absent_is_named(
    run: Callable[..., Result], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Iceberg, "library", "no_such_library")
    assert refused(run(), r"need the Python package no_such_library. Install .*'dptext-spark\[tables\]'")


# Writing


def test_rows_are_added_and_replaced_in_one_commit_each(
    run: Callable[..., Result], catalog: Catalog, live: Table, tmp_path: Path
) -> None:
    wanted = [row["id"] for row in rows(catalog, "db.in")]
    for arguments, times in ((["--mode", "append"], 1), (["--mode", "append"], 2), (["--overwrite"], 1)):
        assert done(run(*arguments))
        assert [row["id"] for row in rows(catalog)] == sorted(wanted * times)
    assert len(list((tmp_path / "warehouse/db/out/metadata").glob("*.metadata.json"))) == 3
    assert names(tmp_path / "warehouse" / "db") == {"in", "out"}
    assert refused(run(), "exists.*--mode append")
    assert refused(run("--mode", "append", output="lake.db.in"), "Input and output are one table")
    assert refused(run(output="lake.other.out"), "The namespace other of the output is not in its catalog")


def test_a_table_of_other_columns_is_not_added_to(
    run: Callable[..., Result], catalog: Catalog, live: Table, tmp_path: Path
) -> None:
    write(catalog, "db.out", pa.table({"id": ["a"], "text": ["b"], "more": [1]}))
    before = hashes(tmp_path)
    found = "more is in the table only; id is bigint in the output and string in the table"
    for mode in ("append", "overwrite"):
        assert refused(run("--mode", mode), found)
    assert hashes(tmp_path) == before


def test_parts_by_more_than_a_value_are_refused(
    run: Callable[..., Result], catalog: Catalog, live: Table
) -> None:
    table = catalog.create_table("db.out", schema=pa.schema([("id", pa.int64()), ("at", pa.date32())]))
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "day")
    assert refused(run("--mode", "append"), "Nothing can be written to .*Got: partitions by day")


def test_types_that_iceberg_lacks_are_refused(spark: SparkSession, catalog: Catalog) -> None:
    schema = StructType([StructField("lasted", DayTimeIntervalType())])
    with pytest.raises(ConfigError, match="cannot have the output's columns"):
        Iceberg({}).check_schema(Storage(spark), schema, Output(place="lake.db.out"))


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CommitFailedException("somebody was faster"), "somebody was faster"),
        (ValueError("quartz is no date"), "ValueError"),
    ],
)
def test_a_commit_that_fails_leaves_nothing(
    run: Callable[..., Result],
    catalog: Catalog,
    live: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exists: bool,
    error: Exception,
    told: str,
) -> None:
    """Rejects a message that quotes values of the files."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    if exists:
        write(catalog, "db.out", ring([0]))
    monkeypatch.setattr(type(catalog), "commit_table", fail)
    assert refused(run("--mode", "append"), rf"could not be made part of .*Got: {told}\.", code=1)
    assert not [*tmp_path.rglob("*dptext*")]
    assert catalog.table_exists("db.out") == exists
    assert not exists or [row["id"] for row in rows(catalog)] == [0]


def test_a_commit_whose_answer_is_lost_is_made_once(
    run: Callable[..., Result], catalog: Catalog, live: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = type(catalog).commit_table

    def lose(*arguments: Any) -> None:
        commit(*arguments)
        raise OSError("connection reset")

    monkeypatch.setattr(type(catalog), "commit_table", lose)
    assert done(run())
    assert rows(catalog) and len(catalog.load_table("db.out").snapshots()) == 1
