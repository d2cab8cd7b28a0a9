"""Sampled rows of a table, simulated and attacked on workers: sums come back, no row and no word does."""

from __future__ import annotations

import pickle
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

from dptext_spark.calibration.estimators import Estimator, estimator
from dptext_spark.errors import InputError
from dptext_spark.evaluation.attackers import Knowledge
from dptext_spark.evaluation.emissions import Emissions, likeliest
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import RANDOM_WORDS, Totals
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.lookup import Bundle
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.batch import Batch, Fields
from dptext_spark.tables.columns import shared
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.text.columns import slices

KNOWN, CHOSEN_ON, CHECKED_ON = range(3)
"""Thirds of the sample: models and attackers know the first, a setting is chosen on the second and checked on
the last, which neither the models nor the choice saw."""

ATTACKED: Final = (CHOSEN_ON, CHECKED_ON)
"""Thirds that are attacked and judged."""

_THIRDS: Final = 3
_SAMPLE: Final = "sample"
# The last of the columns that workers see, after texts, kept columns, ids, and slots if any.
_THIRD: Final = "third"

_SCHEMA: Final = "third int, kind string, a bigint, b bigint, total double"
_TEXT_SCHEMA: Final = "third int, name string, class string, original array<string>, released array<string>"

# Places that words are hashed to; rounds and penalty of the logistic regression.
_FEATURES: Final = 1 << 14
_ROUNDS: Final = 50
_PENALTY: Final = 0.01


def named(row_id: Column, purpose: str) -> Column:
    """Draw a number of 64 bits for a row from its id alone: equal ids give equal numbers, in every run."""
    return F.xxhash64(F.lit(purpose), row_id)


def third_of(row_id: Column) -> Column:
    """Assign a row to one of the thirds, by its id alone."""
    return F.pmod(named(row_id, _THIRD), F.lit(_THIRDS)).cast("int")


@dataclass(frozen=True, kw_only=True)
class SampledRows:
    """The rows that are evaluated.

    Attributes:
        frame: Texts and kept columns, ids, slots if any, and the third.
        rows: How many there are in the table that is sampled.
        last: The largest number of a row that is in the sample, None where all are.
    """

    frame: DataFrame
    rows: int
    last: int | None

    @classmethod
    def of(
        cls, selected: DataFrame, row_id: Column, *, rows: int, sample: int | None, partitioning: Partitioning
    ) -> SampledRows:
        """Take the ``sample`` rows whose ids have the smallest numbers; all rows where it is None.

        ``selected`` is as :meth:`TableColumns.select` gives it. No measured number depends on partitions.
        """
        number, last = named(row_id, _SAMPLE), None
        chosen = selected.withColumn(_THIRD, third_of(row_id))
        if sample is not None and sample < rows:
            ordered = chosen.select(number.alias("number")).orderBy("number")
            last = int(ordered.offset(sample - 1).limit(1).collect()[0][0])  # a number, no data
            chosen = chosen.where(number <= F.lit(last))
        return cls(frame=partitioning.spread(chosen, row_id), rows=rows, last=last)

    def others(self, row_id: Sequence[str]) -> str:
        """Write an SQL condition that exactly the rows of the table outside the sample meet.

        Raises:
            InputError: All rows are in the sample.
        """
        if self.last is None:
            raise InputError(
                "Option --hold-out leaves no row for the release: all rows are evaluated",
                allowed=f"a --sample of fewer than the {self.rows} rows",
            )
        column = ".".join("`" + name.replace("`", "``") + "`" for name in row_id)
        return f"xxhash64('{_SAMPLE}', CAST({column} AS STRING)) > {self.last}"

    def kept(self) -> SampledRows:
        """Keep the rows in the executors' memory while they are simulated."""
        self.frame.persist(StorageLevel.MEMORY_ONLY)
        return self


class Counted(NamedTuple):
    """How many rows there are, how many of their words are perturbed, and the pairs of their words."""

    rows: int
    perturbed: int
    pairs: PairCounts


def count_pairs(frame: DataFrame, simulation: Simulation, ways: Fields) -> list[Counted]:
    """Count rows, perturbed words and pairs of words in each of the thirds."""
    table = _summed(frame.mapInArrow(partial(_count_batches, simulation, ways), _SCHEMA))
    vocabulary, thirds = len(simulation.embedding.words), []
    for third in range(_THIRDS):
        own = table.filter(pc.equal(table["third"], third))
        rows, perturbed, pairs = (own.filter(pc.equal(own["kind"], kind)) for kind in Counted._fields)
        first, second, total = (pairs[name].to_numpy() for name in ("a", "b", "total"))
        counts = PairCounts.of(first, second, total.astype(np.int64), vocabulary=vocabulary)
        number, hidden = (int(sum(numbers["total"].to_pylist())) for numbers in (rows, perturbed))
        thirds.append(Counted(number, hidden, counts))
    return thirds


