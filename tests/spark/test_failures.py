"""Spark's exceptions become this package's, and what they quote stays in Spark's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, DptextError, InputError, JobError
from dptext_spark.spark import failures
from dptext_spark.spark.failures import FAILED, plain_errors, quiet
from tests.helpers.tables import run_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def error_of(message: str) -> DptextError:
    """What becomes of an exception of Spark's with this message."""
    with pytest.raises(DptextError) as raised, plain_errors():
        raise PySparkException(message=message)
    return raised.value


def test_an_error_of_a_worker_comes_through_in_one_line() -> None:
    found = error_of(
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "privatizer.py", line 1, in sanitize\n'
        "dptext_spark.errors.InputError: Column text has unknown words. Got: 3.\n\n\tat org.apache.spark"
    )
    assert type(found) is InputError
    assert str(found) == "Column text has unknown words. Got: 3."


def test_a_row_that_looks_like_an_error_is_not_taken_for_one() -> None:
    found = error_of("The value 'dptext_spark.errors.InputError: Zebulon' cannot be cast.")
    assert type(found) is JobError
    assert str(found).startswith(FAILED)
    assert "Zebulon" not in str(found)


def test_errors_are_of_the_packages_own_kinds(ring: Embedding, table: Path, tmp_path: Path) -> None:
    """A notebook that calls the job gets exceptions that it can tell apart."""
    good: dict[str, Any] = {"input": table, "output": tmp_path / "out", "embedding": ring.path}
    with pytest.raises(InputError):
        run_table(**good | {"input": tmp_path / "nowhere"})
    with pytest.raises(ConfigError):
        run_table(**good | {"output": table})


def test_the_name_of_an_error_never_comes_from_a_row(spark: SparkSession) -> None:
    """Rejects taking whatever stands in brackets: Spark quotes values of rows in its messages."""
    quoting = F.raise_error(F.lit("the value [SECRET.WORD] is wrong"))
    with pytest.raises(JobError) as caught, failures.plain_errors():
        spark.range(1).select(quoting).collect()
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in failures.condition(RuntimeError("An error\n: java.lang.Error: no [SECRET] "))


@pytest.mark.parametrize(
    "lost", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
)
def test_an_error_whose_text_ended_with_the_jvm_is_that_end(lost: Exception) -> None:
    """Rejects the traceback of a question that nobody is left to answer."""

    class Lost(Py4JJavaError):
        def __init__(self) -> None:
            self.java_exception = Mock(getClass=Mock(side_effect=lost))

        def __str__(self) -> str:
            raise lost

    assert "the end of Spark's Java process" in str(failures.plain(Lost()))


def test_a_logger_is_heard_again_when_the_last_of_several_threads_is_done() -> None:
    """Rejects that each puts back what it found: the second found the first one's silence."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    one, two = quiet(), quiet()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert logger.disabled
    two.__exit__(None, None, None)
    assert logger.disabled == before
