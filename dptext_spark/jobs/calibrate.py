"""The job of ``dptext calibrate``: mechanisms and epsilons in, tables of what they do to words out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from dptext_spark.bars import progress, stage
from dptext_spark.calibration import facts, measure
from dptext_spark.calibration.estimators import Grid
from dptext_spark.calibration.facts import (
    KEYS,
    OF_WORDS,
    Target,
    bounding_rank,
    searched,
    summary,
    tuned,
)
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.options import CalibrateOptions
from dptext_spark.report.facts import Report, embedding_json
from dptext_spark.report.text import announce_missing
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.session import session
from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.result_folder import check_free, write_results
from dptext_spark.tables.storage import LocalFiles, Storage, is_plain

# Words of highest N_w that the page shows.
_TOP_WORDS: Final = 12


def run(options: CalibrateOptions) -> Report:
    """Run ``dptext calibrate``: measure, search for the target, write tables, facts and page."""
    with stage("Opening the embedding"):
        embedding = Embedding.open(options.embedding)
        by_spec = [
            [each for each in options.mechanism if each.spec == spec] for spec in options.specs
        ]
        search, *_ = all_of(
            lambda: options.search_over(embedding, options.release_words),
            *(partial(own[0].prepare, embedding) for own in by_spec),
        )
        given = {name: getattr(options, name) for name in ("words", "runs", "eta", "confidence")}
        given["seed"] = options.noise_seed
        grids = [Grid.over(embedding, search, own, **given) for own in by_spec]
    target = None if options.target is None else Target.parse(options.target)
    if target is not None:
        for grid in grids:
            bounding_rank(target, searched(target, grid))  # refuses what so many words cannot bound
    place = options.output.rstrip("/")
    if is_plain():
        check_free(LocalFiles(), place, facts.FILE, overwrite=options.overwrite)
    announce_missing("report.html and plots")
    spark = session("dptext calibrate")
    storage = Storage(spark)

    with plain_errors("The Spark job of the calibration failed"):
        check_free(storage, place, facts.FILE, overwrite=options.overwrite)
        bundle = BundleFiles.send(spark, embedding)
        make = partial(_measured, options, spark, embedding, bundle, grids, target)
        return write_results(
            spark, storage, options, make, file=facts.FILE, text=facts.said, page=facts.page
        )


def _measured(
    options: CalibrateOptions,
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    grids: Sequence[Grid],
    target: Target | None,
    folder: str,
) -> dict[str, Any]:
    """Search for the target, measure grids, and write the tables; give the facts."""
    found, whole = [], list(grids)
    for number, grid in enumerate(grids):
        if target is None:
            break
        with progress(spark, f"Searching the epsilon at which {grid.name} meets {target}"):
            look = partial(_look, spark, embedding, bundle, target, grid)
            found.append(tuned(target, grid, look, release_words=options.release_words))
        # A release takes the epsilon that was found: the tables have it too.
        whole[number] = grid.at(*filter(None, {*grid.epsilons, found[-1]["epsilon"]}))
    epsilons = ", ".join(
        f"{epsilon:g}" for epsilon in sorted({e for grid in whole for e in grid.epsilons})
    )
    with progress(spark, f"Measuring {grids[0].words:,} words at epsilon {epsilons}"):
        words, outputs, cells = measure.tables(spark, bundle, whole)
    try:
        with progress(spark, "Adding up"):
            moments = (
                measure.moments(words, OF_WORDS),
                measure.moments(outputs, ("k_w", *measure.GUESSES)),
            )
            rows = summary(whole, *moments)
            least_protected = measure.least_protected(words, embedding.words, top=_TOP_WORDS)
        with progress(spark, "Writing tables"):
            for name, own in (
                ("words", words.drop("rank")),
                ("outputs", outputs.select(*KEYS, "word", "k_w")),
            ):
                measure.with_words(own.orderBy(*KEYS, "word"), bundle).write.parquet(
                    f"{folder}/{name}"
                )
            from_arrow(spark, pa.Table.from_pylist(rows)).coalesce(1).write.parquet(
                f"{folder}/summary"
            )
    finally:
        for frame in (words, outputs, cells):
            frame.unpersist()
    with stage("Measuring distances between words"):
        of = embedding_json(embedding)
        return facts.facts_of(
            whole, embedding, embedding=of, summary=rows, words=least_protected, target=found
        )


def _look(
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    target: Target,
    grid: Grid,
    epsilon: float,
) -> tuple[float, float]:
    """Give the target's statistic at an epsilon, and its bound."""
    alone = searched(target, grid).at(epsilon)
    alone.mechanisms[0].check(embedding)
    words = measure.measured(spark, bundle, (alone,)).drop(*measure.CELLS).persist()
    try:
        return measure.bounded(words, target, alone)
    finally:
        words.unpersist()
