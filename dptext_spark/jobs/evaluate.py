"""The job of ``dptext evaluate``: a private table and settings in, what each gives away and keeps out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType

from dptext_spark.bars import progress, stage
from dptext_spark.calibration.facts import guarantees
from dptext_spark.channel.on_spark import channel_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.evaluation import facts, page, text
from dptext_spark.evaluation.classify import classify, known_classes
from dptext_spark.evaluation.comparison import Comparison, Outcome
from dptext_spark.evaluation.language import PairCounts, word_prior
from dptext_spark.evaluation.measures import Sums
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import (
    ATTACKED,
    KNOWN,
    Counted,
    SampledRows,
    count_pairs,
    knowledge_of,
    languages_of,
    sampled,
    simulate,
)
from dptext_spark.evaluation.target import Target
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import EvaluateOptions
from dptext_spark.report.facts import Report, embedding_json
from dptext_spark.report.text import announce_missing
from dptext_spark.search.nearest import Search
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.batch import ID
from dptext_spark.tables.columns import TableColumns, check_ids, check_refused
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.formats.parquet import check_names
from dptext_spark.tables.look import Sample
from dptext_spark.tables.partitioning import Partitioning, is_encrypted
from dptext_spark.tables.result_folder import check_free, result_folder, write_report
from dptext_spark.tables.source import check_met, own_session, where
from dptext_spark.tables.storage import LocalFiles, Storage, is_plain
from dptext_spark.tables.table import check_input, check_places
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import WordReader

OWN_TEXTS: Final = (
    "the known rows; how often words and pairs occur they know of the attacked rows, too"
)

# Work of a candidate for an output of a word, in operations of a matrix product.
_ATTACKING: Final = 2e5


def run(options: EvaluateOptions) -> Report:
    """Run ``dptext evaluate``: sample rows, simulate and attack each setting, compare, choose, write."""
    place = options.output.rstrip("/")
    read = Format.named(options.format, options.input, options.read_options)
    read.check_input(has_id=options.id is not None, grows=False)

    def check_folders(places: LocalFiles) -> None:
        """Refuse folders that lie inside one another, and an output that is not free."""
        paths = [("Input", "--input", options.input)] if read.has_path else []
        check_places(places, [*paths, ("Output", "--output", place)])
        check_free(places, place, facts.FILE, overwrite=options.overwrite)

    policy, *_ = all_of(
        lambda: options.policy,
        lambda: check_input(read),
        lambda: check_folders(LocalFiles()) if is_plain() else None,
        lambda: check_names(options, _columns(options)),
    )
    with stage("Opening the embedding"):
        embedding = Embedding.open(options.embedding)
        search = options.search_over(embedding, options.release_words)
    announce_missing("report.html and plots")
    spark = own_session(session("dptext evaluate"))
    storage = Storage(spark)

    with spark_errors("The Spark job of the evaluation failed"):
        check_folders(storage)
        # Claimed before hours of measuring: another run with this output ends at once.
        with result_folder(spark, storage, options, private=True) as folder:
            evaluation = _evaluated(options, policy, read, embedding, search, spark)
            return write_report(
                storage,
                folder,
                options,
                evaluation,
                file=facts.FILE,
                text=text.said,
                page=page.page,
                private=True,
            )


def _evaluated(
    options: EvaluateOptions,
    policy: TextPolicy,
    read: Format,
    embedding: Embedding,
    search: Search,
    spark: SparkSession,
) -> dict[str, Any]:
    columns = _columns(options)
    target = None if options.target is None else Target.parse(options.target)
    if target is not None and options.label is not None:
        target = replace(target, keeping="balanced_accuracy")
    if target is not None and target.measure == "linked" and not is_encrypted(spark):
        raise ConfigError(f"The --target {target} cannot be measured here", do=text.NOT_LINKED)
    source = read.open(spark)
    columns = check_refused(source, columns)
    columns.check(source.df, source.partitions)
    for option, name in {"--label": options.label, "--author": options.author}.items():
        if name is not None and not isinstance(kind := source.df.schema[name].dataType, AtomicType):
            raise InputError(
                f"Column {name} of {option} has no classes",
                allowed="text, numbers, booleans or dates",
                got=kind.simpleString(),
            )
    df = where(source.df, options.where) if options.where else source.df
    selected = columns.select(df, source.position if options.id is None else None)
    bundle = BundleFiles.send(spark, embedding)
    simulation = Simulation(bundle=bundle, policy=policy, search=search, seed=options.noise_seed)
    corpus = _corpus(options, read, spark, simulation)
    looks = Sample(
        columns=columns,
        table=df.schema,
        reader=WordReader(bundle=bundle, policy=policy),
        fate="They are not evaluated. Take an embedding that has more of them.",
    )
    release = max(mechanism.operations(embedding, search) for mechanism in options.mechanism)
    attacked = sum({1, options.versions})  # outputs of a word that attackers look at, in all
    partitioning = Partitioning(  # no measured number depends on it
        word=options.versions * release + attacked * options.candidates * _ATTACKING,
        sample=looks,
    )
    with progress(spark, "Sampling rows"):
        (total,) = check_ids(df, None if options.trust_id else options.id, F.count(F.lit(1)))
        if options.where:
            check_met(df, source.df)
        looks(selected)
        size = None if options.sample == "all" else options.sample
        chosen = sampled(selected, F.col(ID), rows=total, sample=size)
        frame = partitioning.spread(chosen, F.col(ID))
    rows = SampledRows(
        frame=frame.persist(StorageLevel.MEMORY_ONLY),
        simulation=simulation,
        ways=columns.ways(df.schema),
    )
    try:
        with progress(spark, "Counting words"):
            thirds = count_pairs(rows)
            if not sum(thirds[third].perturbed for third in ATTACKED):
                raise InputError(
                    "There is nothing to evaluate: no word of the attacked rows is perturbed",
                    got=f"{sum(third.rows for third in thirds)} rows, a third of them known to attackers",
                    do="Take rows with words of the embedding that the policy protects",
                )
            known, language = _known(thirds, corpus)
            if target is not None and options.label is not None:
                target.check_class(known_classes(rows, options.label))
        compared = _compared(options, rows, corpus or rows, known, language, thirds)
    finally:
        frame.unpersist()
    return facts.facts_of(
        compared,
        search,
        target=target,
        confidence=options.confidence,
        command=options.release_command,
        embedding=embedding_json(embedding),
        sample={
            "rows": sum(third.rows for third in thirds),
            "of": total,
            "known": thirds[KNOWN].rows,
            "attacked": sum(thirds[third].rows for third in ATTACKED),
            "perturbed": sum(thirds[third].perturbed for third in ATTACKED),
        },
        corpus={
            "from": options.public_corpus or OWN_TEXTS,
            "words": len(language.distinct),
            "pairs": len(language.count),
        },
        guarantee=guarantees(options.mechanism, embedding, search),
    )


def _compared(
    options: EvaluateOptions,
    rows: SampledRows,
    texts: SampledRows,
    known: Mapping[int, PairCounts],
    counts: PairCounts,
    thirds: Sequence[Counted],
) -> list[Comparison]:
    """Compare all settings in each attacked third that has rows; attackers learn from ``texts``."""
    spark = rows.frame.sparkSession

    def right(mechanism: Mechanism | None, *, original: bool = False) -> dict[int, Sums]:
        """What models get right of all classes, by attacked third."""
        sums: dict[int, Sums] = {third: {} for third in ATTACKED}
        if options.label is not None:
            names = ("accuracy", "accuracy_on_original")
            of_label = classify(
                rows, options.label, names, mechanism, original=original, by_class=True
            )
            sums = {third: of_label[third] for third in ATTACKED}
        if options.author is not None:
            of_author = classify(
                rows, options.author, ("attribution",), mechanism, original=original
            )
            sums = {third: sums[third] | of_author[third] for third in ATTACKED}
        return sums

    with progress(spark, "Learning the language"):
        languages = languages_of(texts, known, of_attacked=options.public_corpus is None)
    # The observer who links rows knows their words, also those that a public corpus lacks.
    of_attacked = [thirds[third].pairs for third in ATTACKED if texts is not rows]
    prior = word_prior(reduce(add, of_attacked, counts))
    row_counts = reduce(add, (third.row_counts for third in thirds))
    alike = None
    if is_encrypted(spark):
        alike = {third: thirds[third].lengths for third in ATTACKED}
    settings = (None, *options.mechanism)
    outcomes = list[dict[int, Outcome]]()
    for number, mechanism in enumerate(settings, 1):
        name = "the floors" if mechanism is None else mechanism.options
        with progress(spark, f"{number} of {len(settings)}: {name}"):
            channel = channel_of(
                spark,
                rows.simulation.bundle,
                rows.simulation.search,
                mechanism,
                prior,
                seed=rows.simulation.seed,
                limit=options.channel_limit,
            )
            knowledge = knowledge_of(
                texts,
                languages,
                channel,
                mechanism,
                versions=options.versions,
                candidates=options.candidates,
                row_counts=row_counts,
            )
            recovered = simulate(rows, mechanism, knowledge, options.versions, alike)
            learnt = right(mechanism)
            recovered = {third: sums | learnt[third] for third, sums in recovered.items()}
        if mechanism is None:
            floors = recovered
        else:
            outcomes.append(
                {
                    third: Outcome(mechanism=mechanism, sums=sums, channel=channel)
                    for third, sums in recovered.items()
                }
            )
    ideal: dict[int, Sums] = {}
    if options.label or options.author:
        with progress(spark, "Learning from the originals"):
            ideal = right(None, original=True)
    return [
        Comparison(
            outcomes=tuple(outcome[third] for outcome in outcomes),
            floor=floor,
            ideal=ideal.get(third, {}),
        )
        for third, floor in floors.items()
    ]


def _columns(options: EvaluateOptions) -> TableColumns:
    return TableColumns(
        text=() if options.text is None else (options.text,),
        tokens=() if options.tokens is None else (options.tokens,),
        keep=tuple(name for name in (options.label, options.author) if name),
        id=options.id,
        path=options.input,
        slots=options.policy.spans_column,
    )


def _corpus(
    options: EvaluateOptions, read: Format, spark: SparkSession, simulation: Simulation
) -> SampledRows | None:
    if options.public_corpus is None:
        return None
    columns = replace(_columns(options), keep=(), id=None, slots=None)
    source = replace(read, place=options.public_corpus).open(spark)
    columns.check(source.df, source.partitions)
    selected = columns.select(source.df, F.lit("")).withColumn("third", F.lit(KNOWN))
    ways = columns.ways(source.df.schema)
    return SampledRows(frame=selected, simulation=simulation.public, ways=ways)


def _known(
    thirds: Sequence[Counted], corpus: SampledRows | None
) -> tuple[dict[int, PairCounts], PairCounts]:
    """Give what attackers learn the language from: by third, and all of it together.

    Without a public corpus the rows of the check alone must not have a share in the choice of a
    setting.
    """
    if corpus is None:
        own = {third: thirds[KNOWN].pairs + thirds[third].pairs for third in ATTACKED}
        return own, reduce(add, (third.pairs for third in thirds))
    known = reduce(add, (counted.pairs for counted in count_pairs(corpus)))
    if not len(known.distinct):
        raise InputError(
            "The --public-corpus has no word of the embedding",
            do="Give texts of the language of the input, in a column of the same name",
        )
    return dict.fromkeys(ATTACKED, known), known
