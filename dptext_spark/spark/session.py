"""Spark's session: that of spark-submit, or one on this machine's cores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import RLock
from typing import Any, Final, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from dptext_spark import interrupts
from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark import USER_SETTINGS, java
from dptext_spark.spark.failures import condition

_REMOTE: Final = "spark.remote"
# How often a call is tried again: of a server that is not there users hear after seconds, of one
# that is lost later after a minute. By itself the client goes on for ten.
_TRIES: Final = 4
_LATER: Final = 6
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGED: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
_LEAST_HEAP: Final = 1 << 30
_MOST_HEAP: Final = 4 << 30
_LOCAL_SETTINGS: Final = {
    # Four attempts for each task: with fewer, a worker process that dies takes the job with it.
    "spark.master": "local[*,4]",
    # Perturbing costs far more than reading: small partitions keep all cores busy to the end.
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    # Opening a file costs next to nothing compared with the words in it: a task takes many small
    # files.
    "spark.sql.files.openCostInBytes": "65536",
    # Spark's 200 suit a cluster; cached tables keep that many partitions however small they are.
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    # Rows that are shuffled lie on a disk of this machine.
    "spark.io.encryption.enabled": "true",
    "spark.ui.enabled": "false",
    # It would go to the log: progress() of dptext_spark.bars shows it instead.
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


PORTS: Final = (
    "Rows went to Python workers and back through ports of each host's loopback address, which "
    "root can listen to. Since Spark 4.1 spark.python.unix.domain.socket.enabled=true avoids that."
)
"""A remark for those who run the job."""


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect: without a JVM, a context and RDDs."""
    return not hasattr(spark, "sparkContext")


def uses_ports(spark: SparkSession) -> bool:
    """Return whether rows go to Python workers through ports; False where it is not known."""
    if is_connect(spark):
        return False
    value = spark.sparkContext.getConf().get(java.SOCKETS, "false")
    return str(value).lower() != "true"


_TURN: Final = RLock()
LEASE: Final[ContextVar[tuple[ExitStack, list[str]]]] = ContextVar("lease")
"""What is undone when a run gives a session of Spark Connect back, and its changed settings."""


@contextmanager
def leased() -> Iterator[None]:
    """Undo, however the block ends, what is changed meanwhile in a session of Spark Connect."""
    with ExitStack() as undo:
        token = LEASE.set((undo, []))
        try:
            yield
        finally:
            LEASE.reset(token)


@contextmanager
def retries(spark: Any, most: int = _TRIES) -> Iterator[None]:
    """Set how often a client of Spark Connect tries each call again."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # of an extra of pyspark's

    earlier_policies = spark.client.get_retry_policies()
    policy = DefaultPolicy(max_retries=most)
    spark.client.set_retry_policies([policy])
    # Also of other threads: the error says it.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    try:
        yield
    finally:
        policy.max_retries = 0  # another thread of the client may be at it still
        spark.client.set_retry_policies(earlier_policies)


def change(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Change settings of a session of Spark Connect for the run at work alone."""
    undo, changed = LEASE.get()
    conf = spark.conf
    earlier_values = {}
    for name, value in settings.items():
        if conf.isModifiable(name) and conf.get(name) != value:
            earlier_values[name] = conf.get(name, None)  # None where it has Spark's default
    changed += earlier_values

    def restore() -> None:
        # A session that was ended has no settings.
        with suppress(PySparkException, OSError), retries(spark):
            for name, value in earlier_values.items():
                if value is None:
                    conf.unset(name)
                else:
                    conf.set(name, value)

    undo.callback(restore)
    for name in earlier_values:
        conf.set(name, settings[name])


