"""The account of one run of ``dptext privatize``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dptext_spark.calibration.record import Excerpt
from dptext_spark.coverage import Coverage
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.guarantee import Guarantee
from dptext_spark.privatizer import TokenCounts
from dptext_spark.report.facts import (
    coverage_json,
    describe_coverage,
    embedding_json,
    table_scope,
    written,
)
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy


@dataclass(frozen=True, kw_only=True)
class Report:
    """The account of one run of ``dptext privatize``.

    Attributes:
        options: The run's options as JSON-ready values.
        guarantee: What is proven.
        policy: What happens to unknown and unprotected words.
        search: How the release vocabulary is searched, and its size.
        row_id: Where row ids come from, in words.
        kept: Columns that pass raw.
        remarks: What else the output tells or lacks, in sentences.
        rows: Rows read and written; None before the run.
        added_rows: Those that this run added to what runs before had written; None without --incremental.
        columns: Counts of each sanitized column; empty before the run.
        calibration: What was measured beforehand, if anything.
        coverage: What a sample of rows said beforehand of each sanitized column.
    """

    options: Mapping[str, Any]
    guarantee: Guarantee
    policy: TextPolicy
    embedding: Embedding
    search: Search
    row_id: str
    kept: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    rows: int | None = None
    added_rows: int | None = None
    columns: Mapping[str, TokenCounts[int]]
    calibration: Excerpt | None = None
    coverage: Mapping[str, Coverage] = field(default_factory=dict)

    def scope(self) -> list[str]:
        """Say what is covered and what is not."""
        return [*self.policy.describe(), *table_scope(self.kept), *self.remarks]

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "guarantee": self.guarantee.to_json(),
            "scope": self.scope(),
            "options": dict(self.options),
            "row_id": self.row_id,
            "kept": list(self.kept),
            "embedding": {**embedding_json(self.embedding), "release_words": self.search.release_words},
            "search": self.search.name,
            **({"calibration": asdict(self.calibration)} if self.calibration else {}),
            **({"coverage": coverage_json(self.coverage)} if self.coverage else {}),
            "rows": self.rows,
            **({"added_rows": self.added_rows} if self.added_rows is not None else {}),
            "columns": {name: self._counts_json(counts) for name, counts in self.columns.items()},
        }
        return written(value)

    def _counts_json(self, counts: TokenCounts[int]) -> dict[str, Any]:
        unknown = {"policy": str(self.policy.oov), "tokens": counts.out_of_vocabulary}
        return {**asdict(counts), "out_of_vocabulary": unknown}

    def describe(self) -> str:
        """Say guarantee, scope and counts in plain words."""
        parts = ["Guarantee", self.guarantee.describe(), "", "Scope", *self.scope(), self.row_id]
        if self.calibration is not None:
            parts += ["", "Calibration", self.calibration.describe()]
        if self.rows is not None:
            parts += ["", self.describe_counts()]
        elif self.coverage:
            parts += ["", *describe_coverage(self.coverage)]
        return "\n".join(parts)

    def describe_counts(self) -> str:
        """Say what was done to the words of each column."""
        return describe_counts(self.policy, self.rows or 0, self.columns, added_rows=self.added_rows)


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
