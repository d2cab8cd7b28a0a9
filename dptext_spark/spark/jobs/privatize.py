"""The job of ``dptext privatize``: a table's texts in, sanitized texts out."""

from __future__ import annotations

from dataclasses import replace

from dptext_spark.calibration import record
from dptext_spark.calibration.record import Excerpt
from dptext_spark.options import PrivatizeOptions
from dptext_spark.privatizer import TokenCounts
from dptext_spark.report.sanitized_table import Report
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.failures import FAILED, plain_errors
from dptext_spark.spark.frames import Plan
from dptext_spark.spark.progress import progress
from dptext_spark.spark.release import Release
from dptext_spark.spark.table.beforehand import check_record, checks_beforehand
from dptext_spark.spark.table.columns import TableColumns, check_ids, column_counts
from dptext_spark.spark.table.incremental import GrowingJob
from dptext_spark.spark.table.run import Job
from dptext_spark.spark.table.sample import CoveragePlan, Sample
from dptext_spark.spark.table.storage import Storage
from dptext_spark.text.policies import TextPolicy


def run(options: PrivatizeOptions) -> Report:
    """Run ``dptext privatize``: check, read once, write once, report.

    The table appears under its name when it is complete, and not at all if the run fails. With
    ``--incremental`` files that are new since the last run are added to it, batch by batch.

    Returns:
        The report, which lies beside the output too; that of a dry run only where ``--report`` says.

    Raises:
        DptextError: Options or input are wrong (before any data is read), or the job failed.
    """
    kind = Job if options.incremental is None else GrowingJob
    checks = checks_beforehand(kind, options, lambda: _columns(options))
    release = Release(options, *checks, lambda: check_record(options.calibration))
    job = kind.open("dptext privatize", options, _columns(options))
    report = Report(
        calibration=_calibration(job.storage, options, release),
        options=options.to_json(),
        guarantee=release.guarantee,
        policy=release.policy,
        embedding=release.embedding,
        search=release.search,
        row_id=job.row_id_words,
        kept=job.columns.keep,
        remarks=tuple(job.remarks),
        columns={},
    )
    cut_off = "The Spark job failed; the output has the batches before, and the same command goes on"
    with plain_errors(FAILED if options.incremental is None else cut_off):
        if isinstance(job, GrowingJob):
            job.claim(release)
        with progress(job.df.sparkSession, "Checking ids"):
            check_ids(job.df, job.checked_id)
        bundle = BundleFiles.send(job.df.sparkSession, release.embedding)
        sample = Sample(
            columns=job.columns,
            table=job.source.df.schema,
            plan=CoveragePlan(bundle=bundle, policy=release.policy),
            fate=_fate(release.policy),
        )
        if options.dry_run:
            sample(job.columns.select(job.df, job.row_id))
            report = replace(report, coverage=sample.found)
            job.write_dry(report.to_json())
            return report
        plan = Plan(
            bundle=bundle,
            mechanism=release.mechanism,
            noise=release.noise,
            policy=release.policy,
            search=release.search,
        )
        found = job.sanitize(plan, sample)
    counts = column_counts(job.columns.sanitized, TokenCounts[int], found)
    added = found.get("added_rows")
    report = replace(report, rows=found["rows"], added_rows=added, columns=counts, coverage=sample.found)
    job.write_beside("report", options.report_path, report.to_json())
    return report


def _fate(policy: TextPolicy) -> str:
    told = policy.oov.describe(unknown=policy.protect.unknown)
    return f"{told} Take an embedding that has more of them, or another --oov than {policy.oov}."


def _columns(options: PrivatizeOptions) -> TableColumns:
    return TableColumns(
        text=options.text,
        tokens=options.tokens,
        keep=options.keep,
        left_out=options.except_,
        id=options.id,
        slots=options.policy.protect.slots_column,
    )


def _calibration(storage: Storage, options: PrivatizeOptions, release: Release) -> Excerpt | None:
    if options.calibration is None:
        return None
    return Excerpt.of(
        options.calibration,
        record.read(options.calibration, storage.read),
        embedding=release.embedding,
        mechanism=release.mechanism,
        search=release.search,
    )
