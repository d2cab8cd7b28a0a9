"""Statistics of measured words, by Spark: the same numbers in whatever order rows come."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dptext_spark.calibration.grid import BATCHES, PRIORS, Grid
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.calibration.summary_table import KEYS, OF_OUTPUTS, OF_WORDS, BatchMeans
from dptext_spark.calibration.target import Target
from dptext_spark.measuring.blocks import CELLS


def exploded(parts: DataFrame) -> DataFrame:
    """One row for each cell."""
    cells = parts.select(*KEYS, "word", "rank", F.explode(F.arrays_zip(*CELLS)).alias("cell"))
    names = {"outputs": "output", "counts": "count", "judged": "judged"}
    return cells.select(
        *KEYS, "word", "rank", *(F.col(f"cell.{field}").alias(n) for field, n in names.items())
    )


def output_statistics(parts: DataFrame, grid: Grid) -> DataFrame:
    """K_w of each output, and what guessers win at it under each prior, as sums of weights times counts.

    K_w is how many words gave an output in these runs; where probabilities are computed, how many do on
    average if any does. ``uniform`` and ``zipf`` are the weight times the count of the input that leads in
    all runs. Of the guesser who learns from one half of the runs, ``uniform_judged`` and ``zipf_judged``
    are what it wins in the other half: at an output it has not seen it names the likeliest word beforehand.

    Source: Chatzikokolakis, Palamidessi and Panangaden 2008, "On the Bayes risk in information-hiding
        protocols", section 3: the sums of the former over outputs give its complement.
    """
    learned = F.col("count") - F.col("judged")
    # The first word is the likeliest of all, or as likely as any.
    first = F.sum(F.when(F.col("rank") == 1, F.col("judged")).otherwise(0.0))
    guessers: list[Column] = []
    for prior in PRIORS:
        weight = F.lit(1.0) if prior == "uniform" else 1.0 / F.col("rank")
        # Of equals the first in rank: the runs that judge have no say.
        guess = F.max(
            F.struct(
                (weight * learned).alias("score"), -F.col("rank"), (weight * F.col("judged")).alias("won")
            )
        )
        won = F.when(guess["score"] > 0.0, guess["won"]).otherwise(first)
        guessers += [F.max(weight * F.col("count")).alias(prior), won.alias(f"{prior}_judged")]
    outputs = exploded(parts).groupBy(*KEYS, F.col("output").alias("word"))
    return outputs.agg(_inputs(grid).alias("k_w"), *guessers)


def _inputs(grid: Grid) -> Column:
    """How many words gave an output, given that one did."""
    if not grid.exact:
        return F.count(F.lit(1)).cast("double")
    share = F.least(F.col("count") / float(grid.runs), F.lit(1.0 - 2.0**-53))
    never = F.greatest(F.log1p(-share) * float(grid.runs), F.lit(-40.0))
    seen, any_ = _exact_sum(-F.expm1(never)), -F.expm1(_exact_sum(never).cast("double"))
    return F.greatest(seen.cast("double") / any_, F.lit(1.0))


def with_posterior(parts: DataFrame, grid: Grid) -> DataFrame:
    """Add to each word what its outputs make of it: its probability given the output, on average.

    Of all measured words alike beforehand. Each run is judged by all the others: of the runs with the same
    output, the share that are the same word's, where a word of which one run is left out counts by its other
    runs. A run whose output no other gave tells nothing, and leaves the prior.

    Source: leave-one-out estimation, as unbiased for the sums of squares of probabilities, Simpson 1949.
    """
    one = 0.0 if grid.exact else 1.0
    # Sums of counts are exact by themselves, in any order.
    sum_ = _exact_sum(F.col("count")) if grid.exact else F.sum("count")
    total = sum_.over(Window.partitionBy(*KEYS, "output")).cast("double")
    cells = exploded(parts).select(*KEYS, "word", "count", total.alias("total"))
    own = (F.col("count") - one) / max(grid.runs - one, 1.0)
    all_ = own + (F.col("total") - F.col("count")) / float(grid.runs)
    given = F.when(all_ > 0.0, own / all_).otherwise(1.0 / grid.words)
    mean = _exact_sum(F.col("count") * given).cast("double") / float(grid.runs)
    words = cells.groupBy(*KEYS, "word").agg(mean.alias("posterior"))
    return parts.drop(*CELLS).join(words, [*KEYS, "word"])


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
    """Add up what guessers win at each output, under each prior."""
    names = [f"{prior}{kind}" for prior in PRIORS for kind in ("", "_judged")]
    sums = (_exact_sum(F.col(name)).alias(name) for name in names)
    return [row.asDict() for row in outputs.groupBy(*KEYS).agg(*sums).collect()]


def batch_means(words: DataFrame, columns: Sequence[str]) -> dict[tuple[str, float], BatchMeans]:
    """Means of columns over each of the batches, for each setting and epsilon, and the batches' words, n."""
    batch = (F.col("block") % BATCHES).alias("batch")
    weighted = words.withColumn("n_w_zipf", F.col("n_w") / F.col("rank"))
    sums = [_exact_sum(F.col(name)).alias(name) for name in columns]
    rows = weighted.groupBy(*KEYS, batch).agg(F.count(F.lit(1)).alias("n"), *sums).collect()
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
        (found,) = batch_means(words, [target.column, target.mean_column]).values()
        return target.bounded_mean(found, grid)
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
