"""Delta and Iceberg tables, as their own libraries wrote them, without any package of Spark's."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from deltalake import DeltaTable, Field, transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from deltalake.table import TableFeatures
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.transforms import DayTransform
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession
from pyspark.sql.types import DayTimeIntervalType, LongType, StructField, StructType
from pyspark.sql.types import StringType as SparkString

from dptext_spark import Embedding, Laplace, Sanitizer
from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.tables.formats.delta import Delta
from dptext_spark.tables.formats.format import Output
from dptext_spark.tables.formats.iceberg import Iceberg
from dptext_spark.tables.source import where
from dptext_spark.tables.storage import Storage
from tests.helpers import worlds
from tests.helpers.tables import RING_WORDS, hashes, names, refused, rows_of, texts

# The shared session is the one that the jobs find.
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


class DeltaLake:
    """Delta tables in a folder whose name needs escapes."""

    kind = Delta
    cured = "delta-spark"
    kept = pa.table(KEPT)
    partitions = ("place", "day", "number", "at", "local", "good")
    old = "version=0"
    failed = CommitFailedError("no room")

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "a folder é"
        self.folder.mkdir()
        self.monkeypatch = monkeypatch

    def place(self, name: str) -> str:
        return str(self.files(name))

    def files(self, name: str) -> Path:
        return self.folder / name

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"file://{quote(self.place(name))}")

    def write(
        self, name: str, table: pa.Table, partitions: tuple[str, ...] = (), **options: Any
    ) -> DeltaTable:
        write_deltalake(f"file://{quote(self.place(name))}", table, partition_by=[*partitions], **options)
        return self.table(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).to_pyarrow_table().sort_by("id").to_pylist()

    def types(self, name: str) -> Any:
        table = self.table(name)
        kinds = {field.name: str(field.type) for field in table.schema().fields if field.name != "turns"}
        return kinds, tuple(table.metadata().partition_columns)

    def change(self, name: str) -> None:
        table = self.table(name)
        table.delete("id in (1, 4)")
        table.update(updates={"text": f"'{RING_WORDS[9]}'"}, predicate="id = 2")

    def commits(self, name: str) -> int:
        return len(self.table(name).history())

    def empty(self, name: str) -> None:
        self.write(name, self.kept, ("place",)).delete()

    @contextmanager
    def broken_commits(self, commit: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
        with self.monkeypatch.context() as patch:
            for owner, method in (
                (DeltaTable, "create_write_transaction"),
                (transaction, "create_table_with_add_actions"),
            ):
                patch.setattr(owner, method, commit(getattr(owner, method)))
            yield


class IcebergLake:
    """Iceberg tables of a catalog ``lake`` in SQLite, by the variables that users set."""

    kind = Iceberg
    cured = "iceberg-spark-runtime"
    # An empty text and none at all lie in parts of their own.
    kept = pa.table(KEPT | {"place": ["a b/c=%d é #?%41", "", None, "x"]})
    partitions = ("place", "day", "number")
    failed = CommitFailedException("no room")

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "warehouse" / "db"
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}/warehouse")
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when the module was
        self.catalog = load_catalog("lake")
        self.catalog.create_namespace("db")
        self.monkeypatch = monkeypatch

    def place(self, name: str) -> str:
        return f"lake.db.{name}"

    def files(self, name: str) -> Path:
        return self.folder / name

    def table(self, name: str) -> Any:
        return self.catalog.load_table(f"db.{name}")

    def write(self, name: str, table: pa.Table, partitions: tuple[str, ...] = (), mode: str = "") -> Any:
        if mode:
            self.table(name).append(table)
            return self.table(name)
        made = self.catalog.create_table(f"db.{name}", schema=table.schema)
        with made.update_spec() as spec:
            for column in partitions:
                spec.add_identity(column)
        made.append(table)
        return made

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).scan().to_arrow().sort_by("id").to_pylist()

    def types(self, name: str) -> Any:
        table = self.table(name)
        kinds = {
            field.name: str(field.field_type) for field in table.schema().fields if field.name != "turns"
        }
        return kinds, tuple(field.name for field in table.spec().fields)

    @property
    def old(self) -> str:
        return f"snapshot-id={self.table('in').snapshots()[0].snapshot_id}"

    def change(self, name: str) -> None:
        table = self.table(name)
        table.delete("id in (1, 4)")
        table.overwrite(pa.table({"id": [2], "text": [RING_WORDS[9]]}), overwrite_filter="id = 2")

    def commits(self, name: str) -> int:
        return len([*(self.files(name) / "metadata").glob("*.metadata.json")])

    def empty(self, name: str) -> None:
        self.write(name, self.kept.slice(0, 0), ("place",))

    @contextmanager
    def broken_commits(self, commit: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
        kind = type(self.catalog)
        with self.monkeypatch.context() as patch:
            patch.setattr(kind, "commit_table", commit(kind.commit_table))
            yield


Lake: TypeAlias = DeltaLake | IcebergLake
Run: TypeAlias = Callable[..., Result]
Write: TypeAlias = Callable[..., None]
SCHEMA = StructType([StructField("id", LongType()), StructField("text", SparkString())])


@pytest.fixture
def deltas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLake:
    return DeltaLake(tmp_path, monkeypatch)


@pytest.fixture
def icebergs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergLake:
    return IcebergLake(tmp_path, monkeypatch)


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made: Lake = request.param(tmp_path, monkeypatch)
    return made


@pytest.fixture
def run(dptext: Run, tmp_path: Path) -> Callable[..., Result]:
    """``dptext privatize`` from one table of a lake to another."""

    def invoke(lake: Lake, *arguments: str, source: str = "in", output: str = "out") -> Result:
        given = ["--format", lake.kind.name, "--id", "id", "--trust-id", "--keep", "id", *arguments]
        shutil.rmtree(tmp_path / "reports", ignore_errors=True)
        given += ["--reports", str(tmp_path / "reports")]
        return dptext(lake.place(source), *given, output=lake.place(output))

    return invoke


@pytest.fixture
def write(spark: SparkSession) -> Write:
    """Write six rows to the table ``out`` of a lake, as a run does."""

    def invoke(lake: Lake, **options: bool) -> None:
        output = Output(place=lake.place("out"), **options)
        lake.kind({}).check_place(spark, Storage(spark), output)
        lake.kind({}).write(
            Storage(spark), spark.createDataFrame(rows([*range(6)]).to_pylist(), SCHEMA), output
        )

    return invoke


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "text": texts(len(ids))})


def done(result: Result) -> bool:
    assert result.exit_code == 0, result.output
    return True


def test_deleted_and_replaced_rows_are_not_released(
    run: Run, lake: Lake, spark: SparkSession, ring: Embedding
) -> None:
    """Rejects the folder's files as they are, an input that changes, noise by file, the newest version."""
    lake.write("in", rows([*range(6)]))
    lake.change("in")
    lake.write("in", rows([10, 11]), mode="append")
    before = hashes(lake.files("in"))
    assert done(run(lake))
    live = lake.rows("in")
    assert [row["id"] for row in live] == [0, 2, 3, 5, 10, 11]
    assert len(rows_of(lake.files("in"))) > len(live)
    mechanism = Laplace(epsilon=10.0)
    noise = worlds.release(mechanism, ring, salt=worlds.LABEL)
    ids, plain = (pa.array(row[name] for row in live) for name in ("id", "text"))
    privatizer = Sanitizer(embedding=ring, mechanism=mechanism, noise=noise)
    words = privatizer.sanitize(plain, ids, column="text").values.to_pylist()
    assert lake.rows("out") == [
        {"id": row["id"], "text": text} for row, text in zip(live, words, strict=True)
    ]
    name, _, value = lake.old.partition("=")
    first = lake.kind({name: value}).open(spark, Storage(spark), lake.place("in"))
    assert sorted(row["id"] for row in first.df.collect()) == [*range(6)]
    if isinstance(lake, IcebergLake):
        path = lake.table("in").metadata_location
        for place in (path, path.removeprefix("file://")):
            assert Iceberg({}).open(spark, Storage(spark), place).df.count() == len(live)
    assert hashes(lake.files("in")) == before


