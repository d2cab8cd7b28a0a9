"""Words measured on Spark, and statistics of them: the same numbers in whatever order rows come."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from dptext_spark.calibration.estimators import PRIORS, Estimator, Grid, Prior, estimator
from dptext_spark.calibration.statistics import LEVELS, OF_WORD, word_statistics
from dptext_spark.calibration.summary import KEYS, Key, Rows
from dptext_spark.calibration.target import Target, bounding_rank
from dptext_spark.spark.bundle_files import BundleFiles

CELLS: Final = ("output", "count", "judged")

SCHEMA: Final = (
    f"mechanism string, epsilon double, rank int, word int, {' double, '.join(OF_WORD)} double, "
    "output array<int>, count array<double>, judged array<double>"
)

GUESSES: Final = ("uniform", "uniform_judged", "zipf", "zipf_judged")
"""What guessers win at an output, see :func:`output_statistics`."""

# Logarithms of counts are compared in these units: whole numbers, as windows of Spark want.
_LOG_UNITS: Final = 2.0**20
# Words per Arrow batch: each brings its outputs along.
_ROWS: Final = 256


def measure_words(spark: SparkSession, bundle: BundleFiles, grids: Sequence[Grid]) -> DataFrame:
    """Measure the words of grids with their transitions, one task for each block of each."""
    tasks: list[tuple[Grid, int]] = []
    for grid in grids:
        tasks += [(grid, block) for block in range(grid.blocks)]
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(partial(_measure, bundle, tasks), SCHEMA)


def _measure(
    bundle: BundleFiles, tasks: Sequence[tuple[Grid, int]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Measure blocks by the numbers of their tasks: a row for each epsilon and word."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            grid, block = tasks[number]
            yield from _measure_block(bundle, grid, block).to_batches(max_chunksize=_ROWS)


def _measure_block(bundle: BundleFiles, grid: Grid, block: int) -> pa.Table:
    """Measure the words of a block at each epsilon."""
    transitions = _estimator(bundle, grid)(grid.block(block), block=block)
    statistics = word_statistics(transitions, confidence=grid.confidence, eta=grid.eta)
    epsilons = np.array(grid.epsilons)
    # Words come in ascending order, as their ranks do, at each epsilon.
    ranks = np.tile(grid.ranks_of(block), len(epsilons)).astype(np.int32)
    columns: dict[str, Any] = {
        "mechanism": pa.repeat(grid.name, len(statistics)),
        "epsilon": epsilons[statistics["epsilon_index"].to_numpy()],
        "rank": ranks,
    }
    for name in ("word", *OF_WORD):
        columns[name] = statistics[name].combine_chunks()
    offsets = pa.array(np.append(transitions.starts, len(transitions.count)), pa.int32())
    for name in CELLS:
        kind = np.int32 if name == "output" else np.float64
        cells = getattr(transitions, name)
        columns[name] = pa.ListArray.from_arrays(offsets, cells.astype(kind))
    return pa.table(columns)


@lru_cache(maxsize=2)
def _estimator(bundle: BundleFiles, grid: Grid) -> Estimator:
    return estimator(
        grid.mechanisms, bundle.shared(), search=grid.search, runs=grid.runs, seed=grid.seed
    )


def with_words(df: DataFrame, bundle: BundleFiles) -> DataFrame:
    """Write words in the place of their rows in the bundle."""

    def put_words(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        words = bundle.shared().words
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns["word"] = words.take(columns["word"])
            yield pa.RecordBatch.from_pydict(columns)

    kinds = {field.name: field.dataType.simpleString() for field in df.schema}
    kinds["word"] = "string"
    schema = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    return df.mapInArrow(put_words, schema)


def measure_tables(
    spark: SparkSession, bundle: BundleFiles, grids: Sequence[Grid]
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Measure grids; return words, outputs and transitions, all persisted."""
    cells = measure_words(spark, bundle, grids).persist(StorageLevel.DISK_ONLY)
    words = with_other_words(cells, grids).persist(StorageLevel.DISK_ONLY)
    outputs = output_statistics(cells, grids).persist(StorageLevel.DISK_ONLY)
    words.count()
    outputs.count()
    return words, outputs, cells


