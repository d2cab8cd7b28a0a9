"""Calibration over Spark: blocks of words in waves, each kept until the tables that need all are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark import __version__
from dptext_spark.calibration import Estimator, Transitions, estimator, record, target, word_statistics
from dptext_spark.calibration.estimators import EstimatorName
from dptext_spark.calibration.report import write_report
from dptext_spark.calibration.target import Bracket, Target
from dptext_spark.config import CalibrateOptions, all_of
from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.privatizer import check_release_words
from dptext_spark.report import embedding_json, versions
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.tables import Storage, plain_errors, session

PARTS: Final = ".parts"
"""Folder, inside the calibration's, of what is done already while a run is not finished."""

BATCHES: Final = 16
"""Groups of blocks, each evenly spread over the sample, whose means tell how sure a mean is."""

_KEYS: Final = ("setting", "epsilon")
_WORDS: Final = ("n_w", "n_w_low", "n_w_high", "s_w", "s_eta", "entropy", "h_0", "h_inf")
_CELLS: Final = ("outputs", "counts", "seen")
_DENIABILITY: Final = ("deniability", "deniability_p5")
_DESCRIBED: Final = ("n_w", "s_w", "s_eta", "entropy", "h_0", "h_inf", *_DENIABILITY)
_SINGLE: Final = ("bayes_risk_uniform", "bayes_risk_zipf")
_NUMBERS: Final = ("mean", "sd", "min", "p5", "p50", "p95", "max")

_SCHEMA: Final = "setting string, block int, epsilon double, word int, " + ", ".join(
    f"{name} double" for name in _WORDS
)
_CELL_SCHEMA: Final = f"{_SCHEMA}, outputs array<int>, counts array<double>, seen array<double>"

_EXAMPLES: Final = [*_KEYS, "word", "output", "count"]

# Words per Arrow batch: each brings its outputs along.
_ROWS: Final = 256

# Tasks of a wave for each core, and in all at least: enough to keep cores busy, and to lose little.
_TASKS_PER_CORE: Final = 4
_LEAST_TASKS: Final = 16

_NEIGHBOURS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_DISTANCE_WORDS: Final = 256


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a worker needs to measure a block of words; with the bundle's content it decides every number.

    Attributes:
        bundle: Where the embedding is.
        settings: The mechanism at each epsilon, under the name of its other parameters.
        estimator: How transitions are estimated.
        release_words: How many words may be output.
        runs: Runs of each word at each epsilon.
        seed: Public; the noise follows from it.
        words: Words of the sample, evenly spread over the vocabulary.
        blocks: Blocks that the sample is dealt out to, word by word.
        confidence: Of each word's interval.
        eta: Mass that s_eta may leave out.
    """

    bundle: BundleFiles
    settings: tuple[tuple[str, tuple[Mechanism, ...]], ...]
    estimator: EstimatorName
    release_words: int
    runs: int
    seed: int
    words: int
    blocks: int
    confidence: float
    eta: float

    def identity(self) -> str:
        """Hash what decides the numbers."""
        value = asdict(replace(self, settings=())) | {
            "version": __version__,
            "bundle": self.bundle.fingerprint,
            "settings": [(m.name, m.model_dump(mode="json")) for _, grid in self.settings for m in grid],
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]

    def block(self, number: int, vocabulary: int) -> NDArray[np.int64]:
        """Rows of the words of a block."""
        return np.arange(number, self.words, self.blocks) * vocabulary // self.words

    def measured(self, setting: int, block: int, *, cells: bool) -> pa.Table:
        """Measure a block of words: a row for each epsilon and word, with its transitions if asked for."""
        name, grid = self.settings[setting]
        words = self.block(block, len(_opened(self.bundle).words))
        transitions = _estimator(self, setting)(words, block=block)
        table = word_statistics(transitions, confidence=self.confidence, eta=self.eta)
        epsilons = np.array([m.epsilon for m in grid])[table["epsilon_index"].to_numpy()]
        columns = {
            "setting": pa.repeat(name, len(table)),
            "block": np.full(len(table), block, dtype=np.int32),
            "epsilon": epsilons,
            **{column: table[column].combine_chunks() for column in ("word", *_WORDS)},
        }
        return pa.table(columns | (_lists(transitions) if cells else {}))


@lru_cache(maxsize=2)
def _opened(bundle: BundleFiles) -> Embedding:
    return bundle.open()


@lru_cache(maxsize=2)
def _estimator(plan: Plan, setting: int) -> Estimator:
    return estimator(
        plan.settings[setting][1],
        _opened(plan.bundle),
        release_words=plan.release_words,
        runs=plan.runs,
        seed=plan.seed,
        name=plan.estimator,
    )


def _lists(transitions: Transitions) -> dict[str, pa.Array]:
    """The cells of each epsilon and word as lists."""
    keys = transitions.epsilon_index.astype(np.int64) << 32 | transitions.word
    offsets = pa.array(np.flatnonzero(np.diff(keys, prepend=-1, append=-1)), pa.int32())
    values = (transitions.output, transitions.count.astype(np.float64), transitions.seen)
    lists = (pa.ListArray.from_arrays(offsets, pa.array(column)) for column in values)
    return dict(zip(_CELLS, lists, strict=True))


def _measure_batches(plan: Plan, cells: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Measure (setting, block) pairs; runs in Python workers."""
    for batch in batches:
        for setting, block in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield from plan.measured(setting, block, cells=cells).to_batches(max_chunksize=_ROWS)


