"""A run's report on a terminal: blocks of text, lists and tables as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from dptext_spark.bars import tell
from dptext_spark.errors import printable


def rendered(blocks: Iterable[Any]) -> str:
    """Write blocks with empty lines between: a text, lines, or a ``table`` and its ``title``.

    The columns of a table are ``numbers`` unless it says otherwise.
    """
    parts = []
    for block in blocks:
        lines: list[str] = []
        if isinstance(block, str):
            lines.append(block)
        elif isinstance(block, Mapping):
            if "title" in block:
                lines.append(block["title"])
            lines += table(block["table"], numbers=block.get("numbers", True))
        else:
            lines += block
        parts.append("\n".join(map(printable, lines)))
    return "\n\n".join(parts)


def table(rows: Iterable[Sequence[str]], *, numbers: bool = True) -> list[str]:
    """Align cells to the left; columns after the first, if they are ``numbers``, to the right."""
    rows = [[*map(printable, row)] for row in rows]
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    align = str.rjust if numbers else str.ljust
    lines = []
    for row in rows:
        cells = [row[0].ljust(first), *map(align, row[1:], widths)]
        lines.append("  ".join(cells).rstrip())
    return lines


def missing_library() -> str:
    """Name a library of the extra ``[report]`` that is not installed; empty for none."""
    for library in ("jinja2", "matplotlib"):
        if find_spec(library) is None:
            return library
    return ""


def announce_missing(what: str) -> None:
    """Write on stderr, before the work begins, what will be missing at its end."""
    library = missing_library()
    if library:
        reason = f"as {library} is not installed. Run: pip install 'dptext-spark[report]'"
        tell(f"Warning: {what} will not be drawn, {reason}")
