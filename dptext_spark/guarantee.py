"""What a configured mechanism promises: a value that is printed, stored and tested."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from dptext_spark.geometry.metric import Metric
from dptext_spark.notebook import lines_html

WEAK_LOSS: Final = math.log(1e6)
"""A likelihood ratio of a million: beyond it a bound says nothing that a person could rely on."""


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
    def measure(cls, metric: Metric) -> Distances:
        """Measure the distances between an embedding's words, 2 or more."""
        sample, farthest = metric.sample(), metric.words - 1
        _, distances = metric.nearest(sample, [min(rank, farthest) for rank in (1, 10, 100, farthest)])
        # Through any word there is a way between any two.
        largest = min(metric.largest(), 2.0 * float(distances[:, -1].min()))
        nearest, tenth, hundredth, _ = (float(d) for d in np.median(distances, axis=0))
        return cls(nearest=nearest, tenth=tenth, hundredth=hundredth, largest=largest, sample=len(sample))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The part of a guarantee that each mechanism has its own proof of; see :class:`Guarantee`."""

    epsilon: float
    source: str
    delta: float = 0.0
    truncation: float | None = None
    euclidean_epsilon: float | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee:
    """A metric differential privacy guarantee, P[M(w)=y] <= exp(loss(d(w, w'))) P[M(w')=y] + delta.

    Attributes:
        configured_epsilon: The mechanism's parameter, which need not be what is proven.
        metric: The distance in which epsilon counts, in words.
        epsilon: Proven nats per unit of that distance.
        delta: Additive slack; 0 is a pure guarantee.
        truncation: Distances count up to here; None counts them whole.
        euclidean_epsilon: An epsilon that also holds in the embedding's Euclidean distance, where
            one is proven.
        distances: How far apart this embedding's words lie in that distance; None without an embedding.
        source: Where the proof stands (author, year, theorem).
        fingerprint: The embedding bundle without which epsilon means nothing; empty for bare vectors.
        assumptions: What must be true for the guarantee to hold.
        remarks: What else a person must know about this mechanism's bound, in sentences.
    """

    _compared: ClassVar[str] = "an output word can favour one input word"

    mechanism: str
    configured_epsilon: float
    metric: str
    epsilon: float
    delta: float = 0.0
    truncation: float | None = None
    euclidean_epsilon: float | None = None
    distances: Distances | None
    source: str
    fingerprint: str
    assumptions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def loss(self, distance: float) -> float:
        """Bound the log-likelihood ratio, in nats, of two words at ``distance``."""
        return self.epsilon * (distance if self.truncation is None else min(distance, self.truncation))

    def text_loss(self, distances: Iterable[float]) -> float:
        """Bound the log-likelihood ratio of two texts, from the distances of their words by position."""
        return sum(map(self.loss, distances))

    def __repr__(self) -> str:
        far = self.distances
        typical = f"; {_factor(self.loss(far.nearest))} for a typical nearest word" if far else ""
        pure = f" + {self.delta:g}" if self.delta else ""
        return (
            f"{type(self).__name__}({self.mechanism}, epsilon {self.configured_epsilon:g}: "
            f"factor exp({self.epsilon:g} x {self.metric}){pure}{typical})"
        )

    def _repr_html_(self) -> str:
        return lines_html("Guarantee", self.describe())

    def to_json(self) -> dict[str, Any]:
        """Give the guarantee as JSON-ready values."""
        lists = {"assumptions": list(self.assumptions), "remarks": list(self.remarks)}
        return {**asdict(self), **lists, "words": self.describe()}

    def describe(self) -> str:
        """Say the guarantee in plain words."""
        pure = "" if self.delta == 0 else f", up to an additional probability of {self.delta:g}"
        capped = "" if self.truncation is None else f", counted up to {self.truncation:g}"
        lines = [
            f"{self.mechanism}, epsilon {self.configured_epsilon:g}: whoever sees {self._compared} over "
            f"another by a factor of at most exp({self.epsilon:g} x distance){pure}, where the distance is "
            f"the {self.metric}{capped}.",
            *self.remarks,
        ]
        if far := self.distances:
            lines += [self._describe_distances(far), self._describe_texts(far)]
        if self.euclidean_epsilon not in (None, self.epsilon):
            lines.append(
                f"In the embedding's Euclidean distance the proven epsilon is {self.euclidean_epsilon:g}."
            )
        lines.append(f"Proof: {self.source}. It assumes: " + "; ".join(self.assumptions) + ".")
        return "\n".join(lines)

    def _describe_distances(self, far: Distances) -> str:
        named = {"nearest": far.nearest, "10th nearest": far.tenth, "100th nearest": far.hundredth}
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

    def _describe_texts(self, far: Distances) -> str:
        return (
            "In a text each word is perturbed independently and the distances of all positions add up: two "
            "texts that differ in one word keep that word's bound; for two that differ in ten words, each "
            f"against a nearest one, the factor is {_factor(self.text_loss([far.nearest] * 10))}."
        )


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
