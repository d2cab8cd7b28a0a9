"""Calibration over Spark: blocks of words in waves, each kept until the tables that need all are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.calibration import Estimator, estimator, record, target
from dptext_spark.calibration.account import SINGLE, CalibrationReport
from dptext_spark.calibration.record import PAGE, PLOTS
from dptext_spark.calibration.target import Bracket, Target
from dptext_spark.config import all_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import Distances
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.options import CalibrateOptions
from dptext_spark.privatizer import check_release_words
from dptext_spark.report import drawing
from dptext_spark.report.facts import embedding_json, versions
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.measuring.aggregates import (
    BATCHES,
    DENIABILITY,
    KEYS,
    batch_means,
    distribution,
    exact_sum,
    exploded,
    moments,
    output_statistics,
    quantile,
    with_deniability,
)
from dptext_spark.spark.measuring.blocks import (
    CELL_SCHEMA,
    SCHEMA,
    Plan,
    estimator_of,
    measure_batches,
    name_batches,
)
from dptext_spark.spark.session import session
from dptext_spark.spark.table.storage import Storage

PARTS: Final = ".parts"
"""Folder, inside the calibration's, of what is done already while a run is not finished."""

_DESCRIBED: Final = ("n_w", "s_w", "s_eta", "entropy", "h_0", "h_inf", *DENIABILITY)
_NUMBERS: Final = ("mean", "sd", "min", "p5", "p50", "p95", "max")

_TABLES: Final = ("words", "outputs", "transitions", "examples", "summary")
_EXAMPLES: Final = [*KEYS, "word", "output", "count"]

# Tasks of a wave for each core, and in all at least: enough to keep cores busy, and to lose little.
_TASKS_PER_CORE: Final = 4
_LEAST_TASKS: Final = 16

_NEIGHBOURS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_DISTANCE_WORDS: Final = 256


def run_calibrate(options: CalibrateOptions) -> CalibrationReport:
    """Run ``dptext calibrate``: measure in waves, aggregate, search for the target, write.

    A run that was killed leaves its finished waves under ``.parts``; the same options continue there and end
    with the same tables. calibration.json comes last: where it is, the calibration is whole.

    Raises:
        DptextError: Options do not go together, the folder is of other options, or the job failed.
    """
    embedding = Embedding.open(options.embedding)
    release_words, *_ = all_of(
        lambda: check_release_words(embedding, options.release_words),
        lambda: _rows(embedding, options.example),
        *(partial(grid[0].check, embedding) for grid in options.settings.values()),
    )
    kind = _kind(options, embedding, release_words)
    spark = session("dptext calibrate")
    storage = Storage(spark)
    other = record.read(options.compare, storage.read) if options.compare else None
    plan = _plan(options, embedding, release_words, kind, BundleFiles.send(spark, embedding))
    job = Calibration(
        options=options, embedding=embedding, spark=spark, storage=storage, plan=plan, kind=kind
    )
    job.check_target()
    with plain_errors("The Spark job of the calibration failed; the same command continues it"):
        _claim(storage, options, plan.identity())
        return job.run(other)


def _rows(embedding: Embedding, words: Sequence[str]) -> NDArray[np.int64]:
    """Find the rows of words.

    Raises:
        ConfigError: The bundle lacks some of them.
    """
    rows = pc.index_in(pa.array(words, pa.string()), value_set=embedding.words)
    if rows.null_count:
        absent = [word for word, row in zip(words, rows.to_pylist(), strict=True) if row is None]
        raise ConfigError(
            "The bundle lacks words of --example", allowed="words of the bundle", got=", ".join(absent)
        )
    return np.unique(rows.to_numpy(zero_copy_only=False)).astype(np.int64)


def _kind(options: CalibrateOptions, embedding: Embedding, release_words: int) -> type[Estimator]:
    """Say which estimator serves all settings."""
    kinds = [
        type(estimator(grid[:1], embedding, release_words=release_words, runs=1, name=options.estimator))
        for grid in options.settings.values()
    ]
    return kinds[0]


