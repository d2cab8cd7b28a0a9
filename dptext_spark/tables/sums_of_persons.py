"""Rows and words of each person, counted before a run: only percentiles of them reach the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.lookup import WordReader
from dptext_spark.report.persons import Persons
from dptext_spark.tables.batch import Batch, Fields
from dptext_spark.tables.columns import TableColumns, shared
from dptext_spark.tables.fields import Field

_PERCENTILES: Final = {"50%": 0.5, "90%": 0.9, "99%": 0.99}
_ACCURACY: Final = 10_000


def count_persons(
    df: DataFrame, columns: TableColumns, name: str, reader: WordReader, within: float
) -> Persons | None:
    """Add up the rows and words of each person in one pass; None where no row names one.

    Persons go between machines as hashes, without their texts.
    """
    person = Field.find(df.schema, name)[0].column
    hashed = F.when(person.isNotNull(), F.xxhash64(person))
    columns = replace(columns, keep=())
    selected = columns.select(df, hashed)
    work = partial(_count, reader, columns.ways(df.schema))
    counted = selected.mapInArrow(work, "person string, words long")
    sums = counted.groupBy("person").agg(F.count(F.lit(1)).alias("rows"), F.sum("words").alias("words"))
    named = F.col("person").isNotNull()
    measures = [_of(total, named) for total in ("rows", "words")]
    found = sums.agg(
        F.count("person").alias("persons"),
        F.sum(F.when(~named, F.col("rows"))).alias("nobody"),
        *chain(*measures),
    ).collect()[0]
    if not found["persons"]:
        return None
    names = [*_PERCENTILES, "largest"]
    rows, words = ({p: int(found[f"{total} {p}"]) for p in names} for total in ("rows", "words"))
    return Persons(
        column=name,
        persons=int(found["persons"]),
        nobody=int(found["nobody"] or 0),
        rows=rows,
        words=words,
        within=within,
    )


def _of(total: str, named: Column) -> Iterator[Column]:
    """Aggregate one of the persons' sums."""
    values = F.when(named, F.col(total))
    for name, share in _PERCENTILES.items():
        yield F.percentile_approx(values, share, _ACCURACY).alias(f"{total} {name}")
    yield F.max(values).alias(f"{total} largest")


def _count(reader: WordReader, ways: Fields, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the words of rows; runs in Python workers."""
    reader = shared(reader)
    for arrow in batches:
        batch = Batch.from_arrow(arrow, ways)
        words = pa.array(batch.words(reader.visible_words))
        yield pa.RecordBatch.from_arrays([batch.ids, words], names=["person", "words"])
