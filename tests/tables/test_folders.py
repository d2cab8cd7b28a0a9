"""What folders say of their files: values of partitions, escapes, and logs of which files count."""

import pyarrow as pa
import pytest
from pyarrow import orc

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.source import where
from dptext_spark.tables.storage import LocalFiles, Storage, spark_log
from tests.helpers.lakes import write_rows
from tests.helpers.tables import spark_settings, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NULL = "__HIVE_DEFAULT_PARTITION__"
FORMATS = ("json", "orc", "parquet")
DIFFER = {
    "another value in one row": {"dt=1/a": ["1", "2"], "dt=2/b": ["2"]},
    "in other capitals": {"DT=1/a": ["2"]},
    "a null": {"dt=1/a": ["1", None]},
    "nulls alone": {"dt=1/a": [None]},
    "a value where the folder has none": {f"dt={NULL}/a": ["1"], "dt=1/b": ["1"]},
    "another text of one number": {"dt=007/a": ["7"]},
}
SAME = {
    "texts": {"dt=x%2Fy/a": ["x/y"], "dt=2/b": ["2", "2"]},
    "in other capitals": {"DT=1/a": ["1"]},
    "a number": {"dt=007/a": [7], "dt=8/b": [8]},
    "no value in both": {f"dt={NULL}/a": [None], "dt=1/b": ["1"]},
    "a file without the column": {"dt=1/a": ["1"], "dt=2/b": []},
}


def write_files(folder, files, name):
    """Write files whose rows have these values of dt; one without any has no such column."""
    for number, (place, values) in enumerate(files.items()):
        rows = [
            {"id": 10 * number + i, "text": "w01", "dt": value} for i, value in enumerate(values)
        ]
        file = folder / f"{place}.{name}"
        if name == "orc" and values == [None]:  # which need a type there
            file.parent.mkdir(parents=True, exist_ok=True)
            dt = pa.array(values, pa.string())
            orc.write_table(pa.table({"id": [number], "text": ["w01"], "dt": dt}), file)
        else:
            write_rows(file, rows or [{"id": number, "text": "w01"}])


@pytest.mark.parametrize("case", DIFFER)
@pytest.mark.parametrize("name", FORMATS)
def test_a_column_that_files_and_folders_give_different_values(opened, tmp_path, name, case):
    """Rejects the folder's value in place of the file's, and a comparison of those that are not null."""
    write_files(tmp_path, DIFFER[case], name)
    message = (
        rf"Column (dt|DT) is in the files .* different values.*Got: another value in .*/a\.{name}"
    )
    with pytest.raises(InputError, match=message) as caught:
        opened(tmp_path, name)
    assert "recursiveFileLookup=true" in str(caught.value)
    remedy = opened(tmp_path, name, recursiveFileLookup="true")
    values = [value for values in DIFFER[case].values() for value in values]
    assert sorted(str(row["dt"]) for row in remedy.df.collect()) == sorted(map(str, values))


@pytest.mark.parametrize("case", SAME)
@pytest.mark.parametrize("name", FORMATS)
def test_a_column_that_files_and_folders_give_the_same_values(opened, tmp_path, name, case):
    """Rejects a refusal for the column alone, and types that are compared as texts."""
    write_files(tmp_path, SAME[case], name)
    source = opened(tmp_path, name)
    assert [partition.lower() for partition in source.partitions] == ["dt"]
    rows = sum(max(len(values), 1) for values in SAME[case].values())
    assert len(source.df.collect()) == rows
    nulls = 1 if case == "no value in both" else 0
    assert len(where(source.df, "dt is null").collect()) == nulls


def test_a_column_that_files_and_folders_have_where_others_have_two_types(opened, tmp_path):
    """Rejects a column that is forgotten where the footers' schemas are merged here."""
    for number, (dt, other) in enumerate([(7, "x"), (8, 1)]):
        columns = {"id": [number], "dt": [dt], "other": [other]}
        write_table(tmp_path / "same" / f"dt=00{dt}" / "a.parquet", columns)
        write_table(tmp_path / "not" / "dt=007" / f"{number}.parquet", columns)
        write_table(
            tmp_path / "types" / f"dt={dt}" / "a.parquet", columns | {"dt": [(dt, "8")[number]]}
        )
    values = [row["dt"] for row in opened(tmp_path / "same", "parquet").df.collect()]
    assert sorted(values) == ["007", "008"]
    with pytest.raises(InputError, match=r"different values.*Got: another value in .*/1\.parquet"):
        opened(tmp_path / "not", "parquet")
    with pytest.raises(InputError, match="Column dt has two types"):
        opened(tmp_path / "types", "parquet")
    write_table(tmp_path / "struct" / "dt=7" / "a.parquet", {"dt": [{"a": 7}]})
    with pytest.raises(InputError, match="different values"):
        opened(tmp_path / "struct", "parquet")


def test_a_column_of_csv_files_and_folders(opened, tmp_path):
    """Rejects a message about headers: Spark finds columns of CSV by their order."""
    write_files(tmp_path, SAME["in other capitals"], "csv")
    message = (
        "Column dt is in the files .* and in the names of its folders. Allowed: in CSV, one of both"
    )
    with pytest.raises(InputError, match=message):
        opened(tmp_path, "csv")
    assert opened(tmp_path, "csv", recursiveFileLookup="true").df.columns == ["id", "text", "dt"]


NO_UTF8 = ["%FF", "%C3%28", "%ED%A0%80", "%C0%80", "ü%C3%A9", "東%C3%A9", "Ã¼", "a=%FF"]


