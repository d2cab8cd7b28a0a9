"""Words as 8-bit codes, which a coarse search multiplies several times as fast as single precision.

A word y = s c + r has codes c, a scale s that its tile shares, and a rest r. Behind its codes stands half
its squared length in two digits, so that one product of integers gives a score. See "Coarse scores" in
docs/mathematics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry import Floats, Floats32, Ints

TILE: Final = 512
"""Words of a tile: with as many points its scores, 1 MiB, stay in the cache."""

DIGIT: Final = 32
"""Base of the two digits of half a squared length."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CodedWords:
    """Words in tiles, by codes of so many bits.

    Attributes:
        codes: uint8 (V, K): n codes, the low digit, and the high digit in all columns that are left.
        words: int32 (V,), the word's id of each line.
        starts: int64 (T + 1,), where each tile starts.
        tiles: float64 (4, T), of each tile: its scale, its longest rest and word, and its highest digit.
        unit: What half squared lengths are counted in, over the tile's scale.
    """

    codes: NDArray[np.uint8]
    words: NDArray[np.int32]
    starts: Ints
    tiles: Floats
    unit: float
    bits: int

    @property
    def zero(self) -> int:
        """The code of 0, in the middle of the others."""
        return 1 << (self.bits - 1)

    @classmethod
    def of(cls, vectors: Floats32, bits: int) -> Self:
        """Code words (V, n), in tiles of those whose largest coordinates are alike."""
        peaks = [np.abs(vectors[start : start + TILE]).max(axis=1) for start in range(0, len(vectors), TILE)]
        order = np.argsort(np.concatenate(peaks), kind="stable")
        return cls.in_tiles(vectors, order, [*range(0, len(order), TILE), len(order)], bits)

    @classmethod
    def in_tiles(cls, vectors: Floats32, order: Ints, starts: Sequence[int], bits: int) -> Self:
        """Code words (V, n) in an order and in tiles that are given."""
        n, zero, most = vectors.shape[1], 1 << (bits - 1), (1 << bits) - 1
        columns = -(-(n + n // 64 + 4) // 4) * 4
        codes = np.empty((len(order), columns), dtype=np.uint8)
        tiles, halves = np.zeros((4, len(starts) - 1)), np.empty(len(order))
        blocks = [slice(*ends) for ends in pairwise(starts)]
        for tile, block in enumerate(blocks):
            vectors64 = vectors[order[block]].astype(np.float64)
            scale = float(np.abs(vectors64).max(initial=0.0)) / (zero - 1) or 1.0
            whole = np.rint(vectors64 / scale)
            codes[block, :n] = whole + zero
            squares = np.square(vectors64).sum(axis=1)
            halves[block] = squares / (2.0 * scale)
            rests = np.square(vectors64 - scale * whole).sum(axis=1)
            tiles[:3, tile] = scale, np.sqrt(rests.max(initial=0.0)), np.sqrt(squares.max(initial=0.0))
        largest = most * DIGIT + DIGIT - 1
        unit = float(halves.max()) / largest or 1.0
        high, low = np.divmod(np.minimum(np.rint(halves / unit), largest), DIGIT)
        codes[:, n], codes[:, n + 1 :] = low, high[:, None]
        tiles[3] = [high[block].max(initial=0.0) for block in blocks]
        return cls(
            codes=codes,
            words=order.astype(np.int32),
            starts=np.asarray(starts, dtype=np.int64),
            tiles=tiles,
            unit=unit,
            bits=bits,
        )
