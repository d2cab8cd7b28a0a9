"""DataFrames in, sanitized DataFrames out.

Tables are sanitized by ``mapInArrow``: whole Arrow batches, each row evaluated once, nothing pickled
but a small plan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.calibration.recall import chosen_search
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, check_release_name
from dptext_spark.release import Release
from dptext_spark.report.facts import describe, has_arrays, key_scope, release_facts
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.columns import TableColumns, check_ids, shared
from dptext_spark.tables.release_counts import ReleaseCounts
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import OovPolicy, Protection, TextPolicy
from dptext_spark.text.segmentation import Segmentation


def privatize(
    df: DataFrame,
    *,
    embedding: str | Path | Embedding,
    mechanism: Mechanism,
    id: str,
    text: str | Sequence[str] = (),
    tokens: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    oov: OovPolicy | str = "mask",
    protect: Protection | str = "all",
    layout: Layout | str = "words",
    tokenizer: Segmentation | str = "words",
    release_words: int | None = None,
    search: str | Search = ExactSearch.name,
    row_budget: RowBudget | None = None,
    key: NoiseKey | None = None,
    name: str = "",
    trust_id: bool = False,
    counts: ReleaseCounts | None = None,
    show: bool = True,
) -> DataFrame:
    """Sanitize columns of a frame; lazy but for one narrow pass that checks the ids.

    Recomputing the result gives the same words again: noise is a function of key, id and content. In a
    notebook the guarantee and its scope are printed below the cell, once for each release.

    Args:
        df: Any frame.
        embedding: A bundle or its folder.
        mechanism: For example ``Laplace(epsilon=15)``.
        id: Column that names each row: integer or string, unique, without nulls. Neither row order
            nor ``monotonically_increasing_id`` will do: they change when Spark recomputes the frame.
        text: String columns to sanitize. A field inside a column is named by its path: ``payload.message``
            in a struct, ``turns[].text`` in the elements of an array; so for ``tokens``, ``keep``, ``id``.
        tokens: array<string> columns to sanitize.
        keep: Columns that pass as they are; ``*`` for all that are not sanitized, but for that of slots.
        oov: Treatment of words outside the vocabulary: mask, drop, random, fail, keep-unprotected.
        protect: ``all``, ``content`` or ``slots:COLUMN``.
        layout: What surrounds the words of texts: ``words`` joined by single spaces, or ``keep``.
        tokenizer: What cuts texts: ``words``, or ``icu`` for Chinese, Japanese, Thai, Lao, Khmer and Burmese.
        release_words: Output only the first that many releasable words.
        search: How the nearest word is found: ``exact``, ``ivf`` at its default recall, or a search itself.
        row_budget: What each row may lose at most: its epsilon follows from its number of words, and the
            mechanism's is the largest that a row gets.
        key: For a repeatable release; by default a fresh one that is never written.
        name: With a key: the name of what is released, such as the table and its date. Equal ids and texts
            under one key and name get equal noise.
        trust_id: Skip the check of the ids. Rows of one id show whether their texts are equal.
        counts: Receives what was done to the words, with the first action on the result.
        show: False prints nothing in a notebook.

    Returns:
        The sanitized and kept columns and fields, in the frame's order, under their names, types and
        nullability; structs have the fields that were named. No metadata of the frame's fields is in it.

    Raises:
        DptextError: Columns, ids or parameters are wrong.
    """
    check_release_name(key, name)
    policy = TextPolicy(oov=oov, protect=protect, layout=layout, tokenizer=tokenizer)
    columns = TableColumns(
        text=_names(text), tokens=_names(tokens), keep=_names(keep), id=id, protect=policy.protect
    )
    columns = columns.named(df.schema)
    columns.check(df)
    release = _release(embedding, mechanism, search, release_words, policy, row_budget, name)
    check_ids(df, None if trust_id else id)
    if show and _is_notebook():
        _show_once(columns, release, kept=key is not None)
    observation = None if counts is None else counts.observe(columns.sanitized, policy)
    worker = sent(df.sparkSession, Sanitizer.open(release, key))
    return columns.sanitize(columns.select(df), df.schema, worker, observation)


def sent(spark: SparkSession, sanitizer: Sanitizer) -> Sanitizer:
    """Send the bundle to workers, and give the sanitizer that finds it there."""
    release = sanitizer.release
    bundle = BundleFiles.send(spark, release.embedding)
    return replace(sanitizer, release=replace(release, bundle=bundle))


def privatize_udf(
    *,
    embedding: str | Path | Embedding,
    mechanism: Mechanism,
    column: str,
    oov: OovPolicy | str = "mask",
    protect: Protection | str = "all",
    layout: Layout | str = "words",
    tokenizer: Segmentation | str = "words",
    release_words: int | None = None,
    search: str | Search = ExactSearch.name,
    key: NoiseKey | None = None,
    name: str = "",
) -> Callable[..., Column]:
    """Make a vectorized UDF ``(id, text) -> text`` for ``df.select``; needs Spark 4.1 or newer.

    It gives the words that :func:`privatize` gives under the same key and name. The ids are not checked: all
    rows that it is given, of whatever table, count as one release, and where an id comes twice it shows
    whether the two texts are equal. There is no row budget: a UDF sees one column of a row, and not how many
    words the others have.

    Args:
        column: The text column's name, which the noise depends on.
        protect: ``all`` or ``content``.
        embedding, mechanism, oov, layout, tokenizer, release_words, search, key, name: As for
            :func:`privatize`.

    Raises:
        ConfigError: ``protect`` needs slots, or Spark is too old.
    """
    arrow_udf = _arrow_udf()
    check_release_name(key, name)
    policy = TextPolicy(oov=oov, protect=protect, layout=layout, tokenizer=tokenizer)
    if policy.protect.slots_column:
        raise ConfigError(
            "A UDF sees no slots",
            allowed=", ".join(form for form in Protection.forms() if not Protection.of(form).slots_column),
            got=repr(str(policy.protect)),
            do="Use privatize(df, ...)",
        )
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    release = _release(embedding, mechanism, search, release_words, policy, None, name)
    worker = sent(session, Sanitizer.open(release, key))

    def sanitize(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        sanitizer = shared(worker)
        for ids, texts in batches:
            yield sanitizer.sanitize(texts, ids, column=column).values

    udf: Callable[..., Column] = arrow_udf(sanitize, "string")
    return udf


def register_udf(spark: SparkSession, udf: str, /, **options: Any) -> None:
    """Name a UDF ``(id, text) -> text`` for SQL: ``SELECT id, clean(id, text) FROM t``.

    Args:
        spark: The session whose SQL knows it.
        udf: What SQL calls it.
        options: As for :func:`privatize_udf`, ``embedding``, ``mechanism`` and ``column`` among them.

    Raises:
        ConfigError: As :func:`privatize_udf` does.
    """
    spark.udf.register(udf, privatize_udf(**options))


def _arrow_udf() -> Callable[..., Any]:
    """Spark's function of this name, which Spark 4.0 lacks; that version runs all else."""
    try:
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
    except ImportError:
        raise ConfigError(
            "This Spark cannot call the package in SQL or in df.select",
            allowed="Spark 4.1 or newer",
            got=pyspark.__version__,
            do="Use privatize(df, ...)",
        ) from None
    found: Callable[..., Any] = arrow_udf
    return found


