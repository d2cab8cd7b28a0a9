"""The job of ``dptext privatize``: a table's texts in, sanitized texts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import functions as F

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.arguments import naming_arguments
from dptext_spark.bars import progress, stage, tell
from dptext_spark.calibration.recall import recall_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import DptextError, all_of
from dptext_spark.evaluation.facts import FILE as EVALUATION
from dptext_spark.guarantee import Guarantee
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import (
    Facts,
    Report,
    coverage,
    forecast,
    persons,
    release_facts,
    row_lengths,
    rows_named,
    rows_singled_out,
    tags_of,
    token_counts,
)
from dptext_spark.report.measured_risk import measured_risk
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.spark.failures import FAILED, spark_errors
from dptext_spark.spark.session import is_connect, leased
from dptext_spark.tables.batch import ID
from dptext_spark.tables.columns import LONGEST, MEDIAN, TableColumns, column_counts, singled_out
from dptext_spark.tables.dataframes import sent
from dptext_spark.tables.fields import Field, quoted
from dptext_spark.tables.incremental import CUT_OFF, GrowingRun, GrowingTable
from dptext_spark.tables.ledger_run import LedgerRun
from dptext_spark.tables.partitioning import Partitioning
from dptext_spark.tables.run import TableRun
from dptext_spark.tables.sampling import (
    Sample,
    count_persons,
    count_rows_named,
    count_rows_with_words,
)
from dptext_spark.tables.table import Table
from dptext_spark.tables.tags import count_tags
from dptext_spark.text.actions import Surrogate
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import FEW

OPTIONS: Final = {
    "except_": "except",
    "key": "key_file",
    "read_options": "read_option",
    "write_options": "write_option",
}
"""Options that are not called as the argument in Python is."""


@leased()
def run(options: PrivatizeOptions) -> Report:
    """Run ``dptext privatize``: check, read once, write once, report.

    The table appears under its name when it is complete, and not at all if the run fails. With
    ``--incremental`` files that are new since the last run are added to it, batch by batch.

    Returns:
        The report, which lies in its place too, as what may be shared of it lies next to the
        output; that of a dry run only where ``--reports`` says.
    """
    kind = GrowingRun if options.incremental else TableRun
    table_run = kind.of(options, _columns(options))
    key, *_ = all_of(
        options.noise_key,
        lambda: Embedding.open(options.embedding, verify=False),
        table_run.check_paths,
        table_run.check_columns,
    )
    with stage("Opening the embedding"):
        release, guarantee = open_release(options)
        recall = recall_of(release.search, release.mechanism, release.embedding)
    table = table_run.open("dptext privatize")
    risk = _measured_risk(table, release)
    with spark_errors(FAILED if options.incremental is None else CUT_OFF):
        if isinstance(table, GrowingTable):
            table.claim(release, key)
        worker = sent(table.spark, Sanitizer.open(release, key))
        ledger = None
        if options.ledger is not None:
            ledger = LedgerRun(table, options, release, guarantee, key, worker)
        findings: Facts = {}
        with progress(table.spark, "Checking ids"):
            findings["rows_named"] = _check_rows(table)
        if options.person is not None:
            findings["persons"] = _persons(table, worker, guarantee, options.person)
        sample = _sample(table, worker, rehearse=options.dry_run)
        operations = release.mechanism.operations(release.embedding, release.search)
        partitioning = Partitioning(word=operations, sample=sample)
        if options.dry_run:
            rows = table.input.rows
            sample(rows)
            findings["forecast"] = _forecast(table, partitioning)
            if ledger is not None:
                ledger.preview(rows)
            findings["row_lengths"] = sample.lengths
        else:
            findings |= _sanitized(
                table, worker, partitioning, ledger, count_unique=options.count_unique
            )
    if findings.get("row_lengths"):
        findings["row_lengths"] = row_lengths(
            findings["row_lengths"], guarantee, release.row_epsilons
        )
    findings["coverage"] = coverage(sample.coverage)
    if ledger is not None:
        findings["ledger"] = ledger.costs
    facts = release_facts(release, guarantee, recall, **table.table_facts(partitioning))
    if risk is not None:
        facts["evaluation"] = risk
    return table.output.write_reports(facts, findings)


def _measured_risk(table: Table, release: Release) -> Facts | None:
    """Return what an evaluation measured of the release's setting, if its folder is given."""
    options = table.options
    folder = getattr(options, "evaluation", None)
    if folder is None:
        return None
    text = table.output.storage.read(f"{folder.rstrip('/')}/{EVALUATION}")
    return measured_risk(text, release, options.to_json())


