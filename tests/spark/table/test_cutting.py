"""Rows cut into tasks by their words: the same words however files are cut, every row once, in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.options import VectorsOptions
from dptext_spark.spark.jobs import vectors
from dptext_spark.spark.table import cutting
from dptext_spark.spark.table.cutting import Cutting, Parts, RowCost, in_turns
from dptext_spark.spark.table.source import own_session
from tests.helpers.tables import rows_of, run_table, spark_settings, texts, write_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROWS = 240
DEAR = RowCost(word=6e9)
SHORT = 6e-4
"""Seconds of some thirty rows of these tables."""


def written(folder: Path, row_group: int, rows: int = ROWS, **more: Any) -> Path:
    folder.mkdir()
    table = pa.table({"id": [f"r{row}" for row in range(rows)], "text": texts(rows), **more})
    pq.write_table(table, folder / "x.parquet", row_group_size=row_group)
    return folder


def files(folder: Path) -> list[int]:
    """Rows of each file, in their order: one file for a task that had any."""
    return [pq.read_metadata(file).num_rows for file in sorted(folder.glob("part-*"))]


@pytest.fixture(autouse=True)
def _reading_costs_nothing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of these tables cost hardly more than to read them, and there are few."""
    monkeypatch.setattr(cutting, "_SMALL", 0)
    if "ring_release" in request.fixturenames:
        monkeypatch.setattr(cutting, "_READING", 1e12)


def test_the_words_are_the_same_however_rows_are_cut(ring_release: dict[str, Any], tmp_path: Path) -> None:
    """By file and position, in one task or many, of one row group or many, in the input's order.

    Rejects names of rows that count inside a task, turns that overlap, leave rows out or come in another
    order, a task for each row group, and tasks of many lengths.
    """
    released = []
    for name, row_group, seconds in (("whole", ROWS, 1000.0), ("cut", ROWS, SHORT), ("fine", 7, SHORT)):
        source, output = written(tmp_path / f"{name} in", row_group), tmp_path / name
        options = ring_release | {"input": source, "output": output}
        assert run_table(**options, keep=["id"], task_seconds=seconds).rows == ROWS
        released.append(rows_of(output))
    assert [row["id"] for row in released[0]] == [f"r{row}" for row in range(ROWS)]
    assert released[1] == released[2] == released[0]
    assert files(tmp_path / "whole") == [ROWS]
    most, *others = files(tmp_path / "cut")
    assert len(others) > 4
    assert all(rows == most for rows in others[:-1])
    assert len(files(tmp_path / "fine")) > 4


def test_named_rows_are_the_same_however_they_are_cut(ring_release: dict[str, Any], tmp_path: Path) -> None:
    """Rejects turns by which ids, or the rows' own columns, are those of another row."""
    source = written(tmp_path / "one", ROWS)
    for name, seconds in (("whole", 1000.0), ("cut", SHORT)):
        options = ring_release | {"input": source, "output": tmp_path / name}
        run_table(**options, id="id", keep=["id"], task_seconds=seconds)
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    assert len(files(tmp_path / "cut")) > 4


def test_many_small_files_make_few_tasks(ring_release: dict[str, Any], tmp_path: Path) -> None:
    """Rejects a task, and with it a file, for each file or each few of them."""
    for number in range(60):
        write_table(tmp_path / "in" / f"{number}.parquet", {"text": texts(4)})
    run_table(**ring_release)
    assert len(files(tmp_path / "out")) <= 9
    assert sum(files(tmp_path / "out")) == 240


@pytest.mark.parametrize("form", ["csv", "json", "orc"])
def test_other_formats_are_counted(form: str, spark: SparkSession, tmp_path: Path) -> None:
    """Rejects a count that reads no column, which Spark refuses where it watches for malformed rows."""
    options = {"header": "true"} if form == "csv" else {}
    spark.read.parquet(str(written(tmp_path / "in", ROWS))).write.options(**options).format(form).save(
        str(tmp_path / "other")
    )
    malformed = {"columnNameOfCorruptRecord": "bad"} if form != "orc" else {}
    read = own_session(spark).read.options(**options, **malformed).format(form)
    frame = read.schema("id string, text string" + (", bad string" if malformed else ""))
    rows = frame.load(str(tmp_path / "other"))
    if malformed:
        rows = rows.where("bad is null").drop("bad")
    parts = Parts.of(rows, DEAR)
    assert parts is not None
    assert sum(parts.rows) == ROWS