def test_partitions_keep_their_types_and_values(run: Run, lake: Lake, spark: SparkSession) -> None:
    """Rejects partitions that are strings, times of the session's zone, and files that only Spark reads."""
    lake.write("in", lake.kept, lake.partitions)
    kept = [name for name in lake.kept.column_names if name not in {"id", "text"}]
    if isinstance(lake, DeltaLake):
        lake.table("in").alter.add_columns([Field("later", PrimitiveType("double"))])
        kept.append("later")
    named = [part for name in kept for part in ("--keep", name)]
    assert done(run(lake, *named))
    assert lake.types("out") == lake.types("in")
    wanted = [{n: row[n] for n in ("id", *kept)} for row in lake.rows("in")]
    assert [{n: row[n] for n in ("id", *kept)} for row in lake.rows("out")] == wanted
    given, again = (lake.kind({}).open(spark, Storage(spark), lake.place(n)).df for n in ("in", "out"))
    assert again.dtypes == given.select("id", "text", *kept).dtypes
    assert sorted(again.drop("text").collect()) == sorted(given.drop("text").collect())
    for df in (given, again):
        assert [row["id"] for row in where(df, "place is null and day is not null").collect()] == [3]


def test_an_empty_table_is_read_and_written(run: Run, lake: Lake) -> None:
    lake.empty("in")
    assert done(run(lake, "--keep", "place"))
    assert lake.rows("out") == []
    assert lake.types("out")[1] == ("place",)


