"""Spark's exceptions as this package's own, without the rows that they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column
from pyspark.sql import functions as F

from dptext_spark import errors
from dptext_spark.errors import DptextError, JobError
from dptext_spark.spark.driver_log import see_log

FAILED: Final = "The Spark job failed and no output was written"
# A JVM that has ended refuses connections, or breaks off those that it has.
FAILURES: Final = (PySparkException, Py4JError, ConnectionError)
_NO_SPACE: Final = "No space left on device"
_ENDED: Final = "the end of Spark's Java process"


@contextmanager
def plain_errors(what: str = FAILED) -> Iterator[None]:
    """Turn Spark's exceptions into this package's; worker errors come through in one line."""
    try:
        with quiet():
            yield
    except FAILURES as error:
        raise plain(error, what) from None


def plain(error: Exception, what: str = FAILED) -> DptextError:
    """Turn an exception of Spark's into this package's."""
    if found := re.search(r"^dptext_spark\.errors\.(\w+): (.+)", _said(error), re.MULTILINE):
        return getattr(errors, found[1], JobError)(found[2].rstrip("."))
    return JobError(what, got=condition(error), do=see_log())


_LOCK: Final = Lock()
_SILENCED: Final[list[bool]] = []


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logger of pyspark that prints queries and what they quote on standard error."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    with _LOCK:
        _SILENCED.append(logger.disabled)
        logger.disabled = True
    try:
        yield
    finally:
        with _LOCK:
            # The first of several threads found it as it was; the last to leave puts it back.
            found = _SILENCED[0]
            _SILENCED.pop()
            if not _SILENCED:
                logger.disabled = found


def condition(error: Exception) -> str:
    """Name a Spark error without its text, which can quote data."""
    text = _said(error)
    if _NO_SPACE in text:
        return _NO_SPACE
    with suppress(Py4JError, OSError):  # Java's process may end while it is asked
        if not has_ended():
            return _named(error, text)
    return _ENDED  # whatever the query met first on the way


def _named(error: Exception, text: str) -> str:
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        return str(condition)
    # Only where Spark itself puts it: brackets further on may be a row's.
    if found := re.match(r"[^\n]*\n: [\w.]+: \[([A-Z_0-9.]+)\] ", text):
        return found[1]
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getName())
    return _ENDED if isinstance(error, Py4JError | ConnectionError) else type(error).__name__


def _said(error: Exception) -> str:
    """Give an error's text; none of Java's where its process, which has the text, has ended meanwhile."""
    try:
        return str(error)
    except (Py4JError, OSError):
        return ""


def has_ended() -> bool:
    """Say whether Spark has stopped, or its Java process has."""
    context: Any = SparkContext._active_spark_context
    try:
        return context is not None and bool(context._jsc is None or context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def failing(error: errors.DptextError) -> Column:
    """Give a column that fails the run with this error, which :func:`plain_errors` finds in Spark's own."""
    return F.raise_error(F.lit(f"\n{errors.__name__}.{type(error).__name__}: {error}\n"))
