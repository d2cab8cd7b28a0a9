"""What is told of paths and columns before Spark starts: the same as Spark tells, or nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dptext_spark.errors import DptextError
from dptext_spark.options import PrivatizeOptions, VectorsOptions
from dptext_spark.spark.jobs import vectors
from dptext_spark.spark.local_paths import local_path
from dptext_spark.spark.settings import session_settings
from dptext_spark.spark.table import beforehand, local_table, run
from dptext_spark.spark.table.columns import TableColumns, Unknown
from dptext_spark.spark.table.local_files import LocalFiles
from dptext_spark.spark.table.local_table import LocalTable, is_plain
from dptext_spark.spark.table.storage import Storage, literal
from tests.helpers.tables import hashes, run_table, spark_settings, texts, write_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def run_vectors(**options: Any) -> object:
    values = {"epsilon": 5.0, "dimension": 2, **options}
    return vectors.run(
        VectorsOptions.of({k: str(v) if isinstance(v, Path) else v for k, v in values.items()})
    )


Told = Callable[..., str]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """Run a job that fails, by Spark and then in a process that may start none: both give one error."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    def error(job: Callable[..., object], options: dict[str, Any]) -> str:
        with pytest.raises(DptextError) as caught:
            job(**options)
        return f"{type(caught.value).__name__}: {caught.value}"

    def both(job: Callable[..., object], **options: Any) -> str:
        before = hashes(tmp_path)
        by_spark = error(job, options)
        with monkeypatch.context() as patch:
            patch.setattr(beforehand, "is_plain", lambda: True)
            patch.setattr(run, "session", refuse)
            assert error(job, options) == by_spark
        assert hashes(tmp_path) == before
        return by_spark

    return both


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check as in a process in which no Spark runs."""
    monkeypatch.setattr(beforehand, "is_plain", lambda: True)


# Mistakes


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A partitioned table with fields inside columns, and with files that are no part of it."""
    payload = [{"message": text, "Note": text, "n": 1} for text in texts(3)]
    columns = {
        "id": [1, 2, 3],
        "text": texts(3),
        "payload": payload,
        "turns": [payload] * 3,
        "words": [text.split() for text in texts(3)],
        "vector": [[1.0, 2.0]] * 3,
        "tags": pa.array([[("k", "v")]] * 3, pa.map_(pa.string(), pa.string())),
        "payload.n": texts(3),
    }
    for name in ("dt=2026-01-01/b.parquet", "dt=2026-01-02/a.parquet"):
        write_table(tmp_path / "in" / name, columns)
    for name in ("dt=2026-01-01/.a.parquet", "_temporary/a.parquet", "_SUCCESS"):
        write_table(tmp_path / "in" / name, {"other": [1]})
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("job", "options", "message"),
    [
        (run_table, {"text": ["nope"]}, r"lacks columns\. Allowed: id, text, .*, dt\. Got: nope"),
        (run_table, {"keep": ["payload.nope", "Text"]}, r"Got: payload\.nope, Text"),
        (run_table, {"text": ["tags.k"]}, "What is in a map cannot be named"),
        (run_table, {"text": ["payload.n"]}, "as a column's, and as the path of a field"),
        (run_table, {"text": ["id"]}, r"id \(bigint\), not string"),
        (run_table, {"text": ["turns"]}, r"turns \(array<struct<message:string,Note:string,n:bigint>>\)"),
        (run_table, {"tokens": ["turns[].message"]}, r"\(string\), not array<string>"),
        (run_table, {"id": "vector"}, r"vector \(array<double>\), not an integer or string id"),
        (run_table, {"text": ["turns[].message"], "id": "turns[].n"}, "which is in an array"),
        (run_table, {"protect": "slots:gone"}, "Got: gone"),
        (run_table, {"protect": "slots:words"}, "cannot hold the positions of slots.*Got: words, list"),
        (run_table, {"text": ["words[]"], "tokens": ["words"]}, "inside one another"),
        (run_table, {"text": ["payload.message"], "keep": ["payload"]}, "both sanitized and kept raw"),
        (run_table, {"text": ["text", "dt"]}, r"Partition columns cannot be sanitized.*Got: dt"),
        (run_vectors, {"vector": ["words"]}, r"words \(array<string>\), not array<float>"),
        (run_vectors, {"vector": ["vector"], "keep": ["nope"]}, "Got: nope"),
        (run_vectors, {"vector": ["vector"], "id": "tags"}, "not an integer or string id"),
    ],
)
def test_wrong_columns(
    job: Callable[..., object],
    options: dict[str, Any],
    message: str,
    table: Path,
    ring_release: dict[str, Any],
    told: Told,
) -> None:
    needed = ("input", "output", "embedding") if job is run_table else ("input", "output")
    assert re.search(message, told(job, **{name: ring_release[name] for name in needed}, **options))


