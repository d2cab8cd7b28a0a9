"""Sums and texts that workers read of a released table: those of NumPy, however the table is cut."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from dptext_spark.estimates.cells import cluster_terms, row_values
from dptext_spark.estimates.frames import Estimation
from dptext_spark.estimates.on_spark import NULL, ReadTable
from dptext_spark.tables.source import own_session
from tests.helpers.estimated import released, write_private
from tests.helpers.tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def release(small, tmp_path_factory):
    private = write_private(tmp_path_factory.mktemp("private"))
    return released(tmp_path_factory.mktemp("release"), private, small)


def opened(spark, release, embedding, **given):
    session = own_session(spark)
    return Estimation.open(
        session.read.parquet(str(release)),
        report=(release.parent / "out.release.json").read_text(),
        embedding=embedding,
        text="text",
        cache=release.parent / "channels",
        **given,
    )


def expected_sums(estimation, release, weights, by, *, persons=False):
    """The sums of groups by NumPy."""
    rows = [row for row in rows_of(release) if row["text"] is not None]
    column = estimation.reader.read(
        pq.read_table(release)["text"].combine_chunks().drop_null(), column="text"
    )
    is_output = column.outputs >= 0
    places = np.repeat(np.arange(len(rows)), np.diff(column.offsets))[is_output]
    epsilons = np.zeros(len(rows), dtype=np.int64)
    values, sizes = row_values(column.outputs[is_output], places, weights[None], epsilons)
    sums = {}
    for group in {tuple(row[name] for name in by) for row in rows}:
        mine = [i for i, row in enumerate(rows) if tuple(row[name] for name in by) == group]
        of_rows, of_sizes = values[mine], sizes[mine]
        if persons:
            names = [rows[i]["person"] for i in mine]
            whose = sorted({*names} - {None})
            if not whose:
                continue
            of_rows = np.stack([values[mine][[n == p for n in names]].sum(axis=0) for p in whose])
            of_sizes = np.stack([sizes[mine][[n == p for n in names]].sum(axis=0) for p in whose])
        terms = cluster_terms(of_rows, of_sizes)
        sums[group] = np.stack([term.sum(axis=0) for term in terms])
    return sums


@pytest.mark.parametrize("person", [None, "person"])
@pytest.mark.parametrize("by", [(), ("group",), ("group", "person")])
def test_workers_add_up_what_numpy_does(spark, release, small, by, person):
    """Rejects rows or persons that are torn apart, null groups that are lost, and marks that count."""
    estimation = opened(spark, release, small, by=("group", "person"), person=person)
    weights = np.random.default_rng(0).normal(0.1, 0.3, (200, 3))
    sums = estimation.table.sums(estimation.released, {6.0: weights}, by)
    expected = expected_sums(estimation, release, weights, by, persons=person is not None)
    named = {tuple(value or NULL for value in group): of for group, of in expected.items()}
    assert {*sums} == {*named}
    for group, of_group in sums.items():
        assert np.allclose(of_group, named[group], rtol=1e-9, atol=1e-9), group
    estimation.closed()


def test_some_rows_are_the_same_however_the_table_is_cut(spark):
    """Rejects the first rows of whatever partition is first."""
    lists = [([number, 40 - number],) for number in range(40)]
    frame = spark.createDataFrame(lists, "outputs array<int>")
    looked_at = []
    for parts in (1, 3):
        table = ReadTable(frame=frame.repartition(parts), groups=(), has_person=False)
        outputs, starts = table.texts(10)
        assert starts.tolist() == [*range(0, 21, 2)]
        looked_at.append(outputs.tolist())
    assert looked_at[0] == looked_at[1]
