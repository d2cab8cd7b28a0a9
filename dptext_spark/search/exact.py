"""Nearest words of noisy points: exact, blocked, and the same whatever the batch and thread count.

A single-precision matrix product scores all words; every word whose score could still be among the
best, given a proven bound on that product's rounding error, is scored again in double precision, by
a reduction of its own. The answer therefore depends on the point alone, not on how BLAS cut the
work.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, PoincareBall
from dptext_spark.errors import BundleError, ConfigError
from dptext_spark.geometry import Floats, Floats32, Ints, WordVectors
from dptext_spark.geometry.ball import lorentz, rims
from dptext_spark.geometry.products import gamma, longest_of, score_slack
from dptext_spark.search.coarse import coarse_candidates
from dptext_spark.search.code_files import coded_words, products_of
from dptext_spark.search.codes import CodedWords
from dptext_spark.search.nearest import NearestWords, Search

# A block of scores (2 MiB) stays in the cache between the product and the scan.
POINT_BLOCK: Final = 1024
WORD_BLOCK: Final = 512
_SETTLE_BLOCK: Final = 4096
# A length this far off moves scores by a 32nd of a roundoff of single precision.
_STRAY: Final = 2.0**-30

# Far below where single precision overflows.
_LARGEST_SCORE: Final = 2.0**120
# Coordinates of points in the ball are at most 1, and ln q0 is a distance.
_FARTHEST: Final = 1e24


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Scores queries @ matrix.T - offsets in single precision, and how far they can stray.

    If word i is exactly as near as word j or nearer, then score i >= (score j - width j) - slack.
    """

    queries: Floats32  # (t, n)
    matrix: WordVectors  # (V, n)
    offsets: Floats32  # (V,)
    slack: Floats32  # (t,)
    widths: Floats32 | None = None  # (V,); None stands for zeros

    @np.errstate(under="ignore")
    def candidates(self, k: int) -> tuple[Ints, Ints]:
        """Find all words that may be among the k nearest.

        Returns rows of points and of words, int64 (c,) each.
        """
        # Slices of memmaps take long.
        matrix = np.asarray(self.matrix)
        offsets = np.asarray(self.offsets)
        shortlist = Shortlist(len(self.queries), k, self.slack)
        everyone = np.arange(len(self.queries))
        buffer = np.empty((len(self.queries), min(WORD_BLOCK, len(matrix))), dtype=np.float32)
        for start in range(0, len(matrix), WORD_BLOCK):
            block = slice(start, start + WORD_BLOCK)
            scores = buffer[:, : len(offsets[block])]
            vectors = matrix[block].astype(np.float32, copy=False)
            np.matmul(self.queries, vectors.T, out=scores)
            scores -= offsets[block]
            words = np.arange(start, start + scores.shape[1])
            widths = None if self.widths is None else self.widths[block]
            shortlist.add(everyone, words, scores, widths)
        return shortlist.pairs()


