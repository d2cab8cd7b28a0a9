"""Spark's exceptions become this package's, and what they quote stays in Spark's log."""

import logging
import re
from collections import defaultdict
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dptext_spark.errors import InputError, JobError
from dptext_spark.spark import failures, java
from dptext_spark.spark.failures import FAILED, package_error, spark_errors

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

WORKERS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "privatizer.py", line 1, in sanitize
dptext_spark.errors.InputError: Column text has unknown words. Got: 3.

\tat org.apache.spark"""
QUOTED = "The value 'dptext_spark.errors.InputError: Zebulon' cannot be cast."
GOT = f"{FAILED}. Got: "


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PySparkException(message=WORKERS), InputError, "Column text has unknown words. Got: 3."),
        (PySparkException(message=QUOTED), JobError, f"{GOT}PySparkException."),
        (
            PySparkException(message="write: No space left on device"),
            JobError,
            f"{GOT}No space left",
        ),
        (
            RuntimeError("An error\n: java.lang.Error: no [SECRET] "),
            JobError,
            f"{GOT}RuntimeError.",
        ),
        (
            RuntimeError("An error\n: java.Error: [A_NAME.OF_SPARK] the"),
            JobError,
            f"{GOT}A_NAME.OF_SPARK.",
        ),
        *(
            (
                PySparkException(message=f"An exception was thrown:\n{text}\n"),
                JobError,
                f"{GOT}{got}",
            )
            for text, got in {
                "RuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than "
                "that in driver: 3.11, PySpark": "Python 3.12 in workers and Python 3.11 in the driver. Set",
                "RuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 9) than "
                "that in driver 3.11, PySpark": "Python 3.9 in workers and Python 3.11 in the driver. Set",
                "ModuleNotFoundError: No module named 'dptext_spark.tables'": "no module dptext_spark in",
                "ModuleNotFoundError: No module named 'zebulon'": "PySparkException. See",
                'java.io.IOException: Cannot run program "SECRET": error=2, No such file or directory': (
                    "a Python that does not start where tasks run. Set PYSPARK_PYTHON"
                ),
                **dict.fromkeys(
                    (
                        "MemoryError",
                        "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
                        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1 GiB",
                        "OSError: [Errno 12] Cannot allocate memory",
                        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
                        "ExecutorLostFailure: Container from a bad node. Exit status: 137. Exit code: 137",
                        "Container killed by YARN for exceeding physical memory limits.",
                    ),
                    "a Python worker that crashed or got too little memory. Raise",
                ),
                "java.lang.OutOfMemoryError: SECRET": "PySparkException. See",
                "java.lang.OutOfMemoryError: Java heap space": "too little memory of Spark's Java",
                "org.apache.arrow.vector.util.OversizedAllocationException: Memory": "rows that are too long",
            }.items()
        ),
        (Py4JNetworkError("x"), JobError, f"{GOT}the end of Spark's Java process."),
    ],
)
def test_an_error_is_one_line_that_quotes_no_row(error, kind, said):
    """Rejects an error of a worker that is lost, and a row that looks like one or stands in brackets."""
    found = package_error(error)
    assert type(found) is kind and str(found).startswith(said), found
    assert "Zebulon" not in str(found) and "SECRET" not in str(found) and "\n" not in str(found)


def thrown(kind, message="", cause=None, **fields):
    """An exception of Java's."""
    parameters = {"getMessageParameters.return_value": defaultdict(lambda: None, fields)}
    said = {"getErrorClass.return_value": message, "getMessage.return_value": f"SECRET: {message}"}
    error = Mock(**parameters, **said)
    error.getClass().getName.return_value, error.getCause.return_value = kind, cause
    return error


