"""Sampled rows of a table, simulated and attacked on workers: sums come back, and no row."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import StorageLevel, cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import (
    ATTACKERS,
    Attacker,
    Knowledge,
    Known,
    TopicWeights,
)
from dptext_spark.evaluation.language import Language, PairCounts
from dptext_spark.evaluation.linkage import (
    bucket_of,
    linkage_of_equals,
    nothing_linked,
    rows_of_lengths,
)
from dptext_spark.evaluation.measures import RANDOM_WORDS, Sums, from_table, measured, to_table
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.batch import ID, ROW, Batch, FieldPaths
from dptext_spark.tables.columns import shared
from dptext_spark.text.columns import slices
from dptext_spark.word_reader import rows_with_words

KNOWN, CHOSEN_ON, CHECKED_ON = range(3)
"""Thirds of the sample: models and attackers know the first, a setting is chosen on the second and
checked on the last, which neither the models nor the choice saw."""

ATTACKED: Final = (CHOSEN_ON, CHECKED_ON)
"""Thirds that are attacked and judged."""

# The last of the columns that workers see, after texts, kept columns, ids, and slots if any.
_THIRD: Final = "third"

# It pickles classes that workers cannot import.
_PICKLE: Final[Any] = cloudpickle

_SCHEMA: Final = "third int, kind string, a bigint, b bigint, total double"
# Sums, and released rows whose words are set: ``a`` is a row's number of words, ``b`` its bucket.
_RELEASED_SCHEMA: Final = (
    f"{_SCHEMA}, inputs array<bigint>, outputs array<bigint>, perturbed array<boolean>"
)
_RELEASED: Final = "released"
_NUMBER: Final = "number"

LEARNT_ROWS: Final = 20_000
"""Known rows, at most, that longer contexts and topics are learned from; words come of all."""


def third_of(row_id: Column) -> Column:
    """Assign a row to one of the thirds, by its id alone: the same in every run."""
    return F.pmod(F.xxhash64(F.lit(_THIRD), row_id), F.lit(3)).cast("int")


def sampled(selected: DataFrame, row_id: Column, *, rows: int, sample: int | None) -> DataFrame:
    """Return the ``sample`` of the ``rows`` whose ids have the smallest numbers, with thirds."""
    number = F.xxhash64(F.lit("sample"), row_id)
    with_thirds = selected.withColumn(_THIRD, third_of(row_id))
    if sample is None or sample >= rows:
        return with_thirds
    ordered = with_thirds.select(number.alias("number")).orderBy("number")
    last = int(ordered.offset(sample - 1).limit(1).collect()[0][0])  # a number, no data
    return with_thirds.where(number <= F.lit(last))


@dataclass(frozen=True, kw_only=True)
class SampledRows:
    """The rows that are evaluated, or those of a public corpus, as workers are to read them."""

    frame: DataFrame  # texts and kept columns, ids, slots if any, and the third
    simulation: Simulation
    ways: FieldPaths

    def work(self, function: Any, schema: str = _SCHEMA) -> DataFrame:
        """Compute a table of each part on workers, by a function of simulation and part."""
        return self.frame.mapInArrow(partial(_work, self.simulation, self.ways, function), schema)


def _sums(numbers: DataFrame) -> dict[int, pa.Table]:
    """Add up by third what has the same key: exact in any order, see :class:`ClusterSums`."""
    sums = numbers.groupBy("third", "kind", "a", "b").agg(F.sum("total").alias("total"))
    table = to_arrow(sums)
    return {third: table.filter(pc.equal(table["third"], third)) for third in range(3)}


class Counted(NamedTuple):
    """What was counted of some rows."""

    rows: int
    perturbed: int  # words that are perturbed
    pairs: PairCounts  # of all words
    row_counts: Ints  # (V,), how many rows have each word
    lengths: dict[int, int]  # rows by how many words they have, 1 or more


def count_pairs(rows: SampledRows) -> list[Counted]:
    """Count rows, their words and pairs of words in each of the thirds."""
    vocabulary = len(rows.simulation.embedding.words)
    thirds = []
    for table in _sums(rows.work(_count)).values():
        _, _, rows_of_part = _counts(table, "rows")
        _, _, perturbed = _counts(table, "perturbed")
        first, second, count = _counts(table, "pairs")
        words, _, rows_of_word = _counts(table, "row_counts")
        lengths, _, rows_of_length = _counts(table, "lengths")
        row_counts = np.zeros(vocabulary, dtype=np.int64)
        row_counts[words] = rows_of_word
        counted = Counted(
            rows=int(rows_of_part.sum()),
            perturbed=int(perturbed.sum()),
            pairs=PairCounts.of(first, second, count, vocabulary=vocabulary),
            row_counts=row_counts,
            lengths=dict(zip(lengths.tolist(), rows_of_length.tolist(), strict=True)),
        )
        thirds.append(counted)
    return thirds


def _counts(table: pa.Table, kind: str) -> tuple[Ints, Ints, Ints]:
    """Return the keys ``a`` and ``b`` of one kind, and their totals."""
    of_kind = table.filter(pc.equal(table["kind"], kind))
    total = of_kind["total"].to_numpy().astype(np.int64)
    return of_kind["a"].to_numpy(), of_kind["b"].to_numpy(), total


def simulate(
    rows: SampledRows,
    mechanism: Mechanism | None,
    known: Mapping[int, Knowledge],
    versions: int,
    alike: Mapping[int, Mapping[int, int]] | None = None,
) -> dict[int, Sums]:
    """Simulate a setting, None for the floors, and attack it by what attackers know of each third.

    ``alike`` says how many rows of each third have each number of words. With it rows are linked to
    their originals: the words of rows of one length are then shuffled to one task, which Spark must
    encrypt.
    """
    simulating = partial(
        _simulate, mechanism=mechanism, known=known, versions=versions, alike=alike
    )
    released = rows.work(simulating, _SCHEMA if alike is None else _RELEASED_SCHEMA)
    is_released = F.col("kind") == _RELEASED
    if alike is None:
        tables = _sums(released)
    else:
        channel = next(iter(known.values())).channel  # of the mechanism, whatever the third
        released = released.persist(StorageLevel.MEMORY_ONLY)
        key = ("third", "a", "b")
        tasks = 2 * released.sparkSession.sparkContext.defaultParallelism
        grouped = released.where(is_released).repartition(tasks, *key).sortWithinPartitions(*key)
        links = grouped.mapInArrow(partial(_link, channel, alike), _SCHEMA)
        sums = released.where(~is_released).select("third", "kind", "a", "b", "total")
        try:
            tables = _sums(sums.unionByName(links))
        finally:
            released.unpersist()
    words = len(rows.simulation.embedding.words)
    with_rows = [third for third in known if len(tables[third])]
    return {third: from_table(tables[third], vocabulary=words) for third in with_rows}


def languages_of(
    rows: SampledRows, counts: Mapping[int, PairCounts], *, of_attacked: bool
) -> dict[int, tuple[Language, Language]]:
    """Learn the language of the known rows, and of those without shadow rows, by attacked third."""
    learning = partial(_languages, rows.simulation, rows.ways, counts, of_attacked=of_attacked)
    learnt: dict[int, tuple[Language, Language]] = _learnt(rows, learning)
    return learnt


def knowledge_of(
    rows: SampledRows,
    languages: Mapping[int, tuple[Language, Language]],
    channel: Channel,
    mechanism: Mechanism | None,
    *,
    versions: int,
    candidates: int,
    row_counts: Ints | None = None,
    topics: TopicWeights | None = None,
) -> dict[int, Knowledge]:
    """Train attackers on shadow rows, by attacked third, on one worker.

    ``row_counts`` (V,) says how many of the evaluated rows have each word.
    """
    for attacker in ATTACKERS.values():
        _send(attacker)
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
    knowledge = {}
    for third, learnt in attackers.items():
        language, _ = languages[third]
        knowledge[third] = Knowledge(
            channel=channel,
            language=language,
            candidates=candidates,
            attackers=learnt,
            row_counts=row_counts,
            topics=topics,
        )
    return knowledge


def _send(attacker: type[Attacker]) -> None:
    """Send a user's own class to workers, where its module need not be installed."""
    name = attacker.__module__
    if name.partition(".")[0] != __name__.partition(".")[0]:
        _PICKLE.register_pickle_by_value(sys.modules[name])


