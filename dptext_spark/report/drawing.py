"""Whether pages and pictures can be drawn: their libraries, the extra ``[report]``, need not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

# The modules that draw the page of a calibration or an evaluation, and a Poincaré disk.
PAGE: Final = "dptext_spark.report.page"
PICTURE: Final = "dptext_spark.poincare.picture"

# Names of a page and of the folder of its figures.
HTML: Final = "report.html"
PLOTS: Final = "plots"


def missing_library(drawing: str) -> str:
    """Name the library that keeps a module from drawing as it is not installed; empty where there is none."""
    try:
        import_module(drawing)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", "dptext_spark"):
            raise
        return library
    return ""


def announce(what: str, drawing: str) -> None:
    """Say on stderr, before the work begins, what will be missing at its end."""
    if library := missing_library(drawing):
        click.echo(
            f"Warning: {what} will not be drawn, as {library} is not installed. "
            "Run: pip install 'dptext-spark[report]'",
            err=True,
        )
