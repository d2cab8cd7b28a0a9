"""Building of embedding bundles: same input, same bytes; nothing is left of a failure."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import math
import shutil
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.embedding import spaces
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import LARGEST_BALL_RADIUS, EuclideanSpace, PoincareBall, write_header
from dptext_spark.errors import BundleError
from tests.helpers.bundles import (
    EUCLIDEAN_FILES,
    POINCARE_FILES,
    WORDS,
    ball_of,
    content_of,
    glove,
    poincare_bundle,
    vectors_of,
)


def below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


# What is in a bundle


def test_a_bundle_holds_the_source(tmp_path: Path) -> None:
    source = glove(tmp_path / "g.txt")
    built = build_embedding(source, tmp_path / "bundle")
    assert sorted(content_of(tmp_path / "bundle")) == EUCLIDEAN_FILES
    for embedding in (built, Embedding.open(tmp_path / "bundle"), Embedding.open(str(tmp_path / "bundle"))):
        assert isinstance(embedding.space, EuclideanSpace)
        assert embedding.words.to_pylist() == WORDS and embedding.vectors.dtype == np.float32
        np.testing.assert_array_equal(embedding.vectors, vectors_of())
        manifest, count = embedding.manifest, len(WORDS)
        assert (embedding.dimension, embedding.space.geometry, embedding.releasable) == (
            3,
            "euclidean",
            count,
        )
        assert (manifest.format_version, manifest.words, manifest.releasable) == (2, count, count)
        assert (manifest.normalization, manifest.release_words_absent) == ("none", 0)
        assert manifest.source_name == "g.txt"
        assert manifest.source_sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert below(tmp_path) == {source, built.path} | {built.path / name for name in EUCLIDEAN_FILES}


def test_half_norms_and_covariance(tmp_path: Path) -> None:
    rows = (vectors_of(5000, 120) + np.linspace(0, 3, 120)).astype(np.float32)
    embedding = build_embedding(
        glove(tmp_path / "g.txt", [f"w{i}" for i in range(5000)], rows), tmp_path / "b"
    )
    wide = rows.astype(np.float64)
    assert isinstance(embedding.space, EuclideanSpace)
    assert embedding.space.half_norms.dtype == np.float32
    np.testing.assert_allclose(embedding.space.half_norms, (wide**2).sum(axis=1) / 2, rtol=6e-8)
    covariance = np.cov(wide, rowvar=False)
    covariance *= 120 / np.trace(covariance)
    values, vectors = embedding.space.covariance_values, embedding.space.covariance_vectors
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(values.sum(), 120, rtol=1e-12)
    np.testing.assert_allclose((vectors * values) @ vectors.T, covariance, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(120), atol=1e-12)
    assert (vectors.max(axis=0) == np.abs(vectors).max(axis=0)).all()  # the sign is settled
    # Fewer words than dimensions: no negative value.
    few = build_embedding(glove(tmp_path / "few.txt", WORDS, vectors_of(n=20)), tmp_path / "few").space
    assert isinstance(few, EuclideanSpace) and few.covariance_values.min() >= 0
    assert np.count_nonzero(few.covariance_values > 1e-9) == len(WORDS) - 1


def test_unit_normalization(tmp_path: Path) -> None:
    rows = vectors_of() * np.float32(1e-20) ** (np.arange(len(WORDS), dtype=np.float32)[:, None] / 6)
    embedding = build_embedding(glove(tmp_path / "g.txt", WORDS, rows), tmp_path / "b", normalize="unit")
    wide = rows.astype(np.float64)
    expected = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    np.testing.assert_array_max_ulp(np.asarray(embedding.vectors), expected, maxulp=1)
    np.testing.assert_allclose(np.linalg.norm(embedding.vectors.astype(np.float64), axis=1), 1, atol=1e-7)
    assert embedding.manifest.normalization == "unit"
    assert isinstance(embedding.space, EuclideanSpace)
    np.testing.assert_allclose(embedding.space.half_norms, 0.5, atol=1e-6)


# Release words


def test_release_words_of_a_file_come_first_in_source_order(tmp_path: Path) -> None:
    chosen = tmp_path / "release.txt"
    chosen.write_text("cat\nabsent\nnew york\nof\r\n\nalso absent\ncat", encoding="utf-8")
    embedding = build_embedding(glove(tmp_path / "g.txt"), tmp_path / "b", release_words=chosen)
    order = [1, 4, 6, 0, 2, 3, 5]
    assert embedding.words.to_pylist() == [WORDS[i] for i in order]
    np.testing.assert_array_equal(embedding.vectors, vectors_of()[order])
    assert embedding.releasable == 3
    assert embedding.manifest.release_words_absent == 2
    flags = pq.read_table(embedding.path / "words.parquet")["releasable"].to_pylist()
    assert flags == [True] * 3 + [False] * 4
    by_name = build_embedding(glove(tmp_path / "g.txt"), tmp_path / "c", release_words=str(chosen))
    assert content_of(by_name.path) == content_of(embedding.path)


ODD = [
    "the", "U.S.", "e-mail", ",", "new_york", "...", "'s", "n't", "don't", "(800)", "cafe\u0301", "mr.", "mr",
]  # fmt: skip
UNMATCHABLE = [",", "...", "(800)", "cafe\u0301", "mr."]


def test_words_that_no_text_can_hold_are_not_released_unless_asked_for(tmp_path: Path) -> None:
    """Rejects substitutes that no reader takes for a word of a text."""
    source = glove(tmp_path / "g.txt", ODD)
    found = {
        chosen: build_embedding(source, tmp_path / f"b{chosen}", release_words=chosen)
        for chosen in (None, 3, 5, "all")
    }
    fitting = [word for word in ODD if word not in UNMATCHABLE]
    plain = found[None]
    assert plain.words.to_pylist() == fitting + UNMATCHABLE
    assert (plain.releasable, plain.manifest.unmatchable, plain.inputs) == (8, 5, 8)
    np.testing.assert_array_equal(plain.vectors[8], vectors_of(len(ODD))[3])
    assert found[3].words.to_pylist() == fitting + UNMATCHABLE
    assert (found[3].releasable, found[3].inputs) == (3, 8)
    assert found[5].words[:5].to_pylist() == ["the", "U.S.", "e-mail", "new_york", "'s"]
    assert (found["all"].releasable, found["all"].inputs) == (13, 13)
    assert found["all"].words.to_pylist() == ODD
    assert found["all"].manifest.unmatchable == found["all"].manifest.unmatchable_releasable == 5
    assert len({embedding.fingerprint for embedding in found.values()}) == 4
    assert "Words that no text can hold: 5; they may not be output" in plain.manifest.describe()
    with pytest.raises(BundleError, match="at most 8"):
        build_embedding(source, tmp_path / "more", release_words=9)
    chosen_file = tmp_path / "chosen.txt"
    chosen_file.write_text("the\n,\nmr.\n")
    by_name = build_embedding(source, tmp_path / "c", release_words=chosen_file)
    assert by_name.words[: by_name.releasable].to_pylist() == ["the", ",", "mr."]
    assert (by_name.manifest.unmatchable_releasable, by_name.inputs) == (2, 10)


def test_denied_words_are_never_released(tmp_path: Path) -> None:
    """In any capitals, as a part of joined words, and against a file that releases them."""
    words = ["the", "Bad", "bad", "badly", "new_bad_word", "red neck", "of", "to"]
    source, denied = glove(tmp_path / "g.txt", words), tmp_path / "never.txt"
    denied.write_text("BAD\r\nabsent word\n\nred neck\n")
    embedding = build_embedding(source, tmp_path / "b", never_output=denied)
    order = [0, 3, 6, 7, 1, 2, 4, 5]
    assert embedding.words.to_pylist() == [words[row] for row in order]
    manifest = embedding.manifest
    assert (embedding.releasable, manifest.never_output, manifest.never_output_absent) == (4, 4, 1)
    assert embedding.inputs == 8
    said = "Words that may never be output: 4; entries of the deny list without any: 1"
    assert said in manifest.describe()
    first = build_embedding(source, tmp_path / "n", release_words=2, never_output=str(denied))
    assert first.words[: first.releasable].to_pylist() == ["the", "badly"]
    chosen = tmp_path / "chosen.txt"
    chosen.write_text("the\nbad\nto\n")
    both = build_embedding(source, tmp_path / "f", release_words=chosen, never_output=denied)
    assert both.words[: both.releasable].to_pylist() == ["the", "to"]
    assert both.manifest.release_words_absent == 0
    everything = build_embedding(source, tmp_path / "a", release_words="all", never_output=denied)
    assert everything.fingerprint == embedding.fingerprint


@pytest.mark.parametrize(
    ("content", "released"),
    [
        (codecs.BOM_UTF8 + b"bad\n", ["the", "of", "\u0130STANBUL"]),
        (b" bad \rof\r", ["the", "\u0130STANBUL"]),
        (b"istanbul\nbad", ["the", "of"]),
        (b"'bad'\n'of'", None),
        (b"bad,\nof,", None),
        (b"# bad", None),
        ("bad\nof".encode("utf-16"), None),
    ],
)
def test_a_deny_list_denies_or_is_refused(tmp_path: Path, content: bytes, released: list[str] | None) -> None:
    """Rejects lists that deny nothing without a word, for how they were written."""
    source, denied = glove(tmp_path / "g.txt", ["the", "bad", "of", "\u0130STANBUL"]), tmp_path / "never.txt"
    denied.write_bytes(content)
    if released is None:
        with pytest.raises(BundleError, match=r"--never-output.*UTF-8"):
            build_embedding(source, tmp_path / "b", never_output=denied)
        assert below(tmp_path) == {source, denied}
        return
    embedding = build_embedding(source, tmp_path / "b", never_output=denied)
    assert embedding.words[: embedding.releasable].to_pylist() == released


def test_a_deny_list_that_leaves_too_few_words_is_refused(tmp_path: Path) -> None:
    source, denied = glove(tmp_path / "g.txt", ["the", "of", "to"]), tmp_path / "never.txt"
    denied.write_text("the\nof\n")
    with pytest.raises(
        BundleError, match=r"at least 2 that may be released.*Got: 1, and 2 that may not be output"
    ):
        build_embedding(source, tmp_path / "b", never_output=denied)
    with pytest.raises(BundleError, match=r"file of --never-output cannot be read.*absent.txt"):
        build_embedding(source, tmp_path / "b", never_output=tmp_path / "absent.txt")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("first", [5, "5"])
def test_the_first_words_are_released(tmp_path: Path, first: int | str) -> None:
    embedding = build_embedding(glove(tmp_path / "g.txt"), tmp_path / "b", release_words=first)
    assert (embedding.releasable, embedding.words.to_pylist()) == (5, WORDS)


def test_rows_and_places_over_many_blocks(tmp_path: Path) -> None:
    words, rows, chosen = [f"w{i}" for i in range(9000)], vectors_of(9000, 2), tmp_path / "release.txt"
    chosen.write_text("\n".join(words[::3]))
    embedding = build_embedding(glove(tmp_path / "g.txt", words, rows), tmp_path / "b", release_words=chosen)
    order = sorted(range(9000), key=lambda i: i % 3 != 0)
    assert embedding.words.to_pylist() == [words[i] for i in order]
    np.testing.assert_array_equal(embedding.vectors, rows[order])
    rows[8500] = 0
    with pytest.raises(BundleError, match="line 8501: the vector is zero"):
        build_embedding(glove(tmp_path / "g.txt", words, rows), tmp_path / "c")
    equal = np.tile(vectors_of(1, 50), (4999, 1))
    with pytest.raises(BundleError, match="no variance"):  # whatever their rounding
        build_embedding(glove(tmp_path / "g.txt", words[:4999], equal), tmp_path / "c")


# Poincaré


def ball(path: Path, *rows: str) -> Path:
    path.write_text("".join(row + "\n" for row in rows))
    return path


def test_poincare_keeps_float64_and_the_origin(tmp_path: Path) -> None:
    source = ball(tmp_path / "p.txt", "root 0 0", "edge 0.999999 0", "leaf 0.1 -0.3")
    embedding = build_embedding(source, tmp_path / "b", geometry="poincare")
    assert sorted(content_of(embedding.path)) == POINCARE_FILES
    assert embedding.space.geometry == "poincare"
    assert embedding.vectors.dtype == np.float64
    assert embedding.vectors.tolist() == [[0, 0], [0.999999, 0], [0.1, -0.3]]
    assert isinstance(embedding.space, PoincareBall)
    assert Embedding.open(embedding.path).fingerprint == embedding.fingerprint


def test_points_too_near_the_edge_are_refused(tmp_path: Path) -> None:
    within = math.tanh(LARGEST_BALL_RADIUS / 2)
    source = ball(tmp_path / "p.txt", "root 0 0", f"leaf 0 {within!r}")
    assert len(build_embedding(source, tmp_path / "b", geometry="poincare").words) == 2
    source = ball(tmp_path / "q.txt", "root 0 0", f"leaf {math.nextafter(within, 1) + 1e-12!r} 0")
    with pytest.raises(BundleError, match=r"line 2.*too near the edge.*radius of 14.6.*Got: 1 - 9.1e-07"):
        build_embedding(source, tmp_path / "c", geometry="poincare")
    assert not (tmp_path / "c").exists()


def test_poincare_has_lorentz_coordinates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = ball_of(1000, 7)
    embedding = poincare_bundle(tmp_path, points)
    space, time = embedding.space.lorentz_space, embedding.space.lorentz_time
    for array, shape in ((space, (1000, 7)), (time, (1000,))):
        assert isinstance(array, np.memmap)
        assert (array.dtype, array.shape) == (np.float32, shape)
        assert array.flags.c_contiguous
        assert np.isfinite(array).all()
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    rim = np.array([float(1 - sum(Fraction(x) ** 2 for x in point)) for point in points.tolist()])
    np.testing.assert_allclose(time, 2 / rim - 1, rtol=1e-7)
    np.testing.assert_allclose(space, 2 * points / rim[:, None], rtol=1e-7)
    monkeypatch.setattr(spaces, "_BLOCK_FLOATS", 7 * 13)
    assert content_of(poincare_bundle(tmp_path, points).path) == content_of(embedding.path)


# Same bytes, same fingerprint


def test_identical_input_gives_identical_bytes(tmp_path: Path) -> None:
    source = glove(tmp_path / "g.txt")
    options: dict[str, Any] = {"normalize": "unit", "release_words": 4, "limit": 6}
    first = build_embedding(source, tmp_path / "a", **options)
    (tmp_path / "elsewhere").mkdir()
    copied = Path(shutil.copy(source, tmp_path / "elsewhere" / "g.txt"))
    second = build_embedding(copied, tmp_path / "elsewhere" / "b", **options)
    assert content_of(first.path) == content_of(second.path)


def test_the_number_of_threads_does_not_change_a_byte(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"w{i}\n" for i in range(4000)))
    np.save(tmp_path / "vectors.npy", vectors_of(4000, 300))
    contents = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            contents.append(content_of(build_embedding(tmp_path, tmp_path / f"b{threads}").path))
    assert contents[0] == contents[1]


def test_fingerprint_is_what_the_documentation_says(tmp_path: Path) -> None:
    """Rejects lengths in letters, words that run into one another, and flags of other words."""
    source = glove(tmp_path / "g.txt", ["a", "naïve", "日本", "ab", "c"])
    points = ball(tmp_path / "p.txt", "root 0 0", "leaf 0.1 -0.3")
    for embedding in (
        build_embedding(source, tmp_path / "a"),
        build_embedding(source, tmp_path / "b", normalize="unit", release_words=3),
        build_embedding(points, tmp_path / "c", geometry="poincare"),
    ):
        words = hashlib.sha256()
        for row, word in enumerate(embedding.words.to_pylist()):
            encoded = word.encode()
            words.update(len(encoded).to_bytes(8, "little") + encoded + bytes([row < embedding.releasable]))
        vectors = hashlib.sha256((embedding.path / "vectors.npy").read_bytes())
        canonical = (
            f'{{"dimension":{embedding.dimension},"format_version":2,"geometry":"{embedding.space.geometry}",'
            f'"normalization":"{embedding.manifest.normalization}","releasable":{embedding.releasable},'
            f'"vectors_sha256":"{vectors.hexdigest()}",'
            f'"words":{len(embedding.words)},"words_sha256":"{words.hexdigest()}"}}'
        )
        assert embedding.fingerprint == hashlib.sha256(canonical.encode()).hexdigest()


def test_fingerprint_forgets_the_source_and_nothing_else(tmp_path: Path) -> None:
    source = glove(tmp_path / "g.txt")
    (tmp_path / "packed.vec.gz").write_bytes(
        gzip.compress(f"{len(WORDS)} 3\n".encode() + source.read_bytes())
    )
    plain = build_embedding(source, tmp_path / "a")
    packed = build_embedding(tmp_path / "packed.vec.gz", tmp_path / "b")
    assert packed.fingerprint == plain.fingerprint
    assert packed.manifest.source_sha256 != plain.manifest.source_sha256
    limited = build_embedding(source, tmp_path / "l", limit=3)
    head = b"".join(source.read_bytes().splitlines(keepends=True)[:3])
    assert limited.words.to_pylist() == WORDS[:3]
    assert limited.manifest.source_sha256 == hashlib.sha256(head).hexdigest()
    changed = vectors_of()
    changed[2, 1] = np.nextafter(changed[2, 1], np.float32(9))
    others = [
        build_embedding(source, tmp_path / "c", release_words=3),
        build_embedding(source, tmp_path / "d", normalize="unit"),
        build_embedding(source, tmp_path / "e", limit=6),
        build_embedding(glove(tmp_path / "h.txt", [*WORDS[:-1], "cats"]), tmp_path / "f"),
        build_embedding(glove(tmp_path / "i.txt", WORDS, changed), tmp_path / "h"),
    ]
    assert len({embedding.fingerprint for embedding in [plain, *others]}) == 6


# Faults of a source: the place is named, nothing is written


GOOD = b"a 1 2\nb 3 4\n"
FAULTS: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "zero vector": (GOOD + b"secretword 0 -0.0\n", {}, "g.txt, line 3: the vector is zero"),
    "zero, normalized": (b"3 2\n" + GOOD + b"secretword 0 0\n", {"normalize": "unit"}, "line 4: .*is zero"),
    "zero in float32": (b"a 1 2\nsecretword 1e-50 0\n", {}, "line 2: the vector is zero"),
    "too long": (b"a 1 2\nsecretword 3e38 1\n", {}, "line 2: the vector's length is out of range"),
    "too short": (b"a 1 2\nsecretword 1e-22 0\n", {}, "line 2: the vector's length is out of range"),
    "duplicate": (GOOD + b"a 5 6\n", {}, "line 3: .*line 1 "),
    "cut short": (GOOD + b"secretword 5", {}, "line 3: .*cut short"),
    "one word": (b"a 1 2\n", {}, "too few words"),
    "one word within the limit": (GOOD, {"limit": 1}, "too few words"),
    "no variance": (b"a 0.1 0.7\nb 0.1 0.7\nc 0.1 0.7\n", {}, "no variance"),
    "one released word": (GOOD, {"release_words": 1}, "at least 2"),
    "no released word": (GOOD, {"release_words": "0"}, "at least 2"),
    "more released than read": (GOOD, {"release_words": 3}, "at most 2.*Got: 3"),
    "release file absent": (GOOD, {"release_words": "absent.txt"}, "file of --release-words cannot be read"),
    "unknown geometry": (GOOD, {"geometry": "spherical"}, "euclidean, poincare"),
    "unknown normalization": (GOOD, {"normalize": "max"}, "none, unit"),
    "point on the sphere": (b"a 0 0\nsecretword 0.6 0.8\n", {"geometry": "poincare"}, "line 2: .*inside"),
    "point outside": (b"a 0 0\nb 0 .1\nc 2 0\n", {"geometry": "poincare"}, "line 3: .*inside"),
    "normalized points": (GOOD, {"geometry": "poincare", "normalize": "unit"}, "cannot be normalized"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_nothing(tmp_path: Path, bundle: Path, name: str) -> None:
    content, options, message = FAULTS[name]
    (tmp_path / "g.txt").write_bytes(content)
    before, listed = content_of(bundle), below(tmp_path)
    for output in (tmp_path / "new", bundle):
        with pytest.raises(BundleError, match=message) as caught:
            build_embedding(tmp_path / "g.txt", output, overwrite=output == bundle, **options)
        assert "secretword" not in str(caught.value)
        assert (below(tmp_path), content_of(bundle)) == (listed, before)


def test_faults_of_a_release_file(tmp_path: Path) -> None:
    source, chosen = glove(tmp_path / "g.txt"), tmp_path / "release.txt"
    for content, message in [
        (b"secretword\n\n'the'\n", r"No entry of release.txt \(--release-words\).*none of lines 1, 3"),
        (b"", "one word a line.*Got: an empty list"),
        (b"DOG\nsecretword\n", "at least 2"),
        (b"dog\ncat\nsecretword\xff\n", "release.txt, line 3: .*UTF-8"),
    ]:
        chosen.write_bytes(content)
        with pytest.raises(BundleError, match=message) as caught:
            build_embedding(source, tmp_path / "b", release_words=chosen)
        assert "secretword" not in str(caught.value)
        assert below(tmp_path) == {source, chosen}


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = glove(tmp_path / "g.txt")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dptext_spark.embedding.build.words_schema", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build_embedding(source, tmp_path / "b")
    assert below(tmp_path) == {source}


# The output


def test_an_existing_output_is_replaced_only_when_asked(tmp_path: Path, bundle: Path) -> None:
    before = content_of(bundle)
    other = glove(tmp_path / "h.txt", WORDS[:4])
    with pytest.raises(BundleError, match="output exists"):
        build_embedding(other, bundle)
    assert content_of(bundle) == before
    old = Embedding.open(bundle)
    assert build_embedding(other, bundle, overwrite=True).words.to_pylist() == WORDS[:4]
    np.testing.assert_array_equal(old.vectors, vectors_of())  # who had it open keeps what it had
    assert {path.name for path in tmp_path.iterdir()} == {"g.txt", "h.txt", "bundle"}


def test_what_was_computed_from_a_bundle_goes_with_it(tmp_path: Path, bundle: Path) -> None:
    """Rejects a cache that outlives its bundle, and one that makes a bundle look like a user's folder."""
    (bundle / "parts").mkdir()
    (bundle / "parts" / "projection.json").write_text("{}")
    assert Embedding.open(bundle).words.to_pylist() == WORDS
    build_embedding(glove(tmp_path / "h.txt", WORDS[:4]), bundle, overwrite=True)
    assert not (bundle / "parts").exists()


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "link", "extra file", "other manifest"])
def test_what_is_no_bundle_is_never_replaced(tmp_path: Path, bundle: Path, kind: str) -> None:
    output = tmp_path / "output"
    if kind in ("folder", "empty folder"):
        output.mkdir()
    if kind == "folder":
        (output / "thesis.txt").write_text("precious")
    if kind == "file":
        output.write_text("precious")
    if kind == "link":
        output.symlink_to(bundle)
    if kind == "extra file":
        shutil.copytree(bundle, output)
        (output / "thesis.txt").write_text("precious")
    if kind == "other manifest":
        output.mkdir()
        (output / "manifest.json").write_text('{"name": "a web site"}')
    listed = below(tmp_path)
    with pytest.raises(BundleError, match="no embedding bundle"):
        build_embedding(tmp_path / "g.txt", output, overwrite=True)
    assert below(tmp_path) == listed


