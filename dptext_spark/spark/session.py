"""Spark's session: that of spark-submit, or one on this machine's cores.

The JVM that is started here is in a session of its own, so that no signal to all processes of a run reaches
it; a signal to this process ends it, with its shutdown hooks, before anything else is done. Its gateway and
that gateway's process, which pyspark does not offer publicly, are used in this module alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark.driver_log import open_log, see_log, start_failure
from dptext_spark.spark.failures import condition
from dptext_spark.spark.java import ensure_java
from dptext_spark.spark.settings import WANTED, Wanted

_PATIENCE: Final = 30.0
"""Seconds that a JVM has to end."""

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
    """Get the session of spark-submit, or start one on this machine's cores.

    Raises:
        ConfigError: There is no Java runtime, or the session cannot take what the command line wants of it.
        JobError: Spark does not start.
    """
    wanted, submitted = WANTED.get(), "PYSPARK_GATEWAY_PORT" in os.environ
    active = SparkContext._active_spark_context is not None
    if not active:
        with interrupts.held():
            _start(SparkConf(loadDefaults=False).setAppName(app), wanted, submitted)
    spark = SparkSession.builder.appName(app).getOrCreate()
    if active or submitted:
        _change(spark, wanted.given)
    return spark


def _start(conf: SparkConf, wanted: Wanted, submitted: bool) -> None:
    """Start the JVM, and Spark in it; what they say goes to a log, unless somebody wants to read along."""
    settings = wanted.at_start if submitted else local_settings(wanted)
    conf.setAll(list(settings.items()))
    try:
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_gateway(conf, logged=not wanted.at_start))
        interrupts.ends_first(_end_jvm)
        context: Any = SparkContext.getOrCreate(conf)
        # It would print a traceback where the JVM ends in the midst of a job, next to our message.
        context._accumulatorServer.handle_error = lambda *_: None
    except (PySparkException, Py4JError, OSError) as error:
        why = condition(error) if isinstance(error, Py4JJavaError) else start_failure()
        raise JobError("Spark could not be started", got=why, do=see_log()) from None


def _gateway(conf: SparkConf, *, logged: bool) -> Any:
    """Connect to the JVM of spark-submit, or to one that is started."""
    launch: Any = java_gateway.launch_gateway
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return launch()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ensure_java()
    output = open_log() if logged else os.dup(2)
    try:
        return launch(conf, {"stdout": output, "stderr": output, "start_new_session": True})
    finally:
        os.close(output)


def local_settings(wanted: Wanted) -> dict[str, str]:
    """Give the settings of a session on this machine's cores; the user's win."""
    java = " ".join(filter(None, (_LOGGED, wanted.given.get(_JAVA_OPTIONS))))
    return {**_LOCAL_SETTINGS, **wanted.at_start, **wanted.given, _JAVA_OPTIONS: java}


def _change(spark: SparkSession, settings: Mapping[str, str]) -> None:
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


def _end_jvm(number: int) -> None:
    """End the JVM, as a signal of this number does, and wait: it removes an unfinished output."""
    gateway: Any = SparkContext._gateway
    if gateway.proc is not None:
        gateway.proc.terminate()
    else:  # that of spark-submit, whose exit code is the run's
        Thread(target=_exit, args=(gateway.jvm, 128 + number), daemon=True).start()
    await_end_of_jvm()


def _exit(jvm: Any, code: int) -> None:
    with suppress(Py4JError, OSError):  # it ends before it answers
        jvm.System.exit(code)


def await_end_of_jvm() -> None:
    """Wait until the JVM, which answers no more, writes no more either."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return
    # The JVM is this process's parent under spark-submit.
    parent, deadline = os.getppid(), time.monotonic() + _PATIENCE
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.1)