SPARK = "org.apache.spark.SparkException"
MISMATCH = {"column": "[p, n]", "logicalType": "int", "physicalType": "INT64"}
FOOTER = thrown(
    SPARK, "CANNOT_READ_FILE_FOOTER", thrown("AccessDeniedException"), file="file:/a/%41"
)
DENIED = thrown("java.io.FileNotFoundException", "/a/SECRET (Permission denied)")
PAGE = thrown(SPARK, "_LEGACY_ERROR_TEMP_2064", path="s3a://b/a%20b")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            thrown(SPARK, "SECRET", PAGE),
            "The file s3a://b/a b of the input has another format, was cut",
        ),
        (
            thrown(SPARK, "_LEGACY_ERROR_TEMP_2063", filePath="hdfs://h/%2541", **MISMATCH),
            "Column p.n has two types .* Got: int in other files and INT64 in hdfs://h/%41. Leave",
        ),
        (
            FOOTER,
            "The file /a/%41 of the input may not be read by this user. Give the user that right",
        ),
        (
            thrown(SPARK, "FAILED_READ_FILE.X", DENIED, path="file:///a/b"),
            "The file /a/b .* may not be read",
        ),
    ],
)
def test_a_file_at_fault_is_named_by_fields_alone(error, said):
    """Of any file system, and of Spark 3.5 too; rejects a name that is decoded once too often."""
    found = package_error(Mock(spec=Py4JJavaError, java_exception=error))
    assert isinstance(found, InputError) and re.match(said, str(found)), found
    assert "SECRET" not in str(found)


def test_a_file_of_long_rows_is_not_at_fault():
    """Rejects "damaged", and the advice to leave the file out: Spark's exception names it."""
    text = "Cannot reserve additional contiguous bytes in the vectorized reader (requested 2 bytes)"

    class Long(Py4JJavaError):
        def __init__(self):
            reader = thrown("java.lang.RuntimeException", text)
            self.java_exception = thrown(SPARK, "FAILED_READ_FILE.X", reader, path="file:///a/b")

        def __str__(self):
            return f"FAILED_READ_FILE.X\nCaused by: java.lang.RuntimeException: {text}"

    error = package_error(Long())
    assert isinstance(error, JobError) and "rows that are too long to be read" in str(error)


@pytest.mark.parametrize(
    ("last", "named"),
    [
        (thrown("java.lang.IllegalStateException", "SECRET"), "java.lang.IllegalStateException"),
        (thrown("org.apache.spark.SparkArithmeticException", "DIVIDE_BY_ZERO"), "DIVIDE_BY_ZERO"),
        (
            thrown("org.apache.spark.api.python.PythonException"),
            "org.apache.spark.api.python.PythonException",
        ),
    ],
)
def test_a_failed_task_is_named_by_its_last_cause(last, named):
    """As Spark 3.5 says it, whose first exception names the stage; rejects a message for a name."""
    stage = thrown(SPARK, "", thrown(SPARK, "_LEGACY_ERROR_TEMP_2054", last))
    assert str(package_error(Mock(spec=Py4JJavaError, java_exception=stage))).startswith(
        f"{GOT}{named}. "
    )


def test_the_name_of_an_error_never_comes_from_a_row(spark):
    """Rejects taking whatever stands in brackets: Spark quotes values of rows in its messages."""
    quoting = F.raise_error(F.lit("the value [SECRET.WORD] is wrong"))
    with pytest.raises(JobError) as caught, spark_errors():
        spark.range(1).select(quoting).collect()
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "lost", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
)
def test_an_error_whose_text_ended_with_the_jvm_is_that_end(lost):
    """Rejects the traceback of a question that nobody is left to answer."""

    class Lost(Py4JJavaError):
        def __init__(self):
            self.java_exception = Mock(getClass=Mock(side_effect=lost))

        def __str__(self):
            raise lost

    assert "the end of Spark's Java process" in str(failures.package_error(Lost()))


def test_a_jvm_whose_log_says_why_it_ended(monkeypatch, tmp_path):
    """Rejects a message that sends a user to a log for what to do about a full heap."""
    log = tmp_path / "spark.log"
    log.write_text("WARN x\nException in thread y java.lang.OutOfMemoryError: Java heap space\n")
    monkeypatch.setattr(java, "_logs", [log])
    message = str(package_error(Py4JNetworkError("x")))
    assert "too little memory of Spark's Java process. Give it more: --spark-conf" in message


def test_queries_that_quote_rows_are_never_printed(caplog):
    pytest.importorskip("pyspark.logger", reason="Spark 3.5 logs no queries")
    logger = logging.getLogger("SQLQueryContextLogger")
    logger.addHandler(caplog.handler)
    logger.error("quoted")
    logger.removeHandler(caplog.handler)
    assert not caplog.records
