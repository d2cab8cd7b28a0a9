"""A mechanism's channel, worked out in this process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.estimators import estimator
from dptext_spark.channel.channel import Channel
from dptext_spark.channel.counts import RUNS, blocks_of, channel_of_cells, likeliest
from dptext_spark.channel.posteriors import LIMIT, Guesser, LocalRounds
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry import Floats
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search


def channel_of(
    mechanism: Mechanism | None,
    embedding: Embedding,
    search: Search,
    prior: Floats,
    *,
    seed: int = 0,
    limit: float = LIMIT,
) -> Channel:
    """Compute a channel for words by a prior (V,) that sums to 1; None is the one without output.

    Where the law is computed there is nothing to estimate; else it is known by whole posteriors,
    where the noise has a density, and by counts of draws where nobody wrote it down.
    """
    if mechanism is None:
        return Channel.uniform(len(prior), search.release_words)
    guesser = Guesser.of(mechanism, embedding, search, prior, seed=seed)
    if guesser is not None:
        rounds = LocalRounds(guesser=guesser)
        return rounds.channel(prior, outputs=search.release_words, limit=limit)
    words = np.flatnonzero(prior > 0.0)
    estimated = estimator([mechanism], embedding, search=search, runs=RUNS, seed=seed)
    blocks = range(blocks_of(estimated, words))
    cells = pa.concat_tables(likeliest(estimated, words, block) for block in blocks)
    return channel_of_cells(cells, estimated, vocabulary=len(prior))
