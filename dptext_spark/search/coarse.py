"""Coarse scores in integers: words as 8-bit codes, and which of them can be the nearest, by a proven bound.

A point q scores a word by q·y - h: y is its vector and h half the squared length, or both are its Lorentz
coordinates. y = s c + r, along other axes, has codes c, a scale s that its tile shares, and a rest r. Behind
its codes stands h in two digits, so that one product of integers gives a score. See "Coarse scores" in
docs/mathematics.md.

The library onnxruntime multiplies codes, where it is installed, several times as fast as single precision. A
processor without instructions for 8-bit dot products may cut sums to 16 bits; so kernels are tried on the
largest sums before they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import PARTS, Embedding, Part
from dptext_spark.errors import BundleError
from dptext_spark.geometry import Floats, Ints

Integers: TypeAlias = NDArray[np.int32]

Form: TypeAlias = Callable[[NDArray[Any]], tuple[Floats, Floats]]
"""Gives y (b, n) and h (b,) of words (b, n) as a bundle has them."""

POINTS: Final = 512
"""Points whose scores are held at once."""

MOST: Final = 200
"""Words in question for a point, on average: where there are more, single precision is as fast."""

_LAYOUT: Final = 1  # of codes that lie with a bundle: those of another layout are not read
_TILE: Final = 512  # words of a tile: with as many points its scores, 1 MiB, stay in the cache
_DIGIT: Final = 32  # base of the two digits of h
_GROUP: Final = 32  # words of which only the best score is looked at first
_PRIVATE: Final = 1 << 25  # bytes of codes that a process may have for itself, beside no bundle
_LEAST: Final = np.iinfo(np.int32).min
# A relative error above all roundings in double precision, and above what a point of the ball may stray from
# where it is said to be, and far below that of codes.
_STRAY: Final = 2.0**-26
_FAR: Final = 1e100
# Coordinates of all words, and of one, up to which single precision is as fast.
_FEW: Final = 1 << 19
_NARROW: Final = 15
_SIZES: Final = (1, 2, 3, 5, 8, 13, 16, 31, 48, 65, POINTS)


@cache
def _library() -> Any:
    import onnxruntime  # late, for it takes a worker 30 MB

    onnxruntime.disable_telemetry_events()
    return onnxruntime


@cache
def _session() -> Any:
    """Open a kernel in this process, in one thread."""
    onnxruntime = _library()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(_model(), options, providers=["CPUExecutionProvider"])


def _model() -> bytes:
    """Write the model, one operator, as Protocol Buffers: fields of onnx.proto3 by number, all short."""

    def message(*entries: tuple[int, int | bytes]) -> bytes:
        return b"".join(
            bytes([number << 3, value])
            if isinstance(value, int)
            else bytes([number << 3 | 2, len(value)]) + value
            for number, value in entries
        )

    def tensor(name: bytes, kind: int) -> bytes:
        return message((1, name), (2, message((1, message((1, kind))))))

    node = message((1, b"words"), (1, b"points"), (2, b"scores"), (4, b"MatMulInteger"))
    tensors = (11, tensor(b"words", 2)), (11, tensor(b"points", 3)), (12, tensor(b"scores", 6))
    return message((1, 8), (7, message((1, node), (2, b"g"), *tensors)), (8, message((2, 13))))


def prepared(words: NDArray[np.uint8]) -> Any:
    """Get words (w, K) ready to be multiplied, where they lie."""
    return _library().OrtValue.ortvalue_from_numpy(words)


def products(points: NDArray[np.int8], scores: Integers) -> Callable[[Any, int], None]:
    """Give what multiplies prepared words, so many, with points (K, t), into the first lines of scores."""
    session = _session()
    binding, bound = session.io_binding(), 0
    binding.bind_cpu_input("points", points)

    def product(words: Any, count: int) -> None:
        nonlocal bound
        if count != bound:
            shape, bound = (count, scores.shape[1]), count
            binding.bind_output("scores", "cpu", 0, np.int32, shape, scores.ctypes.data)
        binding.bind_ortvalue_input("words", words)
        session.run_with_iobinding(binding)

    return product


@cache
def trusted_bits(width: int) -> int:
    """Say how many bits of words' codes products of so wide rows bear on this processor: 8, 7 or none."""
    if find_spec("onnxruntime") is None:
        return 0
    rows = np.arange(POINTS)[:, None] * 31 + np.arange(width) * 17
    points = ((127 - rows % 5) * np.where(rows // 64 % 3, 1, -1)).astype(np.int8)
    for bits in (8, 7):
        words = ((1 << bits) - 1 - rows % 3).astype(np.uint8)
        expected = (words.astype(np.float64) @ points.T.astype(np.float64)).astype(np.int64)
        shapes = [(w, t) for w in _SIZES for t in _SIZES]
        if all(np.array_equal(_tried(words[:w], points[:t]), expected[:w, :t]) for w, t in shapes):
            return bits
    return 0


def _tried(words: NDArray[np.uint8], points: NDArray[np.int8]) -> Integers:
    scores = np.empty((len(words), len(points)), dtype=np.int32)
    products(np.ascontiguousarray(points.T), scores)(prepared(words), len(words))
    return scores


def _pays(words: int, dimension: int) -> bool:
    return words * dimension > _FEW and dimension > _NARROW


def products_of(words: int, dimension: int) -> str | None:
    """Say what a search among so many words multiplies with on this machine; None where all is small."""
    if not _pays(words, dimension):
        return None
    bits = trusted_bits(columns(dimension))
    return f"codes of {bits} bits where there is room for them" if bits else "single precision"


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


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarseWords:
    """Words in tiles, by codes of so many bits, that are looked at by these first.

    Attributes:
        vectors: (V, n), by word id.
        form: Of the words.
        codes: uint8 (V, K): n codes, the low digit, and the high digit in all columns that are left.
        words: int32 (V,), the word's id of each line.
        tiles: float64 (4, T), of each tile: its scale, its longest rest and word, and its highest digit.
        unit: What h is counted in, over the tile's scale.
        zero: The code of 0, in the middle of the others.
    """

    vectors: NDArray[Any]
    form: Form
    codes: NDArray[np.uint8]
    words: NDArray[np.int32]
    tiles: Floats
    unit: float
    zero: int

    @classmethod
    def of(
        cls, vectors: NDArray[Any], bits: int, form: Form = euclidean, *, file: Path | None = None
    ) -> Self:
        """Code words (V, n), in tiles of like largest coordinates; in a file, or in memory."""
        n, zero = vectors.shape[1], 1 << (bits - 1)
        shape, starts = (len(vectors), columns(n)), range(0, len(vectors), _TILE)
        peaks = [
            np.abs(turned(form(vectors[start : start + _TILE])[0])).max(axis=1) for start in starts
        ]
        order = np.argsort(np.concatenate(peaks), kind="stable").astype(np.int32)
        codes = np.empty(shape, dtype=np.uint8) if file is None else _mapped(file, shape)
        tiles, over = np.zeros((4, len(starts))), np.empty(len(vectors))
        blocks = [slice(start, start + _TILE) for start in starts]
        for tile, block in enumerate(blocks):
            words, heights = form(vectors[order[block]])
            exact = turned(words)
            scale = float(np.abs(exact).max()) / (zero - 1) or 1.0
            whole = np.rint(exact / scale)
            codes[block, :n] = whole + zero
            squares, rests = (
                np.square(exact).sum(axis=1),
                np.square(exact - scale * whole).sum(axis=1),
            )
            over[block] = heights / scale
            tiles[:3, tile] = scale, np.sqrt(rests.max()), np.sqrt(squares.max())
        most = (2 * zero - 1) * _DIGIT + _DIGIT - 1
        unit = float(over.max()) / most or 1.0
        high, low = np.divmod(np.minimum(np.rint(over / unit), most), _DIGIT)
        codes[:, n], codes[:, n + 1 :] = low, high[:, None]
        tiles[3] = [high[block].max() for block in blocks]
        arrays: dict[str, Any] = {"codes": codes, "words": order, "tiles": tiles}
        return cls(vectors=vectors, form=form, **arrays, unit=unit, zero=zero)

    @cached_property
    def bounds(self) -> Floats:
        """Factors (T, 5) of how far scores stray, see :func:`coded_points`."""
        scales, rests, longest, high = self.tiles
        heights = (high + 1.0) * _DIGIT * self.unit * scales
        factors = np.stack([rests, longest, 2.0 * heights, high * scales, scales], axis=1)
        factors /= scales[:, None]
        return factors

    @cached_property
    def factors(self) -> list[Any]:
        """The tiles as :func:`products` wants them."""
        return [
            prepared(self.codes[start : start + _TILE])
            for start in range(0, len(self.codes), _TILE)
        ]

    def candidates(self, points: Floats, k: int) -> tuple[Ints, Ints] | None:
        """Find all words that may be among the k nearest: rows of points and of words, int64 (c,) each.

        None where there are too many of them, or points so far that sums overflow.
        """
        if not np.abs(points).max(initial=0.0) < _FAR:
            return None
        rows, words = [], []
        for start in range(0, len(points), POINTS):
            if (found := self._candidates(points[start : start + POINTS], k)) is None:
                return None
            rows.append(found[0] + start)
            words.append(found[1])
        return np.concatenate(rows), np.concatenate(words)

    def _candidates(self, points: Floats, k: int) -> tuple[Ints, Ints] | None:
        codes, point_scales, shifts, astray = coded_points(points, self)
        strays = self.bounds @ astray
        highest, lowest = strays - shifts, -strays - shifts  # to be added to products
        # Scores that the k best words surely have, the least first; these and others are over point_scales.
        best = np.full((k, len(points)), -np.inf)
        scores = np.full((_TILE, len(points)), _LEAST, dtype=np.int32)
        product = products(codes, scores)
        groups: list[
            tuple[Ints, Ints, Integers]
        ] = []  # numbers of groups of words, points, their products
        found = 0
        for tile, scale in enumerate(self.tiles[0].tolist()):
            count = min(_TILE, len(self.codes) - tile * _TILE)
            product(self.factors[tile], count)
            scores[count:] = _LEAST
            grouped = scores[: -(-count // _GROUP) * _GROUP].reshape(-1, _GROUP, len(points))
            peaks = grouped.max(axis=1)
            if k == 1:
                np.maximum(best[0], (peaks.max(axis=0) + lowest[tile]) * scale, out=best[0])
            else:
                # The best words of groups are different words: they bound the k best from below.
                tops = peaks if len(peaks) <= k else np.partition(peaks, -k, axis=0)[-k:]
                best = np.sort(np.concatenate([best, (tops + lowest[tile]) * scale]), axis=0)[-k:]
            limits = _limits(best[0], scale, highest[tile])
            group, point = np.divmod(np.flatnonzero(peaks >= limits), len(points))
            groups.append((group + tile * (_TILE // _GROUP), point, grouped[group, :, point]))
            if (found := found + len(group)) > MOST * len(points):
                return None
        group, point, product_of = (np.concatenate(part) for part in zip(*groups, strict=True))
        tiles = group // (_TILE // _GROUP)
        scales, offsets = self.tiles[0, tiles], highest[tiles, point]
        flat = np.flatnonzero(product_of >= _limits(best[0, point], scales, offsets)[:, None])
        if len(flat) > MOST * len(points):
            return None
        pair, place = np.divmod(flat, _GROUP)
        rows, words = point[pair], self.words[_GROUP * group[pair] + place].astype(np.int64)
        upper = (product_of.ravel()[flat] + offsets[pair]) * scales[pair]
        kept = upper >= self._floor(points, rows, words, upper, k, point_scales)[rows]
        return rows[kept], words[kept]

    def _floor(
        self, points: Floats, rows: Ints, words: Ints, upper: Floats, k: int, scales: Floats
    ) -> Floats:
        """Bound the k-th best score of each point, by exact ones of the words that may score most."""
        floor, left = np.full(len(points), np.inf), upper.copy()
        for _ in range(k):
            top = np.full(len(points), -np.inf)
            np.maximum.at(top, rows, left)
            leaders = np.flatnonzero(left == top[rows])
            left[leaders] = -np.inf
            owners, (vectors, heights) = rows[leaders], self.form(self.vectors[words[leaders]])
            terms = points[owners] * vectors
            exact = terms.sum(axis=1) - heights - _STRAY * (np.abs(terms).sum(axis=1) + heights)
            np.minimum.at(floor, owners, exact / scales[owners])
        return floor


def _limits(best: Floats, scales: Any, offsets: Floats) -> Integers:
    """Say from which integer score on words may be among the best."""
    limits: Floats = np.minimum(
        np.maximum(best / scales - offsets - 1.0, _LEAST + 1.0), -_LEAST - 1.0
    )
    return limits.astype(np.int32)


def coded_points(
    points: Floats, words: CoarseWords
) -> tuple[NDArray[np.int8], Floats, Floats, Floats]:
    """Code points (t, n) for words, as "Coarse scores" in docs/mathematics.md has it.

    Gives int8 (K, t), what words' codes are multiplied with; the codes' scales (t,); (t,), what products have
    too much because a word's code of 0 is not 0; and (5, t), how far scores stray, with factors of a tile,
    in units of both scales.
    """
    coordinates, n = turned(points), points.shape[1]
    spread = words.codes.shape[1] - n - 1  # columns that share the high digit's factor
    scales = np.maximum(np.abs(coordinates).max(axis=1) / 127, _DIGIT * words.unit / (127 * spread))
    whole = np.rint(coordinates / scales[:, None])
    ratios = words.unit / scales
    low, high = np.minimum(np.rint(ratios), 127), np.rint(_DIGIT * ratios)
    codes = np.empty((n + 1 + spread, len(points)), dtype=np.int8)
    codes[:n], codes[n] = whole.T, -low
    share, more = np.divmod(high, spread)
    codes[n + 1 :] = -share - (np.arange(spread)[:, None] < more)
    near = scales[:, None] * whole
    lengths, nears, rests = (
        np.sqrt(np.square(part).sum(axis=1)) / scales for part in (points, near, coordinates - near)
    )
    highs, lows = np.abs(_DIGIT * ratios - high), (_DIGIT - 1) * np.abs(ratios - low)
    strays = [nears, rests + _STRAY * lengths, _STRAY / scales, highs, lows + 0.5 * ratios + 1.0]
    shifts: Floats = words.zero * whole.sum(axis=1)
    return codes, scales, shifts, (1.0 + _STRAY) * np.stack(strays)


def _mapped(file: Path, shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Make a file that is written by its map; a full disk is an error here, and ends the process later."""
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


def coarse_words(
    vectors: NDArray[Any], embedding: Embedding | None = None, form: Form = euclidean
) -> CoarseWords | None:
    """Get ready to look at words (V, n) by codes, which lie with the bundle if they are its words.

    None where that does not pay, where no product can be trusted, or where codes would be large and no folder
    can have them.
    """
    width = columns(vectors.shape[1])
    bits = trusted_bits(width) if _pays(*vectors.shape) else 0
    if bits and embedding is not None and (part := _stored_codes(embedding, vectors, bits, form)):
        return CoarseWords(vectors=vectors, form=form, **part.arrays(embedding.path), **part.values)
    return (
        CoarseWords.of(vectors, bits, form) if bits and len(vectors) * width <= _PRIVATE else None
    )


def _stored_codes(
    embedding: Embedding, vectors: NDArray[Any], bits: int, form: Form
) -> Part | None:
    """Find the codes that lie with a bundle; where there are none make them, once on a machine."""
    name, folder = f"codes-{_LAYOUT}-{len(vectors)}-{bits}", embedding.path / PARTS
    part = embedding.part(name)
    with suppress(OSError, BundleError):
        if part is None:
            folder.mkdir(exist_ok=True)
            with (
                FileLock(folder / "codes.lock"),
                TemporaryDirectory(dir=folder, prefix=".codes-") as made,
            ):
                part = embedding.part(name)
                if part is None:
                    coded = CoarseWords.of(vectors, bits, form, file=Path(made, "codes.npy"))
                    np.save(Path(made, "words.npy"), coded.words)
                    np.save(Path(made, "tiles.npy"), coded.tiles)
                    values = {"unit": coded.unit, "zero": coded.zero}
                    del coded  # writes what is mapped
                    part = embedding.keep(name, values, Path(made))
    return part
