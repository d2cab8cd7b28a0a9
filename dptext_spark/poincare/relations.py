"""Is-a pairs as a graph over numbered words: closure, cycles, and how well points fit it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dptext_spark.errors import InputError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.metric import squared_norms

_LARGEST_CLOSURE: Final = 10**9
"""Steps of two pairs that a closure may have to look at; some 10 GB of memory."""

_BLOCK_FLOATS: Final = 2**21


@dataclass(frozen=True, kw_only=True, eq=False)
class Relations:
    """A set of is-a pairs; the order in which they were given leaves no trace."""

    words: tuple[str, ...]  # V distinct words, each in at least one pair
    pairs: Ints  # (m, 2), hyponym and hypernym, rows of ``words``: sorted, distinct, two words

    @classmethod
    def from_words(
        cls, hyponyms: Sequence[str], hypernyms: Sequence[str], *, order: Iterable[str] = ()
    ) -> Relations:
        """Number the words of distinct pairs: those of ``order`` first, then by number of pairs."""
        rank = {word: row for row, word in enumerate(order)}
        distinct = {pair for pair in zip(hyponyms, hypernyms, strict=True) if pair[0] != pair[1]}
        if not distinct:
            raise InputError(
                "There are no is-a pairs", allowed="at least one pair of two different words"
            )
        links = Counter(chain.from_iterable(distinct))
        words = sorted(links, key=lambda word: (rank.get(word, len(rank)), -links[word], word))
        row = {word: number for number, word in enumerate(words)}
        pairs = sorted((row[low], row[high]) for low, high in distinct)
        return cls(words=tuple(words), pairs=np.array(pairs, dtype=np.int64))

    @cached_property
    def links(self) -> Ints:
        """int64 (V,): the number of pairs that each word is in."""
        return np.bincount(self.pairs.ravel(), minlength=len(self.words))

    @cached_property
    def _matrix(self) -> sparse.csr_array:
        ones = np.ones(len(self.pairs), dtype=np.bool_)
        size = len(self.words)
        return sparse.csr_array((ones, tuple(self.pairs.T)), shape=(size, size))

    def are_related(self, hyponyms: Ints, words: Ints) -> NDArray[np.bool_]:
        """Return, bool (b, k), which of k words are each hyponym itself or its hypernym.

        Both are rows of ``words``.
        """
        pairs = self._matrix[hyponyms][:, words].toarray()
        return np.asarray(pairs | (hyponyms[:, None] == words), dtype=np.bool_)

    def closure(self) -> Relations:
        """Return the pairs with every pair that follows from them.

        A dog is a mammal, a mammal is an animal, so a dog is an animal.
        """
        reached = self._matrix
        while True:
            _check_size(reached)
            further = sparse.csr_array(reached + reached @ reached)
            if further.nnz == reached.nnz:
                break
            reached = further
        low, high = reached.nonzero()
        pairs = np.stack([low, high], axis=1).astype(np.int64)[low != high]
        return Relations(words=self.words, pairs=pairs[np.lexsort(pairs.T[::-1])])

    def cycles(self) -> dict[str, int]:
        """Count ``groups`` of words that are all hyponyms of one another, with words and pairs."""
        _, groups = csgraph.connected_components(self._matrix, connection="strong")
        sizes = np.bincount(groups)
        sizes = sizes[sizes > 1]
        low, high = groups[self.pairs].T
        return {"groups": len(sizes), "words": int(sizes.sum()), "pairs": int((low == high).sum())}


def _check_size(reached: sparse.csr_array) -> None:
    """Check that a step of the closure fits in memory."""
    # An upper bound of the product's size, from row and column sums alone.
    columns = np.bincount(reached.indices, minlength=reached.shape[0])
    steps = int(columns @ np.diff(reached.indptr))
    if steps > _LARGEST_CLOSURE:
        raise InputError(
            "The transitive closure of the pairs is too large",
            allowed=f"at most {_LARGEST_CLOSURE:,} steps",
            got=f"{steps:,}",
            do="Raise --min-count, which breaks cycles, or leave out --transitive-closure",
        )


def measure(vectors: Floats, relations: Relations, *, words: int = 10_000) -> dict[str, Any]:
    """Measure points of the ball, float64 (V, n); ``words`` are those of the ranks.

    ``nearest_distances`` are the 5th, 50th and 95th percentile of hyperbolic distances to the
    nearest word.
    """
    norms = squared_norms(vectors)
    rows = _spread(len(vectors), 1_000)
    least = [closeness.min() for closeness in _closeness(vectors, rows)]
    # Rounding can make what is nearly 0 negative.
    nearest = np.maximum(least, 0) / (1 - norms[rows])
    distances = 2 * np.arcsinh(np.sqrt(nearest))
    most_linked = np.argsort(-relations.links, kind="stable")[_spread(len(vectors), 10)]
    neighbours = {}
    for row, closeness in zip(most_linked, _closeness(vectors, most_linked), strict=True):
        order = np.argsort(closeness, kind="stable")[:5]
        neighbours[relations.words[row]] = [relations.words[near] for near in order if near != row]
    return {
        "reconstruction": reconstruction(vectors, relations, words=words),
        "largest_norm": float(np.sqrt(norms.max())),
        "nearest_distances": np.quantile(distances, (0.05, 0.5, 0.95)).tolist(),
        "neighbours": neighbours,
    }


def reconstruction(vectors: Floats, relations: Relations, *, words: int) -> dict[str, Any]:
    """Rank the true hypernyms of hyponyms, at most ``words``, among all words by distance.

    Other hypernyms of the word do not count, and equal distances count against it.

    Source: Nickel and Kiela 2017, section 4.1.
    """
    hyponyms, starts = np.unique(relations.pairs[:, 0], return_index=True)
    above = np.split(relations.pairs[:, 1], starts[1:])
    places = _spread(len(hyponyms), words)
    ranks = []
    precisions = []
    for place, closeness in zip(places, _closeness(vectors, hyponyms[places]), strict=True):
        hypernyms = above[place]
        of_hypernyms = np.sort(closeness[hypernyms])
        closeness[hypernyms] = np.inf  # each is ranked among the words that are none
        rank = np.array([np.count_nonzero(closeness <= value) + 1 for value in of_hypernyms])
        hits = np.arange(1, len(rank) + 1)
        ranks.append(rank)
        precisions.append((hits / (rank + hits - 1)).mean())
    return {
        "mean_rank": float(np.concatenate(ranks).mean()),
        "mean_average_precision": float(np.mean(precisions)),
        "words": len(places),
        "all_words": len(hyponyms),
    }


def _spread(count: int, most: int) -> Ints:
    """Choose positions, evenly spread, all of them where there are few."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _closeness(vectors: Floats, rows: Ints) -> Iterator[Floats]:
    """Yield for each row numbers (V,) that order all words by distance; the word itself is last."""
    squares = squared_norms(vectors)
    step = max(1, _BLOCK_FLOATS // len(vectors))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        products = vectors[block] @ vectors.T
        products *= -2
        products += squares
        products += squares[block, None]
        products /= 1 - squares
        products[np.arange(len(block)), block] = np.inf
        yield from products