def test_escapes_of_partitions_that_are_not_utf8(opened, tmp_path):
    """Rejects `ÿ` for a byte, bytes that are letters where others are escaped, and `ü` for `Ã¼`."""
    for number, value in enumerate(NO_UTF8):
        for folder in (f"city={value}", "city=Z%C3%BCrich"):
            write_table(tmp_path / str(number) / folder / "a.parquet", {"text": ["w01"]})
        with pytest.raises(
            InputError, match=rf"whose name cannot be read.*Got: city={value}\. Rename"
        ):
            opened(tmp_path / str(number), "parquet")
    write_table(tmp_path / "name" / "stra%DFe=1" / "a.parquet", {"text": ["w01"]})
    with pytest.raises(InputError, match=r"whose name cannot be read.*Got: stra%DFe=1"):
        opened(tmp_path / "name", "parquet")


def test_percent_signs_that_are_no_escapes_stand_for_themselves(opened, tmp_path):
    values = {"100%": "100%", "%ZZ": "%ZZ", "%4": "%4", "%25": "%", "%C3%BC": "ü", "ö": "ö"}
    for folder in values:
        write_table(tmp_path / f"city={folder}" / "a.parquet", {"text": ["w01"]})
    rows = opened(tmp_path, "parquet").df.collect()
    assert sorted(row["city"] for row in rows) == sorted(values.values())


@pytest.fixture
def sink(spark, tmp_path):
    """Write two partitions by a streaming job."""
    write_table(tmp_path / "source" / "a.parquet", {"id": [1, 2], "dt": ["x", "y"]})

    def write(name):
        rows = spark.readStream.schema("id bigint, dt string").parquet(f"file://{tmp_path}/source")
        query = rows.writeStream.format("parquet").partitionBy("dt")
        query = query.option("checkpointLocation", f"{tmp_path}/state of {name}")
        query.trigger(availableNow=True).start(str(tmp_path / name)).awaitTermination()
        return tmp_path / name

    return write


def test_files_that_the_log_of_a_streaming_job_does_not_name(sink, opened, spark, tmp_path):
    """Rejects files that are passed over in the job's folder, and read below it or where it has brackets."""
    recursive = {"recursiveFileLookup": "true"}
    places = [(tmp_path / place, {}) for place in ("sink", "sink/dt=x", "sink/dt=*", "sink[1]")]
    places.append((tmp_path / "lake", recursive))
    for name in ("sink", "sink[1]", "lake/sink"):
        sink(name)
    counts = [opened(place, "parquet", **options).df.count() for place, options in places]
    assert counts == [2, 1, 2, 2, 2]
    for name in ("sink", "sink[1]", "lake/sink"):
        write_table(tmp_path / name / "dt=x" / "added.parquet", {"id": [9]})
    message = (
        r"of a streaming job.*Got: 1 files that .*/_spark_metadata does not name.*/added\.parquet"
    )
    for place, options in [*places, (tmp_path / "sink/dt=x/added.parquet", {})]:
        with pytest.raises(InputError, match=message):
            opened(place, "parquet", **options)
    assert opened(tmp_path / "sink" / "dt=y", "parquet").df.count() == 1
    with spark_settings(spark, streaming_fileStreamSink_ignoreMetadata=True):
        assert opened(tmp_path / "sink", "parquet").df.count() == 3
    with pytest.raises(
        ConfigError, match=r"The output .* a table of a streaming job, or lies in one"
    ):
        Parquet(str(tmp_path / "sink" / "dt=z")).check_place(Storage(spark))


def test_a_log_that_spark_has_summed_up(spark, tmp_path):
    """Rejects batches that count twice, and those after the summary that do not count at all."""
    batches = {"0": "a", "1": "b", "2.compact": "abc", "3": "d", ".3.crc": "x", "4.tmp": "x"}
    for name, paths in batches.items():
        (tmp_path / name).write_text("\n".join(["v1", *(f'{{"path":"{path}"}}' for path in paths)]))
    for storage in (Storage(spark), LocalFiles()):
        assert [entry["path"] for entry in spark_log(storage, str(tmp_path))] == [
            "a",
            "b",
            "c",
            "d",
        ]


def test_tables_with_an_account_in_folders_that_are_read_through(opened, tmp_path):
    """Rejects rows that Delta deleted, where all folders below the input are read."""
    write_table(tmp_path / "lake" / "orders" / "dt=1" / "a.parquet", {"text": ["w01"]})
    (tmp_path / "lake" / "orders" / "_delta_log").mkdir()
    with pytest.raises(
        ConfigError, match=r"is a Delta table, or lies in one.*Got: _delta_log in .*/orders"
    ):
        opened(tmp_path / "lake", "parquet", recursiveFileLookup="true")


def test_columns_of_folders_and_files_in_another_type(opened, tmp_path):
    """Rejects values that differ in their text alone."""
    columns = {
        "day=2026-01-02": pa.array([20455], pa.date32()),
        "share=0.5": [0.5],
        "good=true": [True],
        "price=1.50": pa.array(["1.5"]).cast(pa.decimal128(5, 2)),
    }
    folder = tmp_path
    for name in columns:
        folder /= name
    write_table(
        folder / "a.parquet", {name.partition("=")[0]: value for name, value in columns.items()}
    )
    (row,) = opened(tmp_path, "parquet").df.collect()
    assert {f"{name}={row[name]}" for name in row.asDict()} == {*columns}
