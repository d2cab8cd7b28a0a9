"""Rows under sealed names: which rows of a release were released before, without a word of any.

A line for each row and column holds keyed hashes of 16 bytes: of the row's id, of what the column holds, and
of the key that its noise is drawn from. Elements of an array that move to another place get fresh noise
there, and nobody can tell which one came from where: so all that a column holds in a row is one content.
Without the user's key the hashes tell no more than which contents of one row are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType, StringType, StructField, StructType

from dptext_spark.accounting.ledger import History, Naming, RowCounts, SealedRows, maximal
from dptext_spark.noise import NoiseKey
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.tables.batch import Batch, Fields
from dptext_spark.tables.columns import shared
from dptext_spark.text.columns import id_bytes

SEALED: Final = StructType(
    [
        StructField("row", BinaryType()),
        StructField("column", StringType()),
        StructField("content", BinaryType()),
        StructField("context", BinaryType()),
    ]
)
_ARROW: Final = pa.schema(
    [("row", "binary"), ("column", "string"), ("content", "binary"), ("context", "binary")]
)
_BYTES: Final = 16
_PLACE: Final = ["row", "column"]
# Epsilon in units of 1e-18, rounded up: sums of it are exact, whatever their order.
_TINY: Final = 18
_SUM: Final = DecimalType(38, 0)
# Groups of rows with equal histories that the driver looks at; of more the union stands for all.
_MOST_GROUPS: Final = 4096


def sealed(selected: DataFrame, key: NoiseKey, sanitizer: Sanitizer, ways: Fields) -> DataFrame:
    """Seal, lazily, the rows that ``TableColumns.select`` gave, with a derived key of the ledger."""
    return selected.mapInArrow(partial(_seal, key, sanitizer, ways), SEALED)


def _seal(
    key: NoiseKey, sanitizer: Sanitizer, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Seal rows of Arrow batches; runs in Python workers."""
    sanitizer = shared(sanitizer)
    for arrow in batches:
        batch = Batch.from_arrow(arrow, ways)
        row_ids = id_bytes(batch.ids)
        rows = [_name(key, b"row", row_id) for row_id in row_ids]
        words = batch.words(sanitizer.visible_words) if sanitizer.by_words else None
        for column, _, found in batch.fields():
            contents: list[list[bytes | memoryview]] = [[] for _ in rows]
            keys: list[list[bytes]] = [[] for _ in rows]
            contexts = sanitizer.contexts(
                found.values,
                found.ids,
                column=column,
                slots=found.slots,
                positions=found.positions,
                words=None if words is None else words[found.rows],
            )
            places = found.positions.astype("<i8")
            for row, at, (content, own) in zip(found.rows.tolist(), places, contexts, strict=True):
                contents[row] += (at.tobytes(), *content)
                keys[row].append(own)
            named = zip(row_ids, contents, strict=True)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(rows, pa.binary()),
                    pa.array([column] * len(rows), pa.string()),
                    pa.array([_name(key, b"content", r, column.encode(), *c) for r, c in named], pa.binary()),
                    pa.array([_name(key, b"context", *each) for each in keys], pa.binary()),
                ],
                schema=_ARROW,
            )


def _name(key: NoiseKey, *fields: bytes | memoryview) -> bytes:
    return key.derive(*fields).secret[:_BYTES]


def measures() -> list[Column]:
    """Aggregates of sealed rows that :func:`seal_of` reads."""
    return [F.count(F.lit(1)).alias("lines"), F.bit_xor(F.xxhash64(*SEALED.names)).alias("checksum")]


def seal_of(found: Mapping[str, Any]) -> SealedRows:
    """Say what files of sealed rows hold, by their measures."""
    return SealedRows(lines=found["lines"], checksum=found["checksum"] or 0)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A release's rows beside those of earlier ones; see ``accounting.ledger.Cost``."""

    rows: RowCounts | None
    dearest: tuple[str, ...] | None
    histories: tuple[tuple[str, ...], ...]


