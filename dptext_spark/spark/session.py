"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from dptext_spark.spark.java import ensure_java


def session(app: str) -> SparkSession:
    """Get the session of spark-submit, or start one on this machine's cores.

    Raises:
        ConfigError: There is no Java runtime.
    """
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkSession.getActiveSession() is None:
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for name, value in _LOCAL_SETTINGS.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


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
    "spark.ui.showConsoleProgress": "true",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOGGING}"',
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
