"""The job of ``dptext evaluate``: a private table and settings in, risks and uses of each out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
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
from dptext_spark.estimates.rehearsal import Rehearsal
from dptext_spark.estimates.topics import read_topics
from dptext_spark.evaluation import facts, page, text, vector_facts
from dptext_spark.evaluation.classify import classify, known_classes
from dptext_spark.evaluation.comparison import Comparison, Outcome
from dptext_spark.evaluation.language import PairCounts, word_prior
from dptext_spark.evaluation.measures import ESTIMATED_WORDS, Sums
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
from dptext_spark.evaluation.vectors import Classes
from dptext_spark.evaluation.vectors_on_spark import VectorRehearsal, bound_settings
from dptext_spark.geometry import Floats32
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.vectors import TEXT_WORDS, VectorNoise
from dptext_spark.options import EvaluateOptions
from dptext_spark.report.facts import Report, embedding_json, now
from dptext_spark.report.text import announce_missing
from dptext_spark.search.nearest import Search
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.batch import ID
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.input_table import InputTable, input_format
from dptext_spark.tables.partitioning import Partitioning, is_encrypted
from dptext_spark.tables.places import INPUT, OUTPUT, Places
from dptext_spark.tables.result_folder import check_free, result_folder, write_report
from dptext_spark.tables.source import own_session
from dptext_spark.tables.storage import Storage
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.word_reader import WordReader

OWN_TEXTS: Final = (
    "the known rows; how often words and pairs occur they know of the attacked rows, too"
)

# Work of a candidate for an output of a word, in operations of a matrix product.
_ATTACKING: Final = 2e5


def run(options: EvaluateOptions) -> Report:
    """Run ``dptext evaluate``: sample rows, simulate and attack each setting, compare, write."""
    read = input_format(options)
    paths = [(OUTPUT, "--output", options.output.rstrip("/"))]
    if read.has_path:
        paths.insert(0, (INPUT, "--input", options.input))
    started = now()
    places = Places.of(paths)
    columns = _columns(options)
    all_of(
        lambda: _check_paths(places, options, read),
        lambda: read.check_columns(places.storage, columns),
    )
    with stage("Opening the embedding"):
        embedding = Embedding.open(options.embedding)
        search = options.search_over(embedding, options.release_words)
        settings = _vector_settings(options, embedding)
    announce_missing("report.html and plots")
    spark = own_session(session("dptext evaluate"))
    storage = Storage(spark)

    with spark_errors("The Spark job of the evaluation failed"):
        _check_paths(places.with_spark(spark), options, read)
        # Claimed before hours of measuring: another run with this output ends at once.
        with result_folder(spark, storage, options, private=True) as folder:
            table = InputTable.open(spark, options, read, columns)
            _check_classes(options, table)
            write = partial(write_report, storage, folder, options, file=facts.FILE, private=True)
            if settings:
                evaluation = _evaluation_of_vectors(options, table, embedding, search, settings)
                return write(evaluation, text=vector_facts.said, page=vector_facts.page)
            evaluation = _evaluation(options, table, read, embedding, search)
            evaluation["started"] = started
            return write(evaluation, text=text.said, page=page.page)


def _check_paths(places: Places, options: EvaluateOptions, read: Format) -> None:
    """Refuse places that overlap, an output that is not free, an input that is absent."""
    places.check_apart()
    check_free(places.storage, options, facts.FILE)
    read.check_files(places.storage)


def _evaluation(
    options: EvaluateOptions,
    table: InputTable,
    read: Format,
    embedding: Embedding,
    search: Search,
) -> dict[str, Any]:
    """Measure all settings on a sample of the table; return the facts."""
    spark = table.df.sparkSession
    target = _target(options, spark)
    bundle = BundleFiles.send(spark, embedding)
    simulation = Simulation(
        bundle=bundle, policy=options.policy, search=search, seed=options.noise_seed
    )
    corpus = _corpus(options, read, spark, simulation)
    total, rows = _sampled_rows(options, table, simulation, embedding)
    try:
        with progress(spark, "Counting words"):
            thirds = count_pairs(rows)
            attacked = [thirds[third] for third in ATTACKED]
            perturbed = _sum(attacked, "perturbed")
            if not perturbed:
                raise InputError(
                    "There is nothing to evaluate: no word of the attacked rows is perturbed",
                    got=f"{_sum(thirds, 'rows')} rows, a third of them known to attackers",
                    do="Take rows with words of the embedding that the policy protects",
                )
            known_pairs, language = _known_pairs(thirds, corpus)
            if target is not None and options.label is not None:
                target.check_class(known_classes(rows, options.label))
        compared = _compared(options, rows, corpus or rows, known_pairs, language, thirds)
    finally:
        rows.frame.unpersist()
    sample = {
        "rows": _sum(thirds, "rows"),
        "of": total,
        "known": thirds[KNOWN].rows,
        "attacked": _sum(attacked, "rows"),
        "perturbed": perturbed,
    }
    texts = {
        "from": options.public_corpus or OWN_TEXTS,
        "words": len(language.distinct),
        "pairs": len(language.count),
    }
    return facts.facts_of(
        compared,
        search,
        target=target,
        confidence=options.confidence,
        command=options.release_command,
        embedding=embedding_json(embedding),
        sample=sample,
        corpus=texts,
        guarantee=guarantees(options.mechanism, embedding, search),
    )


def _vector_settings(options: EvaluateOptions, embedding: Embedding) -> tuple[VectorNoise, ...]:
    """Return the settings of vectors, bound to the bundle; none where words are evaluated."""
    if not options.vectors:
        return ()
    words = TEXT_WORDS
    if options.tokens:
        words = 1
    return bound_settings(options.vector_settings, embedding, words=words)


def _evaluation_of_vectors(
    options: EvaluateOptions,
    table: InputTable,
    embedding: Embedding,
    search: Search,
    settings: Sequence[VectorNoise],
) -> dict[str, Any]:
    """Measure all settings of vectors on a sample of the table; return the facts."""
    spark = table.df.sparkSession
    target = _target(options, spark)
    if target is not None and options.label is None:
        target = replace(target, keeping=vector_facts.KEEPING)
    policy = WORDS_ALONE.model_copy(update={"tokenizer": options.policy.tokenizer})
    simulation = Simulation(
        bundle=BundleFiles.send(spark, embedding),
        policy=policy,
        search=search,
        seed=options.noise_seed,
    )
    rehearsal = VectorRehearsal(
        settings=tuple(settings),
        classes=Classes(options.label, options.author),
        by_word=options.tokens is not None,
    )
    total, rows = _sampled_rows(options, table, simulation, embedding)
    try:
        with progress(spark, "Releasing and attacking vectors"):
            if target is not None and options.label is not None:
                target.check_class(known_classes(rows, options.label))
            counts = rows.frame.groupBy("third").count().collect()
            compared = rehearsal.compare(rows)
    finally:
        rows.frame.unpersist()
    if not compared:
        raise InputError(
            "There is nothing to evaluate: no known row has a vector, or no attacked row has one",
            do="Take more rows",
        )
    by_third = {row["third"]: row["count"] for row in counts}
    attacked = sum(by_third.get(third, 0) for third in ATTACKED)
    sample = {"rows": sum(by_third.values()), "of": total, "known": by_third.get(KNOWN, 0)}
    sample["attacked"] = attacked
    return vector_facts.facts_of(
        compared,
        settings,
        target=target,
        confidence=options.confidence,
        command=options.release_command,
        embedding=embedding_json(embedding),
        sample=sample,
    )


def _sum(thirds: Iterable[Counted], name: str) -> Any:
    """Add up what was counted under a name."""
    return reduce(add, (getattr(third, name) for third in thirds))


def _target(options: EvaluateOptions, spark: SparkSession) -> Target | None:
    """Return the target of the options; refuse one that cannot be measured in this session."""
    if options.target is None:
        return None
    target = Target.parse(options.target)
    if options.label is not None:
        target = replace(target, keeping="balanced_accuracy")
    if target.measure == "linked" and not options.vectors and not is_encrypted(spark):
        raise ConfigError(f"The --target {target} cannot be measured here", do=text.NOT_LINKED)
    return target


def _check_classes(options: EvaluateOptions, table: InputTable) -> None:
    """Refuse columns whose values are no classes."""
    for option, name in {"--label": options.label, "--author": options.author}.items():
        if name is None:
            continue
        kind = table.source.df.schema[name].dataType
        if not isinstance(kind, AtomicType):
            raise InputError(
                f"Column {name} of {option} has no classes",
                allowed="text, numbers, booleans or dates",
                got=kind.simpleString(),
            )


def _sampled_rows(
    options: EvaluateOptions, table: InputTable, simulation: Simulation, embedding: Embedding
) -> tuple[int, SampledRows]:
    """Check the rows and draw those that are evaluated; return how many there are, and these."""
    sample = table.sample(
        WordReader(bundle=simulation.bundle, policy=simulation.policy),
        fate="They are not evaluated. Take a larger embedding.",
    )
    operations = [
        mechanism.operations(embedding, simulation.search) for mechanism in options.mechanism
    ]
    release = max(operations, default=0.0)
    attacked_outputs = sum({1, options.versions})  # of a word, that attackers look at
    partitioning = Partitioning(  # no measured number depends on it
        word=options.versions * release + attacked_outputs * options.candidates * _ATTACKING,
        sample=sample,
    )
    with progress(table.df.sparkSession, "Sampling rows"):
        (total,) = table.check_rows(F.count(F.lit(1)))
        sample(table.rows)
        size = options.sample if options.sample != "all" else None
        drawn = sampled(table.rows, F.col(ID), rows=total, sample=size)
        frame = partitioning.spread(drawn, F.col(ID)).persist(StorageLevel.MEMORY_ONLY)
    return total, SampledRows(frame=frame, simulation=simulation, ways=table.fields)


def _compared(
    options: EvaluateOptions,
    rows: SampledRows,
    texts: SampledRows,
    known_pairs: Mapping[int, PairCounts],
    language: PairCounts,
    thirds: Sequence[Counted],
) -> list[Comparison]:
    """Compare all settings in each attacked third that has rows; attackers learn from ``texts``."""
    spark = rows.frame.sparkSession
    with progress(spark, "Learning the language"):
        languages = languages_of(texts, known_pairs, of_attacked=options.public_corpus is None)
    # The observer who links rows knows their words, also those that a public corpus lacks.
    of_attacked = [thirds[third].pairs for third in ATTACKED if texts is not rows]
    prior = word_prior(reduce(add, of_attacked, language))
    row_counts = _sum(thirds, "row_counts")
    lengths = None
    if is_encrypted(spark):
        lengths = {third: thirds[third].lengths for third in ATTACKED}
    settings = (None, *options.mechanism)
    floors: dict[int, Sums] = {}
    outcomes: defaultdict[int, list[Outcome]] = defaultdict(list)
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
            rehearsal = _rehearsal(options, rows, mechanism, thirds)
            knowledge = knowledge_of(
                texts,
                languages,
                channel,
                mechanism,
                versions=options.versions,
                candidates=options.candidates,
                row_counts=row_counts,
                topics=None if rehearsal is None else rehearsal.topics,
            )
            recovered = simulate(rows, mechanism, knowledge, options.versions, lengths)
            means = None
            if options.label is not None:
                means = channel.means(prior, rows.simulation.embedding.vectors)
            learnt = _learnt(options, rows, mechanism, means=means)
        for third, sums in recovered.items():
            measured = sums | learnt[third]
            if rehearsal is not None:
                outputs = sums["pairs/after"].words[:-1]
                measured[ESTIMATED_WORDS] = rehearsal.words(outputs)
            if mechanism is None:
                floors[third] = measured
            else:
                outcome = Outcome(mechanism=mechanism, sums=measured, channel=channel)
                outcomes[third].append(outcome)
    ideal: dict[int, Sums] = {}
    if options.label or options.author:
        with progress(spark, "Learning from the originals"):
            ideal = _learnt(options, rows, None, original=True)
    return [
        Comparison(outcomes=tuple(outcomes[third]), floor=floor, ideal=ideal.get(third, {}))
        for third, floor in floors.items()
    ]


def _rehearsal(
    options: EvaluateOptions,
    rows: SampledRows,
    mechanism: Mechanism | None,
    thirds: Sequence[Counted],
) -> Rehearsal | None:
    """Return what an analyst would estimate with, where topics are given."""
    if options.topics is None:
        return None
    simulation = rows.simulation
    return Rehearsal.of(
        mechanism,
        simulation.embedding,
        simulation.search,
        read_topics(options.topics),
        words=_sum([thirds[third] for third in ATTACKED], "perturbed"),
        seed=simulation.seed,
    )


def _learnt(
    options: EvaluateOptions,
    rows: SampledRows,
    mechanism: Mechanism | None,
    *,
    original: bool = False,
    means: Floats32 | None = None,
) -> dict[int, Sums]:
    """Measure how well models learn classes and authors, by attacked third."""
    sums: defaultdict[int, Sums] = defaultdict(dict)
    if options.label is not None:
        uses = ("accuracy", "accuracy_on_original")
        of_label = classify(
            rows,
            options.label,
            uses,
            mechanism,
            original=original,
            by_class=True,
            means=means,
        )
        for third in ATTACKED:
            sums[third] |= of_label[third]
    if options.author is not None:
        risks = ("attribution",)
        of_author = classify(rows, options.author, risks, mechanism, original=original)
        for third in ATTACKED:
            sums[third] |= of_author[third]
    return sums


def _columns(options: EvaluateOptions) -> TableColumns:
    options.policy.check_tokens(tuple(filter(None, [options.tokens])))
    text = filter(None, [options.text])
    tokens = filter(None, [options.tokens])
    unchanged = filter(None, [options.label, options.author])
    return TableColumns(
        text=tuple(text),
        tokens=tuple(tokens),
        keep=tuple(unchanged),
        id=options.id,
        path=options.input,
        slots=options.policy.spans_column,
        vectors=bool(options.vectors),
    )


def _corpus(
    options: EvaluateOptions, read: Format, spark: SparkSession, simulation: Simulation
) -> SampledRows | None:
    """Open the public corpus as rows that attackers know; they need no names."""
    if options.public_corpus is None:
        return None
    corpus = replace(read, place=options.public_corpus)
    corpus.check_files(Storage(spark))
    source = corpus.open(spark)
    columns = replace(_columns(options), keep=(), id=None, slots=None)
    columns.check(source.df, source.partitions)
    rows = columns.select(source.df, F.lit("")).withColumn("third", F.lit(KNOWN))
    paths = columns.field_paths(source.df.schema)
    return SampledRows(frame=rows, simulation=simulation.public, ways=paths)


def _known_pairs(
    thirds: Sequence[Counted], corpus: SampledRows | None
) -> tuple[dict[int, PairCounts], PairCounts]:
    """Return the pairs of words that attackers learn the language from: by third, and in total.

    Without a public corpus the rows of the check alone must not have a share in the choice of a
    setting.
    """
    if corpus is None:
        by_third = {third: thirds[KNOWN].pairs + thirds[third].pairs for third in ATTACKED}
        return by_third, _sum(thirds, "pairs")
    pairs = _sum(count_pairs(corpus), "pairs")
    if not len(pairs.distinct):
        raise InputError(
            "The --public-corpus has no word of the embedding",
            do="Give texts of the language of the input, in a column of the same name",
        )
    return dict.fromkeys(ATTACKED, pairs), pairs