_SHOWN: Final[set[Hashable]] = set()


def _show_once(columns: TableColumns, release: Release, *, kept: bool) -> None:
    """Print in a notebook what a release promises and what it leaves out, unless it was shown already."""
    parts = (release.mechanism, release.search, release.policy, release.row_epsilons)
    shown = (columns, release.embedding.fingerprint, parts, kept)
    if shown in _SHOWN:
        return
    _SHOWN.add(shown)
    by_key = key_scope(kept=kept, what="text", arrays=has_arrays(columns.sanitized), by_position=False)
    facts = release_facts(
        release,
        release.guarantee(),
        options={},
        row_id=f"Rows are named by column {columns.id}.",
        kept=columns.keep,
        sanitized=columns.sanitized,
        remarks=by_key,
    )
    print(f"Release of {', '.join(columns.sanitized)}", describe(facts), sep="\n")


def _is_notebook() -> bool:
    """Say whether this process is an IPython kernel or shell."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _release(
    embedding: str | Path | Embedding,
    mechanism: Mechanism,
    search: str | Search,
    release_words: int | None,
    policy: TextPolicy,
    row_budget: RowBudget | None,
    name: str,
) -> Release:
    embedding, mechanism = Embedding.of(embedding), Mechanism.of(mechanism)
    if not isinstance(search, Search):
        search = chosen_search(search, embedding, (mechanism,), release_words=release_words)
    return Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=search,
        policy=policy,
        row_budget=row_budget,
        name=name,
    )
