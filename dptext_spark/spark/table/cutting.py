"""Rows are cut into tasks of a planned length, by their words and what a word costs.

Spark cuts files by bytes and never inside a row group of Parquet, of which a file has one for a million rows
as pandas writes it. So several tasks read the same part of a file and take turns at its rows: the first takes
the first rows, the second those behind them, and so on. Each reads what it leaves to others too, which is
cheap beside perturbing it; nothing is shuffled, so no row gets to a disk, and the order of rows stays. Where
that order does not matter, rows may as well be dealt out by numbers of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.spark.progress import progress

SPEED: Final = 6e10
"""Operations a second of the core that lengths are planned for, in a matrix product of single precision.

Written down and not measured: one table is cut in one way wherever there are as many cores.
"""

# Values a second, words or numbers, that a task reads of rows which it leaves to others.
_READING: Final = 4e6
# What reading may add to the work, where cores are not idle.
_READING_SHARE: Final = 0.05
# Tasks that each core gets where tables are small, unless they would be shorter than this many seconds.
_TASKS_OF_CORE: Final = 8
_SHORTEST: Final = 1.0
# Spark's driver keeps account of each task.
_MOST_TASKS: Final = 100_000
# Where no sample says more.
_WORDS: Final = 20.0
# A row by itself: its noise key, and the way to Python and back.
_ROW: Final = 1e6
# Rows of a partition are numbered from the id's lower bits on.
_NUMBER: Final = (1 << 33) - 1


@dataclass(frozen=True, kw_only=True)
class RowCost:
    """What rows cost.

    Attributes:
        word: Operations for each of a row's words.
        row: Operations for the row beside them.
        numbers: What a row has to be read beside words.
        read: How many rows are read for each that is worked on: more where few of them are chosen, less where
            rows are read once and worked on several times.
    """

    word: float
    row: float = 0.0
    numbers: float = 0.0
    read: float = 1.0

    def seconds(self, words: float) -> float:
        """Give the time for a row of so many words."""
        return (_ROW + self.row + words * self.word) / SPEED

    def most(self, size: int) -> float:
        """Give the time for files of so many bytes, if each were a word."""
        return size * self.seconds(_WORDS) / _WORDS

    def reading(self, words: float) -> float:
        """Give the time to read a row and leave it to another task, seconds."""
        return self.read * (1.0 + words + self.numbers) / _READING


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The partitions that Spark makes of files.

    Attributes:
        rows: How many rows they have, of those that have any.
        count: How many there are.
        fixed: Whether they stay as they are.
        divisible: Whether the files can perhaps be divided further.
    """

    rows: tuple[int, ...]
    count: int
    fixed: bool = False
    divisible: bool = True

    @classmethod
    def of(cls, selected: DataFrame, cost: RowCost, *, fixed: bool = False) -> Parts | None:
        """Count rows, and have Spark make hardly more partitions than there are row groups.

        None where the order of rows is not certain to be the same each time, and where there is so little to
        do at this cost that one task does it.
        """
        if not _keeps_order(selected, fixed=fixed):
            return None
        if cost.most(_bytes(selected)) < _SMALL:  # to count its rows would take as long as all the rest
            selected.sparkSession.conf.set(_PARTITIONS, 1)
            return None
        with progress(selected.sparkSession, "Counting rows"):
            rows, count = _counted(selected, _least_read(selected))
            parts = cls(rows=rows, count=count, fixed=fixed, divisible=not fixed)
            return parts.merged(selected, count)

    @classmethod
    def counted(cls, rows: DataFrame, number: Column) -> Parts:
        """Count the rows of any frame's partitions, which stay as they are; of each its number is read."""
        found, count = _counted(rows, number)
        return cls(rows=found, count=count, fixed=True, divisible=False)

    def merged(self, selected: DataFrame, most: int) -> Parts:
        """Have Spark make fewer partitions where they are far more than ``most``, or than those with rows."""
        wanted = max(1, min(len(self.rows), most), self.count // _MERGED)
        if self.fixed or self.count <= 2 * wanted:
            return self
        each = math.ceil(sum(self.rows) / wanted)
        if wanted < most:  # row groups are what is left
            return replace(self.divided(selected, wanted), divisible=False)
        if max(self.rows) > each:
            return self.divided(selected, wanted)
        _divide(selected, wanted)  # not counted again: that would open many files once more
        return replace(self, rows=(each,) * wanted, count=wanted)

    def finer(self, selected: DataFrame, count: int) -> Parts:
        """Have Spark make so many partitions, unless no more of them have rows than now."""
        conf = selected.sparkSession.conf
        before = {name: conf.get(name, None) for name in (_PARTITIONS, _PARTITION_BYTES)}
        divided = self.divided(selected, count)
        if len(divided.rows) > len(self.rows):
            return divided
        for name, value in before.items():
            conf.unset(name) if value is None else conf.set(name, value)
        return replace(self, divisible=False)

    def divided(self, selected: DataFrame, count: int) -> Parts:
        """Have Spark divide the bytes of the files into so many partitions, as far as they can be divided."""
        _divide(selected, count)
        rows, found = _counted(selected, _least_read(selected))
        return replace(self, rows=rows, count=found)


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """How long tasks are to be.

    Attributes:
        seconds: What a task takes, at most, as far as that can be planned.
        cost: What rows cost.
        words: Says, when it is asked, how many words a row has on average; None where nobody knows.
    """

    seconds: float
    cost: RowCost
    words: Callable[[], float | None]

    def spread(self, selected: DataFrame, parts: Parts | None) -> DataFrame:
        """Spread rows over tasks, lazily.

        Args:
            selected: Rows of files, as :meth:`TableColumns.select` gives them.
            parts: What Spark has made of the files; None leaves it so.
        """
        if parts is None or not parts.rows:
            return selected
        cores = selected.sparkSession.sparkContext.defaultParallelism
        wanted = self.tasks(parts, cores)
        if len(parts.rows) < wanted and parts.divisible:
            parts = parts.finer(selected, wanted)
        # Where there is little work every core keeps some tasks: to open files takes time as well.
        parts = parts.merged(selected, max(wanted, 2 * cores))
        turns = self.turns(parts, cores)
        return in_turns(selected, turns, -(-max(parts.rows) // turns))

    def dealt(self, rows: DataFrame, number: Column) -> DataFrame:
        """Deal rows out to tasks by numbers of their own, lazily; their order is lost.

        Args:
            rows: Rows that are the same each time, in whatever order.
            number: A whole number of each, as if drawn by chance.
        """
        cores = rows.sparkSession.sparkContext.defaultParallelism
        parts = Parts.counted(rows, number)
        if not parts.rows:
            return rows
        most = max(self.tasks(parts, cores), 2 * cores)
        if parts.count > 2 * most:
            rows = rows.coalesce(most)
            parts = Parts.counted(rows, number)
        turns = self.turns(parts, cores)
        return _shared_out(rows, turns, F.pmod(number, F.lit(turns)))

    def tasks(self, parts: Parts, cores: int) -> int:
        """Say how many tasks there are to be, if all rows were alike."""
        return math.ceil(sum(parts.rows) / self.rows_of_task(parts, cores))

    def turns(self, parts: Parts, cores: int) -> int:
        """Say how many tasks are to take turns at each partition, where ``cores`` tasks run at once."""
        # A task half as long again is better than two that read its rows.
        wanted = math.ceil(max(parts.rows) / self.rows_of_task(parts, cores) - 0.5)
        pays = self.cost.seconds(self._words) / self.cost.reading(self._words)
        idle = min(math.ceil(cores / len(parts.rows)), pays)
        return max(1, int(min(wanted, max(_READING_SHARE * pays, idle), _MOST_TASKS // parts.count)))

    def rows_of_task(self, parts: Parts, cores: int) -> int:
        """Say how many rows a task is to have."""
        each = self.cost.seconds(self._words)
        share = sum(parts.rows) * each / (_TASKS_OF_CORE * cores)
        return max(1, int(min(self.seconds, max(share, _SHORTEST)) / each))

    @property
    def _words(self) -> float:
        found = self.words()
        return _WORDS if found is None else found


def in_turns(selected: DataFrame, turns: int, rows: int) -> DataFrame:
    """Have several tasks take turns at each partition of a frame, ``rows`` rows each, in their order.

    Every task reads the whole partition, whose rows must come in one order each time. The last takes all that
    is left.
    """
    number = F.monotonically_increasing_id().bitwiseAND(F.lit(_NUMBER))  # inside its partition
    turn = F.floor(number / F.lit(rows)).cast("long")
    return _shared_out(selected, turns, F.least(turn, F.lit(turns - 1)))


def _shared_out(selected: DataFrame, turns: int, turn: Column) -> DataFrame:
    """Have several tasks read each partition of a frame, each for the rows whose ``turn`` it is."""
    if turns == 1:
        return selected
    tasks = selected.sparkSession.range(0, turns, 1, turns).withColumnRenamed("id", _TASK)
    # Partition by partition: no row is sent anywhere.
    numbered = selected.select("*", turn.alias(_TURN))
    pairs = numbered.join(tasks.hint("shuffle_replicate_nl"), F.col(_TURN) == F.col(_TASK))
    return pairs.select(*selected.columns)


_TURN: Final = "__dptext_turn"
_TASK: Final = "__dptext_task"


def _counted(selected: DataFrame, known: Column) -> tuple[tuple[int, ...], int]:
    """Count the rows of each partition that has any, and all partitions; a column of each row is read."""
    numbered = selected.select(F.spark_partition_id().alias("partition"), known.alias("known"))
    plan: Any = numbered._jdf.queryExecution()
    sums = numbered.groupBy("partition").agg(F.count("*").alias("count"), F.max("known"))
    found = sums.collect()  # numbers, no data
    return tuple(row["count"] for row in found), plan.toRdd().getNumPartitions()


def _least_read(selected: DataFrame) -> Column:
    """Give what has to be read to count rows of files; of Parquet nothing."""
    # Of text formats Spark refuses to read no column: what is malformed must come up.
    return F.lit(0) if _format(selected) in _COUNTED else F.xxhash64(selected.columns[0])


def _divide(selected: DataFrame, count: int) -> None:
    conf = selected.sparkSession.conf
    conf.set(_PARTITIONS, count)
    conf.set(_PARTITION_BYTES, _ALL)


_PARTITIONS: Final = "spark.sql.files.minPartitionNum"
_PARTITION_BYTES: Final = "spark.sql.files.maxPartitionBytes"
# Partitions that are put together at most: few rows may be all that a filter has left of many bytes.
_MERGED: Final = 64
# Bytes that no partition has: it is the number of partitions that counts.
_ALL: Final = 1 << 50


# Formats whose files say how many rows they have, and those that are given as batches.
_COUNTED: Final = ("Parquet", "ORC", None)
# A table that takes no more seconds is one task.
_SMALL: Final = 1.0


def _plan(selected: DataFrame) -> Any:
    """The plan below what selects columns and rows."""
    plan: Any = selected._jdf.queryExecution().optimizedPlan()
    while plan.nodeName() in {"Project", "Filter"}:
        plan = plan.children().head()
    return plan


def _bytes(selected: DataFrame) -> int:
    """Say how large the files are, as far as Spark knows."""
    return int(str(_plan(selected).stats().sizeInBytes()))


def _format(selected: DataFrame) -> str | None:
    """Name the format of the files; None for what is none."""
    plan = _plan(selected)
    return None if plan.nodeName() == "LogicalRDD" else str(plan.relation().fileFormat())


def _keeps_order(selected: DataFrame, *, fixed: bool) -> bool:
    """Say whether a frame's rows are those of files, one after the other, each time it is evaluated.

    Others, such as those of a view that joins tables, may come in another order each time.
    """
    plan = _plan(selected)
    if plan.nodeName() == "LogicalRDD":
        return fixed
    if not str(plan.getClass().getSimpleName()).startswith("LogicalRelation"):
        return False
    return bool(plan.relation().getClass().getSimpleName() == "HadoopFsRelation")
