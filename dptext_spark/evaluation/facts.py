"""What an evaluation found: a dict of facts, which is evaluation.json, and what it says on a terminal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import add, itemgetter
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import KEEPING, Comparison, Outcome, Target
from dptext_spark.evaluation.measures import MEASURES, Risk
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

FILE: Final = "evaluation.json"
FORMAT_VERSION: Final = 3
PRIVATE: Final = "Facts about private rows, for those who may read them."
_USUAL: Final = 0.2  # the share recovered at which a setting is named where no target was given

Facts = Mapping[str, Any]


def facts_of(
    thirds: Sequence[Comparison],
    search: Search,
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
    whole, risk, keeping = reduce(add, thirds), Risk(), KEEPING
    if target is not None:
        risk, keeping = target.risk, target.keeping
    front, chosen = whole.front(risk, keeping=keeping), None
    shared = {"release_words": search.release_words, "search": search.label}
    settings = [
        _setting(whole, own, risk, confidence) | shared | {"on_front": own in front, "recommended": False}
        for own in whole.outcomes
    ]
    if target is not None:
        chosen = _chosen(target, thirds, confidence)
        if (number := chosen["number"]) is not None:
            settings[number]["recommended"] = True
            mechanism = whole.outcomes[number].mechanism
            chosen |= {"options": mechanism.options, "command": command(mechanism, search)}
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


def _chosen(target: Target, thirds: Sequence[Comparison], confidence: float) -> dict[str, Any]:
    """Choose on the first of these thirds and check on the second."""
    names = ("number", "options", "command", "closest", "chosen_on", "checked_on")
    row: dict[str, Any] = {"target": str(target), **dict.fromkeys(names)}
    if len(thirds) < 2:
        return row
    outcomes = thirds[0].outcomes
    each = 1.0 - (1.0 - confidence) / len(outcomes)
    best = target.choose(thirds[0], confidence=confidence)
    if best is None:
        closest = max(outcomes, key=partial(target.margin, confidence=each))
        value, bound = target.of(closest, confidence=each)
        row["closest"] = _plain({"options": closest.mechanism.options, "measured": value, "bound": bound})
        return row
    row["number"] = number = outcomes.index(best)
    for name, third, sure in zip(names[4:], thirds, (each, confidence), strict=True):
        value, bound = target.of(third.outcomes[number], confidence=sure)
        # Rows that have words which are perturbed.
        rows = int(Risk().own(third.floor).rows[0])
        row[name] = _plain({"rows": rows, "measured": value, "bound": bound})
    row["checked_on"]["met"] = target.met(value)
    return row


def _setting(comparison: Comparison, outcome: Outcome, risk: Risk, confidence: float) -> dict[str, Any]:
    """A row of the table of settings."""
    measures = comparison.measures(outcome, confidence)
    shown = {"recovered": comparison.risked(outcome, risk, confidence)}
    shown |= {name: measures[name] for name in ("similarity", "kept", "accuracy") if name in measures}
    if "attribution" in outcome.sums:
        own, floor = (MEASURES["attribution"].own(sums) for sums in (outcome.sums, comparison.floor))
        shown["attributed"] = own.share(confidence), floor.share(confidence)[0]
    row = {**outcome.key, "options": outcome.mechanism.options}
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
    forms = {"recovered": ".1%", "similarity": ".3f", "kept": ".1%"}
    forms |= dict.fromkeys(_classified(facts), ".1%")
    head = [part for name in forms for part in (["unchanged"] if name == "kept" else [name, "floor"])]
    rows = []
    for row in settings:
        cells = [row["options"]]
        for name, form in forms.items():
            shown = (row[name],) if name == "kept" else (row[name], row[f"{name}_floor"])
            cells += ["-" if value is None else format(value, form) for value in shown]
        cells[1] += f" ({row['recovered_low']:.1%} to {row['recovered_high']:.1%})"
        rows.append([*cells, "yes" if row["on_front"] else ""])
    yield {"table": [["", *head, "no other beats it"], *rows]}
    command = facts["target"] and facts["target"]["command"]
    yield [*advice(facts), *([f"The release: {command}"] if command else [])]


def attackers(facts: Facts) -> str:
    """Say which attackers are meant."""
    asked = facts["concern"]
    return f"{asked['attacker']}; guesses: {asked['guesses']}; versions of each row: {asked['versions']}"


def advice(facts: Facts) -> Iterator[str]:
    """Say which setting to take for the target, and how it held on the last third."""
    target, settings = facts["target"], facts["settings"]
    if not target:
        yield _usual(settings)
        return
    sure = f"{100 * facts['confidence']:g}% confidence"
    limit = "upper limit" if "<=" in target["target"] else "lower limit"

    def measured(found: Facts, more: str = "") -> str:
        if found["bound"] is None:
            return f"{found['measured']:.3g} (no interval{more})"
        return f"{found['measured']:.3g}, {limit} {found['bound']:.3g} ({sure}{more})"

    among = f", of the choice among {len(settings)}"
    if target["options"] is None:
        yield f"Target {target['target']}: no setting here meets it with {sure}."
        if closest := target["closest"]:
            yield f"The closest is {closest['options']}: {measured(closest, among)}."
        return
    chosen, checked, row = target["chosen_on"], target["checked_on"], settings[target["number"]]
    yield f"Target {target['target']}: take {target['options']}"
    yield f"Chosen on {chosen['rows']:,} rows: {measured(chosen, among)}."
    held = "the target is met there, too"
    if not checked["met"]:
        held = "THE TARGET IS MISSED THERE: evaluate more rows"
    yield f"Checked on {checked['rows']:,} other rows: {measured(checked)}; {held}."
    if (row["similarity_low"] or 0.0) <= row["similarity_floor"]:
        yield "THE TEXTS ARE NO MORE SIMILAR THAN RANDOM WORDS: try other settings, or allow more."


def _usual(settings: Sequence[Facts]) -> str:
    """Name the setting that keeps most similarity of those that keep recovery low."""
    kept = [row for row in settings if row["recovered_high"] <= _USUAL]
    if not kept:
        least = min(settings, key=itemgetter("recovered_high"))
        limit = f"{least['options']} (upper limit {least['recovered_high']:.3g})"
        return f"No setting here keeps recovery to {_USUAL:.0%}: the least is {limit}."
    best = max(kept, key=itemgetter("similarity"))
    limit = f"upper limit {best['recovered_high']:.3g}; similarity {best['similarity']:.3g}"
    return (
        f"These attackers recover no more than {_USUAL:.0%} of words with {best['options']} ({limit}). "
        "Choose it by --target on other rows."
    )


# The page

_USES: Final = {
    "similarity": ("Similarity of texts, before and after", "Similarity of texts"),
    "accuracy": ("Labels right, learnt from released texts", "Labels that a model gets right"),
}
"""What a figure has over the share recovered: its label, and how its caption begins."""


def _classified(facts: Facts) -> dict[str, str]:
    """What models learn, where it was measured, and its title."""
    titles = {"attributed": "Authors right", "accuracy": "Labels right"}
    return {name: title for name, title in titles.items() if name in facts["settings"][0]}


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
        "classified": _classified(facts),
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
        "bars": "x",
        "caption": f"{caption} over the share of words recovered.",
        "x": {"label": "Share of words recovered"},
        "y": {"label": label},
        "floor": (settings[0]["recovered_floor"], settings[0][f"{name}_floor"] or 0.0),
        "chosen": [(row["recovered"], row[name]) for row in settings if row["recommended"]],
        "lines": lines,
    }
