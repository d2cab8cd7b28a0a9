"""A run's report on a terminal: its facts as JSON, and blocks of text, lists and tables as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a command prints: its facts, which are its JSON, or what they say."""

    facts: Mapping[str, Any]
    text: str

    def to_json(self) -> str:
        """Write the facts as JSON text."""
        return json.dumps(self.facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Give the text."""
        return self.text


def rendered(blocks: Iterable[Mapping[str, Any]]) -> str:
    """Write blocks with an empty line between them.

    Args:
        blocks: Each has a ``text``, the lines of a ``list``, or the rows of a ``table``, with a ``title``.
    """
    parts: list[str] = []
    for block in blocks:
        lines = [block["title"]] if "title" in block else []
        lines += [block["text"]] if "text" in block else []
        lines += block.get("list", [])
        lines += table(block["table"]) if "table" in block else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of cells, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [f"{first:{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(rest, widths[1:], strict=True))]
        ).rstrip()
        for first, *rest in rows
    ]
