"""What a run leaves beside its output: report.json and projection.json, without any row content."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeVar

from dptext_spark.calibration.record import Excerpt
from dptext_spark.embedding import Embedding
from dptext_spark.guarantee import Guarantee
from dptext_spark.text import Oov, TextPolicy
from dptext_spark.vectors import VectorGuarantee, VectorMechanism

KeyT = TypeVar("KeyT")

FORMAT_VERSION: Final = 1
_LIBRARIES: Final = ("dptext-spark", "pyspark", "numpy", "scipy", "pyarrow", "cryptography")


@dataclass(frozen=True, kw_only=True)
class ColumnCounts:
    """What was done to the words of one column.

    Attributes:
        tokens: All words, the sum of the others.
        replaced: Perturbed into another word.
        unchanged: Perturbed into itself.
        unprotected: Released as they are, by ``--protect``.
        out_of_vocabulary: Treated by ``--oov``.
        blank: Null or empty elements of a token column.
    """

    tokens: int
    replaced: int
    unchanged: int
    unprotected: int
    out_of_vocabulary: int
    blank: int

    def to_json(self, oov: str) -> dict[str, Any]:
        """Give the counts as JSON-ready values, unknown words under the policy that took them."""
        counts = asdict(self)
        counts["out_of_vocabulary"] = {"policy": str(oov), "tokens": self.out_of_vocabulary}
        counts["dropped"] = self.out_of_vocabulary if oov == Oov.DROP else 0
        return counts


@dataclass(frozen=True, kw_only=True)
class Report:
    """The account of one run of ``dptext privatize``.

    Attributes:
        options: The run's options as JSON-ready values.
        guarantee: What is proven.
        policy: What happens to unknown and unprotected words.
        embedding: The bundle.
        release_words: Size of the release vocabulary.
        row_id: Where row ids come from, in words.
        kept: Columns that pass raw.
        remarks: What else the output tells or lacks, in sentences.
        rows: Rows read and written; None before the run.
        added_rows: Those that this run added to what runs before had written; None without --incremental.
        columns: Counts of each sanitized column; empty before the run.
        calibration: What was measured beforehand, if anything.
    """

    options: Mapping[str, Any]
    guarantee: Guarantee
    policy: TextPolicy
    embedding: Embedding
    release_words: int
    row_id: str
    kept: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    rows: int | None = None
    added_rows: int | None = None
    columns: Mapping[str, ColumnCounts]
    calibration: Excerpt | None = None

    def scope(self) -> list[str]:
        """Say what is covered and what is not."""
        return [*self.policy.describe(), *_table_scope(self.kept), *self.remarks]

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "format_version": FORMAT_VERSION,
            "guarantee": self.guarantee.to_json(),
            "scope": self.scope(),
            "options": dict(self.options),
            "row_id": self.row_id,
            "embedding": {**embedding_json(self.embedding), "release_words": self.release_words},
            **({"calibration": self.calibration.to_json()} if self.calibration else {}),
            "rows": self.rows,
            **({"added_rows": self.added_rows} if self.added_rows is not None else {}),
            "columns": {name: counts.to_json(self.policy.oov) for name, counts in self.columns.items()},
            "versions": versions(),
        }
        return _written(value)

    def describe(self) -> str:
        """Say guarantee, scope and counts in plain words."""
        parts = ["Guarantee", self.guarantee.describe(), "", "Scope", *self.scope(), self.row_id]
        if self.calibration is not None:
            parts += ["", "Calibration", self.calibration.describe()]
        if self.rows is not None:
            parts += ["", self.describe_counts()]
        return "\n".join(parts)

    def describe_counts(self) -> str:
        """Say what was done to the words of each column."""
        lines = [f"{name}: {self._count_line(counts)}" for name, counts in self.columns.items()]
        added = "" if self.added_rows is None else f", {self.added_rows:,} of them added by this run"
        return "\n".join([f"Rows: {self.rows:,}{added}", *lines])

    def _count_line(self, counts: ColumnCounts) -> str:
        total = max(counts.tokens, 1)
        named = {
            "replaced": counts.replaced,
            "unchanged by the noise": counts.unchanged,
            f"out of vocabulary ({self.policy.oov})": counts.out_of_vocabulary,
            "unprotected": counts.unprotected,
            "blank": counts.blank,
        }
        shares = [f"{count:,} {name} ({count / total:.1%})" for name, count in named.items() if count]
        return f"{counts.tokens:,} words: " + (", ".join(shares) or "none")


@dataclass(frozen=True, kw_only=True)
class VectorColumn:
    """How one column of vectors is released, and what was found in it.

    Attributes:
        mechanism: For the column's vectors; None where it holds none.
        fingerprint: The bundle of a text column's words; empty for vectors.
        counts: Sums of the counters of :class:`dptext_spark.vectors.VectorCounts`; empty before the run.
    """

    mechanism: VectorMechanism | None
    fingerprint: str
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def guarantee(self) -> VectorGuarantee | None:
        """What is proven; None where there is nothing to protect."""
        return None if self.mechanism is None else self.mechanism.guarantee(self.fingerprint)

    def to_json(self) -> dict[str, Any]:
        """Give lengths and counts as JSON-ready values."""
        if self.mechanism is None:
            return dict(self.counts)
        lengths = {
            "input_dimension": self.mechanism.input_dimension,
            "dimension": self.mechanism.dimension,
        }
        return {**lengths, **self.counts}

    def describe_counts(self) -> str:
        """Say what was found in the column."""
        counts, parts = self.counts, [f"{self.counts['released']:,} vectors released"]
        if words := counts["known"] + counts["unknown"]:
            parts.append(
                f"{counts['unknown']:,} of {words:,} words unknown ({counts['unknown'] / words:.1%})"
            )
        named = {"texts without a known word": counts["wordless"], "null rows": counts["null"]}
        parts += [f"{count:,} {name}" for name, count in named.items() if count]
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class VectorReport:
    """The account of one run of ``dptext vectors``.

    Attributes:
        options: The run's options as JSON-ready values.
        embedding: The bundle of the words; None where there are no texts.
        row_id: Where row ids come from, in words.
        kept: Columns that pass raw.
        remarks: What else the output tells or lacks, in sentences.
        rows: Rows read and written; None before the run.
        columns: The released columns.
    """

    options: Mapping[str, Any]
    embedding: Embedding | None
    row_id: str
    kept: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    rows: int | None = None
    columns: Mapping[str, VectorColumn]

    def guarantees(self) -> dict[VectorGuarantee, list[str]]:
        """Give the columns of each guarantee."""
        return _grouped((column.guarantee, name) for name, column in self.columns.items())

    def scope(self) -> list[str]:
        """Say what is covered and what is not."""
        empty = [name for name, column in self.columns.items() if column.mechanism is None]
        told = [f"Columns without a single vector, null in every row: {', '.join(empty)}."] if empty else []
        return [*told, *_table_scope(self.kept), *self.remarks]

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "format_version": FORMAT_VERSION,
            "guarantees": [{"columns": n, **g.to_json()} for g, n in self.guarantees().items()],
            "scope": self.scope(),
            "options": dict(self.options),
            "row_id": self.row_id,
            "embedding": self.embedding and embedding_json(self.embedding),
            "rows": self.rows,
            "columns": {name: column.to_json() for name, column in self.columns.items()},
            "versions": versions(),
        }
        return _written(value)

    def projections(self) -> str:
        """Write the public projections, which belong to the release, as JSON text."""
        found = _grouped((column.mechanism, name) for name, column in self.columns.items())
        value = {
            "format_version": FORMAT_VERSION,
            "projections": [{"columns": names, **m.to_json()} for m, names in found.items()],
            "versions": versions(),
        }
        return _written(value)

    def describe(self) -> str:
        """Say guarantee, scope and counts in plain words."""
        parts = []
        for guarantee, names in self.guarantees().items():
            parts += [f"Guarantee of {', '.join(names)}", guarantee.describe(), ""]
        parts += ["Scope", *self.scope(), self.row_id]
        if self.rows is not None:
            counts = [f"{name}: {column.describe_counts()}" for name, column in self.columns.items()]
            parts += ["", f"Rows: {self.rows:,}", *counts]
        return "\n".join(parts)


def _grouped(pairs: Iterable[tuple[KeyT | None, str]]) -> dict[KeyT, list[str]]:
    """Group names by what they share; those without it are left out."""
    found: dict[KeyT, list[str]] = {}
    for key, name in pairs:
        if key is not None:
            found.setdefault(key, []).append(name)
    return found


def _table_scope(kept: tuple[str, ...]) -> list[str]:
    raw = [f"Columns released as they are, without protection: {', '.join(kept)}."] if kept else []
    return [*raw, "The counts are exact facts about the private table: they are for those who run the job."]


def embedding_json(embedding: Embedding) -> dict[str, Any]:
    manifest = embedding.manifest
    return {
        "fingerprint": manifest.fingerprint,
        "source": manifest.source_name,
        "words": manifest.words,
        "dimension": manifest.dimension,
        "geometry": manifest.geometry,
        "normalization": manifest.normalization,
    }


def _written(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: _version(name) for name in _LIBRARIES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        # A cluster's own pyspark is on the path without its metadata.
        return str(getattr(sys.modules.get(name), "__version__", "not installed"))
