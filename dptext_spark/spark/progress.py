"""What Spark has done of its work, on a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import SparkSession
from tqdm import tqdm

from dptext_spark.bars import stage


def progress(spark: SparkSession, doing: str) -> AbstractContextManager[None]:
    """Say what is done while the block runs; on a terminal also how many tasks are."""
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
