"""What is said of paths and columns before Spark starts: nothing that Spark would read is refused."""

from contextlib import contextmanager

import pytest
from pyspark import SparkContext

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.options import VectorsOptions
from dptext_spark.spark import session_settings
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.run import TableRun
from dptext_spark.tables.storage import LocalFiles, Storage, is_absent, is_plain, local_path
from tests.helpers.tables import texts, write_table


def check(name, path, **given):
    values = {
        "input": str(path),
        "output": "out",
        "epsilon": 1.0,
        "dimension": 2,
        "vector": [name],
        **given,
    }
    columns = TableColumns(text=(name,), keep=("*",), id=None)
    TableRun.of(VectorsOptions.of(values), columns).check_columns()


@pytest.fixture
def table(tmp_path):
    """A partitioned table whose files have different columns, and files that are no part of it."""
    write_table(
        tmp_path / "in" / "dt=1" / "a.parquet", {"text": texts(1), "turns": [[{"text": "a"}]]}
    )
    write_table(tmp_path / "in" / "dt=2" / "b.parquet", {"text": texts(1), "late.x": texts(1)})
    for name in ("_temporary/c.parquet", "dt=1/.d.parquet"):
        write_table(tmp_path / "in" / name, {"hidden": texts(1)})
    (tmp_path / "in" / "_SUCCESS").touch()
    return tmp_path / "in"


@pytest.mark.usefixtures("alone")
def test_names_that_no_file_has_are_refused(table, tmp_path):
    """Rejects files that Spark passes over, and a message without the name that was meant."""
    # And a refusal of what may be there: elsewhere, behind options, patterns and damaged files.
    for name, message in {
        "txet": r"Allowed: text, turns, dt\. Got: txet\. Perhaps you meant text\.",
        "hidden": r"Got: hidden\.$",
        "turn[].text": r"Got: turn\[\]\.text\.$",
    }.items():
        with pytest.raises(InputError, match=message):
            check(name, table)
    with pytest.raises(InputError, match="text"):
        check("txet", f"file:{table}/dt=1/a.parquet")
    for name in ("text.", "turns[].txet", "dt", "late.x"):
        check(name, table)  # Spark has it, or says what it is
    write_table(tmp_path / "in[1]" / "a.parquet", {"text": texts(1)})
    with pytest.raises(InputError, match="Got: nope"):
        check("nope", tmp_path / "in[1]")
    for path in ("hdfs:///in", f"{table}/*", tmp_path / "none", table / "_temporary" / "x"):
        check("nope", path)
    check("nope", table, **{"read-option": ["mergeSchema=true"]})
    check("nope", table, format="orc", id="id")
    (table / "dt=1" / "0.parquet").write_bytes(b"PAR1 damaged PAR1")
    check("nope", table)


@pytest.mark.usefixtures("alone")
def test_nothing_is_checked_where_spark_runs_or_is_configured(table, monkeypatch):
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "/etc")
            check("nope", table)
            assert not is_absent("none")
    for name in ("spark.hadoop.fs.defaultFS", "spark.sql.caseSensitive"):
        with session_settings({name: "x"}):
            assert not is_plain()
    with session_settings({"spark.driver.memory": "1g"}):
        assert is_plain() and is_absent("none") and not is_absent("none*")
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    check("nope", table)


@contextmanager
def hadoop_settings(spark, values):
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    before = {name: configuration.get(name) for name in values}
    for name, value in values.items():
        configuration.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                configuration.unset(name)
            else:
                configuration.set(name, value)


@pytest.fixture
def hadoop(spark):
    """A storage that asks Java of every path: whose file system it is, Python does not know."""
    with hadoop_settings(spark, {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}):
        yield Storage(spark)


@pytest.mark.spark
def test_local_files_answer_as_hadoop_does(tmp_path, spark, hadoop, monkeypatch):
    """Also where a name has a colon; a relative one needs ``./``, which is said (apache/drill #2791)."""
    monkeypatch.chdir(tmp_path)
    storage, files = Storage(spark), LocalFiles()
    names = ["a", "b b", "[c]", "x{1}", "é%20", "a:[1]/events", "a:[1]/.e:1", "a:[1]/v"]
    for name in names:
        storage.write(f"{tmp_path}/there/{name}/1.json", "Größe")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    places = [str(tmp_path / "there" / name) for name in names]
    places += [f"{tmp_path}/link/./a/../new/", f"file:{tmp_path}/link", f"file://{tmp_path}//there"]
    places += [f"{tmp_path}/nowhere/x", "/"]
    for place in places:
        for asked in (hadoop, storage):
            assert files.exists(place) == asked.exists(place), place
            assert files.qualified(place).rstrip("/") == asked.qualified(place).rstrip("/"), place
            assert files.real(place) == asked.real(place), place
            assert files.matches(place) == asked.matches(place), place
    assert not any(asked.exists(f"{tmp_path}/broken") for asked in (files, hadoop, storage))
    assert files.read("there/a/1.json") == storage.read(f"{tmp_path}/there/a/1.json") == "Größe"
    for number, writer in enumerate((files, storage)):
        place = tmp_path / f"{number}.json"
        place.write_text("others may read it")
        writer.write(str(place), "Größe", private=True)
        assert (place.stat().st_mode & 0o777, place.read_text(encoding="utf-8")) == (0o600, "Größe")
    relative = ["there", "./there/../link/a", "there/x:y"]
    assert [files.real(place) for place in relative] == [
        storage.real(f"{tmp_path}/{p}") for p in relative
    ]
    for pattern, count in {"*": 3, "v/*.json": 1, "../*/1.json": 5, "no/*": 0, "no": 0}.items():
        found = sorted(storage.below(f"{tmp_path}/there/a:[1]", pattern))
        assert found == sorted(files.below(f"{tmp_path}/there/a:[1]", pattern)), pattern
        assert len(found) == count, pattern
    with pytest.raises(ConfigError, match=r"a:\[1\]/x cannot be used.*needs \./ before it"):
        storage.qualified("a:[1]/x")
    for place in (
        "s3a://b/x",
        "viewfs:/x",
        "x:y",
        "file:x",
        "file://host/x",
        "//host/x",
        "HDFS://x/y",
    ):
        assert local_path(place) is None and not files.exists(place) and files.matches(place) == []


@pytest.mark.spark
def test_java_is_asked_of_file_systems_that_python_does_not_know(spark, tmp_path):
    """Rejects this machine's files where a path without a scheme, or each of ``file:``, lies elsewhere."""
    with hadoop_settings(spark, {"fs.defaultFS": "hdfs://127.0.0.1:8020"}):
        storage = Storage(spark)
        assert storage.qualified(str(tmp_path)) == f"hdfs://127.0.0.1:8020{tmp_path}"
        assert storage.qualified(f"file:{tmp_path}") == f"file:{tmp_path}"
    own = {"fs.file.impl": "org.example.OwnFileSystem", "fs.file.impl.disable.cache": "true"}
    with hadoop_settings(spark, own), pytest.raises(ConfigError, match="cannot be used"):
        Storage(spark).exists(f"file:{tmp_path}")
