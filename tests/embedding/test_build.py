"""Building of embedding bundles: same input, same bytes; nothing is left of a failure."""

import hashlib
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import BundleError
from dptext_spark.sealing import sealed
from tests.helpers.bundles import (
    EUCLIDEAN_FILES,
    WORDS,
    content_of,
    glove,
    vectors_of,
)


def below(folder):
    return set(folder.rglob("*"))


def test_a_bundle_holds_the_source(tmp_path, monkeypatch):
    """Whose name, and the output's, may be relative."""
    source = glove(tmp_path / "g.txt")
    monkeypatch.chdir(tmp_path)
    built = build_embedding("g.txt", "bundle")
    files = {tmp_path / "bundle" / name for name in EUCLIDEAN_FILES}
    assert below(tmp_path) == {source, tmp_path / "bundle", *files}
    for embedding in (built, Embedding.open(str(tmp_path / "bundle"))):
        assert embedding.words.to_pylist() == WORDS and embedding.vectors.dtype == np.float32
        np.testing.assert_array_equal(embedding.vectors, vectors_of())
        manifest, count = embedding.manifest, len(WORDS)
        assert (manifest.format_version, manifest.words, embedding.releasable) == (3, count, count)
        assert (embedding.dimension, manifest.geometry, manifest.normalization) == (
            3,
            "euclidean",
            "none",
        )
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        assert (manifest.source_name, manifest.source_sha256) == ("g.txt", digest)


