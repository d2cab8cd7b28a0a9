"""Columns of a table, and fields inside them: checked, and sanitized in Arrow batches.

The output has the fields that were named, in the structs and arrays around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import combinations, product
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
from dptext_spark.tables.batch import ID, PERSON, ROW, SLOTS, Batch, FieldPaths
from dptext_spark.tables.fields import Field, Path, bare, beside, field_names, pruned, quoted
from dptext_spark.text.columns import check_positions
from dptext_spark.word_reader import FEW

if TYPE_CHECKING:  # workers import this module, and need no options
    from dptext_spark.tables.source import TableSource
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
"""Percentiles are off by at most one row in this number."""

KindT = TypeVar("KindT", "TokenCounts[int]", "VectorCounts[int]")
WorkerT = TypeVar("WorkerT", bound=Hashable)
Worker: TypeAlias = "Sanitizer | VectorWorker"
"""What sanitizes columns: small, hashable, picklable; has derived noise keys, never the user's."""


# A reused worker sees a new one for every release, and must not keep them all.
@lru_cache(maxsize=2)
def shared(worker: WorkerT) -> WorkerT:
    """Return the first of all equal workers of this process, with all that it has opened and bound.

    It opens after Spark's fork: a child must not inherit maps and BLAS threads.
    """
    return worker


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a table, or fields inside them, are sanitized, kept, and name its rows.

    Attributes:
        keep: Columns that pass; ``*`` stands for all others, without those ``left_out``.
        id: None where the caller names the rows.
        slots: The column of slots, or of spans that are masked.
        person: The column that names whose a row is.
        path: Of the input, whose folders COLUMN=VALUE are no columns of what lies in it.
        vectors: Whether vectors come out, of columns alone, not of fields inside them.
    """

    text: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    vector: tuple[str, ...] = ()
    keep: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    id: str | None
    slots: str | None = None
    person: str | None = None
    path: str = ""
    vectors: bool = False

    @property
    def sanitized(self) -> tuple[str, ...]:
        """Text, token and vector columns."""
        return (*self.text, *self.tokens, *self.vector)

    @property
    def mentioned(self) -> list[str]:
        """All names, without ``*``."""
        names = [*self.sanitized, *self.keep, *self.left_out, self.id, self.slots, self.person]
        return [name for name in dict.fromkeys(names) if name is not None and name != _ALL]

    def named(self, table: StructType) -> Self:
        """Return the same columns, with the names of those that ``*`` stands for in a table.

        The column of slots is not among them: it quotes the words that are to be protected.
        """
        if _ALL not in self.keep or not self.sanitized:
            return self
        fields = self._fields(table)
        names = [*self.sanitized, *self.left_out]
        if self.slots:
            names.append(self.slots)
        remaining = beside(table, _paths(fields, names))
        keep = dict.fromkeys([*self.keep, *remaining])
        del keep[_ALL]
        return replace(self, keep=tuple(keep), left_out=())  # which may differ in capitals only

    def check(self, df: DataFrame, partitions: Collection[str] = ()) -> None:
        """Check them as :meth:`check_schema` does."""
        exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        self.check_schema(df.schema, partitions, exact=exact)

    def check_schema(
        self, schema: StructType, partitions: Collection[str] = (), *, exact: bool = False
    ) -> None:
        """Check that columns exist, with the right types; ``exact``: capitals make names differ."""
        fields = self._fields(schema)
        if not self.sanitized:
            raise InputError("No column to sanitize was given", do="Name one")
        self._check_types(fields)
        self._check_slots(fields)
        repeated = [name for name, field in fields.items() if field.is_repeated(schema, exact)]
        if repeated:
            allowed = "names that differ in more than capitals"
            do = "Rename them, or set spark.sql.caseSensitive to true"
            if exact:
                allowed = "names that differ"
                do = "Rename them"
            raise InputError(
                "Several columns of the input table have the same name",
                allowed=allowed,
                got=", ".join(repeated),
                do=do,
            )
        self._check_apart(fields)
        names = [name for name in self.sanitized if name in partitions]
        if names:
            raise InputError(
                "Partition columns cannot be sanitized: their values are the names of the "
                "input's folders",
                got=", ".join(names),
            )
        inside = [name for name in self.sanitized if len(fields[name].path) > 1]
        if self.vectors and inside:
            raise InputError(
                "Fields inside columns cannot be released as vectors",
                allowed=", ".join(schema.names),
                got=", ".join(inside),
                do="Make them columns of their own before the run",
            )

    def _check_types(self, fields: Mapping[str, Field]) -> None:
        """Refuse fields of the wrong type."""
        ids = tuple(filter(None, [self.id]))
        faults: list[str] = []
        for names, kinds, allowed in (
            (self.text, _STRING, "string"),
            (self.tokens, *self._token_kinds),
            (self.vector, "array<(float|double)>", "array<float> or array<double>"),
            # Decimals without a scale are unsigned integers, as Spark reads them.
            (ids, rf"\w*int|decimal\(\d+,0\)|{_STRING}", "an integer or string id"),
        ):
            for name in names:
                kind = fields[name].data_type.simpleString()
                if not re.fullmatch(kinds, kind):
                    faults.append(f"{name} ({kind}), not {allowed}")
        faults += [f"{name}, which is in an array" for name in ids if fields[name].arrays]
        if faults:
            got = "; ".join(faults)
            do = _BINARY_STRINGS if "binary" in got else ""
            raise InputError("Columns have the wrong type", got=got, do=do)

    @property
    def _token_kinds(self) -> tuple[str, str]:
        """The types that token columns may have, as a pattern and in words."""
        if self.vectors:
            return f"(array<)?{_STRING}>?", "string or array<string>"
        return f"array<{_STRING}>", "array<string>"

    def _check_slots(self, fields: Mapping[str, Field]) -> None:
        """Refuse slots of several columns, in other arrays than the text, or of another type."""
        if not self.slots:
            return
        slots = fields[self.slots]
        if len(self.sanitized) > 1:
            raise InputError(
                f"Column {self.slots} has the spans of one column, but several are sanitized",
                got=", ".join(self.sanitized),
                do="Sanitize them one by one",
            )
        (name,) = self.sanitized
        if slots.arrays != fields[name].arrays:
            raise InputError(
                f"Column {self.slots} is not in the same array as its text",
                allowed="spans in the same array as the texts: turns[].slots for turns[].text",
                got=name,
            )
        try:
            kind = to_arrow_type(slots.data_type)
        except PySparkException:  # workers never see it: no type that slots may have
            kind = pa.null()
        check_positions(kind, slots.name)

    def _check_apart(self, fields: Mapping[str, Field]) -> None:
        """Refuse fields that are sanitized twice, or sanitized and kept."""
        sanitized = [fields[name] for name in self.sanitized]
        twice: list[str] = []
        for pair in combinations(sanitized, 2):
            outer, inner = sorted(pair, key=lambda field: len(field.path))
            if outer.holds(inner):
                twice.append(f"{inner.name} in {outer.name}")
        if twice:
            raise InputError(
                "Columns to sanitize are named twice or contain each other",
                got=", ".join(twice),
            )
        raw: list[str] = []
        do = ""
        for field, name in product(sanitized, self.keep):
            raw_field = fields[name]
            if field == raw_field:
                raw.append(field.name)
            elif field.holds(raw_field) or raw_field.holds(field):
                raw.append(f"{field.name} and {raw_field.name}")
                do = "Keep the fields next to them one by one"
        if raw:
            raise InputError("Columns are both sanitized and kept", got=", ".join(raw), do=do)

    def _fields(self, schema: StructType) -> dict[str, Field]:
        """Return the field of each name; refuse names of none, and of several."""
        fields: dict[str, Field] = {}
        missing: list[str] = []
        ambiguous: list[str] = []
        for name in self.mentioned:
            matches = Field.find(schema, name)
            if not matches:
                missing.append(name)
            elif len(matches) > 1:
                ambiguous.append(name)
            else:
                fields[name] = matches[0]
        if missing:
            raise absent_columns(missing, [*field_names(schema)], self.path)
        if ambiguous:
            raise InputError(
                "A name is both that of a column and the path of a field in another column",
                got=", ".join(ambiguous),
                do="Rename the columns",
            )
        return fields

    def schema(self, table: StructType) -> StructType:
        """Leave in the table's schema what is sanitized or kept, without its metadata."""
        fields = self._fields(table)
        schema: StructType = bare(table, _paths(fields, [*self.sanitized, *self.keep]))
        return schema

    def released(self, table: StructType) -> StructType:
        """Return the schema of what comes out."""
        schema = self.schema(table)
        if not self.vectors:
            return schema
        # A text without words has no vector, so a column of another type has nulls of its own.
        released = StructType()
        for field in schema:
            if field.name in self.text:
                released.add(field.name, ArrayType(FloatType()))
            elif field.name in self.tokens:
                released.add(field.name, ArrayType(ArrayType(FloatType())))
            else:
                released.add(field)
        return released

    def field_paths(self, table: StructType) -> FieldPaths:
        """Return the paths to sanitized fields and slots in what :meth:`select` leaves."""
        fields = self._fields(table)
        paths = dict(zip(self.sanitized, _paths(fields, self.sanitized), strict=True))
        if not self.slots:
            return FieldPaths(paths=paths)
        return FieldPaths(paths=paths, slots=fields[self.slots].path[1:])

    def select(self, df: DataFrame, row_id: Column | None = None) -> DataFrame:
        """Leave in a frame what workers read; ``row_id``, or else the column ``id``, names rows."""
        table = bare(df.schema)
        fields = self._fields(df.schema)

        def part(field: StructField) -> Column:
            return pruned(quoted(field.name), table[field.name].dataType, field.dataType)

        columns = [part(field).alias(field.name) for field in self.schema(table).fields]
        name = fields[str(self.id)].column if row_id is None else row_id
        selected = [F.struct(*columns).alias(ROW), name.cast(StringType()).alias(ID)]
        if self.slots:
            (slots,) = bare(table, [fields[self.slots].path]).fields
            selected.append(part(slots).alias(SLOTS))
        if self.person:
            selected.append(fields[self.person].column.cast(StringType()).alias(PERSON))
        return df.select(*selected)

    def sanitize(
        self,
        selected: DataFrame,
        table: StructType,
        worker: Worker,
        observation: Observation | None = None,
        row_counts: NDArray[np.uint8] | None = None,
        gather: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> DataFrame:
        """Sanitize, lazily, what :meth:`select` left of a table of this schema.

        The observation receives ``rows`` and the counters of each column once the result is
        written; with ``row_counts`` (V,), how many rows have each word, also how many rows show an
        unchanged rare word. ``gather`` moves sanitized rows to other partitions: before they are
        counted, because Spark counts the rows of a task once only in the last stage.
        """
        counters = [counter(*pair) for pair in product(self.sanitized, worker.counters._fields)]
        if row_counts is not None:
            counters += map(singled_out, FEW)
        # Spark trusts this schema and matches columns by position.
        outputs = StructType([StructField(ROW, self.released(table), nullable=False)])
        for number in range(len(counters)):
            outputs.add(f"c{number}", LongType())
        paths = self.field_paths(table)
        work = partial(_sanitize_batches, worker, paths, row_counts=row_counts)
        result = gather(selected.mapInArrow(work, outputs))
        if observation is not None:
            result = result.observe(observation, *self._measures(counters))
        return result.select(f"{ROW}.*")

    def _measures(self, counters: Sequence[str]) -> list[Column]:
        """Return aggregates of columns of counters: rows, sums, of texts the lengths of rows."""
        measures = [F.count(F.lit(1)).alias("rows")]
        columns: dict[str, Column] = {}
        for number, name in enumerate(counters):
            columns[name] = F.col(f"c{number}")
            measures.append(F.sum(columns[name]).alias(name))
        if not self.vectors:
            words = [
                columns[counter(name, "tokens")] - columns[counter(name, "dropped")]
                for name in self.sanitized
            ]
            row_words = reduce(add, words)
            measures.append(F.percentile_approx(row_words, 0.5, ACCURACY).alias(MEDIAN))
            measures.append(F.max(row_words).alias(LONGEST))
        return measures


def _sanitize_batches(
    worker: Worker,
    paths: FieldPaths,
    batches: Iterable[pa.RecordBatch],
    *,
    row_counts: NDArray[np.uint8] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Sanitize fields of Arrow batches; runs in Python workers."""
    worker = shared(worker)
    for batch in Batch.parts(batches, paths):
        counts: list[NDArray[np.int64]] = []
        # The number of rows that have the rarest unchanged word of each row.
        rarest = np.full(len(batch), max(FEW))
        for name, field in batch.fields(worker.visible_words):
            result = worker.sanitize(
                field.values, field.ids, column=name, trust_id=True, **field.of_rows
            )
            batch.set_values(name, result.values)
            counts += [field.sum_by_row(of_values, len(batch)) for of_values in result.counts]
            if row_counts is not None and isinstance(result, Sanitized):
                values, words = result.unchanged
                np.minimum.at(rarest, field.rows[values], row_counts[words])
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
    columns: Iterable[str], kind: type[KindT], sums: Mapping[str, Any]
) -> dict[str, KindT]:
    """Sort the observed sums by column and counter."""
    counts: dict[str, KindT] = {}
    for column in columns:
        # The sum over no rows is null.
        of_column = {name: sums[counter(column, name)] or 0 for name in kind._fields}
        counts[column] = kind(**of_column)
    return counts


def check_ids(df: DataFrame, name: str | None, *measures: Column) -> list[Any]:
    """Compute aggregates in one narrow pass, and check that a column names each row once."""
    if name is None:
        return [*df.agg(*measures).collect()[0]] if measures else []
    column = Field.find(df.schema, name)[0].column
    counts = (F.count(F.lit(1)), F.count(column), F.count_distinct(column))
    rows, present, distinct, *measured = df.agg(*counts, *measures).collect()[0]
    if rows != present or present != distinct:
        raise InputError(
            f"Column {name} cannot be the id: it has {rows - present} nulls and "
            f"{present - distinct} duplicates in {rows} rows",
            do="Choose another --id, or leave it out to identify rows by file and position",
        )
    return measured


def check_refused(source: TableSource, columns: TableColumns) -> TableColumns:
    """Refuse fields that cannot be read and are asked for; drop names of those to leave out."""
    names = replace(columns, left_out=()).mentioned
    spared: set[str] = set()
    for name, error in source.refused.items():
        around = {spare for spare in columns.left_out if _lies_in(name, spare)}
        spared |= around
        if _ALL in columns.keep and not around:
            raise error
        if any(_lies_in(name, asked_for) or _lies_in(asked_for, name) for asked_for in names):
            raise error
    left_out = [
        name
        for name in columns.left_out
        if name not in spared or Field.find(source.df.schema, name)
    ]
    return replace(columns, left_out=tuple(left_out))


def _paths(fields: Mapping[str, Field], names: Iterable[str]) -> list[Path]:
    return [fields[name].path for name in names]


def _lies_in(name: str, around: str) -> bool:
    """Return whether a field is another one, or lies inside it."""
    return name == around or name.startswith((f"{around}.", f"{around}[]"))


def absent_columns(absent: Sequence[str], allowed: Sequence[str], path: str = "") -> InputError:
    """Return the error of a table without some columns; it says which names are near to theirs.

    Of those that are folders ``COLUMN=VALUE`` of the input's ``path`` it says so.
    """
    folders: dict[str, str] = {}
    for part in path.split("/"):
        name, sign, value = part.partition("=")
        if sign:
            folders[unquote(name)] = unquote(value)
    in_path = [name for name in absent if name in folders]
    if in_path:
        table = re.split(r"/[^/=]+=", f"/{path}", maxsplit=1)[0][1:] or "."
        condition = " and ".join(f"{name} = '{folders[name]}'" for name in in_path)
        return InputError(
            "Columns are part of the path of --input, so the table in it does not have them",
            got=", ".join(in_path),
            do=f'Leave them out, or give --input {table} with --where "{condition}"',
        )
    names = ", ".join(allowed) or "none: the table has no columns"
    return InputError(
        "The input table lacks columns",
        allowed=names,
        got=", ".join(absent),
        do=nearest(absent, allowed),
    )
