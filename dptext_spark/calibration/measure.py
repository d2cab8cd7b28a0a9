"""Words measured on Spark, and statistics of them: the same numbers in whatever order rows come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from dptext_spark.calibration.estimators import PRIORS, Estimator, Grid, estimator
from dptext_spark.calibration.facts import KEYS, Key, Rows, Target, bounding_rank
from dptext_spark.calibration.statistics import LEVELS, OF_WORD, word_statistics
from dptext_spark.spark.bundle_files import BundleFiles

CELLS: Final = ("output", "count", "judged")

SCHEMA: Final = (
    f"mechanism string, epsilon double, rank int, word int, {' double, '.join(OF_WORD)} double, "
    "output array<int>, count array<double>, judged array<double>"
)

GUESSES: Final = tuple(f"{prior}{kind}" for prior in PRIORS for kind in ("", "_judged"))
"""What guessers win at an output, see :func:`output_statistics`."""

# Words per Arrow batch: each brings its outputs along.
_ROWS: Final = 256


def measured(spark: SparkSession, bundle: BundleFiles, grids: Sequence[Grid]) -> DataFrame:
    """Measure the words of grids with their transitions, one task for each block of each."""
    tasks = [(grid, block) for grid in grids for block in range(grid.blocks)]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(
        partial(_measure, bundle, tasks), SCHEMA
    )


def _measure(
    bundle: BundleFiles, tasks: Sequence[tuple[Grid, int]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Measure blocks by the numbers of their tasks: a row for each epsilon and word."""
    for grid, block in (tasks[task] for batch in batches for task in batch.column(0).to_pylist()):
        transitions = _estimator(bundle, grid)(grid.block(block), block=block)
        table = word_statistics(transitions, confidence=grid.confidence, eta=grid.eta)
        columns: dict[str, Any] = {
            "mechanism": pa.repeat(grid.name, len(table)),
            "epsilon": np.array(grid.epsilons)[table["epsilon_index"].to_numpy()],
            # Words come in ascending order, as their ranks do, at each epsilon.
            "rank": np.tile(grid.ranks_of(block), len(grid.epsilons)).astype(np.int32),
            **{column: table[column].combine_chunks() for column in ("word", *OF_WORD)},
        }
        offsets = pa.array(np.append(transitions.starts, len(transitions.count)), pa.int32())
        for name in CELLS:
            kind = np.int32 if name == "output" else np.float64
            columns[name] = pa.ListArray.from_arrays(
                offsets, getattr(transitions, name).astype(kind)
            )
        yield from pa.table(columns).to_batches(max_chunksize=_ROWS)


@lru_cache(maxsize=2)
def _estimator(bundle: BundleFiles, grid: Grid) -> Estimator:
    return estimator(
        grid.mechanisms, bundle.shared(), search=grid.search, runs=grid.runs, seed=grid.seed
    )


def with_words(df: DataFrame, bundle: BundleFiles) -> DataFrame:
    """Put words in the place of their rows in the bundle."""

    def name(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        words = bundle.shared().words
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield pa.RecordBatch.from_pydict(columns | {"word": words.take(columns["word"])})

    kinds = {field.name: field.dataType.simpleString() for field in df.schema} | {"word": "string"}
    return df.mapInArrow(name, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))


