"""Paths beyond this machine: what is missing is named."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError
from dptext_spark.tables.storage import Storage

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("scheme", "package", "setting"),
    [
        ("s3a", "package org.apache.hadoop:hadoop-aws:{hadoop} ", "fs.s3a.aws.credentials.provider"),
        ("gs", "package com.google.cloud.bigdataoss:gcs-connector:", "fs.gs.auth.type"),
        ("abfss", "package org.apache.hadoop:hadoop-azure:{hadoop} ", "fs.azure.account.auth.type"),
        ("s3", "Write s3a:// for s3://. Give Spark the package", "fs.s3a.aws.credentials.provider"),
        ("s3n", "Write s3a:// for s3n://. Give Spark the package", "fs.s3a.aws.credentials.provider"),
        ("wasbs", "Write abfss:// for wasbs://. Give Spark the package", "fs.azure.account.auth.type"),
        ("nosuch", "", ""),
    ],
)
def test_a_scheme_without_its_library_is_named_with_package_and_settings(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, scheme: str, package: str, setting: str
) -> None:
    """Rejects a package of another version than the Hadoop that runs, and a Java class for an answer.

    And a path that is blamed where Spark has ended.
    """
    storage = Storage(spark)
    with pytest.raises(ConfigError, match=f"The path {scheme}://bucket/table cannot be used") as caught:
        storage.exists(f"{scheme}://bucket/table")
    message, hadoop = str(caught.value), storage._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    assert package.format(hadoop=hadoop) in message and setting in message
    for said in (f"Spark has no library for {scheme}:", "spark.jars.packages", "--packages"):
        assert (said in message) == bool(package)
    monkeypatch.setattr("dptext_spark.tables.storage.has_ended", lambda: True)
    with pytest.raises(Py4JJavaError):
        storage.exists(f"{scheme}://bucket/table")
