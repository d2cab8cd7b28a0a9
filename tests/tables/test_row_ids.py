"""Rows that are named by their file and their position in it, or by ids of any type."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import DptextError, InputError
from dptext_spark.tables.columns import TableColumns
from dptext_spark.text.columns import id_bytes
from tests.helpers.tables import names, refused, spark_settings, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def named(opened):
    """What the rows of a table are named by, in a settled order."""

    def run(source):
        read = opened(source, "parquet")
        return sorted(row[0] for row in read.df.select(read.position).collect())

    return run


def test_a_copy_of_the_table_elsewhere_gets_the_same_names(named, tmp_path):
    """Two files of equal content, and rows of equal content within one, have names of their own."""
    # And a file alone has the names that it has in its folder, however the folder is written.
    name = "per%20cent% 東京 é a+b&c;d#e (x)$^~'q'"
    for place in ("here", f"else {name}/deep"):
        for file in (f"flat/{name}", "flat/x", f"deep/p={name}/x", "deep/p=q/x"):
            write_table(tmp_path / place / f"{file}.parquet", {"text": texts(10)})
    for table in ("flat", "deep"):
        here = named(tmp_path / "here" / table)
        assert here == named(tmp_path / f"else {name}" / "deep" / table)
        assert len({*here}) == 20
    flat = tmp_path / "here" / "flat"
    alone = sorted(row for file in (name, "x") for row in named(flat / f"{file}.parquet"))
    assert alone == named(flat) == named(f"{tmp_path}/./here/flat/") == named(f"file:{flat}")


def test_how_spark_splits_a_file_does_not_matter(named, spark, tmp_path):
    """Nor does a column that has the name of what Spark says of files."""
    (tmp_path / "in").mkdir()
    fake = [{"file_path": "x", "row_index": 0}] * 60
    table = pa.table({"text": texts(60), "_metadata": fake})
    pq.write_table(table, tmp_path / "in" / "x.parquet", row_group_size=10)
    whole = named(tmp_path / "in")
    with spark_settings(spark, files_maxPartitionBytes=1000, files_openCostInBytes=0):
        assert named(tmp_path / "in") == whole
        assert (
            spark.read.parquet(str(tmp_path / "in")).rdd.getNumPartitions() > 3
        )  # it was split indeed
    assert len({*whole}) == 60


def test_a_pattern_as_input_needs_an_id(dptext, table, tmp_path):
    assert refused(dptext(f"{table}/*.parquet"), "cannot be named by file and position.*--id")
    assert names(tmp_path) == {"in"}
    assert dptext(f"{table}/*.parquet", "--id", "id", "--dry-run").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.uint64(), [1, 2**64 - 1]),
        (pa.decimal128(38, 0), [Decimal(1), Decimal(2**64 - 1)]),
        (pa.string(), ["1", str(2**64 - 1)]),
        (pa.decimal128(22, 2), None),
        (pa.float64(), None),
    ],
    ids=str,
)
def test_ids_of_any_width(opened, tmp_path, kind, values):
    """SPARK-34786: Spark reads uint64 as decimal(20,0). Equal numbers are equal ids, in Python too."""
    # Rejects an id in scientific notation or with a point, and numbers with decimals, whose equals differ.
    ids = pa.array([1, 2]).cast(kind) if values is None else pa.array(values, kind)
    write_table(tmp_path / "in" / "a.parquet", {"id": ids, "text": ["w01", "w02"]})
    table, columns = (
        opened(tmp_path / "in", "parquet").df,
        TableColumns(text=("text",), keep=(), id="id"),
    )
    if values is None:
        with pytest.raises(InputError, match="not an integer or string id"):
            columns.check(table)
        with pytest.raises(DptextError, match="row ids have the wrong type"):
            id_bytes(ids)
    else:
        columns.check(table)
        found = [row["id"] for row in columns.select(table).collect()]
        assert found == [name.decode() for name in id_bytes(ids)] == ["1", str(2**64 - 1)]
