"""Is-a pairs, read and filtered by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import InputError
from dptext_spark.spark.versions import from_arrow, to_arrow
from dptext_spark.text.policies import stop_words

# Columns of a TSV, in its order, before the count; a table's are found by these names.
_ENDS: Final = ("hyponym", "hypernym")


def read_pairs(spark: SparkSession, path: str) -> DataFrame:
    """Read is-a pairs: ``hyponym`` string, ``hypernym`` string, ``count`` bigint or null.

    Tab-separated text, .tsv or .txt, .gz too, with a header line or without; else Parquet with these columns.
    """
    count = F.lit(None).cast("bigint")
    try:
        if not path.rstrip("/").lower().removesuffix(".gz").endswith((".tsv", ".txt")):
            table = spark.read.parquet(path)
            count = F.col("count").cast("bigint") if "count" in table.columns else count
            return table.select(*_ENDS, count.alias("count"))
        lines = spark.read.text(path)
        first = lines.head()
    except (PySparkException, Py4JJavaError):
        raise unreadable_pairs(path) from None
    header = first["value"] if first else ""
    names = header.rstrip("\r").split("\t")
    position = 2 if len(names) > 2 else None
    if names[1:2] == ["hypernym"]:
        lines = lines.filter(F.col("value") != header)
        position = names.index("count") if "count" in names else None
    lines = lines.select(F.split(F.regexp_replace("value", "\r$", ""), "\t").alias("fields"))
    if position is not None:
        # A count that is none makes the row unusable: -1 marks it.
        count = F.coalesce(F.expr(f"try_cast(get(fields, {position}) AS bigint)"), F.lit(-1))
    ends = [F.get("fields", F.lit(place)).alias(end) for place, end in enumerate(_ENDS)]
    return lines.select(*ends, count.alias("count"))


def unreadable_pairs(path: str) -> InputError:
    """Make the error of an input that cannot be read."""
    allowed = "Parquet with hyponym and hypernym, or tab-separated text named .tsv, .txt or either with .gz"
    return InputError(f"The pairs {path} cannot be read", allowed=allowed)


def filter_pairs(
    rows: DataFrame,
    *,
    vocabulary: Sequence[str] | None,
    min_count: int,
    min_links: int,
) -> tuple[list[dict[str, Any]], pa.Table]:
    """Filter is-a pairs, whose rows are added up, and count what each filter removes.

    Pairs without any count pass ``min_count``; words in ``min_links`` distinct pairs or fewer are removed,
    once. Gives the steps, in rows up to the merging of repeated pairs and in pairs after it; and the last
    pairs. Source: Feyisetan et al. 2019, section V-E.
    """
    names = (
        "rows that are not two words",
        "rows of a word with itself",
        "rows that repeat a pair",
        "pairs with a word outside the vocabulary",
        f"pairs seen fewer than {min_count} times",
        "pairs with a stop word",
    )
    merged, kept = 2, len(names)
    judged = _judged(rows, vocabulary, min_count).persist()
    try:
        totals = judged.groupBy("verdict").agg(
            F.sum("rows").alias("rows"), F.count("*").alias("pairs")
        )
        counts = {row["verdict"]: (row["rows"], row["pairs"]) for row in totals.collect()}
        pairs = judged.filter(F.col("verdict") == kept).select(*_ENDS)
        ends = pairs.select(F.explode(F.array(*_ENDS)).alias("word"))
        few = ends.groupBy("word").count().filter(F.col("count") <= min_links)
        for end in _ENDS:
            pairs = pairs.join(few.select(F.col("word").alias(end)), end, "left_anti")
        linked = to_arrow(pairs.select(*_ENDS))
    finally:
        judged.unpersist()
    removed = [counts.get(place, (0, 0))[place > merged] for place in range(len(names))]
    removed[merged] = sum(
        seen - distinct for place, (seen, distinct) in counts.items() if place > merged
    )
    left = sum(seen for seen, _ in counts.values())
    steps = []
    for name, gone in zip(names, removed, strict=True):
        left -= gone
        steps.append({"name": name, "removed": gone, "left": left})
    last, left = f"pairs with a word of {min_links} links or fewer", linked.num_rows
    return [*steps, {"name": last, "removed": steps[-1]["left"] - left, "left": left}], linked


def _judged(rows: DataFrame, vocabulary: Sequence[str] | None, min_count: int) -> DataFrame:
    """Merge rows to pairs; ``verdict`` is the first filter that removes one."""
    usable = F.coalesce(F.col("count") >= 0, F.lit(True))
    for end in _ENDS:
        # \s does not know all separators of Unicode, and a bundle takes no control characters.
        usable &= F.coalesce(F.col(end).rlike(r"^[^\s\p{Z}\p{Cc}]+$"), F.lit(False))
    merged = rows.select(*(F.when(usable, F.col(name)).alias(name) for name in (*_ENDS, "count")))
    pairs = merged.groupBy(*_ENDS).agg(F.sum("count").alias("count"), F.count("*").alias("rows"))
    lists = {"known": {*(vocabulary or ())}, "stop": {*stop_words()}}
    words = sorted(set().union(*lists.values()))
    flags = {name: [word in listed for word in words] for name, listed in lists.items()}
    facts = from_arrow(rows.sparkSession, pa.table({"word": words, **flags}))
    for end in _ENDS:
        named = facts.select(F.col("word").alias(end), F.struct(*lists).alias(f"{end}_is"))
        pairs = pairs.join(F.broadcast(named), end, "left")
    known, stop = (
        [F.coalesce(F.col(f"{end}_is")[name], F.lit(False)) for end in _ENDS] for name in lists
    )
    verdict = (
        F.when(F.col("hyponym").isNull(), 0)
        .when(F.col("hyponym") == F.col("hypernym"), 1)
        .when(F.lit(vocabulary is not None) & ~(known[0] & known[1]), 3)
        .when(F.col("count") < min_count, 4)
        .when(stop[0] | stop[1], 5)
        .otherwise(6)
    )
    return pairs.select(*_ENDS, "rows", verdict.alias("verdict"))
