"""The job of ``dptext estimate``: a released table in, true statistics out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.bars import progress, stage
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.estimates import facts, page, text
from dptext_spark.estimates.cells import Row
from dptext_spark.estimates.frames import Estimation
from dptext_spark.estimates.topics import read_topics
from dptext_spark.options import EstimateOptions
from dptext_spark.report.facts import Report, embedding_json
from dptext_spark.report.text import announce_missing
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.output import whole_table
from dptext_spark.tables.places import INPUT, OUTPUT, Places
from dptext_spark.tables.result_folder import check_free, result_folder, write_report
from dptext_spark.tables.source import own_session, where
from dptext_spark.tables.storage import Storage

_BY_RANK: Final = "by rank in the bundle"


def run(options: EstimateOptions) -> Report:
    """Run ``dptext estimate``: read report and table, work out the channel, count, write."""
    read = Format.named(options.format, options.input, options.read_options)
    read.check_can_read(has_id=True, grows=False)  # it names no row
    places = _places(options, read)
    _check_paths(places, options, read)
    lists = {} if options.topics is None else read_topics(options.topics)
    with stage("Opening the embedding"):
        embedding = Embedding.open(options.embedding)
    announce_missing("report.html and plots")
    spark = own_session(session("dptext estimate"))
    storage = Storage(spark)
    with spark_errors("The Spark job of the estimates failed"):
        _check_paths(places.with_spark(spark), options, read)
        report = storage.read(options.release)
        source = read.open(spark)
        df = where(source.df, options.where) if options.where else source.df
        with result_folder(spark, storage, options) as folder:
            with _opened(options, df, _corpus(options, read, spark), report, embedding) as opened:
                tables = _estimated(options, opened, lists)
                if options.features is not None:
                    _write_features(options, opened, spark)
            _write_tables(spark, folder, tables)
            estimates = facts.facts_of(
                opened.facts(),
                tables,
                prior=options.public_corpus or _BY_RANK,
                features=options.features,
                trust=opened.posterior.trust if options.in_context else None,
            )
            return write_report(
                storage,
                folder,
                options,
                {**estimates, "embedding": embedding_json(embedding)},
                file=facts.FILE,
                text=text.said,
                page=page.page,
            )


def _places(options: EstimateOptions, read: Format) -> Places:
    paths = [(OUTPUT, "--output", options.output.rstrip("/"))]
    if read.has_path:
        paths.insert(0, (INPUT, "--input", options.input))
    if options.features is not None:
        paths.append(("Features", "--features", options.features.rstrip("/")))
    return Places.of(paths)


def _check_paths(places: Places, options: EstimateOptions, read: Format) -> None:
    """Refuse places that overlap, an output that is not free, an input that is absent."""
    places.check_apart()
    check_free(places.storage, options, facts.FILE)
    read.check_files(places.storage)


@contextmanager
def _opened(
    options: EstimateOptions,
    df: DataFrame,
    corpus: DataFrame | None,
    report: str,
    embedding: Embedding,
) -> Iterator[Estimation]:
    opened = Estimation.open(
        df,
        report=report,
        embedding=embedding,
        text=options.text,
        by=options.by,
        time=options.time_unit,
        person=options.person,
        corpus=corpus,
        patterns=options.identifier_patterns,
        channel_words=options.channel_words,
        cache=options.cache,
        confidence=options.confidence,
        seed=options.noise_seed,
    )
    try:
        yield opened
    finally:
        opened.closed()


def _estimated(
    options: EstimateOptions, opened: Estimation, lists: dict[str, list[str]]
) -> dict[str, list[Row]]:
    """Estimate what the options ask for: tables by their names."""
    spark = opened.df.sparkSession
    tables: dict[str, list[Row]] = {name: [] for name in (*facts.TABLES, "lists")}
    with progress(spark, "Reading the table"):
        opened.counts  # noqa: B018
    with stage("Working out the channel"):
        opened.matrices  # noqa: B018
    lists = {**_words(options, opened), **lists}
    if lists:
        with progress(spark, "Counting topics"):
            tables |= opened.topics(lists)
    if options.frequencies is not None:
        with stage("Estimating frequencies"):
            tables["frequencies"] = opened.frequencies(options.frequencies)
    return tables


def _words(options: EstimateOptions, opened: Estimation) -> dict[str, list[str]]:
    """Return the words to estimate one by one, each a list of its own."""
    if options.words is None:
        return {}
    lists = {}
    if options.words.isdecimal():
        names = opened.words
        for place in opened.frequent(int(options.words)).tolist():
            lists[names[place]] = [names[place]]
        return lists
    try:
        lines = Path(options.words).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The words {options.words} cannot be read",
            allowed="a number, or a file of words, one a line",
            got=type(error).__name__,
        ) from None
    for line in lines:
        word = line.strip()
        if word:
            lists[word] = [word]
    return lists


def _corpus(options: EstimateOptions, read: Format, spark: SparkSession) -> DataFrame | None:
    if options.public_corpus is None:
        return None
    corpus = replace(read, place=options.public_corpus)
    corpus.check_files(Storage(spark))
    return corpus.open(spark).df


def _write_tables(spark: SparkSession, folder: str, tables: Mapping[str, list[Row]]) -> None:
    with progress(spark, "Writing tables"):
        for name in facts.TABLES:
            if tables[name]:
                table = from_arrow(spark, pa.Table.from_pylist(tables[name]))
                table.coalesce(1).write.parquet(f"{folder}/{name}")


def _write_features(options: EstimateOptions, opened: Estimation, spark: SparkSession) -> None:
    place = str(options.features).rstrip("/")
    with (
        progress(spark, "Writing features"),
        whole_table(spark, place, overwrite=options.overwrite, replace="--overwrite") as folder,
    ):
        opened.features(in_context=options.in_context).write.parquet(folder)
