"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dptext_spark import interrupts
from dptext_spark.errors import JobError
from dptext_spark.spark.driver_log import open_log, see_log, start_failure
from dptext_spark.spark.failures import condition
from dptext_spark.spark.java import ensure_java


def session(app: str) -> SparkSession:
    """Get the session of spark-submit, or start one on this machine's cores.

    Raises:
        ConfigError: There is no Java runtime.
        JobError: Spark does not start.
    """
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkSession.getActiveSession() is None:
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _start(app, _LOCAL_SETTINGS)
    SparkContext._ensure_initialized()
    _hold_signals_in_calls()
    session = builder.getOrCreate()
    # Spark's own, which it has set meanwhile, asks the JVM to stop in the midst of another question.
    interrupts.handle_again()
    interrupts.on_interrupt(_stop_jobs)
    return session


def _start(app: str, settings: dict[str, str]) -> None:
    """Start the JVM, all whose words go to a log, and Spark in it."""
    conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
    try:
        if SparkContext._gateway is None:
            log = open_log()
            try:
                # In a session of its own: what a terminal or a scheduler sends to all of this job's processes
                # must not reach the JVM, which removes what was written. It ends with its standard input.
                options = {"stdout": log, "stderr": log, "start_new_session": True}
                SparkContext._ensure_initialized(gateway=launch_gateway(conf, options))  # type: ignore[no-untyped-call]
            finally:
                os.close(log)
            _hold_signals_in_calls()
        SparkContext.getOrCreate(conf)
        interrupts.handle_again()
    except (PySparkException, Py4JError, OSError) as error:
        why = condition(error) if isinstance(error, Py4JJavaError) else start_failure()
        raise JobError("Spark could not be started", got=why, do=see_log()) from None


def _hold_signals_in_calls() -> None:
    """Let signals wait for the JVM's answer: one that nobody fetches is taken for the next question's."""
    client: Any = SparkContext._gateway._gateway_client  # type: ignore[union-attr]
    send: Callable[..., Any] = client.send_command

    def send_whole(*arguments: Any, **options: Any) -> Any:
        with interrupts.held():
            return send(*arguments, **options)

    if "send_command" not in vars(client):
        client.send_command = send_whole


def _stop_jobs() -> None:
    """Cancel what Spark does, and what the main thread begins before it notices, until this process ends."""
    gateway: Any = SparkContext._gateway
    if (jvm := getattr(gateway, "proc", None)) is not None:
        # It removes the output that it was told to remove when it ends.
        patience = Timer(_PATIENCE, jvm.terminate)
        patience.daemon = True
        patience.start()
    with suppress(Py4JError, OSError):
        while (context := SparkContext._active_spark_context) is not None:
            context.cancelAllJobs()
            time.sleep(_PAUSE)


def await_end_of_jvm() -> None:
    """Wait until the JVM, which answers no more, writes no more either."""
    jvm = getattr(SparkContext._gateway, "proc", None)
    if jvm is not None:
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_PATIENCE)
            return
        jvm.kill()
        jvm.wait()
        return
    # The JVM is this process's parent under spark-submit.
    parent, deadline = os.getppid(), time.monotonic() + _PATIENCE
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(_PAUSE)


_PATIENCE: Final = 30.0
"""Seconds that a JVM has to do what it is asked to do when the run is interrupted."""

_PAUSE: Final = 0.1
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
    # It would go to the log: dptext_spark.spark.progress shows it instead.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOGGING}"',
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
