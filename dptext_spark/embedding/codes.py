"""Words as 8-bit codes, which a coarse search multiplies several times as fast as single precision.

A point q scores a word by q·y - h: y is its vector and h half the squared length, or both are its Lorentz
coordinates. y = s c + r, along other axes, has codes c, a scale s that its tile shares, and a rest r. Behind
its codes stands h in two digits, so that one product of integers gives a score. See "Coarse scores" in
docs/mathematics.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import PARTS, Embedding, Part, map_array
from dptext_spark.errors import BundleError
from dptext_spark.geometry import Floats
from dptext_spark.sealing import file_sha256

LAYOUT: Final = 1
"""Of codes that lie with a bundle: those of another layout are not read."""

TILE: Final = 512
"""Words of a tile: with as many points its scores, 1 MiB, stay in the cache."""

DIGIT: Final = 32
"""Base of the two digits of h."""

Form: TypeAlias = Callable[[NDArray[Any]], tuple[Floats, Floats]]
"""Gives y (b, n) and h (b,) of words (b, n) as a bundle has them."""

# Bytes of codes that a process may have for itself, where they cannot lie with the bundle.
_PRIVATE: Final = 1 << 25
_ARRAYS: Final = ("codes", "words", "tiles")


@dataclass(frozen=True, kw_only=True, eq=False)
class CodedWords:
    """Words in tiles, by codes of so many bits.

    Attributes:
        codes: uint8 (V, K): n codes, the low digit, and the high digit in all columns that are left.
        words: int32 (V,), the word's id of each line.
        tiles: float64 (4, T), of each tile: its scale, its longest rest and word, and its highest digit.
        unit: What h is counted in, over the tile's scale.
        zero: The code of 0, in the middle of the others.
    """

    codes: NDArray[np.uint8]
    words: NDArray[np.int32]
    tiles: Floats
    unit: float
    zero: int

    @classmethod
    def of(
        cls, vectors: NDArray[Any], bits: int, file: Path | None = None, *, form: Form | None = None
    ) -> Self:
        """Code words (V, n), in tiles of like largest coordinates; in a file, or in memory."""
        form = form or euclidean
        n, zero = vectors.shape[1], 1 << (bits - 1)
        shape, starts = (len(vectors), columns(n)), range(0, len(vectors), TILE)
        peaks = [np.abs(turned(form(vectors[start : start + TILE])[0])).max(axis=1) for start in starts]
        order = np.argsort(np.concatenate(peaks), kind="stable").astype(np.int32)
        codes = np.empty(shape, dtype=np.uint8) if file is None else _mapped(file, shape)
        tiles, over = np.zeros((4, len(starts))), np.empty(len(vectors))
        blocks = [slice(start, start + TILE) for start in starts]
        for tile, block in enumerate(blocks):
            words, heights = form(vectors[order[block]])
            exact = turned(words)
            scale = float(np.abs(exact).max()) / (zero - 1) or 1.0
            whole = np.rint(exact / scale)
            codes[block, :n] = whole + zero
            squares, rests = np.square(exact).sum(axis=1), np.square(exact - scale * whole).sum(axis=1)
            over[block] = heights / scale
            tiles[:3, tile] = scale, np.sqrt(rests.max()), np.sqrt(squares.max())
        most = (2 * zero - 1) * DIGIT + DIGIT - 1
        unit = float(over.max()) / most or 1.0
        high, low = np.divmod(np.minimum(np.rint(over / unit), most), DIGIT)
        codes[:, n], codes[:, n + 1 :] = low, high[:, None]
        tiles[3] = [high[block].max() for block in blocks]
        return cls(codes=codes, words=order, tiles=tiles, unit=unit, zero=zero)


def _mapped(file: Path, shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Make a file that is written by its map; a full disk is an error here, and ends the process later."""
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


def euclidean(vectors: NDArray[Any]) -> tuple[Floats, Floats]:
    """Give vectors (b, n) and half their squared lengths (b,)."""
    wide: Floats = vectors.astype(np.float64)
    return wide, 0.5 * np.square(wide).sum(axis=1)


@cache
def _axes(dimension: int) -> Floats:
    """Give the type-IV cosine transform, an orthogonal matrix (n, n): it spreads each coordinate over all."""
    halves = np.arange(dimension) + 0.5
    axes: Floats = np.sqrt(2.0 / dimension) * np.cos(np.pi / dimension * np.outer(halves, halves))
    return axes


def turned(vectors: Floats) -> Floats:
    """Turn vectors (t, n) to axes along which no coordinate is much larger than all others."""
    coordinates: Floats = vectors @ _axes(vectors.shape[1])
    return coordinates


def columns(dimension: int) -> int:
    """Count the columns of codes: coordinates, digits, and what makes a multiple of 4 of them."""
    return -(-(dimension + dimension // 64 + 4) // 4) * 4


def kept_codes(embedding: Embedding, name: str, coding: Callable[..., CodedWords]) -> CodedWords | None:
    """Map the codes that lie with a bundle; where there are none make them, once on a machine.

    Where the folder cannot be written to, a process has :func:`own_codes`.
    """
    part, folder = embedding.part(name), embedding.path / PARTS
    if part is None:
        with suppress(OSError, BundleError):
            folder.mkdir(exist_ok=True)
            with FileLock(folder / "codes.lock"):
                part = embedding.part(name) or _made(embedding, name, coding)
    if part is None:
        return own_codes(embedding.vectors.shape, coding)
    paths = {entry: part.path(embedding.path, f"{entry}.npy") for entry in _ARRAYS}
    arrays: dict[str, Any] = {entry: map_array(path).view(np.ndarray) for entry, path in paths.items()}
    return CodedWords(**arrays, **part.values)


def own_codes(shape: tuple[int, ...], coding: Callable[..., CodedWords]) -> CodedWords | None:
    """Make codes of words (V, n) for this process alone; None where they would be large."""
    rows, dimension = shape
    return coding() if rows * columns(dimension) <= _PRIVATE else None


def _made(embedding: Embedding, name: str, coding: Callable[..., CodedWords]) -> Part | None:
    with TemporaryDirectory(dir=embedding.path / PARTS, prefix=".codes-") as folder:
        files = {f"{entry}.npy": Path(folder, f"{entry}.npy") for entry in _ARRAYS}
        coded = coding(file=files["codes.npy"])
        for entry in _ARRAYS[1:]:
            np.save(files[f"{entry}.npy"], getattr(coded, entry))
        values = {"unit": coded.unit, "zero": coded.zero}
        del coded  # writes what is mapped
        hashes = {file: file_sha256(path) for file, path in files.items()}
        embedding.keep(Part(name, embedding.fingerprint, values, hashes), files)
    return embedding.part(name)
