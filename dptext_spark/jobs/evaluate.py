"""The job of ``dptext evaluate``: a private table and settings in, what each gives away and keeps out."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add, or_
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType

from dptext_spark.calibration.record import option_line
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError, all_of
from dptext_spark.evaluation.answer import FILE, PAGE, TABLES, Answer
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.comparison import ATTRIBUTION, Comparison, Outcome
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.goal import LABELLED
from dptext_spark.evaluation.recovery import Attacker
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.row_sums import RowSums
from dptext_spark.evaluation.tally import Tally
from dptext_spark.guarantee import Distances
from dptext_spark.lookup import WordReader
from dptext_spark.measuring.classified_rows import Classes, classified
from dptext_spark.measuring.folder import check_free, finish
from dptext_spark.measuring.rehearsed_rows import (
    ATTACKED,
    KNOWN,
    Counted,
    SampledRows,
    count_pairs,
    emissions,
    rehearsed,
    tallies,
)
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import EvaluateOptions
from dptext_spark.report import drawing
from dptext_spark.report.facts import embedding_json, versions
from dptext_spark.search.nearest import Search
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.spark.session import session
from dptext_spark.tables.batch import ID, Fields
from dptext_spark.tables.beforehand import check_input, check_names, is_plain
from dptext_spark.tables.columns import TableColumns, check_ids
from dptext_spark.tables.fields import Field
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.local_files import LocalFiles, local_path
from dptext_spark.tables.output import write_whole
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.run import check_left_out, check_places
from dptext_spark.tables.sample import Sample
from dptext_spark.tables.source import own_session, where
from dptext_spark.tables.storage import Storage
from dptext_spark.text.policies import AllWords, TextPolicy

OWN_ROWS: Final = "the known rows and those that they attack themselves"


def run(options: EvaluateOptions) -> Answer:
    """Run ``dptext evaluate``: sample rows, rehearse and attack each setting, compare, choose, write.

    The folder takes its name when it is whole; a run that was killed begins anew.

    Raises:
        DptextError: Options do not go together, the output is not free, or the job failed.
    """
    place = options.output.rstrip("/")
    policy, read, *_ = all_of(
        lambda: options.policy,
        lambda: _format(options),
        lambda: _check_paths(options, place),
        lambda: check_names(options, _columns(options)),
    )
    embedding = Embedding.open(options.embedding)
    sizes = options.release_words or (None,)
    searches: list[Search] = all_of(
        *(partial(options.search_over, embedding, size) for size in sizes),
        *(partial(mechanism.prepare, embedding) for mechanism in options.mechanism),
    )[: len(sizes)]
    drawing.announce("report.html", drawing.ANSWER)
    spark = own_session(session("dptext evaluate"))
    storage = Storage(spark)
    answers: list[Answer] = []

    def write(folder: str) -> None:
        answer = _evaluated(options, policy, read, embedding, searches, spark, storage)
        for name in TABLES:
            table = spark.createDataFrame(pa.Table.from_pylist(answer.value[name]))
            table.coalesce(1).write.parquet(f"{folder}/{name}")
        finish(
            storage,
            folder,
            answer.to_json(),
            files=(FILE, *TABLES),
            drawn=(PAGE,),
            page=drawing.ANSWER,
            draw=_draw,
        )
        answers.append(answer)

    with plain_errors("The Spark job of the evaluation failed"):
        check_places(storage, _places(options, read))
        check_free(storage, place, FILE, overwrite=options.overwrite)
        application = str(spark.sparkContext.applicationId)
        write_whole(storage, place, write, run=application, overwrite=options.overwrite)
    return answers[0]


def _draw(folder: Path) -> None:
    from dptext_spark.evaluation.answer_page import write_answer  # slow to load, and not everywhere

    write_answer(folder)


def _evaluated(
    options: EvaluateOptions,
    policy: TextPolicy,
    read: Format,
    embedding: Embedding,
    searches: Sequence[Search],
    spark: SparkSession,
    storage: Storage,
) -> Answer:
    """Sample rows, rehearse and attack each setting, compare and choose."""
    columns = _columns(options)
    source = read.open(spark, storage, options.input)
    check_left_out(read, source, columns)
    columns.check(source.df, source.partitions)
    _check_classes(options, source.df)
    df = where(source.df, options.where) if options.where else source.df
    row_id = source.position if options.id is None else None
    selected = columns.select(df, row_id)
    bundle = BundleFiles.send(spark, embedding)
    rehearsal = Rehearsal(bundle=bundle, policy=policy, search=searches[0], seed=options.noise_seed)
    ways = columns.ways(df.schema)
    corpus = _corpus(options, read, spark, storage, rehearsal)
    with progress(spark, "Sampling rows"):
        (total,) = check_ids(df, None if options.trust_id else options.id, F.count(F.lit(1)))
        looks = Sample(
            columns=columns,
            table=df.schema,
            reader=WordReader(bundle=bundle, policy=policy),
            fate="They are not evaluated. Take an embedding that has more of them.",
        )
        looks(selected)
        partitioning = Partitioning(
            word=_operations(options, embedding, searches),
            words=lambda: looks.words,
            counted=lambda: looks.rows,
        )
        sample = None if options.sample == "all" else options.sample
        sampled = SampledRows.of(selected, F.col(ID), rows=total, sample=sample, partitioning=partitioning)
        command = _command(options, df, sampled)
        sampled = sampled.kept()
    try:
        with progress(spark, "Counting words"):
            thirds = _counted(sampled, rehearsal, ways)
            attacked = [thirds[third] for third in ATTACKED]
            known = _known(thirds, corpus)
        rehearsals = Rehearsals(
            options=options,
            embedding=embedding,
            searches=searches,
            rehearsal=rehearsal,
            ways=ways,
            rows=sampled,
            known=known,
            attacked=tuple(third for third in ATTACKED if thirds[third].rows),
            spark=spark,
        )
        found, ceilings = rehearsals.all(), rehearsals.ceilings()
    finally:
        sampled.frame.unpersist()
    whole, *parts = _compared(found, ceilings, attacked)
    return Answer.of(
        whole,
        parts,
        goal=options.goal,
        confidence=options.confidence,
        command=command,
        facts={
            "options": options.to_json(),
            "embedding": embedding_json(embedding),
            "sample": {
                "rows": sum(third.rows for third in thirds),
                "of": total,
                "known": thirds[KNOWN].rows,
                "attacked": sum(third.rows for third in attacked),
                "perturbed": sum(third.perturbed for third in attacked),
            },
            "corpus": {
                "from": OWN_ROWS if corpus is None else options.public_corpus,
                "words": int(np.count_nonzero(known.all.words[:-1])),
                "pairs": len(known.all.count),
            },
            "guarantee": _guarantees(options.mechanism, embedding, searches[0]),
            "versions": versions(),
        },
    )


def _command(options: EvaluateOptions, df: DataFrame, sampled: SampledRows) -> Callable[..., str]:
    """Say how the command of a release is written; with ``--hold-out`` it leaves the sampled rows out."""
    if not options.hold_out:
        return options.release_command
    (field,) = Field.find(df.schema, str(options.id))
    return partial(options.release_command, others=sampled.others([str(step) for step in field.path]))


def _counted(sampled: SampledRows, rehearsal: Rehearsal, ways: Fields) -> list[Counted]:
    """Count what each third has, and refuse rows of which nothing is attacked."""
    thirds = count_pairs(sampled.frame, rehearsal, ways)
    if not sum(thirds[third].perturbed for third in ATTACKED):
        raise InputError(
            "There is nothing to evaluate: no word of the attacked rows is perturbed",
            got=f"{sum(third.rows for third in thirds)} rows, a third of them known to attackers",
            do="Take rows with words of the embedding that the policy protects",
        )
    return thirds


def _columns(options: EvaluateOptions, *, corpus: bool = False) -> TableColumns:
    return TableColumns(
        text=() if options.text is None else (options.text,),
        tokens=() if options.tokens is None else (options.tokens,),
        keep=() if corpus else tuple(dict.fromkeys(n for n in (options.label, options.author) if n)),
        id=None if corpus else options.id,
        protect=AllWords() if corpus else options.policy.protect,
    )


def _check_classes(options: EvaluateOptions, df: DataFrame) -> None:
    """Refuse classes that are no plain values."""
    named = {"--label": options.label, "--author": options.author}
    for option, name in named.items():
        if name is not None and not isinstance(kind := df.schema[name].dataType, AtomicType):
            raise InputError(
                f"Column {name} of {option} has no classes",
                allowed="text, numbers, booleans or dates",
                got=kind.simpleString(),
            )


def _format(options: EvaluateOptions) -> Format:
    """Choose the input's format, and refuse what it cannot do; needs no Spark."""
    read = Format.named(options.format, options.read_options)
    read.check_input(has_id=options.id is not None, grows=False)
    return read


