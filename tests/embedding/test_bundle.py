"""Opening of embedding bundles and of their optional parts, and damage that must be found."""

import hashlib
import json
import pickle
import re
from errno import ENOMEM
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding, map_array
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256, sealed
from tests.helpers.bundles import (
    EUCLIDEAN_FILES,
    POINCARE_FILES,
    ball_of,
    glove,
    poincare_bundle,
    vectors_of,
)


def resealed(bundle, **changes):
    """Write a manifest that is consistent in itself but says something else."""
    entries = json.loads((bundle / "manifest.json").read_bytes()) | changes
    entries.pop("sha256")
    (bundle / "manifest.json").write_bytes(sealed(entries))


@pytest.fixture(params=["euclidean", "poincare"])
def any_bundle(request, tmp_path):
    if request.param == "poincare":
        return poincare_bundle(tmp_path, ball_of(9, 2)).path
    return build_embedding(glove(tmp_path / "g.txt"), tmp_path / "bundle").path


def test_the_matrices_are_mapped_and_read_only(any_bundle):
    embedding = Embedding.open(any_bundle)
    for name in embedding.space.arrays(embedding.manifest.precision):
        array = getattr(embedding.space, name)
        assert isinstance(array, np.memmap) and array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_pickled_embedding_is_its_path(tmp_path):
    rows = vectors_of(500, 50)
    source = glove(tmp_path / "g.txt", [f"w{i}" for i in range(500)], rows)
    pickled = pickle.dumps(build_embedding(source, tmp_path / "b"))
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert isinstance(again.vectors, np.memmap)
    np.testing.assert_array_equal(again.vectors, rows)
    build_embedding(glove(tmp_path / "h.txt"), tmp_path / "b", overwrite=True)
    with pytest.raises(BundleError, match="not the one that was sent"):
        pickle.loads(pickled)


