"""Columns of a table, and fields inside them: checked, and sanitized in Arrow batches.

The output has the fields that were named, in the structs and arrays around them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from itertools import combinations
from operator import add
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
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

from dptext_spark.counts import Counts
from dptext_spark.errors import InputError, nearest
from dptext_spark.tables.fields import (
    Field,
    bare,
    beside,
    field_names,
    names_a_map,
    prune,
    pruned,
    quoted,
)
from dptext_spark.text.nested import FieldValues, Route, replace_values
from dptext_spark.text.policies import AllWords, Protection, Slots

MEDIAN: Final = "__dptext_median_words"
LONGEST: Final = "__dptext_longest_words"
"""Observed of the rows' numbers of words."""

# The median is off by one row in so many, at most.
_ACCURACY: Final = 10_000

KindT = TypeVar("KindT", bound=Counts[int])


class Opens(Hashable, Protocol):
    """What workers get ready once."""

    def open(self) -> Any:
        """Get ready."""


class WorkPlan(Opens, Protocol):
    """All that workers need, small and hashable; holds derived noise keys, never the user's."""

    @property
    def counters(self) -> Sequence[str]:
        """Names of what is counted in each row."""

    @property
    def text_type(self) -> DataType | None:
        """What texts become; None where they stay texts."""

    @property
    def by_words(self) -> bool:
        """Whether what becomes of a row depends on its number of words in all columns together."""

    @property
    def words(self) -> tuple[str, str] | None:
        """Two counters, of which the first less the second is the number of a row's words, if it has any."""

    def open(self) -> Any:
        """Get ready; what comes back has ``sanitize`` and ``visible_words`` as a ``Sanitizer`` has them.

        The latter only where ``by_words`` says so.
        """