def simulate(
    frame: DataFrame,
    simulation: Simulation,
    ways: Fields,
    mechanism: Mechanism | None,
    known: Mapping[int, Knowledge],
    versions: int,
) -> dict[int, Totals]:
    """Simulate a setting, None for the floors, and attack it; see :meth:`Totals.simulate`.

    Args:
        known: By third what attackers know; other thirds are left out.

    Returns:
        The totals of each third that has rows.
    """
    sent = frame.sparkSession.sparkContext.broadcast(pickle.dumps(known))
    try:
        work = partial(_simulate_batches, simulation, ways, mechanism, sent, versions)
        table = _summed(frame.mapInArrow(work, _SCHEMA))
    finally:
        sent.destroy()
    thirds = {third: table.filter(pc.equal(table["third"], third)) for third in known}
    vocabulary = len(simulation.embedding.words)
    return {third: Totals.from_table(own, vocabulary=vocabulary) for third, own in thirds.items() if len(own)}


def emissions_of(
    spark: SparkSession, simulation: Simulation, mechanism: Mechanism, *, runs: int, words: np.ndarray
) -> Emissions:
    """Estimate or compute emissions of words (k,) on workers, block by block, as :class:`Emissions` does.

    They follow from the public seed: no row has a share in them.
    """
    given = mechanism, simulation.search, runs, simulation.seed
    made = _estimator(simulation.bundle, *given)
    blocks = max(1, -(-len(words) // made.block_words))
    # Encrypted, Spark broadcasts bytes, and fails over large arrays.
    sent = spark.sparkContext.broadcast(pickle.dumps(words))
    try:
        work = partial(_measure_batches, simulation.bundle, given, sent)
        schema = "word int, output int, count double"
        table = to_arrow(spark.range(0, blocks, 1, blocks).mapInArrow(work, schema))
    finally:
        sent.destroy()
    word, output, count = (
        table.sort_by([("word", "ascending"), ("output", "ascending")])[name].to_numpy()
        for name in table.column_names
    )
    count = count if made.name == "exact" else count.astype(np.int32)
    vocabulary = len(simulation.embedding.words)
    return Emissions.of_counts(
        word, output, count, runs=runs, vocabulary=vocabulary, among=made.release_words
    )


@dataclass(frozen=True, kw_only=True)
class Classes:
    """A column of classes that models are to learn.

    Attributes:
        column: The name of the column.
        learnt: How the share is called that a model gets right that learns from released texts: on released
            texts, and on the originals, None where that is not asked.
    """

    column: str
    learnt: tuple[str, str | None]


def classify(
    frame: DataFrame,
    simulation: Simulation,
    ways: Fields,
    classes: Classes,
    mechanism: Mechanism | None,
    *,
    original: bool = False,
) -> dict[int, dict[str, ClusterSums]]:
    """Train a model on the known third, and count what it gets right in each of the attacked ones.

    The words of a text are hashed and counted; multinomial logistic regression predicts the class. Rows
    without a class are left out. They come in the order of their ids: the partitioning does not matter.

    Args:
        mechanism: The setting; None for random words.
        original: Learn from the original texts, and be tested on them: the ceiling.
    """
    work = partial(_text_batches, simulation, ways, classes.column, mechanism or RANDOM_WORDS)
    texts = frame.mapInArrow(work, _TEXT_SCHEMA)
    texts = texts.where(F.col("class").isNotNull()).persist(StorageLevel.MEMORY_ONLY)
    ordered = texts.coalesce(1).sortWithinPartitions("name")
    try:
        texts.count()  # released by all tasks of the frame, before one task orders what they keep
        return _judged(ordered.persist(StorageLevel.MEMORY_ONLY), classes, original=original)
    finally:
        ordered.unpersist()
        texts.unpersist()


def _judged(texts: DataFrame, classes: Classes, *, original: bool) -> dict[int, dict[str, ClusterSums]]:
    taught = "original" if original else "released"
    on_released, on_original = classes.learnt
    shown = {on_released: taught, **({on_original: "original"} if on_original else {})}
    thirds = [texts.where(F.col("third") == third) for third in range(_THIRDS)]
    if thirds[KNOWN].isEmpty():  # nothing was learnt, and so nothing is right
        rows = {third: thirds[third].count() for third in ATTACKED}
        return {third: {name: ClusterSums.of_rows(0, rows[third]) for name in shown} for third in ATTACKED}
    # Only the known third decides which classes there are, and in which order.
    indexer = StringIndexer(inputCol="class", outputCol="label", handleInvalid="keep").fit(thirds[KNOWN])
    counted = indexer.transform(texts)
    for name in ("original", "released"):
        hashing = HashingTF(inputCol=name, outputCol=f"{name}_counts", numFeatures=_FEATURES)
        counted = hashing.transform(counted)
    model = LogisticRegression(
        featuresCol=f"{taught}_counts", labelCol="label", maxIter=_ROUNDS, regParam=_PENALTY
    ).fit(counted.where(F.col("third") == KNOWN))
    is_right = (F.col("prediction") == F.col("label")) & (F.col("label") < len(indexer.labels))
    right = F.sum(is_right.cast("long"))
    judged: dict[int, dict[str, ClusterSums]] = {third: {} for third in ATTACKED}
    for third in ATTACKED:
        for name, read in shown.items():
            model.setFeaturesCol(f"{read}_counts")
            tested = model.transform(counted.where(F.col("third") == third))
            row = tested.agg(right, F.count(F.lit(1))).collect()[0]  # two numbers
            judged[third][name] = ClusterSums.of_rows(int(row[0] or 0), int(row[1]))
    return judged


def _summed(parts: DataFrame) -> pa.Table:
    """Add up what has the same third and key: exact in any order, see :class:`ClusterSums`."""
    return to_arrow(parts.groupBy("third", "kind", "a", "b").agg(F.sum("total").alias("total")))


# What follows runs in Python workers.


class _Part(NamedTuple):
    """Some rows of one third: texts, ids, slots, and whole rows."""

    third: int
    values: pa.Array
    ids: pa.Array
    slots: pa.Array | None
    rows: pa.StructArray

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Give what was made of these rows, the third before it."""
        third = pa.array(np.full(len(table), self.third, dtype=np.int32))
        yield from table.add_column(0, _THIRD, third).combine_chunks().to_batches()


def _parts(ways: Fields, batches: Iterable[pa.RecordBatch]) -> Iterator[_Part]:
    for arrow in batches:
        batch = Batch.from_arrow(arrow, ways)
        ((_, _, texts),) = batch.fields()
        thirds = arrow.column(_THIRD).to_numpy(zero_copy_only=False)
        for third in range(_THIRDS):
            own = pa.array(np.flatnonzero(thirds == third))
            values, ids, rows = texts.values.take(own), batch.ids.take(own), batch.row.take(own)
            slots = None if texts.slots is None else texts.slots.take(own)
            for cut in slices(values):
                yield _Part(third, values[cut], ids[cut], None if slots is None else slots[cut], rows[cut])


def _count_batches(
    simulation: Simulation, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    simulation = shared(simulation)
    for part in _parts(ways, batches):
        rows = simulation.read(part.values, part.slots)
        pairs = simulation.pairs(rows)
        numbers = [len(part.values), np.count_nonzero(rows.perturbed)]
        columns = {
            "kind": ["rows", "perturbed", *["pairs"] * len(pairs.count)],
            "a": np.concatenate([[0, 0], pairs.first]),
            "b": np.concatenate([[0, 0], pairs.second]),
            "total": np.concatenate([numbers, pairs.count]).astype(np.float64),
        }
        yield from part.batches(pa.table(columns))


def _simulate_batches(
    simulation: Simulation,
    ways: Fields,
    mechanism: Mechanism | None,
    sent: Any,
    versions: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    simulation, known = shared(simulation), pickle.loads(sent.value)
    for part in _parts(ways, batches):
        if own := known.get(part.third):
            rows = simulation.read(part.values, part.slots)
            totals = Totals.simulate(simulation, rows, part.ids, mechanism, own, versions=versions)
            yield from part.batches(totals.to_table())


def _text_batches(
    simulation: Simulation,
    ways: Fields,
    column: str,
    mechanism: Mechanism,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Give texts before and after as lists of numbers of words."""
    simulation = shared(simulation)
    for part in _parts(ways, batches):
        rows = simulation.release(simulation.read(part.values, part.slots), part.ids, mechanism)
        columns = {
            "name": part.ids.cast(pa.string()),
            "class": part.rows.field(column).cast(pa.string()),
        }
        for name, words in (("original", rows.inputs), ("released", rows.released)):
            numbers = pa.array(words).cast(pa.string())
            columns[name] = pa.ListArray.from_arrays(pa.array(rows.offsets, pa.int32()), numbers)
        yield from part.batches(pa.table(columns))


@lru_cache(maxsize=1)
def _estimator(bundle: Bundle, mechanism: Mechanism, search: Search, runs: int, seed: int) -> Estimator:
    return estimator([mechanism], bundle.shared(), search=search, runs=runs, seed=seed)


def _measure_batches(
    bundle: Bundle,
    given: tuple[Mechanism, Search, int, int],
    words: Any,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    made = _estimator(bundle, *given)
    known = pickle.loads(words.value)
    for block in (block for batch in batches for block in batch.column(0).to_pylist()):
        start = block * made.block_words
        # Here, not on the driver: without truncation a word has a cell for every word that may come out.
        word, output, count = likeliest(made(known[start : start + made.block_words], block=block))
        yield from pa.table({"word": word, "output": output, "count": count.astype(np.float64)}).to_batches()
