"""The job of ``dptext suggest``: a table in, what its columns look like and a command out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from dptext_spark.bars import progress, stage
from dptext_spark.display import rendered
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.options import FILLED_IN, SuggestOptions
from dptext_spark.report.facts import COUNTS, Facts, Report
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import session
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.places import INPUT, Places
from dptext_spark.tables.profiles import Profile, profiles
from dptext_spark.tables.source import own_session, where
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import WordReader

EPSILON: Final = "8"
"""Where a first dry run begins: no measurement, and no look at rows, chose it."""

_FATES: Final = {
    "text": "sanitize it",
    "id": "names the rows; dropped",
    "person": "count its rows with --person; dropped",
    "identifier": "dropped: it names people",
    "time": "dropped; --keep releases it as it is",
    "other": "dropped; --keep releases it as it is",
}


def run(options: SuggestOptions) -> Report:
    """Run ``dptext suggest``: look at columns, and write the command of a dry run."""
    read = Format.named(options.format, options.input, options.read_options)
    read.check_can_read(has_id=True, grows=False)
    if read.has_path:
        read.check_files(Places.of([(INPUT, "--input", options.input)]).storage)
    embedding = None
    if options.embedding is not None:
        with stage("Opening the embedding"):
            embedding = Embedding.open(options.embedding)
    spark = own_session(session("dptext suggest"))
    with spark_errors("The table could not be looked at"):
        df = read.open(spark).df
        if options.where is not None:
            df = where(df, options.where)
        reader = None
        if embedding is not None:
            bundle = BundleFiles.send(spark, embedding)
            reader = WordReader(bundle=bundle, policy=TextPolicy())
        with progress(spark, "Looking at columns"):
            columns = profiles(df, reader)
    facts: Facts = {
        "columns": [column.to_json() for column in columns],
        "command": _command(options, columns),
    }
    blocks = [
        {"table": [*_table(columns)], "numbers": False},
        [
            "Counts are of a sample, uniqueness is of all rows. Columns that are not named are "
            "dropped.",
            COUNTS,
        ],
        _advice(columns, options),
    ]
    return Report(facts=facts, text=rendered(blocks))


def _table(columns: Sequence[Profile]) -> list[list[str]]:
    """Return a row for each column: what it looks like, and what becomes of it."""
    rows = [["", "type", "looks like", "distinct", "words", "known", "identifiers", "so"]]
    for column in columns:
        facts = column.to_json()
        values = max(facts["values"], 1)
        identifiers = [f"{kind} {count:,}" for kind, count in facts["identifiers"].items()]
        coverage = "-"
        if "coverage" in facts and column.looks == "text":
            coverage = f"{facts['coverage']:.0%}"
        words = "-"
        if facts["words"]:
            words = f"{facts['words'] / values:.1f}"
        row = [column.name, facts["type"], column.looks, f"{facts['distinct'] / values:.0%}"]
        rows.append([*row, words, coverage, ", ".join(identifiers) or "-", _FATES[column.looks]])
    return rows


def _advice(columns: Sequence[Profile], options: SuggestOptions) -> list[str]:
    """Return what to do next."""
    command = _command(options, columns)
    if command is None:
        return [
            "No column looks like a text: name one with --text, or make one of the table's fields."
        ]
    lines = [f"A dry run of the release, which writes nothing: {command}"]
    persons = [column.name for column in columns if column.looks == "person"]
    if persons:
        lines.append(f"Rows about one person add up: count them with --person {persons[0]}.")
    lines.append(
        f"Epsilon {EPSILON} is where to begin. dptext evaluate finds one for a limit of risk."
    )
    return lines


def _command(options: SuggestOptions, columns: Sequence[Profile]) -> str | None:
    """Return the command of a dry run; None where no column looks like a text."""
    texts = [column for column in columns if column.looks == "text"]
    if not texts:
        return None
    words = ["dptext", "privatize", "--input", options.input, "--output", "sanitized"]
    words += ["--embedding", str(options.embedding or "BUNDLE")]
    if options.format != "parquet":
        words += ["--format", options.format]
    for name in sorted(options.read_options):
        words += ["--read-option", f"{name}={FILLED_IN}"]
    for column in texts:
        option = "--tokens" if column.data_type.typeName() == "array" else "--text"
        words += [option, column.name]
    ids = [column.name for column in columns if column.looks == "id"]
    if ids:
        words += ["--id", ids[0]]
    if options.where:
        words += ["--where", FILLED_IN]
    words += ["--mechanism", "laplace", "--epsilon", EPSILON, "--dry-run"]
    return shlex.join(words)
