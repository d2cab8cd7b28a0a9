"""The stages of a run: lines, clocks and bars on standard error."""

import sys
from threading import Event
from types import SimpleNamespace

from dptext_spark import bars
from dptext_spark.bars import progress, stage


def test_a_stage_is_a_line_without_a_terminal_and_a_bar_with_one(monkeypatch, capsys):
    """Rejects lines between bars, a bar that ends the run, and one that forgets stages that have ended."""
    monkeypatch.setattr(bars, "_SECONDS", 0.01)
    looks, info = Event(), SimpleNamespace(numTasks=7, numCompletedTasks=3)

    def look():
        looks.set()
        raise OSError  # as of a JVM that has died

    spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=look))
    with progress(spark, "Measuring"), stage("Drawing"):
        pass
    assert (capsys.readouterr().err, looks.is_set()) == ("Measuring ...\nDrawing ...\n", False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress(spark, "Measuring"):
        assert looks.wait(60)
    assert "Measuring: 0 tasks" in capsys.readouterr().err
    with stage("Drawing"):
        pass
    assert "Drawing: 00:00" in capsys.readouterr().err
    numbers = iter([[4], [5], []])

    def ids():
        found = next(numbers, None)
        if found is None:
            looks.set()
        return found or []

    looks.clear()
    spark.sparkContext = SimpleNamespace(
        statusTracker=lambda: SimpleNamespace(getActiveStageIds=ids, getStageInfo=lambda _: info)
    )
    with progress(spark, "Measuring"):
        assert looks.wait(60)
    assert "6/14" in capsys.readouterr().err
