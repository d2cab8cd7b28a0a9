"""The job of ``dptext vectors``: columns of vectors and texts in, projected noisy vectors out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.lookup import WordReader
from dptext_spark.mechanisms.vectors import VectorNoise
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.options import VectorsOptions
from dptext_spark.report.facts import Facts, Report, coverage, embedding_json, table_facts, written
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.tables.columns import TableColumns, check_ids, column_counts
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.local import check_names
from dptext_spark.tables.look import Sample
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.table import Table
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.segmentation import Segmentation
from dptext_spark.vector_sanitizer import (
    ReleasedVectors,
    VectorCounts,
    VectorSanitizer,
    nothing_released,
)


@dataclass(frozen=True, kw_only=True)
class VectorWorker:
    """Releases columns of vectors and texts; see :class:`dptext_spark.tables.columns.Worker`.

    Attributes:
        columns: Of each column that holds vectors its name, mechanism, the noise under the mechanism's law,
            and for texts the bundle of their words' vectors.
        tokenizer: Of texts.
    """

    counts: ClassVar = VectorCounts
    by_words: ClassVar[bool] = False
    visible_words: ClassVar[Any] = None

    columns: tuple[tuple[str, VectorNoise, ReleaseNoise, BundleFiles | None], ...]
    tokenizer: Segmentation

    @cached_property
    def _sanitizers(self) -> dict[str, VectorSanitizer]:
        """Derive the projections and open the bundle."""
        return {
            name: VectorSanitizer(
                mechanism=mechanism,
                noise=noise,
                embedding=bundle.shared() if bundle else None,
                tokenizer=self.tokenizer,
            )
            for name, mechanism, noise, bundle in self.columns
        }

    def sanitize(self, values: pa.Array, ids: pa.Array, *, column: str, **_: Any) -> ReleasedVectors:
        """Release rows of one column."""
        if column not in self._sanitizers:
            return nothing_released(values, column)
        return self._sanitizers[column].sanitize(values, ids, column=column)


def run(options: VectorsOptions) -> Report:
    """Run ``dptext vectors``: check, read, write once, report.

    The table appears under its name when it is complete, and not at all if the run fails.

    Returns:
        The report, which lies in its place too, as what may be handed on of it and the projections lie beside
        the output; that of a dry run only where ``--reports`` says.

    Raises:
        DptextError: Options or input are wrong (before any row is released), or the job failed.
    """
    columns = TableColumns(
        text=options.text,
        vector=options.vector,
        keep=options.keep,
        left_out=options.except_,
        id=options.id,
        vectors=True,
    )
    key, tokenizer, *_ = all_of(
        options.noise_key,
        lambda: Segmentation.of(options.tokenizer),
        lambda: _embedding(options, verify=False),
        lambda: Table.check_paths(options),
        lambda: check_names(options, columns),
    )
    embedding = _embedding(options, verify=True)  # to hash a large bundle takes seconds: last
    job = Table.open("dptext vectors", options, columns)
    with plain_errors():
        released = _released(job, options, embedding)
        bundle = BundleFiles.send(job.df.sparkSession, embedding) if embedding else None
        sample = _sample(job, bundle, tokenizer) if bundle else None
        partitioning = Partitioning(
            word=_AVERAGING,
            row=sum(
                2.0 * each.dimension * (each.input_dimension + _NOISE)
                for each, _ in released.values()
                if each is not None
            ),
            words=lambda: sample.words if sample else 0.0,
            counted=lambda: sample.rows if sample else None,
        )
        sums: Mapping[str, Any] = {}
        if not options.dry_run:
            sums = job.sanitize(_worker(job, key, released, tokenizer, bundle), partitioning, sample)
        elif sample:
            sample(job.rows)
    lengths = {
        name: {"input_dimension": m.input_dimension, "dimension": m.dimension} if m else {}
        for name, (m, _) in released.items()
    }
    counts = column_counts(columns.sanitized, VectorCounts[int], sums) if sums else {}
    found = {
        "coverage": coverage(sample.found) if sample else {},
        "rows": sums.get("rows"),
        "columns": {n: own | (asdict(counts[n]) if sums else {}) for n, own in lengths.items()},
    }
    empty = [name for name, (mechanism, _) in released.items() if mechanism is None]
    about = [f"Columns without a single vector, null in every row: {', '.join(empty)}."] if empty else []
    facts = {
        "guarantees": _grouped((m and m.guarantee(f), name) for name, (m, f) in released.items()),
        **table_facts(about=about, **job.table_facts(partitioning)),
        "embedding": embedding and embedding_json(embedding),
    }
    report = job.report(facts, found)
    if not options.dry_run:
        projections = {"projections": _grouped((m, name) for name, (m, _) in released.items())}
        job.write_beside("projection", options.projection_path, written(projections))
    job.write_reports(report)
    return report


def _grouped(pairs: Iterable[tuple[Any, str]]) -> list[Facts]:
    """Group names of columns by what they share, as its JSON-ready values; those without it are left out."""
    found: dict[Any, list[str]] = {}
    for key, name in pairs:
        if key is not None:
            found.setdefault(key, []).append(name)
    return [{"columns": names, **key.to_json()} for key, names in found.items()]


def _embedding(options: VectorsOptions, *, verify: bool) -> Embedding | None:
    if options.embedding is None:
        return None
    embedding = Embedding.open(options.embedding, verify=verify)
    if not isinstance(embedding.space, EuclideanSpace):
        raise ConfigError(
            "Texts cannot be averaged in this embedding bundle",
            allowed=f"a bundle of geometry {EuclideanSpace.geometry}",
            got=f"geometry {embedding.space.geometry}",
            do="Take another bundle",
        )
    options.mechanism.check(embedding)
    return embedding


Released: TypeAlias = dict[str, tuple[VectorNoise | None, str]]
"""Of each column its mechanism, None where it holds no vector, and for texts the bundle's fingerprint."""


