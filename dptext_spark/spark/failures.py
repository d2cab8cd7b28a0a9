"""Spark's exceptions as this package's own, without the rows that they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from dptext_spark import errors
from dptext_spark.errors import DptextError, InputError, JobError
from dptext_spark.spark.java import has_ended, lacked_heap, see_log
from dptext_spark.spark.versions import condition_of

FAILED: Final = "The Spark job failed and no output was written"
# A JVM that has ended refuses connections, or breaks off those that it has: errors of the system,
# as those of files that this process reads itself.
FAILURES: Final = (PySparkException, Py4JError, OSError)
_NO_SPACE: Final = "No space left on device"
_ENDED: Final = "the end of Spark's Java process"
_NO_HEAP: Final = "too little memory of Spark's Java process"
_MORE_HEAP: Final = (
    "Give it more: --spark-conf spark.driver.memory=8g on this machine, spark.executor.memory too "
    "on a cluster"
)

# The fields of Spark's errors about files that name file, column and types, and so hold no row.
_FIELDS: Final = {
    "FAILED_READ_FILE": ("path", "column", "expectedType", "actualType"),
    "CANNOT_READ_FILE_FOOTER": ("file",),  # this and the others are Spark 3.5's
    "_LEGACY_ERROR_TEMP_2063": ("filePath", "column", "logicalType", "physicalType"),
    "_LEGACY_ERROR_TEMP_2064": ("path",),
}
_CHOOSE: Final = "leave it out with --read-option pathGlobFilter=PATTERN, such as *.parquet"
_DENIED: Final = f"may not be read by this user. Give the user that right, or {_CHOOSE}"
_DAMAGED: Final = (
    "has another format, was cut short, or is damaged. Restore it from a copy; if it is no part of "
    f"the table, {_CHOOSE}"
)
_FAULTS: Final = {
    "AccessControlException": _DENIED,
    "AccessDeniedException": _DENIED,
    "BadConfigurationException": "is compressed by a codec that Spark lacks. Write it again with "
    "snappy or zstd, or give Spark the codec by spark-submit --packages",
    "ChecksumException": "does not have the checksum in the hidden file .NAME.crc next to it. "
    "Remove that file if the data is right; else bring the data back",
    "FileNotFoundException": "is gone since the run began. Run again when nothing changes the "
    "input",
    "ParquetCryptoRuntimeException": f"is encrypted. Decrypt it, set "
    f"spark.hadoop.parquet.crypto.factory.class and its keys, or {_CHOOSE}",
}
"""What is wrong with a file, and what to do, by the class of an exception below Spark's."""

