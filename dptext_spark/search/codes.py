"""Words and points as 8-bit codes, and a proven bound on how far scores by codes are off.

A point q scores a word by q·y - h: y is its vector and h half the squared length, or both are its
Lorentz coordinates. In rotated axes y = s c + r: codes c, a scale s that all words of a tile share,
and a rest r. The columns after the codes hold h in two digits, so that one product of integers is a
score. See "Coarse scores" in docs/mathematics.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry import Floats, Ints
from dptext_spark.search import kernel

ScoreTerms: TypeAlias = Callable[[NDArray[Any]], tuple[Floats, Floats]]
"""Returns y (b, n) and h (b,) of a bundle's words (b, n)."""

TILE: Final = kernel.BLOCK
"""Words that share a scale."""

RELATIVE_ERROR: Final = 2.0**-26
"""More than roundings of float64 and than the error of a ball point's length."""

_DIGIT: Final = 32  # base of the two digits of h


def euclidean(vectors: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return vectors (b, n) and half their squared lengths (b,)."""
    wide: Floats = vectors.astype(np.float64)
    return wide, 0.5 * np.square(wide).sum(axis=1)


@cache
def _axes(dimension: int) -> Floats:
    """Return the type-IV cosine transform: an orthogonal matrix (n, n) that mixes coordinates."""
    halves = np.arange(dimension) + 0.5
    axes: Floats = np.sqrt(2.0 / dimension) * np.cos(np.pi / dimension * np.outer(halves, halves))
    return axes


def rotated(vectors: Floats) -> Floats:
    """Return coordinates of vectors (t, n) in axes where none is much larger than the others."""
    coordinates: Floats = vectors @ _axes(vectors.shape[1])
    return coordinates


def code_width(dimension: int) -> int:
    """Count the columns of codes: coordinates, digits, and padding to a multiple of 4."""
    return -(-(dimension + dimension // 64 + 4) // 4) * 4


@dataclass(frozen=True, kw_only=True, eq=False)
class CodedWords:
    """Words and their codes, in tiles of words whose largest coordinates are alike.

    Attributes:
        vectors: (V, n), by word id.
        score_terms: y and h of the vectors.
        codes: uint8 (V, K): n codes, the low digit, and the high digit in all other columns.
        words: int32 (V,), the word id of each line of the codes.
        tiles: float64 (4, T): each tile's scale, longest rest, longest word and highest digit.
        unit: What h is counted in, over the tile's scale.
        zero: The code of 0, in the middle of the others.
        barred_lines: By tile, the lines of words that are never found; none has some where empty.
    """

    vectors: NDArray[Any]
    score_terms: ScoreTerms
    codes: NDArray[np.uint8]
    words: NDArray[np.int32]
    tiles: Floats
    unit: float
    zero: int
    barred_lines: tuple[Ints, ...] = ()

    @classmethod
    def of(
        cls,
        vectors: NDArray[Any],
        bits: int,
        score_terms: ScoreTerms = euclidean,
        *,
        file: Path | None = None,
    ) -> Self:
        """Code words (V, n) in so many bits, in the file, or in memory without one."""
        dimension = vectors.shape[1]
        zero = 1 << (bits - 1)
        words = _by_peak(vectors, score_terms)
        codes = _empty_codes((len(vectors), code_width(dimension)), file)
        blocks = [slice(start, start + TILE) for start in range(0, len(vectors), TILE)]
        tiles = np.zeros((4, len(blocks)))
        scaled_heights = np.empty(len(vectors))
        for tile, block in enumerate(blocks):
            points, heights = score_terms(vectors[words[block]])
            coordinates = rotated(points)
            scale = float(np.abs(coordinates).max()) / (zero - 1) or 1.0
            digits = np.rint(coordinates / scale)
            codes[block, :dimension] = digits + zero
            squares = np.square(coordinates).sum(axis=1)
            squared_rests = np.square(coordinates - scale * digits).sum(axis=1)
            tiles[:3, tile] = scale, np.sqrt(squared_rests.max()), np.sqrt(squares.max())
            scaled_heights[block] = heights / scale
        largest_height = (2 * zero - 1) * _DIGIT + _DIGIT - 1
        unit = float(scaled_heights.max()) / largest_height or 1.0
        whole_heights = np.minimum(np.rint(scaled_heights / unit), largest_height)
        high, low = np.divmod(whole_heights, _DIGIT)
        codes[:, dimension] = low
        codes[:, dimension + 1 :] = high[:, None]
        tiles[3] = [high[block].max() for block in blocks]
        return cls(
            vectors=vectors,
            score_terms=score_terms,
            codes=codes,
            words=words,
            tiles=tiles,
            unit=unit,
            zero=zero,
        )

    def without(self, barred: NDArray[np.bool_]) -> Self:
        """Return these codes for a search that never finds some of the words, bool (V,)."""
        if not barred.any():
            return self
        lines = barred[self.words]
        starts = range(0, len(lines), TILE)
        barred_lines = tuple(np.flatnonzero(lines[start : start + TILE]) for start in starts)
        return replace(self, barred_lines=barred_lines)

    @cached_property
    def tile_errors(self) -> Floats:
        """What a tile adds to the error of scores, (T, 5); see :class:`CodedPoints`."""
        scales, rests, lengths, high = self.tiles
        heights = (high + 1.0) * _DIGIT * self.unit * scales
        errors = np.stack([rests, lengths, 2.0 * heights, high * scales, scales], axis=1)
        errors /= scales[:, None]
        return errors

    @cached_property
    def prepared_tiles(self) -> list[Any]:
        """The codes of each tile, as the kernel takes them."""
        starts = range(0, len(self.codes), TILE)
        return [kernel.prepare(self.codes[start : start + TILE]) for start in starts]


def _by_peak(vectors: NDArray[Any], score_terms: ScoreTerms) -> NDArray[np.int32]:
    """Return word ids (V,) in ascending order of the largest coordinate."""
    peaks = []
    for start in range(0, len(vectors), TILE):
        points, _ = score_terms(vectors[start : start + TILE])
        peaks.append(np.abs(rotated(points)).max(axis=1))
    return np.argsort(np.concatenate(peaks), kind="stable").astype(np.int32)


def _empty_codes(shape: tuple[int, int], file: Path | None) -> NDArray[np.uint8]:
    """Return an array for codes, mapped where there is a file.

    A full disk is an error here; without space of its own, the map would end the process later.
    """
    if file is None:
        return np.empty(shape, dtype=np.uint8)
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class CodedPoints:
    """Points (t, n) as codes, for some coded words.

    A product p of codes scores a word p - shift. The error is at most the product of the tile's
    errors (5,) with the point's errors (5,). All are in units of the tile's scale times the point's
    scale.
    """

    codes: NDArray[np.int8]  # (K, t), to be multiplied with words' codes
    scales: Floats  # (t,)
    shifts: Floats  # (t,), what products have too much because a word's code of 0 is not 0
    errors: Floats  # (5, t)


def coded_points(points: Floats, words: CodedWords) -> CodedPoints:
    """Code points (t, n) for words, by "Coarse scores" in docs/mathematics.md."""
    dimension = points.shape[1]
    coordinates = rotated(points)
    high_columns = words.codes.shape[1] - dimension - 1  # they share the high digit's factor
    peaks = np.abs(coordinates).max(axis=1)
    scales = np.maximum(peaks / 127, _DIGIT * words.unit / (127 * high_columns))
    digits = np.rint(coordinates / scales[:, None])
    ratios = words.unit / scales
    low = np.minimum(np.rint(ratios), 127)
    high = np.rint(_DIGIT * ratios)

    codes = np.empty((dimension + 1 + high_columns, len(points)), dtype=np.int8)
    codes[:dimension] = digits.T
    codes[dimension] = -low
    share, remainder = np.divmod(high, high_columns)
    codes[dimension + 1 :] = -share - (np.arange(high_columns)[:, None] < remainder)

    coded = scales[:, None] * digits
    coded_lengths = _lengths(coded) / scales
    rests = _lengths(coordinates - coded) / scales
    lengths = _lengths(points) / scales
    high_errors = np.abs(_DIGIT * ratios - high)
    low_errors = (_DIGIT - 1) * np.abs(ratios - low)
    errors = [
        coded_lengths,
        rests + RELATIVE_ERROR * lengths,
        RELATIVE_ERROR / scales,
        high_errors,
        low_errors + 0.5 * ratios + 1.0,
    ]
    return CodedPoints(
        codes=codes,
        scales=scales,
        shifts=words.zero * digits.sum(axis=1),
        errors=(1.0 + RELATIVE_ERROR) * np.stack(errors),
    )


def _lengths(vectors: Floats) -> Floats:
    lengths: Floats = np.sqrt(np.square(vectors).sum(axis=1))
    return lengths
