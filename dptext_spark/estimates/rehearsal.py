"""What an analyst would estimate of a release that is only simulated, for an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np

from dptext_spark.channel.matrix import ChannelMatrix, MatrixSource
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.estimates.frames import CHANNEL_WORDS, likeliest, rank_prior
from dptext_spark.estimates.frequencies import likeliest_frequencies
from dptext_spark.estimates.topics import SoftTopics, members_of
from dptext_spark.evaluation.attackers import TopicWeights
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search


@dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """An analyst with a channel of the bundle's words, or without any output."""

    prior: Floats  # (V,), by rank: nothing of the table
    matrix: ChannelMatrix | None
    topics: TopicWeights

    @classmethod
    def of(
        cls,
        mechanism: Mechanism | None,
        embedding: Embedding,
        search: Search,
        lists: Mapping[str, Sequence[str]],
        *,
        words: int,
        seed: int,
    ) -> Self:
        """Fit topics to lists of words, for a table of this number of words."""
        prior = likeliest(rank_prior(embedding, search.withheld), CHANNEL_WORDS)
        members, _ = members_of(lists, embedding, np.arange(len(prior)))
        if mechanism is None:
            weights = np.tile(prior @ members, (search.release_words, 1))
            topics = TopicWeights(members=members, weights=weights)
            return cls(prior=prior, matrix=None, topics=topics)
        source = MatrixSource(
            mechanism=mechanism, embedding=embedding, search=search, prior=prior, seed=seed
        )
        with TemporaryDirectory(prefix="dptext-channel-") as folder:
            matrix, _ = source.matrix(Path(folder))
        soft = SoftTopics.fitted(
            source, matrix, [*lists], members[matrix.words], words=words, shares=matrix.prior
        )
        topics = TopicWeights(members=members, weights=soft.weights)
        return cls(prior=prior, matrix=matrix, topics=topics)

    def words(self, outputs: Ints) -> Floats:
        """Return the likeliest numbers of words, (V,), for counts of the outputs (outputs,)."""
        total = outputs.sum()
        if self.matrix is None:
            return np.asarray(self.prior * total)
        numbers = np.zeros(len(self.prior))
        counts = {0.0: outputs[: self.matrix.outputs]}
        numbers[self.matrix.words] = likeliest_frequencies({0.0: self.matrix}, counts) * total
        return numbers
