"""Columns of a table, and fields inside them: checked, and sanitized in Arrow batches.

The output has the fields that were named, in the structs and arrays around them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import combinations
from operator import add
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, FloatType, LongType, StringType, StructField, StructType

from dptext_spark.errors import InputError, nearest
from dptext_spark.sanitizer import Sanitized, Sanitizer, TokenCounts
from dptext_spark.tables.batch import ID, ROW, SLOTS, Batch, Fields
from dptext_spark.tables.fields import Field, bare, beside, field_names, pruned, quoted
from dptext_spark.text.columns import check_positions
from dptext_spark.word_reader import FEW

if TYPE_CHECKING:  # workers import this module, and need no options
    from dptext_spark.tables.source import Source
    from dptext_spark.vector_sanitizer import VectorCounts, VectorWorker

MEDIAN: Final = "__dptext_median_words"
LONGEST: Final = "__dptext_longest_words"
"""Observed of the rows' numbers of words."""

# What --keep takes for all columns.
_ALL: Final = "*"
# Spark's name of strings, of whatever collation.
_STRING: Final = r"string( collate \w+)?"
_BINARY_STRINGS: Final = (
    "Where the Parquet files are of Impala or old Hive, which do not mark strings as such, give "
    "--spark-conf spark.sql.parquet.binaryAsString=true; else make them strings before the run"
)
ACCURACY: Final = 10_000
"""Percentiles are off by one row in so many, at most."""

KindT = TypeVar("KindT", "TokenCounts[int]", "VectorCounts[int]")
WorkerT = TypeVar("WorkerT", bound=Hashable)
Worker: TypeAlias = "Sanitizer | VectorWorker"
"""What sanitizes columns: small, hashable and picklable; holds derived noise keys, never the user's."""


