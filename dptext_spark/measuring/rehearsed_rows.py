"""Sampled rows of a table, rehearsed and attacked on workers: sums come back, no row and no word does."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.calibration.estimators import Estimator, estimator
from dptext_spark.calibration.transitions import Transitions
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.emissions import Emissions, likeliest
from dptext_spark.evaluation.recovery import Attacker
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.tally import Tally
from dptext_spark.lookup import Bundle
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search
from dptext_spark.tables.batch import Batch, Fields
from dptext_spark.tables.columns import shared
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.text.token_columns import slices

KNOWN, CHOSEN_ON, CHECKED_ON = range(3)
"""Thirds of the sample by number: models and attackers know the first, a setting is chosen on the second and
checked on the last, which neither the models nor the choice saw."""

ATTACKED: Final = (CHOSEN_ON, CHECKED_ON)
"""Thirds that are attacked and judged."""

SCHEMA: Final = "third int, kind string, a bigint, b bigint, total double"

_THIRDS: Final = 3
_SAMPLE: Final = "sample"
# The last of the columns that workers see, after texts, kept columns, ids, and slots if any.
_THIRD: Final = "third"

# Words of pairs that are counted; what else workers count beside them.
_PAIRS: Final = "pairs"
_ROWS: Final = "rows"
_PERTURBED: Final = "perturbed"


def named(row_id: Column, purpose: str) -> Column:
    """Draw a number of 64 bits for a row from its id alone: equal ids give equal numbers, in every run."""
    return F.xxhash64(F.lit(purpose), row_id)


def third_of(row_id: Column) -> Column:
    """Deal a row out to one of the thirds, by its id alone."""
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
            partitioning: How they are spread over tasks; nothing that is measured depends on their order.
        """
        number, last = named(row_id, _SAMPLE), None
        chosen = selected.withColumn(_THIRD, third_of(row_id))
        if sample is not None and sample < rows:
            ordered = chosen.select(number.alias("number")).orderBy("number")
            last = int(ordered.offset(sample - 1).limit(1).collect()[0][0])  # a number, no data
            chosen = chosen.where(number <= F.lit(last))
        return cls(frame=partitioning.spread(chosen, row_id), rows=rows, last=last)

    def others(self, row_id: Sequence[str]) -> str:
        """Write an SQL condition that the rows of the table meet which are not in the sample, and no others.

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
        """Keep the rows in the executors' memory while they are rehearsed."""
        self.frame.persist(StorageLevel.MEMORY_ONLY)
        return self


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What there is in some rows.

    Attributes:
        rows, perturbed: How many rows, and how many words of them are perturbed.
        pairs: The pairs of their words.
    """

    rows: int
    perturbed: int
    pairs: PairCounts


def count_pairs(frame: DataFrame, rehearsal: Rehearsal, ways: Fields) -> list[Counted]:
    """Count rows, words and pairs of words in each of the thirds."""
    counted = frame.mapInArrow(partial(_count_batches, rehearsal, ways), SCHEMA)
    vocabulary = len(rehearsal.embedding.words)
    table = summed(counted).toArrow()
    found = []
    for third in range(_THIRDS):
        own = table.filter(pa.compute.equal(table["third"], third))
        numbers = {kind: own.filter(pa.compute.equal(own["kind"], kind)) for kind in (_ROWS, _PERTURBED)}
        rows, perturbed = (int(sum(own["total"].to_pylist())) for own in numbers.values())
        pairs = own.filter(pa.compute.equal(own["kind"], _PAIRS))
        first, second, total = (pairs[name].to_numpy() for name in ("a", "b", "total"))
        counts = PairCounts.of(first, second, total.astype(np.int64), vocabulary=vocabulary)
        found.append(Counted(rows=rows, perturbed=perturbed, pairs=counts))
    return found


def rehearsed(
    frame: DataFrame,
    rehearsal: Rehearsal,
    ways: Fields,
    mechanism: Mechanism | None,
    attackers: Any,
    versions: int,
) -> DataFrame:
    """Rehearse a setting, None for the floors, and attack it in the thirds that are attacked.

    Args:
        frame: Sampled rows.
        rehearsal, ways: How they are read and released.
        mechanism: The setting.
        attackers: A broadcast :class:`Attacker` of each of these thirds, by its number.
        versions: In how many versions attackers have each row, beside one.

    Returns:
        The tallies' numbers by third and key; see :meth:`Tally.to_table`.
    """
    work = partial(_rehearse_batches, rehearsal, ways, mechanism, attackers, versions)
    return summed(frame.mapInArrow(work, SCHEMA))


def summed(found: DataFrame) -> DataFrame:
    """Add up what has the same third and key; whole numbers, or exact in any order by :class:`RowSums`."""
    return found.groupBy("third", "kind", "a", "b").agg(F.sum("total").alias("total"))


def tallies(table: pa.Table, vocabulary: int) -> list[Tally]:
    """Read the tally of each attacked third; one without rows has none."""
    thirds = (table.filter(pa.compute.equal(table["third"], third)) for third in ATTACKED)
    return [Tally.of_table(own, vocabulary=vocabulary) for own in thirds if len(own)]


def emissions(
    spark: SparkSession,
    bundle: Bundle,
    embedding: Embedding,
    mechanism: Mechanism,
    search: Search,
    *,
    runs: int,
    seed: int,
    words: np.ndarray,
) -> Emissions:
    """Estimate or compute emissions of words (k,) on workers, block by block, as :class:`Emissions` does.

    They follow from a public seed: no row has a share in them.
    """
    made = estimator([mechanism], embedding, search=search, runs=runs, seed=seed)
    blocks = max(1, -(-len(words) // made.block_words))
    # Encrypted, Spark broadcasts bytes, and fails over large arrays.
    sent = spark.sparkContext.broadcast(pickle.dumps(words))
    try:
        work = partial(_measure_batches, bundle, mechanism, search, runs, seed, sent)
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


@lru_cache(maxsize=1)
def _estimator_of(bundle: Bundle, mechanism: Mechanism, search: Search, runs: int, seed: int) -> Estimator:
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
    """Measure blocks of words; runs in Python workers."""
    made = _estimator_of(bundle, mechanism, search, runs, seed)
    known = pickle.loads(words.value)
    for batch in batches:
        for block in batch.column(0).to_pylist():
            start = block * made.block_words
            # Here, not on the driver: without truncation a word has a cell for every word that may come out.
            found = likeliest(made(known[start : start + made.block_words], block=block))
            columns = {"word": found.word, "output": found.output, "count": found.count.astype(np.float64)}
            yield from pa.table(columns).to_batches()


def parts_of(
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


def _count_batches(
    rehearsal: Rehearsal, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count rows, words and pairs; runs in Python workers."""
    rehearsal = shared(rehearsal)
    vocabulary = len(rehearsal.embedding.words)
    for third, values, _, slots, _ in parts_of(ways, batches):
        rows = rehearsal.unreleased(values, slots)
        pairs = PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=vocabulary)
        yield from _totals(third, _PAIRS, pairs.first, pairs.second, pairs.count)
        none = np.zeros(1, dtype=np.int64)
        yield from _totals(third, _ROWS, none, none, np.array([len(values)]))
        yield from _totals(third, _PERTURBED, none, none, np.array([np.count_nonzero(rows.perturbed)]))


def _totals(
    third: int, kind: str, a: np.ndarray, b: np.ndarray, total: np.ndarray
) -> Iterator[pa.RecordBatch]:
    columns = {"kind": pa.repeat(kind, len(a)), "a": a, "b": b, "total": total.astype(np.float64)}
    yield from _of_third(third, pa.table(columns))


def _rehearse_batches(
    rehearsal: Rehearsal,
    ways: Fields,
    mechanism: Mechanism | None,
    attackers: Any,
    versions: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Rehearse and attack rows; runs in Python workers."""
    rehearsal = shared(rehearsal)
    known: Mapping[int, Attacker] = pickle.loads(attackers.value)
    for third, values, ids, slots, _ in parts_of(ways, batches):
        if third in known:
            rows = rehearsal.unreleased(values, slots)
            tally = Tally.of(rehearsal, rows, ids, mechanism, known[third], versions=versions)
            yield from _of_third(third, tally.to_table())


def _of_third(third: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    thirds = pa.array(np.full(len(table), third, dtype=np.int32))
    yield from table.add_column(0, "third", thirds).combine_chunks().to_batches()
