"""What notebooks show of the package's objects."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from html import escape
from importlib import import_module

_LEFT = "text-align:left"


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Write what there is to know of an object as a small table."""
    rows = "".join(
        f'<tr><th style="{_LEFT}">{escape(name)}</th><td style="{_LEFT}">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table><caption style="{_LEFT}">{escape(title)}</caption>{rows}</table>'


def lines_html(title: str, text: str) -> str:
    """Write plain words of several lines under a title."""
    return f"<b>{escape(title)}</b>" + "".join(f"<p>{escape(line)}</p>" for line in text.splitlines() if line)


def show_in_notebook(title: str, text: str) -> None:
    """Show plain words below the cell that runs, on an IPython kernel."""
    display = import_module("IPython.display").display
    display({"text/plain": f"{title}\n{text}", "text/html": lines_html(title, text)}, raw=True)


def is_notebook() -> bool:
    """Say whether this process is an IPython kernel or shell."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
