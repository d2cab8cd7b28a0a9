"""DataFrames in, sanitized DataFrames out.

Tables are sanitized by ``mapInArrow``: whole Arrow batches, each row evaluated once, nothing pickled
but a small plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import ArrayType, DataType, IntegralType, LongType, StringType, StructField, StructType

from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.privatizer import COUNTERS, Privatizer, check_release_words
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.text import Oov, TextPolicy


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that workers need, small and hashable; holds a derived noise key, never the user's."""

    bundle: BundleFiles
    mechanism: Mechanism
    noise: ReleaseNoise
    policy: TextPolicy
    release_words: int

    def open(self) -> Privatizer:
        """Open the bundle in this process and bind the mechanism to it, once per process."""
        return _open(self)


@lru_cache(maxsize=8)  # a reused worker sees a new plan for every release, and must not keep them all
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
    plan: Plan, sanitized: tuple[str, ...], output: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sanitize the columns of Arrow batches: ``output``, row ids, slots if any; runs in Python workers."""
    privatizer = plan.open()
    for batch in batches:
        columns = dict(zip(output, batch.columns, strict=False))
        ids, *slots = batch.columns[len(output) :]
        counts: list[pa.Array] = []
        for name in sanitized:
            result = privatizer.sanitize(columns[name], ids, column=name, slots=slots[0] if slots else None)
            columns[name] = result.values
            counts += [pa.array(getattr(result.counts, c)) for c in COUNTERS]
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
    columns.check(df, policy)
    if not trust_id:
        check_ids(df, id)
    plan = _plan(df.sparkSession, embedding, mechanism, policy, release_words, key, salt)
    return columns.sanitize(df, plan, quoted(id))


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
    return Plan(
        bundle=BundleFiles.send(spark, embedding),
        mechanism=mechanism,
        noise=ReleaseNoise.of(
            key or NoiseKey.generate(),
            salt=salt,
            law=mechanism.law(),
            fingerprint=embedding.fingerprint,
        ),
        policy=policy,
        release_words=check_release_words(embedding, release_words),
    )


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a table are sanitized, kept, and name its rows."""

    text: tuple[str, ...]
    tokens: tuple[str, ...]
    keep: tuple[str, ...]
    id: str | None

    @property
    def sanitized(self) -> tuple[str, ...]:
        """Text and token columns."""
        return (*self.text, *self.tokens)

    def check(self, df: DataFrame, policy: TextPolicy) -> None:
        """Check that the columns exist and have the right types.

        Raises:
            InputError: Lists every column that is absent or of a wrong type.
        """
        types = {field.name: field.dataType for field in df.schema.fields}
        extra = [name for name in (self.id, policy.slots_column) if name is not None]
        if absent := [n for n in dict.fromkeys([*self.sanitized, *self.keep, *extra]) if n not in types]:
            raise InputError(
                "The input table lacks columns",
                allowed=", ".join(types) or "none: the table has no columns",
                got=", ".join(absent),
            )
        wrong = [f"{n} ({types[n].simpleString()}), not string" for n in self.text if not _is_text(types[n])]
        wrong += [
            f"{n} ({types[n].simpleString()}), not array<string>"
            for n in self.tokens
            if not _is_tokens(types[n])
        ]
        if self.id is not None and not isinstance(types[self.id], IntegralType | StringType):
            wrong.append(f"{self.id} ({types[self.id].simpleString()}), not an integer or string id")
        if wrong:
            raise InputError("Columns have the wrong type", got="; ".join(wrong))
        self._check_ambiguity(df, extra)
        if twice := sorted({name for name in self.sanitized if self.sanitized.count(name) > 1}):
            raise InputError("Columns are named twice as text or tokens", got=", ".join(twice))
        if clash := sorted(set(self.sanitized) & set(self.keep)):
            raise InputError("Columns are both sanitized and kept raw", got=", ".join(clash))
        if not self.sanitized:
            raise InputError("No column is to be sanitized", do="Name one as text or tokens")

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
        self, df: DataFrame, plan: Plan, row_id: Column, observation: Observation | None = None
    ) -> DataFrame:
        """Sanitize the columns of a frame, lazily.

        Args:
            df: The frame, checked.
            plan: What workers need.
            row_id: Column expression that names the rows.
            observation: Receives ``rows`` and the counters of each column once the result is written.
        """
        chosen = {*self.sanitized, *self.keep}
        output = tuple(name for name in df.columns if name in chosen)
        inputs = [*map(quoted, output), row_id.cast("string")]
        if plan.policy.slots_column:
            inputs.append(quoted(plan.policy.slots_column))
        inputs = [column.alias(name) for column, name in zip(inputs, _positional(len(inputs)), strict=True)]
        counters = [counter(name, c) for name in self.sanitized for c in COUNTERS]
        types = [*(df.schema[name].dataType for name in output), *(LongType() for _ in counters)]
        names = _positional(len(types))
        schema = StructType([StructField(*field) for field in zip(names, types, strict=True)])
        batches = partial(_sanitize_batches, plan, self.sanitized, output)
        result = df.select(*inputs).mapInArrow(batches, schema)
        if observation is not None:
            sums = [F.sum(n).alias(c) for n, c in zip(names[len(output) :], counters, strict=True)]
            result = result.observe(observation, F.count(F.lit(1)).alias("rows"), *sums)
        return result.select(*[F.col(n).alias(name) for n, name in zip(names, output, strict=False)])


def check_ids(df: DataFrame, name: str) -> None:
    """Check in one narrow pass that a column names every row once.

    Raises:
        InputError: It has nulls or duplicates.
    """
    column = quoted(name)
    counted = df.agg(F.count(F.lit(1)), F.count(column), F.count_distinct(column)).first()
    rows, present, distinct = (0, 0, 0) if counted is None else counted
    if rows != present or present != distinct:
        raise InputError(
            f"Column {name} does not name the rows",
            allowed="an id without nulls and duplicates",
            got=f"{rows - present} nulls and {present - distinct} duplicates in {rows} rows",
            do="Choose another --id, or leave it out to name rows by file and position",
        )


def quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _is_text(data_type: DataType) -> bool:
    return isinstance(data_type, StringType)


def _is_tokens(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and _is_text(data_type.elementType)
