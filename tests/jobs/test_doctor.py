"""dptext doctor: everything in one go, with remedies, and an exit code."""

import json

import pytest
from click.testing import CliRunner

from dptext_spark.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def doctor(*arguments):
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def test_what_is_right_is_named(ring, key_file, tmp_path):
    """Rejects a check that leaves a file, and one that says nothing of what it tried."""
    output = tmp_path / "out"
    result = doctor("--embedding", ring.path, "--key-file", key_file, "--output", output, "--json")
    assert result.exit_code == 0, result.output
    checks = {row["check"]: row for row in json.loads(result.stdout)["checks"]}
    assert [*checks] == [
        *("versions", "report pages", "memory", "disk", "Java", "Spark", "bundle", "key file"),
        "output",
    ]
    assert all(row["ok"] for row in checks.values())
    assert "64 words" in checks["bundle"]["finding"] and "1 task" in checks["Spark"]["finding"]
    assert [*tmp_path.iterdir()] == []


def test_what_is_wrong_is_said_at_once(tmp_path):
    """Rejects an end at the first fault, a fault without a remedy, and exit code 0."""
    key = tmp_path / "key"
    key.write_text("no key")
    (tmp_path / "file").touch()
    result = doctor("--embedding", tmp_path, "--key-file", key, "--output", tmp_path / "file" / "o")
    assert result.exit_code == 1
    for part in (
        "bundle        FAILED  This is not an embedding bundle.",
        "key file      FAILED  The key file ",
        "output        FAILED  Nothing can be written next to ",
        "3 of 9 checks failed. Got: bundle, key file, output.",
        "run dptext doctor again",
    ):
        assert part in result.output, result.output
