"""What Spark has done of its work, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tqdm import tqdm

from dptext_spark.bars import progress_bar

_SECONDS: Final = 0.5


@contextmanager
def progress(spark: SparkSession, doing: str) -> Iterator[None]:
    """Show how many tasks are done while the block runs, if standard error is a terminal."""
    with progress_bar(total=0, desc=doing, unit=" tasks", leave=False) as bar:
        if bar.disable:
            yield
            return
        ended = Event()
        watch = Thread(target=_watch, args=(spark.sparkContext, bar, ended), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            # A JVM that has died or hangs answers no question.
            watch.join(timeout=2 * _SECONDS)


def _watch(context: Any, bar: tqdm[Any], ended: Event) -> None:
    tracker, stages = context.statusTracker(), dict[int, Any]()
    with suppress(Py4JError, OSError):
        while not ended.wait(_SECONDS):
            active = tracker.getActiveStageIds()
            # What is done of a stage that has ended counts on.
            for stage in {*active, *stages}:
                if info := tracker.getStageInfo(stage):
                    stages[stage] = info
            bar.total = sum(info.numTasks for info in stages.values())
            bar.n = sum(info.numCompletedTasks for info in stages.values())
            bar.refresh()
