"""The job of ``dptext privatize``: a table's texts in, sanitized texts out."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from dptext_spark.bars import progress, stage
from dptext_spark.calibration.recall import recall_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import Guarantee
from dptext_spark.options import PrivatizeOptions, read_row_budget
from dptext_spark.release import Release
from dptext_spark.report.facts import (
    Facts,
    Report,
    coverage,
    persons,
    release_facts,
    row_lengths,
    rows_singled_out,
    token_counts,
)
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.spark.failures import FAILED, spark_errors
from dptext_spark.spark.session import leased
from dptext_spark.tables.columns import (
    LONGEST,
    MEDIAN,
    TableColumns,
    check_ids,
    column_counts,
    singled_out,
)
from dptext_spark.tables.dataframes import sent
from dptext_spark.tables.formats.parquet import check_names
from dptext_spark.tables.incremental import CUT_OFF, GrowingTable
from dptext_spark.tables.ledger import LedgerRun
from dptext_spark.tables.look import Sample, count_persons, count_rows_with_words
from dptext_spark.tables.partitioning import POSITION, Partitioning
from dptext_spark.tables.table import Table
from dptext_spark.word_reader import FEW


@leased()
def run(options: PrivatizeOptions) -> Report:
    """Run ``dptext privatize``: check, read once, write once, report.

    The table appears under its name when it is complete, and not at all if the run fails. With
    ``--incremental`` files that are new since the last run are added to it, batch by batch.

    Returns:
        The report, which lies in its place too, as what may be shared of it lies next to the
        output; that of a dry run only where ``--reports`` says.
    """
    kind = Table if options.incremental is None else GrowingTable
    key, *_ = all_of(
        options.noise_key,
        lambda: Embedding.open(options.embedding, verify=False),
        lambda: kind.check_paths(options),
        lambda: check_names(options, _columns(options)),
    )
    with stage("Opening the embedding"):
        release, guarantee = open_release(options)
        recall = recall_of(release.search, release.mechanism, release.embedding)
    table = kind.open("dptext privatize", options, _columns(options))
    spark = table.df.sparkSession
    with spark_errors(FAILED if options.incremental is None else CUT_OFF):
        if isinstance(table, GrowingTable):
            table.claim(release, key)
        worker = sent(spark, Sanitizer.open(release, key))
        ledger = None
        if options.ledger is not None:
            ledger = LedgerRun(table, options, release, guarantee, key, worker)
        with progress(spark, "Checking ids"):
            check_ids(table.df, table.checked_id)
            table.check_rows()
        found: Facts = {}
        oov, reader = release.policy.oov, worker.release.reader
        if options.person is not None:
            far, epsilons = guarantee.distances, release.row_epsilons
            within = epsilons.budget.within if epsilons else far.nearest if far else 0.0
            with progress(spark, "Counting words of persons"):
                sums = count_persons(table.df, table.columns, options.person, reader, within)
            found["persons"] = sums and persons(sums, guarantee, release.row_epsilons)
        sample = Sample(
            columns=table.columns,
            table=table.source.df.schema,
            reader=reader,
            fate=f"{oov.describe(unknown=release.policy.protect.unknown)} Take an embedding that has more of "
            f"them, or another --oov than {oov}.",
            identifiers=release.policy.identifiers.advice,
        )
        operations = release.mechanism.operations(release.embedding, release.search)
        partitioning = Partitioning(word=operations, sample=sample)
        if options.dry_run:
            selected = table.rows.drop(*POSITION)
            sample(selected)
            if ledger is not None:
                ledger.look(selected)
            found["row_lengths"] = sample.lengths
        else:
            found |= _sanitized(
                table, worker, partitioning, ledger, count_unique=options.count_unique
            )
    if lengths := found.get("row_lengths"):
        found["row_lengths"] = row_lengths(lengths, guarantee, release.row_epsilons)
    found["coverage"] = coverage(sample.found)
    found["ledger"] = [] if ledger is None else ledger.costs
    facts = release_facts(release, guarantee, recall, **table.table_facts(partitioning))
    return table.write_reports(facts, found)


def _sanitized(
    table: Table,
    worker: Sanitizer,
    partitioning: Partitioning,
    ledger: LedgerRun | None,
    *,
    count_unique: bool,
) -> Facts:
    """Sanitize and write a table; return what was counted, on demand also rows that show a rare word."""
    release = worker.release
    if count_unique:
        with progress(table.df.sparkSession, "Counting rows with each word"):
            words = len(release.embedding.words)
            row_counts = count_rows_with_words(table.df, table.columns, release.reader, words)
        table = replace(table, row_counts=row_counts)
    entered = nullcontext if ledger is None else ledger.reserve
    done = table.sanitize(worker, partitioning, entered)
    oov = str(release.policy.oov)
    counts = column_counts(table.columns.sanitized, TokenCounts[int], done)
    facts: Facts = {
        "rows": done["rows"],
        "added_rows": done.get("added_rows"),
        "columns": {name: token_counts(of_column, oov) for name, of_column in counts.items()},
    }
    longest = done.get(LONGEST)
    if longest is not None:  # of no rows there is none
        facts["row_lengths"] = {"median": done.get(MEDIAN), "longest": longest, "sample": None}
    if count_unique:
        shown = {few: done[singled_out(few)] or 0 for few in FEW}
        facts["singled_out"] = rows_singled_out(shown, done["rows"])
    return facts


def privatize_table(**options: Any) -> Report:
    """Run ``dptext privatize`` in the session that runs, also one of Spark Connect, and print nothing.

    Args:
        options: The command's options by name, with ``_`` for ``-``, as ``input="sales.queries"``,
            ``format="table"`` and ``epsilon=10``.

    Raises:
        DptextError: Options or the table are wrong, or Spark failed.
    """
    return run(PrivatizeOptions.of(options))


def open_release(options: PrivatizeOptions) -> tuple[Release, Guarantee]:
    """Open the release of the options, and say what it guarantees; to hash a large bundle takes seconds."""
    embedding = Embedding.open(options.embedding)
    mechanism = options.mechanism
    search = options.search_over(embedding, options.release_words)
    guarantee = mechanism.guarantee(embedding, search=search)
    far, budget = guarantee.distances, options.row_budget
    release = Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=search,
        policy=options.policy,
        row_budget=None if budget is None else read_row_budget(budget, far.nearest if far else 1.0),
        name=options.name,
    )
    return release, guarantee


def _columns(options: PrivatizeOptions) -> TableColumns:
    return TableColumns(
        text=options.text,
        tokens=options.tokens,
        keep=options.keep,
        left_out=options.except_,
        id=options.id,
        path=options.input,
        slots=options.policy.spans_column,
        person=options.person,
    )
