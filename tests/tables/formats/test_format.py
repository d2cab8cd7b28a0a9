"""Every format keeps one contract; tables are read whole, or refused."""

import json
from contextlib import nullcontext

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import types

from dptext_spark import Laplace
from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.options import PrivatizeOptions, TableOptions
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.formats.format import FORMATS, Format
from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.run import chosen_formats
from dptext_spark.tables.storage import Storage
from tests.helpers.lakes import ROWS, Catalog, DeltaLake, Files, IcebergLake, write_rows
from tests.helpers.tables import hashes, names, run_table, spark_settings
from tests.helpers.worlds import LABEL, sanitizer

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

MORE = [{"id": 100 + i, "text": f"w{i}", "note": "x"} for i in range(40)]


@pytest.fixture(params=sorted(FORMATS))
def lake(request, tmp_path, monkeypatch, spark):
    """A place for tables of a format."""
    match request.param:
        case "delta":
            yield DeltaLake(tmp_path, monkeypatch)
        case "iceberg":
            yield IcebergLake(tmp_path, monkeypatch)
        case "table":
            yield Catalog(spark, tmp_path)
            spark.sql("drop database lake cascade")
        case name:
            yield Files(name, tmp_path)


@pytest.mark.versions
def test_every_format_keeps_the_contract(lake, options, ring, opened, tmp_path, spark):
    """The words are those of the Sanitizer, the output is whole or absent, and the input stays as it is."""
    # Rejects doubled quotes, line breaks in quotes, spaces, nulls and empty texts that are misread, rows of
    # one file in another order, and null in CSV that is read back as an empty text.
    for rows in (ROWS, MORE):
        lake.write_rows("in", rows)
    before, kind, out = hashes(lake.folder), FORMATS[lake.name], lake.place("out")
    given = options | {"input": lake.place("in"), "output": out, "format": lake.name}
    given["reports"] = tmp_path / "reports"
    if lake.name in ("delta", "table"):  # others are written as one of them is
        with pytest.raises(InputError, match="words outside the vocabulary"):
            run_table(**given, oov="fail")
        assert hashes(lake.folder) == before
    assert run_table(**given).facts["rows"] == 44
    assert hashes(lake.folder).items() >= before.items()
    ids = [row["id"] for row in ROWS + MORE]
    own, values = (
        sanitizer(ring, Laplace(epsilon=1e-3), name=LABEL),
        [row["text"] for row in ROWS + MORE],
    )
    texts = own.sanitize(pa.array(values), pa.array(ids), column="text").values.to_pylist()
    assert [text is None for text in texts[:4]] == [False, True, False, False]
    wanted = [{**row, "text": text} for row, text in zip(ROWS + MORE, texts, strict=True)]
    rows = lake.rows("out")
    if lake.name == "csv":
        wanted = [{k: "" if v is None else str(v) for k, v in row.items()} for row in wanted]
        back = {int(row["id"]): row["text"] for row in opened(out, lake.name).df.collect()}
        assert back == dict(zip(ids, texts, strict=True))
    assert sorted(rows, key=lambda row: int(row["id"])) == wanted
    if isinstance(lake, Files):  # the order in each file
        assert sorted((int(row["id"]) for row in rows), key=lambda number: number > 99) == ids

    refused = {"table": "overwrite"}.get(lake.name, "error")
    with pytest.raises(ConfigError, match=r"The output .*exists"):
        kind(out, mode=refused).check_place(Storage(spark))
    assert names(lake.folder) == {"in", "out"}
    if lake.name == "table":
        run_table(**given, mode="append")
        assert len(lake.rows("out")) == 88
    elif kind.can_append:
        (lake.folder / ".out.local-1.part").mkdir()
        with pytest.raises(ConfigError, match="Another run is writing the output"):
            kind(out, mode="append").check_place(Storage(spark))


