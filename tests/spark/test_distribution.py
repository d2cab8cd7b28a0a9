"""Bundles on executors: sent, placed once on a host, and checked; never mixed up."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dptext_spark import Embedding
from dptext_spark.embedding import bundle as bundle_module
from dptext_spark.embedding.bundle import Part
from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256
from dptext_spark.spark import distribution
from dptext_spark.spark.distribution import BundleFiles
from tests.helpers import worlds
from tests.helpers.cluster import PATIENCE
from tests.helpers.tables import ROOT

pytestmark = pytest.mark.spark


@pytest.fixture
def sent(ring: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BundleFiles:
    """A bundle as executors find it among Spark's files; the driver's path does not exist here."""
    received = tmp_path / "received"
    received.mkdir()
    names = sorted(file.name for file in ring.path.iterdir() if file.is_file())
    for name in names:
        (received / distribution._sent_name(ring.fingerprint, name)).write_bytes(
            (ring.path / name).read_bytes()
        )
    monkeypatch.setattr(distribution.pyspark.SparkFiles, "get", lambda name: str(received / name))
    monkeypatch.setattr(distribution.tempfile, "tempdir", str(tmp_path / "host"))
    (tmp_path / "host").mkdir()
    return BundleFiles(path="/nonexistent/bundle", fingerprint=ring.fingerprint, files=tuple(names))


def place_of(sent: BundleFiles, tmp_path: Path) -> Path:
    return tmp_path / "host" / f"dptext-spark-{os.getuid()}" / sent.fingerprint


def test_a_sent_bundle_is_placed_once_in_a_folder_named_by_its_content(
    ring: Embedding, sent: BundleFiles, tmp_path: Path
) -> None:
    first = sent.open()
    place = place_of(sent, tmp_path)
    assert first.path == place
    assert first.fingerprint == ring.fingerprint
    assert place.parent.stat().st_mode & 0o777 == 0o700
    inodes = {file.name: file.stat().st_ino for file in place.iterdir()}
    assert set(inodes) == set(sent.files)
    assert sent.open().path == place
    assert {file.name: file.stat().st_ino for file in place.iterdir()} == inodes
    assert {path.name for path in place.parent.iterdir()} == {sent.fingerprint, f"{sent.fingerprint}.lock"}


def test_a_host_without_links_gets_copies(
    sent: BundleFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any) -> None:
        raise OSError("cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    assert sent.open().path == place_of(sent, tmp_path)


@pytest.mark.parametrize("name", ["vectors.npy", "half_norms.npy", "words.parquet", "manifest.json"])
def test_a_placed_file_that_was_changed_is_found(sent: BundleFiles, tmp_path: Path, name: str) -> None:
    sent.open()
    file = place_of(sent, tmp_path) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(BundleError, match="damaged"):
        sent.open()


def test_a_process_opens_a_bundle_once_and_refuses_it_changed(sent: BundleFiles, tmp_path: Path) -> None:
    """Rejects a second verification of files that nobody touched, and none at all of others."""
    first = sent.shared()
    assert sent.shared() is first
    file = place_of(sent, tmp_path) / "vectors.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match="changed while it was in use"):
        sent.shared()


def test_workers_load_no_options() -> None:
    """Rejects an import that takes each worker, before its first row, longer than all of its others."""
    modules = "dptext_spark.tables.sample, dptext_spark.tables.dataframes"
    code = f"import sys, {modules}; sys.exit('dptext_spark.options' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_bundle_altered_on_its_way_is_not_placed_for_later_runs(
    ring: Embedding, sent: BundleFiles, tmp_path: Path
) -> None:
    file = Path(distribution.pyspark.SparkFiles.get(distribution._sent_name(ring.fingerprint, "vectors.npy")))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BundleError, match="Spark sent is not the one that the job was given"):
        sent.open()
    assert [path.name for path in place_of(sent, tmp_path).parent.iterdir()] == [f"{sent.fingerprint}.lock"]
    file.write_bytes(content)
    assert sent.open().fingerprint == ring.fingerprint


def test_parts_of_a_bundle_reach_a_host_that_has_the_bundle_already(
    ring: Embedding, sent: BundleFiles, tmp_path: Path
) -> None:
    """Rejects workers that find no index, or one that was altered on its way or on the host."""
    sent.open()
    made = tmp_path / "made"
    made.write_bytes(b"lists")
    part = Part.of("index", ring.fingerprint, {"lists": 1}, {"lists.npy": file_sha256(made)})
    (name,) = part.files
    received = Path(distribution.pyspark.SparkFiles.get(distribution._sent_name(ring.fingerprint, name)))
    received.write_bytes(made.read_bytes())
    with_part = dataclasses.replace(sent, files=(*sent.files, name), parts=(part,))
    opened = with_part.open()
    assert opened.part("index") == part
    assert part.path(opened.path, "lists.npy").read_bytes() == b"lists"
    assert part.path(opened.path, "lists.npy").samefile(received)
    received.unlink()
    part.path(opened.path, "lists.npy").write_bytes(b"lusts")
    with pytest.raises(BundleError, match=r"is damaged.*index"):
        with_part.open()
    assert sent.open().parts == ()


def test_another_bundle_under_the_same_name_is_refused(
    sent: BundleFiles, line: Embedding, tmp_path: Path
) -> None:
    place = place_of(sent, tmp_path)
    place.mkdir(parents=True)
    for file in filter(Path.is_file, line.path.iterdir()):
        (place / file.name).write_bytes(file.read_bytes())
    with pytest.raises(BundleError, match="changed while the job ran"):
        sent.open()


def test_a_folder_of_another_user_is_refused(
    sent: BundleFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = place_of(sent, tmp_path).parent
    (tmp_path / "theirs").mkdir()
    root.symlink_to(tmp_path / "theirs")
    with pytest.raises(BundleError, match="another user"):
        sent.open()
    root.unlink()
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    place_of(sent, tmp_path).parent.mkdir()
    with pytest.raises(BundleError, match="another user"):
        sent.open()


PLACE = """
import sys, tempfile
from pathlib import Path
from dptext_spark.spark import distribution
received, fingerprint, *names = sys.argv[1:]
distribution.pyspark.SparkFiles.get = lambda name: str(Path(received, name))
sent = distribution.BundleFiles(path="/nonexistent", fingerprint=fingerprint, files=tuple(names))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    embedding = sent.open()
print(embedding.path, embedding.vectors.sum())
"""


def test_several_processes_place_one_bundle_at_once(sent: BundleFiles, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", PLACE, str(tmp_path / "received"), sent.fingerprint, *sent.files]
    processes = [
        subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path / "host")},
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        with ThreadPoolExecutor(len(processes)) as pool:
            ends = list(pool.map(lambda process: process.communicate("go\n", timeout=PATIENCE)[0], processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    place = place_of(sent, tmp_path)
    assert len(set(ends)) == 1
    assert ends[0].startswith(f"{place} ")
    assert {path.name for path in place.parent.iterdir()} == {sent.fingerprint, f"{sent.fingerprint}.lock"}


def test_a_bundle_that_was_altered_is_not_sent(spark: SparkSession, tmp_path: Path) -> None:
    bundle = worlds.build(tmp_path, worlds.uneven(20, 3))
    vectors = (bundle.path / "vectors.npy").read_bytes()
    (bundle.path / "vectors.npy").write_bytes(vectors[:-1] + bytes([vectors[-1] ^ 1]))
    with pytest.raises(BundleError, match=r"changed while it was in use.*vectors\.npy"):
        BundleFiles.send(spark, bundle)


def test_one_machine_reads_the_bundle_where_it_lies(spark: SparkSession, ring: Embedding) -> None:
    sent = BundleFiles.send(spark, ring)
    assert (sent.path, sent.files) == (str(ring.path), ())
    assert sent.open().fingerprint == ring.fingerprint


def test_workers_of_one_machine_hash_only_what_the_driver_has_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects workers that hash a large bundle once more, and some that take what was changed meanwhile."""
    sent = BundleFiles.send(spark, Embedding.open(worlds.build(tmp_path, worlds.uneven(20, 3)).path))
    hashed: list[str] = []
    monkeypatch.setattr(
        bundle_module, "file_sha256", lambda path: hashed.append(path.name) or file_sha256(path)
    )
    sent.open()
    assert hashed == []
    vectors = Path(sent.path, "vectors.npy")
    os.utime(vectors, ns=(0, 0))
    sent.open()
    assert set(hashed) == {name for name, _ in sent.stamps}
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"!")
    with pytest.raises(BundleError, match=r"vectors\.npy of the bundle is damaged"):
        sent.open()


