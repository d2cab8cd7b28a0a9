"""DataFrames in, sanitized DataFrames out.

Tables are sanitized by ``mapInArrow``: whole Arrow batches, each row evaluated once, nothing pickled
but a small plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
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

from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.privatizer import COUNTERS, Privatizer, check_release_words
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.text import Oov, TextPolicy


class ColumnWork(Protocol):
    """What a worker does to columns; the result has ``values`` and ``counts``, an array per counter."""

    def sanitize(self, values: pa.Array, ids: pa.Array, *, column: str, slots: pa.Array | None = None) -> Any:
        """Sanitize rows of one column."""


class WorkPlan(Protocol):
    """All that workers need, small and hashable; holds derived noise keys, never the user's."""

    @property
    def counters(self) -> Sequence[str]:
        """Names of what is counted in each row."""

    def open(self) -> ColumnWork:
        """Get ready in this process, once per process."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The :class:`WorkPlan` of words."""

    bundle: BundleFiles
    mechanism: Mechanism
    noise: ReleaseNoise
    policy: TextPolicy
    release_words: int
    counters = COUNTERS

    def open(self) -> Privatizer:
        """Open the bundle in this process and bind the mechanism to it, once per process."""
        return _open(self)


@lru_cache(maxsize=2)  # a reused worker sees a new plan for every release, and must not keep them all
def _open(plan: Plan) -> Privatizer:
    # In the worker, after its fork: maps and BLAS threads must not be inherited.
    return Privatizer(
        embedding=plan.bundle.open(),
        mechanism=plan.mechanism,
        noise=plan.noise,
        policy=plan.policy,
        release_words=plan.release_words,
    )


def counter(column: str, counter: str) -> str:
    return f"__dptext_{counter}_{column}"


