"""A channel from an estimate of each word: computed probabilities, or counts of draws."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.calibration.estimators import BLOCK_WORDS, Estimator
from dptext_spark.channel.channel import Channel, Method
from dptext_spark.geometry import Floats, Ints

MOST_OUTPUTS: Final = 1024
"""Outputs of a word whose probabilities are kept one by one; the rest is shared equally."""

RUNS: Final = 1000
"""Draws of each word, where a mechanism neither computes its law nor has a density."""


def blocks_of(estimator: Estimator, words: Ints) -> int:
    """Return how many blocks :func:`likeliest` cuts words (k,) into."""
    return -(-len(words) // BLOCK_WORDS[estimator.name])


def likeliest(estimator: Estimator, words: Ints, number: int, most: int = MOST_OUTPUTS) -> pa.Table:
    """Return word, output and count of the cells of a block: the ``most`` highest of each word."""
    size = BLOCK_WORDS[estimator.name]
    block = estimator(words[number * size : (number + 1) * size], block=number)
    order = np.lexsort((block.output, -block.count, block.word))
    rank = np.arange(len(order)) - np.repeat(block.starts, np.diff(block.starts, append=len(order)))
    cells = order[rank < most]
    columns = {
        "word": block.word[cells].astype(np.int64),
        "output": block.output[cells].astype(np.int64),
        "count": block.count[cells].astype(np.float64),
    }
    return pa.table(columns)


def channel_of_cells(table: pa.Table, estimator: Estimator, *, vocabulary: int) -> Channel:
    """Turn what :func:`likeliest` gives of all words, in any order, into a channel.

    For every word looked at the probabilities add up to 1. What was drawn is discounted as in
    :func:`smoothed`, for each word by itself with one discount for all, so that an output that did
    not come up keeps a chance.
    """
    table = table.sort_by([("output", "ascending"), ("word", "ascending")])
    words = table["word"].to_numpy()
    outputs = table["output"].to_numpy()
    counts = table["count"].to_numpy()
    released = estimator.search.outputs
    release_words = len(released)
    cells = np.bincount(words, minlength=vocabulary)
    is_full = cells == release_words  # nothing is left to come up
    probability = counts / estimator.runs
    method: Method = "computed"
    if estimator.name != "exact":
        method = "draws"
        discount = discount_of(counts[counts > 0]) / estimator.runs
        probability -= np.where(is_full[words], 0.0, discount)
    listed = np.bincount(words, weights=probability, minlength=vocabulary)
    remainder = np.where((cells > 0) & ~is_full, np.maximum(1.0 - listed, 0.0), 0.0)
    probability /= np.where(is_full, listed, 1.0)[words]
    of_output = np.zeros(estimator.search.release_words)
    of_output[released] = 1.0
    size = 0 if method == "computed" else estimator.runs
    return Channel(
        method=method,
        keys=outputs * vocabulary + words,
        probability=probability.astype(np.float32),
        of_word=remainder / np.maximum(release_words - cells, 1),
        of_output=of_output,
        size=size,
    )


def discount_of(counts: NDArray[Any]) -> float:
    """Return how much counts (c,) above 0 overstate, strictly between 0 and 1.

    Half an imagined count of one keeps it from the ends. Source: Ney, Essen and Kneser 1994,
    section 4.
    """
    once = np.count_nonzero(counts == 1)
    twice = np.count_nonzero(counts == 2)
    return (once + 0.5) / (once + 2.0 * twice + 1.0)


def smoothed(counts: Ints) -> Floats:
    """Turn counts (c,) into probabilities above 0: all share equally what is discounted."""
    some = counts > 0
    if not some.any():
        return np.full(len(counts), 1.0 / len(counts))
    discount = discount_of(counts[some])
    shared = discount * np.count_nonzero(some) / len(counts)
    return np.asarray((np.maximum(counts - discount, 0.0) + shared) / counts.sum())
