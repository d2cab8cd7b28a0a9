"""The account of one run of ``dptext poincare``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dptext_spark.poincare.filtered import Filtered
from dptext_spark.poincare.quality import Quality
from dptext_spark.poincare.training import Trained

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class PoincareReport:
    """The account of one run of ``dptext poincare``; all of it is public.

    Attributes:
        options: The run's options as JSON-ready values.
        found: What was trained on, and how it came about.
        trained: The training.
        quality: How good the embedding is.
        fingerprint: The bundle's.
        picture: File name of the picture; None where matplotlib was not installed.
    """

    options: Mapping[str, Any]
    found: Filtered
    trained: Trained = field(repr=False)
    quality: Quality
    fingerprint: str
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
            "quality": self.quality.to_json(),
            "fingerprint": self.fingerprint,
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
        lines += ["Nearest words:"]
        lines += [f"  {word}: {', '.join(near)}" for word, near in self.quality.neighbours.items()]
        return "\n".join(lines)
