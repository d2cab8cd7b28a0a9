"""Nearest words among some lists of the vocabulary, those around the centroids nearest to a point.

Which lists are searched and which word is chosen there is a function of the point alone; near ties
are settled in double precision, as in the exact search. So the search is post-processing and leaves
guarantees as they are; the words that it misses change the distribution of outputs.

Points are grouped by the lists that they look at, and each list takes one single-precision product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.geometry.products import longest_of, score_slack
from dptext_spark.search.exact import EuclideanNearest, EuclideanWords, Shortlist
from dptext_spark.search.nearest import NearestWords, Search

POINT_BLOCK: Final = 16384
"""Points searched at once: the more there are, the more of them share a list."""

# Points whose lists are chosen at once, and scores held at once: they stay in the cache between the
# product and the scan.
_CHOICE_BLOCK: Final = 512
_CELLS: Final = 1 << 19


@dataclass(frozen=True, kw_only=True)
class IvfNearest(EuclideanWords):
    """Euclidean nearest-word search in the lists whose centroids are nearest to a point."""

    point_block: ClassVar[int] = POINT_BLOCK

    lists: InvertedLists
    stops: Ints  # (L,), where the words of each list that are searched end
    sizes: Ints  # (L,), how many of them may be output
    offsets: Floats32  # (V,), half norms in the lists' order, infinite for what may not be
    probes: int  # how many lists are searched for each point

    def searched_lists(self, points: Floats) -> tuple[NDArray[np.bool_], Ints]:
        """Choose the lists to search.

        Returns which lists are searched for points (t, n), bool (t, L), and how many words each
        list has, int64 (L,).
        """
        count = len(self.lists.centroids)
        # Each list's points lie side by side in memory, because they are visited list by list.
        is_searched = np.ones((count, len(points)), dtype=np.bool_).T
        if self.probes < count:
            for start in range(0, len(points), _CHOICE_BLOCK):
                block = slice(start, start + _CHOICE_BLOCK)
                is_searched[block] = self._nearest_lists(points[block])
        return is_searched, self.sizes

    def _nearest_lists(self, points: Floats) -> NDArray[np.bool_]:
        """Find the lists whose centroids are nearest to points (t, n): bool (t, L)."""
        queries = points.astype(np.float32)
        centroids = self.lists.centroids
        half_norms = self.lists.centroid_half_norms
        scores = queries @ centroids.T
        scores -= half_norms
        lengths = np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1))
        slack = score_slack(queries.shape[1] + 4, lengths, longest_of(half_norms))
        place = len(centroids) - self.probes
        last = np.partition(scores, place, axis=1)[:, place]
        # A list that scores more than the last one by the slack is certainly among the nearest, one
        # that scores less by as much is certainly not.
        is_nearest = scores > (last + slack)[:, None]
        missing = self.probes - is_nearest.sum(axis=1)
        rows, lists = np.nonzero((scores >= (last - slack)[:, None]) & ~is_nearest)
        contested = np.bincount(rows, minlength=len(scores))[rows] > missing[rows]
        is_nearest[rows[~contested], lists[~contested]] = True
        rows = rows[contested]
        lists = lists[contested]
        vectors = centroids[lists].astype(np.float64)
        exact = ((points[rows] - 0.5 * vectors) * vectors).sum(axis=1)
        order = np.lexsort((lists, -exact, rows))
        rows = rows[order]
        lists = lists[order]
        ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
        winners = ranks < missing[rows]
        is_nearest[rows[winners], lists[winners]] = True
        return is_nearest

    def candidates(self, points: Floats, k: int) -> tuple[Ints, Ints]:
        queries = points.astype(np.float32)
        shortlist = Shortlist(len(queries), k, self.slack(queries))
        is_searched, sizes = self.searched_lists(points)
        for number in np.flatnonzero(sizes).tolist():
            members = slice(int(self.lists.starts[number]), int(self.stops[number]))
            vectors = self.lists.vectors[members].astype(np.float32, copy=False)
            offsets = self.offsets[members]
            words = self.lists.rows[members].astype(np.int64)
            visitors = np.flatnonzero(is_searched[:, number])
            size = max(1, _CELLS // len(words))
            for start in range(0, len(visitors), size):
                block = visitors[start : start + size]
                scores = queries[block] @ vectors.T
                scores -= offsets
                shortlist.add(block, words, scores)
        rows, words = shortlist.pairs()
        if sizes.min() >= k:
            return rows, words
        return self._completed(points, k, rows, words, is_searched @ sizes)

    def _completed(
        self, points: Floats, k: int, rows: Ints, words: Ints, word_counts: Ints
    ) -> tuple[Ints, Ints]:
        """Replace candidates of points whose lists have under k words by those of all words."""
        if word_counts.min() >= k:
            return rows, words
        enough = word_counts[rows] >= k
        short = np.flatnonzero(word_counts < k)
        all_words = EuclideanNearest(vectors=self.vectors, half_norms=self.half_norms)
        short_rows, short_words = all_words.candidates(points[short], k)
        completed_rows = np.concatenate([rows[enough], short[short_rows]])
        completed_words = np.concatenate([words[enough], short_words])
        return completed_rows, completed_words


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def _is_share(value: Any) -> bool:
    return not isinstance(value, str) and 0 < value <= 1


@dataclass(frozen=True, kw_only=True)
class IvfSearch(Search):
    """Searches the words of the lists nearest to a point."""

    name: ClassVar[str] = "ivf"
    convex_cells: ClassVar[bool] = False  # a word is not found where its list is not searched
    parameters: ClassVar[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
        "probes": ("1 or more", _is_count),
        "recall": ("above 0, at most 1", _is_share),
    }

    lists: int  # of the bundle's index
    probes: int  # how many of them are searched

    @property
    def label(self) -> str:
        return f"ivf, {self.probes} of {self.lists} lists"

    @property
    def options(self) -> dict[str, str]:
        return {"search": f"{self.name}:probes={self.probes}"}

    def operations(self, columns: int) -> float:
        """Count centroids and the lists' words, twice: their products are short."""
        share = min(1.0, self.probes / self.lists)
        return 2.0 * columns * (self.lists + 2.0 * share * self.release_words)

    @classmethod
    def over(
        cls, embedding: Embedding | Path | str, release_words: int | None = None, **parameters: Any
    ) -> Self:
        """See :meth:`Search.over`; refuse a bundle without the lists, and a search of no list."""
        embedding = Embedding.of(embedding)
        search = super().over(embedding, release_words, **parameters)
        if search.probes < 1:
            raise ConfigError(
                "Search ivf looks at no list", allowed="1 or more", got=str(search.probes)
            )
        search.of_words(embedding)
        return search

    def of_words(self, embedding: Embedding) -> IvfNearest:
        space = euclidean(embedding)
        lists = InvertedLists.open(embedding, self.lists)
        outputs = np.zeros(len(lists.rows), dtype=np.bool_)
        outputs[self.outputs] = True
        is_output = outputs[lists.rows]
        sizes = np.diff(np.concatenate([[0], np.cumsum(is_output)])[lists.starts])
        offsets = lists.half_norms
        if self.withheld:
            offsets = np.where(is_output, offsets, np.float32(np.inf))
        return IvfNearest(
            vectors=space.vectors[: self.release_words],
            half_norms=self.barred(space.half_norms),
            lists=lists,
            stops=lists.stops(self.release_words),
            sizes=sizes,
            offsets=offsets,
            probes=self.probes,
        )

    def of_images(self, vectors: Floats32, half_norms: Floats32) -> NearestWords:
        raise ConfigError(
            "Search ivf knows lists of the bundle's own vectors only",
            allowed="exact, with a mechanism that searches images of them",
            do="Take --search exact",
        )


def euclidean(embedding: Embedding) -> EuclideanSpace:
    """Return the space of a bundle that may have lists; a ConfigError for another geometry."""
    space = embedding.space
    if not isinstance(space, EuclideanSpace):
        raise ConfigError(
            "Search ivf is for Euclidean bundles",
            got=f"geometry {space.geometry}",
            do="Take --search exact",
        )
    return space
