"""Paths beyond this machine: what is missing is named."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError
from dptext_spark.tables.storage import Storage

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("scheme", "package", "setting"),
    [
        ("s3a", "org.apache.hadoop:hadoop-aws:{hadoop} ", "fs.s3a.aws.credentials.provider"),
        ("gs", "com.google.cloud.bigdataoss:gcs-connector:", "fs.gs.auth.type"),
        ("abfss", "org.apache.hadoop:hadoop-azure:{hadoop} ", "fs.azure.account.auth.type"),
    ],
)
def test_a_scheme_without_its_library_is_told_with_the_package_and_the_settings(
    spark: SparkSession, scheme: str, package: str, setting: str
) -> None:
    """Rejects a package of another version than the Hadoop that runs, and a Java class for an answer."""
    with pytest.raises(ConfigError) as caught:
        Storage(spark).exists(f"{scheme}://bucket/table")
    message = str(caught.value)
    assert message.startswith(
        f"The path {scheme}://bucket/table cannot be used: Spark has no library for {scheme}:"
    )
    hadoop = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
    assert package.format(hadoop=hadoop) in message
    assert "spark.jars.packages" in message and "--packages" in message and setting in message


@pytest.mark.parametrize(("old", "new"), [("s3", "s3a"), ("s3n", "s3a"), ("wasbs", "abfss")])
def test_an_old_name_of_a_scheme_is_told_with_the_new_one(spark: SparkSession, old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"Write {new}:// for {old}://. Give Spark the package"):
        Storage(spark).exists(f"{old}://bucket/table")


def test_an_unknown_scheme_gets_no_package(spark: SparkSession) -> None:
    with pytest.raises(ConfigError) as caught:
        Storage(spark).exists("nosuch://bucket/table")
    assert "package" not in str(caught.value)
