"""Is-a pairs, read and filtered by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import InputError
from dptext_spark.spark.versions import from_arrow, to_arrow
from dptext_spark.text.policies import stop_words

# Columns of a TSV, in its order, before the count; a table's columns have these names.
_ENDS: Final = ("hyponym", "hypernym")

# Verdicts on pairs: the number of the filter that removes them.
_REPEATED: Final = 2
_PASSED: Final = 6


def read_pairs(spark: SparkSession, path: str) -> DataFrame:
    """Read is-a pairs: ``hyponym`` string, ``hypernym`` string, ``count`` bigint or null.

    Tab-separated text, .tsv or .txt, .gz too, with a header line or without; else Parquet with
    these columns.
    """
    is_text = path.rstrip("/").lower().removesuffix(".gz").endswith((".tsv", ".txt"))
    try:
        if not is_text:
            return _from_parquet(spark, path)
        lines = spark.read.text(path)
        first = lines.head()
    except (PySparkException, Py4JJavaError):
        raise unreadable_pairs(path) from None
    header = first["value"] if first else ""
    return _from_lines(lines, header)


def _from_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Read the columns of pairs from Parquet."""
    table = spark.read.parquet(path)
    count = F.lit(None)
    if "count" in table.columns:
        count = F.col("count")
    return table.select(*_ENDS, count.cast("bigint").alias("count"))


def _from_lines(lines: DataFrame, header: str) -> DataFrame:
    """Read the columns of pairs from tab-separated lines; ``header`` is the first of them."""
    names = header.rstrip("\r").split("\t")
    position = 2 if len(names) > 2 else None
    if names[1:2] == ["hypernym"]:
        lines = lines.filter(F.col("value") != header)
        position = names.index("count") if "count" in names else None
    lines = lines.select(F.split(F.regexp_replace("value", "\r$", ""), "\t").alias("fields"))
    count = F.lit(None).cast("bigint")
    if position is not None:
        # A count that is none makes the row unusable: -1 marks it.
        count = F.coalesce(F.expr(f"try_cast(get(fields, {position}) AS bigint)"), F.lit(-1))
    ends = [F.get("fields", F.lit(place)).alias(end) for place, end in enumerate(_ENDS)]
    return lines.select(*ends, count.alias("count"))


def unreadable_pairs(path: str) -> InputError:
    """Return the error of an input that cannot be read."""
    allowed = (
        "Parquet with hyponym and hypernym, "
        "or tab-separated text named .tsv, .txt or either with .gz"
    )
    return InputError(f"The pairs {path} cannot be read", allowed=allowed)


def filter_pairs(
    rows: DataFrame,
    *,
    vocabulary: Sequence[str] | None,
    min_count: int,
    min_links: int,
) -> tuple[list[dict[str, Any]], pa.Table]:
    """Filter is-a pairs, whose rows are added up, and count what each filter removes.

    Pairs without any count pass ``min_count``; words in ``min_links`` distinct pairs or fewer are
    removed, once. Returns the steps, in rows up to the merging of repeated pairs and in pairs after
    it; and the last pairs. Source: Feyisetan et al. 2019, section V-E.
    """
    judged = _judged(rows, vocabulary, min_count).persist()
    try:
        totals = judged.groupBy("verdict").agg(
            F.sum("rows").alias("rows"), F.count("*").alias("pairs")
        )
        counts = {row["verdict"]: (row["rows"], row["pairs"]) for row in totals.collect()}
        pairs = judged.filter(F.col("verdict") == _PASSED).select(*_ENDS)
        words = pairs.select(F.explode(F.array(*_ENDS)).alias("word"))
        rare_words = words.groupBy("word").count().filter(F.col("count") <= min_links)
        for end in _ENDS:
            rare_ends = rare_words.select(F.col("word").alias(end))
            pairs = pairs.join(rare_ends, end, "left_anti")
        linked = to_arrow(pairs.select(*_ENDS))
    finally:
        judged.unpersist()
    steps = _steps(counts, min_count)
    remaining = linked.num_rows
    last_step = {
        "name": f"pairs with a word of {min_links} links or fewer",
        "removed": steps[-1]["left"] - remaining,
        "left": remaining,
    }
    return [*steps, last_step], linked


def _steps(counts: Mapping[int, tuple[int, int]], min_count: int) -> list[dict[str, Any]]:
    """Return what each filter removed and left; ``counts`` has rows and pairs of each verdict."""
    names = (
        "rows that are not two words",
        "rows of a word with itself",
        "rows that repeat a pair",
        "pairs with a word outside the vocabulary",
        f"pairs seen fewer than {min_count} times",
        "pairs with a stop word",
    )
    remaining = 0
    repeats = 0
    for verdict, (rows, pairs) in counts.items():
        remaining += rows
        if verdict > _REPEATED:
            repeats += rows - pairs
    steps = []
    for verdict, name in enumerate(names):
        rows, pairs = counts.get(verdict, (0, 0))
        removed = rows
        if verdict == _REPEATED:
            removed = repeats
        elif verdict > _REPEATED:
            removed = pairs
        remaining -= removed
        steps.append({"name": name, "removed": removed, "left": remaining})
    return steps


def _judged(rows: DataFrame, vocabulary: Sequence[str] | None, min_count: int) -> DataFrame:
    """Merge rows to pairs; ``verdict`` is the first filter that removes one."""
    usable = F.coalesce(F.col("count") >= 0, F.lit(True))
    for end in _ENDS:
        # \s does not know all separators of Unicode, and a bundle takes no control characters.
        is_word = F.col(end).rlike(r"^[^\s\p{Z}\p{Cc}]+$")
        usable &= F.coalesce(is_word, F.lit(False))
    columns = [F.when(usable, F.col(name)).alias(name) for name in (*_ENDS, "count")]
    merged = rows.select(*columns).groupBy(*_ENDS)
    pairs = merged.agg(F.sum("count").alias("count"), F.count("*").alias("rows"))
    listed = _listed_words(rows.sparkSession, vocabulary)
    for end in _ENDS:
        lists = F.struct("is_known", "is_stop").alias(f"{end}_lists")
        listed_ends = listed.select(F.col("word").alias(end), lists)
        pairs = pairs.join(F.broadcast(listed_ends), end, "left")
    are_known = F.lit(True)
    has_stop_word = F.lit(False)
    for end in _ENDS:
        are_known &= F.coalesce(F.col(f"{end}_lists")["is_known"], F.lit(False))
        has_stop_word |= F.coalesce(F.col(f"{end}_lists")["is_stop"], F.lit(False))
    is_own = F.col("hyponym") == F.col("hypernym")
    is_unlisted = F.lit(vocabulary is not None) & ~are_known
    verdict = (
        F.when(F.col("hyponym").isNull(), 0)
        .when(is_own, 1)
        .when(is_unlisted, 3)
        .when(F.col("count") < min_count, 4)
        .when(has_stop_word, 5)
        .otherwise(_PASSED)
    )
    return pairs.select(*_ENDS, "rows", verdict.alias("verdict"))


def _listed_words(spark: SparkSession, vocabulary: Sequence[str] | None) -> DataFrame:
    """Return each word of the vocabulary and each stop word, with the lists that have it."""
    known_words = {*(vocabulary or ())}
    stopped = {*stop_words()}
    words = sorted(known_words | stopped)
    columns = {
        "word": words,
        "is_known": [word in known_words for word in words],
        "is_stop": [word in stopped for word in words],
    }
    return from_arrow(spark, pa.table(columns))
