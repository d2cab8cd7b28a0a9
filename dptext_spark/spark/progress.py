"""What Spark has done of its work, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dptext_spark.bars import progress_bar

_SECONDS: Final = 0.5


@contextmanager
def progress(spark: SparkSession, doing: str) -> Iterator[None]:
    """Show how many tasks are done while the block runs, if standard error is a terminal."""
    ended = Event()
    with progress_bar(total=0, desc=doing, unit=" tasks", leave=False) as bar:

        def watch() -> None:
            tracker, stages = spark.sparkContext.statusTracker(), dict[int, Any]()
            with suppress(Py4JError, OSError):
                while not ended.wait(_SECONDS):
                    # The finished tasks of a stage that has ended still count.
                    for stage in {*tracker.getActiveStageIds(), *stages}:
                        if info := tracker.getStageInfo(stage):
                            stages[stage] = info
                    bar.total = sum(info.numTasks for info in stages.values())
                    bar.n = sum(info.numCompletedTasks for info in stages.values())
                    bar.refresh()

        watcher = Thread(target=watch, daemon=True)
        watched = hasattr(spark, "sparkContext") and not bar.disable  # Spark Connect has no tracker
        if watched:
            watcher.start()
        try:
            yield
        finally:
            ended.set()
            if watched:  # a JVM that has died or hangs answers no question
                watcher.join(timeout=2 * _SECONDS)
