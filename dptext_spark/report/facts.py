"""What a run says: one dict of facts, JSON-ready, with the sentences beside them."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from dptext_spark.accounting.row_budget import RowBudget, RowEpsilons
from dptext_spark.display import Displayed
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, DptextError, printable
from dptext_spark.guarantee import DELTAS, Guarantee, factor, rounded_up
from dptext_spark.mechanisms.noisy import NoiseMechanism
from dptext_spark.release import Release
from dptext_spark.text.patterns.names import MARKS, marked_as
from dptext_spark.text.pieces import PIECES, pieces_text

FORMAT_VERSION: Final = 1
_LIBRARIES: Final = ("dptext-spark", "pyspark", "numpy", "scipy", "pyarrow", "cryptography")

Facts = dict[str, Any]

_PUBLIC: Final = {
    *("guarantee", "guarantees", "row_budget", "scope", "options", "row_id", "kept", "sanitized"),
    *("embedding", "search", "identifier_patterns", "recall", "rows", "started", "evaluation"),
}
"""Facts that may be shared with the table: no count but that of its rows."""

COUNTS: Final = "Counts are exact facts about the private table: only for those who run the job."
_SHOWN_LENGTHS: Final = (1, 10, 100, 1000)
"""Words of the rows whose epsilons are said."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Displayed):
    """The report of a run."""

    facts: Facts
    """JSON-ready values."""
    text: str
    """Lines with the same in plain words."""
    failure: DptextError | None = None
    """What the command ends with when the report was shown and written."""

    def to_json(self) -> str:
        """Write the facts as JSON text."""
        return json_text(self.facts)

    def to_publish(self, options: Collection[str]) -> str:
        """Write what may be shared with the table as JSON text, with the options that are named."""
        return json_text(self.public(options))

    def public(self, options: Collection[str]) -> Facts:
        """Return what may be shared with the table, with the options that are named."""
        facts = {name: value for name, value in self.facts.items() if name in _PUBLIC}
        shared = {name: value for name, value in facts["options"].items() if name in options}
        return {**facts, "options": shared, "versions": versions()}

    def describe(self) -> str:
        """Return the plain words."""
        return self.text

    def blocks(self) -> Iterator[Any]:
        """Yield the plain words."""
        yield self.text.split("\n")

    def finish(self, path: Path | None) -> None:
        """Write the report as JSON, where a path is given, and end with its failure."""
        if path is not None:
            try:
                path.write_text(self.to_json(), encoding="utf-8")
            except OSError as error:
                raise ConfigError(
                    f"The report {path} cannot be written", got=str(error.strerror)
                ) from None
        if self.failure is not None:
            raise self.failure


