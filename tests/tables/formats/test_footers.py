"""Footers of Parquet files that are damaged, or lie; no Spark and no Hadoop."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import InputError
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.formats import parquet
from dptext_spark.tables.storage import LocalFiles

SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
TABLE = pa.table({"id": [1, 2], "text": ["a", "b"]})


def types_of(content):
    """The types of a file that Hadoop would have opened."""

    def footer(_):
        size = int.from_bytes(content[-8:-4], "little") + 8
        return pq.ParquetFile(pa.BufferReader(b"PAR1" + content[-size:]))

    types = parquet._types(SimpleNamespace(footer=footer), {}, "file:/in/a.parquet")
    return {name: kind.name for name, kind in types.items()}


def written(schema=None):
    sink = pa.BufferOutputStream()
    table = TABLE if schema is None else TABLE.replace_schema_metadata({SCHEMA: schema})
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[" * 100_000,
        "5",
        "{}",
        json.dumps({"type": "struct", "fields": [{"name": "zebulon"}]}),
    ],
    ids=["none", "deep", "number", "empty", "half"],
)
def test_a_schema_of_spark_that_cannot_be_read_is_passed_over(schema):
    """Rejects errors of JSON and PySpark: Spark itself takes the schema of Parquet then."""
    assert types_of(written(schema)) == {"id": "bigint", "text": "string"}


def test_a_damaged_footer_is_named_without_what_is_in_it():
    """Rejects Arrow's errors."""
    content = written()
    size = int.from_bytes(content[-8:-4], "little")
    damaged = content[: -8 - size] + b"zebulon" + bytes(size - 7) + content[-8:]
    with pytest.raises(InputError, match=r"damaged footer.*/in/a\.parquet") as caught:
        types_of(damaged)
    assert "zebulon" not in str(caught.value)
    assert types_of(content) == {"id": "bigint", "text": "string"}


def test_a_columns_name_that_is_no_utf_8_is_a_damage(tmp_path):
    """Rejects Python's error: Arrow reads names as they stand, and decodes them when it is asked."""
    table = TABLE.append_column("zebulon", pa.array([1, 2]))
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    content = (tmp_path / "a.parquet").read_bytes().replace(b"zebulon", b"zebulo\xff")
    with pytest.raises(InputError, match=r"damaged footer.*/in/a\.parquet"):
        types_of(content)
    (tmp_path / "a.parquet").write_bytes(content)
    table_here = SimpleNamespace(place=str(tmp_path / "a.parquet"), options={})
    columns = TableColumns(text=("text",), keep=(), id="id")
    parquet.Parquet.check_columns(table_here, LocalFiles(), columns)  # Spark reads the name
