"""How many words attackers get back from a release, each word alone or with its neighbours' help.

Attackers know the mechanism and, from a corpus, the language. They are scored on outputs: what they do not
know, or leave out for speed, makes them get less than a stronger attacker does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.evaluation.bigrams import BigramModel, PairCounts, smoothed
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.hidden_chain import posteriors
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.evaluation.row_sums import RowSums

AttackerName: TypeAlias = Literal["context-free", "in-context"]

STRONGER: Final = "What is recovered is the success of these attackers: a stronger attacker gets more."
"""What every account of their success says."""

TOP: Final = (1, 5)
"""A word counts as recovered if it is among so many guesses."""

RANKS: Final = (100, 1_000, 10_000)
"""Where bands of words end, by how frequent they are in the corpus; the last band has no end."""

CANDIDATES: Final = 64
"""Words that are taken into account at each place of a text."""

# Tokens that are attacked at once.
_TOKENS: Final = 1 << 13


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Attacker:
    """What is known to whoever attacks.

    Attributes:
        emissions: Of the mechanism.
        words: float64 (V,), the words' frequencies.
        language: Which word follows which.
        candidates: K, the words that are taken into account at each place, 5 or more; with fewer than V the
            right word may be missing: ``Successes.considered`` says how often it is there.
    """

    emissions: Emissions
    words: NDArray[np.float64]
    language: BigramModel
    candidates: int = CANDIDATES

    @classmethod
    def of(cls, emissions: Emissions, corpus: PairCounts, *, candidates: int = CANDIDATES) -> Attacker:
        """Let an attacker learn words and language from a corpus; it guesses no words but these."""
        counts = corpus.words[:-1]
        words = np.where(counts > 0, smoothed(counts), 0.0)
        return cls(emissions=emissions, words=words, language=BigramModel.of(corpus), candidates=candidates)

    def guesses(self, rows: ReleasedRows) -> dict[AttackerName, NDArray[np.int64]]:
        """Guess each token's word: int64 (t, K), the likeliest first, negative where there are no more."""
        found = Candidates.of(rows, self.emissions, self.words, most=self.candidates)
        order = np.argsort(-posteriors(found, self.language, rows.offsets), axis=1, kind="stable")
        return {"context-free": found.words, "in-context": np.take_along_axis(found.words, order, axis=1)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Successes:
    """Perturbed words recovered, by attacker and number of guesses, and words that were considered at all.

    Classes of the sums are all words, then the bands of ``RANKS``, the frequent words first.
    """

    recovered: Mapping[tuple[AttackerName, int], RowSums]
    considered: RowSums

    def __add__(self, other: Successes) -> Successes:
        """Add what was recovered from other rows."""
        return Successes(
            recovered={key: sums + other.recovered[key] for key, sums in self.recovered.items()},
            considered=self.considered + other.considered,
        )


def bands(words: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number the bands of ``RANKS`` that words (V,) of these frequencies are in, int64 (V,)."""
    rank = np.empty(len(words), dtype=np.int64)
    rank[np.argsort(-words, kind="stable")] = np.arange(len(words))
    return np.searchsorted(RANKS, rank, side="right")


def attack(rows: ReleasedRows, attacker: Attacker) -> Successes:
    """Attack all perturbed words of some rows, and count what is recovered."""
    places: list[NDArray[np.int64]] = []
    hits: dict[tuple[AttackerName, int], list[NDArray[np.bool_]]] = {}
    considered = []
    for tokens, part in rows.batches(_TOKENS):
        hidden = part.perturbed
        places.append(tokens[hidden])
        for name, guesses in attacker.guesses(part).items():
            right = guesses[hidden] == part.inputs[hidden, None]
            for top in TOP:
                hits.setdefault((name, top), []).append(right[:, :top].any(axis=1))
        considered.append(right.any(axis=1))
    chosen = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
    row, band = rows.rows[chosen], bands(attacker.words)[rows.inputs[chosen]]

    def summed(parts: list[NDArray[np.bool_]]) -> RowSums:
        values = np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)
        classes = np.concatenate([np.zeros(len(band), dtype=np.int64), band + 1])
        return RowSums.of(np.tile(row, 2), np.tile(values, 2), classes, len(RANKS) + 2)

    names: tuple[AttackerName, ...] = ("context-free", "in-context")
    return Successes(
        recovered={(name, top): summed(hits.get((name, top), [])) for name in names for top in TOP},
        considered=summed(considered),
    )