def test_damage_is_found_wherever_it_is(any_bundle):
    """A flipped bit, which needs the hashes; a file cut short or missing also without."""
    names = {path.name for path in any_bundle.iterdir()}
    assert names in ({*EUCLIDEAN_FILES}, {*POINCARE_FILES})
    for name in names:
        whole = (any_bundle / name).read_bytes()
        # About 60 bytes; the bit varies with the byte.
        for offset in range(0, len(whole), max(1, len(whole) // 60)):
            changed = bytearray(whole)
            changed[offset] ^= 1 << (offset * 5 + offset // 8) % 8
            (any_bundle / name).write_bytes(changed)
            with pytest.raises(BundleError, match=re.escape(name)):
                Embedding.open(any_bundle)
        for size in (0, 10, len(whole) // 2, len(whole) - 1, None):
            (any_bundle / name).write_bytes(whole[:size])
            if size is None:
                (any_bundle / name).unlink()
            for verify in (True, False):
                with pytest.raises(BundleError, match=re.escape(name)):
                    Embedding.open(any_bundle, verify=verify)
        (any_bundle / name).write_bytes(whole)
    Embedding.open(any_bundle)


def test_too_little_memory_is_no_damage(bundle, monkeypatch):
    """Rejects "build it again" where address space is limited, as spark.executor.pyspark.memory does."""
    monkeypatch.setattr(np, "load", Mock(side_effect=OSError(ENOMEM, "Cannot allocate memory")))
    with pytest.raises(MemoryError):
        Embedding.open(bundle)
    monkeypatch.setattr(pq, "ParquetFile", Mock(side_effect=pa.ArrowMemoryError("malloc")))
    with pytest.raises(MemoryError):
        Embedding.open(bundle)


def test_an_array_of_another_type_or_shape_is_found(any_bundle):
    for name, (dtype, _) in Embedding.open(any_bundle).space.derived.items():
        file = any_bundle / f"{name}.npy"
        right = np.load(file)
        other = right.astype("<f4" if dtype == "<f8" else "<f8")
        for wrong in (other, right[:-1], *([np.asfortranarray(right)] if right.ndim == 2 else [])):
            np.save(file, wrong)
            with pytest.raises(BundleError, match=rf"{name}.npy of the bundle is damaged: .*shape"):
                Embedding.open(any_bundle, verify=False)
        np.save(file, right)
    Embedding.open(any_bundle)


def test_words_that_disagree_with_the_manifest_are_found(bundle):
    original = (bundle / "manifest.json").read_bytes()
    for changes, message in [
        ({"words": 8}, "length"),
        ({"releasable": 3}, "releasable words"),
        ({"normalization": "unit"}, "fingerprint does not belong"),
        ({"fingerprint": "0" * 64}, "fingerprint does not belong"),
        ({"geometry": "poincare"}, "list of files"),
        ({"geometry": "flat"}, "geometry"),
        ({"precision": "half"}, "vectors.npy .* not <f2"),
        ({"precision": "double"}, "entries"),
        ({"files": {"manifest.json": "0"}}, "list of files"),
        ({"comment": "x"}, "entries"),
    ]:
        resealed(bundle, **changes)
        with pytest.raises(BundleError, match=message):
            Embedding.open(bundle)
        (bundle / "manifest.json").write_bytes(original)
    Embedding.open(bundle)
    for text in (
        json.dumps(json.loads(original)),
        "[]",
        "{}",
        '"x"',
        "\x00",
    ):  # written in another way
        (bundle / "manifest.json").write_text(text)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            Embedding.open(bundle)


def test_what_is_no_bundle_or_of_another_version_is_not_called_damaged(bundle):
    """However the other version names its entries and seals them."""
    for path in (bundle.parent, bundle / "absent", bundle.parent / "g.txt"):
        with pytest.raises(BundleError, match="not an embedding bundle"):
            Embedding.open(path)
    (bundle / "manifest.json").write_text('{"format_version": 7, "vectors": {}, "sha256": "0"}')
    expected = r"another version.*version 3\. Got: format version 7.*Build the bundle again"
    for verify in (True, False):
        with pytest.raises(BundleError, match=expected):
            Embedding.open(bundle, verify=verify)


def test_fingerprint_is_what_the_documentation_says(tmp_path):
    """Rejects lengths in letters, words that run into one another, flags of other words, and one layout."""
    source = glove(tmp_path / "g.txt", ["a", "naïve", "日本", "ab", "c"])
    for embedding in (
        build_embedding(source, tmp_path / "a"),
        build_embedding(source, tmp_path / "b", normalize="unit", release_words=3),
        build_embedding(
            glove(tmp_path / "h.txt", ["caf\u00e9", "cafe\u0301", "b"]), tmp_path / "c"
        ),
        build_embedding(glove(tmp_path / "i.txt", ["cafe\u0301", "b", "d"]), tmp_path / "d"),
        poincare_bundle(tmp_path, ball_of(9, 2)),
    ):
        words = hashlib.sha256()
        for row, word in enumerate(embedding.words.to_pylist()):
            encoded = word.encode()
            words.update(
                len(encoded).to_bytes(8, "little") + encoded + bytes([row < embedding.releasable])
            )
        layout = 2 + (embedding.words[0].as_py() == "cafe\u0301")
        canonical = (
            f'{{"dimension":{embedding.dimension},"format_version":{layout},'
            f'"geometry":"{embedding.space.geometry}",'
            f'"normalization":"{embedding.manifest.normalization}","releasable":{embedding.releasable},'
            f'"vectors_sha256":"{file_sha256(embedding.path / "vectors.npy")}",'
            f'"words":{len(embedding.words)},"words_sha256":"{words.hexdigest()}"}}'
        )
        assert embedding.fingerprint == hashlib.sha256(canonical.encode()).hexdigest()


CONTENT = b"lists of words"


def index_of(embedding):
    """Keep a part of a number and a file, as a search index has them."""
    (made := embedding.path.parent / "made").mkdir()
    (made / "lists.npy").write_bytes(CONTENT)
    return embedding.keep("index-4", {"lists": 4}, made)


def test_a_part_is_found_again(bundle):
    """Rejects a part that is taken for another bundle's."""
    opened = Embedding.open(bundle)
    part = index_of(opened)
    again = Embedding.open(bundle)
    assert again.part("index-4") == part == opened.part("index-4") and again.part("index-5") is None
    assert part.values == {"lists": 4} and part.path(bundle, "lists.npy").read_bytes() == CONTENT
    assert {path.name for path in (bundle / "parts").iterdir()} == {
        "index-4.json",
        "index-4.lists.npy",
    }
    source = glove(bundle.parent / "h.txt", vectors=vectors_of(seed=8))
    other = build_embedding(source, bundle.parent / "other")
    (bundle / "parts").rename(other.path / "parts")
    assert Embedding.open(other.path).part("index-4") is None


def test_a_damaged_part_is_no_part(bundle):
    """Rejects an index of which a bit was flipped: it would send noisy points to the wrong words."""
    part = index_of(Embedding.open(bundle))
    file, record = part.path(bundle, "lists.npy"), bundle / "parts" / "index-4.json"
    changed = record.read_bytes().replace(b'"lists": 4', b'"lists": 5')
    flipped = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    for path, content in ((file, flipped), (file, None), (record, changed), (record, b"\xff[")):
        whole = path.read_bytes()
        path.write_bytes(content) if content else path.unlink()
        assert Embedding.open(bundle).part("index-4") is None
        path.write_bytes(whole)
    assert Embedding.open(bundle).part("index-4") == part


def test_only_parts_without_files_do_without_a_folder(bundle):
    """They go with a pickled bundle even where its folder cannot be written to."""
    opened = Embedding.open(bundle)
    (bundle / "parts").write_bytes(b"a file where the folder should be")
    with pytest.raises(BundleError, match="cannot be written to"):
        index_of(opened)
    assert opened.parts == ()
    part = opened.keep("constant", {"constant": 1.5})
    assert pickle.loads(pickle.dumps(opened)).part("constant") == part
    assert Embedding.open(bundle).part("constant") is None


LIES = [
    {"words": "9"},
    {"words": 10**18},
    {"words": -1},
    {"releasable": 10},
    {"releasable": 1},
    {"releasable": True},
    {"unmatchable": -1},
    {"unmatchable_releasable": 1},
    {"dimension": 0},
    {"dimension": None},
    {"geometry": []},
    {"geometry": "flat"},
    {"files": []},
    {"files": {}},
    {"files": {"../words.parquet": "0"}},
    {"fingerprint": 5},
    {"zebulon": 1},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_manifest_that_lies_is_refused(bundle, lie):
    """Rejects a seal that anybody can compute taken for what a bundle says."""
    resealed(bundle, **lie)
    for verify in (True, False):
        with pytest.raises(BundleError, match="damaged") as caught:
            Embedding.open(bundle, verify=verify)
        assert "zebulon" not in str(caught.value)


def archive(file):
    with file.open("wb") as opened:
        np.savez(opened, a=np.zeros(3))


def broken_header(file):
    content = file.read_bytes()
    file.write_bytes(content.replace(b"(", b"'", 1))


def not_a_number(file):
    array = np.load(file)
    array.flat[0] = np.nan
    np.save(file, array)


@pytest.mark.parametrize("change", [archive, broken_header, not_a_number])
def test_arrays_that_lie_are_refused_though_their_hashes_fit(any_bundle, change):
    """Rejects a file of several arrays, NumPy's own errors, and a word that no search can place."""
    opened = Embedding.open(any_bundle)
    for name in opened.space.arrays(opened.manifest.precision):
        file = any_bundle / f"{name}.npy"
        right = file.read_bytes()
        manifest = (any_bundle / "manifest.json").read_bytes()
        change(file)
        files = json.loads(manifest)["files"] | {file.name: file_sha256(file)}
        resealed(any_bundle, files=files)
        with pytest.raises(BundleError, match="damaged"):
            Embedding.open(any_bundle)
        file.write_bytes(right)
        (any_bundle / "manifest.json").write_bytes(manifest)


def test_words_that_are_no_text_are_refused(bundle):
    """Rejects Arrow's reader, which takes any bytes for a text until somebody reads it."""
    table = pq.read_table(bundle / "words.parquet")
    words = table["word"].combine_chunks().cast(pa.binary()).to_pylist()
    words[0] = b"\xffzebulon"
    array = pa.array(words, pa.binary())
    array = pa.StringArray.from_buffers(len(array), *array.buffers()[1:])
    changed = table.set_column(0, table.schema.field(0), array)
    pq.write_table(changed, bundle / "words.parquet")
    with pytest.raises(BundleError, match="not valid UTF-8") as caught:
        Embedding.open(bundle, verify=False)
    assert "zebulon" not in str(caught.value)


def test_a_folder_in_place_of_a_file_is_refused(bundle):
    (bundle / "half_norms.npy").unlink()
    (bundle / "half_norms.npy").mkdir()
    with pytest.raises(BundleError, match="lacks half_norms"):
        Embedding.open(bundle)


@pytest.mark.parametrize(
    "changes",
    [{"files": {"../../a.npy": "0"}}, {"files": []}, {"values": None}, {"name": 5}],
    ids=str,
)
def test_records_of_parts_that_lie_are_none(bundle, changes):
    """Rejects a path that leads out of the bundle, and errors of whatever else is there."""
    opened = Embedding.open(bundle)
    opened.keep("constant", {"constant": 1.5})
    file = bundle / "parts" / "constant.json"
    entries = json.loads(file.read_bytes()) | changes
    entries.pop("sha256")
    file.write_bytes(sealed(entries))
    assert Embedding.open(bundle).part("constant") is None


def test_an_array_whose_header_python_2_wrote_is_damaged(tmp_path):
    """Rejects a warning of NumPy on the terminal: no bundle has such a file."""
    path = tmp_path / "vectors.npy"
    np.save(path, np.zeros((4, 3), dtype=np.float32))
    path.write_bytes(path.read_bytes().replace(b"(4, 3), }  ", b"(4L, 3L), }"))
    with pytest.raises(BundleError, match=r"vectors\.npy of the bundle is damaged"):
        map_array(path)
