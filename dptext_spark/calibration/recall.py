"""How many lists a search must look at, found on noisy points as a release has them.

A noisy point lies far from all words, and how far follows from epsilon; so recall is measured on
such points, of words drawn by Zipf's law over the rows of the bundle, never taken from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
from dptext_spark.text.policies import TextPolicy

SAMPLE: Final = 4096
"""Noisy points that a recall is measured on."""

CONFIDENCE: Final = 0.99
"""That the recall is what it is said to be, or more."""

RECALL: Final = 0.98
"""The recall of a search in lists, where nothing else is asked for."""

_BANDS: Final = (100, 1_000, 10_000)
# The share of words up to which lists pay: one at a time takes about twice the time of all at once,
# and codes of 8 bits take the less of all, the more dimensions there are.
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
        """Compute the least number of lists with at least this recall; all lists for 1.

        The recall holds with ``CONFIDENCE``.
        """
        index = InvertedLists.open(self.embedding, lists)
        list_of_word = np.empty(len(index.rows), dtype=np.int64)
        sizes = np.diff(index.starts)
        list_of_word[index.rows] = np.repeat(np.arange(len(index.centroids)), sizes)
        nearest_lists = list_of_word[self.nearest]
        ranks = np.empty(len(self.points), dtype=np.int64)  # of the nearest word's list
        for start in range(0, len(ranks), _BLOCK):
            block = slice(start, start + _BLOCK)
            products = self.points[block] @ index.centroids.T.astype(np.float64)
            scores = products - index.centroid_half_norms
            score = scores[np.arange(len(scores)), nearest_lists[block]]
            ranks[block] = (scores >= score[:, None]).sum(axis=1)
        limits = lower_limit(np.arange(1, SAMPLE + 1), SAMPLE, 1.0 - CONFIDENCE)
        enough = np.flatnonzero(limits >= recall)
        if not len(enough):
            return lists
        return int(np.sort(ranks)[enough[0]])

    def compared_share(self, search: IvfSearch) -> float:
        """Return the mean share of the released words that a point is compared with.

        Centroids count too.
        """
        is_read, sizes = search.of_words(self.embedding).searched_lists(self.points)
        compared = (is_read * sizes).sum(axis=1) + search.lists
        return float(compared.mean() / len(search.outputs))


def recall_of(search: Search, mechanism: Mechanism, embedding: Embedding) -> dict[str, Any] | None:
    """Measure what a search in lists finds of what the exact search would; None without lists."""
    if not isinstance(search, IvfSearch):
        return None
    sample = sample_of(mechanism, embedding, _exact(search))
    nearest = search.of_words(embedding)(sample.points)
    hits = nearest == sample.nearest
    recall = float(hits.mean())
    at_least = float(lower_limit(int(hits.sum()), SAMPLE, 1.0 - CONFIDENCE))
    share = sample.compared_share(search)
    bands = _recall_by_rank(sample.words, hits, len(embedding.words))
    exact = float((sample.nearest == sample.words).mean())
    ivf = float((nearest == sample.words).mean())
    by_rank = ", ".join(f"{name} {band['recall']:.1%}" for name, band in bands.items())
    remark = ""
    if share >= _largest_paying_share(search, embedding.dimension):
        remark = " The exact search would hardly be slower."
    sentence = (
        f"Search ivf looks at {search.probes:,} of {search.lists:,} lists, "
        f"{share:.1%} of the words: on {SAMPLE:,} noisy points of words by Zipf's law it gives "
        f"the exact nearest word for {recall:.1%} (at least {at_least:.1%}; "
        f"by rank of the word: {by_rank}). "
        f"Words unchanged there: {exact:.1%} by the exact search, {ivf:.1%} by this one. "
        f"The guarantee is the same, for the search looks at the noisy point alone.{remark}"
    )
    return {
        "lists": search.lists,
        "probes": search.probes,
        "recall": recall,
        "recall_at_least": at_least,
        "confidence": CONFIDENCE,
        "sample": SAMPLE,
        "words_looked_at": share,
        "n_w": {"exact": exact, "ivf": ivf},
        "recall_by_rank": bands,
        "said": sentence,
    }


def _exact(search: Search) -> ExactSearch:
    """Return the exact search among the words of another one."""
    return ExactSearch(release_words=search.release_words, withheld=search.withheld)


def _recall_by_rank(
    words: Ints, hits: NDArray[np.bool_], vocabulary: int
) -> dict[str, dict[str, Any]]:
    """Return the recall in each band of words by their rank that has any."""
    bands = {}
    for low, high in pairwise([0, *_BANDS, vocabulary]):
        is_in_band = (words >= low) & (words < high)
        if is_in_band.any():
            bands[f"{low + 1:,}-{high:,}"] = {
                "words": int(is_in_band.sum()),
                "recall": float(hits[is_in_band].mean()),
            }
    return bands


def _largest_paying_share(search: IvfSearch, dimension: int) -> float:
    """Return the share of words up to which lists are faster than the exact search."""
    products = ExactSearch(release_words=search.release_words).products(dimension)
    if products is not None and "codes" in products:
        return min(_PAYS, _PAYS_OVER_CODES / dimension)
    return _PAYS


@lru_cache(maxsize=2)  # to choose a search and to measure it takes one sample
def sample_of(mechanism: Mechanism, embedding: Embedding, exact: ExactSearch) -> NoisySample:
    """Draw ``SAMPLE`` noisy points; a ConfigError where the mechanism has none among the words."""
    for lists in list_counts(embedding)[
        :1
    ]:  # a mechanism that searches images of the words refuses lists
        mechanism.bind(
            embedding, IvfSearch.over(embedding, exact.release_words, lists=lists, probes=1)
        )
    bound = mechanism.bind(embedding, exact)
    if not isinstance(bound, NoisyNearest):
        raise ConfigError(f"Mechanism {mechanism.name} needs no search", do="Use --search exact")
    inputs = exact.withheld.others(embedding.inputs)
    words = inputs[zipf_words(len(inputs), SAMPLE)]
    release = mechanism.release_noise(_KEY, salt="recall", embedding=embedding, search=exact)
    noise = release.column(
        "recall",
        purpose="recall",
        uint64s_per_token=mechanism.uniforms_per_token(embedding.dimension),
    )
    integers = np.empty((SAMPLE, noise.uint64s_per_token), dtype=np.uint64)
    noise.fill(integers, noise.row_key(b"", ()), 0)
    points = bound.points(words, to_uniform(integers)[:, :-1])
    nearest = exact.of_words(embedding)(points)
    return NoisySample(embedding=embedding, words=words, points=points, nearest=nearest)


def zipf_words(words: int, count: int) -> Ints:
    """Return int64 (count,): the quantiles of Zipf's law over the first rows.

    Weights are 1 / (row + 1).
    """
    shares = np.cumsum(1.0 / np.arange(1, words + 1))
    quantiles: Floats = (np.arange(count) + 0.5) / count * shares[-1]
    return np.searchsorted(shares, quantiles).astype(np.int64)


def chosen_search(
    spec: str,
    embedding: Embedding,
    mechanisms: Sequence[Mechanism],
    *,
    policy: TextPolicy,
    release_words: int | None = None,
) -> Search:
    """Build a search as options name it: ``exact``, ``ivf``, ``ivf:recall=0.9``.

    It is among the words that the policy would not mark.

    A search in lists says how many lists a point looks at (``probes``), or how often it gives the
    exact nearest word, whatever the mechanism (``recall``): of the bundle's indexes the one is
    taken that compares a point with the fewest words.
    """
    kind, parameters = Search.named(spec)
    if not issubclass(kind, IvfSearch):
        return kind.over(embedding, release_words, **parameters).without_marks(policy, embedding)
    exact = ExactSearch.over(embedding, release_words).without_marks(policy, embedding)
    among = partial(IvfSearch.over, embedding, exact.release_words)
    euclidean(embedding)
    counts = list_counts(embedding)
    if not counts:
        raise no_index(embedding, "ivf")
    if "probes" in parameters:
        if len(counts) > 1:
            raise ConfigError(
                "The bundle has several indexes, and ivf:probes=P needs exactly one",
                got=", ".join(f"ivf:{count}" for count in counts),
                do="Use --search ivf:recall=R, which chooses the best one",
            )
        search = among(lists=counts[0], probes=parameters["probes"])
        return search.without_marks(policy, embedding)
    recall = parameters.get("recall", RECALL)
    noisiest = min(mechanisms, key=lambda mechanism: mechanism.epsilon)
    sample = sample_of(noisiest, embedding, exact)
    searches = []
    for count in counts:
        probes = sample.probes_for(count, recall)
        search = among(lists=count, probes=probes)
        searches.append(search.without_marks(policy, embedding))
    best = min(searches, key=sample.compared_share)
    most_probes = 0
    for mechanism in mechanisms:
        sample = sample_of(mechanism, embedding, exact)
        most_probes = max(most_probes, sample.probes_for(best.lists, recall))
    return replace(best, probes=most_probes)
