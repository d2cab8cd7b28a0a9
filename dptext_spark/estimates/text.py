"""Estimates in words: lines and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Facts = dict[str, Any]

_ROWS: Final = 40  # of a table on a terminal


def said(facts: Facts) -> Iterator[Any]:
    """Yield the main numbers: remarks, and a table for each kind of estimate."""
    yield facts["remarks"]
    if facts["topics"]:
        yield _topics(facts)
    if facts["lists"]:
        yield [leaks_of(row) for row in facts["lists"][:_ROWS]]
    if facts["differences"]:
        yield _differences(facts)
    if facts["frequencies"]:
        yield _frequencies(facts)


def columns_of(facts: Facts) -> list[str]:
    """Return the columns that rows are grouped by."""
    groups = facts["options"]["by"] if "options" in facts else []
    return [*groups, *(["time"] if _has_times(facts) else [])]


def group_of(row: Facts, columns: list[str]) -> str:
    """Return the group of a row in words."""
    values = [str(row[name]) for name in columns if row.get(name) is not None]
    return ", ".join(values) or "all rows"


def leaks_of(row: Facts) -> str:
    """Return which words outside of a list count, and how sharp the topic is."""
    leaks = ", ".join(f"{leak['word']} {leak['weight']:.2f}" for leak in row["leaks"][:5])
    absent = f" Not in the channel: {', '.join(row['absent'])}." if row["absent"] else ""
    return (
        f"{row['topic']}: in a public text {row['sharpness']:.0%} of its count comes from words of "
        f"the list. Other words that count most: {leaks}.{absent}"
    )


def within(row: Facts, name: str, low: str, high: str) -> str:
    """Return a share with its interval in words."""
    if row[name] is None:
        return "-"
    if row[low] is None:
        return f"{row[name]:.4f}"
    return f"{row[name]:.4f} ({row[low]:.4f} to {row[high]:.4f})"


def _has_times(facts: Facts) -> bool:
    return any(row.get("time") is not None for row in facts["topics"])


def _topics(facts: Facts) -> dict[str, Any]:
    columns = columns_of(facts)
    rows = [["topic", "group", "share of words", "share of rows", "rows"]]
    for row in facts["topics"][:_ROWS]:
        words = within(row, "share", "low", "high")
        of_rows = within(row, "share_of_rows", "share_of_rows_low", "share_of_rows_high")
        rows.append([row["topic"], group_of(row, columns), words, of_rows, f"{row['rows']:,}"])
    title = f"Topics ({facts['confidence']:.0%} intervals)"
    if len(facts["topics"]) > _ROWS:
        title = f"{title}, the first {_ROWS} of {len(facts['topics']):,}"
    return {"table": rows, "title": title, "numbers": False}


def _differences(facts: Facts) -> dict[str, Any]:
    rows = [["topic", "group", "against", "difference", "adjusted p"]]
    for row in facts["differences"]:
        difference = within(row, "difference", "low", "high")
        rows.append(
            [row["topic"], row["group"], row["against"], difference, f"{row['adjusted_p']:.2g}"]
        )
    return {"table": rows, "title": "The most certain differences", "numbers": False}


def _frequencies(facts: Facts) -> dict[str, Any]:
    rows = [["word", "share", "or a word like"]]
    for row in facts["frequencies"][:_ROWS]:
        share = f"{row['share']:.4f}"
        rows.append([row["word"], share, ", ".join(row["like"])])
    return {"table": rows, "title": "Likeliest frequencies", "numbers": False}
