"""Columns of a table, and fields inside them: checked, and sanitized in Arrow batches.

The output has the fields that were named, in the structs and arrays around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from dptext_spark.errors import InputError
from dptext_spark.spark.table.fields import (
    Field,
    field_names,
    is_repeated,
    names_a_map,
    prune,
    pruned,
    quoted,
)
from dptext_spark.text.nested import Leaves, Route, put


class ColumnWork(Protocol):
    """What a worker does to columns; the result has ``values`` and ``counts``, an array per counter."""

    def sanitize(
        self,
        values: pa.Array,
        ids: pa.Array,
        *,
        column: str,
        slots: pa.Array | None = None,
        positions: NDArray[np.int64] | None = None,
    ) -> Any:
        """Sanitize values of one column or field."""


class WorkPlan(Protocol):
    """All that workers need, small and hashable; holds derived noise keys, never the user's."""

    @property
    def counters(self) -> Sequence[str]:
        """Names of what is counted in each row."""

    def open(self) -> ColumnWork:
        """Get ready in this process, once per process."""


NO_TYPES: Final[Mapping[str, DataType]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a table, or fields inside them, are sanitized, kept, and name its rows.

    Attributes:
        text: Strings to sanitize.
        tokens: Arrays of words to sanitize.
        vector: Vectors to release.
        keep: What passes as it is.
        id: What names the rows; None where the caller does.
        slots: What names each row's slots, if any.
    """

    text: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    vector: tuple[str, ...] = ()
    keep: tuple[str, ...]
    id: str | None
    slots: str | None = None

    @property
    def sanitized(self) -> tuple[str, ...]:
        """Text, token and vector columns."""
        return (*self.text, *self.tokens, *self.vector)

    @property
    def _beside(self) -> tuple[str, ...]:
        return tuple(name for name in (self.id, self.slots) if name is not None)

    def check(self, df: DataFrame) -> None:
        """Check that the columns exist and have the right types.

        Raises:
            InputError: Lists every column that is absent, ambiguous or of a wrong type.
        """
        fields = self._fields(df.schema)
        self._check_types(fields)
        self._check_capitals(df, fields)
        if twice := sorted({name for name in self.sanitized if self.sanitized.count(name) > 1}):
            raise InputError("Columns are named twice", got=", ".join(twice))
        sanitized, kept = ([fields[name] for name in names] for names in (self.sanitized, self.keep))
        if within := [f"{b.name} in {a.name}" for a, b in _nests(combinations(sanitized, 2))]:
            raise InputError("Columns to sanitize lie inside one another", got=", ".join(within))
        if clash := {s.name: k.name for s in sanitized for k in kept if s.holds(k) or k.holds(s)}:
            raise InputError(
                "Columns are both sanitized and kept raw",
                got=", ".join(s if s == k else f"{s} and {k}" for s, k in sorted(clash.items())),
                do="" if clash.keys() == {*clash.values()} else "Keep the fields beside them one by one",
            )
        if not sanitized:
            raise InputError("No column is to be sanitized", do="Name one")

    def _fields(self, schema: StructType) -> dict[str, Field]:
        names = dict.fromkeys([*self.sanitized, *self.keep, *self._beside])
        found = {name: Field.find(schema, name) for name in names}
        if absent := [name for name, fields in found.items() if not fields]:
            raise InputError(
                "The input table lacks columns",
                allowed=", ".join(field_names(schema)) or "none: the table has no columns",
                got=", ".join(absent),
                do="What is in a map cannot be named" if any(names_a_map(schema, n) for n in absent) else "",
            )
        if several := [name for name, fields in found.items() if len(fields) > 1]:
            raise InputError(
                "Names can be read as a column's, and as the path of a field inside another column",
                got=", ".join(several),
                do="Rename the columns",
            )
        return {name: field for name, (field,) in found.items()}

    def _check_types(self, fields: Mapping[str, Field]) -> None:
        wrong = [
            f"{name} ({fields[name].data_type.simpleString()}), not {wanted}"
            for names, fits, wanted in (
                (self.text, _is_text, "string"),
                (self.tokens, _is_tokens, "array<string>"),
                (self.vector, _is_vector, "array<float> or array<double>"),
                ((self.id,) if self.id is not None else (), _is_id, "an integer or string id"),
            )
            for name in names
            if not fits(fields[name].data_type)
        ]
        wrong += [f"{name}, which is in an array" for name in self._beside if None in fields[name].path]
        if wrong:
            raise InputError("Columns have the wrong type", got="; ".join(wrong))

    def _check_capitals(self, df: DataFrame, fields: Mapping[str, Field]) -> None:
        exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        if ambiguous := [name for name, field in fields.items() if is_repeated(df.schema, field, exact)]:
            raise InputError(
                "Several columns of the input table have the same name",
                allowed="names that differ" if exact else "names that differ in more than capitals",
                got=", ".join(ambiguous),
                do="Rename them" if exact else "Rename them, or set spark.sql.caseSensitive to true",
            )

    def sanitize(
        self,
        df: DataFrame,
        plan: WorkPlan,
        row_id: Column | None = None,
        *,
        types: Mapping[str, DataType] = NO_TYPES,
        observation: Observation | None = None,
    ) -> DataFrame:
        """Sanitize the columns of a frame, lazily.

        Args:
            df: The frame, checked.
            plan: What workers need.
            row_id: Column expression that names the rows; by default the column ``id``.
            types: Types of sanitized columns that differ from the frame's.
            observation: Receives ``rows`` and the counters of each column once the result is written.
        """
        selected = self.select(df, row_id)
        return self.sanitize_selected(selected, df.schema, plan, types=types, observation=observation)

    def schema(self, table: StructType) -> StructType:
        """Leave in the table's schema what is sanitized or kept."""
        fields = self._fields(table)
        schema: StructType = prune(table, [fields[name].path for name in (*self.sanitized, *self.keep)])
        return schema

    def select(self, df: DataFrame, row_id: Column | None = None) -> DataFrame:
        """Leave in a frame what workers read: the output's columns, row ids, slots if any."""
        fields = self._fields(df.schema)
        columns = [
            pruned(quoted(field.name), df.schema[field.name].dataType, field.dataType)
            for field in self.schema(df.schema).fields
        ]
        columns.append((fields[str(self.id)].column if row_id is None else row_id).cast("string"))
        columns += [fields[self.slots].column] if self.slots else []
        return df.select(*[c.alias(n) for c, n in zip(columns, _positional(len(columns)), strict=True)])

    def sanitize_selected(
        self,
        selected: DataFrame,
        table: StructType,
        plan: WorkPlan,
        *,
        types: Mapping[str, DataType] = NO_TYPES,
        observation: Observation | None = None,
    ) -> DataFrame:
        """Sanitize what :meth:`select` left of a table of this schema; see :meth:`sanitize`."""
        fields, schema = self._fields(table), self.schema(table)
        routes = tuple((name, fields[name].route(schema)) for name in self.sanitized)
        batches = partial(_sanitize_batches, plan, routes, len(schema))
        counters = [counter(name, c) for name in self.sanitized for c in plan.counters]
        outputs = [_retyped(field, types.get(field.name)) for field in schema.fields]
        outputs += [StructField(name, LongType()) for name in counters]
        inner = _positional(len(outputs))
        result = selected.mapInArrow(batches, _renamed(outputs, inner))
        if observation is not None:
            sums = [F.sum(n).alias(c) for n, c in zip(inner[len(schema) :], counters, strict=True)]
            result = result.observe(observation, F.count(F.lit(1)).alias("rows"), *sums)
        return result.select(*[F.col(n).alias(f.name) for n, f in zip(inner, schema.fields, strict=False)])


def _sanitize_batches(
    plan: WorkPlan,
    sanitized: tuple[tuple[str, Route], ...],
    width: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Sanitize fields of Arrow batches: ``width`` columns, row ids, slots if any; runs in Python workers."""
    work = plan.open()
    for batch in batches:
        columns = batch.columns[:width]
        ids, *slots = batch.columns[width:]
        counts: list[pa.Array] = []
        for name, (column, *inside) in sanitized:
            leaves = Leaves.of(columns[column], tuple(inside))
            rows = pa.array(leaves.rows)
            result = work.sanitize(
                leaves.values,
                ids.take(rows),
                column=name,
                slots=slots[0].take(rows) if slots else None,
                positions=leaves.positions,
            )
            columns[column] = put(columns[column], tuple(inside), result.values)
            found = (getattr(result.counts, c) for c in plan.counters)
            counts += [pa.array(leaves.sum_by_row(each, len(batch))) for each in found]
        arrays = [*columns, *counts]
        yield pa.RecordBatch.from_arrays(arrays, names=_positional(len(arrays)))


def _positional(count: int) -> list[str]:
    """Names for inner columns: pyspark's mapInArrow cannot take every name that a table may have."""
    return [f"c{i}" for i in range(count)]


def _renamed(fields: Iterable[StructField], names: Iterable[str]) -> StructType:
    renamed = zip(names, fields, strict=True)
    return StructType([StructField(name, f.dataType, f.nullable, f.metadata) for name, f in renamed])


def _retyped(field: StructField, data_type: DataType | None) -> StructField:
    # A text without words has no vector, so a column of another type has nulls of its own.
    return field if data_type is None else StructField(field.name, data_type, True, field.metadata)


def counter(column: str, counter: str) -> str:
    """Name the column that counts something in each row of another."""
    return f"__dptext_{counter}_{column}"


def check_ids(df: DataFrame, name: str, *measures: Column) -> list[Any]:
    """Check in one narrow pass that a column names every row once.

    Args:
        df: The frame.
        name: The column, or the path of a field outside arrays.
        measures: Aggregates of other columns, for the same pass.

    Returns:
        The values of the measures.

    Raises:
        InputError: The column has nulls or duplicates.
    """
    column = Field.find(df.schema, name)[0].column
    rows, present, distinct, *measured = measure(
        df, F.count(F.lit(1)), F.count(column), F.count_distinct(column), *measures
    )
    if rows != present or present != distinct:
        raise InputError(
            f"Column {name} does not name the rows",
            allowed="an id without nulls and duplicates",
            got=f"{rows - present} nulls and {present - distinct} duplicates in {rows} rows",
            do="Choose another --id, or leave it out to name rows by file and position",
        )
    return measured


def measure(df: DataFrame, *measures: Column) -> list[Any]:
    """Compute aggregates, one at least, in one pass."""
    return list(df.agg(*measures).collect()[0])


def _nests(pairs: Iterable[tuple[Field, Field]]) -> Iterator[tuple[Field, Field]]:
    for a, b in pairs:
        if a.name != b.name and (a.holds(b) or b.holds(a)):
            yield (a, b) if a.holds(b) else (b, a)


def _is_id(data_type: DataType) -> bool:
    return isinstance(data_type, IntegralType | StringType)


def _is_text(data_type: DataType) -> bool:
    return isinstance(data_type, StringType)


def _is_tokens(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and _is_text(data_type.elementType)


def _is_vector(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and isinstance(data_type.elementType, FloatType | DoubleType)
