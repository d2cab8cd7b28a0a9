"""Errors, reports and tables print a name in one line, whatever is in it."""

from pathlib import Path

import pytest

from dptext_spark.display import rendered, table
from dptext_spark.errors import InputError
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report.facts import describe

NAME = "a\nb\x1b[31m\u202ec"
PRINTED = r"a\nb\x1b[31m\u202ec"
COUNTS = {"released": 1, "known": 0, "unknown": 0, "wordless": 0, "null": 0}
FACTS = {
    "guarantees": [{"columns": [NAME], "summary": "It holds."}],
    "scope": [NAME],
    "private_scope": [NAME],
    "row_id": NAME,
    "rows": 1,
    "columns": {NAME: COUNTS},
    "persons": {"said": [NAME]},
}
FILES = {
    "input": "i",
    "output": NAME,
    "embedding": Path("b"),
    "mechanism": "laplace",
    "epsilon": 5.0,
}


@pytest.mark.parametrize(
    ("shown", "times", "lines"),
    [
        pytest.param(
            lambda: str(InputError(NAME, allowed=NAME, got=NAME, do=NAME)), 4, 1, id="an error"
        ),
        pytest.param(
            lambda: str(InputError("Two", faults=[str(InputError(NAME))])),
            1,
            2,
            id="a list of them",
        ),
        pytest.param(lambda: describe(FACTS), 6, 12, id="a report"),
        pytest.param(
            lambda: rendered([NAME, [NAME], {"table": [[NAME]]}]), 3, 5, id="blocks of lines"
        ),
        pytest.param(lambda: "\n".join(table([[NAME, NAME]])), 2, 1, id="a table"),
        pytest.param(
            lambda: PrivatizeOptions.of({**FILES, "text": "t"}).finish(None),
            4,
            4,
            id="where results lie",
        ),
    ],
)
def test_a_name_is_printed_in_its_line(shown, times, lines):
    """Rejects a name that ends its line, colours the terminal or turns the writing. Source: own trial."""
    said = shown()
    assert not set("\x1b\u202e") & {*said} and len(said.split("\n")) == lines
    assert said.count(PRINTED) == times
