"""Bundles on executors: sent, placed once on a host, and checked; never mixed up."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dptext_spark import Embedding
from dptext_spark.embedding import bundle as bundle_module
from dptext_spark.embedding.bundle import Part
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256
from dptext_spark.spark import bundle_files
from dptext_spark.spark.bundle_files import BundleFiles
from tests.helpers import worlds
from tests.helpers.cluster import PATIENCE
from tests.helpers.tables import ROOT, names

pytestmark = pytest.mark.spark


def alter(file: Path) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's files on an executor whose temporary folder is ``host``."""
    folder, host = tmp_path / "received", tmp_path / "host"
    folder.mkdir()
    host.mkdir()
    monkeypatch.setattr(bundle_files.pyspark.SparkFiles, "get", lambda name: str(folder / name))
    monkeypatch.setattr(bundle_files.tempfile, "tempdir", str(host))
    bundle_files._opened.cache_clear()
    return folder


@pytest.fixture
def sent(ring: Embedding, received: Path) -> BundleFiles:
    """A bundle as executors find it among Spark's files; the driver's path does not exist here."""
    files = tuple(sorted(file.name for file in ring.path.iterdir() if file.is_file()))
    bundle = BundleFiles(path="/nonexistent/bundle", fingerprint=ring.fingerprint, files=files)
    for name in files:
        (received / bundle.sent_name(name)).write_bytes((ring.path / name).read_bytes())
    return bundle


@pytest.fixture
def place(sent: BundleFiles, tmp_path: Path) -> Path:
    return tmp_path / "host" / f"dptext-spark-{os.getuid()}" / sent.fingerprint


def refuse_links(*_: Any) -> None:
    raise OSError("cross-device link")


@pytest.mark.parametrize("links", [True, False])
def test_a_sent_bundle_is_placed_once_in_a_folder_named_by_its_content(
    links: bool, sent: BundleFiles, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a folder that others can read, a second copy, and a host without links that gets none."""
    if not links:
        monkeypatch.setattr(os, "link", refuse_links)
    first = sent.open()
    assert (first.path, first.fingerprint) == (place, sent.fingerprint)
    assert place.parent.stat().st_mode & 0o777 == 0o700
    inodes = {file.name: file.stat().st_ino for file in place.iterdir()}
    assert inodes.keys() == {*sent.files} and sent.open().path == place
    assert {file.name: file.stat().st_ino for file in place.iterdir()} == inodes
    assert names(place.parent) == {sent.fingerprint, f"{sent.fingerprint}.lock"}


@pytest.mark.parametrize("name", ["vectors.npy", "half_norms.npy", "words.parquet", "manifest.json"])
def test_a_placed_file_that_was_changed_is_found(sent: BundleFiles, place: Path, name: str) -> None:
    """Also by a process that has opened it; rejects a second verification of files that nobody touched."""
    first = sent.shared()
    assert sent.shared() is first
    alter(place / name)
    if name != "manifest.json":  # it is read once, as a whole
        with pytest.raises(BundleError, match="changed while it was in use"):
            sent.shared()
    with pytest.raises(BundleError, match="damaged"):
        sent.open()


def test_a_bundle_altered_on_its_way_is_not_placed_for_later_runs(
    sent: BundleFiles, received: Path, place: Path
) -> None:
    file = received / sent.sent_name("vectors.npy")
    alter(file)
    with pytest.raises(BundleError, match="Spark sent is not the one that the job was given"):
        sent.open()
    assert names(place.parent) == {f"{sent.fingerprint}.lock"}
    alter(file)
    assert sent.open().fingerprint == sent.fingerprint


def test_parts_of_a_bundle_reach_a_host_that_has_the_bundle_already(
    sent: BundleFiles, received: Path, place: Path, tmp_path: Path
) -> None:
    """Rejects workers that find no index, or one that was altered on its way or on the host."""
    sent.open()
    made = tmp_path / "made"
    made.write_bytes(b"lists")
    part = Part.of("index", sent.fingerprint, {"lists": 1}, {"lists.npy": file_sha256(made)})
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


def test_another_bundle_under_the_same_name_is_refused(
    sent: BundleFiles, line: Embedding, place: Path
) -> None:
    place.mkdir(parents=True)
    for file in filter(Path.is_file, line.path.iterdir()):
        (place / file.name).write_bytes(file.read_bytes())
    with pytest.raises(BundleError, match="changed while the job ran"):
        sent.open()


def test_a_folder_of_another_user_is_refused(
    sent: BundleFiles, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    place.parent.symlink_to(tmp_path / "theirs")
    with pytest.raises(BundleError, match="another user"):
        sent.open()
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    (tmp_path / "host" / "dptext-spark-54321").mkdir()
    with pytest.raises(BundleError, match="another user"):
        sent.open()


PLACE = """
import sys, tempfile
from pathlib import Path
from dptext_spark.spark import bundle_files
received, fingerprint, *names = sys.argv[1:]
bundle_files.pyspark.SparkFiles.get = lambda name: str(Path(received, name))
sent = bundle_files.BundleFiles(path="/nonexistent", fingerprint=fingerprint, files=tuple(names))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    embedding = sent.open()
print(embedding.path, embedding.vectors.sum())
"""


def test_several_processes_place_one_bundle_at_once(sent: BundleFiles, received: Path, place: Path) -> None:
    arguments = [sys.executable, "-c", PLACE, str(received), sent.fingerprint, *sent.files]
    environment = {**os.environ, "TMPDIR": str(place.parents[1])}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(arguments, cwd=ROOT, env=environment, **pipes) for _ in range(2)]
    try:
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        ends = {process.communicate(timeout=PATIENCE)[0] for process in processes}
    finally:
        for process in processes:
            process.kill()
            process.wait()
    (end,) = ends
    assert end.startswith(f"{place} ")
    assert names(place.parent) == {sent.fingerprint, f"{sent.fingerprint}.lock"}


def test_workers_load_no_options() -> None:
    """Rejects an import that takes each worker, before its first row, longer than all of its others."""
    modules = "dptext_spark.tables.look, dptext_spark.tables.dataframes"
    code = f"import sys, {modules}; sys.exit('dptext_spark.options' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_workers_of_one_machine_hash_only_what_the_driver_has_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read the bundle where it lies.

    Rejects workers that hash a large bundle once more, some that take what was changed meanwhile, and some
    that trust the stamps of a bundle that nobody has hashed; and a driver that sends an altered one.
    """
    path = worlds.build(tmp_path, worlds.uneven(20, 3)).path
    bundle = Embedding.open(path)
    sent = BundleFiles.send(spark, bundle)
    assert (sent.path, sent.files) == (str(path), ())
    hashed: list[str] = []
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


def test_a_server_gets_each_file_once_and_parts_that_were_made_later(
    ring: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a client of Spark Connect that sends a bundle once, and an index that was made later never."""
    monkeypatch.setattr(bundle_files, "_AT_SERVERS", set())
    uploads: list[list[str]] = []

    class Session:
        session_id = "a session"

        def addArtifacts(self, *paths: str, file: bool) -> None:
            uploads.append([path.rpartition("/")[2] for path in paths])

    bundle = BundleFiles(path=str(ring.path), fingerprint=ring.fingerprint, files=("manifest.json",))
    with_part = dataclasses.replace(bundle, files=("manifest.json", "parts/index.lists.npy"))
    for files in (bundle, bundle, with_part, with_part):
        files._send_to_server(Session())
    assert uploads == [[with_part.sent_name(name)] for name in with_part.files]
