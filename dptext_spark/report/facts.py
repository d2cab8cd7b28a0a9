"""What a run says: one dict of facts, JSON-ready, with the sentences beside them."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from dptext_spark.accounting.row_budget import RowEpsilons
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, DptextError, printable
from dptext_spark.guarantee import DELTAS, Guarantee, factor, rounded_up
from dptext_spark.mechanisms.noisy import NoiseMechanism
from dptext_spark.release import Release
from dptext_spark.text.identifiers import MARKS

FORMAT_VERSION: Final = 1
_LIBRARIES: Final = ("dptext-spark", "pyspark", "numpy", "scipy", "pyarrow", "cryptography")

Facts = dict[str, Any]

_PUBLIC: Final = {
    *("guarantee", "guarantees", "row_budget", "scope", "options", "row_id", "kept"),
    *("embedding", "search", "recall", "rows"),
}
"""Facts that may be shared with the table: no count but that of its rows."""

COUNTS: Final = "Counts are exact facts about the private table: only for those who run the job."
_SHOWN_LENGTHS: Final = (1, 10, 100, 1000)
"""Words of the rows whose epsilons are said."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a run."""

    facts: Facts  # JSON-ready
    text: str  # the same in plain words, lines
    failure: DptextError | None = (
        None  # with what the command ends when the report was shown and written
    )

    def to_json(self) -> str:
        """Write the facts as JSON text."""
        return written(self.facts)

    def to_publish(self, options: Collection[str]) -> str:
        """Write as JSON text what may be shared with the table, of the options those that are named."""
        facts = {name: value for name, value in self.facts.items() if name in _PUBLIC}
        shared = {name: value for name, value in facts["options"].items() if name in options}
        return written({**facts, "options": shared})

    def describe(self) -> str:
        """Give the plain words."""
        return self.text

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


