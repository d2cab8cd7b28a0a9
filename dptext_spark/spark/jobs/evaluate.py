"""The job of ``dptext evaluate``: a private table and settings in, what each gives away and keeps out."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType

from dptext_spark.calibration.record import option_line
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError, all_of
from dptext_spark.evaluation.answer import Answer
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.comparison import ATTRIBUTION, Comparison, Outcome
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.goal import LABELLED
from dptext_spark.evaluation.recovery import Attacker
from dptext_spark.evaluation.row_sums import RowSums
from dptext_spark.evaluation.tally import Tally, classifications, classified_table
from dptext_spark.guarantee import Distances
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import EvaluateOptions
from dptext_spark.report import drawing
from dptext_spark.report.facts import embedding_json, versions
from dptext_spark.search.nearest import Search
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.local_paths import local_path
from dptext_spark.spark.measuring.classified_rows import Classes, classified
from dptext_spark.spark.measuring.folder import EvaluationFolder
from dptext_spark.spark.measuring.rehearsed_rows import (
    ATTACKED,
    KNOWN,
    SCHEMA,
    Counted,
    RehearsalPlan,
    SampledRows,
    count_pairs,
    emissions,
    plan_of,
    rehearsed,
    tallies,
)
from dptext_spark.spark.measuring.waves import Waves
from dptext_spark.spark.progress import progress
from dptext_spark.spark.session import session
from dptext_spark.spark.table.columns import TableColumns, check_ids
from dptext_spark.spark.table.fields import Field
from dptext_spark.spark.table.formats.files import FileFormat, Parquet
from dptext_spark.spark.table.formats.format import Format
from dptext_spark.spark.table.local_files import LocalFiles
from dptext_spark.spark.table.local_table import LocalTable, is_plain
from dptext_spark.spark.table.partitioning import Partitioning
from dptext_spark.spark.table.run import check_left_out, check_places
from dptext_spark.spark.table.sample import CoveragePlan, Sample
from dptext_spark.spark.table.source import own_session, where
from dptext_spark.spark.table.storage import Storage
from dptext_spark.text.policies import AllWords
from dptext_spark.version import __version__

OWN_ROWS: Final = "the known rows and those that they attack themselves"

_FAILED: Final = "The Spark job of the evaluation failed; the same command continues it"


def run(options: EvaluateOptions) -> Answer:
    """Run ``dptext evaluate``: sample rows, rehearse and attack each setting, compare, choose, write.

    A run that was killed leaves the settings that were done under ``.parts``; the same options on the same
    rows continue there and end with the same numbers. evaluation.json comes last: where it is, the evaluation
    is whole.

    Raises:
        DptextError: Options do not go together, the folder is of other options, or the job failed.
    """
    place = options.output.rstrip("/")
    policy, read, *_ = all_of(lambda: options.policy, partial(_format, options), *_checks(options, place))
    embedding = Embedding.open(options.embedding)
    sizes = options.release_words or (None,)
    searches: list[Search] = all_of(
        *(partial(options.search_over, embedding, size) for size in sizes),
        *(partial(mechanism.prepare, embedding) for mechanism in options.mechanism),
    )[: len(sizes)]
    drawing.announce("report.html", drawing.ANSWER)
    spark = own_session(session("dptext evaluate"))
    storage = Storage(spark)
    folder = EvaluationFolder(storage=storage, place=place)
    columns = _columns(options)
    with plain_errors(_FAILED):
        check_places(storage, _places(options, read))
        folder.check_free(storage, place, None, overwrite=options.overwrite)
        source = read.open(spark, storage, options.input)
        check_left_out(read, source, columns)
        columns.check(source.df, source.partitions)
        _check_classes(options, source.df)
        df = where(source.df, options.where) if options.where else source.df
        row_id = source.position if options.id is None else None
        selected = columns.select(df, row_id)
        bundle = BundleFiles.send(spark, embedding)
        plan = plan_of(columns, df, bundle, policy, searches[0], options.noise_seed)
        corpus = _corpus(options, read, folder, plan)
        with progress(spark, "Sampling rows"):
            (total,) = check_ids(df, None if options.trust_id else options.id, F.count(F.lit(1)))
            looks = Sample(
                columns=columns,
                table=df.schema,
                plan=CoveragePlan(bundle=bundle, policy=policy),
                fate="They are not evaluated. Take an embedding that has more of them.",
            )
            looks(selected)
            partitioning = Partitioning(
                word=_operations(options, embedding, searches), words=lambda: looks.words
            )
            sample = None if options.sample == "all" else options.sample
            ids = selected[selected.columns[-2 if columns.slots else -1]]
            sampled = SampledRows.of(selected, ids, rows=total, sample=sample, partitioning=partitioning)
            command = _command(options, df, sampled)
            sampled = sampled.kept()
        try:
            with progress(spark, "Counting words"):
                thirds = _counted(sampled, plan, len(embedding.words))
                attacked = [thirds[third] for third in ATTACKED]
                known = _known(thirds, corpus, len(embedding.words))
            rehearsals = Rehearsals(
                options=options,
                embedding=embedding,
                searches=searches,
                plan=plan,
                rows=sampled,
                known=known,
                attacked=tuple(third for third in ATTACKED if thirds[third].rows),
                columns=columns.schema(df.schema).names,
                waves=Waves(
                    spark=spark,
                    storage=storage,
                    folder=folder.claim(
                        _identity(options, embedding, sampled, thirds, known), overwrite=options.overwrite
                    ),
                    bundle=bundle,
                ),
            )
            found, ceilings = rehearsals.all(), rehearsals.ceilings()
        finally:
            sampled.frame.unpersist()
        whole, *parts = _compared(found, ceilings, attacked)
        answer = Answer.of(
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
        folder.clear()
        for name in folder.tables:
            table = pa.Table.from_pylist(answer.value[name])
            rehearsals.waves.write(spark.createDataFrame(table).coalesce(1), f"{place}/{name}")
        folder.finish(answer.to_json())
    return answer


def _command(options: EvaluateOptions, df: DataFrame, sampled: SampledRows) -> Callable[..., str]:
    """Say how the command of a release is written; with ``--hold-out`` it leaves the sampled rows out."""
    if not options.hold_out:
        return options.release_command
    (field,) = Field.find(df.schema, str(options.id))
    return partial(options.release_command, others=sampled.others([str(step) for step in field.path]))


def _counted(sampled: SampledRows, plan: RehearsalPlan, vocabulary: int) -> list[Counted]:
    """Count what each third has, and refuse rows of which nothing is attacked."""
    thirds = count_pairs(sampled.frame, plan, vocabulary)
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


def _checks(options: EvaluateOptions, place: str) -> list[Any]:
    """Give the checks that files of this machine answer without a JVM."""
    if not is_plain():
        return []

    def check_input() -> None:
        read = _format(options)
        if isinstance(read, FileFormat) and local_path(options.input):
            read.check_files(LocalFiles(), options.input)
        if isinstance(read, Parquet) and not read.options and (table := LocalTable.look(options.input)):
            _columns(options).check_schema(table.schema, table.partitions)

    def check_output() -> None:
        read = _format(options)
        places = [each for each in _places(options, read) if local_path(each[2])]
        check_places(LocalFiles(), places)
        if local_path(place):
            EvaluationFolder.check_free(LocalFiles(), place, None, overwrite=options.overwrite)

    return [check_input, check_output]


def _operations(options: EvaluateOptions, embedding: Embedding, searches: Sequence[Search]) -> float:
    """Say what a word takes at the costliest setting."""
    release = max(m.operations(embedding, search) for m in options.mechanism for search in searches)
    attacked = sum({1, options.versions})  # outputs of a word that attackers look at, in all
    return options.versions * release + attacked * options.candidates * _ATTACKING


# A candidate for an output of a word, in operations of a matrix product.
_ATTACKING: Final = 2e5


def _corpus(
    options: EvaluateOptions, read: Format, folder: EvaluationFolder, plan: RehearsalPlan
) -> tuple[DataFrame, RehearsalPlan] | None:
    """Open the table that attackers learn from, if it is another one than that which they attack."""
    if options.public_corpus is None:
        return None
    columns = _columns(options, corpus=True)
    spark = own_session(session("dptext evaluate"))
    source = read.open(spark, folder.storage, options.public_corpus)
    columns.check(source.df, source.partitions)
    selected = columns.select(source.df, F.lit("")).withColumn("third", F.lit(KNOWN))
    policy, search, seed = plan.policy, plan.search, plan.seed
    return selected, plan_of(columns, source.df, plan.bundle, _learning(policy), search, seed)


def _learning(policy: Any) -> Any:
    """How an attacker cuts public texts: as the private ones; which words are perturbed does not matter."""
    return type(policy)(oov=policy.oov, protect="all", layout=policy.layout, tokenizer=policy.tokenizer)


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


def _known(
    thirds: Sequence[Counted], corpus: tuple[DataFrame, RehearsalPlan] | None, vocabulary: int
) -> Known:
    if corpus is None:
        own = {third: thirds[KNOWN].pairs + thirds[third].pairs for third in ATTACKED}
        return Known(of=own, all=reduce(add, (third.pairs for third in thirds)))
    known = reduce(add, (counted.pairs for counted in count_pairs(*corpus, vocabulary)))
    if not known.words[:-1].any():
        raise InputError(
            "The --public-corpus has no word of the embedding",
            do="Give texts of the language of the input, in a column of the same name",
        )
    return Known(of=dict.fromkeys(ATTACKED, known), all=known)


def _identity(
    options: EvaluateOptions,
    embedding: Embedding,
    sampled: SampledRows,
    thirds: Sequence[Counted],
    known: Known,
) -> str:
    """Hash what decides the numbers of each setting: options, bundle, and what was counted of the rows."""
    left_out = {"output", "overwrite", "target", "confidence"}
    value = {
        "version": __version__,
        "bundle": embedding.fingerprint,
        "options": {n: v for n, v in options.to_json().items() if n not in left_out},
        "where": options.where,
        "mechanisms": [(m.name, m.model_dump(mode="json")) for m in options.mechanism],
        "rows": [sampled.rows, sampled.last, *((third.rows, third.perturbed) for third in thirds)],
    }
    found = hashlib.sha256(json.dumps(value, sort_keys=True).encode())
    for pairs in (*(third.pairs for third in thirds), known.all):
        for array in (pairs.first, pairs.second, pairs.count):
            found.update(array.tobytes())
    return found.hexdigest()[:32]


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
    """The settings of a run, rehearsed one after the other; each is kept as soon as it is done.

    Attributes:
        options: What is asked for.
        embedding, plan: How rows are read and released.
        searches: Among how many words, one after the other.
        rows: The sampled rows.
        known: What attackers learn from.
        attacked: The thirds that are attacked and have rows.
        columns: The names of the rows' columns, those of classes among them.
        waves: Where what is done is kept.
    """

    options: EvaluateOptions
    embedding: Embedding
    searches: Sequence[Search]
    plan: RehearsalPlan
    rows: SampledRows
    known: Known
    attacked: tuple[int, ...]
    columns: list[str]
    waves: Waves

    @property
    def classes(self) -> list[Classes]:
        """What models are to learn."""
        kept = _columns(self.options).keep
        wanted = {self.options.label: LABELLED, self.options.author: (ATTRIBUTION, None)}
        names = self.columns
        return [Classes(column=names.index(n), learnt=learnt) for n, learnt in wanted.items() if n in kept]

    def all(self) -> list[Rehearsed]:
        """Rehearse what is not done: with each number of words that may be output first the floors."""
        mechanisms = (None, *self.options.mechanism)
        wanted = [(mechanism, search) for search in self.searches for mechanism in mechanisms]
        return [self._one(number, len(wanted), *setting) for number, setting in enumerate(wanted)]

    def _one(self, number: int, of: int, mechanism: Mechanism | None, search: Search) -> Rehearsed:
        place = f"{self.waves.folder}/setting-{number:04d}"
        if not self.waves.storage.exists(place):
            name = "the floors" if mechanism is None else option_line(mechanism)
            size = f", {search.release_words:,} words" if len(self.searches) > 1 else ""
            with progress(self.waves.spark, f"{number + 1} of {of}: {name}{size}"):
                self._rehearse(mechanism, search, place)
        table = self._read(place)
        errors = table.filter(pa.compute.equal(table["kind"], "error"))["total"].to_pylist()
        rest = table.filter(pa.compute.not_equal(table["kind"], "error"))
        return Rehearsed(
            mechanism=mechanism,
            search=search,
            tallies=tallies(rest, len(self.embedding.words)),
            error=float(sum(errors)),
        )

    def ceilings(self) -> list[dict[str, RowSums]]:
        """Give what models get right in each attacked third that learn from texts as they were."""
        place = f"{self.waves.folder}/originals"
        if not self.classes:
            return []
        if not self.waves.storage.exists(place):
            with progress(self.waves.spark, "Learning from the originals"):
                self.waves.write(self._classified(self.plan, None, original=True), place)
        return classifications(self._read(place))

    def _read(self, place: str) -> pa.Table:
        return self.waves.spark.read.schema(SCHEMA).parquet(place).toArrow()

    def _classified(
        self, plan: RehearsalPlan, mechanism: Mechanism | None, *, original: bool = False
    ) -> DataFrame:
        """Learn all classes, and write what models get right under the keys of tallies."""
        tables = []
        for classes in self.classes:
            found = classified(self.rows.frame, plan, classes, mechanism, original=original)
            for third, own in zip(ATTACKED, found, strict=True):
                if third not in self.attacked:
                    continue
                thirds = pa.array([third] * len(table := classified_table(own)), pa.int32())
                tables.append(table.add_column(0, "third", thirds))
        return self.waves.spark.createDataFrame(pa.concat_tables(tables))

    def _rehearse(self, mechanism: Mechanism | None, search: Search, place: str) -> None:
        spark, known, plan = self.waves.spark, self.known, replace(self.plan, search=search)
        found = self._emissions(mechanism, search)
        attackers = {
            third: Attacker.of(found, own, candidates=self.options.candidates)
            for third, own in known.of.items()
        }
        sent = spark.sparkContext.broadcast(pickle.dumps(attackers))
        try:
            versions = 1 if mechanism is None else self.options.versions
            result = rehearsed(self.rows.frame, plan, mechanism, sent, versions)
            row = spark.createDataFrame([(-1, "error", 0, 0, found.mean_error(known.all))], SCHEMA)
            result = result.unionAll(row)
            if self.classes:
                result = result.unionAll(self._classified(plan, mechanism))
            self.waves.write(result, place)
        finally:
            sent.destroy()

    def _emissions(self, mechanism: Mechanism | None, search: Search) -> Emissions:
        if mechanism is None:
            return Emissions.uniform(len(self.embedding.words), search.release_words)
        return emissions(
            self.waves.spark,
            self.waves.bundle,
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