class Shortlist:
    """The words that may be among the k nearest of points (t,); scores are added block by block.

    ``best`` (t, k) are the k best scores that are certain, in any order; ``slack`` (t,) is how much
    less another score may be.
    """

    def __init__(self, points: int, k: int, slack: Floats32) -> None:
        self.best = np.full((points, k), -np.inf, dtype=np.float32)
        self.slack = slack
        self._floor = np.full(points, -np.inf, dtype=np.float32)
        nothing = np.empty(0, dtype=np.int64)
        self._parts = [(nothing, nothing, np.empty(0, dtype=np.float32))]

    def add(
        self, points: Ints, words: Ints, scores: Floats32, widths: Floats32 | None = None
    ) -> None:
        """Add scores (r, b) of points (r,) for words (b,), each certain to its word's width."""
        peaks = scores.max(axis=1)
        hot = np.flatnonzero(peaks >= self._floor[points])
        if not len(hot):
            return
        scores = scores[hot]
        points = points[hot]
        if self.best.shape[1] == 1 and widths is None:
            self.best[points, 0] = np.maximum(self.best[points, 0], peaks[hot])
        else:
            certain = scores if widths is None else scores - widths
            self.best[points] = largest(self.best[points], certain)
        floor = self.best[points].min(axis=1) - self.slack[points]
        self._floor[points] = floor
        # Flat, for NumPy finds the nonzeros of one dimension several times as fast as of two.
        flat = np.flatnonzero(scores >= floor[:, None])
        row, word = np.divmod(flat, scores.shape[1])
        self._parts.append((points[row], words[word], scores.ravel()[flat]))

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the pairs of points and words that are left, int64 (c,) each."""
        points, words, scores = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        certain = scores >= self._floor[points]
        return points[certain], words[certain]


def largest(best: Floats32, scores: Floats32) -> Floats32:
    """Merge the k largest of each row so far (t, k), k 1 or 2, with new scores (t, b)."""
    if best.shape[1] == 1:
        return np.asarray(np.maximum(best, scores.max(axis=1, keepdims=True)))
    merged = np.concatenate([best, scores], axis=1)
    # Two passes for the largest are four times as fast as a partition.
    rows = np.arange(len(merged))
    first = merged.argmax(axis=1)
    peaks = merged[rows, first]
    merged[rows, first] = -np.inf
    return np.stack([peaks, merged.max(axis=1)], axis=1)


class _ExactNearest(NearestWords):
    """Scan in single precision, then settle in double precision; the geometry is the subclass's."""

    point_block: ClassVar[int] = POINT_BLOCK
    vectors: NDArray[Any]  # (V, n)
    coarse: CodedWords | None = None  # looked at first, where there are codes

    def __call__(self, points: Floats) -> Ints:
        nearest = np.empty(len(points), dtype=np.int64)
        for start in range(0, len(points), self.point_block):
            block = slice(start, start + self.point_block)
            located = self._located(points[block])
            rows, words = self.candidates(located, 1)
            nearest[block][rows] = words
            contested = np.bincount(rows)[rows] > 1
            owners, winners, _ = self.settled(located, rows[contested], words[contested], 1)
            nearest[block][owners] = winners[:, 0]
        return nearest

    def nearest_two(self, points: Floats) -> tuple[Ints, Floats]:
        nearest = np.empty((len(points), 2), dtype=np.int64)
        distances = np.empty((len(points), 2))
        for start in range(0, len(points), self.point_block):
            block = slice(start, start + self.point_block)
            located = self._located(points[block])
            _, nearest[block], scores = self.settled(located, *self.candidates(located, 2), 2)
            distances[block] = self.distances(located, nearest[block], scores)
        return nearest, distances

    def settled(self, points: Floats, rows: Ints, words: Ints, k: int) -> tuple[Ints, Ints, Floats]:
        """Choose in float64 the k nearest of each point's words.

        Returns rows of points (r,), ascending, word ids (r, k) and scores (r, k).
        """
        scores = np.empty(len(rows))
        for start in range(0, len(rows), _SETTLE_BLOCK):
            part = slice(start, start + _SETTLE_BLOCK)
            scores[part] = self._scores(points[rows[part]], words[part])
        order = np.lexsort((words, scores, rows))
        owners, first = np.unique(rows[order], return_index=True)
        leaders = order[first[:, None] + np.arange(k)]
        return owners, words[leaders], scores[leaders]

    def _located(self, points: Floats) -> Floats:
        """Convert points to the scan's coordinates; refuse those out of reach."""
        farthest = self.reach
        if not np.abs(points).max(initial=0.0) <= farthest:  # also where one is NaN
            raise ConfigError(
                "Noisy points lie too far from all words to find the nearest",
                allowed=f"finite coordinates, up to about {farthest:.0e}",
                do="Raise --epsilon",
            )
        return points

    @property
    @abstractmethod
    def reach(self) -> float:
        """The largest coordinate of points whose scores single precision holds."""

    def candidates(self, points: Floats, k: int) -> tuple[Ints, Ints]:
        """Find all words that may be among the k nearest.

        Returns rows of points and of words, int64 (c,) each.
        """
        if self.coarse is not None:
            dimension = self.vectors.shape[1]
            pairs = coarse_candidates(self.coarse, points[:, -dimension:], k)
            if pairs is not None:
                return pairs
        return self.scan(points).candidates(k)

    @abstractmethod
    def scan(self, points: Floats) -> Scan:
        """Score all words in single precision."""

    @abstractmethod
    def _scores(self, points: Floats, words: Ints) -> Floats:
        """Score pairs of points and words (c,) in double precision, the nearer the less."""

    @abstractmethod
    def distances(self, points: Floats, words: Ints, scores: Floats) -> Floats:
        """Return distances (t, 2), ascending, of points to their two nearest words (t, 2)."""


