"""A mechanism's channel, worked out on workers: nothing private is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.calibration.estimators import Estimator, estimator
from dptext_spark.channel.channel import Channel
from dptext_spark.channel.counts import RUNS, blocks_of, channel_of_cells, likeliest
from dptext_spark.channel.posteriors import JUDGED_BLOCKS, LIMIT, Guesser, PosteriorSums, Rounds
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search
from dptext_spark.spark.versions import to_arrow
from dptext_spark.word_reader import Bundle

# A row for each output: its cells as bytes, since a row for each cell costs more than its sum.
_SUMS_SCHEMA: Final = "output bigint, weight double, words binary, totals binary"
_WORD: Final = np.dtype("<i4")
_TOTAL: Final = np.dtype("<f8")
_BATCH: Final = 1024  # outputs whose cells travel together, 3 MB
_COUNTS_SCHEMA: Final = "word bigint, output bigint, count double"


def channel_of(
    spark: SparkSession,
    bundle: Bundle,
    search: Search,
    mechanism: Mechanism | None,
    prior: Floats,
    *,
    seed: int = 0,
    limit: float = LIMIT,
) -> Channel:
    """Compute a mechanism's channel on workers, for words by a prior (V,); None for the floors.

    Where the law is computed there is nothing to estimate; else by whole posteriors, where the
    noise has a density, and by counts of draws where nobody wrote it down.
    """
    vocabulary = len(prior)
    if mechanism is None:
        return Channel.uniform(vocabulary, search.release_words)
    source = PointSource(bundle=bundle, mechanism=mechanism, search=search, prior=prior, seed=seed)
    if source.guesser() is not None:
        rounds = SparkRounds(spark=spark, source=source)
        return rounds.channel(prior, outputs=search.release_words, limit=limit)
    words = np.flatnonzero(prior > 0.0)
    estimated = _estimator(bundle, mechanism, search, seed)
    blocks = max(1, blocks_of(estimated, words))
    work = partial(_measure, bundle, mechanism, search, seed, words)
    cells = spark.range(0, blocks, 1, blocks).mapInArrow(work, _COUNTS_SCHEMA)
    return channel_of_cells(to_arrow(cells), estimated, vocabulary=vocabulary)


@dataclass(frozen=True, kw_only=True, eq=False)
class PointSource:
    """What workers make a guesser of; only the prior is large."""

    bundle: Bundle
    mechanism: Mechanism
    search: Search
    prior: Floats
    seed: int

    def guesser(self) -> Guesser | None:
        """Open it; None where the mechanism's noise has no known density."""
        embedding = self.bundle.shared()
        return Guesser.of(self.mechanism, embedding, self.search, self.prior, seed=self.seed)

    def opened(self) -> Guesser:
        """Open one that has been opened before."""
        guesser = self.guesser()
        if guesser is None:
            raise TypeError(f"The noise of {self.mechanism.name} has no density")
        return guesser


