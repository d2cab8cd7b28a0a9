"""The account of one run of ``dptext privatize``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dptext_spark.accounting.ledger import Cost
from dptext_spark.accounting.row_budget import RowEpsilons
from dptext_spark.calibration.recall import Recall
from dptext_spark.coverage import Coverage
from dptext_spark.guarantee import Guarantee, factor, rounded_up
from dptext_spark.release import Release
from dptext_spark.report.facts import (
    COUNTS,
    choice_scope,
    coverage_json,
    describe_coverage,
    embedding_json,
    table_scope,
    written,
)
from dptext_spark.report.persons import Persons
from dptext_spark.report.row_lengths import RowLengths
from dptext_spark.sanitizer import TokenCounts
from dptext_spark.text.policies import TextPolicy


@dataclass(frozen=True, kw_only=True)
class Report:
    """The account of one run of ``dptext privatize``.

    Attributes:
        options: The run's options as JSON-ready values.
        published: Those of them that may be handed on.
        guarantee: What is proven.
        release: What was released and how.
        row_id: Where row ids come from, in words.
        kept, sanitized: Columns that pass raw, and those that do not.
        remarks: What else the output tells, in sentences.
        private_remarks: What it lacks, in sentences for those who run the job.
        keeps_order: Whether rows come in the order of their input file.
        rows: Rows read and written; None before the run.
        added_rows: Those that this run added to what runs before had written; None without --incremental.
        columns: Counts of each sanitized column; empty before the run.
        coverage: What a sample of rows said beforehand of each sanitized column.
        recall: What a search in lists finds of what the exact one would; None for the exact one.
        lengths: How many words rows have; None before they were looked at, and where there are none.
        persons: What the rows of a person add up to; None where nobody asked.
        ledger: What the release adds to a ledger, a batch of a growing table each; empty without one.
    """

    options: Mapping[str, Any]
    published: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Guarantee
    release: Release
    row_id: str
    kept: tuple[str, ...]
    sanitized: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    private_remarks: tuple[str, ...] = ()
    keeps_order: bool = True
    rows: int | None = None
    added_rows: int | None = None
    columns: Mapping[str, TokenCounts[int]]
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    recall: Recall | None = None
    lengths: RowLengths | None = None
    persons: Persons | None = None
    ledger: tuple[Cost, ...] = ()

    def scope(self) -> list[str]:
        """Say what is covered and what is not."""
        searched = [] if self.recall is None else [self.recall.describe()]
        return [
            *self.release.policy.describe(),
            *table_scope(self.kept, self.sanitized, keeps_order=self.keeps_order),
            *searched,
            *self.remarks,
            *choice_scope(self.options),
        ]

    def private_scope(self) -> list[str]:
        """Say the same, and what concerns those who run the job alone."""
        return [*self.scope(), *self.private_remarks, COUNTS]

    def _shared(self, scope: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
        """What both reports have."""
        search, epsilons = self.release.search, self.release.row_epsilons
        return {
            "guarantee": self.guarantee.to_json(),
            **({"row_budget": epsilons.to_json()} if epsilons else {}),
            "scope": scope,
            "options": dict(options),
            "row_id": self.row_id,
            "kept": list(self.kept),
            "embedding": {**embedding_json(self.release.embedding), "release_words": search.release_words},
            "search": search.label,
            **({"recall": self.recall.to_json()} if self.recall else {}),
        }

    def to_publish(self) -> str:
        """Write what may be handed on with the table as JSON text: no count but that of its rows."""
        return written({**self._shared(self.scope(), self.published), "rows": self.rows})

    def to_json(self) -> str:
        """Write the report, which is for those who run the job, as JSON text."""
        epsilons = self.release.row_epsilons
        value = {
            **self._shared(self.private_scope(), self.options),
            **({"row_lengths": self.lengths.to_json(self.guarantee, epsilons)} if self.lengths else {}),
            **({"persons": self.persons.to_json(self.guarantee, epsilons)} if self.persons else {}),
            **({"coverage": coverage_json(self.coverage)} if self.coverage else {}),
            "rows": self.rows,
            **({"added_rows": self.added_rows} if self.added_rows is not None else {}),
            **({"ledger": [cost.to_json() for cost in self.ledger]} if self.ledger else {}),
            "columns": {name: self._counts_json(counts) for name, counts in self.columns.items()},
        }
        return written(value)

    def _counts_json(self, counts: TokenCounts[int]) -> dict[str, Any]:
        unknown = {"policy": str(self.release.policy.oov), "tokens": counts.out_of_vocabulary}
        return {**asdict(counts), "out_of_vocabulary": unknown}

    def describe(self) -> str:
        """Say guarantee, scope and counts in plain words."""
        epsilons = self.release.row_epsilons
        parts = ["Guarantee", self.guarantee.describe(), ""]
        if epsilons is not None:
            parts += ["Budget of each row", describe_row_budget(epsilons, self.guarantee), ""]
        parts += ["Scope", *self.private_scope(), self.row_id]
        if self.rows is not None:
            parts += ["", self.describe_counts()]
        elif self.coverage:
            parts += ["", *describe_coverage(self.coverage)]
        if self.lengths is not None:
            parts += self.lengths.describe(self.guarantee, epsilons)
        if self.persons is not None:
            parts += ["", *self.persons.describe(self.guarantee, epsilons)]
        if self.ledger:
            of = f", the last of {len(self.ledger)} batches" if len(self.ledger) > 1 else ""
            parts += ["", f"Ledger{of}", self.ledger[-1].describe()]
        return "\n".join(parts)

    def describe_counts(self) -> str:
        """Say what was done to the words of each column."""
        return describe_counts(self.release.policy, self.rows or 0, self.columns, added_rows=self.added_rows)


SHOWN_LENGTHS: Final = (1, 10, 100, 1000)
"""Words of the rows whose epsilons are said."""


def describe_row_budget(epsilons: RowEpsilons, guarantee: Guarantee) -> str:
    """Say what a row loses at most, and what epsilon that leaves it."""
    budget = epsilons.budget
    slack = f", up to an additional probability of {rounded_up(budget.delta)}" if budget.delta else ""
    listed = ", ".join(f"{words}: {epsilons.epsilon(words):.3g}" for words in SHOWN_LENGTHS)
    return (
        f"Whoever sees a whole row's output can favour one row over another by a factor of at most "
        f"{factor(budget.loss)}{slack}, where each word of the one is at most {rounded_up(budget.within, 6)} "
        f"from the word in its place in the other ({guarantee.metric}): all words of all sanitized columns "
        "together. A row's epsilon follows from its number of words, as the output tells it. Of so many "
        f"words it is: {listed}; the guarantee above is that of {guarantee.configured_epsilon:g}, the "
        "largest that a row gets."
    )


def describe_counts(
    policy: TextPolicy, rows: int, columns: Mapping[str, TokenCounts[int]], *, added_rows: int | None = None
) -> str:
    """Say how many rows there were and what was done to the words of each column."""
    lines = [f"{name}: {_count_line(policy, counts)}" for name, counts in columns.items()]
    added = "" if added_rows is None else f", {added_rows:,} of them added by this run"
    return "\n".join([f"Rows: {rows:,}{added}", *lines])


def _count_line(policy: TextPolicy, counts: TokenCounts[int]) -> str:
    total = max(counts.tokens, 1)
    named = {
        "replaced": counts.replaced,
        "unchanged by the noise": counts.unchanged,
        f"out of vocabulary ({policy.oov})": counts.out_of_vocabulary,
        "unprotected": counts.unprotected,
        "blank": counts.blank,
    }
    shares = (f"{count:,} {name} ({count / total:.1%})" for name, count in named.items() if count)
    kept = {
        "characters between words": counts.kept_characters,
        "words with the capitals that they found": counts.kept_capitals,
    }
    passed = ", ".join(f"{count:,} {name}" for name, count in kept.items() if count)
    said = f"{counts.tokens:,} words: " + (", ".join(shares) or "none")
    return f"{said}; as they stood: {passed}" if passed else said
