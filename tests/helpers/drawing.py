"""The libraries that draw, hidden from a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dptext_spark.report import drawing

MODULES = (drawing.PAGE, drawing.PICTURE)


@contextmanager
def without_drawing(*hidden: str) -> Iterator[None]:
    """Hide libraries, all unless some are named, as if the extra ``[report]`` were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.delitem(sys.modules, module, raising=False)
        for name in hidden or ("jinja2", "matplotlib.figure", "matplotlib.backends.backend_agg"):
            patch.setitem(sys.modules, name, None)
        yield