def test_columns_of_the_same_name(ring_release: dict[str, Any], tmp_path: Path, told: Told) -> None:
    inner = pa.struct([("text", pa.string()), ("TEXT", pa.string())])
    write_table(tmp_path / "in" / "x.parquet", {"a": pa.array([{"text": "w01"}], inner), "b": [1]})
    assert told(run_table, **ring_release, text=["a.text"]).endswith("COLUMN_ALREADY_EXISTS.")


def test_fields_inside_columns_are_no_vectors(tmp_path: Path, told: Told) -> None:
    write_table(tmp_path / "in" / "x.parquet", {"c": [{"d": [1.5]}]})
    options = {"input": tmp_path / "in", "output": tmp_path / "out", "vector": ["c.d"]}
    assert "Fields inside columns cannot be released as vectors" in told(run_vectors, **options)


def test_wrong_inputs(ring_release: dict[str, Any], tmp_path: Path, told: Told) -> None:
    (tmp_path / "empty" / "_hidden").mkdir(parents=True)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "x.csv").write_text("id,text\n" * 50)
    whole = write_table(tmp_path / "whole.parquet", {"text": texts(500)})
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "x.parquet").write_bytes(whole.read_bytes()[:500])
    for name, message in [
        ("nowhere", "cannot be read as a table.*PATH_NOT_FOUND"),
        ("empty", "cannot be read as a table"),
        ("text", "is not Parquet, or is damaged"),
        ("text/x.csv", "is not Parquet, or is damaged"),
        ("cut", "is not Parquet, or is damaged"),
    ]:
        assert re.search(message, told(run_table, **ring_release | {"input": tmp_path / name}))
    pattern = ring_release | {"input": f"{tmp_path}/*.parquet"}
    assert "Rows cannot be named by file and position" in told(run_table, **pattern)


def test_wrong_outputs(ring_release: dict[str, Any], table: Path, tmp_path: Path, told: Told) -> None:
    (tmp_path / "filed").mkdir()
    (tmp_path / "filed" / "release.json").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(table)
    (tmp_path / ".new.app-0-12345678.part").mkdir()
    for options, message in [
        ({"output": tmp_path / "mine"}, "The output .*/mine exists"),
        ({"output": f"file:{tmp_path}/./mine"}, "The output .*/mine exists"),
        ({"output": tmp_path / "mine", "mode": "overwrite"}, "is not a table that a finished job wrote"),
        ({"output": tmp_path / "new"}, r"Another run is writing the output .*\.new\.app-0-12345678\.part"),
        ({"reports": tmp_path / "filed"}, "The public report .*filed/release.json exists.*--reports"),
        ({"output": tmp_path / "link" / "out"}, "Output and input lie inside one another"),
        ({"output": tmp_path}, "Output and input lie inside one another"),
        ({"reports": table}, "Public report and input lie inside one another"),
        ({"incremental": tmp_path / "out"}, "Checkpoint and output lie inside one another"),
        ({"incremental": tmp_path / "new", "output": tmp_path / "mine"}, "The output .*/mine exists"),
    ]:
        assert re.search(message, told(run_table, **ring_release | options)), message
    (tmp_path / "done" / "batches").mkdir(parents=True)
    (tmp_path / "done" / "dptext.json").write_text("{}")
    (tmp_path / "done" / "batches" / "000000.json").write_text("{}")
    gone = told(run_table, **ring_release, incremental=tmp_path / "done")
    assert "to which new files are to be added, is gone" in gone


def test_all_that_is_wrong_is_told_at_once(
    ring_release: dict[str, Any], table: Path, tmp_path: Path, plain: None
) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DptextError, match=r"2 things are wrong:\n.*out exists.*\n.*lacks columns"):
        run_table(**ring_release, keep=["nope"])


# What Spark reads is never refused


