"""DataFrames in, sanitized DataFrames out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pandas as pd
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import NullType

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.arguments import check_frame, must_be, naming_arguments
from dptext_spark.calibration.recall import chosen_search
from dptext_spark.display import Displayed
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, printable
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, check_release_name
from dptext_spark.release import Release
from dptext_spark.report.facts import (
    describe,
    describe_counts,
    has_arrays,
    key_scope,
    release_facts,
    token_counts,
)
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.columns import TableColumns, column_counts, shared
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.input_table import InputTable
from dptext_spark.tables.source import TableSource
from dptext_spark.text.policies import TextPolicy

_PATIENCE: Final = 0.2
"""Seconds for counts that are there already to arrive."""


class ReleaseCounts(Displayed):
    """Counts of one call of ``privatize(df, ..., counts=ReleaseCounts())``.

    The first action on its result fills them, and asking for them waits for it. They are of the
    rows that this action computed: of all after a write, of some after ``show()``. They are exact
    facts about the private rows, for those who run the job.
    """

    def __init__(self) -> None:
        self._observation: Any = None
        self._reading: Thread | None = None
        self._columns: tuple[str, ...] = ()
        self._policy = TextPolicy()

    def observe(self, columns: tuple[str, ...], policy: TextPolicy) -> Observation:
        """Begin to count what is done to the words of these columns."""
        if self._observation is not None:
            raise ConfigError("These counts belong to another call", do="Give each call its own")
        self._columns = columns
        self._policy = policy
        # Made here, as it is one of the session's kind: with a JVM or of Spark Connect.
        observation = Observation("dptext")
        self._observation = observation
        return observation

    @property
    def rows(self) -> int:
        """Rows that were sanitized."""
        return int(self._counts()["rows"])

    @property
    def columns(self) -> dict[str, TokenCounts[int]]:
        """What was done to the words of each sanitized column, by its name."""
        return column_counts(self._columns, TokenCounts[int], self._counts())

    def describe(self) -> str:
        """Return the counts in words, as the report of ``dptext privatize`` has them."""
        oov = str(self._policy.oov)
        columns = {name: token_counts(counts, oov) for name, counts in self.columns.items()}
        return describe_counts(self.rows, columns)

    def blocks(self) -> Iterator[Any]:
        """Yield the counts, or that there are none yet; never waits for an action."""
        if self._is_complete():
            yield self.describe().split("\n")
        else:
            yield "No counts yet: they come with the first action on the result, such as a write."

    def _is_complete(self) -> bool:
        """Return whether the first action has ended: a thread waits for it."""
        if self._observation is None:
            return False
        if self._reading is None:
            self._reading = Thread(target=lambda: self._observation.get, daemon=True)
            self._reading.start()
        self._reading.join(_PATIENCE)
        return not self._reading.is_alive()

    def _counts(self) -> dict[str, Any]:
        counts = None
        if self._observation is not None:
            counts = self._observation.get
        if not counts:
            raise ConfigError(
                "Nothing is counted yet",
                do="Give the counts to privatize(df, ...), and run an action on its result, such "
                "as a write",
            )
        return dict(counts)


@naming_arguments()
def privatize(
    df: DataFrame,
    *,
    embedding: str | Path | Embedding,
    mechanism: Mechanism | str,
    epsilon: float | None = None,
    id: str,
    text: str | Sequence[str] = (),
    tokens: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    policy: TextPolicy | None = None,
    release_words: int | None = None,
    search: str | Search = ExactSearch.name,
    row_budget: RowBudget | str | float | None = None,
    key: NoiseKey | str | Path | None = None,
    name: str = "",
    trust_id: bool = False,
    counts: ReleaseCounts | None = None,
    show: bool = True,
) -> DataFrame:
    """Sanitize columns of a frame; lazy, except for one narrow pass that checks the ids.

    Recomputing the result gives the same words again: noise is a function of key, id and content.
    In a notebook the guarantee and its scope are printed below the cell. The first action on the
    result fills ``counts``.

    Args:
        mechanism: ``Laplace(epsilon=15)``, or ``"laplace"`` with ``epsilon=15``.
        id: Column that identifies each row: integer or string, unique, without nulls. Do not use
            row order or ``monotonically_increasing_id``: they change when Spark recomputes the
            frame.
        text: String columns to sanitize. A field inside a column is named by its path:
            ``payload.message`` in a struct, ``turns[].text`` in the elements of an array; so for
            ``tokens``, ``keep``, ``id``.
        tokens: ``array<string>`` columns to sanitize.
        keep: Columns that are released unchanged; ``*`` for all that are not sanitized, except the
            column of slots.
        policy: Everything about words except the noise, e.g.
            ``TextPolicy(oov="drop", protect="content")``; by default all words are protected, and
            unknown words are masked.
        release_words: Allow only this number of releasable words in the output, the first ones.
        search: How the nearest word is found: ``exact``, ``ivf`` at its default recall, or a search
            itself.
        row_budget: Largest privacy loss of a row: its epsilon follows from its number of words,
            and the mechanism's is the largest that a row gets. For example ``50`` or
            ``"50:within=3,delta=1e-6"``.
        key: A key or the path of its file, for a repeatable release; by default a fresh one that is
            never written.
        name: With a key: the name of what is released, such as the table and its date. Equal ids
            and texts under one key and name get equal noise.
        trust_id: Skip the check of the ids. Rows of one id show whether their texts are equal.
        show: Print the guarantee in a notebook.

    Returns:
        The sanitized and kept columns and fields, in the frame's order, under their names, types
        and nullability; structs have the fields that were named. No metadata of the frame's fields
        is in it.
    """
    check_frame(df)
    if counts is not None and not isinstance(counts, ReleaseCounts):
        raise must_be("counts", "a ReleaseCounts", counts, "Write counts = ReleaseCounts() before")
    if not isinstance(id, str):
        raise must_be("id", "the name of a column", id, "Write id='id'")
    key = NoiseKey.of(key)
    if df.isStreaming:
        raise ConfigError(
            "A streaming frame cannot be sanitized: ids are checked over all rows",
            do="Call it in writeStream.foreachBatch, or run dptext privatize --incremental",
        )
    check_release_name(key, name)
    for field in df.schema:
        if isinstance(field.dataType, NullType) and field.name in _names("text", text):
            df = df.withColumn(field.name, quoted(field.name).cast("string"))  # null texts
    policy = TextPolicy.of(policy)
    policy.check_tokens(_names("tokens", tokens))
    columns = TableColumns(
        text=_names("text", text),
        tokens=_names("tokens", tokens),
        keep=_names("keep", keep),
        id=id,
        slots=policy.spans_column,
    )
    source = TableSource(place="", read=df)
    table = InputTable(source=source, columns=columns, trust_id=trust_id).checked()
    columns = table.columns
    embedding = Embedding.of(embedding)
    mechanism = Mechanism.of(mechanism, epsilon)
    nearest = _search(search, embedding, mechanism, policy, release_words)
    release = Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=nearest,
        policy=policy,
        row_budget=_row_budget(row_budget, embedding, mechanism, nearest),
        name=name,
    )
    table.check_rows()
    if show:
        _show(columns, release, kept=key is not None)
    observation = None
    if counts is not None:
        observation = counts.observe(columns.sanitized, policy)
    worker = sent(df.sparkSession, Sanitizer.open(release, key))
    return columns.sanitize(table.rows, df.schema, worker, observation)


def sent(spark: SparkSession, sanitizer: Sanitizer) -> Sanitizer:
    """Send the bundle to workers, and return the sanitizer that finds it there."""
    release = sanitizer.release
    bundle = BundleFiles.send(spark, release.embedding)
    return replace(sanitizer, release=replace(release, bundle=bundle))


@naming_arguments()
def privatize_udf(
    *,
    embedding: str | Path | Embedding,
    mechanism: Mechanism | str,
    epsilon: float | None = None,
    column: str,
    policy: TextPolicy | None = None,
    release_words: int | None = None,
    search: str | Search = ExactSearch.name,
    key: NoiseKey | str | Path | None = None,
    name: str = "",
) -> Callable[..., Column]:
    """Return a vectorized UDF ``(id, text) -> text`` for ``df.select``.

    It gives the words that :func:`privatize` gives with the same arguments; the noise depends on
    ``column``, the name of the text's. The ids are not checked: all rows that it is given, of
    whatever table, count as one release, and where an id comes twice it shows whether the two texts
    are equal. A UDF sees one column of a row: there are no slots and no row budget.
    """
    if not isinstance(column, str):
        raise must_be("column", "the name of the text's column", column, "Write column='text'")
    key = NoiseKey.of(key)
    check_release_name(key, name)
    policy = TextPolicy.of(policy)
    if policy.spans_column:
        raise ConfigError(
            "A UDF sees one column of a row: neither slots nor masked spans",
            got=f"spans in column {policy.spans_column}",
            do="Use privatize(df, ...)",
        )
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    embedding = Embedding.of(embedding)
    mechanism = Mechanism.of(mechanism, epsilon)
    release = Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=_search(search, embedding, mechanism, policy, release_words),
        policy=policy,
        name=name,
    )
    worker = sent(session, Sanitizer.open(release, key))

    def sanitize(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        sanitizer = shared(worker)
        for columns in batches:
            _check_arguments(columns)
            ids, texts = columns
            result = sanitizer.sanitize(texts, ids, column=column, trust_id=True)
            yield result.values.to_pandas()

    udf: Callable[..., Column] = pandas_udf(sanitize, "string")  # type: ignore[call-overload]
    return udf


def _check_arguments(columns: object) -> None:
    """Refuse to sanitize a text without its id, or anything more."""
    count = len(columns) if isinstance(columns, tuple) else 1
    if count != 2:
        raise ConfigError(
            "The UDF takes two columns, the row's id and its text",
            got=str(count),
            do='Write sanitize("id", "text"), in SQL clean(id, text)',
        )


@naming_arguments()
def register_udf(spark: SparkSession, udf: str, /, **options: Any) -> None:
    """Register a :func:`privatize_udf` for SQL: ``SELECT id, clean(id, text) FROM t``."""
    if not hasattr(spark, "udf"):
        raise must_be("spark", "a SparkSession", spark, "Write register_udf(spark, 'clean', ...)")
    spark.udf.register(udf, privatize_udf(**options))


def _show(columns: TableColumns, release: Release, *, kept: bool) -> None:
    """Print in an IPython kernel or shell what a release promises and leaves out."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return
    by_key = key_scope(
        kept=kept, what="text", arrays=has_arrays(columns.sanitized), by_position=False
    )
    facts = release_facts(
        release,
        release.guarantee(),
        options={},
        row_id=f"Rows are named by column {columns.id}.",
        kept=columns.keep,
        sanitized=columns.sanitized,
        remarks=by_key,
    )
    print(printable(f"Release of {', '.join(columns.sanitized)}"), describe(facts), sep="\n")


