"""How well points of the ball show the pairs that they were trained on: JSON-ready figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.poincare.relations import Relations

_BLOCK_FLOATS: Final = 2**21
_NEIGHBOURS: Final = 5
_MEASURED_DISTANCES: Final = 1_000
_EXAMPLES: Final = 10


def squared_norms(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the squares of each row: (t, n) -> (t,)."""
    squares: NDArray[np.float64] = np.square(points).sum(axis=1)
    return squares


def measure(vectors: NDArray[np.float64], relations: Relations, *, words: int = 10_000) -> dict[str, Any]:
    """Measure points of the ball, float64 (V, n), of ``relations.words``; ``words`` are those of the ranks.

    The correlation is Spearman's, None where all norms or depths are equal; ``nearest_distances`` are the
    5th, 50th and 95th percentile of hyperbolic distances to the nearest word.
    """
    norms, depths = squared_norms(vectors), relations.depths()
    is_flat = np.ptp(norms) == 0 or np.ptp(depths) == 0
    rows = _spread(len(vectors), _MEASURED_DISTANCES)
    # Rounding can make what is nearly 0 negative.
    nearest = np.maximum([closeness.min() for closeness in _closeness(vectors, rows)], 0) / (1 - norms[rows])
    shown = np.argsort(-relations.links, kind="stable")[_spread(len(vectors), _EXAMPLES)]
    order = [np.argsort(closeness, kind="stable")[:_NEIGHBOURS] for closeness in _closeness(vectors, shown)]
    return {
        "reconstruction": reconstruction(vectors, relations, words=words),
        "norm_depth_correlation": None if is_flat else float(scipy.stats.spearmanr(norms, depths).statistic),
        "largest_norm": float(np.sqrt(norms.max())),
        "nearest_distances": np.quantile(2 * np.arcsinh(np.sqrt(nearest)), (0.05, 0.5, 0.95)).tolist(),
        "neighbours": {
            relations.words[row]: [relations.words[near] for near in others if near != row]
            for row, others in zip(shown, order, strict=True)
        },
    }


def reconstruction(vectors: NDArray[np.float64], relations: Relations, *, words: int) -> dict[str, Any]:
    """Rank the true hypernyms of hyponyms, no more than ``words`` of them, among all words by distance.

    The mean rank is over pairs, the mean average precision over words; 1 is perfect. Other hypernyms of the
    word do not count, and equal distances count against it.

    Source: Nickel and Kiela 2017, section 4.1.
    """
    starts = relations.starts
    hyponyms = np.flatnonzero(np.diff(starts))
    chosen = hyponyms[_spread(len(hyponyms), words)]
    ranks, precisions = [], []
    for word, row in zip(chosen, _closeness(vectors, chosen), strict=True):
        hypernyms = relations.pairs[starts[word] : starts[word + 1], 1]
        own = np.sort(row[hypernyms])
        row[hypernyms] = np.inf  # each is ranked among the words that are none
        rank = np.array([np.count_nonzero(row <= value) + 1 for value in own])
        hits = np.arange(1, len(rank) + 1)
        ranks.append(rank)
        precisions.append((hits / (rank + hits - 1)).mean())
    return {
        "mean_rank": float(np.concatenate(ranks).mean()),
        "mean_average_precision": float(np.mean(precisions)),
        "words": len(chosen),
        "all_words": len(hyponyms),
    }


def _spread(count: int, wanted: int) -> NDArray[np.int64]:
    """Choose positions, evenly spread, all of them where there are few."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))


def _closeness(vectors: NDArray[np.float64], rows: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """For each of some rows, numbers (V,) that order all words by distance; the word itself comes last."""
    squares, step = squared_norms(vectors), max(1, _BLOCK_FLOATS // len(vectors))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        products = vectors[block] @ vectors.T
        products *= -2
        products += squares
        products += squares[block, None]
        products /= 1 - squares
        products[np.arange(len(block)), block] = np.inf
        yield from products
