"""Limits that a setting is chosen by: of a risk, or of a use."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dptext_spark.calibration.limit import Limit, Meaning
from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.evaluation.attackers import ATTACKERS, STRONGEST, TOP
from dptext_spark.evaluation.classes import unknown_class
from dptext_spark.evaluation.comparison import KEEPING, Comparison, Outcome
from dptext_spark.evaluation.measures import (
    MEASURES,
    LabelMeasure,
    Measure,
    Risk,
    WordOverlap,
    measure_named,
)

_GUESSES: Final = {f"top{number}": number for number in TOP}


def _named(kind: str) -> list[str]:
    """Return how targets write measures of a kind, recovery apart."""
    forms = []
    for measure in MEASURES.values():
        if measure.kind == kind and not isinstance(measure, Risk):
            forms += measure.forms
    return forms


_MET_BY_CHANCE: Final = "random words meet this target, too"
_NEVER_FAILED: Final = "the originals meet this target, too: no setting can fail it"
_NEVER_MET: Final = (
    "the floor, without a release or of random words, misses this target: no setting can meet it"
)
_MISSED_BY_ORIGINALS: Final = "models that learn from the originals miss this target, too"


class Verdict(NamedTuple):
    """Whether a target says anything of settings."""

    remark: str = ""  # what is wrong with it, without a full stop
    is_idle: bool = False  # whether nothing is chosen by it, as it is met anyway


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2``, ``singled_out(2) <= 0.05`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of
    those that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, RISK <= NUMBER or "
        f"USE >= NUMBER; K {' or '.join(map(str, TOP))}; "
        f"ATTACKER {' or '.join([STRONGEST, *ATTACKERS])}, or that of an --attacker; "
        f"RISK {', '.join(_named('risk'))}; USE {', '.join(_named('use'))}; "
        "CLASS a value of the --label; NUMBER between 0 and 1"
    )

    keeping: str = KEEPING

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        own = MEASURES.get(measure)
        if isinstance(own, Risk) and arguments and arguments[0] in _GUESSES:
            guesses, *others = arguments
            attacker = (
                others.pop(0) if others and others[0] in (STRONGEST, *ATTACKERS) else own.attacker
            )
            versions = others.pop(0) if others else "1"
            counted = versions.isdecimal() and not versions.startswith("0") and not others
            return ((guesses, attacker, versions), "<=", 1.0) if counted else None
        if own is None or isinstance(own, Risk) or own.given(arguments) is None:
            return None
        return arguments, "<=" if own.kind == "risk" else ">=", 1.0

    @classmethod
    def arguments_of(cls, measure: str, inside: str) -> tuple[str, ...]:
        if isinstance(MEASURES.get(measure), LabelMeasure):  # a class may have commas
            return (inside.strip(),)
        return super().arguments_of(measure, inside)

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

    @property
    def use(self) -> str:
        """What is to be kept: what the limit is of, or else ``keeping``."""
        limited = self.limited
        return limited.written if limited.kind == "use" else self.keeping

    def check_class(self, classes: Collection[str]) -> None:
        """Refuse a class of the label that is none of these."""
        limited = self.limited
        label = limited.label if isinstance(limited, LabelMeasure) else None
        if label is not None and label not in classes:
            raise unknown_class(label, len(classes))

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

        It holds although the choice looked at all: each has a share of the chance of error
        (Bonferroni).
        """
        each, limited = 1.0 - (1.0 - confidence) / len(comparison.outcomes), self.limited
        is_risk = limited.kind == "risk"

        def worth(outcome: Outcome) -> tuple[float, float]:
            measures = limited if is_risk else self.risk, measure_named(self.keeping)
            risked, kept = (own.value(outcome.sums, each) for own in measures)
            least = -math.inf if math.isnan(kept[1]) else kept[1]
            return (least, -risked[2]) if is_risk else (-risked[2], least)

        safe = [own for own in comparison.outcomes if self.margin(own, confidence=each) >= 0.0]
        return max(safe, key=worth, default=None)

    def verdict(self, thirds: Sequence[Comparison]) -> Verdict:
        """Judge the limit by what comes without a release, and without noise, in each of these thirds."""
        limited = self.limited
        floors = [third.floor_of(limited) for third in thirds]
        ceilings = [third.ceiling(limited) for third in thirds]
        is_risk = limited.kind == "risk"
        for value in ceilings if is_risk else floors:
            if self.met(value):
                how = _NEVER_FAILED if is_risk else _MET_BY_CHANCE
                return Verdict(f"{how} ({value:.3g})", is_idle=True)
        ends = floors if is_risk else ceilings
        if any(math.isnan(value) or self.met(value) for value in ends):
            return Verdict()
        how = _NEVER_MET if is_risk else _MISSED_BY_ORIGINALS
        return Verdict(f"{how} ({ends[0]:.3g})")
