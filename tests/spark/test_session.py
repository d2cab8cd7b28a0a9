"""The session: settings that the command line gives to one that starts, and to one that runs."""

from __future__ import annotations

import logging
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError
from dptext_spark.spark import driver_log
from dptext_spark.spark import session as session_module
from dptext_spark.spark.session import session
from dptext_spark.spark.settings import WANTED, session_settings
from tests.helpers.tables import spark_settings


def test_settings_of_a_session_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects defaults that win over the user's, and Java options that lose where the log is."""
    monkeypatch.setitem(session_module._LOCAL_SETTINGS, "spark.master", "local[3]")
    defaults = session_module.local_settings(WANTED.get())
    java = defaults["spark.driver.extraJavaOptions"]
    assert "log4j2" in java and defaults["spark.master"] == "local[3]"
    given = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-Dmine=1"}
    with session_settings(given, verbose=True):
        settings = session_module.local_settings(WANTED.get())
    assert settings == {
        **defaults,
        "spark.log.level": "INFO",
        "spark.master": "local[1]",
        "spark.driver.extraJavaOptions": f"{java} -Dmine=1",
    }


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


def test_a_signal_while_spark_starts_ends_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects a run that ends before it knows the JVM, which would wait for it for ever."""
    steps: list[object] = []

    def start(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        interrupts.ends_first(steps.append)
        steps.append("started")

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(session_module, "_start", start)
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    try:
        with pytest.raises(interrupts.Interrupted), interrupts.handled():
            session("it")
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        logging.disable(logging.NOTSET)
    assert steps == ["started", signal.SIGTERM]


@pytest.mark.parametrize("deaf", [False, True])
def test_a_jvm_is_told_to_end_and_then_made_to(monkeypatch: pytest.MonkeyPatch, deaf: bool) -> None:
    """Rejects a JVM that is killed before its hooks have run, and one that stays."""
    script = f"trap '' TERM; echo; {'while :; do sleep 0.01; done' if deaf else 'read _; exit 7'}"
    script = script if deaf else script.replace("trap '' TERM", "trap 'exit 7' TERM")
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # type: ignore[union-attr]
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        monkeypatch.setattr(session_module, "_PATIENCE", 0.2 if deaf else 60)
        session_module._end_jvm(15)
        ended = process.poll()
        process.kill()
        assert ended == (-9 if deaf else 7)


def test_a_log_is_its_owners_and_says_why_spark_did_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rejects a log that others can read, and the line after the one that says what is wrong."""
    monkeypatch.setattr(driver_log.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(driver_log, "_logs", [])
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert (driver_log.see_log(), driver_log.start_failure()) == ("See Spark's log", "")
    with open(driver_log.open_log(), "w") as file:
        file.write("WARNING: old\nError: too little memory.\nRun with --help\n")
    (log,) = tmp_path.iterdir()
    assert log.stat().st_mode & 0o777 == 0o600
    assert driver_log.start_failure() == "Error: too little memory"
    assert driver_log.see_log() == f"See Spark's log {log}"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "spark-submit" in driver_log.see_log()
