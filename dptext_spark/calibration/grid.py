"""What a calibration measures: words in blocks, a mechanism in several settings, each at several epsilons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.calibration.estimators import Estimator, EstimatorName, estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

Settings: TypeAlias = tuple[tuple[str, tuple[Mechanism, ...]], ...]
"""The mechanism at each epsilon, under the name of its other parameters."""

Prior: TypeAlias = Literal["uniform", "zipf"]
"""How likely each measured word is to be the input: all alike, or the k-th of them, by their order in the
bundle, with weight 1 / k, which is Zipf's law where a bundle's words come by falling frequency."""

PRIORS: Final[tuple[Prior, ...]] = ("uniform", "zipf")

BATCHES: Final = 16
"""Groups of blocks, each evenly spread over the sample, whose means tell how sure a mean is."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is measured; with the embedding it decides every number.

    Attributes:
        settings: The mechanisms.
        estimator, block_words: How transitions are estimated, and of how many words best at once.
        monotone: See :attr:`Estimator.monotone`.
        search: How released words are searched, and how many there are.
        runs: Runs of each word at each epsilon.
        seed: Public; the noise follows from it.
        vocabulary, words: Words of the embedding, the first ones, and of the sample, evenly spread over them.
        confidence: Of each word's interval, and of what is said of all of them.
        eta: Mass that s_eta may leave out.
    """

    settings: Settings
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

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""
        return self.settings[0][1][0].name

    @property
    def names(self) -> list[str]:
        """The settings' names."""
        return [name for name, _ in self.settings]

    def epsilons(self, setting: int) -> list[float]:
        """Epsilons of a setting."""
        return [m.epsilon for m in self.settings[setting][1]]

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

    @property
    def word_ids(self) -> NDArray[np.int64]:
        """Ids of the sample's words, int64 (words,)."""
        return np.arange(self.words) * self.vocabulary // self.words

    @property
    def ranks(self) -> NDArray[np.int64]:
        """Places of the sample's words among each other, from 1, int64 (words,)."""
        return np.arange(1, self.words + 1)

    def weights(self, prior: Prior) -> NDArray[np.float64]:
        """Give the prior probabilities of the sample's words, float64 (words,)."""
        weights = np.ones(self.words) if prior == "uniform" else 1.0 / self.ranks
        return weights / float(weights.sum())

    def units(self, prior: Prior) -> NDArray[np.float64]:
        """Give the prior probabilities of words that share a run's noise: of each block, or each word."""
        weights = self.weights(prior)
        if self.estimator != "shared-ray":
            return weights
        return np.bincount(np.arange(self.words) % self.blocks, weights).astype(np.float64)

    def block(self, number: int) -> NDArray[np.int64]:
        """Ids of the words of a block."""
        return self.word_ids[number :: self.blocks]

    def estimator_of(self, setting: int, embedding: Embedding) -> Estimator:
        """Make what estimates the transitions of a setting."""
        return estimator(
            self.settings[setting][1],
            embedding,
            search=self.search,
            runs=self.runs,
            seed=self.seed,
            name=self.estimator,
        )

    def ranks_of(self, number: int) -> NDArray[np.int64]:
        """Places of the words of a block among all of the sample, from 1."""
        return self.ranks[number :: self.blocks]

    def examples(self, embedding: Embedding, words: NDArray[np.int64]) -> pa.Table:
        """Measure words in a block of their own: setting, epsilon, word and output (word ids), and count."""
        tables = []
        for setting, name in enumerate(self.names):
            found = self.estimator_of(setting, embedding)(words, block=self.blocks)
            names, epsilons = pa.repeat(name, len(found.word)), np.array(self.epsilons(setting))
            keys = {"setting": names, "epsilon": epsilons[found.epsilon_index], "word": found.word}
            tables.append(pa.table({**keys, "output": found.output, "count": found.count.astype(np.float64)}))
        return pa.concat_tables(tables)

    def at(self, setting: int, epsilon: float, embedding: Embedding) -> Self:
        """Measure one setting at an epsilon of its own, all else as here.

        Raises:
            ConfigError: The mechanism has no such epsilon.
        """
        name, (first, *_) = self.settings[setting]
        one = first.model_copy(update={"epsilon": epsilon})
        one.check(embedding)
        return replace(self, settings=((name, (one,)),))

    def also_at(self, found: Mapping[int, float]) -> Self:
        """Add to settings, by their numbers, an epsilon each."""
        settings = list(self.settings)
        for number, epsilon in found.items():
            name, own = settings[number]
            more = (*own, own[0].model_copy(update={"epsilon": epsilon}))
            settings[number] = name, tuple(sorted(more, key=lambda mechanism: mechanism.epsilon))
        return replace(self, settings=tuple(settings))


def fitting_estimator(
    settings: Settings, embedding: Embedding, search: Search, name: EstimatorName
) -> Estimator:
    """Give the estimator that serves all settings, as it is for the first, with one run.

    Raises:
        ConfigError: The one that is named does not.
    """
    made = [estimator(own[:1], embedding, search=search, runs=1, name=name) for _, own in settings]
    return made[0]


def example_ids(embedding: Embedding, words: Sequence[str]) -> NDArray[np.int64]:
    """Find the ids of the words of ``--example``, ascending.

    Raises:
        ConfigError: The bundle lacks some of them.
    """
    ids = pc.index_in(pa.array(words, pa.string()), value_set=embedding.words)
    if ids.null_count:
        absent = [word for word, found in zip(words, ids.to_pylist(), strict=True) if found is None]
        raise ConfigError(
            "The bundle lacks words of --example", allowed="words of the bundle", got=", ".join(absent)
        )
    return np.unique(ids.to_numpy(zero_copy_only=False)).astype(np.int64)
