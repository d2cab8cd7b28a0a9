"""scripts/test-cluster must find every difference between two runs, and hide what it says is hidden."""

import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.cluster import can_hide, without
from tests.helpers.comparison import compared

RUNS = ("0a1b2c3d-0000-4000-8000-0123456789ab", "f0e1d2c3-1111-4111-9111-ba9876543210")
REPORT = "table.report.json"
PAGE = "table.release.html"
OTHER = "table.json"
SECOND = "table/part-00001-c000.snappy.parquet"


def write(folder, part, ids, kind=None, **note):
    """Write a part of the table of the second run, or of the first; Spark names the files at random."""
    run = RUNS[folder.name == "there"]
    table = pa.table({"id": pa.array(ids, kind or pa.int64())}).replace_schema_metadata(note)
    pq.write_table(table, folder / "table" / f"part-{part:05}-{run}-c000.snappy.parquet")


def reorder_encodings(folder):
    """As another JVM's hash set would."""
    file = min((folder / "table").iterdir())
    plain_rle_dictionary = b"\x195\x00\x06\x10"  # as Thrift writes the list in the footer
    assert file.read_bytes().count(plain_rle_dictionary) == 1
    file.write_bytes(file.read_bytes().replace(plain_rle_dictionary, b"\x195\x06\x00\x10"))


def lose(folder):
    for file in (folder / "table").iterdir():
        file.unlink()


def recut(*parts, kind=None):
    def change(folder):
        for number, ids in enumerate(parts):
            write(folder, number, ids, kind)

    return change


def report(started, seconds, run, rows=4):
    return f'{{"started": "{started}", "seconds": {seconds}, "run": "{run}", "rows": {rows}}}\n'


def page(started, rows=4):
    return f"<td>{started}</td><td>{rows} rows</td>"


def again(there):
    (there / REPORT).write_text(report("2026-11-29T00:36:16+00:00", 9.8, "585e"))
    (there / PAGE).write_text(page("2026-11-29 00:36:16 UTC"))


def another_number(there):
    (there / REPORT).write_text(report("2026-11-28T23:59:59+00:00", 6.2, "2cac", rows=5))


def another_time_in_a_row(there):
    (there / OTHER).write_text('{"run": "0", "started": "2026-11-29"}\n')


SAME = "bytes of 5 files"
CHANGES = {
    "random names": (lambda there: None, [], SAME),
    "order of encodings": (reorder_encodings, [], SAME),
    "cut into other files": (recut([1], [4, 3, 2]), [], "bytes of 3 files, rows of table"),
    "another time": (again, [], SAME),
    "a changed byte": (another_number, [REPORT], ""),
    "a changed page": (lambda there: (there / PAGE).write_text(page("", rows=5)), [PAGE], ""),
    "another time in a row": (another_time_in_a_row, [OTHER], ""),
    "a file more": (lambda there: (there / "more").touch(), ["more"], ""),
    "a file less": (lambda there: (there / REPORT).unlink(), [REPORT], ""),
    "other values": (lambda there: write(there, 1, [3, 5]), [SECOND], ""),
    "another order": (lambda there: write(there, 1, [4, 3]), [SECOND], ""),
    "another type": (lambda there: write(there, 1, [3, 4], pa.int32()), [SECOND], ""),
    "another footer": (lambda there: write(there, 1, [3, 4], written="by another"), [SECOND], ""),
    "lost row": (lambda there: write(there, 1, [3]), ["table"], ""),
    "row twice": (lambda there: write(there, 1, [3, 4, 4]), ["table"], ""),
    "other types in other files": (recut([1], [2, 3, 4], kind=pa.int32()), ["table"], ""),
    "a lost table": (lose, ["table"], ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_differences_are_found(tmp_path, change):
    """Two equal runs leave a table, a report, a page and rows as JSON; the second run's are changed."""
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        (folder / "table").mkdir(parents=True)
        (folder / OTHER).write_text('{"run": "0", "started": "2026-11-28"}\n')
        (folder / REPORT).write_text(report("2026-11-28T23:59:59+00:00", 6.2, "2cac"))
        (folder / PAGE).write_text(page("2026-11-28 23:59:59 UTC"))
        recut([1, 2], [3, 4])(folder)
    alter, different, said = CHANGES[change]
    alter(folders[1])
    found = compared(*folders)
    assert found[0] == different and said in found[1]


def test_a_hidden_folder_is_empty_for_the_command_alone(tmp_path):
    if not can_hide(tmp_path):
        pytest.skip("this system lets no process hide a folder")
    for name in ("hidden one", "shown"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    find = without([tmp_path / "hidden one"], ["find", str(tmp_path), "-type", "f"])
    done = subprocess.run(find, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [str(tmp_path / "shown" / "file"), ""]
    assert (tmp_path / "hidden one" / "file").exists()
