"""The job of ``dptext privatize``: a table's texts in, sanitized texts out."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from dptext_spark.accounting.ledger import LARGEST_EPSILON, Apart, Cost, Naming, Terms, Unit, recorded
from dptext_spark.calibration.recall import recall_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, all_of
from dptext_spark.guarantee import Guarantee
from dptext_spark.lookup import WordReader
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release, in_euclidean_distance
from dptext_spark.report.persons import Persons
from dptext_spark.report.row_lengths import RowLengths
from dptext_spark.report.sanitized_table import Report
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.spark.failures import FAILED, plain_errors
from dptext_spark.spark.progress import progress
from dptext_spark.tables.beforehand import check_names, check_paths
from dptext_spark.tables.columns import LONGEST, MEDIAN, TableColumns, check_ids, column_counts
from dptext_spark.tables.dataframes import sent
from dptext_spark.tables.incremental import GrowingJob
from dptext_spark.tables.ledger_folder import OpenLedger
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.reservation import Account
from dptext_spark.tables.run import Job
from dptext_spark.tables.sample import Sample
from dptext_spark.tables.sealed_rows import sealed
from dptext_spark.tables.sums_of_persons import count_persons
from dptext_spark.text.policies import TextPolicy
from dptext_spark.version import __version__


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
    job = kind.open("dptext privatize", options, _columns(options))
    report = Report(
        options=options.to_json(),
        published=options.to_publish(),
        guarantee=guarantee,
        release=release,
        recall=recall_of(release.search, release.mechanism, release.embedding),
        row_id=job.row_id_words,
        kept=job.columns.keep,
        sanitized=job.columns.sanitized,
        remarks=tuple(job.remarks),
        private_remarks=tuple(job.private_remarks),
        columns={},
    )
    cut_off = "The Spark job failed; the output has the batches before, and the same command goes on"
    failed = FAILED if options.incremental is None else cut_off
    with plain_errors(failed):
        if isinstance(job, GrowingJob):
            job.claim(release, key)
        with progress(job.df.sparkSession, "Checking ids"):
            check_ids(job.df, job.checked_id)
        worker = sent(job.df.sparkSession, Sanitizer.open(release, key))
        account = _account(job, options, guarantee, key, worker)
        if account is not None:
            account.check()
        reader = worker.release.reader
        report = replace(report, persons=_persons(job, options, guarantee, reader))
        fate = _fate(release.policy)
        sample = Sample(columns=job.columns, table=job.source.df.schema, reader=reader, fate=fate)
        if options.dry_run:
            selected = job.columns.select(job.df, job.row_id)
            sample(selected)
            if account is not None:
                account.look(selected)
            report = replace(report, coverage=sample.found, lengths=sample.lengths, ledger=_costs(account))
            job.write_dry(report.to_json())
            return report
        operations = release.mechanism.operations(release.embedding, release.search)
        partitioning = Partitioning(word=operations, words=lambda: sample.words, counted=lambda: sample.rows)
        found = job.sanitize(
            worker, partitioning, sample, nullcontext if account is None else account.entered
        )
    counts = column_counts(job.columns.sanitized, TokenCounts[int], found)
    added = found.get("added_rows")
    lengths = None
    if (longest := found.get(LONGEST)) is not None:  # of no rows there is none
        lengths = RowLengths(median=found.get(MEDIAN), longest=longest)
    report = replace(
        report,
        rows=found["rows"],
        added_rows=added,
        columns=counts,
        coverage=sample.found,
        lengths=lengths,
        ledger=_costs(account),
        keeps_order=partitioning.keeps_order,
        private_remarks=(*report.private_remarks, *partitioning.private_remarks),
    )
    job.write_reports(report.to_publish(), report.to_json())
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


def _account(
    job: Job, options: PrivatizeOptions, guarantee: Guarantee, key: NoiseKey, worker: Sanitizer
) -> Account | None:
    """Say what the run has to do with the ledger that it is given, if any."""
    if options.ledger is None:
        return None
    release = worker.release
    guarantee = in_euclidean_distance(guarantee, release.embedding)
    far = guarantee.distances
    if guarantee.epsilon > LARGEST_EPSILON:
        raise ConfigError("Epsilon is too large for a ledger", allowed=f"{LARGEST_EPSILON:g} or less")
    storage, dimension = job.storage, release.embedding.dimension
    grows = options.incremental is not None
    known_as: Naming = "id" if options.id is not None else "file" if grows else "position"
    place = storage.real(options.incremental) if options.incremental is not None else ""
    names = f"id {options.id}" if known_as == "id" else f"{known_as} {job.identity}\n{place}"
    policies = {name: str(policy) for name, policy in vars(release.policy).items()}
    terms = Terms(
        version=__version__,
        label=options.name,
        key=key.seal("ledger"),
        naming=key.seal(names),
        known_as=known_as,
        input=key.seal(f"input {job.identity}"),
        output=storage.real(options.output) if job.written.has_path else options.output,
        columns=job.columns.sanitized,
        kept=job.columns.keep,
        policy={**policies, "release words": str(release.search.release_words)},
        law=dict(release.mechanism.law(dimension)),
        unit=Unit(metric=guarantee.metric, fingerprint=guarantee.fingerprint),
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        loss=recorded(guarantee.law),
        apart=Apart(nearest=far.nearest, tenth=far.tenth, hundredth=far.hundredth) if far else None,
    )
    ways = job.columns.ways(job.source.df.schema)
    seal = partial(sealed, key=key.derive(b"ledger"), sanitizer=worker, ways=ways)
    return Account(
        ledger=OpenLedger(path=options.ledger, storage=storage),
        terms=terms,
        # Under a fresh key no two runs have a row in common.
        seal=None if options.key_file is None else seal,
        budget=options.budget,
        allowed=frozenset(options.ledger_allow),
        nothing_written=lambda: not grows and job.written.has_path and not storage.exists(options.output),
    )


def _costs(account: Account | None) -> tuple[Cost, ...]:
    return () if account is None else tuple(account.costs)


def _persons(job: Job, options: PrivatizeOptions, guarantee: Guarantee, reader: WordReader) -> Persons | None:
    if options.person is None:
        return None
    far = guarantee.distances
    within = options.within or (far.nearest if far else 0.0)
    with progress(job.df.sparkSession, "Counting words of persons"):
        return count_persons(job.df, job.columns, options.person, reader, within)


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
