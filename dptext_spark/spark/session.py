"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from dptext_spark import interrupts
from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark import java
from dptext_spark.spark.failures import condition
from dptext_spark.spark.settings import WANTED

_REMOTE: Final = "spark.remote"
_TRIES: Final = 4
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


def is_connect(spark: SparkSession) -> bool:
    """Say whether a session is a client of Spark Connect: it has no JVM, no context and no RDD."""
    return not hasattr(spark, "sparkContext")


def session(app: str, *, on_connect: bool = False) -> SparkSession:
    """Get the session of spark-submit or of Spark Connect, or start one on this machine's cores.

    ``on_connect`` says whether one of Spark Connect will do.
    """
    wanted, running = WANTED.get(), java.is_running()
    if _REMOTE in wanted or (is_remote() and not running):
        if not on_connect:
            raise ConfigError(f"{app} does not run on Spark Connect", do="Start it without a remote session")
        return _connected(wanted)
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


def _connected(wanted: Mapping[str, str]) -> SparkSession:
    """Open a session at the server of Spark Connect, or give the one that this process has."""
    spark: Any = None
    policies: list[Any] = []
    try:
        url = wanted.get(_REMOTE)
        spark = None if url else SparkSession.getActiveSession()
        if spark is None:
            builder = SparkSession.builder
            spark = builder.remote(url).create() if url else builder.getOrCreate()
        policies = spark.client.get_retry_policies()
        # Of a server that is not there users hear after seconds; one that is lost later gets ten minutes.
        spark.client.set_retry_policies([type(policies[0])(max_retries=_TRIES)])
        with warnings.catch_warnings(action="ignore"):  # of tries that failed: the message says it
            _ = spark.version  # asks the server
        spark.client.set_retry_policies(policies)
        for name, value in wanted.items():
            if name != _REMOTE:
                spark.conf.set(name, value)
    except (PySparkException, ImportError, OSError) as error:
        if spark is not None:  # as the process ends it closes what was never open
            warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
            spark.client.set_retry_policies([type(each)(max_retries=0) for each in policies])
        do = "See whether it runs; for the client's libraries: pip install 'pyspark[connect]'"
        raise JobError("The server of Spark Connect cannot be used", got=condition(error), do=do) from None

    def leave(_: int) -> None:
        with suppress(PySparkException, OSError):
            spark.interruptAll()

    interrupts.ends_first(leave)
    return cast(SparkSession, spark)


def local_settings(wanted: Mapping[str, str]) -> dict[str, str]:
    """Give the settings of a session on this machine's cores; the user's win."""
    options = " ".join(filter(None, (_LOGGED, wanted.get(_JAVA_OPTIONS))))
    return {**_LOCAL_SETTINGS, **wanted, _JAVA_OPTIONS: options}
