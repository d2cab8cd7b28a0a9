"""Where Spark's log is: a file of its own for a Spark that this process starts, else the cluster's."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from pathlib import Path


class _DriverLog:
    """The log of this process's JVM; it is removed at the end, unless a message named it."""

    path: Path | None = None
    named = False

    def remove(self) -> None:
        if self.path is not None and not self.named:
            self.path.unlink(missing_ok=True)


_log = _DriverLog()


def open_log() -> int:
    """Make the file, which its owner alone can read as Spark may quote rows there; give its descriptor.

    The JVM writes to the descriptor and knows no path: what it says when the file is gone is lost, not left.
    """
    descriptor, name = tempfile.mkstemp(prefix="dptext-spark-", suffix=".log")
    _log.path, _log.named = Path(name), False
    atexit.register(_log.remove)
    return descriptor


def see_log() -> str:
    """Say where to read on, for a message that is printed."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return "See the log of Spark's driver, which is where spark-submit was told to put it"
    if _log.path is None:
        return "See Spark's log"
    _log.named = True
    return f"See Spark's log {_log.path}"


def start_failure() -> str:
    """Give the line of the log that says why the JVM did not start; no row was read until then."""
    lines = [] if _log.path is None else _log.path.read_text(errors="replace").splitlines()
    said = [
        line for line in lines if re.match(r"(?i)(?:error|exception|unrecognized|invalid|caused by)\b", line)
    ]
    return next(iter(said or lines[-1:]), "").strip().rstrip(".")