@dataclass(frozen=True, kw_only=True)
class EuclideanWords(_ExactNearest):
    """Words that are compared by their Euclidean distance to points; which ones, subclasses say."""

    vectors: WordVectors  # (V, n), C order; used in place, never copied
    half_norms: Floats32  # (V,), half the squared Euclidean norm of each row

    @property
    def longest(self) -> float:
        """The length of the longest word that can be found."""
        return longest_of(self.half_norms[self.half_norms < np.inf])

    @property
    def reach(self) -> float:
        longest = max(1.0, self.longest)
        return _LARGEST_SCORE / (longest * math.sqrt(self.vectors.shape[1]))

    def slack(self, queries: Floats32) -> Floats32:
        """Bound how far two scores of one point can stray from their exact difference.

        The terms added to n pay for rounding q, the half norm and the subtraction.
        """
        lengths = np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1))
        return score_slack(queries.shape[1] + 4, lengths, self.longest)

    def scan(self, points: Floats) -> Scan:
        queries = points.astype(np.float32)
        slack = self.slack(queries)
        return Scan(queries=queries, matrix=self.vectors, offsets=self.half_norms, slack=slack)

    def _scores(self, points: Floats, words: Ints) -> Floats:
        vectors = self.vectors[words].astype(np.float64)
        scores: Floats = -((points - 0.5 * vectors) * vectors).sum(axis=1)
        return scores

    def distances(self, points: Floats, words: Ints, scores: Floats) -> Floats:
        squares = [np.square(points - self.vectors[column]).sum(axis=1) for column in words.T]
        distances: Floats = np.sqrt(np.stack(squares, axis=1))
        # Words that are equally near except for rounding may have the other order here.
        distances.sort(axis=1)
        return distances


@dataclass(frozen=True, kw_only=True)
class EuclideanNearest(EuclideanWords):
    """Exact Euclidean nearest-word search over a (memory-mapped) embedding matrix."""

    coarse: CodedWords | None = None


