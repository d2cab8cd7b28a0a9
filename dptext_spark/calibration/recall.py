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

from dptext_spark.calibration.statistics import lower_limit
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists, list_counts, no_index
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.noisy import NoisyNearest
from dptext_spark.noise import NoiseKey, to_uniform
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch, euclidean
from dptext_spark.search.nearest import Search

SAMPLE: Final = 4096
"""Noisy points that a recall is measured on."""

CONFIDENCE: Final = 0.99
"""That the recall is what it is said to be, or more."""

RECALL: Final = 0.98
"""Of a search in lists, where nothing else is asked for."""

_BANDS: Final = (100, 1_000, 10_000)
# The share of words up to which lists pay: one at a time takes about twice the time of all at once, and codes
# of 8 bits take the less of all, the more dimensions there are.
_PAYS: Final = 0.5
_PAYS_OVER_CODES: Final = 30.0  # over the dimension
_KEY: Final = NoiseKey(bytes(32))  # public: nothing private is perturbed with it
_BLOCK: Final = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisySample:
    """Noisy points of a mechanism with their exact nearest words; public, the same every time."""

    embedding: Embedding
    words: Ints  # (t,), the words that were perturbed
    points: Floats  # (t, n)
    nearest: Ints  # (t,), what the exact search gives

    def probes_for(self, lists: int, recall: float) -> int:
        """Find the least number of lists whose recall is at least so much, with ``CONFIDENCE``; L for 1."""
        index = InvertedLists.open(self.embedding, lists)
        of = np.empty(len(index.rows), dtype=np.int64)
        of[index.rows] = np.repeat(np.arange(len(index.centroids)), np.diff(index.starts))
        ranks = np.empty(len(self.points), dtype=np.int64)  # of the nearest word's list
        for start in range(0, len(ranks), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores = (
                self.points[part] @ index.centroids.T.astype(np.float64) - index.centroid_half_norms
            )
            own = scores[np.arange(len(scores)), of[self.nearest[part]]]
            ranks[part] = (scores >= own[:, None]).sum(axis=1)
        limits = lower_limit(np.arange(1, SAMPLE + 1), SAMPLE, 1.0 - CONFIDENCE)
        enough = np.flatnonzero(limits >= recall)
        return int(np.sort(ranks)[enough[0]]) if len(enough) else lists

    def looked_at(self, search: IvfSearch) -> float:
        """Give the mean share of the released words that a point is compared with, centroids included."""
        chosen, sizes = search.of_words(self.embedding).searched_lists(self.points)
        compared = (chosen * sizes).sum(axis=1) + search.lists
        return float(compared.mean() / search.release_words)


def recall_of(search: Search, mechanism: Mechanism, embedding: Embedding) -> dict[str, Any] | None:
    """Measure what a search in lists finds of what the exact search would; None for one without lists."""
    if not isinstance(search, IvfSearch):
        return None
    sample = sample_of(mechanism, embedding, search.release_words)
    found = search.of_words(embedding)(sample.points)
    hits, bands = found == sample.nearest, {}
    for low, high in pairwise([0, *_BANDS, len(embedding.words)]):
        band = (sample.words >= low) & (sample.words < high)
        if band.any():
            bands[f"{low + 1:,}-{high:,}"] = {
                "words": int(band.sum()),
                "recall": float(hits[band].mean()),
            }
    recall, looked_at = float(hits.mean()), sample.looked_at(search)
    at_least = float(lower_limit(int(hits.sum()), SAMPLE, 1.0 - CONFIDENCE))
    exact, ivf = (float((own == sample.words).mean()) for own in (sample.nearest, found))
    by_rank = ", ".join(f"{name} {band['recall']:.1%}" for name, band in bands.items())
    codes = "codes" in (
        ExactSearch(release_words=search.release_words).products(embedding.dimension) or ""
    )
    pays = min(_PAYS, _PAYS_OVER_CODES / embedding.dimension) if codes else _PAYS
    paid = "" if looked_at < pays else " The exact search would hardly be slower."
    return {
        "lists": search.lists,
        "probes": search.probes,
        "recall": recall,
        "recall_at_least": at_least,
        "confidence": CONFIDENCE,
        "sample": SAMPLE,
        "words_looked_at": looked_at,
        "n_w": {"exact": exact, "ivf": ivf},
        "recall_by_rank": bands,
        "said": (
            f"Search ivf looks at {search.probes:,} of {search.lists:,} lists, {looked_at:.1%} of the words: "
            f"on {SAMPLE:,} noisy points of words by Zipf's law it gives the exact nearest word for "
            f"{recall:.1%} (at least {at_least:.1%}; by rank of the word: {by_rank}). Words unchanged there: "
            f"{exact:.1%} by the exact search, {ivf:.1%} by this one. The guarantee is the same, for the "
            f"search looks at the noisy point alone.{paid}"
        ),
    }


@lru_cache(maxsize=2)  # to choose a search and to measure it takes one sample
def sample_of(mechanism: Mechanism, embedding: Embedding, release_words: int) -> NoisySample:
    """Draw ``SAMPLE`` noisy points; a ConfigError where the mechanism has none among the own words."""
    exact = ExactSearch.over(embedding, release_words)
    for lists in list_counts(embedding)[
        :1
    ]:  # a mechanism that searches images of the words refuses lists
        mechanism.bind(embedding, IvfSearch.over(embedding, release_words, lists=lists, probes=1))
    bound = mechanism.bind(embedding, exact)
    if not isinstance(bound, NoisyNearest):
        raise ConfigError(f"Mechanism {mechanism.name} searches no words", do="Take --search exact")
    words = zipf_words(embedding.inputs, SAMPLE)
    noise = mechanism.release_noise(_KEY, salt="recall", embedding=embedding, search=exact).column(
        "recall",
        purpose="recall",
        uint64s_per_token=mechanism.uniforms_per_token(embedding.dimension),
    )
    drawn = np.empty((SAMPLE, noise.uint64s_per_token), dtype=np.uint64)
    noise.fill(drawn, noise.row_key(b"", ()), 0)
    points = bound.points(words, to_uniform(drawn)[:, :-1])
    nearest = exact.of_words(embedding)(points)
    return NoisySample(embedding=embedding, words=words, points=points, nearest=nearest)


def zipf_words(words: int, count: int) -> Ints:
    """int64 (count,): the quantiles of Zipf's law over the first rows of a bundle, weights 1 / (row + 1)."""
    shares = np.cumsum(1.0 / np.arange(1, words + 1))
    quantiles: Floats = (np.arange(count) + 0.5) / count * shares[-1]
    return np.searchsorted(shares, quantiles).astype(np.int64)


def chosen_search(
    spec: str,
    embedding: Embedding,
    mechanisms: Sequence[Mechanism],
    *,
    release_words: int | None = None,
) -> Search:
    """Set up a search for one mechanism or more, as options name it: ``exact``, ``ivf``, ``ivf:recall=0.9``.

    A search in lists says how many lists a point looks at (``probes``), or how often it gives the exact
    nearest word, whatever the mechanism (``recall``): of the bundle's indexes the one is taken that compares
    a point with the fewest words.
    """
    kind, given = Search.named(spec)
    if not issubclass(kind, IvfSearch):
        return kind.over(embedding, release_words, **given)
    words = ExactSearch.over(embedding, release_words).release_words
    euclidean(embedding)
    counts = list_counts(embedding)
    if not counts:
        raise no_index(embedding, "ivf")
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
