"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dptext_spark import interrupts
from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark import java
from dptext_spark.spark.failures import condition
from dptext_spark.spark.settings import WANTED

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGED: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
_LOCAL_SETTINGS: Final = {
    # Four attempts for each task: with fewer, a worker process that dies takes the job with it.
    "spark.master": "local[*,4]",
    # Perturbing costs far more than reading: small partitions keep all cores busy to the end.
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    # Opening a file costs next to nothing compared with the words in it: a task takes many small files.
    "spark.sql.files.openCostInBytes": "65536",
    # Spark's 200 suit a cluster; cached tables keep that many partitions however small they are.
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    # Rows that are shuffled lie on a disk of this machine.
    "spark.io.encryption.enabled": "true",
    "spark.ui.enabled": "false",
    # It would go to the log: dptext_spark.spark.progress shows it instead.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(app: str) -> SparkSession:
    """Get the session of spark-submit, or start one on this machine's cores."""
    wanted, running = WANTED.get(), java.is_running()
    if not running:
        settings = {} if java.is_submitted() else local_settings(wanted)
        conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
        try:
            with stage("Starting Spark"), interrupts.held():
                java.start(conf, logged=java.LOG_LEVEL not in wanted)
        except (PySparkException, Py4JError, OSError) as error:
            why = condition(error) if isinstance(error, Py4JJavaError) else java.start_failure()
            raise JobError("Spark could not be started", got=why, do=java.see_log()) from None
    spark = SparkSession.builder.appName(app).getOrCreate()
    if running or java.is_submitted():
        if fixed := [name for name in wanted if not spark.conf.isModifiable(name)]:
            raise ConfigError(
                "A Spark session that runs already cannot take settings",
                allowed="with --spark-conf, settings of Spark SQL that can change while it runs",
                got=", ".join(fixed),
                do="Give them to spark-submit, with --conf",
            )
        for name, value in wanted.items():
            spark.conf.set(name, value)
    return spark


def local_settings(wanted: Mapping[str, str]) -> dict[str, str]:
    """Give the settings of a session on this machine's cores; the user's win."""
    options = " ".join(filter(None, (_LOGGED, wanted.get(_JAVA_OPTIONS))))
    return {**_LOCAL_SETTINGS, **wanted, _JAVA_OPTIONS: options}
