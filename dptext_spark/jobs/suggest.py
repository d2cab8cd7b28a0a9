"""The job of ``dptext suggest``: a table in, what its columns look like and a command out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from dptext_spark.bars import progress, stage
from dptext_spark.display import rendered
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.options import SuggestOptions
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

EPSILONS: Final = ("4", "6", "8", "12")
RISK: Final = "recovery(top1) <= 0.35"
PARTS: Final = 6
"""Rows with an id of one remainder are evaluated, and not released."""

FILLED_IN: Final = "<as for suggest>"
"""In place of a value that may quote rows."""

_FATES: Final = {
    "text": "sanitized",
    "id": "dropped; names the rows",
    "person": "dropped; see --person",
    "identifier": "dropped; it names people",
    "time": "dropped, unless kept",
    "other": "dropped, unless kept",
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
    with spark_errors("The columns of the table could not be counted"):
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
        "evaluation": _evaluation(options, columns),
    }
    blocks = [
        {"table": [*_table(columns)], "numbers": False},
        [
            *_identifiers(columns),
            "Shares and counts are of a sample. Whether ids are unique is checked in all rows.",
            "--keep COLUMN releases a column as it is, without protection.",
            COUNTS,
        ],
        _advice(columns, options),
    ]
    return Report(facts=facts, text=rendered(blocks))


def _table(columns: Sequence[Profile]) -> list[list[str]]:
    """Return a row for each column: what it looks like, and what becomes of it."""
    rows = [["", "looks like", "distinct", "words", "known", "in the release"]]
    for column in columns:
        facts = column.to_json()
        values = max(facts["values"], 1)

        coverage = "-"
        if "coverage" in facts and column.looks == "text":
            coverage = f"{facts['coverage']:.0%}"
        words = "-"
        if facts["words"]:
            words = f"{facts['words'] / values:.1f}"
        row = [column.name, column.looks, f"{facts['distinct'] / values:.0%}"]
        rows.append([*row, words, coverage, _FATES[column.looks]])
    return rows


def _identifiers(columns: Sequence[Profile]) -> Iterator[str]:
    """Yield for each column how many identifiers patterns find in it."""
    for column in columns:
        counts = column.to_json()["identifiers"]
        if counts:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
            yield f"{column.name}: identifiers that patterns find: {kinds}"


def _advice(columns: Sequence[Profile], options: SuggestOptions) -> list[str]:
    """Return what to do next."""
    command = _command(options, columns)
    if command is None:
        return [
            "No column looks like a text: name one with --text, or make one of the table's fields."
        ]
    lines = [f"A dry run of the release, which writes nothing: {command}"]
    persons = _names(columns, "person")
    if persons:
        lines.append(f"Rows about one person add up: count them with --person {persons[0]}.")
    evaluation = _evaluation(options, columns)
    if evaluation is not None:
        lines.append(f"Choose epsilon by what attackers get back: {evaluation}")
    ids = [column for column in columns if column.looks == "id"]
    if evaluation is not None and ids and not options.where:
        others = shlex.join(["--where", _part(ids[0], "<>")])
        lines.append(f"Then release the rows that were not evaluated: {others}")
    return lines


def _command(options: SuggestOptions, columns: Sequence[Profile]) -> str | None:
    """Return the command of a dry run; None where no column looks like a text."""
    texts = [column for column in columns if column.looks == "text"]
    if not texts:
        return None
    words = ["dptext", "privatize", *_table_options(options), "--output", "sanitized"]
    for column in texts:
        words += [_text_option(column), column.name]
    ids = _names(columns, "id")
    if ids:
        words += ["--id", ids[0]]
    if options.where:
        words += ["--where", FILLED_IN]
    words += ["--mechanism", "laplace", "--epsilon", EPSILON, "--dry-run"]
    return shlex.join(words)


def _evaluation(options: SuggestOptions, columns: Sequence[Profile]) -> str | None:
    """Return the command that attacks a part of the rows; None where no text is one of a row."""
    texts = [column for column in columns if column.looks == "text" and "[]" not in column.name]
    if not texts:
        return None
    words = ["dptext", "evaluate", *_table_options(options), "--output", "evaluation"]
    words += [_text_option(texts[0]), texts[0].name]
    ids = [column for column in columns if column.looks == "id"]
    if ids:
        words += ["--id", ids[0].name]
    if options.where:
        words += ["--where", FILLED_IN]
    elif ids:
        words += ["--where", _part(ids[0], "=")]
    words += ["--mechanism", "laplace", "--epsilon", *EPSILONS, "--target", RISK]
    return shlex.join(words)


def _table_options(options: SuggestOptions) -> list[str]:
    """Return the options that say how the table and the bundle are read."""
    words = ["--input", options.input, "--embedding", str(options.embedding or "BUNDLE")]
    if options.format != "parquet":
        words += ["--format", options.format]
    for name in sorted(options.read_options):
        words += ["--read-option", f"{name}={FILLED_IN}"]
    return words


def _text_option(column: Profile) -> str:
    """Return the option that names a column of texts, or of lists of words."""
    return "--tokens" if column.data_type.typeName() == "array" else "--text"


def _names(columns: Sequence[Profile], looks: str) -> list[str]:
    """Return the names of the columns that look like this."""
    return [column.name for column in columns if column.looks == looks]


def _part(column: Profile, comparison: str) -> str:
    """Return a condition by which ids divide a table: ``=`` for the smaller part."""
    number = f"`{column.name}`"
    if column.name.isidentifier():
        number = column.name
    if column.data_type.typeName() == "string":
        number = f"crc32({number})"
    return f"{number} % {PARTS} {comparison} 0"
