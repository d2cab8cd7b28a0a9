"""Released rows read and added up by workers: aggregates of groups come back, no row does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StringType, StructType

from dptext_spark.errors import ConfigError
from dptext_spark.estimates.cells import SUMS, Group, cluster_terms, row_values
from dptext_spark.estimates.features import OutputFeatures, RowPosterior
from dptext_spark.estimates.reading import ASIDE, OutputReader
from dptext_spark.estimates.released import ReleasedColumn
from dptext_spark.geometry import Floats, Ints
from dptext_spark.spark.versions import to_arrow

MOST_GROUPS: Final = 10_000
"""Groups of rows, of which each has a row for each topic."""

NULL: Final = "(null)"
"""The group of rows whose column has no value."""

_PERSON: Final = "__dptext_person"
_TEXT: Final = "__dptext_text"
_READ: Final = "outputs array<int>, words int, marks int, aside int"
_FEATURES: Final = {"vector": FloatType(), "words": StringType(), "weights": DoubleType()}
_CELLS: Final = 1 << 22  # weights that are held at once


@dataclass(frozen=True, kw_only=True)
class ReadTable:
    """A released table whose texts are outputs: groups, perhaps persons, and what rows show."""

    frame: DataFrame
    groups: tuple[str, ...]  # columns that rows are grouped by
    has_person: bool

    @classmethod
    def read(
        cls,
        df: DataFrame,
        reader: OutputReader,
        text: Column,
        groups: Mapping[str, Column],
        person: Column | None,
    ) -> ReadTable:
        """Read a table once; what is read is kept until it is released."""
        keys: dict[str, Column] = {}
        for name, column in zip(_names(len(groups)), groups.values(), strict=True):
            keys[name] = F.coalesce(column.cast(StringType()), F.lit(NULL))
        if person is not None:
            keys[_PERSON] = person.cast(StringType())
        selected = df.where(text.isNotNull()).withColumns({**keys, _TEXT: text})
        selected = selected.select(*keys, _TEXT)
        schema = ", ".join([*_typed(keys, "string"), _READ])
        frame = selected.mapInArrow(partial(_read, reader), schema)
        frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        return cls(frame=frame, groups=tuple(groups), has_person=person is not None)

    def release(self) -> None:
        """Forget what was read."""
        self.frame.unpersist()

    def totals(self) -> dict[str, int]:
        """Count rows, words and marks that they show, and words aside."""
        sums = _summed(("words", "marks", "aside"))
        row = self.frame.agg(F.count(F.lit(1)).alias("rows"), *sums).collect()[0]
        # The sum over no rows is null.
        return {name: int(value or 0) for name, value in row.asDict().items()}

    def texts(self, rows: int) -> tuple[Ints, Ints]:
        """Return the outputs of some of the rows, ASIDE among them, and where each row starts.

        They are ids of what is released or public, of the same rows however the table is cut.
        """
        chosen_rows = self.frame.select("outputs").orderBy(F.xxhash64("outputs")).limit(rows)
        lists = to_arrow(chosen_rows)["outputs"].combine_chunks()
        outputs = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
        return outputs, np.asarray(lists.offsets.to_numpy() - lists.offsets[0].as_py(), np.int64)

    def lengths(self) -> Ints:
        """Return the different numbers of words and marks of rows, ascending."""
        lengths = to_arrow(self.frame.select("words").distinct())["words"].to_numpy()
        return np.sort(np.asarray(lengths, dtype=np.int64))

    def words_of_groups(self) -> Ints:
        """Count the outputs of each group, int64 (groups,)."""
        outputs = F.sum(F.col("words") - F.col("marks") - F.col("aside")).alias("number")
        groups = self.frame.groupBy(*_names(len(self.groups))).agg(outputs)
        numbers = to_arrow(groups.limit(MOST_GROUPS))["number"].to_numpy()
        return np.asarray(numbers, dtype=np.int64)

    def output_counts(self, released: ReleasedColumn, outputs: int) -> dict[float, Ints]:
        """Count each output, (outputs,), at each epsilon of rows that have any."""
        counting = self.frame.mapInArrow(
            partial(_count, released), "epsilon double, output int, number bigint"
        )
        table = to_arrow(counting.groupBy("epsilon", "output").agg(F.sum("number").alias("number")))
        epsilons = table["epsilon"].to_numpy()
        counts: dict[float, Ints] = {}
        for epsilon in np.unique(epsilons).tolist():
            is_of_epsilon = epsilons == epsilon
            counts[epsilon] = np.zeros(outputs, dtype=np.int64)
            places = table["output"].to_numpy()[is_of_epsilon]
            counts[epsilon][places] = table["number"].to_numpy()[is_of_epsilon]
        return counts

    def sums(
        self, released: ReleasedColumn, weights: Mapping[float, Floats], by: Sequence[str]
    ) -> dict[Group, Floats]:
        """Add up weights of outputs (outputs, T) at each epsilon over the rows of groups.

        Returns:
            For each group the sums (6, 2 T) over its rows, or over its persons.
        """
        names_of = dict(zip(self.groups, _names(len(self.groups)), strict=True))
        names = [names_of[name] for name in by]
        keys = [*names, _PERSON] if self.has_person else names
        columns = [*_typed(keys, "string"), "measure int", *_typed(SUMS, "double")]
        schema = ", ".join(columns)
        sums = self.frame.mapInArrow(partial(_add_up, released, dict(weights), keys), schema)
        if self.has_person:
            sums = _over_persons(sums, [*names, "measure"])
        else:
            sums = sums.groupBy(*names, "measure").agg(*_summed(SUMS))
        topics = next(iter(weights.values())).shape[1]
        most = (MOST_GROUPS + 1) * 2 * topics
        table = to_arrow(sums.limit(most))
        if len(table) == most:
            raise ConfigError(
                "The table has too many groups",
                allowed=f"{MOST_GROUPS:,}",
                do="Leave out a column of --by, or take longer times",
            )
        return _by_group(table, names, 2 * topics)


def with_features(
    df: DataFrame, reader: OutputReader, text: str, features: OutputFeatures | RowPosterior
) -> DataFrame:
    """Return the other columns of a released table, with what outputs say of each row's words."""
    schema = StructType()
    columns = []
    for field in df.schema.fields:
        if field.name != text:
            schema = schema.add(field.name, field.dataType)
            columns.append(F.col(f"`{field.name}`"))
    for name, kind in _FEATURES.items():
        schema = schema.add(name, ArrayType(kind))
    selected = df.select(*columns, F.col(f"`{text}`").alias(_TEXT))
    return selected.mapInArrow(partial(_featured, reader, features), schema)