def test_a_swap_that_fails_puts_the_old_bundle_back(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, listed = content_of(bundle), below(tmp_path)
    rename = Path.rename

    def fails_for_the_new_one(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_for_the_new_one)
    with pytest.raises(OSError, match="no"):
        build_embedding(tmp_path / "g.txt", bundle, limit=3, overwrite=True)
    assert content_of(bundle) == before
    assert below(tmp_path) == listed


def test_the_folder_above_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the output may be relative."""
    source = glove(tmp_path / "g.txt")
    with pytest.raises(BundleError, match="does not exist"):
        build_embedding(source, tmp_path / "a" / "b")
    assert below(tmp_path) == {source}
    monkeypatch.chdir(tmp_path)
    assert (
        len(build_embedding("g.txt", "b").words) == len(WORDS)
        and (tmp_path / "b" / "manifest.json").is_file()
    )


def test_memory_does_not_grow_with_the_matrix(tmp_path: Path) -> None:
    """Rejects a matrix that is held whole: at 40,000 rows of 400 it would be 64 MB."""
    rows, n = 40_000, 400
    with (tmp_path / "vectors.npy").open("wb") as file:
        write_header(file, np.dtype(np.float32), (rows, n))
        for _ in range(rows // 400):
            file.write(vectors_of(400, n).data)
    (tmp_path / "vocab.txt").write_text("".join(f"w{i}\n" for i in range(rows)))
    tracemalloc.start()
    try:
        build_embedding(tmp_path, tmp_path / "b")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The words themselves, their set and their list, take most of this.
    assert peak < 4 * n * rows / 2