@dataclass(frozen=True, kw_only=True)
class HyperbolicNearest(_ExactNearest):
    """Exact nearest-word search in the Poincaré ball, by hyperbolic distance.

    Points are float64 (t, n + 1), the columns ln q0 and w of the point's Lorentz coordinates
    q0 (1, w), with ln q0 >= 0 and |w|² = 1 - 1 / q0², so that no radius overflows. Where rounding
    left them apart, q0 is the point's distance and w its direction.

    ``space`` (V, n) and ``time`` (V,) are the words' Lorentz coordinates; see :func:`ball.lorentz`.
    """

    vectors: Floats  # (V, n), C order, points of the ball; used in place, never copied
    space: Floats32
    time: Floats32
    coarse: CodedWords | None = None

    @property
    def reach(self) -> float:
        return _FARTHEST

    def _located(self, points: Floats) -> Floats:
        """Correct w where its length is not what q0 says; the bound of the scan counts on it."""
        points = super()._located(points)
        with np.errstate(under="ignore"):
            lengths = np.sqrt(np.square(points[:, 1:]).sum(axis=1))
            exact_lengths = np.sqrt(-np.expm1(-2.0 * points[:, 0]))
        strays = np.flatnonzero(np.abs(lengths - exact_lengths) > _STRAY)
        if len(strays):
            points = points.copy()
            factors = exact_lengths[strays] / np.maximum(lengths[strays], _STRAY)
            points[strays, 1:] *= factors[:, None]
        return points

    def scan(self, points: Floats) -> Scan:
        """Score words by their Lorentz product over q0, u0 (v·w - 1), each as high as it can be.

        A product of n terms strays by gamma_(n + 2) u0 at most, for |v|, |w| <= 1 and both are
        rounded; in units of u0 roundoffs, the offset strays by 2.5, the subtraction by 2 and the
        threshold, score - width, by 2. That is below bound * u0 with bound = gamma_(n + 10), which
        leaves half a unit for w's length and the rounding of :meth:`_scores`; hence score >= exact
        >= score - 2 bound u0. Near the edge u0 is large: one slack for all words would keep them
        all.
        """
        with np.errstate(under="ignore"):
            queries = points[:, 1:].astype(np.float32)
        bound = gamma(queries.shape[1] + 10)
        return Scan(
            queries=queries,
            matrix=self.space,
            offsets=self.time * np.float32(1.0 - bound),
            slack=np.zeros(len(points), dtype=np.float32),
            widths=self.time * np.float32(2.0 * bound),
        )

    @np.errstate(under="ignore")
    def _scores(self, points: Floats, words: Ints) -> Floats:
        """Compute |p - b|² / (1 - |p|²), where b = w q0 / (1 + q0) is the point in the ball.

        It takes no difference of like numbers.
        """
        vectors = self.vectors[words]
        inward = np.exp(-np.logaddexp(0.0, points[:, 0]))  # 1 / (1 + q0)
        gaps = vectors - points[:, 1:]
        gaps += inward[:, None] * points[:, 1:]
        scores: Floats = np.square(gaps).sum(axis=1) / rims(vectors)
        return scores

    @np.errstate(under="ignore", divide="ignore")
    def distances(self, points: Floats, words: Ints, scores: Floats) -> Floats:
        """Compute 2 arcsinh(sqrt(score (1 + q0) / 2)) by the root's logarithm: no overflow."""
        logs = np.log(scores) + np.logaddexp(0.0, points[:, :1]) - np.log(2.0)
        far = np.maximum(logs, 0.0)
        beyond = far + 2.0 * np.log1p(np.sqrt(1.0 + np.exp(-far)))
        near = 2.0 * np.arcsinh(np.exp(0.5 * np.minimum(logs, 0.0)))
        distances: Floats = np.where(logs > 0.0, beyond, near)
        return distances


@dataclass(frozen=True, kw_only=True)
class ExactSearch(Search):
    """Looks at every word: the nearest one, exact to double precision."""

    name: ClassVar[str] = "exact"

    def products(self, dimension: int) -> str | None:
        return products_of(self.release_words, dimension)

    def of_words(self, embedding: Embedding) -> NearestWords:
        match embedding.space:
            case EuclideanSpace(vectors=vectors, half_norms=half_norms):
                return self._of(vectors, half_norms, embedding)
            case PoincareBall(vectors=points, lorentz_space=space, lorentz_time=time):
                released = slice(self.release_words)
                vectors = np.asarray(points[released])
                coarse = coded_words(vectors, embedding, lorentz, withheld=self.withheld)
                return HyperbolicNearest(
                    vectors=points[released],
                    space=space[released],
                    time=self.barred(time),
                    coarse=coarse,
                )
        raise BundleError("The embedding bundle has a geometry that cannot be searched")

    def of_images(self, vectors: Floats32, half_norms: Floats32) -> NearestWords:
        return self._of(vectors, half_norms)

    def _of(
        self, vectors: WordVectors, half_norms: Floats32, bundle: Embedding | None = None
    ) -> NearestWords:
        vectors = vectors[: self.release_words]
        coarse = coded_words(np.asarray(vectors), bundle, withheld=self.withheld)
        return EuclideanNearest(vectors=vectors, half_norms=self.barred(half_norms), coarse=coarse)
