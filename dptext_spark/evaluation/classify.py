"""What models learn of classes from released texts: labels, a use, or authors, a risk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import HashingTF, StringIndexer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.measures import RANDOM_WORDS, Sums
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import ATTACKED, KNOWN, Part, SampledRows
from dptext_spark.mechanisms import Mechanism

_TEXT_SCHEMA: Final = "third int, name string, class string, original array<string>, released array<string>"

# Places that words are hashed to; rounds and penalty of the logistic regression.
_FEATURES: Final = 1 << 14
_ROUNDS: Final = 50
_PENALTY: Final = 0.01


def classify(
    rows: SampledRows,
    column: str,
    names: Sequence[str],
    mechanism: Mechanism | None,
    *,
    original: bool = False,
) -> dict[int, Sums]:
    """Train a model on the known third, and count what it gets right in each of the attacked ones.

    Multinomial logistic regression on hashed counts of words predicts the classes of a ``column``; rows
    without one are left out. ``names`` are those of the share right on released texts, and on the originals
    where that is asked. ``original`` learns from the original texts too: the ceiling.
    """
    texts = rows.work(partial(_texts, column=column, mechanism=mechanism or RANDOM_WORDS), _TEXT_SCHEMA)
    texts = texts.where(F.col("class").isNotNull()).persist(StorageLevel.MEMORY_ONLY)
    ordered = texts.coalesce(1).sortWithinPartitions("name")
    try:
        texts.count()  # released by all tasks of the frame, before one task orders what they keep
        return _judged(ordered.persist(StorageLevel.MEMORY_ONLY), names, original=original)
    finally:
        ordered.unpersist()
        texts.unpersist()


def _judged(texts: DataFrame, names: Sequence[str], *, original: bool) -> dict[int, Sums]:
    taught = "original" if original else "released"
    shown = dict(zip(names, (taught, "original"), strict=False))
    known, *attacked = (texts.where(F.col("third") == third) for third in range(3))
    if known.isEmpty():  # nothing was learnt, and so nothing is right
        return {
            third: dict.fromkeys(shown, ClusterSums.of_rows(0, own.count()))
            for third, own in zip(ATTACKED, attacked, strict=True)
        }
    # Only the known third decides which classes there are, and in which order.
    indexer = StringIndexer(inputCol="class", outputCol="label", handleInvalid="keep").fit(known)
    counted = indexer.transform(texts)
    for name in ("original", "released"):
        hashing = HashingTF(inputCol=name, outputCol=f"{name}_counts", numFeatures=_FEATURES)
        counted = hashing.transform(counted)
    model = LogisticRegression(
        featuresCol=f"{taught}_counts", labelCol="label", maxIter=_ROUNDS, regParam=_PENALTY
    ).fit(counted.where(F.col("third") == KNOWN))
    is_right = (F.col("prediction") == F.col("label")) & (F.col("label") < len(indexer.labels))
    judged: dict[int, Sums] = {}
    for third in ATTACKED:
        judged[third] = {}
        for name, read in shown.items():
            model.setFeaturesCol(f"{read}_counts")
            tested = model.transform(counted.where(F.col("third") == third))
            row = tested.agg(F.sum(is_right.cast("long")), F.count(F.lit(1))).collect()[0]  # two numbers
            judged[third][name] = ClusterSums.of_rows(int(row[0] or 0), int(row[1]))
    return judged


def _texts(simulation: Simulation, part: Part, column: str, mechanism: Mechanism) -> pa.Table:
    """Texts before and after as lists of numbers of words."""
    rows = simulation.release(simulation.read(part.values, part.slots), part.ids, mechanism)
    columns = {"name": part.ids.cast(pa.string()), "class": part.rows.field(column).cast(pa.string())}
    for name, words in (("original", rows.inputs), ("released", rows.released)):
        offsets, numbers = pa.array(rows.offsets, pa.int32()), pa.array(words).cast(pa.string())
        columns[name] = pa.ListArray.from_arrays(offsets, numbers)
    return pa.table(columns)
