"""The account of one run of ``dptext poincare``: what filters left, training and quality."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dptext_spark.embedding.bundle import Manifest
from dptext_spark.embedding.word_lists import Matches
from dptext_spark.poincare.quality import Quality
from dptext_spark.poincare.relations import Cycles, Relations
from dptext_spark.poincare.training import Trained

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one filter did.

    Attributes:
        name: What was removed, in words.
        removed, left: How many rows or pairs; ``removed`` is below 0 where some were added.
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
    """The pairs that the filters left of the rows read.

    Attributes:
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
        steps = (f"{step.left:>12,} {step.describe()}" for step in self.steps)
        found, on = self.relations, self.cycles
        counts = f"{len(found.words):,} words, {len(found.pairs):,} pairs; on cycles: "
        counts += f"{on.pairs:,} pairs of {on.words:,} words in {on.groups:,} groups"
        return "\n".join([f"{self.rows:>12,} rows", *steps, "", counts])


@dataclass(frozen=True, kw_only=True, eq=False)
class PoincareReport:
    """The account of one run of ``dptext poincare``; all of it is public.

    Attributes:
        options: The run's options as JSON-ready values.
        found: What was trained on, and how it came about.
        trained, quality: The training, and how good the embedding is.
        bundle: Its manifest.
        matches: Of the lists of words that were given.
        picture: File name of the picture; None where matplotlib was not installed.
    """

    options: Mapping[str, Any]
    found: Filtered
    trained: Trained = field(repr=False)
    quality: Quality
    bundle: Manifest = field(repr=False)
    matches: Sequence[Matches] = field(repr=False)
    picture: str | None

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "format_version": FORMAT_VERSION,
            "options": dict(self.options),
            "rows": self.found.rows,
            "steps": [asdict(step) for step in self.found.steps],
            "cycles": asdict(self.found.cycles),
            "words": len(self.found.relations.words),
            "pairs": len(self.found.relations.pairs),
            "training": {
                "epochs": self.trained.epoch,
                "best_epoch": self.trained.best_epoch,
                "history": [dict(entry) for entry in self.trained.history],
            },
            "quality": asdict(self.quality),
            "fingerprint": self.bundle.fingerprint,
            "releasable": self.bundle.releasable,
            "unmatchable": self.bundle.unmatchable,
            "never_output": self.bundle.never_output,
            "word_lists": {matches.option: matches.to_json() for matches in self.matches},
            "picture": self.picture,
        }
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say filters, training and quality in plain words."""
        quality, correlation = self.quality.reconstruction, self.quality.norm_depth_correlation
        low, half, high = self.quality.nearest_distances
        lines = [
            self.found.describe(),
            f"Trained for {self.trained.epoch} epochs, the best after {self.trained.best_epoch}.",
            f"Mean rank of true hypernyms {quality.mean_rank:.2f}, mean average precision "
            f"{quality.mean_average_precision:.3f} ({quality.words:,} of {quality.all_words:,} hyponyms).",
            f"Hyperbolic distance to the nearest word: median {half:.2f}, 5th and 95th percentile {low:.2f} "
            f"and {high:.2f}.",
        ]
        if correlation is not None:
            lines.append(f"Rank correlation of norm and depth {correlation:.3f}.")
        neighbours = (f"  {word}: {', '.join(near)}" for word, near in self.quality.neighbours.items())
        matched = [matches.describe() for matches in self.matches]
        return "\n".join([*lines, "Nearest words:", *neighbours, self.bundle.describe(), *matched])
