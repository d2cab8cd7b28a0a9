"""Is-a pairs, read and filtered by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from dptext_spark.errors import InputError
from dptext_spark.poincare.summary import Step
from dptext_spark.text.stop_words import stop_words

# Columns of a TSV, in its order, before the count; a table's are found by these names.
_ENDS: Final = ("hyponym", "hypernym")
# What is known of a word.
_FLAGS: Final = ("known", "stop", "excluded")


def read_pairs(spark: SparkSession, path: str) -> DataFrame:
    """Read is-a pairs: ``hyponym`` string, ``hypernym`` string, ``count`` bigint or null.

    A file that ends in .parquet, or a folder, is Parquet with these column names. Anything else is a text of
    tab-separated fields, .gz too, with a header line or without.

    Raises:
        InputError: The input cannot be read, or has no such columns.
    """
    try:
        return _read_text(spark, path) if is_text(path) else _read_table(spark, path)
    except (PySparkException, Py4JJavaError):
        raise unreadable_pairs(path) from None


def is_text(path: str) -> bool:
    """Say whether a file's name says that its pairs are tab-separated text."""
    return path.rstrip("/").lower().endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz"))


def check_ends(path: str, columns: Sequence[str]) -> None:
    """Check the columns of a table of pairs.

    Raises:
        InputError: Those of the words are not there.
    """
    if missing := [name for name in _ENDS if name not in columns]:
        raise InputError(
            f"The pairs {path} lack columns",
            allowed="columns hyponym, hypernym and, if there is one, count",
            got=f"no {' and no '.join(missing)}",
        )


def unreadable_pairs(path: str) -> InputError:
    """Make the error of an input that cannot be read."""
    allowed = "Parquet, or tab-separated text named .tsv, .tsv.gz, .txt or .txt.gz"
    return InputError(f"The pairs {path} cannot be read", allowed=allowed)


def _read_table(spark: SparkSession, path: str) -> DataFrame:
    table = spark.read.parquet(path)
    check_ends(path, table.columns)
    count = F.col("count") if "count" in table.columns else F.lit(None)
    return table.select("hyponym", "hypernym", count.cast("bigint").alias("count"))


def _read_text(spark: SparkSession, path: str) -> DataFrame:
    lines = spark.read.text(path)
    first = lines.head()
    header = first["value"] if first else ""
    names = header.rstrip("\r").split("\t")
    if names[1:2] == ["hypernym"]:
        lines = lines.filter(F.col("value") != header)
        position = names.index("count") if "count" in names else None
    else:
        position = 2 if len(names) > 2 else None
    fields = F.split(F.regexp_replace("value", "\r$", ""), "\t")
    count = F.lit(None).cast("bigint")
    if position is not None:
        # A count that is none makes the row unusable: -1 marks it.
        count = F.coalesce(F.get(fields, F.lit(position)).try_cast("bigint"), F.lit(-1))
    ends = [F.get(fields, F.lit(place)).alias(end) for place, end in enumerate(_ENDS)]
    return lines.select(*ends, count.alias("count"))


def filter_pairs(
    rows: DataFrame,
    *,
    vocabulary: Sequence[str] | None,
    excluded: Sequence[str],
    min_count: int,
    min_links: int,
) -> tuple[list[Step], pa.Table]:
    """Filter is-a pairs, and count what each filter removes.

    Args:
        rows: ``hyponym``, ``hypernym``, ``count``; rows of the same pair are added up.
        vocabulary: Both ends must be among these words; None allows all.
        excluded: Words to remove, beside the stop words.
        min_count: Fewest occurrences of a pair; pairs without any count pass.
        min_links: Words in this many distinct pairs or fewer are removed, once.

    Returns:
        The steps, and the pairs that are left: ``hyponym``, ``hypernym``.

    Source: Feyisetan et al. 2019, section V-E.
    """
    facts = _facts(rows.sparkSession, vocabulary, excluded)
    judged = _judged(_merged(rows), facts, open_vocabulary=vocabulary is None, min_count=min_count).persist()
    try:
        totals = judged.groupBy("verdict").agg(F.count("*").alias("pairs"), F.sum("rows").alias("rows"))
        steps = _steps({row["verdict"]: row for row in totals.collect()}, min_count)
        kept = judged.filter(F.col("verdict") == _KEPT).select("hyponym", "hypernym")
        linked = _linked(kept, min_links).toArrow()
    finally:
        judged.unpersist()
    name, left = f"pairs with a word of {min_links} links or fewer", linked.num_rows
    return [*steps, Step(name=name, removed=steps[-1].left - left, left=left)], linked


