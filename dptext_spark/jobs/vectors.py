"""The job of ``dptext vectors``: columns of vectors and texts in, projected noisy vectors out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import functions as F

from dptext_spark.bars import progress
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.noise import ReleaseNoise
from dptext_spark.options import VectorsOptions
from dptext_spark.report.facts import Facts, Report, coverage, embedding_json, table_facts, written
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.columns import TableColumns, check_ids, column_counts
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.formats.parquet import check_names
from dptext_spark.tables.look import Sample
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.table import Table
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.text.tokens import Segmentation
from dptext_spark.vector_sanitizer import VectorCounts, VectorSanitizer, VectorWorker
from dptext_spark.word_reader import WordReader

# A word of a text, and a number of a vector's noise, in operations of a matrix product.
_AVERAGING: Final = 2e5
_NOISE: Final = 1250.0


def run(options: VectorsOptions) -> Report:
    """Run ``dptext vectors``: check, read, write once, report."""
    columns = TableColumns(
        text=options.text,
        vector=options.vector,
        keep=options.keep,
        left_out=options.except_,
        id=options.id,
        path=options.input,
        vectors=True,
    )
    key, tokenizer, *_ = all_of(
        options.noise_key,
        lambda: Segmentation.of(options.tokenizer),
        lambda: Table.check_paths(options),
        lambda: check_names(options, columns),
    )
    embedding = _embedding(options)
    fingerprints = {} if embedding is None else dict.fromkeys(options.text, embedding.fingerprint)
    job = Table.open("dptext vectors", options, columns)
    with spark_errors():
        # Of each column its mechanism, None where it holds no vector.
        lengths = _lengths(job, options.vector)
        job.check_rows()
        if embedding is not None:
            lengths |= dict.fromkeys(options.text, embedding.dimension)
        mechanisms = {name: n and options.mechanism.of_length(n) for name, n in lengths.items()}
        found = {name: each for name, each in mechanisms.items() if each}
        reader = sample = None
        if embedding is not None:
            bundle = BundleFiles.send(job.df.sparkSession, embedding)
            reader = WordReader(
                bundle=bundle, policy=WORDS_ALONE.model_copy(update={"tokenizer": tokenizer})
            )
            sample = Sample(
                columns=job.columns,
                table=job.source.df.schema,
                reader=reader,
                fate="They are left out of the averages. Take an embedding that has more of them.",
            )
        partitioning = Partitioning(
            word=_AVERAGING if sample else 0.0,
            row=sum(
                2.0 * each.dimension * (each.input_dimension + _NOISE) for each in found.values()
            ),
            sample=sample,
        )
        sums: Mapping[str, Any] = {}
        if not options.dry_run:
            sanitizers = []
            for name, each in found.items():
                of = fingerprints.get(name, "")
                noise = ReleaseNoise.of(
                    key, salt=options.name, law=each.noise_parameters(), fingerprint=of
                )
                words = reader if name in options.text else None
                sanitizers.append(
                    (name, VectorSanitizer(mechanism=each, noise=noise, reader=words))
                )
            sums = job.sanitize(VectorWorker(sanitizers=tuple(sanitizers)), partitioning)
        elif sample:
            sample(job.rows)
    counts = column_counts(columns.sanitized, VectorCounts[int], sums) if sums else {}
    sizes = {
        n: {"input_dimension": m.input_dimension, "dimension": m.dimension}
        for n, m in found.items()
    }
    seen = {
        "coverage": coverage(sample.found) if sample else {},
        "rows": sums.get("rows"),
        "columns": {
            n: sizes.get(n, {}) | (counts[n]._asdict() if sums else {}) for n in mechanisms
        },
    }
    empty = [name for name in mechanisms if name not in found]
    about = (
        [f"Columns without a single vector, null in every row: {', '.join(empty)}."]
        if empty
        else []
    )
    facts = {
        "guarantees": _grouped((m.guarantee(fingerprints.get(n, "")), n) for n, m in found.items()),
        **table_facts(about=about, **job.table_facts(partitioning)),
        "embedding": embedding and embedding_json(embedding),
    }
    if not options.dry_run:
        projections = {"projections": _grouped((each, name) for name, each in found.items())}
        job.write_beside("projection", options.projection_path, written(projections))
    return job.write_reports(facts, seen)


def _grouped(pairs: Iterable[tuple[Any, str]]) -> list[Facts]:
    """Group names of columns by what they share, as its JSON-ready values."""
    names: dict[Any, list[str]] = {}
    for shared, name in pairs:
        names.setdefault(shared, []).append(name)
    return [{"columns": own, **shared.to_json()} for shared, own in names.items()]


def _embedding(options: VectorsOptions) -> Embedding | None:
    if options.embedding is None:
        return None
    embedding = Embedding.open(options.embedding)
    if not isinstance(embedding.space, EuclideanSpace):
        raise ConfigError(
            "Texts cannot be averaged in this embedding bundle",
            allowed=f"a bundle of geometry {EuclideanSpace.geometry}",
            got=f"geometry {embedding.space.geometry}",
            do="Take another bundle",
        )
    options.mechanism.rows(embedding.dimension)
    return embedding


def _lengths(job: Table, names: Sequence[str]) -> dict[str, int | None]:
    """Find the one length of each column's vectors, None where there are none, and check the ids."""
    measures = [bound(F.array_size(quoted(name))) for name in names for bound in (F.min, F.max)]
    with progress(job.df.sparkSession, "Checking ids and lengths"):
        found = check_ids(job.df, job.checked_id, *measures)
    bounds = dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))
    wrong = [
        f"{name}: {low} to {high}"
        for name, (low, high) in bounds.items()
        if low != high or low == 0
    ]
    if wrong:
        raise InputError(
            "Columns have vectors of unequal lengths, or empty ones",
            allowed="one length above 0 in each column, or null in place of a vector",
            got="; ".join(wrong),
        )
    return {name: low for name, (low, _) in bounds.items()}
