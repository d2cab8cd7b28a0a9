"""An evaluation's facts on a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.measures import MEASURES
from dptext_spark.evaluation.text import (
    NOT_COMPARABLE,
    Facts,
    attackers,
    channel,
    classified,
    label_rows,
    shown_classes,
    sticking_out,
    use_rows,
    verdict,
)

_USES: Final = {
    "similarity": ("Similarity of texts, before and after", "Similarity of texts"),
    "balanced_accuracy": (
        "Balanced accuracy, learnt from released texts",
        "Balanced accuracy of labels",
    ),
}
"""What a figure has over the share recovered: its label, and how its caption begins."""

_ENDS: Final = {"x": "recovered", "low": "recovered_low", "high": "recovered_high"}
"""What a figure draws across, and the number of the setting that it is."""


def page(facts: Facts) -> dict[str, Any]:
    """Return what the template of the page reads."""
    settings = sorted(facts["settings"], key=lambda row: float(row["recovered"]))
    names = [name for name in _USES if _is_measured(settings, name)]
    of_rows = [*MEASURES["singled_out"].forms, "linked"]
    ceilings = {row["measure"]: row["ceiling"] for row in facts["utility"]}
    plots = [_plot(settings, name) for name in names]
    return {
        "template": "evaluation.html",
        "title": "What a release keeps, and what it reveals",
        "facts": facts,
        "plots": plots,
        "settings": settings,
        "verdict": list(verdict(facts)),
        "attackers": attackers(facts),
        "classified": classified(facts),
        "of_rows": of_rows,
        "sticking_out": list(sticking_out(facts)),
        "stronger": STRONGER,
        "not_comparable": NOT_COMPARABLE,
        "channel": channel,
        "kept_of": partial(_kept, facts),
        "labels_of": partial(label_rows, facts),
        "shown_classes": shown_classes(facts),
        "measures": MEASURES,
        "ceilings": ceilings,
    }


def _is_measured(settings: Sequence[Facts], name: str) -> bool:
    """Return whether any setting has a number."""
    return any(row.get(name) is not None for row in settings)


def _kept(facts: Facts, setting: Facts) -> list[Facts]:
    """Return what is kept of texts in a setting; what models learn of labels stands elsewhere."""
    rows = []
    for row in use_rows(facts, setting):
        measure = MEASURES.get(row["measure"])
        if measure is not None and measure.needs != "label":
            rows.append(row)
    return rows


def _plot(settings: Sequence[Facts], name: str) -> dict[str, Any]:
    """Return a figure of what is kept over what is recovered, a line for each mechanism."""
    label, caption = _USES[name]
    ends = {**_ENDS, "y": name}
    lines = defaultdict[str, dict[str, list[Any]]](lambda: defaultdict(list))
    for row in sorted(settings, key=lambda row: float(row["epsilon"])):
        if row[name] is None:
            continue
        line = lines[f"{row['mechanism']} {row['setting']}".strip()]
        for end, number in ends.items():
            line[end].append(row[number])
        line["marks"].append(f"{row['epsilon']:g}")
    recommended = [(row["recovered"], row[name]) for row in settings if row["recommended"]]
    return {
        "name": name,
        "bars": "x",
        "caption": f"{caption} over the share of words recovered.",
        "x": {"label": "Share of words recovered"},
        "y": {"label": label},
        "floor": (settings[0]["recovered_floor"], settings[0][f"{name}_floor"] or 0.0),
        "chosen": recommended,
        "lines": lines,
    }
