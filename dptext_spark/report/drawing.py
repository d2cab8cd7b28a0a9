"""Whether pages and pictures can be drawn: their libraries, the extra ``[report]``, need not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Final

PAGE: Final = "dptext_spark.calibration.page"
"""The module that draws a calibration's page."""

PICTURE: Final = "dptext_spark.poincare.picture"
"""The module that draws a Poincaré disk."""


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