@lru_cache(
    maxsize=2
)  # a reused worker sees a new one for every release, and must not keep them all
def shared(worker: WorkerT) -> WorkerT:
    """Give the first of all equal workers that this process saw, with all that it has opened and bound.

    It opens after Spark's fork: a child must not inherit maps and BLAS threads.
    """
    return worker


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a table, or fields inside them, are sanitized, kept, and name its rows."""

    text: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    vector: tuple[str, ...] = ()
    keep: tuple[str, ...]  # ``*`` is all else that the table has,
    left_out: tuple[str, ...] = ()  # but for these
    id: str | None  # None where the caller names the rows
    slots: str | None = None  # of slots, or of spans that are masked
    person: str | None = None  # whose a row is
    path: str = ""  # of the input, whose folders COLUMN=VALUE are no columns of what lies in it
    vectors: bool = False  # whether vectors come out, of columns alone, not of fields inside them

    @property
    def sanitized(self) -> tuple[str, ...]:
        """Text, token and vector columns."""
        return (*self.text, *self.tokens, *self.vector)

    @property
    def mentioned(self) -> list[str]:
        """All names, without ``*``."""
        others = (name for name in (self.id, self.slots, self.person) if name is not None)
        names = dict.fromkeys([*self.sanitized, *self.keep, *self.left_out, *others])
        return [name for name in names if name != _ALL]

    def named(self, table: StructType) -> Self:
        """Give the same columns, with the names of those that ``*`` stands for in a table.

        The column of slots is not among them: it quotes the words that are to be protected.
        """
        if _ALL not in self.keep or not self.sanitized:
            return self
        fields = self._fields(table)
        chosen = [name for name in self.keep if name != _ALL]
        slots = (self.slots,) if self.slots else ()
        taken = [fields[name].path for name in (*self.sanitized, *self.left_out, *slots)]
        kept = tuple(dict.fromkeys([*chosen, *beside(table, taken)]))
        return replace(self, keep=kept, left_out=())  # which may differ in capitals only

    def check(self, df: DataFrame, partitions: Collection[str] = ()) -> None:
        """Check them as :meth:`check_schema` does."""
        exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        self.check_schema(df.schema, partitions, exact=exact)

    def check_schema(
        self, schema: StructType, partitions: Collection[str] = (), *, exact: bool = False
    ) -> None:
        """Check that columns exist and have the right types; ``exact``: names may differ in capitals only."""
        fields = self._fields(schema)
        if not self.sanitized:
            raise InputError("No column is to be sanitized", do="Name one")
        sanitized = [fields[name] for name in self.sanitized]
        slots = fields[self.slots] if self.slots else None
        ids = [] if self.id is None else [fields[self.id]]
        wrong = [
            f"{name} ({fields[name].data_type.simpleString()}), not {wanted}"
            for names, kinds, wanted in (
                (self.text, _STRING, "string"),
                (self.tokens, f"array<{_STRING}>", "array<string>"),
                (self.vector, "array<(float|double)>", "array<float> or array<double>"),
                # Decimals without a scale are unsigned integers, as Spark reads them.
                (
                    [own.name for own in ids],
                    rf"\w*int|decimal\(\d+,0\)|{_STRING}",
                    "an integer or string id",
                ),
            )
            for name in names
            if not re.fullmatch(kinds, fields[name].data_type.simpleString())
        ]
        wrong += [f"{own.name}, which is in an array" for own in ids if own.arrays]
        _refuse(
            "Columns have the wrong type",
            ["; ".join(wrong)],
            do=_BINARY_STRINGS if any("binary" in fault for fault in wrong) else "",
        )
        if slots:
            _refuse(
                f"Column {self.slots} says where slots stand in one column, and several are to be sanitized",
                self.sanitized if len(sanitized) > 1 else (),
                do="Sanitize them one by one",
            )
            _refuse(
                f"Column {self.slots} does not lie in the same arrays as its text",
                [own.name for own in sanitized if slots.arrays != own.arrays],
                allowed="slots in the same arrays as the texts: turns[].slots for turns[].text",
            )
            try:
                kind = to_arrow_type(slots.data_type)
            except PySparkException:  # workers never see it: no type that slots may have
                kind = pa.null()
            check_positions(kind, slots.name)
        _refuse(
            "Several columns of the input table have the same name",
            [name for name, own in fields.items() if own.is_repeated(schema, exact)],
            allowed="names that differ" if exact else "names that differ in more than capitals",
            do="Rename them" if exact else "Rename them, or set spark.sql.caseSensitive to true",
        )
        pairs = (
            sorted(pair, key=lambda each: len(each.path)) for pair in combinations(sanitized, 2)
        )
        within = [f"{inner.name} in {outer.name}" for outer, inner in pairs if outer.holds(inner)]
        _refuse("Columns to sanitize are named twice, or lie inside one another", within)
        clash = [
            (s, k)
            for s in sanitized
            for k in map(fields.__getitem__, self.keep)
            if s.holds(k) or k.holds(s)
        ]
        _refuse(
            "Columns are both sanitized and kept raw",
            [s.name if s == k else f"{s.name} and {k.name}" for s, k in clash],
            do="Keep the fields next to them one by one" if any(s != k for s, k in clash) else "",
        )
        _refuse(
            "Partition columns cannot be sanitized: their values are the names of the input's folders",
            [name for name in self.sanitized if name in partitions],
        )
        _refuse(
            "Fields inside columns cannot be released as vectors",
            [own.name for own in sanitized if self.vectors and len(own.path) > 1],
            allowed=", ".join(schema.names),
            do="Make them columns of their own before the run",
        )

    def _fields(self, schema: StructType) -> dict[str, Field]:
        found = {name: Field.find(schema, name) for name in self.mentioned}
        if absent := [name for name, fields in found.items() if not fields]:
            raise absent_columns(absent, [*field_names(schema)], self.path)
        _refuse(
            "Names can be read as a column's, and as the path of a field inside another column",
            [name for name, fields in found.items() if len(fields) > 1],
            do="Rename the columns",
        )
        return {name: field for name, (field,) in found.items()}

    def schema(self, table: StructType) -> StructType:
        """Leave in the table's schema what is sanitized or kept, without its metadata."""
        fields = self._fields(table)
        schema: StructType = bare(
            table, [fields[name].path for name in (*self.sanitized, *self.keep)]
        )
        return schema

    def released(self, table: StructType) -> StructType:
        """Give the schema of what comes out."""
        texts, fields = self.text if self.vectors else (), self.schema(table).fields
        # A text without words has no vector, so a column of another type has nulls of its own.
        vector = ArrayType(FloatType())
        return StructType([StructField(f.name, vector) if f.name in texts else f for f in fields])

    def ways(self, table: StructType) -> Fields:
        """Give the ways to sanitized fields and slots in what :meth:`select` leaves of such a table."""
        fields = self._fields(table)
        slots = fields[self.slots].path[1:] if self.slots else None
        return Fields(paths={name: fields[name].path for name in self.sanitized}, slots=slots)

    def select(self, df: DataFrame, row_id: Column | None = None) -> DataFrame:
        """Leave in a checked frame what workers read; ``row_id`` or else the column ``id`` names the rows."""
        table, fields = bare(df.schema), self._fields(df.schema)

        def part(field: StructField) -> Column:
            return pruned(quoted(field.name), table[field.name].dataType, field.dataType)

        columns = [part(field).alias(field.name) for field in self.schema(table).fields]
        name = fields[str(self.id)].column if row_id is None else row_id
        selected = [F.struct(*columns).alias(ROW), name.cast(StringType()).alias(ID)]
        if self.slots:
            (slots,) = bare(table, [fields[self.slots].path]).fields
            selected.append(part(slots).alias(SLOTS))
        return df.select(*selected)

    def sanitize(
        self,
        selected: DataFrame,
        table: StructType,
        worker: Worker,
        observation: Observation | None = None,
        row_counts: NDArray[np.uint8] | None = None,
    ) -> DataFrame:
        """Sanitize, lazily, what :meth:`select` left of a table of this schema.

        The observation receives ``rows`` and the counters of each column once the result is
        written; with ``row_counts`` (V,), how many rows have each word, also how many rows show an
        unchanged rare word.
        """
        counters = [counter(name, c) for name in self.sanitized for c in worker.counts._fields]
        if row_counts is not None:
            counters += [singled_out(few) for few in FEW]
        # Spark trusts this schema and matches columns by position.
        row = StructField(ROW, self.released(table), nullable=False)
        outputs = StructType(
            [row, *(StructField(f"c{i}", LongType()) for i in range(len(counters)))]
        )
        work = partial(_sanitize_batches, worker, self.ways(table), row_counts=row_counts)
        result = selected.mapInArrow(work, outputs)
        if observation is not None:
            columns = {name: F.col(f"c{i}") for i, name in enumerate(counters)}
            measures = [F.count(F.lit(1)).alias("rows")]
            measures += [F.sum(column).alias(name) for name, column in columns.items()]
            if not self.vectors:
                row_words = reduce(
                    add,
                    (
                        columns[counter(n, "tokens")] - columns[counter(n, "dropped")]
                        for n in self.sanitized
                    ),
                )
                measures.append(F.percentile_approx(row_words, 0.5, ACCURACY).alias(MEDIAN))
                measures.append(F.max(row_words).alias(LONGEST))
            result = result.observe(observation, *measures)
        return result.select(f"{ROW}.*")


