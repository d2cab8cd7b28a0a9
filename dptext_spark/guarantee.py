"""What a configured mechanism promises: a value that is printed, stored and tested."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WEAK_LOSS: Final = math.log(1e6)
"""A likelihood ratio of a million: beyond it a bound says nothing that a person could rely on."""

_SAMPLED_WORDS: Final = 256
_BLOCK: Final = 8192


@dataclass(frozen=True, kw_only=True)
class Distances:
    """How far apart an embedding's words lie in a mechanism's metric.

    Attributes:
        nearest: Median distance from a word to its nearest other word.
        tenth: Median distance to the tenth nearest.
        hundredth: Median distance to the hundredth nearest.
        largest: No two words are farther apart (a bound, at most twice the true diameter).
        sample: How many words, evenly spread over the vocabulary, the medians are taken over.
    """

    nearest: float
    tenth: float
    hundredth: float
    largest: float
    sample: int

    @classmethod
    def measure(cls, words: int, coordinates: Callable[[slice], NDArray[np.float64]]) -> Distances:
        """Measure distances, in blocks.

        Args:
            words: Size of the vocabulary, 2 or more.
            coordinates: Gives rows (b, n) of points whose Euclidean distances are the metric's.
        """
        step = -(-words // _SAMPLED_WORDS)
        sample = np.concatenate([coordinates(slice(i, i + 1)) for i in range(0, words, step)])
        blocks = [slice(start, start + _BLOCK) for start in range(0, words, _BLOCK)]
        centre = sum(coordinates(block).sum(axis=0) for block in blocks) / words
        radius, squares = 0.0, np.empty((len(sample), words))
        for block in blocks:
            points = coordinates(block) - centre
            lengths = np.square(points).sum(axis=1)
            radius = max(radius, float(np.sqrt(lengths.max())))
            squares[:, block] = lengths - 2.0 * (sample - centre) @ points.T
        squares += np.square(sample - centre).sum(axis=1)[:, None]
        ranks = [min(rank, words - 1) for rank in (1, 10, 100)]
        # Rank 0 is the word itself.
        ordered = np.sqrt(np.maximum(np.partition(squares, ranks, axis=1)[:, ranks], 0.0))
        nearest, tenth, hundredth = (float(d) for d in np.median(ordered, axis=0))
        return cls(
            nearest=nearest, tenth=tenth, hundredth=hundredth, largest=2.0 * radius, sample=len(sample)
        )


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
        distances: How far apart this embedding's words lie in that distance.
        source: Where the proof stands (author, year, theorem).
        fingerprint: The embedding bundle without which epsilon means nothing.
        assumptions: What must be true for the guarantee to hold.
    """

    mechanism: str
    metric: str
    epsilon: float
    delta: float = 0.0
    euclidean_epsilon: float | None = None
    distances: Distances
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
            f"{self.mechanism}, epsilon {self.epsilon:g}: whoever sees an output word can favour one input "
            f"word over another by a factor of at most exp({self.epsilon:g} x distance){pure}, where the "
            f"distance is the {self.metric}.",
            self._describe_distances(),
            "In a text each word is perturbed independently and the distances of all positions add up: the "
            "longer a text, the weaker its protection.",
        ]
        if self.euclidean_epsilon is not None and self.euclidean_epsilon != self.epsilon:
            lines.append(
                f"In the embedding's Euclidean distance the proven epsilon is {self.euclidean_epsilon:g}."
            )
        lines.append(f"Proof: {self.source}. It assumes: " + "; ".join(self.assumptions) + ".")
        return "\n".join(lines)

    def _describe_distances(self) -> str:
        far = self.distances
        named = {
            "nearest": far.nearest,
            "10th nearest": far.tenth,
            "100th nearest": far.hundredth,
        }
        bounds = [
            f"its {name} word is {d:.3g} away: factor {_factor(self.loss(d))}" for name, d in named.items()
        ]
        largest = _rounded_up(far.largest)
        text = (
            f"For a typical word of this embedding (medians over {far.sample}), {'; '.join(bounds)}. "
            f"No two words are more than {largest:.3g} apart: factor {_factor(self.loss(largest))}."
        )
        if self.loss(far.nearest) > WEAK_LOSS:
            text += (
                " By itself this bound is too weak to hide even a word among its nearest neighbours; what "
                "protects then is how often words are replaced, which must be measured, not proven."
            )
        elif self.loss(far.hundredth) > WEAK_LOSS:
            text += (
                " The bound hides a word among its nearest neighbours, but hardly among its hundred nearest."
            )
        return text


def _rounded_up(value: float) -> float:
    """Round a bound to the three digits that are printed, never below itself."""
    if value <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit


def _factor(loss: float) -> str:
    """Write exp(loss) so that a person can feel it, without overflow."""
    if loss < WEAK_LOSS:
        return f"{math.exp(loss):,.4g}"
    return f"10^{loss / math.log(10):,.3g}"
