"""How many words attackers recover from a release, each word alone or with its neighbours' help.

Attackers know the mechanism and, from a corpus, the language. They are scored on outputs: what they do not
know, or skip for speed, makes them recover less than a stronger attacker does.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.chain import forward_backward
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import BigramModel, PairCounts, smoothed
from dptext_spark.evaluation.rows import SimulatedRows

AttackerName: TypeAlias = Literal["context-free", "in-context"]

STRONGER: Final = "What is recovered is the success of these attackers: a stronger attacker gets more."
"""What every report of their success says."""

TOP: Final = (1, 5)
"""A word counts as recovered if it is among this number of guesses."""

RANKS: Final = (100, 1_000, 10_000)
"""Where bands of words end, by how frequent they are in the corpus; the last band has no end."""

CANDIDATES: Final = 64
"""Words that are taken into account at each place of a text."""

# Tokens that are attacked at once.
_TOKENS: Final = 1 << 13


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Attacker:
    """What an attacker knows; of the two that guess from it one ignores the neighbours.

    Attributes:
        emissions: Of the mechanism.
        words: float64 (V,), the words' frequencies.
        language: Which word follows which.
        candidates: K, the words that are taken into account at each place, 5 or more; with fewer than V the
            right word may be missing: ``considered`` of :func:`attack` says how often it is there.
    """

    emissions: Emissions
    words: NDArray[np.float64]
    language: BigramModel
    candidates: int = CANDIDATES

    @classmethod
    def learn(cls, known: PairCounts, emissions: Emissions, *, candidates: int = CANDIDATES) -> Attacker:
        """Learn words and language from a corpus; other words are never guessed."""
        counts = known.words[:-1]
        words = np.where(counts > 0, smoothed(counts), 0.0)
        return cls(emissions=emissions, words=words, language=BigramModel.of(known), candidates=candidates)

    def guess(self, rows: SimulatedRows) -> dict[AttackerName, NDArray[np.int64]]:
        """Guess each token's word: int64 (t, K), the likeliest first, negative where there are no more."""
        alone = Candidates.of(rows, self.emissions, self.words, most=self.candidates)
        order = np.argsort(-forward_backward(alone, self.language, rows.offsets), axis=1, kind="stable")
        return {"context-free": alone.words, "in-context": np.take_along_axis(alone.words, order, axis=1)}


def attack(rows: SimulatedRows, attacker: Attacker) -> dict[str, ClusterSums]:
    """Attack all perturbed words of some rows, and count those that are recovered.

    Returns:
        By ``ATTACKER/GUESSES`` the words recovered, and as ``considered`` those that were among the
        candidates. Classes of the sums are all words, then the bands of ``RANKS``, the frequent words first.
    """
    places = [np.zeros(0, dtype=np.int64)]
    hits = defaultdict[str, list[NDArray[np.bool_]]](lambda: [np.zeros(0, dtype=np.bool_)])
    for tokens, part in rows.batches(_TOKENS):
        hidden = part.perturbed
        places.append(tokens[hidden])
        for name, guesses in attacker.guess(part).items():
            right = guesses[hidden] == part.inputs[hidden, None]
            for top in TOP:
                hits[f"{name}/{top}"].append(right[:, :top].any(axis=1))
        hits["considered"].append(right.any(axis=1))
    tokens = np.concatenate(places)
    row, band = rows.rows[tokens], bands(attacker.words)[rows.inputs[tokens]]
    classes = np.concatenate([np.zeros(len(band), dtype=np.int64), band + 1])
    names = [*(f"{name}/{top}" for name in get_args(AttackerName) for top in TOP), "considered"]
    return {
        name: ClusterSums.of(
            np.tile(row, 2), np.tile(np.concatenate(hits[name]), 2).astype(float), classes, len(RANKS) + 2
        )
        for name in names
    }


def bands(words: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number the bands of ``RANKS`` that words (V,) of these frequencies are in, int64 (V,)."""
    rank = np.empty(len(words), dtype=np.int64)
    rank[np.argsort(-words, kind="stable")] = np.arange(len(words))
    return np.searchsorted(RANKS, rank, side="right")