def output_statistics(parts: DataFrame, grids: Sequence[Grid]) -> DataFrame:
    """Compute K_w of each output, and what guessers win at it: sums of weights times counts.

    K_w counts the words that gave an output; where probabilities are computed, on average if any
    does. ``uniform`` and ``zipf`` are of the input that leads in all runs; ``uniform_judged`` and
    ``zipf_judged`` of the one that leads in one half, judged by the other: at a new output the
    likeliest word beforehand.

    Source: Chatzikokolakis, Palamidessi and Panangaden 2008, "On the Bayes risk in
        information-hiding protocols", section 3: the sums of the former over outputs give its
        complement.
    """
    cells = parts.select(*KEYS, "rank", F.inline(F.arrays_zip(*CELLS)))
    outputs = cells.groupBy(*KEYS, F.col("output").alias("word"))
    gains: list[Column] = []
    for prior in PRIORS:
        gains += _gains(prior)
    return outputs.agg(_k_w(grids).alias("k_w"), *gains)


def _k_w(grids: Sequence[Grid]) -> Column:
    """Return K_w of an output's cells."""
    runs = float(grids[0].runs)
    share = F.least(F.col("count") / runs, F.lit(1.0 - 2.0**-53))
    never = F.greatest(F.log1p(-share) * runs, F.lit(-40.0))
    words = _exact_sum(-F.expm1(never)).cast("double")
    any_word = -F.expm1(_exact_sum(never).cast("double"))
    expected = F.greatest(words / any_word, F.lit(1.0))
    return F.when(_is_computed(grids), expected).otherwise(F.count(F.lit(1)))


def _gains(prior: Prior) -> tuple[Column, Column]:
    """Return what guessers win at an output's cells: in all runs, and in those that judge."""
    count = F.col("count")
    judged = F.col("judged")
    weight = F.lit(1.0) if prior == "uniform" else 1.0 / F.col("rank")
    # The first word is the likeliest of all, or as likely as any.
    first = F.sum(F.when(F.col("rank") == 1, judged).otherwise(0.0))
    # Of equals the first in rank: the runs that judge have no say.
    score = (weight * (count - judged)).alias("score")
    gain = (weight * judged).alias("gain")
    leader = F.max(F.struct(score, -F.col("rank"), gain))
    judged_gain = F.when(leader["score"] > 0.0, leader["gain"]).otherwise(first)
    return F.max(weight * count).alias(prior), judged_gain.alias(f"{prior}_judged")


def with_other_words(parts: DataFrame, grids: Sequence[Grid]) -> DataFrame:
    """Compute for each word what depends on others: posterior and k_gamma, means over its runs.

    The posterior is the word's probability given its output. All measured words are alike
    beforehand. Each run is judged by all the others: of the runs with the same output, the share
    that are the same word's, where a word of which one run is left out counts by its other runs. A
    run whose output no other gave tells nothing, and leaves the prior.

    k_gamma counts the words, the word itself among them, that gave the output in as many runs to a
    factor of gamma.

    Source: leave-one-out estimation, as unbiased for the sums of squares of probabilities,
        Simpson 1949; Bindschaedler, Shokri and Gunter 2017, "Plausible deniability for
        privacy-preserving data synthesis", definition 1.
    """
    count = F.col("count")
    runs = float(grids[0].runs)
    all_counts = _exact_sum(count).over(Window.partitionBy(*KEYS, "output")).cast("double")
    left_out = F.when(_is_computed(grids), 0.0).otherwise(1.0)
    of_word = (count - left_out) / F.greatest(runs - left_out, F.lit(1.0))
    of_all = of_word + (F.col("total") - count) / runs
    posterior = F.when(of_all > 0.0, of_word / of_all).otherwise(1.0 / grids[0].words)
    mean = _exact_sum(count * posterior).cast("double") / runs
    log_count = F.round(F.log(count) * _LOG_UNITS).cast("bigint")
    reach = math.ceil(math.log(grids[0].gamma) * _LOG_UNITS)
    alike = Window.partitionBy(*KEYS, "output").orderBy(log_count).rangeBetween(-reach, reach)
    mean_alike = _exact_sum(count * F.col("alike")).cast("double") / runs
    cells = parts.select(*KEYS, "word", F.inline(F.arrays_zip(*CELLS)))
    cells = cells.select(
        *KEYS,
        "word",
        "count",
        all_counts.alias("total"),
        F.count(F.lit(1)).over(alike).alias("alike"),
    )
    words = cells.groupBy(*KEYS, "word").agg(mean.alias("posterior"), mean_alike.alias("k_gamma"))
    return parts.drop(*CELLS).join(words, [*KEYS, "word"])


