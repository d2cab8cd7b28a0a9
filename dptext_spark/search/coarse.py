"""Scores in integers: which words can be the nearest, by products of 8-bit codes with a proven bound.

The library onnxruntime multiplies them, where it is installed. A processor without instructions for 8-bit
dot products may cut sums to 16 bits; so kernels are tried on the largest sums before they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.codes import DIGIT, TILE, CodedWords, columns, kept_codes, turned
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.geometry import Floats, Floats32, Ints

Integers: TypeAlias = NDArray[np.int32]
Product: TypeAlias = Callable[[Any, int], None]
"""Writes the products (w, t) of what :meth:`Kernel.prepared` made of words (w, K), and w, with points."""

POINTS: Final = 512
"""Points whose scores are held at once."""

MOST: Final = 200
"""Words in question for a point, on average: where there are more, single precision is as fast."""

_WAITING: Final = 1 << 15
GROUP: Final = 16
"""Words of which only the best score is looked at first; scores have lines for whole groups."""

_LEAST: Final = np.iinfo(np.int32).min
# A relative error far above all roundings in double precision and far below that of codes.
_STRAY: Final = 2.0**-36
_FAR: Final = 1e100
_FEW: Final = 1 << 19  # coordinates of all words, of which single precision is as fast
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
        """Multiply words with points int8 (K, t), or (t, K) where they ``turn``, into the first scores."""
        session = _session(turn)
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
        shapes = [(w, t, turn) for w in _SIZES for t in _SIZES for turn in (False, True)]
        if all(
            np.array_equal(_tried(words[:w], points[:t], turn), expected[:w, :t]) for w, t, turn in shapes
        ):
            return bits
    return 0


def _tried(words: NDArray[np.uint8], points: NDArray[np.int8], turn: bool) -> Integers:
    scores = np.empty((len(words), len(points)), dtype=np.int32)
    product = KERNEL.products(points if turn else np.ascontiguousarray(points.T), scores, turn)
    product(KERNEL.prepared(words), len(words))
    return scores


def products_of(embedding: Embedding) -> str | None:
    """Say what a search among a bundle's words multiplies with on this machine; None where all is small."""
    if not isinstance(embedding.space, EuclideanSpace) or embedding.vectors.size < _FEW:
        return None
    bits = trusted_bits(columns(embedding.dimension))
    return f"codes of {bits} bits" if bits else "single precision"


@dataclass(frozen=True, kw_only=True, eq=False)
class CoarseWords:
    """Words that are looked at by their codes first."""

    coded: CodedWords
    vectors: Floats32  # (V, n), by word id
    stops: Ints  # (T,), where each tile ends, of the words that may be output

    @cached_property
    def bounds(self) -> Floats:
        """Factors (T, 5) of :attr:`CoarsePoints.strays`: of a tile's scale, how far its scores stray."""
        scales, rests, longest, high = self.coded.tiles
        factors = np.stack([rests, longest, np.square(longest), high * scales, scales], axis=1)
        factors /= scales[:, None]
        return factors

    @cached_property
    def tiles(self) -> list[Any]:
        """The tiles as :data:`KERNEL` wants them."""
        ends = zip(self.coded.starts.tolist(), self.stops.tolist(), strict=False)
        return [KERNEL.prepared(self.coded.codes[start:stop]) for start, stop in ends]

    def block(self, points: Floats, k: int) -> CoarsePoints | None:
        """Get ready to find the k nearest words of points; None where some are so far that sums overflow."""
        return CoarsePoints(self, points, k) if np.abs(points).max(initial=0.0) < _FAR else None

    def candidates(self, points: Floats, k: int) -> tuple[Ints, Ints] | None:
        """Find all words that may be among the k nearest: rows of points and of words; None for too many."""
        rows, words = [], []
        for start in range(0, len(points), POINTS):
            if (block := self.block(points[start : start + POINTS], k)) is None:
                return None
            scores = np.empty((TILE, len(block.points)), dtype=np.int32)
            product = KERNEL.products(np.ascontiguousarray(block.codes.T), scores, turn=False)
            for tile in range(len(self.stops)):
                block.add(tile, slice(None), product, scores)
            if (found := block.pairs()) is None:
                return None
            rows.append(found[0] + start)
            words.append(found[1])
        return np.concatenate(rows), np.concatenate(words)


