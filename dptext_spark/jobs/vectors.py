"""The job of ``dptext vectors``: columns of vectors and texts in, projected noisy vectors out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from dptext_spark.bars import progress, tell
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.mechanisms.vectors import TEXT_WORDS, PublicPrior, VectorNoise
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.options import VectorsOptions
from dptext_spark.report.facts import (
    Facts,
    Report,
    coverage,
    embedding_json,
    json_text,
    table_facts,
)
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.columns import TableColumns, column_counts
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.run import TableRun
from dptext_spark.tables.sampling import Sample
from dptext_spark.tables.table import Table
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.text.tokens import Segmentation
from dptext_spark.vector_sanitizer import VectorCounts, VectorSanitizer, VectorWorker
from dptext_spark.word_reader import WordReader

# A word of a text, and a number of a vector's noise, in operations of a matrix product.
_AVERAGING: Final = 2e5
_NOISE: Final = 1250.0
# Of a released number; kept columns come on top.
_NUMBER_BYTES: Final = 4.0


def run(options: VectorsOptions) -> Report:
    """Run ``dptext vectors``: check, read, write once, report."""
    table_run = TableRun.of(options, _columns(options))
    key, tokenizer, *_ = all_of(
        options.noise_key,
        lambda: Segmentation.of(options.tokenizer),
        table_run.check_paths,
        table_run.check_columns,
    )
    embedding = _embedding(options)
    table = table_run.open("dptext vectors")
    with spark_errors():
        lengths = _lengths(table, options.vector)
        dimension = None if embedding is None else embedding.dimension
        lengths |= dict.fromkeys((*options.text, *options.tokens), dimension)
        projections = _projections(options, embedding, lengths)
        for line in _warnings(projections):
            tell(line)
        reader = None
        sample = None
        if embedding is not None and (options.text or options.tokens):
            bundle = BundleFiles.send(table.spark, embedding)
            policy = WORDS_ALONE.model_copy(update={"tokenizer": tokenizer})
            reader = WordReader(bundle=bundle, policy=policy)
            sample = _sample(options, table, reader)
        operations = 0.0  # of a row
        row_bytes = 0.0
        word_bytes = 0.0
        for name, projection in projections.items():
            operations += 2.0 * projection.dimension * (projection.input_dimension + _NOISE)
            if name in options.tokens:
                word_bytes += _NUMBER_BYTES * projection.dimension
            else:
                row_bytes += _NUMBER_BYTES * projection.dimension
        word = _AVERAGING if options.text or options.tokens else 0.0
        partitioning = Partitioning(
            word=word,
            row=operations,
            row_bytes=row_bytes,
            word_bytes=word_bytes,
            sample=sample,
        )
        sums: Mapping[str, Any] = {}
        if not options.dry_run:
            worker = _worker(options, key, projections, embedding, reader, tokenizer)
            sums = table.sanitize(worker, partitioning)
        elif sample:
            sample(table.input.rows)
    empty_columns = [name for name in lengths if name not in projections]
    about = []
    if empty_columns:
        about = [f"Columns without a single vector, null in every row: {', '.join(empty_columns)}."]
    facts = {
        "guarantees": _guarantees(options, embedding, projections),
        **table_facts(about=about, **table.table_facts(partitioning)),
        "embedding": embedding and embedding_json(embedding),
    }
    findings: Facts = {}
    if sample is not None:
        findings["coverage"] = coverage(sample.coverage)
    findings["rows"] = sums.get("rows")
    findings["columns"] = _column_facts([*lengths], projections, sums)
    if not options.dry_run:
        content = json_text({"projections": _grouped(projections.items())})
        table.output.write_beside("projection", options.projection_path, content)
    return table.output.write_reports(facts, findings)


def _columns(options: VectorsOptions) -> TableColumns:
    return TableColumns(
        text=options.text,
        tokens=options.tokens,
        vector=options.vector,
        keep=options.keep,
        left_out=options.except_,
        id=options.id,
        path=options.input,
        vectors=True,
    )


def _fingerprint(options: VectorsOptions, embedding: Embedding | None, column: str) -> str:
    """Return the fingerprint of the bundle of a column's words; of vectors none."""
    if embedding is None or column in options.vector:
        return ""
    return embedding.fingerprint


def _prior(options: VectorsOptions, embedding: Embedding | None, column: str) -> PublicPrior | None:
    """Return how the vectors of a column spread, as far as the embedding says."""
    if embedding is None or (column in options.vector and options.projection != "main-axes"):
        return None
    space = embedding.space
    if not isinstance(space, EuclideanSpace):
        return None
    if column in options.text:
        return PublicPrior.of(space, words=TEXT_WORDS)
    return PublicPrior.of(space)


def _projections(
    options: VectorsOptions, embedding: Embedding | None, lengths: Mapping[str, int | None]
) -> dict[str, VectorNoise]:
    """Bind the mechanism to each column that has vectors, of these lengths."""
    if options.kgrams is not None:
        return dict.fromkeys(options.text, options.mechanism.of_bags())
    return {
        name: options.mechanism.of_length(length, _prior(options, embedding, name))
        for name, length in lengths.items()
        if length
    }


