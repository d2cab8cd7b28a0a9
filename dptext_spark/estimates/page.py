"""Estimates on a page."""

from __future__ import annotations

from typing import Any

from dptext_spark.estimates.text import Facts, columns_of, group_of, within


def page(facts: Facts) -> dict[str, Any]:
    """Return what the template of the page reads."""
    columns = columns_of(facts)
    plots = []
    if "time" in columns:
        for number, row in enumerate(facts["lists"], 1):
            plot = _series(facts, row["topic"], number)
            if plot["lines"]:
                plots.append(plot)
    return {
        "template": "estimates.html",
        "title": f"Estimates from a release of column {facts['column']}",
        "facts": facts,
        "plots": plots,
        "columns": columns,
        "group_of": group_of,
        "shown": within,
    }


def _series(facts: Facts, topic: str, number: int) -> dict[str, Any]:
    """Return a figure of a topic over time, a line for each group; names need not be of files."""
    columns = columns_of(facts)
    columns.remove("time")
    rows = [row for row in facts["topics"] if row["topic"] == topic and row.get("time")]
    times = sorted({row["time"] for row in rows})
    lines: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        if row["low"] is None:
            continue
        line = lines.setdefault(group_of(row, columns), {"x": [], "y": [], "low": [], "high": []})
        line["x"].append(times.index(row["time"]))
        line["y"].append(row["share"])
        line["low"].append(row["low"])
        line["high"].append(row["high"])
    return {
        "name": f"topic-{number}",
        "caption": f"Share of words of topic {topic} over time; bars are intervals.",
        "lines": lines,
        "y": {"label": f"Share of words: {topic}"},
        "x": {"label": f"Periods from {times[0]} to {times[-1]}"},
        "bars": "y",
    }