def test_partitions_and_options_of_other_formats(options, tmp_path):
    for number, folder in enumerate(["dt=007", "dt=x%2Fy"]):
        rows = [{**row, "id": 10 * number + int(str(row["id"]))} for row in ROWS[1:]]
        file = write_rows(tmp_path / "in" / folder / "x.csv", rows)
        file.write_text(file.read_text().replace(",", ";").replace("ü; x", "ü, x"))
    given = {"keep": ["id", "dt"], "format": "csv", "read_option": "sep=;"}
    run_table(**options | given, write_option=["sep=|", "compression=gzip"])
    files = sorted((tmp_path / "out").rglob("*.csv.gz"))
    assert {file.parent.name for file in files} == {"dt=007", "dt=x%2Fy"}
    assert pd.read_csv(files[0], sep="|").columns.tolist() == ["id", "text"]
    report = json.loads((tmp_path / "out.private" / "report.json").read_text())
    assert (report["options"]["read-option"], report["options"]["format"]) == (
        ["sep"],
        "csv",
    )  # no passwords


def test_new_files_of_json(options, tmp_path):
    grow = {
        "format": "json",
        "output_format": "orc",
        "trust_id": True,
        "incremental": tmp_path / "state",
    }
    for number in range(2):
        rows = [{**row, "id": 10 * number + int(str(row["id"]))} for row in ROWS]
        write_rows(tmp_path / "in" / f"{number}.json", rows)
        report = run_table(**options | grow)
    assert (report.facts["rows"], report.facts["added_rows"]) == (8, 4)
    files = [orc.read_table(file) for file in (tmp_path / "out").glob("batch-*.orc")]
    assert sorted(i for file in files for i in file["id"].to_pylist()) == [
        1,
        2,
        3,
        7,
        11,
        12,
        13,
        17,
    ]
    with pytest.raises(ConfigError, match=r"of a release with other options.*Got: output-format\."):
        run_table(**options | grow | {"output_format": "json"})


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_a_table_has_the_columns_of_all_files(opened, tmp_path, name):
    """Rejects the columns of the one file that Spark looks at, whichever it is."""
    few = {"id": 1, "text": "w01", "p": {"n": 1}}
    many = {"id": 2, "text": "w02", "p": {"n": 1, "m": "x"}, "more": "y"}
    for folder, order in {"up": (few, many), "down": (many, few)}.items():
        for file, row in zip("bc", order, strict=True):
            write_rows(tmp_path / folder / f"{file}.{name}", [row])
        rows = opened(tmp_path / folder, name, mergeSchema="false").df.orderBy("id").collect()
        assert [row.p.asDict() for row in rows] == [{"n": 1, "m": None}, {"n": 1, "m": "x"}]
        assert [row.more for row in rows] == [None, "y"]


def test_a_damaged_file_fails_the_run_whatever_a_cluster_says(opened, tmp_path, spark):
    """Rejects rows that are gone because a cluster's settings say so."""
    file = write_rows(tmp_path / "in" / "a.parquet", ROWS)
    whole = file.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8  # it stays: without it no schema is found
    file.write_bytes(whole[:4] + bytes(len(whole) - 4 - footer) + whole[-footer:])
    ignored = spark_settings(spark, files_ignoreCorruptFiles="true")
    with ignored, pytest.raises((InputError, JobError)), spark_errors():
        opened(tmp_path / "in", "parquet").df.collect()


MARKS = {
    "_delta_log/00000000000000000000.json": "a Delta table",
    "metadata/00000-1a2b.metadata.json": "an Iceberg table",
    ".hoodie/hoodie.properties": "a Hudi table",
}


@pytest.mark.parametrize("mark", MARKS)
def test_tables_that_keep_an_account_of_their_files_are_no_plain_files(
    dptext, spark, tmp_path, mark
):
    """Rejects rows that were deleted from such a table, and outputs that its readers would not know."""
    lake, storage, what = (
        tmp_path / "lake" / "t",
        Storage(spark),
        f"is {MARKS[mark]}, or lies in one",
    )
    file = write_rows(lake / "data" / "dt=1" / "x.parquet", ROWS)
    plain = write_rows(tmp_path / "plain" / "x.parquet", ROWS).parent
    (lake / mark).parent.mkdir()
    (lake / mark).write_text("{}")
    for place in (lake / "data", file, lake.parent / "*", lake / "d*"):
        with pytest.raises((ConfigError, InputError), match=f"{what}.*--format"):
            Parquet(str(place)).check_files(storage)
    assert what in dptext(lake, "--id", "id").output
    assert what in dptext(plain, "--id", "id", output=lake / "out").output
    Parquet("/").check_files(storage)
    (plain / "metadata").mkdir()  # a folder of that name alone
    Parquet(str(plain)).check_files(storage)


