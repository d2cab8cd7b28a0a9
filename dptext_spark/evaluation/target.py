"""Targets of an evaluation, a limit of a risk or of a use, and the setting that meets one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from dptext_spark.calibration.limit import Limit, Meaning
from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.evaluation.attackers import ATTACKERS, STRONGEST, TOP
from dptext_spark.evaluation.classes import unknown_class
from dptext_spark.evaluation.comparison import KEEPING, Comparison, Outcome, without_nan
from dptext_spark.evaluation.measures import (
    MEASURES,
    LabelMeasure,
    Measure,
    Risk,
    Sums,
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


class Sense(NamedTuple):
    """Whether a target distinguishes settings at all."""

    remark: str = ""  # what is wrong with it, without a full stop
    is_idle: bool = False  # whether nothing is chosen by it, as it is met anyway


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2``, ``linked <= 0.3`` or ``similarity >= 0.9``.

    If the limit is of a risk, it chooses the setting within the limit that keeps most of
    ``keeping``. If it is of a use, it chooses the setting within the limit that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, RISK <= NUMBER or "
        f"USE >= NUMBER; K {' or '.join(map(str, TOP))}; "
        f"ATTACKER {' or '.join([STRONGEST, *ATTACKERS])}, or that of an --attacker; "
        f"RISK {', '.join(_named('risk'))}; USE {', '.join(_named('use'))}; "
        "CLASS a value of the --label; NUMBER between 0 and 1"
    )

    example = "recovery(top1) <= 0.2"

    keeping: str = KEEPING

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        limited = MEASURES.get(measure)
        if isinstance(limited, Risk):
            return _meaning_of_recovery(arguments)
        if limited is None or limited.with_arguments(arguments) is None:
            return None
        sign = "<=" if limited.kind == "risk" else ">="
        return arguments, sign, 1.0

    @classmethod
    def arguments_of(cls, measure: str, inside: str) -> tuple[str, ...]:
        if isinstance(MEASURES.get(measure), LabelMeasure):  # a class may have commas
            return (inside.strip(),)
        return super().arguments_of(measure, inside)

    @property
    def limited(self) -> Measure:
        """What the limit is of."""
        measure = MEASURES[self.measure]
        if not isinstance(measure, Risk):
            return measure.with_arguments(self.arguments) or measure
        guesses, attacker, versions = self.arguments
        return replace(
            measure, attacker=attacker, guesses=_GUESSES[guesses], versions=int(versions)
        )

    @property
    def risk(self) -> Risk:
        """Whose recovery it is; where another measure is asked for, which one is to be small."""
        limited = self.limited
        return limited if isinstance(limited, Risk) else Risk()

    @property
    def use(self) -> str:
        """What is to be kept: what the limit is of, or else ``keeping``."""
        limited = self.limited
        return limited.written if limited.kind == "use" else self.keeping

    def check_class(self, classes: Collection[str]) -> None:
        """Refuse a class of the label that is none of these."""
        limited = self.limited
        if not isinstance(limited, LabelMeasure) or limited.label is None:
            return
        if limited.label not in classes:
            raise unknown_class(limited.label, len(classes))

    def of(self, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Return a setting's measured value, and the end of its interval that matters."""
        value, low, high = self.limited.value(outcome.sums, confidence)
        return value, high if self.upper else low

    def margin(self, outcome: Outcome, *, confidence: float) -> float:
        """Return how far a setting keeps to the limit, below 0 where it misses it.

        An overlap counts as measured, as it has no interval.
        """
        value, bound = self.of(outcome, confidence=confidence)
        if isinstance(self.limited, WordOverlap):
            bound = value
        return self.limit - bound if self.upper else bound - self.limit

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Return the best setting whose limit of confidence keeps to the limit, if there is any."""
        of_each = share_of_confidence(confidence, len(comparison.outcomes))
        outcomes = comparison.outcomes
        safe = [one for one in outcomes if self.margin(one, confidence=of_each) >= 0.0]
        return max(safe, key=partial(self._worth, confidence=of_each), default=None)

    def _worth(self, outcome: Outcome, confidence: float) -> tuple[float, float]:
        """Return what is more of a better setting: first what the limit is not of."""
        is_risk = self.limited.kind == "risk"
        risk = self.limited if is_risk else _least_of(outcome.sums, self.risk)
        _, _, most_risked = risk.value(outcome.sums, confidence)
        _, least_kept, _ = measure_named(self.keeping).value(outcome.sums, confidence)
        if math.isnan(least_kept):
            least_kept = -math.inf
        if is_risk:
            return least_kept, -most_risked
        return -most_risked, least_kept

    def sense(self, thirds: Sequence[Comparison]) -> Sense:
        """Judge the limit by what comes without a release, and without noise, in these thirds."""
        limited = self.limited
        floors = [third.without_release(limited) for third in thirds]
        ceilings = [third.ceiling(limited) for third in thirds]
        if limited.kind == "risk":
            return self._sense(ceilings, _NEVER_FAILED, floors, _NEVER_MET)
        return self._sense(floors, _MET_BY_CHANCE, ceilings, _MISSED_BY_ORIGINALS)

    def _sense(
        self, worst: Sequence[float], idle: str, best: Sequence[float], missed: str
    ) -> Sense:
        """Judge the limit by the worst and the best that a setting can have."""
        for value in worst:
            if self.met(value):
                return Sense(f"{idle} ({value:.3g})", is_idle=True)
        if any(math.isnan(value) or self.met(value) for value in best):
            return Sense()
        return Sense(f"{missed} ({best[0]:.3g})")


def _meaning_of_recovery(arguments: tuple[str, ...]) -> Meaning | None:
    """Return the meaning of a share recovered: guesses, then an attacker and versions, if any."""
    if not arguments or arguments[0] not in _GUESSES:
        return None
    guesses, *rest = arguments
    attacker = Risk().attacker
    if rest and rest[0] in (STRONGEST, *ATTACKERS):
        attacker = rest.pop(0)
    versions = rest.pop(0) if rest else "1"
    if rest or not versions.isdecimal() or versions.startswith("0"):
        return None
    return (guesses, attacker, versions), "<=", 1.0


def share_of_confidence(confidence: float, settings: int) -> float:
    """Return the confidence of each setting, so that the choice among them has this one.

    The choice looks at all: each has a share of the chance of error (Bonferroni).
    """
    return 1.0 - (1.0 - confidence) / settings


def choice_of(target: Target, thirds: Sequence[Comparison], confidence: float) -> dict[str, Any]:
    """Return facts of the choice on the first of these thirds and the check on the second.

    Options and command of the setting are for the caller to fill in.
    """
    sense = target.sense(thirds)
    row: dict[str, Any] = {
        "target": str(target),
        "number": None,
        "options": None,
        "command": None,
        "closest": None,
        "chosen_on": None,
        "checked_on": None,
        "try": None,
        "remark": sense.remark or None,
        "idle": sense.is_idle,
    }
    if len(thirds) < 2 or sense.is_idle:
        return row
    of_choice, of_check = thirds
    outcomes = of_choice.outcomes
    of_each = share_of_confidence(confidence, len(outcomes))
    best = target.choose(of_choice, confidence=confidence)
    if best is None:
        closest = max(outcomes, key=partial(target.margin, confidence=of_each))
        numbers = _measured(target, closest, of_each)
        row["closest"] = {"options": closest.mechanism.options, **numbers}
        if not sense.remark:
            row["try"] = _next_setting(target, closest, of_choice, of_each)
        return row
    number = outcomes.index(best)
    row["number"] = number
    row["chosen_on"] = {
        "rows": _rows_with_words(of_choice),
        **_measured(target, best, of_each),
    }
    checked = of_check.outcomes[number]
    value, _ = target.of(checked, confidence=confidence)
    row["checked_on"] = {
        "rows": _rows_with_words(of_check),
        **_measured(target, checked, confidence),
        "met": target.met(value),
    }
    return row


def _next_setting(
    target: Target, closest: Outcome, comparison: Comparison, confidence: float
) -> dict[str, Any]:
    """Return an epsilon at which the closest setting may meet the target; whether more rows may do.

    The bound is taken to be linear in ln epsilon, as steep as between the measured settings of that
    mechanism, or from what there is without a release.
    """
    bounds = {}
    for outcome in comparison.outcomes:
        epsilon = outcome.key["epsilon"]
        if outcome.key == {**closest.key, "epsilon": epsilon}:
            _, bound = target.of(outcome, confidence=confidence)
            if not math.isnan(bound):
                bounds[math.log(epsilon)] = bound
    value, _ = target.of(closest, confidence=confidence)
    has_met = target.met(value)
    ends = sorted(bounds)
    if not ends:
        return {"epsilon": None, "rows": has_met}
    direction = 1.0
    if target.limited.kind == "risk":
        direction = -1.0
        ends.reverse()
    end = ends[-1]
    # As if what there is without a release were measured at a tenth.
    slopes = [(bounds[end] - comparison.without_release(target.limited)) / math.log(10.0)]
    if len(ends) > 1:
        slopes.append((bounds[ends[-2]] - bounds[end]) / (ends[-2] - end))
    slope = max(slopes)
    step = math.log(2.0)
    if slope > 0.0:
        step = abs(target.limit - bounds[end]) / slope
    # By a tenth at least; what is far away is guessed too badly.
    step = min(max(step, math.log(10.0 / 9.0)), math.log(4.0))
    epsilon = math.exp(end + direction * step)
    return {"epsilon": float(f"{epsilon:.2g}"), "rows": has_met}


def _measured(target: Target, outcome: Outcome, confidence: float) -> dict[str, float | None]:
    """Return what a setting was measured to have, and its bound, JSON-ready."""
    value, bound = target.of(outcome, confidence=confidence)
    return without_nan({"measured": value, "bound": bound})


def _rows_with_words(comparison: Comparison) -> int:
    """Return how many rows have words that are perturbed, or are behind vectors."""
    return int(_least_of(comparison.floor, Risk()).totals(comparison.floor).rows[0])


def _least_of(sums: Sums, recovery: Measure) -> Measure:
    """Return the risk that is to be small where the limit is of a use; of vectors another one."""
    behind_vectors = MEASURES["recovered_words"]
    return behind_vectors if behind_vectors.is_in(sums) else recovery