def _places(options: EvaluateOptions, read: Format) -> list[tuple[str, str, str]]:
    """Give what must lie apart, of what are paths."""
    read_from = [("Input", "--input", options.input)] if read.has_path else []
    return [*read_from, ("Output", "--output", options.output)]


def _check_paths(options: EvaluateOptions, place: str) -> None:
    """Refuse what files of this machine show without a JVM."""
    read = _format(options)
    check_input(read, options.input)
    if is_plain():
        check_places(LocalFiles(), [each for each in _places(options, read) if local_path(each[2])])
        if local_path(place):
            check_free(LocalFiles(), place, FILE, overwrite=options.overwrite)


def _operations(options: EvaluateOptions, embedding: Embedding, searches: Sequence[Search]) -> float:
    """Say what a word takes at the costliest setting."""
    release = max(m.operations(embedding, search) for m in options.mechanism for search in searches)
    attacked = sum({1, options.versions})  # outputs of a word that attackers look at, in all
    return options.versions * release + attacked * options.candidates * _ATTACKING


# A candidate for an output of a word, in operations of a matrix product.
_ATTACKING: Final = 2e5


Corpus: TypeAlias = tuple[DataFrame, Rehearsal, Fields]
"""Texts that attackers learn from, and how they are read."""


def _corpus(
    options: EvaluateOptions, read: Format, spark: SparkSession, storage: Storage, rehearsal: Rehearsal
) -> Corpus | None:
    """Open the table that attackers learn from, if it is another one than that which they attack."""
    if options.public_corpus is None:
        return None
    columns = _columns(options, corpus=True)
    source = read.open(spark, storage, options.public_corpus)
    columns.check(source.df, source.partitions)
    selected = columns.select(source.df, F.lit("")).withColumn("third", F.lit(KNOWN))
    # Public texts are cut as the private ones; which words are perturbed does not matter.
    own = rehearsal.policy
    policy = TextPolicy(oov=own.oov, protect="all", layout=own.layout, tokenizer=own.tokenizer)
    return selected, replace(rehearsal, policy=policy), columns.ways(source.df.schema)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Known:
    """What attackers learn the language from.

    Attributes:
        of: By third, what its attackers learn from: a public corpus, or the known rows and those that they
            attack, so that no setting is chosen by what only the rows of the check tell.
        all: All of it together.
    """

    of: Mapping[int, PairCounts]
    all: PairCounts


