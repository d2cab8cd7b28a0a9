"""Distances between the words of an embedding: the metrics in which guarantees count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry.ball import rims

_BLOCK: Final = 8192
_SAMPLE: Final = 256


class Metric(ABC):
    """A distance between the words of an embedding."""

    description: str  # in words, after "the distance is the"

    @property
    @abstractmethod
    def words(self) -> int:
        """Number of words V."""

    @abstractmethod
    def between(self, words: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances of pairs: int64 (t,) and (t,) to float64 (t,), exactly 0 for equal points."""

    @abstractmethod
    def _to_blocks(self, words: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        """Give what :meth:`to_all` does by blocks of all words, in their order: float64 (k, b) each."""

    def to_all(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances of words (k,) to all words, float64 (k, V); fast, to about 10^-7 of the largest."""
        return np.concatenate([*self._to_blocks(words)], axis=1)

    @abstractmethod
    def largest(self) -> float:
        """Bound the distance of any two words."""

    def sample(self) -> NDArray[np.int64]:
        """Give 256 words or fewer, evenly spread over the vocabulary."""
        return np.arange(0, self.words, -(-self.words // _SAMPLE))

    def nearest(
        self, words: NDArray[np.int64], ranks: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Find words by how near they are, of equally near ones the lower ids first.

        Args:
            words: int64 (k,), word ids, from which distances count.
            ranks: The r places that are looked at; 0 is a word itself, where no other is as near but for
                the error of :meth:`to_all`. The lower they are, the faster.

        Returns:
            Their word ids, int64 (k, r), and distances, float64 (k, r); and that of the farthest word of all,
            float64 (k,).
        """
        kept = max(ranks) + 1
        ids, distances = [np.empty(0, np.int64)] * len(words), [np.empty(0)] * len(words)
        farthest, start = np.zeros(len(words)), 0
        for block in self._to_blocks(words):
            np.maximum(farthest, block.max(axis=1), out=farthest)
            for row, found in enumerate(block):
                # Of equals the first that came stays.
                limit = distances[row][-1] if len(distances[row]) == kept else np.inf
                nearer = np.flatnonzero(found < limit)
                candidates = np.append(distances[row], found[nearer])
                order = np.argsort(candidates, kind="stable")[:kept]
                ids[row] = np.append(ids[row], nearer + start)[order]
                distances[row] = candidates[order]
            start += block.shape[1]
        return np.stack(ids)[:, ranks], np.stack(distances)[:, ranks], farthest


@dataclass(frozen=True, kw_only=True)
class EuclideanMetric(Metric):
    """|B (x - y)| for a square matrix B, or |x - y|.

    Attributes:
        vectors: float32 (V, n).
        map: B transposed, float64 (n, n), by which rows are multiplied; None for the identity.
    """

    vectors: NDArray[np.float32]
    map: NDArray[np.float64] | None = None
    description: str = "Euclidean distance of their vectors"

    @property
    def words(self) -> int:
        return len(self.vectors)

    def between(self, words: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
        differences = self._rows(words)
        differences -= self.vectors[others]
        return _lengths(self._mapped(differences))

    def _to_blocks(self, words: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        points = self._mapped(self._rows(words))
        own = np.square(points).sum(axis=1)[:, None]
        for block in self._blocks():
            others = self._mapped(self._rows(block))
            products = 2.0 * points @ others.T
            squares = np.subtract(np.square(others).sum(axis=1), products, out=products)
            squares += own
            yield np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)

    def largest(self) -> float:
        """Sum of the two largest distances from the centre; at most twice the true diameter."""
        centre = sum(self._rows(block).sum(axis=0) for block in self._blocks()) / self.words
        radii = [_lengths(self._mapped(self._rows(block) - centre)) for block in self._blocks()]
        return float(np.sort(np.concatenate(radii))[-2:].sum())

    def _blocks(self) -> list[slice]:
        return [slice(start, start + _BLOCK) for start in range(0, self.words, _BLOCK)]

    def _rows(self, rows: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        return self.vectors[rows].astype(np.float64)

    def _mapped(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return points if self.map is None else points @ self.map


@dataclass(frozen=True, kw_only=True)
class HyperbolicMetric(Metric):
    """The Poincaré ball's distance, 2 arcsinh(|p - q| / sqrt((1 - |p|²)(1 - |q|²)))."""

    points: NDArray[np.float64]  # (V, n), inside the unit ball
    description: str = "hyperbolic distance of their points"

    @property
    def words(self) -> int:
        return len(self.points)

    def between(self, words: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
        points, targets = self.points[words], self.points[others]
        gaps = _lengths(points - targets) / np.sqrt(rims(points) * rims(targets))
        return 2.0 * np.arcsinh(gaps)

    def _to_blocks(self, words: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        # By differences, for near the rim products would cancel.
        for start in range(0, self.words, _BLOCK):
            block = np.arange(start, min(start + _BLOCK, self.words))
            yield np.stack([self.between(np.full(len(block), word), block) for word in words])

    def largest(self) -> float:
        """Sum of the two largest distances d from the origin, cosh d = (2 - rim) / rim."""
        rim = rims(self.points)
        return float(np.sort(np.arccosh((2.0 - rim) / rim))[-2:].sum())


def _lengths(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(np.square(vectors).sum(axis=1))
    return lengths