_AGAIN: Final = "run the same command again: with a key file it costs nothing more"
_CONDITIONS: Final = {
    "UNAVAILABLE": "The server of Spark Connect was lost. See whether it runs, and whether it "
    f"finishes the output all the same; if not, {_AGAIN}",
    "INVALID_HANDLE|RESPONSE_ALREADY|PySparkAssertion": "The session at the server of Spark "
    f"Connect was ended. Begin another one, and {_AGAIN}",
    "OPERATION_CANCELED": "The run was cancelled at the server of Spark Connect. To go on, "
    f"{_AGAIN}",
    "LOCATION_ALREADY_EXISTS": "The folder of the output table has files already. Remove them if a "
    "run that was killed left them, or choose another --output",
}
"""What happened, and what to do, by what an error's name begins with."""
_TOO_LONG: Final = r"\bCannot reserve additional contiguous bytes in the vectorized reader\b"
_CAUSES: Final = {
    r"\[PYTHON_VERSION_MISMATCH\]\D+3\D+(\d+)\D+3\D+(\d+)": (
        "Python 3.{0} in workers and Python 3.{1} in the driver",
        "Set PYSPARK_PYTHON, or spark.pyspark.python, to the driver's version of Python",
    ),
    r"^ModuleNotFoundError: No module named "
    r"'(dptext_spark|numpy|pandas|pyarrow|pydantic|regex|scipy)\b": (
        "no module {0} in Python workers",
        "Bring the driver's environment to workers: see the end of conf/spark-defaults.conf",
    ),
    r"^(?:numpy\S+\._Array|pyarrow\.lib\.Arrow)?MemoryError\b|^OSError: \[Errno 12\]|\bOOMKilled\b"
    r"|worker exited unexpectedly \(crashed\)|exceeding \w+ ?memory limits"
    r"|\b[Ee]xit code:? 137\b": (
        "a Python worker that crashed or got too little memory",
        "Raise spark.executor.memoryOverhead, and leave spark.executor.pyspark.memory out: it "
        "limits address space, of which libraries and the mapped embedding take 3 GB and more",
    ),
    r"^(?:.*: )?java\.io\.IOException: Cannot run program\b": (
        "a Python that does not start where tasks run",
        "Set PYSPARK_PYTHON, or spark.pyspark.python, to a program that is on every host",
    ),
    r"\bOutOfMemoryError: Java heap space\b": (_NO_HEAP, _MORE_HEAP),
    r"\bOversizedAllocationException\b|\bOutOfDirectMemoryError\b": (
        "rows that are too long for one batch of Arrow, which holds 1 GB of text",
        "Give --spark-conf spark.sql.execution.arrow.maxRecordsPerBatch=10, and cut rows of 100 MB "
        "or more",
    ),
    _TOO_LONG: (
        "rows that are too long to be read together, or a file with damaged lengths",
        "Give --spark-conf spark.sql.parquet.columnarReaderBatchSize=16, for ORC "
        "spark.sql.orc.columnarReaderBatchSize=16",
    ),
}
"""What made a task fail, and what to do, by what Spark or Python says of it."""

with suppress(ImportError):  # of Spark 4: earlier ones log no queries
    from pyspark.logger import PySparkLogger

    # It prints queries and the rows that they quote; Spark's exception says what is wrong, too.
    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(lambda _: False)


@contextmanager
def spark_errors(what: str = FAILED) -> Iterator[None]:
    """Raise this package's errors for Spark's; those of workers come through in one line."""
    try:
        yield
    except FAILURES as error:
        raise package_error(error, what) from None


def failing(error: DptextError, file: Column | None = None) -> Column:
    """Return a column that fails the run with this error, for :func:`spark_errors` to find.

    Its sentence goes on after the URL of a ``file``, if there is one.
    """
    parts = [F.lit(f"\n{errors.__name__}.{type(error).__name__}: ")]
    if file is not None:
        parts += [F.lit("The file "), file, F.lit(" ")]
    parts.append(F.lit(f"{error}\n"))
    return F.raise_error(F.concat(*parts))


def package_error(error: Exception, what: str = FAILED) -> DptextError:
    """Return this package's error for an exception of Spark's."""
    text = _text(error)
    match = re.search(r"^dptext_spark\.errors\.(\w+): (.+)", text, re.MULTILINE)
    if match:
        name, message = match.groups()
        message = re.sub(r"(?<=^The file )file:/\S+", lambda url: path_of_url(url[0]), message)
        return getattr(errors, name, JobError)(message.rstrip("."))
    fault = file_fault(error)
    # Spark names the file, which is not to blame.
    if fault is not None and not re.search(_TOO_LONG, text):
        return fault
    for pattern, (got, do) in _CAUSES.items():
        cause = re.search(pattern, text, re.MULTILINE)
        if cause:
            return JobError(what, got=got.format(*cause.groups()), do=do)
    name = condition(error)
    for beginning, sentences in _CONDITIONS.items():
        if re.match(beginning, name):
            what, _, do = sentences.partition(". ")
            return JobError(what, got=name, do=do)
    if getattr(error, "filename", None):
        return JobError(what, got=name)
    do = see_log()
    if name == _ENDED and lacked_heap():
        name = _NO_HEAP
        do = _MORE_HEAP
    return JobError(what, got=name, do=do)


