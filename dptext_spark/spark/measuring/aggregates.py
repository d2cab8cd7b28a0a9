"""Statistics of measured words, by Spark: the same numbers in whatever order rows come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.calibration import target
from dptext_spark.spark.measuring.blocks import CELLS

BATCHES: Final = 16
"""Groups of blocks, each evenly spread over the sample, whose means tell how sure a mean is."""
KEYS: Final = ("setting", "epsilon")
DENIABILITY: Final = ("deniability", "deniability_p5")


def exploded(parts: DataFrame) -> DataFrame:
    """One row for each cell."""
    cells = parts.select(*KEYS, "word", F.explode(F.arrays_zip(*CELLS)).alias("cell"))
    names = {"outputs": "output", "counts": "count", "seen": "seen"}
    return cells.select(*KEYS, "word", *(F.col(f"cell.{field}").alias(n) for field, n in names.items()))


def output_statistics(parts: DataFrame) -> DataFrame:
    """K_w of each output, and its most likely input's expected count under two priors."""
    # Integers add up alike in any order: 2^32 to one.
    seen = F.sum(F.round(F.col("seen") * 2.0**32).cast("long")) / 2.0**32
    return (
        exploded(parts)
        .groupBy(*KEYS, F.col("output").alias("word"))
        .agg(
            seen.alias("k_w"),
            F.max("count").alias("uniform"),
            F.max(F.col("count") / (F.col("word") + 1.0)).alias("zipf"),
        )
    )


def with_deniability(parts: DataFrame, gamma: float, runs: int) -> DataFrame:
    """Add to each word how many words are about as likely behind its outputs: mean and p5 over its runs.

    See :func:`dptext_spark.calibration.deniability`.
    """
    # A hair wider, so that rounding of the logarithms does not exclude what is as likely as that.
    reach = float(np.log(gamma)) + 2.0**-40
    as_likely = F.expr(
        "count(1) OVER (PARTITION BY setting, epsilon, output ORDER BY -ln(count) "
        f"RANGE BETWEEN UNBOUNDED PRECEDING AND {reach!r}D FOLLOWING)"
    )
    cells = exploded(parts).select(*KEYS, "word", "count", as_likely.alias("k"))
    lists = cells.groupBy(*KEYS, "word").agg(
        F.array_sort(F.collect_list(F.struct("k", "count"))).alias("cells")
    )
    words = lists.select(*KEYS, "word", *_over_runs("cells", runs))
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
    yield (total / float(runs)).alias(DENIABILITY[0])
    yield reached["k"].cast("double").alias(DENIABILITY[1])


def exact_sum(value: Column) -> Column:
    """A sum that does not depend on the order of rows."""
    return F.sum(value.cast("decimal(38, 18)"))


def quantile(column: str, level: float) -> Column:
    """A value that occurs, the smallest that the share ``level`` of the values does not exceed."""
    if level in (0.0, 1.0):
        return F.min(column) if level == 0.0 else F.max(column)
    return F.expr(f"percentile_disc({level}) WITHIN GROUP (ORDER BY {column})")


# Squares of nine digits after the point fit a decimal, and leave no variance where there is none.
_SHORT: Final = "decimal(18, 9)"


def moments(value: Column) -> list[Column]:
    short = value.cast(_SHORT)
    return [
        F.count(F.lit(1)).alias("n"),
        exact_sum(value).alias("sum"),
        F.sum(short).alias("short_sum"),
        F.sum(short * short).alias("squares"),
        *(quantile("value", level).alias(name) for name, level in target.LEVELS.items()),
    ]


def distribution(row: Mapping[str, Any]) -> dict[str, float]:
    n = int(row["n"])
    variance = Fraction(row["squares"]) / n - (Fraction(row["short_sum"]) / n) ** 2
    numbers = {"mean": float(Fraction(row["sum"]) / n), "sd": float(max(variance, Fraction(0))) ** 0.5}
    return numbers | {name: float(row[name]) for name in target.LEVELS}


def batch_means(
    words: DataFrame, columns: Sequence[str]
) -> dict[tuple[str, float], dict[str, NDArray[np.float64]]]:
    """Means of columns over each of the batches, for each setting and epsilon, and the batches' words, n."""
    batch = (F.col("block") % BATCHES).alias("batch")
    sums = [exact_sum(F.col(name)).alias(name) for name in columns]
    rows = words.groupBy(*KEYS, batch).agg(F.count(F.lit(1)).alias("n"), *sums).collect()
    means: dict[tuple[str, float], dict[str, NDArray[np.float64]]] = {}
    for key in sorted({(row["setting"], row["epsilon"]) for row in rows}):
        own = sorted((r for r in rows if (r["setting"], r["epsilon"]) == key), key=lambda r: int(r["batch"]))
        means[key] = {c: np.array([float(Fraction(r[c]) / r["n"]) for r in own]) for c in columns}
        means[key]["n"] = np.array([float(r["n"]) for r in own])
    return means
