"""The checkpoint of a growing table, whose files anybody may have written who may write there."""

import json

import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.tables.checkpoint import Checkpoint
from dptext_spark.tables.storage import LocalFiles

LOG = 'v1\n{"path": "file:///in/a%20b.parquet", "timestamp": 5, "batchId": 0}'
FILES = {
    "dptext.json": '{"key": "aa"}',
    "batches/000000.json": '{"rows": 6}',
    "sizes/000000.json": '{"ab": 100}',
    "stream/offsets/0": 'v1\n{}\n{"logOffset": 0}',
    "stream/sources/0/0": LOG,
}
WRONG = [
    ("dptext.json", "[]"),
    ("dptext.json", "{"),
    ("dptext.json", "[" * 100_000),
    ("batches/000000.json", "{}"),
    ("batches/000000.json", '{"rows": "zebulon"}'),
    ("batches/000000.json", '{"rows": true}'),
    ("batches/x.json", '{"rows": 1}'),
    ("sizes/000000.json", '{"ab": -1}'),
    ("sizes/000000.json", '"zebulon"'),
    ("stream/offsets/0", ""),
    ("stream/offsets/0", 'v1\n{"logOffset": "zebulon"}'),
    ("stream/offsets/0", "v1\n[]"),
    ("stream/sources/0/0", "v1\nzebulon"),
    ("stream/sources/0/0", 'v1\n{"path": 5}'),
    ("stream/sources/0/0", 'v1\n{"path": "zebulon", "timestamp": "x", "batchId": 0}'),
    ("stream/sources/0/0", 'v1\n{"path": "zebulon", "timestamp": 1}'),
]


def read(folder):
    checkpoint = Checkpoint(path=str(folder), storage=LocalFiles())
    counts = [checkpoint.counts(path) for path in checkpoint.counts_paths]
    return checkpoint.identity(), counts, checkpoint.sizes(), checkpoint.added_files()


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return tmp_path


def test_a_checkpoint_says_what_was_written(folder):
    added = {"file:/in/a b.parquet": 5}
    assert read(folder) == ({"key": "aa"}, [{"rows": 6}], {"ab": 100}, added)


@pytest.mark.parametrize(("name", "content"), WRONG, ids=lambda _: "")
def test_files_of_another_form_are_refused_by_name(folder, name, content):
    """Rejects errors of JSON, and of whatever another form leads to."""
    (folder / name).write_text(content)
    with pytest.raises(ConfigError, match=r"damaged\. Got: ") as caught:
        read(folder)
    assert "zebulon" not in str(caught.value)


def test_a_note_is_there_whole_and_its_owners_alone(folder):
    """Rejects a file that others may read, and one that is written in place."""
    checkpoint = Checkpoint(path=str(folder), storage=LocalFiles())
    checkpoint.note_sizes({"cd": 7})
    assert checkpoint.sizes() == {"ab": 100, "cd": 7}
    assert (folder / "sizes" / "000001.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((folder / "sizes" / "000001.json").read_text()) == {"cd": 7}
    assert not [*folder.rglob("*.part")]
