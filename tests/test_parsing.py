"""JSON and TOML of others: each fault is one of the package's errors."""

import pytest

from dptext_spark.cli import read_config
from dptext_spark.errors import DptextError
from dptext_spark.estimates.topics import read_topics
from dptext_spark.parsing import json_value, toml_table
from dptext_spark.sealing import unsealed
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.patterns.user import UserPatterns

DEEP = "[" * 100_000
HOSTILE = {"deep": f"a = {DEEP}", "long": f"a = {'9' * 5000}", "none": "a = "}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=[*HOSTILE])
@pytest.mark.parametrize(
    "read",
    [read_config, read_topics, lambda path: UserPatterns.read(path, MARKS)],
    ids=["options", "topics", "patterns"],
)
def test_a_hostile_file_is_one_error(tmp_path, read, text):
    """Rejects TOML's own errors alone: deep nesting and long numbers are others."""
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(DptextError, match="is not TOML"):
        read(path)


def test_deep_nesting_is_no_value():
    """Rejects an error of Python's stack in place of one of the text."""
    for read, text in ((json_value, DEEP), (toml_table, f"a = {DEEP}")):
        with pytest.raises(ValueError, match="nested too deeply"):
            read(text)
    assert unsealed(DEEP.encode()) is None and unsealed(b"[]") is None
