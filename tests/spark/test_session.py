"""The session: settings that the command line gives to one that starts, and to one that runs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError
from dptext_spark.spark import session as session_module
from dptext_spark.spark.local_paths import is_little
from dptext_spark.spark.session import session
from dptext_spark.spark.settings import WANTED, session_settings
from tests.helpers.tables import spark_settings


def test_settings_of_a_session_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects defaults that win over the user's, and Java options that lose where logs and classes are."""
    monkeypatch.setattr(session_module, "archive_option", lambda: "-XX:mine")
    given = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-Dmine=1"}
    with session_settings(given, verbose=True):
        found = session_module._settings(WANTED.get())
    assert (found["spark.master"], found["spark.log.level"]) == ("local[1]", "INFO")
    own, *others = found["spark.driver.extraJavaOptions"].split(" -XX:")
    assert "log4j2" in own and others[-1] == "mine -Dmine=1"
    monkeypatch.setattr(session_module, "archive_option", lambda: "")
    found = session_module._settings(WANTED.get())
    assert found.pop("spark.driver.extraJavaOptions") == " -XX:".join([own, *others[:-1]])
    assert found == session_module._LOCAL_SETTINGS


def test_only_a_little_table_starts_a_jvm_that_optimizes_nothing(tmp_path: Path) -> None:
    """Rejects a large table, one elsewhere, and a session of others, read by a JVM that stays slow."""
    table = tmp_path / "in"
    (table / "day=1").mkdir(parents=True)
    for name in ("a", "day=1/b"):
        (table / name).write_bytes(bytes(100))
    one, both = (1 << 16) + 100, (1 << 17) + 200
    assert is_little(str(table), both) and is_little(f"file:{table}/a", one)
    assert not is_little(str(table), both - 1) and not is_little(f"{table}/a", one - 1)
    assert not any(is_little(place, both) for place in (f"{table}/none", f"{table}/*", f"hdfs:{table}"))
    with session_settings({}, verbose=False, reads=str(table)):
        assert "-XX:TieredStopAtLevel=1" in session_module.java_options(WANTED.get())
        os.truncate(table / "a", 8 << 20)
        assert "TieredStopAtLevel" not in session_module.java_options(WANTED.get())
    assert "TieredStopAtLevel" not in session_module.java_options(WANTED.get())


Process = subprocess.Popen[bytes]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[Process]:
    """The processes that start for a JVM where no Spark runs; each is one that waits for its input."""
    processes = SimpleQueue[Process]()

    def launch(_: object, options: dict[str, Any]) -> object:
        wait = ["cat"]
        start: Callable[..., Process] = java_gateway.Popen  # type: ignore[attr-defined]
        processes.put(start(wait, **options, stdin=subprocess.PIPE, preexec_fn=None))
        return "gateway"

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(session_module, "ensure_java", lambda: None)
    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    return processes


def test_a_jvm_started_ahead_of_an_error(begun: SimpleQueue[Process]) -> None:
    """Rejects a JVM that stays behind."""

    def fail() -> None:
        with session_module.jvm_ahead() as start:
            start()
            begun.put(begun.get())  # it runs
            raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        fail()
    with begun.get() as process:
        assert process.wait() == -signal.SIGKILL


def test_a_jvm_started_ahead_of_its_session(begun: SimpleQueue[Process]) -> None:
    """Rejects a second JVM, and an end of the one that the session has taken."""
    with session_module.jvm_ahead() as start:
        start()
        assert session_module._launched(WANTED.get()) == "gateway"
    with begun.get() as process:
        assert begun.empty()
        assert process.poll() is None
        process.communicate()
    assert process.returncode == 0


def test_a_jvm_cut_off_before_it_starts(begun: SimpleQueue[Process]) -> None:
    """Rejects one that a thread starts when nobody waits for it any more."""
    launch = session_module._Launch()
    launch.end()
    launch.begin(WANTED.get())
    with pytest.raises(OSError, match="cut off"):
        launch.gateway.result()
    assert begun.empty()


@pytest.mark.spark
def test_settings_of_a_session_that_runs(spark: SparkSession) -> None:
    """Rejects one that is given in vain, and a message that quotes a password."""
    name = "spark.sql.shuffle.partitions"
    with spark_settings(spark, shuffle_partitions=spark.conf.get(name)):
        with session_settings({name: "3"}, verbose=False):
            assert session("other").conf.get(name) == "3"
        wrong = {name: "4", "spark.driver.memory": "2g", "spark.hadoop.fs.s3a.secret.key": "hunter2"}
        with session_settings(wrong, verbose=False), pytest.raises(ConfigError) as caught:
            session("other")
        assert spark.conf.get(name) == "3"
    assert "Got: spark.driver.memory, spark.hadoop.fs.s3a.secret.key." in str(caught.value)
    assert "spark-submit" in str(caught.value) and "hunter2" not in str(caught.value)
