"""What is shown while a run is at work: lines and progress bars on standard error.

Whether anyone can read them changes nothing for the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, TextIO

import click
from tqdm import tqdm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS: Final = 0.5

progress_bar: Final = partial(tqdm, disable=None)  # None: only on a terminal


def drop_unwritten(stream: TextIO | None) -> None:
    """Drop what a stream could not write, if anything, and what is written to it from then on.

    Python would try once more to write it when the process ends, and exit with a code of its own.
    """
    if stream is None:  # closed before this process began
        return
    try:
        stream.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "w") as nowhere:  # a stream may have no file
            os.dup2(nowhere.fileno(), stream.fileno())
            stream.flush()


def tell(line: str) -> None:
    """Write a line to standard error; nothing where the disk is full or the pipe is closed."""
    with suppress(OSError):
        click.echo(line, err=True)
    drop_unwritten(sys.stderr)


@contextmanager
def progress(spark: SparkSession | None, doing: str) -> Iterator[None]:
    """Show on stderr what is being done: on a terminal a bar of tasks or a clock, else a line."""
    if not sys.stderr.isatty():
        tell(f"{doing} ...")
        yield
        return
    has_tracker = hasattr(spark, "sparkContext")  # that of Spark Connect has none
    end = Event()
    stages: dict[int, Any] = {}

    def tick() -> None:
        with suppress(Exception):  # a JVM that has died
            while not end.wait(_SECONDS):
                if spark is not None and has_tracker:
                    tracker = spark.sparkContext.statusTracker()
                    # The finished tasks of a stage that has ended still count.
                    for number in {*tracker.getActiveStageIds(), *stages}:
                        info = tracker.getStageInfo(number)
                        if info:
                            stages[number] = info
                    infos = stages.values()
                    bar.total = sum(info.numTasks for info in infos)
                    bar.n = sum(info.numCompletedTasks for info in infos)
                bar.refresh()

    shape: dict[str, Any] = {"bar_format": "{desc}: {elapsed}"}
    if has_tracker:
        shape = {"unit": " tasks"}
    with tqdm(desc=doing, leave=False, **shape) as bar:
        thread = Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(timeout=2 * _SECONDS)  # a JVM that has died or hangs answers no question


stage: Final = partial(progress, None)
"""What is done without Spark."""
