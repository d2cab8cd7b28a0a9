"""Is-a pairs as a graph over numbered words: its closure, its cycles, the depth of its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dptext_spark.errors import InputError

_LARGEST_CLOSURE: Final = 10**9
"""Steps of two pairs that a closure may have to look at; some 10 GB of memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Relations:
    """A set of is-a pairs; the order in which they were given leaves no trace."""

    words: tuple[str, ...]  # V distinct words, each in at least one pair
    pairs: NDArray[np.int64]  # (m, 2), hyponym and hypernym, rows of ``words``: sorted, distinct, two words

    @classmethod
    def from_words(
        cls, hyponyms: Sequence[str], hypernyms: Sequence[str], *, order: Iterable[str] = ()
    ) -> Relations:
        """Number the words of distinct pairs: those of ``order`` first, then by their number of pairs."""
        rank = {word: row for row, word in enumerate(order)}
        distinct = {pair for pair in zip(hyponyms, hypernyms, strict=True) if pair[0] != pair[1]}
        if not distinct:
            raise InputError("There are no is-a pairs", allowed="at least one pair of two different words")
        links = Counter(chain.from_iterable(distinct))
        words = sorted(links, key=lambda word: (rank.get(word, len(rank)), -links[word], word))
        row = {word: number for number, word in enumerate(words)}
        pairs = sorted((row[low], row[high]) for low, high in distinct)
        return cls(words=tuple(words), pairs=np.array(pairs, dtype=np.int64))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """int64 (V + 1,): the pairs of hyponym row w are ``pairs[starts[w]:starts[w + 1]]``."""
        return np.searchsorted(self.pairs[:, 0], np.arange(len(self.words) + 1))

    @cached_property
    def links(self) -> NDArray[np.int64]:
        """int64 (V,): the number of pairs that each word is in."""
        return np.bincount(self.pairs.ravel(), minlength=len(self.words))

    @cached_property
    def _matrix(self) -> sparse.csr_array:
        ones, size = np.ones(len(self.pairs), dtype=np.bool_), len(self.words)
        return sparse.csr_array((ones, tuple(self.pairs.T)), shape=(size, size))

    @cached_property
    def _groups(self) -> NDArray[np.int64]:
        """int64 (V,): the strongly connected component of each word."""
        return csgraph.connected_components(self._matrix, connection="strong")[1].astype(np.int64)

    def are_related(self, hyponyms: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark, bool (b, k), which of k words are each hyponym itself or its hypernym; rows of ``words``."""
        pairs = self._matrix[hyponyms][:, words].toarray()
        return np.asarray(pairs | (hyponyms[:, None] == words), dtype=np.bool_)

    def closure(self) -> Relations:
        """Add every pair that follows: a dog is a mammal, a mammal is an animal, so a dog is an animal."""
        reached = self._matrix
        while True:
            # An upper bound of the product's size, from row and column sums alone.
            steps = int(np.bincount(reached.indices, minlength=reached.shape[0]) @ np.diff(reached.indptr))
            if steps > _LARGEST_CLOSURE:
                raise InputError(
                    "The transitive closure of the pairs is too large",
                    allowed=f"at most {_LARGEST_CLOSURE:,} steps",
                    got=f"{steps:,}",
                    do="Raise --min-count, which breaks cycles, or leave out --transitive-closure",
                )
            further = sparse.csr_array(reached + reached @ reached)
            if further.nnz == reached.nnz:
                break
            reached = further
        low, high = reached.nonzero()
        pairs = np.stack([low, high], axis=1).astype(np.int64)[low != high]
        return Relations(words=self.words, pairs=pairs[np.lexsort(pairs.T[::-1])])

    def cycles(self) -> dict[str, int]:
        """Count ``groups`` of words that are all hyponyms of one another, their ``words`` and ``pairs``."""
        sizes = np.bincount(self._groups)
        sizes = sizes[sizes > 1]
        low, high = self._groups[self.pairs].T
        return {"groups": len(sizes), "words": int(sizes.sum()), "pairs": int((low == high).sum())}

    def depths(self) -> NDArray[np.int64]:
        """Count the steps of the longest way up from each word, int64 (V,); a cycle's words count as one."""
        edges = np.unique(self._groups[self.pairs], axis=0)
        edges = edges[edges[:, 0] != edges[:, 1]]
        depth = np.zeros(self._groups.max() + 1, dtype=np.int64)
        children, starts = np.unique(edges[:, 0], return_index=True)
        while len(edges):
            deeper = np.maximum.reduceat(depth[edges[:, 1]], starts) + 1
            if np.array_equal(depth[children], deeper):
                break
            depth[children] = deeper
        return depth[self._groups]


_BLOCK_FLOATS: Final = 2**21
_NEIGHBOURS: Final = 5
_MEASURED_DISTANCES: Final = 1_000
_EXAMPLES: Final = 10


def squared_norms(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the squares of each row: (t, n) -> (t,)."""
    squares: NDArray[np.float64] = np.square(points).sum(axis=1)
    return squares


def measure(vectors: NDArray[np.float64], relations: Relations, *, words: int = 10_000) -> dict[str, Any]:
    """Measure points of the ball, float64 (V, n); ``words`` are those of the ranks.

    ``nearest_distances`` are the 5th, 50th and 95th percentile of hyperbolic distances to the nearest word.
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

    Other hypernyms of the word do not count, and equal distances count against it. Source: Nickel and Kiela
    2017, section 4.1.
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
