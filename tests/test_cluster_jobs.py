"""scripts/test-cluster must find every difference between two runs of a job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.cluster_jobs import compared

RUNS = ("0a1b2c3d-0000-4000-8000-0123456789ab", "f0e1d2c3-1111-4111-9111-ba9876543210")


@pytest.fixture
def outputs(tmp_path: Path) -> list[Path]:
    """What two equal runs leave: a table of two files and a report; Spark names the files at random."""
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder, run in zip(folders, RUNS, strict=True):
        (folder / "table").mkdir(parents=True)
        (folder / "table.report.json").write_text('{"rows": 4}\n')
        write(folder / "table" / f"part-00000-{run}-c000.snappy.parquet", [1, 2])
        write(folder / "table" / f"part-00001-{run}-c000.snappy.parquet", [3, 4])
    return folders


def write(file: Path, ids: list[int], kind: pa.DataType | None = None) -> None:
    pq.write_table(pa.table({"id": pa.array(ids, kind or pa.int64())}), file)


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "table").iterdir())


def test_random_names_are_no_difference(outputs: list[Path]) -> None:
    assert compared(*outputs) == ([], "bytes of 3 files")


def test_a_table_cut_into_other_files_is_compared_by_rows(outputs: list[Path]) -> None:
    write(parts(outputs[1])[0], [1])
    write(parts(outputs[1])[1], [4, 3, 2])
    assert compared(*outputs) == ([], "bytes of 1 files, rows of table")


def test_a_changed_byte_is_found(outputs: list[Path]) -> None:
    (outputs[1] / "table.report.json").write_text('{"rows": 5}\n')
    assert compared(*outputs)[0] == ["table.report.json"]


def test_a_file_of_one_run_alone_is_found(outputs: list[Path]) -> None:
    (outputs[0] / "more").touch()
    (outputs[1] / "table.report.json").unlink()
    assert compared(*outputs)[0] == ["more", "table.report.json"]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [([3, 5], pa.int64()), ([3], pa.int64()), ([3, 4, 4], pa.int64()), ([3, 4], pa.int32())],
    ids=["other value", "lost row", "row twice", "other type"],
)
def test_other_rows_are_found(outputs: list[Path], ids: list[int], kind: pa.DataType) -> None:
    write(parts(outputs[1])[1], ids, kind)
    assert compared(*outputs)[0] == ["table"]


def test_a_lost_table_is_found(outputs: list[Path]) -> None:
    for file in parts(outputs[1]):
        file.unlink()
    assert compared(*outputs)[0] == ["table"]
