"""Scores in integers: which words can be the nearest, by products of 8-bit codes with a proven bound.

The library onnxruntime multiplies them, where it is installed. A processor without instructions for 8-bit
dot products may cut sums to 16 bits; so kernels are tried on the largest sums before they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.codes import (
    DIGIT,
    LAYOUT,
    TILE,
    CodedWords,
    Form,
    columns,
    euclidean,
    kept_codes,
    own_codes,
    turned,
)
from dptext_spark.geometry import Floats, Ints

Integers: TypeAlias = NDArray[np.int32]
Product: TypeAlias = Callable[[Any, int], None]
"""Writes the products (w, t) of what :meth:`Kernel.prepared` made of words (w, K), and w, with points."""

POINTS: Final = 512
"""Points whose scores are held at once."""

MOST: Final = 200
"""Words in question for a point, on average: where there are more, single precision is as fast."""

_GROUP: Final = 32  # words of which only the best score is looked at first
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


class Kernel:
    """Products of 8-bit integers by onnxruntime, in one thread."""

    def prepared(self, words: NDArray[np.uint8]) -> Any:
        """Get words (w, K) ready, where they lie."""
        return _library().OrtValue.ortvalue_from_numpy(words)

    def products(self, points: NDArray[np.int8], scores: Integers) -> Product:
        """Multiply words with points int8 (K, t), into the first lines of scores."""
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


KERNEL: Final = Kernel()


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
    KERNEL.products(np.ascontiguousarray(points.T), scores)(KERNEL.prepared(words), len(words))
    return scores


def _pays(words: int, dimension: int) -> bool:
    return words * dimension > _FEW and dimension > _NARROW


def products_of(words: int, dimension: int) -> str | None:
    """Say what a search among so many words multiplies with on this machine; None where all is small."""
    if not _pays(words, dimension):
        return None
    bits = trusted_bits(columns(dimension))
    return f"codes of {bits} bits where there is room for them" if bits else "single precision"


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarsePoints:
    """A block of points, coded for words; see "Coarse scores" in docs/mathematics.md.

    Attributes:
        codes: int8 (K, t), what words' codes are multiplied with.
        scales: float64 (t,), of codes: t.
        shifts: float64 (t,), what products have too much because a word's code of 0 is not 0.
        strays: float64 (5, t), how far scores stray, with factors of a tile, in units of both scales.
    """

    codes: NDArray[np.int8]
    scales: Floats
    shifts: Floats
    strays: Floats

    @classmethod
    def of(cls, points: Floats, words: CodedWords) -> Self:
        """Code points (t, n)."""
        coordinates, n = turned(points), points.shape[1]
        spread = words.codes.shape[1] - n - 1  # columns that share the high digit's factor
        scales = np.maximum(np.abs(coordinates).max(axis=1) / 127, DIGIT * words.unit / (127 * spread))
        whole = np.rint(coordinates / scales[:, None])
        ratios = words.unit / scales
        low, high = np.minimum(np.rint(ratios), 127), np.rint(DIGIT * ratios)
        codes = np.empty((n + 1 + spread, len(points)), dtype=np.int8)
        codes[:n], codes[n] = whole.T, -low
        share, more = np.divmod(high, spread)
        codes[n + 1 :] = -share - (np.arange(spread)[:, None] < more)
        near = scales[:, None] * whole
        lengths, nears, rests = (
            np.sqrt(np.square(part).sum(axis=1)) / scales for part in (points, near, coordinates - near)
        )
        highs, lows = np.abs(DIGIT * ratios - high), (DIGIT - 1) * np.abs(ratios - low)
        strays = [nears, rests + _STRAY * lengths, _STRAY / scales, highs, lows + 0.5 * ratios + 1.0]
        shifts: Floats = words.zero * whole.sum(axis=1)
        return cls(codes=codes, scales=scales, shifts=shifts, strays=(1.0 + _STRAY) * np.stack(strays))


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarseWords:
    """Words that are looked at by their codes first."""

    coded: CodedWords
    vectors: NDArray[Any]  # (V, n), by word id
    form: Form = euclidean

    @cached_property
    def bounds(self) -> Floats:
        """Factors (T, 5) of :attr:`CoarsePoints.strays`."""
        scales, rests, longest, high = self.coded.tiles
        heights = (high + 1.0) * DIGIT * self.coded.unit * scales
        factors = np.stack([rests, longest, 2.0 * heights, high * scales, scales], axis=1)
        factors /= scales[:, None]
        return factors

    @cached_property
    def tiles(self) -> list[Any]:
        """The tiles as :data:`KERNEL` wants them."""
        codes = self.coded.codes
        return [KERNEL.prepared(codes[start : start + TILE]) for start in range(0, len(codes), TILE)]

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
        coded, block = self.coded, CoarsePoints.of(points, self.coded)
        strays = self.bounds @ block.strays
        highest, lowest = strays - block.shifts, -strays - block.shifts  # to be added to products
        # Scores that the k best words surely have, the least first; these and others are over block.scales.
        best = np.full((k, len(points)), -np.inf)
        scores = np.full((TILE, len(points)), _LEAST, dtype=np.int32)
        product = KERNEL.products(block.codes, scores)
        groups: list[tuple[Ints, Ints, Integers]] = []  # numbers of groups of words, points, their products
        found = 0
        for tile, scale in enumerate(coded.tiles[0].tolist()):
            count = min(TILE, len(coded.codes) - tile * TILE)
            product(self.tiles[tile], count)
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
            groups.append((group + tile * (TILE // _GROUP), point, grouped[group, :, point]))
            if (found := found + len(group)) > MOST * len(points):
                return None
        group, point, product_of = (np.concatenate(part) for part in zip(*groups, strict=True))
        tiles = group // (TILE // _GROUP)
        scales, offsets = coded.tiles[0, tiles], highest[tiles, point]
        flat = np.flatnonzero(product_of >= _limits(best[0, point], scales, offsets)[:, None])
        if len(flat) > MOST * len(points):
            return None
        pair, place = np.divmod(flat, _GROUP)
        rows, words = point[pair], coded.words[_GROUP * group[pair] + place].astype(np.int64)
        upper = (product_of.ravel()[flat] + offsets[pair]) * scales[pair]
        kept = upper >= self._floor(points, rows, words, upper, k, block.scales)[rows]
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
    limits: Floats = np.minimum(np.maximum(best / scales - offsets - 1.0, _LEAST + 1.0), -_LEAST - 1.0)
    return limits.astype(np.int32)


def coarse_words(
    vectors: NDArray[Any], embedding: Embedding | None = None, form: Form = euclidean
) -> CoarseWords | None:
    """Get ready to look at words (V, n) by codes, which lie with the bundle if they are its words.

    None where that does not pay, or where no product can be trusted.
    """
    bits = trusted_bits(columns(vectors.shape[1])) if _pays(*vectors.shape) else 0
    if not bits:
        return None
    code, name = partial(CodedWords.of, vectors, bits, form=form), f"codes-{LAYOUT}-{len(vectors)}-{bits}"
    coded = own_codes(vectors.shape, code) if embedding is None else kept_codes(embedding, name, code)
    return None if coded is None else CoarseWords(coded=coded, vectors=vectors, form=form)
