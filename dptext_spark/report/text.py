"""A run's report on a terminal: blocks of text, lists and tables as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dptext_spark.errors import printable


def rendered(blocks: Iterable[Any]) -> str:
    """Write blocks, a text, lines or a ``table`` with or without a ``title``, an empty line between them."""
    parts = []
    for block in blocks:
        if isinstance(block, Mapping):
            block = [*([block["title"]] if "title" in block else []), *table(block["table"])]
        parts.append("\n".join(map(printable, [block] if isinstance(block, str) else block)))
    return "\n\n".join(parts)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of cells, the first column to the left and the others to the right."""
    rows = [[*map(printable, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [f"{first:{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(rest, widths[1:], strict=True))]
        ).rstrip()
        for first, *rest in rows
    ]