ID = ["--id", "id"]
GROWS = [*ID, "--trust-id", "--incremental", "checkpoint"]


@pytest.mark.parametrize(
    ("option", "arguments", "message"),
    [
        ("--format", [], r"Rows of \w+ tables cannot be named by file and position.*--id"),
        ("--format", GROWS, r"--incremental cannot read \w+ tables.*--where"),
        ("--output-format", GROWS, "--incremental cannot write"),
        ("--format", ID, r"Python package no_such_library. Install .*\[tables\]'.*{cured}"),
        ("--output-format", ID, "Python package no_such_library"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(
    dptext: Run,
    lake: Lake,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    arguments: list[str],
    message: str,
) -> None:
    """None of it needs a table of the format."""
    if "no_such_library" in message:
        monkeypatch.setattr(lake.kind, "library", "no_such_library")
    source = table if option == "--output-format" else lake.place("in")
    result = dptext(source, option, lake.kind.name, *arguments, output=lake.place("out"))
    assert refused(result, message.replace("{cured}", lake.cured))


def test_rows_are_added_and_replaced_in_one_commit_each(
    write: Write, lake: Lake, spark: SparkSession
) -> None:
    made, storage = lake.kind({}), Storage(spark)
    for options, times in (({"append": True}, 1), ({"append": True}, 2), ({"overwrite": True}, 1)):
        write(lake, **options)
        assert [row["id"] for row in lake.rows("out")] == sorted([*range(6)] * times)
    assert lake.commits("out") == 3
    assert names(lake.folder) == {"out"}
    lake.write("other", pa.table({"id": ["a"], "text": ["b"], "more": [1]}))
    before = hashes(lake.folder)
    with pytest.raises(ConfigError, match=r"exists.*--mode append"):
        made.check_place(spark, storage, Output(place=lake.place("out")))
    found = "more is in the table only; id is bigint in the output and string in the table"
    for options in ({"append": True}, {"overwrite": True}):
        with pytest.raises(ConfigError, match=found):
            made.check_schema(storage, SCHEMA, Output(place=lake.place("other"), **options))
    assert hashes(lake.folder) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_commit_that_fails_leaves_nothing(write: Write, lake: Lake, tmp_path: Path, exists: bool) -> None:
    """Rejects files that stay, and a message that quotes values of the files."""
    if exists:
        lake.write("out", rows([0]))
    error, said = (ValueError("quartz is no date"), "ValueError") if exists else (lake.failed, "no room")

    def failing(_: Any) -> Callable[..., Any]:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        return fail

    with lake.broken_commits(failing), pytest.raises(JobError, match=rf"part of .*Got: {said}\."):
        write(lake, append=True)
    assert not [*tmp_path.rglob("*dptext*")]
    if exists:
        assert [row["id"] for row in lake.rows("out")] == [0]
    else:
        write(lake)


def test_a_commit_whose_answer_is_lost_is_made_once(write: Write, lake: Lake) -> None:
    """Rejects files that are removed after their commit, and a second commit."""
    lake.write("out", rows([0]))

    def losing(commit: Callable[..., Any]) -> Callable[..., Any]:
        def lose(*arguments: Any, **options: Any) -> None:
            commit(*arguments, **options)
            raise OSError("connection reset")

        return lose

    before = lake.commits("out")
    with lake.broken_commits(losing):
        write(lake, overwrite=True)
    assert [row["id"] for row in lake.rows("out")] == [*range(6)]
    assert lake.commits("out") == before + 1


def test_a_failed_run_leaves_nothing_and_a_killed_one_is_told_of(run: Run, deltas: DeltaLake) -> None:
    deltas.write("in", pa.table({"id": [1, 2], "text": ["w01", "unheard of"]}))
    deltas.write("out", rows([0]))
    before = hashes(deltas.folder)
    result = run(deltas, "--mode", "append", "--oov", "fail")
    assert refused(result, "words outside the vocabulary")
    assert hashes(deltas.folder) == before and names(deltas.folder) == {"in", "out"}
    (deltas.folder / ".out.local-1.part").mkdir()
    assert refused(run(deltas, "--mode", "append"), "Another run is writing the output")


# What Delta tables cannot be read or written


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


def ask_for_a_feature(table: Path) -> None:
    """Commit by hand that a table asks its readers and writers for a feature."""
    features = {"readerFeatures": ["somethingNew"], "writerFeatures": ["somethingNew"]}
    line = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (table / "_delta_log" / f"{DeltaTable(table).version() + 1:020d}.json").write_text(json.dumps(line))


def remove_files(table: Path) -> None:
    for file in table.glob("*.parquet"):
        file.unlink()


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({}, mark_as_deleted, "deletion vectors of 1 files.*REORG TABLE"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, None, "column mapping.*CREATE TABLE"),
        ({}, ask_for_a_feature, "somethingNew"),
        ({}, remove_files, "The files of the table .* cannot be read. Got: no such file"),
        ({}, lambda table: (table / "_delta_log").rename(table / "log"), "is no Delta table"),
    ],
)
def test_delta_tables_that_cannot_be_read(
    deltas: DeltaLake,
    spark: SparkSession,
    options: Any,
    change: Callable[[Path], object] | None,
    message: str,
) -> None:
    deltas.write("in", rows([0, 1, 2]), **options)
    if change is not None:
        change(deltas.files("in"))
    with pytest.raises((InputError, ConfigError), match=message):
        Delta({}).open(spark, Storage(spark), deltas.place("in"))
    if change is mark_as_deleted:  # the feature stays, the vectors are gone
        deltas.write("in", rows([7]), mode="overwrite")
        assert Delta({}).open(spark, Storage(spark), deltas.place("in")).df.count() == 1


def test_delta_tables_that_cannot_be_written(deltas: DeltaLake, spark: SparkSession, table: Path) -> None:
    storage, place = Storage(spark), deltas.place
    deltas.write("rules", rows([0])).alter.add_constraint({"positive": "id >= 0"})
    deltas.write("kept", rows([0]), configuration={"delta.appendOnly": "true"})
    for output, message in (
        (Output(place=place("rules"), append=True), "delta.constraints.positive"),
        (Output(place=place("kept"), overwrite=True), "delta.appendOnly, with --mode overwrite"),
        (Output(place=str(table)), "exists and is no Delta table"),
    ):
        with pytest.raises(ConfigError, match=message):
            Delta({}).check_place(spark, storage, output)
    with pytest.raises(InputError, match="cannot be opened. Got: invalid literal"):
        Delta({"version": "x"}).open(spark, storage, place("kept"))


@pytest.mark.parametrize(
    "message", ["types that Delta tables lack.*lasted", "cannot have the output's columns"]
)
def test_types_that_a_format_lacks_are_refused(
    spark: SparkSession, deltas: DeltaLake, icebergs: IcebergLake, message: str
) -> None:
    lake: Lake = deltas if "Delta" in message else icebergs
    schema = StructType([StructField("lasted", DayTimeIntervalType())])
    with pytest.raises(ConfigError, match=message):
        lake.kind({}).check_schema(Storage(spark), schema, Output(place=lake.place("out")))


# What Iceberg tables cannot be read or written


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
    spark: SparkSession, icebergs: IcebergLake, changes: list[Callable[..., Any]], named: str
) -> None:
    """Rejects nulls for what a file has under another name, and values of a column that was deleted."""
    table = icebergs.write("in", icebergs.kept.select(["id", "text", "place"]))
    for each in changes:
        with table.update_schema(allow_incompatible_changes=True) as change:
            each(change)
    with pytest.raises(InputError, match=f"schema and some file do not share: {named}[.] Read"):
        Iceberg({}).open(spark, Storage(spark), "lake.db.in")


