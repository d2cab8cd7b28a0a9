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
from dptext_spark.calibration.transitions import Transitions
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

        Args:
            selected: As :meth:`TableColumns.select` gives it.
            row_id: Its column of ids.
            rows: How many rows it has.
            sample: How many are wanted.
            partitioning: How they are spread over tasks; no measured number depends on their order.
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

        Args:
            row_id: The path of the column of ids.

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
    table = _summed(frame.mapInArrow(partial(_count_batches, simulation, ways), _SCHEMA)).toArrow()
    thirds = []
    for third in range(_THIRDS):
        own = table.filter(pc.equal(table["third"], third))
        rows, perturbed, pairs = (own.filter(pc.equal(own["kind"], kind)) for kind in Counted._fields)
        first, second, total = (pairs[name].to_numpy() for name in ("a", "b", "total"))
        vocabulary = len(simulation.embedding.words)
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
    """Simulate a setting, None for the floors, and attack it in the thirds whose attackers know something.

    Args:
        frame: Sampled rows.
        simulation, ways: How they are read and released.
        mechanism: The setting.
        known: What attackers of these thirds know, by number.
        versions: In how many versions attackers have each row, besides one.

    Returns:
        The totals of each third that has rows.
    """
    sent = frame.sparkSession.sparkContext.broadcast(pickle.dumps(known))
    try:
        work = partial(_simulate_batches, simulation, ways, mechanism, sent, versions)
        table = _summed(frame.mapInArrow(work, _SCHEMA)).toArrow()
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
    embedding, search, seed = simulation.embedding, simulation.search, simulation.seed
    made = estimator([mechanism], embedding, search=search, runs=runs, seed=seed)
    blocks = max(1, -(-len(words) // made.block_words))
    # Encrypted, Spark broadcasts bytes, and fails over large arrays.
    sent = spark.sparkContext.broadcast(pickle.dumps(words))
    try:
        work = partial(_measure_batches, simulation.bundle, mechanism, search, runs, seed, sent)
        schema = "word int, output int, count double"
        table = spark.range(0, blocks, 1, blocks).mapInArrow(work, schema).toArrow()
    finally:
        sent.destroy()
    table = table.sort_by([("word", "ascending"), ("output", "ascending")])
    word, output, count = (table[name].to_numpy() for name in ("word", "output", "count"))
    count = count if made.name == "exact" else count.astype(np.int32)
    transitions = Transitions(
        epsilon_index=np.zeros(len(word), dtype=np.int16),
        word=word,
        output=output,
        count=count,
        judged=np.zeros_like(count),
        runs=runs,
        release_words=made.release_words,
    )
    return Emissions.of_transitions(
        [transitions], vocabulary=len(embedding.words), outputs=made.release_words
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
        frame: Sampled rows.
        simulation, ways: How they are read and released.
        classes: What is learnt.
        mechanism: The setting; None for random words.
        original: Learn from the original texts, and be tested on them: the ceiling.
    """
    work = partial(_text_batches, simulation, ways, classes.column, mechanism or RANDOM_WORDS)
    texts = frame.mapInArrow(work, _TEXT_SCHEMA).where(F.col("class").isNotNull())
    texts.persist(StorageLevel.MEMORY_ONLY)
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


def _summed(parts: DataFrame) -> DataFrame:
    """Add up what has the same third and key: exact in any order, see :class:`ClusterSums`."""
    return parts.groupBy("third", "kind", "a", "b").agg(F.sum("total").alias("total"))


# What follows runs in Python workers.


def _parts(
    ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, pa.Array, pa.Array, pa.Array | None, pa.StructArray]]:
    """Give the third, texts, ids, slots and whole rows, a slice of one third at a time."""
    for arrow in batches:
        batch = Batch.from_arrow(arrow, ways)
        ((_, _, texts),) = batch.fields()
        thirds = arrow.column(_THIRD).to_numpy(zero_copy_only=False)
        for third in range(_THIRDS):
            own = pa.array(np.flatnonzero(thirds == third))
            values, ids, rows = texts.values.take(own), batch.ids.take(own), batch.row.take(own)
            slots = None if texts.slots is None else texts.slots.take(own)
            for part in slices(values):
                yield third, values[part], ids[part], None if slots is None else slots[part], rows[part]


def _with_third(third: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    thirds = pa.array(np.full(len(table), third, dtype=np.int32))
    yield from table.add_column(0, _THIRD, thirds).combine_chunks().to_batches()


def _count_batches(
    simulation: Simulation, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    simulation = shared(simulation)
    for third, values, _, slots, _ in _parts(ways, batches):
        rows = simulation.read(values, slots)
        pairs = simulation.pairs(rows)
        numbers = pa.table(
            {
                "kind": ["rows", "perturbed", *["pairs"] * len(pairs.count)],
                "a": np.concatenate([[0, 0], pairs.first]),
                "b": np.concatenate([[0, 0], pairs.second]),
                "total": np.concatenate(
                    [[len(values), np.count_nonzero(rows.perturbed)], pairs.count]
                ).astype(np.float64),
            }
        )
        yield from _with_third(third, numbers)


def _simulate_batches(
    simulation: Simulation,
    ways: Fields,
    mechanism: Mechanism | None,
    sent: Any,
    versions: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    simulation = shared(simulation)
    known: Mapping[int, Knowledge] = pickle.loads(sent.value)
    for third, values, ids, slots, _ in _parts(ways, batches):
        if third in known:
            rows = simulation.read(values, slots)
            totals = Totals.simulate(simulation, rows, ids, mechanism, known[third], versions=versions)
            yield from _with_third(third, totals.to_table())


@lru_cache(maxsize=1)
def _estimator(bundle: Bundle, mechanism: Mechanism, search: Search, runs: int, seed: int) -> Estimator:
    return estimator([mechanism], bundle.shared(), search=search, runs=runs, seed=seed)


def _measure_batches(
    bundle: Bundle,
    mechanism: Mechanism,
    search: Search,
    runs: int,
    seed: int,
    words: Any,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    made = _estimator(bundle, mechanism, search, runs, seed)
    known = pickle.loads(words.value)
    for batch in batches:
        for block in batch.column(0).to_pylist():
            start = block * made.block_words
            # Here, not on the driver: without truncation a word has a cell for every word that may come out.
            cells = likeliest(made(known[start : start + made.block_words], block=block))
            columns = {"word": cells.word, "output": cells.output, "count": cells.count.astype(np.float64)}
            yield from pa.table(columns).to_batches()


def _text_batches(
    simulation: Simulation,
    ways: Fields,
    column: str,
    mechanism: Mechanism,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Give texts before and after as lists of numbers of words."""
    simulation = shared(simulation)
    for third, values, ids, slots, whole in _parts(ways, batches):
        rows = simulation.release(simulation.read(values, slots), ids, mechanism)
        offsets = pa.array(rows.offsets, pa.int32())
        table = pa.table(
            {
                "name": ids.cast(pa.string()),
                "class": whole.field(column).cast(pa.string()),
                "original": pa.ListArray.from_arrays(offsets, pa.array(rows.inputs).cast(pa.string())),
                "released": pa.ListArray.from_arrays(offsets, pa.array(rows.released).cast(pa.string())),
            }
        )
        yield from _with_third(third, table)
