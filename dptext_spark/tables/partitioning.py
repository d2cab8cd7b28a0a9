"""Rows are spread over tasks where Spark's own partitions would leave cores without work.

Spark cuts files by bytes and never inside a row group of Parquet, of which a file has one for a
million rows as pandas writes it. Such rows are shuffled before they are perturbed, through files on
the executors' disks: only where Spark encrypts these files, and what executors send one another.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dptext_spark.tables.sampling import Sample

POSITION: Final[tuple[str, ...]] = ("__dptext_file", "__dptext_row")
"""Columns of a row's place in its input, where its format numbers rows; they are no output."""

# Operations a second of the core that lengths are planned for, in a matrix product of single
# precision.
_SPEED: Final = 6e10
# Seconds of a task: what is planned, and what is not worth a task.
_PLANNED: Final = 30.0
_SHORTEST: Final = 1.0
# Tasks that each core gets where tables are small.
_TASKS_OF_CORE: Final = 8
# Spark's driver keeps account of each.
_MOST_TASKS: Final = 10_000
# Words of a row where no sample says more; and what a row costs besides them.
_WORDS: Final = 20.0
_ROW: Final = 1e6
# Spark's own shuffle encrypts what it writes; another one may not.
_SHUFFLES: Final = ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager")


@dataclass(kw_only=True)
class Partitioning:
    """How the rows of a run are spread over tasks.

    Attributes:
        word: Operations for each of a row's words.
        row: Operations for a row besides them.
        sample: Has, once it was taken, the words of a row, and perhaps the rows of partitions.
        keeps_order: Whether no row that was spread lost its place.
        private_remarks: Of a report, for those who run the job.
    """

    word: float
    row: float = 0.0
    sample: Sample | None = None
    keeps_order: bool = True
    private_remarks: list[str] = field(default_factory=list)
    _nonce: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def spread(
        self, rows: DataFrame, row_id: Column, partitions: Sequence[Column] = ()
    ) -> DataFrame:
        """Spread rows over tasks, lazily, and drop the columns of :data:`POSITION`.

        Rows that have a position keep their order. Others come in the order of a hash that nobody
        can compute who sees the output: numbers of files would publish bits of the id.
        ``partitions`` name the output's folders: each gets few files. Rows are counted here, and
        read once more where they are shuffled.
        """
        position = [name for name in POSITION if name in rows.columns]
        if not hasattr(rows.sparkSession, "sparkContext"):
            self.private_remarks = [_ON_CONNECT]
            return rows.drop(*position)
        seconds_of_row = self._seconds_of_row()
        seconds = [count * seconds_of_row for count in self._counts(rows, row_id, position)]
        tasks = planned_tasks(seconds, rows.sparkSession.sparkContext.defaultParallelism)
        if tasks is None:
            return rows.drop(*position)
        if not is_encrypted(rows.sparkSession):
            self.private_remarks = [_NOT_ENCRYPTED]
            return rows.drop(*position)
        keys: list[Any] = [*position]
        if not position:
            self.keeps_order = False
            keys = [*partitions, F.xxhash64(row_id, F.lit(self._nonce))]
        return rows.repartitionByRange(tasks, *keys).sortWithinPartitions(*keys).drop(*position)

    def _seconds_of_row(self) -> float:
        """Return how long a row takes, as far as is known."""
        words = _WORDS
        if self.sample is not None and self.sample.mean_words is not None:
            words = self.sample.mean_words
        return (_ROW + self.row + words * self.word) / _SPEED

    def _counts(self, rows: DataFrame, row_id: Column, position: Sequence[str]) -> list[int]:
        """Count the rows of Spark's partitions, unless the sample has them."""
        if self.sample is not None and self.sample.partition_rows is not None:
            return self.sample.partition_rows
        # Of text formats Spark refuses to read no column at all.
        read = F.lit(0) if position else F.xxhash64(row_id)
        numbered = rows.select(F.spark_partition_id().alias("partition"), read.alias("read"))
        counted = numbered.groupBy("partition").agg(F.count("*").alias("rows"), F.max("read"))
        return [row["rows"] for row in counted.collect()]  # numbers, no data


def planned_tasks(partitions: Sequence[float], cores: int) -> int | None:
    """Plan over how many tasks to spread partitions of these seconds each; None to leave them."""
    seconds = sum(partitions)
    length = min(_PLANNED, max(_SHORTEST, seconds / (_TASKS_OF_CORE * cores)))
    tasks = math.ceil(round(seconds / length, 6))
    tasks = min(tasks, _MOST_TASKS)
    is_few = len(partitions) < min(2 * cores, tasks)
    is_long = max(partitions, default=0.0) > 4.0 * _PLANNED
    return tasks if is_few or is_long else None


def is_encrypted(spark: SparkSession) -> bool:
    """Return whether rows that are shuffled lie on no disk, and go over no network, as they are."""
    conf = spark.sparkContext.getConf()

    def is_on(name: str) -> bool:
        return str(conf.get(name, "false")).lower() == "true"

    if not is_on("spark.io.encryption.enabled"):
        return False
    if conf.get("spark.shuffle.manager", "sort") not in _SHUFFLES:
        return False
    if str(spark.sparkContext.master).startswith("local"):  # all on one machine
        return True
    # Without authentication Spark has no key to encrypt with, and sends all as it is.
    has_crypto = is_on("spark.authenticate") and is_on("spark.network.crypto.enabled")
    return has_crypto or is_on("spark.ssl.rpc.enabled")


_NOT_ENCRYPTED: Final = (
    "Tasks are those of Spark's own partitions, which are few or long: this session does not "
    "encrypt what it shuffles. Start it with spark.io.encryption.enabled=true, and on a cluster "
    "with spark.authenticate=true and spark.network.crypto.enabled=true, to spread rows over all "
    "cores."
)
_ON_CONNECT: Final = (
    "Tasks are those of Spark's own partitions: on Spark Connect rows are not spread over more."
)
