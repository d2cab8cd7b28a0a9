"""Paths as schedulers and people name them: what is there means itself, whatever letters its name has.

Rejects a pattern in the place of a folder that exists, files of a neighbour that the pattern would mean,
files that are written elsewhere, and a look at a folder that fails because of a neighbour's name.
"""

import os
import shutil

import pytest

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.tables.formats.lakehouse import read_files
from dptext_spark.tables.storage import Storage
from tests.helpers.tables import names, rows_of, run_table, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

RUN_ID = "manual__2024-01-01T00:00:00+00:00"
FOLDERS = {"a [1]{b,c}?\\%20#": "apache/spark #41022", RUN_ID: "hail-is/hail #15021"}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_run_in_a_folder_of_any_name(name, ring, key_file, tmp_path):
    """Input, output, bundle, key file, reports, ledger and checkpoint; rows are those of any run."""
    folder = tmp_path / name
    for near in (tmp_path / "a 1b", tmp_path / "a:b", folder / "c:d"):
        write_table(near / "in" / "a.parquet", {"text": texts(1), "dt": ["0"]})
    for dt in ("1", "2%3A00"):
        write_table(folder / "in" / f"dt={dt}" / "a.parquet", {"text": texts(9)})
    shutil.copytree(ring.path, folder / "bundle")
    shutil.copy(key_file, folder / "key")
    places = {"input": "in", "embedding": "bundle", "key_file": "key", "ledger": "ledger"}
    given = {option: folder / place for option, place in places.items()} | {
        "name": "n",
        "keep": ["dt"],
    }
    grow = {**given, "output": folder / "grown:1", "incremental": folder / "state"}
    assert run_table(**grow).facts["added_rows"] == 18
    write_table(folder / "in" / "dt=1" / "b.parquet", {"text": texts(2)})
    assert run_table(**grow).facts["added_rows"] == 2
    assert run_table(**given, output=folder / "out").facts["rows"] == 20
    rows = [sorted(str(row) for row in rows_of(folder / place)) for place in ("out", "grown:1")]
    assert (
        rows[0] == rows[1] and len(rows[0]) == 20
    )  # by position, so with the noise of equal paths
    assert names(folder / "out") == {"_SUCCESS", "._SUCCESS.crc", "dt=1", "dt=2%3A00"}
    made = {
        f"{place}{end}"
        for place in ("out", "grown:1")
        for end in ("", ".private", ".release.json", ".release.html")
    }
    assert names(folder) == made | {"in", "bundle", "key", "ledger", "state", "c:d"}


def test_a_pattern_is_one_where_nothing_has_its_name(opened, tmp_path):
    for number, name in enumerate(
        ["run1", "run2", "run[1]", "y/a:[1]", "x/run1", "x/run2", "x/b:c"]
    ):
        write_table(tmp_path / name / "a.parquet", {"id": [number]})

    def ids(place):
        return sorted(row.id for row in opened(tmp_path / place, "parquet").df.collect())

    assert [ids(place) for place in ("run[1]", "run[12]", "run\\[1\\]", "x/b:c")] == [
        [2],
        [0, 1],
        [2],
        [6],
    ]
    with pytest.raises(
        ConfigError, match=r"as a pattern\. Allowed: patterns where no name has a colon"
    ):
        opened(tmp_path / "x/*", "parquet")
    with pytest.raises(InputError, match=r"y/a:\[1\] cannot be read as a table"):
        opened(tmp_path / "y/a:[1]", "parquet")
    with pytest.raises(InputError, match="no such file"):
        opened(tmp_path / "none[1]", "parquet")


@pytest.fixture
def ascii_names(spark):
    """Java says that its locale is of ASCII, as under LC_ALL=C."""
    system = spark.sparkContext._jvm.System
    before = system.setProperty("sun.jnu.encoding", "ANSI_X3.4-1968")
    yield
    system.setProperty("sun.jnu.encoding", before)


def test_names_that_java_cannot_read_are_refused(opened, tmp_path, spark, request):
    """Rejects rows that are gone without a word, "no such file", and a refusal of names that are read."""
    for number, name in enumerate(
        ["in/city=Zürich/a", "in/city=Bern/b", "flat/märz", "flat/x", "flat/.ü"]
    ):
        write_table(tmp_path / f"{name}.parquet", {"id": [number]})
    (tmp_path / "bytes").mkdir()
    shutil.copy(
        tmp_path / "flat" / "x.parquet", os.fsencode(tmp_path / "bytes") + b"/m\xe4rz.parquet"
    )
    places = {"in": "in/city=Zürich/a", "flat": "flat/märz", "flat/märz.parquet": "flat/märz"}
    places |= {"f*/m*": "flat/märz", "{in,x}": "in/city=Zürich/a"}
    rows = [len(opened(tmp_path / place, "parquet").df.collect()) for place in places]
    assert rows == [2, 2, 1, 1, 2]
    for place in ("bytes", "b*/*"):
        with pytest.raises(
            ConfigError, match=r"Java cannot read the name .*/m\\xe4rz.parquet.*Rename it"
        ):
            opened(tmp_path / place, "parquet")
    request.getfixturevalue("ascii_names")
    for place, name in places.items():
        message = rf"Java cannot read the name {tmp_path}/{name}.parquet\. Got: a locale of ANSI"
        message += r".*LC_ALL=C\.UTF-8"
        with pytest.raises(ConfigError, match=message):
            opened(tmp_path / place, "parquet")
    for place in ("in/city=Bern", "f*/x*", "flat/x.parquet"):
        assert len(opened(tmp_path / place, "parquet").df.collect()) == 1
    with pytest.raises(ConfigError, match=rf"Java cannot read the name {tmp_path}/märz"):
        Storage(spark).exists(str(tmp_path / "märz"))
    with pytest.raises(ConfigError, match="Java cannot read the name"):
        read_files(spark, spark.range(1).schema, [f"file:{tmp_path}/flat/märz.parquet"], "t")


def test_a_catalog_s_table_with_names_that_java_cannot_read(opened, tmp_path, spark, ascii_names):
    """Rejects a table of a catalog whose files Spark lists, and passes over, as those of a folder."""
    write_table(tmp_path / "in" / "märz.parquet", {"id": [1]})
    spark.sql(f"create table months (id bigint) using parquet location '{tmp_path}/in'")
    try:
        with pytest.raises(ConfigError, match=r"Java cannot read the name .*/märz\.parquet"):
            opened("months", "table")
    finally:
        spark.sql("drop table months")
