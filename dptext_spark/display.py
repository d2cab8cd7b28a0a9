"""Blocks of text, lists and tables: as lines of a terminal, and as HTML of a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from dptext_spark.errors import printable


class Displayed(ABC):
    """A value that Python and notebooks show as the commands show it."""

    @abstractmethod
    def blocks(self) -> Iterator[Any]:
        """Yield the blocks that show the value; see :func:`rendered`."""

    def __repr__(self) -> str:
        return rendered(self.blocks())

    def _repr_html_(self) -> str:
        return html(self.blocks())


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


def html(blocks: Iterable[Any]) -> str:
    """Write the same blocks as HTML."""
    parts = []
    for block in blocks:
        if isinstance(block, Mapping):
            parts.append(_html_table(block))
        else:
            lines = [block] if isinstance(block, str) else block
            parts.append(f"<p>{'<br>'.join(map(_text, lines))}</p>")
    return "\n".join(parts)


def _html_table(block: Mapping[str, Any]) -> str:
    lines = ["<table>"]
    if "title" in block:
        lines.append(f"<caption>{_text(block['title'])}</caption>")
    align = "right" if block.get("numbers", True) else "left"
    for number, row in enumerate(block["table"]):
        kind = "th" if number == 0 and not row[0] else "td"
        first, *cells_after = map(_text, row)
        cells = [f'<{kind} style="text-align: left">{first}</{kind}>']
        cells += [f'<{kind} style="text-align: {align}">{cell}</{kind}>' for cell in cells_after]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>"])


def _text(line: str) -> str:
    return escape(printable(line))
