"""The embedding bundle on executors: sent as files, placed once per host, memory-mapped."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyspark  # and no names of it: a client of Spark Connect has no SparkFiles
from filelock import FileLock
from pyspark.sql import SparkSession

from dptext_spark.embedding.bundle import MANIFEST, Embedding, Part, Stamp
from dptext_spark.errors import BundleError

_AGAIN: Final = "Run the job again and leave the bundle alone meanwhile"
_ALTERED: Final = "The embedding bundle that Spark sent is not the one that the job was given"
_AT_SERVERS: Final[set[tuple[str, str]]] = set()
"""Files that servers have, by session and name: a second upload would take time for nothing."""


@dataclass(frozen=True, kw_only=True)
class BundleFiles:
    """Where executors find the bundle: under the driver's path, else among Spark's files.

    Attributes:
        path: The bundle's folder on the driver.
        files: Paths of the bundle's files in its folder, sent through Spark; empty where all share
            the driver's path.
        parts: The optional parts that the driver has.
        stamps: Those of files that the driver has verified, where workers read the very same: to
            hash a large bundle again takes each of them seconds. Empty elsewhere.
    """

    path: str
    fingerprint: str
    files: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    stamps: tuple[tuple[str, Stamp | None], ...] = ()
    # SHA-256 in hex by name: the fingerprint says nothing of arrays that follow from the vectors.
    hashes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def send(cls, spark: SparkSession, embedding: Embedding) -> BundleFiles:
        """Send the bundle to Spark, which brings it to every executor that runs a task."""
        embedding.check_unchanged()
        path = embedding.path.resolve()
        fingerprint = embedding.fingerprint
        parts = embedding.parts
        hashes = tuple(sorted(embedding.manifest.files.items()))
        is_remote = not hasattr(spark, "sparkContext")  # the driver is at the server
        if not is_remote and (spark.sparkContext.master or "").split("[")[0] == "local":
            stamps = embedding.stamps if embedding.verified else ()
            return cls(
                path=str(path), fingerprint=fingerprint, parts=parts, stamps=stamps, hashes=hashes
            )
        files = [MANIFEST, *embedding.manifest.files]
        for part in parts:
            files += part.files
        files.sort()
        bundle = cls(
            path=str(path),
            fingerprint=fingerprint,
            files=tuple(files),
            parts=parts,
            hashes=hashes,
        )
        if is_remote:
            bundle._send_to_server(spark)
        else:
            bundle._send_to_executors(spark)
        return bundle

    def _send_to_executors(self, spark: SparkSession) -> None:
        names_at_spark = {file.rpartition("/")[2] for file in spark.sparkContext.listFiles}
        # Spark names a sent file by its last path part alone: links give each bundle names of its
        # own; and new executors get what the links stand for even where the bundle was removed or
        # replaced meanwhile.
        links = Path(pyspark.SparkFiles.getRootDirectory(), "dptext-spark", self.fingerprint)
        links.mkdir(parents=True, exist_ok=True)
        for name in self.files:
            link = links / self.sent_name(name)
            if link.name not in names_at_spark:
                _link_or_copy(Path(self.path, name), link)
                spark.sparkContext.addFile(link.as_uri())

    def _send_to_server(self, spark: Any) -> None:
        missing = {}
        for name in self.files:
            key = (spark.session_id, self.sent_name(name))
            if key not in _AT_SERVERS:
                missing[key] = Path(self.path, name)
        if not missing:
            return
        with tempfile.TemporaryDirectory(prefix="dptext-spark-") as folder:
            links = []
            for (_, sent_name), path in missing.items():
                link = Path(folder, sent_name)
                link.symlink_to(path)
                links.append(link.as_uri())
            spark.addArtifacts(*links, file=True)
        _AT_SERVERS.update(missing)

    def sent_name(self, name: str) -> str:
        """Return the name under which a file of the bundle is among Spark's files."""
        return f"dptext-{self.fingerprint[:16]}-{name.replace('/', '-')}"

    def shared(self) -> Embedding:
        """Open the bundle on this machine, once in a process for all that it is needed for."""
        embedding = _opened(self)
        embedding.check_unchanged()
        return embedding

    def open(self) -> Embedding:
        """Open the bundle on this machine; all executors of a host map one copy of sent files.

        Spark gives every executor its own copies; the first to come links its files into a folder
        named by user and content, under a lock, and renames it into place.
        """
        if not self.files:
            return self._verified(Path(self.path))
        root = Path(tempfile.gettempdir(), f"dptext-spark-{os.getuid()}")
        with suppress(FileExistsError):  # of a file, which is refused next
            root.mkdir(mode=0o700, exist_ok=True)
        _check_own(root, stat.S_IFDIR)
        place = root / self.fingerprint
        with FileLock(f"{place}.lock"):
            if not os.path.lexists(place):
                with tempfile.TemporaryDirectory(dir=root) as scratch:
                    copy = Path(scratch, self.fingerprint)
                    self._receive(self.files, copy)
                    # What was altered on its way must not become the copy that later runs find.
                    self._verified(copy, _ALTERED, _AGAIN)
                    copy.rename(place)
            # A later run may bring parts to the bundle that an earlier one placed.
            for part in self.parts:
                self._receive(part.files, place)
        damaged = f"This host's copy of the embedding bundle, {place}, is damaged"
        embedding = self._verified(place, damaged, "Remove that folder: the next run makes it anew")
        # What another user owns may change after it was verified, and so may what a link leads to.
        _check_own(root, stat.S_IFDIR)
        _check_own(place, stat.S_IFDIR)
        for name in self.files:
            _check_own(place / name, stat.S_IFREG)
        embedding.check_unchanged()
        return embedding

    def _receive(self, names: Iterable[str], folder: Path) -> None:
        """Place files that Spark brought in a folder that lacks them, under their paths there."""
        for name in names:
            if not (folder / name).exists():
                (folder / name).parent.mkdir(exist_ok=True)
                _link_or_copy(Path(pyspark.SparkFiles.get(self.sent_name(name))), folder / name)

    def _verified(self, folder: Path, what: str = "", do: str = "") -> Embedding:
        """Open a folder that must hold this bundle; ``what`` and ``do`` replace the error's."""
        try:
            embedding = self._checked(folder)
        except BundleError as error:
            if what:
                raise BundleError(what, got=error.what, do=do) from None
            raise error from None
        return embedding.adopt(self.parts)

    def _checked(self, folder: Path) -> Embedding:
        """Open a folder, and check that it has this bundle whole."""
        embedding = Embedding.open(folder, verify=not self.stamps)
        if self.stamps and embedding.stamps != self.stamps:
            embedding = Embedding.open(folder)
        if embedding.fingerprint != self.fingerprint:
            raise BundleError(
                "The embedding bundle changed while the job ran",
                allowed=f"fingerprint {self.fingerprint}",
                got=f"fingerprint {embedding.fingerprint}",
                do=_AGAIN,
            )
        if self.hashes and {*self.hashes} != {*embedding.manifest.files.items()}:
            raise BundleError(
                "Files that follow from the bundle's vectors are not those of the driver",
                got=str(folder),
                do=_AGAIN,
            )
        if self.files:
            damaged_parts = [part.name for part in self.parts if not part.is_whole(folder)]
            if damaged_parts:
                raise BundleError(f"Parts of the bundle are damaged: {', '.join(damaged_parts)}")
        return embedding


# A task that looks at a sample comes before one that perturbs, in the same process.
_opened = lru_cache(maxsize=1)(BundleFiles.open)


def _check_own(path: Path, kind: int) -> None:
    """Check that a file or a folder is the user's own, and no link."""
    state = path.lstat()
    if stat.S_IFMT(state.st_mode) != kind or state.st_uid != os.getuid():
        raise BundleError(
            f"{path}, of this host's copy of the embedding bundle, belongs to another user, or is "
            "a symbolic link",
            do="Remove it, or set TMPDIR for the executors",
        )


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        target.write_bytes(source.read_bytes())
