"""dptext privatize: Parquet in, Parquet out, and nothing half done."""

import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import InputError
from tests.helpers.tables import hashes, names, refused, rows_of, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

OVERWRITE = ("--mode", "overwrite")


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
