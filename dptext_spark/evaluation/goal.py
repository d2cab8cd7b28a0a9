"""What a user asks of a release: a limit of a risk or of a use, and which setting to take for it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.attackers import ATTACKERS, TOP
from dptext_spark.evaluation.comparison import CONFIDENCE, Comparison, Outcome, Risk
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.measures import ATTRIBUTION, LABELLED

RECOVERY: Final = "recovery"

MEASURES: Final = (
    *("kept", "distance", "similarity"),
    *(f"{kind}_{name}" for kind in ("word", "pair") for name in ("overlap", "agreement", "leaders")),
    *LABELLED,
)
"""What may be asked for of use; of a distance little is asked, of the others much."""

_FORM: Final = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*(<=|>=)\s*(\S+)\s*")
_INSIDE: Final = re.compile(
    rf"\s*top(?P<top>\d+)\s*(?:,\s*(?P<attacker>{'|'.join(ATTACKERS)})\s*)?"
    r"(?:,\s*(?P<versions>[1-9]\d*)\s*)?"
)


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """What was measured of a setting, and the end of its interval on the side that matters."""

    measured: float
    bound: float


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A limit, such as ``recovery(top1) <= 0.2`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most similarity, or most of
    :attr:`Risk.keeping`; of those that keep to the limit of a use the one that risks least.

    Attributes:
        measure: ``recovery``, ``attribution``, or one of ``MEASURES``.
        concern: Whose recovery it is; where a use is asked for, which risk is to be small.
        limit: The most that is allowed, or the least.
    """

    measure: str
    concern: Risk
    limit: float

    def __str__(self) -> str:
        concern, sign = self.concern, "<=" if self.upper else ">="
        whose = f"(top{concern.guesses}, {concern.attacker}, {concern.versions})"
        inside = whose if self.measure == RECOVERY else ""
        return f"{self.measure}{inside} {sign} {self.limit:g}"

    @property
    def is_risk(self) -> bool:
        """Whether the limit is of a risk."""
        return self.measure in (RECOVERY, ATTRIBUTION)

    @property
    def upper(self) -> bool:
        """Whether the limit is the most that is allowed."""
        return self.is_risk or self.measure == "distance"

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Read ``recovery(topK[, ATTACKER][, VERSIONS]) <= NUMBER`` or ``MEASURE >= NUMBER``, and alike.

        Raises:
            ConfigError: The text says something else.
        """
        found = _FORM.fullmatch(text)
        measure, inside, sign, number = found.groups() if found else ("", None, "", "")
        concern = _concern(inside) if measure == RECOVERY else None if inside else Risk()
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        goal = cls(measure=measure, concern=concern or Risk(), limit=limit)
        known = measure in (RECOVERY, ATTRIBUTION, *MEASURES) and concern is not None
        most = math.inf if measure == "distance" else 1.0
        if not known or sign != ("<=" if goal.upper else ">=") or not 0.0 < limit < most:
            raise ConfigError(
                "The --target has a wrong value",
                allowed="recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, attribution "
                f"<= NUMBER, MEASURE >= NUMBER or distance <= NUMBER; K {' or '.join(map(str, TOP))}; "
                f"ATTACKER {' or '.join(ATTACKERS)}; MEASURE "
                f"{', '.join(name for name in MEASURES if name != 'distance')}; NUMBER between 0 and 1, of "
                "a distance above 0",
                got=repr(text),
            )
        return goal

    def keeping(self, use: Literal["similarity", "kept", "accuracy"]) -> Goal:
        """Give the same limit; of what is within it, what keeps most of this use is taken."""
        return replace(self, concern=replace(self.concern, keeping=use))

    def of(self, comparison: Comparison, outcome: Outcome, *, confidence: float) -> Bounded:
        """Give what a setting was measured to have of it; a measure without an interval is its own bound.

        Raises:
            ConfigError: That risk was not measured.
        """
        if self.is_risk:
            sums = self._risk(outcome)
            value, high = sums.ratio[0], sums.share_interval(confidence)[1][0]
            return Bounded(measured=float(value), bound=float(high))
        measures = outcome.totals.measures(comparison.before, confidence)
        if self.measure not in measures:
            raise ConfigError(
                "This use was not measured", allowed=", ".join(measures), got=self.measure, do="Give --label"
            )
        value, low, high = measures[self.measure]
        bound = high if self.upper else low
        return Bounded(measured=value, bound=value if math.isnan(bound) else bound)

    def _risk(self, outcome: Outcome) -> ClusterSums:
        if self.measure != ATTRIBUTION:
            return self.concern.of(outcome)
        if ATTRIBUTION not in outcome.totals.sums:
            raise ConfigError("This risk was not measured", got=ATTRIBUTION, do="Give --author")
        return outcome.totals.sums[ATTRIBUTION]

    def met(self, value: float) -> bool:
        """Say whether a number keeps to the limit; NaN does not."""
        return value <= self.limit if self.upper else value >= self.limit

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        The limit holds for the one that is chosen at this confidence, although the choice looked at all of
        them: each has an equal share of the chance of error (Bonferroni).

        Raises:
            ConfigError: That risk was not measured.
        """
        each = 1.0 - (1.0 - confidence) / len(comparison.outcomes)
        safe = [o for o in comparison.outcomes if self.met(self.of(comparison, o, confidence=each).bound)]
        return max(safe, key=lambda outcome: self._worth(comparison, outcome, each), default=None)

    def _worth(self, comparison: Comparison, outcome: Outcome, confidence: float) -> tuple[float, float]:
        risk = -float(self._risk(outcome).share_interval(confidence)[1][0])
        kept = outcome.totals.measures(comparison.before, confidence)[self.concern.keeping][1]
        kept = -math.inf if math.isnan(kept) else kept
        return (kept, risk) if self.is_risk else (risk, kept)


def _concern(inside: str | None) -> Risk | None:
    """Read what stands in the brackets of a recovery; None where it is something else."""
    found = _INSIDE.fullmatch(inside or "")
    if not found or int(found["top"]) not in TOP:
        return None
    attacker = found["attacker"] or Risk().attacker
    return Risk(attacker=attacker, versions=int(found["versions"] or 1), guesses=int(found["top"]))
