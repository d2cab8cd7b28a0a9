"""scripts/test-cluster must find every difference between two runs, and hide what it says is hidden."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.cluster import can_hide, without
from tests.helpers.comparison import compared

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


def write(file: Path, ids: list[int], kind: pa.DataType | None = None, **metadata: str) -> None:
    table = pa.table({"id": pa.array(ids, kind or pa.int64())})
    pq.write_table(table.replace_schema_metadata(metadata), file)


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "table").iterdir())


def test_random_names_are_no_difference(outputs: list[Path]) -> None:
    assert compared(*outputs) == ([], "bytes of 3 files")


def test_a_table_cut_into_other_files_is_compared_by_rows(outputs: list[Path]) -> None:
    write(parts(outputs[1])[0], [1])
    write(parts(outputs[1])[1], [4, 3, 2])
    assert compared(*outputs) == ([], "bytes of 1 files, rows of table")


def test_the_order_of_encodings_is_no_difference(outputs: list[Path]) -> None:
    file = parts(outputs[1])[0]
    data = file.read_bytes()
    plain_rle_dictionary = b"\x195\x00\x06\x10"  # as Thrift writes the list in the footer
    assert data.count(plain_rle_dictionary) == 1
    file.write_bytes(data.replace(plain_rle_dictionary, b"\x195\x06\x00\x10"))
    assert compared(*outputs) == ([], "bytes of 3 files")


def test_a_changed_byte_is_found(outputs: list[Path]) -> None:
    (outputs[1] / "table.report.json").write_text('{"rows": 5}\n')
    assert compared(*outputs)[0] == ["table.report.json"]


def test_a_file_of_one_run_alone_is_found(outputs: list[Path]) -> None:
    (outputs[0] / "more").touch()
    (outputs[1] / "table.report.json").unlink()
    assert compared(*outputs)[0] == ["more", "table.report.json"]


def test_other_values_types_and_footers_are_found(outputs: list[Path]) -> None:
    second = parts(outputs[1])[1]
    for ids, kind, metadata in (
        ([3, 5], pa.int64(), {}),
        ([4, 3], pa.int64(), {}),
        ([3, 4], pa.int32(), {}),
        ([3, 4], pa.int64(), {"written": "by another"}),
    ):
        write(second, ids, kind, **metadata)
        assert compared(*outputs)[0] == ["table/part-00001-c000.snappy.parquet"]


@pytest.mark.parametrize("ids", [[3], [3, 4, 4], [3, 4, 5]], ids=["lost row", "row twice", "row too many"])
def test_other_rows_are_found(outputs: list[Path], ids: list[int]) -> None:
    write(parts(outputs[1])[1], ids)
    assert compared(*outputs)[0] == ["table"]


def test_other_types_in_other_files_are_found(outputs: list[Path]) -> None:
    write(parts(outputs[1])[0], [1], pa.int32())
    write(parts(outputs[1])[1], [2, 3, 4], pa.int32())
    assert compared(*outputs)[0] == ["table"]


def test_a_lost_table_is_found(outputs: list[Path]) -> None:
    for file in parts(outputs[1]):
        file.unlink()
    assert compared(*outputs)[0] == ["table"]


def test_a_hidden_folder_is_empty_for_the_command_alone(tmp_path: Path) -> None:
    if not can_hide(tmp_path):
        pytest.skip("this system lets no process hide a folder")
    for name in ("hidden one", "shown"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    find = ["find", str(tmp_path), "-type", "f"]
    done = subprocess.run(
        without([tmp_path / "hidden one"], find), capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == [str(tmp_path / "shown" / "file"), ""]
    assert (tmp_path / "hidden one" / "file").exists()
