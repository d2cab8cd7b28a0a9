"""The words that may stand behind outputs, the likeliest first, whatever the words around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints

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
    def of(cls, rows: SimulatedRows, emissions: Emissions, prior: Floats, *, most: int) -> Candidates:
        """List the candidates of all tokens of some rows.

        With one output to a token they are the likeliest of all words; with k outputs, of the k lists
        together: outputs of versions are independent, given the word. ``prior`` (V,) says how likely each
        word is before its output is known; ``most`` is K, 1 or more.
        """
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


def _of_outputs(outputs: Ints, emissions: Emissions, prior: Floats, most: int) -> tuple[Ints, Floats]:
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
        places, words = (np.concatenate([a, b[fresh]]) for a, b in zip((places, words), both, strict=True))
        order = np.lexsort((words, -score, places))
        places, words = places[order], words[order]
        rank = np.arange(len(places)) - np.searchsorted(places, places)
        chosen = rank < most
        found[group[places[chosen]], rank[chosen]] = words[chosen]
    return found