def _name_batches(
    bundle: BundleFiles, columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Put words for their rows in the bundle; runs in Python workers."""
    words = _opened(bundle).words
    for batch in batches:
        named = [
            words.take(column) if name in columns else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(named, names=batch.schema.names)


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """The account of one calibration; what calibration.json holds."""

    value: Mapping[str, Any]

    def to_json(self) -> str:
        """Write the report as JSON text."""
        return json.dumps(self.value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say the main numbers in plain words."""
        value = self.value
        lines = [
            f"{value['options']['mechanism']}: {value['sample']['words']:,} of "
            f"{value['embedding']['words']:,} words, {value['runs']:,} runs each, "
            f"{value['estimator']} estimator, {value['release_words']:,} words may be output",
            "",
            *_table_lines(value["summary"]),
        ]
        lines += ["", *map(_target_line, value["target"])] if value["target"] else []
        lines += ["", *map(_gain_line, value["gains"])] if value["gains"] else []
        lines += ["", *map(_match_line, value["matches"])] if value["matches"] else []
        return "\n".join(lines)


_SHOWN: Final = (
    ("n_w", "mean"),
    ("n_w", "p95"),
    ("n_w", "max"),
    ("s_w", "p5"),
    ("s_w", "mean"),
    ("entropy", "mean"),
    ("k_w", "p50"),
    ("deniability", "p50"),
    ("bayes_risk_uniform", "mean"),
)


def _table_lines(summary: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    groups: dict[tuple[str, float], dict[str, Mapping[str, Any]]] = {}
    for row in summary:
        groups.setdefault((row["setting"], row["epsilon"]), {})[row["statistic"]] = row
    width = max(len(setting) for setting, _ in groups)
    heads = [name if name in _SINGLE else f"{number}({name})" for name, number in _SHOWN]
    yield "  ".join([" " * width, " epsilon", *heads]).rstrip()
    for (setting, epsilon), rows in groups.items():
        cells = [
            f"{rows[name][number]:{len(head)}.4g}" for (name, number), head in zip(_SHOWN, heads, strict=True)
        ]
        yield "  ".join([f"{setting:{width}}", f"{epsilon:8g}", *cells])


def _target_line(found: Mapping[str, Any]) -> str:
    said = f"Target {found['target']}, confidence {found['confidence']:g}"
    setting = f" ({found['setting']})" if found["setting"] else ""
    if found["epsilon"] is None:
        return f"{said}{setting}: not met by any epsilon tried, down to {found['missed']:g}"
    missed = (
        f"epsilon {found['missed']:g} misses it" if found["missed"] else "no larger epsilon tried misses it"
    )
    numbers = f"measured {found['measured']:.4g}, at confidence {found['bound']:.4g}"
    return f"{said}: {found['options']}  ({numbers}; {missed})"


def _gain_line(gain: Mapping[str, Any]) -> str:
    return (
        f"{gain['setting']} against {gain['baseline']}, epsilon {gain['epsilon']:g}: {gain['statistic']} "
        f"{gain['difference']:+.4g} ({gain['low']:+.4g} to {gain['high']:+.4g})"
    )


def _match_line(match: Mapping[str, Any]) -> str:
    epsilon = "outside this grid" if match["epsilon"] is None else f"epsilon {match['epsilon']:.4g}"
    there, here = match["other"], [match["mechanism"], *([match["setting"]] if match["setting"] else [])]
    named = ", ".join([there["mechanism"], *([there["setting"]] if there["setting"] else [])])
    return (
        f"{match['n_w']} N_w {match['value']:.4g} of {named}, epsilon {there['epsilon']:g}: "
        f"{', '.join(here)}, {epsilon}"
    )


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
    """See whether the output folder is free, or another run's to continue; remove it on ``--overwrite``."""
    place, parts = options.output.rstrip("/"), f"{options.output.rstrip('/')}/{PARTS}"
    if not storage.exists(place):
        return
    started = storage.exists(parts)
    finished = storage.exists(f"{place}/{record.FILE}")
    if not (started or finished):
        raise ConfigError(f"The output {place} exists and is not a calibration", do="Choose another --output")
    if options.overwrite:
        storage.delete(place)
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
        words = self._kept(_with_deniability(parts, self.options.gamma, self.plan.runs), "words")
        outputs = self._kept(_outputs(parts), "outputs")
        found = self._targets(words)
        summary = self._summary(words, outputs)
        self._write("words", words.drop("block").orderBy(*_KEYS, "word"), "word")
        self._write("outputs", outputs.select(*_KEYS, "word", "k_w").orderBy(*_KEYS, "word"), "word")
        if self.options.transitions:
            cells = _exploded(parts).select(*_KEYS, "word", "output", "count")
            self._write("transitions", cells, "word", "output")
        if self.options.example:
            self._write("examples", self._examples(), "word", "output")
        self._write("summary", self._frame(summary))
        report = self._report(words, summary, found, other)
        self.storage.write(f"{self.place}/{record.FILE}", report.to_json())
        place = self.storage.real(self.place)
        if place.startswith("file:"):
            write_report(Path(place.removeprefix("file:")), words_of_choice=self.options.example)
        self.storage.delete(f"{self.place}/{PARTS}")
        return report

    def _examples(self) -> DataFrame:
        """Measure the example words, in a block of their own."""
        words, tables = _rows(self.embedding, self.options.example), []
        for number, (name, grid) in enumerate(self.plan.settings):
            found = _estimator(self.plan, number)(words, block=self.plan.blocks)
            epsilons = np.array([m.epsilon for m in grid])[found.epsilon_index]
            columns = [pa.repeat(name, len(epsilons)), epsilons, found.word, found.output]
            tables.append(pa.table([*columns, found.count.astype(np.float64)], names=_EXAMPLES))
        return self.spark.createDataFrame(pa.concat_tables(tables))

    def measure(self, plan: Plan, place: str, *, cells: bool) -> DataFrame:
        """Measure what is not yet measured under ``place``, wave by wave, and read all of it."""
        schema = _CELL_SCHEMA if cells else _SCHEMA
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
        measured = pairs.mapInArrow(
            partial(_measure_batches, plan, cells), _CELL_SCHEMA if cells else _SCHEMA
        )
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
            df = df.mapInArrow(partial(_name_batches, self.plan.bundle, words), ", ".join(kinds))
        named = F.lit(self._mechanism).alias("mechanism")
        self._write_whole(df.select(named, *df.columns), f"{self.place}/{name}")

    @property
    def _mechanism(self) -> str:
        return self.options.mechanism[0].name

    def _summary(self, words: DataFrame, outputs: DataFrame) -> list[dict[str, Any]]:
        """Rows of the summary, in the order of settings, epsilons and statistics."""
        stacked = [
            df.unpivot(list(_KEYS), list(names), "statistic", "value")
            for df, names in ((words, _DESCRIBED), (outputs, ("k_w",)))
        ]
        rows = [
            {name: row[name] for name in (*_KEYS, "statistic")} | _distribution(row.asDict())
            for row in stacked[0]
            .unionByName(stacked[1])
            .groupBy(*_KEYS, "statistic")
            .agg(*_moments(F.col("value")))
            .collect()
        ]
        rows += self._risks(outputs)
        order = (*_DESCRIBED, "k_w", *_SINGLE)
        settings = [name for name, _ in self.plan.settings]
        rows.sort(key=lambda r: (settings.index(r["setting"]), r["epsilon"], order.index(r["statistic"])))
        return [{"mechanism": self._mechanism, **row} for row in rows]

    def _risks(self, outputs: DataFrame) -> Iterator[dict[str, Any]]:
        vocabulary = len(self.embedding.words)
        ranks = np.concatenate([self.plan.block(b, vocabulary) for b in range(self.plan.blocks)])
        weights = {"uniform": len(ranks), "zipf": float(np.sort(1.0 / (ranks + 1.0)).sum())}
        best = [_exact_sum(F.col(name)).alias(name) for name in weights]
        for row in outputs.groupBy(*_KEYS).agg(*best).collect():
            for name, weight in weights.items():
                risk = float(row[name]) / (self.plan.runs * weight)
                numbers = dict.fromkeys(_NUMBERS) | {"mean": risk}
                yield {**{k: row[k] for k in _KEYS}, "statistic": f"bayes_risk_{name}", **numbers}

    def _frame(self, summary: list[dict[str, Any]]) -> DataFrame:
        columns = (*_KEYS, "statistic", *_NUMBERS)
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
            (batches,) = _batch_means(words, [wanted.column]).values()
            tail = 1.0 - self.options.confidence
            mean, low, high = target.mean_interval(batches[wanted.column], batches["n"], tail)
            if self.exact and self.plan.words == len(self.embedding.words):
                return mean, mean
            return mean, high if wanted.upper else low
        measured = words.agg(_quantile(wanted.column, target.LEVELS[wanted.statistic])).collect()[0][0]
        ordered = words.select(wanted.bounded_column).orderBy(wanted.bounded_column)
        bound = ordered.offset(self._rank(wanted) - 1).limit(1).collect()[0][0]
        return float(measured), float(bound)

    def _gains(self, words: DataFrame) -> Iterator[dict[str, Any]]:
        """Differences of N_w and S_w between each setting and the first, word by word."""
        settings = [name for name, _ in self.plan.settings]
        if len(settings) == 1:
            return
        means = _batch_means(words, ["n_w", "s_w"])
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
                "guarantee": [
                    {"setting": name, **m.guarantee(self.embedding).to_json()}
                    for name, grid in settings
                    for m in grid
                ],
                "summary": summary,
                "gains": list(self._gains(words)),
                "target": found,
                "matches": list(record.matches(other, summary)) if other else [],
                "versions": versions(),
            }
        )


