"""What an evaluation found: a dict of facts, which is evaluation.json, and what it says on a terminal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import Comparison, Outcome, Target
from dptext_spark.evaluation.measures import MEASURES, Risk
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

FILE: Final = "evaluation.json"
FORMAT_VERSION: Final = 3
PRIVATE: Final = "Facts about private rows, for those who may read them."

Facts = Mapping[str, Any]


def facts_of(
    thirds: Sequence[Comparison],
    *,
    target: Target | None,
    confidence: float,
    command: Callable[[Mechanism, Search], str],
    **facts: Any,
) -> dict[str, Any]:
    """Put together what was measured, and choose; ``facts`` are JSON-ready.

    Args:
        thirds: Of the third that a setting is chosen on, and of the one that it is checked on; with fewer,
            as of very few rows, nothing is chosen. Together they are all attacked rows.
        command: Writes the command of a release with a setting.
    """
    whole, risk = reduce(add, thirds), target.risk if target else Risk()
    front = whole.front(risk)
    settings = [
        _setting(whole, own, risk, confidence) | {"on_front": own in front, "recommended": False}
        for own in whole.outcomes
    ]
    chosen = None if target is None else _chosen(target, thirds, settings, confidence)
    if chosen and (number := chosen["number"]) is not None:
        settings[number]["recommended"] = True
        best = whole.outcomes[number]
        chosen |= {"options": best.mechanism.options, "command": command(best.mechanism, best.search)}
    return {
        "format_version": FORMAT_VERSION,
        "remark": f"{PRIVATE} {STRONGER}",
        "concern": {"attacker": risk.attacker, "guesses": risk.guesses, "versions": risk.versions},
        "confidence": confidence,
        **facts,
        "settings": settings,
        "risk": [_plain(row) for row in whole.risk(confidence=confidence).to_pylist()],
        "utility": [_plain(row) for row in whole.utility(confidence=confidence).to_pylist()],
        "target": chosen,
    }


def _chosen(
    target: Target, thirds: Sequence[Comparison], settings: Sequence[Facts], confidence: float
) -> dict[str, Any]:
    """Choose on the first of these thirds and check on the second."""
    names = ("number", "options", "command", "chosen_on", "checked_on", "beside", "closest")
    row: dict[str, Any] = {"target": str(target), **dict.fromkeys(names)}
    if len(thirds) < 2:
        return row
    first, second = thirds
    each = 1.0 - (1.0 - confidence) / len(settings)
    measured = [target.of(first, outcome, confidence=each) for outcome in first.outcomes]
    best = target.choose(first, confidence=confidence)
    if best is None:
        bounds = [bound for _, bound in measured]
        number = bounds.index(min(bounds) if target.upper else max(bounds))
        return row | {"closest": {"options": settings[number]["options"], "bound": bounds[number]}}
    number = [outcome is best for outcome in first.outcomes].index(True)
    other = second.outcomes[number]
    on = {
        "chosen_on": (first, measured[number]),
        "checked_on": (second, target.of(second, other, confidence=confidence)),
    }
    for name, (third, (value, bound)) in on.items():
        # Rows that have words which are perturbed.
        rows = int(third.outcomes[0].floor.sums["recovered/1/considered"].rows[0])
        row[name] = {"rows": rows, "measured": value, "bound": bound}
    row["checked_on"] |= {"met": target.met(value), "met_by_limit": target.met(bound)}
    # What comes with a limit that is kept to: of a risk what is left of use, of a use what is at risk.
    measure, found = "recovered", other.risked(target.risk, confidence)
    if target.limited.kind == "risk":
        measure, found = target.keeping, second.measures(other, confidence)[target.keeping]
    (value, low, high), floor = found
    beside = _plain({"measure": measure, "value": value, "low": low, "high": high, "floor": floor})
    return row | {"number": number, "beside": beside}


def _setting(comparison: Comparison, outcome: Outcome, risk: Risk, confidence: float) -> dict[str, Any]:
    """A row of the table of settings."""
    measures = comparison.measures(outcome, confidence)
    shown = {"recovered": outcome.risked(risk, confidence)}
    shown |= {name: measures[name] for name in ("similarity", "kept", "accuracy") if name in measures}
    if "attribution" in outcome.totals.sums:
        own, floor = (totals.sums["attribution"] for totals in (outcome.totals, outcome.floor))
        shown["attributed"] = own.share(confidence), floor.share(confidence)[0]
    row = {
        **outcome.key,
        "options": outcome.mechanism.options,
        "release_words": outcome.search.release_words,
        "search": outcome.search.label,
    }
    for key, ((value, low, high), least) in shown.items():
        row |= {key: value, f"{key}_low": low, f"{key}_high": high, f"{key}_floor": least}
    return _plain(row | {"error": outcome.error})


def _plain(row: Facts) -> dict[str, Any]:
    """A row with None where there is no number, as JSON has it."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}


