"""Spark's exceptions become this package's, and what they quote stays in Spark's log."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from dptext_spark.errors import DptextError, InputError, JobError
from dptext_spark.spark.failures import FAILED, plain_errors


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