def file_fault(error: Exception) -> InputError | None:
    """Return the error of a file that Spark could not read, if that is what its exception is."""
    thrown: Any = getattr(error, "java_exception", getattr(error, "_origin", None))
    fields: list[str] = []
    fault = _DAMAGED
    with suppress(Py4JError, OSError):
        while thrown is not None:
            kind = str(thrown.getClass().getName())
            if not fields and kind.startswith("org.apache.spark."):
                fields = _fields(thrown)
            fault = _FAULTS.get(kind.rpartition(".")[2], fault)
            if fault is _FAULTS["FileNotFoundException"]:
                message = str(thrown.getMessage())
                if "Permission denied" in message:  # as Java says on a local disk
                    fault = _DENIED
            thrown = thrown.getCause()
    match fields:
        case [path]:
            what, _, do = fault.partition(". ")
            return InputError(f"The file {path} of the input {what}", do=do)
        case [path, column, expected, actual]:
            name = column.strip("[]").replace(", ", ".")
            return two_types(name, (expected, "other files"), (actual, path))
    return None


def two_types(column: str, *types: tuple[str, str]) -> InputError:
    """Return the error of a column that has two types, each with where it has it."""
    return InputError(
        f"Column {column} has two types in the files of the input",
        allowed="one type of each column in all files",
        got=" and ".join(f"{kind} in {place}" for kind, place in types),
        do="Leave the column out, write the files again, or choose those of one type with "
        "--read-option pathGlobFilter=PATTERN",
    )


def path_of_url(url: str) -> str:
    """Write a file's URL as a path, as users do."""
    return re.sub("^file:/+", "/", unquote(url))


def _fields(thrown: Any) -> list[str]:
    """Return the fields of Spark's own exception about a file, its path first; else nothing."""
    with suppress(Py4JError):  # another exception of Spark's has no fields
        name = str(thrown.getErrorClass())
        parameters = thrown.getMessageParameters()
        for condition_name, fields in _FIELDS.items():
            if name == condition_name or name.startswith(f"{condition_name}."):
                path, *types = [str(parameters[f]) for f in fields if parameters[f] is not None]
                if "FOOTER" in name:  # a path already, which may have percent signs
                    path = path.replace("%", "%25")
                return [path_of_url(path), *types]
    return []


def condition(error: Exception) -> str:
    """Return the name of a Spark error without its text, which can quote data."""
    text = _text(error)
    if _NO_SPACE in text:
        return _NO_SPACE
    with suppress(Py4JError, OSError):  # Java's process may end while it is asked
        if has_ended():
            return _ENDED  # whatever the query met first on the way
        name = _spark_name(error, text)
        if name:
            return name
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror} ({error.filename})"
    is_end = isinstance(error, Py4JError | ConnectionError)
    return _ENDED if is_end else type(error).__name__


def _spark_name(error: Exception, text: str) -> str:
    """Return the name that Spark or Java has for an error of this text; empty where it has none."""
    if isinstance(error, PySparkException):
        name = condition_of(error)
        if name:
            return name
    # Only where Spark itself puts it: brackets further on may be a row's.
    bracketed = re.match(r"[^\n]*\n: [\w.]+: \[([A-Z_0-9.]+)\] ", text)
    if bracketed:
        return bracketed[1]
    name = ""
    thrown = error.java_exception if isinstance(error, Py4JJavaError) else None
    while thrown is not None:  # Spark 3.5 names the stage that failed first, and last why
        name = str(thrown.getClass().getName())
        if name.startswith("org.apache.spark."):
            with suppress(Py4JError):  # not all of Spark's own errors have another name
                name = str(thrown.getErrorClass() or name)
        thrown = thrown.getCause()
    return name


def _text(error: Exception) -> str:
    """Return an error's text; empty where Java's process, which has it, has ended meanwhile."""
    with suppress(Py4JError, OSError):
        return str(error)
    return ""