def test_workers_verify_what_the_driver_has_not(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects workers that trust the stamps of a bundle that nobody has hashed."""
    path = worlds.build(tmp_path, worlds.uneven(20, 3)).path
    vectors = (path / "vectors.npy").read_bytes()
    (path / "vectors.npy").write_bytes(vectors[:-1] + bytes([vectors[-1] ^ 1]))
    sent = BundleFiles.send(spark, Embedding.open(path, verify=False))
    with pytest.raises(BundleError, match=r"vectors\.npy of the bundle is damaged"):
        sent.open()


def test_a_server_gets_each_file_once_and_parts_that_were_made_later(
    ring: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a client of Spark Connect that sends a bundle once, and an index that was made later never."""
    monkeypatch.setattr(distribution, "_AT_SERVERS", set())
    uploads: list[list[str]] = []

    class Session:
        session_id = "a session"

        def addArtifacts(self, *paths: str, file: bool) -> None:
            uploads.append([path.rpartition("/")[2] for path in paths])

    bundle = BundleFiles(path=str(ring.path), fingerprint=ring.fingerprint, files=("manifest.json",))
    with_part = dataclasses.replace(bundle, files=("manifest.json", "parts/index.lists.npy"))
    for files in (bundle, bundle, with_part, with_part):
        distribution._send_to_server(Session(), files)
    expected = [distribution._sent_name(ring.fingerprint, name) for name in with_part.files]
    assert uploads == [[name] for name in expected]