class CoarsePoints:
    """A block of points, of whose scores tile after tile comes; see "Coarse scores" in docs/mathematics.md.

    Attributes:
        codes: int8 (t, K), what a tile's codes are multiplied with.
        strays: float64 (5, t), how far scores stray, in units of a tile's scale times the point's.
    """

    def __init__(self, words: CoarseWords, points: Floats, k: int) -> None:
        self.points, self._words, self._k = points, words, k
        coded, n = words.coded, points.shape[1]
        spread = coded.codes.shape[1] - n - 1  # columns that share the high digit's factor
        coordinates = turned(points)
        self._scales = np.maximum(np.abs(coordinates).max(axis=1) / 127, DIGIT * coded.unit / (127 * spread))
        whole = np.rint(coordinates / self._scales[:, None])
        ratios = coded.unit / self._scales
        low, high = np.minimum(np.rint(ratios), 127), np.rint(DIGIT * ratios)
        self.codes = np.empty((len(points), n + 1 + spread), dtype=np.int8)
        self.codes[:, :n], self.codes[:, n] = whole, -low
        share, more = np.divmod(high[:, None], spread)
        self.codes[:, n + 1 :] = -share - (np.arange(spread) < more)
        self._shifts = coded.zero * whole.sum(axis=1)
        near = self._scales[:, None] * whole
        lengths, nears, rests = (
            np.sqrt(np.square(part).sum(axis=1)) / self._scales for part in (points, near, coordinates - near)
        )
        digits = (DIGIT - 1) * np.abs(ratios - low) + 0.5 * ratios + 1.0
        rests, highs = rests + _STRAY * lengths, np.abs(DIGIT * ratios - high)
        self.strays = (1.0 + _STRAY) * np.stack([nears, rests, _STRAY / self._scales, highs, digits])
        # Scores that the k best certainly have, the least first; these and others are over the point's scale.
        self._best = np.full((k, len(points)), -np.inf)
        self._most, self._kept, self._waiting = MOST * min(len(points), 8 * POINTS), 0, 0
        self._groups: list[tuple[Ints, Ints, Ints, Integers]] = []  # tiles, first lines, points, scores
        self._pairs: list[tuple[Ints, Ints, Floats]] = []  # lines, points, highest scores

    def add(self, tile: int, looking: Any, product: Product, scores: Integers) -> None:
        """Look at a tile's words for those points, an index, whose codes the product has."""
        if self._kept > self._most:
            return
        words = self._words
        start, count = words.coded.starts[tile], int(words.stops[tile] - words.coded.starts[tile])
        product(words.tiles[tile], count)
        filled = -(-count // GROUP) * GROUP
        scores[count:filled] = _LEAST
        grouped = scores[:filled].reshape(-1, GROUP, scores.shape[1])
        peaks = grouped.max(axis=1)
        scale, shifts, strays = (
            words.coded.tiles[0, tile],
            self._shifts[looking],
            words.bounds[tile] @ self.strays[:, looking],
        )
        best = self._best[:, looking]
        if self._k == 1:
            best = np.maximum(best, (peaks.max(axis=0) - (shifts + strays)) * scale)
        else:
            # The best words of groups are different words: they bound the k best from below.
            tops = peaks if len(peaks) <= self._k else np.partition(peaks, -self._k, axis=0)[-self._k :]
            both = np.concatenate([best, (tops - (shifts + strays)) * scale])
            best = np.sort(both, axis=0)[-self._k :]
        self._best[:, looking] = best
        limits = _limits(best[0], scale, strays - shifts)
        group, point = np.divmod(np.flatnonzero(peaks >= limits), len(limits))
        owners = np.arange(len(self.points))[looking][point]
        self._groups.append(
            (np.full(len(group), tile), start + GROUP * group, owners, grouped[group, :, point])
        )
        self._waiting += len(group)
        if self._waiting > _WAITING:
            self._sift()

    def _sift(self) -> None:
        """Keep the words that may still be among the best of the groups that wait."""
        tiles, lines, points, scores = (np.concatenate(part) for part in zip(*self._groups, strict=True))
        self._groups, self._waiting = [], 0
        scales = self._words.coded.tiles[0, tiles]
        strays = np.einsum("if,fi->i", self._words.bounds[tiles], self.strays[:, points])
        offsets = strays - self._shifts[points]
        flat = np.flatnonzero(scores >= _limits(self._best[0, points], scales, offsets)[:, None])
        self._kept += len(flat)
        group, place = np.divmod(flat, GROUP)
        high = (scores.ravel()[flat] + offsets[group]) * scales[group]
        self._pairs.append((lines[group] + place, points[group], high))

    def pairs(self) -> tuple[Ints, Ints] | None:
        """Give the pairs of points and words that are left at last; None for too many."""
        if self._groups:
            self._sift()
        if self._kept > self._most:
            return None
        lines, points, high = (np.concatenate(part) for part in zip(*self._pairs, strict=True))
        words = self._words.coded.words[lines].astype(np.int64)
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
        kept = high >= np.maximum(floor, self._best[0])[points]
        return points[kept], words[kept]


def _limits(best: Floats, scales: Any, offsets: Floats) -> Integers:
    """Say from which integer score on words may be among the best."""
    limits: Floats = np.minimum(np.maximum(best / scales - offsets - 1.0, _LEAST + 1.0), -_LEAST - 1.0)
    return limits.astype(np.int32)


def coarse_words(
    vectors: Floats32,
    code: Callable[[int, Path | None], CodedWords],
    *,
    stops: Ints | None = None,
    embedding: Embedding | None = None,
    name: str = "",
) -> CoarseWords | None:
    """Get ready to look at words (V, n) by codes of so many bits, which lie with a bundle under a name.

    None where that does not pay, or where no product can be trusted.
    """
    bits = trusted_bits(columns(vectors.shape[1])) if vectors.size >= _FEW else 0
    if not bits:
        return None
    own = partial(code, bits)
    coded = own(None) if embedding is None else kept_codes(embedding, f"{name}-{bits}", own)
    if coded is None:
        return None
    return CoarseWords(coded=coded, vectors=vectors, stops=coded.starts[1:] if stops is None else stops)
