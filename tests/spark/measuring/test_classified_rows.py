"""What models learn: the rows that they learn from are released by as many tasks as have them."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.measuring.classified_rows import Classes, classified
from dptext_spark.spark.measuring.rehearsed_rows import CHECKED_ON, plan_of, third_of
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
    frame = selected.withColumn("third", third_of(selected[selected.columns[-1]]))
    frame = frame.repartition(TASKS).persist()
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


def test_models_see_nothing_of_the_rows_of_the_check(spark: SparkSession, small: Embedding) -> None:
    """Rejects a model that learnt from the rows of the check: labels there then change the choice."""
    rows = [(f"r{i}", text, str(i % 2)) for i, text in enumerate(sentences(60, 1))]
    df = spark.createDataFrame(rows, "id string, text string, label string")
    columns = TableColumns(text=("text",), keep=("label",), id="id")
    plan = plan_of(columns, df, BundleFiles.send(spark, small), TextPolicy(), ExactSearch.over(small), 0)
    label = columns.schema(df.schema).names.index("label")
    selected = columns.select(df)
    frame = selected.withColumn("third", third_of(selected[selected.columns[-1]])).persist()
    name = frame.columns[label]
    of_check = F.col("third") == CHECKED_ON
    others = {
        "as they are": F.col(name),
        "turned round": F.when(of_check, (1 - F.col(name).cast("int")).cast("string")).otherwise(F.col(name)),
        "of their own": F.when(of_check, F.concat(F.lit("0"), frame[-2])).otherwise(F.col(name)),
    }
    classes = Classes(column=label, learnt=("accuracy", "accuracy_on_original"))
    found = {
        kind: classified(frame.withColumn(name, other), plan, classes, Laplace(epsilon=8.0), original=False)
        for kind, other in others.items()
    }
    frame.unpersist()
    first, *rest = ([own["accuracy"].parts, own["accuracy_on_original"].parts] for own, _ in found.values())
    for other in rest:
        np.testing.assert_array_equal(other, first)
    checked = [own["accuracy"].ratio[0] for _, own in found.values()]
    assert checked[0] + checked[1] == 1.0 and checked[2] == 0.0
