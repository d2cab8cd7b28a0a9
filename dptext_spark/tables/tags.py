"""Tags of surrogates in a released table: how many there are, and which rows they link."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from dptext_spark.text.actions import TAG_BITS

_TAG: Final = rf"\[([A-Z][A-Z0-9_]*-[0-9a-f]{{{TAG_BITS // 4}}})\]"


def count_tags(texts: DataFrame) -> list[dict[str, Any]]:
    """Count the tags of each type in released texts, the column ``value``, in one pass.

    Returns dicts, by type, of distinct ``tags``, of ``linked`` rows, which have a tag that another
    row has too, and of the rows of the most frequent one, ``largest``.
    """
    tags = F.array_distinct(F.regexp_extract_all("value", F.lit(_TAG), F.lit(1)))
    of_rows = texts.select(
        F.monotonically_increasing_id().alias("row"), F.explode(tags).alias("tag")
    )
    rows_of_tag = F.count(F.lit(1)).over(Window.partitionBy("tag"))
    counted = of_rows.withColumn("rows", rows_of_tag)
    type_of_tag = F.lower(F.regexp_extract("tag", "^(.*)-", 1)).alias("type")
    linked_row = F.when(F.col("rows") > 1, F.col("row"))
    by_type = counted.groupBy(type_of_tag).agg(
        F.countDistinct("tag").alias("tags"),
        F.countDistinct(linked_row).alias("linked"),
        F.max("rows").alias("largest"),
    )
    return [*map(Row.asDict, by_type.orderBy("type").collect())]
