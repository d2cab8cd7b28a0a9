"""The job of ``dptext calibrate``: mechanisms and epsilons in, tables of what they do to words out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.bars import progress, stage
from dptext_spark.calibration import facts, measure
from dptext_spark.calibration.estimators import Grid
from dptext_spark.calibration.summary import KEYS, Target, bounding_rank, searched, summary, tuned
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.options import CalibrateOptions
from dptext_spark.report import drawing
from dptext_spark.report.facts import Report, embedding_json, versions
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.session import session
from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.local import LocalFiles, is_plain
from dptext_spark.tables.result_folder import check_free, write_results
from dptext_spark.tables.storage import Storage

# Words of highest N_w that the page shows.
_TOP_WORDS: Final = 12


def run(options: CalibrateOptions) -> Report:
    """Run ``dptext calibrate``: measure, search for the target, write tables, facts and page."""
    with stage("Opening the embedding"):
        embedding = Embedding.open(options.embedding)
        by_spec = [[each for each in options.mechanism if each.spec == spec] for spec in options.specs]
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
    drawing.announce("report.html and plots")
    spark = session("dptext calibrate")
    storage = Storage(spark)

    with plain_errors("The Spark job of the calibration failed"):
        check_free(storage, place, facts.FILE, overwrite=options.overwrite)
        bundle = BundleFiles.send(spark, embedding)
        make = partial(_measured, options, spark, embedding, bundle, grids, target)
        return write_results(spark, storage, options, facts, make)


def _measured(
    options: CalibrateOptions,
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    grids: Sequence[Grid],
    target: Target | None,
    folder: str,
) -> dict[str, Any]:
    """Measure grids, search for the target, and write the tables; give the facts."""
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in sorted({e for grid in grids for e in grid.epsilons}))
    with progress(spark, f"Measuring {grids[0].words:,} words at epsilon {epsilons}"):
        tables = [measure.tables(spark, bundle, grids, place=f"{folder}-grid")]
    found, added, whole = [], [], list(grids)
    for number, grid in enumerate(grids):
        if target is None:
            break
        with progress(spark, f"Searching the epsilon at which {grid.name} meets {target}"):
            look = partial(_look, spark, embedding, bundle, target, tables[0][0], grid)
            found.append(tuned(target, grid, look, release_words=options.release_words))
        if (epsilon := found[-1]["epsilon"]) not in (None, *grid.epsilons):
            added.append(grid.at(epsilon))
            whole[number] = grid.at(*grid.epsilons, epsilon)
    if added:
        # A release takes the epsilon that was found: the tables have it too.
        with progress(spark, "Measuring words at the epsilons that were found"):
            tables.append(measure.tables(spark, bundle, added, place=f"{folder}-found"))
    with progress(spark, "Adding up"):
        words, outputs = (reduce(DataFrame.unionByName, parts) for parts in zip(*tables, strict=True))
        moments, won = measure.moments(words, outputs), measure.guesses(outputs)
        rows = summary(whole, moments, won)
        least_protected = measure.least_protected(words, embedding.words, top=_TOP_WORDS)
    named = {
        "words": measure.with_words(words.drop("rank").orderBy(*KEYS, "word"), bundle),
        "outputs": measure.with_words(outputs.select(*KEYS, "word", "k_w").orderBy(*KEYS, "word"), bundle),
        "summary": from_arrow(spark, pa.Table.from_pylist(rows)).coalesce(1),
    }
    with progress(spark, "Writing tables"):
        for name, df in named.items():
            df.write.parquet(f"{folder}/{name}")
    with stage("Measuring distances between words"):
        return facts.facts_of(
            whole,
            embedding,
            options=options.to_json(),
            embedding=embedding_json(embedding),
            summary=rows,
            words=least_protected,
            target=found,
            versions=versions(),
        )


def _look(
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    target: Target,
    words: DataFrame,
    grid: Grid,
    epsilon: float,
) -> tuple[float, float]:
    """Give the target's statistic at an epsilon, and its bound; of the ``words`` measured where it can."""
    sharp = searched(target, grid)
    if sharp == grid and epsilon in grid.epsilons:
        own = (F.col("mechanism") == grid.name) & (F.col("epsilon") == epsilon)
        return measure.bounded(words.where(own), target, grid)
    alone = sharp.at(epsilon)
    alone.mechanisms[0].check(embedding)
    found = measure.measured(spark, bundle, (alone,), cells=False).persist()
    try:
        return measure.bounded(found, target, alone)
    finally:
        found.unpersist()
