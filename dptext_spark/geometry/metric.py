"""Distances between the words of an embedding: the metrics in which guarantees count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.geometry import Floats, Floats32, Ints
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
        """Distances of pairs: int64 (t,) and (t,) to float64 (t,), exactly 0 for equal points."""

    @abstractmethod
    def _to_blocks(self, words: Ints) -> Iterator[Floats]:
        """Give what grows with the distances of :meth:`to_all`, in blocks: float64 (k, b) each."""

    def _distances(self, grown: Floats) -> Floats:
        """Give the distances themselves, of what is 0 or more."""
        return grown

    def to_all(self, words: Ints) -> Floats:
        """Distances of words (k,) to all words, float64 (k, V); fast, to about 10^-7 of the largest."""
        return self._distances(np.maximum(np.concatenate([*self._to_blocks(words)], axis=1), 0.0))

    @abstractmethod
    def largest(self) -> float:
        """Bound the distance of any two words."""

    def _blocks(self) -> list[slice]:
        return [
            slice(start, min(start + _BLOCK, self.words)) for start in range(0, self.words, _BLOCK)
        ]

    def sample(self) -> Ints:
        """Give 256 words or fewer, evenly spread over the vocabulary."""
        return np.arange(0, self.words, -(-self.words // _SAMPLE))

    def nearest(self, words: Ints, ranks: Sequence[int]) -> tuple[Ints, Floats, Floats]:
        """Find the words at r ranks of nearness to words (k,), of equally near ones the lower ids first.

        Rank 0 is a word itself, up to the error of :meth:`to_all`. Gives word ids and distances, (k, r) each,
        and the distance of the farthest word of all, (k,).
        """
        kept, start = max(ranks) + 1, 0
        ids, near = np.zeros((len(words), kept), np.int64), np.full((len(words), kept), np.inf)
        farthest = np.zeros(len(words))
        # The products are small compared with what they are for.
        with threadpool_limits(limits=1, user_api="blas"):
            for block in self._to_blocks(words):
                np.maximum(farthest, block.max(axis=1), out=farthest)
                # Of equals the first that came stays.
                rows, columns = np.divmod(np.flatnonzero(block < near[:, -1:]), block.shape[1])
                counts = np.bincount(rows, minlength=len(words))
                places = kept + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
                near, ids = (np.pad(kind, ((0, 0), (0, counts.max()))) for kind in (near, ids))
                near[:, kept:] = np.inf
                near[rows, places] = np.maximum(block[rows, columns], 0.0)
                ids[rows, places] = columns + start
                order = np.argsort(near, axis=1, kind="stable")[:, :kept]
                near, ids = (np.take_along_axis(kind, order, axis=1) for kind in (near, ids))
                start += block.shape[1]
        return ids[:, ranks], self._distances(near[:, ranks]), self._distances(farthest)


@dataclass(frozen=True, kw_only=True)
class EuclideanMetric(Metric):
    """|B (x - y)| for a square matrix B, or |x - y|."""

    vectors: Floats32
    map: Floats | None = (
        None  # B transposed, (n, n), by which rows are multiplied; None for the identity
    )
    description: str = "Euclidean distance of their vectors"

    def between(self, words: Ints, others: Ints) -> Floats:
        differences = self._rows(words)
        differences -= self.vectors[others]
        return _lengths(self._mapped(differences))

    def _to_blocks(self, words: Ints) -> Iterator[Floats]:
        points = self._mapped(self._rows(words))
        points = np.column_stack([-2.0 * points, squared_norms(points), np.ones(len(points))])
        for block in self._blocks():
            others = self._mapped(self._rows(block))
            # |p|² - 2 p·q + |q|², by the product alone.
            yield points @ np.column_stack([others, np.ones(len(others)), squared_norms(others)]).T

    def _distances(self, grown: Floats) -> Floats:
        return np.sqrt(grown)

    def largest(self) -> float:
        """Sum of the two largest distances from the centre; at most twice the true diameter."""
        centre = sum(self._rows(block).sum(axis=0) for block in self._blocks()) / self.words
        radii = [_lengths(self._mapped(self._rows(block) - centre)) for block in self._blocks()]
        return float(np.sort(np.concatenate(radii))[-2:].sum())

    def _rows(self, rows: Ints | slice) -> Floats:
        return self.vectors[rows].astype(np.float64)

    def _mapped(self, points: Floats) -> Floats:
        return points if self.map is None else points @ self.map


@dataclass(frozen=True, kw_only=True)
class HyperbolicMetric(Metric):
    """The Poincaré ball's distance, 2 arcsinh(|p - q| / sqrt((1 - |p|²)(1 - |q|²)))."""

    vectors: Floats  # inside the unit ball
    description: str = "hyperbolic distance of their points"

    def between(self, words: Ints, others: Ints) -> Floats:
        points, targets = self.vectors[words], self.vectors[others]
        gaps = _lengths(points - targets) / np.sqrt(rims(points) * rims(targets))
        return 2.0 * np.arcsinh(gaps)

    def _to_blocks(self, words: Ints) -> Iterator[Floats]:
        # By differences, for near the rim products would cancel.
        for block in (np.arange(rows.start, rows.stop) for rows in self._blocks()):
            yield np.stack([self.between(np.full(len(block), word), block) for word in words])

    def largest(self) -> float:
        """Sum of the two largest distances d from the origin, cosh d = (2 - rim) / rim."""
        rim = rims(self.vectors)
        return float(np.sort(np.arccosh((2.0 - rim) / rim))[-2:].sum())


def squared_norms(vectors: Floats) -> Floats:
    """Sum the squares of each row: (t, n) -> (t,)."""
    squares: Floats = np.square(vectors).sum(axis=1)
    return squares


def _lengths(vectors: Floats) -> Floats:
    return np.sqrt(squared_norms(vectors))
