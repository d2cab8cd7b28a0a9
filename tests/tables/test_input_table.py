"""Rows of an input are checked before all else: their ids, and that the filter takes some."""

import pyarrow as pa
import pytest

from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.output_table import OutputTable
from dptext_spark.tables.sampling import Sample
from tests.helpers.tables import hashes, refused, rows_of, texts, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_ids_are_checked_first(dptext, tmp_path, monkeypatch):
    """Rejects a look at the texts, or a write, before the ids are checked."""
    source = write_table(tmp_path / "in.parquet", {"id": [1, 1, None], "text": texts(3)})
    for owner, name in ((Sample, "__call__"), (OutputTable, "write_reports"), (Parquet, "write")):
        monkeypatch.setattr(owner, name, None)
    message = "Column id cannot be the id: it has 1 nulls and 1 duplicates in 3 rows"
    for mode in ((), ("--dry-run",)):
        assert refused(dptext(source, "--id", "id", *mode), message)


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