def _known(thirds: Sequence[Counted], corpus: Corpus | None) -> Known:
    if corpus is None:
        own = {third: thirds[KNOWN].pairs + thirds[third].pairs for third in ATTACKED}
        return Known(of=own, all=reduce(add, (third.pairs for third in thirds)))
    known = reduce(add, (counted.pairs for counted in count_pairs(*corpus)))
    if not known.words[:-1].any():
        raise InputError(
            "The --public-corpus has no word of the embedding",
            do="Give texts of the language of the input, in a column of the same name",
        )
    return Known(of=dict.fromkeys(ATTACKED, known), all=known)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Rehearsed:
    """A setting that was rehearsed; without a mechanism the floors of its number of words.

    Attributes:
        mechanism, search: The setting.
        tallies: Of the attacked thirds that have rows.
        error: Of the attackers.
    """

    mechanism: Mechanism | None
    search: Search
    tallies: list[Tally]
    error: float


@dataclass(frozen=True, kw_only=True)
class Rehearsals:
    """The settings of a run, rehearsed one after the other.

    Attributes:
        options: What is asked for.
        embedding, rehearsal, ways: How rows are read and released.
        searches: Among how many words, one after the other.
        rows: The sampled rows.
        known: What attackers learn from.
        attacked: The thirds that are attacked and have rows.
    """

    options: EvaluateOptions
    embedding: Embedding
    searches: Sequence[Search]
    rehearsal: Rehearsal
    ways: Fields
    rows: SampledRows
    known: Known
    attacked: tuple[int, ...]
    spark: SparkSession

    @property
    def classes(self) -> list[Classes]:
        """What models are to learn."""
        kept = _columns(self.options).keep
        wanted = {self.options.label: LABELLED, self.options.author: (ATTRIBUTION, None)}
        return [
            Classes(column=n, learnt=learnt) for n, learnt in wanted.items() if n is not None and n in kept
        ]

    def all(self) -> list[Rehearsed]:
        """Rehearse each setting; with each number of words that may be output first the floors."""
        mechanisms = (None, *self.options.mechanism)
        wanted = [(mechanism, search) for search in self.searches for mechanism in mechanisms]
        found = []
        for number, (mechanism, search) in enumerate(wanted, 1):
            name = "the floors" if mechanism is None else option_line(mechanism)
            size = f", {search.release_words:,} words" if len(self.searches) > 1 else ""
            with progress(self.spark, f"{number} of {len(wanted)}: {name}{size}"):
                found.append(self._rehearsed(mechanism, search))
        return found

    def ceilings(self) -> list[dict[str, RowSums]]:
        """Give what models get right in each attacked third that learn from texts as they were."""
        if not self.classes:
            return []
        with progress(self.spark, "Learning from the originals"):
            return self._classified(self.rehearsal, None, original=True)

    def _classified(
        self, rehearsal: Rehearsal, mechanism: Mechanism | None, *, original: bool = False
    ) -> list[dict[str, RowSums]]:
        """Learn all classes, and give what models get right in each attacked third that has rows."""
        frame = self.rows.frame
        each = [
            classified(frame, rehearsal, self.ways, own, mechanism, original=original) for own in self.classes
        ]
        thirds = [reduce(or_, parts) for parts in zip(*each, strict=True)]
        return [own for third, own in zip(ATTACKED, thirds, strict=True) if third in self.attacked]

    def _rehearsed(self, mechanism: Mechanism | None, search: Search) -> Rehearsed:
        known, rehearsal = self.known, replace(self.rehearsal, search=search)
        found = self._emissions(mechanism, search)
        attackers = {
            third: Attacker.of(found, own, candidates=self.options.candidates)
            for third, own in known.of.items()
        }
        sent = self.spark.sparkContext.broadcast(pickle.dumps(attackers))
        try:
            versions = 1 if mechanism is None else self.options.versions
            table = rehearsed(self.rows.frame, rehearsal, self.ways, mechanism, sent, versions).toArrow()
        finally:
            sent.destroy()
        parts = tallies(table, len(self.embedding.words))
        if self.classes:
            right = self._classified(rehearsal, mechanism)
            parts = [replace(part, classified=own) for part, own in zip(parts, right, strict=True)]
        return Rehearsed(mechanism=mechanism, search=search, tallies=parts, error=found.mean_error(known.all))

    def _emissions(self, mechanism: Mechanism | None, search: Search) -> Emissions:
        if mechanism is None:
            return Emissions.uniform(len(self.embedding.words), search.release_words)
        return emissions(
            self.spark,
            self.rehearsal.bundle,
            self.embedding,
            mechanism,
            search,
            runs=self.options.runs,
            seed=self.options.noise_seed,
            words=np.flatnonzero(self.known.all.words[:-1]),
        )


