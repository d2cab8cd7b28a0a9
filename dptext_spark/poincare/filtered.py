"""What the filters leave of is-a pairs, and what each of them removes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dptext_spark.poincare.relations import Cycles, Relations


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one filter did.

    Attributes:
        name: What was removed, in words.
        removed: How many rows or pairs; below 0 where some were added.
        left: How many were left.
    """

    name: str
    removed: int
    left: int

    def describe(self) -> str:
        """Say what was done, after the number that was left."""
        how = "after" if self.removed >= 0 else "with"
        return f"{how} {abs(self.removed):,} {self.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Filtered:
    """The pairs that the filters left.

    Attributes:
        rows: Rows read.
        steps: The filters in their order; the last one leaves the pairs.
        cycles: What lies on cycles among the filtered pairs.
        relations: The pairs, closure included.
    """

    rows: int
    steps: Sequence[Step]
    cycles: Cycles
    relations: Relations = field(repr=False)

    def describe(self) -> str:
        """Say what each filter did."""
        lines = [f"{self.rows:>12,} rows"]
        lines += [f"{step.left:>12,} {step.describe()}" for step in self.steps]
        lines += [
            "",
            f"{len(self.relations.words):,} words, {len(self.relations.pairs):,} pairs; on cycles: "
            f"{self.cycles.pairs:,} pairs of {self.cycles.words:,} words in {self.cycles.groups:,} groups",
        ]
        return "\n".join(lines)
