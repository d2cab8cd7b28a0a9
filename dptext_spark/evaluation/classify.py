"""What models learn of classes from released texts: labels, a use, or authors, a risk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import HashingTF, StringIndexer
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.evaluation.classes import SCORES, ClassCounts, score_of
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.measures import LABELS, RANDOM_WORDS, Sums
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.evaluation.simulate import ATTACKED, KNOWN, Part, SampledRows
from dptext_spark.geometry import Floats, Floats32, WordVectors
from dptext_spark.mechanisms import Mechanism
from dptext_spark.spark.versions import to_arrow

_TEXT_SCHEMA: Final = (
    "third int, name string, class string, original array<string>, released array<string>, "
    "vector array<double>"
)
_CLASS_SCHEMA: Final = "third int, class string"
_SCORE_SCHEMA: Final = "third int, class bigint, is_of_class bigint, score bigint, rows bigint"
_SCORE_KEYS: Final = ("third", "class", "is_of_class", "score")
_VECTOR: Final = "mean"
FEATURES: Final = "accuracy_from_features"
"""The share of rows whose class is right, by a model that learns from their mean vectors."""

_SCORED: Final = 1 << 18  # probabilities that are counted at once

# Places that words are hashed to; rounds and penalty of the logistic regression.
_FEATURES: Final = 1 << 14
_ROUNDS: Final = 50
_PENALTY: Final = 0.01


def known_classes(rows: SampledRows, column: str) -> set[str]:
    """Return the classes of a column that the known third has, as text."""
    classes = rows.work(partial(_classes, column=column), _CLASS_SCHEMA)
    of_known = classes.where((F.col("third") == KNOWN) & F.col("class").isNotNull())
    return {row["class"] for row in of_known.select("class").distinct().collect()}


def classify(
    rows: SampledRows,
    column: str,
    names: Sequence[str],
    mechanism: Mechanism | None,
    *,
    original: bool = False,
    by_class: bool = False,
    means: Floats32 | None = None,
) -> dict[int, Sums]:
    """Train a model on the known third, and count what it gets right in each of the attacked ones.

    Multinomial logistic regression on hashed counts of words predicts the classes of a ``column``;
    rows without one are left out. ``names`` are those of the share right on released texts, and on
    the originals where that is asked. ``original`` learns from the original texts too: the ceiling.
    ``by_class`` also counts, on texts as they are learnt from, which class is taken for which, and
    how sure the model is, and learns from the mean vectors of rows: of each output the vector that
    ``means`` (outputs, n) has, or with ``original`` of the words.
    """
    function = partial(
        _texts,
        column=column,
        mechanism=mechanism or RANDOM_WORDS,
        means=means,
    )
    texts = rows.work(function, _TEXT_SCHEMA)
    texts = texts.where(F.col("class").isNotNull()).persist(StorageLevel.MEMORY_ONLY)
    ordered = texts.coalesce(1).sortWithinPartitions("name")
    try:
        texts.count()  # released by all tasks of the frame, before one task orders what they keep
        ordered = ordered.persist(StorageLevel.MEMORY_ONLY)
        return _judged(ordered, names, original=original, by_class=by_class)
    finally:
        ordered.unpersist()
        texts.unpersist()


def _judged(
    texts: DataFrame, names: Sequence[str], *, original: bool, by_class: bool
) -> dict[int, Sums]:
    """Train on the known third of texts, and count in the attacked ones; see :func:`classify`."""
    taught = "original" if original else "released"
    texts_of_name = dict(zip(names, (taught, "original"), strict=False))
    known_texts = texts.where(F.col("third") == KNOWN)
    if known_texts.isEmpty():
        return _nothing_learnt(texts, texts_of_name, by_class=by_class)
    # Only the known third decides which classes there are, and in which order.
    indexing = StringIndexer(inputCol="class", outputCol="label", handleInvalid="keep")
    indexer = indexing.fit(known_texts)
    counted = indexer.transform(texts)
    for name in ("original", "released"):
        hashing = HashingTF(inputCol=name, outputCol=f"{name}_counts", numFeatures=_FEATURES)
        counted = hashing.transform(counted)
    counted = counted.withColumn(_VECTOR, array_to_vector(F.col("vector")))
    regression = LogisticRegression(
        featuresCol=f"{taught}_counts", labelCol="label", maxIter=_ROUNDS, regParam=_PENALTY
    )
    model = regression.fit(counted.where(F.col("third") == KNOWN))
    sums: dict[int, Sums] = {third: {} for third in ATTACKED}
    is_right = (F.col("prediction") == F.col("label")) & (F.col("label") < len(indexer.labels))
    hits_and_rows = (F.sum(is_right.cast("long")), F.count(F.lit(1)))
    models = {name: model.copy().setFeaturesCol(f"{t}_counts") for name, t in texts_of_name.items()}
    if by_class:
        regression.setFeaturesCol(_VECTOR)
        models[FEATURES] = regression.fit(counted.where(F.col("third") == KNOWN))
    counted = counted.where(F.col("third") != KNOWN)
    for name, of_name in models.items():
        for third in ATTACKED:
            predicted = of_name.transform(counted.where(F.col("third") == third))
            hits, rows = predicted.agg(*hits_and_rows).collect()[0]  # two numbers
            sums[third][name] = ClusterSums.of_rows(int(hits or 0), int(rows))
    if by_class:
        model.setFeaturesCol(f"{taught}_counts")
        for third, counts in _counts(model.transform(counted), indexer.labels).items():
            sums[third][LABELS] = counts
    return sums


def _nothing_learnt(texts: DataFrame, names: Iterable[str], *, by_class: bool) -> dict[int, Sums]:
    """Return the sums of a model that knows no row: nothing is right."""
    sums: dict[int, Sums] = {}
    for third in ATTACKED:
        rows = texts.where(F.col("third") == third).count()
        sums[third] = dict.fromkeys(names, ClusterSums.of_rows(0, rows))
        if by_class:
            sums[third][FEATURES] = ClusterSums.of_rows(0, rows)
            sums[third][LABELS] = ClassCounts.empty(())
    return sums


def _counts(tested: DataFrame, classes: Sequence[str]) -> dict[int, ClassCounts]:
    """Count tested rows by third, true and predicted class, and by score."""
    counts = {third: ClassCounts.empty(classes) for third in ATTACKED}
    pairs = tested.groupBy("third", "label", "prediction").agg(F.count(F.lit(1)).alias("rows"))
    for row in pairs.collect():
        counts[row["third"]].confusion[int(row["label"]), int(row["prediction"])] = row["rows"]
    probability = vector_to_array(F.col("probability"))
    scored = tested.select(
        "third", F.col("label").cast("int").alias("label"), probability.alias("scores")
    )
    cells = scored.mapInArrow(partial(_scores, classes=len(classes)), _SCORE_SCHEMA)
    table = to_arrow(cells.groupBy(*_SCORE_KEYS).agg(F.sum("rows").alias("rows")))
    for third in ATTACKED:
        of_third = table.filter(pc.equal(table["third"], third))
        places = tuple(of_third[key].to_numpy() for key in _SCORE_KEYS[1:])
        counts[third].scores[places] = of_third["rows"].to_numpy()
    return counts


# What follows runs in Python workers.


def _texts(
    simulation: Simulation,
    part: Part,
    column: str,
    mechanism: Mechanism,
    means: Floats32 | None,
) -> pa.Table:
    """Return texts before and after as lists of numbers of words, and mean vectors of rows."""
    rows = simulation.release(simulation.read(part.values, part.slots), part.ids, mechanism)
    columns = {"name": part.ids.cast(pa.string()), "class": class_of(part, column)}
    offsets = pa.array(rows.offsets, pa.int32())
    for name, words in (("original", rows.inputs), ("released", rows.released)):
        numbers = pa.array(words).cast(pa.string())
        columns[name] = pa.ListArray.from_arrays(offsets, numbers)
    vectors = _mean_vectors(rows, simulation.embedding.vectors, means)
    ends = pa.array(np.arange(len(vectors) + 1) * vectors.shape[1], pa.int32())
    columns["vector"] = pa.ListArray.from_arrays(ends, pa.array(vectors.ravel()))
    return pa.table(columns)


def _mean_vectors(rows: SimulatedRows, vectors: WordVectors, means: Floats32 | None) -> Floats:
    """Return the mean vectors of rows, (rows, n), zeros where a row has no word; see classify."""
    words = rows.inputs
    of_words = vectors[np.maximum(words, 0)].astype(np.float64)
    if means is not None:
        of_words[rows.perturbed] = means[rows.outputs[0, rows.perturbed]]
    of_words[words < 0] = 0.0
    sums = np.zeros((len(rows.offsets) - 1, vectors.shape[1]))
    np.add.at(sums, rows.rows, of_words)
    numbers = np.bincount(rows.rows[words >= 0], minlength=len(sums))
    return np.asarray(sums / np.maximum(numbers, 1)[:, None])


def _classes(_: Simulation, part: Part, column: str) -> pa.Table:
    """Return the distinct classes of a part's rows."""
    return pa.table({"class": class_of(part, column).unique()})