def test_a_table_that_takes_no_second_is_one_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a limit of bytes alone: under a large vocabulary a few words are work for all cores."""
    monkeypatch.undo()
    source = str(written(tmp_path / "in", ROWS))
    assert Parts.of(own_session(spark).read.parquet(source), DEAR) is not None
    own = own_session(spark)
    assert Parts.of(own.read.parquet(source), RowCost(word=1.0)) is None
    assert own.read.parquet(source).rdd.getNumPartitions() == 1


def test_filtered_rows_are_cut_too(ring_release: dict[str, Any], tmp_path: Path) -> None:
    """Rejects turns by the number of a row in its file, of which a filter may leave one turn all."""
    source = written(tmp_path / "one", ROWS, day=[row // 24 for row in range(ROWS)])
    for name, seconds in (("whole", 1000.0), ("cut", SHORT)):
        options = ring_release | {"input": source, "output": tmp_path / name}
        run_table(**options, where="day >= 7", task_seconds=seconds)
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "cut")
    assert files(tmp_path / "whole") == [72]
    assert files(tmp_path / "cut") == [36, 36]


def test_files_that_are_added_are_cut_too(ring_release: dict[str, Any], tmp_path: Path) -> None:
    """Rejects batches of a stream that are one task for a row group, and words that follow from the cut."""
    source = written(tmp_path / "one", ROWS)
    for name, seconds in (("whole", 1000.0), ("cut", SHORT)):
        options = ring_release | {"input": source, "output": tmp_path / name}
        run_table(**options, incremental=tmp_path / f"{name}.checkpoint", task_seconds=seconds)
    batches = [
        [row for file in sorted((tmp_path / name).glob("batch-*")) for row in pq.read_table(file).to_pylist()]
        for name in ("whole", "cut")
    ]
    assert batches[0] == batches[1]
    assert len(batches[0]) == ROWS
    assert len(list((tmp_path / "cut").glob("batch-*"))) > len(list((tmp_path / "whole").glob("batch-*")))


def test_vectors_are_cut_too(tmp_path: Path, key_file: Path) -> None:
    """Rejects vectors that follow from the cut."""
    source = written(tmp_path / "one", ROWS, vector=[[float(row % 5), 1.0, 2.0] for row in range(ROWS)])
    for name, seconds in (("whole", 1000.0), ("cut", SHORT)):
        vectors.run(
            VectorsOptions.of(
                {
                    "input": str(source),
                    "output": str(tmp_path / name),
                    "vector": ["vector"],
                    "id": "id",
                    "epsilon": 10.0,
                    "dimension": 2,
                    "key-file": str(key_file),
                    "salt": "cut",
                    "task-seconds": seconds,
                }
            )
        )
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "cut")
    assert files(tmp_path / "whole") == [ROWS]
    assert len(files(tmp_path / "cut")) > 1


@pytest.fixture
def selected(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Rows of one row group, in one partition."""
    frame = own_session(spark).read.parquet(str(written(tmp_path / "one", ROWS)))
    assert Parts.of(frame, DEAR) == Parts(rows=(ROWS,), count=1)
    return frame


