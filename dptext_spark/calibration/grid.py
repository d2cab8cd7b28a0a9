"""What a calibration measures: words in blocks, and a mechanism at several epsilons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np

from dptext_spark.calibration.estimators import BLOCK_WORDS, Estimator, EstimatorName, estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

Prior: TypeAlias = Literal["uniform", "zipf"]
"""How likely each measured word is to be the input: all alike, or the k-th of them, by their order in the
bundle, with weight 1 / k, which is Zipf's law where a bundle's words come by falling frequency."""

PRIORS: Final[tuple[Prior, ...]] = ("uniform", "zipf")

BATCHES: Final = 16
"""Groups of blocks, each evenly spread over the sample, whose means tell how sure a mean is."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A mechanism at its epsilons, and the words that it is measured at; with the embedding it is all."""

    mechanisms: tuple[Mechanism, ...]  # the mechanism at each epsilon, ascending, else alike
    estimator: EstimatorName
    monotone: bool  # see :attr:`Estimator.monotone`
    search: Search
    runs: int  # of each word at each epsilon
    seed: int  # public; the noise follows from it
    vocabulary: int  # words of the embedding, the first ones
    words: int  # of the sample
    confidence: float  # of each word's interval, and of what is said of all of them
    eta: float  # mass that s_eta may leave out

    @classmethod
    def over(
        cls,
        embedding: Embedding,
        search: Search,
        mechanisms: Sequence[Mechanism],
        *,
        estimator_name: EstimatorName,
        words: int | Literal["all"],
        **rest: Any,
    ) -> Self:
        """Choose the estimator and the words of a bundle; the ``rest`` are attributes."""
        ordered = tuple(sorted(mechanisms, key=lambda mechanism: mechanism.epsilon))
        made = estimator(ordered[:1], embedding, search=search, runs=1, name=estimator_name)
        vocabulary = embedding.inputs
        sample = vocabulary if words == "all" else min(words, vocabulary)
        rest |= {"estimator": made.name, "monotone": made.monotone, "search": search}
        return cls(mechanisms=ordered, vocabulary=vocabulary, words=sample, **rest)

    @property
    def name(self) -> str:
        """The mechanism with its parameters, epsilon apart."""
        return self.mechanisms[0].spec

    @property
    def epsilons(self) -> list[float]:
        """The epsilons, ascending."""
        return [mechanism.epsilon for mechanism in self.mechanisms]

    @property
    def exact(self) -> bool:
        """Whether probabilities are computed."""
        return self.estimator == "exact"

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance: probabilities are computed, of all words."""
        return self.exact and self.words == self.vocabulary

    @property
    def blocks(self) -> int:
        """Blocks that the sample is dealt out to, word by word: whole batches, unless words are too few."""
        return min(BATCHES * -(-self.words // (BATCHES * BLOCK_WORDS[self.estimator])), self.words)

    def ranks_of(self, number: int) -> Ints:
        """Places of the words of a block among all of the sample, from 1."""
        return np.arange(number, self.words, self.blocks) + 1

    def block(self, number: int) -> Ints:
        """Ids of the words of a block, evenly spread over the vocabulary."""
        return (self.ranks_of(number) - 1) * self.vocabulary // self.words

    def weights(self, prior: Prior) -> Floats:
        """Give the prior probabilities of the sample's words, (words,)."""
        weights = np.ones(self.words) if prior == "uniform" else 1.0 / np.arange(1, self.words + 1)
        return weights / float(weights.sum())

    def units(self, prior: Prior) -> Floats:
        """Give the prior probabilities of words that share a run's noise: of each block, or each word."""
        weights = self.weights(prior)
        if self.estimator != "shared-ray":
            return weights
        return np.bincount(np.arange(self.words) % self.blocks, weights).astype(np.float64)

    def made_estimator(self, embedding: Embedding) -> Estimator:
        """Make what estimates the transitions."""
        search, runs, seed, name = self.search, self.runs, self.seed, self.estimator
        return estimator(self.mechanisms, embedding, search=search, runs=runs, seed=seed, name=name)

    def at(self, *epsilons: float) -> Self:
        """Measure other epsilons, all else as here."""
        first = self.mechanisms[0]
        other = tuple(first.model_copy(update={"epsilon": epsilon}) for epsilon in sorted({*epsilons}))
        return replace(self, mechanisms=other)