def tables(
    spark: SparkSession, bundle: BundleFiles, grids: Sequence[Grid]
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Measure what grids say of words and of outputs, each once, and the transitions; all are persisted."""
    cells = measured(spark, bundle, grids).persist(StorageLevel.DISK_ONLY)
    words = with_posterior(cells, grids).persist(StorageLevel.DISK_ONLY)
    outputs = output_statistics(cells, grids).persist(StorageLevel.DISK_ONLY)
    for frame in (words, outputs):
        frame.count()
    return words, outputs, cells


def output_statistics(parts: DataFrame, grids: Sequence[Grid]) -> DataFrame:
    """K_w of each output, and what guessers win at it under each prior, as sums of weights times counts.

    K_w counts the words that gave an output; where probabilities are computed, on average if any does.
    ``uniform`` and ``zipf`` are of the input that leads in all runs; ``uniform_judged`` and ``zipf_judged``
    of the one that leads in one half, judged by the other: at a new output the likeliest word beforehand.

    Source: Chatzikokolakis, Palamidessi and Panangaden 2008, "On the Bayes risk in information-hiding
        protocols", section 3: the sums of the former over outputs give its complement.
    """
    count, judged, runs = F.col("count"), F.col("judged"), float(grids[0].runs)
    # The first word is the likeliest of all, or as likely as any.
    first = F.sum(F.when(F.col("rank") == 1, judged).otherwise(0.0))
    guessers: list[Column] = []
    for prior in PRIORS:
        weight = F.lit(1.0) if prior == "uniform" else 1.0 / F.col("rank")
        # Of equals the first in rank: the runs that judge have no say.
        score, won = (weight * (count - judged)).alias("score"), (weight * judged).alias("won")
        guess = F.max(F.struct(score, -F.col("rank"), won))
        judge = F.when(guess["score"] > 0.0, guess["won"]).otherwise(first)
        guessers += [F.max(weight * count).alias(prior), judge.alias(f"{prior}_judged")]
    never = F.greatest(F.log1p(-F.least(count / runs, F.lit(1.0 - 2.0**-53))) * runs, F.lit(-40.0))
    expected = _exact_sum(-F.expm1(never)).cast("double") / -F.expm1(
        _exact_sum(never).cast("double")
    )
    inputs = F.when(_exact(grids), F.greatest(expected, F.lit(1.0))).otherwise(F.count(F.lit(1)))
    cells = parts.select(*KEYS, "rank", F.inline(F.arrays_zip(*CELLS)))
    return cells.groupBy(*KEYS, F.col("output").alias("word")).agg(inputs.alias("k_w"), *guessers)


def with_posterior(parts: DataFrame, grids: Sequence[Grid]) -> DataFrame:
    """Add to each word what its outputs make of it: its probability given the output, on average.

    Of all measured words alike beforehand. Each run is judged by all the others: of the runs with the same
    output, the share that are the same word's, where a word of which one run is left out counts by its other
    runs. A run whose output no other gave tells nothing, and leaves the prior.

    Source: leave-one-out estimation, as unbiased for the sums of squares of probabilities, Simpson 1949.
    """
    count, runs, one = (
        F.col("count"),
        float(grids[0].runs),
        F.when(_exact(grids), 0.0).otherwise(1.0),
    )
    total = (
        _exact_sum(count).over(Window.partitionBy(*KEYS, "output")).cast("double").alias("total")
    )
    own = (count - one) / F.greatest(runs - one, F.lit(1.0))
    all_ = own + (F.col("total") - count) / runs
    given = F.when(all_ > 0.0, own / all_).otherwise(1.0 / grids[0].words)
    mean = _exact_sum(count * given).cast("double") / runs
    cells = parts.select(*KEYS, "word", F.inline(F.arrays_zip(*CELLS))).select(
        *KEYS, "word", "count", total
    )
    words = cells.groupBy(*KEYS, "word").agg(mean.alias("posterior"))
    return parts.drop(*CELLS).join(words, [*KEYS, "word"])


def moments(df: DataFrame, columns: Sequence[str]) -> dict[Key, dict[str, dict[str, Any]]]:
    """Describe columns, by mechanism and epsilon; their variance by values that are cut to nine digits."""
    # Squares of nine digits after the point fit a decimal, and leave no variance where there is none.
    value, short = F.col("value"), F.col("value").cast("decimal(18, 9)")
    numbers = {"n": F.count(F.lit(1)), "sum": _exact_sum(value), "short_sum": F.sum(short)}
    numbers |= {"squares": F.sum(short * short)} | {
        n: _quantile("value", at) for n, at in LEVELS.items()
    }
    values = df.unpivot([*KEYS], [*columns], "statistic", "value").groupBy(*KEYS, "statistic")
    found: dict[Key, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in values.agg(*(number.alias(name) for name, number in numbers.items())).collect():
        found[row["mechanism"], row["epsilon"]][row["statistic"]] = row.asDict()
    return found


def bounded(words: DataFrame, target: Target, grid: Grid) -> tuple[float, float]:
    """Give a target's statistic of the words of one mechanism and epsilon, and its bound."""
    (column,) = target.arguments
    limit = "n_w_high" if target.upper else column  # each word's own, which n_w alone has
    quantile = words.agg(_quantile(column, LEVELS[target.measure])).collect()[0][0]
    place = bounding_rank(target, grid) - 1
    bound = words.select(limit).orderBy(limit).offset(place).limit(1).collect()[0][0]
    return float(quantile), float(bound)


def least_protected(words: DataFrame, names: pa.Array, *, top: int) -> Rows:
    """Find the ``top`` words of highest n_w, of equals the first; ``staying`` are those of 0.95 or more."""
    own = Window.partitionBy(*KEYS)
    staying = F.sum((F.col("n_w") >= 0.95).cast("int")).over(own).alias("staying")
    place = F.row_number().over(own.orderBy(F.col("n_w").desc(), "word")).alias("place")
    ranked = words.select("*", staying, place).where(F.col("place") <= top).orderBy("place")
    limits, found = ("n_w", "n_w_low", "n_w_high"), dict[Key, dict[str, Any]]()
    for row in ranked.collect():
        key = {name: row[name] for name in (*KEYS, "staying")}
        of = found.setdefault((row["mechanism"], row["epsilon"]), {**key, "top": []})
        of["top"].append(
            {"word": names[row["word"]].as_py()} | {name: row[name] for name in limits}
        )
    return [*found.values()]


def _exact(grids: Sequence[Grid]) -> Column:
    """Whether a row's probabilities were computed."""
    return F.col("mechanism").isin([grid.name for grid in grids if grid.exact])


def _exact_sum(value: Column) -> Column:
    """A sum that does not depend on the order of rows."""
    return F.sum(value.cast("decimal(38, 18)"))


def _quantile(column: str, level: float) -> Column:
    """A value that occurs, the smallest that the share ``level`` of the values does not exceed."""
    if level in (0.0, 1.0):
        return F.min(column) if level == 0.0 else F.max(column)
    return F.expr(f"percentile_disc({level}) WITHIN GROUP (ORDER BY {column})")