def json_text(facts: Mapping[str, Any]) -> str:
    """Write facts as JSON, one line for each value, with their format and the versions."""
    complete_facts = {"format_version": FORMAT_VERSION, **facts, "versions": versions()}
    return json.dumps(complete_facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def now() -> str:
    """Return the time, to the second, with the offset of UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that outputs may depend on, by name."""
    by_library = {"python": platform.python_version()}
    for name in _LIBRARIES:  # a cluster's own pyspark is on the path without its metadata
        by_library[name] = str(getattr(sys.modules.get(name), "__version__", "not installed"))
        with suppress(PackageNotFoundError):
            by_library[name] = version(name)
    return by_library


def embedding_json(embedding: Embedding) -> Facts:
    """Return what a report has on the embedding."""
    manifest = embedding.manifest
    return {
        "fingerprint": manifest.fingerprint,
        "source": manifest.source_name,
        "words": manifest.words,
        "dimension": manifest.dimension,
        "geometry": manifest.geometry,
        "normalization": manifest.normalization,
        "precision": manifest.precision,
    }


# Facts of a table, its rows and its columns


def has_arrays(columns: Collection[str]) -> bool:
    """Return whether any of these paths of columns leads into an array."""
    return any("[]" in name for name in columns)


def key_scope(
    *, kept: bool, what: str, arrays: bool, by_position: bool, grows: bool = False
) -> list[str]:
    """Return what another release of the same rows reveals and costs, a sentence each.

    By whether the key is kept, ``what`` is released in words, whether in ``arrays``, whether rows
    are named by their files and places, and whether later runs add what is new.
    """
    if not kept:
        return [
            "The key is fresh and not kept: another release of these rows gets new noise and costs "
            "epsilon again."
        ]
    sentences = [
        f"Released again under this key and name, a {what} has an equal output if it and its "
        "row's id are byte-for-byte equal: anyone with both releases sees which rows changed.",
        f"A {what} that changed in any byte gets new noise: all of it costs epsilon again, not the "
        "changed part alone.",
    ]
    if arrays:
        sentences.append(
            "Elements of arrays are named by their positions: elements that shift count as changed."
        )
    if by_position:
        sentences.append("Rows that move to another file or position count as changed.")
    if grows and by_position:
        sentences.append(
            "A file that comes again under another name adds its rows again, as changed ones."
        )
    return sentences


def table_facts(
    *,
    options: Mapping[str, Any],
    row_id: str,
    kept: Collection[str],
    sanitized: Collection[str],
    about: Iterable[str] = (),
    remarks: Iterable[str] = (),
    private_remarks: Iterable[str] = (),
    keeps_order: bool = True,
) -> Facts:
    """Return what the reports of all released tables have.

    Sentences are ``about`` words or vectors, ``remarks`` on what else the output reveals, and those
    on what it lacks, for those who run the job; ``row_id`` says where row ids come from.
    """
    scope = [*about]
    if kept:
        columns = ", ".join(kept)
        scope.append(f"Columns released as they are, without protection: {columns}.")
    units = []
    if len(sanitized) > 1:
        units.append(f"the {len(sanitized)} sanitized columns of a row")
    if has_arrays(sanitized):
        units.append("the elements of its arrays")
    units.append("duplicate rows")
    scope.append(f"Privacy loss adds up across {', '.join(units)} and rows about the same person.")
    if keeps_order:
        scope.append(
            "Row order within an input file is preserved, and may itself reveal something; files "
            "may follow one another in any order."
        )
    else:
        scope.append("Row order is random: rows were spread for tasks of equal size.")
    scope += remarks
    if options.get("epsilon-from-private-rows"):
        scope.append(
            "Epsilon was chosen after a look at private rows. The bound does not cover what that "
            "choice reveals about them."
        )
    else:
        scope.append(
            "Assumed: epsilon and all other options were chosen without a look at these rows."
        )
    return {
        "scope": scope,
        "private_scope": [*private_remarks, COUNTS],
        "options": dict(options),
        "row_id": row_id,
        "kept": list(kept),
        "sanitized": list(sanitized),
    }


def release_facts(
    release: Release, guarantee: Guarantee, recall: Facts | None = None, **table: Any
) -> Facts:
    """Return what is known of a release of words before it is made; for ``table`` see above."""
    facts: Facts = {"guarantee": guarantee.to_json()}
    if release.row_epsilons is not None:
        facts["row_budget"] = row_budget(release.row_epsilons, guarantee)
    if recall is not None:
        table["remarks"] = [recall["said"], *table.get("remarks", ())]
    products = _products(release)
    if products is not None:
        sentence = f"Nearest words on this machine: by {products}, then in double precision."
        table["private_remarks"] = [*table.get("private_remarks", ()), sentence]
    about = release.policy.describe()
    if release.search.withheld_words:
        about.append(
            f"{release.search.withheld_words:,} words of the vocabulary look like identifiers or "
            "numbers: they are never output."
        )
    facts |= table_facts(about=about, **table)
    facts["embedding"] = {
        **embedding_json(release.embedding),
        "release_words": release.search.release_words,
        "withheld_words": release.search.withheld_words,
    }
    facts["search"] = release.search.label
    user = release.policy.identifier_patterns
    facts["identifier_patterns"] = None if user is None else user.identity
    if products is not None:
        facts["products"] = products
    if recall is not None:
        facts["recall"] = {name: value for name, value in recall.items() if name != "said"}
    facts["rows"] = None
    return facts


def _products(release: Release) -> str | None:
    """Return what the search multiplies with on this machine; None where it has no products."""
    embedding = release.embedding
    mechanism = release.mechanism
    if not isinstance(mechanism, NoiseMechanism) or not isinstance(embedding.space, EuclideanSpace):
        return None
    return release.search.products(mechanism.uniforms_per_token(embedding.dimension) - 2)


def row_budget(epsilons: RowEpsilons, guarantee: Guarantee) -> Facts:
    """Return what a row loses at most, and what epsilon that leaves it."""
    budget = epsilons.budget
    slack = ""
    if budget.delta:
        slack = f", except with probability {rounded_up(budget.delta)}"
    listed = ", ".join(f"{words}: {epsilons.epsilon(words):.3g}" for words in _SHOWN_LENGTHS)
    sentence = (
        "A row's whole output shifts the odds between two rows by a factor of at most "
        f"{factor(budget.loss)}{slack}, if each word of one is at most "
        f"{rounded_up(budget.within, 6)} from the word in its place in the other "
        f"({guarantee.metric}), in all sanitized columns together. A row's epsilon follows from "
        f"its number of words, which the output shows: {listed} (words: epsilon). The guarantee "
        f"above is for {guarantee.configured_epsilon:g}, the largest epsilon of a row."
    )
    return {**epsilons.to_json(), "said": sentence}


def row_lengths(
    lengths: Mapping[str, int | None], guarantee: Guarantee, epsilons: RowEpsilons | None
) -> Facts:
    """Return what the table's rows lose: compared with nearest words, or by a budget's epsilons.

    Lengths are words of the ``median`` row, None where that is not known, of the ``longest``, and
    in a ``sample`` of how many rows; None for all.
    """
    sample = lengths["sample"]
    where = ""
    if sample is not None:
        where = f", in a sample of {sample:,} rows"
    word_counts = {}
    for name in ("median", "longest"):
        words = lengths[name]
        if words:
            word_counts[name] = words
    if epsilons is None:
        sentences = _lengths_text(lengths, where)
        return {**lengths, "losses": _row_losses(word_counts, guarantee), "said": sentences}
    row_epsilons = {}
    sentences = []
    for name, words in word_counts.items():
        row_epsilons[name] = epsilons.epsilon(words)
        unit = "word" if words == 1 else "words"
        sentences.append(
            f"A row of the table's {name} length ({words:,} {unit}{where}) has epsilon "
            f"{rounded_up(row_epsilons[name])}."
        )
    return {**lengths, "epsilons": row_epsilons, "said": sentences}


def _row_losses(word_counts: Mapping[str, int], guarantee: Guarantee) -> list[Facts]:
    """Return what rows of these lengths lose; nothing where no nearest word is known."""
    if guarantee.distances is None or guarantee.distances.nearest is None:
        return []
    distance = guarantee.distances.nearest
    losses = []
    for name, words in word_counts.items():
        loss = _losses(guarantee, distance, words)
        losses.append({"row": name, "words": words, "distance": distance, **loss})
    return losses


def _lengths_text(lengths: Mapping[str, int | None], where: str) -> list[str]:
    """Return a line with the words of a row; none where no row has any."""
    median = lengths["median"]
    longest = lengths["longest"]
    if not longest:
        return []
    if median is None:
        return [f"Words of a row: longest {longest:,}{where}"]
    return [f"Words of a row: median {median:,}, longest {longest:,}{where}"]


def rows_singled_out(counts: Mapping[int, int], rows: int) -> Facts:
    """Return how many rows show an unchanged word that fewer rows have than each key."""
    by_limit = {}
    clauses = []
    for limit, count in counts.items():
        by_limit[str(limit)] = count
        owners = "no other row has" if limit == 2 else f"fewer than {limit} rows have"
        clauses.append(f"{owners}: {count:,} ({count / max(rows, 1):.1%})")
    sentence = f"Rows with an unchanged word that {'; that '.join(clauses)}"
    return {"rows": by_limit, "said": [sentence]}


def rows_named(counts: Mapping[str, Any], *, has_id: bool) -> Facts:
    """Return how many rows have values in kept columns that no other row has, together and alone.

    ``counts`` has ``rows``, ``together``, by column ``alone``, and the ``share`` of values that
    were looked at; ``has_id`` is whether the column of ids is kept, too.
    """
    about = "" if counts["share"] == 1.0 else f", estimated by {counts['share']:.2%} of the values"
    rows = f"of {counts['rows']:,} rows{about}"
    lines = [f"Unchanged columns name uniquely: together {counts['together']:,} {rows}"]
    if len(counts["alone"]) > 1:
        columns = [f"{name} {count:,}" for name, count in counts["alone"].items()]
        lines[0] += f"; alone: {', '.join(columns)}"
    if has_id:
        lines.append("The unchanged ids name every row to those who know them.")
    return {**counts, "said": lines}


def forecast(
    *,
    rows: int,
    words: float,
    words_per_second: float | None,
    cores: int,
    files: int,
    folders: Collection[str],
) -> Facts:
    """Return what a run would take, and how many files it would write, by a sample.

    ``words`` are those of the whole table, ``words_per_second`` those of one core, ``cores`` those
    that have work; ``folders`` are columns that name folders of the output.
    """
    lines = []
    core_seconds = None
    if words_per_second:
        core_seconds = words / words_per_second
        time = _duration(core_seconds / max(1, cores))
        unit = "core" if cores == 1 else "cores"
        lines.append(
            f"Work, by a sample: {_duration(core_seconds, 'core-')}, {time} on {cores:,} {unit}; "
            f"one core sanitizes about {_two_digits(words_per_second):,.0f} of about "
            f"{_two_digits(words):,.0f} words a second"
        )
    line = f"Files of the output: {files:,}"
    if folders:
        line += f", or more: at least one for each folder by {', '.join(folders)}"
    lines.append(line)
    return {
        "rows": rows,
        "words": round(words),
        "words_per_second": words_per_second,
        "core_seconds": core_seconds,
        "cores": cores,
        "files": files,
        "said": lines,
    }


def _duration(seconds: float, core: str = "") -> str:
    """Return about how long something takes, in words; ``core-`` for the time of cores."""
    if seconds < 60.0:
        return f"under a {core}minute"
    if seconds < 5400.0:
        return f"about {seconds / 60.0:.2g} {core}minutes"
    hours = float(f"{seconds / 3600.0:.2g}")
    return f"about {hours:,g} {core}hours"


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")


def tags_of(types: Collection[Mapping[str, Any]]) -> Facts:
    """Return how many tags a released table has, by type, and how many rows they link."""
    sentence = (
        "Tags of {type}: {tags:,}; they link {linked:,} rows; the most frequent is in {largest:,}"
    )
    return {"types": [*types], "said": [*map(sentence.format_map, types)]}


def persons(counts: Mapping[str, Any], guarantee: Guarantee, epsilons: RowEpsilons | None) -> Facts:
    """Return what the rows of a person, as ``count_persons`` counts them, lose together.

    Under a budget of rows, the budgets of a person's rows add up, and their deltas.
    """
    rows = counts["rows"]
    words = counts["words"]
    within = counts["within"]
    losses: dict[str, dict[str, float]] = {}
    if epsilons is not None:
        losses = {person: _budget_losses(epsilons.budget, rows[person]) for person in rows}
    else:
        for person, count in words.items():
            if count:
                losses[person] = _losses(guarantee, within, count)
    sentence = f"Persons, by column {counts['column']}: {counts['persons']:,}"
    if counts["nobody"]:
        sentence += f"; {counts['nobody']:,} rows name none"
    lines = [sentence]
    for person, count in words.items():
        line = f"{person}: {rows[person]:,} rows, {count:,} words"
        if person in losses:
            line += f"; each word moved by {rounded_up(within)}: {_odds(losses[person])}"
        lines.append(line)
    return {**counts, "losses": losses, "said": lines}


def _losses(guarantee: Guarantee, distance: float, words: int) -> dict[str, float]:
    """Return what words lose that all move so far: ``pure``, and a loss for each of ``DELTAS``."""
    beyond = {f"{delta:g}": guarantee.loss_beyond(delta, distance, words) for delta in DELTAS}
    return {"pure": words * guarantee.loss(distance), **beyond}


def _budget_losses(budget: RowBudget, rows: int) -> dict[str, float]:
    """Return what rows lose that each have a budget."""
    if budget.delta:
        return {"loss": rows * budget.loss, "delta": rows * budget.delta}
    return {"pure": rows * budget.loss}


def _odds(losses: Mapping[str, float]) -> str:
    """Return by what factors odds shift, and with what probability by more."""
    if "loss" in losses:
        return f"{factor(losses['loss'])}, except with probability {rounded_up(losses['delta'])}"
    worst_case = factor(losses["pure"])
    by_delta = [factor(loss) for name, loss in losses.items() if name != "pure"]
    if not by_delta:
        return worst_case
    return f"{' or '.join(by_delta)}; worst case {worst_case}"


def coverage(columns: Mapping[str, Any]) -> Facts:
    """Return how much of each column's words the vocabulary has, by column."""
    return {name: {**sums.to_json(), "said": sums.describe(name)} for name, sums in columns.items()}


def token_counts(counts: Any, oov: str) -> Facts:
    """Return what was done to the words of a column, under a policy for unknown ones."""
    facts = counts._asdict()
    marks = {kind: facts.pop(kind) for kind in MARKS}
    pieces = {}
    for kind in PIECES:
        pieces[kind] = facts.pop(f"left_{kind}")
    unknown = {"policy": oov, "tokens": counts.out_of_vocabulary}
    return {**facts, "out_of_vocabulary": unknown, "marks": marks, "left": pieces}


def describe_counts(rows: int, columns: Mapping[str, Facts], added_rows: int | None = None) -> str:
    """Return how many rows there were and what was done to each column, as lines."""
    first_line = f"Rows: {rows:,}"
    if added_rows is not None:
        first_line += f", {added_rows:,} of them added by this run"
    lines = [printable(first_line)]
    for name, counts in columns.items():
        described = _vector_counts if "released" in counts else _word_counts
        lines.append(printable(f"{name}: {described(counts)}"))
        pieces = pieces_text(counts.get("left", {}))
        if pieces:
            lines.append(printable(f"{name}: what may be left of identifiers: {pieces}"))
    return "\n".join(lines)


def _vector_counts(counts: Facts) -> str:
    """Return what was done to a column whose texts became vectors."""
    parts = [f"{counts['released']:,} vectors released"]
    wordless = "texts without a known word"
    if "grams" in counts:
        parts.append(f"{counts['grams']:,} grams")
        wordless = "texts without a word"
    else:
        unknown = counts["unknown"]
        words = counts["known"] + unknown
        if words:
            parts.append(f"{unknown:,} of {words:,} words unknown ({unknown / words:.1%})")
    if counts["wordless"]:
        parts.append(f"{counts['wordless']:,} {wordless}")
    if counts["null"]:
        parts.append(f"{counts['null']:,} null rows")
    return ", ".join(parts)


def _word_counts(counts: Facts) -> str:
    """Return what was done to the words of a column."""
    unknown = counts["out_of_vocabulary"]
    by_outcome = {
        "replaced": counts["replaced"],
        "unchanged by the noise": counts["unchanged"],
        f"out of vocabulary ({unknown['policy']})": unknown["tokens"],
        "unprotected": counts["unprotected"],
        "blank": counts["blank"],
    }
    for kind, count in counts["marks"].items():
        by_outcome[marked_as(kind)] = count
    shares = []
    for outcome, count in by_outcome.items():
        if count:
            shares.append(f"{count:,} {outcome} ({count / max(counts['tokens'], 1):.1%})")
    return f"{counts['tokens']:,} words: {', '.join(shares) or 'none'}"


def describe(facts: Facts) -> str:
    """Return guarantee, scope and counts of a released table in plain words."""
    lines: list[str] = []
    if "guarantee" in facts:
        lines += ["Guarantee", *facts["guarantee"]["summary"].split("\n"), ""]
    for guarantee in facts.get("guarantees", ()):
        columns = ", ".join(guarantee["columns"])
        lines += [f"Guarantee of {columns}", *guarantee["summary"].split("\n")]
        if "spread" in guarantee:
            lines.append(guarantee["spread"]["said"])
        lines.append("")
    if "row_budget" in facts:
        lines += ["Budget of each row", facts["row_budget"]["said"], ""]
    lines += ["Scope", *facts["scope"], *facts["private_scope"], facts["row_id"]]
    if facts["rows"] is not None:
        counts = describe_counts(facts["rows"], facts["columns"], facts.get("added_rows"))
        lines += ["", *counts.split("\n")]
    elif "coverage" in facts:
        lines += ["", "Coverage, only for those who run the job"]
        lines += [f"{name}: {sample['said']}" for name, sample in facts["coverage"].items()]
    lines += facts.get("row_lengths", {}).get("said", ())
    lines += facts.get("forecast", {}).get("said", ())
    lines += facts.get("singled_out", {}).get("said", ())
    lines += facts.get("rows_named", {}).get("said", ())
    lines += facts.get("tags", {}).get("said", ())
    if "persons" in facts:
        lines += ["", *facts["persons"]["said"]]
    batches = facts.get("ledger")
    if batches:
        title = "Ledger"
        if len(batches) > 1:
            title = f"Ledger, the last of {len(batches)} batches"
        lines += ["", title, *batches[-1]["said"].split("\n")]
    return "\n".join(map(printable, lines))
