"""Labels and authors that models learn from released texts: what is left of use, and who is found out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import HashingTF, StringIndexer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.row_sums import RowSums
from dptext_spark.evaluation.tally import RANDOM_WORDS, hits
from dptext_spark.measuring.rehearsed_rows import ATTACKED, KNOWN, parts_of
from dptext_spark.mechanisms import Mechanism
from dptext_spark.tables.batch import Fields
from dptext_spark.tables.columns import shared

_SCHEMA: Final = "third int, name string, class string, original array<string>, released array<string>"

# Places that words are hashed to; rounds and penalty of the logistic regression.
_FEATURES: Final = 1 << 14
_ROUNDS: Final = 50
_PENALTY: Final = 0.01

_READ: Final = ("original", "released")


@dataclass(frozen=True, kw_only=True)
class Classes:
    """A column of classes that models are to learn.

    Attributes:
        column: The name of the column.
        learnt: What a model that learns from released texts gets right is called: on released texts, and on
            texts as they were, None where that is not asked.
    """

    column: str
    learnt: tuple[str, str | None]


def classified(
    frame: DataFrame,
    rehearsal: Rehearsal,
    ways: Fields,
    classes: Classes,
    mechanism: Mechanism | None,
    *,
    original: bool,
) -> list[dict[str, RowSums]]:
    """Train a model on the known third: what it gets right in each of the attacked ones.

    The words of a text are hashed and counted, and classes told by multinomial logistic regression. Rows
    without a class are left out. They come in the order of their ids: the partitioning does not matter.

    Args:
        frame: Sampled rows.
        rehearsal, ways: How they are read and released.
        classes: What is learnt.
        mechanism: The setting; None for random words.
        original: Learn from texts as they were, and be tested on them: the ceiling.
    """
    setting = RANDOM_WORDS if mechanism is None else mechanism
    work = partial(_text_batches, rehearsal, ways, classes.column, setting)
    texts = (
        frame.mapInArrow(work, _SCHEMA).where(F.col("class").isNotNull()).persist(StorageLevel.MEMORY_ONLY)
    )
    try:
        texts.count()  # released by all tasks of the frame, before one task orders what they keep
        ordered = texts.coalesce(1).sortWithinPartitions("name").persist(StorageLevel.MEMORY_ONLY)
        try:
            return _judged(ordered, classes, original=original)
        finally:
            ordered.unpersist()
    finally:
        texts.unpersist()


def _judged(texts: DataFrame, classes: Classes, *, original: bool) -> list[dict[str, RowSums]]:
    taught = "original" if original else "released"
    on_released, on_original = classes.learnt
    shown = {on_released: taught, **({on_original: "original"} if on_original else {})}
    known = texts.where(F.col("third") == KNOWN)
    if known.isEmpty():  # nothing was learnt, and so nothing is right
        counts = [texts.where(F.col("third") == third).count() for third in ATTACKED]
        return [{name: hits(0, rows) for name in shown} for rows in counts]
    # What the other thirds have of classes is not looked at: not even their names and how frequent they are.
    indexer = StringIndexer(inputCol="class", outputCol="label", handleInvalid="keep").fit(known)
    counted = indexer.transform(texts)
    for name in _READ:
        hashing = HashingTF(inputCol=name, outputCol=f"{name}_counts", numFeatures=_FEATURES)
        counted = hashing.transform(counted)
    model = LogisticRegression(
        featuresCol=f"{taught}_counts", labelCol="label", maxIter=_ROUNDS, regParam=_PENALTY
    ).fit(counted.where(F.col("third") == KNOWN))
    return [
        {
            name: _hits(model, counted.where(F.col("third") == third), read, len(indexer.labels))
            for name, read in shown.items()
        }
        for third in ATTACKED
    ]


def _hits(model: Any, tested: DataFrame, read: str, classes: int) -> RowSums:
    """Count the rows that a model of so many classes gets right by one way to read them."""
    model.setFeaturesCol(f"{read}_counts")
    right = F.sum(((F.col("prediction") == F.col("label")) & (F.col("label") < classes)).cast("long"))
    row = model.transform(tested).agg(right, F.count(F.lit(1))).collect()[0]  # two numbers
    return hits(int(row[0] or 0), int(row[1]))


def _text_batches(
    rehearsal: Rehearsal,
    ways: Fields,
    column: str,
    mechanism: Mechanism,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Give texts before and after as lists of numbers of words; runs in Python workers."""
    rehearsal = shared(rehearsal)
    for third, values, ids, slots, whole in parts_of(ways, batches):
        rows = rehearsal.released(rehearsal.unreleased(values, slots), ids, mechanism)
        lists = (_lists(rows.offsets, words) for words in (rows.inputs, rows.released))
        columns = [
            pa.array(np.full(len(values), third, dtype=np.int32)),
            ids.cast(pa.string()),
            whole.field(column).cast(pa.string()),
            *lists,
        ]
        names = ["third", "name", "class", "original", "released"]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _lists(offsets: np.ndarray, words: np.ndarray) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(words).cast(pa.string()))