def moments(df: DataFrame, columns: Sequence[str]) -> dict[Key, dict[str, dict[str, Any]]]:
    """Compute sums and quantiles of columns, by mechanism and epsilon.

    Their variance is of values that are cut to nine digits: their squares fit a decimal, and leave
    no variance where there is none.
    """
    value = F.col("value")
    short = value.cast("decimal(18, 9)")
    numbers = [
        F.count(F.lit(1)).alias("n"),
        _exact_sum(value).alias("sum"),
        F.sum(short).alias("short_sum"),
        F.sum(short * short).alias("squares"),
    ]
    for name, level in LEVELS.items():
        numbers.append(_quantile("value", level).alias(name))
    values = df.unpivot([*KEYS], [*columns], "statistic", "value").groupBy(*KEYS, "statistic")
    statistics: dict[Key, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in values.agg(*numbers).collect():
        statistics[row["mechanism"], row["epsilon"]][row["statistic"]] = row.asDict()
    return statistics


def quantile_and_bound(words: DataFrame, target: Target, grid: Grid) -> tuple[float, float]:
    """Compute a target's statistic of the words of one mechanism and epsilon, and its bound."""
    (column,) = target.arguments
    limit = "n_w_high" if target.upper else column  # each word's own, which n_w alone has
    quantile = words.agg(_quantile(column, LEVELS[target.measure])).collect()[0][0]
    place = bounding_rank(target, grid) - 1
    bound = words.select(limit).orderBy(limit).offset(place).limit(1).collect()[0][0]
    return float(quantile), float(bound)


def least_protected(words: DataFrame, names: pa.Array, *, top: int) -> Rows:
    """Return the ``top`` words of highest n_w, of equals the first.

    ``staying`` counts the words whose n_w is 0.95 or more.
    """
    by_key = Window.partitionBy(*KEYS)
    staying = F.sum((F.col("n_w") >= 0.95).cast("int")).over(by_key)
    place = F.row_number().over(by_key.orderBy(F.col("n_w").desc(), "word"))
    ranked = words.select("*", staying.alias("staying"), place.alias("place"))
    ranked = ranked.where(F.col("place") <= top).orderBy("place")
    rows: dict[Key, dict[str, Any]] = {}
    for row in ranked.collect():
        key = (row["mechanism"], row["epsilon"])
        if key not in rows:
            rows[key] = {name: row[name] for name in (*KEYS, "staying")}
            rows[key]["top"] = []
        word = {"word": names[row["word"]].as_py()}
        for limit in ("n_w", "n_w_low", "n_w_high"):
            word[limit] = row[limit]
        rows[key]["top"].append(word)
    return list(rows.values())


def _is_computed(grids: Sequence[Grid]) -> Column:
    """Return whether a row's probabilities were computed."""
    return F.col("mechanism").isin([grid.name for grid in grids if grid.exact])


def _exact_sum(value: Column) -> Column:
    """Return a sum that does not depend on the order of rows."""
    return F.sum(value.cast("decimal(38, 18)"))


def _quantile(column: str, level: float) -> Column:
    """Return the smallest value of a column that the share ``level`` of values does not exceed."""
    if level == 0.0:
        return F.min(column)
    if level == 1.0:
        return F.max(column)
    return F.expr(f"percentile_disc({level}) WITHIN GROUP (ORDER BY {column})")
