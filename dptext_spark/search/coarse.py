"""Scores in integers: which words can be the nearest, by products of 8-bit codes with a proven bound.

The library onnxruntime multiplies them, where it is installed. A processor without instructions for 8-bit
dot products may cut sums to 16 bits; so kernels are tried on the largest sums before they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.codes import DIGIT, TILE, CodedWords
from dptext_spark.geometry import Floats, Floats32, Ints

Integers: TypeAlias = NDArray[np.int32]
Product: TypeAlias = Callable[[Any], Integers]
"""Takes what :func:`prepared` made of uint8 words (w, K), gives their products (w, t) with points."""

POINTS: Final = 512
"""Points whose scores are held at once."""

MOST: Final = 200
"""Groups of words in question for a point: where there are more, single precision is as fast."""

_GROUP: Final = 32  # words of which only the best score is looked at first
_LEAST: Final = np.iinfo(np.int32).min
# A relative error far above all roundings in double precision and far below that of codes.
_STRAY: Final = 2.0**-36
_SIZES: Final = (1, 2, 3, 5, 8, 13, 16, 31, 48, 65, POINTS)


@cache
def _library() -> Any:
    import onnxruntime  # late, for it takes a worker 30 MB

    onnxruntime.disable_telemetry_events()
    return onnxruntime


@cache
def _session(turn: bool) -> Any:
    """Open a kernel of onnxruntime: uint8 (w, K) times int8 (K, t), or (t, K) where points ``turn``."""
    onnxruntime = _library()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(_model(turn), options, providers=["CPUExecutionProvider"])


def _model(turn: bool) -> bytes:
    """Write the model, a message of Protocol Buffers: fields of onnx.proto3 by number, all of them short."""

    def message(*entries: tuple[int, int | bytes]) -> bytes:
        return b"".join(
            bytes([number << 3, value])
            if isinstance(value, int)
            else bytes([number << 3 | 2, len(value)]) + value
            for number, value in entries
        )

    def tensor(name: bytes, kind: int) -> bytes:
        return message((1, name), (2, message((1, message((1, kind))))))

    turned = message((1, b"points"), (2, b"turned"), (4, b"Transpose"))
    product = message(
        (1, b"words"), (1, b"turned" if turn else b"points"), (2, b"scores"), (4, b"MatMulInteger")
    )
    nodes = [(1, turned)] * turn + [(1, product)]
    tensors = (11, tensor(b"words", 2)), (11, tensor(b"points", 3)), (12, tensor(b"scores", 6))
    return message((1, 8), (7, message(*nodes, (2, b"g"), *tensors)), (8, message((2, 13))))


class Kernel:
    """Products of 8-bit integers by onnxruntime, in one thread."""

    def prepared(self, words: NDArray[np.uint8]) -> Any:
        """Get words (w, K) ready, where they lie."""
        return _library().OrtValue.ortvalue_from_numpy(words)

    def products(self, points: NDArray[np.int8], scores: Integers, turn: bool) -> Product:
        """Multiply words with points int8 (K, t), or (t, K) where they ``turn``, into the first lines of scores."""
        session = _session(turn)
        binding, bound = session.io_binding(), 0
        binding.bind_cpu_input("points", points)

        def product(words: Any, count: int) -> Integers:
            nonlocal bound
            if count != bound:
                shape, bound = (count, scores.shape[1]), count
                binding.bind_output("scores", "cpu", 0, np.int32, shape, scores.ctypes.data)
            binding.bind_ortvalue_input("words", words)
            session.run_with_iobinding(binding)
            return scores[:count]

        return product


KERNEL: Final = Kernel()


@cache
def trusted_bits(columns: int) -> int:
    """Say how many bits of words' codes the products of such rows bear on this processor: 8, 7 or none."""
    if find_spec("onnxruntime") is None:
        return 0
    rows = np.arange(POINTS)[:, None] * 31 + np.arange(columns) * 17
    points = ((127 - rows % 5) * np.where(rows // 64 % 3, 1, -1)).astype(np.int8)
    for bits in (8, 7):
        words = ((1 << bits) - 1 - rows % 3).astype(np.uint8)
        expected = (words.astype(np.float64) @ points.T.astype(np.float64)).astype(np.int64)
        shapes = [(w, t, turn) for w in _SIZES for t in _SIZES for turn in (False, True)]
        if all(
            np.array_equal(_tried(words[:w], points[:t], turn), expected[:w, :t]) for w, t, turn in shapes
        ):
            return bits
    return 0


def _tried(words: NDArray[np.uint8], points: NDArray[np.int8], turn: bool) -> Integers:
    scores = np.empty((len(words), len(points)), dtype=np.int32)
    product = KERNEL.products(points if turn else np.ascontiguousarray(points.T), scores, turn)
    return product(KERNEL.prepared(words), len(words))


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarseWords:
    """Words that are looked at by their codes first; ``stops`` (T,) cut each tile's last ones off."""

    coded: CodedWords
    vectors: Floats32  # (V, n), by word id
    stops: Ints

    @cached_property
    def bounds(self) -> Floats:
        """What a tile's factors of :attr:`CoarsePoints.strays` are, (T, 5)."""
        scales, rests, longest, high = self.coded.tiles
        return np.stack(
            [rests / scales, longest / scales, np.square(longest) / scales, high, scales / scales], axis=1
        )

    @cached_property
    def tiles(self) -> list[Any]:
        """The tiles as :data:`KERNEL` wants them."""
        ends = zip(self.coded.starts.tolist(), self.stops.tolist(), strict=False)
        return [KERNEL.prepared(self.coded.codes[start:stop]) for start, stop in ends]

    def candidates(self, points: Floats, k: int) -> tuple[Ints, Ints] | None:
        """Find all words that may be among the k nearest: rows of points and of words; None for too many."""
        parts = []
        scores = np.empty((TILE, min(POINTS, len(points))), dtype=np.int32)
        for start in range(0, len(points), POINTS):
            block = CoarsePoints(self, points[start : start + POINTS], k)
            own = scores.reshape(-1)[: TILE * len(block.points)].reshape(TILE, -1)
            product = KERNEL.products(np.ascontiguousarray(block.codes.T), own, turn=False)
            for tile in range(len(self.stops)):
                block.add(tile, None, product, own)
            if (found := block.pairs()) is None:
                return None
            parts.append((found[0] + start, found[1]))
        rows, words = (np.concatenate(part) for part in zip(*parts, strict=True))
        return rows, words


class CoarsePoints:
    """A block of points, of whose scores tile after tile comes."""

    def __init__(self, words: CoarseWords, points: Floats, k: int) -> None:
        self.points, self._words, self._k = points, words, k
        coded, n = words.coded, points.shape[1]
        columns = coded.codes.shape[1] - n - 1
        # So large that the digits' factors fit into their columns.
        scales = np.maximum(np.abs(points).max(axis=1) / 127, DIGIT * coded.unit / (127 * columns))
        whole = np.rint(points / scales[:, None])
        ratios = coded.unit / scales
        low, high = np.minimum(np.rint(ratios), 127), np.rint(DIGIT * ratios)
        self.codes = np.empty((len(points), n + 1 + columns), dtype=np.int8)
        self.codes[:, :n], self.codes[:, n] = whole, -low
        share, more = np.divmod(high[:, None], columns)
        self.codes[:, n + 1 :] = -share - (np.arange(columns) < more)
        self._shifts = coded.zero * whole.sum(axis=1)
        self._scales = scales
        lengths, codes, rests = (
            np.sqrt(np.square(part).sum(axis=1)) / scales
            for part in (points, scales[:, None] * whole, points - scales[:, None] * whole)
        )
        # In units of a tile's scale times the point's, with the factors of CoarseWords.bounds.
        digits = np.abs(DIGIT * ratios - high), (DIGIT - 1) * np.abs(ratios - low) + 0.5 * ratios + 1.0
        self.strays = (1 + _STRAY) * np.stack([codes, rests + _STRAY * lengths, _STRAY / scales, *digits])
        self._best = np.full((k, len(points)), -np.inf)  # scores, over the point's scale, that are certain
        self._groups = 0
        self._parts: list[tuple[Ints, Ints, Ints, Integers]] = []  # tiles, lines, points, scores of groups

    def add(self, tile: int, looking: Ints | None, product: Product, scores: Integers) -> None:
        """Look at a tile's words for the points that are looking at it, None for all of them."""
        if self._groups > MOST * len(self.points):
            return
        words, everyone = self._words, slice(None) if looking is None else looking
        count = int(words.stops[tile] - words.coded.starts[tile])
        product(words.tiles[tile], count)
        filled = -(-count // _GROUP) * _GROUP
        scores[count:filled] = _LEAST
        grouped = scores[:filled].reshape(-1, _GROUP, scores.shape[1])
        peaks = grouped.max(axis=1)
        scale, shifts = words.coded.tiles[0, tile], self._shifts[everyone]
        strays = words.bounds[tile] @ self.strays[:, everyone]
        # Each group's best word is another one, so the k-th best of the groups is certain for the k-th best word.
        tops = np.partition(peaks, -self._k, axis=0)[-self._k :] if self._k > 1 else peaks.max(axis=0)[None]
        low = (tops - (shifts + strays)) * scale
        best = self._best[:, everyone]
        best = (
            np.maximum(best, low)
            if self._k == 1
            else np.sort(np.concatenate([best, low]), axis=0)[-self._k :]
        )
        self._best[:, everyone] = best
        limits = self._limits(best[0], scale, strays - shifts)
        group, point = np.divmod(np.flatnonzero(peaks >= limits), len(limits))
        lines = group * _GROUP + words.coded.starts[tile]
        self._groups += len(group)
        owners = point if looking is None else looking[point]
        self._parts.append((np.full(len(group), tile), lines, owners, grouped[group, :, point]))

    def pairs(self) -> tuple[Ints, Ints] | None:
        """Give the pairs of points and words that are left at last; None for too many."""
        if self._groups > MOST * len(self.points):
            return None
        coded = self._words.coded
        tiles, lines, points, scores = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        scales = coded.tiles[0, tiles]
        offsets = (
            np.einsum("if,fi->i", self._words.bounds[tiles], self.strays[:, points]) - self._shifts[points]
        )
        limits = self._limits(self._best[0, points], scales, offsets)
        flat = np.flatnonzero(scores >= limits[:, None])
        if len(flat) > MOST * len(self.points):
            return None
        group, place = np.divmod(flat, _GROUP)
        words, points = coded.words[lines[group] + place].astype(np.int64), points[group]
        high = (scores.ravel()[flat] + offsets[group]) * scales[group]
        # Exact scores of the words that come first are a better floor than coarse ones.
        floor, left = np.full(len(self.points), np.inf), high.copy()
        for _ in range(self._k):
            top = np.full(len(self.points), -np.inf)
            np.maximum.at(top, points, left)
            leaders = np.flatnonzero(left == top[points])
            left[leaders] = -np.inf
            owners, vectors = points[leaders], self._words.vectors[words[leaders]].astype(np.float64)
            terms = (self.points[owners] - 0.5 * vectors) * vectors
            exact = terms.sum(axis=1) - _STRAY * np.abs(terms).sum(axis=1)
            np.minimum.at(floor, owners, exact / self._scales[owners])
        kept = high >= floor[points]
        return points[kept], words[kept]

    @staticmethod
    def _limits(best: Floats, scales: Any, offsets: Floats) -> Integers:
        """Say from which integer score on a word may be among the best."""
        return np.clip(best / scales - offsets - 1.0, _LEAST + 1.0, -_LEAST - 1.0).astype(np.int32)
