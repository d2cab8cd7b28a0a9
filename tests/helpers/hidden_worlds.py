"""Small hidden chains, and what enumeration of all their texts says about them."""

from __future__ import annotations

from itertools import product

import numpy as np

from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.language import BigramModel, PairCounts
from dptext_spark.evaluation.rows import SimulatedRows


def chain(start: np.ndarray, follows: np.ndarray) -> BigramModel:
    """A language of v words given outright: P[first] (v,) and P[second | first] (v, v); all are known."""
    words = len(start)
    law = np.zeros((words + 2, words + 2))
    law[:words, :words], law[words + 1, :words] = follows, start
    return BigramModel(
        lower=np.full(words + 1, 1.0 / (words + 1)),
        back_off=np.zeros(words + 2),
        keys=np.arange(law.size),
        beyond=law.ravel(),
    )


def emitting(law: np.ndarray) -> Emissions:
    """Emissions of a law P[output | word], (words, outputs)."""
    keys = np.arange(law.size)
    return Emissions(
        keys=keys,
        probability=law.T.ravel(),
        elsewhere=np.zeros(len(law)),
        error=np.zeros(len(law)),
        outputs=law.shape[1],
    )


def released(inputs: list[list[int]], outputs: np.ndarray) -> SimulatedRows:
    """Rows of words, all perturbed but those of -1, and their outputs (k, t)."""
    words = np.array([word for row in inputs for word in row], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, inputs)])
    return SimulatedRows(
        offsets=offsets, inputs=words, outputs=np.asarray(outputs), perturbed=words >= 0
    )


def enumerated(
    model: BigramModel, law: np.ndarray, outputs: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """P[word | all outputs] of one row (t, v + 1) by going through all texts.

    ``outputs`` is (k, t); ``known`` int (t,), the words that attackers are told, v for one outside the
    vocabulary, -1 for what they are after.
    """
    words = len(law)
    posterior = np.zeros((outputs.shape[1], words + 1))
    for text in product(*([word] if word >= 0 else range(words) for word in known.tolist())):
        weight, before = 1.0, words + 1
        for place, word in enumerate(text):
            weight *= float(model.probability(np.array(before), np.array(word)))
            if known[place] < 0:
                weight *= float(np.prod(law[word, outputs[:, place]]))
            before = word
        posterior[np.arange(len(text)), text] += weight
    total: np.ndarray = posterior / posterior.sum(axis=1, keepdims=True)
    return total


def pairs_of(texts: list[list[int]], vocabulary: int) -> PairCounts:
    words = np.array([word for text in texts for word in text], dtype=np.int64)
    return PairCounts.of_rows(words, np.cumsum([0, *map(len, texts)]), vocabulary=vocabulary)
