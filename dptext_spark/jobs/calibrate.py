"""The job of ``dptext calibrate``: mechanisms in, tables of what they do to words out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from dptext_spark.bars import progress, stage
from dptext_spark.calibration import facts, measure, page, text
from dptext_spark.calibration.estimators import Grid
from dptext_spark.calibration.summary import KEYS, OF_WORDS, Rows, summary
from dptext_spark.calibration.target import Target, bounding_rank, searched, tuned
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import CalibrateOptions
from dptext_spark.report.facts import Report, embedding_json
from dptext_spark.report.text import announce_missing
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.result_folder import check_free, result_folder, write_report
from dptext_spark.tables.storage import LocalFiles, Storage

# Words of highest N_w that the page shows.
_TOP_WORDS: Final = 12


def run(options: CalibrateOptions) -> Report:
    """Run ``dptext calibrate``: search for the target, measure, write tables, facts and page."""
    with stage("Opening the embedding"):
        embedding = Embedding.open(options.embedding)
        grids = _grids(options, embedding)
    target = None if options.target is None else Target.parse(options.target)
    if target is not None:
        for grid in grids:
            bounding_rank(target, searched(target, grid))  # refuses what so many words cannot bound
    check_free(LocalFiles(), options, facts.FILE)
    announce_missing("report.html and plots")
    spark = session("dptext calibrate")
    storage = Storage(spark)

    with spark_errors("The Spark job of the calibration failed"):
        check_free(storage, options, facts.FILE)
        bundle = BundleFiles.send(spark, embedding)
        # Claimed before hours of measuring: another run with this output ends at once.
        with result_folder(spark, storage, options) as folder:
            choices: Rows = []
            if target is not None:
                for grid in grids:
                    choices.append(_choice(options, spark, embedding, bundle, target, grid))
                grids = _with_choices(grids, choices)
            measured = _measured(spark, embedding, bundle, grids, folder)
            with stage("Measuring distances between words"):
                calibration = facts.facts_of(
                    grids,
                    embedding,
                    embedding=embedding_json(embedding),
                    **measured,
                    target=choices,
                )
            return write_report(
                storage,
                folder,
                options,
                calibration,
                file=facts.FILE,
                text=text.said,
                page=page.page,
            )


def _grids(options: CalibrateOptions, embedding: Embedding) -> list[Grid]:
    """Return the grid of each mechanism, its epsilons ascending."""
    by_spec: dict[str, list[Mechanism]] = {spec: [] for spec in options.specs}
    for mechanism in options.mechanism:
        by_spec[mechanism.spec].append(mechanism)
    search, *_ = all_of(
        lambda: options.search_over(embedding, options.release_words),
        *(partial(mechanisms[0].prepare, embedding) for mechanisms in by_spec.values()),
    )
    grids = []
    for mechanisms in by_spec.values():
        grid = Grid.over(
            embedding,
            search,
            mechanisms,
            words=options.words,
            runs=options.runs,
            seed=options.noise_seed,
            eta=options.eta,
            gamma=options.gamma,
            confidence=options.confidence,
        )
        grids.append(grid)
    return grids


def _choice(
    options: CalibrateOptions,
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    target: Target,
    grid: Grid,
) -> dict[str, Any]:
    """Return the largest epsilon at which a grid's mechanism meets the target, with its numbers."""
    look = partial(_look, spark, embedding, bundle, target, grid)
    with progress(spark, f"Searching the epsilon at which {grid.name} meets {target}"):
        return tuned(target, grid, look, release_options=options.release_options)


def _look(
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    target: Target,
    grid: Grid,
    epsilon: float,
) -> tuple[float, float]:
    """Measure the target's statistic at an epsilon; return it with its bound."""
    look = searched(target, grid).at(epsilon)
    look.mechanisms[0].check(embedding)
    words = measure.measure_words(spark, bundle, (look,))
    if target.arguments == ("k_gamma",):
        words = measure.with_other_words(words.persist(), (look,))
    words = words.drop(*measure.CELLS).persist()
    try:
        return measure.quantile_and_bound(words, target, look)
    finally:
        words.unpersist()


def _with_choices(grids: Sequence[Grid], choices: Rows) -> list[Grid]:
    """Return grids that have the chosen epsilons too: a release takes those."""
    wider_grids = []
    for grid, choice in zip(grids, choices, strict=True):
        epsilons = {*grid.epsilons}
        if choice["epsilon"] is not None:
            epsilons.add(choice["epsilon"])
        wider_grids.append(grid.at(*epsilons))
    return wider_grids


def _measured(
    spark: SparkSession,
    embedding: Embedding,
    bundle: BundleFiles,
    grids: Sequence[Grid],
    folder: str,
) -> dict[str, Rows]:
    """Measure grids, and write their tables; return the summary and the least protected words."""
    epsilons: set[float] = set()
    for grid in grids:
        epsilons.update(grid.epsilons)
    listed = ", ".join(map("{:g}".format, sorted(epsilons)))
    with progress(spark, f"Measuring {grids[0].words:,} words at epsilon {listed}"):
        words, outputs, cells = measure.measure_tables(spark, bundle, grids)
    try:
        with progress(spark, "Adding up"):
            of_words = measure.moments(words, OF_WORDS)
            of_outputs = measure.moments(outputs, ("k_w", *measure.GUESSES))
            rows = summary(grids, of_words, of_outputs)
            least_protected = measure.least_protected(words, embedding.words, top=_TOP_WORDS)
        with progress(spark, "Writing tables"):
            tables = {
                "words": words.drop("rank"),
                "outputs": outputs.select(*KEYS, "word", "k_w"),
            }
            for name, table in tables.items():
                named = measure.with_words(table.orderBy(*KEYS, "word"), bundle)
                named.write.parquet(f"{folder}/{name}")
            summary_table = from_arrow(spark, pa.Table.from_pylist(rows))
            summary_table.coalesce(1).write.parquet(f"{folder}/summary")
    finally:
        for frame in (words, outputs, cells):
            frame.unpersist()
    return {"summary": rows, "words": least_protected}
