"""Statistics of measured words, by Spark: the same numbers in whatever order rows come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.calibration.grid import BATCHES, Grid
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.calibration.summary_table import KEYS, OF_OUTPUTS, OF_WORDS, BatchMeans
from dptext_spark.calibration.target import Target
from dptext_spark.spark.measuring.blocks import CELLS


def exploded(parts: DataFrame) -> DataFrame:
    """One row for each cell."""
    cells = parts.select(*KEYS, "word", F.explode(F.arrays_zip(*CELLS)).alias("cell"))
    names = {"outputs": "output", "counts": "count", "seen": "seen"}
    return cells.select(*KEYS, "word", *(F.col(f"cell.{field}").alias(n) for field, n in names.items()))


def output_statistics(parts: DataFrame) -> DataFrame:
    """K_w of each output, and its most likely input's weight times its count under two priors.

    Source: Chatzikokolakis, Palamidessi and Panangaden 2008, "On the Bayes risk in information-hiding
        protocols", section 3: the sums of the latter over outputs give its complement.
    """
    # Integers add up alike in any order: 2^32 to one.
    seen = F.sum(F.round(F.col("seen") * 2.0**32).cast("long")) / 2.0**32
    zipf = F.max(F.col("count") / (F.col("word") + 1.0))
    outputs = exploded(parts).groupBy(*KEYS, F.col("output").alias("word"))
    return outputs.agg(seen.alias("k_w"), F.max("count").alias("uniform"), zipf.alias("zipf"))


def with_deniability(parts: DataFrame, gamma: float, runs: int) -> DataFrame:
    """Add to each word how many words are about as likely behind its outputs: mean and p5 over its runs.

    Words w', the word w itself included, with p(output | w') >= p(output | w) / gamma.

    Source: Bindschaedler et al. 2017, "Plausible Deniability for Privacy-Preserving Data Synthesis",
        definition 1, with one side of its ratio.
    """
    # A hair wider, so that rounding of the logarithms does not exclude what is as likely as that.
    reach = float(np.log(gamma)) + 2.0**-40
    as_likely = F.expr(
        "count(1) OVER (PARTITION BY setting, epsilon, output ORDER BY -ln(count) "
        f"RANGE BETWEEN UNBOUNDED PRECEDING AND {reach!r}D FOLLOWING)"
    )
    cells = exploded(parts).select(*KEYS, "word", "count", as_likely.alias("k"))
    lists = F.array_sort(F.collect_list(F.struct("k", "count"))).alias("cells")
    words = cells.groupBy(*KEYS, "word").agg(lists).select(*KEYS, "word", *_over_runs("cells", runs))
    return parts.drop(*CELLS).join(words, [*KEYS, "word"])


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
    yield (total / float(runs)).alias("deniability")
    yield reached["k"].cast("double").alias("deniability_p5")


def moments(words: DataFrame, outputs: DataFrame) -> list[dict[str, Any]]:
    """Describe the distribution of each statistic over words or outputs, as a summary needs it."""
    # Squares of nine digits after the point fit a decimal, and leave no variance where there is none.
    value, short = F.col("value"), F.col("value").cast("decimal(18, 9)")
    of_words, of_outputs = (
        df.unpivot(list(KEYS), list(names), "statistic", "value")
        for df, names in ((words, OF_WORDS), (outputs, OF_OUTPUTS))
    )
    numbers = {
        "n": F.count(F.lit(1)),
        "sum": _exact_sum(value),
        "short_sum": F.sum(short),
        "squares": F.sum(short * short),
        **{name: _quantile("value", level) for name, level in LEVELS.items()},
    }
    groups = of_words.unionByName(of_outputs).groupBy(*KEYS, "statistic")
    found = groups.agg(*(number.alias(name) for name, number in numbers.items()))
    return [row.asDict() for row in found.collect()]


def guesses(outputs: DataFrame) -> list[dict[str, Any]]:
    """Add up what the best guesser wins at each output, under each prior."""
    sums = (_exact_sum(F.col(name)).alias(name) for name in ("uniform", "zipf"))
    return [row.asDict() for row in outputs.groupBy(*KEYS).agg(*sums).collect()]


def batch_means(words: DataFrame, columns: Sequence[str]) -> dict[tuple[str, float], BatchMeans]:
    """Means of columns over each of the batches, for each setting and epsilon, and the batches' words, n."""
    batch = (F.col("block") % BATCHES).alias("batch")
    sums = [_exact_sum(F.col(name)).alias(name) for name in columns]
    rows = words.groupBy(*KEYS, batch).agg(F.count(F.lit(1)).alias("n"), *sums).collect()
    means: dict[tuple[str, float], BatchMeans] = {}
    for key, group in groupby(sorted(rows, key=itemgetter(*KEYS, "batch")), itemgetter(*KEYS)):
        own = list(group)
        found = {c: np.array([float(Fraction(r[c]) / r["n"]) for r in own]) for c in columns}
        means[key] = {**found, "n": np.array([float(r["n"]) for r in own])}
    return means


def bounded(words: DataFrame, target: Target, grid: Grid) -> tuple[float, float]:
    """Give a target's statistic of the words of one setting and epsilon, and its bound."""
    rank = target.rank(grid)
    if rank is None:
        (means,) = batch_means(words, [target.column]).values()
        return target.bounded_mean(means, grid)
    measured = words.agg(_quantile(target.column, LEVELS[target.statistic])).collect()[0][0]
    ordered = words.select(target.bounded_column).orderBy(target.bounded_column)
    bound = ordered.offset(rank - 1).limit(1).collect()[0][0]
    return float(measured), float(bound)


def _exact_sum(value: Column) -> Column:
    """A sum that does not depend on the order of rows."""
    return F.sum(value.cast("decimal(38, 18)"))


def _quantile(column: str, level: float) -> Column:
    """A value that occurs, the smallest that the share ``level`` of the values does not exceed."""
    if level in (0.0, 1.0):
        return F.min(column) if level == 0.0 else F.max(column)
    return F.expr(f"percentile_disc({level}) WITHIN GROUP (ORDER BY {column})")
