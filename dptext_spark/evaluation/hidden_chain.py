"""What words stand behind outputs, given the outputs all around them: a hidden Markov chain, read both ways.

States are the words of a text, transitions those of a bigram model, emissions those of the mechanism. The
forward-backward recursion (Baum et al. 1970; Rabiner 1989, section III) gives each word's probability given
the whole row; to name the likeliest word of every place by itself gets most words right on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.evaluation.bigrams import BigramModel
from dptext_spark.evaluation.candidates import Candidates

# Pairs of candidates that are looked up at once: 16 MB.
_PAIRS: Final = 1 << 21


def posteriors(candidates: Candidates, model: BigramModel, offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the probability of each candidate, float64 (t, K), given all outputs of its row.

    Each token's sum is 1. Where no chain of candidates is possible, the chain starts anew.

    Args:
        candidates: Of t tokens.
        model: Of the language.
        offsets: int64 (rows + 1,), where each row's tokens start.
    """
    steps = _Steps.of(offsets)
    words = candidates.words[steps.tokens]
    logarithm = candidates.log_emission[steps.tokens]
    emission = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    chain = _Chain(
        emission=emission,
        lower=model.lower[words],
        back_off=model.back_off[words],
        links=_Links.of(words, model, steps),
        steps=steps,
    )
    forward = chain.forward(_first(words[: steps.sizes[0]], model)) if len(words) else emission
    both = forward * chain.backward()
    impossible = both.sum(axis=1) == 0.0
    both[impossible] = forward[impossible]
    result = np.empty_like(both)
    result[steps.tokens] = _normalized(both)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _Steps:
    """Tokens step by step: the first ones of all rows, the second ones, and so on, longer rows first.

    Attributes:
        tokens: int64 (t,), the tokens in this order.
        sizes, starts: int64 (s,), tokens of each step, and where they start. A step's tokens follow the
            first ones of the step before, one after the other.
    """

    tokens: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, offsets: NDArray[np.int64]) -> _Steps:
        lengths = np.diff(offsets)
        order = np.argsort(-lengths, kind="stable")
        place = np.repeat(np.argsort(order, kind="stable"), lengths)
        step = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
        sizes = np.bincount(step)
        return cls(tokens=np.lexsort((place, step)), sizes=sizes, starts=np.cumsum(sizes) - sizes)

    def part(self, step: int) -> slice:
        """Where a step's tokens are."""
        return slice(self.starts[step], self.starts[step] + self.sizes[step])

    def before(self, step: int) -> slice:
        """Where the tokens are that come before those of a step, from the second on."""
        return slice(self.starts[step - 1], self.starts[step - 1] + self.sizes[step])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Links:
    """Pairs of neighbouring candidates that the model has seen, step by step.

    Attributes:
        sources, targets: int64 (f,), places among the candidates of the tokens before a step, and of it.
        beyond: float64 (f,), see :class:`BigramModel`.
        starts: int64 (s + 1,), where those of each step start.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    beyond: NDArray[np.float64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, words: NDArray[np.int64], model: BigramModel, steps: _Steps) -> _Links:
        width = words.shape[1]
        second = np.arange(steps.sizes[0] if len(words) else 0, len(words))
        step = np.repeat(np.arange(len(steps.sizes)), steps.sizes)[second]
        first = second - steps.starts[step] + steps.starts[step - 1]
        none = np.zeros(0, dtype=np.int64)
        found = [(none, none, none, np.zeros(0))]
        size = max(1, _PAIRS // (width * width))
        for start in range(0, len(second), size):
            part = slice(start, start + size)
            places, beyond = model.seen(words[first[part]], words[second[part]])
            pair, rest = np.divmod(places, width * width)
            i, j = np.divmod(rest, width)
            found.append((pair + start, i, j, beyond))
        pair, i, j, beyond = (np.concatenate(parts) for parts in zip(*found, strict=True))
        token = second[pair] - steps.starts[step[pair]]
        starts = np.searchsorted(step[pair], np.arange(len(steps.sizes) + 1))
        return cls(sources=token * width + i, targets=token * width + j, beyond=beyond, starts=starts)

    def of_step(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Sources, targets and probabilities of a step."""
        part = slice(self.starts[step], self.starts[step + 1])
        return self.sources[part], self.targets[part], self.beyond[part]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chain:
    """All of it in the order of ``_Steps``: emission, lower and back_off are (t, K)."""

    emission: NDArray[np.float64]
    lower: NDArray[np.float64]
    back_off: NDArray[np.float64]
    links: _Links
    steps: _Steps

    def forward(self, first: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities (t, K) given the outputs so far, from those (b, K) after the start of a row."""
        forward = np.empty_like(self.emission)
        forward[self.steps.part(0)] = self._possible(first, self.steps.part(0))
        for step in range(1, len(self.steps.sizes)):
            part, before = self.steps.part(step), self.steps.before(step)
            last = forward[before]
            arriving = self.lower[part] * (last * self.back_off[before]).sum(axis=1, keepdims=True)
            sources, targets, beyond = self.links.of_step(step)
            arriving += _added(targets, last.ravel()[sources] * beyond, arriving.shape)
            forward[part] = self._possible(arriving, part)
        return forward

    def _possible(self, arriving: NDArray[np.float64], part: slice) -> NDArray[np.float64]:
        """Normalize what arrives at a step's candidates and fits their outputs."""
        fitting = arriving * self.emission[part]
        lost = fitting.sum(axis=1) == 0.0
        fitting[lost] = self.emission[part][lost]
        return _normalized(fitting)

    def backward(self) -> NDArray[np.float64]:
        """How likely the outputs after each candidate are, (t, K), up to a number for each token."""
        backward = np.ones_like(self.emission)
        for step in range(len(self.steps.sizes) - 1, 0, -1):
            part, before = self.steps.part(step), self.steps.before(step)
            ahead = self.emission[part] * backward[part]
            leaving = self.back_off[before] * (self.lower[part] * ahead).sum(axis=1, keepdims=True)
            sources, targets, beyond = self.links.of_step(step)
            leaving += _added(sources, ahead.ravel()[targets] * beyond, leaving.shape)
            lost = leaving.sum(axis=1) == 0.0
            leaving[lost] = 1.0
            backward[before] = _normalized(leaving)
        return backward


def _first(words: NDArray[np.int64], model: BigramModel) -> NDArray[np.float64]:
    start = np.full(words.shape, len(model.back_off) - 1)
    return np.where(words < 0, 0.0, model.probability(start, words))


def _added(
    places: NDArray[np.int64], values: NDArray[np.float64], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    added = np.bincount(places, weights=values, minlength=shape[0] * shape[1])
    return added.astype(np.float64, copy=False).reshape(shape)


def _normalized(values: NDArray[np.float64]) -> NDArray[np.float64]:
    normalized: NDArray[np.float64] = values / values.sum(axis=1, keepdims=True)
    return normalized
