"""How many lists a search must look at, found on noisy points as a release has them.

A noisy point lies far from all words, and how far follows from epsilon; so recall is measured on such points,
of words drawn by Zipf's law over the rows of the bundle, never taken from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.binomial import lower_limit
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists, made
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.noisy import NoisyNearest
from dptext_spark.noise import NoiseKey, to_uniform
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.search.nearest import Search

SAMPLE: Final = 4096
"""Noisy points that a recall is measured on."""

CONFIDENCE: Final = 0.99
"""That the recall is what it is said to be, or more."""

RECALL: Final = 0.98
"""Of a search in lists, where nothing else is asked for."""

_BANDS: Final = (100, 1_000, 10_000)
# Of the words: a list at a time takes about twice the time of all at once.
_PAYS: Final = 0.5
_KEY: Final = NoiseKey(bytes(32))  # public: nothing private is perturbed with it
_BLOCK: Final = 512


@dataclass(frozen=True)
class Recall:
    """What a search in lists finds of what the exact search would, as JSON-ready facts."""

    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Give the facts."""
        return self.facts

    def describe(self) -> str:
        """Say it in plain words."""
        facts, n_w = self.facts, self.facts["n_w"]
        bands = ", ".join(f"{name} {band['recall']:.1%}" for name, band in facts["recall_by_rank"].items())
        paid = "" if facts["words_looked_at"] < _PAYS else " The exact search would hardly be slower."
        return (
            f"Search ivf looks at {facts['probes']:,} of {facts['lists']:,} lists, "
            f"{facts['words_looked_at']:.1%} of the words: on {SAMPLE:,} noisy points of words by Zipf's law "
            f"it gives the exact nearest word for {facts['recall']:.1%} (at least "
            f"{facts['recall_at_least']:.1%}; by rank of the word: {bands}). Words unchanged there: "
            f"{n_w['exact']:.1%} by the exact search, {n_w['ivf']:.1%} by this one. The guarantee is the "
            f"same, for the search looks at the noisy point alone.{paid}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisySample:
    """Noisy points of a mechanism with their exact nearest words; public, the same every time.

    Attributes:
        words: int64 (t,), the words that were perturbed.
        points: float64 (t, n).
        nearest: int64 (t,), what the exact search gives.
    """

    embedding: Embedding
    words: NDArray[np.int64]
    points: NDArray[np.float64]
    nearest: NDArray[np.int64]

    def probes_for(self, lists: int, recall: float) -> int:
        """Find the least number of lists whose recall is at least so much, with ``CONFIDENCE``; L for 1."""
        index = InvertedLists.open(self.embedding, lists)
        of = np.empty(len(index.rows), dtype=np.int64)
        of[index.rows] = np.repeat(np.arange(len(index.centroids)), np.diff(index.starts))
        ranks = np.empty(len(self.points), dtype=np.int64)  # of the nearest word's list
        for start in range(0, len(ranks), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores = self.points[part] @ index.centroids.T.astype(np.float64) - index.centroid_half_norms
            own = scores[np.arange(len(scores)), of[self.nearest[part]]]
            ranks[part] = (scores >= own[:, None]).sum(axis=1)
        limits = lower_limit(np.arange(1, SAMPLE + 1), SAMPLE, 1.0 - CONFIDENCE)
        enough = np.flatnonzero(limits >= recall)
        return int(np.sort(ranks)[enough[0]]) if len(enough) else lists

    def looked_at(self, search: IvfSearch) -> float:
        """Give the mean share of the released words that a point is compared with, centroids included."""
        chosen, sizes = search.of_words(self.embedding).looked_at(self.points)
        compared = (chosen * sizes).sum(axis=1) + search.lists
        return float(compared.mean() / search.release_words)

    def measured(self, search: IvfSearch) -> Recall:
        """Measure a search."""
        found = search.of_words(self.embedding)(self.points)
        hits = found == self.nearest
        bands, edges = {}, [0, *_BANDS, len(self.embedding.words)]
        for low, high in pairwise(edges):
            band = (self.words >= low) & (self.words < high)
            if band.any():
                own = {"words": int(band.sum()), "recall": float(hits[band].mean())}
                bands[f"{low + 1:,}-{high:,}"] = own
        unchanged = {"exact": self.nearest, "ivf": found}
        return Recall(
            {
                "lists": search.lists,
                "probes": search.probes,
                "recall": float(hits.mean()),
                "recall_at_least": float(lower_limit(int(hits.sum()), SAMPLE, 1.0 - CONFIDENCE)),
                "confidence": CONFIDENCE,
                "sample": SAMPLE,
                "words_looked_at": self.looked_at(search),
                "n_w": {name: float((own == self.words).mean()) for name, own in unchanged.items()},
                "recall_by_rank": bands,
            }
        )


@lru_cache(maxsize=2)  # to choose a search and to measure it takes one sample
def sample_of(mechanism: Mechanism, embedding: Embedding, release_words: int) -> NoisySample:
    """Draw ``SAMPLE`` noisy points.

    Raises:
        ConfigError: The mechanism has no noisy point among the embedding's own words.
    """
    exact = ExactSearch.over(embedding, release_words)
    for lists in made(embedding)[:1]:  # a mechanism that searches images of the words refuses lists
        mechanism.bind(embedding, IvfSearch.over(embedding, release_words, lists=lists, probes=1))
    bound = mechanism.bind(embedding, exact)
    if not isinstance(bound, NoisyNearest):
        raise ConfigError(f"Mechanism {mechanism.name} searches no words", do="Take --search exact")
    words = zipf_words(embedding.inputs, SAMPLE)
    noise = mechanism.release_noise(_KEY, salt="recall", embedding=embedding, search=exact).column(
        "recall", purpose="recall", uint64s_per_token=mechanism.uniforms_per_token(embedding.dimension)
    )
    drawn = np.empty((SAMPLE, noise.uint64s_per_token), dtype=np.uint64)
    noise.fill(drawn, noise.row_key(b"", ()), 0)
    points = bound.points(words, to_uniform(drawn)[:, :-1])
    return NoisySample(
        embedding=embedding, words=words, points=points, nearest=exact.of_words(embedding)(points)
    )


def zipf_words(words: int, count: int) -> NDArray[np.int64]:
    """int64 (count,): the quantiles of Zipf's law over the first rows of a bundle, weights 1 / (row + 1)."""
    shares = np.cumsum(1.0 / np.arange(1, words + 1))
    quantiles: NDArray[np.float64] = (np.arange(count) + 0.5) / count * shares[-1]
    return np.searchsorted(shares, quantiles).astype(np.int64)


def chosen_search(
    spec: str, embedding: Embedding, mechanisms: Sequence[Mechanism], *, release_words: int | None = None
) -> Search:
    """Set up a search for one mechanism or more, as options name it: ``exact``, ``ivf``, ``ivf:recall=0.9``.

    Args:
        spec: Of a search in lists how many lists a point looks at (``probes``), or how often it gives the
            exact nearest word, whatever the mechanism (``recall``, by default ``RECALL``): of the bundle's
            indexes the one is taken that compares a point with the fewest words.
        release_words: How many words may be output; by default all that the bundle allows.

    Raises:
        ConfigError: It cannot be read, or the bundle or a mechanism does not suit the search.
    """
    kind, given = Search.named(spec)
    if not issubclass(kind, IvfSearch):
        return kind.over(embedding, release_words, **given)
    words = ExactSearch.over(embedding, release_words).release_words
    counts = made(embedding)
    if not counts:
        IvfSearch.over(embedding, words, lists=0, probes=1)  # says that there is none
    if "probes" in given:
        if len(counts) > 1:
            raise ConfigError(
                "The bundle has several indexes, of which probes does not choose one",
                got=", ".join(f"ivf:{count}" for count in counts),
                do="Give --search ivf:recall=R instead: it takes the best one",
            )
        return IvfSearch.over(embedding, words, lists=counts[0], probes=given["probes"])
    wanted = given.get("recall", RECALL)
    farthest = sample_of(min(mechanisms, key=lambda mechanism: mechanism.epsilon), embedding, words)
    searches = (
        IvfSearch.over(embedding, words, lists=count, probes=farthest.probes_for(count, wanted))
        for count in counts
    )
    best = min(searches, key=farthest.looked_at)
    samples = (sample_of(mechanism, embedding, words) for mechanism in mechanisms)
    return replace(best, probes=max(sample.probes_for(best.lists, wanted) for sample in samples))


def recall_of(search: Search, mechanism: Mechanism, embedding: Embedding) -> Recall | None:
    """Measure a search in lists for a mechanism; None for one that looks at all words."""
    if not isinstance(search, IvfSearch):
        return None
    return sample_of(mechanism, embedding, search.release_words).measured(search)
