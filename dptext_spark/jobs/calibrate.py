"""The job of ``dptext calibrate``: settings and epsilons in, tables of what they do to words out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.calibration import record
from dptext_spark.calibration.findings import CalibrationReport
from dptext_spark.calibration.grid import Grid, example_ids, fitting_estimator
from dptext_spark.calibration.summary_table import AVERAGED, KEYS, gains, summary
from dptext_spark.calibration.target import Target, tuned
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.measuring import aggregates
from dptext_spark.measuring.blocks import measured, with_words
from dptext_spark.measuring.folder import check_free, finish
from dptext_spark.options import CalibrateOptions
from dptext_spark.report import drawing
from dptext_spark.report.facts import embedding_json, versions
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.spark.session import session
from dptext_spark.tables.beforehand import is_plain
from dptext_spark.tables.local_files import LocalFiles, local_path
from dptext_spark.tables.output import write_whole
from dptext_spark.tables.storage import Storage

_TABLES = ("words", "outputs", "transitions", "examples", "summary")


def run(options: CalibrateOptions) -> CalibrationReport:
    """Run ``dptext calibrate``: measure, aggregate, search for the target, write.

    The folder takes its name when it is whole; a run that was killed begins anew.

    Raises:
        DptextError: Options do not go together, the output is not free, or the job failed.
    """
    embedding = Embedding.open(options.embedding)
    search, examples, *_ = all_of(
        lambda: options.search_over(embedding, options.release_words),
        lambda: example_ids(embedding, options.example),
        *(partial(mechanisms[0].prepare, embedding) for mechanisms in options.settings.values()),
    )
    settings = tuple(options.settings.items())
    fitting = fitting_estimator(settings, embedding, search, options.estimator)
    vocabulary = embedding.inputs
    grid = Grid(
        settings=settings,
        estimator=fitting.name,
        block_words=fitting.block_words,
        monotone=fitting.monotone,
        search=search,
        runs=options.runs,
        seed=options.noise_seed,
        vocabulary=vocabulary,
        words=vocabulary if options.words == "all" else min(options.words, vocabulary),
        confidence=options.confidence,
        eta=options.eta,
    )
    target = None if options.target is None else Target.parse(options.target)
    if target is not None:
        target.rank(target.searched(grid))  # refuses what so many words cannot tell
    place = options.output.rstrip("/")
    if is_plain() and local_path(place):
        check_free(LocalFiles(), place, record.FILE, overwrite=options.overwrite)
    drawing.announce("report.html and plots", drawing.PAGE)
    spark = session("dptext calibrate")
    storage = Storage(spark)
    with plain_errors("The Spark job of the calibration failed"):
        check_free(storage, place, record.FILE, overwrite=options.overwrite)
        calibration = _Calibration(
            options=options,
            spark=spark,
            storage=storage,
            embedding=embedding,
            bundle=BundleFiles.send(spark, embedding),
            grid=grid,
            target=target,
            examples=examples,
            other=record.read(options.compare, storage.read) if options.compare else None,
        )
        reports: list[CalibrationReport] = []
        write_whole(
            storage,
            place,
            lambda folder: reports.append(calibration.write(folder)),
            run=str(spark.sparkContext.applicationId),
            overwrite=options.overwrite,
        )
    return reports[0]


@dataclass(frozen=True, kw_only=True)
class _Calibration:
    """A calibration that is to be made.

    Attributes:
        options: What is asked for.
        spark, storage: Where it is measured, and where it is written.
        embedding, bundle: The embedding, here and on workers.
        grid: What is measured.
        target: What is searched for, if anything.
        examples: Ids of words whose substitutions are shown.
        other: A calibration to compare with.
    """

    options: CalibrateOptions
    spark: SparkSession
    storage: Storage
    embedding: Embedding
    bundle: BundleFiles
    grid: Grid
    target: Target | None
    examples: np.ndarray
    other: Mapping[str, Any] | None

    def write(self, folder: str) -> CalibrationReport:
        """Measure, and write tables, findings and page."""
        options, grid, spark = self.options, self.grid, self.spark
        tables = [self._measured(grid, folder, "grid")]
        found = [] if self.target is None else self._tuned(self.target, tables[0][1])
        # A release takes the epsilon that was found: the tables have it too.
        chosen = {n: e for n, row in enumerate(found) if (e := row["epsilon"]) and e not in grid.epsilons(n)}
        for number, epsilon in chosen.items():
            tables.append(self._measured(grid.at(number, epsilon, self.embedding), folder, f"found-{number}"))
        cells, words, outputs = (reduce(DataFrame.unionByName, parts) for parts in zip(*tables, strict=True))
        whole = grid.also_at(chosen)
        batches = aggregates.batch_means(words, AVERAGED)
        rows = summary(whole, aggregates.moments(words, outputs), batches, aggregates.guesses(outputs))
        named = {
            "words": (words.drop("block", "rank").orderBy(*KEYS, "word"), ("word",)),
            "outputs": (outputs.select(*KEYS, "word", "k_w").orderBy(*KEYS, "word"), ("word",)),
            "summary": (
                spark.createDataFrame(pa.Table.from_pylist(rows).drop_columns("mechanism")).coalesce(1),
                (),
            ),
        }
        if options.transitions:
            named["transitions"] = (
                aggregates.exploded(cells).drop("rank", "judged"),
                ("word", "output"),
            )
        if options.example:
            named["examples"] = (
                spark.createDataFrame(whole.examples(self.embedding, self.examples)),
                ("word", "output"),
            )
        with progress(spark, "Writing tables"):
            for name, (df, columns) in named.items():
                df = with_words(df, self.bundle, *columns) if columns else df
                df = df.select(F.lit(grid.mechanism).alias("mechanism"), *df.columns)
                df.write.parquet(f"{folder}/{name}")
        report = CalibrationReport.of(
            whole,
            self.embedding,
            options=options.to_json(),
            facts=embedding_json(self.embedding),
            versions=versions(),
            summary=rows,
            gains=gains(batches, grid),
            target=found,
            other=self.other,
        )
        finish(
            self.storage,
            folder,
            report.to_json(),
            files=(record.FILE, *_TABLES),
            drawn=(record.PAGE, record.PLOTS),
            page=drawing.PAGE,
            draw=self._draw,
        )
        return report

    def _draw(self, folder: Path) -> None:
        from dptext_spark.calibration.page import write_report  # slow to load, and not everywhere

        write_report(folder, words_of_choice=self.options.example)

    def _measured(self, grid: Grid, folder: str, name: str) -> tuple[DataFrame, DataFrame, DataFrame]:
        """Measure a grid: its cells, and what they say of words and of outputs, each computed once.

        They are kept beside the tables, in the run's hidden folder, and go with it.
        """

        def kept(df: DataFrame, kind: str) -> DataFrame:
            place = f"{folder}-{name}-{kind}"
            df.write.parquet(place)
            return self.spark.read.schema(df.schema).parquet(place)

        epsilons = ", ".join(f"{epsilon:g}" for epsilon in grid.epsilons(0))
        with progress(self.spark, f"Measuring words at epsilon {epsilons}"):
            cells = kept(measured(self.spark, self.bundle, grid, cells=True), "cells")
            words = kept(aggregates.with_posterior(cells, grid), "words")
            return cells, words, kept(aggregates.output_statistics(cells, grid), "outputs")

    def _tuned(self, target: Target, words: DataFrame) -> list[dict[str, Any]]:
        """Search each setting's largest epsilon that meets the target, and measure what was not measured."""
        grid, searched = self.grid, target.searched(self.grid)

        def measure(number: int, epsilon: float) -> tuple[float, float]:
            if searched == grid and epsilon in grid.epsilons(number):
                own = (F.col("setting") == grid.names[number]) & (F.col("epsilon") == epsilon)
                return aggregates.bounded(words.where(own), target, searched)
            alone = searched.at(number, epsilon, self.embedding)
            with progress(self.spark, f"Trying epsilon {epsilon:g}"):
                found = measured(self.spark, self.bundle, alone, cells=False).persist()
                try:
                    return aggregates.bounded(found, target, searched)
                finally:
                    found.unpersist()

        return [
            tuned(target, grid, number, partial(measure, number), release_words=self.options.release_words)
            for number in range(len(grid.settings))
        ]
