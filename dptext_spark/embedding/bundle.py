"""The embedding bundle: a public vocabulary and its vectors in a folder that is verified and memory-mapped.

A bundle is made once from a public embedding (``bundle.build_embedding``) and opened on every machine
(``Embedding.open``). Identical input gives identical bytes; the fingerprint names all a guarantee rests on.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dptext_spark.errors import BundleError

Geometry: TypeAlias = Literal["euclidean", "poincare"]
Normalization: TypeAlias = Literal["none", "unit"]
Stamp: TypeAlias = tuple[int, int, int]

FORMAT_VERSION = 1
GEOMETRIES = ("euclidean", "poincare")
NORMALIZATIONS = ("none", "unit")

MANIFEST = "manifest.json"
CACHE = "cache"  # what was computed from the bundle once and may be computed again; no part of it
WORDS = "words.parquet"
VECTORS = "vectors.npy"
HALF_NORMS = "half_norms.npy"
COVARIANCE_VALUES = "covariance_values.npy"
COVARIANCE_VECTORS = "covariance_vectors.npy"
LORENTZ_SPACE = "lorentz_space.npy"
LORENTZ_TIME = "lorentz_time.npy"
_DERIVED = {
    "euclidean": (HALF_NORMS, COVARIANCE_VALUES, COVARIANCE_VECTORS),
    "poincare": (LORENTZ_SPACE, LORENTZ_TIME),
}
_REBUILD = "Build the bundle again from its source with 'dptext embedding'"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What ``manifest.json`` says about a bundle.

    Attributes:
        format_version: Version of the bundle's layout.
        words: Number of words V.
        releasable: Number of words that may be output; they are the first rows.
        dimension: Dimension n of the vectors.
        geometry: ``euclidean`` or ``poincare``.
        normalization: ``none``, or ``unit`` where every vector was scaled to length 1.
        row_order: How the rows are ordered, in words.
        release_words_absent: Words of the release file that the source does not have.
        source_name: Base name of the source.
        source_sha256: Hash of the bytes read from the source; see ``readers.Source.sha256``.
        files: SHA-256 in hex of every other file, by name.
        fingerprint: SHA-256 in hex of everything that a guarantee depends on.
    """

    format_version: int
    words: int
    releasable: int
    dimension: int
    geometry: Geometry
    normalization: Normalization
    row_order: str
    release_words_absent: int
    source_name: str
    source_sha256: str
    files: dict[str, str]
    fingerprint: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """An open bundle; its matrices are read-only views of the files, shared between processes.

    Attributes:
        path: Folder of the bundle.
        manifest: What the bundle says about itself.
        words: V words as an Arrow string array, releasable words first.
        vectors: (V, n) float32, C order, memory-mapped; float64 for the Poincaré ball.
        half_norms: (V,) float32, |y|²/2 computed in float64, memory-mapped; None for the Poincaré ball.
        covariance_values: (n,) float64, ascending eigenvalues of the sample covariance scaled to trace n;
            None for the Poincaré ball.
        covariance_vectors: (n, n) float64, its eigenvectors in columns; None for the Poincaré ball.
        lorentz_space: (V, n) float32, 2 p / (1 - |p|²) of each point p of the Poincaré ball, computed in
            float64, memory-mapped; None in Euclidean geometry.
        lorentz_time: (V,) float32, (1 + |p|²) / (1 - |p|²) likewise.

    Source: Xu et al. 2020, "A Differentially Private Text Perturbation Method Using Regularized Mahalanobis
    Metric", section 3, for the scaling of the covariance.
    """

    path: Path
    manifest: Manifest
    words: pa.StringArray = field(repr=False)
    vectors: NDArray[Any] = field(repr=False)
    half_norms: NDArray[np.float32] | None = field(repr=False, default=None)
    covariance_values: NDArray[np.float64] | None = field(repr=False, default=None)
    covariance_vectors: NDArray[np.float64] | None = field(repr=False, default=None)
    lorentz_space: NDArray[np.float32] | None = field(repr=False, default=None)
    lorentz_time: NDArray[np.float32] | None = field(repr=False, default=None)
    _stamps: Mapping[str, Stamp | None] = field(repr=False, default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex over layout version, geometry, normalization, words, release flags and vectors."""
        return self.manifest.fingerprint

    @property
    def dimension(self) -> int:
        """Dimension n of the vectors."""
        return self.manifest.dimension

    @property
    def geometry(self) -> Geometry:
        """``euclidean`` or ``poincare``."""
        return self.manifest.geometry

    @property
    def releasable(self) -> int:
        """Number of words that may be output: the first rows."""
        return self.manifest.releasable

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Embedding:
        """Open a bundle and map its matrices; nothing is copied.

        Args:
            path: Folder of the bundle.
            verify: Hash every file again; without it only the manifest and the shapes are checked.

        Raises:
            BundleError: This is no bundle, or a file of it is missing, changed or of another layout.
        """
        path = Path(path)
        manifest = _read_manifest(path)
        stamps = {name: _stamp(path / name) for name in manifest.files}
        for name in manifest.files:
            _check_file(path / name, manifest.files[name] if verify else None)
        words = _read_words(path, manifest)
        if verify and fingerprint(manifest, words.to_pylist()) != manifest.fingerprint:
            raise _damaged(MANIFEST, "the fingerprint does not belong to the words and vectors")
        arrays = _read_arrays(path, manifest)
        return cls(path=path, manifest=manifest, words=words, _stamps=stamps, **arrays)

    def check_unchanged(self) -> None:
        """Refuse results of files that were changed since they were verified: their maps change with them.

        Raises:
            BundleError: A file has another time, size or inode, or is gone.
        """
        if changed := [name for name, stamp in self._stamps.items() if _stamp(self.path / name) != stamp]:
            raise BundleError(
                "The embedding bundle changed while it was in use",
                got=f"other files {', '.join(changed)} in {self.path}",
                do="Run the job again and leave the bundle alone meanwhile",
            )

    def __reduce__(self) -> tuple[object, ...]:
        # A pickled memmap is a copy of the matrix; a bundle travels as files and is mapped where it arrives.
        return _reopen, (self.path, self.fingerprint)


def _reopen(path: Path, fingerprint: str) -> Embedding:
    embedding = Embedding.open(path, verify=False)
    if embedding.fingerprint != fingerprint:
        raise _damaged(MANIFEST, "the bundle is not the one that was sent")
    return embedding


def fingerprint(manifest: Manifest, words: list[str]) -> str:
    """Hash what a guarantee depends on; not the source's name and not what is derived from the vectors."""
    return _json_sha256(
        {
            "format_version": manifest.format_version,
            "geometry": manifest.geometry,
            "normalization": manifest.normalization,
            "words": manifest.words,
            "releasable": manifest.releasable,
            "dimension": manifest.dimension,
            "words_sha256": _words_sha256(words, manifest.releasable),
            "vectors_sha256": manifest.files[VECTORS],
        }
    )


def _words_sha256(words: list[str], releasable: int) -> str:
    """Hash each word as its length (8 bytes, little-endian), its UTF-8 and a byte 1 if it is releasable."""
    # The content and not the Parquet bytes: those change with the version of Arrow.
    digest = hashlib.sha256()
    for row, word in enumerate(words):
        encoded = word.encode("utf-8")
        digest.update(struct.pack("<Q", len(encoded)) + encoded + (b"\1" if row < releasable else b"\0"))
    return digest.hexdigest()


def _json_sha256(entries: dict[str, Any]) -> str:
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def sealed(entries: dict[str, Any]) -> bytes:
    """Render a manifest with a hash over its other entries; a manifest has exactly one rendering."""
    whole = entries | {"sha256": _json_sha256(entries)}
    return (json.dumps(whole, sort_keys=True, indent=2) + "\n").encode("ascii")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Reading


def _read_manifest(path: Path) -> Manifest:
    entries = manifest_entries(path)
    if entries is None:
        raise BundleError(
            "This is no embedding bundle",
            allowed=f"a folder with a {MANIFEST}, as 'dptext embedding' writes it",
            got=str(path),
            do="Build a bundle or check the path",
        )
    entries.pop("sha256", None)
    if (path / MANIFEST).read_bytes() != sealed(entries):
        raise _damaged(MANIFEST, "its content does not fit its hash")
    if entries.get("format_version") != FORMAT_VERSION:
        raise BundleError(
            f"{MANIFEST} has a format version that is not known here",
            allowed=str(FORMAT_VERSION),
            got=str(entries.get("format_version")),
            do=_REBUILD,
        )
    if set(entries) != {entry.name for entry in fields(Manifest)}:
        raise _damaged(MANIFEST, "its entries are not those of a manifest")
    manifest = Manifest(**entries)
    if manifest.geometry not in GEOMETRIES or set(manifest.files) != set(file_names(manifest.geometry)):
        raise _damaged(MANIFEST, "its geometry or its list of files is wrong")
    return manifest


def manifest_entries(path: Path) -> dict[str, Any] | None:
    """Read the entries of a manifest that are not yet verified; None where there is no manifest."""
    try:
        raw = (path / MANIFEST).read_bytes()
    except OSError:
        return None
    try:
        entries = json.loads(raw)
    except ValueError:
        raise _damaged(MANIFEST, "it is no JSON") from None
    if not isinstance(entries, dict):
        raise _damaged(MANIFEST, "it is no JSON object")
    return entries


def file_names(geometry: str) -> tuple[str, ...]:
    """Name the files of a bundle beside its manifest."""
    return (WORDS, VECTORS, *_DERIVED[geometry])


def _stamp(path: Path) -> Stamp | None:
    """Inode, size and time of change of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_file(path: Path, expected: str | None) -> None:
    if not path.is_file():
        raise BundleError(f"The bundle lacks {path.name}", got=str(path.parent), do=_REBUILD)
    if expected is not None and sha256(path) != expected:
        raise _damaged(path.name, "its content does not fit the hash in the manifest")


def _damaged(name: str, why: str) -> BundleError:
    return BundleError(f"{name} of the bundle is damaged: {why}", do=_REBUILD)


def _read_words(path: Path, manifest: Manifest) -> pa.StringArray:
    try:
        table = pq.ParquetFile(path / WORDS).read()
    except (pa.ArrowException, OSError, ValueError):
        raise _damaged(WORDS, "it is no Parquet file") from None
    if not table.schema.equals(words_schema()) or len(table) != manifest.words:
        raise _damaged(WORDS, "its columns or its length are wrong")
    flags = table["releasable"].to_numpy()
    if not np.array_equal(flags, np.arange(manifest.words) < manifest.releasable):
        raise _damaged(WORDS, "its releasable words are not the first rows")
    return table["word"].combine_chunks()


def _read_arrays(path: Path, manifest: Manifest) -> dict[str, NDArray[Any]]:
    rows, n = manifest.words, manifest.dimension
    if manifest.geometry == "poincare":
        return {
            "vectors": _map(path / VECTORS, "<f8", (rows, n)),
            "lorentz_space": _map(path / LORENTZ_SPACE, "<f4", (rows, n)),
            "lorentz_time": _map(path / LORENTZ_TIME, "<f4", (rows,)),
        }
    return {
        "vectors": _map(path / VECTORS, "<f4", (rows, n)),
        "half_norms": _map(path / HALF_NORMS, "<f4", (rows,)),
        "covariance_values": _map(path / COVARIANCE_VALUES, "<f8", (n,)),
        "covariance_vectors": _map(path / COVARIANCE_VECTORS, "<f8", (n, n)),
    }


def _map(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise _damaged(path.name, "it is no whole .npy file") from None
    if array.dtype != np.dtype(dtype) or array.shape != shape or not array.flags.c_contiguous:
        raise _damaged(path.name, f"it is {array.dtype} of shape {array.shape}, not {dtype} of shape {shape}")
    return array


def words_schema() -> pa.Schema:
    return pa.schema(
        [pa.field("word", pa.string(), nullable=False), pa.field("releasable", pa.bool_(), nullable=False)]
    )
