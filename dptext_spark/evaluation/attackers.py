"""How many words attackers recover from a release, each word alone or with its neighbours' help.

Attackers know the mechanism and, from a corpus, the language. They are scored on outputs: what they do not
know, or skip for speed, makes them recover less than a stronger attacker does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, Self

import numpy as np

from dptext_spark.evaluation.emissions import Candidates, Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import BigramModel, PairCounts, smoothed
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints

STRONGER: Final = (
    "What is recovered is the success of these attackers: a stronger attacker gets more."
)
"""What every report of their success says."""

TOP: Final = (1, 5)
"""A word counts as recovered if it is among this number of guesses."""

RANKS: Final = (100, 1_000, 10_000)
"""Where bands of words end, by how frequent they are in the corpus; the last band has no end."""

CANDIDATES: Final = 64
"""Words that are taken into account at each place of a text."""

ATTACKERS: Final[dict[str, type[Attacker]]] = {}
"""Attackers by name; each subclass enters itself."""

# Tokens that are attacked at once.
_TOKENS: Final = 1 << 13


class Attacker(ABC):
    """Guesses words from outputs; every attacker of ``ATTACKERS`` is tried."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        ATTACKERS[cls.name] = cls

    @classmethod
    @abstractmethod
    def learn(cls, known: PairCounts, emissions: Emissions) -> Self:
        """Learn from the pairs of words of a corpus, and from what the mechanism does."""

    @abstractmethod
    def guess(self, rows: SimulatedRows, candidates: Candidates) -> Ints:
        """Guess each token's word: int64 (t, K), the likeliest first, negative where there are no more.

        ``candidates`` are those of the rows by Bayes' rule: computed once for all attackers.
        """