def test_rows_that_files_alone_do_not_tell_are_refused(
    spark: SparkSession, icebergs: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects nulls for partition values that stand in the metadata alone, and rows of delete files."""
    table = icebergs.write("in", icebergs.kept.select(["id", "text", "place"]).slice(3), ("place",))
    (task,) = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read(columns=["id", "text"]), path)  # as Hive would have it
    with pytest.raises(InputError, match="schema and some file do not share: place"):
        Iceberg({}).open(spark, Storage(spark), "lake.db.in")
    # The library writes no delete files: it rewrites the others.
    monkeypatch.setattr(DataScan, "plan_files", lambda _: [FileScanTask(task.file, {task.file})])
    with pytest.raises(InputError, match=r"delete files for 1 files.*rewrite_data_files"):
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
    spark: SparkSession, icebergs: IcebergLake, place: str, message: str
) -> None:
    with pytest.raises((InputError, ConfigError), match=message):
        Iceberg({}).open(spark, Storage(spark), place)


def test_iceberg_tables_that_cannot_be_written(run: Run, icebergs: IcebergLake, spark: SparkSession) -> None:
    table = icebergs.catalog.create_table(
        "db.days", schema=pa.schema([("id", pa.int64()), ("at", pa.date32())])
    )
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "day")
    for output, message in (
        (Output(place="lake.db.days", append=True), "Nothing can be written to .*Got: partitions by day"),
        (Output(place="lake.other.out"), "The namespace other of the output is not in its catalog"),
    ):
        with pytest.raises(ConfigError, match=message):
            Iceberg({}).check_place(spark, Storage(spark), output)
    assert refused(run(icebergs, "--mode", "append", output="in"), "Input and output are one table")