def _names(argument: str, names: object) -> tuple[str, ...]:
    """Return the names of columns that an argument has: one, or several."""
    if isinstance(names, str):
        return (names,)
    if isinstance(names, list | tuple):
        wrong_names: list[object] = [name for name in names if not isinstance(name, str)]
        if not wrong_names:
            return tuple(names)
        names = wrong_names[0]
    raise must_be(argument, "the name of a column, or a list of names", names)


def _search(
    search: str | Search,
    embedding: Embedding,
    mechanism: Mechanism,
    policy: TextPolicy,
    release_words: int | None,
) -> Search:
    """Return a search, built if this is its name."""
    if isinstance(search, Search):
        return search
    if not isinstance(search, str):
        raise must_be("search", "a Search, or a name such as 'exact'", search)
    return chosen_search(
        search, embedding, (mechanism,), policy=policy, release_words=release_words
    )


def _row_budget(
    row_budget: RowBudget | str | float | None,
    embedding: Embedding,
    mechanism: Mechanism,
    search: Search,
) -> RowBudget | None:
    """Return a budget; by default each word moves as far as to a typical nearest word."""
    if row_budget is None or isinstance(row_budget, RowBudget):
        return row_budget
    distances = mechanism.guarantee(embedding, search=search).distances
    return RowBudget.of(row_budget, distances.nearest if distances else 1.0)
