"""Which words stand behind the outputs of a row, given all of them: a hidden Markov chain, read both ways.

States are the words of a text, transitions those of a bigram model, emissions those of the mechanism. The
forward-backward recursion (Baum et al. 1970; Rabiner 1989, section III) gives each word's probability given
the whole row. Naming the likeliest word of each place by itself gets most words right on average.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.language import BigramModel
from dptext_spark.geometry import Floats, Ints

# Pairs of candidates that are looked up at once: 16 MB.
_PAIRS: Final = 1 << 21


def forward_backward(candidates: Candidates, model: BigramModel, offsets: Ints) -> Floats:
    """Compute the probability of each candidate, float64 (t, K), given all outputs of its row.

    Each token's sum is 1. Where no chain of candidates is possible, the chain starts anew. ``offsets``
    (rows + 1,) say where each row's tokens start.
    """
    tokens, steps = _steps(offsets)
    words, logarithm = candidates.words[tokens], candidates.log_emission[tokens]
    if not len(words):
        return np.empty_like(logarithm)
    emission = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    lower, back_off = model.lower[words], model.back_off[words]
    links = _links(words, model, steps)
    before = [slice(last.start, last.start + part.stop - part.start) for last, part in pairwise(steps)]

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

    backward = np.ones_like(emission)  # how likely the outputs after a candidate are, up to a factor
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
    """Order tokens step by step: the first ones of all rows, the second ones, and so on, longer rows first.

    Returns the tokens (t,) in this order, and where each step's are: they follow the leading ones of the step
    before, one each.
    """
    lengths = np.diff(offsets)
    place = np.repeat(np.argsort(np.argsort(-lengths, kind="stable"), kind="stable"), lengths)
    step = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
    ends = np.cumsum(np.bincount(step)).tolist()
    steps = [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    return np.lexsort((place, step)), steps


def _links(words: Ints, model: BigramModel, steps: list[slice]) -> list[tuple[Ints, Ints, Floats]]:
    """Find the pairs of neighbouring candidates that the model has seen, for each step from the second on.

    Returns places (f,) among the candidates of the tokens of the step before, and of the step, and what they
    have ``beyond``.
    """
    width = words.shape[1]
    starts, sizes = np.array([(part.start, part.stop - part.start) for part in steps]).T
    second = np.arange(sizes[0], len(words))
    step = np.repeat(np.arange(len(steps)), sizes)[second]
    first = second - starts[step] + starts[step - 1]
    found, size = [], max(1, _PAIRS // (width * width))
    for start in range(0, len(second), size):
        part = slice(start, start + size)
        places, beyond = model.seen(words[first[part]], words[second[part]])
        found.append((places + start * width * width, beyond))
    if not found:
        return []
    places, beyond = (np.concatenate(parts) for parts in zip(*found, strict=True))
    pair, rest = np.divmod(places, width * width)
    i, j = np.divmod(rest, width)
    token = second[pair] - starts[step[pair]]
    cuts = np.searchsorted(step[pair], np.arange(2, len(steps)))
    columns = (np.split(column, cuts) for column in (token * width + i, token * width + j, beyond))
    return list(zip(*columns, strict=True))


def _sums(places: Ints, values: Floats, shape: tuple[int, ...]) -> Floats:
    sums = np.bincount(places, weights=values, minlength=shape[0] * shape[1])
    return sums.astype(np.float64, copy=False).reshape(shape)
