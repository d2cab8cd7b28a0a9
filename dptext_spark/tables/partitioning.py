"""Rows are spread over tasks of equal work, and what comes out is gathered in usual files.

Spark's own partitions would leave cores without work: it cuts files by bytes and never inside a row
group of Parquet, of which a file has one for a million rows as pandas writes it. Such rows are
shuffled before they are perturbed, through files on the executors' disks: only where Spark encrypts
these files, and what executors send one another. Tasks of equal work write far less than a usual
file each, so their output is shuffled once more.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
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
# Bytes of values in memory that become one file: about 128 MB of Parquet.
_FILE: Final = 1 << 28
# So many files are not too many, however small.
_FEW_FILES: Final = 16
_NUMBER: Final = "__dptext_file_number"
_PLACE: Final = "__dptext_place"
# Words of a row where no sample says more; and what a row costs besides them.
_WORDS: Final = 20.0
_ROW: Final = 1e6
# Spark's own shuffle encrypts what it writes; another one may not.
_SHUFFLES: Final = ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager")


@dataclass(kw_only=True)
class Partitioning:
    """How the rows of a run are spread over tasks, and gathered in files.

    Attributes:
        word: Operations for each of a row's words.
        row: Operations for a row besides them.
        row_bytes: Of what is released of a row; None where the sample measures it.
        word_bytes: Of what is released of each of its words, in addition to ``row_bytes``.
        sample: Has, once it was taken, the words of a row, and perhaps the rows of partitions.
        keeps_order: Whether no row that was spread lost its place.
        private_remarks: Of a report, for those who run the job.
        plan: Of the rows that were planned last; None on Spark Connect.
    """

    word: float
    row: float = 0.0
    row_bytes: float | None = None
    word_bytes: float = 0.0
    sample: Sample | None = None
    keeps_order: bool = True
    private_remarks: list[str] = field(default_factory=list)
    plan: Plan | None = None
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
        plan = self.planned(rows, row_id)
        position = _position(rows)
        if plan is None or not plan.shuffles:
            return rows.drop(*position)
        keys: list[Any] = [*position]
        if not position:
            self.keeps_order = False
            keys = [*partitions, F.xxhash64(row_id, F.lit(self._nonce))]
        spread = rows.repartitionByRange(plan.tasks, *keys).sortWithinPartitions(*keys)
        return spread.drop(*position)

    def planned(self, rows: DataFrame, row_id: Column) -> Plan | None:
        """Count rows and plan their tasks and files; None on Spark Connect."""
        spark = rows.sparkSession
        if not hasattr(spark, "sparkContext"):
            self.private_remarks = [_ON_CONNECT]
            return None
        position = _position(rows)
        counts = self._counts(rows, row_id, position)
        seconds_of_row = self._seconds_of_row()
        seconds = [count * seconds_of_row for count in counts if count]
        files = None
        released_bytes = self._released_bytes()
        if released_bytes is not None:
            files = max(1, math.ceil(sum(counts) * released_bytes / _FILE))
        can_shuffle = is_encrypted(spark)
        cores = spark.sparkContext.defaultParallelism
        if not can_shuffle and planned_tasks(seconds, cores) is not None:
            self.private_remarks = [_NOT_ENCRYPTED]
        self.plan = Plan.of(counts, seconds, files, cores=cores, can_shuffle=can_shuffle)
        return self.plan

    def gathered(self, rows: DataFrame) -> DataFrame:
        """Gather rows that were sanitized in fewer partitions, one a file, in the order of tasks.

        A range partitioning would compute its input twice. So each file gets a number that Spark's
        own hash sends to the file's partition.
        """
        plan = self.plan
        if plan is None or plan.files >= plan.tasks:
            return rows
        numbers = _numbers_of_partitions(rows.sparkSession, plan.files)
        by_task = [numbers[file] for file in plan.files_of_tasks]
        listed = F.split(F.lit(",".join(map(str, by_task))), ",").cast("array<int>")
        # A view may be cut into more partitions than when it was counted: they go to the last file.
        place = F.least(F.spark_partition_id() + 1, F.lit(len(by_task)))
        number = F.element_at(listed, place)
        placed = rows.withColumns({_NUMBER: number, _PLACE: F.monotonically_increasing_id()})
        gathered = placed.repartition(plan.files, _NUMBER).sortWithinPartitions(_PLACE)
        return gathered.drop(_NUMBER, _PLACE)

    def _seconds_of_row(self) -> float:
        """Return how long a row takes, as far as is known."""
        return (_ROW + self.row + self._words_of_row() * self.word) / _SPEED

    def _released_bytes(self) -> float | None:
        """Return how many bytes are released of a row, as far as is known."""
        if self.row_bytes is not None:
            return self.row_bytes + self._words_of_row() * self.word_bytes
        return None if self.sample is None else self.sample.row_bytes

    def _words_of_row(self) -> float:
        """Return how many words a row has on average, as far as is known."""
        if self.sample is None or self.sample.mean_words is None:
            return _WORDS
        return self.sample.mean_words

    def _counts(self, rows: DataFrame, row_id: Column, position: Sequence[str]) -> list[int]:
        """Count the rows of Spark's partitions, by number, unless the sample has them."""
        if self.sample is not None and self.sample.partition_rows is not None:
            return self.sample.partition_rows
        # Of text formats Spark refuses to read no column at all.
        read = F.lit(0) if position else F.xxhash64(row_id)
        numbered = rows.select(F.spark_partition_id().alias("partition"), read.alias("read"))
        counted = numbered.groupBy("partition").agg(F.count("*").alias("rows"), F.max("read"))
        rows_of = {row["partition"]: row["rows"] for row in counted.collect()}  # numbers, no data
        return [rows_of.get(number, 0) for number in range(max(rows_of, default=-1) + 1)]


