"""Distances between the words of an embedding: the metrics in which guarantees count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    def to_all(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances of words (k,) to all words, float64 (k, V); fast, to about 10^-7 of the largest."""

    @abstractmethod
    def largest(self) -> float:
        """Bound the distance of any two words."""

    def sample(self) -> NDArray[np.int64]:
        """Give 256 words or fewer, evenly spread over the vocabulary."""
        return np.arange(0, self.words, -(-self.words // _SAMPLE))

    def nearest(
        self, words: NDArray[np.int64], ranks: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find words by how near they are, of equally near ones the lower ids first.

        Args:
            words: int64 (k,), word ids, from which distances count.
            ranks: The r places that are looked at; 0 is a word itself, where no other is as near but for
                the error of :meth:`to_all`, and V - 1 the farthest.

        Returns:
            Their word ids, int64 (k, r), and distances, float64 (k, r).
        """
        distances = self.to_all(words)
        found = np.partition(distances, ranks, axis=1)[:, ranks]
        ids = np.empty(found.shape, dtype=np.int64)
        for (i, j), distance in np.ndenumerate(found):
            equal = np.flatnonzero(distances[i] == distance)
            ids[i, j] = equal[ranks[j] - np.count_nonzero(distances[i] < distance)]
        return ids, found


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

    def to_all(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        points = self._mapped(self._rows(words))
        squares = np.empty((len(points), self.words))
        for block in self._blocks():
            others = self._mapped(self._rows(block))
            squares[:, block] = np.square(others).sum(axis=1) - 2.0 * points @ others.T
        squares += np.square(points).sum(axis=1)[:, None]
        return np.sqrt(np.maximum(squares, 0.0))

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

    def to_all(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        """See :class:`Metric`; by differences, for near the rim products would cancel."""
        everything = np.arange(self.words)
        return np.stack([self.between(np.full(self.words, word), everything) for word in words])

    def largest(self) -> float:
        """Sum of the two largest distances d from the origin, cosh d = (2 - rim) / rim."""
        rim = rims(self.points)
        return float(np.sort(np.arccosh((2.0 - rim) / rim))[-2:].sum())


def _lengths(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(np.square(vectors).sum(axis=1))
    return lengths
