"""What models learn: the rows that they learn from are released by as many tasks as have them."""

from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import functions as F

from dptext_spark.evaluation import classify as module
from dptext_spark.evaluation.classify import FEATURES, _mean_vectors, classify, known_classes
from dptext_spark.evaluation.measures import LABELS
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.evaluation.simulate import CHECKED_ON, CHOSEN_ON, SampledRows, third_of
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
    yield SampledRows(frame=frame, simulation=simulation, ways=columns.field_paths(df.schema))
    frame.unpersist()


def test_rows_are_released_by_all_tasks(spark, rows, monkeypatch):
    """Rejects one task that releases all rows because it is one that puts them in order."""
    context = spark.sparkContext
    context.setJobGroup("classes", "")
    monkeypatch.setattr(module, "_judged", lambda ordered, *_, **__: {0: ordered.count()})
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
    monkeypatch.setattr(module, "_ROUNDS", 4)
    frame, label = rows.frame, F.col("row.label")
    other = F.when(F.col("third") == CHECKED_ON, F.concat(F.lit("0"), label)).otherwise(label)
    relabelled = frame.withColumn(ROW, F.col(ROW).withField("label", other))

    def learnt(frame, mechanism, *, original=False):
        names = ("accuracy", "accuracy_on_original")
        these = replace(rows, frame=frame)
        means = None
        if not original:
            means = np.asarray(these.simulation.embedding.vectors)
        options = {"original": original, "by_class": True, "means": means}
        return classify(these, "label", names, mechanism, **options)

    floor, other = learnt(frame, None), learnt(relabelled, None)
    bare, ceiling = learnt(frame, Laplace(epsilon=1e6)), learnt(frame, None, original=True)
    for name in ("accuracy", "accuracy_on_original"):
        np.testing.assert_array_equal(other[CHOSEN_ON][name].parts, floor[CHOSEN_ON][name].parts)
    np.testing.assert_array_equal(other[CHOSEN_ON][LABELS].scores, floor[CHOSEN_ON][LABELS].scores)
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

    # By class, of the same rows: rejects a floor that learnt from the originals, and rows without a label.
    for thirds in (floor, other, bare, ceiling):
        for third, sums in thirds.items():
            counts = sums[LABELS]
            assert set(counts.classes) == known_classes(rows, "label") == {"0", "1"}
            right = np.diagonal(counts.confusion)[:-1].sum()
            given = counts.confusion.sum()
            assert (right, given) == (sums["accuracy"].sums[1][0], sums["accuracy"].size[0])
            assert (counts.scores.sum(axis=(1, 2)) == given).all()
            own = [counts.rows_of(name) for name in counts.classes]
            assert counts.scores[:, 1].sum(axis=1).tolist() == own
            assert sum(own) == (given if third == CHOSEN_ON or thirds is not other else 0)
    # A word tells the label: vectors of rows have it, those of random words do not.
    features = []
    for thirds in (floor, bare, ceiling):
        both = thirds[CHOSEN_ON][FEATURES] + thirds[CHECKED_ON][FEATURES]
        features.append(float(both.ratio[0]))
    assert features[0] < features[1] == features[2]
    areas = [
        (thirds[CHOSEN_ON][LABELS] + thirds[CHECKED_ON][LABELS]).mean_auc(0.95)[0]
        for thirds in (floor, ceiling)
    ]
    assert areas[0] < 0.7 < 0.8 < areas[1]


def test_mean_vectors_of_rows_by_hand():
    """Rejects outputs where words went out as they are, and unknown words that count."""
    rows = SimulatedRows(
        offsets=np.array([0, 3, 3, 5]),
        inputs=np.array([0, 1, -1, 2, -1]),
        outputs=np.array([[1, 0, -1, 0, -1]]),
        perturbed=np.array([True, False, False, True, False]),
    )
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]], dtype=np.float32)
    means = np.array([[0.5, 0.5], [3.0, 1.0]], dtype=np.float32)
    released = _mean_vectors(rows, vectors, means)
    assert released.tolist() == [[1.5, 1.0], [0.0, 0.0], [0.5, 0.5]]
    original = _mean_vectors(rows, vectors, None)
    assert original.tolist() == [[0.5, 0.5], [0.0, 0.0], [5.0, 5.0]]
