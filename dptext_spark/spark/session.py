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
from dptext_spark.spark import WANTED, java
from dptext_spark.spark.failures import condition

_REMOTE: Final = "spark.remote"
# How often a call is tried again: of a server that is not there users hear after seconds, of one
# that is lost later after a minute. By itself the client goes on for ten.
_TRIES: Final = 4
_LATER: Final = 6
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOGGED: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
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


def is_connect(spark: SparkSession) -> bool:
    """Say whether a session is a client of Spark Connect: it has no JVM, no context and no RDD."""
    return not hasattr(spark, "sparkContext")


_TURN: Final = RLock()
LEASE: Final[ContextVar[tuple[ExitStack, list[str]]]] = ContextVar("lease")
"""What is undone when a run gives a session of Spark Connect back, and the settings that it changed."""


@contextmanager
def leased() -> Iterator[None]:
    """Put back, however the block ends, what is changed meanwhile in a session of Spark Connect."""
    with ExitStack() as undo:
        token = LEASE.set((undo, []))
        try:
            yield
        finally:
            LEASE.reset(token)


@contextmanager
def retries(spark: Any, most: int = _TRIES) -> Iterator[None]:
    """Have a client of Spark Connect try each call again so often."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # of an extra of pyspark's

    before, meanwhile = spark.client.get_retry_policies(), DefaultPolicy(max_retries=most)
    spark.client.set_retry_policies([meanwhile])
    warnings.filterwarnings(
        "ignore", r"\[RETRIES_EXCEEDED\]"
    )  # also of other threads: the error says it
    try:
        yield
    finally:
        meanwhile.max_retries = 0  # another thread of the client may be at it still
        spark.client.set_retry_policies(before)


def change(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Change settings of a session of Spark Connect for the run at work alone."""
    (undo, changed), conf = LEASE.get(), spark.conf
    other = [
        name for name in settings if conf.isModifiable(name) and conf.get(name) != settings[name]
    ]
    given = {name: conf.get(name, None) for name in other}  # None where it has Spark's default
    changed += other

    def put_back() -> None:
        with (
            suppress(PySparkException, OSError),
            retries(spark),
        ):  # a session that was ended has none
            for name, value in given.items():
                conf.unset(name) if value is None else conf.set(name, value)

    undo.callback(put_back)
    for name in given:
        conf.set(name, settings[name])


def session(app: str, *, on_connect: bool = False) -> SparkSession:
    """Get the session of spark-submit or of Spark Connect, or start one on this machine's cores.

    ``on_connect`` says whether one of Spark Connect will do.
    """
    wanted, running = dict(WANTED.get()), java.is_running()
    remote = _REMOTE in wanted or (is_remote() and not running)
    if remote:
        if not on_connect:
            raise ConfigError(
                f"{app} does not run on Spark Connect", do="Start it without a remote session"
            )
        spark = _connected(wanted.pop(_REMOTE, None))
    elif not running:
        settings = {} if java.is_submitted() else local_settings(wanted)
        conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(settings.items()))
        try:
            with stage("Starting Spark"), interrupts.held():
                java.start(conf, logged=java.LOG_LEVEL not in wanted)
        except (PySparkException, Py4JError, OSError) as error:
            why = condition(error) if isinstance(error, Py4JJavaError) else java.start_failure()
            raise JobError("Spark could not be started", got=why, do=java.see_log()) from None
    if not remote:
        spark = SparkSession.builder.appName(app).getOrCreate()
    if remote or running or java.is_submitted():
        if fixed := [name for name in wanted if not spark.conf.isModifiable(name)]:
            raise ConfigError(
                "A Spark session that runs already cannot take settings",
                allowed="with --spark-conf, settings of Spark SQL that can change while it runs",
                got=", ".join(fixed),
                do="Set them where it is started: by spark-submit --conf, or at the server of Spark Connect",
            )
        for name, value in wanted.items():
            spark.conf.set(name, value)
    return spark


def _connected(url: str | None) -> SparkSession:
    """Open a session at the server of Spark Connect, or give the one that this process has."""
    (undo, _), spark, opened = LEASE.get(), cast(Any, None), url is not None
    undo.enter_context(_TURN)  # no run of this process may find what another one puts back
    try:
        with suppress(PySparkException):  # there is none
            spark = None if opened else SparkSession.active()
        if spark is None:
            opened, builder = True, SparkSession.builder
            spark = (builder.remote(url) if url else builder).create()
        if opened:
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


def local_settings(wanted: Mapping[str, str]) -> dict[str, str]:
    """Give the settings of a session on this machine's cores; the user's win."""
    options = " ".join(filter(None, (_LOGGED, *java.user_options(), wanted.get(_JAVA_OPTIONS))))
    return {**_LOCAL_SETTINGS, **wanted, _JAVA_OPTIONS: options}
