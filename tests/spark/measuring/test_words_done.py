"""Tasks that are done as words on a bar: those of the right stage, and no more than are done."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from dptext_spark.bars import hidden_progress, progress_bar
from dptext_spark.spark.measuring import words_done


def session_with(*stages: tuple[int, int] | None) -> Any:
    """A session whose active stages have so many tasks, and so many done; None for one that is forgotten."""
    infos = [s and SimpleNamespace(numTasks=s[0], numCompletedTasks=s[1]) for s in stages]
    tracker = SimpleNamespace(getActiveStageIds=lambda: range(len(infos)), getStageInfo=infos.__getitem__)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


@pytest.mark.parametrize(
    ("stages", "done"), [([], 0), ([None], 0), ([(16, 5)], 5), ([(3, 2), (16, 7)], 7), ([(200, 99)], 0)]
)
def test_the_stage_that_has_as_many_tasks_is_counted(stages: list[tuple[int, int] | None], done: int) -> None:
    assert words_done._done(session_with(*stages), 16) == done


def test_a_wave_that_fails_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_done, "_SECONDS", 60.0)
    with progress_bar(anywhere=True, file=StringIO(), total=100) as bar:
        with pytest.raises(ZeroDivisionError), words_done.counted(session_with(), bar, words=50, tasks=4):
            raise ZeroDivisionError
        assert bar.n == 0
        with words_done.counted(session_with(), bar, words=50, tasks=4):
            pass
        assert bar.n == 50


def test_nothing_is_asked_where_nothing_is_shown() -> None:
    """A bar without a terminal costs no question to Spark."""
    nothing: Any = None
    with hidden_progress():
        bar = progress_bar(anywhere=True, total=2)
    with words_done.counted(nothing, bar, words=1, tasks=1):
        assert bar.disable
