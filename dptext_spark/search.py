"""Nearest words of noisy points: exact, blocked, and the same whatever the batch and thread count.

A single-precision matrix product scores all words; every word whose score could still be the best,
given a proven bound on that product's rounding error, is scored again in double precision, one
dot product at a time. The answer therefore depends on the point alone, not on how BLAS cut the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# A block of scores (2 MiB) stays in the cache between the product and the scan.
POINT_BLOCK: Final = 1024
WORD_BLOCK: Final = 512
_SETTLE_BLOCK: Final = 4096
_UNIT_ROUNDOFF: Final = 2.0**-24


@dataclass(frozen=True, kw_only=True)
class NearestWords:
    """Exact Euclidean nearest-word search over a (memory-mapped) embedding matrix.

    Args:
        vectors: float32 (V, n), C order; used in place, never copied.
        half_norms: float32 (V,), half the squared Euclidean norm of each row.
    """

    vectors: NDArray[np.float32]
    half_norms: NDArray[np.float32]

    def __call__(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Find the nearest word of each point; among words equally near, the lowest row wins.

        Args:
            points: float64 (t, n), finite.

        Returns:
            int64 (t,), row numbers of ``vectors``.
        """
        nearest = np.empty(len(points), dtype=np.int64)
        for start in range(0, len(points), POINT_BLOCK):
            block = slice(start, start + POINT_BLOCK)
            nearest[block] = self._nearest(points[block])
        return nearest

    def _nearest(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        rows, words, scores, best = self._candidates(points)
        keep = scores >= best[rows]
        rows, words = rows[keep], words[keep]
        contested = np.bincount(rows, minlength=len(points))[rows] > 1
        nearest = np.empty(len(points), dtype=np.int64)
        nearest[rows[~contested]] = words[~contested]
        self._settle(points, rows[contested], words[contested], nearest)
        return nearest

    def _candidates(
        self, points: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """Score all words in float32 and keep those that may be nearest.

        Returns:
            Point rows, words and scores of the candidates, and the least score (t,) that a
            candidate needs once all words have been seen.
        """
        queries = points.astype(np.float32)
        slack = self._slack(queries)
        floor = np.full(len(points), -np.inf, dtype=np.float32)
        buffer = np.empty((len(points), min(WORD_BLOCK, len(self.vectors))), dtype=np.float32)
        found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
        for start in range(0, len(self.vectors), WORD_BLOCK):
            block = self.vectors[start : start + WORD_BLOCK]
            scores = buffer[:, : len(block)]
            np.matmul(queries, block.T, out=scores)
            scores -= self.half_norms[start : start + WORD_BLOCK]
            peak = scores.max(axis=1)
            hot = np.flatnonzero(peak >= floor)
            if not len(hot):
                continue
            floor[hot] = np.maximum(floor[hot], peak[hot] - slack[hot])
            # Flat, for NumPy finds the nonzeros of one dimension several times as fast as of two.
            row, word = np.divmod(np.flatnonzero(scores[hot] >= floor[hot, None]), len(block))
            row = hot[row]
            found.append((row, word + start, scores[row, word]))
        rows, words, best = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return rows, words, best, floor

    def _slack(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Bound how far two float32 scores of one point can stray from their exact difference.

        For a sum of n products in any order |computed - exact| <= gamma_n |q||y|, gamma_n =
        n u / (1 - n u) (Higham 2002, Accuracy and Stability of Numerical Algorithms, eq. 3.5). The terms
        added to n pay for rounding q, the half norm and the subtraction; the factor 2 for two scores.
        """
        terms = (queries.shape[1] + 4) * _UNIT_ROUNDOFF
        longest = np.sqrt(2.0 * float(self.half_norms.max()))
        lengths = np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1))
        bound = 2.0 * terms / (1.0 - terms) * longest * (lengths + longest)
        # The bound itself is rounded up on its way to float32, as are the thresholds made with it.
        slack: NDArray[np.float32] = (bound * (1.0 + 8 * _UNIT_ROUNDOFF)).astype(np.float32)
        return slack

    def _settle(
        self,
        points: NDArray[np.float64],
        rows: NDArray[np.int64],
        words: NDArray[np.int64],
        nearest: NDArray[np.int64],
    ) -> None:
        """Decide contested points in float64; each score is a reduction of its own."""
        if not len(rows):
            return
        scores = np.empty(len(rows))
        for start in range(0, len(rows), _SETTLE_BLOCK):
            part = slice(start, start + _SETTLE_BLOCK)
            vectors = self.vectors[words[part]].astype(np.float64)
            scores[part] = ((points[rows[part]] - 0.5 * vectors) * vectors).sum(axis=1)
        order = np.lexsort((words, -scores, rows))
        first = np.unique(rows[order], return_index=True)[1]
        nearest[rows[order][first]] = words[order][first]
