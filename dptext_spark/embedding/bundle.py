"""The embedding bundle: a folder with a public vocabulary and its vectors, verified and mapped.

A bundle is made once from a public embedding (``build.build_embedding``) and opened on every
machine (``Embedding.open``). Identical input gives identical bytes; the fingerprint is a hash of
all that a guarantee depends on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from errno import ENOMEM
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from dptext_spark.arguments import as_path, must_be
from dptext_spark.embedding.spaces import (
    NO_ARRAY,
    SPACES,
    VECTORS,
    GeometryName,
    Normalization,
    Precision,
    Space,
)
from dptext_spark.errors import BundleError
from dptext_spark.parsing import json_value
from dptext_spark.sealing import file_sha256, json_sha256, sealed, unsealed

Stamp: TypeAlias = tuple[int, int, int]

FORMAT_VERSION: Final = 3

MANIFEST: Final = "manifest.json"
WORDS: Final = "words.parquet"
PARTS: Final = "parts"
WORDS_SCHEMA: Final = pa.schema(
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("form", pa.string()),
        pa.field("releasable", pa.bool_(), nullable=False),
    ]
)
_FARTHEST: Final = 1e25  # of coordinates, and of squared lengths
_PART_FILE: Final = re.compile(r"[a-z_]+\.npy")
_BUILD: Final = "Make a bundle with 'dptext embedding SOURCE --output BUNDLE'"
_REBUILD: Final = "Build the bundle again from its source with 'dptext embedding'"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The entries of a bundle's ``manifest.json``."""

    format_version: int
    words: int
    releasable: int  # words that may be output; they are the first rows
    unmatchable: int  # words that no text has as one token, so that only an array of words can
    unmatchable_releasable: int  # those of them that may be output; the others are the last rows
    dimension: int
    geometry: GeometryName
    normalization: Normalization
    precision: Precision  # of the vectors, which are rounded to it before all else
    row_order: str
    release_words_absent: int  # entries of the list that match no word
    never_output: int  # words that a deny list names
    never_output_absent: int
    source_name: str
    source_sha256: str  # see ``readers.Source``
    files: dict[str, str]  # SHA-256 in hex of every other file, by name
    fingerprint: str

    def describe(self) -> str:
        """Describe how many words there are, and which may not be output and why, a line each."""
        counts = f"{self.words:,} words, {self.releasable:,} may be output"
        dimensions = f"{self.dimension} dimensions"
        if self.precision == "half":
            dimensions += " in half precision"
        lines = [f"{counts}, {dimensions}, fingerprint {self.fingerprint[:16]}"]
        if self.unmatchable:
            output = "they will not be output"
            if self.unmatchable_releasable:
                output = f"{self.unmatchable_releasable:,} of them may be output"
            lines.append(
                f"Entries that cannot occur as words in a text: {self.unmatchable:,}; {output}"
            )
        if self.never_output:
            lines.append(f"Denied words, which will never be output: {self.never_output:,}")
        return "\n".join(lines)


_MANIFEST: Final = TypeAdapter(Manifest)


