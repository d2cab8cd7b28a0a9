"""Kept columns come out with the types that they had, timestamps in nanoseconds too where nothing is lost."""

import datetime as dt
import decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.tables import refused, rows_of, run_table, spark_settings, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

OLD = dt.datetime.fromisoformat("1200-01-01")
NEW = dt.datetime.fromisoformat("2026-01-02T03:04:05.678901")
UTC_MICROS = pa.timestamp("us", tz="UTC")

SAME = {
    "int8": pa.array([1, None], pa.int8()),
    "int16": pa.array([1, None], pa.int16()),
    "int32": pa.array([1, None], pa.int32()),
    "int64": pa.array([2**62, None]),
    "float32": pa.array([1.5, None], pa.float32()),
    "float64": pa.array([1.5, None]),
    "bool": pa.array([True, None]),
    "string": pa.array(["x", None]),
    "binary": pa.array([b"x", None]),
    "date": pa.array([OLD.date(), None]),
    "naive": pa.array([NEW, OLD], pa.timestamp("us")),
    "utc": pa.array([NEW, OLD], UTC_MICROS),
    "decimal9": pa.array([decimal.Decimal("1.23"), None], pa.decimal128(5, 2)),
    "decimal18": pa.array([decimal.Decimal("1.23"), None], pa.decimal128(18, 2)),
    "decimal38": pa.array([decimal.Decimal("1.23"), None], pa.decimal128(38, 2)),
    "list": pa.array([[1, None], None], pa.list_(pa.int64())),
    "map": pa.array([[("a", NEW)], None], pa.map_(pa.string(), UTC_MICROS)),
    "struct": pa.array(
        [{"a": 1, "t": NEW}, None], pa.struct({"a": pa.int8(), "t": pa.timestamp("us")})
    ),
}
"""Types that Parquet and Spark both have."""
NANOS = pa.timestamp("ns")
NANOS_UTC = pa.timestamp("ns", tz="UTC")
OTHERS = {
    "uint8": (pa.array([255, None], pa.uint8()), pa.int16()),
    "uint16": (pa.array([2**16 - 1, None], pa.uint16()), pa.int32()),
    "uint32": (pa.array([2**32 - 1, None], pa.uint32()), pa.int64()),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), pa.decimal128(20, 0)),
    "large string": (pa.array(["x", None], pa.large_string()), pa.string()),
    "dictionary": (pa.array(["x", None]).dictionary_encode(), pa.string()),
    "fixed binary": (pa.array([b"xyz", None], pa.binary(3)), pa.binary()),
    "date64": (pa.array([NEW.date(), None], pa.date64()), pa.date32()),
    "seconds": (pa.array([1, None], pa.timestamp("s")), pa.timestamp("us")),
    "milliseconds": (pa.array([1, None], pa.timestamp("ms")), pa.timestamp("us")),
    "zone": (pa.array([NEW, OLD], pa.timestamp("us", tz="Europe/Berlin")), UTC_MICROS),
    "fixed list": (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(pa.int64())),
    "ns": (pa.array([NEW, None], NANOS), pa.timestamp("us")),
    "ns utc": (pa.array([NEW, None], NANOS_UTC), UTC_MICROS),
    "ns before 1970": (pa.array([-1000, None], NANOS), pa.timestamp("us")),
}
"""Types that Spark has not, and those that have all of their values."""


@pytest.fixture
def options(ring_release):
    return {**ring_release, "epsilon": 1e-3}


def shape(kind):
    """A type without the names that Parquet's writers give to the elements of lists and maps."""
    inner = [kind.field(i) for i in range(kind.num_fields)]
    named = isinstance(kind, pa.StructType)
    return (
        (kind.id, [(field.name if named else "", shape(field.type)) for field in inner])
        if inner
        else kind
    )


