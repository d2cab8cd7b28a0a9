"""The likeliest words of each token, by what came out and how frequent words are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints

NO_WORD: Final = -1

# Cells that are sorted at once: about 200 MB.
_CELLS: Final = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Candidates:
    """The K likeliest words of each token, by Bayes' rule."""

    # (t, K), in descending order of prior times emission, of equal ones the lower id first; V for a
    # token outside the vocabulary, NO_WORD where there are fewer.
    words: Ints
    # (t, K), how likely the outputs come of the word, up to one number for each token; -inf without
    # a word.
    log_emission: Floats

    @classmethod
    def of(cls, rows: SimulatedRows, channel: Channel, prior: Floats, *, most: int) -> Candidates:
        """List the candidates of all tokens of rows, K of them at ``most``, under a prior (V,)."""
        most = min(most, channel.vocabulary)
        visible = np.where(rows.inputs < 0, channel.vocabulary, rows.inputs)
        words = np.full((len(visible), most), NO_WORD)
        log_emission = np.full((len(visible), most), -np.inf)
        words[:, 0] = visible
        log_emission[:, 0] = 0.0
        hidden = np.flatnonzero(rows.perturbed)
        size = max(1, _CELLS // (8 * most * len(rows.outputs)))
        for start in range(0, len(hidden), size):
            part = hidden[start : start + size]
            distinct, places = np.unique(rows.outputs[:, part], axis=1, return_inverse=True)
            candidates, emission = _of_outputs(distinct, channel, prior, most)
            words[part] = candidates[places]
            log_emission[part] = emission[places]
        return cls(words=words, log_emission=log_emission)


def _of_outputs(outputs: Ints, channel: Channel, prior: Floats, most: int) -> tuple[Ints, Floats]:
    """Return candidates (t, most) of outputs (k, t), and the logarithms of their emissions."""
    lists = []
    for version in outputs:
        distinct, places = np.unique(version, return_inverse=True)
        lists.append(_likeliest(distinct, channel, prior, most)[places])
    words = np.sort(np.concatenate(lists, axis=1), axis=1)
    words[:, 1:][words[:, 1:] == words[:, :-1]] = NO_WORD
    log_emission = np.zeros(words.shape)
    with np.errstate(divide="ignore"):
        for version in outputs:
            log_emission += np.log(channel(version[:, None], words))
        score = np.log(prior[words]) + log_emission
    score[words == NO_WORD] = -np.inf
    words[score == -np.inf] = NO_WORD
    log_emission[words == NO_WORD] = -np.inf
    order = np.argsort(-score, axis=1, kind="stable")[:, :most]
    return np.take_along_axis(words, order, axis=1), np.take_along_axis(log_emission, order, axis=1)


def _likeliest(outputs: Ints, channel: Channel, prior: Floats, most: int) -> Ints:
    """Return the likeliest words (u, most) of distinct outputs (u,), in no order.

    They are among those with a cell for the output, and the ``most`` likeliest of those without
    one.
    """
    remainder = prior * channel.of_word
    common = np.sort(np.argsort(-remainder, kind="stable")[:most])
    likeliest = np.full((len(outputs), most), NO_WORD)
    output_of_cell = channel.cells(outputs)[0]
    ends = np.cumsum(np.bincount(output_of_cell, minlength=len(outputs)) + most)
    borders = np.flatnonzero(np.diff(ends // _CELLS)) + 1
    for group in np.split(np.arange(len(outputs)), borders):
        places, words, probability = channel.cells(outputs[group])
        common_places = np.repeat(np.arange(len(group)), most)
        common_words = np.tile(common, len(group))
        common_outputs = outputs[group][common_places]
        is_fresh = ~channel.look_up(common_outputs, common_words)[0]
        common_score = remainder[common_words] * channel.of_output[common_outputs]
        score = np.concatenate([prior[words] * probability, common_score[is_fresh]])
        places = np.concatenate([places, common_places[is_fresh]])
        words = np.concatenate([words, common_words[is_fresh]])
        order = np.lexsort((words, -score, places))
        places = places[order]
        words = words[order]
        rank = np.arange(len(places)) - np.searchsorted(places, places)
        is_listed = rank < most
        likeliest[group[places[is_listed]], rank[is_listed]] = words[is_listed]
    return likeliest
