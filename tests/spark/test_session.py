"""The session and its Java process: settings, signals and the log."""

import os
import signal
import subprocess
from types import SimpleNamespace

import psutil
import pytest
from pyspark import SparkContext, accumulators

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError
from dptext_spark.spark import USER_SETTINGS, java, session_settings
from dptext_spark.spark import session as session_module
from dptext_spark.spark.session import session
from tests.helpers.tables import spark_settings


def test_settings_of_a_session_that_starts(monkeypatch):
    """Rejects defaults that win over the user's, options that lose the log, and shuffles in the clear."""
    monkeypatch.setitem(session_module._LOCAL_SETTINGS, "spark.master", "local[3]")
    defaults = session_module.local_settings(USER_SETTINGS.get())
    options = defaults["spark.driver.extraJavaOptions"]
    assert "log4j2" in options and defaults["spark.master"] == "local[3]"
    assert defaults["spark.io.encryption.enabled"] == "true"
    given = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-Dmine=1"}
    given["spark.driver.memory"] = "9g"
    with session_settings(given):
        settings = session_module.local_settings(USER_SETTINGS.get())
    assert settings == defaults | given | {"spark.driver.extraJavaOptions": f"{options} -Dmine=1"}
    assert not USER_SETTINGS.get()


@pytest.mark.parametrize(("gigabytes", "heap"), [(2, "1024m"), (12, "3072m"), (500, "4096m")])
def test_the_heap_is_a_quarter_of_the_memory_within_limits(monkeypatch, gigabytes, heap):
    """Rejects Spark's own 1 GiB on a large machine, and one that has no room for anything else."""
    pages = {"SC_PHYS_PAGES": gigabytes << 18, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(java, "_MEMORY_LIMITS", ())
    settings = session_module.local_settings({})
    assert settings["spark.driver.memory"] == settings["spark.driver.maxResultSize"] == heap


def test_the_heap_heeds_a_container_and_the_users_settings(monkeypatch, tmp_path):
    """Rejects the host's memory in a small container, and settings of the user that are lost."""
    pages = {"SC_PHYS_PAGES": 64 << 18, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    limits = (str(tmp_path / "absent"), str(tmp_path / "memory.max"))
    monkeypatch.setattr(java, "_MEMORY_LIMITS", limits)
    for limit, heap in (("max", "4096m"), (f"{8 << 30}\n", "2048m"), (f"{2 << 30}\n", "1024m")):
        (tmp_path / "memory.max").write_text(limit)
        assert session_module.local_settings({})["spark.driver.memory"] == heap
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for line, is_own in (("# spark.driver.memory 9g\n", False), ("\nspark.driver.memory 9g", True)):
        (tmp_path / "spark-defaults.conf").write_text(line)
        assert ("spark.driver.memory" not in session_module.local_settings({})) == is_own
    (tmp_path / "spark-defaults.conf").unlink()
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "9g")
    assert "spark.driver.memory" not in session_module.local_settings({})


@pytest.mark.spark
def test_settings_of_a_session_that_runs(spark):
    """Rejects one that is given in vain, and a message that quotes a password."""
    name = "spark.sql.shuffle.partitions"
    with spark_settings(spark, shuffle_partitions=spark.conf.get(name)):
        with session_settings({name: "3"}):
            assert session("other").conf.get(name) == "3"
        wrong = {
            name: "4",
            "spark.driver.memory": "2g",
            "spark.hadoop.fs.s3a.secret.key": "hunter2",
        }
        with session_settings(wrong), pytest.raises(ConfigError) as caught:
            session("other")
        assert spark.conf.get(name) == "3"
    assert "Got: spark.driver.memory, spark.hadoop.fs.s3a.secret.key." in str(caught.value)
    assert "spark-submit" in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.spark
def test_no_python_worker_listens_at_a_port(spark, monkeypatch):
    """Rejects sockets that are set and not used, and a remark that is missing where there are none."""
    if not hasattr(accumulators, "AccumulatorUnixServer"):
        pytest.skip("Spark before 4.1 has ports alone")
    spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()
    daemons = []
    for process in psutil.process_iter(["cmdline"]):
        if "pyspark.worker" in (process.info["cmdline"] or []):  # a daemon, and what it forks
            is_ours = spark.sparkContext._gateway.proc.pid in [p.pid for p in process.parents()]
            daemons += [process] if is_ours else []
    assert daemons
    assert not any(daemon.net_connections("inet") for daemon in daemons)
    assert not session_module.uses_ports(spark)
    monkeypatch.setattr(java, "SOCKETS", "spark.python.no.such.setting")
    assert session_module.uses_ports(spark)


@pytest.mark.usefixtures("signals_as_before")
def test_a_signal_while_spark_starts_ends_its_jvm(monkeypatch):
    """Rejects a run that ends before it knows the JVM, which would wait for it for ever."""
    steps = []

    def start(*_, **__):
        signal.raise_signal(signal.SIGTERM)
        interrupts.ends_first(steps.append)
        steps.append("started")

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(java, "start", start)
    with pytest.raises(interrupts.Interrupted), interrupts.handled():
        session("it")
    assert steps == ["started", signal.SIGTERM]


@pytest.mark.parametrize(
    ("trap", "then", "patience", "ended"),
    [
        ("exit 7", "read _", 60, 7),
        ("", "while :; do read -t 0.01 _ <> <(:); done", 0.2, -signal.SIGKILL),
    ],
    ids=["it ends", "it is deaf"],
)
def test_a_jvm_is_told_to_end_and_then_made_to(monkeypatch, trap, then, patience, ended):
    """Rejects a JVM that is killed before its hooks have run, and one that stays."""
    script = ["bash", "-c", f"trap '{trap}' TERM; echo; {then}"]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(script, **pipes) as process:
        process.stdout.readline()
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        monkeypatch.setattr(java, "_PATIENCE", patience)
        java._end(15)
        found = process.poll()
        process.kill()
    assert found == ended


def test_a_log_is_its_owners_and_says_why_spark_did_not_start(monkeypatch, tmp_path):
    """Rejects a log that others can read, the line after the fault, and logs that stay or go too early."""
    # And a trace where the log is empty.
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(java, "_logs", [])
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert (java.see_log(), java.start_failure()) == ("See Spark's log", "")
    descriptor = java._open_log()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    os.write(descriptor, b" \n")
    assert java.start_failure() == "/opt/spark/bin/spark-submit ended without a message"
    with open(descriptor, "w") as file:
        file.write("WARNING: old\nError: too little memory.\nRun with --help\n")
    (log,) = tmp_path.iterdir()
    assert log.stat().st_mode & 0o777 == 0o600
    assert java.start_failure() == "Error: too little memory"
    assert {java.see_log(), java.see_log()} == {f"See Spark's log {log.with_suffix('.failed.log')}"}
    (tmp_path / "dptext-spark-at-work.log").touch()
    assert log.with_suffix(".failed.log").exists()
    java.remove_logs()  # as a run does that went well
    assert [left.name for left in tmp_path.iterdir()] == ["dptext-spark-at-work.log"]
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "spark-submit" in java.see_log()