@dataclass(frozen=True, kw_only=True, eq=False)
class SparkRounds(Rounds):
    """Points drawn by tasks, and spread by their outputs: one task sums the points of an output."""

    spark: SparkSession
    source: PointSource

    def imagined(self) -> PosteriorSums:
        outputs = len(self.source.search.outputs)
        tasks = min(self._tasks, outputs)
        numbers = self.spark.range(0, outputs, 1, tasks)
        return self._sums(numbers.mapInArrow(self._work(_imagined), _SUMS_SCHEMA))

    def drawn(self, blocks: range) -> PosteriorSums:
        tasks = min(self._tasks, len(blocks))
        numbers = self.spark.range(blocks.start, blocks.stop, 1, tasks)
        points = numbers.mapInArrow(
            self._work(_drawn), "output bigint, number bigint, point binary"
        )
        spread = points.repartition(self._tasks, "output")
        return self._sums(spread.mapInArrow(self._work(_summed), _SUMS_SCHEMA))

    def success(self, *guesses: Ints) -> Floats:
        numbers = self.spark.range(0, JUDGED_BLOCKS, 1, min(self._tasks, JUDGED_BLOCKS))
        schema = "guesser bigint, block bigint, right double"
        judged = to_arrow(numbers.mapInArrow(self._work(_judged_blocks, guesses), schema))
        judged = judged.sort_by([("block", "ascending"), ("guesser", "ascending")])
        totals = judged["right"].to_numpy().reshape(JUDGED_BLOCKS, len(guesses))
        return np.asarray(totals.sum(axis=0))

    @property
    def _tasks(self) -> int:
        """In how many tasks points are drawn and summed."""
        return 2 * self.spark.sparkContext.defaultParallelism

    def _work(self, function: Any, *arguments: Any) -> Any:
        """Return what workers run: a function of the source, arguments and batches."""
        return partial(function, self.source, *arguments)

    def _sums(self, frame: DataFrame) -> PosteriorSums:
        """Read what workers summed."""
        table = to_arrow(frame)
        outputs: Ints = table["output"].to_numpy()
        words = table["words"].to_pylist()
        totals = table["totals"].to_pylist()
        order = np.argsort(outputs)
        cells = np.frombuffer(b"".join(words[row] for row in order), dtype=_WORD)
        counts = np.array([len(of_output) // _WORD.itemsize for of_output in words], dtype=np.int64)
        vocabulary = len(self.source.prior)
        outputs = outputs[order]
        sorted_totals = b"".join(totals[row] for row in order)
        return PosteriorSums(
            vocabulary=vocabulary,
            outputs=outputs,
            weight=table["weight"].to_numpy()[order],
            keys=np.repeat(outputs * vocabulary, counts[order]) + cells,
            total=np.frombuffer(sorted_totals, dtype=_TOTAL),
        )


# What follows runs in Python workers.


@lru_cache(maxsize=1)
def _estimator(bundle: Bundle, mechanism: Mechanism, search: Search, seed: int) -> Estimator:
    return estimator([mechanism], bundle.shared(), search=search, runs=RUNS, seed=seed)


def _measure(
    bundle: Bundle,
    mechanism: Mechanism,
    search: Search,
    seed: int,
    words: Ints,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    estimated = _estimator(bundle, mechanism, search, seed)
    for block in _numbers(batches):
        # Here, not on the driver: without truncation a word has a cell for every word that may come
        # out.
        yield from likeliest(estimated, words, block).to_batches()


def _numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Read the numbers of a task."""
    numbers: list[int] = []
    for batch in batches:
        numbers += batch.column(0).to_pylist()
    return numbers


def _imagined(
    source: PointSource,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    guesser = source.opened()
    places = np.array(sorted(_numbers(batches)), dtype=np.int64)
    yield from _cells_of(guesser.imagined(guesser.outputs[places]))


def _drawn(
    source: PointSource,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Draw the points of blocks: their outputs, what names them, and where they are."""
    guesser = source.opened()
    for block in _numbers(batches):
        drawn = guesser.draw(block)
        points = np.ascontiguousarray(drawn.points)
        width = points[0].nbytes
        binary = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), len(points), [None, pa.py_buffer(points)]
        )
        numbers = block * len(points) + np.arange(len(points))
        columns = {"output": drawn.outputs, "number": numbers, "point": binary.cast(pa.binary())}
        yield from pa.table(columns).to_batches()


def _summed(
    source: PointSource,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Sum the posteriors of all points of a task, which has all points of its outputs."""
    guesser = source.opened()
    parts = [batch for batch in batches if len(batch)]
    if not parts:
        return
    keys = ("output", "number")
    table = pa.Table.from_batches(parts).sort_by([(key, "ascending") for key in keys])
    outputs = table["output"].to_numpy()
    points = np.frombuffer(b"".join(table["point"].to_pylist()), dtype=guesser.density.dtype)
    sums = guesser.sums(outputs, points.reshape(len(outputs), -1))
    yield from _cells_of(sums)


def _cells_of(sums: PosteriorSums) -> Iterator[pa.RecordBatch]:
    """Yield each output's weight and cells, words and totals as bytes."""
    outputs, words = np.divmod(sums.keys, sums.vocabulary)
    borders = np.searchsorted(outputs, np.append(sums.outputs, sums.vocabulary))
    columns = {
        "output": sums.outputs,
        "weight": sums.weight,
        "words": _as_bytes(words.astype(_WORD), borders),
        "totals": _as_bytes(sums.total.astype(_TOTAL), borders),
    }
    yield from pa.table(columns).to_batches(max_chunksize=_BATCH)


def _as_bytes(numbers: NDArray[Any], borders: Ints) -> pa.Array:
    """Return the bytes of numbers between borders (u + 1,)."""
    offsets = pa.py_buffer(borders * numbers.itemsize)
    lists = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(borders) - 1, [None, offsets, pa.py_buffer(numbers)]
    )
    return lists.cast(pa.binary())


def _judged_blocks(
    source: PointSource,
    guesses: tuple[Ints, ...],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    guesser = source.opened()
    for block in _numbers(batches):
        successes = guesser.success(block, *guesses)
        numbers = np.arange(len(successes))
        blocks = np.full(len(successes), block)
        columns = {"guesser": numbers, "block": blocks, "right": successes}
        yield from pa.table(columns).to_batches()
