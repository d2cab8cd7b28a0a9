"""Progress bars: on stderr, where somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from tqdm import tqdm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS: Final = 0.5


progress_bar: Final = partial(tqdm, disable=None)  # None: only on a terminal


@contextmanager
def stage(doing: str, look: Callable[[tqdm[Any]], None] | None = None) -> Iterator[None]:
    """Say on stderr what is being done: on a terminal by a clock or a bar of tasks, elsewhere in a line.

    ``look``, called twice a second, gives the bar its numbers, until it fails or the block has ended.
    """
    if not sys.stderr.isatty():
        print(f"{doing} ...", file=sys.stderr, flush=True)
        yield
    else:
        ended = Event()
        shape: dict[str, Any] = {"unit": " tasks"} if look else {"bar_format": "{desc}: {elapsed}"}
        with tqdm(desc=doing, leave=False, **shape) as bar:

            def tick() -> None:
                with suppress(Exception):
                    while not ended.wait(_SECONDS):
                        if look is not None:
                            look(bar)
                        bar.refresh()

            thread = Thread(target=tick, daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join(timeout=2 * _SECONDS)  # a JVM that has died or hangs answers no question


def progress(spark: SparkSession, doing: str) -> AbstractContextManager[None]:
    """Say what Spark is doing while the block runs; on a terminal also how many tasks are done."""
    stages = dict[int, Any]()

    def look(bar: tqdm[Any]) -> None:
        tracker = spark.sparkContext.statusTracker()
        # The finished tasks of a stage that has ended still count.
        for number in {*tracker.getActiveStageIds(), *stages}:
            if info := tracker.getStageInfo(number):
                stages[number] = info
        bar.total = sum(info.numTasks for info in stages.values())
        bar.n = sum(info.numCompletedTasks for info in stages.values())

    return stage(doing, look if hasattr(spark, "sparkContext") else None)  # Spark Connect has no tracker
