"""The sample before a run: of few rows, of the rows that are wanted, told before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.jobs import vectors
from dptext_spark.lookup import WordReader
from dptext_spark.options import VectorsOptions
from dptext_spark.report.facts import coverage
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.formats.files import Parquet
from dptext_spark.tables.look import SAMPLE_ROWS, SAMPLE_TASKS, Coverage, Sample
from dptext_spark.text.policies import TextPolicy
from tests.helpers.tables import run_table, write_table

pytestmark = pytest.mark.spark


def look(frame: DataFrame, ring: Embedding, policy: TextPolicy | None = None, **names: Any) -> Sample:
    columns = TableColumns(**{"keep": (), "id": "id", **names})
    reader = WordReader(bundle=BundleFiles.send(frame.sparkSession, ring), policy=policy or TextPolicy())
    sample = Sample(columns=columns, table=frame.schema, reader=reader, fate="They become [MASK].")
    sample(columns.select(frame))
    return sample


def test_columns_and_fields_are_counted_each(
    spark: SparkSession, ring: Embedding, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = "array<struct<who: string, said: string>>"
    schema = f"kept string, id int, turns {turns}, note string, marks array<struct<start: int, end: int>>"
    rows = [
        ("nope nope", 1, [("a", "w00 secret"), ("b", "w01")], "W02 secret w03", [(4, 10)]),
        ("nope nope", 2, None, None, None),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    names: dict[str, Any] = {"text": ("note", "turns[].said"), "keep": ("kept", "turns[].who")}
    sample = look(frame, ring, **names)
    assert sample.found == {
        "note": Coverage(rows=2, tokens=3, unknown=1),
        "turns[].said": Coverage(rows=2, tokens=3, unknown=1),
    }
    said = capsys.readouterr().err
    assert said.count("Warning, for those who run the job: 33.3% of the words of column") == 2
    assert "secret" not in said
    policy = TextPolicy(protect="slots:marks")
    slots = look(frame, ring, policy, text=("note",), protect=policy.protect)
    assert slots.found == {"note": Coverage(rows=2, tokens=1, unknown=1)}


def table(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    return spark.range(0, rows, numPartitions=tasks).withColumn("text", F.lit("w00 zyx"))


def test_few_rows_of_few_tasks_are_looked_at(spark: SparkSession, ring: Embedding) -> None:
    """Rejects Spark's own order as well: one task, for which all other cores wait, and then the rest."""
    context: Any = spark.sparkContext
    spark.conf.unset("spark.sql.limit.initialNumPartitions")
    context.setJobGroup("sample", "")
    many = table(spark, 40 * SAMPLE_ROWS, 20)
    try:
        found = look(many, ring, text=("text",)).found["text"]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    rows = SAMPLE_ROWS * SAMPLE_TASKS
    assert found == Coverage(rows=rows, tokens=2 * rows, unknown=rows)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    (job,) = tracker.getJobIdsForGroup("sample")
    (stage,) = tracker.getJobInfo(job).stageIds
    assert tracker.getStageInfo(stage).numTasks == SAMPLE_TASKS
    assert look(many.filter("id < 0"), ring, text=("text",)).found == {"text": Coverage()}
    empty = spark.createDataFrame([], "id int, text string")
    assert look(empty, ring, text=("text",)).found in ({}, {"text": Coverage()})


def test_rows_of_partitions_are_known_where_the_sample_is_the_table(
    spark: SparkSession, ring: Embedding
) -> None:
    """Rejects rows of the first batch for a later one, of a part of the tasks, and of a part of a task."""
    sample = look(table(spark, 30, 3), ring, text=("text",))
    assert sample.rows == [10, 10, 10]
    sample(sample.columns.select(table(spark, 8, 1)))
    assert sample.rows is None
    for rows, tasks in ((40, SAMPLE_TASKS), (SAMPLE_ROWS + 1, 1)):
        assert look(table(spark, rows, tasks), ring, text=("text",)).rows is None


