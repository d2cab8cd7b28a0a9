"""Is-a pairs as a graph over numbered words: its closure, its cycles, the depth of its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
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
        """Number the words of pairs, and drop repeated pairs and those of a word with itself.

        The words of ``order`` come first; the others go by their number of pairs, most first, then by
        themselves.
        """
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
        """Count, for each word, the steps of the longest way up to a word without hypernyms: int64 (V,).

        The words of a cycle count as one.
        """
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
