"""The job of ``dptext privatize``: a table's texts in, sanitized texts out."""

from __future__ import annotations

from contextlib import nullcontext

from dptext_spark.calibration.recall import recall_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import Guarantee
from dptext_spark.lookup import WordReader
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import (
    Facts,
    Report,
    coverage,
    persons,
    release_facts,
    row_lengths,
    token_counts,
)
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.spark.failures import FAILED, plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.tables.beforehand import check_names, check_paths
from dptext_spark.tables.columns import LONGEST, MEDIAN, TableColumns, check_ids, column_counts
from dptext_spark.tables.dataframes import sent
from dptext_spark.tables.incremental import GrowingJob
from dptext_spark.tables.ledger import LedgerRun
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.run import Job
from dptext_spark.tables.sample import Sample
from dptext_spark.tables.sums_of_persons import count_persons
from dptext_spark.text.policies import TextPolicy


def run(options: PrivatizeOptions) -> Report:
    """Run ``dptext privatize``: check, read once, write once, report.

    The table appears under its name when it is complete, and not at all if the run fails. With
    ``--incremental`` files that are new since the last run are added to it, batch by batch.

    Returns:
        The report, which lies in its place too, as what may be handed on of it lies beside the output; that
        of a dry run only where ``--reports`` says.

    Raises:
        DptextError: Options or input are wrong (before any data is read), or the job failed.
    """
    kind = Job if options.incremental is None else GrowingJob
    key, *_ = all_of(
        options.noise_key,
        lambda: options.policy,
        lambda: Embedding.open(options.embedding, verify=False),
        lambda: check_paths(kind, options),
        lambda: check_names(options, _columns(options)),
    )
    release, guarantee = open_release(options)
    recall = recall_of(release.search, release.mechanism, release.embedding)
    job = kind.open("dptext privatize", options, _columns(options))
    cut_off = "The Spark job failed; the output has the batches before, and the same command goes on"
    with plain_errors(FAILED if options.incremental is None else cut_off):
        if isinstance(job, GrowingJob):
            job.claim(release, key)
        with progress(job.df.sparkSession, "Checking ids"):
            check_ids(job.df, job.checked_id)
        worker = sent(job.df.sparkSession, Sanitizer.open(release, key))
        ledger = None
        if options.ledger is not None:
            ledger = LedgerRun(job, options, guarantee, key, worker)
        reader, table = worker.release.reader, job.source.df.schema
        found: Facts = {"persons": _persons(job, options, guarantee, release, reader)}
        sample = Sample(columns=job.columns, table=table, reader=reader, fate=_fate(release.policy))
        operations = release.mechanism.operations(release.embedding, release.search)
        partitioning = Partitioning(word=operations, words=lambda: sample.words, counted=lambda: sample.rows)
        if options.dry_run:
            selected = job.columns.select(job.df, job.row_id)
            sample(selected)
            if ledger is not None:
                ledger.look(selected)
            found["row_lengths"] = sample.lengths
        else:
            entered = nullcontext if ledger is None else ledger.reserve
            sums = job.sanitize(worker, partitioning, sample, entered)
            counts = column_counts(job.columns.sanitized, TokenCounts[int], sums)
            oov = str(release.policy.oov)
            found |= {"rows": sums["rows"], "added_rows": sums.get("added_rows")}
            found["columns"] = {name: token_counts(own, oov) for name, own in counts.items()}
            if (longest := sums.get(LONGEST)) is not None:  # of no rows there is none
                found["row_lengths"] = {"median": sums.get(MEDIAN), "longest": longest, "sample": None}
    if lengths := found.get("row_lengths"):
        found["row_lengths"] = row_lengths(lengths, guarantee, release.row_epsilons)
    found["coverage"] = coverage(sample.found)
    found["ledger"] = [] if ledger is None else ledger.costs
    report = job.report(release_facts(release, guarantee, recall, **job.table_facts(partitioning)), found)
    if options.dry_run:
        job.write_dry(report)
    else:
        job.write_reports(report)
    return report


def open_release(options: PrivatizeOptions) -> tuple[Release, Guarantee]:
    """Open the release of the options, and say what it guarantees; to hash a large bundle takes seconds."""
    embedding = Embedding.open(options.embedding)
    mechanism = options.mechanism
    search, _ = all_of(
        lambda: options.search_over(embedding, options.release_words), lambda: mechanism.prepare(embedding)
    )
    guarantee = mechanism.guarantee(embedding, search=search)
    far = guarantee.distances
    release = Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=search,
        policy=options.policy,
        row_budget=options.rows_budget(far.nearest if far else 1.0),
        name=options.name,
    )
    return release, guarantee


def _persons(
    job: Job, options: PrivatizeOptions, guarantee: Guarantee, release: Release, reader: WordReader
) -> Facts | None:
    """Give what the rows of a person lose together, where somebody asks."""
    if options.person is None:
        return None
    far = guarantee.distances
    within = options.within or (far.nearest if far else 0.0)
    with progress(job.df.sparkSession, "Counting words of persons"):
        found = count_persons(job.df, job.columns, options.person, reader, within)
    return None if found is None else persons(found, guarantee, release.row_epsilons)


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
        protect=options.policy.protect,
        person=options.person,
    )
