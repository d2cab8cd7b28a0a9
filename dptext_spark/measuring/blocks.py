"""Blocks of words, measured in Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.calibration import Estimator, Transitions, word_statistics
from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import OF_WORD
from dptext_spark.spark.bundle_files import BundleFiles

CELLS: Final = ("outputs", "counts", "judged")

SCHEMA: Final = "setting string, block int, epsilon double, rank int, word int, " + ", ".join(
    f"{name} double" for name in OF_WORD
)
CELL_SCHEMA: Final = f"{SCHEMA}, outputs array<int>, counts array<double>, judged array<double>"

# Words per Arrow batch: each brings its outputs along.
_ROWS: Final = 256


def measured(spark: SparkSession, bundle: BundleFiles, grid: Grid, *, cells: bool) -> DataFrame:
    """Measure the words of a grid, one task for each block and setting; ``cells`` keeps the transitions."""
    settings = len(grid.settings)
    tasks = grid.blocks * settings
    pairs = spark.range(0, tasks, 1, tasks).select(
        (F.col("id") % settings).cast("int").alias("setting"),
        F.floor(F.col("id") / settings).cast("int").alias("block"),
    )
    work = partial(_measure_batches, bundle, grid, cells)
    return pairs.mapInArrow(work, CELL_SCHEMA if cells else SCHEMA)


@lru_cache(maxsize=2)
def _estimator_of(bundle: BundleFiles, grid: Grid, setting: int) -> Estimator:
    return grid.estimator_of(setting, bundle.shared())


def _measured(bundle: BundleFiles, grid: Grid, setting: int, block: int, cells: bool) -> pa.Table:
    """Measure a block of words: a row for each epsilon and word, with its transitions if asked for."""
    transitions = _estimator_of(bundle, grid, setting)(grid.block(block), block=block)
    table = word_statistics(transitions, confidence=grid.confidence, eta=grid.eta)
    columns = {
        "setting": pa.repeat(grid.names[setting], len(table)),
        "block": np.full(len(table), block, dtype=np.int32),
        "epsilon": np.array(grid.epsilons(setting))[table["epsilon_index"].to_numpy()],
        # Words come in ascending order, as their ranks do, at each epsilon.
        "rank": np.tile(grid.ranks_of(block), len(grid.epsilons(setting))).astype(np.int32),
        **{column: table[column].combine_chunks() for column in ("word", *OF_WORD)},
    }
    return pa.table(columns | (_lists(transitions) if cells else {}))


def _lists(transitions: Transitions) -> dict[str, pa.Array]:
    """The cells of each epsilon and word as lists."""
    offsets = pa.array(np.append(transitions.starts, len(transitions.count)), pa.int32())
    counts = (transitions.count, transitions.judged)
    values = (transitions.output, *(count.astype(np.float64) for count in counts))
    lists = (pa.ListArray.from_arrays(offsets, pa.array(column)) for column in values)
    return dict(zip(CELLS, lists, strict=True))


def _measure_batches(
    bundle: BundleFiles, grid: Grid, cells: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Measure (setting, block) pairs; runs in Python workers."""
    for batch in batches:
        for setting, block in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield from _measured(bundle, grid, setting, block, cells).to_batches(max_chunksize=_ROWS)


def with_words(df: DataFrame, bundle: BundleFiles, *columns: str) -> DataFrame:
    """Put words in the place of their rows in the bundle."""
    kinds = {f.name: "string" if f.name in columns else f.dataType.simpleString() for f in df.schema}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    return df.mapInArrow(partial(_name_batches, bundle, columns), schema)


def _name_batches(
    bundle: BundleFiles, columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Put words for their rows in the bundle; runs in Python workers."""
    words = bundle.shared().words
    for batch in batches:
        named = [
            words.take(column) if name in columns else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(named, names=batch.schema.names)
