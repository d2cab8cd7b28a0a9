"""How far a calibration is: the tasks that are done, as words on a bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_SECONDS: Final = 0.5


@contextmanager
def counted(spark: SparkSession, bar: Any, *, words: int, tasks: int) -> Iterator[None]:
    """Move a bar of tqdm on while a stage of so many tasks measures so many words."""
    if bar.disable:
        yield
        return
    begun, ended = bar.n, Event()

    def watch() -> None:
        with suppress(Py4JError):  # the job that is watched says it if Spark is gone
            while not ended.wait(_SECONDS):
                bar.update(max(0, begun + words * _done(spark, tasks) // tasks - bar.n))

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    bar.update(begun + words - bar.n)


def _done(spark: SparkSession, tasks: int) -> int:
    """Say how many tasks of the stage that has so many are done; 0 where none such runs."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return max((s.numCompletedTasks for s in stages if s and s.numTasks == tasks), default=0)