def _sanitize_batches(
    worker: Worker,
    ways: Fields,
    batches: Iterable[pa.RecordBatch],
    *,
    row_counts: NDArray[np.uint8] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Sanitize fields of Arrow batches; runs in Python workers."""
    worker = shared(worker)
    for batch in Batch.parts(batches, ways):
        counts: list[NDArray[np.int64]] = []
        # The number of rows that have the rarest unchanged word of each row.
        rarest = np.full(len(batch), max(FEW))
        for name, found in batch.fields(worker.visible_words):
            result = worker.sanitize(found.values, found.ids, column=name, **found.given)
            batch.put(name, result.values)
            counts += [found.sum_by_row(of_values, len(batch)) for of_values in result.counts]
            if row_counts is not None and isinstance(result, Sanitized):
                values, words = result.unchanged
                np.minimum.at(rarest, found.rows[values], row_counts[words])
        if row_counts is not None:
            counts += [(rarest < few).astype(np.int64) for few in FEW]
        yield batch.to_arrow(counts)


def counter(column: str, counter: str) -> str:
    """Name the column that counts something in each row of another."""
    return f"__dptext_{counter}_{column}"


def singled_out(few: int) -> str:
    """Name the column that counts rows with an unchanged word that fewer rows than ``few`` have."""
    return f"__dptext_singled_out_{few}"


def column_counts(
    columns: Iterable[str], kind: type[KindT], found: Mapping[str, Any]
) -> dict[str, KindT]:
    """Sort the observed sums by column and counter."""
    # The sum over no rows is null.
    return {
        name: kind(**{c: found[counter(name, c)] or 0 for c in kind._fields}) for name in columns
    }


def check_ids(df: DataFrame, name: str | None, *measures: Column) -> list[Any]:
    """Compute aggregates in one narrow pass, and check in it that a column, if any, names every row once."""
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


def check_refused(source: Source, columns: TableColumns) -> TableColumns:
    """Refuse fields that cannot be read and that the run wants; those to leave out are no longer named."""
    named = replace(columns, left_out=()).mentioned
    for name, error in source.refused.items():
        is_spared = any(_lies_in(name, other) for other in columns.left_out)
        if _ALL in columns.keep and not is_spared:
            raise error
        if any(_lies_in(name, other) or _lies_in(other, name) for other in named):
            raise error
    absent = [
        other
        for other in columns.left_out
        if any(_lies_in(name, other) for name in source.refused)
        and not Field.find(source.df.schema, other)
    ]
    return replace(columns, left_out=tuple(name for name in columns.left_out if name not in absent))


def _lies_in(name: str, around: str) -> bool:
    """Say whether a field is another one, or lies inside it."""
    return name == around or name.startswith((f"{around}.", f"{around}[]"))


def _refuse(what: str, names: Iterable[str], *, allowed: str = "", do: str = "") -> None:
    """Raise an InputError where there are such names."""
    if got := ", ".join(names):
        raise InputError(what, allowed=allowed, got=got, do=do)


def absent_columns(absent: Sequence[str], allowed: Sequence[str], path: str = "") -> InputError:
    """Make the error of a table without some columns; it says which names are near to theirs.

    Of those that are folders ``COLUMN=VALUE`` of the input's ``path`` it says so.
    """
    folders = {}
    for part in path.split("/"):
        name, sign, value = part.partition("=")
        if sign:
            folders[unquote(name)] = unquote(value)
    in_path = [name for name in absent if name in folders]
    if in_path:
        table = re.split(r"/[^/=]+=", f"/{path}", maxsplit=1)[0][1:] or "."
        chosen = " and ".join(f"{name} = '{folders[name]}'" for name in in_path)
        return InputError(
            "Columns are part of the path of --input, so the table in it does not have them",
            got=", ".join(in_path),
            do=f'Leave them out, or give --input {table} with --where "{chosen}"',
        )
    names = ", ".join(allowed) or "none: the table has no columns"
    return InputError(
        "The input table lacks columns",
        allowed=names,
        got=", ".join(absent),
        do=nearest(absent, allowed),
    )
