"""Files of an input as they come: which are read, and what is said of one that cannot be.

Every message names the file, of a column its types too, and what to do; none quotes a row.
"""

import base64
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyarrow import orc

from dptext_spark.errors import InputError
from dptext_spark.mechanisms import Laplace
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables import dataframes
from dptext_spark.tables.columns import TableColumns, check_refused
from dptext_spark.tables.input_table import InputTable
from tests.helpers.tables import refused, rows_of, write_table

if not hasattr(pa, "uuid"):
    pytest.skip("pyarrow has UUIDs from 18 on", allow_module_level=True)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SECRET = "Zebulon"
ROWS = 20
MIXED = "Column n has two types .*Got: {} in .*/a.parquet and {} in .*/b.parquet. .*pathGlobFilter"
UNREADABLE = "Column n has a type that Spark cannot read. Got: {} in .*/a.parquet. .*--keep"
DAMAGED = "The file .*/in/{} of the input has another format, was cut short.*pathGlobFilter="
KEEP, NONE, ALL = {"keep": ("n",)}, {"keep": ()}, {"keep": ("*",)}
PLAIN = dict[str, str]()


class Situation(NamedTuple):
    """What lies in the folder, and what comes of it: a message, or the values of ``n`` by file.

    ``columns`` are those that are wanted, and ``options`` those of the reader.
    """

    id: str
    make: Callable[[Path], Any]
    comes: str | list[Any]
    columns: dict[str, tuple[str, ...]] = KEEP
    options: dict[str, str] = PLAIN
    source: str = "own trial"


def column(value, kind=None):
    return pa.array([value] * ROWS, kind)


def one(folder, name, number=0, **columns):
    ids = [f"{SECRET}{number}-{row}" for row in range(ROWS)]
    return write_table(
        folder / f"{name}.parquet", {"id": ids, "text": ["w01 w02"] * ROWS, **columns}
    )


def two(**columns):
    """Files a and b with these columns."""

    def make(folder):
        for number, name in enumerate("ab"):
            one(folder, name, number, **{column: pair[number] for column, pair in columns.items()})

    return make


def alone(n):
    return lambda folder: one(folder, "a", n=n)


def beside(name, content):
    """Two files that are right, and another one; what it becomes of a right one, or its bytes."""

    def make(folder):
        two()(folder)
        made = content if isinstance(content, bytes) else content(one(folder, "made", 3))
        (folder / "made.parquet").unlink(missing_ok=True)
        (folder / name).write_bytes(made)

    return make


def damaged_page(file):
    data, chunk = bytearray(file.read_bytes()), pq.read_metadata(file).row_group(0).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    return bytes(data)