@dataclass(frozen=True)
class Part:
    """An optional part of a bundle that took long to compute, such as a search index.

    It is a small record in the bundle's subfolder ``parts``, sealed by a hash and bound to the
    bundle by its fingerprint, and the files that the record names. No part changes a bundle's
    fingerprint.
    """

    name: str  # names all that the part was computed from, and begins the names of its files
    fingerprint: str
    values: Mapping[str, Any] = field(hash=False)
    # SHA-256 in hex of the part's files.
    hashes: Mapping[str, str] = field(hash=False, default_factory=dict)

    def path(self, bundle: Path, file: str) -> Path:
        """Return the path of a file of the part."""
        return bundle / PARTS / f"{self.name}.{file}"

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of the part's files by their paths below the bundle's folder."""
        return {self.path(Path(), file).as_posix(): sha for file, sha in self.hashes.items()}

    def is_whole(self, bundle: Path) -> bool:
        """Return whether all files are there, and as they were written."""
        for name, sha in self.files.items():
            path = bundle / name
            if not path.is_file() or file_sha256(path) != sha:
                return False
        return True

    def arrays(
        self, bundle: Path, layout: Mapping[str, tuple[str, tuple[int, ...]]]
    ) -> dict[str, Any]:
        """Map the part's files, which are arrays, by their names: dtype and shape of each.

        Raises:
            BundleError: They are other ones, or of another type or shape.
        """
        arrays = {}
        files = {f"{name}.npy" for name in layout}
        if {*self.hashes} != files:
            raise damaged(self.name, "it has other files than it must")
        for name, (dtype, shape) in layout.items():
            path = self.path(bundle, f"{name}.npy")
            arrays[name] = np.asarray(map_array(path))
            _check_array(path.name, arrays[name], dtype, shape)
        return arrays


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Embedding:
    """An open bundle; its matrices are read-only views of the files, shared between processes."""

    path: Path
    manifest: Manifest
    words: pa.StringArray  # V words as the source writes them, releasable words first
    # Their lookup forms; null where a word before it in the source has the same form.
    forms: pa.StringArray
    space: Space
    verified: bool = False  # whether every file was hashed when it was opened
    _stamps: dict[str, Stamp | None] = field(default_factory=dict)
    _parts: dict[str, Part] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex of all that a guarantee depends on; see :func:`fingerprint`."""
        return self.manifest.fingerprint

    @property
    def dimension(self) -> int:
        """Dimension n of the vectors."""
        return self.manifest.dimension

    @property
    def vectors(self) -> NDArray[Any]:
        """(V, n), the words' points; float32 or float16, in the Poincaré ball float64."""
        return self.space.vectors

    @property
    def releasable(self) -> int:
        """Number of words that may be output: the first rows."""
        return self.manifest.releasable

    @property
    def inputs(self) -> int:
        """Number of words that a text can have or that may be output: the first rows."""
        manifest = self.manifest
        return manifest.words - manifest.unmatchable + manifest.unmatchable_releasable

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Embedding:
        """Open a bundle and map its matrices; nothing is copied.

        With ``verify`` every file is hashed again; without it only the manifest and the shapes are
        checked.

        Raises:
            BundleError: The folder is not a bundle, or a file in it is missing, altered or of
                another layout.
        """
        path = as_path(path, "path", _BUILD)
        manifest = _read_manifest(path)
        stamps = {name: _stamp(path / name) for name in manifest.files}
        for name, expected in manifest.files.items():
            if stamps[name] is None or not (path / name).is_file():
                raise BundleError(f"The bundle lacks {name}", got=str(path), do=_REBUILD)
            if verify and file_sha256(path / name) != expected:
                raise damaged(name, "its content does not fit the hash in the manifest")
        words, forms = _read_words(path, manifest)
        if verify and fingerprint(manifest, words, forms) != manifest.fingerprint:
            raise damaged(MANIFEST, "the fingerprint does not belong to the words and vectors")
        return cls(
            path=path,
            manifest=manifest,
            words=words,
            forms=forms,
            space=_mapped(path, manifest, verify),
            verified=verify,
            _stamps=stamps,
        )

    @classmethod
    def of(cls, embedding: Embedding | Path | str) -> Embedding:
        """Return the bundle, opened if this is the path of its folder; see :meth:`open`."""
        if isinstance(embedding, Path | str):
            return cls.open(embedding)
        if not isinstance(embedding, Embedding):
            raise must_be("embedding", "an Embedding, or the path of its bundle", embedding, _BUILD)
        return embedding

    def shared(self) -> Self:
        """Return this bundle, for :class:`~dptext_spark.word_reader.Bundle`."""
        return self

    def __repr__(self) -> str:
        return f"Embedding({self.path.name!r}: {self.manifest.describe().splitlines()[0]})"

    def __reduce__(self) -> tuple[object, ...]:
        # A pickled memmap would copy the matrix; a bundle is sent as files, and mapped on arrival.
        return _reopen, (self.path, self.fingerprint, self.parts)

    @property
    def stamps(self) -> tuple[tuple[str, Stamp | None], ...]:
        """Inode, size and time of change of each file, by name, from before it was read."""
        return tuple((name, self._stamps[name]) for name in self.manifest.files)

    def check_unchanged(self) -> None:
        """Refuse results of files that changed after they were verified, as their maps do."""
        stamps = self._stamps.items()
        changed = [name for name, stamp in stamps if _stamp(self.path / name) != stamp]
        if changed:
            raise BundleError(
                "The embedding bundle changed while it was in use",
                got=f"other files {', '.join(changed)} in {self.path}",
                do="Run the job again and leave the bundle alone meanwhile",
            )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The optional parts that this process has used, made or was given."""
        return tuple(self._parts.values())

    def part(self, name: str) -> Part | None:
        """Return an optional part; None where there is none of this name, or a damaged one."""
        if name not in self._parts:
            with suppress(OSError):
                record = unsealed((self.path / PARTS / f"{name}.json").read_bytes()) or {}
                part = self._part_of(name, record)
                if part is not None and part.is_whole(self.path):
                    self.adopt([part])
        return self._parts.get(name)

    def _part_of(self, name: str, record: Mapping[str, Any]) -> Part | None:
        """Return the part of a record; None where it is of another one, or names other files."""
        if (record.get("name"), record.get("fingerprint")) != (name, self.fingerprint):
            return None
        values = record.get("values")
        hashes = record.get("files")
        if not isinstance(values, dict) or not isinstance(hashes, dict):
            return None
        if not all(map(_PART_FILE.fullmatch, hashes)):
            return None
        return Part(name, self.fingerprint, values, hashes)

    def keep(self, name: str, values: Mapping[str, Any], folder: Path | None = None) -> Part:
        """Add an optional part to this process and, if the bundle can be written to, to the bundle.

        The files in ``folder`` are moved into the bundle; a part without files needs no bundle that
        can be written to. The record is written last, and its seal is wrong until it is finished.
        So a part is whole, or there is none.
        """
        files = sorted(folder.iterdir()) if folder else []
        hashes = {file.name: file_sha256(file) for file in files}
        part = Part(name, self.fingerprint, values, hashes)
        record = {
            "name": name,
            "fingerprint": part.fingerprint,
            "values": values,
            "files": part.hashes,
        }
        try:
            (self.path / PARTS).mkdir(exist_ok=True)
            for file in files:
                shutil.move(file, part.path(self.path, file.name))
            (self.path / PARTS / f"{name}.json").write_bytes(sealed(record))
        except OSError as error:
            if files:
                raise BundleError(
                    "The embedding bundle cannot be written to",
                    got=f"{self.path}: {error.strerror}",
                ) from None
        self.adopt([part])
        return part

    def adopt(self, parts: Iterable[Part]) -> Self:
        """Take over the parts that another process has of this bundle."""
        for part in parts:
            self._parts[part.name] = part
            for name in part.files:
                self._stamps[name] = _stamp(self.path / name)
        return self


def _reopen(path: Path, fingerprint: str, parts: tuple[Part, ...]) -> Embedding:
    embedding = Embedding.open(path, verify=False).adopt(parts)
    if embedding.fingerprint != fingerprint:
        raise damaged(MANIFEST, "the bundle is not the one that was sent")
    return embedding


def fingerprint(manifest: Manifest, words: pa.StringArray, forms: pa.StringArray) -> str:
    """Hash all that a guarantee depends on, without the source's name and derived arrays.

    It is over layout version, geometry, normalization, words, release flags and the file of
    vectors, whose header has their precision. The layout version is 2 where all words that can be
    found are their own lookup forms, else 3: there texts have other words than by a bundle of
    layout 2, so their noise must be different.

    Words are not hashed by their Parquet bytes, which change with the version of Arrow. Each word
    is its length (8 bytes, little-endian), its UTF-8 and a byte 1 if it may be output, else 0.
    """
    # Laid out by Arrow: word by word it takes longer, for a large vocabulary, in each Spark worker.
    lengths = pa.py_buffer(pc.binary_length(words).to_numpy(zero_copy_only=False).astype("<i8"))
    prefixes = pa.Array.from_buffers(pa.binary(8), len(words), [None, lengths]).cast(pa.binary())
    flags = pc.if_else(pa.array(np.arange(len(words)) < manifest.releasable), b"\1", b"\0")
    laid_out = pc.binary_join_element_wise(prefixes, words.cast(pa.binary()), flags, b"")
    size = pc.sum(pc.binary_length(laid_out)).as_py()
    words_sha256 = hashlib.sha256(laid_out.buffers()[2][:size]).hexdigest()
    vectors_sha256 = manifest.files[VECTORS]
    has_other_forms = pc.any(pc.not_equal(words, forms)).as_py()
    layout = 3 if has_other_forms else 2
    entries = {
        "format_version": layout,
        "geometry": manifest.geometry,
        "normalization": manifest.normalization,
        "words": manifest.words,
        "releasable": manifest.releasable,
        "dimension": manifest.dimension,
        "words_sha256": words_sha256,
        "vectors_sha256": vectors_sha256,
    }
    return json_sha256(entries)


def file_names(geometry: str) -> tuple[str, ...]:
    """Name the files of a bundle next to its manifest."""
    return (WORDS, VECTORS, *(f"{name}.npy" for name in SPACES[geometry].derived))


def _stamp(path: Path) -> Stamp | None:
    with suppress(OSError):
        state = path.stat()
        return state.st_ino, state.st_size, state.st_mtime_ns
    return None


def damaged(name: str, why: str) -> BundleError:
    """Return the error of a file of a bundle that is not what was written."""
    return BundleError(f"{name} of the bundle is damaged: {why}", do=_REBUILD)


def _read_manifest(path: Path) -> Manifest:
    try:
        content = (path / MANIFEST).read_bytes()
    except OSError:
        raise BundleError(
            "This is not an embedding bundle",
            allowed=f"a folder with a {MANIFEST}, written by dptext embedding",
            got=str(path),
            do="Build a bundle or check the path",
        ) from None
    version = FORMAT_VERSION
    with suppress(ValueError, AttributeError):
        version = json_value(content).get("format_version", version)
    # Before the seal: another version may seal and name its entries in another way.
    if version != FORMAT_VERSION:
        raise BundleError(
            "The embedding bundle was built by another version of dptext_spark",
            allowed=f"format version {FORMAT_VERSION}",
            got=f"format version {version} in {path / MANIFEST}",
            do=f"{_REBUILD}, or open it with the version that built it",
        )
    entries = unsealed(content)
    if entries is None:
        raise damaged(MANIFEST, "its content does not fit its hash")
    manifest = _manifest_of(entries)
    if manifest is None:
        raise damaged(MANIFEST, "its entries, its geometry or its list of files is wrong")
    return manifest


def _manifest_of(entries: Mapping[str, Any]) -> Manifest | None:
    """Return the manifest of these entries; None where they are of other types, or contradict."""
    space = SPACES.get(str(entries.get("geometry")))
    if space is None:
        return None
    # Bundles had one precision each before it was an entry.
    entries = {"precision": next(iter(space.precisions)), **entries}
    try:
        manifest = _MANIFEST.validate_json(json.dumps(entries), strict=True)
    except ValidationError:
        return None
    is_whole = entries.keys() == {entry.name for entry in fields(Manifest)}
    has_files = {*manifest.files} == {*file_names(manifest.geometry)}
    unmatchable_inputs = manifest.unmatchable - manifest.unmatchable_releasable
    has_words = 2 <= manifest.releasable <= manifest.words - unmatchable_inputs
    has_words = has_words and 0 <= manifest.unmatchable_releasable <= manifest.unmatchable
    has_vectors = manifest.dimension > 0 and manifest.precision in space.precisions
    if not (is_whole and has_files and has_words and has_vectors):
        return None
    return manifest


def _read_words(path: Path, manifest: Manifest) -> tuple[pa.StringArray, pa.StringArray]:
    try:
        table = pq.ParquetFile(path / WORDS).read()
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        raise damaged(WORDS, "it is not a Parquet file") from None
    flags = np.arange(len(table)) < manifest.releasable
    if (
        len(table) != manifest.words
        or not table.schema.equals(WORDS_SCHEMA)
        or not np.array_equal(table["releasable"].to_numpy(), flags)
    ):
        raise damaged(WORDS, "its columns, its length or its releasable words are wrong")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:  # with bytes of a word in its message
        raise damaged(WORDS, "its words are not valid UTF-8") from None
    return table["word"].combine_chunks(), table["form"].combine_chunks()


def _mapped(folder: Path, manifest: Manifest, verify: bool) -> Space:
    arrays = {}
    lengths = {"V": manifest.words, "n": manifest.dimension}
    layout = SPACES[manifest.geometry].arrays(manifest.precision)
    for name, (dtype, axes) in layout.items():
        file = folder / f"{name}.npy"
        array = map_array(file)
        shape = tuple(lengths[axis] for axis in axes)
        _check_array(file.name, array, dtype, shape)
        if verify and not has_numbers(name, array):
            raise damaged(file.name, "it has numbers that no bundle has")
        arrays[name] = array
    return SPACES[manifest.geometry](**arrays)


def has_numbers(name: str, array: NDArray[Any]) -> bool:
    """Return whether all numbers are finite and not too large, and squares not negative."""
    least = 0.0 if name.endswith(("norms", "values", "time")) else -_FARTHEST
    return float(array.max()) <= _FARTHEST and float(array.min()) >= least


def _check_array(name: str, array: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    """Check the type, the shape and the order in memory of an array."""
    if array.dtype != np.dtype(dtype) or array.shape != shape or not array.flags.c_contiguous:
        why = f"it is {array.dtype} of shape {array.shape}, not {dtype} of shape {shape}"
        raise damaged(name, why)


def map_array(path: Path) -> NDArray[Any]:
    """Map a file of ``numpy.save``; where address space is limited, this is a MemoryError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a header that Python 2 wrote, which no bundle has
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (*NO_ARRAY, UserWarning) as error:
        if isinstance(error, OSError) and error.errno == ENOMEM:
            raise MemoryError from None
        array = None
    if not isinstance(array, np.ndarray):  # an archive of several
        raise damaged(path.name, "it is not a complete .npy file")
    return array
