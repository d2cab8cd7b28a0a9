"""Codes of words: made once, with the bundle or in memory, and not at all where nothing can hold them."""

import errno
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from filelock import FileLock

from dptext_spark.embedding.bundle import PARTS, Embedding
from dptext_spark.errors import BundleError
from dptext_spark.geometry.ball import lorentz
from dptext_spark.sealing import file_sha256, sealed
from dptext_spark.search import code_files, kernel
from dptext_spark.search.codes import CodedWords
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.nearest import around_the_origin, faults, half_norms, hard_points, near_ties


def test_without_the_library_all_is_as_before(fresh, tmp_path):
    fresh.setattr(kernel, "find_spec", lambda name: None)
    bundle = worlds.build(tmp_path, near_ties(300, 8))
    search = ExactSearch.over(bundle).of_words(bundle)
    assert search.coarse is None and not (bundle.path / PARTS).exists()
    assert faults(search, bundle.vectors, hard_points(bundle.vectors, 40)) == 0


def test_codes_are_made_once_and_lie_with_the_bundle(fresh, tmp_path):
    """Rejects two processes that replace each other's files, damaged codes, and those of other words."""
    bundle, of, made = worlds.build(tmp_path, near_ties(900, 6)), CodedWords.of, []

    def counted(*given, **more):
        made.append(given)
        return of(*given, **more)

    def codes(own):
        return np.array(
            ExactSearch.over(own).of_words(own).coarse.codes
        )  # no map of what is damaged

    fresh.setattr(CodedWords, "of", counted)
    others = [Embedding.open(bundle.path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(codes, others))
    assert len(made) == 1 and all(np.array_equal(each, found[0]) for each in found)
    for own in others:
        own.check_unchanged()
    (file,) = (bundle.path / PARTS).glob("codes-*.codes.npy")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    assert (
        np.array_equal(codes(Embedding.open(bundle.path)), found[0]) and file.read_bytes() == whole
    )
    assert len(ExactSearch.over(bundle, 300).of_words(bundle).coarse.words) == 300


def test_a_bundle_that_cannot_be_written_to_has_codes_in_memory(fresh, tmp_path):
    """Rejects a map of a file on a full disk, whose writer ends by a signal, and large codes by process."""
    vectors = near_ties(900, 6)
    bundle = worlds.build(tmp_path, vectors)

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with fresh.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        assert ExactSearch.over(bundle).of_words(bundle).coarse is not None
    assert [path.name for path in (bundle.path / PARTS).iterdir()] == ["codes.lock"]
    shutil.rmtree(bundle.path / PARTS)
    (bundle.path / PARTS).write_text(
        "a file where the folder would be"
    )  # also root cannot write there
    own = ExactSearch.over(bundle).of_words(bundle).coarse
    assert np.array_equal(own.codes, CodedWords.of(vectors, 8).codes)
    fresh.setattr(code_files, "_PRIVATE", 100)
    images = ExactSearch(release_words=900).of_images(vectors, half_norms(vectors))
    for search in (ExactSearch.over(bundle).of_words(bundle), images):
        assert search.coarse is None


def test_a_bundle_of_the_ball_has_codes_of_its_form(fresh, tmp_path):
    """In the bundle and in memory; rejects the Euclidean form, whose bound does not hold for its words."""
    bundle = worlds.build(tmp_path, around_the_origin(300, 4), geometry="poincare")
    for folder in (True, False):
        own = ExactSearch.over(bundle).of_words(bundle).coarse
        assert own.score_terms is lorentz and (bundle.path / PARTS).is_dir() == folder
        assert np.array_equal(own.codes, CodedWords.of(bundle.vectors[:], 8, lorentz).codes)
        shutil.rmtree(bundle.path / PARTS, ignore_errors=True)
        (bundle.path / PARTS).write_text("a file where the folder would be")
        bundle = Embedding.open(bundle.path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("words", np.zeros_like),
        ("words", lambda words: words[:-1]),
        ("tiles", lambda tiles: tiles * np.nan),
        ("codes", lambda codes: codes.astype(np.int8)),
        ("unit", lambda unit: -unit),
        ("zero", lambda zero: zero + 1),
    ],
)
def test_codes_that_lie_are_refused(fresh, tmp_path, name, change):
    """Rejects words out of range and wrong bounds, where hashes fit."""
    bundle = worlds.build(tmp_path, near_ties(900, 6))
    ExactSearch.over(bundle).of_words(bundle)
    (record,) = (bundle.path / PARTS).glob("codes-*.json")
    entries = json.loads(record.read_bytes())
    entries.pop("sha256")
    file = bundle.path / PARTS / f"{record.stem}.{name}.npy"
    if file.exists():
        np.save(file, change(np.load(file)))
        entries["files"][f"{name}.npy"] = file_sha256(file)
    else:
        entries["values"][name] = change(entries["values"][name])
    record.write_bytes(sealed(entries))
    again = Embedding.open(bundle.path)
    with pytest.raises(BundleError, match=r"codes-.* is damaged"):
        ExactSearch.over(again).of_words(again)


def test_a_lock_that_somebody_holds_for_ever_costs_the_file_alone(fresh, tmp_path):
    """Rejects a run that waits without end: whoever may read the lock's file can hold it."""
    bundle = worlds.build(tmp_path, near_ties(900, 6))
    (bundle.path / PARTS).mkdir()
    fresh.setattr(code_files, "_PATIENCE", 0.0)
    with FileLock(bundle.path / PARTS / "codes.lock"):
        assert ExactSearch.over(bundle).of_words(bundle).coarse is not None
    assert not [*(bundle.path / PARTS).glob("codes-*")]
