"""dptext privatize: Parquet in, Parquet out, a report beside it, and nothing half done."""

import json
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark import __version__
from dptext_spark.errors import InputError
from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.output_table import OutputTable
from dptext_spark.tables.sampling import Sample
from tests.helpers.tables import hashes, names, refused, rows_of, texts, write_table

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


def test_an_output_that_no_job_wrote_is_kept(dptext, tmp_path):
    """And one that a job wrote, where the run that may replace it fails."""
    table = write_table(tmp_path / "in" / "x.parquet", {"text": ["w01 w02 Unheardof"]})
    precious = write_table(tmp_path / "mine" / "precious.parquet", {"x": [1]})
    write_table(tmp_path / "out" / "part-0.parquet", {"text": ["w00"]})
    (tmp_path / "out" / "_SUCCESS").touch()
    first = hashes(tmp_path)
    assert refused(dptext(table, *OVERWRITE, output=tmp_path / "mine"), "_SUCCESS")
    assert refused(dptext(table, *OVERWRITE, output=precious), "_SUCCESS")
    result = dptext(table, "--oov", "fail", *OVERWRITE)
    forbidden = "Column text has words outside the vocabulary, which the policy oov=fail forbids"
    assert refused(result, f"{forbidden}.*Allowed: words of the embedding bundle")
    assert "unheardof" not in result.output.lower()
    assert hashes(tmp_path) == first and names(tmp_path) == {"in", "out", "mine"}


def test_a_table_without_a_success_file_has_a_sign_of_its_own(dptext, table, tmp_path):
    """Rejects a table that its own job may not replace, a sign before the table is whole, and two signs."""
    silent = ("--write-option", "mapreduce.fileoutputcommitter.marksuccessfuljobs=false")
    for mode in ([], OVERWRITE):
        assert dptext(table, *silent, *mode).exit_code == 0
        assert {name for name in names(tmp_path / "out") if name.startswith("_")} == {
            "_dptext_spark"
        }
    rows = rows_of(tmp_path / "out")
    result = dptext(tmp_path / "out", *silent, output=tmp_path / "again")
    assert result.exit_code == 0 and len(rows_of(tmp_path / "again")) == len(rows) > 0
    assert dptext(table, *OVERWRITE).exit_code == 0
    assert {name for name in names(tmp_path / "out") if name.startswith("_")} == {"_SUCCESS"}
    write_table(tmp_path / "in2" / "x.parquet", {"text": ["w01 Unheardof"]})
    result = dptext(tmp_path / "in2", *silent, "--oov", "fail", output=tmp_path / "half")
    assert result.exit_code and not (tmp_path / "half").exists()
    (tmp_path / "out" / "_SUCCESS").unlink()
    assert refused(
        dptext(table, *silent, *OVERWRITE), "a folder with a file _SUCCESS or _dptext_spark"
    )


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


