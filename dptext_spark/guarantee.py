"""The promise of a configured mechanism: a value that is printed, stored and tested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

import numpy as np

from dptext_spark.accounting.laws import LossLaw, loss_beyond
from dptext_spark.display import Displayed
from dptext_spark.geometry import Floats
from dptext_spark.geometry.metric import Metric
from dptext_spark.noise import UNIFORM_BITS

WEAK_LOSS: Final = math.log(1e6)
"""A likelihood ratio of a million: nobody can rely on a bound beyond it."""

DELTAS: Final = (1e-6, 1e-9)
"""Additional probabilities for which losses are stated."""

FARTHEST: Final = "any other word"

ROWS: Final = (10, 100)
"""Words of a row for which losses are stated."""

# More than the roundings of exp and of one division.
_SLACK: Final = 1.0 + 2.0**-50


RANKS: Final = (1, 10, 100)
"""Ranks of the neighbours whose distances are stated."""


@dataclass(frozen=True, kw_only=True)
class TypicalDistances:
    """How far apart an embedding's words lie in a mechanism's metric."""

    nearest: float  # medians over words of the distance to other words, by rank
    tenth: float
    hundredth: float
    largest: float  # no two words are farther apart (a bound, at most twice the true diameter)
    sample: int  # words, evenly spread over the vocabulary, that the medians are taken over

    @classmethod
    def measure(cls, metric: Metric) -> TypicalDistances:
        """Measure the distances between an embedding's words, 2 or more."""
        return cls.of(metric, *neighbour_distances(metric))

    @classmethod
    def of(cls, metric: Metric, distances: Floats, farthest: Floats) -> TypicalDistances:
        """Sum up what :func:`neighbour_distances` measured."""
        medians = np.median(distances, axis=0).tolist()
        return cls(
            nearest=medians[0],
            tenth=medians[1],
            hundredth=medians[2],
            # Through any word there is a way between any two.
            largest=min(metric.largest(), 2.0 * float(farthest.min())),
            sample=len(distances),
        )