class Kms(pe.KmsClient):
    """Keeps keys in the file itself."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return base64.b64encode(key)

    def unwrap_key(self, key, _):
        return base64.b64decode(key)


def encrypted(file, *, footer=True):
    wanted = pe.EncryptionConfiguration(
        "k", column_keys={"k": ["text"]}, plaintext_footer=not footer
    )
    properties = pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), wanted)
    pq.write_table(pq.read_table(file), file, encryption_properties=properties)
    return file.read_bytes()


def brotli(file):
    pq.write_table(pq.read_table(file), file, compression="brotli")
    return file.read_bytes()


def orc_files(*columns, cut=False):
    def make(folder):
        folder.mkdir()
        for number, n in enumerate(columns):
            ids = list(range(number * ROWS, (number + 1) * ROWS))
            file = folder / f"{number} %41.orc"
            orc.write_table(pa.table({"id": ids, "text": ["w01"] * ROWS, "n": n}), file)
        if cut:
            file.write_bytes(file.read_bytes()[:200])

    return make


INT, BIGINT, STRING, X = column(1, pa.int32()), column(2, pa.int64()), column(SECRET), column("x")
NULLS = pa.nulls(ROWS)
MERGE = {"mergeSchema": "true"}
AT, NO_ZONE, UTC = 1_767_323_045_678_901, pa.timestamp("us"), pa.timestamp("us", tz="UTC")
NANOS = pa.timestamp("ns")

TYPES = [
    Situation("int, then bigint", two(n=(INT, BIGINT)), [1, 2], source="apache/spark #15035"),
    Situation("bigint, then int", two(n=(BIGINT, INT)), [2, 1], KEEP, MERGE, "duckdb #1214"),
    Situation("int, then string", two(n=(INT, STRING)), MIXED.format("int", "string"), ALL, MERGE,
              "apache/spark #20953"),
    Situation("both, that nobody named", two(n=(INT, STRING)), [None, None], NONE),
    Situation("both, left out", two(n=(INT, STRING)), [None, None], ALL | {"left_out": ("n",)}),
    Situation("bytes that would be mangled to a text", two(n=(X, column(b"\xff"))),
              MIXED.format("string", "binary")),
    Situation("times of no zone and of UTC", two(n=(column(AT, NO_ZONE), column(AT, UTC))),
              MIXED.format("timestamp_ntz", "timestamp")),
    Situation("structs whose field has two types", two(n=(column({"a": 1}), column({"a": SECRET}))),
              MIXED.format("struct<a:bigint>", "struct<a:string>")),
    Situation("structs of which one has a field more", two(n=(column({"a": 1}), column({"a": 1, "b": 2}))),
              [{"a": 1, "b": None}, {"a": 1, "b": 2}], KEEP, PLAIN,
              "vincent.doba.fr: Reading parquets with different schema in Spark"),
    Situation("no value in the first file", two(n=(NULLS, X)), [None, "x"], source="fink-client #234"),
    Situation("no value in the second file", two(n=(X, NULLS)), ["x", None], KEEP, MERGE),
    Situation("no value and bigint", two(n=(NULLS, BIGINT), m=(STRING, NULLS)), [None, 2]),
    Situation("no value at all", two(n=(NULLS, NULLS)), [None, None], source="apache/spark #52922"),
    Situation("no value, or a list", two(n=(NULLS, column(["x"]))), MIXED.format("void", "array<string>")),
    Situation("time that nobody named", alone(column(1, pa.time32("ms"))), [None], NONE),
    Situation("nanoseconds, and microseconds", two(n=(column(1000, NANOS), column(1, NO_ZONE))),
              MIXED.format(r"timestamp\[ns\]", "timestamp_ntz")),
    Situation("digits below a microsecond", two(n=(column(1000, NANOS), column(1001, NANOS))),
              "Column n has timestamps with digits below a microsecond"),
    Situation("nanoseconds in a map", alone(column([(1, "a")], pa.map_(NANOS, pa.string()))),
              UNREADABLE.format("map.*")),
    Situation("UUID, kept by *", alone(column(bytes(16), pa.uuid())), UNREADABLE.format("ext.*"), ALL, PLAIN,
              "apache/spark #55684"),
    Situation("a half float in a struct", alone(column({"h": None}, pa.struct({"h": pa.float16()}))),
              UNREADABLE.format("struct<h: halffloat>"), {"keep": ("n.h",)}),
    Situation("ORC: a text that would be null", orc_files(STRING, INT),
              "cannot be read as a table.*Got: a column that has two types in its files"),
]  # fmt: skip

README = beside("README.md", SECRET.encode() * 99)
FILES = [
    Situation("a README", README, DAMAGED.format("README.md"), NONE),
    Situation("a README, passed over", README, [None, None], NONE, {"pathGlobFilter": "*.parquet"}),
    Situation("a short note behind it", beside("z é%41.txt", b"!"), DAMAGED.format("z é%41.txt"), NONE),
    Situation("a file of no bytes", beside("0.parquet", b""), [None, None], NONE),
    Situation("Parquet without a footer", beside("z.parquet", lambda f: f.read_bytes()[:-300]),
              DAMAGED.format("z.parquet"), NONE),
    Situation("a page that is damaged", beside("z %41é.parquet", damaged_page),
              DAMAGED.format("z %41é.parquet"), NONE),
    Situation("a stale checksum", beside(".b.parquet.crc", b"crc\0\0\0\2\0" + bytes(32)),
              r"The file .*/b.parquet of the input does not have the checksum .*Remove that file", NONE),
    Situation("brotli", beside("z.parquet", brotli), "The file .*/z.parquet of the input is compressed by",
              NONE, PLAIN, "apache/spark #22358"),
    Situation("an encrypted footer", beside("z.parquet", encrypted), "/z.parquet .*encrypted", NONE),
    Situation("an encrypted column", beside("z.parquet", partial(encrypted, footer=False)),
              "/z.parquet .*encrypted", NONE),
    Situation("ORC that is cut", orc_files(INT, INT, cut=True), "cannot be read as a table", NONE),
]  # fmt: skip


@pytest.mark.parametrize("case", [*TYPES, *FILES], ids=lambda case: case.id)
def test_a_file_is_read_or_named(case, opened, tmp_path):
    """Rejects values that are other ones without a word, a wrong file's name, and text of exceptions."""
    case.make(tmp_path / "in")

    def run():
        source = opened(
            tmp_path / "in", "orc" if case.id.startswith("ORC") else "parquet", **case.options
        )
        wanted = TableColumns(**{"text": ("text",), "id": None, **case.columns})
        columns = check_refused(source, wanted).named(source.df.schema)
        columns.check(source.df)
        with spark_errors():
            return [
                row.asDict(True).get("n") for row in source.df.select(*columns.mentioned).collect()
            ]

    if isinstance(case.comes, str):
        with pytest.raises(InputError, match=case.comes) as caught:
            run()
        assert SECRET not in str(caught.value)
    else:
        assert sorted(map(str, run())) == sorted(str(n) for n in case.comes for _ in range(ROWS))


