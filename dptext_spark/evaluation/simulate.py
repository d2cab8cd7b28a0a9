"""Sampled rows of a table, simulated and attacked on workers: sums come back, no row and no word does."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import ATTACKERS, Attacker, Knowledge, Known
from dptext_spark.evaluation.language import Language, PairCounts
from dptext_spark.evaluation.measures import RANDOM_WORDS, Sums, from_table, measured, to_table
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
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

# It pickles classes that workers cannot import.
_PICKLE: Final[Any] = cloudpickle

_SCHEMA: Final = "third int, kind string, a bigint, b bigint, total double"
_NUMBER: Final = "number"

LEARNT_ROWS: Final = 20_000
"""Known rows, at most, that longer contexts and topics are learned from; words and pairs come of all."""


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


def languages_of(rows: SampledRows, counts: Mapping[int, PairCounts]) -> dict[int, tuple[Language, Language]]:
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
    return {
        third: Knowledge(
            channel=channel,
            language=languages[third][0],
            candidates=candidates,
            attackers=learnt,
        )
        for third, learnt in attackers.items()
    }


def _send(attacker: type[Attacker]) -> None:
    """Let a user's own class travel to workers, where its module need not be installed."""
    name = attacker.__module__
    if name.partition(".")[0] != __name__.partition(".")[0]:
        _PICKLE.register_pickle_by_value(sys.modules[name])


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


# What follows runs in Python workers.


class Part(NamedTuple):
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
                part = Part(third, values[cut], ids[cut], marked, rows[cut])
                if (table := function(simulation, part)) is not None:
                    numbers = pa.array(np.full(len(table), third, dtype=np.int32))
                    yield from table.add_column(0, _THIRD, numbers).combine_chunks().to_batches()


def _count(simulation: Simulation, part: Part) -> pa.Table:
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
    part: Part,
    mechanism: Mechanism | None,
    known: Mapping[int, Knowledge],
    versions: int,
) -> pa.Table | None:
    if part.third not in known:
        return None
    rows, own = simulation.read(part.values, part.slots), known[part.third]
    return to_table(measured(simulation, rows, part.ids, mechanism, own, versions=versions))


def _known_rows(simulation: Simulation, ways: Fields, batches: Iterable[pa.RecordBatch]) -> SimulatedRows:
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
    return pa.RecordBatch.from_pydict({"learnt": [_PICKLE.dumps(learnt)]})
