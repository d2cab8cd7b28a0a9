"""What models learn: the rows that they learn from are released by as many tasks as have them."""

from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import functions as F

from dptext_spark.evaluation import simulate
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import CHECKED_ON, CHOSEN_ON, SampledRows, classify, third_of
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.batch import ID, ROW
from dptext_spark.tables.columns import TableColumns
from dptext_spark.text.policies import TextPolicy
from tests.helpers.made_texts import sentences

pytestmark = pytest.mark.spark

TASKS = 7


@pytest.fixture(scope="module")
def rows(spark, small):
    """Rows in several parts; a word tells the label, of which one is null."""
    texts = sentences(90, 1)
    labels = [
        None if i == 7 else str(int(int(text.split()[0][1:]) < 5)) for i, text in enumerate(texts)
    ]
    rows = [
        (f"r{i}", text, label) for i, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    df = spark.createDataFrame(rows, "id string, text string, label string")
    columns = TableColumns(text=("text",), keep=("label",), id="id")
    frame = columns.select(df).withColumn("third", third_of(F.col(ID))).repartition(TASKS).persist()
    bundle = BundleFiles.send(spark, small)
    simulation = Simulation(bundle=bundle, policy=TextPolicy(), search=ExactSearch.over(small))
    assert frame.count() == len(rows)
    yield SampledRows(frame=frame, simulation=simulation, ways=columns.ways(df.schema))
    frame.unpersist()


def test_rows_are_released_by_all_tasks(spark, rows, monkeypatch):
    """Rejects one task that releases all rows because it is one that puts them in order."""
    context = spark.sparkContext
    context.setJobGroup("classes", "")
    monkeypatch.setattr(simulate, "_judged", lambda ordered, *_, **__: {0: ordered.count()})
    try:
        assert classify(rows, "label", ("accuracy",), Laplace(epsilon=5.0)) == {0: 89}
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("classes")]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert max(stage.numCompletedTasks for stage in stages if stage) == TASKS


def test_models_learn_from_the_known_third_alone(rows, monkeypatch):
    """Rejects a model that learnt from the rows of the check: labels there then change the choice."""
    # Also rejects one that is tested on what it learnt, or on other texts than it says.
    monkeypatch.setattr(simulate, "_ROUNDS", 4)
    frame, label = rows.frame, F.col("row.label")
    other = F.when(F.col("third") == CHECKED_ON, F.concat(F.lit("0"), label)).otherwise(label)
    relabelled = frame.withColumn(ROW, F.col(ROW).withField("label", other))

    def learnt(frame, mechanism, *, original=False):
        names = ("accuracy", "accuracy_on_original")
        return classify(replace(rows, frame=frame), "label", names, mechanism, original=original)

    floor, other = learnt(frame, None), learnt(relabelled, None)
    bare, ceiling = learnt(frame, Laplace(epsilon=1e6)), learnt(frame, None, original=True)
    for name, sums in floor[CHOSEN_ON].items():
        np.testing.assert_array_equal(other[CHOSEN_ON][name].parts, sums.parts)
    checked = [own[CHECKED_ON]["accuracy"].ratio[0] for own in (floor, other)]
    assert checked[0] > checked[1] == 0.0

    def shares(thirds):
        chosen, checked = thirds.values()
        return [
            float((chosen[n] + checked[n]).ratio[0]) for n in ("accuracy", "accuracy_on_original")
        ]

    best = shares(ceiling)[0]
    assert shares(bare) == shares(ceiling) == [best, best]
    assert 0.6 < best < 1.0  # of other rows than those that were learnt
    assert shares(floor)[0] < best and shares(floor)[0] != shares(floor)[1]
