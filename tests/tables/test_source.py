"""Tables as they come: partitions, filters, many small files, any file system."""

import json
import os
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from dptext_spark.cli import main
from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.options import PrivatizeOptions
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.places import Places
from dptext_spark.tables.run import TableRun
from dptext_spark.tables.source import where
from dptext_spark.tables.storage import Storage
from tests.helpers.lakes import write_rows
from tests.helpers.tables import rows_of, run_table, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def options(ring_release):
    return {**ring_release, "epsilon": 1e-3}  # equal words mean equal noise


def sorted_rows(folder):
    return sorted(rows_of(folder), key=lambda row: str(sorted(row.items())))


def plan_of(options, columns):
    values = {"mechanism": "laplace", **options, "text": columns.text}
    given = {k.replace("_", "-"): str(v) if isinstance(v, Path) else v for k, v in values.items()}
    rows = TableRun.of(PrivatizeOptions.of(given), columns).open("test").input.positioned_rows
    return str(rows._jdf.queryExecution().executedPlan().toString())


FOLDERS = {
    "dt=007/h=1e3/x=a%2Fb": [0, 1, 2],
    "dt=010/h=1.0/x=true": [10, 11, 12],
    "dt=010/h=1.0/x=東京 é": [20, 21, 22],
    "dt=__HIVE_DEFAULT_PARTITION__/h=1/x=2026-01-01": [30, 31, 32],
}
"""All values of dt, and of h, are numbers to Spark."""


def write_partitions(table, folders):
    """Write one file of three rows into each folder, each with ids of its own."""
    for number, folder in enumerate(folders):
        ids = [number * 10 + i for i in range(3)]
        write_table(table / folder / "x.parquet", {"id": ids, "text": texts(3)})


def folders_of(output):
    """The ids of each partition folder; rejects files that repeat the partition's values."""
    found = {}
    for folder in sorted({file.parent for file in output.rglob("*.parquet")}):
        rows = rows_of(folder)
        assert all(set(row) == {"id", "text"} for row in rows)
        found[str(folder.relative_to(output))] = sorted(row["id"] for row in rows)
    return found


def test_the_partitioning_is_kept_and_its_values_are_not_retyped(options, tmp_path):
    """Rejects 007 that becomes 7, 1e3 that becomes 1000.0, and values beside the folders."""
    write_partitions(tmp_path / "in", FOLDERS)
    with pytest.raises(InputError, match=r"Partition columns cannot be sanitized.*Got: h\."):
        run_table(**options, text=["text", "h"])
    report = run_table(**options, keep=["id", "x", "h", "dt"])
    assert folders_of(tmp_path / "out") == FOLDERS
    assert report.facts["rows"] == 12
    assert (
        "Columns released as they are, without protection: id, x, h, dt." in report.facts["scope"]
    )
    assert not any("partitioned" in line for line in report.facts["scope"])
    columns = TableColumns(text=("text",), keep=("dt", "h"), id=None)
    assert "decode" not in plan_of(
        {**options, "output": tmp_path / "y"}, columns
    )  # no value is misread
    few = run_table(**options | {"output": tmp_path / "few"}, keep=["id", "dt"])
    assert folders_of(tmp_path / "few")["dt=010"] == [10, 11, 12, 20, 21, 22]
    assert any(
        "partitioned by h, x, the output is not" in line for line in few.facts["private_scope"]
    )
    # How the output is laid out does not change the words.
    assert sorted_rows(tmp_path / "few") == sorted_rows(tmp_path / "out")


OUTSIDE = {
    "beside": (["dt=1/a", "b"], "in", "1 files, for example b[.]"),
    "beside inner folders": (
        ["dt=1/h=1/a", "dt=1/h=2/a", "c d", "e"],
        "in",
        "2 files, for example c d[.]",
    ),
    "the same name around it": (["dt=5/dt=1/a", "dt=5/b"], "in/dt=5", "1 files, for example b[.]"),
    "folders of a pattern": (["x/dt=1/a", "x/b"], "in/*", "1 files, for example b[.]"),
}


@pytest.mark.parametrize(
    ("case", "format_name"),
    [*((case, "parquet") for case in OUTSIDE), ("beside", "csv")],
)
def test_files_beside_partitions_are_refused(opened, tmp_path, case, format_name):
    """Rejects rows that are gone without a word: Spark lists such files and reads none of them."""
    files, place, message = OUTSIDE[case]
    for number, name in enumerate(files):
        write_rows(
            tmp_path / "in" / f"{name}.{format_name}", [{"id": number, "text": "w01", "note": "x"}]
        )
    message = message.replace("[.]", rf"\.{format_name}\.")
    with pytest.raises(InputError, match=rf"files outside its partitions.*Got: {message}"):
        opened(tmp_path / place, format_name)


