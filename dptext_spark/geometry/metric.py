"""Distances between the words of an embedding: the metrics in which guarantees count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.geometry import Floats, Ints, WordVectors
from dptext_spark.geometry.ball import rims

_BLOCK: Final = 2048
_SAMPLE: Final = 256


class Metric(ABC):
    """A distance between the words of an embedding."""

    vectors: NDArray[np.floating[Any]]  # (V, n)
    description: str  # in words, after "the distance is the"

    @property
    def words(self) -> int:
        """Number of words V."""
        return len(self.vectors)

    @abstractmethod
    def between(self, words: Ints, others: Ints) -> Floats:
        """Compute the distances of pairs (t,), float64 (t,); exactly 0 for equal points."""

    @abstractmethod
    def _to_blocks(self, words: Ints) -> Iterator[Floats]:
        """Yield scores that grow with the distances of :meth:`to_all`: float64 (k, b) a block."""

    def _distances(self, scores: Floats) -> Floats:
        """Compute distances from scores of 0 or more."""
        return scores

    def to_all(self, words: Ints) -> Floats:
        """Compute distances of words (k,) to all words, float64 (k, V).

        It is fast; the error is about 10^-7 of the largest distance.
        """
        scores = np.concatenate([*self._to_blocks(words)], axis=1)
        return self._distances(np.maximum(scores, 0.0))

    @abstractmethod
    def largest(self) -> float:
        """Bound the distance of any two words."""

    def _blocks(self) -> list[slice]:
        starts = range(0, self.words, _BLOCK)
        return [slice(start, min(start + _BLOCK, self.words)) for start in starts]

    def sample(self) -> Ints:
        """Return 256 words or fewer, evenly spread over the vocabulary."""
        return np.arange(0, self.words, -(-self.words // _SAMPLE))

    def nearest(self, words: Ints, ranks: Sequence[int]) -> tuple[Ints, Floats, Floats]:
        """Find the words at r ranks of nearness to words (k,); of equals the lower id first.

        Rank 0 is a word itself, up to the error of :meth:`to_all`.

        Returns:
            Word ids (k, r), their distances (k, r), and the distance of the farthest word of all
            (k,).
        """
        size = max(ranks) + 1
        start = 0
        ids = np.zeros((len(words), size), np.int64)
        scores = np.full((len(words), size), np.inf)
        farthest = np.zeros(len(words))
        # The products are small compared with what they are for.
        with threadpool_limits(limits=1, user_api="blas"):
            for block in self._to_blocks(words):
                np.maximum(farthest, block.max(axis=1), out=farthest)
                # Of equal scores the first one stays.
                rows, columns = np.divmod(np.flatnonzero(block < scores[:, -1:]), block.shape[1])
                counts = np.bincount(rows, minlength=len(words))
                firsts = np.repeat(np.cumsum(counts) - counts, counts)
                places = size + np.arange(len(rows)) - firsts
                padding = ((0, 0), (0, counts.max()))
                scores = np.pad(scores, padding)
                ids = np.pad(ids, padding)
                scores[:, size:] = np.inf
                scores[rows, places] = np.maximum(block[rows, columns], 0.0)
                ids[rows, places] = columns + start
                order = np.argsort(scores, axis=1, kind="stable")[:, :size]
                scores = np.take_along_axis(scores, order, axis=1)
                ids = np.take_along_axis(ids, order, axis=1)
                start += block.shape[1]
        return ids[:, ranks], self._distances(scores[:, ranks]), self._distances(farthest)


@dataclass(frozen=True, kw_only=True)
class EuclideanMetric(Metric):
    """|B (x - y)| for a square matrix B, or |x - y|."""

    vectors: WordVectors
    map: Floats | None = None  # B transposed, (n, n), which multiplies rows; None for the identity
    description: str = "Euclidean distance of their vectors"

    def between(self, words: Ints, others: Ints) -> Floats:
        differences = self._rows(words)
        differences -= self.vectors[others]
        return _lengths(self._mapped(differences))

    def _to_blocks(self, words: Ints) -> Iterator[Floats]:
        # |p|² - 2 p·q + |q|², by the product of the factors alone.
        points = self._mapped(self._rows(words))
        point_factors = np.column_stack(
            [-2.0 * points, squared_norms(points), np.ones(len(points))]
        )
        for block in self._blocks():
            targets = self._mapped(self._rows(block))
            factors = np.column_stack([targets, np.ones(len(targets)), squared_norms(targets)])
            yield point_factors @ factors.T

    def _distances(self, scores: Floats) -> Floats:
        return np.sqrt(scores)

    def largest(self) -> float:
        """Sum the two largest distances from the centre; at most twice the true diameter."""
        centre = sum(self._rows(block).sum(axis=0) for block in self._blocks()) / self.words
        radii = [_lengths(self._mapped(self._rows(block) - centre)) for block in self._blocks()]
        return float(np.sort(np.concatenate(radii))[-2:].sum())

    def _rows(self, rows: Ints | slice) -> Floats:
        return self.vectors[rows].astype(np.float64)

    def _mapped(self, points: Floats) -> Floats:
        if self.map is None:
            return points
        return points @ self.map


@dataclass(frozen=True, kw_only=True)
class HyperbolicMetric(Metric):
    """The Poincaré ball's distance, 2 arcsinh(|p - q| / sqrt((1 - |p|²)(1 - |q|²)))."""

    vectors: Floats  # inside the unit ball
    description: str = "hyperbolic distance of their points"

    def between(self, words: Ints, others: Ints) -> Floats:
        points = self.vectors[words]
        targets = self.vectors[others]
        gaps = _lengths(points - targets) / np.sqrt(rims(points) * rims(targets))
        return 2.0 * np.arcsinh(gaps)

    def _to_blocks(self, words: Ints) -> Iterator[Floats]:
        # By differences, because products would cancel near the rim.
        for rows in self._blocks():
            block = np.arange(rows.start, rows.stop)
            yield np.stack([self.between(np.full(len(block), word), block) for word in words])

    def largest(self) -> float:
        """Sum the two largest distances d from the origin, cosh d = (2 - rim) / rim."""
        rim = rims(self.vectors)
        return float(np.sort(np.arccosh((2.0 - rim) / rim))[-2:].sum())


def squared_norms(vectors: Floats) -> Floats:
    """Sum the squares of each row: (t, n) -> (t,)."""
    squares: Floats = np.square(vectors).sum(axis=1)
    return squares


def _lengths(vectors: Floats) -> Floats:
    return np.sqrt(squared_norms(vectors))
