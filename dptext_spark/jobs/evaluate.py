"""The job of ``dptext evaluate``: a private table and settings in, what each gives away and keeps out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
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
from dptext_spark.evaluation.attackers import Attacker
from dptext_spark.evaluation.comparison import Comparison, Outcome
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import ATTRIBUTION, LABELLED, Totals
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import (
    ATTACKED,
    KNOWN,
    Classes,
    Counted,
    SampledRows,
    classify,
    count_pairs,
    emissions_of,
    simulate,
)
from dptext_spark.guarantee import Distances
from dptext_spark.lookup import WordReader
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
from dptext_spark.tables.columns import TableColumns, check_ids, check_left_out
from dptext_spark.tables.fields import Field
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.local import LocalFiles, check_names, is_plain, local_path
from dptext_spark.tables.look import Sample
from dptext_spark.tables.output import write_whole
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.result_folder import check_free, finish
from dptext_spark.tables.source import own_session, where
from dptext_spark.tables.storage import Storage
from dptext_spark.tables.table import check_input, check_places
from dptext_spark.text.policies import AllWords, TextPolicy

OWN_ROWS: Final = "the known rows and those that they attack themselves"

# Work of a candidate for an output of a word, in operations of a matrix product.
_ATTACKING: Final = 2e5

Measured: TypeAlias = tuple[Mechanism | None, Search, dict[int, Totals], float]
"""A setting, None for the floors, with its totals by attacked third and the error of its emissions."""


def run(options: EvaluateOptions) -> Answer:
    """Run ``dptext evaluate``: sample rows, simulate and attack each setting, compare, choose, write.

    The folder takes its name when it is whole; a run that was killed begins anew.

    Raises:
        DptextError: Options do not go together, the output is not free, or the job failed.
    """
    place = options.output.rstrip("/")

    def format_of() -> Format:
        read = Format.named(options.format, options.read_options)
        read.check_input(has_id=options.id is not None, grows=False)
        return read

    def check_paths() -> None:
        """Refuse what files of this machine show without a JVM."""
        read = format_of()
        check_input(read, options.input)
        if is_plain():
            check_places(LocalFiles(), [each for each in _places(options, read) if local_path(each[2])])
            if local_path(place):
                check_free(LocalFiles(), place, FILE, overwrite=options.overwrite)

    policy, read, *_ = all_of(
        lambda: options.policy, format_of, check_paths, lambda: check_names(options, _columns(options))
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
        json, files, draw = answer.to_json(), (FILE, *TABLES), partial(_draw, answer.value)
        finish(storage, folder, json, files=files, drawn=(PAGE,), page=drawing.ANSWER, draw=draw)
        answers.append(answer)

    with plain_errors("The Spark job of the evaluation failed"):
        check_places(storage, _places(options, read))
        check_free(storage, place, FILE, overwrite=options.overwrite)
        application = str(spark.sparkContext.applicationId)
        write_whole(storage, place, write, run=application, overwrite=options.overwrite)
    return answers[0]


def _draw(value: Mapping[str, Any], folder: Path) -> None:
    from dptext_spark.evaluation.answer_page import write_answer  # slow to load, and not everywhere

    write_answer(value, folder)


def _evaluated(
    options: EvaluateOptions,
    policy: TextPolicy,
    read: Format,
    embedding: Embedding,
    searches: Sequence[Search],
    spark: SparkSession,
    storage: Storage,
) -> Answer:
    """Sample rows, simulate and attack each setting, compare and choose."""
    columns = _columns(options)
    source = read.open(spark, storage, options.input)
    check_left_out(read, source, columns)
    columns.check(source.df, source.partitions)
    _check_classes(options, source.df)
    df = where(source.df, options.where) if options.where else source.df
    selected = columns.select(df, source.position if options.id is None else None)
    bundle = BundleFiles.send(spark, embedding)
    simulation = Simulation(bundle=bundle, policy=policy, search=searches[0], seed=options.noise_seed)
    ways = columns.ways(df.schema)
    corpus = _corpus(options, read, spark, storage, simulation)
    with progress(spark, "Sampling rows"):
        (total,) = check_ids(df, None if options.trust_id else options.id, F.count(F.lit(1)))
        looks = Sample(
            columns=columns,
            table=df.schema,
            reader=WordReader(bundle=bundle, policy=policy),
            fate="They are not evaluated. Take an embedding that has more of them.",
        )
        looks(selected)
        release = max(m.operations(embedding, search) for m in options.mechanism for search in searches)
        attacked = sum({1, options.versions})  # outputs of a word that attackers look at, in all
        partitioning = Partitioning(
            word=options.versions * release + attacked * options.candidates * _ATTACKING,
            words=lambda: looks.words,
            counted=lambda: looks.rows,
        )
        sample = None if options.sample == "all" else options.sample
        sampled = SampledRows.of(selected, F.col(ID), rows=total, sample=sample, partitioning=partitioning)
        command = options.release_command
        if options.hold_out:
            (field,) = Field.find(df.schema, str(options.id))
            command = partial(command, others=sampled.others([str(step) for step in field.path]))
        frame = sampled.kept().frame
    try:
        with progress(spark, "Counting words"):
            thirds = count_pairs(frame, simulation, ways)
            if not sum(thirds[third].perturbed for third in ATTACKED):
                raise InputError(
                    "There is nothing to evaluate: no word of the attacked rows is perturbed",
                    got=f"{sum(third.rows for third in thirds)} rows, a third of them known to attackers",
                    do="Take rows with words of the embedding that the policy protects",
                )
            known, language = _known(thirds, corpus)
        filled = [third for third in ATTACKED if thirds[third].rows]
        measured, ceilings = _measured(
            options, spark, frame, simulation, ways, searches, known, language, filled
        )
    finally:
        frame.unpersist()

    def compared(parts: Sequence[int]) -> Comparison:
        """Compare settings on the rows of some thirds."""

        def added(totals: Mapping[int, Totals]) -> Totals:
            return reduce(add, (totals[third] for third in parts))

        floors = {search: added(totals) for mechanism, search, totals, _ in measured if mechanism is None}
        names = ceilings.get(parts[0], {})
        return Comparison(
            outcomes=tuple(
                Outcome(mechanism=m, search=search, totals=added(totals), floor=floors[search], error=error)
                for m, search, totals, error in measured
                if m is not None
            ),
            before=reduce(add, (thirds[third].pairs for third in parts)),
            ideal={name: reduce(add, (ceilings[third][name] for third in parts)) for name in names},
        )

    return Answer.of(
        compared(filled),
        [compared([third]) for third in filled],
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
                "attacked": sum(thirds[third].rows for third in ATTACKED),
                "perturbed": sum(thirds[third].perturbed for third in ATTACKED),
            },
            "corpus": {
                "from": OWN_ROWS if corpus is None else options.public_corpus,
                "words": int(np.count_nonzero(language.words[:-1])),
                "pairs": len(language.count),
            },
            "guarantee": _guarantees(options.mechanism, embedding, searches[0]),
            "versions": versions(),
        },
    )


def _measured(
    options: EvaluateOptions,
    spark: SparkSession,
    frame: DataFrame,
    simulation: Simulation,
    ways: Fields,
    searches: Sequence[Search],
    known: Mapping[int, PairCounts],
    language: PairCounts,
    filled: Sequence[int],
) -> tuple[list[Measured], dict[int, dict[str, ClusterSums]]]:
    """Simulate and attack each setting, with each number of words that may be output first the floors.

    Returns:
        What was measured, and by third what models get right that learn from the originals.
    """
    wanted = {options.label: LABELLED, options.author: (ATTRIBUTION, None)}
    classes = [Classes(column=name, learnt=learnt) for name, learnt in wanted.items() if name]

    def classified(
        own: Simulation, mechanism: Mechanism | None, *, original: bool = False
    ) -> dict[int, dict[str, ClusterSums]]:
        """Give what models get right of all classes, in each attacked third that has rows."""
        each = [classify(frame, own, ways, c, mechanism, original=original) for c in classes]
        return {third: {n: s for part in each for n, s in part[third].items()} for third in filled}

    settings = [(mechanism, search) for search in searches for mechanism in (None, *options.mechanism)]
    measured: list[Measured] = []
    for number, (mechanism, search) in enumerate(settings, 1):
        name = "the floors" if mechanism is None else option_line(mechanism)
        size = f", {search.release_words:,} words" if len(searches) > 1 else ""
        with progress(spark, f"{number} of {len(settings)}: {name}{size}"):
            own = replace(simulation, search=search)
            emissions = (
                Emissions.uniform(len(simulation.embedding.words), search.release_words)
                if mechanism is None
                else emissions_of(
                    spark,
                    own,
                    mechanism,
                    runs=options.runs,
                    words=np.flatnonzero(language.words[:-1]),
                )
            )
            attackers = {
                third: Attacker.learn(pairs, emissions, candidates=options.candidates)
                for third, pairs in known.items()
            }
            count = 1 if mechanism is None else options.versions
            totals = simulate(frame, own, ways, mechanism, attackers, count)
            for third, right in classified(own, mechanism).items():
                totals[third] = replace(totals[third], sums={**totals[third].sums, **right})
        measured.append((mechanism, search, totals, emissions.mean_error(language)))
    ceilings = dict[int, dict[str, ClusterSums]]()
    if classes:
        with progress(spark, "Learning from the originals"):
            ceilings = classified(simulation, None, original=True)
    return measured, ceilings


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
    for option, name in {"--label": options.label, "--author": options.author}.items():
        if name is not None and not isinstance(kind := df.schema[name].dataType, AtomicType):
            raise InputError(
                f"Column {name} of {option} has no classes",
                allowed="text, numbers, booleans or dates",
                got=kind.simpleString(),
            )


def _places(options: EvaluateOptions, read: Format) -> list[tuple[str, str, str]]:
    """Give what must lie apart, of what are paths."""
    read_from = [("Input", "--input", options.input)] if read.has_path else []
    return [*read_from, ("Output", "--output", options.output)]


def _corpus(
    options: EvaluateOptions, read: Format, spark: SparkSession, storage: Storage, simulation: Simulation
) -> tuple[DataFrame, Simulation, Fields] | None:
    """Open the public texts that attackers learn from, if there are any, and say how they are read."""
    if options.public_corpus is None:
        return None
    columns = _columns(options, corpus=True)
    source = read.open(spark, storage, options.public_corpus)
    columns.check(source.df, source.partitions)
    selected = columns.select(source.df, F.lit("")).withColumn("third", F.lit(KNOWN))
    # Public texts are cut as the private ones; which words are perturbed does not matter.
    own = simulation.policy
    policy = TextPolicy(oov=own.oov, protect="all", layout=own.layout, tokenizer=own.tokenizer)
    return selected, replace(simulation, policy=policy), columns.ways(source.df.schema)


def _known(
    thirds: Sequence[Counted], corpus: tuple[DataFrame, Simulation, Fields] | None
) -> tuple[dict[int, PairCounts], PairCounts]:
    """Give what attackers learn the language from: by third, and all of it together.

    It is a public corpus, or the known rows and those that are attacked: the rows of the check alone must
    not have a share in the choice of a setting.
    """
    if corpus is None:
        own = {third: thirds[KNOWN].pairs + thirds[third].pairs for third in ATTACKED}
        return own, reduce(add, (third.pairs for third in thirds))
    known = reduce(add, (counted.pairs for counted in count_pairs(*corpus)))
    if not known.words[:-1].any():
        raise InputError(
            "The --public-corpus has no word of the embedding",
            do="Give texts of the language of the input, in a column of the same name",
        )
    return dict.fromkeys(ATTACKED, known), known


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