def test_memory_does_not_grow_with_the_matrix(tmp_path):
    """Rejects a matrix that is held whole: at 40,000 rows of 400 it would be 64 MB."""
    rows, n = 40_000, 400
    np.save(tmp_path / "vectors.npy", np.tile(vectors_of(400, n), (rows // 400, 1)))
    (tmp_path / "vocab.txt").write_text("".join(f"w{i}\n" for i in range(rows)))
    tracemalloc.start()
    try:
        build_embedding(tmp_path, tmp_path / "b")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The words themselves, their set and their list, take most of this.
    assert peak < 4 * n * rows / 2


FITTING = [
    "the", "U.S.", "e-mail", "new_york", "'s", "n't", "don't", "mr", "Bad", "bad", "badly", "new_bad_word",
]  # fmt: skip
UNMATCHABLE = [",", "...", "(800)", "e\u00ad-mail", "mr."]
ALL = [*FITTING[:3], *UNMATCHABLE, *FITTING[3:]]


@pytest.mark.parametrize(
    ("chosen", "denied", "output", "absent"),
    [
        (None, None, FITTING, (0, 0)),
        (3, None, FITTING[:3], (0, 0)),
        ("5", None, FITTING[:5], (0, 0)),
        ("all", None, ALL, (0, 0)),
        (b"mr.\nabsent\nnew york\n,\r\n\nthe\nmr.", None, ["the", ",", "mr.", "new_york"], (1, 0)),
        # Denied in any capitals, as a part of joined words, and against what releases them.
        (None, b"BAD\r\nabsent word\n\nnew york\n", [*FITTING[:3], *FITTING[4:8], "badly"], (0, 1)),
        (2, b"The", ["U.S.", "e-mail"], (0, 0)),
        (b"the\nbad\n,\n", b"BAD", ["the", ","], (0, 0)),
        (
            "all",
            b"bad\n,",
            [word for word in ALL if word not in ("Bad", "bad", "new_bad_word", ",")],
            (0, 0),
        ),
    ],
)
def test_words_that_may_be_output_come_first_in_source_order(
    tmp_path, chosen, denied, output, absent
):
    """Rejects substitutes that no reader takes for a word of a text, unless they are asked for."""
    options = {"release_words": chosen, "never_output": denied}
    for name, content in options.items():
        if isinstance(content, bytes):
            options[name] = written = tmp_path / name
            written.write_bytes(content)
    embedding = build_embedding(glove(tmp_path / "g.txt", ALL), tmp_path / "b", **options)
    manifest, others = embedding.manifest, [word for word in FITTING if word not in output]
    words = [*output, *others, *(word for word in UNMATCHABLE if word not in output)]
    assert (embedding.words.to_pylist(), embedding.releasable) == (words, len(output))
    np.testing.assert_array_equal(embedding.vectors, vectors_of(len(ALL))[[*map(ALL.index, words)]])
    flags = pq.read_table(embedding.path / "words.parquet")["releasable"].to_pylist()
    assert flags == [word in output for word in words]
    assert embedding.inputs == len({*output, *others})
    assert (manifest.unmatchable, manifest.unmatchable_releasable) == (
        5,
        len({*UNMATCHABLE} & {*output}),
    )
    assert (manifest.release_words_absent, manifest.never_output_absent) == absent
    said = manifest.describe()
    assert ("words in a text: 5; they will not be output" in said) == (
        not {*UNMATCHABLE} & {*output}
    )
    assert ("\nDenied words, which will never be output: " in said) == (denied is not None)


def test_identical_input_gives_identical_bytes(tmp_path):
    """Wherever it lies, and by any number of threads."""
    words, contents = [f"w{i}" for i in range(4000)], []
    source = glove(tmp_path / "g.txt", words, vectors_of(4000, 100))
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        options = {"normalize": "unit", "release_words": 4, "limit": 3999}
        with threadpool_limits(threads):
            copied = Path(shutil.copy(source, folder / "g.txt"))
            contents.append(content_of(build_embedding(copied, folder / "b", **options).path))
    assert contents[0] == contents[1]


GOOD = b"a 1 2\nb 3 4\n"
FAULTS = {
    "zero vector": (GOOD + b"secretword 0 -0.0\n", {}, "g.txt, line 3: the vector is zero"),
    "zero in float32": (b"a 1 2\nsecretword 1e-50 0\n", {}, "line 2: the vector is zero"),
    "too long": (b"a 1 2\nsecretword 3e38 1\n", {}, "line 2: the vector's length is not between"),
    "too short": (b"a 1 2\nsecretword 1e-22 0\n", {}, "line 2: the vector's length is not between"),
    "one word": (b"a 1 2\n", {}, "At least 2 words"),
    "no variance": (b"".join(b"w%d 0.1 0.7\n" % row for row in range(4999)), {}, "no variance"),
    "one released word": (GOOD, {"release_words": 1}, "At least 2 words.*got 1"),
    "more released than fit": (GOOD + b", 1 1\n", {"release_words": 3}, "at most 2; got 3"),
    "release file absent": (GOOD, {"release_words": "absent.txt"}, "file of --release-words cannot be read"),
    "release file of other words": (GOOD, {"list": ("release_words", b"secretword\n\n'a'\n")},
                                    r"No entry of list.txt \(--release-words\).*none of lines 1, 3"),
    "release file of one word": (GOOD, {"list": ("release_words", b"B\nsecretword\n")}, "At least 2 words"),
    "deny list of other words": (GOOD, {"list": ("never_output", b"# a")}, r"list.txt \(--never-output\)"),
    "all but one denied": (GOOD, {"list": ("never_output", b"A")}, "got 1, and 1 denied ones"),
    "unknown geometry": (GOOD, {"geometry": "spherical"}, "spherical .*euclidean, none or unit; poin"),
    "normalized points": (GOOD, {"geometry": "poincare", "normalize": "unit"}, "normalization unit cannot"),
    "no folder above": (GOOD, {"output": "a/b"}, "does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_nothing(tmp_path, bundle, name):
    """Neither beside a bundle that is to be replaced, nor under a new name."""
    content, options, message = FAULTS[name]
    options = {"strict": True, **options}
    (tmp_path / "g.txt").write_bytes(content)
    if "list" in options:
        option, listed = options.pop("list")
        (tmp_path / "list.txt").write_bytes(listed)
        options[option] = tmp_path / "list.txt"
    before, files = content_of(bundle), below(tmp_path)
    new = tmp_path / options.pop("output", "new")
    for output in (new, bundle) if new.name == "new" else (new,):
        with pytest.raises(BundleError, match=message) as caught:
            build_embedding(tmp_path / "g.txt", output, overwrite=output == bundle, **options)
        assert "secretword" not in str(caught.value)
        assert (below(tmp_path), content_of(bundle)) == (files, before)


def test_an_existing_output_is_replaced_only_when_asked(tmp_path, bundle):
    """Rejects parts that outlive their bundle or make it a user's folder; a damaged one can be replaced."""
    before = content_of(bundle)
    other = glove(tmp_path / "h.txt", WORDS[:4])
    with pytest.raises(BundleError, match="output exists"):
        build_embedding(other, bundle)
    assert content_of(bundle) == before
    (bundle / "parts").mkdir()
    (bundle / "parts" / "projection.json").write_text("{}")
    old = Embedding.open(bundle)
    (bundle / "manifest.json").write_bytes(before["manifest.json"][:-9])
    assert build_embedding(other, bundle, overwrite=True).words.to_pylist() == WORDS[:4]
    np.testing.assert_array_equal(old.vectors, vectors_of())  # who had it open keeps what it had
    assert {path.name for path in tmp_path.iterdir()} == {"g.txt", "h.txt", "bundle"}
    assert not (bundle / "parts").exists()


@pytest.mark.parametrize("error", [BundleError, KeyboardInterrupt])
def test_an_end_that_fails_leaves_nothing(tmp_path, monkeypatch, error):
    """At an interruption, or where the output came to be meanwhile, which is not replaced."""
    source, output = glove(tmp_path / "g.txt"), tmp_path / "b"

    def meanwhile(manifest):
        if error is KeyboardInterrupt:
            raise error
        output.mkdir()
        return sealed(manifest)

    monkeypatch.setattr("dptext_spark.embedding.build.sealed", meanwhile)
    with pytest.raises(error):
        build_embedding(source, output)
    assert below(tmp_path) == {source, *([output] if error is BundleError else [])}


@pytest.mark.parametrize(
    "kind", ["folder", "empty folder", "file", "link", "extra file", "other manifest"]
)
def test_what_is_no_bundle_is_never_replaced(tmp_path, bundle, kind):
    output = tmp_path / "output"
    if kind == "file":
        output.write_text("precious")
    elif kind == "link":
        output.symlink_to(bundle)
    else:
        shutil.copytree(bundle, output) if kind == "extra file" else output.mkdir()
        name = {"empty folder": None, "other manifest": "manifest.json"}.get(kind, "thesis.txt")
        if name:
            (output / name).write_text('{"name": "a web site"}')
    listed = below(tmp_path)
    with pytest.raises(BundleError, match="not an embedding bundle"):
        build_embedding(tmp_path / "g.txt", output, overwrite=True)
    assert below(tmp_path) == listed


def test_a_swap_that_fails_puts_the_old_bundle_back(tmp_path, bundle, monkeypatch):
    before, listed, rename = content_of(bundle), below(tmp_path), Path.rename

    def fails_for_the_new_one(self, target):
        if self.suffix == ".tmp":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_for_the_new_one)
    with pytest.raises(OSError, match="no"):
        build_embedding(tmp_path / "g.txt", bundle, limit=3, overwrite=True)
    assert (content_of(bundle), below(tmp_path)) == (before, listed)
