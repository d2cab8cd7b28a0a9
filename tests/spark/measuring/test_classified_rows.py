"""What models learn: the rows that they learn from are released by as many tasks as have them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.measuring.classified_rows import Classes, classified
from dptext_spark.spark.measuring.rehearsed_rows import HALVES, named, plan_of
from dptext_spark.spark.table.columns import TableColumns
from dptext_spark.text.policies import TextPolicy
from tests.helpers.made_texts import sentences

pytestmark = pytest.mark.spark

TASKS = 7


def test_rows_are_released_by_all_tasks(spark: SparkSession, small: Embedding) -> None:
    """Rejects one task that releases all rows because it is one that puts them in order."""
    rows = [(f"r{i}", text, str(i % 2)) for i, text in enumerate(sentences(30, 1))]
    df = spark.createDataFrame(rows, "id string, text string, label string")
    columns = TableColumns(text=("text",), keep=("label",), id="id")
    plan = plan_of(
        columns,
        df,
        BundleFiles.send(spark, small),
        TextPolicy(),
        ExactSearch.over(small),
        0,
    )
    selected = columns.select(df)
    half = F.pmod(named(selected[selected.columns[-1]], "half"), F.lit(HALVES)).cast("int")
    frame = selected.withColumn("half", half).repartition(TASKS).persist()
    context = spark.sparkContext
    assert frame.count() == len(rows)
    context.setJobGroup("classes", "")
    classes = Classes(column=columns.schema(df.schema).names.index("label"), learnt=("accuracy", None))
    try:
        classified(frame, plan, classes, Laplace(epsilon=5.0), original=False)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        frame.unpersist()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("classes")]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    done = [stage.numCompletedTasks for stage in stages if stage]
    assert max(done) == TASKS
