"""Rows spread over tasks: the same words, each row once, in order or by chance, never in clear on a disk."""

import secrets
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from dptext_spark.jobs import vectors
from dptext_spark.options import VectorsOptions
from dptext_spark.tables import partitioning
from dptext_spark.tables.partitioning import Partitioning, Plan, is_encrypted, planned_tasks
from tests.helpers.tables import rows_of, run_table, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROWS = 240


def written(folder, row_group=ROWS, **more):
    """A table of one file; its rows are in no order of their ids."""
    ids = [f"r{7 * row % ROWS:03}" for row in range(ROWS)]
    (folder / "x.parquet").parent.mkdir()
    table = pa.table({"id": ids, "text": texts(ROWS), **more})
    pq.write_table(table, folder / "x.parquet", row_group_size=row_group)
    return folder


@pytest.fixture
def short(monkeypatch):
    """Makes tasks so short that these tables have six, three for each core."""
    monkeypatch.setattr(partitioning, "_TASKS_OF_CORE", 3)
    return lambda: monkeypatch.setattr(partitioning, "_SHORTEST", 0.0)


def tasks(folder):
    """The ids of each file: one file for a task that had rows."""
    return [{*pq.read_table(file)["id"].to_pylist()} for file in sorted(folder.rglob("*.parquet"))]


def test_parquet_keeps_words_and_order(ring_release, tmp_path, short, monkeypatch):
    """Rejects names of rows that count inside a task, rows that are lost or come twice, and another order."""
    # And where nothing is encrypted a shuffle all the same, and partitions that stay without a word.
    options = ring_release | {"input": written(tmp_path / "in"), "keep": ["id"]}
    run_table(**options)
    short()
    for name, more in (("position", {}), ("named", {"id": "id", "where": "id <> 'r007'"})):
        report = run_table(**options | more | {"output": tmp_path / name})
        assert (
            "is preserved" in " ".join(report.facts["scope"])
            and len(report.facts["private_scope"]) == 1
        )
        assert len(tasks(tmp_path / name)) > 4
    assert len(tasks(tmp_path / "out")) == 1
    monkeypatch.setattr(partitioning, "_FEW_FILES", 2)
    monkeypatch.setattr(partitioning, "_FILE", 1 << 13)
    report = run_table(**options | {"output": tmp_path / "gathered"})
    assert 1 < len(tasks(tmp_path / "gathered")) < 4
    assert report.facts["rows"] == ROWS
    assert rows_of(tmp_path / "gathered") == rows_of(tmp_path / "out")
    found = rows_of(tmp_path / "position")
    assert found == rows_of(tmp_path / "out")
    wanted = [row["id"] for row in found if row["id"] != "r007"]
    assert [row["id"] for row in rows_of(tmp_path / "named")] == wanted
    monkeypatch.setattr(partitioning, "is_encrypted", lambda _: False)
    report = run_table(**options | {"output": tmp_path / "clear"})
    assert len(tasks(tmp_path / "clear")) == 1
    assert "spark.io.encryption.enabled=true" in report.facts["private_scope"][-2]
    public = " ".join(report.facts["scope"])
    assert "is preserved" in public and "io.encryption" not in public


def test_rows_without_a_position_are_ordered_by_chance(ring_release, tmp_path, spark, short):
    """Rejects the id or its hash for an order, which files publish, and an order that is not said."""
    # Nor do folders of the output get a file from each task.
    source = spark.read.parquet(str(written(tmp_path / "x")))
    days = source.withColumn("day", F.substring("id", 4, 1).cast("int") % 2)
    days.coalesce(1).write.partitionBy("day").option("header", "true").csv(str(tmp_path / "in"))
    options = ring_release | {
        "keep": ["id", "day"],
        "id": "id",
        "format": "csv",
        "output_format": "parquet",
    }
    assert "is preserved" in " ".join(run_table(**options).facts["scope"])
    short()
    orders = []
    for name in "ab":
        report = run_table(**options | {"output": tmp_path / name})
        assert "Row order is random" in " ".join(report.facts["scope"])
        assert sorted(map(str, rows_of(tmp_path / name))) == sorted(
            map(str, rows_of(tmp_path / "out"))
        )
        files = tasks(tmp_path / name)
        assert 4 < len(files) < 20
        orders.append(files)
    assert orders[0] != orders[1]


