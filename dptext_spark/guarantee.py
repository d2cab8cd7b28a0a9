"""What a configured mechanism promises: a value that is printed, stored and tested."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A metric differential privacy guarantee, P[M(w)=y] <= exp(loss(d(w, w'))) P[M(w')=y] + delta.

    Attributes:
        mechanism: Name of the mechanism.
        metric: The distance in which epsilon counts, in words.
        epsilon: Nats per unit of that distance.
        delta: Additive slack; 0 is a pure guarantee.
        euclidean_epsilon: An epsilon that also holds in the embedding's Euclidean distance, where
            one is proven.
        source: Where the proof stands (author, year, theorem).
        fingerprint: The embedding bundle without which epsilon means nothing.
        assumptions: What must be true for the guarantee to hold.
    """

    mechanism: str
    metric: str
    epsilon: float
    delta: float = 0.0
    euclidean_epsilon: float | None = None
    source: str
    fingerprint: str
    assumptions: tuple[str, ...] = ()

    def loss(self, distance: float) -> float:
        """Bound the log-likelihood ratio of two words at ``distance`` (or texts, distances summed)."""
        return self.epsilon * distance

    def to_json(self) -> dict[str, Any]:
        """Give the guarantee as JSON-ready values."""
        return {**asdict(self), "assumptions": list(self.assumptions), "words": self.describe()}

    def describe(self) -> str:
        """Say the guarantee in plain words."""
        pure = "" if self.delta == 0 else f", up to an additional probability of {self.delta:g}"
        lines = [
            f"{self.mechanism} with epsilon {self.epsilon:g}: whoever sees an output word can favour one "
            f"input word over another by a factor of at most exp({self.epsilon:g} x distance){pure}, the "
            f"distance between the two words being the {self.metric}. At distance 1 the factor is "
            f"{_factor(self.loss(1.0))}, at 0.1 {_factor(self.loss(0.1))}.",
            "In a text every word is perturbed independently and the distances of all positions add up: "
            "long texts are protected less than single words.",
        ]
        if self.euclidean_epsilon is not None and self.euclidean_epsilon != self.epsilon:
            lines.append(
                f"In the embedding's Euclidean distance the proven epsilon is {self.euclidean_epsilon:g}."
            )
        if self.loss(1.0) > WEAK_LOSS:
            lines.append(
                "For words at distance 1 or more this bound is too weak to mean anything by itself; what "
                "protects them in practice is how often a word is replaced, which has to be measured."
            )
        lines.append(f"Proof: {self.source}. It assumes: " + "; ".join(self.assumptions) + ".")
        return "\n".join(lines)


WEAK_LOSS = 10.0  # exp(10) is about 22,000: no posterior doubt is left between two words


def _factor(loss: float) -> str:
    """Write exp(loss) so that a person can feel it, without overflow."""
    if loss < math.log(1e6):
        return f"{math.exp(loss):,.4g}"
    return f"10^{loss / math.log(10):,.4g}"
