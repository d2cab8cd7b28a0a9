"""The project stays small enough to hold in mind: whoever raises a number says why in the commit."""

from pathlib import Path

import pytest

from dptext_spark.cli import main

ROOT = Path(__file__).parents[1]


def lines(folder):
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in ROOT.glob(f"{folder}/**/*.py")
    )


def words(paths):
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


@pytest.mark.parametrize(
    ("measured", "most"),
    [
        pytest.param(lambda: lines("dptext_spark"), 21_000, id="lines of the package"),
        pytest.param(lambda: lines("tests"), 20_610, id="lines of tests"),
        pytest.param(lambda: lines("scripts"), 3_850, id="lines of scripts"),
        pytest.param(
            lambda: words([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]),
            33_080,
            id="words of documents",
        ),
        pytest.param(lambda: len(main.commands["privatize"].params), 41, id="options of privatize"),
    ],
)
def test_nothing_grows_unnoticed(measured, most):
    assert callable(measured)
    assert measured() <= most