def _check_rows(table: Table) -> Facts | None:
    """Check ids; return what a report says of rows that kept columns name uniquely.

    The column of ids names every row, and does not count. None where no other one is kept, and of a
    table that grows.
    """
    columns = table.columns
    unchanged = [name for name in columns.keep if name != columns.id]
    if not unchanged or table.grows:
        table.input.check_rows()
        return None
    field = Field.find(table.input.df.schema, columns.sanitized[0])[0]
    # Without a column of the files Spark refuses to look for malformed rows of text files.
    column = quoted(str(field.path[0]))
    rows, _ = table.input.check_rows(F.count(F.lit(1)), F.count(column))
    if not rows:
        return None
    counts = count_rows_named(table.input.df, unchanged, rows, read=column)
    return rows_named(counts, has_id=columns.id in columns.keep)


def _persons(table: Table, worker: Sanitizer, guarantee: Guarantee, column: str) -> Facts | None:
    """Return what a report says of persons' rows and words; None where no row names a person."""
    epsilons = worker.release.row_epsilons
    within = 0.0
    if epsilons:
        within = epsilons.budget.within
    elif guarantee.distances:
        within = guarantee.distances.nearest
    with progress(table.spark, "Counting words of persons"):
        reader = worker.release.reader
        sums = count_persons(table.input.df, table.columns, column, reader, within)
    if sums is None:
        return None
    return persons(sums, guarantee, epsilons)


def _sample(table: Table, worker: Sanitizer, *, rehearse: bool) -> Sample:
    """Return what looks at some rows, with what it says of unknown words and identifiers.

    Where it is to ``rehearse``, it also measures the speed of the release.
    """
    rehearsed = None
    if rehearse and not table.grows and not is_connect(table.spark):
        rehearsed = worker
    policy = worker.release.policy
    oov = policy.oov
    return table.input.sample(
        worker.release.reader,
        fate=f"{oov.describe(unknown=policy.protect.unknown)} Take a larger embedding, or "
        f"another --oov than {oov}.",
        identifiers=policy.identifiers.advice,
        is_sized=True,
        rehearsed=rehearsed,
    )


def _forecast(table: Table, partitioning: Partitioning) -> Facts | None:
    """Return what a report says of the work and the files of a run that is not made.

    None of a table that grows, of which a run reads a part, and on Spark Connect.
    """
    plan = None
    if not table.grows:
        plan = partitioning.planned(table.input.positioned_rows, F.col(ID))
    sample = partitioning.sample
    if plan is None or sample is None:
        return None
    written = table.output.written
    mean_words = sample.mean_words or 0.0
    cores = table.spark.sparkContext.defaultParallelism
    return forecast(
        rows=plan.rows,
        words=plan.rows * mean_words,
        words_per_second=sample.words_per_second,
        cores=min(plan.tasks, cores),
        files=plan.files_of(written.option("maxRecordsPerFile")),
        folders=written.partitions,
    )


def _sanitized(
    table: Table,
    worker: Sanitizer,
    partitioning: Partitioning,
    ledger: LedgerRun | None,
    *,
    count_unique: bool,
) -> Facts:
    """Sanitize and write a table; return what was counted, if asked also rows with a rare word."""
    release = worker.release
    if count_unique:
        with progress(table.spark, "Counting rows with each word"):
            words = len(release.embedding.words)
            row_counts = count_rows_with_words(table.input.df, table.columns, release.reader, words)
        table = replace(table, row_counts=row_counts)
    if ledger is None:
        sums = table.sanitize(worker, partitioning)
    else:
        sums = table.sanitize(worker, partitioning, ledger.reserve)
    oov = str(release.policy.oov)
    counts = column_counts(table.columns.sanitized, TokenCounts[int], sums)
    facts: Facts = {
        "rows": sums["rows"],
        "added_rows": sums.get("added_rows"),
        "columns": {name: token_counts(of_column, oov) for name, of_column in counts.items()},
    }
    longest = sums.get(LONGEST)
    if longest is not None:  # of no rows there is none
        facts["row_lengths"] = {"median": sums.get(MEDIAN), "longest": longest, "sample": None}
    if any(isinstance(action, Surrogate) for action in release.policy.actions.values()):
        facts["tags"] = _tags(table)
    if count_unique:
        rows_with_rare_words = {few: sums[singled_out(few)] or 0 for few in FEW}
        facts["singled_out"] = rows_singled_out(rows_with_rare_words, sums["rows"])
    return facts