def _compared(
    found: Sequence[Rehearsed],
    ceilings: Sequence[dict[str, RowSums]],
    attacked: Sequence[Counted],
) -> list[Comparison]:
    """Compare settings on all attacked rows, and on each of the attacked thirds that have rows."""
    filled = [third.pairs for third in attacked if third.rows]

    def comparison(tally_of: Any, before: PairCounts, ideal: dict[str, RowSums]) -> Comparison:
        floors = {own.search: tally_of(own.tallies) for own in found if own.mechanism is None}
        return Comparison(
            outcomes=tuple(
                Outcome.of(m, own.search, tally_of(own.tallies), floors[own.search], own.error)
                for own in found
                if (m := own.mechanism) is not None
            ),
            guessed=floors[found[0].search].recovered[1],
            before=before,
            ideal=ideal,
        )

    whole = {name: reduce(add, (own[name] for own in ceilings)) for own in ceilings[:1] for name in own}
    each = [*ceilings] or [{} for _ in filled]
    parts = [comparison(lambda own, i=i: own[i], before, each[i]) for i, before in enumerate(filled)]
    return [comparison(partial(reduce, add), reduce(add, filled), whole), *parts]


def _guarantees(
    mechanisms: Sequence[Mechanism], embedding: Embedding, search: Search
) -> list[dict[str, Any]]:
    """What is proven of each setting; distances are measured once for each metric."""
    measured: dict[str, Distances] = {}
    rows = []
    for mechanism in mechanisms:
        metric = mechanism.metric(embedding)
        if metric.description not in measured:
            measured[metric.description] = Distances.measure(metric)
        guarantee = mechanism.guarantee(embedding, measured[metric.description], search)
        rows.append({"options": option_line(mechanism), **guarantee.to_json()})
    return rows