GROW = {"incremental": "c", "trust-id": True, "key-file": "k", "name": "s"}
CSV = {"format": "csv"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "orc", "id": None},
            "Rows of format orc cannot be named by file.*for .*parquet.*--id",
        ),
        ({"output-format": "Orc"}, "The format is unknown"),
        ({"mode": "append"}, "--mode append cannot write format parquet. Allowed: .*table"),
        ({"mode": "append", **GROW}, "--incremental and --mode append cannot be combined"),
        (
            {"format": "iceberg", **GROW},
            "--incremental cannot read format iceberg.*--where.*--mode append",
        ),
        ({"output-format": "delta", **GROW}, "--incremental cannot write format delta"),
        (
            {"format": "delta"},
            r"Python package no_such_library. Install .*\[tables\]'.*delta-spark",
        ),
        ({"output-format": "iceberg"}, "Python package no_such_library.*iceberg-spark-runtime"),
        ({**CSV, "write-option": "compression=zstd"}, "wrong compression for format csv"),
        ({"read-option": "Zebulon"}, "--read-option has a wrong value. Allowed: NAME=VALUE"),
        ({**CSV, "read-option": "mode=FAILFSAT"}, "mode has a wrong value.*DROP.*'FAILFSAT'"),
        (
            {**CSV, "read-option": "haeder=true"},
            "csv does not take.*haeder. Perhaps you meant header",
        ),
        ({**CSV, "write-option": "quotAll=true"}, "--write-option has a name.*meant quoteAll"),
        ({**CSV, "read-option": "encoding=nonsense"}, "encoding has a wrong value.*'nonsense'"),
        (
            {**CSV, "read-option": "encoding=UTF-16"},
            "wrong value.*'UTF-16'. Convert the files to UTF-8",
        ),
        ({"format": "json", "read-option": "encoding=latin1"}, "json does not take"),
        ({**CSV, "write-option": "encoding=latin1"}, "csv does not take"),
    ],
)
def test_what_a_format_cannot_do_is_said_before_spark_starts(changes, message, monkeypatch):
    if "no_such_library" in message:
        for name in ("delta", "iceberg"):
            monkeypatch.setattr(FORMATS[name], "library", "no_such_library")
    given = {
        "input": "in",
        "output": "out",
        "embedding": "e",
        "mechanism": "laplace",
        "epsilon": 1.0,
    }
    given |= {"text": "text", "id": "id", **changes}
    with pytest.raises(ConfigError, match=message) as caught:
        chosen_formats(PrivatizeOptions.of(given), grows="incremental" in changes)
    assert "Zebulon" not in str(caught.value)


def test_help_names_every_format():
    described = TableOptions.fields()["format"].description or ""
    assert [name for name in FORMATS if name not in described] == []


@pytest.mark.parametrize(
    ("name", "kept", "message"),
    [
        ("csv", "v array<float>", r"format csv cannot hold. Got: v \(array<float>\)"),
        (
            "orc",
            "at struct<begin: timestamp_ntz>",
            "format orc cannot hold. Got: at .*timestamp_ntz",
        ),
        ("delta", "lasted array<interval day to second>", "format delta cannot hold. Got: lasted"),
        ("delta", "at time(6)", "Delta table .* cannot have the output's columns.*time"),
        (
            "iceberg",
            "lasted interval day to second",
            "Iceberg table .* cannot be made of the output's col",
        ),
        ("parquet", "at struct<begin: timestamp_ntz>, v array<float>", ""),
    ],
)
def test_types_that_a_format_lacks_are_refused(spark, tmp_path, monkeypatch, name, kept, message):
    """Rejects ORC files whose times other readers than Spark take for integers."""
    is_iceberg = name == "iceberg"
    place = IcebergLake(tmp_path, monkeypatch).place("out") if is_iceberg else str(tmp_path / "out")
    if "time(" in kept and not hasattr(types, "TimeType"):
        pytest.skip("needs the type time of Spark 4.1")
    schema = spark.createDataFrame([], f"id bigint, {kept}").schema

    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        Format.named(name, place, {}).check_schema(spark, schema)
