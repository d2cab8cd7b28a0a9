"""Limits that a setting is chosen by: of a risk, or of a use."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from dptext_spark.calibration.facts import Limit, Meaning
from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.evaluation.attackers import ATTACKERS, STRONGEST, TOP
from dptext_spark.evaluation.comparison import KEEPING, Comparison, Outcome
from dptext_spark.evaluation.measures import MEASURES, Measure, Risk, WordOverlap

_GUESSES: Final = {f"top{number}": number for number in TOP}


def _named(kind: str) -> list[str]:
    several = (own.variants for own in MEASURES.values() if own.kind == kind and not isinstance(own, Risk))
    return [variant.label for variants in several for variant in variants]


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2``, ``singled_out(2) <= 0.05`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of those
    that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, RISK <= NUMBER or "
        f"USE >= NUMBER; K {' or '.join(map(str, TOP))}; ATTACKER {' or '.join([STRONGEST, *ATTACKERS])}; "
        f"RISK {', '.join(_named('risk'))}; USE {', '.join(_named('use'))}; NUMBER between 0 and 1"
    )

    keeping: str = KEEPING

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        own = MEASURES.get(measure)
        if isinstance(own, Risk) and arguments and arguments[0] in _GUESSES:
            guesses, *others = arguments
            attacker = others.pop(0) if others and others[0] in (STRONGEST, *ATTACKERS) else own.attacker
            versions = others.pop(0) if others else "1"
            counted = versions.isdecimal() and not versions.startswith("0") and not others
            return ((guesses, attacker, versions), "<=", 1.0) if counted else None
        if own is None or isinstance(own, Risk) or own.given(arguments) is None:
            return None
        return arguments, "<=" if own.kind == "risk" else ">=", 1.0

    @property
    def limited(self) -> Measure:
        """What the limit is of."""
        own = MEASURES[self.measure]
        if not isinstance(own, Risk):
            return own.given(self.arguments) or own
        guesses, attacker, versions = self.arguments
        return replace(own, attacker=attacker, guesses=_GUESSES[guesses], versions=int(versions))

    @property
    def risk(self) -> Risk:
        """Whose recovery it is; where another measure is asked for, which one is to be small."""
        own = self.limited
        return own if isinstance(own, Risk) else Risk()

    def of(self, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Give what a setting was measured to have, and the end of its interval on the side that matters."""
        value, low, high = self.limited.value(outcome.sums, confidence)
        return value, high if self.upper else low

    def margin(self, outcome: Outcome, *, confidence: float) -> float:
        """Give how far a setting keeps to the limit, below 0 where it misses it; an overlap as measured."""
        value, bound = self.of(outcome, confidence=confidence)
        judged = value if isinstance(self.limited, WordOverlap) else bound
        return self.limit - judged if self.upper else judged - self.limit

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        It holds although the choice looked at all: each has a share of the chance of error (Bonferroni).
        """
        each, limited = 1.0 - (1.0 - confidence) / len(comparison.outcomes), self.limited
        is_risk = limited.kind == "risk"

        def worth(outcome: Outcome) -> tuple[float, float]:
            measures = limited if is_risk else self.risk, MEASURES[self.keeping]
            risked, kept = (own.value(outcome.sums, each) for own in measures)
            least = -math.inf if math.isnan(kept[1]) else kept[1]
            return (least, -risked[2]) if is_risk else (-risked[2], least)

        safe = [own for own in comparison.outcomes if self.margin(own, confidence=each) >= 0.0]
        return max(safe, key=worth, default=None)
