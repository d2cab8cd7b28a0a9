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
from dptext_spark.channel.channel import Channel
from dptext_spark.channel.counts import RUNS, blocks_of, channel_of_cells, likeliest
from dptext_spark.channel.posteriors import (
    JUDGED_BLOCKS,
    LIMIT,
    Guesser,
    PosteriorSums,
    Rounds,
)
from dptext_spark.evaluation.attackers import ATTACKERS, Attacker, Known, Knowledge
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import Language, PairCounts
from dptext_spark.evaluation.measures import RANDOM_WORDS, Sums, from_table, measured, to_table
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.batch import ID, ROW, Batch, Fields
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
_SUMS_SCHEMA: Final = "output bigint, word bigint, total double"
_NUMBER: Final = "number"
_TEXT_SCHEMA: Final = "third int, name string, class string, original array<string>, released array<string>"

LEARNT_ROWS: Final = 20_000
"""Known rows, at most, that longer contexts and topics are learned from; words and pairs come of all."""

# Places that words are hashed to; rounds and penalty of the logistic regression.
_FEATURES: Final = 1 << 14
_ROUNDS: Final = 50
_PENALTY: Final = 0.01


def third_of(row_id: Column) -> Column:
    """Assign a row to one of the thirds, by its id alone: the same in every run."""
    return F.pmod(F.xxhash64(F.lit(_THIRD), row_id), F.lit(3)).cast("int")


def sampled(selected: DataFrame, row_id: Column, *, rows: int, sample: int | None) -> DataFrame:
    """Take the ``sample`` of the ``rows`` whose ids have the smallest numbers, each with its third."""
    number, chosen = F.xxhash64(F.lit("sample"), row_id), selected.withColumn(_THIRD, third_of(row_id))
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
        number, hidden, pairs = (own.filter(pc.equal(own["kind"], kind)) for kind in Counted._fields)
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
    return {third: from_table(tables[third], vocabulary=words) for third in known if len(tables[third])}


def channel_of(
    spark: SparkSession,
    simulation: Simulation,
    mechanism: Mechanism | None,
    prior: Floats,
    *,
    limit: float = LIMIT,
) -> Channel:
    """Work out a mechanism's channel on workers, for words by a prior (V,); None for the floors.

    Where the law is computed there is nothing to estimate; else by whole posteriors, where the noise has a
    density, and by counts of draws where nobody wrote it down.
    """
    vocabulary = len(prior)
    outputs = simulation.search.release_words
    if mechanism is None:
        return Channel.uniform(vocabulary, outputs)
    embedding = simulation.embedding
    if Guesser.of(mechanism, embedding, simulation.search, prior, seed=simulation.seed) is not None:
        rounds = SparkRounds(spark=spark, simulation=simulation, mechanism=mechanism, prior=prior)
        return rounds.channel(prior, outputs=outputs, limit=limit)
    words = np.flatnonzero(prior > 0.0)
    estimated = _estimator(simulation, mechanism)
    blocks = max(1, blocks_of(estimated, words))
    work = partial(_measure, simulation, mechanism, words)
    schema = "word bigint, output bigint, count double"
    cells = spark.range(0, blocks, 1, blocks).mapInArrow(work, schema)
    return channel_of_cells(to_arrow(cells), estimated, vocabulary=vocabulary)


