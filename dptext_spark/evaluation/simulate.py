"""Sampled rows of a table, simulated and attacked on workers: sums come back, no row and no word does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import HashingTF, StringIndexer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.calibration.estimators import BLOCK_WORDS, Estimator, estimator
from dptext_spark.evaluation.attackers import Knowledge
from dptext_spark.evaluation.emissions import Emissions, likeliest
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import RANDOM_WORDS, Sums, from_table, measured, to_table
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.batch import Batch, Fields
from dptext_spark.tables.columns import shared
from dptext_spark.text.columns import slices

KNOWN, CHOSEN_ON, CHECKED_ON = range(3)
"""Thirds of the sample: models and attackers know the first, a setting is chosen on the second and checked on
the last, which neither the models nor the choice saw."""

ATTACKED: Final = (CHOSEN_ON, CHECKED_ON)
"""Thirds that are attacked and judged."""

# The last of the columns that workers see, after texts, kept columns, ids, and slots if any.
_THIRD: Final = "third"

_SCHEMA: Final = "third int, kind string, a bigint, b bigint, total double"
_TEXT_SCHEMA: Final = (
    "third int, name string, class string, original array<string>, released array<string>"
)

# Places that words are hashed to; rounds and penalty of the logistic regression.
_FEATURES: Final = 1 << 14
_ROUNDS: Final = 50
_PENALTY: Final = 0.01


def third_of(row_id: Column) -> Column:
    """Assign a row to one of the thirds, by its id alone: the same in every run."""
    return F.pmod(F.xxhash64(F.lit(_THIRD), row_id), F.lit(3)).cast("int")


def sampled(selected: DataFrame, row_id: Column, *, rows: int, sample: int | None) -> DataFrame:
    """Take the ``sample`` of the ``rows`` whose ids have the smallest numbers, each with its third."""
    number, chosen = (
        F.xxhash64(F.lit("sample"), row_id),
        selected.withColumn(_THIRD, third_of(row_id)),
    )
    if sample is None or sample >= rows:
        return chosen
    ordered = chosen.select(number.alias("number")).orderBy("number")
    last = int(ordered.offset(sample - 1).limit(1).collect()[0][0])  # a number, no data
    return chosen.where(number <= F.lit(last))


@dataclass(frozen=True, kw_only=True)
class SampledRows:
    """The rows that are evaluated, or those of a public corpus, as workers are to read them."""

    frame: DataFrame  # texts and kept columns, ids, slots if any, and the third
    simulation: Simulation
    ways: Fields

    def work(self, function: Any, schema: str = _SCHEMA) -> DataFrame:
        """Let workers make a table of each part, by a function of simulation and part."""
        return self.frame.mapInArrow(partial(_work, self.simulation, self.ways, function), schema)

    def sums(self, function: Any) -> dict[int, pa.Table]:
        """Add up by third what has the same key: exact in any order, see :class:`ClusterSums`."""
        parts = self.work(function).groupBy("third", "kind", "a", "b")
        table = to_arrow(parts.agg(F.sum("total").alias("total")))
        return {third: table.filter(pc.equal(table["third"], third)) for third in range(3)}


class Counted(NamedTuple):
    """How many rows there are, how many of their words are perturbed, and the pairs of their words."""

    rows: int
    perturbed: int
    pairs: PairCounts


def count_pairs(rows: SampledRows) -> list[Counted]:
    """Count rows, perturbed words and pairs of words in each of the thirds."""
    vocabulary, thirds = len(rows.simulation.embedding.words), []
    for own in rows.sums(_count).values():
        number, hidden, pairs = (
            own.filter(pc.equal(own["kind"], kind)) for kind in Counted._fields
        )
        first, second, total = (pairs[name].to_numpy() for name in ("a", "b", "total"))
        counts = PairCounts.of(first, second, total.astype(np.int64), vocabulary=vocabulary)
        all_, perturbed = (int(sum(numbers["total"].to_pylist())) for numbers in (number, hidden))
        thirds.append(Counted(all_, perturbed, counts))
    return thirds


def simulate(
    rows: SampledRows, mechanism: Mechanism | None, known: Mapping[int, Knowledge], versions: int
) -> dict[int, Sums]:
    """Simulate a setting, None for the floors, and attack it; ``known``: what attackers know, by third."""
    tables = rows.sums(partial(_simulate, mechanism=mechanism, known=known, versions=versions))
    words = len(rows.simulation.embedding.words)
    return {
        third: from_table(tables[third], vocabulary=words) for third in known if len(tables[third])
    }


def emissions_of(
    spark: SparkSession,
    simulation: Simulation,
    mechanism: Mechanism | None,
    *,
    runs: int,
    words: Ints,
) -> Emissions:
    """Estimate or compute emissions of words (k,) on workers, from the public seed; None for the floors."""
    vocabulary = len(simulation.embedding.words)
    if mechanism is None:
        return Emissions.uniform(vocabulary, simulation.search.release_words)
    made = _estimator(simulation, mechanism, runs)
    blocks = max(1, -(-len(words) // BLOCK_WORDS[made.name]))
    work = partial(_measure, simulation, mechanism, runs, words)
    cells = spark.range(0, blocks, 1, blocks).mapInArrow(
        work, "word bigint, output bigint, count double"
    )
    return Emissions.of_cells(to_arrow(cells), made, vocabulary=vocabulary)


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
    texts = rows.work(
        partial(_texts, column=column, mechanism=mechanism or RANDOM_WORDS), _TEXT_SCHEMA
    )
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
            row = tested.agg(F.sum(is_right.cast("long")), F.count(F.lit(1))).collect()[
                0
            ]  # two numbers
            judged[third][name] = ClusterSums.of_rows(int(row[0] or 0), int(row[1]))
    return judged


# What follows runs in Python workers.


class _Part(NamedTuple):
    """Some rows of one third: texts, ids, slots, and whole rows."""

    third: int
    values: pa.Array
    ids: pa.Array
    slots: pa.Array | None
    rows: pa.StructArray


def _work(
    simulation: Simulation, ways: Fields, function: Any, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Give what a function makes of each part, the third before it."""
    simulation = shared(simulation)
    for arrow in batches:
        batch = Batch.from_arrow(arrow, ways)
        ((_, texts),) = batch.fields()
        thirds = arrow.column(_THIRD).to_numpy(zero_copy_only=False)
        for third in range(3):
            own = pa.array(np.flatnonzero(thirds == third))
            values, ids, rows = texts.values.take(own), batch.ids.take(own), batch.row.take(own)
            slots = None if texts.slots is None else texts.slots.take(own)
            for cut in slices(values):
                marked = None if slots is None else slots[cut]
                part = _Part(third, values[cut], ids[cut], marked, rows[cut])
                if (table := function(simulation, part)) is not None:
                    numbers = pa.array(np.full(len(table), third, dtype=np.int32))
                    yield from table.add_column(0, _THIRD, numbers).combine_chunks().to_batches()


