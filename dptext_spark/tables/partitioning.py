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

from dptext_spark.tables.look import Sample

POSITION: Final[tuple[str, ...]] = ("__dptext_file", "__dptext_row")
"""Columns that say where a row lies in its input, where its format numbers rows; they are no output."""

# Operations a second of the core that lengths are planned for, in a matrix product of single
# precision.
_SPEED: Final = 6e10
# Seconds of a task: what is planned, and what is not worth a task.
_PLANNED: Final = 30.0
_SHORTEST: Final = 1.0
# Tasks that each core gets where tables are small.
_TASKS_OF_CORE: Final = 8
# Words of a row where no sample says more; and what a row costs besides them.
_WORDS: Final = 20.0
_ROW: Final = 1e6
# Spark's own shuffle encrypts what it writes; another one may not.
_SHUFFLES: Final = ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager")


@dataclass(kw_only=True)
class Partitioning:
    """How the rows of a run are spread over tasks."""

    word: float  # operations for each of a row's words
    row: float = 0.0  # and for a row besides them
    sample: Sample | None = (
        None  # knows, once it was taken, the words of a row, perhaps rows of partitions
    )
    keeps_order: bool = True  # whether no row that was spread lost its place
    private_remarks: list[str] = field(
        default_factory=list
    )  # of a report, for those who run the job
    _nonce: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def spread(
        self, rows: DataFrame, row_id: Column, partitions: Sequence[Column] = ()
    ) -> DataFrame:
        """Spread rows over tasks, lazily, and drop the columns of :data:`POSITION`.

        Rows that have a position keep their order. Others come in the order of a hash that nobody
        can compute who sees the output: numbers of files would publish bits of the id.
        ``partitions`` name the output's
        folders: each gets few files. Rows are counted here, and read once more where they are
            shuffled.
        """
        position = [name for name in POSITION if name in rows.columns]
        if not hasattr(rows.sparkSession, "sparkContext"):
            self.private_remarks = [_ON_CONNECT]
            return rows.drop(*position)
        words, counts = (self.sample.words, self.sample.rows) if self.sample else (None, None)
        if counts is None:
            # Of text formats Spark refuses to read no column at all.
            read = F.lit(0) if position else F.xxhash64(row_id)
            numbered = rows.select(F.spark_partition_id().alias("partition"), read.alias("read"))
            found = (
                numbered.groupBy("partition")
                .agg(F.count("*").alias("rows"), F.max("read"))
                .collect()
            )
            counts = [row["rows"] for row in found]  # numbers, no data
        row = (_ROW + self.row + (_WORDS if words is None else words) * self.word) / _SPEED
        cores = rows.sparkSession.sparkContext.defaultParallelism
        tasks = planned_tasks([each * row for each in counts], cores)
        if tasks is None:
            return rows.drop(*position)
        if not is_encrypted(rows.sparkSession):
            self.private_remarks = [_NOT_ENCRYPTED]
            return rows.drop(*position)
        self.keeps_order &= bool(position)
        keys: list[Any] = [*position] or [*partitions, F.xxhash64(row_id, F.lit(self._nonce))]
        return rows.repartitionByRange(tasks, *keys).sortWithinPartitions(*keys).drop(*position)


def planned_tasks(partitions: Sequence[float], cores: int) -> int | None:
    """Say over how many tasks to spread partitions of so many seconds each; None to leave them."""
    seconds = sum(partitions)
    length = min(_PLANNED, max(_SHORTEST, seconds / (_TASKS_OF_CORE * cores)))
    tasks = min(
        math.ceil(round(seconds / length, 6)), 10_000
    )  # Spark's driver keeps account of each
    few = len(partitions) < min(2 * cores, tasks)
    return tasks if few or max(partitions, default=0.0) > 4.0 * _PLANNED else None


def is_encrypted(spark: SparkSession) -> bool:
    """Say whether rows that are shuffled lie on no disk, and go over no network, as they are."""
    conf = spark.sparkContext.getConf()

    def has(name: str) -> bool:
        return str(conf.get(name, "false")).lower() == "true"

    one_machine = str(spark.sparkContext.master).startswith("local")
    # Without authentication Spark has no key to encrypt with, and sends all as it is.
    crypto = has("spark.authenticate") and has("spark.network.crypto.enabled")
    sent = one_machine or crypto or has("spark.ssl.rpc.enabled")
    return (
        has("spark.io.encryption.enabled")
        and sent
        and conf.get("spark.shuffle.manager", "sort") in _SHUFFLES
    )


_NOT_ENCRYPTED: Final = (
    "Tasks are those of Spark's own partitions, which are few or long: this session does not encrypt what it "
    "shuffles. Start it with spark.io.encryption.enabled=true, and on a cluster with spark.authenticate=true "
    "and spark.network.crypto.enabled=true, to spread rows over all cores."
)
_ON_CONNECT: Final = (
    "Tasks are those of Spark's own partitions: on Spark Connect rows are not spread over more."
)