class ContextFree(Attacker):
    """Guesses each word from its own outputs alone: the candidates as they are."""

    name = "context-free"

    @classmethod
    def learn(cls, known: PairCounts, emissions: Emissions) -> Self:
        return cls()

    def guess(self, rows: SimulatedRows, candidates: Candidates) -> Ints:
        return candidates.words


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class InContext(Attacker):
    """Guesses each word from all outputs of its row, and from which word follows which."""

    name = "in-context"

    language: BigramModel

    @classmethod
    def learn(cls, known: PairCounts, emissions: Emissions) -> Self:
        return cls(language=BigramModel.of(known))

    def guess(self, rows: SimulatedRows, candidates: Candidates) -> Ints:
        likely = forward_backward(candidates, self.language, rows.offsets)
        return np.take_along_axis(
            candidates.words, np.argsort(-likely, axis=1, kind="stable"), axis=1
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Knowledge:
    """What attackers know."""

    emissions: Emissions  # of the mechanism
    words: Floats  # (V,), the words' frequencies
    # K, words that are taken into account at each place, 5 or more; with fewer than V the right one may be
    # missing: ``considered`` of :func:`attack` says how often it is there.
    candidates: int = CANDIDATES
    attackers: Mapping[str, Attacker]  # by name

    @classmethod
    def learn(
        cls, known: PairCounts, emissions: Emissions, *, candidates: int = CANDIDATES
    ) -> Knowledge:
        """Let all attackers learn from a corpus; words that it does not have are never guessed."""
        counts = known.words[:-1]
        return cls(
            emissions=emissions,
            words=np.where(counts > 0, smoothed(counts), 0.0),
            candidates=candidates,
            attackers={
                name: attacker.learn(known, emissions) for name, attacker in ATTACKERS.items()
            },
        )


def attack(rows: SimulatedRows, knowledge: Knowledge) -> dict[str, ClusterSums]:
    """Count the perturbed words that are recovered, by ``ATTACKER/GUESSES``, and those ``considered`` at all.

    Classes of the sums are all words, then the bands of ``RANKS``, the frequent words first.
    """
    places, hits = (
        [np.zeros(0, dtype=np.int64)],
        defaultdict[str, list[Floats]](lambda: [np.zeros(0)]),
    )
    tries = [(name, top) for name in knowledge.attackers for top in TOP]
    names = ["considered", *(f"{name}/{top}" for name, top in tries)]
    for tokens, part in rows.batches(_TOKENS):
        hidden = part.perturbed
        inputs = part.inputs[hidden, None]
        places.append(tokens[hidden])
        candidates = Candidates.of(
            part, knowledge.emissions, knowledge.words, most=knowledge.candidates
        )
        guesses = {
            name: own.guess(part, candidates)[hidden] for name, own in knowledge.attackers.items()
        }
        tried = [candidates.words[hidden], *(guesses[name][:, :top] for name, top in tries)]
        for name, guess in zip(names, tried, strict=True):
            hits[name].append((guess == inputs).any(axis=1).astype(np.float64))
    tokens = np.concatenate(places)
    rank = np.empty(len(knowledge.words), dtype=np.int64)
    rank[np.argsort(-knowledge.words, kind="stable")] = np.arange(len(rank))
    row, band = rows.rows[tokens], np.searchsorted(RANKS, rank[rows.inputs[tokens]], side="right")
    classes = np.concatenate([np.zeros(len(band), dtype=np.int64), band + 1])
    return {
        name: ClusterSums.of(
            np.tile(row, 2), np.tile(np.concatenate(hits[name]), 2), classes, len(RANKS) + 2
        )
        for name in names
    }


# A hidden Markov chain, read both ways: states are the words of a text, transitions those of a bigram model,
# emissions those of the mechanism (Baum et al. 1970; Rabiner 1989, section III). Naming the likeliest word of
# each place by itself gets most words right on average.

# Pairs of candidates that are looked up at once: 16 MB.
_PAIRS: Final = 1 << 21


def forward_backward(candidates: Candidates, model: BigramModel, offsets: Ints) -> Floats:
    """Compute the probability of each candidate, float64 (t, K), given all outputs of its row."""
    tokens, steps = _steps(offsets)
    words, logarithm = candidates.words[tokens], candidates.log_emission[tokens]
    if not len(words):
        return np.empty_like(logarithm)
    emission = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    lower, back_off = model.lower[words], model.back_off[words]
    before = [
        slice(last.start, last.start + part.stop - part.start) for last, part in pairwise(steps)
    ]
    links = [
        _links(words[last], words[part], model)
        for last, part in zip(before, steps[1:], strict=True)
    ]

    first = words[steps[0]]
    start = np.full(first.shape, len(model.back_off) - 1)
    arriving = np.where(first < 0, 0.0, model.probability(start, first))
    forward = np.empty_like(emission)
    for step, part in enumerate(steps):
        if step:
            last = forward[before[step - 1]]
            sources, targets, beyond = links[step - 1]
            arriving = lower[part] * (last * back_off[before[step - 1]]).sum(axis=1, keepdims=True)
            arriving += _sums(targets, last.ravel()[sources] * beyond, arriving.shape)
        fitting = arriving * emission[part]
        impossible = fitting.sum(axis=1) == 0.0
        fitting[impossible] = emission[part][impossible]
        forward[part] = fitting / fitting.sum(axis=1, keepdims=True)

    backward = np.ones_like(
        emission
    )  # how likely the outputs after a candidate are, up to a factor
    for step in range(len(steps) - 1, 0, -1):
        part, previous = steps[step], before[step - 1]
        sources, targets, beyond = links[step - 1]
        ahead = emission[part] * backward[part]
        leaving = back_off[previous] * (lower[part] * ahead).sum(axis=1, keepdims=True)
        leaving += _sums(sources, ahead.ravel()[targets] * beyond, leaving.shape)
        leaving[leaving.sum(axis=1) == 0.0] = 1.0
        backward[previous] = leaving / leaving.sum(axis=1, keepdims=True)

    both = forward * backward
    impossible = both.sum(axis=1) == 0.0
    both[impossible] = forward[impossible]
    result: Floats = np.empty_like(both)
    result[tokens] = both / both.sum(axis=1, keepdims=True)
    return result


def _steps(offsets: Ints) -> tuple[Ints, list[slice]]:
    """Order tokens (t,): the first ones of all rows, the second ones, and so on, longer rows first.

    Gives where each step's are, too: they follow the leading ones of the step before, one each.
    """
    lengths = np.diff(offsets)
    place = np.repeat(np.argsort(np.argsort(-lengths, kind="stable"), kind="stable"), lengths)
    step = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
    ends = np.cumsum(np.bincount(step)).tolist()
    steps = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    return np.lexsort((place, step)), steps


def _links(first: Ints, second: Ints, model: BigramModel) -> tuple[Ints, Ints, Floats]:
    """Find the neighbouring candidates, of (p, K) and (p, K), that the model has seen together.

    As places (f,) among the first and among the second ones, and what they have ``beyond``.
    """
    width, found = first.shape[1], []
    size = max(1, _PAIRS // (width * width))
    for start in range(0, len(first), size):
        pair, i, j, beyond = model.seen(first[start : start + size], second[start : start + size])
        token = (start + pair) * width
        found.append((token + i, token + j, beyond))
    sources, targets, beyond = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return sources, targets, beyond


def _sums(places: Ints, values: Floats, shape: tuple[int, ...]) -> Floats:
    sums = np.bincount(places, weights=values, minlength=shape[0] * shape[1])
    return sums.astype(np.float64, copy=False).reshape(shape)
