"""Opening of embedding bundles, and damage that must be found."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import FORMAT_VERSION, Embedding
from dptext_spark.errors import BundleError
from tests.helpers.bundles import EUCLIDEAN_FILES, POINCARE_FILES, ball_of, glove, poincare_bundle, vectors_of


def resealed(bundle: Path, **changes: Any) -> None:
    """Write a manifest that is consistent in itself but says something else."""
    entries = json.loads((bundle / "manifest.json").read_bytes()) | changes
    entries.pop("sha256")
    canonical = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
    entries["sha256"] = hashlib.sha256(canonical).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(entries, sort_keys=True, indent=2) + "\n")


def test_the_matrices_are_mapped_and_read_only(bundle: Path) -> None:
    embedding = Embedding.open(bundle)
    assert isinstance(embedding.vectors, np.memmap)
    assert isinstance(embedding.space.half_norms, np.memmap)
    assert embedding.vectors.flags.c_contiguous
    for array in (embedding.vectors, embedding.space.covariance_values, embedding.space.covariance_vectors):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_pickled_embedding_is_its_path(tmp_path: Path) -> None:
    rows = vectors_of(500, 50)
    embedding = build_embedding(
        glove(tmp_path / "g.txt", [f"w{i}" for i in range(500)], rows), tmp_path / "b"
    )
    pickled = pickle.dumps(embedding)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert isinstance(again.vectors, np.memmap)
    np.testing.assert_array_equal(again.vectors, rows)
    build_embedding(glove(tmp_path / "h.txt"), tmp_path / "b", overwrite=True)
    with pytest.raises(BundleError, match="not the one that was sent"):
        pickle.loads(pickled)


def test_a_fingerprint_hashes_word_by_word(tmp_path: Path) -> None:
    """Rejects lengths in letters, words that run into one another, and flags of other words."""
    words = ["a", "naïve", "日本", "ab", "c"]
    denied, source = tmp_path / "denied", glove(tmp_path / "g.txt", words, vectors_of(5, 3))
    denied.write_text("ab\n")
    embedding = build_embedding(source, tmp_path / "b", never_output=denied)
    manifest, digest = embedding.manifest, hashlib.sha256()
    for row, word in enumerate(embedding.words.to_pylist()):
        encoded = word.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded + bytes([row < 4]))
    names = ("format_version", "geometry", "normalization", "words", "releasable", "dimension")
    hashed = {name: getattr(manifest, name) for name in names} | {
        "words_sha256": digest.hexdigest(),
        "vectors_sha256": hashlib.sha256((embedding.path / "vectors.npy").read_bytes()).hexdigest(),
    }
    canonical = json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()
    assert embedding.fingerprint == hashlib.sha256(canonical).hexdigest()


# Damage


@pytest.mark.parametrize("name", EUCLIDEAN_FILES)
def test_a_flipped_bit_is_found_wherever_it_is(bundle: Path, name: str) -> None:
    whole = (bundle / name).read_bytes()
    # Every byte of a small file, about 300 of a larger one; the bit varies with the byte.
    for offset in range(0, len(whole), max(1, len(whole) // 300)):
        changed = bytearray(whole)
        changed[offset] ^= 1 << (offset * 5 + offset // 8) % 8
        (bundle / name).write_bytes(changed)
        with pytest.raises(BundleError, match=re.escape(name)):
            Embedding.open(bundle)
    (bundle / name).write_bytes(whole)
    Embedding.open(bundle)


@pytest.mark.parametrize("name", EUCLIDEAN_FILES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_file_cut_short_or_missing_is_found(bundle: Path, name: str, verify: bool) -> None:
    whole = (bundle / name).read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (bundle / name).write_bytes(whole[:size])
        with pytest.raises(BundleError, match=re.escape(name)):
            Embedding.open(bundle, verify=verify)
    (bundle / name).unlink()
    with pytest.raises(BundleError, match=re.escape(name)):
        Embedding.open(bundle, verify=verify)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("vectors.npy", vectors_of().astype(np.float64)),
        ("vectors.npy", vectors_of(6)),
        ("vectors.npy", np.asfortranarray(vectors_of())),
        ("half_norms.npy", np.ones(6, np.float32)),
        ("covariance_values.npy", np.ones(3, np.float32)),
        ("covariance_vectors.npy", np.ones((3, 2))),
    ],
)
def test_an_array_of_another_type_or_shape_is_found(bundle: Path, name: str, array: np.ndarray) -> None:
    np.save(bundle / name, array)
    with pytest.raises(BundleError, match=rf"{name} of the bundle is damaged: .*shape"):
        Embedding.open(bundle, verify=False)
    files = json.loads((bundle / "manifest.json").read_bytes())["files"]
    resealed(bundle, files=files | {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest()})
    with pytest.raises(BundleError):
        Embedding.open(bundle)


def test_words_that_disagree_with_the_manifest_are_found(bundle: Path) -> None:
    original = (bundle / "manifest.json").read_bytes()
    for changes, message in [
        ({"words": 6}, "its length"),
        ({"releasable": 3}, "releasable words are not the first rows"),
        ({"normalization": "unit"}, "fingerprint does not belong"),
        ({"fingerprint": "0" * 64}, "fingerprint does not belong"),
        ({"format_version": 1}, "built by another version"),
        ({"geometry": "poincare"}, "list of files"),
        ({"geometry": "flat"}, "geometry"),
        ({"files": {"../manifest.json": "0"}}, "list of files"),
        ({"comment": "x"}, "entries"),
    ]:
        resealed(bundle, **changes)
        with pytest.raises(BundleError, match=message):
            Embedding.open(bundle)
        (bundle / "manifest.json").write_bytes(original)
    Embedding.open(bundle)


def test_a_bundle_of_another_version_is_not_called_damaged(bundle: Path) -> None:
    """However the other version names its entries and seals them."""
    entries = json.loads((bundle / "manifest.json").read_bytes()) | {"format_version": 7}
    more, fewer = {**entries, "tokenizer": "x"}, {"format_version": 7, "vectors": {}}
    for other in (entries, more, fewer, {**more, "sha256": "0"}):
        (bundle / "manifest.json").write_text(json.dumps(other))
        for verify in (True, False):
            with pytest.raises(BundleError) as caught:
                Embedding.open(bundle, verify=verify)
            message = str(caught.value)
            assert message.startswith("The embedding bundle was built by another version of dptext_spark.")
            assert f"Allowed: format version {FORMAT_VERSION}. Got: format version 7 in {bundle}" in message
            assert "Build the bundle again" in message


def test_a_manifest_written_in_another_way_is_refused(bundle: Path) -> None:
    entries = json.loads((bundle / "manifest.json").read_bytes())
    for text in (json.dumps(entries), "[]", "{}", '"x"', "\x00"):
        (bundle / "manifest.json").write_text(text)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            Embedding.open(bundle)


def test_what_is_no_bundle_is_not_opened(tmp_path: Path) -> None:
    glove(tmp_path / "g.txt")
    for path in (tmp_path, tmp_path / "absent", tmp_path / "g.txt"):
        with pytest.raises(BundleError, match="no embedding bundle"):
            Embedding.open(path)


def test_a_poincare_bundle_is_replaced_and_checked(tmp_path: Path) -> None:
    embedding = poincare_bundle(tmp_path, ball_of(9, 2))
    options: dict[str, Any] = {"vocabulary": tmp_path / "vocab.txt", "geometry": "poincare"}
    again = build_embedding(tmp_path / "points.npy", embedding.path, overwrite=True, **options)
    assert again.fingerprint == embedding.fingerprint
    for name in POINCARE_FILES:
        whole = (embedding.path / name).read_bytes()
        (embedding.path / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(BundleError, match=re.escape(name)):
            Embedding.open(embedding.path)
        (embedding.path / name).unlink()
        with pytest.raises(BundleError, match=re.escape(name)):
            Embedding.open(embedding.path, verify=False)
        (embedding.path / name).write_bytes(whole)
    for name, array in (
        ("lorentz_time.npy", np.ones(8, np.float32)),
        ("lorentz_space.npy", np.ones((9, 2))),
    ):
        np.save(embedding.path / name, array)
        with pytest.raises(BundleError, match=rf"{name} of the bundle is damaged: .*shape"):
            Embedding.open(embedding.path, verify=False)