def _warnings(projections: Mapping[str, VectorNoise]) -> Iterator[str]:
    """Yield a warning for each column whose vectors are hardly more than noise."""
    for name, projection in projections.items():
        if projection.spread is not None and projection.spread.is_useless:
            yield f"Warning: column {name}: {projection.spread.describe()}"


def _sample(options: VectorsOptions, table: Table, reader: WordReader) -> Sample:
    """Return what looks at some rows' words."""
    fate = "They are left out of the averages."
    if options.tokens:
        fate = "They are left out of averages, and zero vectors by themselves."
    return table.input.sample(reader, fate=f"{fate} Take a larger embedding.")


def _guarantees(
    options: VectorsOptions, embedding: Embedding | None, projections: Mapping[str, VectorNoise]
) -> list[Facts]:
    """Return what is promised of the columns, and how long the noise is compared with vectors."""
    columns: dict[Any, list[str]] = {}
    for name, projection in projections.items():
        fingerprint = _fingerprint(options, embedding, name)
        key = (projection, fingerprint, name in options.tokens)
        columns.setdefault(key, []).append(name)
    guarantees = []
    for (projection, fingerprint, by_word), names in columns.items():
        guarantee = projection.guarantee(fingerprint, by_word=by_word)
        facts = {"columns": names, **guarantee.to_json()}
        if projection.spread is not None:
            facts["spread"] = projection.spread.to_json()
        guarantees.append(facts)
    return guarantees


def _worker(
    options: VectorsOptions,
    key: NoiseKey,
    projections: Mapping[str, VectorNoise],
    embedding: Embedding | None,
    reader: WordReader | None,
    tokenizer: Segmentation,
) -> VectorWorker:
    """Return what sanitizes all columns that hold vectors, under the key."""
    sanitizers = []
    for name, projection in projections.items():
        noise = ReleaseNoise.of(
            key,
            salt=options.name,
            noise_parameters=projection.noise_parameters(),
            fingerprint=_fingerprint(options, embedding, name),
        )
        sanitizer = VectorSanitizer(
            mechanism=projection,
            noise=noise,
            reader=None if name in options.vector else projection.bags(tokenizer) or reader,
            by_word=name in options.tokens,
        )
        sanitizers.append((name, sanitizer))
    return VectorWorker(sanitizers=tuple(sanitizers))


def _column_facts(
    columns: Sequence[str], projections: Mapping[str, VectorNoise], sums: Mapping[str, Any]
) -> Facts:
    """Return the dimensions of each column and, after a run, its counts."""
    facts: dict[str, dict[str, Any]] = {}
    for name in columns:
        facts[name] = {}
        if name in projections:
            projection = projections[name]
            facts[name]["input_dimension"] = projection.input_dimension
            facts[name]["dimension"] = projection.dimension
    if sums:
        for name, counts in column_counts(columns, VectorCounts[int], sums).items():
            facts[name] |= counts._asdict()
            if name in projections and projections[name].parameters.kgrams is not None:
                facts[name]["grams"] = facts[name].pop("known")
                del facts[name]["unknown"]
    return facts


def _grouped(pairs: Iterable[tuple[str, Any]]) -> list[Facts]:
    """Group names of columns by what they share, as its JSON-ready values."""
    columns: dict[Any, list[str]] = {}
    for name, shared in pairs:
        columns.setdefault(shared, []).append(name)
    return [{"columns": names, **shared.to_json()} for shared, names in columns.items()]


def _embedding(options: VectorsOptions) -> Embedding | None:
    if options.embedding is None:
        return None
    embedding = Embedding.open(options.embedding)
    if not isinstance(embedding.space, EuclideanSpace):
        raise ConfigError(
            "This embedding bundle has no vectors to release",
            allowed=f"a bundle of geometry {EuclideanSpace.geometry}",
            got=f"geometry {embedding.space.geometry}",
            do="Take another bundle",
        )
    if options.text or options.tokens:
        prior = PublicPrior.of(embedding.space)
        options.mechanism.of_length(embedding.dimension, prior)
    return embedding


def _lengths(table: Table, names: Sequence[str]) -> dict[str, int | None]:
    """Compute the one length of each column's vectors, None without any, and check the rows."""
    measures: list[Column] = []
    for name in names:
        size = F.array_size(quoted(name))
        measures += [F.min(size), F.max(size)]
    with progress(table.spark, "Checking ids and lengths"):
        bounds = table.input.check_rows(*measures)
    lengths: dict[str, int | None] = {}
    faults: list[str] = []
    for name, low, high in zip(names, bounds[::2], bounds[1::2], strict=True):
        lengths[name] = low
        if low != high or low == 0:
            faults.append(f"{name}: {low} to {high}")
    if faults:
        raise InputError(
            "Columns have vectors of unequal lengths, or empty ones",
            allowed="one length above 0 in each column, or null in place of a vector",
            got="; ".join(faults),
        )
    return lengths
