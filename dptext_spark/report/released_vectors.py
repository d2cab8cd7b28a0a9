"""The account of one run of ``dptext vectors``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from dptext_spark.coverage import Coverage
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms.vectors import VectorGuarantee, VectorNoise
from dptext_spark.report.facts import (
    COUNTS,
    choice_scope,
    coverage_json,
    describe_coverage,
    embedding_json,
    table_scope,
    written,
)
from dptext_spark.vector_sanitizer import VectorCounts

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, kw_only=True)
class VectorColumn:
    """How one column of vectors is released, and what was found in it.

    Attributes:
        mechanism: For the column's vectors; None where it holds none.
        fingerprint: The bundle of a text column's words; empty for vectors.
        counts: Sums of what was found; None before the run.
    """

    mechanism: VectorNoise | None
    fingerprint: str
    counts: VectorCounts[int] | None = None

    @property
    def guarantee(self) -> VectorGuarantee | None:
        """What is proven; None where there is nothing to protect."""
        return None if self.mechanism is None else self.mechanism.guarantee(self.fingerprint)

    def to_json(self) -> dict[str, Any]:
        """Give lengths and counts as JSON-ready values."""
        lengths = ("input_dimension", "dimension") if self.mechanism else ()
        counts = {} if self.counts is None else asdict(self.counts)
        return {**{name: getattr(self.mechanism, name) for name in lengths}, **counts}


@dataclass(frozen=True, kw_only=True)
class VectorReport:
    """The account of one run of ``dptext vectors``.

    Attributes:
        options: The run's options as JSON-ready values.
        published: Those of them that may be handed on.
        embedding: The bundle of the words; None where there are no texts.
        row_id: Where row ids come from, in words.
        kept, columns: The columns that pass raw, and the released ones.
        remarks: What else the output tells, in sentences.
        private_remarks: What it lacks, in sentences for those who run the job.
        keeps_order: Whether rows come in the order of their input file.
        coverage: What a sample of rows said beforehand of each text column.
        rows: Rows read and written; None before the run.
    """

    options: Mapping[str, Any]
    published: Mapping[str, Any] = field(default_factory=dict)
    embedding: Embedding | None
    row_id: str
    kept: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    private_remarks: tuple[str, ...] = ()
    keeps_order: bool = True
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    rows: int | None = None
    columns: Mapping[str, VectorColumn]

    def guarantees(self) -> dict[VectorGuarantee, list[str]]:
        """Give the columns of each guarantee."""
        return _grouped((column.guarantee, name) for name, column in self.columns.items())

    def scope(self) -> list[str]:
        """Say what is covered and what is not."""
        empty = [name for name, column in self.columns.items() if column.mechanism is None]
        told = [f"Columns without a single vector, null in every row: {', '.join(empty)}."] if empty else []
        table = table_scope(self.kept, self.columns, keeps_order=self.keeps_order)
        return [*told, *table, *self.remarks, *choice_scope(self.options)]

    def private_scope(self) -> list[str]:
        """Say the same, and what concerns those who run the job alone."""
        return [*self.scope(), *self.private_remarks, COUNTS]

    def _release(self, scope: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
        """What both reports have."""
        return {
            "guarantees": [{"columns": n, **g.to_json()} for g, n in self.guarantees().items()],
            "scope": scope,
            "options": dict(options),
            "row_id": self.row_id,
            "kept": list(self.kept),
            "embedding": self.embedding and embedding_json(self.embedding),
        }

    def to_publish(self) -> str:
        """Write what may be handed on with the table as JSON text: no count but that of its rows."""
        return written({**self._release(self.scope(), self.published), "rows": self.rows})

    def to_json(self) -> str:
        """Write the report, which is for those who run the job, as JSON text."""
        value = {
            **self._release(self.private_scope(), self.options),
            **({"coverage": coverage_json(self.coverage)} if self.coverage else {}),
            "rows": self.rows,
            "columns": {name: column.to_json() for name, column in self.columns.items()},
        }
        return written(value)

    def projections(self) -> str:
        """Write the public projections, which belong to the release, as JSON text."""
        found = _grouped((column.mechanism, name) for name, column in self.columns.items())
        return written({"projections": [{"columns": names, **m.to_json()} for m, names in found.items()]})

    def describe(self) -> str:
        """Say guarantee, scope and counts in plain words."""
        parts = []
        for guarantee, names in self.guarantees().items():
            parts += [f"Guarantee of {', '.join(names)}", guarantee.describe(), ""]
        parts += ["Scope", *self.private_scope(), self.row_id]
        if self.rows is not None:
            parts += ["", f"Rows: {self.rows:,}"]
            parts += [f"{name}: {_count_line(c.counts)}" for name, c in self.columns.items() if c.counts]
        elif self.coverage:
            parts += ["", *describe_coverage(self.coverage)]
        return "\n".join(parts)


def _count_line(counts: VectorCounts[int]) -> str:
    parts = [f"{counts.released:,} vectors released"]
    if tokens := counts.known + counts.unknown:
        parts.append(f"{counts.unknown:,} of {tokens:,} words unknown ({counts.unknown / tokens:.1%})")
    named = {"texts without a known word": counts.wordless, "null rows": counts.null}
    return ", ".join([*parts, *(f"{count:,} {name}" for name, count in named.items() if count)])


def _grouped(pairs: Iterable[tuple[KeyT | None, str]]) -> dict[KeyT, list[str]]:
    """Group names by what they share; those without it are left out."""
    found: dict[KeyT, list[str]] = {}
    for key, name in pairs:
        if key is not None:
            found.setdefault(key, []).append(name)
    return found