def test_inputs_that_are_no_table(dptext, opened, table, tmp_path):
    """Files that are damaged inside of a folder are in test_files.py."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.parquet").write_text("no Parquet at all " * 50)
    for source, message in [
        (tmp_path / "nowhere", "cannot be read as a table.*no such file"),
        (tmp_path / "empty", "cannot be read as a table"),
        (
            tmp_path / "x.parquet",
            "The file .*/x.parquet of the input has another format, was cut short",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            opened(source, "parquet")
    assert refused(dptext("nosuch://bucket/table"), "The path nosuch://bucket/table cannot be used")
    assert refused(dptext(table, output="nosuch://x/y"), "nosuch://x/y cannot be used")


def test_files_that_are_left_out_fail_the_run(dptext, opened, table, tmp_path):
    write_table(table / "deeper" / "x.parquet", {"id": [50], "text": ["w00"]})
    assert refused(dptext(table), "subfolders that are not part of the table.*Got: 1 more files")
    assert names(tmp_path) == {"in"}
    # Unlike those that are Spark's own temporary files.
    (table / "deeper").rename(table / "_hidden")
    assert opened(table, "parquet").df.count() == 12


def test_ids_are_checked_first(dptext, tmp_path, monkeypatch):
    """Rejects a look at the texts, or a write, before the ids are checked."""
    source = write_table(tmp_path / "in.parquet", {"id": [1, 1, None], "text": texts(3)})
    for owner, name in ((Sample, "__call__"), (OutputTable, "write_reports"), (Parquet, "write")):
        monkeypatch.setattr(owner, name, None)
    message = "Column id cannot be the id: it has 1 nulls and 1 duplicates in 3 rows"
    for mode in ((), ("--dry-run",)):
        assert refused(dptext(source, "--id", "id", *mode), message)


@pytest.mark.parametrize(
    ("arguments", "jobs"),
    [(["--dry-run", "--trust-id"], 2), ([], 6)],
    ids=["dry run", "checked ids"],
)
def test_a_small_table_is_read_no_more_often_than_it_must_be(table, dptext, spark, arguments, jobs):
    """Rejects another pass: Spark reads the schema, a sample is looked at, and one job reads and writes."""
    # The check of ids is three: Spark plans each stage of a query by what the one before it found.
    group = f"{len(arguments)} {arguments}"
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        result = dptext(table, "--id", "id", *arguments)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert result.exit_code == 0, result.output
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == jobs


def test_a_filter_that_no_row_meets_is_refused(dptext, tmp_path):
    """Rejects an empty release with exit code 0: arithmetic on ids that are text is null."""
    # But an empty table is released as one, and a run that may find its rows tomorrow goes on.
    ids = [f"T{number}" for number in range(100_000, 100_012)]
    given = ("--id", "id", "--keep", "id")
    source = write_table(tmp_path / "in" / "a.parquet", {"id": ids, "text": texts(12)}).parent
    before = hashes(tmp_path)
    message = r"No row of the input meets the filter --where\..*crc32\(id\) % 6"
    for more in (("--ledger", tmp_path / "ledger"), ("--dry-run", "--trust-id")):
        assert refused(dptext(source, *given, "--where", "id % 6 <> 0", *more), message)
    assert hashes(tmp_path) == before

    halves = []
    for sign, name in (("=", "held back"), ("<>", "released")):
        output = tmp_path / name
        assert (
            dptext(source, *given, "--where", f"crc32(id) % 6 {sign} 0", output=output).exit_code
            == 0
        )
        halves.append({row["id"] for row in rows_of(output)})
    assert halves[0] | halves[1] == {*ids} and not halves[0] & halves[1]
    assert all(halves)

    none = write_table(
        tmp_path / "none.parquet", {"id": pa.array([], "string"), "text": pa.array([], "string")}
    )
    assert (
        dptext(none, *given, "--where", "id % 6 <> 0", output=tmp_path / "of none").exit_code == 0
    )
    grows = ("--incremental", tmp_path / "checkpoint", "--where", "text = 'nothing yet'")
    assert dptext(source, "--keep", "id", *grows, output=tmp_path / "grown").exit_code == 0


def test_reports_of_a_partition_lie_outside_its_table(dptext, table, tmp_path):
    """Rejects private counts inside a table that is shared, and that no reader can read any more."""
    shared = tmp_path / "shared" / "dt=2026-03-01"
    for output in (shared, f"{shared}/", f"file:{shared}", f"{shared}/city=Bath/."):
        assert refused(dptext(table, output=output), "Option --reports is missing.* is a partition")
        assert refused(dptext(table, "--dry-run", output=output), "Option --reports is missing")
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    for place in (tmp_path / "shared" / "reports", tmp_path / "link" / "r", f"{shared}.reports"):
        wrong = dptext(table, "--reports", place, output=f"{shared}/city=Bath")
        assert refused(
            wrong, "lies inside the table of which the output is a partition.*another --reports"
        )
    ledger = ("--reports", tmp_path / "r", "--ledger", tmp_path / "shared" / "ledger", "--id", "id")
    assert refused(
        dptext(table, *ledger, output=shared), "Ledger lies inside the table.*another --ledger"
    )
    assert names(tmp_path / "shared") == set()

    done = dptext(table, "--reports", tmp_path / "shared_reports" / "dt=2026-03-01", output=shared)
    assert done.exit_code == 0, done.output
    assert pq.read_table(tmp_path / "shared").column_names == ["text", "dt"]
    plain = dptext(table, output=tmp_path / "env=test" / "out")  # a folder in one that has a sign
    assert plain.exit_code == 0, plain.output


def test_a_column_that_is_part_of_the_path_is_said_to_be(dptext, tmp_path):
    """Rejects "the table lacks columns" of a folder that bears the name, and advice that does not work."""
    part = tmp_path / "in" / "dt=2026-03-01" / "a"
    write_table(part.with_suffix(".parquet"), {"id": [1], "text": ["w01"]})
    advice = rf"""--input {tmp_path}/in with --where "dt = '2026-03-01'"\.$"""
    for file in ("", "/a.parquet"):
        wrong = dptext(f"{part.parent}{file}", "--id", "id", "--keep", "dt")
        assert refused(wrong, f"are part of the path of --input.*Got: dt.*{advice}")
    part.with_suffix(".csv").write_text("id,text\n1,w01\n")
    csv = dptext(f"{part}.csv", "--format", "csv", "--id", "id", "--keep", "dt")
    assert refused(csv, f"are part of the path of --input.*{advice}")
    part.with_suffix(".csv").unlink()
    as_advised = dptext(
        tmp_path / "in", "--where", "dt = '2026-03-01'", "--id", "id", "--keep", "dt"
    )
    assert as_advised.exit_code == 0, as_advised.output
    assert (tmp_path / "out" / "dt=2026-03-01").is_dir()
