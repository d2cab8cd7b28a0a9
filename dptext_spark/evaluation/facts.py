"""What an evaluation found: a dict of facts, which is evaluation.json, and what it says on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import Comparison, Outcome, Risk
from dptext_spark.evaluation.measures import ATTRIBUTION
from dptext_spark.evaluation.target import Target
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

FILE: Final = "evaluation.json"
TABLES: Final = ("settings", "risk", "utility")

FORMAT_VERSION: Final = 3

PRIVATE: Final = "Facts about private rows, for those who may read them."


def facts_of(
    thirds: Sequence[Comparison],
    *,
    target: Target | None,
    confidence: float,
    command: Callable[[Mechanism, Search], str],
    **facts: Any,
) -> dict[str, Any]:
    """Put together what was measured, and choose.

    Args:
        thirds: Of the third that a setting is chosen on, and of the one that it is checked on; with fewer,
            as of very few rows, nothing is chosen. Together they are all attacked rows.
        target: What is asked for, if anything.
        confidence: Of each interval, and of the choice.
        command: Writes the command of a release with a setting.
        facts: JSON-ready: ``options``, ``embedding``, ``sample``, ``corpus``, ``guarantee`` and ``versions``.

    Raises:
        ConfigError: The target's risk was not measured.
    """
    whole, risk = reduce(add, thirds), target.risk if target else Risk()
    front = whole.front(risk)
    chosen = None if target is None else _chosen(target, whole, thirds, confidence, command)
    number = None if chosen is None else chosen["number"]
    return {
        "format_version": FORMAT_VERSION,
        "remark": f"{PRIVATE} {STRONGER}",
        "concern": {"attacker": risk.attacker, "guesses": risk.guesses, "versions": risk.versions},
        "confidence": confidence,
        **facts,
        "settings": [
            _setting(whole, own, risk, confidence) | {"on_front": own in front, "recommended": i == number}
            for i, own in enumerate(whole.outcomes)
        ],
        "risk": [_plain(row) for row in whole.risk(confidence=confidence).to_pylist()],
        "utility": [_plain(row) for row in whole.utility(confidence=confidence).to_pylist()],
        "target": chosen,
    }


def _chosen(
    target: Target,
    whole: Comparison,
    thirds: Sequence[Comparison],
    confidence: float,
    command: Callable[[Mechanism, Search], str],
) -> dict[str, Any]:
    """Choose on the first of these thirds and check on the second."""
    names = ("number", "options", "command", "chosen_on", "checked_on", "beside", "closest")
    row: dict[str, Any] = {"target": str(target), **dict.fromkeys(names)}
    if len(thirds) < 2:
        return row
    first, second = thirds
    each = 1.0 - (1.0 - confidence) / len(whole.outcomes)
    mine = [target.of(first, outcome, confidence=each) for outcome in first.outcomes]
    best = target.choose(first, confidence=confidence)
    if best is None:
        bounds = [bound for _, bound in mine]
        number = bounds.index(min(bounds) if target.upper else max(bounds))
        return row | {"closest": {"options": whole.options(whole.outcomes[number]), "bound": bounds[number]}}
    number = [outcome is best for outcome in first.outcomes].index(True)
    other = second.outcomes[number]
    judged = {
        name: {"rows": _rows(third), "measured": measured, "bound": bound}
        for name, third, (measured, bound) in (
            ("chosen_on", first, mine[number]),
            ("checked_on", second, target.of(second, other, confidence=confidence)),
        )
    }
    checked = judged["checked_on"]
    checked |= {"met": target.met(checked["measured"]), "met_by_limit": target.met(checked["bound"])}
    # What comes with a limit that is kept to: of a risk what is left of use, of a use what is at risk.
    measure: str = target.keeping if target.is_risk else "recovered"
    value, floor = target.risk.sums(other.totals).share(confidence), target.risk.floor(other)
    if target.is_risk:
        value, (floor, *_) = second.measures(other, confidence)[measure]
    return row | {
        "number": number,
        "options": whole.options(whole.outcomes[number]),
        "command": command(best.mechanism, best.search),
        **judged,
        "beside": _plain({"measure": measure, **_within("", *value), "floor": floor}),
    }


def _rows(comparison: Comparison) -> int:
    """Rows that have words which are perturbed."""
    return int(comparison.outcomes[0].floor.sums["recovered/1/considered"].rows[0])


def _setting(comparison: Comparison, outcome: Outcome, risk: Risk, confidence: float) -> dict[str, Any]:
    """A row of the table of settings."""
    shown = {"recovered": (risk.sums(outcome.totals).share(confidence), risk.floor(outcome))}
    measures = comparison.measures(outcome, confidence)
    for name in (n for n in ("similarity", "kept", "accuracy") if n in measures):
        shown[name] = measures[name][0], measures[name][1][0]
    if ATTRIBUTION in outcome.totals.sums:
        own, floor = (totals.sums[ATTRIBUTION] for totals in (outcome.totals, outcome.floor))
        shown["attributed"] = own.share(confidence), floor.share(confidence)[0]
    row = {
        **comparison.named(outcome),
        "options": comparison.options(outcome),
        "of_mechanism": outcome.mechanism.options,
        "release_words": outcome.search.release_words,
        "search": outcome.search.label,
    }
    for key, (value, least) in shown.items():
        row |= {**_within(key, *value), f"{key}_floor": least}
    return _plain(row | {"error": outcome.error})


def _within(name: str, value: float, low: float, high: float) -> dict[str, float]:
    """A number and its limits, under a name or none."""
    lead = f"{name}_" if name else ""
    return {name or "value": value, f"{lead}low": low, f"{lead}high": high}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with None where there is no number, as JSON has it."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}


# In words

_COLUMNS: Final = {
    "recovered": "recovered",
    "recovered_floor": "floor",
    "similarity": "similarity",
    "similarity_floor": "floor",
    "kept": "unchanged",
}
_CLASSIFIED: Final = ("attributed", "accuracy")


def said(facts: Mapping[str, Any]) -> Iterator[Any]:
    """Say what each setting gives away and keeps, and which one to take: blocks of lines and a table."""
    sample, settings = facts["sample"], facts["settings"]
    yield [
        PRIVATE,
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked ({sample['perturbed']:,} words).",
        f"Attackers ({attackers(facts)}) learn the language from {facts['corpus']['from']}.",
        STRONGER,
    ]
    columns = dict(_COLUMNS)
    for name in _CLASSIFIED:
        columns |= {name: name, f"{name}_floor": "floor"} if name in settings[0] else {}
    rows = [["", *columns.values(), "no other beats it"]]
    for row in settings:
        cells = {name: (number if "similarity" in name else share)(row[name]) for name in columns}
        cells["recovered"] += f" ({share(row['recovered_low'])} to {share(row['recovered_high'])})"
        rows.append([row["options"], *cells.values(), "yes" if row["on_front"] else ""])
    yield {"table": rows}
    if lines := list(advice(facts)):
        if command := facts["target"]["command"]:
            lines.append(f"The release: {command}")
        yield lines


def attackers(facts: Mapping[str, Any]) -> str:
    """Say which attackers are meant."""
    asked = facts["concern"]
    guesses = "one guess" if asked["guesses"] == 1 else f"{asked['guesses']} guesses"
    versions = "one version" if asked["versions"] == 1 else f"{asked['versions']} versions"
    return f"{asked['attacker']}, {guesses}, {versions} of each row"


def advice(facts: Mapping[str, Any]) -> Iterator[str]:
    """Say which setting to take for the target, and how it held on the last third; nothing without one."""
    if not (target := facts["target"]):
        return
    sure = f"{100 * facts['confidence']:g}% confidence"
    limit = "upper limit" if "<=" in target["target"] else "lower limit"
    if target["options"] is None:
        yield f"Target {target['target']}: no setting here meets it with {sure}."
        if closest := target["closest"]:
            yield f"The closest is {closest['options']}: {limit} {closest['bound']:.3g}."
        return
    chosen, checked, beside = target["chosen_on"], target["checked_on"], target["beside"]
    yield f"Target {target['target']}: take {target['options']}"
    yield (
        f"Chosen on {chosen['rows']:,} rows: {chosen['measured']:.3g}, {limit} {chosen['bound']:.3g} "
        f"({sure}, of the choice among {len(facts['settings'])})."
    )
    held = {
        (True, True): "the target is met there, too",
        (True, False): "the measured number meets the target there, its limit does not",
        (False, False): "THE TARGET IS MISSED THERE: evaluate more rows",
    }[checked["met"], checked["met_by_limit"]]
    yield (
        f"Checked on {checked['rows']:,} other rows: {checked['measured']:.3g}, {limit} "
        f"{checked['bound']:.3g} ({sure}); {held}."
    )
    value, low, high, floor = (number(beside[name]) for name in ("value", "low", "high", "floor"))
    if beside["measure"] == "recovered":
        yield f"Share of words recovered there: {value} ({low} to {high}); without any output {floor}."
        return
    nothing = None not in (beside["low"], beside["floor"]) and beside["low"] <= beside["floor"]
    useless = " THAT IS NO MORE THAN RANDOM WORDS KEEP: try other settings, or allow more." if nothing else ""
    yield (
        f"It keeps {beside['measure']} {value} ({low} to {high}) there, where random words keep {floor}."
        f"{useless}"
    )


def share(value: float | None) -> str:
    """Write a share; a dash for None."""
    return "-" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Write a number with three digits after the point; a dash for None."""
    return "-" if value is None else f"{value:.3f}"