def test_kept_columns_keep_type_and_value_field_by_field(options, tmp_path, spark):
    """Rejects INT96, which readers take for naive nanoseconds, whatever the session's own settings are."""
    others = {name: array for name, (array, _) in OTHERS.items()}
    write_table(tmp_path / "in" / "x.parquet", {"text": ["w00", "w01"], **SAME, **others})
    settings = {"session_timeZone": "America/New_York", "parquet_outputTimestampType": "INT96"}
    with spark_settings(spark, **settings, parquet_inferTimestampNTZ_enabled=False):
        run_table(**options, keep=[*SAME, *OTHERS])
        assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    (file,) = (tmp_path / "out").glob("*.parquet")
    out = pq.ParquetFile(file).read()
    wanted = {name: array.type for name, array in SAME.items()}
    wanted |= {name: kind for name, (_, kind) in OTHERS.items()}
    assert {n: shape(out.schema.field(n).type) for n in wanted} == {
        n: shape(k) for n, k in wanted.items()
    }
    for name, kind in wanted.items():
        assert out[name].to_pylist() == {**SAME, **others}[name].cast(kind).to_pylist(), name


def test_a_pandas_table_with_times_that_nobody_named(options, tmp_path):
    """Rejects a failure over digits below a microsecond that nobody reads, and a filter on integers."""
    times = pd.to_datetime(["2026-01-01T00:00:00.000000001", "2026-01-02T00:00:00.000000000"])
    frame = pd.DataFrame(
        {"id": [1, 2], "text": ["w00", "w01"], "at": times, "day": times.normalize()}
    )
    assert str(frame["at"].dtype) == "datetime64[ns]"
    (tmp_path / "in").mkdir()
    frame.to_parquet(tmp_path / "in" / "x.parquet")
    assert (
        run_table(**options, where="day > timestamp_ntz'2026-01-01'", keep=["id"]).facts["rows"]
        == 1
    )
    assert [row["id"] for row in rows_of(tmp_path / "out")] == [2]


def test_nanoseconds_that_only_a_later_file_has(options, tmp_path):
    """Rejects integers, where files are added."""
    write_table(tmp_path / "in" / "a.parquet", {"text": ["w01"], "id": [1]})
    write_table(
        tmp_path / "in" / "b.parquet", {"text": ["w01"], "id": [2], "at": pa.array([NEW], NANOS)}
    )
    run_table(
        **options, keep=["at"], incremental=tmp_path / "state", read_option="mergeSchema=true"
    )
    assert {row["at"] for row in rows_of(tmp_path / "out")} == {None, NEW}


@pytest.mark.parametrize(
    "numbers", [([1], [2]), ([1], ["x"])], ids=["one type", "another column has two"]
)
def test_strings_that_no_annotation_marks(dptext, tmp_path, spark, numbers):
    """Rejects a refusal without the remedy, and a remedy that Spark's own reader alone follows."""
    for name, number in zip("ab", numbers, strict=True):
        columns = {"id": [name], "text": pa.array([b"w01"]), "number": number}
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / "in" / f"{name}.parquet", store_schema=False)
    remedy = "spark.sql.parquet.binaryAsString=true"
    given = [tmp_path / "in", "--id", "id", "--keep", "id"]
    message = rf"Got: text \(binary\), not string\. .*--spark-conf {remedy}"
    assert refused(dptext(*given), message)
    with spark_settings(spark, parquet_binaryAsString=False):
        result = dptext(*given, "--spark-conf", remedy)
    assert result.exit_code == 0, result.output
    assert sorted(row["id"] for row in rows_of(tmp_path / "out")) == ["a", "b"]


def test_what_pandas_writes_into_parquet(ring_release, tmp_path):
    """Own trial: categories, large strings and views are texts, and an index is a column that can be kept."""
    frame = pd.DataFrame({"a": ["w01 w02", None, "w03"]}, index=[5, 6, 9]).assign(
        b=lambda df: df["a"]
    )
    frame.astype({"a": "category"}).to_parquet(write_table(tmp_path / "in" / "a.parquet", {}))
    kinds = {"a": pa.string_view(), "b": pa.large_string()}
    columns = {name: pa.array(frame[name], kind) for name, kind in kinds.items()}
    write_table(tmp_path / "other" / "a.parquet", {**columns, "__index_level_0__": [5, 6, 9]})
    found = []
    for place in ("in", "other"):
        given = {**ring_release, "input": tmp_path / place, "output": tmp_path / f"{place}.out"}
        run_table(
            **given,
            text=["a", "b"],
            id="__index_level_0__",
            keep=["__index_level_0__"] * (place == "in"),
        )
        found.append(rows_of(given["output"]))
    assert [row.pop("__index_level_0__") for row in found[0]] == [5, 6, 9]
    assert found[0] == found[1] and [row["a"] is None for row in found[0]] == [False, True, False]