def session(app: str, *, on_connect: bool = False) -> SparkSession:
    """Return the session of spark-submit or of Spark Connect, or start one on this machine's cores.

    ``on_connect`` says whether one of Spark Connect will do.
    """
    user_settings = dict(USER_SETTINGS.get())
    is_running = java.is_running()
    if _REMOTE in user_settings or (is_remote() and not is_running):
        if not on_connect:
            raise ConfigError(
                f"{app} does not run on Spark Connect", do="Start it without a remote session"
            )
        spark = _connected(user_settings.pop(_REMOTE, None))
        _apply(spark, user_settings)
        return spark
    if not is_running:
        _start(app, user_settings)
    spark = SparkSession.builder.appName(app).getOrCreate()
    if is_running or java.is_submitted():
        _apply(spark, user_settings)
    return spark


def _start(app: str, user_settings: Mapping[str, str]) -> None:
    """Start Spark for this process: under spark-submit with its settings, else with local ones."""
    conf = SparkConf(loadDefaults=False).setAppName(app)
    if not java.is_submitted():
        conf.setAll(list(local_settings(user_settings).items()))
    try:
        with stage("Starting Spark"), interrupts.held():
            java.start(conf, logged=java.LOG_LEVEL not in user_settings)
    except (PySparkException, Py4JError, OSError) as error:
        if isinstance(error, Py4JJavaError):
            reason = condition(error)
        else:
            reason = java.start_failure()
        raise JobError("Spark could not be started", got=reason, do=java.see_log()) from None


def _apply(spark: SparkSession, user_settings: Mapping[str, str]) -> None:
    """Set the user's settings in a session that runs already."""
    fixed = [name for name in user_settings if not spark.conf.isModifiable(name)]
    if fixed:
        raise ConfigError(
            "These settings cannot be changed in a running Spark session",
            allowed="with --spark-conf, settings of Spark SQL that can change while it runs",
            got=", ".join(fixed),
            do="Set them where it is started: by spark-submit --conf, or at the server of Spark "
            "Connect",
        )
    for name, value in user_settings.items():
        spark.conf.set(name, value)


def _connected(url: str | None) -> SparkSession:
    """Return this process's session of Spark Connect, or open one at the server."""
    undo, _ = LEASE.get()
    undo.enter_context(_TURN)  # no run of this process may find what another one puts back
    spark: Any = None
    try:
        if url is None:
            with suppress(PySparkException):  # there is none
                spark = SparkSession.active()
        if spark is None:
            builder = SparkSession.builder
            if url:
                builder = builder.remote(url)
            spark = builder.create()
            spark.client.set_retry_policies([])  # at its end nobody waits for a server that is lost
            undo.callback(spark.stop)
        undo.enter_context(retries(spark, _LATER))
        with retries(spark):
            _ = spark.version  # asks the server
    except (PySparkException, ImportError, OSError) as error:
        do = "See whether it runs; for the client's libraries: pip install 'pyspark[connect]'"
        raise JobError(
            "The server of Spark Connect cannot be used", got=condition(error), do=do
        ) from None

    def leave(_: int) -> None:
        with suppress(PySparkException, OSError), retries(spark):
            spark.interruptAll()

    interrupts.ends_first(leave)
    return cast(SparkSession, spark)


def local_settings(user_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session on this machine's cores; the user's win."""
    options = [_LOGGED, *java.user_options()]
    if user_settings.get(_JAVA_OPTIONS):
        options.append(user_settings[_JAVA_OPTIONS])
    memory: dict[str, str] = {}
    if not java.has_own_heap():
        heap = f"{_heap() >> 20}m"
        memory = {"spark.driver.memory": heap, "spark.driver.maxResultSize": heap}
    return {**memory, **_LOCAL_SETTINGS, **user_settings, _JAVA_OPTIONS: " ".join(options)}


def _heap() -> int:
    """Return the bytes that Java may take for its heap: a quarter of this machine's memory.

    Spark's 1 GiB is too little to evaluate 100,000 words, whose channel has 25,600,000 cells.
    """
    total = java.machine_memory() or 0
    return min(max(total // 4, _LEAST_HEAP), _MOST_HEAP)
