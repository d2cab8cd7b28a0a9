"""Small hidden chains, and what enumeration of all their texts says about them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import numpy as np

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import Known
from dptext_spark.evaluation.language import BigramModel, Language, PairCounts, TrigramModel
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


def emitting(law: np.ndarray) -> Channel:
    """The channel of a law P[output | word], (words, outputs)."""
    keys = np.arange(law.size)
    return Channel(
        method="computed",
        keys=keys,
        probability=law.T.ravel(),
        of_word=np.zeros(len(law)),
        of_output=np.ones(law.shape[1]),
    )


def law_of(channel: Channel) -> np.ndarray:
    """P[output | word] as a channel has it, (words, outputs)."""
    words = np.arange(channel.vocabulary)
    outputs = np.arange(channel.outputs)
    return channel(outputs[None, :], words[:, None])


def normalised(weights: np.ndarray) -> np.ndarray:
    """Posteriors of words, (words, outputs)."""
    return weights / weights.sum(axis=0)


def released(inputs: list[list[int]], outputs: np.ndarray) -> SimulatedRows:
    """Rows of words, all perturbed but those of -1, and their outputs (k, t)."""
    words = np.array([word for row in inputs for word in row], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, inputs)])
    return SimulatedRows(
        offsets=offsets, inputs=words, outputs=np.asarray(outputs), perturbed=words >= 0
    )


Follows: TypeAlias = Callable[[int, int, int], float]
"""P[third | first, second] of words, the start of a row being V + 1."""


def of_pairs(model: BigramModel) -> Follows:
    """Words follow each other as in a bigram model, whatever came before."""
    return lambda _, second, third: float(model.probability(np.array(second), np.array(third)))


def of_triples(model: TrigramModel) -> Follows:
    """Words follow each other as in a trigram model, looked up one by one."""
    states = len(model.pairs.back_off)
    numbers = {int(context): number for number, context in enumerate(model.contexts)}
    beyond = dict(zip(model.keys.tolist(), model.beyond.tolist(), strict=True))
    shorter = of_pairs(model.pairs)

    def follows(first: int, second: int, third: int) -> float:
        lower = shorter(first, second, third)
        number = numbers.get(first * states + second)
        if number is None:
            return lower
        return float(model.back_off[number]) * lower + beyond.get(number * states + third, 0.0)

    return follows


def enumerated(
    follows: Follows, law: np.ndarray, outputs: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """P[word | all outputs] of one row (t, v + 1) by going through all texts.

    ``outputs`` is (k, t); ``known`` int (t,), the words that attackers are told, v for one outside the
    vocabulary, -1 for what they are after.
    """
    words = len(law)
    posterior = np.zeros((outputs.shape[1], words + 1))
    for text in product(*([word] if word >= 0 else range(words) for word in known.tolist())):
        weight = 1.0
        first = second = words + 1
        for place, word in enumerate(text):
            weight *= follows(first, second, word)
            if known[place] < 0:
                weight *= float(np.prod(law[word, outputs[:, place]]))
            first, second = second, word
        posterior[np.arange(len(text)), text] += weight
    total: np.ndarray = posterior / posterior.sum(axis=1, keepdims=True)
    return total


def language_of(texts: list[list[int]], vocabulary: int) -> Language:
    """The language of texts."""
    words = np.array([word for text in texts for word in text], dtype=np.int64)
    return Language.learn(pairs_of(texts, vocabulary), words, np.cumsum([0, *map(len, texts)]))


def known_of(texts: list[list[int]], vocabulary: int, shadow: SimulatedRows | None = None) -> Known:
    """What attackers learn from who read texts, and release rows themselves; by default none."""
    language = language_of(texts, vocabulary)
    if shadow is None:
        shadow = released([], np.zeros((1, 0), dtype=np.int64))
    return Known(language=language, language_without_shadow=language, shadow=shadow)


def triples_of(texts: list[list[int]], vocabulary: int) -> TrigramModel:
    """A trigram model of texts."""
    words = np.array([word for text in texts for word in text], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, texts)])
    return TrigramModel.of(words, offsets, BigramModel.of(pairs_of(texts, vocabulary)))


def pairs_of(texts: list[list[int]], vocabulary: int) -> PairCounts:
    words = np.array([word for text in texts for word in text], dtype=np.int64)
    return PairCounts.of_rows(words, np.cumsum([0, *map(len, texts)]), vocabulary=vocabulary)
