"""The reports next to an output: what may be shared, what may not, and that they replace nothing."""

import json
import stat

import pytest

from dptext_spark import __version__
from tests.helpers.tables import hashes, names, refused, rows_of, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


OVERWRITE = ("--mode", "overwrite")


def test_what_may_be_handed_on_has_no_counts_and_the_rest_a_place_of_its_own(dptext, tmp_path):
    """A table of one row, whose counters disclose it. Rejects a report beside the output that has them."""
    # And a report that says no more than ``*`` of what is kept, or shares standard output with a word.
    columns = {"id": [7], "text": ["w00 w01 Zebulon"], "salary": ["1"], "dt": ["a"]}
    source = write_table(tmp_path / "private place" / "in.parquet", columns)
    filtered = [
        "--where",
        "salary = '1'",
        "--read-option",
        "mergeSchema=true",
        "--protect",
        "content",
    ]
    given = [*filtered, "--except", "salary", "--keep", "*", "--id", "id", "--name", "secret plan"]
    result = dptext(source, *given, "--oov", "drop", "--json")
    assert result.exit_code == 0, result.output
    (row,) = rows_of(tmp_path / "out")
    assert [*row] == ["id", "text", "dt"] and len(row["text"].split()) == 2
    private = tmp_path / "out.private"
    places = f"Output: {tmp_path}/out\nPublic report: {tmp_path}/out.release.json\n"
    page = f"Page to sign: {tmp_path}/out.release.html\n"
    assert result.stderr.endswith(f"{places}Report: {private}/report.json\n{page}")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert names(private) == {"report.json"}
    assert stat.S_IMODE((private / "report.json").stat().st_mode) == 0o600
    text = (tmp_path / "out.release.json").read_text()
    public, report = json.loads(text), json.loads((private / "report.json").read_text())
    assert report == json.loads(result.stdout) and report["kept"] == ["id", "dt"]
    counted = report["columns"]["text"]
    assert (counted["tokens"], counted["dropped"], report["coverage"]["text"]["tokens"]) == (
        3,
        1,
        3,
    )
    assert counted["out_of_vocabulary"] == {"policy": "drop", "tokens": 1}
    assert (report["versions"]["dptext-spark"], report["options"]["input"]) == (
        __version__,
        str(source),
    )
    guarantee = {
        "mechanism": "laplace",
        "epsilon": 10.0,
        "fingerprint": report["embedding"]["fingerprint"],
    }
    assert report["guarantee"].items() >= guarantee.items()
    assert any(
        "anyone with both releases sees which rows changed" in line for line in report["scope"]
    )
    private_facts = {"columns", "coverage", "row_lengths", "private_scope", "rows_named"}
    assert public.keys() == {*report} - private_facts - {"seconds", "run"}
    assert report["rows_named"]["said"][0] == (
        "Unchanged columns name uniquely: together 1 of 1 rows"
    )
    assert (public["rows"], public["row_id"]) == (1, "Rows are named by column id.")
    assert (
        public["scope"] == report["scope"]
        and "Counts are exact facts" in report["private_scope"][-1]
    )
    about_words = {
        "text": ["text"],
        "tokens": [],
        "oov": "drop",
        "protect": "content",
        "layout": "words",
    }
    about_noise = {"mechanism": "laplace", "epsilon": 10.0, "key": "file"}
    others = {
        "id": "id",
        "trust-id": False,
        "tokenizer": "words",
        "release-words": None,
        "row-budget": None,
    }
    others |= {"epsilon-from-private-rows": False, "identifiers": "mask", "numbers": "mask"}
    assert public["options"] == about_words | about_noise | others
    private_words = ("salary", "secret plan", "private place", "key_file", "mergeSchema")
    shown = text + (tmp_path / "out.release.html").read_text()
    assert [word for word in private_words if word in shown] == []
    assert refused(dptext(source), "The output .*out exists")


def test_a_dry_run_writes_the_report_that_is_named_and_nothing_else(dptext, table, tmp_path):
    """And says whether ids are checked."""
    before, report = hashes(tmp_path), tmp_path / "r" / "private" / "report.json"
    unchecked = (
        "Whether ids are unique was not checked: rows of one id show whether their texts are equal."
    )
    result = dptext(table, "--dry-run", "--id", "id")
    assert result.exit_code == 0 and hashes(tmp_path) == before
    assert "epsilon 10" in result.output and "nothing was written" in result.output
    assert unchecked not in result.output
    result = dptext(table, "--dry-run", "--id", "id", "--trust-id", "--reports", tmp_path / "r")
    assert (
        f"nothing was written except the page {tmp_path}/r/release.html and the report: {report}"
        in result.output
        and unchecked in result.output
    )
    assert "What this release does not hide" in result.output
    page = (tmp_path / "r" / "release.html").read_text()
    assert "Draft of a dry run" in page and "none yet: this was a dry run" in page
    after = hashes(tmp_path)
    assert after.pop("r/private/report.json") and after.pop("r/release.html") and after == before
    found = json.loads(report.read_text())
    assert (found["rows"], found["columns"], found["options"]["dry-run"]) == (None, {}, True)
    assert found["guarantee"]["epsilon"] == 10.0
    assert refused(dptext(table, "--dry-run", "--reports", tmp_path / "r"), "The report .* exists")
    assert refused(dptext(table, "--dry-run", "--keep", "nope"), "Got: nope")


def test_the_report_replaces_neither_input_nor_output_nor_a_file(dptext, table, tmp_path):
    notes = tmp_path / "mine" / "release.json"
    notes.parent.mkdir()
    notes.write_text("mine")
    before = hashes(tmp_path)
    for folder, message in [
        (table, "Public report and input lie inside one another"),
        (tmp_path / "out", "Public report and output lie inside one another"),
        (notes.parent, "The public report .*mine/release.json exists"),
    ]:
        assert refused(dptext(table, "--reports", folder), message)
        assert hashes(tmp_path) == before
    assert dptext(table, "--reports", notes.parent, *OVERWRITE).exit_code == 0
    assert json.loads(notes.read_text())["rows"] == 12
    assert (notes.parent / "private").stat().st_mode & 0o777 == 0o700
    result = dptext(table, "--reports", notes, *OVERWRITE)  # a file is no folder
    assert refused(result, "The output was written, but its public report could not be", code=1)
    assert len(rows_of(tmp_path / "out")) == 12 and names(tmp_path) == {"in", "out", "mine"}