def compared(
    mine: DataFrame,
    earlier: DataFrame | None,
    *,
    release: str,
    epsilon: float,
    epsilons: Mapping[str, float],
    known_as: Naming,
    family: Sequence[History],
    family_worst: Sequence[str],
) -> Compared:
    """Compare sealed rows with those of earlier releases of the same family; no row leaves Spark.

    Args:
        mine: The sealed rows of a release.
        earlier: Those of earlier ones, with a column ``release``.
        release: The release's id.
        epsilon: Of the release.
        epsilons: Of earlier releases in its unit.
        known_as: What names the rows.
        family: Histories of the earlier releases.
        family_worst: The earlier releases that make up the largest total of any row: a row that may be any
            earlier one counts from there.
    """
    known = mine.sparkSession.createDataFrame([], _KNOWN) if earlier is None else _known(earlier, epsilons)
    joined = mine.join(known, _PLACE, "left")
    new = F.col("contexts").isNull()
    free = F.coalesce(F.array_contains("contexts", F.col("context")), F.lit(False))
    any_row = ~free & {"id": F.lit(False), "file": ~new, "position": F.lit(True)}[known_as]
    worst_of_all = F.lit(sum((_tiny(epsilons[name]) for name in family_worst), Decimal(0))).cast(_SUM)
    before = F.when(any_row, worst_of_all).otherwise(F.coalesce("spent", F.lit(0).cast(_SUM)))
    history = F.when(any_row, F.array(*map(F.lit, family_worst)).cast("array<string>")).otherwise(
        F.coalesce("history", F.array().cast("array<string>"))
    )
    after = F.when(free, before).otherwise(before + F.lit(_tiny(epsilon)).cast(_SUM))
    with_it = F.when(free, history).otherwise(F.sort_array(F.array_append(history, release)))
    places = joined.select(
        "row",
        new.alias("new"),
        (~new & ~F.array_contains("contents", F.col("content"))).alias("changed"),
        free.alias("free"),
        F.when(~free, F.struct(after.alias("total"), history.alias("history"))).alias("dearest"),
        F.when(~any_row, with_it).alias("history"),
        any_row.alias("any_row"),
    )
    found = _by_histories(places).limit(_MOST_GROUPS + 1).collect()
    if len(found) > _MOST_GROUPS:
        union = places.select(F.explode("history")).distinct().collect()
        one = F.array(*(F.lit(name) for (name,) in union))
        found = _by_histories(places.withColumn("history", one)).collect()
    counts = {name: sum(group[name] for group in found) for name in RowCounts.model_fields}
    dearest = [group["dearest"] for group in found if group["dearest"] is not None]
    histories = [frozenset(each) for group in found for each in group["histories"]]
    if any(group["any_row"] for group in found):
        histories += [each | {release} for each in family or [frozenset[str]()]]
    return Compared(
        rows=RowCounts(**counts),
        dearest=tuple(max(dearest)["history"]) if dearest else None,
        histories=tuple(tuple(sorted(each)) for each in maximal(histories)),
    )


def _by_histories(places: DataFrame) -> DataFrame:
    """Count the rows that have the same histories in their columns."""
    rows = places.groupBy("row").agg(
        F.bool_or("new").alias("new"),
        F.bool_or("changed").alias("changed"),
        F.bool_and("free").alias("free"),
        F.max("dearest").alias("dearest"),
        F.bool_or("any_row").alias("any_row"),
        F.sort_array(F.collect_set("history")).alias("histories"),
    )
    return rows.groupBy("histories", "any_row").agg(
        F.count_if("changed").alias("changed"),
        F.count_if(~F.col("changed") & F.col("new")).alias("new"),
        F.count_if(~F.col("changed") & ~F.col("new")).alias("equal"),
        F.count_if("free").alias("free"),
        F.max("dearest").alias("dearest"),
    )


_KNOWN: Final = (
    "row binary, column string, spent decimal(38,0), contexts array<binary>, contents array<binary>, "
    "history array<string>"
)


def _known(earlier: DataFrame, epsilons: Mapping[str, float]) -> DataFrame:
    """For each place what was released of it: once for each noise context, however often it came."""
    worth = F.lit(None).cast(_SUM)
    if epsilons:
        pairs = [F.lit(part) for name, value in epsilons.items() for part in (name, _tiny(value))]
        worth = F.element_at(F.create_map(*pairs), F.col("release")).cast(_SUM)
    once = (
        earlier.withColumn("worth", worth)
        .groupBy(*_PLACE, "context")
        .agg(F.min("content").alias("content"), F.max(F.struct("worth", "release")).alias("of"))
    )
    counted = F.col("of.worth").isNotNull()
    return once.groupBy(*_PLACE).agg(
        F.coalesce(F.sum("of.worth"), F.lit(0)).cast(_SUM).alias("spent"),
        F.collect_list("context").alias("contexts"),
        F.collect_set("content").alias("contents"),
        F.sort_array(F.collect_list(F.when(counted, F.col("of.release")))).alias("history"),
    )


def _tiny(epsilon: float) -> Decimal:
    exact = Decimal(repr(epsilon)).scaleb(_TINY)
    return exact.quantize(Decimal(1), ROUND_CEILING)
