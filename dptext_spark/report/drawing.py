"""Whether pages and pictures can be drawn: their libraries, the extra ``[report]``, need not be installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import click

# Names of a page and of the folder of its figures.
HTML: Final = "report.html"
PLOTS: Final = "plots"


def missing_library() -> str:
    """Name a library of pages and pictures that is not installed; empty where there is none."""
    return next((library for library in ("jinja2", "matplotlib") if find_spec(library) is None), "")


def announce(what: str) -> None:
    """Say on stderr, before the work begins, what will be missing at its end."""
    if library := missing_library():
        why = f"as {library} is not installed. Run: pip install 'dptext-spark[report]'"
        click.echo(f"Warning: {what} will not be drawn, {why}", err=True)