def _sanitize_batches(
    plan: WorkPlan, sanitized: tuple[str, ...], output: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sanitize the columns of Arrow batches: ``output``, row ids, slots if any; runs in Python workers."""
    work = plan.open()
    for batch in batches:
        columns = dict(zip(output, batch.columns, strict=False))
        ids, *slots = batch.columns[len(output) :]
        counts: list[pa.Array] = []
        for name in sanitized:
            result = work.sanitize(columns[name], ids, column=name, slots=slots[0] if slots else None)
            columns[name] = result.values
            counts += [pa.array(getattr(result.counts, c)) for c in plan.counters]
        arrays = [*columns.values(), *counts]
        yield pa.RecordBatch.from_arrays(arrays, names=_positional(len(arrays)))


def _positional(count: int) -> list[str]:
    """Names for inner columns: pyspark's mapInArrow cannot take every name that a table may have."""
    return [f"c{i}" for i in range(count)]


def privatize(
    df: DataFrame,
    *,
    embedding: str | Path | Embedding,
    mechanism: Mechanism,
    id: str,
    text: str | Sequence[str] = (),
    tokens: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    oov: str | Oov = Oov.MASK,
    protect: str = "all",
    release_words: int | None = None,
    key: NoiseKey | None = None,
    salt: str = "",
    trust_id: bool = False,
) -> DataFrame:
    """Sanitize columns of a frame; lazy but for one narrow pass that checks the ids.

    Recomputing the result gives the same words again: noise is a function of key, id and content.

    Args:
        df: Any frame.
        embedding: A bundle or its folder.
        mechanism: For example ``Laplace(epsilon=15)``.
        id: Column that names each row: integer or string, unique, without nulls. Neither row order
            nor ``monotonically_increasing_id`` will do: they change when Spark recomputes the frame.
        text: String columns to sanitize.
        tokens: array<string> columns to sanitize.
        keep: Columns that pass as they are.
        oov: Treatment of words outside the vocabulary: mask, drop, random, fail, keep-unprotected.
        protect: ``all``, ``content`` or ``slots:COLUMN``.
        release_words: Output only the first that many releasable words.
        key: For a repeatable release; by default a fresh one that is never written.
        salt: Keeps tables apart that share a key and ids.
        trust_id: Skip the check of the ids.

    Returns:
        The sanitized and kept columns, in the frame's order, under their names and types.

    Raises:
        DptextError: Columns, ids or parameters are wrong.
    """
    columns = TableColumns(text=_names(text), tokens=_names(tokens), keep=_names(keep), id=id)
    policy = TextPolicy(oov=oov, protect=protect)
    columns.check(df, policy.slots_column)
    if not trust_id:
        check_ids(df, id)
    plan = _plan(df.sparkSession, embedding, mechanism, policy, release_words, key, salt)
    return columns.sanitize(df, plan, quoted(id), slots=policy.slots_column)


def privatize_udf(
    *,
    embedding: str | Path | Embedding,
    mechanism: Mechanism,
    column: str,
    oov: str | Oov = Oov.MASK,
    protect: str = "all",
    release_words: int | None = None,
    key: NoiseKey | None = None,
    salt: str = "",
) -> Callable[..., Column]:
    """Make a vectorized pandas UDF ``(id, text) -> text`` for ``df.select``.

    It gives the words that :func:`privatize` gives under the same key. The ids are not checked.

    Args:
        embedding: A bundle or its folder.
        mechanism: For example ``Laplace(epsilon=15)``.
        column: The text column's name, which the noise depends on.
        oov: See :func:`privatize`.
        protect: ``all`` or ``content``.
        release_words: See :func:`privatize`.
        key: See :func:`privatize`.
        salt: See :func:`privatize`.

    Raises:
        ConfigError: ``protect`` needs slots.
    """
    policy = TextPolicy(oov=oov, protect=protect)
    if policy.slots_column:
        raise ConfigError(
            "A UDF sees no slots", allowed="all, content", got=repr(protect), do="Use privatize(df, ...)"
        )
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    plan = _plan(session, embedding, mechanism, policy, release_words, key, salt)

    def sanitize(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        privatizer = plan.open()
        for ids, texts in batches:
            values = pa.Array.from_pandas(texts, type=pa.string())
            yield privatizer.sanitize(values, pa.Array.from_pandas(ids), column=column).values.to_pandas()

    udf: Callable[..., Column] = pandas_udf(sanitize, "string")  # type: ignore[call-overload]
    return udf


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _plan(
    spark: SparkSession,
    embedding: str | Path | Embedding,
    mechanism: Mechanism,
    policy: TextPolicy,
    release_words: int | None,
    key: NoiseKey | None,
    salt: str,
) -> Plan:
    if not isinstance(embedding, Embedding):
        embedding = Embedding.open(Path(embedding))
    mechanism = mechanism.prepared(embedding)
    release_words = check_release_words(embedding, release_words)
    return Plan(
        bundle=BundleFiles.send(spark, embedding),
        mechanism=mechanism,
        noise=mechanism.release_noise(
            key or NoiseKey.generate(), salt=salt, embedding=embedding, release_words=release_words
        ),
        policy=policy,
        release_words=release_words,
    )


_NO_TYPES: Final[Mapping[str, DataType]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a table are sanitized, kept, and name its rows."""

    text: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    vector: tuple[str, ...] = ()
    keep: tuple[str, ...]
    id: str | None

    @property
    def sanitized(self) -> tuple[str, ...]:
        """Text, token and vector columns."""
        return (*self.text, *self.tokens, *self.vector)

    def check(self, df: DataFrame, slots: str | None = None) -> None:
        """Check that the columns, and that of the slots, exist and have the right types.

        Raises:
            InputError: Lists every column that is absent or of a wrong type.
        """
        types = {field.name: field.dataType for field in df.schema.fields}
        extra = [name for name in (self.id, slots) if name is not None]
        if absent := [n for n in dict.fromkeys([*self.sanitized, *self.keep, *extra]) if n not in types]:
            raise InputError(
                "The input table lacks columns",
                allowed=", ".join(types) or "none: the table has no columns",
                got=", ".join(absent),
            )
        wrong = [
            f"{name} ({types[name].simpleString()}), not {wanted}"
            for names, fits, wanted in (
                (self.text, _is_text, "string"),
                (self.tokens, _is_tokens, "array<string>"),
                (self.vector, _is_vector, "array<float> or array<double>"),
            )
            for name in names
            if not fits(types[name])
        ]
        if self.id is not None and not isinstance(types[self.id], IntegralType | StringType):
            wrong.append(f"{self.id} ({types[self.id].simpleString()}), not an integer or string id")
        if wrong:
            raise InputError("Columns have the wrong type", got="; ".join(wrong))
        self._check_ambiguity(df, extra)
        if twice := sorted({name for name in self.sanitized if self.sanitized.count(name) > 1}):
            raise InputError("Columns are named twice", got=", ".join(twice))
        if clash := sorted(set(self.sanitized) & set(self.keep)):
            raise InputError("Columns are both sanitized and kept raw", got=", ".join(clash))
        if not self.sanitized:
            raise InputError("No column is to be sanitized", do="Name one")

    def _check_ambiguity(self, df: DataFrame, extra: Sequence[str]) -> None:
        exact = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        forms = [name if exact else name.lower() for name in df.columns]
        named = dict.fromkeys([*self.sanitized, *self.keep, *extra])
        if ambiguous := [n for n in named if forms.count(n if exact else n.lower()) > 1]:
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
        row_id: Column,
        *,
        slots: str | None = None,
        types: Mapping[str, DataType] = _NO_TYPES,
        observation: Observation | None = None,
    ) -> DataFrame:
        """Sanitize the columns of a frame, lazily.

        Args:
            df: The frame, checked.
            plan: What workers need.
            row_id: Column expression that names the rows.
            slots: The column that names the slots, if any.
            types: Types of sanitized columns that differ from the frame's.
            observation: Receives ``rows`` and the counters of each column once the result is written.
        """
        chosen = {*self.sanitized, *self.keep}
        output = tuple(name for name in df.columns if name in chosen)
        inputs = [*map(quoted, output), row_id.cast("string")]
        inputs += [quoted(slots)] if slots else []
        inputs = [column.alias(name) for column, name in zip(inputs, _positional(len(inputs)), strict=True)]
        counters = [counter(name, c) for name in self.sanitized for c in plan.counters]
        kinds = [types.get(name, df.schema[name].dataType) for name in output]
        kinds += [LongType() for _ in counters]
        names = _positional(len(kinds))
        schema = StructType([StructField(*field) for field in zip(names, kinds, strict=True)])
        batches = partial(_sanitize_batches, plan, self.sanitized, output)
        result = df.select(*inputs).mapInArrow(batches, schema)
        if observation is not None:
            sums = [F.sum(n).alias(c) for n, c in zip(names[len(output) :], counters, strict=True)]
            result = result.observe(observation, F.count(F.lit(1)).alias("rows"), *sums)
        return result.select(*[F.col(n).alias(name) for n, name in zip(names, output, strict=False)])


def check_ids(df: DataFrame, name: str, *measures: Column) -> list[Any]:
    """Check in one narrow pass that a column names every row once.

    Args:
        df: The frame.
        name: The column.
        measures: Aggregates of other columns, for the same pass.

    Returns:
        The values of the measures.

    Raises:
        InputError: The column has nulls or duplicates.
    """
    column = quoted(name)
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


def quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _is_text(data_type: DataType) -> bool:
    return isinstance(data_type, StringType)


def _is_tokens(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and _is_text(data_type.elementType)


def _is_vector(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and isinstance(data_type.elementType, FloatType | DoubleType)
