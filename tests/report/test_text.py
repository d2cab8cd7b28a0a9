"""Tables and blocks on a terminal, and the stages that say what is being done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dptext_spark.bars import hidden_progress, stage
from dptext_spark.report.text import rendered, table


def test_a_table_aligns_its_first_column_left_and_numbers_right() -> None:
    assert table([["epsilon", "n_w"], ["better:", "lower"], ["2", "0.5"]]) == [
        "epsilon    n_w",
        "better:  lower",
        "2          0.5",
    ]


def test_blocks_are_parted_by_an_empty_line() -> None:
    blocks = ["One.", {"title": "laplace", "table": [["a", "b"]]}, ["x", "y"]]
    assert rendered(blocks) == "One.\n\nlaplace\na  b\n\nx\ny"


def test_a_stage_is_a_line_without_a_terminal_and_a_bar_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rejects stages that --quiet does not silence, and lines between bars."""
    bars = []

    @contextmanager
    def bar(doing: str) -> Iterator[None]:
        bars.append(doing)
        yield

    with stage("Measuring", bar), stage("Drawing"):
        pass
    assert (capsys.readouterr().err, bars) == ("Measuring ...\nDrawing ...\n", [])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with stage("Measuring", bar):
        pass
    assert (capsys.readouterr().err, bars) == ("", ["Measuring"])
    with stage("Drawing"):
        pass
    assert "Drawing: 00:00" in capsys.readouterr().err
    with hidden_progress(), stage("Measuring", bar), stage("Drawing"):
        pass
    assert (capsys.readouterr().err, bars) == ("", ["Measuring"])