@lru_cache(maxsize=2)  # a reused worker sees a new plan for every release, and must not keep them all
def opened(plan: Opens) -> Any:
    """Get ready once per process: after a worker's fork, as it must not inherit maps and BLAS threads."""
    return plan.open()


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a table, or fields inside them, are sanitized, kept, and name its rows.

    Attributes:
        text: Strings to sanitize.
        tokens: Arrays of words to sanitize.
        vector: Vectors to release.
        keep: What passes as it is; ``*`` for all else that the table has.
        left_out: What ``*`` does not stand for.
        id: What names the rows; None where the caller does.
        protect: Which words are perturbed, and what names each row's slots, if anything does.
        person: What names whose a row is, if anybody asks.
        flat: Whether what is sanitized must be columns, not fields inside them.
    """

    text: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    vector: tuple[str, ...] = ()
    keep: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    id: str | None
    protect: Protection = field(default_factory=AllWords)
    person: str | None = None
    flat: bool = False

    @property
    def slots(self) -> str | None:
        """What names each row's slots, if any."""
        return self.protect.slots_column

    @property
    def sanitized(self) -> tuple[str, ...]:
        """Text, token and vector columns."""
        return (*self.text, *self.tokens, *self.vector)

    @property
    def _beside(self) -> tuple[str, ...]:
        return tuple(name for name in (self.id, self.slots, self.person) if name is not None)

    def named(self, table: StructType) -> Self:
        """Give the same columns, with the names of those that ``*`` stands for in a table.

        The column of slots is not among them: it quotes the words that are to be protected.

        Raises:
            InputError: Columns that are sanitized, kept or left out by their names are absent or ambiguous.
        """
        from dptext_spark.options import ALL  # workers import this module, and need no options

        if ALL not in self.keep or not self.sanitized:
            return self
        chosen = tuple(name for name in self.keep if name != ALL)
        fields = replace(self, keep=(*chosen, *self.left_out))._fields(table)
        slots = (self.slots,) if self.slots else ()
        taken = [fields[name].path for name in (*self.sanitized, *self.left_out, *slots)]
        return replace(self, keep=tuple(dict.fromkeys([*chosen, *beside(table, taken)])))

    def check(self, df: DataFrame, partitions: Collection[str] = ()) -> None:
        """Check that the columns exist and have the right types; see :meth:`check_schema`."""
        exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        self.check_schema(df.schema, partitions, exact=exact)

    def check_schema(
        self, schema: StructType, partitions: Collection[str] = (), *, exact: bool = False
    ) -> None:
        """Check that the columns exist in a table and have the right types.

        Args:
            schema: The table's columns.
            partitions: Those whose values are names of folders.
            exact: Whether names may differ in capitals only.

        Raises:
            InputError: Lists every column that is absent, ambiguous or of a wrong type.
        """
        fields = self._fields(schema)
        self._check_types(fields)
        self._check_slots(fields)
        self._check_capitals(schema, fields, exact)
        if twice := sorted({name for name in self.sanitized if self.sanitized.count(name) > 1}):
            raise InputError("Columns are named twice", got=", ".join(twice))
        sanitized, kept = ([fields[name] for name in names] for names in (self.sanitized, self.keep))
        pairs = (sorted(pair, key=lambda field: len(field.path)) for pair in combinations(sanitized, 2))
        if within := [f"{inner.name} in {outer.name}" for outer, inner in pairs if outer.holds(inner)]:
            raise InputError("Columns to sanitize lie inside one another", got=", ".join(within))
        if clash := {s.name: k.name for s in sanitized for k in kept if s.holds(k) or k.holds(s)}:
            raise InputError(
                "Columns are both sanitized and kept raw",
                got=", ".join(s if s == k else f"{s} and {k}" for s, k in sorted(clash.items())),
                do="" if clash.keys() == {*clash.values()} else "Keep the fields beside them one by one",
            )
        if not sanitized:
            raise InputError("No column is to be sanitized", do="Name one")
        if folders := [name for name in self.sanitized if name in partitions]:
            raise InputError(
                "Partition columns cannot be sanitized: their values are the names of the input's folders",
                got=", ".join(folders),
            )
        if self.flat and (inside := [field.name for field in sanitized if len(field.path) > 1]):
            raise InputError(
                "Fields inside columns cannot be released as vectors",
                allowed=", ".join(schema.names),
                got=", ".join(inside),
                do="Make them columns of their own before the run",
            )

    def _fields(self, schema: StructType) -> dict[str, Field]:
        names = dict.fromkeys([*self.sanitized, *self.keep, *self._beside])
        found = {name: Field.find(schema, name) for name in names}
        if absent := [name for name, fields in found.items() if not fields]:
            in_map = any(names_a_map(schema, name) for name in absent)
            do = "What is in a map cannot be named" if in_map else ""
            raise absent_columns(absent, [*field_names(schema)], do)
        if several := [name for name, fields in found.items() if len(fields) > 1]:
            raise InputError(
                "Names can be read as a column's, and as the path of a field inside another column",
                got=", ".join(several),
                do="Rename the columns",
            )
        return {name: field for name, (field,) in found.items()}

    def _check_types(self, fields: Mapping[str, Field]) -> None:
        ids = () if self.id is None else (self.id,)
        wrong = [
            f"{name} ({fields[name].data_type.simpleString()}), not {wanted}"
            for names, kinds, wanted in (
                (self.text, [StringType], "string"),
                (self.tokens, [ArrayType, StringType], "array<string>"),
                (self.vector, [ArrayType, FloatType | DoubleType], "array<float> or array<double>"),
                (ids, [IntegralType | StringType], "an integer or string id"),
            )
            for name in names
            if not _is_of(fields[name].data_type, *kinds)
        ]
        wrong += [f"{name}, which is in an array" for name in ids if None in fields[name].path]
        if wrong:
            raise InputError("Columns have the wrong type", got="; ".join(wrong))

    def _check_slots(self, fields: Mapping[str, Field]) -> None:
        if not isinstance(self.protect, Slots):
            return
        slots = fields[self.protect.column]
        if len(self.sanitized) > 1:
            raise InputError(
                f"Column {slots.name} says where slots stand in one column, and several are to be sanitized",
                got=", ".join(self.sanitized),
                do="Sanitize them one by one",
            )
        if apart := [name for name in self.sanitized if slots.arrays != fields[name].arrays]:
            raise InputError(
                f"Column {slots.name} does not lie beside what its slots are slots of",
                allowed="slots in the same arrays as the texts: turns[].slots for turns[].text",
                got=", ".join(apart),
            )
        self.protect.check_slots(_arrow_type(slots.data_type))

    def _check_capitals(self, schema: StructType, fields: Mapping[str, Field], exact: bool) -> None:
        if ambiguous := [name for name, field in fields.items() if field.is_repeated(schema, exact)]:
            raise InputError(
                "Several columns of the input table have the same name",
                allowed="names that differ" if exact else "names that differ in more than capitals",
                got=", ".join(ambiguous),
                do="Rename them" if exact else "Rename them, or set spark.sql.caseSensitive to true",
            )

    def schema(self, table: StructType) -> StructType:
        """Leave in the table's schema what is sanitized or kept, without its metadata."""
        fields = self._fields(table)
        schema: StructType = bare(prune(table, [fields[name].path for name in (*self.sanitized, *self.keep)]))
        return schema

    def released(self, table: StructType, text_type: DataType | None) -> StructType:
        """Give the schema of what comes out; ``text_type`` is as in :class:`WorkPlan`."""
        return StructType([self._retyped(f.name, f, text_type) for f in self.schema(table).fields])

    def routes(self, table: StructType) -> tuple[tuple[str, Route], ...]:
        """Give the way to each sanitized field in what :meth:`select` leaves of a table of this schema."""
        fields, schema = self._fields(table), self.schema(table)
        return tuple((name, fields[name].route(schema)) for name in self.sanitized)

    def slots_route(self, table: StructType) -> Route | None:
        """Give the way to the slots in the last column of what :meth:`select` leaves; None without slots."""
        if not self.slots:
            return None
        slots = self._fields(table)[self.slots]
        return slots.route(prune(table, [slots.path]))[1:]

    def select(self, df: DataFrame, row_id: Column | None = None) -> DataFrame:
        """Leave in a checked frame what workers read: the output's columns, row ids, slots if any.

        Args:
            df: The frame.
            row_id: Column expression that names the rows; by default the column ``id``.
        """
        fields = self._fields(df.schema)
        columns = [
            pruned(quoted(field.name), bare(df.schema[field.name].dataType), field.dataType)
            for field in self.schema(df.schema).fields
        ]
        columns.append((fields[str(self.id)].column if row_id is None else row_id).cast(StringType()))
        if self.slots:
            slots = prune(df.schema, [fields[self.slots].path])[0]
            columns.append(pruned(quoted(slots.name), df.schema[slots.name].dataType, slots.dataType))
        return df.select(*[c.alias(n) for c, n in zip(columns, positional(len(columns)), strict=True)])

    def sanitize(
        self, selected: DataFrame, table: StructType, plan: WorkPlan, observation: Observation | None = None
    ) -> DataFrame:
        """Sanitize, lazily, what :meth:`select` left of a table of this schema.

        The observation receives ``rows`` and the counters of each column once the result is written.
        """
        schema = self.schema(table)
        ways = self.routes(table), self.slots_route(table)
        batches = partial(_sanitize_batches, plan, *ways, len(schema))
        counters = [counter(name, c) for name in self.sanitized for c in plan.counters]
        outputs = [*schema.fields, *(StructField(name, LongType()) for name in counters)]
        inner = positional(len(outputs))
        renamed = [self._retyped(n, field, plan.text_type) for n, field in zip(inner, outputs, strict=True)]
        result = selected.mapInArrow(batches, StructType(renamed))
        if observation is not None:
            named = dict(zip(counters, inner[len(schema) :], strict=True))
            sums = [F.sum(column).alias(name) for name, column in named.items()]
            sums += self._lengths(plan, named)
            result = result.observe(observation, F.count(F.lit(1)).alias("rows"), *sums)
        return result.select(*[F.col(n).alias(f.name) for n, f in zip(inner, schema.fields, strict=False)])

    def _lengths(self, plan: WorkPlan, named: Mapping[str, str]) -> list[Column]:
        """Aggregate the numbers of words of rows, all columns together."""
        if plan.words is None:
            return []
        all_words, left_out = plan.words
        terms = [F.col(named[counter(name, all_words)]) for name in self.sanitized]
        terms += [-F.col(named[counter(name, left_out)]) for name in self.sanitized]
        words = reduce(add, terms)
        return [F.percentile_approx(words, 0.5, _ACCURACY).alias(MEDIAN), F.max(words).alias(LONGEST)]

    def _retyped(self, name: str, field: StructField, text_type: DataType | None) -> StructField:
        if text_type is None or field.name not in self.text:
            return StructField(name, field.dataType, field.nullable)
        # A text without words has no vector, so a column of another type has nulls of its own.
        return StructField(name, text_type, True)


