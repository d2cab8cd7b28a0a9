"""What models learn: the rows that they learn from are released by as many tasks as have them."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation import simulate
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import CHECKED_ON, CHOSEN_ON, Classes, classify, third_of
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.batch import ID, ROW
from dptext_spark.tables.columns import TableColumns
from dptext_spark.text.policies import TextPolicy
from tests.helpers.made_texts import sentences

pytestmark = pytest.mark.spark

TASKS = 7


def test_rows_are_released_by_all_tasks(
    spark: SparkSession, small: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects one task that releases all rows because it is one that puts them in order."""
    rows = [(f"r{i}", text, str(i % 2)) for i, text in enumerate(sentences(30, 1))]
    df = spark.createDataFrame(rows, "id string, text string, label string")
    columns = TableColumns(text=("text",), keep=("label",), id="id")
    bundle = BundleFiles.send(spark, small)
    simulation = Simulation(bundle=bundle, policy=TextPolicy(), search=ExactSearch.over(small))
    ways = columns.ways(df.schema)
    frame = columns.select(df).withColumn("third", third_of(F.col(ID)))
    frame = frame.repartition(TASKS).persist()
    context = spark.sparkContext
    assert frame.count() == len(rows)
    context.setJobGroup("classes", "")
    monkeypatch.setattr(simulate, "_judged", lambda ordered, *_, **__: {0: ordered.count()})
    classes = Classes(column="label", learnt=("accuracy", None))
    try:
        found = classify(frame, simulation, ways, classes, Laplace(epsilon=5.0), original=False)
        assert found == {0: 30}
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        frame.unpersist()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("classes")]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    done = [stage.numCompletedTasks for stage in stages if stage]
    assert max(done) == TASKS


def test_models_learn_from_the_known_third_alone(
    spark: SparkSession, small: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a model that learnt from the rows of the check: labels there then change the choice.

    Also rejects one that is tested on what it learnt, or on other texts than it says. A word tells the
    label, of which one is null.
    """
    monkeypatch.setattr(simulate, "_ROUNDS", 4)
    texts = sentences(90, 1)
    labels = [None if i == 7 else str(int(int(text.split()[0][1:]) < 5)) for i, text in enumerate(texts)]
    rows = [(f"r{i}", text, label) for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
    df = spark.createDataFrame(rows, "id string, text string, label string")
    columns = TableColumns(text=("text",), keep=("label",), id="id")
    bundle = BundleFiles.send(spark, small)
    simulation = Simulation(bundle=bundle, policy=TextPolicy(), search=ExactSearch.over(small))
    frame = columns.select(df).withColumn("third", third_of(F.col(ID))).persist()
    of_check, label = F.col("third") == CHECKED_ON, F.col("row.label")
    others = {
        "as they are": label,
        "of their own": F.when(of_check, F.concat(F.lit("0"), label)).otherwise(label),
    }
    classes = Classes(column="label", learnt=("accuracy", "accuracy_on_original"))
    ways = columns.ways(df.schema)

    def learnt(
        frame: DataFrame, epsilon: float | None, *, original: bool = False
    ) -> dict[int, dict[str, ClusterSums]]:
        mechanism = None if epsilon is None else Laplace(epsilon=epsilon)
        return classify(frame, simulation, ways, classes, mechanism, original=original)

    found = {
        kind: learnt(frame.withColumn(ROW, F.col(ROW).withField("label", other)), 4.0)
        for kind, other in others.items()
    }
    bare = learnt(frame, 1e6)
    ceiling = learnt(frame, None, original=True)
    floor = learnt(frame, None)
    frame.unpersist()
    first, other = ([sums.parts for sums in own[CHOSEN_ON].values()] for own in found.values())
    np.testing.assert_array_equal(other, first)
    checked = [own[CHECKED_ON]["accuracy"].ratio[0] for own in found.values()]
    assert checked[0] > checked[1] == 0.0

    def shares(thirds: dict[int, dict[str, ClusterSums]]) -> list[float]:
        chosen, checked = thirds.values()
        return [float((chosen[n] + checked[n]).ratio[0]) for n in ("accuracy", "accuracy_on_original")]

    best = shares(ceiling)[0]
    assert shares(bare) == shares(ceiling) == [best, best]
    assert 0.6 < best < 1.0  # of other rows than those that were learnt
    assert shares(floor)[0] < best and shares(found["as they are"])[0] < best
    assert shares(found["as they are"])[0] != shares(found["as they are"])[1]
