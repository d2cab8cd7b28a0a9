"""How likely each word comes out of each other word, as an attacker who knows the mechanism knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.calibration.estimators import BLOCK_WORDS, Estimator
from dptext_spark.evaluation.language import PairCounts, discount_of
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints

MOST_OUTPUTS: Final = 1024
"""Outputs of a word whose probabilities are kept one by one; the rest of the law is shared equally."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Emissions:
    """P[output | word] for words of a vocabulary of V: cells, and an equal share for what has none.

    For every word measured they add up to 1. Whatever they are off by, an attack that uses them is an
    attack: what it gets back on real outputs is its own success, and a stronger attack gets more.
    """

    keys: Ints  # (c,), output * V + word of each cell, ascending
    probability: Floats  # (c,), above 0
    elsewhere: Floats  # (V,), of each output without a cell; 0 for words not measured
    # (V,), about how far a word's law is at most from the true one in total variation: the standard errors of
    # its cells, and all that has none. About 0 where it was computed.
    error: Floats
    outputs: int  # how many words, the first ones, may be output

    @property
    def vocabulary(self) -> int:
        """V, how many words there are."""
        return len(self.elsewhere)

    @classmethod
    def uniform(cls, vocabulary: int, outputs: int) -> Emissions:
        """Let every word become any other one equally likely: what attackers have without any output."""
        none, elsewhere = np.zeros(0, dtype=np.int64), np.full(vocabulary, 1.0 / outputs)
        error = np.zeros(vocabulary)
        return cls(
            keys=none, probability=np.zeros(0), elsewhere=elsewhere, error=error, outputs=outputs
        )

    @classmethod
    def measured(
        cls, estimator: Estimator, words: Ints, *, vocabulary: int, most: int = MOST_OUTPUTS
    ) -> Emissions:
        """Estimate or compute them for words (k,) at the estimator's only epsilon, ``most`` cells of each."""
        blocks = range(-(-len(words) // BLOCK_WORDS[estimator.name]))
        cells = pa.concat_tables(likeliest(estimator, words, block, most) for block in blocks)
        return cls.of_cells(cells, estimator, vocabulary=vocabulary)

    @classmethod
    def of_cells(cls, table: pa.Table, estimator: Estimator, *, vocabulary: int) -> Emissions:
        """Turn what :func:`likeliest` gives of all words, in any order, into probabilities.

        What was drawn is discounted as in :func:`~dptext_spark.evaluation.language.smoothed`, for each word
        by itself with one discount for all, so that an output that did not come up keeps a chance.
        """
        table = table.sort_by([("output", "ascending"), ("word", "ascending")])
        words, outputs, counts = (table[name].to_numpy() for name in ("word", "output", "count"))
        exact, runs, among = estimator.name == "exact", estimator.runs, estimator.release_words
        cells = np.bincount(words, minlength=vocabulary)
        full = cells == among  # nothing is left to come up
        probability = counts / runs
        if not exact:
            probability -= np.where(full[words], 0.0, discount_of(counts[counts > 0]) / runs)
        listed = np.bincount(words, weights=probability, minlength=vocabulary)
        rest = np.where((cells > 0) & ~full, np.maximum(1.0 - listed, 0.0), 0.0)
        probability /= np.where(full, listed, 1.0)[words]
        variance = np.zeros(len(words)) if exact else probability * (1.0 - probability) / runs
        spread = np.bincount(words, weights=np.sqrt(variance), minlength=vocabulary).astype(
            np.float64
        )
        return cls(
            keys=outputs * vocabulary + words,
            probability=probability,
            elsewhere=rest / np.maximum(among - cells, 1),
            error=np.minimum(0.5 * spread + rest, 1.0),
            outputs=among,
        )

    def mean_error(self, corpus: PairCounts) -> float:
        """Give ``error`` on average over the words of a corpus."""
        return float(np.average(self.error, weights=corpus.words[:-1]))

    def __call__(self, outputs: Ints, words: Ints) -> Floats:
        """P[output | word] of pairs, arrays that go together."""
        found, at = self.look_up(outputs, words)
        probability = np.where(found, 0.0, self.elsewhere[words])
        probability[found] = self.probability[at[found]]
        return probability

    def look_up(self, outputs: Ints, words: Ints) -> tuple[NDArray[np.bool_], Ints]:
        """Say which pairs, of arrays that go together, have a cell, and where those are."""
        keys = outputs * self.vocabulary + words
        at = np.searchsorted(self.keys, keys)
        found = at < len(self.keys)
        found[found] = self.keys[at[found]] == keys[found]
        return found, at

    def cells(self, outputs: Ints) -> tuple[Ints, Ints, Floats]:
        """List the cells of outputs (u,): places among them, ascending, words, and probabilities, (c,)."""
        starts = np.searchsorted(self.keys, outputs * self.vocabulary)
        counts = np.searchsorted(self.keys, (outputs + 1) * self.vocabulary) - starts
        places = np.repeat(np.arange(len(outputs)), counts)
        cells = np.arange(len(places)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return places, self.keys[cells] % self.vocabulary, self.probability[cells]


def likeliest(estimator: Estimator, words: Ints, number: int, most: int = MOST_OUTPUTS) -> pa.Table:
    """Give word, output and count of the cells of a block: ``most`` of each word, of the highest counts."""
    size = BLOCK_WORDS[estimator.name]
    block = estimator(words[number * size : (number + 1) * size], block=number)
    order = np.lexsort((block.output, -block.count, block.word))
    rank = np.arange(len(order)) - np.repeat(block.starts, np.diff(block.starts, append=len(order)))
    chosen = order[rank < most]
    word, output = (of[chosen].astype(np.int64) for of in (block.word, block.output))
    return pa.table(
        {"word": word, "output": output, "count": block.count[chosen].astype(np.float64)}
    )


NO_WORD: Final = -1

# Cells that are sorted at once: about 200 MB.
_CELLS: Final = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Candidates:
    """The K likeliest words of each token, by Bayes' rule."""

    # (t, K), in descending order of prior times emission, of equal ones the lower id first; V for a token
    # outside the vocabulary, NO_WORD where there are fewer.
    words: Ints
    # (t, K), how likely the outputs come of the word, up to one number for each token; -inf without a word.
    log_emission: Floats

    @classmethod
    def of(
        cls, rows: SimulatedRows, emissions: Emissions, prior: Floats, *, most: int
    ) -> Candidates:
        """List the candidates of all tokens of some rows, K of them at ``most``, under a prior (V,)."""
        most = min(most, emissions.vocabulary)
        known = np.where(rows.inputs < 0, emissions.vocabulary, rows.inputs)
        words = np.full((len(known), most), NO_WORD)
        log_emission = np.full((len(known), most), -np.inf)
        words[:, 0], log_emission[:, 0] = known, 0.0
        hidden = np.flatnonzero(rows.perturbed)
        size = max(1, _CELLS // (8 * most * len(rows.outputs)))
        for start in range(0, len(hidden), size):
            part = hidden[start : start + size]
            distinct, places = np.unique(rows.outputs[:, part], axis=1, return_inverse=True)
            found, emission = _of_outputs(distinct, emissions, prior, most)
            words[part], log_emission[part] = found[places], emission[places]
        return cls(words=words, log_emission=log_emission)


def _of_outputs(
    outputs: Ints, emissions: Emissions, prior: Floats, most: int
) -> tuple[Ints, Floats]:
    """Candidates (t, most) of outputs (k, t), and the logarithms of their emissions."""
    lists = []
    for version in outputs:
        distinct, places = np.unique(version, return_inverse=True)
        lists.append(_likeliest(distinct, emissions, prior, most)[places])
    words = np.sort(np.concatenate(lists, axis=1), axis=1)
    words[:, 1:][words[:, 1:] == words[:, :-1]] = NO_WORD
    log_emission = np.zeros(words.shape)
    with np.errstate(divide="ignore"):
        for version in outputs:
            log_emission += np.log(emissions(version[:, None], words))
        score = np.log(prior[words]) + log_emission
    score[words == NO_WORD] = -np.inf
    words[score == -np.inf] = NO_WORD
    log_emission[words == NO_WORD] = -np.inf
    order = np.argsort(-score, axis=1, kind="stable")[:, :most]
    return np.take_along_axis(words, order, axis=1), np.take_along_axis(log_emission, order, axis=1)


def _likeliest(outputs: Ints, emissions: Emissions, prior: Floats, most: int) -> Ints:
    """The likeliest words (u, most) of distinct outputs (u,), in no order.

    They are among those with a cell for the output, and the ``most`` likeliest of those without one.
    """
    without = prior * emissions.elsewhere
    common = np.sort(np.argsort(-without, kind="stable")[:most])
    found = np.full((len(outputs), most), NO_WORD)
    ends = np.cumsum(np.bincount(emissions.cells(outputs)[0], minlength=len(outputs)) + most)
    for group in np.split(np.arange(len(outputs)), np.flatnonzero(np.diff(ends // _CELLS)) + 1):
        places, words, probability = emissions.cells(outputs[group])
        both = np.repeat(np.arange(len(group)), most), np.tile(common, len(group))
        fresh = ~emissions.look_up(outputs[group][both[0]], both[1])[0]
        score = np.concatenate([prior[words] * probability, without[both[1][fresh]]])
        places, words = (
            np.concatenate([a, b[fresh]]) for a, b in zip((places, words), both, strict=True)
        )
        order = np.lexsort((words, -score, places))
        places, words = places[order], words[order]
        rank = np.arange(len(places)) - np.searchsorted(places, places)
        chosen = rank < most
        found[group[places[chosen]], rank[chosen]] = words[chosen]
    return found