ESCAPED = ["Z%C3%BCrich", "M%c3%a1laga 100%25", "%E6%9D%B1%e4%ba%ac", "Bern", "Malmö"]
DECODED = ["Zürich", "Málaga 100%", "東京", "Bern", "Malmö"]


def test_partition_values_that_others_write_in_percent_are_what_they_say(options, opened, tmp_path):
    """As pandas, pyarrow and dask write them: rejects `ZÃ¼rich`, and a filter that finds nothing."""
    write_partitions(tmp_path / "in", [f"city={city}" for city in ESCAPED])
    run_table(**options, incremental=tmp_path / "checkpoint", keep=["id", "city"])
    found = {unquote(folder): ids for folder, ids in folders_of(tmp_path / "out").items()}
    assert found == {
        f"city={city}": [10 * n + i for i in range(3)] for n, city in enumerate(DECODED)
    }
    # Rows are named as before: by the folders' names as they are written.
    source = opened(tmp_path / "in", "parquet")
    positions = [row[0] for row in source.df.select(source.position).collect()]
    assert not [name for name in positions if "Zürich" in name or "東京" in name]
    for number, city in enumerate(DECODED[:2]):
        kept = where(source.df, f"city = '{city}'").select("id").collect()
        assert sorted(row[0] for row in kept) == [10 * number + i for i in range(3)]
    columns = TableColumns(text=("text",), keep=("city",), id=None)
    plan = plan_of({**options, "output": tmp_path / "x", "where": "city = 'Zürich'"}, columns)
    assert "PartitionFilters: [" in plan and "PartitionFilters: []" not in plan


def test_names_of_partitions_in_percent(opened, tmp_path):
    """Rejects a column's name that is bytes."""
    write_partitions(tmp_path / "in", ["stra%C3%9Fe=%C3%9C", "stra%C3%9Fe=x"])
    source = opened(tmp_path / "in", "parquet")
    assert source.partitions == ("straße",)
    assert {(row["straße"], row["id"] // 10) for row in source.df.collect()} == {("Ü", 0), ("x", 1)}


def test_filters_and_fields_are_pushed_down(options, tmp_path):
    """Rejects a filter behind the sanitizing, and structs that are read whole."""
    payload = [{"secret": "s", "message": "w01", "words": ["w02"]}] * 3
    columns = {"id": [1, 2, 3], "payload": payload, "turns": [payload] * 3}
    write_table(tmp_path / "in" / "dt=007" / "x.parquet", columns)
    columns = TableColumns(text=("payload.message", "turns[].message"), keep=(), id=None)
    plan = plan_of({**options, "where": "id > 1 and dt = 7"}, columns)
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,1)]" in plan
    assert "PartitionFilters: [isnotnull(dt" in plan
    assert (
        "ReadSchema: struct<id:bigint,payload:struct<message:string>,turns:array<struct<message:"
        in plan
    )
    if hasattr(DataFrame, "toArrow"):  # before Spark 4 the structs of an array are read whole
        assert "turns:array<struct<message:string>>" in plan


def test_a_filter_does_not_change_what_rows_become(options, tmp_path):
    """Rejects rows that are numbered after the filter, within row groups or among those that are read."""
    # Ids are checked among the rows that are wanted.
    (tmp_path / "in").mkdir()
    for name in "ab":
        table = pa.table({"id": list(range(40)), "text": texts(40)})
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet", row_group_size=10)
    run_table(**options, keep=["id"])
    report = run_table(
        **options | {"output": tmp_path / "few"}, keep=["id"], where="id >= 25 and id % 2 = 1"
    )
    wanted = [row for row in sorted_rows(tmp_path / "out") if row["id"] >= 25 and row["id"] % 2]
    assert sorted_rows(tmp_path / "few") == wanted
    assert report.facts["rows"] == len(wanted) == len({row["text"] for row in wanted}) == 16
    none = options | {"output": tmp_path / "none", "id": "id", "keep": ["id"]}
    with pytest.raises(InputError, match="cannot be the id"):
        run_table(**none, where="id < 2")
    with pytest.raises(InputError, match="No row of the input meets the filter"):
        run_table(**none, where="id > 50")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("id >", "cannot be understood.*columns id, text.*Got: PARSE_SYNTAX_ERROR"),
        ("Zebulon = text", "Got: UNRESOLVED_COLUMN"),
        ("id", "Got: DATATYPE_MISMATCH"),
        ("rand() < 0.5 or text = 'Zebulon'", "another answer each time"),
        ("monotonically_increasing_id() < 5", "another answer each time"),
        ("current_user() = 'Zebulon'", "another answer each time"),
        ("exists (select 'Zebulon')", "has a subquery"),
    ],
)
def test_filters_that_are_refused(spark, condition, message, capfd):
    """No message quotes the filter, which may hold private values."""
    frame = spark.createDataFrame([(1, "w01")], "id bigint, text string")
    with pytest.raises(ConfigError, match=message) as caught:
        where(frame, condition)
    assert "Zebulon" not in "".join([str(caught.value), *capfd.readouterr()])


