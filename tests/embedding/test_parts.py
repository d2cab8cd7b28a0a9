"""Optional parts of bundles: found again, and never taken for whole when they are not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.parts import Part
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256
from tests.helpers.bundles import content_of, glove, vectors_of

CONTENT = b"lists of words"


@pytest.fixture
def opened(bundle: Path) -> Embedding:
    return Embedding.open(bundle)


def index_of(embedding: Embedding, folder: Path) -> Part:
    """Keep a part of a number and a file, as a search index has them."""
    made = folder / "made"
    made.write_bytes(CONTENT)
    part = Part.of("index-4", embedding.fingerprint, {"lists": 4}, {"lists.npy": file_sha256(made)})
    embedding.keep(part, {"lists.npy": made})
    return part


def test_a_part_is_found_again(opened: Embedding, tmp_path: Path) -> None:
    before = content_of(opened.path)
    part = index_of(opened, tmp_path)
    again = Embedding.open(opened.path)
    assert again.part("index-4") == part == opened.part("index-4")
    assert part.values == {"lists": 4} and part.path(opened.path, "lists.npy").read_bytes() == CONTENT
    assert again.part("index-5") is None
    assert again.fingerprint == opened.fingerprint
    assert {n: (opened.path / n).read_bytes() for n in before} == before  # the bundle itself is untouched


@pytest.mark.parametrize("damage", ["bit", "cut", "gone", "record", "no JSON"])
def test_a_damaged_part_is_no_part(opened: Embedding, tmp_path: Path, damage: str) -> None:
    """Rejects an index of which a bit was flipped: it would send noisy points to the wrong words."""
    part = index_of(opened, tmp_path)
    file, record = part.path(opened.path, "lists.npy"), opened.path / "parts" / "index-4.json"
    if damage == "bit":
        file.write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    elif damage == "cut":
        file.write_bytes(CONTENT[:-1])
    elif damage == "gone":
        file.unlink()
    else:
        changed = record.read_bytes().replace(b'"lists": 4', b'"lists": 5')
        record.write_bytes(changed if damage == "record" else b"\xff[")
    assert Embedding.open(opened.path).part("index-4") is None


def test_a_part_of_another_bundle_is_not_taken(opened: Embedding, tmp_path: Path) -> None:
    index_of(opened, tmp_path)
    other = build_embedding(glove(tmp_path / "h.txt", vectors=vectors_of(seed=8)), tmp_path / "other")
    (opened.path / "parts").rename(other.path / "parts")
    assert Embedding.open(other.path).part("index-4") is None


def test_parts_go_with_a_pickled_bundle(opened: Embedding) -> None:
    """Small ones even where the bundle's folder keeps nothing."""
    (opened.path / "parts").write_bytes(b"a file where the folder should be")
    part = Part.of("constant", opened.fingerprint, {"constant": 1.5})
    opened.keep(part)
    assert pickle.loads(pickle.dumps(opened)).part("constant") == part
    assert Embedding.open(opened.path).part("constant") is None


def test_files_need_a_folder_that_can_be_written_to(opened: Embedding, tmp_path: Path) -> None:
    (opened.path / "parts").write_bytes(b"a file where the folder should be")
    with pytest.raises(BundleError, match="cannot be written to"):
        index_of(opened, tmp_path)
    assert opened.parts == ()


def test_a_bundle_with_parts_can_be_replaced(opened: Embedding, tmp_path: Path) -> None:
    index_of(opened, tmp_path)
    again = build_embedding(glove(tmp_path / "g.txt"), opened.path, overwrite=True)
    assert again.part("index-4") is None and not (opened.path / "parts").exists()
