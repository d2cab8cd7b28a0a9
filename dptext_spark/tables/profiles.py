"""What columns of a table look like: counts in a sample of rows, and of unique values in all rows.

Numbers reach the driver, no value does.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dptext_spark.tables.batch import ID, Batch, FieldPaths
from dptext_spark.tables.columns import TableColumns, shared
from dptext_spark.tables.fields import Field, field_names
from dptext_spark.tables.sampling import SAMPLE_ROWS, SAMPLE_TASKS, Coverage
from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import TYPES
from dptext_spark.text.tokens import lookup_form
from dptext_spark.word_reader import WordReader

MOST_IDS: Final = 5
"""Columns whose values are compared in all rows, to find one that names them."""

_TEXT_WORDS: Final = 3.0  # on average: shorter values are names or categories
_MANY: Final = 0.5  # share of values that makes a column what they are
_PERSON: Final = re.compile(
    r"(?:^|_)(?:user|customer|client|patient|author|person|employee|member|account|sender)"
    r"(?:_?(?:id|name|no|number))?$",
    re.IGNORECASE,
)


@dataclass(kw_only=True)
class Profile:
    """A column: its type, counts in a sample, and what it looks like."""

    name: str
    data_type: DataType
    counts: Counter[str] = field(default_factory=Counter)
    is_unique: bool = False  # in all rows, without nulls

    @property
    def looks(self) -> str:
        """``text``, ``id``, ``person``, ``identifier``, ``time`` or ``other``."""
        values = max(self.counts["values"], 1)
        is_text = isinstance(self.data_type, StringType | ArrayType)
        if isinstance(self.data_type, DateType | TimestampType | TimestampNTZType):
            return "time"
        if is_text and self.counts["words"] / values >= _TEXT_WORDS:
            return "text"
        if self.counts["identified"] / values > _MANY:
            return "identifier"
        if self.is_unique:
            return "id"
        if _PERSON.search(self.name):
            return "person"
        return "other"

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON-ready values."""
        counts = {}
        for name in ("values", "nulls", "distinct", "words"):
            counts[name] = self.counts[name]
        identifiers = {kind: self.counts[kind] for kind in TYPES if self.counts[kind]}
        row: dict[str, Any] = {
            "column": self.name,
            "type": self.data_type.simpleString(),
            "looks": self.looks,
        }
        row |= {"unique": self.is_unique, **counts, "identifiers": identifiers}
        if self.counts["tokens"]:
            row["coverage"] = 1.0 - self.counts["unknown"] / self.counts["tokens"]
        return row


def profiles(df: DataFrame, reader: WordReader | None = None) -> list[Profile]:
    """Look at the first rows of some tasks, and, for columns that may be ids, at all rows."""
    by_name = {}
    for name in field_names(df.schema):
        kind = Field.find(df.schema, name)[0].data_type
        by_name[name] = Profile(name=name, data_type=kind)
    visible = [name for name, profile in by_name.items() if _is_shown(profile.data_type)]
    if visible:
        columns = TableColumns(text=tuple(visible), keep=(), id=None)
        work = partial(_profile, reader, columns.field_paths(df.schema))
        rows = columns.select(df, F.lit("")).withColumn(ID, F.lit(""))
        for (sample,) in rows.mapInArrow(work, "s string").limit(SAMPLE_TASKS).collect():
            for name, counts in json.loads(sample).items():
                by_name[name].counts.update(counts)
    candidates = [profile for profile in by_name.values() if _may_be_id(profile)][:MOST_IDS]
    _mark_unique(df, candidates)
    return [*by_name.values()]


def _is_shown(kind: DataType) -> bool:
    """Return whether values of a type are looked at: texts, whole numbers, lists of texts."""
    if isinstance(kind, ArrayType):
        kind = kind.elementType
    return isinstance(kind, StringType | IntegralType) and not isinstance(kind, StructType)


def _may_be_id(profile: Profile) -> bool:
    """Return whether a column's values differ in the sample, and are such as name rows."""
    counts = profile.counts
    is_named = isinstance(profile.data_type, StringType | IntegralType)
    is_short = counts["words"] < _TEXT_WORDS * max(counts["values"], 1)
    differ = counts["distinct"] == counts["values"] > 0 and not counts["nulls"]
    return is_named and is_short and differ and "[]" not in profile.name


def _mark_unique(df: DataFrame, candidates: Sequence[Profile]) -> None:
    """Compare the values of columns in all rows."""
    if not candidates:
        return
    measures = [F.count(F.lit(1))]
    for profile in candidates:
        column = Field.find(df.schema, profile.name)[0].column
        measures.append(F.count_distinct(column))
    rows, *distinct = df.agg(*measures).collect()[0]
    for profile, count in zip(candidates, distinct, strict=True):
        profile.is_unique = bool(rows) and count == rows


def _profile(
    reader: WordReader | None, paths: FieldPaths, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count in the first rows of a task; runs in Python workers."""
    counts: dict[str, Counter[str]] = {}
    first = next(iter(batches), None)
    if first is not None:
        batch = Batch.from_arrow(first.slice(0, SAMPLE_ROWS), paths)
        for name, values in batch.fields():
            counts[name] = _counts(values.values, reader)
    yield pa.RecordBatch.from_pydict({"s": [json.dumps(counts)]})


def _counts(values: pa.Array, reader: WordReader | None) -> Counter[str]:
    """Count values, words and spans that patterns find."""
    counts: Counter[str] = Counter()
    is_list = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    counts["nulls"] = values.null_count
    counts["values"] = len(values) - values.null_count
    if is_list:
        lengths = pc.list_value_length(values.drop_null())
        counts["words"] = pc.sum(lengths).as_py() or 0
        return counts
    counts["distinct"] = pc.count_distinct(values, mode="only_valid").as_py()
    if pa.types.is_integer(values.type):
        return counts
    for string in filter(None, values.to_pylist()):
        spans = find(lookup_form(string), TYPES)
        counts.update(kind for _, _, kind in spans)
        counts["words"] += len(string.split())
        covered = sum(end - start for start, end, _ in spans)
        counts["identified"] += covered > _MANY * len(string.strip())
    if reader is not None:
        coverage = Coverage.measure(values, shared(reader))
        counts["tokens"] = coverage["tokens"]
        counts["unknown"] = coverage["unknown"]
    return counts