def _released(job: Table, options: VectorsOptions, embedding: Embedding | None) -> Released:
    """Say how each column is released; reads the lengths of its vectors, in the pass that checks the ids."""
    released: Released = {
        name: (None if length is None else options.mechanism.of_length(length), "")
        for name, length in _lengths(job, options.vector).items()
    }
    if embedding is not None:
        mechanism = options.mechanism.of_length(embedding.dimension)
        released |= dict.fromkeys(options.text, (mechanism, embedding.fingerprint))
    return released


def _lengths(job: Table, names: Sequence[str]) -> dict[str, int | None]:
    """Find the one length of each column's vectors; None where there are none.

    Raises:
        InputError: A column has vectors of different lengths or of length 0, or the ids are wrong.
    """
    measures = [bound(F.array_size(quoted(name))) for name in names for bound in (F.min, F.max)]
    with progress(job.df.sparkSession, "Checking ids and lengths"):
        found = check_ids(job.df, job.checked_id, *measures)
    bounds = dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))
    wrong = [f"{name}: {low} to {high}" for name, (low, high) in bounds.items() if low != high or low == 0]
    if wrong:
        raise InputError(
            "Columns have vectors of unequal lengths, or empty ones",
            allowed="one length above 0 in each column, or null in place of a vector",
            got="; ".join(wrong),
        )
    return {name: low for name, (low, _) in bounds.items()}


# A word of a text, and a number of a vector's noise, in operations of a matrix product.
_AVERAGING: Final = 2e5
_NOISE: Final = 1250.0


def _sample(job: Table, bundle: BundleFiles, tokenizer: Segmentation) -> Sample:
    return Sample(
        columns=job.columns,
        table=job.source.df.schema,
        reader=WordReader(bundle=bundle, policy=TextPolicy(tokenizer=tokenizer)),
        fate="They are left out of the averages. Take an embedding that has more of them.",
    )


def _worker(
    job: Table, key: NoiseKey, released: Released, tokenizer: Segmentation, bundle: BundleFiles | None
) -> VectorWorker:
    columns = []
    for name, (mechanism, fingerprint) in released.items():
        if mechanism is not None:
            law = mechanism.law()
            noise = ReleaseNoise.of(key, salt=job.options.name, law=law, fingerprint=fingerprint)
            columns.append((name, mechanism, noise, bundle if fingerprint else None))
    return VectorWorker(columns=tuple(columns), tokenizer=tokenizer)
