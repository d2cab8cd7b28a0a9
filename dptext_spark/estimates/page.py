"""Estimates on a page."""

from __future__ import annotations

from typing import Any

from dptext_spark.estimates.text import Facts, columns_of, group_of, within


def page(facts: Facts) -> dict[str, Any]:
    """Return what the template of the page reads."""
    columns = columns_of(facts)
    plots = []
    if "time" in columns:
        plots = [_series(facts, topic["topic"]) for topic in facts["lists"]]
    return {
        "template": "estimates.html",
        "title": f"Estimates from a release of column {facts['column']}",
        "facts": facts,
        "plots": [plot for plot in plots if plot["lines"]],
        "columns": columns,
        "group_of": group_of,
        "shown": within,
    }


def _series(facts: Facts, topic: str) -> dict[str, Any]:
    """Return a figure of a topic over time, a line for each group."""
    columns = [name for name in columns_of(facts) if name != "time"]
    lines: dict[str, dict[str, list[Any]]] = {}
    rows = [row for row in facts["topics"] if row["topic"] == topic and row.get("time")]
    times = sorted({row["time"] for row in rows})
    for row in rows:
        if row["low"] is None:
            continue
        line = lines.setdefault(group_of(row, columns), {"x": [], "y": [], "low": [], "high": []})
        line["x"].append(times.index(row["time"]))
        line["y"].append(row["share"])
        line["low"].append(row["low"])
        line["high"].append(row["high"])
    label = f"Periods from {times[0]} to {times[-1]}" if times else "Periods"
    return {
        "name": f"topic-{facts_place(facts, topic)}",
        "caption": f"Share of words of topic {topic} over time; bars are intervals.",
        "lines": lines,
        "y": {"label": f"Share of words: {topic}"},
        "x": {"label": label},
        "bars": "y",
    }


def facts_place(facts: Facts, topic: str) -> int:
    """Return the number of a topic: names need not be names of files."""
    return 1 + [row["topic"] for row in facts["lists"]].index(topic)