def _plan(
    options: CalibrateOptions,
    embedding: Embedding,
    release_words: int,
    kind: type[Estimator],
    bundle: BundleFiles,
) -> Plan:
    vocabulary = len(embedding.words)
    words = vocabulary if options.words == "all" else min(options.words, vocabulary)
    blocks = BATCHES * -(-words // (BATCHES * kind.block_words))
    return Plan(
        bundle=bundle,
        settings=tuple(
            (name, tuple(m.prepared(embedding) for m in grid)) for name, grid in options.settings.items()
        ),
        estimator=kind.name,
        release_words=release_words,
        runs=options.runs,
        seed=options.noise_seed,
        words=words,
        blocks=min(blocks, words),
        confidence=options.confidence,
        eta=options.eta,
    )


def _claim(storage: Storage, options: CalibrateOptions, identity: str) -> None:
    """See whether the output folder is free, or another run's to continue."""
    place, parts = options.output.rstrip("/"), f"{options.output.rstrip('/')}/{PARTS}"
    if not storage.exists(place):
        return
    started = storage.exists(parts)
    finished = storage.exists(f"{place}/{record.FILE}")
    if not (started or finished):
        raise ConfigError(f"The output {place} exists and is not a calibration", do="Choose another --output")
    if options.overwrite:
        if started and not storage.exists(f"{parts}/{identity}"):
            storage.delete(parts)
    elif not started:
        raise ConfigError(
            f"The calibration {place} exists", do="Choose another --output, or replace it with --overwrite"
        )
    elif not storage.exists(f"{parts}/{identity}"):
        raise ConfigError(
            f"The output {place} holds parts of a calibration with other options",
            allowed="the options that it was started with, which continue it",
            do="Give those, choose another --output, or start anew with --overwrite",
        )


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """One run: where it writes, and what it measures."""

    options: CalibrateOptions
    embedding: Embedding
    spark: SparkSession
    storage: Storage
    plan: Plan
    kind: type[Estimator]

    @property
    def place(self) -> str:
        """The calibration's folder."""
        return self.options.output.rstrip("/")

    @property
    def parts(self) -> str:
        """The folder of what is done already."""
        return f"{self.place}/{PARTS}/{self.plan.identity()}"

    @property
    def exact(self) -> bool:
        """Whether probabilities are computed."""
        return self.kind.name == "exact"

    def check_target(self) -> None:
        """Refuse a target that so many words cannot tell.

        Raises:
            ConfigError: A larger sample is needed, or all words.
        """
        if self.options.target is not None:
            wanted = Target.parse(self.options.target)
            if wanted.statistic != "mean":
                self._rank(wanted)

    def run(self, other: Mapping[str, Any] | None) -> CalibrationReport:
        """Measure, write the tables and then the report; the parts go last."""
        parts = self.measure(self.plan, f"{self.parts}/grid", cells=True)
        words = self._kept(with_deniability(parts, self.options.gamma, self.plan.runs), "words")
        outputs = self._kept(output_statistics(parts), "outputs")
        found = self._targets(words)
        summary = self._summary(words, outputs)
        self._clear()
        self._write("words", words.drop("block").orderBy(*KEYS, "word"), "word")
        self._write("outputs", outputs.select(*KEYS, "word", "k_w").orderBy(*KEYS, "word"), "word")
        if self.options.transitions:
            cells = exploded(parts).select(*KEYS, "word", "output", "count")
            self._write("transitions", cells, "word", "output")
        if self.options.example:
            self._write("examples", self._examples(), "word", "output")
        self._write("summary", self._frame(summary))
        report = self._report(words, summary, found, other)
        self.storage.write(f"{self.place}/{record.FILE}", report.to_json())
        self._write_page()
        self.storage.delete(f"{self.place}/{PARTS}")
        return report

    def _write_page(self) -> None:
        """Write report.html and its figures, from a copy of the tables where they are not on this machine."""
        if drawing.missing_library(drawing.PAGE):
            return
        from dptext_spark.calibration.page import write_report  # slow to load, and not everywhere

        place = self.storage.real(self.place)
        if place.startswith("file:"):
            write_report(Path(place.removeprefix("file:")), words_of_choice=self.options.example)
            return
        with TemporaryDirectory(prefix="dptext-calibration-") as folder:
            for name in (record.FILE, *_TABLES):
                if self.storage.exists(f"{self.place}/{name}"):
                    self.storage.fetch(f"{self.place}/{name}", Path(folder, name))
            write_report(Path(folder), words_of_choice=self.options.example)
            for name in (PAGE, PLOTS):
                self.storage.put(Path(folder, name), f"{self.place}/{name}")

    def _clear(self) -> None:
        """Remove the calibration that was here before, now that this one is measured; its account first."""
        for name in (record.FILE, *_TABLES, PAGE, PLOTS):
            if self.storage.exists(f"{self.place}/{name}"):
                self.storage.delete(f"{self.place}/{name}")

    def _examples(self) -> DataFrame:
        """Measure the example words, in a block of their own."""
        words, tables = _rows(self.embedding, self.options.example), []
        for number, (name, grid) in enumerate(self.plan.settings):
            found = estimator_of(self.plan, number)(words, block=self.plan.blocks)
            epsilons = np.array([m.epsilon for m in grid])[found.epsilon_index]
            columns = [pa.repeat(name, len(epsilons)), epsilons, found.word, found.output]
            tables.append(pa.table([*columns, found.count.astype(np.float64)], names=_EXAMPLES))
        return self.spark.createDataFrame(pa.concat_tables(tables))

    def measure(self, plan: Plan, place: str, *, cells: bool) -> DataFrame:
        """Measure what is not yet measured under ``place``, wave by wave, and read all of it."""
        schema = CELL_SCHEMA if cells else SCHEMA
        done = {first: stop for first, stop, _ in self._waves(place)}
        size = max(_TASKS_PER_CORE * self.spark.sparkContext.defaultParallelism, _LEAST_TASKS)
        start = 0
        while start < plan.blocks:
            if start not in done:
                end = start + -(-size // len(plan.settings))
                stop = min([end, plan.blocks, *(first for first in done if first > start)])
                self._wave(plan, place, start, stop, cells)
                done[start] = stop
            start = done[start]
        return self.spark.read.schema(schema).parquet(*(path for _, _, path in self._waves(place)))

    def _waves(self, place: str) -> list[tuple[int, int, str]]:
        """Finished waves: first block, the block after the last, and where."""
        found = []
        for path in self.storage.matches(f"{place}/blocks-[0-9]*"):
            _, first, stop = path.rpartition("/")[2].split("-")
            if first.isdigit():  # not the pattern itself, which comes where nothing is there
                found.append((int(first), int(stop), path))
        return sorted(found)

    def _wave(self, plan: Plan, place: str, start: int, stop: int, cells: bool) -> None:
        """Measure blocks, one task for each and each setting; the result is there whole or not at all."""
        settings = len(plan.settings)
        tasks = (stop - start) * settings
        pairs = self.spark.range(0, tasks, 1, tasks).select(
            (F.col("id") % settings).cast("int").alias("setting"),
            (F.floor(F.col("id") / settings) + start).cast("int").alias("block"),
        )
        measured = pairs.mapInArrow(partial(measure_batches, plan, cells), CELL_SCHEMA if cells else SCHEMA)
        self._write_whole(measured, f"{place}/blocks-{start:07d}-{stop:07d}")

    def _write_whole(self, df: DataFrame, goal: str) -> None:
        making = f"{self.parts}/making"
        df.write.mode("overwrite").parquet(making)
        if self.storage.exists(goal):
            self.storage.delete(goal)
        # Not every file system makes the folder above on renaming.
        self.storage.make_folder(goal.rpartition("/")[0])
        self.storage.rename(making, goal)

    def _kept(self, df: DataFrame, name: str) -> DataFrame:
        """Compute a frame once."""
        goal = f"{self.parts}/{name}"
        self._write_whole(df, goal)
        return self.spark.read.schema(df.schema).parquet(goal)

    def _write(self, name: str, df: DataFrame, *words: str) -> None:
        """Write one of the calibration's tables, with words for their rows."""
        if words:
            kinds = [
                f"`{f.name}` {'string' if f.name in words else f.dataType.simpleString()}" for f in df.schema
            ]
            df = df.mapInArrow(partial(name_batches, self.plan.bundle, words), ", ".join(kinds))
        named = F.lit(self._mechanism).alias("mechanism")
        self._write_whole(df.select(named, *df.columns), f"{self.place}/{name}")

    @property
    def _mechanism(self) -> str:
        return self.options.mechanism[0].name

    def _summary(self, words: DataFrame, outputs: DataFrame) -> list[dict[str, Any]]:
        """Rows of the summary, in the order of settings, epsilons and statistics."""
        stacked = [
            df.unpivot(list(KEYS), list(names), "statistic", "value")
            for df, names in ((words, _DESCRIBED), (outputs, ("k_w",)))
        ]
        rows = [
            {name: row[name] for name in (*KEYS, "statistic")} | distribution(row.asDict())
            for row in stacked[0]
            .unionByName(stacked[1])
            .groupBy(*KEYS, "statistic")
            .agg(*moments(F.col("value")))
            .collect()
        ]
        rows += self._risks(outputs)
        order = (*_DESCRIBED, "k_w", *SINGLE)
        settings = [name for name, _ in self.plan.settings]
        rows.sort(key=lambda r: (settings.index(r["setting"]), r["epsilon"], order.index(r["statistic"])))
        return [{"mechanism": self._mechanism, **row} for row in rows]

    def _risks(self, outputs: DataFrame) -> Iterator[dict[str, Any]]:
        vocabulary = len(self.embedding.words)
        ranks = np.concatenate([self.plan.block(b, vocabulary) for b in range(self.plan.blocks)])
        weights = {"uniform": len(ranks), "zipf": float(np.sort(1.0 / (ranks + 1.0)).sum())}
        best = [exact_sum(F.col(name)).alias(name) for name in weights]
        for row in outputs.groupBy(*KEYS).agg(*best).collect():
            for name, weight in weights.items():
                risk = float(row[name]) / (self.plan.runs * weight)
                numbers = dict.fromkeys(_NUMBERS) | {"mean": risk}
                yield {**{k: row[k] for k in KEYS}, "statistic": f"bayes_risk_{name}", **numbers}

    def _frame(self, summary: list[dict[str, Any]]) -> DataFrame:
        columns = (*KEYS, "statistic", *_NUMBERS)
        kinds = "setting string, epsilon double, statistic string, " + ", ".join(
            f"{n} double" for n in _NUMBERS
        )
        rows = [tuple(row[name] for name in columns) for row in summary]
        return self.spark.createDataFrame(rows, kinds).coalesce(1)

    def _targets(self, words: DataFrame) -> list[dict[str, Any]]:
        if self.options.target is None:
            return []
        wanted = Target.parse(self.options.target)
        return [self._target(wanted, number, words) for number in range(len(self.plan.settings))]

    def _target(self, wanted: Target, number: int, words: DataFrame) -> dict[str, Any]:
        """Search the largest epsilon of one setting that meets the target."""
        setting, grid = self.plan.settings[number]
        base = self.options.settings[setting][0]
        tried: dict[float, tuple[float, float]] = {}

        def configured(epsilon: float) -> Mechanism:
            return mechanism(
                base.name, **base.model_dump(by_alias=True, exclude={"epsilon"}), epsilon=epsilon
            )

        def meets(epsilon: float) -> bool:
            if epsilon in [m.epsilon for m in grid]:
                measured = words.where((F.col("setting") == setting) & (F.col("epsilon") == epsilon))
            else:
                one = configured(epsilon).prepared(self.embedding)
                plan = replace(self.plan, settings=((setting, (one,)),))
                measured = self.measure(plan, f"{self.parts}/target-{number}-{epsilon!r}", cells=False)
            tried[epsilon] = self._bounded(wanted, measured)
            return wanted.met(tried[epsilon][1])

        found: Bracket = target.largest_epsilon(meets, [m.epsilon for m in grid])
        measured, bound = (None, None) if found.met is None else tried[found.met]
        return {
            "target": str(wanted),
            "confidence": self.options.confidence,
            "setting": setting,
            "epsilon": found.met,
            "missed": found.missed,
            "measured": measured,
            "bound": bound,
            "options": None if found.met is None else self._release_options(configured(found.met)),
            "tried": [{"epsilon": e, "measured": m, "bound": b} for e, (m, b) in sorted(tried.items())],
        }

    def _release_options(self, configured: Mechanism) -> str:
        """What dptext privatize must be given."""
        words = self.options.release_words
        return record.option_line(configured) + ("" if words is None else f" --release-words {words}")

    def _rank(self, wanted: Target) -> int:
        return wanted.rank(
            self.plan.words,
            whole=self.plan.words == len(self.embedding.words),
            exact=self.exact,
            confidence=self.options.confidence,
        )

    def _bounded(self, wanted: Target, words: DataFrame) -> tuple[float, float]:
        """Measure a target's statistic, and bound it from the side that matters."""
        if wanted.statistic == "mean":
            (batches,) = batch_means(words, [wanted.column]).values()
            tail = 1.0 - self.options.confidence
            mean, low, high = target.mean_interval(batches[wanted.column], batches["n"], tail)
            if self.exact and self.plan.words == len(self.embedding.words):
                return mean, mean
            return mean, high if wanted.upper else low
        measured = words.agg(quantile(wanted.column, target.LEVELS[wanted.statistic])).collect()[0][0]
        ordered = words.select(wanted.bounded_column).orderBy(wanted.bounded_column)
        bound = ordered.offset(self._rank(wanted) - 1).limit(1).collect()[0][0]
        return float(measured), float(bound)

    def _gains(self, words: DataFrame) -> Iterator[dict[str, Any]]:
        """Differences of N_w and S_w between each setting and the first, word by word."""
        settings = [name for name, _ in self.plan.settings]
        if len(settings) == 1:
            return
        means = batch_means(words, ["n_w", "s_w"])
        tail = (1.0 - self.options.confidence) / 2.0
        for setting in settings[1:]:
            for epsilon in self.options.epsilon:
                for name in ("n_w", "s_w"):
                    own, first = means[setting, epsilon], means[settings[0], epsilon]
                    numbers = target.mean_interval(own[name] - first[name], own["n"], tail)
                    yield {
                        "setting": setting,
                        "baseline": settings[0],
                        "epsilon": epsilon,
                        "statistic": name,
                        **dict(zip(("difference", "low", "high"), numbers, strict=True)),
                    }

    def _guarantees(self) -> Iterator[dict[str, Any]]:
        for name, grid in self.plan.settings:
            distances = Distances.measure(grid[0].metric(self.embedding))
            for configured in grid:
                yield {"setting": name, **configured.guarantee(self.embedding, distances).to_json()}

    def _report(
        self,
        words: DataFrame,
        summary: list[dict[str, Any]],
        found: list[dict[str, Any]],
        other: Mapping[str, Any] | None,
    ) -> CalibrationReport:
        settings = self.plan.settings
        return CalibrationReport(
            value={
                "format_version": record.FORMAT_VERSION,
                "options": self.options.to_json(),
                "embedding": embedding_json(self.embedding),
                "release_words": self.plan.release_words,
                "estimator": self.kind.name,
                "runs": self.plan.runs,
                "sample": {"words": self.plan.words, "blocks": self.plan.blocks},
                "distances": {name: _distances(grid[0], self.embedding) for name, grid in settings},
                "guarantee": list(self._guarantees()),
                "summary": summary,
                "gains": list(self._gains(words)),
                "target": found,
                "matches": list(record.matches(other, summary)) if other else [],
                "versions": versions(),
            }
        )


def _distances(configured: Mechanism, embedding: Embedding) -> dict[str, Any]:
    """Quantiles, over words evenly spread, of the distance to the k-th nearest other word."""
    metric = configured.metric(embedding)
    words = np.arange(0, metric.words, -(-metric.words // _DISTANCE_WORDS))
    ranks = [k for k in _NEIGHBOURS if k < metric.words]
    found = np.partition(metric.to_all(words), ranks, axis=1)[:, ranks]
    levels = list(target.LEVELS.values())
    quantiles = np.quantile(found, levels, axis=0, method="inverted_cdf").T.tolist()
    neighbours = [
        {"neighbour": k, **dict(zip(target.LEVELS, row, strict=True))}
        for k, row in zip(ranks, quantiles, strict=True)
    ]
    return {"metric": metric.description, "words": len(words), "neighbours": neighbours}
