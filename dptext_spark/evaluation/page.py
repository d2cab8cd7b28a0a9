"""An evaluation's facts on a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.measures import MEASURES
from dptext_spark.evaluation.text import (
    Facts,
    advice,
    attackers,
    channel,
    classified,
    label_rows,
    shown_classes,
    sticking_out,
)

_USES: Final = {
    "similarity": ("Similarity of texts, before and after", "Similarity of texts"),
    "balanced_accuracy": (
        "Balanced accuracy, learnt from released texts",
        "Balanced accuracy of labels",
    ),
}
"""What a figure has over the share recovered: its label, and how its caption begins."""


def page(facts: Facts) -> dict[str, Any]:
    """Give what the template of the page reads."""
    settings = sorted(facts["settings"], key=lambda row: float(row["recovered"]))
    return {
        "template": "evaluation.html",
        "title": "What a release keeps, and what it reveals",
        "facts": facts,
        "plots": [
            _plot(settings, n) for n in _USES if any(row.get(n) is not None for row in settings)
        ],
        "settings": settings,
        "advice": [*advice(facts)],
        "attackers": attackers(facts),
        "classified": classified(facts),
        "of_rows": [*MEASURES["singled_out"].forms, "linked"],
        "sticking_out": [*sticking_out(facts)],
        "stronger": STRONGER,
        "channel": channel,
        "kept_of": partial(_kept, facts),
        "labels_of": partial(label_rows, facts),
        "shown_classes": shown_classes(facts),
        "measures": MEASURES,
        "ceilings": {row["measure"]: row["ceiling"] for row in facts["utility"]},
    }


def _kept(facts: Facts, setting: Facts) -> list[Facts]:
    """Return what is kept of texts in a setting; what models learn of labels stands elsewhere."""
    key = {name: setting[name] for name in ("mechanism", "setting", "epsilon")}
    of_setting = [row for row in facts["utility"] if key.items() <= row.items()]
    return [
        row
        for row in of_setting
        if row["measure"] in MEASURES and not MEASURES[row["measure"]].needs
    ]


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
