"""Makes embedding bundles: a public embedding in, a verified folder out, one block of rows in memory.

Identical input gives identical bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dptext_spark import interrupts
from dptext_spark.embedding.bundle import (
    FORMAT_VERSION,
    MANIFEST,
    WORDS,
    Embedding,
    Manifest,
    file_names,
    fingerprint,
    manifest_entries,
    words_schema,
)
from dptext_spark.embedding.parts import FOLDER as PARTS
from dptext_spark.embedding.readers import Source, open_source
from dptext_spark.embedding.sealing import file_sha256, sealed
from dptext_spark.embedding.spaces import SPACES, VECTORS, GeometryName, Normalization, Space, write_header
from dptext_spark.errors import BundleError

_ROW_ORDER = "releasable first, then source order"


def build_embedding(
    source: Path | str,
    output: Path | str,
    *,
    limit: int | None = None,
    normalize: Normalization = "none",
    release_words: str | int | Path | None = None,
    geometry: GeometryName = "euclidean",
    format: str = "auto",
    vocabulary: Path | str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Embedding:
    """Convert a public embedding to a bundle, with one block of rows in memory at a time.

    Args:
        source: The embedding; it, ``format``, ``vocabulary``, ``limit`` and ``progress`` are as
            :func:`open_source` has them.
        output: Folder to write; its parent must exist.
        normalize: ``none``, or ``unit`` to scale every vector to length 1 (in float64, then rounded).
        release_words: Words that may be output: the first N of the source for an integer, the words of a file
            with one word a line for a path, all words if left out.
        geometry: ``euclidean``, or ``poincare`` for points inside the unit ball, kept as float64.
        overwrite: Replace an existing bundle, once the new one is complete.

    Raises:
        BundleError: An option or a row of the source is wrong; nothing is written then and an existing bundle
            stays as it is.
    """
    source, output = Path(source), Path(output)
    space = _space(geometry, normalize)
    check_output(output, overwrite)
    release = _Release.read(release_words)
    rows = open_source(
        source,
        format=format,
        vocabulary=None if vocabulary is None else Path(vocabulary),
        limit=limit,
        progress=progress,
        dtype=space.dtype,
    )
    with _complete_or_absent(output, overwrite) as folder:
        words, releasable, dimension = _write_rows(rows, folder, release, space, normalize)
        columns = [pa.array(words, pa.string()), pa.array(np.arange(len(words)) < releasable)]
        table = pa.Table.from_arrays(columns, schema=words_schema())
        pq.write_table(table, folder / WORDS, compression="zstd")
        space.derive(folder)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            words=len(words),
            releasable=releasable,
            dimension=dimension,
            geometry=geometry,
            normalization=normalize,
            row_order=_ROW_ORDER,
            release_words_absent=release.absent(words[:releasable]),
            source_name=source.resolve().name,
            source_sha256=rows.sha256,
            files={path.name: file_sha256(path) for path in sorted(folder.iterdir())},
            fingerprint="",
        )
        manifest = replace(manifest, fingerprint=fingerprint(manifest, words))
        (folder / MANIFEST).write_bytes(sealed(asdict(manifest)))
    return Embedding.open(output, verify=False)


def _space(geometry: str, normalize: str) -> type[Space]:
    if geometry not in SPACES:
        raise BundleError("The geometry is unknown", allowed=", ".join(SPACES), got=geometry)
    known = get_args(Normalization)
    if normalize not in known:
        raise BundleError("The normalization is unknown", allowed=", ".join(known), got=normalize)
    space = SPACES[geometry]
    if normalize not in space.normalizations:
        raise BundleError(
            "Points of the Poincaré ball cannot be normalized",
            allowed=f"normalize {' or '.join(space.normalizations)} with geometry {geometry}",
            got=f"normalize {normalize}",
        )
    return space


@dataclass(frozen=True, kw_only=True)
class _Release:
    """Which words may be output: the first so many, a chosen set, or all of them."""

    first: int | None = None
    chosen: frozenset[str] | None = None

    @classmethod
    def read(cls, release_words: str | int | Path | None) -> _Release:
        if release_words is None:
            return cls()
        if isinstance(release_words, str) and release_words.isdecimal():
            release_words = int(release_words)
        if isinstance(release_words, int):
            if (got := release_words) < 2:
                raise BundleError("Too few words may be released", allowed="at least 2 words", got=str(got))
            return cls(first=release_words)
        return cls(chosen=_read_release_file(Path(release_words)))

    def flags(self, words: list[str], start: int) -> NDArray[np.bool_]:
        """Say for a block of words, the first of them in row ``start``, which may be released: (b,) bool."""
        if self.chosen is not None:
            return np.fromiter((word in self.chosen for word in words), np.bool_, len(words))
        return np.arange(start, start + len(words)) < (np.inf if self.first is None else self.first)

    def absent(self, released: list[str]) -> int:
        """Count the chosen words that the source does not have."""
        return 0 if self.chosen is None else len(self.chosen.difference(released))

    def check(self, released: int, words: int) -> None:
        """Refuse fewer words than were asked for, or too few to hide among."""
        if self.first is not None and words < self.first:
            what = "More words shall be released than the source has"
            raise BundleError(what, allowed=f"at most {words}", got=str(self.first))
        if self.chosen is not None and released == 0:
            raise BundleError(
                "No word of the release file is in the source",
                allowed="at least 2 words that the source has",
                got=f"{len(self.chosen)} words, all absent",
                do="Check the file's spelling, case and encoding",
            )
        if released < 2:
            what = "The embedding has too few words"
            raise BundleError(what, allowed="at least 2 that may be released", got=str(released))


def _read_release_file(path: Path) -> frozenset[str]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        raise BundleError(
            "The file of release words cannot be read",
            allowed="a number of words or a file with one word a line",
            got=str(path),
        ) from None
    words = set()
    for number, line in enumerate(lines, 1):
        try:
            words.add(line.rstrip(b"\r").decode("utf-8"))
        except UnicodeDecodeError:
            raise BundleError(f"{path.name}, line {number}: the word is not valid UTF-8") from None
    return frozenset(words - {""})


def _write_rows(
    rows: Source, folder: Path, release: _Release, space: type[Space], normalize: Normalization
) -> tuple[list[str], int, int]:
    """Write ``vectors.npy``, releasable rows first; return the words in that order, their number and n."""
    released: list[str] = []
    others: list[str] = []
    dimension = 0
    first, rest = folder / "releasable.rows", folder / "other.rows"
    with first.open("wb") as first_file, rest.open("wb") as rest_file:
        for words, block in rows:
            start = len(released) + len(others)
            vectors = space.prepared(block, normalize, lambda row, start=start: rows.place(start + row))  # type: ignore[misc]
            flags = release.flags(words, start)
            first_file.write(vectors[flags].data)
            rest_file.write(vectors[~flags].data)
            released += compress(words, flags)
            others += compress(words, ~flags)
            dimension, dtype = vectors.shape[1], vectors.dtype
    total = len(released) + len(others)
    release.check(len(released), total)
    with (folder / VECTORS).open("wb") as file:
        write_header(file, dtype, (total, dimension))
        for part in (first, rest):
            with part.open("rb") as part_file:
                shutil.copyfileobj(part_file, file, 2**20)
            part.unlink()
    return released + others, len(released), dimension


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse a place where no bundle can be written.

    Raises:
        BundleError: The output exists and may not be replaced, or its parent does not exist.
    """
    if not output.absolute().parent.is_dir():
        raise BundleError(
            "The folder that shall hold the bundle does not exist", got=str(output), do="Create it"
        )
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise BundleError(
            "The output exists", got=str(output), do="Choose another folder or allow to overwrite the bundle"
        )
    if not _is_bundle(output):
        raise BundleError(
            "The output is no embedding bundle, so it will not be replaced",
            allowed="a new folder or an existing bundle",
            got=str(output),
            do="Choose another folder",
        )