@dataclass(frozen=True, kw_only=True, eq=False)
class SparkRounds(Rounds):
    """Points drawn by tasks, and spread by their outputs: the points of one output are summed by one task."""

    spark: SparkSession
    simulation: Simulation
    mechanism: Mechanism
    prior: Floats

    def imagined(self) -> PosteriorSums:
        outputs = self.simulation.search.release_words
        tasks = min(self._tasks, outputs)
        numbers = self.spark.range(0, outputs, 1, tasks)
        return self._sums(numbers.mapInArrow(self._work(_imagined), _SUMS_SCHEMA))

    def drawn(self, blocks: range) -> PosteriorSums:
        tasks = min(self._tasks, len(blocks))
        numbers = self.spark.range(blocks.start, blocks.stop, 1, tasks)
        points = numbers.mapInArrow(self._work(_drawn), "output bigint, number bigint, point binary")
        spread = points.repartition(self._tasks, "output")
        return self._sums(spread.mapInArrow(self._work(_summed), _SUMS_SCHEMA))

    def success(self, *guesses: Ints) -> Floats:
        numbers = self.spark.range(0, JUDGED_BLOCKS, 1, min(self._tasks, JUDGED_BLOCKS))
        schema = "guesser bigint, block bigint, right double"
        judged = to_arrow(numbers.mapInArrow(self._work(_judged_blocks, guesses), schema))
        judged = judged.sort_by([("block", "ascending"), ("guesser", "ascending")])
        totals = judged["right"].to_numpy().reshape(JUDGED_BLOCKS, len(guesses))
        return np.asarray(totals.sum(axis=0))

    @property
    def _tasks(self) -> int:
        return 2 * self.spark.sparkContext.defaultParallelism

    def _work(self, function: Any, *more: Any) -> Any:
        return partial(function, self.simulation, self.mechanism, self.prior, *more)

    def _sums(self, frame: DataFrame) -> PosteriorSums:
        """Read what workers summed; a cell of word -1 has the weight of its output."""
        table = to_arrow(frame).sort_by([("output", "ascending"), ("word", "ascending")])
        outputs = table["output"].to_numpy()
        words = table["word"].to_numpy()
        totals = table["total"].to_numpy()
        is_weight = words < 0
        cells = ~is_weight
        return PosteriorSums(
            vocabulary=len(self.prior),
            outputs=outputs[is_weight],
            weight=totals[is_weight],
            keys=outputs[cells] * len(self.prior) + words[cells],
            total=totals[cells],
        )


def languages_of(
    rows: SampledRows, counts: Mapping[int, PairCounts]
) -> dict[int, tuple[Language, Language]]:
    """Learn the language of the known rows, and of those without shadow rows, by attacked third."""
    learnt: dict[int, tuple[Language, Language]] = _learnt(
        rows, partial(_languages, rows.simulation, rows.ways, counts)
    )
    return learnt


def knowledge_of(
    rows: SampledRows,
    languages: Mapping[int, tuple[Language, Language]],
    channel: Channel,
    mechanism: Mechanism | None,
    *,
    versions: int,
    candidates: int,
) -> dict[int, Knowledge]:
    """Let attackers learn from shadow rows, by attacked third, on one worker."""
    learning = partial(
        _knowledge,
        rows.simulation,
        rows.ways,
        languages,
        channel,
        mechanism=mechanism,
        attackers=dict(ATTACKERS),
        versions=1 if mechanism is None else versions,
        candidates=candidates,
    )
    attackers: dict[int, dict[str, Attacker]] = _learnt(rows, learning)
    return {
        third: Knowledge(
            channel=channel,
            language=languages[third][0],
            candidates=candidates,
            attackers=learnt,
        )
        for third, learnt in attackers.items()
    }


def _learnt(rows: SampledRows, function: Any) -> Any:
    """Return what one worker learns from known rows, in an order of their texts and ids alone: no text."""
    known = rows.frame.where(F.col(_THIRD) == KNOWN)
    number = F.xxhash64(F.lit("shadow"), F.col(ROW), F.col(ID))
    ordered = known.withColumn(_NUMBER, number).orderBy(_NUMBER).limit(LEARNT_ROWS)
    task = ordered.drop(_NUMBER).coalesce(1).mapInArrow(function, "learnt binary")
    answers = [row["learnt"] for row in task.collect()]
    if not answers:  # of no rows Spark runs no task
        answers = [batch.column(0)[0].as_py() for batch in function(())]
    return pickle.loads(answers[0])


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
    columns = {"name": part.ids.cast(pa.string()), "class": part.rows.field(column).cast(pa.string())}
    for name, words in (("original", rows.inputs), ("released", rows.released)):
        offsets, numbers = pa.array(rows.offsets, pa.int32()), pa.array(words).cast(pa.string())
        columns[name] = pa.ListArray.from_arrays(offsets, numbers)
    return pa.table(columns)


@lru_cache(maxsize=1)
def _estimator(simulation: Simulation, mechanism: Mechanism) -> Estimator:
    search, seed = simulation.search, simulation.seed
    return estimator([mechanism], simulation.embedding, search=search, runs=RUNS, seed=seed)