def test_a_text_column_without_values_is_of_null_texts(dptext, tmp_path):
    """As pandas writes it (fink-client #234): rejects integers, and an error about two types."""
    two(text=(NULLS, X))(tmp_path / "in")
    result = dptext(tmp_path / "in", "--incremental", tmp_path / "state")
    assert result.exit_code == 0, result.output
    assert (
        sorted(row["text"] is None for row in rows_of(tmp_path / "out"))
        == [False] * ROWS + [True] * ROWS
    )


def test_a_frame_s_column_without_values_is_of_null_texts(spark, ring):
    """Rejects the type void, which no text column has and no worker takes."""
    frame = spark.createDataFrame([(1, None, None)], "id int, text void, n void")
    options = {"embedding": ring, "mechanism": Laplace(epsilon=1.0), "id": "id", "show": False}
    found = dataframes.privatize(frame, text="text", keep=["id", "n"], **options)
    assert [tuple(row) for row in found.collect()] == [(1, None, None)]


@pytest.mark.parametrize(
    ("change", "message", "arguments"),
    [
        (Path.unlink, "is gone since the run began", ()),
        (
            lambda file: file.write_bytes(damaged_page(file)),
            "has another format",
            ("--incremental", "state"),
        ),
    ],
    ids=["removed", "damaged, in a batch"],
)
def test_a_file_that_changes_after_the_start(
    dptext, tmp_path, monkeypatch, change, message, arguments
):
    """Rejects the end of a stream that names no file, and exit code 1 for a fault of the input."""
    two()(tmp_path / "in")
    checked = InputTable.check_rows

    def check_rows(table):
        change(tmp_path / "in" / "b.parquet")
        return checked(table)

    monkeypatch.setattr(InputTable, "check_rows", check_rows)
    state = (tmp_path / argument if argument == "state" else argument for argument in arguments)
    result = dptext(tmp_path / "in", *state)
    assert refused(result, f"The file {tmp_path}/in/b.parquet of the input {message}")
    assert SECRET not in result.output