@pytest.mark.parametrize("turns", [1, 7, 50])
def test_turns_share_a_partition_out(selected: DataFrame, turns: int) -> None:
    """Each row comes once, and to the task whose turn it is; rejects borders of which one row is wrong."""
    rows = -(-ROWS // turns)
    frame = in_turns(selected, turns, rows).withColumn("task", F.spark_partition_id())
    assert frame.columns == [*selected.columns, "task"]
    found = [(row["id"], row["task"]) for row in frame.collect()]
    assert found == [(f"r{row}", row // rows) for row in range(ROWS)]


def test_a_file_that_grows_meanwhile_loses_no_row(selected: DataFrame) -> None:
    """Rejects turns that end where the rows ended that were counted."""
    frame = in_turns(selected, 4, 50).withColumn("task", F.spark_partition_id())
    assert Counter(row["task"] for row in frame.collect()) == {0: 50, 1: 50, 2: 50, 3: 90}


def test_rows_without_a_settled_order_do_not_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects turns at rows that were shuffled: each task may see them in another order, and lose some."""
    frame = spark.read.parquet(str(written(tmp_path / "one", ROWS)))
    assert Parts.of(frame.where("id <> 'r1'").select("text"), DEAR) is not None
    assert Parts.of(frame.repartition(3), DEAR) is None
    assert Parts.of(frame.join(frame.select("id"), "id"), DEAR) is None
    assert Parts.of(spark.createDataFrame([("a",)], "text string"), DEAR) is None


def tasks_of(frame: DataFrame) -> Counter[int]:
    """Rows of each task that has any; each row of the tables above must be there once."""
    found = [(row["id"], row["task"]) for row in frame.withColumn("task", F.spark_partition_id()).collect()]
    assert sorted(found) == sorted(dict(found).items())
    return Counter(task for _, task in found)


TENTH = Cutting(seconds=24.0, cost=DEAR, words=lambda: 10.0)
"""Tasks of a tenth of the rows, of a second each."""


def test_rows_in_any_order_are_dealt_out_by_numbers_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects views that stay as they are, rows that come twice or never, and tasks that get far too many."""
    frame = spark.read.parquet(str(written(tmp_path / "one", ROWS)))
    joined = frame.join(frame.select("id"), "id")
    for rows in (frame, joined, joined.coalesce(1), joined.repartition(3)):
        tasks = tasks_of(TENTH.dealt(rows, F.xxhash64("id")))
        assert sum(tasks.values()) == ROWS
        assert len(tasks) >= 8
        assert max(tasks.values()) < 50
    nothing = frame.where("id = 'none'")
    assert not TENTH.dealt(nothing, F.xxhash64("id")).count()


def test_partitions_without_rows_are_no_share(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects shares of a row group that are the fewer the more empty partitions it has, and tiny tasks."""
    written(tmp_path / "one", ROWS)
    for number in range(120):
        rows = range(2 * number, 2 * number + 2)
        write_table(tmp_path / "many" / f"{number}.parquet", {"id": [f"r{row}" for row in rows]})
    with spark_settings(spark, files_maxPartitionBytes=100, files_openCostInBytes=0):
        own = own_session(spark)
    for name in ("one", "many"):
        frame = own.read.parquet(str(tmp_path / name))
        assert frame.rdd.getNumPartitions() >= 30
        tasks = tasks_of(TENTH.dealt(frame, F.xxhash64("id")))
        assert sum(tasks.values()) == ROWS
        assert max(tasks.values()) < 50
        assert 8 <= len(tasks) <= 20


def test_partitions_are_those_that_have_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects a partition for every few bytes of a row group, all of which but one are empty tasks."""
    written(tmp_path / "one", ROWS)
    with spark_settings(spark, files_maxPartitionBytes=100, files_openCostInBytes=0):
        own = own_session(spark)
    frame = own.read.parquet(str(tmp_path / "one"))
    assert frame.rdd.getNumPartitions() > 10
    parts = Parts.of(frame, DEAR)
    assert parts == Parts(rows=(ROWS,), count=1, divisible=False)
    assert spark.conf.get("spark.sql.files.maxPartitionBytes") != own.conf.get(
        "spark.sql.files.maxPartitionBytes"
    )


def test_partitions_stay_where_finer_ones_would_have_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects rows that are counted by partition in one division of the files and numbered in another."""
    for number, row_group in enumerate((ROWS, ROWS, 40)):
        written(tmp_path / f"{number}", row_group)
    with spark_settings(spark, files_minPartitionNum=4, files_openCostInBytes=0):
        own = own_session(spark)
    frame = own.read.parquet(*(str(tmp_path / f"{number}") for number in range(2)))
    parts = replace(Parts.counted(frame, F.col("id")), divisible=True)
    assert parts.finer(frame, 50) == replace(parts, divisible=False)
    assert Parts.counted(frame, F.col("id")) == replace(parts, divisible=False)
    assert own.conf.get("spark.sql.files.minPartitionNum") == "4"
    row_groups = own.read.parquet(str(tmp_path / "2"))
    assert len(Parts.counted(row_groups, F.col("id")).finer(row_groups, 50).rows) == ROWS / 40
    assert own.conf.get("spark.sql.files.minPartitionNum") == "50"


def test_a_large_row_group_beside_small_files_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects partitions that are put together as if they had equally many rows."""
    written(tmp_path / "in", ROWS)
    for number in range(12):
        write_table(tmp_path / "in" / f"small {number}.parquet", {"id": ["s"], "text": ["w01"]})
    with spark_settings(spark, files_maxPartitionBytes=1, files_openCostInBytes=0):
        own = own_session(spark)
    frame = own.read.parquet(str(tmp_path / "in"))
    parts = Parts(rows=(ROWS, *[1] * 12), count=40)
    spread = Cutting(seconds=30.0, cost=DEAR, words=lambda: 10.0).spread(frame, parts)
    tasks = Counter(row[0] for row in spread.select(F.spark_partition_id()).collect())
    assert sum(tasks.values()) == ROWS + 12
    assert max(tasks.values()) < ROWS / 5


SECOND = Cutting(seconds=30.0, cost=DEAR, words=lambda: 10.0)
"""Rows of a second."""


def test_tasks_have_their_planned_length() -> None:
    """Rejects rows for words, and tasks that leave most of a small table's cores without work."""
    large = Parts(rows=(100_000,), count=1)
    assert SECOND.rows_of_task(large, cores=2) == 29  # of 30 seconds and a little for the row itself
    assert SECOND.turns(large, cores=2) == 3448
    small = Parts(rows=(160,), count=1)
    assert SECOND.rows_of_task(small, cores=2) == 10
    assert SECOND.turns(small, cores=2) == 16
    assert SECOND.turns(Parts(rows=(10,) * 16, count=16), cores=2) == 1


def test_reading_stays_cheap_beside_the_work() -> None:
    """Rejects turns of words that cost little more than to read them, but where cores would have no work."""
    cheap = Cutting(seconds=0.1, cost=RowCost(word=6e5), words=lambda: 10.0)  # 10 microseconds a word
    rows = Parts(rows=(1_000_000,), count=1)
    assert cheap.turns(rows, cores=1) == 2
    assert cheap.turns(rows, cores=16) == 16
    assert cheap.turns(Parts(rows=(1_000_000,) * 16, count=16), cores=16) == 2
    kept = Cutting(seconds=0.1, cost=RowCost(word=6e5, read=0.1), words=lambda: 10.0)
    few = Cutting(seconds=0.1, cost=RowCost(word=6e5, read=100.0), words=lambda: 10.0)
    assert kept.turns(rows, cores=1) == 21
    assert few.turns(rows, cores=16) == 1
