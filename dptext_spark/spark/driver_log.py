"""Where Spark's log is: a file of its own for a Spark that this process starts, else the cluster's."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from pathlib import Path
from typing import Final

_logs: Final[list[Path]] = []
"""The log of this process's JVM, if it started one."""


def open_log() -> int:
    """Make the file, which its owner alone can read as Spark may quote rows there; give its descriptor.

    It is removed at the end, unless :func:`see_log` named it. The JVM writes to the descriptor and knows no
    path: what it says when the file is gone is lost, not left.
    """
    descriptor, name = tempfile.mkstemp(prefix="dptext-spark-", suffix=".log")
    _logs[:] = [Path(name)]
    atexit.register(_logs[0].unlink, missing_ok=True)
    return descriptor


def see_log() -> str:
    """Say where to read on, for a message that is printed."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return "See the log of Spark's driver, which is where spark-submit was told to put it"
    if not _logs:
        return "See Spark's log"
    atexit.unregister(_logs[0].unlink)
    return f"See Spark's log {_logs[0]}"


def start_failure() -> str:
    """Give the line of the log that says why the JVM did not start; no row was read until then."""
    lines = _logs[0].read_text(errors="replace").splitlines() if _logs else []
    faults = [
        line for line in lines if re.match(r"(?i)(?:error|exception|unrecognized|invalid|caused by)\b", line)
    ]
    return next(iter(faults or lines[-1:]), "").strip().rstrip(".")
