"""Inverted lists: made the same each time, whole or not at all, every word in one of them."""

import json
import os
import pickle
import shutil
import sys

import numpy as np
import pytest

from dptext_spark.embedding import lists as module
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists, index_lists, list_counts, make_lists
from dptext_spark.errors import BundleError, ConfigError
from dptext_spark.sealing import file_sha256, sealed
from tests.helpers import worlds
from tests.helpers.bundles import content_of


@pytest.fixture
def bundle(tmp_path):
    """300 words, the first 200 of which may be released."""
    return worlds.build(tmp_path, worlds.uneven(300, 10), release_words=200)


def test_every_word_is_in_the_list_of_its_nearest_centroid(bundle):
    lists = make_lists(bundle, 8)
    assert lists.starts[0] == 0 and lists.starts[-1] == 200 and len(lists.centroids) == 8
    assert sorted(lists.rows.tolist()) == list(range(200))
    np.testing.assert_array_equal(lists.vectors, bundle.vectors[lists.rows])
    gaps = np.linalg.norm(lists.vectors[:, None].astype(float) - lists.centroids[None], axis=2)
    of = np.repeat(np.arange(8), np.diff(lists.starts))
    assert (gaps[np.arange(200), of] <= gaps.min(axis=1) + 1e-5).all()
    np.testing.assert_allclose(
        lists.half_norms, np.square(lists.vectors).sum(axis=1) / 2, rtol=1e-6
    )
    # A shorter release vocabulary ends each list earlier.
    held = [
        lists.rows[start:stop] for start, stop in zip(lists.starts, lists.stops(50), strict=False)
    ]
    assert sorted(np.concatenate(held).tolist()) == list(range(50))
    assert all((np.diff(rows) > 0).all() for rows in held)
    np.testing.assert_array_equal(lists.stops(200), lists.starts[1:])


def test_twins_and_more_lists_than_different_words_do_no_harm(tmp_path):
    """And equal bundles get equal bytes."""
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        bundle = worlds.build(tmp_path / name, np.repeat(worlds.uneven(5, 3), 8, axis=0))
        lists = make_lists(bundle, 16)
        assert sorted(lists.rows.tolist()) == list(range(40)) and np.isfinite(lists.centroids).all()
        contents.append(content_of(bundle.path / "parts"))
        assert len(make_lists(bundle).centroids) == 8  # near 1.6 times the root of 40
    assert contents[0] == contents[1] and len(contents[0]) == 7


def test_faiss_comes_with_kernels_for_this_processor(bundle, tmp_path, monkeypatch):
    """Rejects faiss as it comes: its old BLAS takes kernels of 2004 on a new processor, a fifth as fast."""
    (tmp_path / "faiss.py").write_text(
        "import os\nraise ImportError(os.environ['OPENBLAS_CORETYPE'])"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    monkeypatch.setattr(module, "threadpool_info", lambda: [{}, {"architecture": "Newest"}])
    with pytest.raises(ImportError, match="Newest"):
        make_lists(bundle, 8)
    assert "OPENBLAS_CORETYPE" not in os.environ


def test_lists_that_were_damaged_are_none(bundle):
    make_lists(bundle, 8)
    assert list_counts(Embedding.open(bundle.path)) == [8]
    file = bundle.path / "parts" / "ivf-8.vectors.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\7")
    again = Embedding.open(bundle.path)
    assert list_counts(again) == []
    with pytest.raises(ConfigError, match=r"has no index ivf:8.*none so far.*--index ivf:8"):
        InvertedLists.open(again, 8)


def test_impossible_indexes_are_refused(bundle, ball):
    for lists in (0, 1, 201):
        with pytest.raises(ConfigError, match=f"2 to 200.*{lists}"):
            make_lists(bundle, lists)
    assert not (bundle.path / "parts").exists()
    with pytest.raises(ConfigError, match="geometry poincare"):
        make_lists(ball, 4)
    assert index_lists("ivf") is None and index_lists("ivf:64") == 64
    for wrong in ("hnsw", "ivf:", "ivf:x", "ivf:-1", "ivf64"):
        with pytest.raises(ConfigError, match="ivf or ivf:LISTS"):
            index_lists(wrong)


@pytest.mark.parametrize("adopted", [False, True])
def test_an_index_that_changes_while_it_is_in_use_is_refused(bundle, adopted):
    """Rejects stamps of the bundle's own files alone, where it was opened and in a worker's copy."""
    make_lists(bundle, 8)
    used = Embedding.open(bundle.path)
    InvertedLists.open(used, 8)
    used = pickle.loads(pickle.dumps(used)) if adopted else used
    used.check_unchanged()
    (part,) = used.parts
    file = bundle.path / next(iter(part.files))
    file.rename(file.with_suffix(".old"))
    shutil.copy(file.with_suffix(".old"), file)
    with pytest.raises(BundleError, match=r"changed while it was in use.*parts"):
        used.check_unchanged()


def lie(bundle, name, change):
    """Change an array of the lists, with a record that fits it."""
    parts = bundle.path / "parts"
    file = parts / f"ivf-8.{name}.npy"
    np.save(file, change(np.load(file)))
    entries = json.loads((parts / "ivf-8.json").read_bytes())
    entries.pop("sha256")
    entries["files"][f"{name}.npy"] = file_sha256(file)
    (parts / "ivf-8.json").write_bytes(sealed(entries))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("starts", lambda starts: starts[:-1]),
        ("starts", lambda starts: starts + 1),
        ("starts", lambda starts: starts[::-1]),
        ("rows", lambda rows: rows + 1),
        ("rows", np.zeros_like),
        ("rows", lambda rows: rows.astype("<i8")),
        ("rows", lambda rows: rows[::-1]),
        ("vectors", lambda vectors: vectors[:, :-1]),
        ("centroids", lambda centroids: centroids * np.float32(np.nan)),
        ("half_norms", lambda norms: -norms),
    ],
)
def test_lists_that_lie_are_refused(bundle, name, change):
    """Rejects indexes out of range, and words that no search finds, where hashes fit."""
    make_lists(bundle, 8)
    lie(bundle, name, change)
    with pytest.raises(BundleError, match=r"ivf-8.* is damaged"):
        InvertedLists.open(Embedding.open(bundle.path), 8)


def test_a_record_whose_name_is_no_number_is_no_index(bundle):
    make_lists(bundle, 8)
    (bundle.path / "parts" / "ivf-x.json").write_text("{}")
    assert list_counts(Embedding.open(bundle.path)) == [8]
