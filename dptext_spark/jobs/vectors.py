"""The job of ``dptext vectors``: columns of vectors and texts in, projected noisy vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, InputError, all_of
from dptext_spark.lookup import WordReader
from dptext_spark.mechanisms.vectors import VectorNoise
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.options import VectorsOptions
from dptext_spark.report.released_vectors import VectorColumn, VectorReport
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.tables.beforehand import check_names, check_paths
from dptext_spark.tables.columns import TableColumns, check_ids, column_counts
from dptext_spark.tables.fields import quoted
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.run import Job
from dptext_spark.tables.sample import Sample
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


def run(options: VectorsOptions) -> VectorReport:
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
        lambda: check_paths(Job, options),
        lambda: check_names(options, columns),
    )
    embedding = _embedding(options, verify=True)  # to hash a large bundle takes seconds: last
    job = Job.open("dptext vectors", options, columns)
    with plain_errors():
        report = VectorReport(
            options=options.to_json(),
            published=options.to_publish(),
            embedding=embedding,
            row_id=job.row_id_words,
            kept=job.columns.keep,
            remarks=tuple(job.remarks),
            private_remarks=tuple(job.private_remarks),
            columns=_columns(job, options, embedding),
        )
        bundle = BundleFiles.send(job.df.sparkSession, embedding) if embedding else None
        sample = _sample(job, bundle, tokenizer) if bundle else None
        if options.dry_run:
            if sample:
                sample(job.columns.select(job.df, job.row_id))
                report = replace(report, coverage=sample.found)
            job.write_dry(report.to_json())
            return report
        mechanisms = [column.mechanism for column in report.columns.values() if column.mechanism is not None]
        partitioning = Partitioning(
            word=_AVERAGING,
            row=sum(2.0 * each.dimension * (each.input_dimension + _NOISE) for each in mechanisms),
            words=lambda: sample.words if sample else 0.0,
            counted=lambda: sample.rows if sample else None,
        )
        found = job.sanitize(_worker(job, key, report, tokenizer, bundle), partitioning, sample)
    counts = column_counts(columns.sanitized, VectorCounts[int], found)
    counted = {name: replace(column, counts=counts[name]) for name, column in report.columns.items()}
    coverage = sample.found if sample else {}
    report = replace(
        report,
        rows=found["rows"],
        columns=counted,
        coverage=coverage,
        keeps_order=partitioning.keeps_order,
        private_remarks=(*report.private_remarks, *partitioning.private_remarks),
    )
    job.write_beside("projection", options.projection_path, report.projections())
    job.write_reports(report.to_publish(), report.to_json())
    return report


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


def _columns(job: Job, options: VectorsOptions, embedding: Embedding | None) -> dict[str, VectorColumn]:
    """Say how each column is released; reads the lengths of its vectors, in the pass that checks the ids."""
    columns = {}
    for name, length in _lengths(job, options.vector).items():
        mechanism = None if length is None else options.mechanism.of_length(length)
        columns[name] = VectorColumn(mechanism=mechanism, fingerprint="")
    if embedding is not None:
        mechanism = options.mechanism.of_length(embedding.dimension)
        column = VectorColumn(mechanism=mechanism, fingerprint=embedding.fingerprint)
        columns |= dict.fromkeys(options.text, column)
    return columns


def _lengths(job: Job, names: Sequence[str]) -> dict[str, int | None]:
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


def _sample(job: Job, bundle: BundleFiles, tokenizer: Segmentation) -> Sample:
    return Sample(
        columns=job.columns,
        table=job.source.df.schema,
        reader=WordReader(bundle=bundle, policy=TextPolicy(tokenizer=tokenizer)),
        fate="They are left out of the averages. Take an embedding that has more of them.",
    )


def _worker(
    job: Job, key: NoiseKey, report: VectorReport, tokenizer: Segmentation, bundle: BundleFiles | None
) -> VectorWorker:
    columns = []
    for name, column in report.columns.items():
        if (mechanism := column.mechanism) is not None:
            law, fingerprint = mechanism.law(), column.fingerprint
            noise = ReleaseNoise.of(key, salt=job.options.name, law=law, fingerprint=fingerprint)
            columns.append((name, mechanism, noise, bundle if fingerprint else None))
    return VectorWorker(columns=tuple(columns), tokenizer=tokenizer)
