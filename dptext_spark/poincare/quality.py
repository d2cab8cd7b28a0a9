"""How well points of the ball tell the pairs they were trained on, in figures that a person can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.poincare.objective import squared_norms
from dptext_spark.poincare.relations import Relations

_BLOCK_FLOATS: Final = 2**21
_NEIGHBOURS: Final = 5
_MEASURED_DISTANCES: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """Ranks of the true hypernyms of words among all words, by distance.

    Attributes:
        mean_rank: Mean over pairs; 1 is perfect. Other hypernyms of the word do not count, equal distances
            count against it.
        mean_average_precision: Mean over words of the average precision; 1 is perfect.
        words, all_words: Hyponyms that were looked at, and that there are.
    """

    mean_rank: float
    mean_average_precision: float
    words: int
    all_words: int


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What the report says about an embedding of pairs.

    Attributes:
        reconstruction: How well the pairs can be read off the distances.
        norm_depth_correlation: Spearman's rank correlation of norm and depth; None where all are equal.
        largest_norm: Euclidean norm of the outermost point.
        nearest_distances: The 5th, 50th and 95th percentile of words' hyperbolic distances to the nearest.
        neighbours: Nearest words of examples, nearest first.
    """

    reconstruction: Reconstruction
    norm_depth_correlation: float | None
    largest_norm: float
    nearest_distances: tuple[float, float, float]
    neighbours: dict[str, list[str]]


def measure(
    vectors: NDArray[np.float64], relations: Relations, *, words: int = 10_000, examples: int = 10
) -> Quality:
    """Measure an embedding of pairs.

    Args:
        vectors: float64 (V, n), points inside the ball in the order of ``relations.words``.
        relations: The pairs.
        words: Look at no more than this many hyponyms, evenly spread.
        examples: Show the nearest words of this many words, spread over the numbers of pairs.
    """
    norms, depths = squared_norms(vectors), relations.depths()
    is_flat = np.ptp(norms) == 0 or np.ptp(depths) == 0
    return Quality(
        reconstruction=reconstruction(vectors, relations, words=words),
        norm_depth_correlation=None if is_flat else float(scipy.stats.spearmanr(norms, depths).statistic),
        largest_norm=float(np.sqrt(norms.max())),
        nearest_distances=_nearest_distances(vectors),
        neighbours=_neighbours(vectors, relations, examples),
    )


def reconstruction(vectors: NDArray[np.float64], relations: Relations, *, words: int) -> Reconstruction:
    """Rank the true hypernyms of hyponyms among all words.

    Args as for :func:`measure`.

    Source: Nickel and Kiela 2017, section 4.1.
    """
    starts = relations.starts
    hyponyms = np.flatnonzero(np.diff(starts))
    chosen = hyponyms[_spread(len(hyponyms), words)]
    closeness = chain.from_iterable(_closeness(vectors, block) for block in _blocks(chosen, len(vectors)))
    ranks, precisions = [], []
    for word, row in zip(chosen, closeness, strict=True):
        hypernyms = relations.pairs[starts[word] : starts[word + 1], 1]
        own = np.sort(row[hypernyms])
        row[hypernyms] = np.inf  # each is ranked among the words that are none
        rank = np.array([np.count_nonzero(row <= value) + 1 for value in own])
        found = np.arange(1, len(rank) + 1)
        ranks.append(rank)
        precisions.append((found / (rank + found - 1)).mean())
    return Reconstruction(
        mean_rank=float(np.concatenate(ranks).mean()),
        mean_average_precision=float(np.mean(precisions)),
        words=len(chosen),
        all_words=len(hyponyms),
    )


def _spread(count: int, wanted: int) -> NDArray[np.int64]:
    """Choose positions, evenly spread, all of them where there are few."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))


def _blocks(rows: NDArray[np.int64], words: int) -> Iterator[NDArray[np.int64]]:
    """Cut rows such that a block's distances to all words fit in memory."""
    step = max(1, _BLOCK_FLOATS // words)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _closeness(vectors: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """For some rows, numbers that order all words by distance: (t, V); the word itself comes last."""
    squares = squared_norms(vectors)
    found: NDArray[np.float64] = vectors[rows] @ vectors.T
    found *= -2
    found += squares
    found += squares[rows, None]
    found /= 1 - squares
    found[np.arange(len(rows)), rows] = np.inf
    return found


def _nearest_distances(vectors: NDArray[np.float64]) -> tuple[float, float, float]:
    rows = _spread(len(vectors), _MEASURED_DISTANCES)
    blocks = _blocks(rows, len(vectors))
    nearest = np.concatenate([_closeness(vectors, block).min(axis=1) for block in blocks])
    # Rounding can make what is nearly 0 negative.
    gaps = np.maximum(nearest, 0) / (1 - squared_norms(vectors[rows]))
    low, half, high = np.quantile(2 * np.arcsinh(np.sqrt(gaps)), (0.05, 0.5, 0.95)).tolist()
    return low, half, high


def _neighbours(vectors: NDArray[np.float64], relations: Relations, examples: int) -> dict[str, list[str]]:
    rows = np.argsort(-relations.links, kind="stable")[_spread(len(relations.words), examples)]
    nearest = np.argsort(_closeness(vectors, rows), axis=1, kind="stable")[:, :_NEIGHBOURS]
    return {
        relations.words[row]: [relations.words[near] for near in found if near != row]
        for row, found in zip(rows, nearest, strict=True)
    }