def _is_bundle(path: Path) -> bool:
    known = {MANIFEST, PARTS}.union(*map(file_names, SPACES))
    if path.is_symlink() or not path.is_dir() or not {entry.name for entry in path.iterdir()} <= known:
        return False
    entries = manifest_entries(path)
    return entries is not None and {"format_version", "fingerprint"} <= set(entries)


@contextmanager
def _complete_or_absent(output: Path, overwrite: bool) -> Iterator[Path]:
    """Lend a folder that becomes the output when the block ends well and is removed when it does not."""
    output = output.absolute()
    folder = _sibling(output, "tmp")
    folder.mkdir()
    try:
        yield folder
        for file in folder.iterdir():
            _flush(file)
        _flush(folder)
        check_output(output, overwrite)
        interrupts.hold_to_the_end()  # of two renames, one alone would leave nothing under the name
        _swap(folder, output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _flush(output.parent)


def _sibling(output: Path, suffix: str) -> Path:
    return output.with_name(f".{output.name}.{secrets.token_hex(8)}.{suffix}")


def _swap(folder: Path, output: Path) -> None:
    if not output.exists():
        folder.rename(output)
        return
    old = _sibling(output, "old")
    output.rename(old)
    try:
        folder.rename(output)
    except OSError:
        old.rename(output)
        raise
    shutil.rmtree(old)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
