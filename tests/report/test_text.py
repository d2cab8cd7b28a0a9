"""Tables and blocks on a terminal, and the stages that say what is being done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dptext_spark.bars import hidden_progress, stage
from dptext_spark.report.text import rendered, table


def test_tables_align_and_blocks_are_parted_by_an_empty_line() -> None:
    """The first column to the left, numbers to the right."""
    rows = [["epsilon", "n_w"], ["better:", "lower"], ["2", "0.5"]]
    assert table(rows) == ["epsilon    n_w", "better:  lower", "2          0.5"]
    blocks = ["One.", {"title": "laplace", "table": [["a", "b"]]}, ["x", "y"]]
    assert rendered(blocks) == "One.\n\nlaplace\na  b\n\nx\ny"


def test_a_stage_is_a_line_without_a_terminal_and_a_bar_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rejects stages that --quiet does not silence, and lines between bars."""
    bars: list[str] = []

    @contextmanager
    def bar(doing: str) -> Iterator[None]:
        bars.append(doing)
        yield

    def shown(*more: str) -> str:
        with stage("Measuring", bar):
            pass
        for doing in more:
            with stage(doing):
                pass
        return capsys.readouterr().err

    assert (shown("Drawing"), bars) == ("Measuring ...\nDrawing ...\n", [])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert (shown(), bars) == ("", ["Measuring"])
    assert "Drawing: 00:00" in shown("Drawing")
    with hidden_progress():
        assert (shown("Drawing"), bars) == ("", ["Measuring"] * 2)
