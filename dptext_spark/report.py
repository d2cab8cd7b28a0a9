"""What a run leaves beside its output: report.json, without any row content."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from dptext_spark.embedding import Embedding
from dptext_spark.guarantee import Guarantee
from dptext_spark.text import Oov, TextPolicy

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
        rows: Rows read and written; None before the run.
        columns: Counts of each sanitized column; empty before the run.
    """

    options: Mapping[str, Any]
    guarantee: Guarantee
    policy: TextPolicy
    embedding: Embedding
    release_words: int
    row_id: str
    kept: tuple[str, ...]
    rows: int | None = None
    columns: Mapping[str, ColumnCounts]

    def scope(self) -> list[str]:
        """Say what is covered and what is not."""
        lines = self.policy.describe()
        if self.kept:
            lines.append(f"Columns released as they are, without protection: {', '.join(self.kept)}.")
        lines.append(
            "The counts are exact facts about the private table: they are for those who run the job."
        )
        return lines

    def to_json(self) -> str:
        """Write the report as JSON text."""
        manifest = self.embedding.manifest
        value = {
            "format_version": FORMAT_VERSION,
            "guarantee": self.guarantee.to_json(),
            "scope": self.scope(),
            "options": dict(self.options),
            "row_id": self.row_id,
            "embedding": {
                "fingerprint": manifest.fingerprint,
                "source": manifest.source_name,
                "words": manifest.words,
                "release_words": self.release_words,
                "dimension": manifest.dimension,
                "geometry": manifest.geometry,
                "normalization": manifest.normalization,
            },
            "rows": self.rows,
            "columns": {name: counts.to_json(self.policy.oov) for name, counts in self.columns.items()},
            "versions": {"python": platform.python_version(), **_versions()},
        }
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say guarantee, scope and counts in plain words."""
        parts = ["Guarantee", self.guarantee.describe(), "", "Scope", *self.scope(), self.row_id]
        if self.rows is not None:
            parts += ["", self.describe_counts()]
        return "\n".join(parts)

    def describe_counts(self) -> str:
        """Say what was done to the words of each column."""
        lines = [f"{name}: {self._count_line(counts)}" for name, counts in self.columns.items()]
        return "\n".join([f"Rows: {self.rows:,}", *lines])

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


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
