"""Makes embedding bundles: a public embedding in, a verified folder out, one block of rows in memory.

Identical input gives identical bytes.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import (
    CACHE,
    COVARIANCE_VALUES,
    COVARIANCE_VECTORS,
    FORMAT_VERSION,
    GEOMETRIES,
    HALF_NORMS,
    LORENTZ_SPACE,
    LORENTZ_TIME,
    MANIFEST,
    NORMALIZATIONS,
    VECTORS,
    WORDS,
    Embedding,
    Geometry,
    Manifest,
    Normalization,
    file_names,
    fingerprint,
    manifest_entries,
    sealed,
    sha256,
    words_schema,
)
from dptext_spark.embedding.readers import Source, open_source
from dptext_spark.errors import BundleError
from dptext_spark.geometry.ball import lorentz

_ROW_ORDER = "releasable first, then source order"
# Squares and products of such lengths are far from the ends of float32's range.
_LENGTHS = (1e-9, 1e12)
# Farther out, float64 leaves fewer than the 30 bits of noise that guarantees speak of.
LARGEST_BALL_RADIUS = 14.6
_BLOCK_FLOATS = 2**19


def build_embedding(
    source: Path | str,
    output: Path | str,
    *,
    limit: int | None = None,
    normalize: Normalization = "none",
    release_words: str | int | Path | None = None,
    geometry: Geometry = "euclidean",
    format: str = "auto",
    vocabulary: Path | str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Embedding:
    """Convert a public embedding to a bundle, with one block of rows in memory at a time.

    Args:
        source: The embedding; see ``readers.open_source`` for the formats.
        output: Folder to write; its parent must exist.
        limit: Keep at most the first ``limit`` rows.
        normalize: ``none``, or ``unit`` to scale every vector to length 1 (in float64, then rounded).
        release_words: Words that may be output: the first N of the source for an integer, the words of a file
            with one word a line for a path, all words if left out.
        geometry: ``euclidean``, or ``poincare`` for points inside the unit ball, kept as float64.
        format: One of ``readers.FORMATS``.
        vocabulary: The words of an ``.npy`` source, one a line.
        overwrite: Replace an existing bundle, once the new one is complete.
        progress: Show the progress bar even where stderr is no terminal.

    Returns:
        The bundle, open.

    Raises:
        BundleError: An option or a row of the source is wrong; nothing is written then and an existing bundle
            stays as it is.
    """
    source, output = Path(source), Path(output)
    _check_options(geometry, normalize)
    check_output(output, overwrite)
    release = _Release.read(release_words)
    rows = open_source(
        source,
        format=format,
        vocabulary=None if vocabulary is None else Path(vocabulary),
        limit=limit,
        progress=progress,
        dtype=np.float64 if geometry == "poincare" else np.float32,
    )
    with _complete_or_absent(output, overwrite) as folder:
        words, releasable, dimension = _write_rows(rows, folder, release, _preparation(geometry, normalize))
        _write_words(folder / WORDS, words, releasable)
        if geometry == "poincare":
            _write_lorentz(folder)
        else:
            _write_derived(folder)
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
            files={path.name: sha256(path) for path in sorted(folder.iterdir())},
            fingerprint="",
        )
        manifest = replace(manifest, fingerprint=fingerprint(manifest, words))
        (folder / MANIFEST).write_bytes(sealed(asdict(manifest)))
    return Embedding.open(output, verify=False)


def _check_options(geometry: str, normalize: str) -> None:
    if geometry not in GEOMETRIES:
        raise BundleError("The geometry is unknown", allowed=", ".join(GEOMETRIES), got=geometry)
    if normalize not in NORMALIZATIONS:
        raise BundleError("The normalization is unknown", allowed=", ".join(NORMALIZATIONS), got=normalize)
    if geometry == "poincare" and normalize != "none":
        raise BundleError(
            "Points of the Poincaré ball cannot be normalized",
            allowed="normalize none with geometry poincare",
            got=f"normalize {normalize}",
        )


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
            if release_words < 2:
                raise BundleError(
                    "Too few words may be released", allowed="at least 2 words", got=str(release_words)
                )
            return cls(first=release_words)
        return cls(chosen=_read_release_file(Path(release_words)))

    def flags(self, words: list[str], start: int) -> NDArray[np.bool_]:
        """Say for a block of words, the first of them in row ``start``, which may be released: (b,) bool."""
        if self.chosen is not None:
            return np.fromiter((word in self.chosen for word in words), np.bool_, len(words))
        rows = np.arange(start, start + len(words))
        return np.ones(len(words), np.bool_) if self.first is None else rows < self.first

    def absent(self, released: list[str]) -> int:
        """Count the chosen words that the source does not have."""
        return 0 if self.chosen is None else len(self.chosen.difference(released))

    def check(self, released: int, words: int) -> None:
        """Refuse fewer words than were asked for, or too few to hide among."""
        if self.first is not None and words < self.first:
            raise BundleError(
                "More words shall be released than the source has",
                allowed=f"at most {words}",
                got=str(self.first),
            )
        if self.chosen is not None and released == 0:
            raise BundleError(
                "No word of the release file is in the source",
                allowed="at least 2 words that the source has",
                got=f"{len(self.chosen)} words, all absent",
                do="Check the file's spelling, case and encoding",
            )
        if released < 2:
            raise BundleError(
                "The embedding has too few words",
                allowed="at least 2 that may be released",
                got=str(released),
            )


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


_Preparation = Callable[[NDArray[np.floating[Any]], Callable[[int], str]], NDArray[np.floating[Any]]]


def _preparation(geometry: str, normalize: str) -> _Preparation:
    if geometry == "poincare":
        return _inside_ball
    return _unit_length if normalize == "unit" else _with_length


def _squared_norms(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64, copy=False)
    # einsum and not BLAS: the order of the sums is then the same for every number of threads.
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", wide, wide)
    return squares


def _with_length(
    vectors: NDArray[np.floating[Any]], place: Callable[[int], str]
) -> NDArray[np.floating[Any]]:
    squares = _squared_norms(vectors)
    _refuse(squares == 0, place, "the vector is zero", allowed="vectors with a length")
    shortest, longest = _LENGTHS
    out_of_range = (squares < shortest**2) | (squares > longest**2)
    _refuse(
        out_of_range, place, "the vector's length is out of range", allowed=f"{shortest:g} to {longest:g}"
    )
    return vectors


def _unit_length(
    vectors: NDArray[np.floating[Any]], place: Callable[[int], str]
) -> NDArray[np.floating[Any]]:
    squares = _squared_norms(vectors)
    _refuse(squares == 0, place, "the vector is zero", allowed="vectors with a length")
    return (vectors / np.sqrt(squares)[:, None]).astype(np.float32)


def _inside_ball(
    vectors: NDArray[np.floating[Any]], place: Callable[[int], str]
) -> NDArray[np.floating[Any]]:
    squares = _squared_norms(vectors)
    _refuse(squares >= 1, place, "the point is not inside the Poincaré ball", allowed="points of norm < 1")
    norm = math.tanh(LARGEST_BALL_RADIUS / 2)
    _refuse(
        squares > norm**2,
        place,
        "the point is too near the edge of the Poincaré ball for precise noise",
        allowed=f"norms up to 1 - {1 - norm:.1e}, a hyperbolic radius of {LARGEST_BALL_RADIUS:g}",
        got=lambda row: f"1 - {1 - math.sqrt(squares[row]):.1e}",
        do="Train it again with points kept farther in, or remove this row",
    )
    return vectors


def _refuse(
    faulty: NDArray[np.bool_],
    place: Callable[[int], str],
    what: str,
    *,
    allowed: str,
    got: Callable[[int], str] = lambda row: "",
    do: str = "Remove this row",
) -> None:
    if faulty.any():
        row = int(np.argmax(faulty))
        raise BundleError(f"{place(row)}: {what}", allowed=allowed, got=got(row), do=do)


# Writing


def _write_rows(
    rows: Source, folder: Path, release: _Release, prepare: _Preparation
) -> tuple[list[str], int, int]:
    """Write ``vectors.npy``, releasable rows first; return the words in that order, their number and n."""
    released: list[str] = []
    others: list[str] = []
    dimension = 0
    first, rest = folder / "releasable.rows", folder / "other.rows"
    with first.open("wb") as first_file, rest.open("wb") as rest_file:
        for words, block in rows:
            start = len(released) + len(others)
            vectors = prepare(block, lambda row, start=start: rows.place(start + row))  # type: ignore[misc]
            flags = release.flags(words, start)
            first_file.write(vectors[flags].data)
            rest_file.write(vectors[~flags].data)
            released += [word for word, flag in zip(words, flags, strict=True) if flag]
            others += [word for word, flag in zip(words, flags, strict=True) if not flag]
            dimension, dtype = vectors.shape[1], vectors.dtype
    total = len(released) + len(others)
    release.check(len(released), total)
    with (folder / VECTORS).open("wb") as file:
        _write_header(file, dtype, (total, dimension))
        for part in (first, rest):
            with part.open("rb") as part_file:
                shutil.copyfileobj(part_file, file, 2**20)
            part.unlink()
    return released + others, len(released), dimension


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _write_words(path: Path, words: list[str], releasable: int) -> None:
    flags = np.arange(len(words)) < releasable
    table = pa.Table.from_arrays([pa.array(words, pa.string()), pa.array(flags)], schema=words_schema())
    pq.write_table(table, path, compression="zstd")


def _write_derived(folder: Path) -> None:
    """Write the half norms and the eigendecomposition of the covariance of ``vectors.npy``."""
    halves = [(_squared_norms(block) / 2).astype(np.float32) for block in _blocks(folder / VECTORS)]
    np.save(folder / HALF_NORMS, np.concatenate(halves))
    # One thread: with more, BLAS splits the sums differently and the last bits follow the number of cores.
    with threadpool_limits(limits=1, user_api="blas"):
        values, vectors = _eigendecomposition(_covariance(folder / VECTORS))
    np.save(folder / COVARIANCE_VALUES, values)
    np.save(folder / COVARIANCE_VECTORS, vectors)


def _write_lorentz(folder: Path) -> None:
    """Write the Lorentz coordinates of the points in ``vectors.npy``."""
    times = []
    with (folder / LORENTZ_SPACE).open("wb") as file:
        _write_header(file, np.dtype(np.float32), np.load(folder / VECTORS, mmap_mode="r").shape)
        for block in _blocks(folder / VECTORS):
            space, time = lorentz(block)
            file.write(_rounded(space).data)
            times.append(_rounded(time))
    np.save(folder / LORENTZ_TIME, np.concatenate(times))


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(under="ignore"):
        return values.astype(np.float32)


def _blocks(path: Path) -> Iterator[NDArray[np.float64]]:
    """Read a matrix block by block: (b, n) float64. Mapping it would count the whole file as resident."""
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        (rows, dimension), _, dtype = np.lib.format.read_array_header_1_0(file)
        step = max(1, _BLOCK_FLOATS // dimension)
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield np.fromfile(file, dtype, count * dimension).reshape(count, dimension).astype(np.float64)


def _covariance(path: Path) -> NDArray[np.float64]:
    """Compute the sample covariance of the rows, scaled to trace n: (n, n) float64."""
    # Float64 sums of equal float32 numbers are exact, so equal rows have exactly zero variance.
    rows, n = np.load(path, mmap_mode="r").shape
    mean = sum(block.sum(axis=0) for block in _blocks(path)) / rows
    centred = (block - mean for block in _blocks(path))
    scatter: NDArray[np.float64] = sum(block.T @ block for block in centred)
    trace = float(np.trace(scatter))
    if trace == 0:
        raise BundleError(
            "The vectors have no variance, so their covariance cannot be scaled",
            allowed="vectors that differ",
            got=f"{rows} equal vectors",
        )
    scatter *= n / trace
    return scatter


def _eigendecomposition(covariance: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ascending eigenvalues (n,), none below 0, and eigenvectors (n, n) in columns of settled sign."""
    values, vectors = np.linalg.eigh(covariance)
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
    return np.maximum(values, 0.0), np.ascontiguousarray(vectors * np.sign(largest))


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
    if path.is_symlink() or not path.is_dir():
        return False
    known = {MANIFEST, CACHE}.union(*map(file_names, GEOMETRIES))
    if not {entry.name for entry in path.iterdir()} <= known:
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
