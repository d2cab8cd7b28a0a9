"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark.class_archive import archive_option
from dptext_spark.spark.driver_log import open_log, see_log, start_failure
from dptext_spark.spark.failures import condition
from dptext_spark.spark.java import ensure_java
from dptext_spark.spark.local_paths import is_little
from dptext_spark.spark.settings import WANTED, Wanted


def session(app: str) -> SparkSession:
    """Get the session of spark-submit, or start one on this machine's cores.

    Raises:
        ConfigError: There is no Java runtime, or the session cannot take what the command line wants of it.
        JobError: Spark does not start.
    """
    wanted, builder = WANTED.get(), SparkSession.builder.appName(app)
    active = SparkSession.getActiveSession() is not None
    if not active and "PYSPARK_GATEWAY_PORT" in os.environ:
        builder = builder.config(map=dict(wanted.at_start))
    elif not active:
        _start(app, wanted)
    SparkContext._ensure_initialized()
    _hold_signals_in_calls()
    interrupts.on_interrupt(_stop_jobs)
    session = builder.getOrCreate()
    # Spark's own, which it has set meanwhile, asks the JVM to stop in the midst of another question.
    interrupts.handle_again()
    if active or "PYSPARK_GATEWAY_PORT" in os.environ:
        _change(session, wanted.given)
    return session


def _settings(wanted: Wanted) -> dict[str, str]:
    """Give the settings of a session on this machine's cores; the user's win."""
    java = (java_options(wanted), wanted.given.get(_JAVA_OPTIONS))
    return {
        **_LOCAL_SETTINGS,
        **wanted.at_start,
        **wanted.given,
        _JAVA_OPTIONS: " ".join(filter(None, java)),
    }


def java_options(wanted: Wanted) -> str:
    """Give the options with which the JVM of a session on this machine's cores starts, but for the user's."""
    little = wanted.reads is not None and is_little(wanted.reads, _LITTLE)
    parts = (_LOGGED, _NO_OPTIMIZATION if little else _LATE_OPTIMIZATION, archive_option())
    return " ".join(filter(None, parts))


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


@contextmanager
def jvm_ahead() -> Iterator[Callable[[], None]]:
    """Give a function that starts the JVM which :func:`session` will need, and does not wait for it.

    Where a session runs already it does nothing. A JVM that no session has taken ends with the block.
    """
    wanted = WANTED.get()

    def start() -> None:
        if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
            _ahead.append(_Launch())
            _ahead[0].begin(wanted)

    try:
        yield start
    finally:
        while _ahead:
            _ahead.pop().end()


def _start(app: str, wanted: Wanted) -> None:
    """Start the JVM, and Spark in it; what they say goes to a log, unless somebody wants to read along."""
    conf = _conf(wanted).setAppName(app)  # made once a JVM runs it would leave out what that was given
    try:
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_launched(wanted))
            _hold_signals_in_calls()
            interrupts.on_interrupt(_stop_jobs)
        context: Any = SparkContext.getOrCreate(conf)
        # It would print a traceback where the JVM ends in the midst of a job, beside our message.
        context._accumulatorServer.handle_error = lambda *_: None
        interrupts.handle_again()
    except (PySparkException, Py4JError, OSError) as error:
        why = condition(error) if isinstance(error, Py4JJavaError) else start_failure()
        raise JobError("Spark could not be started", got=why, do=see_log()) from None


def _launched(wanted: Wanted) -> Any:
    """Give the gateway to a JVM, started ahead or now; if that is cut off none is left behind."""
    launch = _ahead[0] if _ahead else _Launch()
    try:
        launch.begin(wanted)
        gateway = launch.gateway.result()
    except BaseException:
        launch.end()
        raise
    finally:
        _ahead.clear()
    return gateway


def _conf(wanted: Wanted) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(_settings(wanted).items()))


class _Launch:
    """The start of a JVM, which a thread of its own waits for.

    Attributes:
        gateway: To the JVM, once it runs.
    """

    def __init__(self) -> None:
        self.gateway = Future[Any]()
        self._lock = Lock()
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: Thread | None = None

    def begin(self, wanted: Wanted) -> None:
        """Start, unless that was done."""
        if self._thread is not None:
            return
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self._thread = Thread(target=self._run, args=(_conf(wanted), not wanted.at_start), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave no JVM behind, which would wait for a question for ever, and no file of its start."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _run(self, conf: SparkConf, logged: bool) -> None:
        try:
            ensure_java()
            output = open_log() if logged else os.dup(2)
            try:
                self.gateway.set_result(self._launch(conf, output))
            finally:
                os.close(output)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self.gateway.set_exception(error)

    def _launch(self, conf: SparkConf, output: int) -> Any:
        # In a session of its own: what a terminal or a scheduler sends to all of this job's processes must
        # not reach the JVM, which removes what was written. It ends with its standard input.
        options = {"stdout": output, "stderr": output, "start_new_session": True}
        gateway: Any = java_gateway
        before, gateway.Popen = gateway.Popen, self._popen
        try:
            return gateway.launch_gateway(conf, options)
        finally:
            gateway.Popen = before

    def _popen(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        # It would ignore Ctrl-C, which does not come there, and for that copy this process with what other
        # threads are in the midst of.
        del options["preexec_fn"]
        with self._lock:
            if self._ended:
                raise OSError("The start of the JVM was cut off")
            self._process = subprocess.Popen(*arguments, **options)
        return self._process


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
    """Cancel what Spark does, and what the main thread begins before it notices, until the run has ended."""
    jvm = getattr(SparkContext._gateway, "proc", None)
    context = SparkContext._active_spark_context
    if jvm is not None and getattr(context, "_jsc", None) is None:
        jvm.kill()  # it has begun nothing that could be removed
        return
    deadline = time.monotonic() + _PATIENCE
    with suppress(Py4JError, OSError):
        while context is not None and interrupts.pending():
            context.cancelAllJobs()
            time.sleep(_PAUSE)
            if jvm is not None and time.monotonic() > deadline:
                jvm.terminate()  # it removes the output that it was told to remove when it ends
                return


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


_ahead: Final[list[_Launch]] = []
"""The JVM that was started ahead of its session, if any."""

_PATIENCE: Final = 30.0
"""Seconds that a JVM has to do what it is asked to do when the run is interrupted."""

_PAUSE: Final = 0.1
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGED: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
# Ten times HotSpot's own thresholds. Most of what its second compiler optimizes while Spark starts hardly
# runs again, and takes a good part of the processor time until then; what is hot is optimized still.
_LATE_OPTIMIZATION: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# Where there is little to read nothing of it pays: the second compiler, and the counting for it, is left out.
_NO_OPTIMIZATION: Final = "-XX:TieredStopAtLevel=1"
_LITTLE: Final = 8 << 20
_LOCAL_SETTINGS: Final = {
    # Four attempts for each task: with fewer, a worker process that dies takes the job with it.
    "spark.master": "local[*,4]",
    # Perturbing costs far more than reading: small partitions keep all cores busy to the end.
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    # Opening a file costs next to nothing beside the words in it: a task takes many small files.
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