def written(facts: Mapping[str, Any]) -> str:
    """Write facts as JSON, one line for each value, with their format and the versions."""
    whole = {"format_version": FORMAT_VERSION, **facts, "versions": versions()}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    """Give the versions of Python and of the libraries that outputs may depend on, by name."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:  # a cluster's own pyspark is on the path without its metadata
        found[name] = str(getattr(sys.modules.get(name), "__version__", "not installed"))
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def embedding_json(embedding: Embedding) -> Facts:
    """Give what a report says of the embedding."""
    manifest = embedding.manifest
    return {
        "fingerprint": manifest.fingerprint,
        "source": manifest.source_name,
        "words": manifest.words,
        "dimension": manifest.dimension,
        "geometry": manifest.geometry,
        "normalization": manifest.normalization,
    }


# Facts of a table, its rows and its columns


def has_arrays(columns: Collection[str]) -> bool:
    """Say whether any of these paths of columns leads into an array."""
    return any("[]" in name for name in columns)


def key_scope(
    *, kept: bool, what: str, arrays: bool, by_position: bool, grows: bool = False
) -> list[str]:
    """Say what another release of the same rows tells and costs, a sentence each.

    By whether the key is kept, ``what`` is released in words, whether in ``arrays``, whether rows
    are named by their files and places, and whether later runs add what is new.
    """
    if not kept:
        return [
            "The key is fresh and not kept: another release of these rows gets new noise and costs epsilon "
            "again."
        ]
    said = [
        f"Released again under this key and name, a {what} comes out equal if it and its row's id are "
        "byte-for-byte equal: anyone with both releases sees which rows changed.",
        f"A {what} that changed in any byte gets new noise: all of it costs epsilon again, not the changed "
        "part alone.",
    ]
    if arrays:
        said.append(
            "Elements of arrays are named by their positions: elements that shift count as changed."
        )
    if by_position:
        said.append("Rows that move to another file or position count as changed.")
    if grows and by_position:
        said.append(
            "A file that comes again under another name adds its rows again, as changed ones."
        )
    return said


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
    """Give what the reports of all released tables have.

    Sentences are ``about`` words or vectors, ``remarks`` on what else the output tells, and those
    on what it lacks, for those who run the job; ``row_id`` says where row ids come from.
    """
    raw = [f"Columns released as they are, without protection: {', '.join(kept)}."] if kept else []
    adding = [
        *([f"the {len(sanitized)} sanitized columns of a row"] if len(sanitized) > 1 else []),
        *(["the elements of its arrays"] if has_arrays(sanitized) else []),
        "duplicate rows",
    ]
    total = f"Privacy loss adds up across {', '.join(adding)} and rows about the same person."
    order = (
        "Row order within an input file is preserved, and may itself reveal something; files may follow one "
        "another in any order."
        if keeps_order
        else "Row order is lost: rows were ordered by chance, for tasks of equal size."
    )
    choice = (
        "Epsilon was chosen after a look at private rows. The bound does not cover what that choice reveals "
        "about them."
        if options.get("epsilon-from-private-rows")
        else "Assumed: epsilon and all other options were chosen without a look at these rows."
    )
    return {
        "scope": [*about, *raw, total, order, *remarks, choice],
        "private_scope": [*private_remarks, COUNTS],
        "options": dict(options),
        "row_id": row_id,
        "kept": list(kept),
    }


def release_facts(
    release: Release, guarantee: Guarantee, recall: Facts | None = None, **table: Any
) -> Facts:
    """Give what there is to say of a release of words before it is made; for ``table`` see above."""
    if recall is not None:
        table["remarks"] = [recall["said"], *table.get("remarks", ())]
    epsilons, words = release.row_epsilons, release.search.release_words
    embedding, mechanism, products = release.embedding, release.mechanism, None
    if isinstance(mechanism, NoiseMechanism) and isinstance(embedding.space, EuclideanSpace):
        products = release.search.products(mechanism.uniforms_per_token(embedding.dimension) - 2)
    if products is not None:
        said = f"Nearest words on this machine: by {products}, then in double precision."
        table["private_remarks"] = [*table.get("private_remarks", ()), said]
    return {
        "guarantee": guarantee.to_json(),
        **({} if epsilons is None else {"row_budget": row_budget(epsilons, guarantee)}),
        **table_facts(about=release.policy.describe(), **table),
        "embedding": {**embedding_json(embedding), "release_words": words},
        "search": release.search.label,
        **({} if products is None else {"products": products}),
        **({} if recall is None else {"recall": {n: v for n, v in recall.items() if n != "said"}}),
        "rows": None,
    }


def row_budget(epsilons: RowEpsilons, guarantee: Guarantee) -> Facts:
    """Give what a row loses at most, and what epsilon that leaves it."""
    budget = epsilons.budget
    slack = f", except with probability {rounded_up(budget.delta)}" if budget.delta else ""
    listed = ", ".join(f"{words}: {epsilons.epsilon(words):.3g}" for words in _SHOWN_LENGTHS)
    said = (
        f"A row's whole output shifts the odds between two rows by a factor of at most {factor(budget.loss)}"
        f"{slack}, if each word of one is at most {rounded_up(budget.within, 6)} from the word in its place "
        f"in the other ({guarantee.metric}), in all sanitized columns together. A row's epsilon follows from "
        f"its number of words, which the output shows: {listed} (words: epsilon). The guarantee above is for "
        f"{guarantee.configured_epsilon:g}, the largest epsilon of a row."
    )
    return {**epsilons.to_json(), "said": said}


def row_lengths(
    lengths: Mapping[str, int | None], guarantee: Guarantee, epsilons: RowEpsilons | None
) -> Facts:
    """Give what the table's rows lose, each word compared with its nearest, or under a budget their epsilons.

    Lengths are words of the ``median`` row, None where that is not known, of the ``longest``, and
    in a ``sample`` of how many rows; None for all.
    """
    seen = "" if (sample := lengths["sample"]) is None else f", in a sample of {sample:,} rows"
    named = {name: words for name in ("median", "longest") if (words := lengths[name])}
    if epsilons is not None:
        own = {name: epsilons.epsilon(words) for name, words in named.items()}
        said = [
            f"A row of the table's {name} length ({words:,} word{'s' * (words != 1)}{seen}) has epsilon "
            f"{rounded_up(own[name])}."
            for name, words in named.items()
        ]
        return {**lengths, "epsilons": own, "said": said}
    near = guarantee.distances.nearest if guarantee.distances else None
    losses = [
        {"row": name, "words": words, "distance": near, **_losses(guarantee, near, words)}
        for name, words in named.items()
        if near is not None
    ]
    median, longest = lengths["median"], lengths["longest"]
    told = "" if median is None else f"median {median:,}, "
    said = [f"Words of a row: {told}longest {longest:,}{seen}"] if longest else []
    return {**lengths, "losses": losses, "said": said}


def rows_singled_out(shown: Mapping[int, int], rows: int) -> Facts:
    """Give how many rows show an unchanged word that fewer rows of the table have than each key says."""
    counts = [
        f"{'no other row has' if few == 2 else f'fewer than {few} rows have'}: {count:,} "
        f"({count / max(rows, 1):.1%})"
        for few, count in shown.items()
    ]
    said = f"Rows with an unchanged word that {'; that '.join(counts)}"
    return {"rows": {str(few): count for few, count in shown.items()}, "said": [said]}


def persons(found: Mapping[str, Any], guarantee: Guarantee, epsilons: RowEpsilons | None) -> Facts:
    """Give what the rows of a person, as ``count_persons`` counts them, lose together.

    Under a budget of rows, the budgets of a person's rows add up, and their deltas.
    """
    losses: dict[str, dict[str, float]]
    rows, words, within = found["rows"], found["words"], found["within"]
    if epsilons is None:
        losses = {p: _losses(guarantee, within, count) for p, count in words.items() if count}
    else:
        budget = epsilons.budget
        slack = {
            p: {"delta": count * budget.delta} if budget.delta else {} for p, count in rows.items()
        }
        name = "loss" if budget.delta else "pure"
        losses = {p: {name: count * budget.loss, **slack[p]} for p, count in rows.items()}
    nobody = f"; {found['nobody']:,} rows name none" if found["nobody"] else ""
    said = [f"Persons, by column {found['column']}: {found['persons']:,}{nobody}"]
    for p, count in words.items():
        line, loss = f"{p}: {rows[p]:,} rows, {count:,} words", losses.get(p, {})
        beyond = " or ".join(factor(loss[f"{delta:g}"]) for delta in DELTAS if f"{delta:g}" in loss)
        if "loss" in loss:
            beyond = f"{factor(loss['loss'])}, except with probability {rounded_up(loss['delta'])}"
        elif loss:
            beyond = "; worst case ".join(filter(None, [beyond, factor(loss["pure"])]))
        said.append(f"{line}; each word moved by {rounded_up(within)}: {beyond}" if loss else line)
    return {**found, "losses": losses, "said": said}


def _losses(guarantee: Guarantee, distance: float, words: int) -> dict[str, float]:
    """Give what words lose that all move so far: ``pure``, and a loss for each of ``DELTAS``."""
    beyond = {f"{delta:g}": guarantee.loss_beyond(delta, distance, words) for delta in DELTAS}
    return {"pure": words * guarantee.loss(distance), **beyond}


def coverage(found: Mapping[str, Any]) -> Facts:
    """Give how much of each column's words the vocabulary has, by column."""
    return {name: {**own.to_json(), "said": own.describe()} for name, own in found.items()}