def neighbour_distances(metric: Metric) -> tuple[Floats, Floats]:
    """Measure how far a sample of words is from others.

    Returns:
        Distances to the neighbours of ``RANKS``, float64 (k, 3), and to the farthest word (k,).
    """
    ranks = [min(rank, metric.words - 1) for rank in RANKS]
    _, distances, farthest = metric.nearest(metric.sample(), ranks)
    return distances, farthest


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The part of a guarantee that each mechanism has its own proof of.

    Attributes:
        delta_num: Bounds the total variation between the computed law of an output and the proven
            one. A probability of at most e^t p is then at most e^t p + (1 + e^t) delta_num. None
            where no such bound is proven.
    """

    epsilon: float  # proven nats per unit of the mechanism's distance
    truncation: float | None = None  # distances count up to here; None counts them whole
    # Holds in the embedding's Euclidean distance, where it is proven.
    euclidean_epsilon: float | None = None
    law: LossLaw = field(repr=False)  # of the loss: nearly all outputs cost far less
    delta_num: float | None
    noise_bits: int  # that roundings leave to the noise in any direction, at least
    source: str  # where the proof stands (author, year, theorem)
    remarks: tuple[str, ...] = ()  # what else a person must know about this bound, in sentences


@dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee(Displayed, Claim):
    """A metric differential privacy guarantee, P[M(w)=y] <= exp(loss(d(w, w'))) P[M(w')=y]."""

    mechanism: str
    configured_epsilon: float  # the mechanism's parameter, which need not be what is proven
    metric: str  # the distance in which epsilon counts, in words
    distances: TypicalDistances | None  # between this embedding's words; None without an embedding
    fingerprint: str  # of the bundle without which epsilon means nothing; empty for bare vectors
    assumptions: tuple[str, ...] = ()

    def loss(self, distance: float) -> float:
        """Return a bound of the log-likelihood ratio, in nats, of two words at ``distance``."""
        return self.law.bound(distance)

    def loss_beyond(self, delta: float, distance: float, words: int = 1) -> float:
        """Compute a bound, except with probability ``delta``, of words that each move so far."""
        return loss_beyond(self.law, distance, words=words, delta=delta)

    def losses(self) -> list[dict[str, Any]]:
        """Return privacy losses in nats: the worst case, and for each probability of ``DELTAS``."""
        losses = []
        for name, distance, words in self._neighbours():
            loss = {
                "from": name,
                "distance": distance,
                "words": words,
                "pure": words * self.loss(distance),
            }
            for delta in DELTAS:
                loss[f"{delta:g}"] = self.loss_beyond(delta, distance, words)
            losses.append(loss)
        return losses

    def _neighbours(self) -> list[tuple[str, float, int]]:
        """Return what a word, or a row, is compared with: its name, distance and words."""
        distances = self.distances
        if distances is None:
            return [("another", 1.0, 1)]
        nearest = distances.nearest
        return [
            ("its nearest word", nearest, 1),
            ("its 10th nearest word", distances.tenth, 1),
            ("its 100th nearest word", distances.hundredth, 1),
            (FARTHEST, distances.largest, 1),
            *((f"{words} words, each with its nearest", nearest, words) for words in ROWS),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as JSON-ready values."""
        fields = asdict(self)
        del fields["law"]
        return {
            **fields,
            "assumptions": list(self.assumptions),
            "remarks": list(self.remarks),
            "losses": self.losses(),
            "summary": self.summary(),
            "words": self.describe(),
        }

    def blocks(self) -> Iterator[Any]:
        """Yield the summary, and a table of how far the odds of two inputs can change."""
        yield self.summary().split("\n")
        yield {
            "title": "Odds change by a factor of at most",
            "table": [*_loss_table(self.losses())],
        }

    @property
    def _headline(self) -> str:
        shifts = "an output word shifts the odds between any two input words"
        if self.distances is None:
            shifts = "a released vector shifts the odds between any two inputs"
        bound = f"exp({rounded_up(self.epsilon, 6)} x distance)"
        return f"{self.mechanism}, epsilon {self.configured_epsilon:g}: {shifts} by at most {bound}"

    def summary(self) -> str:
        """Return three lines: the protection, the bound for nearly all outputs, the worst case."""
        losses = self.losses()
        delta = f"{DELTAS[0]:g}"
        inputs = "two inputs at distance 1"
        if self.distances is not None:
            inputs = "a word and its nearest neighbour"
        worst_case = f"Worst case: a factor of {factor(losses[0]['pure'])}."
        return (
            f"{self._headline}.\n"
            f"For nearly all outputs, the odds between {inputs} change by a factor of at most "
            f"{factor(losses[0][delta])} (failure probability {delta}).\n"
            f"{worst_case} {self._weakness(losses)}".rstrip()
        )

    def describe(self) -> str:
        """Return the guarantee in plain words."""
        losses = self.losses()
        truncation = ""
        if self.truncation is not None:
            truncation = f", counted up to {rounded_up(self.truncation, 6)}"
        deltas = " or ".join(f"{delta:g}" for delta in DELTAS)
        one_input = "an input"
        if self.distances is not None:
            one_input = f"a typical word (medians over {self.distances.sample})"
        lines = [
            f"{self._headline}, where the distance is the {self.metric}{truncation}.",
            *self.remarks,
            f"Except with probability {deltas} the factor is smaller. Between {one_input} and",
            *map(_loss_line, losses),
        ]
        weakness = self._weakness(losses)
        if weakness:
            lines.append(weakness)
        if self.distances is not None:
            lines.append(
                "Each word gets its own noise. If an observer knows the row's other words, or they "
                "are unrelated to this one, the whole output reveals no more than this. Words in a "
                "text are correlated: for everyone else neighbouring outputs also leak "
                "information, and the bounds of all words that may differ add up."
            )
        if self.delta_num is None:
            lines.append(
                f"This holds in exact arithmetic. With random numbers of {UNIFORM_BITS} bits the "
                "probabilities of outputs differ; for this search it is not bounded by how much."
            )
        else:
            lines.append(
                f"With random numbers of {UNIFORM_BITS} bits the probabilities of an output are "
                f"within delta_num = {rounded_up(self.delta_num)} of the proven ones (k outputs: k "
                "times that). A factor f except with probability p becomes f except with probability "
                "p + (1 + f) delta_num. The worst case is that of exact arithmetic."
            )
        if self.euclidean_epsilon not in (None, self.epsilon):
            proven = rounded_up(self.euclidean_epsilon, 6)
            lines.append(f"In the embedding's Euclidean distance the proven epsilon is {proven}.")
        lines.append(f"Proof: {self.source}. It assumes: {'; '.join(self.assumptions)}.")
        return "\n".join(lines)

    def _weakness(self, losses: Sequence[Mapping[str, Any]]) -> str:
        """Return a sentence where the bound protects too little by itself, or else nothing."""
        if self.distances is None:
            return ""
        delta = f"{DELTAS[0]:g}"
        nearest, _, hundredth, *_ = losses
        if nearest[delta] > WEAK_LOSS:
            return (
                "This bound is too weak to hide a word even among its nearest neighbours: measure "
                "what attackers get back, by dptext evaluate."
            )
        if hundredth[delta] > WEAK_LOSS:
            return "This bound is too weak to hide a word among more than its nearest neighbours."
        return ""


def _loss_table(losses: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield a row for each input that a word is compared with."""
    deltas = [f"{delta:g}" for delta in DELTAS]
    yield ["", "distance", *(f"failure {delta}" for delta in deltas), "worst case"]
    for loss in losses:
        bounds = [factor(loss[name]) for name in (*deltas, "pure")]
        yield [loss["from"], f"{loss['distance']:.3g}", *bounds]


def _loss_line(loss: Mapping[str, Any]) -> str:
    """Return a line of the guarantee: what a word is compared with, and by which factors."""
    name = loss["from"]
    if name == FARTHEST:
        name = f"{name}, {rounded_up(loss['distance'])} away"
    elif loss["words"] == 1:
        name = f"{name}, {loss['distance']:.3g} away"
    factors = " or ".join(factor(loss[f"{delta:g}"]) for delta in DELTAS)
    return f"  {name}: {factors}; worst case {factor(loss['pure'])}"


def rounded_up(value: float, digits: int = 3) -> str:
    """Return a bound, 0 or more and finite, in so many significant digits, never below itself."""
    exact = Decimal(repr(value))  # as people write the float: 0.1 is 0.1
    if not exact:
        return "0"
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(unit, ROUND_CEILING)
    notation = "f" if -5 <= exact.adjusted() < 6 else "e"
    return format(rounded.normalize(), notation)


def factor(loss: float) -> str:
    """Return exp(loss), a bound, as people can read it, without overflow and never below itself."""
    if loss < WEAK_LOSS:
        return _grouped(rounded_up(1.0 + math.expm1(loss) * _SLACK, 4))
    return f"e^{_grouped(rounded_up(loss))}"


def _grouped(number: str) -> str:
    """Return a number with commas between its thousands."""
    if "e" in number:
        return number
    return f"{Decimal(number):,f}"
