"""How many words attackers recover from a release, each word alone or with its neighbours' help.

Attackers know the mechanism and, from a corpus, the language. They are scored on outputs: what they do not
know, or skip for speed, makes them recover less than a stronger attacker does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np

from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.chain import forward_backward
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import BigramModel, PairCounts, smoothed
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints

STRONGER: Final = "What is recovered is the success of these attackers: a stronger attacker gets more."
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
        return np.take_along_axis(candidates.words, np.argsort(-likely, axis=1, kind="stable"), axis=1)


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
    def learn(cls, known: PairCounts, emissions: Emissions, *, candidates: int = CANDIDATES) -> Knowledge:
        """Let all attackers learn from a corpus; words that it does not have are never guessed."""
        counts = known.words[:-1]
        return cls(
            emissions=emissions,
            words=np.where(counts > 0, smoothed(counts), 0.0),
            candidates=candidates,
            attackers={name: attacker.learn(known, emissions) for name, attacker in ATTACKERS.items()},
        )


def attack(rows: SimulatedRows, knowledge: Knowledge) -> dict[str, ClusterSums]:
    """Attack all perturbed words of some rows, and count those that are recovered.

    Returns:
        By ``ATTACKER/GUESSES`` the words recovered, and as ``considered`` those that were among the
        candidates. Classes of the sums are all words, then the bands of ``RANKS``, the frequent words first.
    """
    places, hits = [np.zeros(0, dtype=np.int64)], defaultdict[str, list[Floats]](lambda: [np.zeros(0)])
    tries = [(name, top) for name in knowledge.attackers for top in TOP]
    names = ["considered", *(f"{name}/{top}" for name, top in tries)]
    for tokens, part in rows.batches(_TOKENS):
        hidden = part.perturbed
        inputs = part.inputs[hidden, None]
        places.append(tokens[hidden])
        candidates = Candidates.of(part, knowledge.emissions, knowledge.words, most=knowledge.candidates)
        guesses = {name: own.guess(part, candidates)[hidden] for name, own in knowledge.attackers.items()}
        tried = [candidates.words[hidden], *(guesses[name][:, :top] for name, top in tries)]
        for name, guess in zip(names, tried, strict=True):
            hits[name].append((guess == inputs).any(axis=1).astype(np.float64))
    tokens = np.concatenate(places)
    row, band = rows.rows[tokens], bands(knowledge.words)[rows.inputs[tokens]]
    classes = np.concatenate([np.zeros(len(band), dtype=np.int64), band + 1])
    return {
        name: ClusterSums.of(np.tile(row, 2), np.tile(np.concatenate(hits[name]), 2), classes, len(RANKS) + 2)
        for name in names
    }


def bands(words: Floats) -> Ints:
    """Number the bands of ``RANKS`` that words (V,) of these frequencies are in."""
    rank = np.empty(len(words), dtype=np.int64)
    rank[np.argsort(-words, kind="stable")] = np.arange(len(words))
    return np.searchsorted(RANKS, rank, side="right")