def _names(count: int) -> list[str]:
    """Return names of the columns of groups that no column of a user has."""
    return [f"__dptext_group_{number}" for number in range(count)]


def _typed(names: Iterable[str], kind: str) -> list[str]:
    return [f"{name} {kind}" for name in names]


def _summed(names: Iterable[str]) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]


def _over_persons(sums: DataFrame, keys: list[str]) -> DataFrame:
    """Add up squares and products over persons, each a cluster with all of its rows."""
    # Null stands for no person: such rows would be one cluster.
    persons = sums.where(F.col(_PERSON).isNotNull()).groupBy(*keys, _PERSON).agg(*_summed("vn"))
    v = F.col("v")
    n = F.col("n")
    squares = {"vv": v * v, "vn": v * n, "nn": n * n}
    persons = persons.where(n > 0).withColumns({"rows": F.lit(1.0), **squares})
    return persons.groupBy(*keys).agg(*_summed(SUMS))


def _by_group(table: pa.Table, names: Sequence[str], measures: int) -> dict[Group, Floats]:
    """Return the sums of each group, (6, measures), of a table of groups and measures."""
    sums: dict[Group, Floats] = {}
    for row in table.to_pylist():
        group = tuple(map(row.__getitem__, names))
        of_group = sums.setdefault(group, np.zeros((len(SUMS), measures)))
        of_group[:, row["measure"]] = [*map(row.__getitem__, SUMS)]
    return sums


# What follows runs in Python workers.


