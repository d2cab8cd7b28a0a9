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


def rendered(blocks: Iterable[Any]) -> str:
    """Write blocks, a text, a list of lines or a ``table`` with a ``title``, an empty line between them."""
    parts = []
    for block in blocks:
        lines = [block["title"], *table(block["table"])] if isinstance(block, Mapping) else block
        parts.append(lines if isinstance(lines, str) else "\n".join(lines))
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