def _exploded(parts: DataFrame) -> DataFrame:
    """One row for each cell."""
    cells = parts.select(*_KEYS, "word", F.explode(F.arrays_zip(*_CELLS)).alias("cell"))
    names = {"outputs": "output", "counts": "count", "seen": "seen"}
    return cells.select(*_KEYS, "word", *(F.col(f"cell.{field}").alias(n) for field, n in names.items()))


def _outputs(parts: DataFrame) -> DataFrame:
    """K_w of each output, and its most likely input's expected count under two priors."""
    # Integers add up alike in any order: 2^32 to one.
    seen = F.sum(F.round(F.col("seen") * 2.0**32).cast("long")) / 2.0**32
    return (
        _exploded(parts)
        .groupBy(*_KEYS, F.col("output").alias("word"))
        .agg(
            seen.alias("k_w"),
            F.max("count").alias("uniform"),
            F.max(F.col("count") / (F.col("word") + 1.0)).alias("zipf"),
        )
    )


def _with_deniability(parts: DataFrame, gamma: float, runs: int) -> DataFrame:
    """Add to each word how many words are about as likely behind its outputs: mean and p5 over its runs.

    See :func:`dptext_spark.calibration.deniability`.
    """
    # A hair wider, so that rounding of the logarithms does not exclude what is as likely as that.
    reach = float(np.log(gamma)) + 2.0**-40
    as_likely = F.expr(
        "count(1) OVER (PARTITION BY setting, epsilon, output ORDER BY -ln(count) "
        f"RANGE BETWEEN UNBOUNDED PRECEDING AND {reach!r}D FOLLOWING)"
    )
    cells = _exploded(parts).select(*_KEYS, "word", "count", as_likely.alias("k"))
    lists = cells.groupBy(*_KEYS, "word").agg(
        F.array_sort(F.collect_list(F.struct("k", "count"))).alias("cells")
    )
    words = lists.select(*_KEYS, "word", *_over_runs("cells", runs))
    return parts.drop(*_CELLS).join(words, [*_KEYS, "word"])


