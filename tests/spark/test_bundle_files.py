"""Bundles on executors: sent, placed once on a host, and checked; never mixed up."""

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

from dptext_spark import Embedding, Laplace
from dptext_spark.embedding import bundle as bundle_module
from dptext_spark.embedding.bundle import Part
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.spark import bundle_files
from dptext_spark.spark.bundle_files import BundleFiles
from tests.helpers import worlds
from tests.helpers.tables import ROOT, names, write_table

pytestmark = pytest.mark.spark


def alter(file):
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture
def received(tmp_path, monkeypatch):
    """Spark's files on an executor whose temporary folder is ``host``."""
    folder, host = tmp_path / "received", tmp_path / "host"
    folder.mkdir()
    host.mkdir()
    monkeypatch.setattr(bundle_files.pyspark.SparkFiles, "get", lambda name: str(folder / name))
    monkeypatch.setattr(bundle_files.tempfile, "tempdir", str(host))
    bundle_files._opened.cache_clear()
    return folder


@pytest.fixture
def sent(ring, received):
    """A bundle as executors find it among Spark's files; the driver's path does not exist here."""
    files = tuple(sorted(file.name for file in ring.path.iterdir() if file.is_file()))
    bundle = BundleFiles(path="/nonexistent/bundle", fingerprint=ring.fingerprint, files=files)
    for name in files:
        (received / bundle.sent_name(name)).write_bytes((ring.path / name).read_bytes())
    return bundle


@pytest.fixture
def place(sent, tmp_path):
    return tmp_path / "host" / f"dptext-spark-{os.getuid()}" / sent.fingerprint


@pytest.mark.parametrize("links", [True, False])
def test_a_sent_bundle_is_placed_once_in_a_folder_named_by_its_content(
    links, sent, place, monkeypatch
):
    """Rejects a folder that others can read, a second copy, and a host without links that gets none."""
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError("cross-device link")))
    first = sent.open()
    assert (first.path, first.fingerprint) == (place, sent.fingerprint)
    assert place.parent.stat().st_mode & 0o777 == 0o700
    inodes = {file.name: file.stat().st_ino for file in place.iterdir()}
    assert inodes.keys() == {*sent.files} and sent.open().path == place
    assert {file.name: file.stat().st_ino for file in place.iterdir()} == inodes
    assert names(place.parent) == {sent.fingerprint, f"{sent.fingerprint}.lock"}


@pytest.mark.parametrize(
    "name", ["vectors.npy", "half_norms.npy", "words.parquet", "manifest.json"]
)
def test_a_file_that_was_changed_is_found(sent, received, place, name):
    """On its way, and where it was placed, also by a process that has opened it."""
    # Rejects a copy for later runs that was altered, and a second verification of files that nobody touched.
    alter(received / sent.sent_name(name))
    with pytest.raises(BundleError, match="Spark sent is not the one that the job was given"):
        sent.open()
    assert names(place.parent) == {f"{sent.fingerprint}.lock"}
    alter(received / sent.sent_name(name))
    first = sent.shared()
    assert sent.shared() is first
    (place / name).write_bytes((place / name).read_bytes())
    alter(place / name)
    if name != "manifest.json":  # it is read once, as a whole
        with pytest.raises(BundleError, match="changed while it was in use"):
            sent.shared()
    with pytest.raises(BundleError, match=r"This host.s copy .* is damaged"):
        sent.open()


def test_parts_of_a_bundle_reach_a_host_that_has_the_bundle_already(
    sent, received, place, tmp_path
):
    """Rejects workers that find no index, or one that was altered on its way or on the host."""
    sent.open()
    made = tmp_path / "made"
    made.write_bytes(b"lists")
    part = Part("index", sent.fingerprint, {"lists": 1}, {"lists.npy": file_sha256(made)})
    (name,) = part.files
    file = received / sent.sent_name(name)
    file.write_bytes(made.read_bytes())
    with_part = dataclasses.replace(sent, files=(*sent.files, name), parts=(part,))
    assert with_part.open().part("index") == part
    assert part.path(place, "lists.npy").samefile(file)
    file.unlink()
    part.path(place, "lists.npy").write_bytes(b"lusts")
    with pytest.raises(BundleError, match=r"is damaged.*index"):
        with_part.open()
    assert sent.open().parts == ()


def test_what_lies_in_the_place_of_a_bundle_and_is_not_it_is_refused(
    sent, line, place, tmp_path, monkeypatch
):
    """Another bundle under its name, and a folder of another user."""
    place.mkdir(parents=True)
    for file in filter(Path.is_file, line.path.iterdir()):
        (place / file.name).write_bytes(file.read_bytes())
    with pytest.raises(BundleError, match="changed while the job ran"):
        sent.open()
    place.parent.rename(tmp_path / "theirs")
    place.parent.symlink_to(tmp_path / "theirs")
    with pytest.raises(BundleError, match="another user"):
        sent.open()
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    (tmp_path / "host" / "dptext-spark-54321").mkdir()
    with pytest.raises(BundleError, match="another user"):
        sent.open()


def test_several_processes_place_one_bundle_at_once(sent, place, monkeypatch):
    """Rejects a host without a lock, where the second to come fails or finds a folder half made."""
    together, link = Barrier(2), os.link

    def link_together(*paths):
        with suppress(BrokenBarrierError):  # one alone makes it
            together.wait(0.2)
        link(*paths)

    monkeypatch.setattr(os, "link", link_together)
    with ThreadPool(2) as pool:
        opened = pool.map(lambda _: sent.open(), range(2))
    assert [each.path for each in opened] == [place, place]
    assert names(place.parent) == {sent.fingerprint, f"{sent.fingerprint}.lock"}


