"""The project stays small enough to hold in mind: whoever raises a number says why in the commit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from dptext_spark.cli import main

ROOT: Final = Path(__file__).parents[1]


def lines(folder: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in ROOT.glob(f"{folder}/**/*.py"))


def words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


@pytest.mark.parametrize(
    ("measured", "most"),
    [
        pytest.param(lambda: lines("dptext_spark"), 22_980, id="lines of the package"),
        pytest.param(lambda: lines("tests"), 23_120, id="lines of tests"),
        pytest.param(lambda: lines("scripts"), 4_620, id="lines of scripts"),
        pytest.param(
            lambda: words([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]), 32_200, id="words of documents"
        ),
        pytest.param(lambda: len(main.commands["privatize"].params), 39, id="options of privatize"),
    ],
)
def test_nothing_grows_unnoticed(measured: object, most: int) -> None:
    assert callable(measured)
    assert measured() <= most