def test_neither_filter_nor_rows_show(options, tmp_path, capfd):
    """The report names the consequences; a cast that fails is null, where an error would quote the row."""
    write_table(
        tmp_path / "in" / "x.parquet", {"text": ["Quartzman", "5"], "name": ["Zebulon", "Zebulon"]}
    )
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    where = "--where=name = 'Zebulon' and cast(text as int) = 5"
    result = CliRunner().invoke(
        main, ["privatize", "--mechanism=laplace", "--text=text", where, *given]
    )
    assert result.exit_code == 0, result.output
    report = (tmp_path / "out.private" / "report.json").read_text()
    assert json.loads(report)["rows"] == 1
    assert json.loads(report)["options"]["where"] == "given, not kept"
    assert any("Only rows that meet the filter" in line for line in json.loads(report)["scope"])
    shown = "".join([report, result.output, *capfd.readouterr()])
    assert "Zebulon" not in shown and "Quartzman" not in shown


def test_spark_does_not_log_a_condition_that_fails(spark, caplog, monkeypatch):
    """Rejects pyspark's habit of printing what an error's query says on standard error."""
    pyspark_logger = pytest.importorskip("pyspark.logger", reason="Spark 3.5 logs no queries")
    df, logger = spark.range(3), pyspark_logger.PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(ConfigError, match="cannot be understood"):
            where(df, "id = Zebulon")
        with pytest.raises(JobError), spark_errors():
            df.where("id = Zebulon")
        assert not caplog.records
        monkeypatch.setattr(logger, "filters", [])
        with pytest.raises(AnalysisException):
            df.where("id = Zebulon")
        assert "Zebulon" in caplog.text
    finally:
        logger.removeHandler(caplog.handler)


def test_many_small_files(options, tmp_path, spark):
    """Each file's row comes out once with noise of its own, and a task takes many files."""
    first = write_table(tmp_path / "in" / "0.parquet", {"text": [" ".join(["w00"] * 12)]})
    for number in range(1, 120):
        os.link(first, first.with_name(f"{number}.parquet"))
    report = run_table(**options)
    released = [row["text"] for row in rows_of(tmp_path / "out")]
    assert report.facts["rows"] == len(released) == len(set(released)) == 120
    per_core = int(spark.conf.get("spark.sql.files.minPartitionNum") or 0)
    assert len(list((tmp_path / "out").glob("part-*"))) <= per_core + 1


def test_paths_of_another_scheme_pass_through(options, tmp_path, spark):
    """Hadoop's viewfs mounts a local folder: rejects paths that are opened or compared as local ones."""
    write_table(tmp_path / "in" / "dt=1" / "x.parquet", {"text": texts(5)})
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.lake.link./data", tmp_path.as_uri())
    run_table(**options, keep=["dt"])
    there = {"input": "viewfs://lake/data/in", "output": "viewfs://lake/data/there"}
    run_table(**options | there, keep=["dt"], reports="viewfs://lake/data/reports")
    assert sorted_rows(tmp_path / "there") == sorted_rows(tmp_path / "out")
    assert json.loads((tmp_path / "reports/private/report.json").read_text())["rows"] == 5
    for output in (str(tmp_path / "in"), "viewfs://lake/data/in", "viewfs://lake/data/in/out"):
        for source in (str(tmp_path / "in"), "viewfs://lake/data/in"):
            places = [("Input", "--input", source), ("Output", "--output", output)]
            with pytest.raises(ConfigError, match="inside one another"):
                Places.of(places).with_spark(spark).check_apart()


def test_a_scheme_without_its_library_is_named_with_its_package(spark, monkeypatch):
    """Rejects a Java class for an answer, and a path that is blamed where Spark has ended."""
    for scheme in ("s3a", "s3", "abfss", "nosuch"):
        said = f"The path {scheme}://bucket/table cannot be used.*--packages.*hadoop-aws .*s3a://"
        with pytest.raises(ConfigError, match=said):
            Storage(spark).exists(f"{scheme}://bucket/table")
    monkeypatch.setattr("dptext_spark.tables.storage.has_ended", lambda: True)
    with pytest.raises(Py4JJavaError):
        Storage(spark).exists("s3a://bucket/table")
