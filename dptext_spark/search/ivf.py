"""Nearest words among some lists of the vocabulary, those around the centroids nearest to a point.

Which lists are looked at and which word is taken there is a function of the point alone: lists are chosen by
their centroids' distances and words by their own, near ties settled in double precision as in the exact
search. So the search is post-processing and leaves guarantees as they are; what it misses changes the law of
the output words, for which it says how often it gives the word that the exact search would give.

The product is cut by lists: points are grouped by the lists that they look at, and each list takes one
single-precision matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError
from dptext_spark.geometry.rounding import longest_of, score_slack
from dptext_spark.search.exact import EuclideanNearest, EuclideanWords, largest
from dptext_spark.search.nearest import NearestWords, Search

POINT_BLOCK: Final = 16384
"""Points searched at once: the more there are, the more of them share a list."""

# Points whose lists are chosen at once, and scores held at once: they stay in the cache between the product
# and the scan.
_CHOICE_BLOCK: Final = 512
_CELLS: Final = 1 << 19


@dataclass(frozen=True, kw_only=True)
class IvfNearest(EuclideanWords):
    """Euclidean nearest-word search in the lists whose centroids are nearest to a point.

    Args:
        lists: The words in lists.
        stops: int64 (L,), where each list ends, of the words that may be output.
        probes: How many lists each point looks at.
    """

    point_block: ClassVar[int] = POINT_BLOCK

    lists: InvertedLists
    stops: NDArray[np.int64]
    probes: int

    def looked_at(self, points: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Say which lists points (t, n) look at, bool (t, L), and how many words each has, int64 (L,)."""
        count = len(self.lists.centroids)
        # Each list's points lie side by side in memory, for so they are visited.
        chosen = np.ones((count, len(points)), dtype=np.bool_).T
        if self.probes < count:
            for start in range(0, len(points), _CHOICE_BLOCK):
                block = slice(start, start + _CHOICE_BLOCK)
                chosen[block] = self._nearest_lists(points[block])
        return chosen, self.stops - self.lists.starts[:-1]

    def _nearest_lists(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        queries = points.astype(np.float32)
        centroids, half_norms = self.lists.centroids, self.lists.centroid_half_norms
        scores = queries @ centroids.T
        scores -= half_norms
        lengths = np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1))
        slack = score_slack(queries.shape[1] + 4, lengths, longest_of(half_norms))
        place = len(centroids) - self.probes
        last = np.partition(scores, place, axis=1)[:, place]
        # A list that scores more than the last one by the slack is certainly among the nearest, one that
        # scores less by as much is certainly not.
        chosen = scores > (last + slack)[:, None]
        missing = self.probes - chosen.sum(axis=1)
        rows, lists = np.nonzero((scores >= (last - slack)[:, None]) & ~chosen)
        contested = np.bincount(rows, minlength=len(scores))[rows] > missing[rows]
        chosen[rows[~contested], lists[~contested]] = True
        rows, lists = rows[contested], lists[contested]
        vectors = centroids[lists].astype(np.float64)
        exact = ((points[rows] - 0.5 * vectors) * vectors).sum(axis=1)
        order = np.lexsort((lists, -exact, rows))
        rows, lists = rows[order], lists[order]
        taken = np.arange(len(rows)) - np.searchsorted(rows, rows) < missing[rows]
        chosen[rows[taken], lists[taken]] = True
        return chosen

    def candidates(self, points: NDArray[np.float64], k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        queries = points.astype(np.float32)
        slack = self.slack(queries)
        chosen, sizes = self.looked_at(points)
        best = np.full((len(queries), k), -np.inf, dtype=np.float32)
        visited = [
            each
            for number in np.flatnonzero(sizes).tolist()
            for each in self._visit(number, np.flatnonzero(chosen[:, number]), queries, slack, best)
        ]
        floor = best.min(axis=1) - slack
        hits = [(row[keep], word[keep]) for row, word, scores in visited for keep in [scores >= floor[row]]]
        # Lists without enough words among them are no answer; all words are.
        if sizes.min() < k and (held := chosen @ sizes).min() < k:
            short = np.flatnonzero(held < k)
            whole = EuclideanNearest(vectors=self.vectors, half_norms=self.half_norms)
            rows, words = whole.candidates(points[short], k)
            hits = [(row[held[row] >= k], word[held[row] >= k]) for row, word in hits]
            hits.append((short[rows], words))
        rows, words = (np.concatenate(parts) for parts in zip(*hits, strict=True))
        return rows, words

    def _visit(
        self,
        number: int,
        points: NDArray[np.int64],
        queries: NDArray[np.float32],
        slack: NDArray[np.float32],
        best: NDArray[np.float32],
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Score some points against the words of a list, raise ``best``, and give what may be the nearest."""
        start, stop = int(self.lists.starts[number]), int(self.stops[number])
        vectors, offsets = self.lists.vectors[start:stop], self.lists.half_norms[start:stop]
        size = max(1, _CELLS // (stop - start))
        for at in range(0, len(points), size):
            part = points[at : at + size]
            scores = queries[part] @ vectors.T
            scores -= offsets
            peaks = scores.max(axis=1)
            hot = np.flatnonzero(peaks >= best[part].min(axis=1) - slack[part])
            if not len(hot):
                continue
            scores, rows = scores[hot], part[hot]
            if best.shape[1] == 1:
                best[rows, 0] = np.maximum(best[rows, 0], peaks[hot])
            else:
                best[rows] = largest(best[rows], scores)
            floor = best[rows].min(axis=1) - slack[rows]
            flat = np.flatnonzero(scores >= floor[:, None])
            row, word = np.divmod(flat, stop - start)
            yield rows[row], self.lists.rows[start + word], scores.ravel()[flat]


@dataclass(frozen=True, kw_only=True)
class IvfSearch(Search):
    """Looks at the words of the lists nearest to a point.

    Attributes:
        lists: How many lists the bundle's index has.
        probes: How many of them are looked at.
    """

    name: ClassVar[str] = "ivf"
    convex_cells: ClassVar[bool] = False  # a word is not found where its list is not looked at
    parameters: ClassVar[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
        "probes": ("1 or more", lambda value: isinstance(value, int) and value >= 1),
        "recall": ("above 0, at most 1", lambda value: not isinstance(value, str) and 0 < value <= 1),
    }

    lists: int
    probes: int

    @property
    def label(self) -> str:
        return f"ivf, {self.probes} of {self.lists} lists"

    @property
    def options(self) -> dict[str, str]:
        return {"search": f"{self.name}:probes={self.probes}"}

    def operations(self, columns: int) -> float:
        """Centroids, then the words of the lists; a short product takes twice its operations."""
        share = min(1.0, self.probes / self.lists)
        return 2.0 * columns * (self.lists + 2.0 * share * self.release_words)

    @classmethod
    def over(
        cls, embedding: Embedding | Path | str, release_words: int | None = None, **parameters: Any
    ) -> Self:
        """See :meth:`Search.over`; the bundle must have the lists.

        Raises:
            ConfigError: It has not, or fewer than one list is to be looked at.
        """
        search = super().over(embedding := Embedding.of(embedding), release_words, **parameters)
        if search.probes < 1:
            raise ConfigError("Search ivf looks at no list", allowed="1 or more", got=str(search.probes))
        _ = _euclidean(embedding), InvertedLists.open(embedding, search.lists)
        return search

    def of_words(self, embedding: Embedding) -> IvfNearest:
        space, lists = _euclidean(embedding), InvertedLists.open(embedding, self.lists)
        return IvfNearest(
            vectors=space.vectors[: self.release_words],
            half_norms=space.half_norms[: self.release_words],
            lists=lists,
            stops=lists.stops(self.release_words),
            probes=self.probes,
        )

    def of_images(self, vectors: NDArray[np.float32], half_norms: NDArray[np.float32]) -> NearestWords:
        raise ConfigError(
            "Search ivf knows lists of the bundle's own vectors only",
            allowed="exact, with a mechanism that searches images of them",
            do="Take --search exact",
        )


def _euclidean(embedding: Embedding) -> EuclideanSpace:
    if isinstance(embedding.space, EuclideanSpace):
        return embedding.space
    raise ConfigError(
        "Search ivf is for Euclidean bundles",
        got=f"geometry {embedding.space.geometry}",
        do="Take --search exact",
    )
