"""Texts of two topics and their vectors, released with normal noise."""

from __future__ import annotations

import numpy as np

from dptext_spark.evaluation.vector_attackers import VectorRows

WORDS = 60
IMAGES = np.random.default_rng(1).standard_normal((WORDS, 12))
IMAGES[1::2, 0] += 6.0  # of the second topic


def rows_of(
    count: int, noise: float, *, seed: int, by_word: bool = False, words: int = 3
) -> VectorRows:
    """Texts of some words each, of two topics, and their vectors with normal noise."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 2, count)
    numbers = (rng.permuted(np.tile(np.arange(30), (count, 1)), axis=1)[:, :words]) * 2
    ids = np.sort(numbers + topics[:, None], axis=1)
    row_of_vector = np.arange(count)
    if by_word:
        row_of_vector = np.repeat(np.arange(count), words)
        ids = ids.reshape(-1, 1)
    originals = IMAGES[ids].mean(axis=1)
    return VectorRows(
        originals=originals,
        released=originals + noise * rng.standard_normal(originals.shape),
        rows=row_of_vector,
        row_count=count,
        word_offsets=np.arange(len(ids) + 1) * ids.shape[1],
        words=ids.ravel(),
        classes={"topic": np.array(["ab"[topic] for topic in topics], dtype=object)},
        by_word=by_word,
    )
