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


# Damage


@pytest.fixture(params=["euclidean", "poincare"])
def any_bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "poincare":
        return poincare_bundle(tmp_path, ball_of(9, 2)).path
    return build_embedding(glove(tmp_path / "g.txt"), tmp_path / "bundle").path


def test_damage_is_found_wherever_it_is(any_bundle: Path) -> None:
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


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("vectors.npy", vectors_of().astype(np.float64)),
        ("vectors.npy", vectors_of(6)),
        ("vectors.npy", np.asfortranarray(vectors_of())),
        ("half_norms.npy", np.ones(6, np.float32)),
        ("covariance_values.npy", np.ones(3, np.float32)),
        ("covariance_vectors.npy", np.ones((3, 2))),
        ("lorentz_time.npy", np.ones(8, np.float32)),
        ("lorentz_space.npy", np.ones((9, 2))),
    ],
)
def test_an_array_of_another_type_or_shape_is_found(tmp_path: Path, name: str, array: np.ndarray) -> None:
    """Also where the manifest has its hash."""
    if name in EUCLIDEAN_FILES:
        bundle = build_embedding(glove(tmp_path / "g.txt"), tmp_path / "bundle").path
    else:
        bundle = poincare_bundle(tmp_path, ball_of(9, 2)).path
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
    for text in (json.dumps(json.loads(original)), "[]", "{}", '"x"', "\x00"):  # written in another way
        (bundle / "manifest.json").write_text(text)
        with pytest.raises(BundleError, match=r"manifest\.json"):
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


def test_what_is_no_bundle_is_not_opened(tmp_path: Path) -> None:
    glove(tmp_path / "g.txt")
    for path in (tmp_path, tmp_path / "absent", tmp_path / "g.txt"):
        with pytest.raises(BundleError, match="no embedding bundle"):
            Embedding.open(path)
