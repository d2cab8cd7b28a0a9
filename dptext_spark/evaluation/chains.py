"""Hidden Markov chains over the candidates of a text's words, read both ways.

States are words, or pairs of neighbours; transitions are those of a language model, emissions those
of the mechanism (Baum et al. 1970; Rabiner 1989, section III). Naming the likeliest word of each
place by itself gets most words right on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from dptext_spark.evaluation.candidates import NO_WORD, Candidates
from dptext_spark.evaluation.language import BigramModel, TrigramModel
from dptext_spark.geometry import Floats, Ints

# Places of words and words that follow candidates, looked up at once: arrays of 8 MB.
_LOOKED_UP: Final = 1 << 20


def forward_backward(candidates: Candidates, model: BigramModel, offsets: Ints) -> Floats:
    """Compute the probability of each candidate, float64 (t, K), given all outputs of its row."""
    tokens, steps = _steps(offsets)
    words = candidates.words[tokens]
    logarithm = candidates.log_emission[tokens]
    if not len(words):
        return np.empty_like(logarithm)
    emission = _emission(logarithm)
    states = []
    for last, part in pairwise(steps):
        before = slice(last.start, last.start + part.stop - part.start)
        states.append(_word_states(words, part, before, model))
    first = words[steps[0]]
    start = np.full(first.shape, len(model.back_off) - 1)
    arriving = np.where(first < 0, 0.0, model.probability(start, first))
    forward = _forward(states, arriving, emission)
    both = forward * _backward(states, emission)
    impossible = both.sum(axis=1) == 0.0
    both[impossible] = forward[impossible]
    result: Floats = np.empty_like(both)
    result[tokens] = both / both.sum(axis=1, keepdims=True)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _WordStates:
    """What a step of a chain over candidates needs."""

    rows: slice  # of the tokens, in the order of steps
    before: slice  # of the tokens that they follow
    lower: Floats  # (n, K), P[word]
    back_off: Floats  # (n, K), of the words before
    # Pairs seen, (f,) each: their places among the words before, (n, K), and among the words.
    sources: Ints
    targets: Ints
    beyond: Floats


def _word_states(words: Ints, rows: slice, before: slice, model: BigramModel) -> _WordStates:
    """Look up what leads to the words of a step, from those before."""
    sources, targets, beyond = links(words[before], words[rows], model)
    return _WordStates(
        rows=rows,
        before=before,
        lower=model.lower[words[rows]],
        back_off=model.back_off[words[before]],
        sources=sources,
        targets=targets,
        beyond=beyond,
    )


def _forward(states: list[_WordStates], arriving: Floats, emission: Floats) -> Floats:
    """Compute how likely each word is given the outputs so far, (t, K); ``arriving`` at first."""
    forward = np.empty_like(emission)
    forward[: len(arriving)] = _fitting(arriving, emission[: len(arriving)])
    for step in states:
        last = forward[step.before]
        arriving = step.lower * (last * step.back_off).sum(axis=1, keepdims=True)
        arriving += _sums(step.targets, last.ravel()[step.sources] * step.beyond, arriving.shape)
        forward[step.rows] = _fitting(arriving, emission[step.rows])
    return forward


def _fitting(arriving: Floats, emission: Floats) -> Floats:
    """Return probabilities (n, K) of words that arrive and fit their outputs."""
    fitting = arriving * emission
    impossible = fitting.sum(axis=1) == 0.0
    fitting[impossible] = emission[impossible]
    return np.asarray(fitting / fitting.sum(axis=1, keepdims=True))


def _backward(states: list[_WordStates], emission: Floats) -> Floats:
    """Compute how likely the outputs after each word are, (t, K), up to a factor."""
    backward = np.ones_like(emission)
    for step in reversed(states):
        ahead = emission[step.rows] * backward[step.rows]
        leaving = step.back_off * (step.lower * ahead).sum(axis=1, keepdims=True)
        leaving += _sums(step.sources, ahead.ravel()[step.targets] * step.beyond, leaving.shape)
        leaving[leaving.sum(axis=1) == 0.0] = 1.0
        backward[step.before] = leaving / leaving.sum(axis=1, keepdims=True)
    return backward


@dataclass(frozen=True, kw_only=True, eq=False)
class _PairStates:
    """What a step of a chain over pairs of neighbouring candidates needs."""

    rows: slice  # of the tokens, in the order of steps
    lower: Floats  # (n, K, K), P[word | word before]
    back_off: Floats  # (n, K, K), of the two words before
    # Triples seen, (f,) each: their places among the pairs before, (n, K, K), and among the pairs
    # that they lead to, (n, K, K).
    sources: Ints
    targets: Ints
    beyond: Floats


def forward_backward_in_pairs(candidates: Candidates, model: TrigramModel, offsets: Ints) -> Floats:
    """Compute the same with pairs of neighbours as states: words follow as in a trigram model.

    Time grows with the square of K, and with the triples seen among the candidates.
    """
    tokens, steps = _steps(offsets)
    words = candidates.words[tokens]
    logarithm = candidates.log_emission[tokens]
    if not len(words):
        return np.empty_like(logarithm)
    emission = _emission(logarithm)
    states = [_pair_states(words, steps, number, model) for number in range(len(steps))]
    forward = _forward_in_pairs(states, emission)
    backward = _backward_in_pairs(states, emission)
    steps_both_ways = zip(forward, backward, strict=True)
    both = np.concatenate([(before * after).sum(axis=1) for before, after in steps_both_ways])
    impossible = both.sum(axis=1) == 0.0
    both[impossible] = emission[impossible]
    result: Floats = np.empty_like(both)
    result[tokens] = both / both.sum(axis=1, keepdims=True)
    return result


def _pair_states(words: Ints, steps: list[slice], number: int, model: TrigramModel) -> _PairStates:
    """Look up what leads to the words of a step, from pairs of those before."""
    rows = steps[number]
    count = rows.stop - rows.start
    third = words[rows]
    second = _words_before(words, steps, number - 1, count, model)
    first = _words_before(words, steps, number - 2, count, model)
    shape = (count, third.shape[1], third.shape[1])
    lower = model.pairs.probability(
        np.broadcast_to(second[:, :, None], shape), np.broadcast_to(third[:, None, :], shape)
    )
    contexts, back_off = model.context(
        np.broadcast_to(first[:, :, None], shape), np.broadcast_to(second[:, None, :], shape)
    )
    pairs = np.flatnonzero(contexts >= 0)
    row, _, middle = np.unravel_index(pairs, shape)
    context, word, beyond = model.seen(contexts.ravel()[pairs], third[row])
    return _PairStates(
        rows=rows,
        lower=lower,
        back_off=back_off,
        sources=pairs[context],
        targets=np.ravel_multi_index((row[context], middle[context], word), shape),
        beyond=beyond,
    )


def _words_before(
    words: Ints, steps: list[slice], number: int, count: int, model: TrigramModel
) -> Ints:
    """Return the candidates of the first ``count`` rows at a step; before the first, the start."""
    if number < 0:
        start = np.full((count, words.shape[1]), NO_WORD)
        start[:, 0] = len(model.pairs.back_off) - 1
        return start
    return words[steps[number].start : steps[number].start + count]


def _forward_in_pairs(states: list[_PairStates], emission: Floats) -> list[Floats]:
    """Compute how likely each pair of words is (n, K, K), given the outputs so far, by step."""
    width = emission.shape[1]
    last = np.zeros((len(states[0].lower), width, width))
    last[:, 0, 0] = 1.0  # the starts of the rows
    steps = []
    for step in states:
        count = len(step.lower)
        last = last[:count]
        arriving = step.lower * (last * step.back_off).sum(axis=1)[:, :, None]
        arriving += _sums(step.targets, last.ravel()[step.sources] * step.beyond, last.shape)
        fitting = arriving * emission[step.rows][:, None, :]
        total = fitting.sum(axis=(1, 2))
        impossible = total == 0.0  # by this model: the chain begins anew
        fitting[impossible] = emission[step.rows][impossible][:, None, :]
        fitting /= fitting.sum(axis=(1, 2), keepdims=True)
        steps.append(fitting)
        last = fitting
    return steps


def _backward_in_pairs(states: list[_PairStates], emission: Floats) -> list[Floats]:
    """Compute how likely the outputs after each pair are (n, K, K), up to a factor, by step."""
    ahead = np.ones_like(states[-1].lower)
    steps = [ahead]
    for step in reversed(states[1:]):
        coming = ahead * emission[step.rows][:, None, :]
        leaving = step.back_off * (step.lower * coming).sum(axis=2)[:, None, :]
        leaving += _sums(step.sources, coming.ravel()[step.targets] * step.beyond, leaving.shape)
        leaving[leaving.sum(axis=(1, 2)) == 0.0] = 1.0
        leaving /= leaving.sum(axis=(1, 2), keepdims=True)
        # Rows that end here have no outputs after.
        ahead = np.ones_like(states[len(states) - len(steps) - 1].lower)
        ahead[: len(leaving)] = leaving
        steps.append(ahead)
    return steps[::-1]


def _steps(offsets: Ints) -> tuple[Ints, list[slice]]:
    """Order tokens (t,): the first ones of all rows, the second ones, and so on, longer rows first.

    Returns where each step's are, too: they follow the leading ones of the step before, one each.
    """
    lengths = np.diff(offsets)
    place = np.repeat(np.argsort(np.argsort(-lengths, kind="stable"), kind="stable"), lengths)
    step = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
    ends = np.cumsum(np.bincount(step)).tolist()
    steps = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    return np.lexsort((place, step)), steps


def _emission(logarithm: Floats) -> Floats:
    """Return emissions (t, K), up to a factor for each token; all 1 without a candidate."""
    largest = logarithm.max(axis=1, keepdims=True)
    is_impossible = np.isneginf(largest[:, 0])
    largest[is_impossible] = 0.0
    emission = np.exp(logarithm - largest)
    emission[is_impossible] = 1.0
    return np.asarray(emission)


def links(first: Ints, second: Ints, model: BigramModel) -> tuple[Ints, Ints, Floats]:
    """Find the neighbouring candidates, of (p, K) and (p, K), that the model has seen together.

    As places (f,) among the first and among the second ones, and what they have ``beyond``.
    """
    width = first.shape[1]
    count = len(first)
    if (first == first[:1]).all() and (second == second[:1]).all():
        # As where there is no output to look at: every word has the same candidates.
        _, i, j, beyond = model.seen(first[:1], second[:1])
        token = np.repeat(np.arange(count) * width, len(i))
        return token + np.tile(i, count), token + np.tile(j, count), np.tile(beyond, count)
    ends = np.cumsum(model.followers(first).sum(axis=1) + len(model.back_off))
    borders = np.flatnonzero(np.diff(ends // _LOOKED_UP)) + 1
    sources = []
    targets = []
    excess = []
    for tokens in np.split(np.arange(count), borders):
        pair, i, j, beyond = model.seen(first[tokens], second[tokens])
        token = tokens[pair] * width
        sources.append(token + i)
        targets.append(token + j)
        excess.append(beyond)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(excess)


def _sums(places: Ints, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Add up values (f,) at places (f,) of an array of a shape."""
    sums = np.bincount(places, weights=values, minlength=math.prod(shape))
    return sums.astype(np.float64, copy=False).reshape(shape)
