"""Nearest words among some lists of the vocabulary, those around the centroids nearest to a point.

Which lists are looked at and which word is taken there is a function of the point alone, near ties settled in
double precision as in the exact search. So the search is post-processing and leaves guarantees as they are;
what it misses changes the law of the output words.

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

# Points whose lists are chosen at once, and scores held at once: they stay in the cache between the product
# and the scan.
_CHOICE_BLOCK: Final = 512
_CELLS: Final = 1 << 19


@dataclass(frozen=True, kw_only=True)
class IvfNearest(EuclideanWords):
    """Euclidean nearest-word search in the lists whose centroids are nearest to a point."""

    point_block: ClassVar[int] = POINT_BLOCK

    lists: InvertedLists
    stops: Ints  # (L,), where each list ends, of the words that may be output
    probes: int  # how many lists each point looks at

    def looked_at(self, points: Floats) -> tuple[NDArray[np.bool_], Ints]:
        """Say which lists points (t, n) look at, bool (t, L), and how many words each has, int64 (L,)."""
        count = len(self.lists.centroids)
        # Each list's points lie side by side in memory, for so they are visited.
        chosen = np.ones((count, len(points)), dtype=np.bool_).T
        for start in range(0, len(points) if self.probes < count else 0, _CHOICE_BLOCK):
            block = slice(start, start + _CHOICE_BLOCK)
            chosen[block] = self._nearest_lists(points[block])
        return chosen, self.stops - self.lists.starts[:-1]

    def _nearest_lists(self, points: Floats) -> NDArray[np.bool_]:
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

    def candidates(self, points: Floats, k: int) -> tuple[Ints, Ints]:
        queries, index = points.astype(np.float32), self.lists
        shortlist = Shortlist(len(queries), k, self.slack(queries))
        chosen, sizes = self.looked_at(points)
        for number in np.flatnonzero(sizes).tolist():
            own = slice(int(index.starts[number]), int(self.stops[number]))
            vectors, offsets = index.vectors[own], index.half_norms[own]
            words = index.rows[own].astype(np.int64)
            looking, size = np.flatnonzero(chosen[:, number]), max(1, _CELLS // len(words))
            for start in range(0, len(looking), size):
                part = looking[start : start + size]
                scores = queries[part] @ vectors.T
                scores -= offsets
                shortlist.add(part, words, scores)
        rows, found = shortlist.pairs()
        # Lists without enough words among them are no answer; all words are.
        if sizes.min() < k and (held := chosen @ sizes).min() < k:
            enough, short = held[rows] >= k, np.flatnonzero(held < k)
            whole = EuclideanNearest(vectors=self.vectors, half_norms=self.half_norms)
            more, others = whole.candidates(points[short], k)
            rows = np.concatenate([rows[enough], short[more]])
            found = np.concatenate([found[enough], others])
        return rows, found


@dataclass(frozen=True, kw_only=True)
class IvfSearch(Search):
    """Looks at the words of the lists nearest to a point."""

    name: ClassVar[str] = "ivf"
    convex_cells: ClassVar[bool] = False  # a word is not found where its list is not looked at
    parameters: ClassVar[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
        "probes": ("1 or more", lambda value: isinstance(value, int) and value >= 1),
        "recall": (
            "above 0, at most 1",
            lambda value: not isinstance(value, str) and 0 < value <= 1,
        ),
    }

    lists: int  # of the bundle's index
    probes: int  # how many of them are looked at

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
        """See :meth:`Search.over`; refuses a bundle without the lists, and to look at none of them."""
        search = super().over(embedding := Embedding.of(embedding), release_words, **parameters)
        if search.probes < 1:
            raise ConfigError(
                "Search ivf looks at no list", allowed="1 or more", got=str(search.probes)
            )
        search.of_words(embedding)
        return search

    def of_words(self, embedding: Embedding) -> IvfNearest:
        space = euclidean(embedding)
        lists = InvertedLists.open(embedding, self.lists)
        return IvfNearest(
            vectors=space.vectors[: self.release_words],
            half_norms=space.half_norms[: self.release_words],
            lists=lists,
            stops=lists.stops(self.release_words),
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
