"""What differs between Spark 3.5 and Spark 4: what is too old, and what goes another way."""

import zipfile
from contextlib import nullcontext
from importlib.util import spec_from_file_location
from zipimport import zipimporter

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

import dptext_spark.spark
from dptext_spark.errors import ConfigError
from dptext_spark.spark.versions import (
    ARROW_BATCH,
    condition_of,
    from_arrow,
    metadata,
    settings,
    to_arrow,
)
from dptext_spark.tables.formats.iceberg import Iceberg
from dptext_spark.tables.source import own_session
from tests.helpers.tables import spark_settings


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.4.4", r"too old\. Allowed: Spark 3\.5 or newer\. Got: 3\.4\.4\."),
        ("3.5.6", r"needs the module distutils.*Got: Spark 3\.5\.6 with Python 3"),
        ("3.10.1", "needs the module distutils"),
        ("4.3.0.dev0", ""),
    ],
)
@pytest.mark.parametrize("zipped", [False, True], ids=["a folder", "a cluster's zip"])
def test_a_spark_that_cannot_run_is_named(tmp_path, monkeypatch, version, said, zipped):
    """Rejects versions that are compared as text, a traceback, and a refusal of Spark 4 without distutils."""
    (tmp_path / "version.py").write_text(f"__version__: str = {version!r}\n")
    (tmp_path / "__init__.py").touch()
    spec = spec_from_file_location("pyspark", tmp_path / "__init__.py")
    if zipped:
        with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as file:
            for name in ("__init__.py", "version.py"):
                file.write(tmp_path / name, f"pyspark/{name}")
        spec = zipimporter(str(tmp_path / "pyspark.zip")).find_spec("pyspark")
    for modules in ({"pyspark": spec}, {"pyspark": spec, "distutils": spec}):
        monkeypatch.setattr(dptext_spark.spark, "find_spec", modules.get)
        is_refused = said and not ("distutils" in said and "distutils" in modules)
        with pytest.raises(ConfigError, match=said) if is_refused else nullcontext():
            dptext_spark.spark._check_version()


def test_an_arrow_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(pa, "__version__", "17.0.0")
    with pytest.raises(
        ConfigError, match=r"iceberg need a newer pyarrow.*18 or newer\. Got: 17\.0\.0\."
    ):
        Iceberg.module()


@pytest.mark.spark
def test_tables_come_and_go_without_losing_a_type(spark, tmp_path):
    """Rejects the way by pandas, where integers next to a null become floats and lose digits."""
    rows = [
        {"n": 2**63 - 1, "x": float("inf"), "t": "a", "b": True, "of": [{"k": "v", "i": 1}]},
        {"n": None, "x": None, "t": None, "b": None, "of": None},
    ]
    table = pa.Table.from_pylist(rows)
    frame = from_arrow(spark, table).coalesce(1)
    assert to_arrow(frame).to_pylist() == rows
    assert to_arrow(frame.where("false")).schema.names == table.schema.names
    frame.selectExpr("n", "t as _metadata").write.parquet(str(tmp_path / "in"))
    read = spark.read.parquet(str(tmp_path / "in"))
    assert read.select(metadata(read)["file_path"]).first()[0].startswith("file:")


@pytest.mark.spark
def test_what_overflows_is_an_error_whatever_the_session_says(spark):
    """Rejects sums that become null, which a ledger would take for nothing spent; 3.5 does by default."""
    with spark_settings(spark, ansi_enabled="false"):
        session = own_session(spark)
    with pytest.raises((PySparkException, Py4JJavaError), match="NUMERIC_VALUE_OUT_OF_RANGE"):
        session.sql("select cast(id + 9999 as decimal(3, 0)) from range(1)").collect()
    with pytest.raises(AnalysisException) as unknown:
        spark.sql("select nothing_known")
    assert condition_of(unknown.value) == "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"


READERS = {f"spark.sql.{kind}.columnarReaderBatchSize": "256" for kind in ("parquet", "orc")}


@pytest.mark.spark
@pytest.mark.parametrize(("name", "most"), [*ARROW_BATCH.items(), *READERS.items()])
def test_batches_are_bounded_unless_the_user_says_how(spark, name, most):
    """Rejects a limit that this Spark does not know, and one that replaces the user's."""
    assert spark.conf.isModifiable(name)
    with spark_settings(spark, **{name.removeprefix("spark.sql.").replace(".", "_"): "77"}):
        assert own_session(spark).conf.get(name).removesuffix("b") == "77"
    before = settings(spark).get(name)
    spark.conf.unset(name)
    try:
        assert own_session(spark).conf.get(name) == most
    finally:
        if before is not None:
            spark.conf.set(name, before)
