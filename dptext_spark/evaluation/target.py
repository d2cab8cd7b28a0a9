"""What a user asks of a release: a limit of a risk or of a use, and which setting to take for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, cast, get_args

from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.attackers import TOP, AttackerName
from dptext_spark.evaluation.comparison import CONFIDENCE, Comparison, Outcome, Risk, Use
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.measures import ATTRIBUTION, LABELLED
from dptext_spark.limit import Limit, Meaning

RECOVERY: Final = "recovery"

MEASURES: Final = (
    *("kept", "distance", "similarity"),
    *(f"{kind}_{name}" for kind in ("word", "pair") for name in ("overlap", "agreement", "leaders")),
    *LABELLED,
)
"""What may be asked for of use; of a distance little is asked, of the others much."""

_GUESSES: Final = {f"top{number}": number for number in TOP}


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of those
    that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, attribution <= NUMBER, "
        f"MEASURE >= NUMBER or distance <= NUMBER; K {' or '.join(map(str, TOP))}; ATTACKER "
        f"{' or '.join(get_args(AttackerName))}; MEASURE "
        f"{', '.join(name for name in MEASURES if name != 'distance')}; NUMBER between 0 and 1, of a "
        "distance above 0"
    )

    keeping: Use = "similarity"

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        if measure == RECOVERY and arguments and arguments[0] in _GUESSES:
            guesses, *others = arguments
            attacker = others.pop(0) if others and others[0] in get_args(AttackerName) else "in-context"
            versions = others.pop(0) if others else "1"
            counted = versions.isdecimal() and not versions.startswith("0") and not others
            return ((guesses, attacker, versions), "<=", 1.0) if counted else None
        if arguments or measure not in (ATTRIBUTION, *MEASURES):
            return None
        if measure == "distance":
            return (), "<=", math.inf
        return (), "<=" if measure == ATTRIBUTION else ">=", 1.0

    @property
    def is_risk(self) -> bool:
        """Whether the limit is of a risk."""
        return self.measure in (RECOVERY, ATTRIBUTION)

    @property
    def risk(self) -> Risk:
        """Whose recovery it is; where another measure is asked for, which one is to be small."""
        if self.measure != RECOVERY:
            return Risk(keeping=self.keeping)
        guesses, attacker, versions = self.arguments
        return Risk(
            attacker=cast(AttackerName, attacker),
            guesses=_GUESSES[guesses],
            versions=int(versions),
            keeping=self.keeping,
        )

    def of(self, comparison: Comparison, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Give what a setting was measured to have, and the end of its interval on the side that matters.

        A measure without an interval is its own bound.

        Raises:
            ConfigError: That risk was not measured.
        """
        if self.is_risk:
            value, _, high = self._sums(outcome).share(confidence)
            return value, high
        measures = outcome.totals.measures(comparison.before, confidence)
        if self.measure not in measures:
            raise ConfigError(
                "This use was not measured", allowed=", ".join(measures), got=self.measure, do="Give --label"
            )
        value, low, high = measures[self.measure]
        bound = high if self.upper else low
        return value, value if math.isnan(bound) else bound

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        The limit holds for the one that is chosen at this confidence, although the choice looked at all of
        them: each has an equal share of the chance of error (Bonferroni).

        Raises:
            ConfigError: That risk was not measured.
        """
        each = 1.0 - (1.0 - confidence) / len(comparison.outcomes)

        def worth(outcome: Outcome) -> tuple[float, float]:
            risk = -self._sums(outcome).share(each)[2]
            kept = outcome.totals.measures(comparison.before, each)[self.keeping][1]
            kept = -math.inf if math.isnan(kept) else kept
            return (kept, risk) if self.is_risk else (risk, kept)

        safe = [o for o in comparison.outcomes if self.met(self.of(comparison, o, confidence=each)[1])]
        return max(safe, key=worth, default=None)

    def _sums(self, outcome: Outcome) -> ClusterSums:
        if self.measure != ATTRIBUTION:
            return self.risk.of(outcome)
        if ATTRIBUTION not in outcome.totals.sums:
            raise ConfigError("This risk was not measured", got=ATTRIBUTION, do="Give --author")
        return outcome.totals.sums[ATTRIBUTION]
