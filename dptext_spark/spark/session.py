"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError
from dptext_spark.spark.java import ensure_java
from dptext_spark.spark.settings import WANTED


def session(app: str, *, bar: bool = True) -> SparkSession:
    """Get the session of spark-submit, or start one on this machine's cores.

    Args:
        app: Its name, if it is started.
        bar: Whether it shows Spark's own progress then.

    Raises:
        ConfigError: There is no Java runtime, or the session cannot take what the command line wants of it.
    """
    wanted, builder = WANTED.get(), SparkSession.builder.appName(app)
    if SparkSession.getActiveSession() is not None:
        return _changed(builder.getOrCreate(), wanted.given)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _changed(_configured(builder, _at_start(bar)).getOrCreate(), wanted.given)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _configured(builder, _settings(bar)).getOrCreate()


def _at_start(bar: bool) -> dict[str, str]:
    """Give what is wanted of any session that starts: its progress and its log."""
    return {**({} if bar else {_BAR: "false"}), **WANTED.get().at_start}


def _settings(bar: bool) -> dict[str, str]:
    """Give the settings of a session on this machine's cores; the user's win."""
    given = WANTED.get().given
    settings = {**_LOCAL_SETTINGS, **_at_start(bar), **given}
    if _JAVA_OPTIONS in given:
        settings[_JAVA_OPTIONS] = f"{_LOCAL_SETTINGS[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    return settings


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def _changed(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Change the settings of a session that runs.

    Raises:
        ConfigError: Some can only be given to a session before it starts.
    """
    if fixed := [name for name in settings if not spark.conf.isModifiable(name)]:
        raise ConfigError(
            "A Spark session that runs already cannot take settings",
            allowed="with --spark-conf, settings of Spark SQL that can change while it runs",
            got=", ".join(fixed),
            do="Give them to spark-submit, with --conf",
        )
    for name, value in settings.items():
        spark.conf.set(name, value)
    return spark


_BAR: Final = "spark.ui.showConsoleProgress"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL_SETTINGS: Final = {
    # Four attempts for each task: with fewer, a worker process that dies takes the job with it.
    "spark.master": "local[*,4]",
    # Perturbing costs far more than reading: small partitions keep all cores busy to the end.
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    # Opening a file costs next to nothing beside the words in it: a task takes many small files.
    "spark.sql.files.openCostInBytes": "65536",
    # Spark's 200 suit a cluster; cached tables keep that many partitions however small they are.
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    "spark.ui.enabled": "false",
    _BAR: "true",
    _JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={_LOGGING}"',
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