def _over_runs(cells: str, runs: int) -> Iterator[Column]:
    """Mean and 5% quantile of k over runs, from k and count in ascending order."""
    total = F.aggregate(cells, F.lit(0.0), lambda sum_, cell: sum_ + cell["k"] * cell["count"])
    nothing = F.struct(F.lit(0.0).alias("mass"), F.lit(0).cast("long").alias("k"))
    reached = F.aggregate(
        cells,
        nothing,
        lambda so_far, cell: F.when(
            so_far["mass"] < 0.05 * runs * (1.0 - 1e-9),
            F.struct((so_far["mass"] + cell["count"]).alias("mass"), cell["k"].alias("k")),
        ).otherwise(so_far),
    )
    yield (total / float(runs)).alias(_DENIABILITY[0])
    yield reached["k"].cast("double").alias(_DENIABILITY[1])


def _exact_sum(value: Column) -> Column:
    """A sum that does not depend on the order of rows."""
    return F.sum(value.cast("decimal(38, 18)"))


def _quantile(column: str, level: float) -> Column:
    """A value that occurs, the smallest that the share ``level`` of the values does not exceed."""
    if level in (0.0, 1.0):
        return F.min(column) if level == 0.0 else F.max(column)
    return F.expr(f"percentile_disc({level}) WITHIN GROUP (ORDER BY {column})")


