"""Measuring in waves of blocks, each kept until the tables that need all are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.bars import progress_bar
from dptext_spark.calibration.grid import Grid
from dptext_spark.spark.distribution import BundleFiles
from dptext_spark.spark.measuring.blocks import CELL_SCHEMA, SCHEMA, measure_batches
from dptext_spark.spark.measuring.words_done import counted
from dptext_spark.spark.table.storage import Storage

# Tasks of a wave for each core, and in all at least: enough to keep cores busy, and to lose little.
_TASKS_PER_CORE: Final = 4
_LEAST_TASKS: Final = 16


@dataclass(frozen=True, kw_only=True)
class Waves:
    """What is done already, in a folder of its own, of a run that may be killed, and what does the rest."""

    spark: SparkSession
    storage: Storage
    folder: str
    bundle: BundleFiles

    def measured(self, grid: Grid, name: str, *, cells: bool) -> DataFrame:
        """Measure what is not yet measured under a name, wave by wave, and read all of it.

        No two grids of one run may share a name; ``cells`` keeps the transitions.
        """
        place = f"{self.folder}/{name}"
        schema = CELL_SCHEMA if cells else SCHEMA
        done = {first: stop for first, stop, _ in self._finished(place)}
        size = max(_TASKS_PER_CORE * self.spark.sparkContext.defaultParallelism, _LEAST_TASKS)
        start, settings = 0, len(grid.settings)
        with _bar(grid, done, "calibrate" if cells else f"at epsilon {grid.epsilons(0)[0]:g}") as bar:
            while start < grid.blocks:
                if start not in done:
                    end = start + -(-size // settings)
                    stop = done[start] = min([end, grid.blocks, *(first for first in done if first > start)])
                    words, tasks = settings * grid.words_of(start, stop), settings * (stop - start)
                    with counted(self.spark, bar, words=words, tasks=tasks):
                        self._wave(grid, place, start, stop, cells)
                start = done[start]
        return self.spark.read.schema(schema).parquet(*(path for _, _, path in self._finished(place)))

    def kept(self, df: DataFrame, name: str) -> DataFrame:
        """Compute a frame once."""
        goal = f"{self.folder}/{name}"
        self.write(df, goal)
        return self.spark.read.schema(df.schema).parquet(goal)

    def write(self, df: DataFrame, goal: str) -> None:
        """Write a table that is there whole or not at all, in place of what was there."""
        making = f"{self.folder}/making"
        df.write.mode("overwrite").parquet(making)
        if self.storage.exists(goal):
            self.storage.delete(goal)
        # Not every file system makes the folder above on renaming.
        self.storage.make_folder(goal.rpartition("/")[0])
        self.storage.rename(making, goal)

    def _finished(self, place: str) -> list[tuple[int, int, str]]:
        """Waves that are done: first block, the block after the last, and where."""
        found = []
        for path in self.storage.matches(f"{place}/blocks-[0-9]*"):
            _, first, stop = path.rpartition("/")[2].split("-")
            if first.isdigit():  # not the pattern itself, which comes where nothing is there
                found.append((int(first), int(stop), path))
        return sorted(found)

    def _wave(self, grid: Grid, place: str, start: int, stop: int, cells: bool) -> None:
        """Measure blocks, one task for each and each setting."""
        settings = len(grid.settings)
        tasks = (stop - start) * settings
        pairs = self.spark.range(0, tasks, 1, tasks).select(
            (F.col("id") % settings).cast("int").alias("setting"),
            (F.floor(F.col("id") / settings) + start).cast("int").alias("block"),
        )
        measure = partial(measure_batches, self.bundle, grid, cells)
        measured = pairs.mapInArrow(measure, CELL_SCHEMA if cells else SCHEMA)
        self.write(measured, f"{place}/blocks-{start:07d}-{stop:07d}")


def _bar(grid: Grid, done: Mapping[int, int], name: str) -> Any:
    """Make a bar of the words of all settings, those of finished waves done."""
    settings = len(grid.settings)
    measured = settings * sum(grid.words_of(start, stop) for start, stop in done.items())
    return progress_bar(desc=name, total=settings * grid.words, initial=measured, unit=" words")
