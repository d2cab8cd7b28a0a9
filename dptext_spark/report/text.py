"""A run's report on a terminal: blocks of text, lists and tables as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from dptext_spark.bars import tell
from dptext_spark.errors import printable


def rendered(blocks: Iterable[Any]) -> str:
    """Write blocks, an empty line between them: a text, lines, or a ``table``, perhaps with a ``title``.

    The columns of a table are ``numbers`` unless it says otherwise.
    """
    parts = []
    for block in blocks:
        if isinstance(block, Mapping):
            title = [block["title"]] if "title" in block else []
            block = title + table(block["table"], numbers=block.get("numbers", True))
        parts.append("\n".join(map(printable, [block] if isinstance(block, str) else block)))
    return "\n\n".join(parts)


def table(rows: Iterable[Sequence[str]], *, numbers: bool = True) -> list[str]:
    """Align rows of cells to the left; columns after the first, if they are ``numbers``, to the right."""
    rows = [[*map(printable, row)] for row in rows]
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    align = str.rjust if numbers else str.ljust
    return ["  ".join([row[0].ljust(first), *map(align, row[1:], widths)]).rstrip() for row in rows]


def missing_library() -> str:
    """Name a library of pages and pictures, the extra ``[report]``, that is not installed; empty for none."""
    return next((library for library in ("jinja2", "matplotlib") if find_spec(library) is None), "")


def announce_missing(what: str) -> None:
    """Say on stderr, before the work begins, what will be missing at its end."""
    if library := missing_library():
        why = f"as {library} is not installed. Run: pip install 'dptext-spark[report]'"
        tell(f"Warning: {what} will not be drawn, {why}")