def test_added_files_and_vectors_are_spread(ring_release, tmp_path, key_file, short):
    """Rejects batches of a stream that are one task for a row group, and vectors that depend on the tasks."""
    source = written(tmp_path / "in", vector=[[float(row % 5), 1.0, 2.0] for row in range(ROWS)])
    plain = {
        "input": str(source),
        "vector": ["vector"],
        "id": "id",
        "epsilon": 10.0,
        "dimension": 2,
    }
    for name in ("whole", "spread"):
        out = {"output": tmp_path / name, "incremental": tmp_path / f"{name}.c"}
        run_table(**ring_release | out, keep=["id"])
        own = {"output": str(tmp_path / f"{name} v"), "key-file": str(key_file), "name": "cut"}
        vectors.run(VectorsOptions.of(plain | own | {"keep": ["id"]}))
        short()
    for after in ("", " v"):
        assert rows_of(tmp_path / f"spread{after}") == rows_of(tmp_path / f"whole{after}")
        assert len(tasks(tmp_path / f"spread{after}")) > 4 > len(tasks(tmp_path / f"whole{after}"))


def test_vectors_are_gathered_in_usual_files(ring, tmp_path, key_file, short, monkeypatch):
    """Rejects a file a task, whose size is not asked for, and vectors of words that count as one."""
    numbers = [[float(row % 5), 1.0, 2.0] for row in range(ROWS)]
    source = written(tmp_path / "in", vector=numbers, words=[["a1", "b2"]] * ROWS)
    options = {"input": str(source), "epsilon": 10.0, "dimension": 2, "keep": ["id"], "name": "cut"}
    options |= {"key-file": str(key_file), "id": "id"}

    def run(name, **more):
        output = tmp_path / name
        vectors.run(VectorsOptions.of(options | more | {"output": str(output)}))
        return rows_of(output), len(tasks(output))

    by_task, one = run("one", vector=["vector"])
    short()
    assert run("many", vector=["vector"]) == (by_task, 6 * one)
    monkeypatch.setattr(partitioning, "_FEW_FILES", 2)
    monkeypatch.setattr(partitioning, "_FILE", 4 * 2 * ROWS // 2)
    assert run("two", vector=["vector"]) == (by_task, 2)
    monkeypatch.setattr(partitioning, "_FEW_FILES", 1)
    _, files = run("words", tokens=["words"], embedding=str(ring.path))
    assert files > 2


IO = {"spark.io.encryption.enabled": "true"}
SENT = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local[2,4]", IO, True),
        ("local[2,4]", {}, False),
        ("local[2,4]", {**IO, "spark.shuffle.manager": "org.example.Remote"}, False),
        ("spark://host:7077", IO, False),
        ("yarn", {**IO, **SENT}, True),
        ("yarn", {**IO, "spark.network.crypto.enabled": "true"}, False),
        ("yarn", SENT, False),
        ("k8s://host", {**IO, "spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_what_counts_as_encrypted(master, settings, expected):
    """Rejects files or the network alone, no authentication, and a shuffle that is not Spark's own."""
    context = SimpleNamespace(master=master, getConf=lambda: settings)
    assert is_encrypted(SimpleNamespace(sparkContext=context)) is expected


@pytest.mark.parametrize(
    ("partitions", "cores", "expected"),
    [
        ([], 2, None),
        ([0.9], 2, None),  # one task's work
        ([8.0], 2, 8),  # of a second each
        ([160.0], 2, 16),  # eight for each core
        ([48_000.0], 2, 1600),  # of 30 seconds each
        ([2.0] * 4, 2, None),
        ([121.0, *[0.1] * 30], 2, 16),
        ([119.0, *[0.1] * 30], 2, None),
        ([1e9], 2, 10_000),
    ],
)
def test_how_many_tasks_are_planned(partitions, cores, expected):
    """Rejects tiny tasks, cores without work, and a shuffle where Spark's own partitions will do."""
    assert planned_tasks(partitions, cores) == expected


@pytest.mark.parametrize(
    ("partitions", "files", "cores", "can_shuffle", "expected"),
    [
        ([48_000.0], 3, 2, True, (1600, 3, True)),
        ([48_000.0], 900, 2, True, (1600, 1600, True)),
        ([48_000.0], None, 2, True, (1600, 1600, True)),
        ([48_000.0], 3, 2, False, (1, 1, False)),
        ([160.0], 1, 2, True, (16, 16, True)),  # few files
        ([0.01] * 10_000, 2, 2, True, (10_000, 2, False)),
        ([0.01] * 10_000, 2, 2, False, (10_000, 10_000, False)),
        ([20.0] * 4000, 5, 100, True, (4000, 5, False)),
        ([20.0] * 12, 1, 2, True, (12, 12, False)),
    ],
)
def test_files_follow_the_table_and_cores_do_not_wait_for_them(
    partitions, files, cores, can_shuffle, expected
):
    """Rejects a file for each task, tasks as few as files, and a shuffle that is not encrypted."""
    counts = [0, *[9] * len(partitions)]
    plan = Plan.of(counts, partitions, files, cores=cores, can_shuffle=can_shuffle)
    assert (plan.tasks, plan.files, plan.shuffles) == expected
    assert plan.shares == ((1,) * plan.tasks if plan.shuffles else tuple(counts))


def test_most_rows_of_a_file_make_more_files():
    """Rejects an option that is not counted, and files cut from the whole table."""
    plan = Plan(rows=1000, tasks=9, files=3, shuffles=True, shares=(1,) * 9)
    assert [plan.files_of(most) for most in ("", "0", "400", "334", "333", "100")] == [
        3,
        3,
        3,
        3,
        6,
        12,
    ]


@pytest.mark.parametrize(
    ("shares", "files", "expected"),
    [
        ((1,) * 12, 5, [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4]),
        ((0, 0, 10, 10, 0, 0, 0, 10, 10, 0), 2, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]),
        ((90, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 3, [1] + [2] * 10),
        ((1, 1, 1), 1, [0, 0, 0]),
    ],
)
def test_files_have_equal_shares_of_the_rows(shares, files, expected):
    """Rejects shares of the tasks, whatever their rows, and a file that there is not."""
    plan = Plan(rows=9, tasks=len(shares), files=files, shuffles=False, shares=shares)
    assert plan.files_of_tasks == expected


def test_what_tasks_write_is_gathered_in_their_order(spark, capsys):
    """Rejects rows by turns, files that hash puts together, and rows in another order inside a file."""
    more_partitions = spark.range(0, ROWS, 1, 15)  # than were counted: also rejects a failed run
    plan = Plan(rows=ROWS, tasks=12, files=5, shuffles=True, shares=(1,) * 12)
    late = Partitioning(word=1.0, plan=plan).gathered(more_partitions)
    assert [row["id"] for row in late.collect()] == [*range(ROWS)]
    rows = spark.range(0, ROWS, 1, 12)
    gathered = Partitioning(word=1.0, plan=plan).gathered(rows)
    assert gathered.columns == ["id"]
    gathered.explain()
    # On one host blocks come in order without it.
    assert "Sort [__dptext_place" in capsys.readouterr().out
    files = gathered.withColumn("file", F.spark_partition_id()).collect()
    assert [row["id"] for row in files] == [*range(ROWS)]
    assert [row["file"] for row in files] == [plan.files_of_tasks[row // 20] for row in range(ROWS)]


def test_words_and_rows_have_their_cost(spark, tmp_path):
    """Rejects rows for words, and partitions that are counted although they have no rows."""
    # And ranges that are not sorted inside, and positions that are left in the rows.
    frame = spark.read.parquet(str(written(tmp_path / "in", row_group=40)))
    for word, words, expected in ((6e9, 10.0, 16), (6e5, 10.0, 1), (3e9, None, 16), (6e9, 0.01, 1)):
        plan = Partitioning(
            word=word, sample=SimpleNamespace(mean_words=words, partition_rows=None, row_bytes=None)
        )
        spread = plan.spread(frame.coalesce(1), F.col("id"))
        assert spread.rdd.getNumPartitions() == expected
        assert spread.count() == ROWS
    position = {"__dptext_file": F.lit("x"), "__dptext_row": F.col("id") * 7 % ROWS}
    rows = spark.range(0, ROWS, 1, 4).withColumns(position)
    plan = Partitioning(
        word=6e9, sample=SimpleNamespace(mean_words=10.0, partition_rows=None, row_bytes=None)
    )
    spread = plan.spread(rows.repartition(3), F.col("id"))
    assert spread.columns == ["id"]
    assert [row["id"] * 7 % ROWS for row in spread.collect()] == [*range(ROWS)]


CANARY = f"canary{secrets.token_hex(16)}"


def test_rows_that_are_shuffled_are_encrypted(spark, tmp_path):
    """Rejects a session of ours without the setting."""
    start = time.time() - 1.0
    write_table(
        tmp_path / "in.parquet", {"id": [*"ab"], "text": [f"{CANARY} {row}" for row in "ab"]}
    )
    frame = spark.read.parquet(str(tmp_path / "in.parquet"))
    spread = Partitioning(word=1e12).spread(frame, F.col("id"))
    assert (
        spread.rdd.getNumPartitions() > 1
    )  # shuffled, which it is not in a session that is not encrypted
    assert {row["text"] for row in spread.collect()} == {f"{CANARY} a", f"{CANARY} b"}
    temporary = spark._jvm.java.lang.System.getProperty("java.io.tmpdir")
    folder = Path(str(spark.sparkContext.getConf().get("spark.local.dir", temporary)))
    files = folder.glob("blockmgr-*/*/*shuffle_*.data*")
    found = [file.read_bytes() for file in files if file.stat().st_mtime >= start]
    assert any(found)
    assert not any(CANARY.encode() in content for content in found)