def test_workers_load_no_options():
    """Rejects an import that takes each worker, before its first row, longer than all of its others."""
    modules = "dptext_spark.tables.sampling, dptext_spark.tables.dataframes"
    code = f"import sys, {modules}; sys.exit('dptext_spark.options' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_workers_of_one_machine_hash_only_what_the_driver_has_not(spark, tmp_path, monkeypatch):
    """They read the bundle where it lies."""
    # Rejects workers that hash a large bundle once more, some that take what was changed meanwhile, and some
    # that trust the stamps of a bundle that nobody has hashed; and a driver that sends an altered one.
    path = worlds.build(tmp_path, worlds.uneven(20, 3)).path
    bundle = Embedding.open(path)
    sent = BundleFiles.send(spark, bundle)
    assert (sent.path, sent.files) == (str(path), ())
    hashed = []
    monkeypatch.setattr(
        bundle_module, "file_sha256", lambda path: hashed.append(path.name) or file_sha256(path)
    )
    assert sent.open().fingerprint == bundle.fingerprint and hashed == []
    os.utime(path / "vectors.npy", ns=(0, 0))
    sent.open()
    assert {*hashed} == {name for name, _ in sent.stamps}
    alter(path / "vectors.npy")
    with pytest.raises(BundleError, match=r"changed while it was in use.*vectors\.npy"):
        BundleFiles.send(spark, bundle)
    for given in (sent, BundleFiles.send(spark, Embedding.open(path, verify=False))):
        with pytest.raises(BundleError, match=r"vectors\.npy of the bundle is damaged"):
            given.open()


def test_a_server_gets_each_file_once_and_parts_that_were_made_later(ring, monkeypatch):
    """Rejects a client of Spark Connect that sends a bundle once, and an index that was made later never."""
    monkeypatch.setattr(bundle_files, "_AT_SERVERS", set())
    uploads = []

    def upload(*paths, file):
        uploads.append([path.rpartition("/")[2] for path in paths])

    session = SimpleNamespace(session_id="a session", addArtifacts=upload)
    bundle = BundleFiles(
        path=str(ring.path), fingerprint=ring.fingerprint, files=("manifest.json",)
    )
    with_part = dataclasses.replace(bundle, files=("manifest.json", "parts/index.lists.npy"))
    for files in (bundle, bundle, with_part, with_part):
        files._send_to_server(session)
    assert uploads == [[with_part.sent_name(name)] for name in with_part.files]


def test_a_job_finds_what_the_lists_have(dptext, tmp_path):
    """Rejects a job that searches all words, one that says another recall, and lists that stay behind."""
    bundle, ids = worlds.build(tmp_path, worlds.uneven(500, 12)), [*range(120)]
    make_lists(bundle, 16)
    values = [" ".join(f"w{(7 * row + 31 * place) % 500}" for place in range(6)) for row in ids]
    table = write_table(tmp_path / "in" / "a.parquet", {"id": ids, "text": values})
    given = ["--embedding", bundle.path, "--epsilon", "6", "--id", "id", "--keep", "id"]
    result = dptext(table, *given, "--search", "ivf:probes=2")
    assert result.exit_code == 0, result.output
    released = pq.read_table(tmp_path / "out").sort_by("id")["text"].to_pylist()
    for search in (IvfSearch.over(bundle, lists=16, probes=2), ExactSearch.over(bundle)):
        privatizer = worlds.sanitizer(
            bundle, Laplace(epsilon=6.0), name=worlds.LABEL, search=search
        )
        expected = privatizer.sanitize(values, ids, column="text").values.to_pylist()
        assert (released == expected) == isinstance(search, IvfSearch)
    report = json.loads((tmp_path / "out.release.json").read_text())
    assert report["search"] == "ivf, 2 of 16 lists" and report["recall"]["probes"] == 2
    assert "Search ivf looks at 2 of 16 lists" in result.output


def test_a_copy_that_is_not_the_users_own_is_refused(sent, place, tmp_path, monkeypatch):
    """Rejects a link in its place, a file in the folder's, and files that another user can change."""
    sent.open()
    place.rename(tmp_path / "theirs")
    for target in (tmp_path / "theirs", tmp_path / "nowhere"):
        place.symlink_to(target)
        with pytest.raises(BundleError, match="host's copy of the embedding bundle"):
            sent.open()
        place.unlink()
    (tmp_path / "theirs").rename(place)
    lstat = Path.lstat

    def given_away(path):
        state = lstat(path)
        if path.name != "half_norms.npy":
            return state
        return SimpleNamespace(st_mode=state.st_mode, st_uid=state.st_uid + 1)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "lstat", given_away)
        with pytest.raises(BundleError, match=r"half_norms\.npy.*belongs to another user"):
            sent.open()
    sent.open()
    place.parent.rename(tmp_path / "moved")
    place.parent.write_text("")
    with pytest.raises(BundleError, match="belongs to another user, or is a symbolic link"):
        sent.open()


def test_arrays_that_follow_from_the_vectors_are_the_drivers(sent, ring, received):
    """Rejects a smaller covariance under the same fingerprint, with a manifest that fits it."""
    hashes = tuple(sorted(ring.manifest.files.items()))
    dataclasses.replace(sent, hashes=hashes).open()
    others = tuple((name, "0" * 64 if "covariance" in name else sha) for name, sha in hashes)
    with pytest.raises(BundleError, match="not those of the driver"):
        dataclasses.replace(sent, hashes=others).open()