# Squares of nine digits after the point fit a decimal, and leave no variance where there is none.
_SHORT: Final = "decimal(18, 9)"


def _moments(value: Column) -> list[Column]:
    short = value.cast(_SHORT)
    return [
        F.count(F.lit(1)).alias("n"),
        _exact_sum(value).alias("sum"),
        F.sum(short).alias("short_sum"),
        F.sum(short * short).alias("squares"),
        *(_quantile("value", level).alias(name) for name, level in target.LEVELS.items()),
    ]


def _distribution(row: Mapping[str, Any]) -> dict[str, float]:
    n = int(row["n"])
    variance = Fraction(row["squares"]) / n - (Fraction(row["short_sum"]) / n) ** 2
    numbers = {"mean": float(Fraction(row["sum"]) / n), "sd": float(max(variance, Fraction(0))) ** 0.5}
    return numbers | {name: float(row[name]) for name in target.LEVELS}


def _batch_means(
    words: DataFrame, columns: Sequence[str]
) -> dict[tuple[str, float], dict[str, NDArray[np.float64]]]:
    """Means of columns over each of the batches, for each setting and epsilon, and the batches' words, n."""
    batch = (F.col("block") % BATCHES).alias("batch")
    sums = [_exact_sum(F.col(name)).alias(name) for name in columns]
    rows = words.groupBy(*_KEYS, batch).agg(F.count(F.lit(1)).alias("n"), *sums).collect()
    means: dict[tuple[str, float], dict[str, NDArray[np.float64]]] = {}
    for key in sorted({(row["setting"], row["epsilon"]) for row in rows}):
        own = sorted((r for r in rows if (r["setting"], r["epsilon"]) == key), key=lambda r: int(r["batch"]))
        means[key] = {c: np.array([float(Fraction(r[c]) / r["n"]) for r in own]) for c in columns}
        means[key]["n"] = np.array([float(r["n"]) for r in own])
    return means


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