def class_of(part: Part, column: str) -> pa.Array:
    """Return the classes of rows as text."""
    return part.rows.field(column).cast(pa.string())


def _scores(batches: Iterable[pa.RecordBatch], *, classes: int) -> Iterator[pa.RecordBatch]:
    """Count rows by class, whether they are of it, and the cell of their score."""
    numbers = np.arange(classes)
    shape = (3, classes, 2, SCORES)
    step = max(1, _SCORED // max(1, classes))
    for batch in batches:
        for start in range(0, len(batch), step):
            part = batch.slice(start, step)
            thirds = part.column(0).to_numpy()
            labels = part.column(1).to_numpy()
            probability = part.column(2).flatten().to_numpy().reshape(len(labels), -1)[:, :classes]
            is_of_class = (labels[:, None] == numbers).astype(np.int64)
            keys = np.broadcast_arrays(thirds[:, None], numbers, is_of_class, score_of(probability))
            places = np.ravel_multi_index(tuple(key.ravel() for key in keys), shape)
            cells, rows = np.unique(places, return_counts=True)
            columns = dict(zip(_SCORE_KEYS, np.unravel_index(cells, shape), strict=True))
            columns["third"] = columns["third"].astype(np.int32)
            yield from pa.table({**columns, "rows": rows}).to_batches()