def _learnt(rows: SampledRows, function: Any) -> Any:
    """Return what one worker learns from known rows: no text comes back, and none is shuffled."""
    known_rows = rows.frame.where(F.col(_THIRD) == KNOWN)
    number = F.xxhash64(F.lit("shadow"), F.col(ROW), F.col(ID))
    numbers = known_rows.select(number.alias(_NUMBER)).orderBy(_NUMBER)
    last = numbers.offset(LEARNT_ROWS - 1).limit(1).collect()  # a number, no data
    if last:
        known_rows = known_rows.where(number <= F.lit(last[0][0]))
    task = known_rows.coalesce(1).mapInArrow(function, "learnt binary")
    answers = [row["learnt"] for row in task.collect()]
    if not answers:  # of no rows Spark runs no task
        answers = [batch.column(0)[0].as_py() for batch in function(())]
    return pickle.loads(answers[0])


# What follows runs in Python workers.


class Part(NamedTuple):
    """Some rows of one third: texts, ids, slots, and whole rows."""

    third: int
    values: pa.Array
    ids: pa.Array
    slots: pa.Array | None
    rows: pa.StructArray


def _work(
    simulation: Simulation, ways: FieldPaths, function: Any, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield what a function makes of each part, the third before it."""
    simulation = shared(simulation)
    for arrow in batches:
        for part in parts_of(arrow, ways):
            table = function(simulation, part)
            if table is not None:
                yield from _of_third(part.third, table)


def parts_of(arrow: pa.RecordBatch, ways: FieldPaths) -> Iterator[Part]:
    """Yield the rows of a batch by third, few enough to be read at once."""
    batch = Batch.from_arrow(arrow, ways)
    ((_, texts),) = batch.fields()
    thirds = arrow.column(_THIRD).to_numpy(zero_copy_only=False)
    for third in range(3):
        places = pa.array(np.flatnonzero(thirds == third))
        values = texts.values.take(places)
        ids = batch.ids.take(places)
        rows = batch.row.take(places)
        slots = None
        if texts.slots is not None:
            slots = texts.slots.take(places)
        for cut in slices(values):
            slots_of_part = None if slots is None else slots[cut]
            yield Part(third, values[cut], ids[cut], slots_of_part, rows[cut])


def _of_third(third: int, table: pa.Table) -> list[pa.RecordBatch]:
    """Return a table as batches, the third before its columns."""
    numbers = pa.array(np.full(len(table), third, dtype=np.int32))
    of_third = table.add_column(0, _THIRD, numbers).combine_chunks()
    batches: list[pa.RecordBatch] = of_third.to_batches()
    return batches


def _count(simulation: Simulation, part: Part) -> pa.Table:
    """Count rows, words, pairs and lengths of a part."""
    rows = simulation.read(part.values, part.slots)
    pairs = simulation.pairs(rows)
    row_counts = rows_with_words(rows.inputs, rows.rows, vocabulary=len(simulation.embedding.words))
    words = np.flatnonzero(row_counts)
    lengths = rows_of_lengths(rows)
    perturbed = np.count_nonzero(rows.perturbed)
    tables = [
        _counted("rows", [0], [0], [len(part.values)]),
        _counted("perturbed", [0], [0], [perturbed]),
        _counted("pairs", pairs.first, pairs.second, pairs.count),
        _counted("row_counts", words, np.zeros_like(words), row_counts[words]),
        _counted("lengths", [*lengths], [0] * len(lengths), [*lengths.values()]),
    ]
    return pa.concat_tables(tables)


def _counted(kind: str, first: Any, second: Any, total: Any) -> pa.Table:
    """Write counts of a kind as numbers under keys; see :func:`~.measures.to_table`."""
    columns = {
        "kind": pa.repeat(kind, len(total)),
        "a": pa.array(first, pa.int64()),
        "b": pa.array(second, pa.int64()),
        "total": pa.array(total, pa.int64()).cast(pa.float64()),
    }
    return pa.table(columns)


def _simulate(
    simulation: Simulation,
    part: Part,
    mechanism: Mechanism | None,
    known: Mapping[int, Knowledge],
    versions: int,
    alike: Mapping[int, Mapping[int, int]] | None,
) -> pa.Table | None:
    """Release rows of an attacked third, attack and measure them; see :func:`simulate`."""
    if part.third not in known:
        return None
    rows = simulation.release(
        simulation.read(part.values, part.slots),
        part.ids,
        mechanism or RANDOM_WORDS,
        versions=1 if mechanism is None else versions,
    )
    sums = measured(rows, simulation.embedding, known[part.third])
    if alike is None:
        return to_table(sums)
    # Zeros, so that a third without a row to link has sums, too.
    numbers = to_table(sums | nothing_linked())
    released = _to_link(rows, part.ids, alike[part.third])
    return pa.concat_tables([numbers, released], promote_options="default")


def _to_link(rows: SimulatedRows, ids: pa.Array, alike: Mapping[int, int]) -> pa.Table:
    """Write released rows that have words, as ``_RELEASED_SCHEMA`` has them."""
    lengths = np.diff(rows.offsets)
    offsets = pa.array(rows.offsets, pa.int32())
    lists = {"inputs": rows.inputs, "outputs": rows.outputs[0], "perturbed": rows.perturbed}
    columns = {
        "kind": pa.repeat(_RELEASED, len(lengths)),
        "a": lengths,
        "b": bucket_of(ids, lengths, alike),
        "total": np.zeros(len(lengths)),
    }
    for name, words in lists.items():
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array(words))
    return pa.table(columns).filter(pa.array(lengths > 0))


def _link(
    channel: Channel, alike: Mapping[int, Mapping[int, int]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Link rows, sorted by third, length and bucket; see :func:`_to_link`."""
    for third, length, table in _groups(batches):
        rows = SimulatedRows(
            offsets=np.arange(len(table) + 1) * length,
            inputs=_flat(table["inputs"]),
            outputs=_flat(table["outputs"])[None, :],
            perturbed=_flat(table["perturbed"]),
        )
        sums = to_table(linkage_of_equals(rows, channel, alike[third][length]))
        yield from _of_third(third, sums)


def _flat(lists: pa.ChunkedArray) -> NDArray[Any]:
    """Return the values of all lists, one after the other."""
    return np.asarray(lists.combine_chunks().flatten().to_numpy(zero_copy_only=False))


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield third, ``a`` and the neighbouring rows that have one third, ``a`` and ``b``."""
    key: list[int] = []
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        keys = np.stack([batch.column(name).to_numpy() for name in (_THIRD, "a", "b")])
        borders = np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1
        for start, stop in pairwise([0, *borders.tolist(), len(batch)]):
            if start == stop:
                continue
            next_key = keys[:, start].tolist()
            if parts and next_key != key:
                yield key[0], key[1], pa.Table.from_batches(parts)
                parts = []
            key = next_key
            parts.append(batch.slice(start, stop - start))
    if parts:
        yield key[0], key[1], pa.Table.from_batches(parts)


def _known_rows(
    simulation: Simulation, ways: FieldPaths, batches: Iterable[pa.RecordBatch]
) -> SimulatedRows:
    """Read all rows of a task, all words of which are perturbed, whatever the table's policy is."""
    public = simulation.public
    parts = [public.read(pa.array([], pa.string()))]
    for arrow in batches:
        ((_, texts),) = Batch.from_arrow(arrow, ways).fields()
        parts.extend(public.read(texts.values[cut]) for cut in slices(texts.values))
    return SimulatedRows.joined(parts)


def _languages(
    simulation: Simulation,
    ways: FieldPaths,
    counts: Mapping[int, PairCounts],
    batches: Iterable[pa.RecordBatch],
    *,
    of_attacked: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the languages of each third, from all rows of a task; see :func:`languages_of`."""
    rows = _known_rows(shared(simulation), ways, batches)
    learnt = {}
    for third, of_third in counts.items():
        learnt[third] = rows.languages(of_third, of_attacked=of_attacked)
    yield pickled(learnt)


def _knowledge(
    simulation: Simulation,
    ways: FieldPaths,
    languages: Mapping[int, tuple[Language, Language]],
    channel: Channel,
    batches: Iterable[pa.RecordBatch],
    *,
    mechanism: Mechanism | None,
    attackers: Mapping[str, type[Attacker]],
    versions: int,
    candidates: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the attackers of each third, trained on a task's rows; see :func:`knowledge_of`."""
    simulation = shared(simulation)
    rows = _known_rows(simulation, ways, batches)
    shadow = simulation.shadow(rows, mechanism or RANDOM_WORDS, versions=versions)
    learnt = {}
    for third, (language, without_shadow) in languages.items():
        material = Known(language=language, language_without_shadow=without_shadow, shadow=shadow)
        knowledge = Knowledge.learn(material, channel, candidates=candidates, attackers=attackers)
        learnt[third] = knowledge.attackers
    yield pickled(learnt)


def pickled(learnt: object) -> pa.RecordBatch:
    """Return what was learnt as a batch of one row."""
    return pa.RecordBatch.from_pydict({"learnt": [_PICKLE.dumps(learnt)]})