def slots_of(slots: pa.Array, route: Route | None, leaves: FieldValues) -> pa.Array | None:
    """Give the slots of each value: those that lie in the same arrays, or those of its row.

    Args:
        slots: The column that has them, if any has.
        route: As :meth:`TableColumns.slots_route` gives it.
        leaves: The values.
    """
    if route is None:
        return None
    own = FieldValues.of(slots, route)
    return own.values if own.positions.shape[1] else own.values.take(pa.array(leaves.rows))


def _sanitize_batches(
    plan: WorkPlan,
    sanitized: tuple[tuple[str, Route], ...],
    slots_route: Route | None,
    width: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Sanitize fields of Arrow batches: ``width`` columns, row ids, slots if any; runs in Python workers."""
    release = opened(plan)
    for batch in batches:
        columns = batch.columns[:width]
        ids = batch.column(width)
        counts: list[pa.Array] = []
        words = None
        if plan.by_words:
            words = words_of_rows(partial(told, release), sanitized, slots_route, batch)
        for name, (column, *inside) in sanitized:
            leaves = FieldValues.of(columns[column], tuple(inside))
            rows = pa.array(leaves.rows)
            result = release.sanitize(
                leaves.values,
                ids.take(rows),
                column=name,
                slots=slots_of(batch.columns[-1], slots_route, leaves),
                positions=leaves.positions,
                **({} if words is None else {"words": words[leaves.rows]}),
            )
            columns[column] = replace_values(columns[column], tuple(inside), result.values)
            found = (getattr(result.counts, c) for c in plan.counters)
            counts += [pa.array(leaves.sum_by_row(each, len(batch))) for each in found]
        arrays = [*columns, *counts]
        yield pa.RecordBatch.from_arrays(arrays, names=positional(len(arrays)))


def told(release: Any, values: pa.Array, slots: pa.Array | None, name: str) -> Any:
    """Count the words of values, for :func:`words_of_rows`."""
    return release.visible_words(values, slots, column=name)


def words_of_rows(
    count: Callable[[pa.Array, pa.Array | None, str], NDArray[np.int64]],
    sanitized: tuple[tuple[str, Route], ...],
    slots_route: Route | None,
    batch: pa.RecordBatch,
) -> NDArray[np.int64]:
    """int64 (rows,): add up the words of each row, of all its columns and of all elements of its arrays.

    ``count`` gives those of a field's values, with their slots and the field's name.
    """
    words = np.zeros(len(batch), dtype=np.int64)
    for name, (column, *inside) in sanitized:
        leaves = FieldValues.of(batch.columns[column], tuple(inside))
        marks = slots_of(batch.columns[-1], slots_route, leaves)
        words += leaves.sum_by_row(count(leaves.values, marks, name), len(batch))
    return words


def positional(count: int) -> list[str]:
    """Give names for inner columns: pyspark's mapInArrow cannot take every name that a table may have."""
    return [f"c{i}" for i in range(count)]


def counter(column: str, counter: str) -> str:
    """Name the column that counts something in each row of another."""
    return f"__dptext_{counter}_{column}"


def column_counts(columns: Iterable[str], kind: type[KindT], found: Mapping[str, Any]) -> dict[str, KindT]:
    """Sort the observed sums by column and counter."""
    # The sum over no rows is null.
    return {name: kind(**{c: found[counter(name, c)] or 0 for c in kind.names()}) for name in columns}


def check_ids(df: DataFrame, name: str | None, *measures: Column) -> list[Any]:
    """Compute aggregates in one narrow pass, and check in it that a column, if any, names every row once.

    Raises:
        InputError: The column, or field outside arrays, has nulls or duplicates.
    """
    if name is None:
        return list(df.agg(*measures).collect()[0]) if measures else []
    column = Field.find(df.schema, name)[0].column
    counts = (F.count(F.lit(1)), F.count(column), F.count_distinct(column))
    rows, present, distinct, *measured = df.agg(*counts, *measures).collect()[0]
    if rows != present or present != distinct:
        raise InputError(
            f"Column {name} does not name the rows",
            allowed="an id without nulls and duplicates",
            got=f"{rows - present} nulls and {present - distinct} duplicates in {rows} rows",
            do="Choose another --id, or leave it out to name rows by file and position",
        )
    return measured


def absent_columns(absent: Sequence[str], allowed: Sequence[str], do: str = "") -> InputError:
    """Make the error of a table without some columns; it says which names are near to theirs."""
    return InputError(
        "The input table lacks columns",
        allowed=", ".join(allowed) or "none: the table has no columns",
        got=", ".join(absent),
        do=do or nearest(absent, allowed),
    )


def _arrow_type(data_type: DataType) -> pa.DataType:
    """Give a type as workers see it; what they never see is no type that slots may have."""
    try:
        return to_arrow_type(data_type)
    except PySparkException:
        return pa.null()


def _is_of(data_type: Any, kind: Any, *inner: Any) -> bool:
    """Say whether a type is of a kind, and what its elements are of the next."""
    return isinstance(data_type, kind) and (not inner or _is_of(data_type.elementType, *inner))
