"""What a calibration measures: words in blocks, and a mechanism at several epsilons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.calibration.estimators import Estimator, EstimatorName, estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search
from dptext_spark.text.tokens import lookup_form

Prior: TypeAlias = Literal["uniform", "zipf"]
"""How likely each measured word is to be the input: all alike, or the k-th of them, by their order in the
bundle, with weight 1 / k, which is Zipf's law where a bundle's words come by falling frequency."""

PRIORS: Final[tuple[Prior, ...]] = ("uniform", "zipf")

BATCHES: Final = 16
"""Groups of blocks, each evenly spread over the sample, whose means tell how sure a mean is."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A mechanism at its epsilons, and the words that it is measured at; with the embedding it is all.

    Attributes:
        mechanisms: The mechanism at each epsilon, ascending, else alike.
        estimator, block_words: How transitions are estimated, and of how many words best at once.
        monotone: See :attr:`Estimator.monotone`.
        search: How released words are searched, and how many there are.
        runs: Runs of each word at each epsilon.
        seed: Public; the noise follows from it.
        vocabulary, words: Words of the embedding, the first ones, and of the sample.
        confidence: Of each word's interval, and of what is said of all of them.
        eta: Mass that s_eta may leave out.
    """

    mechanisms: tuple[Mechanism, ...]
    estimator: EstimatorName
    block_words: int
    monotone: bool
    search: Search
    runs: int
    seed: int
    vocabulary: int
    words: int
    confidence: float
    eta: float

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
        kind = estimator(ordered[:1], embedding, search=search, runs=1, name=estimator_name)
        return cls(
            mechanisms=ordered,
            estimator=kind.name,
            block_words=kind.block_words,
            monotone=kind.monotone,
            search=search,
            vocabulary=embedding.inputs,
            words=embedding.inputs if words == "all" else min(words, embedding.inputs),
            **rest,
        )

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
    def whole(self) -> bool:
        """Whether all words are measured, not a sample."""
        return self.words == self.vocabulary

    @property
    def blocks(self) -> int:
        """Blocks that the sample is dealt out to, word by word: whole batches, unless words are too few."""
        return min(BATCHES * -(-self.words // (BATCHES * self.block_words)), self.words)

    def ranks_of(self, number: int) -> NDArray[np.int64]:
        """Places of the words of a block among all of the sample, from 1."""
        return np.arange(number, self.words, self.blocks) + 1

    def block(self, number: int) -> NDArray[np.int64]:
        """Ids of the words of a block, evenly spread over the vocabulary."""
        return (self.ranks_of(number) - 1) * self.vocabulary // self.words

    def weights(self, prior: Prior) -> NDArray[np.float64]:
        """Give the prior probabilities of the sample's words, float64 (words,)."""
        weights = np.ones(self.words) if prior == "uniform" else 1.0 / np.arange(1, self.words + 1)
        return weights / float(weights.sum())

    def units(self, prior: Prior) -> NDArray[np.float64]:
        """Give the prior probabilities of words that share a run's noise: of each block, or each word."""
        weights = self.weights(prior)
        if self.estimator != "shared-ray":
            return weights
        return np.bincount(np.arange(self.words) % self.blocks, weights).astype(np.float64)

    def made_estimator(self, embedding: Embedding) -> Estimator:
        """Make what estimates the transitions."""
        search, runs, seed, name = self.search, self.runs, self.seed, self.estimator
        return estimator(self.mechanisms, embedding, search=search, runs=runs, seed=seed, name=name)

    def examples(self, embedding: Embedding, words: NDArray[np.int64]) -> pa.Table:
        """Measure words in a block of their own: mechanism, epsilon, word and output (ids), and count."""
        cells = self.made_estimator(embedding)(words, block=self.blocks)
        return pa.table(
            {
                "mechanism": pa.repeat(self.name, len(cells.word)),
                "epsilon": np.array(self.epsilons)[cells.epsilon_index],
                "word": cells.word,
                "output": cells.output,
                "count": cells.count.astype(np.float64),
            }
        )

    def at(self, epsilon: float, embedding: Embedding) -> Self:
        """Measure one epsilon alone, all else as here."""
        one = self.mechanisms[0].model_copy(update={"epsilon": epsilon})
        one.check(embedding)
        return replace(self, mechanisms=(one,))

    def also_at(self, other: Self) -> Self:
        """Add the epsilons of another grid of the mechanism."""
        both = {mechanism.epsilon: mechanism for mechanism in (*self.mechanisms, *other.mechanisms)}
        return replace(self, mechanisms=tuple(both[epsilon] for epsilon in sorted(both)))


def example_ids(embedding: Embedding, words: Sequence[str]) -> NDArray[np.int64]:
    """Find the ids of the words of ``--example``, ascending.

    Raises:
        ConfigError: The bundle lacks some of them.
    """
    ids = pc.index_in(pa.array([*map(lookup_form, words)], pa.string()), value_set=embedding.forms)
    if ids.null_count:
        absent = [word for word, place in zip(words, ids.to_pylist(), strict=True) if place is None]
        raise ConfigError(
            "The bundle lacks words of --example", allowed="words of the bundle", got=", ".join(absent)
        )
    return np.unique(ids.to_numpy(zero_copy_only=False)).astype(np.int64)