def _measure(
    simulation: Simulation,
    mechanism: Mechanism,
    words: Ints,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    made = _estimator(simulation, mechanism)
    for block in _numbers(batches):
        # Here, not on the driver: without truncation a word has a cell for every word that may come out.
        yield from likeliest(made, words, block).to_batches()


def _numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Read the numbers of a task."""
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def _guesser(simulation: Simulation, mechanism: Mechanism, prior: Floats) -> Guesser:
    embedding, search, seed = simulation.embedding, simulation.search, simulation.seed
    guesser = Guesser.of(mechanism, embedding, search, prior, seed=seed)
    if guesser is None:
        raise TypeError(f"The noise of {mechanism.name} has no density")
    return guesser


def _imagined(
    simulation: Simulation,
    mechanism: Mechanism,
    prior: Floats,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    outputs = np.array(sorted(_numbers(batches)), dtype=np.int64)
    yield from _cells_of(_guesser(simulation, mechanism, prior).imagined(outputs)).to_batches()


def _drawn(
    simulation: Simulation,
    mechanism: Mechanism,
    prior: Floats,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Draw the points of blocks: their outputs, what names them, and where they are."""
    guesser = _guesser(simulation, mechanism, prior)
    for block in _numbers(batches):
        drawn = guesser.draw(block)
        points = np.ascontiguousarray(drawn.points)
        width = points[0].nbytes
        binary = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), len(points), [None, pa.py_buffer(points)]
        )
        numbers = block * len(points) + np.arange(len(points))
        columns = {"output": drawn.outputs, "number": numbers, "point": binary.cast(pa.binary())}
        yield from pa.table(columns).to_batches()


def _summed(
    simulation: Simulation,
    mechanism: Mechanism,
    prior: Floats,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Sum the posteriors of all points of a task, which has all points of its outputs."""
    guesser = _guesser(simulation, mechanism, prior)
    parts = [batch for batch in batches if len(batch)]
    if not parts:
        return
    keys = ("output", "number")
    table = pa.Table.from_batches(parts).sort_by([(key, "ascending") for key in keys])
    outputs = table["output"].to_numpy()
    points = np.frombuffer(b"".join(table["point"].to_pylist()), dtype=guesser.density.dtype)
    sums = guesser.sums(outputs, points.reshape(len(outputs), -1))
    yield from _cells_of(sums).to_batches()


def _cells_of(sums: PosteriorSums) -> pa.Table:
    """Write sums as output, word and total; the weight of an output has the word -1."""
    outputs, words = np.divmod(sums.keys, sums.vocabulary)
    columns = {
        "output": np.concatenate([sums.outputs, outputs]),
        "word": np.concatenate([np.full(len(sums.outputs), -1), words]),
        "total": np.concatenate([sums.weight, sums.total]),
    }
    return pa.table(columns)


def _judged_blocks(
    simulation: Simulation,
    mechanism: Mechanism,
    prior: Floats,
    guesses: tuple[Ints, ...],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    guesser = _guesser(simulation, mechanism, prior)
    for block in _numbers(batches):
        right = guesser.success(block, *guesses)
        numbers = np.arange(len(right))
        columns = {"guesser": numbers, "block": np.full(len(right), block), "right": right}
        yield from pa.table(columns).to_batches()


def _known_rows(
    simulation: Simulation, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> SimulatedRows:
    """Read all rows of a task; whatever is perturbed of the table, all words of theirs are shadow rows'."""
    public = simulation.public
    parts = [public.read(pa.array([], pa.string()))]
    for arrow in batches:
        ((_, texts),) = Batch.from_arrow(arrow, ways).fields()
        parts.extend(public.read(texts.values[cut]) for cut in slices(texts.values))
    return SimulatedRows.joined(parts)


def _languages(
    simulation: Simulation,
    ways: Fields,
    counts: Mapping[int, PairCounts],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    rows = _known_rows(shared(simulation), ways, batches)
    learnt = {third: rows.languages(own) for third, own in counts.items()}
    yield _pickled(learnt)


def _knowledge(
    simulation: Simulation,
    ways: Fields,
    languages: Mapping[int, tuple[Language, Language]],
    channel: Channel,
    batches: Iterable[pa.RecordBatch],
    *,
    mechanism: Mechanism | None,
    attackers: Mapping[str, type[Attacker]],
    versions: int,
    candidates: int,
) -> Iterator[pa.RecordBatch]:
    simulation = shared(simulation)
    rows = _known_rows(simulation, ways, batches)
    shadow = simulation.shadow(rows, mechanism or RANDOM_WORDS, versions=versions)
    learnt = {}
    for third, (language, without_shadow) in languages.items():
        known = Known(language=language, language_without_shadow=without_shadow, shadow=shadow)
        knowledge = Knowledge.learn(known, channel, candidates=candidates, attackers=attackers)
        learnt[third] = knowledge.attackers
    yield _pickled(learnt)


def _pickled(learnt: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"learnt": [pickle.dumps(learnt)]})