# In words


def said(facts: Facts) -> Iterator[Any]:
    """Say what each setting gives away and keeps, and which one to take: blocks of lines and a table."""
    sample, settings = facts["sample"], facts["settings"]
    yield [
        PRIVATE,
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked ({sample['perturbed']:,} words).",
        f"Attackers ({attackers(facts)}) learn the language from {facts['corpus']['from']}.",
        STRONGER,
    ]
    columns = {"recovered": share, "similarity": number, "kept": share}
    columns |= {name: share for name in ("attributed", "accuracy") if name in settings[0]}
    head, rows = [""], []
    for name in columns:
        head += ["unchanged"] if name == "kept" else [name, "floor"]
    for row in settings:
        cells = [row["options"]]
        for name, write in columns.items():
            cells += [write(row[name])] + ([] if name == "kept" else [write(row[f"{name}_floor"])])
        cells[1] += f" ({share(row['recovered_low'])} to {share(row['recovered_high'])})"
        rows.append([*cells, "yes" if row["on_front"] else ""])
    yield {"table": [[*head, "no other beats it"], *rows]}
    if lines := list(advice(facts)):
        command = facts["target"]["command"]
        yield [*lines, *([f"The release: {command}"] if command else [])]


def attackers(facts: Facts) -> str:
    """Say which attackers are meant."""
    asked = facts["concern"]
    guesses = "one guess" if asked["guesses"] == 1 else f"{asked['guesses']} guesses"
    versions = "one version" if asked["versions"] == 1 else f"{asked['versions']} versions"
    return f"{asked['attacker']}, {guesses}, {versions} of each row"


def advice(facts: Facts) -> Iterator[str]:
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


# The page

_USES: Final = {
    "similarity": ("Similarity of texts, before and after", "Similarity of texts"),
    "kept": ("Share of words unchanged", "Words unchanged"),
    "accuracy": ("Labels right, learnt from released texts", "Labels that a model gets right"),
}
"""What a figure has over the share recovered: its label, and how its caption begins."""


_CLASSIFIED: Final = {"attributed": "Authors right", "accuracy": "Labels right"}


def page(facts: Facts) -> dict[str, Any]:
    """Give what the template of the page reads."""
    settings = sorted(facts["settings"], key=lambda row: float(row["recovered"]))
    return {
        "template": "evaluation.html",
        "title": "What a release keeps, and what it reveals",
        "facts": facts,
        "plots": [_plot(settings, n) for n in _USES if any(row.get(n) is not None for row in settings)],
        "settings": settings,
        "advice": [*advice(facts)],
        "attackers": attackers(facts),
        "classified": {name: title for name, title in _CLASSIFIED.items() if name in settings[0]},
        "stronger": STRONGER,
        "measures": MEASURES,
        "ceilings": {row["measure"]: row["ceiling"] for row in facts["utility"]},
    }


def _plot(settings: Sequence[Facts], name: str) -> dict[str, Any]:
    """What is kept over what is recovered, a line for each mechanism with its parameters."""
    label, caption = _USES[name]
    lines = defaultdict[str, dict[str, list[Any]]](lambda: defaultdict(list))
    for row in sorted(settings, key=lambda row: float(row["epsilon"])):
        if row[name] is None:
            continue
        line = lines[f"{row['mechanism']} {row['setting']}".strip()]
        spot = {"x": "recovered", "low": "recovered_low", "high": "recovered_high", "y": name}
        for end, of in spot.items():
            line[end].append(row[of])
        line["marks"].append(f"{row['epsilon']:g}")
    return {
        "name": name,
        "kind": "trade_off",
        "caption": f"{caption} over the share of words recovered.",
        "x": {"label": "Share of words recovered"},
        "y": {"label": label},
        "floor": (settings[0]["recovered_floor"], settings[0][f"{name}_floor"] or 0.0),
        "chosen": [(row["recovered"], row[name]) for row in settings if row["recommended"]],
        "lines": lines,
    }