def _read(reader: OutputReader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        text = batch.column(_TEXT)
        rows = reader.read(text, column="of the released table")
        words = np.diff(rows.offsets)
        of_row = np.repeat(np.arange(len(words)), words)
        aside = np.bincount(of_row[rows.outputs == ASIDE], minlength=len(words)) - rows.marks
        outputs = pa.ListArray.from_arrays(
            pa.array(rows.offsets, pa.int32()), pa.array(rows.outputs, pa.int32())
        )
        counts = [pa.array(count, pa.int32()) for count in (words, rows.marks, aside)]
        arrays = [*batch.columns[:-1], outputs, *counts]
        names = [*batch.schema.names[:-1], "outputs", "words", "marks", "aside"]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _outputs_of(batch: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Return the outputs of a batch's rows (t,), without those aside, and the row of each."""
    lists = batch.column("outputs")
    outputs = lists.flatten().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(batch)), batch.column("words").to_numpy())
    is_output = outputs != ASIDE
    return outputs[is_output], rows[is_output]


def _count(released: ReleasedColumn, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        outputs, rows = _outputs_of(batch)
        epsilons = released.epsilons_of(batch.column("words").to_numpy().astype(np.int64))[rows]
        for epsilon in np.unique(epsilons).tolist():
            counts = np.bincount(outputs[epsilons == epsilon])
            places = np.flatnonzero(counts)
            columns = {
                "epsilon": pa.array(np.full(len(places), epsilon)),
                "output": pa.array(places, pa.int32()),
                "number": pa.array(counts[places], pa.int64()),
            }
            yield pa.RecordBatch.from_pydict(columns)


def _add_up(
    released: ReleasedColumn,
    weights: Mapping[float, Floats],
    keys: Sequence[str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    epsilons = np.array(sorted(weights))
    stacked = np.stack([weights[epsilon] for epsilon in epsilons.tolist()])
    topics = stacked.shape[2]
    for large in batches:
        most = max(1, int(np.max(large.column("words").to_numpy(), initial=1)))
        size = max(1, _CELLS // (most * topics))
        for start in range(0, len(large), size):
            batch = large.slice(start, size)
            outputs, rows = _outputs_of(batch)
            words = batch.column("words").to_numpy().astype(np.int64)
            of_rows = np.searchsorted(epsilons, released.epsilons_of(words))
            of_rows = np.minimum(of_rows, len(epsilons) - 1)  # of rows without an output
            values, sizes = row_values(outputs, rows, stacked, of_rows)
            yield _summed_batch(batch, keys, values, sizes)


def _summed_batch(
    batch: pa.RecordBatch, keys: Sequence[str], values: Floats, sizes: Floats
) -> pa.RecordBatch:
    """Add up the rows of each group of a batch, for each measure."""
    columns = {name: batch.column(name) for name in keys}
    columns["whole"] = pa.array(np.zeros(len(batch)))  # a group, where there is no key
    columns["row"] = pa.array(np.arange(len(batch)))
    by_group = pa.table(columns).group_by([*keys, "whole"], use_threads=False)
    grouped = by_group.aggregate([("row", "list")])
    members = grouped["row_list"].combine_chunks()
    order = members.flatten().to_numpy(zero_copy_only=False)
    starts = members.offsets.to_numpy()[:-1]
    measures = values.shape[1]
    arrays = []
    for name in keys:
        values_of_groups = grouped[name].combine_chunks()
        arrays.append(values_of_groups.take(np.repeat(np.arange(len(grouped)), measures)))
    arrays.append(pa.array(np.tile(np.arange(measures), len(grouped)), pa.int32()))
    for term in cluster_terms(values, sizes):
        sums = np.add.reduceat(term[order], starts)
        arrays += [pa.array(sums.ravel())]
    return pa.RecordBatch.from_arrays(arrays, names=[*keys, "measure", *SUMS])


def _featured(
    reader: OutputReader,
    features: OutputFeatures | RowPosterior,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    vocabulary = reader.bundle.shared().words
    for batch in batches:
        rows = reader.read(batch.column(_TEXT), column="of the released table")
        table = features.rows(rows.outputs, rows.offsets, vocabulary)
        columns: list[Any] = [*batch.columns[:-1], *(c.combine_chunks() for c in table.columns)]
        names = [*batch.schema.names[:-1], *table.schema.names]
        yield pa.RecordBatch.from_arrays(columns, names=names)
