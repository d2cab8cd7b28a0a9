"""A standalone Spark cluster on the loopback addresses of one machine: real daemons, real executors.

    with Cluster(folder, workers=2) as cluster:
        cluster.submit("jobs/privatize.py", "--config", "conf/privatize.toml")

Every worker is a host of its own as far as one machine allows: an address (127.0.0.1, 127.0.0.2, ...), a
temporary folder, and a file system in which chosen folders and those of other hosts are empty. Needs Linux.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import psutil

from dptext_spark.spark.java import ensure_java

PATIENCE: Final = 300.0
"""Seconds until what must happen counts as failed; nothing is measured."""

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""For JVMs that live for some minutes: compiling less is quicker.

With one tier Java would keep 48 MB of compiled code, throw it away and compile it again.
"""

# In the environment of all that a cluster starts, and of what that starts in turn: so it is found again.
_MARK: Final = "DPTEXT_CLUSTER"

T = TypeVar("T")


class Wrong(Exception):
    """What a script was to see did not happen."""


def expect(condition: object, what: str) -> None:
    """Raise :class:`Wrong` unless the condition holds."""
    if not condition:
        raise Wrong(what)


def wait_for(condition: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Wait until a condition holds, and return its value; else raise a TimeoutError that says ``what``."""
    end = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)
    return found


def write_key(file: Path, secret: bytes | None = None) -> Path:
    """Write a key file: a secret, by default a fresh one, that nobody else may read."""
    file.touch(mode=0o600)
    file.write_bytes(secret or os.urandom(32))
    return file


def spark_home() -> Path:
    """The installed pyspark, which is a whole Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def environment() -> dict[str, str]:
    """This process's environment without another Spark or packages, with a Java runtime for Spark."""
    ensure_java()
    foreign = ("SPARK", "PYSPARK", "PYTHONPATH", "JAVA_TOOL_OPTIONS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}


class Cluster:
    """A master and workers, started by ``with`` and stopped at its end with all that they started.

    Of ``hosts``, the workers' folders, ``tmp`` is their TMPDIR, and ``work`` has their executors' folders and
    logs. ``driver`` is an empty folder, in which submitted drivers run; their TMPDIR is ``tmp`` beside it.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        hidden: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Say what will be started in an empty or new folder; ``env`` is for all processes.

        The n-th worker has the address 127.0.0.n. Workers see ``hidden`` folders empty, and each other's with
        them; that needs :func:`can_hide`.
        """
        self.folder, self.url = Path(folder).resolve(), ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self.hosts = [self.folder / f"host-{number}" for number in range(1, workers + 1)]
        self.driver = self.folder / "driver"
        self._size = f"--cores {cores} --memory {memory}"
        self._hidden = tuple(hidden)
        self._environment = environment() | dict(env or {})
        self._home = self._environment["SPARK_HOME"]
        self._started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        for place in (self.driver, self.folder / "tmp"):
            place.mkdir(parents=True)
        try:
            sign = "Starting Spark master at "
            env = {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
            _, line = self._daemon("master.Master", "127.0.0.1", "--port 0", sign, env)
            self.url = line.partition(sign)[2].strip()
            for number in range(1, len(self.hosts) + 1):
                self.workers.append(self.start_worker(number))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill everything that the cluster and its drivers started."""
        while left := self._processes():
            _kill(left)
            time.sleep(0.05)
        for process in self._started:
            process.wait()

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Start the worker of a number, from 1 on: all are, but one that was killed can be replaced."""
        host = self.hosts[number - 1]
        for name in ("tmp", "work"):
            (host / name).mkdir(parents=True, exist_ok=True)
        env = {"SPARK_LOCAL_DIRS": str(host / "tmp"), "TMPDIR": str(host / "tmp")}
        others = [other for other in self.hosts if other != host and other.exists()]
        hidden = [*self._hidden, *others] if self._hidden else []
        options = f"{self._size} --work-dir {shlex.quote(str(host / 'work'))} {self.url}"
        sign, address = "Successfully registered with master", f"127.0.0.{number}"
        worker, _ = self._daemon("worker.Worker", address, options, sign, env, hidden)
        if seen := [
            path for path in hidden if any(Path(f"/proc/{worker.pid}/root{path}").iterdir())
        ]:
            raise RuntimeError(f"worker {number} sees {', '.join(map(str, seen))}")
        return worker

    def _daemon(
        self,
        name: str,
        host: str,
        options: str,
        sign: str,
        env: Mapping[str, str],
        hidden: Sequence[Path] = (),
    ) -> tuple[subprocess.Popen[Any], str]:
        """Start a daemon; gives it with the first line of its log that has the sign."""
        log = self.folder / f"{name}-{len(self._started)}.log"
        command = [f"{self._home}/bin/spark-class", f"org.apache.spark.deploy.{name}"]
        command += ["--host", host, "--webui-port", "0", *shlex.split(options)]
        own = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": host, **env}
        with log.open("wb") as file:
            process = self._popen(
                without(hidden, command),
                own,
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

        def found() -> str:
            ended, lines = process.poll() is not None, log.read_text(errors="replace").splitlines()
            line = next((line for line in lines if sign in line), "")
            if ended and not line:
                raise RuntimeError("\n".join([f"{log} ends without {sign!r}:", *lines]))
            return line

        return process, wait_for(found, f"no {sign!r} in {log}")

    def _popen(
        self, command: Sequence[str], env: Mapping[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        marked = {_MARK: f"{self.folder}:{len(self._started)}"}
        # A session of its own: keys pressed at a terminal do not reach it.
        process = subprocess.Popen(
            command, env=self._environment | dict(env) | marked, start_new_session=True, **options
        )
        self._started.append(process)
        return process

    def start(
        self,
        *arguments: str | Path,
        conf: Mapping[str, str] = MappingProxyType({}),
        env: Mapping[str, str] = MappingProxyType({}),
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start spark-submit with its options, the script and its options; ``options`` are for ``Popen``."""
        settings = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", **conf}
        command = [f"{self._home}/bin/spark-submit", "--master", self.url]
        command += [
            part for name, value in settings.items() for part in ("--conf", f"{name}={value}")
        ]
        tmp = str(self.folder / "tmp")
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": tmp, "TMPDIR": tmp, **env}
        return self._popen([*command, *map(str, arguments)], own, cwd=self.driver, **options)

    def submit(
        self, *arguments: str | Path, conf: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run spark-submit to its end; see :meth:`start`."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = self.start(*arguments, conf=conf, **pipes)
        try:
            output, errors = process.communicate(timeout=1800.0)
        finally:
            _kill(self._processes(self._started.index(process)))
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs, of all workers and applications."""
        return [
            p for p in self._processes() if "CoarseGrainedExecutorBackend" in " ".join(_command(p))
        ]

    def python_workers(self) -> list[psutil.Process]:
        """The Python workers of all executors."""
        return python_workers(self._processes())

    def _processes(self, number: int | None = None) -> list[psutil.Process]:
        """What runs of all that was started, or of the process of a number, orphans too."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # another user's, or ended meanwhile
                folder, _, own = process.environ().get(_MARK, "").rpartition(":")
                if folder == str(self.folder) and number in (None, int(own)):
                    found.append(process)
        return found


def python_workers(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Spark's Python workers: children of the daemons that fork them."""
    daemons = {p.pid: p for p in processes if "pyspark.daemon" in _command(p)}
    return [p for p in daemons.values() if p.ppid() in daemons]


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # ended meanwhile
        return []


def without(hidden: Sequence[Path], command: Sequence[str]) -> list[str]:
    """Give the command that runs another where folders look empty: in a mount namespace of its own."""
    if not hidden:
        return list(command)
    mounts = [f"mount -t tmpfs -o ro hidden {shlex.quote(str(path))}" for path in hidden]
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [
        "unshare",
        *rights,
        "--mount",
        "sh",
        "-ec",
        "; ".join([*mounts, 'exec "$@"']),
        "sh",
        *command,
    ]


def can_hide(folder: Path) -> bool:
    """Say whether this system lets a process hide a folder from another one (Linux's namespaces)."""
    try:
        done = subprocess.run(without([folder], ["true"]), capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0