def _count(simulation: Simulation, part: _Part) -> pa.Table:
    rows = simulation.read(part.values, part.slots)
    pairs = simulation.pairs(rows)
    numbers = [len(part.values), np.count_nonzero(rows.perturbed)]
    columns = {
        "kind": ["rows", "perturbed", *["pairs"] * len(pairs.count)],
        "a": np.concatenate([[0, 0], pairs.first]),
        "b": np.concatenate([[0, 0], pairs.second]),
        "total": np.concatenate([numbers, pairs.count]).astype(np.float64),
    }
    return pa.table(columns)


def _simulate(
    simulation: Simulation,
    part: _Part,
    mechanism: Mechanism | None,
    known: Mapping[int, Knowledge],
    versions: int,
) -> pa.Table | None:
    if part.third not in known:
        return None
    rows, own = simulation.read(part.values, part.slots), known[part.third]
    return to_table(measured(simulation, rows, part.ids, mechanism, own, versions=versions))


def _texts(simulation: Simulation, part: _Part, column: str, mechanism: Mechanism) -> pa.Table:
    """Texts before and after as lists of numbers of words."""
    rows = simulation.release(simulation.read(part.values, part.slots), part.ids, mechanism)
    columns = {
        "name": part.ids.cast(pa.string()),
        "class": part.rows.field(column).cast(pa.string()),
    }
    for name, words in (("original", rows.inputs), ("released", rows.released)):
        offsets, numbers = pa.array(rows.offsets, pa.int32()), pa.array(words).cast(pa.string())
        columns[name] = pa.ListArray.from_arrays(offsets, numbers)
    return pa.table(columns)


@lru_cache(maxsize=1)
def _estimator(simulation: Simulation, mechanism: Mechanism, runs: int) -> Estimator:
    search, seed = simulation.search, simulation.seed
    return estimator([mechanism], simulation.embedding, search=search, runs=runs, seed=seed)


def _measure(
    simulation: Simulation,
    mechanism: Mechanism,
    runs: int,
    words: Ints,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    made = _estimator(simulation, mechanism, runs)
    for block in (block for batch in batches for block in batch.column(0).to_pylist()):
        # Here, not on the driver: without truncation a word has a cell for every word that may come out.
        yield from likeliest(made, words, block).to_batches()