def known(mine: DataType, sparks: DataType) -> None:
    """Check that types are the same where they are known."""
    if isinstance(mine, StructType) and isinstance(sparks, StructType):
        assert mine.names == sparks.names
        for left, right in zip(mine.fields, sparks.fields, strict=True):
            known(left.dataType, right.dataType)
    elif isinstance(mine, ArrayType) and isinstance(sparks, ArrayType):
        known(mine.elementType, sparks.elementType)
    elif isinstance(mine, MapType) and isinstance(sparks, MapType):
        known(mine.keyType, sparks.keyType)
        known(mine.valueType, sparks.valueType)
    else:
        assert isinstance(mine, Unknown) or mine == sparks, (mine, sparks)


EVERYDAY: Final = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()),
    *(pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.decimal128(20, 4)),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Paris"), pa.uint8()),
    *(pa.uint16(), pa.uint32()),
]
ODD: Final = [
    *(pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.date64(), pa.time32("ms")),
    *(pa.time64("us"), pa.time64("ns"), pa.duration("us"), pa.uint64(), pa.float16(), pa.null()),
    *(pa.binary(), pa.large_binary(), pa.binary(16), pa.decimal128(3, 1), pa.decimal256(60, 2), pa.uuid()),
    *(pa.json_(), pa.string_view()),
]


@pytest.mark.parametrize("nanos", [False, True])
def test_types_are_those_of_spark_or_unknown(tmp_path: Path, spark: SparkSession, nanos: bool) -> None:
    """One file of types that must be known, and a file for each that Spark may refuse."""
    fields = [(f"c{number}", kind) for number, kind in enumerate(EVERYDAY)]
    fields += [
        ("list", pa.list_(pa.struct([("a.b", pa.large_list(pa.string())), ("A", pa.int8())]))),
        ("fixed", pa.list_(pa.float32(), 2)),
        ("map", pa.map_(pa.string(), pa.list_(pa.uint16()))),
        ("deep", pa.struct([("odd", pa.binary()), ("s", pa.struct([("text", pa.string())]))])),
    ]
    files = [pa.schema(fields), *(pa.schema([("odd", kind), ("text", pa.string())]) for kind in ODD)]
    for number, schema in enumerate(files):
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(schema.empty_table(), path)
        mine = LocalTable.look(path)
        assert mine is not None
        assert number or "unknown" not in mine.schema.simpleString().replace("odd:unknown", "")
        with spark_settings(spark, legacy_parquet_nanosAsLong=nanos):
            try:
                known(mine.schema, spark.read.parquet(path).schema)
            except PySparkException:
                assert number, "Spark reads everyday types"


def test_columns_that_only_spark_understands_may_be_named(
    ring_release: dict[str, Any], tmp_path: Path, plain: None
) -> None:
    """Rejects a check that refuses what it does not know: Spark says what it is."""
    times, odd = pa.array(np.array([1, 2], "datetime64[ns]")), pa.array([b"w01", b"w02"])
    write_table(tmp_path / "in" / "x.parquet", {"time": times, "odd": odd, "text": texts(2)})
    check(ring_release, text=["odd", "text"], keep=["time"], id="time")
    with pytest.raises(DptextError, match=r"Allowed: time, odd, text\. Got: nope"):
        check(ring_release, text=["odd"], keep=["nope"], id="time")


def check(release: dict[str, Any], **given: Any) -> None:
    values = {"mechanism": "laplace", "epsilon": 1.0, **release, **given}
    options = PrivatizeOptions.of({k: str(v) if isinstance(v, Path) else v for k, v in values.items()})
    columns = TableColumns(text=options.text, keep=options.keep, id=options.id)
    for step in beforehand.checks_beforehand(run.Job, options, lambda: columns):
        step()


def test_what_is_for_spark_to_say_is_left_to_it(
    ring_release: dict[str, Any], table: Path, tmp_path: Path, plain: None
) -> None:
    (tmp_path / "out").mkdir()
    for options in (
        {"input": "s3a://bucket/table"},
        {"input": "hdfs:///table", "id": "id"},
        {"input": f"{tmp_path}/nowhere*", "id": "id"},
        {"input": f"{tmp_path}/nowhere[0-9]", "id": "id"},
        {"input": table / "_temporary", "text": ["other"]},
    ):
        check(ring_release | {"output": tmp_path / "free", "text": ["text"]} | options)
    # The output's checkpoint cannot be seen: the output may belong to it.
    there = {"output": tmp_path / "out", "incremental": "s3a://bucket/checkpoint"}
    check(ring_release | there, text=["text"])