def _tags(table: Table) -> Facts | None:
    """Count the tags in a table that was written; None where it cannot be read, which is said.

    The table is there: that its tags are not counted fails no run.
    """
    try:
        with progress(table.spark, "Counting tags"), spark_errors("Tags were not counted"):
            return tags_of(count_tags(table.output.texts(table.spark, table.columns.sanitized)))
    except DptextError as error:
        tell(f"Warning: how many tags the table has is not in the report. {error}")
    return None


@naming_arguments()
def privatize_table(
    *,
    input: str | Path,
    output: str | Path,
    embedding: str | Path | Embedding,
    mechanism: Mechanism | str,
    epsilon: float | None = None,
    id: str | None = None,
    text: str | Sequence[str] = (),
    tokens: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    except_: str | Sequence[str] = (),
    policy: TextPolicy | None = None,
    release_words: int | None = None,
    search: str | None = None,
    row_budget: RowBudget | str | float | None = None,
    key: NoiseKey | str | Path | None = None,
    name: str = "",
    trust_id: bool = False,
    where: str | None = None,
    format: str | None = None,
    output_format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    write_options: Mapping[str, str] | None = None,
    mode: str | None = None,
    reports: str | Path | None = None,
    evaluation: str | Path | None = None,
    dry_run: bool = False,
    person: str | None = None,
    count_unique: bool = False,
    incremental: str | Path | None = None,
    changed_files: str | None = None,
    ledger: str | Path | None = None,
    budget: float | None = None,
    new_text: str | Sequence[str] = (),
    epsilon_from_private_rows: bool = False,
) -> Report:
    """Run ``dptext privatize`` in the running session, also of Spark Connect, and print nothing.

    Arguments are those of :func:`privatize`, and the command's options by name, as
    ``input="sales.queries"``, ``format="table"`` and ``read_options={"header": "true"}``. ``key``
    is a key or the path of its file.

    Raises:
        DptextError: An argument or the table is wrong, or Spark failed.
    """
    arguments = dict(locals())
    configured = Mechanism.of(arguments.pop("mechanism"), arguments.pop("epsilon"))
    options = {**configured.to_json(), **dict(TextPolicy.of(arguments.pop("policy")))}
    for argument, value in arguments.items():
        if isinstance(value, Embedding):
            value = value.path
        elif isinstance(value, RowBudget):
            value = f"{value.loss}:within={value.within},delta={value.delta}"
        elif isinstance(value, Mapping):
            value = [f"{option}={setting}" for option, setting in value.items()]
        elif argument == "key":
            value = NoiseKey.of(value)
        if isinstance(value, Path):
            value = str(value)
        options[OPTIONS.get(argument, argument)] = value
    return run(PrivatizeOptions.of(options))


def open_release(options: PrivatizeOptions) -> tuple[Release, Guarantee]:
    """Open the release of the options, and its guarantee; to hash a large bundle takes seconds."""
    embedding = Embedding.open(options.embedding)
    mechanism = options.mechanism
    search = options.search_over(embedding, options.release_words)
    guarantee = mechanism.guarantee(embedding, search=search)
    row_budget = None
    if options.row_budget is not None:
        within = guarantee.distances.nearest if guarantee.distances else 1.0
        row_budget = RowBudget.of(options.row_budget, within)
    release = Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=search,
        policy=options.policy,
        row_budget=row_budget,
        name=options.name,
    )
    return release, guarantee


def _columns(options: PrivatizeOptions) -> TableColumns:
    options.policy.check_tokens(options.tokens)
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
