"""Tables and blocks on a terminal, and the stages that say what is being done."""

import sys
from threading import Event

from dptext_spark.bars import stage
from dptext_spark.report.text import rendered, table


def test_tables_align_and_blocks_are_parted_by_an_empty_line():
    """The first column to the left, numbers to the right."""
    rows = [["epsilon", "n_w"], ["better:", "lower"], ["2", "0.5"]]
    assert table(rows) == ["epsilon    n_w", "better:  lower", "2          0.5"]
    assert table(rows, numbers=False) == ["epsilon  n_w", "better:  lower", "2        0.5"]
    blocks = ["One.", {"title": "laplace", "table": [["a", "b"]]}, ["x", "y"]]
    assert rendered(blocks) == "One.\n\nlaplace\na  b\n\nx\ny"


def test_a_stage_is_a_line_without_a_terminal_and_a_bar_with_one(monkeypatch, capsys):
    """Rejects lines between bars, and a bar that ends the run."""
    looks = Event()

    def look(bar):
        looks.set()
        bar.total, bar.n = 7, 3
        raise OSError  # as of a JVM that has died

    with stage("Measuring", look), stage("Drawing"):
        pass
    assert (capsys.readouterr().err, looks.is_set()) == ("Measuring ...\nDrawing ...\n", False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with stage("Measuring", look):
        looks.wait()
    assert "Measuring: 0 tasks" in capsys.readouterr().err
    with stage("Drawing"):
        pass
    assert "Drawing: 00:00" in capsys.readouterr().err