FILES: Final = [
    ("a.parquet", "a-1.parquet", "B.parquet", "0.parquet"),
    ("p=1/x.parquet", "p=1.0/x.parquet", "p=0/z.parquet"),
    ("p=007/q=a%2Fb/x.parquet", "p=__HIVE_DEFAULT_PARTITION__/q=c/x.parquet"),
    ("x._COPYING_", "_p=1/x.parquet", "part-0"),
    ("c0=1/x.parquet", "c0=2/x.parquet"),
    ("deeper/x.parquet", "p=1/x.parquet"),
    ("p=1/x.parquet", "p=2/q=1/x.parquet"),
    ("_metadata", "a.parquet"),
    ("_common_metadata", "p=1/a.parquet"),
]


@pytest.mark.parametrize("files", FILES, ids=lambda files: files[0].replace("/", " in "))
def test_columns_are_those_of_the_file_that_spark_takes(
    files: tuple[str, ...], tmp_path: Path, spark: SparkSession
) -> None:
    """Every file has a column of its own: rejects another order of files, or of folders and files."""
    for number, name in enumerate(files):
        write_table(tmp_path / "in" / name, {f"c{number}": [number]})
    found = LocalTable.look(str(tmp_path / "in"))
    with spark_settings(spark, sources_partitionColumnTypeInference_enabled=False):
        try:
            schema = spark.read.parquet(str(tmp_path / "in")).schema
        except PySparkException:
            return  # which Spark then says
    if found is None:
        assert files in FILES[4:]
    else:
        assert found.schema == schema
        assert found.partitions == tuple(name for name in schema.names if not name.startswith("c"))


def test_a_file_that_is_empty_or_cannot_be_read_is_left_to_spark(tmp_path: Path) -> None:
    write_table(tmp_path / "in" / "b.parquet", {"text": texts(2)})
    (tmp_path / "in" / "a.parquet").touch()
    assert LocalTable.look(str(tmp_path / "in")) is None
    (tmp_path / "in" / "a.parquet").write_bytes(b"PAR1 damaged footer PAR1")
    assert LocalTable.look(str(tmp_path / "in")) is None


# Places


def test_local_files_answer_as_hadoop_does(tmp_path: Path, spark: SparkSession, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["a", "b b", "[c]", "x{1}", ".out.app-1.part", ".out.app.2.part", "é%20"]
    for name in names:
        (tmp_path / "there" / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "note.txt").write_text("Größe")
    storage, files = Storage(spark), LocalFiles()
    places = [str(tmp_path / "there" / name) for name in names]
    places += [f"{tmp_path}/link/./a/../new/", f"file:{tmp_path}/link", f"file://{tmp_path}//there"]
    places += [f"{tmp_path}/nowhere/x", "/"]
    for place in places:
        assert files.exists(place) == storage.exists(place), place
        assert files.qualified(place).rstrip("/") == storage.qualified(place).rstrip("/"), place
        assert files.real(place).rstrip("/") == storage.real(place), place
        assert sorted(files.matches(literal(place))) == sorted(storage.matches(literal(place))), place
    for pattern in (f"{tmp_path}/there/.out.*.part", f"{tmp_path}/li?k/a", f"{tmp_path}/none/*"):
        assert sorted(files.matches(pattern)) == sorted(storage.matches(pattern)), pattern
    assert not files.exists(f"{tmp_path}/broken")
    assert not storage.exists(f"{tmp_path}/broken")
    assert files.read(f"{tmp_path}/note.txt") == storage.read(f"{tmp_path}/note.txt")
    relative = ["there", "./there/../link/a", "there/x:y"]
    assert [files.real(place) for place in relative] == [storage.real(f"{tmp_path}/{p}") for p in relative]
    for place in ("s3a://b/x", "viewfs:/x", "x:y", "file:x", "file://host/x", "//host/x", "HDFS://x/y"):
        assert local_path(place) is None
        assert not files.exists(place)
        assert files.matches(place) == []


def test_nothing_is_checked_where_spark_runs_or_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_plain()
    monkeypatch.setattr(local_table.pyspark.SparkContext, "_active_spark_context", None)
    for name in [name for name in os.environ if name.startswith(("SPARK", "PYSPARK", "HADOOP", "YARN"))]:
        monkeypatch.delenv(name)
    assert is_plain()
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "/etc")
            assert not is_plain()
    for name, plain in {
        "spark.hadoop.fs.defaultFS": False,
        "spark.sql.caseSensitive": False,
        "spark.driver.memory": True,
    }.items():
        with session_settings({name: "x"}, verbose=False):
            assert is_plain() is plain