def token_counts(counts: Any, oov: str) -> Facts:
    """Give what was done to the words of a column, under a policy for unknown ones."""
    facts = counts._asdict()
    marks = {kind: facts.pop(kind) for kind in MARKS}
    unknown = {"policy": oov, "tokens": counts.out_of_vocabulary}
    return {**facts, "out_of_vocabulary": unknown, "marks": marks}


def describe_counts(rows: int, columns: Mapping[str, Facts], added_rows: int | None = None) -> str:
    """Say how many rows there were and what was done to each column."""
    added = "" if added_rows is None else f", {added_rows:,} of them added by this run"
    lines = [f"Rows: {rows:,}{added}"]
    for name, counts in columns.items():
        if "released" in counts:
            parts, words = (
                [f"{counts['released']:,} vectors released"],
                counts["known"] + counts["unknown"],
            )
            if words:
                unknown = counts["unknown"]
                parts.append(f"{unknown:,} of {words:,} words unknown ({unknown / words:.1%})")
            named = {"texts without a known word": counts["wordless"], "null rows": counts["null"]}
            lines.append(
                f"{name}: {', '.join([*parts, *(f'{n:,} {what}' for what, n in named.items() if n)])}"
            )
            continue
        unknown, total = counts["out_of_vocabulary"], max(counts["tokens"], 1)
        named = {
            "replaced": counts["replaced"],
            "unchanged by the noise": counts["unchanged"],
            f"out of vocabulary ({unknown['policy']})": unknown["tokens"],
            "unprotected": counts["unprotected"],
            "blank": counts["blank"],
            **{f"marked [{kind.upper()}]": count for kind, count in counts["marks"].items()},
        }
        shares = ", ".join(f"{n:,} {what} ({n / total:.1%})" for what, n in named.items() if n)
        lines.append(f"{name}: {counts['tokens']:,} words: {shares or 'none'}")
    return "\n".join(map(printable, lines))


def describe(facts: Facts) -> str:
    """Say guarantee, scope and counts of a released table in plain words."""
    said: list[str] = []
    if "guarantee" in facts:
        said += ["Guarantee", *facts["guarantee"]["summary"].split("\n"), ""]
    for guarantee in facts.get("guarantees", ()):
        columns, lines = ", ".join(guarantee["columns"]), guarantee["summary"].split("\n")
        said += [f"Guarantee of {columns}", *lines, ""]
    if "row_budget" in facts:
        said += ["Budget of each row", facts["row_budget"]["said"], ""]
    said += ["Scope", *facts["scope"], *facts["private_scope"], facts["row_id"]]
    if facts["rows"] is not None:
        counts = describe_counts(facts["rows"], facts["columns"], facts.get("added_rows"))
        said += ["", *counts.split("\n")]
    elif "coverage" in facts:
        said += ["", "Coverage, only for those who run the job"]
        said += [f"{name}: {found['said']}" for name, found in facts["coverage"].items()]
    said += facts.get("row_lengths", {}).get("said", ())
    said += facts.get("singled_out", {}).get("said", ())
    if "persons" in facts:
        said += ["", *facts["persons"]["said"]]
    if ledger := facts.get("ledger"):
        of = f", the last of {len(ledger)} batches" if len(ledger) > 1 else ""
        said += ["", f"Ledger{of}", *ledger[-1]["said"].split("\n")]
    return "\n".join(map(printable, said))
