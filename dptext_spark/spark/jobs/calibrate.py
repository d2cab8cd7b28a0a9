"""The job of ``dptext calibrate``: settings and epsilons in, tables of what they do to words out."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark.calibration import record
from dptext_spark.calibration.findings import CalibrationReport
from dptext_spark.calibration.grid import Grid, example_ids, fitting_estimator
from dptext_spark.calibration.summary_table import AVERAGED, KEYS, gains, summary
from dptext_spark.calibration.target import Target, tuned
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.options import CalibrateOptions
from dptext_spark.report import drawing
from dptext_spark.report.facts import embedding_json, versions
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.local_paths import local_path
from dptext_spark.spark.measuring import aggregates
from dptext_spark.spark.measuring.folder import CalibrationFolder
from dptext_spark.spark.measuring.waves import Waves
from dptext_spark.spark.session import session
from dptext_spark.spark.table.local_files import LocalFiles
from dptext_spark.spark.table.local_table import is_plain
from dptext_spark.spark.table.storage import Storage


def run(options: CalibrateOptions) -> CalibrationReport:
    """Run ``dptext calibrate``: measure in waves, aggregate, search for the target, write.

    A run that was killed leaves its finished waves under ``.parts``; the same options continue there and end
    with the same tables. calibration.json comes last: where it is, the calibration is whole.

    Raises:
        DptextError: Options do not go together, the folder is of other options, or the job failed.
    """
    if options.compare and is_plain() and local_path(options.compare):
        record.read(options.compare, LocalFiles().read)
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
    place, identity = options.output.rstrip("/"), grid.identity(embedding.fingerprint)
    if is_plain() and local_path(place):
        CalibrationFolder.check_free(LocalFiles(), place, identity, overwrite=options.overwrite)
    drawing.announce("report.html and plots", drawing.PAGE)
    spark = session("dptext calibrate")
    storage = Storage(spark)
    other = record.read(options.compare, storage.read) if options.compare else None
    bundle = BundleFiles.send(spark, embedding)
    folder = CalibrationFolder(storage=storage, place=place, mechanism=grid.mechanism)
    failed = "The Spark job of the calibration failed; the same command continues it"
    with plain_errors(failed):
        parts = folder.claim(identity, overwrite=options.overwrite)
        waves = Waves(spark=spark, storage=storage, folder=parts, bundle=bundle)
        tables = [_measured(waves, grid, "grid")]
        found = [] if target is None else _tuned(target, options, grid, embedding, waves, tables[0][1])
        # A release takes the epsilon that was found: the tables have it too.
        chosen = {n: e for n, row in enumerate(found) if (e := row["epsilon"]) and e not in grid.epsilons(n)}
        for number, epsilon in chosen.items():
            alone = grid.at(number, epsilon, embedding)
            tables.append(_measured(waves, alone, f"found-{number}-{epsilon!r}"))
        cells, words, outputs = (reduce(DataFrame.unionByName, parts) for parts in zip(*tables, strict=True))
        whole = grid.also_at(chosen)
        batches = aggregates.batch_means(words, AVERAGED)
        found_of = aggregates.moments(words, outputs), aggregates.means(words), batches
        rows = summary(whole, *found_of, aggregates.guesses(outputs))
        folder.clear()
        write = partial(folder.write, waves)
        write("words", words.drop("block", "rank").orderBy(*KEYS, "word"), "word")
        write("outputs", outputs.select(*KEYS, "word", "k_w").orderBy(*KEYS, "word"), "word")
        if options.transitions:
            write("transitions", aggregates.exploded(cells).drop("rank", "judged"), "word", "output")
        if options.example:
            write("examples", spark.createDataFrame(whole.examples(embedding, examples)), "word", "output")
        table = pa.Table.from_pylist(rows).drop_columns("mechanism")
        write("summary", spark.createDataFrame(table).coalesce(1))
        report = CalibrationReport.of(
            whole,
            embedding,
            options=options.to_json(),
            facts=embedding_json(embedding),
            versions=versions(),
            summary=rows,
            gains=gains(batches, grid),
            target=found,
            other=other,
        )
        folder.finish(report, examples=options.example)
    return report


def _measured(waves: Waves, grid: Grid, name: str) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Measure a grid under a name: its cells, and what they say of words and of outputs."""
    cells = waves.measured(grid, name, cells=True)
    words = waves.kept(aggregates.with_posterior(cells, grid), f"{name}-words")
    return cells, words, waves.kept(aggregates.output_statistics(cells, grid), f"{name}-outputs")


def _tuned(
    target: Target,
    options: CalibrateOptions,
    grid: Grid,
    embedding: Embedding,
    waves: Waves,
    words: DataFrame,
) -> list[dict[str, Any]]:
    """Search each setting's largest epsilon that meets the target, and measure what is not yet measured."""
    searched = target.searched(grid)

    def measure(number: int, epsilon: float) -> tuple[float, float]:
        if searched == grid and epsilon in grid.epsilons(number):
            own = (F.col("setting") == grid.names[number]) & (F.col("epsilon") == epsilon)
            measured = words.where(own)
        else:
            alone = searched.at(number, epsilon, embedding)
            measured = waves.measured(alone, f"target-{number}-{epsilon!r}", cells=False)
        return aggregates.bounded(measured, target, searched)

    return [
        tuned(target, grid, number, partial(measure, number), release_words=options.release_words)
        for number in range(len(grid.settings))
    ]
