"""dptext suggest: what columns look like, by counts alone, and a command that runs."""

import json
import shlex

import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from tests.helpers.tables import texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def suggested(*arguments):
    result = CliRunner().invoke(main, ["suggest", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def test_columns_are_told_apart_and_the_commands_are_some_that_run(ring, tmp_path, monkeypatch):
    """Rejects ids that repeat beyond the sample, e-mail addresses as texts, values in the output.

    And an evaluation of rows that are released, or one whose options are refused.
    """
    rows = 40
    columns = {
        "nr": [n // 2 for n in range(rows)],
        "ticket": [f"T{n:04}" for n in range(rows)],
        "mail": [f"zebulon{n}@example.com" for n in range(rows)],
        "customer_id": [n % 7 for n in range(rows)],
        "body": [f"w01 w02 zyx {text}" for text in texts(rows)],
        "words": [["w01", "w02", "w03"]] * rows,
        "plan": ["gold", "base"] * (rows // 2),
    }
    source = write_table(tmp_path / "in.parquet", columns)
    result = suggested("--input", source, "--embedding", ring.path, "--json")
    report = json.loads(result.stdout)
    looks = {row["column"]: row["looks"] for row in report["columns"]}
    assert looks == {
        "nr": "other",
        "ticket": "id",
        "mail": "identifier",
        "customer_id": "person",
        "body": "text",
        "words": "text",
        "plan": "other",
    }
    by_name = {row["column"]: row for row in report["columns"]}
    assert by_name["mail"]["identifiers"] == {"email": rows}
    assert 0.5 < by_name["body"]["coverage"] < 1.0
    command = shlex.split(report["command"])
    assert command[:2] == ["dptext", "privatize"] and command[-1] == "--dry-run"
    dry_run = CliRunner().invoke(main, command[1:])
    assert dry_run.exit_code == 0, dry_run.output
    evaluations = []
    monkeypatch.setattr("dptext_spark.jobs.evaluate.run", evaluations.append)
    CliRunner().invoke(main, shlex.split(report["evaluation"])[1:])
    assert [options.where for options in evaluations] == ["crc32(ticket) % 6 = 0"]
    shown = suggested("--input", source).output
    assert "--where 'crc32(ticket) % 6 <> 0'" in shown
    assert max(map(len, shown.split("\n\n")[0].splitlines())) <= 80
    for value in ("zebulon", "T0001", "gold", "zyx"):
        assert value not in result.output and value not in shown
    assert "--id ticket" in shown and "count them with --person customer_id" in shown
    assert "--embedding BUNDLE" in shown


def test_identifiers_that_repeat_are_no_ids_and_a_table_without_texts_has_no_command(tmp_path):
    """Rejects a command without a text, and a filter that is quoted."""
    columns = {"mail": ["a@example.com"] * 4, "n": [1, 2, 3, None]}
    source = write_table(tmp_path / "in.parquet", columns)
    result = suggested("--input", source, "--where", "n is null or n < 3")
    assert (
        "dptext privatize" not in result.output and "No column looks like a text" in result.output
    )
    line = next(line for line in result.output.splitlines() if line.startswith("mail"))
    assert line.split()[:2] == ["mail", "identifier"] and "it names people" in line
    assert "n < 3" not in result.output
    nested = {"turns": [[{"text": "w01 w02 w03 w04"}], None]}
    source = write_table(tmp_path / "nested.parquet", nested)
    shown = suggested("--input", source, "--where", "1 = 1").output
    assert "--text 'turns[].text'" in shown and "--where '<as for suggest>'" in shown
    assert "dptext evaluate" not in shown
