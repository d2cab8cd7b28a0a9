"""Spark's exceptions as this package's own, without the rows that they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from dptext_spark import errors
from dptext_spark.errors import DptextError, JobError
from dptext_spark.spark.java import has_ended, see_log
from dptext_spark.spark.versions import condition_of

FAILED: Final = "The Spark job failed and no output was written"
# A JVM that has ended refuses connections, or breaks off those that it has.
FAILURES: Final = (PySparkException, Py4JError, ConnectionError)
_NO_SPACE: Final = "No space left on device"
_ENDED: Final = "the end of Spark's Java process"
_QUIET: Final = ContextVar("quiet", default=False)

with suppress(ImportError):  # of Spark 4: earlier ones log no queries
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(lambda _: not _QUIET.get())


@contextmanager
def quiet() -> Iterator[None]:
    """Silence, in this thread, the logger of pyspark that prints queries and the rows that they quote."""
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


@contextmanager
def plain_errors(what: str = FAILED) -> Iterator[None]:
    """Turn Spark's exceptions into this package's; worker errors come through in one line."""
    try:
        with quiet():
            yield
    except FAILURES as error:
        raise plain(error, what) from None


def failing(error: DptextError) -> Column:
    """Give a column that fails the run with this error, which :func:`plain_errors` finds in Spark's own."""
    return F.raise_error(F.lit(f"\n{errors.__name__}.{type(error).__name__}: {error}\n"))


def plain(error: Exception, what: str = FAILED) -> DptextError:
    """Turn an exception of Spark's into this package's."""
    if found := re.search(r"^dptext_spark\.errors\.(\w+): (.+)", _text(error), re.MULTILINE):
        return getattr(errors, found[1], JobError)(found[2].rstrip("."))
    return JobError(what, got=condition(error), do=see_log())


def condition(error: Exception) -> str:
    """Name a Spark error without its text, which can quote data."""
    text = _text(error)
    if _NO_SPACE in text:
        return _NO_SPACE
    with suppress(Py4JError, OSError):  # Java's process may end while it is asked
        if has_ended():
            return _ENDED  # whatever the query met first on the way
        if isinstance(error, PySparkException) and (name := condition_of(error)):
            return name
        # Only where Spark itself puts it: brackets further on may be a row's.
        if found := re.match(r"[^\n]*\n: [\w.]+: \[([A-Z_0-9.]+)\] ", text):
            return found[1]
        if isinstance(error, Py4JJavaError):
            return str(error.java_exception.getClass().getName())
    return _ENDED if isinstance(error, Py4JError | ConnectionError) else type(error).__name__


def _text(error: Exception) -> str:
    """Give an error's text; none of Java's where its process, which has the text, has ended meanwhile."""
    with suppress(Py4JError, OSError):
        return str(error)
    return ""
