"""evaluation.json: what an evaluation found, which setting to take, and how that held on other rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from dptext_spark.calibration.record import option_line
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import Comparison, Outcome, Risk
from dptext_spark.evaluation.goal import Goal
from dptext_spark.evaluation.measures import ATTRIBUTION
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

# Names in the folder of an evaluation.
FILE: Final = "evaluation.json"
PAGE: Final = "report.html"
TABLES: Final = ("settings", "risk", "utility")

FORMAT_VERSION: Final = 3

RELEASE: Final = "The release:"
"""What the command of the recommended release is led by."""

PRIVATE: Final = "Facts about private rows, for those who may read them."


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The findings of one evaluation; what evaluation.json holds."""

    value: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        whole: Comparison,
        thirds: Sequence[Comparison],
        *,
        goal: Goal | None,
        confidence: float,
        command: Callable[[Mechanism, Search], str],
        facts: Mapping[str, Any],
    ) -> Self:
        """Put together what was measured, and choose.

        Args:
            whole: Of all attacked rows.
            thirds: Of the third that a setting is chosen on, and of the one that it is checked on. With
                fewer, as of very few rows, nothing is chosen.
            goal: What is asked for, if anything.
            confidence: Of each interval, and of the choice.
            command: Writes the command of a release with a setting.
            facts: Of the run, JSON-ready: options, embedding, sample, corpus, guarantee, versions.

        Raises:
            ConfigError: The goal's risk was not measured.
        """
        concern = goal.concern if goal else Risk()
        best = whole.front(concern)
        chosen = None if goal is None else _chosen(goal, whole, thirds, confidence, command)
        number = None if chosen is None else chosen["number"]
        return cls(
            value={
                "format_version": FORMAT_VERSION,
                "remark": f"{PRIVATE} {STRONGER}",
                "concern": {
                    "attacker": concern.attacker,
                    "guesses": concern.guesses,
                    "versions": concern.versions,
                },
                "confidence": confidence,
                **facts,
                "settings": [
                    _summary(whole, outcome, concern, confidence)
                    | {"on_front": outcome in best, "recommended": i == number}
                    for i, outcome in enumerate(whole.outcomes)
                ],
                "risk": _plain(whole.risk(confidence=confidence).to_pylist()),
                "utility": _plain(whole.utility(confidence=confidence).to_pylist()),
                "target": chosen,
            }
        )

    def to_json(self) -> str:
        """Write the findings as JSON text."""
        return json.dumps(self.value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say what each setting gives away and keeps, and which one to take, in plain words."""
        value = self.value
        sample, corpus = value["sample"], value["corpus"]
        lines = [
            PRIVATE,
            f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
            f"{sample['attacked']:,} are attacked ({sample['perturbed']:,} words).",
            f"Attackers ({told(value['concern'])}) learn the language from {corpus['from']}.",
            STRONGER,
            "",
            *_table(value["settings"]),
        ]
        return "\n".join([*lines, *([""] if value["target"] else []), *advice(value)])


def told(concern: Mapping[str, Any]) -> str:
    """Say which attackers are meant."""
    guesses = "one guess" if concern["guesses"] == 1 else f"{concern['guesses']} guesses"
    versions = "one version" if concern["versions"] == 1 else f"{concern['versions']} versions"
    return f"{concern['attacker']}, {guesses}, {versions} of each row"


def advice(value: Mapping[str, Any]) -> Iterator[str]:
    """Say which setting to take for the target, and how it held on the last third; nothing without one."""
    if not (target := value["target"]):
        return
    share = f"{100 * value['confidence']:g}%"
    limit = "upper limit" if "<=" in target["target"] else "lower limit"
    if target["options"] is None:
        yield f"Target {target['target']}: no setting here meets it with {share} confidence."
        if closest := target["closest"]:
            yield f"The closest is {closest['options']}: {limit} {closest['bound']:.3g}."
        return
    chosen, checked = target["chosen_on"], target["checked_on"]
    yield f"Target {target['target']}: take {target['options']}"
    yield (
        f"Chosen on {chosen['rows']:,} rows: {chosen['measured']:.3g}, {limit} {chosen['bound']:.3g} "
        f"({share} confidence, of the choice among {len(value['settings'])})."
    )
    found = {
        (True, True): "the target is met there, too",
        (True, False): "the measured number meets the target there, its limit does not",
        (False, False): "THE TARGET IS MISSED THERE: evaluate more rows",
    }[checked["met"], checked["met_by_limit"]]
    yield (
        f"Checked on {checked['rows']:,} other rows: {checked['measured']:.3g}, {limit} "
        f"{checked['bound']:.3g} ({share} confidence); {found}."
    )
    yield from _beside_told(target["beside"])
    yield f"{RELEASE} {target['command']}"


def _beside_told(beside: Mapping[str, Any]) -> Iterator[str]:
    """Say what comes with the limit, and where that is nothing."""
    measure, floor = beside["measure"], _number(beside["floor"])
    told = f"{_number(beside['value'])} ({_number(beside['low'])} to {_number(beside['high'])})"
    if measure == "recovered":
        yield f"Share of words recovered there: {told}; without any output {floor}."
        return
    nothing = None not in (beside["low"], beside["floor"]) and beside["low"] <= beside["floor"]
    useless = " THAT IS NO MORE THAN RANDOM WORDS KEEP: try other settings, or allow more." if nothing else ""
    yield f"It keeps {measure} {told} there, where random words keep {floor}.{useless}"


def _chosen(
    goal: Goal,
    whole: Comparison,
    thirds: Sequence[Comparison],
    confidence: float,
    command: Callable[[Mechanism, Search], str],
) -> dict[str, Any]:
    """Choose on the first of these thirds and check on the second."""
    names = ("number", "options", "command", "chosen_on", "checked_on", "beside", "closest")
    row: dict[str, Any] = {"target": str(goal), **dict.fromkeys(names)}
    if len(thirds) < 2:
        return row
    each = 1.0 - (1.0 - confidence) / len(whole.outcomes)
    best = goal.choose(thirds[0], confidence=confidence)
    if best is None:
        bounds = [goal.of(thirds[0], outcome, confidence=each).bound for outcome in thirds[0].outcomes]
        number = bounds.index(min(bounds) if goal.upper else max(bounds))
        return row | {
            "closest": {"options": whole.option_line(whole.outcomes[number]), "bound": bounds[number]}
        }
    number = [outcome is best for outcome in thirds[0].outcomes].index(True)
    mine = goal.of(thirds[0], best, confidence=each)
    other = goal.of(thirds[1], thirds[1].outcomes[number], confidence=confidence)
    return row | {
        "number": number,
        "options": whole.option_line(whole.outcomes[number]),
        "command": command(best.mechanism, best.search),
        "chosen_on": {"rows": _rows(thirds[0]), "measured": mine.measured, "bound": mine.bound},
        "checked_on": {
            "rows": _rows(thirds[1]),
            "measured": other.measured,
            "bound": other.bound,
            "met": goal.met(other.measured),
            "met_by_limit": goal.met(other.bound),
        },
        "beside": _beside(goal, thirds[1], thirds[1].outcomes[number], confidence),
    }


def _beside(goal: Goal, checked: Comparison, outcome: Outcome, confidence: float) -> dict[str, Any]:
    """What comes with a limit that is kept to: of a risk what is left of use, of a use what is at risk."""
    if not goal.is_risk:
        value, low, high = goal.concern.of(outcome).share(confidence)
        floor = goal.concern.floor(checked.outcomes[0])
        return {"measure": "recovered", "value": value, "floor": floor, "low": low, "high": high}
    name = goal.concern.keeping
    (value, low, high), (floor, *_) = checked.measures(outcome, confidence)[name]
    found = {"measure": name, "value": value, "low": low, "high": high, "floor": floor}
    return _plain([found])[0]


def _rows(comparison: Comparison) -> int:
    """Rows that have words which are perturbed."""
    return int(comparison.outcomes[0].floor.sums["recovered/1/considered"].rows[0])


def _summary(comparison: Comparison, outcome: Outcome, concern: Risk, confidence: float) -> dict[str, Any]:
    """A row of the table of settings."""
    value, low, high = concern.of(outcome).share(confidence)
    found = {"recovered": value, "recovered_low": low, "recovered_high": high}
    found["recovered_floor"] = concern.floor(comparison.outcomes[0])
    measures = comparison.measures(outcome, confidence)
    for name in (n for n in ("similarity", "kept", "accuracy") if n in measures):
        (value, low, high), floor = measures[name]
        found |= {name: value, f"{name}_low": low, f"{name}_high": high, f"{name}_floor": floor[0]}
    if ATTRIBUTION in outcome.totals.sums:
        value, low, high = outcome.totals.sums[ATTRIBUTION].share(confidence)
        found |= {"attributed": value, "attributed_low": low, "attributed_high": high}
        found["attributed_floor"] = outcome.floor.sums[ATTRIBUTION].share(confidence)[0]
    row = {
        **comparison.named(outcome),
        "options": comparison.option_line(outcome),
        "of_mechanism": option_line(outcome.mechanism),
        "release_words": outcome.search.release_words,
        "search": outcome.search.label,
        **found,
        "error": outcome.error,
    }
    return _plain([row])[0]


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with None where there is no number, as JSON has it."""
    return [
        {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
        for row in rows
    ]


_COLUMNS: Final = {
    "recovered": "recovered",
    "recovered_floor": "floor",
    "similarity": "similarity",
    "similarity_floor": "floor",
    "kept": "unchanged",
}
_CLASSIFIED: Final = {
    "attributed": {"attributed": "attributed", "attributed_floor": "floor"},
    "accuracy": {"accuracy": "accuracy", "accuracy_floor": "floor"},
}


def _table(settings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = dict(_COLUMNS)
    for name, more in _CLASSIFIED.items():
        columns |= more if name in settings[0] else {}
    table = [["", *columns.values(), "no other beats it"]]
    for row in settings:
        cells = {name: _share(row[name]) for name in columns}
        cells |= {name: _number(row[name]) for name in ("similarity", "similarity_floor")}
        cells["recovered"] += f" ({_share(row['recovered_low'])} to {_share(row['recovered_high'])})"
        table.append([row["options"], *cells.values(), "yes" if row["on_front"] else ""])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *others in table:
        cells_of = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([f"{first:{widths[0]}}", *cells_of]).rstrip()


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