_UNUSABLE, _SELF, _UNKNOWN, _RARE, _STOP, _EXCLUDED, _KEPT = range(7)


def _merged(rows: DataFrame) -> DataFrame:
    """Add up the rows of each pair; all unusable ones become a single pair of nulls."""
    usable = F.lit(True)
    for end in _ENDS:
        # \s does not know all separators of Unicode, and a bundle takes no control characters.
        usable &= F.coalesce(F.col(end).rlike(r"^[^\s\p{Z}\p{Cc}]+$"), F.lit(False))
    usable &= F.coalesce(F.col("count") >= 0, F.lit(True))
    ends = [F.when(usable, F.col(end)).alias(end) for end in _ENDS]
    count = F.when(usable, F.col("count")).alias("count")
    sums = F.sum("count").alias("count"), F.count("*").alias("rows")
    return rows.select(*ends, count).groupBy(*_ENDS).agg(*sums)


def _facts(spark: SparkSession, vocabulary: Sequence[str] | None, excluded: Sequence[str]) -> DataFrame:
    """Say of each word that a filter knows whether it is ``known``, a ``stop`` word, ``excluded``."""
    known, stop, out = set(vocabulary or ()), stop_words(), set(excluded)
    words = sorted(known | stop | out)
    groups = zip(_FLAGS, (known, stop, out), strict=True)
    columns = {name: [word in group for word in words] for name, group in groups}
    return spark.createDataFrame(pa.table({"word": words, **columns}))


def _judged(pairs: DataFrame, facts: DataFrame, *, open_vocabulary: bool, min_count: int) -> DataFrame:
    """Add to each pair the ``verdict``: the first filter that removes it, or that it is kept."""
    for end in _ENDS:
        renamed = facts.select(*(F.col(name).alias(f"{end}_{name}") for name in ("word", *_FLAGS)))
        pairs = pairs.join(F.broadcast(renamed), F.col(end) == F.col(f"{end}_word"), "left")

    def both(flag: str) -> list[Column]:
        return [F.coalesce(F.col(f"{end}_{flag}"), F.lit(False)) for end in _ENDS]

    known, stop, excluded = (both(flag) for flag in _FLAGS)
    verdict = (
        F.when(F.col("hyponym").isNull(), _UNUSABLE)
        .when(F.col("hyponym") == F.col("hypernym"), _SELF)
        .when(F.lit(not open_vocabulary) & ~(known[0] & known[1]), _UNKNOWN)
        .when(F.col("count") < min_count, _RARE)
        .when(stop[0] | stop[1], _STOP)
        .when(excluded[0] | excluded[1], _EXCLUDED)
        .otherwise(_KEPT)
    )
    return pairs.select("hyponym", "hypernym", "rows", verdict.alias("verdict"))


def _steps(found: Mapping[int, Row], min_count: int) -> list[Step]:
    """Write the steps down: rows up to the merging of repeated pairs, pairs after it."""
    rows, pairs = ({verdict: row[unit] for verdict, row in found.items()} for unit in ("rows", "pairs"))
    removed = {
        "rows that are not two words": rows.get(_UNUSABLE, 0),
        "rows of a word with itself": rows.get(_SELF, 0),
        "rows of a pair that was there before": sum(rows[v] - pairs[v] for v in found if v > _SELF),
        "pairs with a word outside the vocabulary": pairs.get(_UNKNOWN, 0),
        f"pairs seen fewer than {min_count} times": pairs.get(_RARE, 0),
        "pairs with a stop word": pairs.get(_STOP, 0),
        "pairs with an excluded word": pairs.get(_EXCLUDED, 0),
    }
    left = [sum(rows.values()) - gone for gone in accumulate(removed.values())]
    return [Step(name=name, removed=removed[name], left=n) for name, n in zip(removed, left, strict=True)]


def _linked(pairs: DataFrame, min_links: int) -> DataFrame:
    """Remove the pairs of words with few links, once: what this leaves with few links stays."""
    ends = pairs.select(F.explode(F.array("hyponym", "hypernym")).alias("word"))
    few = ends.groupBy("word").count().filter(F.col("count") <= min_links)
    for end in _ENDS:
        pairs = pairs.join(few.select(F.col("word").alias(end)), end, "left_anti")
    return pairs.select("hyponym", "hypernym")
