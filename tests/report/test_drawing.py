"""Without the extra ``[report]``: what is missing is named. Tests of jobs say that the rest is written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dptext_spark.report import drawing
from tests.helpers.drawing import without_drawing
from tests.helpers.tables import ROOT

BLOCKED = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = ("jinja2", "markupsafe", "matplotlib")
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else find(name, *rest)
from dptext_spark.report import drawing
from dptext_spark.jobs import calibrate, evaluate, poincare

print(*map(drawing.missing_library, (drawing.PAGE, drawing.PICTURE)))
"""


def test_what_is_missing_is_named() -> None:
    """Rejects a check of one library alone, and one that takes its own fault for a missing library."""
    assert drawing.missing_library(drawing.PAGE) == drawing.missing_library(drawing.PICTURE) == ""
    with without_drawing("matplotlib.figure"):
        assert {drawing.missing_library(own) for own in (drawing.PAGE, drawing.PICTURE)} == {"matplotlib"}
    with without_drawing("jinja2"):
        assert drawing.missing_library(drawing.PAGE) == "jinja2"
    with pytest.raises(ModuleNotFoundError, match="dptext_spark"):
        drawing.missing_library(drawing.PAGE + "s")


def test_the_jobs_load_without_the_libraries() -> None:
    """Rejects a job that needs them before it draws."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["jinja2", "matplotlib"]