def _position(rows: DataFrame) -> list[str]:
    """Name the columns of the rows' places, where they have them."""
    return [name for name in POSITION if name in rows.columns]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Of how many tasks and files a run is."""

    rows: int
    tasks: int  # that have rows
    files: int  # fewer than tasks where their output is shuffled once more
    shuffles: bool  # whether rows are spread over the tasks
    shares: tuple[int, ...]  # of the rows that tasks have, by the number of the task

    @classmethod
    def of(
        cls,
        counts: Sequence[int],
        seconds: Sequence[float],
        files: int | None,
        *,
        cores: int,
        can_shuffle: bool,
    ) -> Self:
        """Plan a table whose partitions take so long, and whose size asks for so many files.

        ``counts`` are the rows of all partitions, ``seconds`` of those that have rows.

        Only another shuffle makes fewer files: a task for each would leave cores without work, and
        partitions that Spark itself joins may come in another order.
        """
        tasks = len(seconds)
        shares = tuple(counts)
        planned = planned_tasks(seconds, cores)
        shuffles = planned is not None and can_shuffle
        if planned is not None and can_shuffle:
            tasks = planned
            shares = (1,) * tasks
        if files is None or not can_shuffle or tasks <= max(_FEW_FILES, 2 * files):
            files = tasks
        rows = sum(counts)
        return cls(rows=rows, tasks=tasks, files=files, shuffles=shuffles, shares=shares)

    @property
    def files_of_tasks(self) -> list[int]:
        """Return the file of each task: equal shares of rows, in the order of tasks."""
        ends = np.cumsum(self.shares)
        middles = ends - np.array(self.shares) / 2
        files = np.floor(middles * (self.files / ends[-1])).astype(np.int64)
        numbers: list[int] = np.minimum(files, self.files - 1).tolist()
        return numbers

    def files_of(self, most_rows: str) -> int:
        """Return how many files there are if none has more rows; empty for as many as there are."""
        limit = int(most_rows) if most_rows.isdecimal() else 0
        if limit == 0:
            return self.files
        rows_of_file = math.ceil(self.rows / max(1, self.files))
        return self.files * math.ceil(rows_of_file / limit)


def _numbers_of_partitions(spark: SparkSession, partitions: int) -> list[int]:
    """Return for each partition a number whose hash is the partition's."""
    numbers: dict[int, int] = {}
    start = 0
    while len(numbers) < partitions:
        stop = start + 1000 + math.ceil(partitions * (math.log(partitions) + 5.0))
        number = F.col("id").cast("int")
        hashes = F.pmod(F.hash(number), F.lit(partitions))
        for partition, hashed in spark.range(start, stop, 1, 1).select(hashes, number).collect():
            numbers.setdefault(partition, hashed)
        start = stop
    _, ordered = zip(*sorted(numbers.items()), strict=True)
    return [*ordered]


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
