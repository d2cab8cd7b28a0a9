"""What a user asks of a release: a limit of a risk or of a use, and which setting to take for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from dptext_spark.evaluation.attackers import ATTACKERS, TOP
from dptext_spark.evaluation.comparison import CONFIDENCE, Comparison, Outcome
from dptext_spark.evaluation.measures import MEASURES, Measure, Risk
from dptext_spark.limit import Limit, Meaning

_GUESSES: Final = {f"top{number}": number for number in TOP}
_UPPER: Final = [
    name for name, own in MEASURES.items() if own.better == "lower" and not isinstance(own, Risk)
]


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of those
    that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, "
        f"{', '.join(f'{name} <= NUMBER' for name in _UPPER)} or MEASURE >= NUMBER; "
        f"K {' or '.join(map(str, TOP))}; ATTACKER {' or '.join(ATTACKERS)}; "
        f"MEASURE {', '.join(name for name, own in MEASURES.items() if own.better == 'higher')}; "
        "NUMBER between 0 and 1, of a distance above 0"
    )

    keeping: str = "similarity"

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        own = MEASURES.get(measure)
        if isinstance(own, Risk) and arguments and arguments[0] in _GUESSES:
            guesses, *others = arguments
            attacker = others.pop(0) if others and others[0] in ATTACKERS else own.attacker
            versions = others.pop(0) if others else "1"
            counted = versions.isdecimal() and not versions.startswith("0") and not others
            return ((guesses, attacker, versions), "<=", 1.0) if counted else None
        if own is None or arguments or isinstance(own, Risk):
            return None
        distance = own.kind == "use" and own.better == "lower"
        return (), "<=" if own.better == "lower" else ">=", math.inf if distance else 1.0

    @property
    def limited(self) -> Measure:
        """What the limit is of."""
        own = MEASURES[self.measure]
        if not isinstance(own, Risk):
            return own
        guesses, attacker, versions = self.arguments
        return replace(own, attacker=attacker, guesses=_GUESSES[guesses], versions=int(versions))

    @property
    def risk(self) -> Risk:
        """Whose recovery it is; where another measure is asked for, which one is to be small."""
        own = self.limited
        return replace(own if isinstance(own, Risk) else Risk(), keeping=self.keeping)

    def of(self, comparison: Comparison, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Give what a setting was measured to have, and the end of its interval on the side that matters.

        A measure without an interval is its own bound.

        Raises:
            ConfigError: That was not measured.
        """
        value, low, high = self.limited.value(outcome.totals, comparison.before, confidence)
        bound = high if self.upper else low
        return value, value if math.isnan(bound) else bound

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        The limit holds for the one that is chosen at this confidence, although the choice looked at all of
        them: each has an equal share of the chance of error (Bonferroni).

        Raises:
            ConfigError: That was not measured.
        """
        each, limited = 1.0 - (1.0 - confidence) / len(comparison.outcomes), self.limited
        is_risk = limited.kind == "risk"

        def worth(outcome: Outcome) -> tuple[float, float]:
            measures = limited if is_risk else self.risk, MEASURES[self.keeping]
            risked, kept = (own.value(outcome.totals, comparison.before, each) for own in measures)
            least = -math.inf if math.isnan(kept[1]) else kept[1]
            return (least, -risked[2]) if is_risk else (-risked[2], least)

        safe = [o for o in comparison.outcomes if self.met(self.of(comparison, o, confidence=each)[1])]
        return max(safe, key=worth, default=None)
