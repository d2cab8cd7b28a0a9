"""Without the extra ``[report]``: the jobs say at once what they will not draw, and write all the rest."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dptext_spark.calibration.page import write_report
from dptext_spark.demo import MAMMALS
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.report import drawing
from tests.helpers.tables import ROOT, command, names

BLOCKED = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = ("jinja2", "markupsafe", "matplotlib")
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else find(name, *rest)
from dptext_spark.cli import main

print("begins", file=sys.stderr)
main(sys.argv[1:])
"""


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects a check of one library alone, and one that takes its own fault for a missing library."""
    assert drawing.missing_library(drawing.PAGE) == drawing.missing_library(drawing.PICTURE) == ""
    for module in (drawing.PAGE, drawing.PICTURE, "dptext_spark.calibration.plots"):
        monkeypatch.delitem(sys.modules, module)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib.figure", None)
        assert (
            drawing.missing_library(drawing.PAGE) == drawing.missing_library(drawing.PICTURE) == "matplotlib"
        )
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "jinja2", None)
        assert drawing.missing_library(drawing.PAGE) == "jinja2"
    with pytest.raises(ModuleNotFoundError, match="dptext_spark"):
        drawing.missing_library(drawing.PAGE + "s")


@pytest.mark.spark
@pytest.mark.e2e
def test_calibrate_writes_everything_but_the_page(ring: Embedding, tmp_path: Path) -> None:
    """Rejects a page that is missed only when hours of measuring are over."""
    output = tmp_path / "out"
    options = (
        f"--embedding {ring.path} --mechanism laplace --epsilon 2 40 --runs 20 --words 30 --output {output}"
    )
    said = _without_libraries("calibrate", *options.split(), cwd=tmp_path)
    assert said == (
        "Warning: report.html and plots will not be drawn, as jinja2 is not installed. "
        "Run: pip install 'dptext-spark[report]'"
    )
    visible = {name for name in names(output) if not name.startswith(".")}
    assert visible == {"calibration.json", "outputs", "summary", "words"}
    # The page can be drawn later, of what is there.
    assert write_report(output) == output / "report.html"


@pytest.mark.spark
@pytest.mark.e2e
def test_poincare_writes_everything_but_the_picture(tmp_path: Path) -> None:
    """Rejects a bundle beside the picture of the bundle that it replaced."""
    output = tmp_path / "mammals"
    (tmp_path / "mammals.png").write_bytes(b"of another bundle")
    options = f"--pairs {MAMMALS} --output {output} --overwrite --epochs 2 --dimension 3 --min-links 0"
    said = _without_libraries("poincare", *options.split(), cwd=tmp_path)
    assert said == (
        "Warning: the picture will not be drawn, as matplotlib is not installed. "
        "Run: pip install 'dptext-spark[report]'"
    )
    assert names(tmp_path) == {"mammals", "mammals.report.json", "mammals.vec"}
    assert json.loads((tmp_path / "mammals.report.json").read_text())["picture"] is None
    assert Embedding.open(output).dimension == 3


def _without_libraries(*arguments: str, cwd: Path) -> str:
    """Run ``dptext`` where they are not installed; the first line that it says on stderr."""
    path = os.pathsep.join(map(str, [ROOT, *sys.path]))
    done = command(sys.executable, "-c", BLOCKED, *arguments, cwd=cwd, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    line: str = done.stderr.partition("begins\n")[2].partition("\n")[0]
    return line
