"""Delta tables, as the library ``deltalake`` wrote them: read and written without any package of Spark's."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import DeltaTable, Field, transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from deltalake.table import TableFeatures
from pyspark.sql import SparkSession
from pyspark.sql.types import DayTimeIntervalType, LongType, StructField, StructType

from dptext_spark.errors import ConfigError
from dptext_spark.spark.table.formats.delta import Delta
from dptext_spark.spark.table.formats.format import Output
from dptext_spark.spark.table.storage import Storage
from tests.helpers.tables import RING_WORDS, hashes, names, refused, rows_of, texts, write_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DELTA = ["--format", "delta", "--id", "id", "--keep", "id"]
KEPT = pa.table(
    {
        "id": [1, 2, 3, 4],
        "text": texts(4),
        "place": ["a b/c=%d é #?%41", "x", None, "x"],
        "day": [dt.date(2026, 1, 1), None, dt.date(2026, 1, 2), dt.date(2026, 1, 2)],
        "number": pa.array([7, None, 8, 8], pa.int32()),
        "at": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us", "UTC")),
        "local": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us")),
        "good": [True, False, None, True],
    }
)
PARTITIONS = ["place", "day", "number", "at", "local", "good"]


def write(path: Path, ids: list[int], **options: Any) -> DeltaTable:
    """Write rows of ring words."""
    write_deltalake(path, pa.table({"id": ids, "text": texts(len(ids))}), **options)
    return DeltaTable(path)


def rows(path: Path | str) -> list[dict[str, Any]]:
    """The rows that the library's own reader finds, by id."""
    return DeltaTable(path).to_pyarrow_table().sort_by("id").to_pylist()


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A table of which rows were deleted, changed and added: its folder has rows that do not count."""
    table = write(tmp_path / "in", [*range(6)])
    table.delete("id in (1, 4)")
    table.update(updates={"text": f"'{RING_WORDS[9]}'"}, predicate="id = 2")
    write(tmp_path / "in", [10, 11], mode="append")
    assert len(rows_of(tmp_path / "in")) > len(rows(tmp_path / "in"))
    return tmp_path / "in"


# Reading


def test_deleted_and_replaced_rows_are_not_released(
    dptext: Callable[..., Result], delta: Path, tmp_path: Path
) -> None:
    before = hashes(delta)
    result = dptext(delta, *DELTA)
    assert result.exit_code == 0, result.output
    assert hashes(delta) == before

    live = rows(delta)
    assert [row["id"] for row in live] == [0, 2, 3, 5, 10, 11]
    plain = write_table(tmp_path / "plain.parquet", {n: [r[n] for r in live] for n in ("id", "text")})
    again = dptext(plain, "--id", "id", "--keep", "id", output=tmp_path / "again")
    assert again.exit_code == 0, again.output
    # The same words as for the same rows in a plain file: the noise is that of the row.
    assert rows(tmp_path / "out") == sorted(rows_of(tmp_path / "again"), key=lambda row: row["id"])


def test_the_table_as_it_was_is_a_version(dptext: Callable[..., Result], delta: Path, tmp_path: Path) -> None:
    result = dptext(delta, *DELTA, "--read-option", "version=0", "--output-format", "parquet")
    assert result.exit_code == 0, result.output
    assert sorted(row["id"] for row in rows_of(tmp_path / "out")) == [*range(6)]
    assert refused(dptext(delta, *DELTA, "--read-option", "version=x", output=tmp_path / "x"), "is a number")


def test_partitions_keep_their_types_and_values(
    dptext: Callable[..., Result], tmp_path: Path, spark: Any
) -> None:
    place = tmp_path / "a folder é"
    place.mkdir()
    source, target = (f"file://{quote(str(place))}/{name}" for name in ("in", "out"))
    write_deltalake(source, KEPT, partition_by=PARTITIONS)
    DeltaTable(source).alter.add_columns([Field("later", PrimitiveType("double"))])
    named = [*DELTA, "--keep", "later", *(part for name in PARTITIONS for part in ("--keep", name))]
    result = dptext(place / "in", *named, "--where", "place is null or day is null", output=place / "out")
    assert result.exit_code == 0, result.output

    # In the order of Spark's files the partitions would be strings, and times those of the session's zone.
    assert DeltaTable(target).schema().to_json() == DeltaTable(source).schema().to_json()
    assert DeltaTable(target).metadata().partition_columns == PARTITIONS
    kept = [name for name in KEPT.column_names if name != "text"]
    wanted = [{**row, "later": None} for row in KEPT.select(kept).to_pylist() if row["id"] in {2, 3}]
    assert [{n: row[n] for n in (*kept, "later")} for row in rows(target)] == wanted

    # What was written is read again, and folders without the partitions' names are too.
    again = dptext(place / "out", *named, output=place / "again")
    assert again.exit_code == 0, again.output
    assert [{n: row[n] for n in (*kept, "later")} for row in rows(f"{target[:-3]}again")] == wanted


def test_an_empty_table_is_read_and_written(dptext: Callable[..., Result], tmp_path: Path) -> None:
    write_deltalake(tmp_path / "in", KEPT, partition_by=["place"])
    DeltaTable(tmp_path / "in").delete()
    result = dptext(tmp_path / "in", *DELTA, "--keep", "place")
    assert result.exit_code == 0, result.output
    assert rows(tmp_path / "out") == []
    assert DeltaTable(tmp_path / "out").metadata().partition_columns == ["place"]


# What cannot be read


def mark_as_deleted(table: Path) -> None:
    """Commit by hand what the library cannot: a deletion vector, for the second row of a file."""
    DeltaTable(table).alter.add_feature(
        [TableFeatures.DeletionVectors], allow_protocol_versions_increase=True
    )
    log = table / "_delta_log"
    lines = [json.loads(line) for file in log.glob("*.json") for line in file.read_text().splitlines()]
    (added,) = [line["add"] for line in lines if "add" in line]
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91",
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}
    commit = [{"remove": removed}, {"add": {**added, "deletionVector": vector}}]
    number = DeltaTable(table).version() + 1
    (log / f"{number:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in commit))


def test_deletion_vectors_are_refused_until_they_are_gone(
    dptext: Callable[..., Result], tmp_path: Path
) -> None:
    table = tmp_path / "in"
    write(table, [0, 1, 2])
    mark_as_deleted(table)
    found = "deletion vectors of 1 files.*REORG TABLE"
    assert refused(dptext(table, *DELTA), found)
    write(table, [7], mode="overwrite")  # the feature stays, the vectors are gone
    result = dptext(table, *DELTA)
    assert result.exit_code == 0, result.output
    assert [row["id"] for row in rows(tmp_path / "out")] == [7]


def test_columns_that_have_other_names_in_the_files_are_refused(
    dptext: Callable[..., Result], tmp_path: Path
) -> None:
    write(tmp_path / "in", [0], configuration={"delta.columnMapping.mode": "name"})
    assert refused(dptext(tmp_path / "in", *DELTA), "column mapping.*CREATE TABLE")


def ask(table: Path, feature: str) -> None:
    """Commit by hand that a table asks its readers and writers for a feature."""
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    line = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (table / "_delta_log" / f"{DeltaTable(table).version() + 1:020d}.json").write_text(json.dumps(line))


@pytest.mark.parametrize("feature", ["typeWidening", "somethingNew"])
def test_features_that_are_not_known_are_refused_by_name(
    dptext: Callable[..., Result], tmp_path: Path, feature: str
) -> None:
    write(tmp_path / "in", [0])
    ask(tmp_path / "in", feature)
    assert refused(dptext(tmp_path / "in", *DELTA), feature)


def test_what_is_no_delta_table_is_refused(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    assert refused(dptext(table, *DELTA), "is no Delta table")
    assert refused(dptext(tmp_path / "nowhere", *DELTA), "is no Delta table")
    write(tmp_path / "delta", [0])
    result = dptext(tmp_path / "delta", *DELTA, output=table)
    assert refused(result, "exists and is no Delta table")


def test_files_that_are_gone_are_told_before_the_run(dptext: Callable[..., Result], delta: Path) -> None:
    for file in delta.glob("*.parquet"):
        file.unlink()
    assert refused(dptext(delta, *DELTA), "The files of the table .* cannot be read. Got: PATH_NOT_FOUND")


# What is told before Spark starts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "delta"], "Rows of Delta tables cannot be named by file and position.*--id"),
        (
            [*DELTA, "--trust-id", "--incremental", "checkpoint"],
            "--incremental does not go with Delta tables.*--where",
        ),
        (
            ["--output-format", "delta", "--id", "id", "--trust-id", "--incremental", "checkpoint"],
            "--incremental does not go with Delta tables",
        ),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(
    dptext: Callable[..., Result], delta: Path, arguments: list[str], message: str
) -> None:
    assert refused(dptext(delta, *arguments), message)


@pytest.mark.parametrize("option", ["--format", "--output-format"])
def test_the_library_that_is_absent_is_named(
    dptext: Callable[..., Result], delta: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(Delta, "library", "no_such_library")
    result = dptext(delta, option, "delta", "--id", "id")
    assert refused(
        result, r"need the Python package no_such_library. Install .*'dptext-spark\[tables\]'.*delta-spark"
    )


# Writing


def test_rows_are_added_and_replaced_in_one_commit_each(
    dptext: Callable[..., Result], delta: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    wanted = [row["id"] for row in rows(delta)]
    for arguments, times in (
        (["--mode", "append"], 1),
        (["--mode", "append"], 2),
        (["--mode", "overwrite"], 1),
    ):
        assert dptext(delta, *DELTA, *arguments).exit_code == 0
        assert [row["id"] for row in rows(out)] == sorted(wanted * times)
    assert [entry["operation"] for entry in reversed(DeltaTable(out).history())] == [
        "CREATE TABLE",
        "WRITE",
        "WRITE",
    ]
    assert names(tmp_path) == {"in", "out", "out.private", "out.release.json"}
    (tmp_path / "out.private" / "report.json").unlink()
    (tmp_path / "out.release.json").unlink()
    before = hashes(out)
    assert refused(dptext(delta, *DELTA), "exists.*--mode append")
    assert hashes(out) == before
    counts = DeltaTable(out).get_add_actions().column("num_records")
    assert sum(pa.array(pa.chunked_array(counts)).to_pylist()) == len(wanted)


def test_a_table_of_other_columns_is_not_added_to(
    dptext: Callable[..., Result], delta: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_deltalake(out, pa.table({"id": ["a"], "text": ["b"], "more": [1]}))
    before = hashes(out)
    found = "id is bigint in the output and string in the table"
    for mode in ("append", "overwrite"):
        assert refused(dptext(delta, *DELTA, "--mode", mode), f"more is in the table only; {found}")
    assert hashes(out) == before and names(tmp_path) == {"in", "out"}


def test_rules_that_others_keep_are_not_broken(
    dptext: Callable[..., Result], delta: Path, tmp_path: Path
) -> None:
    write(tmp_path / "out", [0]).alter.add_constraint({"positive": "id >= 0"})
    assert refused(dptext(delta, *DELTA, "--mode", "append"), "delta.constraints.positive")
    write(tmp_path / "kept", [0], configuration={"delta.appendOnly": "true"})
    result = dptext(delta, *DELTA, "--mode", "overwrite", output=tmp_path / "kept")
    assert refused(result, "delta.appendOnly, with --mode overwrite")


def test_a_failed_run_leaves_nothing(dptext: Callable[..., Result], tmp_path: Path) -> None:
    write_deltalake(tmp_path / "in", pa.table({"id": [1, 2], "text": ["w01", "unheard of"]}))
    write(tmp_path / "out", [0])
    before = hashes(tmp_path)
    result = dptext(tmp_path / "in", *DELTA, "--mode", "append", "--oov", "fail")
    assert refused(result, "words outside the vocabulary")
    assert hashes(tmp_path) == before
    assert names(tmp_path) == {"in", "out"}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("error", "told"),
    [(CommitFailedError("no room"), "no room"), (ValueError("quartz is no date"), "ValueError")],
)
def test_a_commit_that_fails_leaves_nothing(
    dptext: Callable[..., Result],
    delta: Path,
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
        write(tmp_path / "out", [0])
    before = hashes(tmp_path)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    monkeypatch.setattr(transaction, "create_table_with_add_actions", fail)
    assert refused(
        dptext(delta, *DELTA, "--mode", "append"), rf"could not be made part of .*Got: {told}\.", code=1
    )
    assert hashes(tmp_path) == before
    assert [*tmp_path.rglob("*dptext*")] == [] and (tmp_path / "out").exists() == exists


def test_a_commit_whose_answer_is_lost_is_made_once(
    dptext: Callable[..., Result], delta: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaTable.create_write_transaction

    def lose(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise OSError("connection reset")

    assert dptext(delta, *DELTA).exit_code == 0
    wanted = rows(tmp_path / "out")
    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose)
    result = dptext(delta, *DELTA, "--mode", "overwrite")
    assert result.exit_code == 0, result.output
    assert rows(tmp_path / "out") == wanted
    assert DeltaTable(tmp_path / "out").version() == 1


def test_types_that_delta_lacks_are_refused(spark: SparkSession) -> None:
    schema = StructType([StructField("id", LongType()), StructField("lasted", DayTimeIntervalType())])
    with pytest.raises(ConfigError, match=r"types that Delta tables lack.*lasted"):
        Delta({}).account(Storage(spark), Output(place="out"), None, schema)


def test_a_run_that_was_killed_is_told_of(dptext: Callable[..., Result], delta: Path, tmp_path: Path) -> None:
    write(tmp_path / "out", [0])
    (tmp_path / ".out.local-1.part").mkdir()
    assert refused(dptext(delta, *DELTA, "--mode", "append"), "Another run is writing the output")
