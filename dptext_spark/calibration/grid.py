"""What a calibration measures: words in blocks, a mechanism in several settings, each at several epsilons."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark import __version__
from dptext_spark.calibration.estimators import Estimator, EstimatorName, estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

BATCHES: Final = 16
"""Groups of blocks, each evenly spread over the sample, whose means tell how sure a mean is."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is measured; with the embedding it decides every number.

    Attributes:
        settings: The mechanism at each epsilon, under the name of its other parameters.
        estimator: How transitions are estimated.
        search: How released words are searched, and how many there are.
        runs: Runs of each word at each epsilon.
        seed: Public; the noise follows from it.
        vocabulary: Words of the embedding.
        words: Words of the sample, evenly spread over the vocabulary.
        blocks: Blocks that the sample is dealt out to, word by word.
        confidence: Of each word's interval, and of what is said of all of them.
        eta: Mass that s_eta may leave out.
    """

    settings: tuple[tuple[str, tuple[Mechanism, ...]], ...]
    estimator: EstimatorName
    search: Search
    runs: int
    seed: int
    vocabulary: int
    words: int
    blocks: int
    confidence: float
    eta: float

    @classmethod
    def of(
        cls,
        settings: Mapping[str, Sequence[Mechanism]],
        embedding: Embedding,
        *,
        kind: EstimatorName,
        search: Search,
        words: int | None,
        runs: int,
        seed: int,
        confidence: float,
        eta: float,
    ) -> Self:
        """Choose the estimator for mechanisms, and cut its words into whole batches of blocks.

        Args:
            settings: The mechanism at each epsilon, under the name of its other parameters.
            embedding: The embedding bundle.
            kind: Of estimator, by name; ``auto`` takes the one that fits.
            words: At most so many; None for all.
            search, runs, seed, confidence, eta: See the attributes.

        Raises:
            ConfigError: The estimator does not serve the mechanism, or the embedding does not suit it.
        """
        fitting, *_ = [
            type(estimator(own[:1], embedding, search=search, runs=1, name=kind)) for own in settings.values()
        ]
        vocabulary = len(embedding.words)
        words = vocabulary if words is None else min(words, vocabulary)
        return cls(
            settings=tuple((name, tuple(own)) for name, own in settings.items()),
            estimator=fitting.name,
            search=search,
            runs=runs,
            seed=seed,
            vocabulary=vocabulary,
            words=words,
            blocks=min(BATCHES * -(-words // (BATCHES * fitting.block_words)), words),
            confidence=confidence,
            eta=eta,
        )

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
    def rows(self) -> NDArray[np.int64]:
        """Rows of the sample's words, int64 (words,)."""
        return np.arange(self.words) * self.vocabulary // self.words

    def block(self, number: int) -> NDArray[np.int64]:
        """Rows of the words of a block."""
        return self.rows[number :: self.blocks]

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

    def examples(self, embedding: Embedding, rows: NDArray[np.int64]) -> pa.Table:
        """Measure words in a block of their own: setting, epsilon, word and output (rows), and count."""
        tables = []
        for setting, name in enumerate(self.names):
            found = self.estimator_of(setting, embedding)(rows, block=self.blocks)
            columns = {
                "setting": pa.repeat(name, len(found.word)),
                "epsilon": np.array(self.epsilons(setting))[found.epsilon_index],
                "word": found.word,
                "output": found.output,
                "count": found.count.astype(np.float64),
            }
            tables.append(pa.table(columns))
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

    def identity(self, fingerprint: str) -> str:
        """Hash what decides the numbers, with the embedding's fingerprint."""
        value = asdict(replace(self, settings=())) | {
            "version": __version__,
            "bundle": fingerprint,
            "search": [self.search.name, asdict(self.search)],
            "settings": [(m.name, m.model_dump(mode="json")) for _, own in self.settings for m in own],
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def example_rows(embedding: Embedding, words: Sequence[str]) -> NDArray[np.int64]:
    """Find the rows of the words of ``--example``.

    Raises:
        ConfigError: The bundle lacks some of them.
    """
    rows = pc.index_in(pa.array(words, pa.string()), value_set=embedding.words)
    if rows.null_count:
        absent = [word for word, row in zip(words, rows.to_pylist(), strict=True) if row is None]
        raise ConfigError(
            "The bundle lacks words of --example", allowed="words of the bundle", got=", ".join(absent)
        )
    return np.unique(rows.to_numpy(zero_copy_only=False)).astype(np.int64)
