"""A calibration's facts on a page."""

from __future__ import annotations

from typing import Any, Final

from dptext_spark.calibration.summary import NUMBERS, STATISTICS, Facts, rows_of
from dptext_spark.calibration.text import remark, verdict, world

_AXES: Final[dict[str, dict[str, Any]]] = {
    "n_w": {"label": "$N_w$ (share of runs; lower is better)", "limits": (0.0, 1.0)},
    "s_w": {"label": "$S_w$ (outputs, log scale; higher is better)", "log": True},
}
"""The statistics of the figures, each with its vertical axis."""

_ENDS: Final = {"x": "epsilon", "low": "p5", "y": "p50", "high": "p95"}
"""What a figure draws, and the number of the summary that it is."""


def page(facts: Facts) -> dict[str, Any]:
    """Return what the template of the page reads."""
    names = [row["mechanism"] for row in facts["mechanisms"]]
    plots = [_plot(facts, names, statistic) for statistic in _AXES]
    return {
        "template": "calibration.html",
        "title": f"Calibration of {', '.join(names)}",
        "facts": facts,
        "plots": plots,
        "verdict": [*verdict(facts)],
        "world": world(facts),
        "remark": remark(facts),
        "statistics": STATISTICS,
        "columns": NUMBERS,
    }


def _plot(facts: Facts, names: list[str], statistic: str) -> dict[str, Any]:
    """Return a figure of a statistic over epsilon, a line for each mechanism."""
    lines = {}
    for name in names:
        rows = rows_of(facts, name, statistic)
        line = {}
        for end, number in _ENDS.items():
            line[end] = [row[number] for row in rows]
        lines[name] = line
    caption = (
        f"{statistic.capitalize()} over epsilon: the median of the words; "
        "bars reach from the 5th to the 95th percentile."
    )
    return {
        "name": statistic,
        "caption": caption,
        "lines": lines,
        "y": _AXES[statistic],
        "x": {"label": "Epsilon (nats per unit of distance)"},
        "bars": "y",
    }