def test_a_run_tells_it_before_it_writes(
    dptext: Callable[..., Result], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a warning that comes with the counts, after hours of work."""

    def write(*_: Any) -> None:
        raise InputError("Column text has words outside the vocabulary")

    with monkeypatch.context() as patch:
        patch.setattr(Parquet, "write", write)
        refused = dptext(table, "--oov", "fail")
    assert refused.exit_code == 2
    first, second = refused.stderr.splitlines()
    said = "Warning, for those who run the job: 11.1% of the words of column text, in a sample"
    assert first.startswith(said) and "another --oov than fail" in first
    assert second.startswith("dptext privatize: Column text has words outside the vocabulary")
    assert not (tmp_path / "out").exists()

    done = dptext(table)
    assert done.exit_code == 0
    assert "become [MASK]" in done.stderr and "Coverage" not in done.stdout
    report = json.loads((tmp_path / "out.private" / "report.json").read_text())
    assert report["coverage"] == coverage({"text": Coverage(rows=12, tokens=108, unknown=12)})


def test_a_dry_run_tells_it_of_the_wanted_rows(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    write_table(tmp_path / "in" / "known.parquet", {"id": [99], "text": ["w01 w02"]})
    dry = dptext(table, "--dry-run", "--where", "id = 99")
    assert "\ntext: 100.0% of 2 words are in the vocabulary (a sample of 1 rows)\n" in dry.stdout
    assert dry.exit_code == 0 and dry.stderr == ""
    dry = dptext(table, "--dry-run", "--where", "id > 99")
    assert "\ntext: no words in a sample of 0 rows\n" in dry.stdout
    assert not (tmp_path / "out").exists()


def test_a_growing_table_tells_it_of_the_files_that_are_new(
    table: Path, ring_release: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ring_release | {"incremental": tmp_path / "c", "read_option": "maxFilesPerTrigger=1"}
    report = run_table(**options)
    assert report.facts["coverage"] == coverage({"text": Coverage(rows=6, tokens=54, unknown=6)})
    assert capsys.readouterr().err.count("Warning") == 1  # of the first batch alone
    write_table(table / "new.parquet", {"id": [12], "text": ["w01 w02 w03"]})
    assert run_table(**options).facts["coverage"] == coverage({"text": Coverage(rows=1, tokens=3)})
    assert capsys.readouterr().err.count("Warning") == 0


def test_texts_that_become_vectors_are_looked_at(
    spark: SparkSession, ring: Embedding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64()))
    source = write_table(tmp_path / "in.parquet", {"v": numbers, "text": ["w01 zyx", "w02"]})
    options = {"input": str(source), "output": str(tmp_path / "out"), "epsilon": 9.0, "vector": ["v"]}
    words = {"text": ["text"], "embedding": str(ring.path)}
    for dry in (True, False):
        report = vectors.run(VectorsOptions.of({**options, **words, "dry-run": dry}))
        assert report.facts["coverage"] == coverage({"text": Coverage(rows=2, tokens=3, unknown=1)})
        assert "left out of the averages" in capsys.readouterr().err
        assert ("\ntext: 66.7% of 3 words are in the vocabulary" in report.describe()) is dry
    assert json.loads((tmp_path / "out.private" / "report.json").read_text())["coverage"].keys() == {"text"}
    bare = vectors.run(VectorsOptions.of({**options, "dry-run": True, "output": str(tmp_path / "bare")}))
    assert "coverage" not in bare.facts and "Coverage" not in bare.describe()


def test_texts_that_are_not_unicode_fail_as_in_a_run(spark: SparkSession, ring: Embedding) -> None:
    frame = spark.sql("select 1 as id, cast(X'ff' as string) as text")
    with pytest.raises(Exception, match="not valid UTF-8") as caught:
        look(frame, ring, text=("text",))
    assert InputError.__name__ in str(caught.value)
