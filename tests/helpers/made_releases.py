"""A made language, released through a known channel, and what is estimated of it; without Spark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptext_spark.channel.matrix import ChannelMatrix
from dptext_spark.estimates.cells import Cells, cluster_terms, row_values
from dptext_spark.estimates.topics import ridge_weights

WORDS = 60
OUTPUTS = 40
TOPICS = 200
ROWS = 400
LENGTH = 20
TABLES = 40


@dataclass(frozen=True)
class MadeRelease:
    """Words, of which the first may be output, near each other on a line in three dimensions."""

    seed: int = 0
    epsilon: float = 4.0

    @property
    def matrix(self) -> ChannelMatrix:
        rng = np.random.default_rng(self.seed)
        vectors = rng.standard_normal((WORDS, 3)) * rng.exponential(1.0, (WORDS, 1))
        distances = np.linalg.norm(vectors[:, None] - vectors[None, :OUTPUTS], axis=2)
        weights = np.exp(-self.epsilon / 2.0 * distances)
        prior = 1.0 / np.arange(3.0, WORDS + 3.0)
        return ChannelMatrix(
            words=np.arange(WORDS),
            prior=prior / prior.sum(),
            table=(weights / weights.sum(axis=1, keepdims=True)).astype(np.float32),
            is_perturbed=np.ones(WORDS, dtype=np.bool_),
            released=np.arange(OUTPUTS),
        )

    @property
    def members(self) -> np.ndarray:
        """Lists of one to eight words."""
        rng = np.random.default_rng(self.seed + 1)
        members = np.zeros((WORDS, TOPICS), dtype=np.int64)
        for topic in range(TOPICS):
            members[rng.permutation(WORDS)[: rng.integers(1, 9)], topic] = 1
        return members

    def texts(self, rng: np.random.Generator, rows: int = ROWS) -> np.ndarray:
        """Rows of words: each row is about one of four things, so that its words go together."""
        kinds = np.random.default_rng(self.seed + 2).dirichlet(np.full(WORDS, 0.02), 4)
        shares = kinds[rng.integers(0, 4, rows)]
        uniforms = rng.random((rows, LENGTH))
        return (uniforms[:, :, None] > np.cumsum(shares, axis=1)[:, None, :-1]).sum(axis=2)

    def mean_share(self, counted: np.ndarray) -> np.ndarray:
        """What the topics count of all texts that there may be."""
        kinds = np.random.default_rng(self.seed + 2).dirichlet(np.full(WORDS, 0.02), 4)
        return np.asarray(kinds.mean(axis=0) @ counted)

    def release(self, texts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Replace each word by an output of the channel."""
        shares = np.cumsum(self.matrix.table.astype(np.float64), axis=1)
        uniforms = rng.random(texts.shape)
        return (uniforms[:, :, None] > shares[texts][:, :, :-1]).sum(axis=2)


def coverage(made: MadeRelease, *, matrix: ChannelMatrix | None = None, mutated: str = "") -> float:
    """Return the share of 95 % intervals that have what topics count of the made language.

    ``matrix`` is what the analyst takes for the channel; ``mutated`` names a fault: rows taken as
    independent ``words``, or ``marks`` read as the first output.
    """
    believed = matrix or made.matrix
    weights = ridge_weights(believed, made.members, 1e-2)
    aims = made.mean_share(believed.table @ weights).tolist()
    topics = [str(number) for number in range(TOPICS)]
    rows = np.repeat(np.arange(ROWS), LENGTH)
    if mutated == "words":
        rows = np.arange(ROWS * LENGTH)
    hits = []
    for number in range(TABLES):
        rng = np.random.default_rng(1000 + number)
        outputs = made.release(made.texts(rng), rng)
        if mutated == "marks":
            outputs[:, 0] = 0
        epsilons = np.zeros(rows[-1] + 1, dtype=np.int64)
        values, sizes = row_values(outputs.ravel(), rows, weights[None], epsilons)
        sums = np.stack([term.sum(axis=0) for term in cluster_terms(values, sizes)])
        cells = Cells(columns=(), sums={(): sums}, errors=np.zeros(2 * TOPICS))
        for row, aim in zip(cells.rows(topics, 0.95), aims, strict=True):
            hits.append(row["low"] <= aim <= row["high"])
    return float(np.mean(hits))


def errors(made: MadeRelease, *, rows: int, matrix: ChannelMatrix | None = None) -> float:
    """Return the root of the mean square error of topics in tables of so many rows.

    ``matrix`` is what the analyst takes for the channel.
    """
    believed = matrix or made.matrix
    weights = ridge_weights(believed, made.members, 1e-2)
    aims = made.mean_share(believed.table @ weights)
    squares = []
    for number in range(TABLES):
        rng = np.random.default_rng(2000 + number)
        outputs = made.release(made.texts(rng, rows), rng)
        squares.append(np.square(weights[outputs.ravel()].mean(axis=0) - aims).mean())
    return float(np.sqrt(np.mean(squares)))
