"""What a configured mechanism promises: a value that is printed, stored and tested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

import numpy as np

from dptext_spark.accounting.laws import LossLaw, loss_beyond
from dptext_spark.geometry.metric import Metric
from dptext_spark.noise import UNIFORM_BITS

WEAK_LOSS: Final = math.log(1e6)
"""A likelihood ratio of a million: beyond it a bound says nothing that a person could rely on."""

DELTAS: Final = (1e-6, 1e-9)
"""Additional probabilities for which losses are stated."""

FARTHEST: Final = "any other word"

ROWS: Final = (10, 100)
"""Words of a row for which losses are stated."""

# More than the roundings of exp and of one division.
_SLACK: Final = 1.0 + 2.0**-50


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
        sample, last = metric.sample(), metric.words - 1
        _, distances, farthest = metric.nearest(sample, [min(rank, last) for rank in (1, 10, 100)])
        # Through any word there is a way between any two.
        largest = min(metric.largest(), 2.0 * float(farthest.min()))
        nearest, tenth, hundredth = (float(d) for d in np.median(distances, axis=0))
        return cls(
            nearest=nearest, tenth=tenth, hundredth=hundredth, largest=largest, sample=len(sample)
        )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The part of a guarantee that each mechanism has its own proof of.

    Attributes:
        delta_num: The computed law of an output is this near to the proven one, in total variation;
        a
            probability of at most e^t p is then at most e^t p + (1 + e^t) delta_num. None where no
            such bound is proven.
    """

    epsilon: float  # proven nats per unit of the mechanism's distance
    truncation: float | None = None  # distances count up to here; None counts them whole
    euclidean_epsilon: float | None = (
        None  # holds in the embedding's Euclidean distance, where it is proven
    )
    law: LossLaw = field(repr=False)  # of the loss, by which nearly all outputs lose far less
    delta_num: float | None
    noise_bits: int  # that roundings leave to the noise in any direction, at least
    source: str  # where the proof stands (author, year, theorem)
    remarks: tuple[str, ...] = ()  # what else a person must know about this bound, in sentences


@dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee(Claim):
    """A metric differential privacy guarantee, P[M(w)=y] <= exp(loss(d(w, w'))) P[M(w')=y]."""

    mechanism: str
    configured_epsilon: float  # the mechanism's parameter, which need not be what is proven
    metric: str  # the distance in which epsilon counts, in words
    distances: TypicalDistances | None  # between this embedding's words; None without an embedding
    fingerprint: str  # of the bundle without which epsilon means nothing; empty for bare vectors
    assumptions: tuple[str, ...] = ()

    def loss(self, distance: float) -> float:
        """Bound the log-likelihood ratio, in nats, of two words at ``distance``."""
        return self.law.bound(distance)

    def loss_beyond(self, delta: float, distance: float, words: int = 1) -> float:
        """Bound the loss, except with a probability, of several words that are so far apart each."""
        return loss_beyond(self.law, distance, words=words, delta=delta)

    def losses(self) -> list[dict[str, Any]]:
        """Give privacy losses in nats: the worst case, and with each failure probability of ``DELTAS``."""
        compared = [("another", 1.0, 1)]
        if (far := self.distances) is not None:
            compared = [
                ("its nearest word", far.nearest, 1),
                ("its 10th nearest word", far.tenth, 1),
                ("its 100th nearest word", far.hundredth, 1),
                (FARTHEST, far.largest, 1),
                *((f"{words} words, each with its nearest", far.nearest, words) for words in ROWS),
            ]
        return [
            {
                "from": name,
                "distance": distance,
                "words": words,
                "pure": words * self.loss(distance),
                **{f"{delta:g}": self.loss_beyond(delta, distance, words) for delta in DELTAS},
            }
            for name, distance, words in compared
        ]

    def to_json(self) -> dict[str, Any]:
        """Give the guarantee as JSON-ready values."""
        return {
            **{name: value for name, value in asdict(self).items() if name != "law"},
            "assumptions": list(self.assumptions),
            "remarks": list(self.remarks),
            "losses": self.losses(),
            "summary": self.summary(),
            "words": self.describe(),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._headline}, {self.metric})"

    @property
    def _headline(self) -> str:
        shifts = "an output word shifts the odds between any two input words"
        if self.distances is None:
            shifts = "a released vector shifts the odds between any two inputs"
        bound = f"exp({rounded_up(self.epsilon, 6)} x distance)"
        return f"{self.mechanism}, epsilon {self.configured_epsilon:g}: {shifts} by at most {bound}"

    def summary(self) -> str:
        """Say in three lines what is protected, the bound for nearly all outputs, and the worst case."""
        losses, delta = self.losses(), f"{DELTAS[0]:g}"
        two = (
            "two inputs at distance 1"
            if self.distances is None
            else "a word and its nearest neighbour"
        )
        return (
            f"{self._headline}.\n"
            f"Nearly all outputs: odds between {two} shift by at most {factor(losses[0][delta])} "
            f"(except with probability {delta}).\n"
            f"Worst case: {factor(losses[0]['pure'])}. {self._weakness(losses)}".rstrip()
        )

    def describe(self) -> str:
        """Say the guarantee in plain words."""
        losses, far = self.losses(), self.distances
        capped = (
            "" if self.truncation is None else f", counted up to {rounded_up(self.truncation, 6)}"
        )
        named = " or ".join(f"{delta:g}" for delta in DELTAS)
        one = f"a typical word (medians over {far.sample})" if far else "an input"
        lines = [
            f"{self._headline}, where the distance is the {self.metric}{capped}.",
            *self.remarks,
            f"Except with probability {named} the factor is smaller. Between {one} and",
        ]
        for loss in losses:
            beyond = " or ".join(factor(loss[f"{delta:g}"]) for delta in DELTAS)
            away = (
                rounded_up(loss["distance"])
                if loss["from"] == FARTHEST
                else f"{loss['distance']:.3g}"
            )
            name = loss["from"] if loss["words"] > 1 else f"{loss['from']}, {away} away"
            lines.append(f"  {name}: {beyond}; worst case {factor(loss['pure'])}")
        lines += filter(None, [self._weakness(losses)])
        if far is not None:
            lines.append(
                "Each word gets its own noise. If an observer knows the row's other words, or they "
                "are unrelated to this one, the whole output reveals no more than this. Words in a "
                "text are correlated: for everyone else neighbouring outputs also leak "
                "information, and the bounds of all words that may differ add up."
            )
        lines.append(
            f"This holds in exact arithmetic. With uniforms of {UNIFORM_BITS} bits the "
            f"probabilities of "
            "outputs differ; for this search it is not bounded by how much."
            if self.delta_num is None
            else f"With uniforms of {UNIFORM_BITS} bits the probabilities of an output are within delta_num "
            f"= {rounded_up(self.delta_num)} of the proven ones (k outputs: k times that). A "
            f"factor f except "
            "with probability p becomes f except with probability p + (1 + f) delta_num. The worst "
            "case is that of exact arithmetic."
        )
        if self.euclidean_epsilon not in (None, self.epsilon):
            proven = rounded_up(self.euclidean_epsilon, 6)
            lines.append(f"In the embedding's Euclidean distance the proven epsilon is {proven}.")
        lines.append(f"Proof: {self.source}. It assumes: {'; '.join(self.assumptions)}.")
        return "\n".join(lines)

    def _weakness(self, losses: Sequence[Mapping[str, Any]]) -> str:
        """Say where a bound protects too little by itself; nothing where it does not."""
        weaknesses = {
            0: "This bound alone is too weak",
            2: "By itself it protects among nearest words at best",
        }
        for place, said in weaknesses.items() if self.distances is not None else ():
            if losses[place][f"{DELTAS[0]:g}"] > WEAK_LOSS:
                return f"{said}: measure how often words are replaced."
        return ""


def rounded_up(value: float, digits: int = 3) -> str:
    """Write a bound, 0 or more and finite, with that many significant digits, never below itself."""
    exact = Decimal(repr(value))  # the name of the float, by which people mean it: 0.1 is 0.1
    if not exact:
        return "0"
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    shown = exact.quantize(unit, ROUND_CEILING)
    return f"{shown.normalize():f}" if -5 <= exact.adjusted() < 6 else f"{shown.normalize():e}"


def factor(loss: float) -> str:
    """Write exp(loss), a bound, so that a person can feel it, without overflow and never below itself."""
    small = loss < WEAK_LOSS
    number = rounded_up(1.0 + math.expm1(loss) * _SLACK, 4) if small else rounded_up(loss)
    grouped = number if "e" in number else f"{Decimal(number):,f}"
    return grouped if small else f"e^{grouped}"
