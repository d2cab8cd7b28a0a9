"""The libraries that draw, hidden from a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def without_drawing(*hidden: str) -> Iterator[None]:
    """Hide libraries, all unless some are named, as if the extra ``[report]`` were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in hidden or ("jinja2", "matplotlib"):
            patch.setitem(sys.modules, name, None)
        yield
