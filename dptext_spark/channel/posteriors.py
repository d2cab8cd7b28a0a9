"""A channel by whole posteriors of simulated noisy points.

A noisy point z of a word that is drawn from a prior has an output y, the word that the mechanism
chooses there. It gives y not one count for its word but P[x | z] for all words x, which the noise's
density tells: the mean of that over the points of y is P[x | y]. Every draw informs about all
words, and the mean is unbiased; a count of draws is the same mean of a far noisier thing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from dptext_spark.channel.channel import MOST_CELLS, Channel
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.noisy import NoiseDensity, NoisyNearest
from dptext_spark.noise import KEY_BYTES, NoiseKey, to_uniform
from dptext_spark.search.nearest import Search

BLOCK_POINTS: Final = 1 << 11
"""Points that are drawn together."""

LIMIT: Final = 0.004
"""Points are enough when half of them lose less than this share of the words."""

JUDGED_BLOCKS: Final = 4
"""Blocks of other points, on which guessers are compared."""

# The first round has this many points for each output, up to a number; each further round has as
# many as all before, and no round goes beyond another number.
_POINTS_OF_OUTPUT: Final = 8
_FIRST_BLOCKS: Final = 32
_MOST_BLOCKS: Final = 2048

# Every output has this many points on top that nobody drew: at the word itself, with a density that
# falls a quarter as fast, since points that noise moved aside tell neighbours apart less well than
# the word does.
_IMAGINED: Final = 8.0
_FLATTENED: Final = 0.25

# Posteriors are multiples of this: then their sums are exact in any order.
_UNIT: Final = 2.0**-30
_CELLS: Final = 1 << 23  # sums that are held at once, 64 MB
# Points whose posteriors are computed at once, always as many: the last bits of a matrix product
# may follow its shape (and, on processors without AVX-512, a row's place in it).
_ROWS: Final = 256


class Points(NamedTuple):
    """Simulated noisy points and what became of them."""

    words: Ints  # (t,), the words that they are noise around
    points: Floats  # (t, ...)
    outputs: Ints  # (t,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Guesser:
    """Simulates a mechanism on words of a prior, and inverts it by Bayes' rule."""

    bound: NoisyNearest
    density: NoiseDensity
    words: Ints  # (k,), those with a prior above 0
    prior: Floats  # (k,), sums to 1
    # (k,), by which words are drawn: half of the prior, half of its root, so that rare outputs have
    # points too. Weights make up for it.
    drawn: Floats
    noise: Any  # ColumnNoise of a public seed
    width: int  # uniforms of a token of the mechanism
    outputs: Ints  # ids of the words that may be output, ascending
    vocabulary: int

    @classmethod
    def of(
        cls, mechanism: Mechanism, embedding: Embedding, search: Search, prior: Floats, *, seed: int
    ) -> Guesser | None:
        """Build a guesser with a prior (V,); None where the mechanism's noise has no density."""
        bound = mechanism.bind(embedding, search)
        if not isinstance(bound, NoisyNearest):
            return None
        words = np.flatnonzero(prior > 0.0)
        density = bound.density(words)
        if density is None:
            return None
        likely = prior[words] / prior[words].sum()
        roots = np.sqrt(likely)
        drawn = (likely + roots / roots.sum()) / 2.0
        width = mechanism.uniforms_per_token(embedding.dimension)
        key = NoiseKey(seed.to_bytes(KEY_BYTES, "little"))
        noise = mechanism.release_noise(key, salt="channel", embedding=embedding, search=search)
        return cls(
            bound=bound,
            density=density,
            words=words,
            prior=likely,
            drawn=drawn,
            noise=noise.column("channel", purpose="points", uint64s_per_token=width + 1),
            width=width,
            outputs=search.outputs,
            vocabulary=len(prior),
        )

    def draw(self, block: int, *, judged: bool = False) -> Points:
        """Draw the points of a block; those to judge guessers on come from the prior itself."""
        integers = np.empty((BLOCK_POINTS, self.width + 1), dtype=np.uint64)
        purpose = b"judged" if judged else b"drawn"
        self.noise.fill(integers, self.noise.row_key(purpose, (str(block).encode(),)), 0)
        uniforms = to_uniform(integers)
        probability = self.prior if judged else self.drawn
        ends = np.cumsum(probability)
        places = np.searchsorted(ends, uniforms[:, -1] * ends[-1], side="right")
        words = self.words[np.minimum(places, len(ends) - 1)]
        coins = uniforms[:, -2].copy()
        points = self.bound.points(words, uniforms[:, : self.width - 1])
        return Points(words, points.astype(self.density.dtype), self.bound.choose(points, coins))

    def posteriors(
        self, points: Floats, *, flattened: float = 1.0
    ) -> Iterator[tuple[slice, Floats32]]:
        """Compute P[x | z] of points (t, ...) for the k words, block by block: float32 (b, k)."""
        for rows, likelihood in self._likelihoods(points, flattened=flattened):
            likelihood /= likelihood.sum(axis=1, keepdims=True)
            yield rows, likelihood

    def _likelihoods(
        self, points: Floats, *, flattened: float = 1.0
    ) -> Iterator[tuple[slice, Floats32]]:
        """Compute the same up to a factor for each point: the likeliest word has 1."""
        log_prior = np.log(self.prior).astype(np.float32)
        for start in range(0, len(points), _ROWS):
            rows = slice(start, min(start + _ROWS, len(points)))
            block = np.zeros((_ROWS, *points.shape[1:]))
            block[: rows.stop - start] = points[rows]
            scores = self.density(block)[: rows.stop - start]
            if flattened != 1.0:
                scores *= np.float32(flattened)
            scores += log_prior
            scores -= scores.max(axis=1, keepdims=True)
            with np.errstate(under="ignore"):
                np.exp(scores, out=scores)
            yield rows, scores

    def sums(self, outputs: Ints, points: Floats) -> PosteriorSums:
        """Add up the posteriors of all points (t, ...) of some outputs (t,), ascending."""
        starts = np.flatnonzero(np.diff(outputs, prepend=-1))
        ends = np.append(starts[1:], len(outputs))
        size = max(1, _CELLS // len(self.words))
        lists = []
        for first in range(0, len(starts), size):
            part = slice(starts[first], ends[first : first + size][-1])
            lists.append(self._summed(outputs[part], points[part]))
        return PosteriorSums.joined(lists, vocabulary=self.vocabulary)

    def _summed(self, outputs: Ints, points: Floats) -> PosteriorSums:
        """Add up the posteriors of points of outputs that fit into memory."""
        starts = np.flatnonzero(np.diff(outputs, prepend=-1))
        place_of = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(outputs)))
        totals = np.zeros((len(starts), len(self.words)))
        for rows, posterior in self.weighted(points):
            posterior *= np.float32(1.0 / _UNIT)
            np.rint(posterior, out=posterior)
            places = place_of[rows]
            borders = np.flatnonzero(np.diff(places, prepend=-1)).tolist()
            for start, stop in pairwise([*borders, len(places)]):  # faster than np.add.reduceat
                totals[places[start]] += posterior[start:stop].sum(axis=0, dtype=np.float64)
        return self._listed(outputs[starts], totals * _UNIT)

    def weighted(self, points: Floats) -> Iterator[tuple[slice, Floats32]]:
        """Compute posteriors of points (t, ...) that were drawn, as if words came by the prior.

        Drawn words are more or less frequent than the prior's: a point counts f_prior(z) /
        f_drawn(z).
        """
        ratio = (self.drawn / self.prior).astype(np.float32)
        for rows, likelihood in self._likelihoods(points):
            likelihood /= (likelihood * ratio).sum(axis=1, keepdims=True)
            yield rows, likelihood

    def imagined(self, outputs: Ints) -> PosteriorSums:
        """Return what is believed of outputs (u,), ascending, before any point is drawn."""
        lists = []
        for rows, posterior in self.posteriors(self.density.still(outputs), flattened=_FLATTENED):
            lists.append(self._listed(outputs[rows], _IMAGINED * posterior.astype(np.float64)))
        return PosteriorSums.joined(lists, vocabulary=self.vocabulary)

    def _listed(self, outputs: Ints, totals: Floats) -> PosteriorSums:
        """Keep the likeliest words of each output, of sums (u, k) of posteriors."""
        return PosteriorSums.likeliest(outputs, totals, self.words, vocabulary=self.vocabulary)

    def success(self, block: int, *guesses: Ints) -> Floats:
        """Sum P[guess | point] over a block's judged points: (g,).

        Each of the guesses is (r,), by the place of an output among those that there may be.
        """
        drawn = self.draw(block, judged=True)
        place_of = np.full(self.vocabulary, -1)
        place_of[self.words] = np.arange(len(self.words))
        successes = np.zeros(len(guesses))
        guess_of = np.searchsorted(self.outputs, drawn.outputs)
        for rows, posterior in self.posteriors(drawn.points):
            for number, guess in enumerate(guesses):
                places = place_of[guess[guess_of[rows]]]
                of_guess = posterior[np.arange(len(places)), places]
                successes[number] += of_guess.sum(dtype=np.float64)
        return successes


@dataclass(frozen=True, kw_only=True, eq=False)
class PosteriorSums:
    """Sums of posteriors over the points of outputs: cells of the likeliest words, and a rest."""

    vocabulary: int  # V
    outputs: Ints  # (u,), ascending
    weight: Floats  # (u,), how many points each has, weighted
    keys: Ints  # (c,), output * V + word, ascending
    total: Floats  # (c,)

    @classmethod
    def none(cls, vocabulary: int) -> PosteriorSums:
        """Return the sums over no output."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(
            vocabulary=vocabulary,
            outputs=nothing,
            weight=np.zeros(0),
            keys=nothing,
            total=np.zeros(0),
        )

    @classmethod
    def likeliest(
        cls, outputs: Ints, totals: Floats, words: Ints, *, vocabulary: int
    ) -> PosteriorSums:
        """Keep the likeliest of the words (k,) of each output (u,), of sums (u, k)."""
        most = min(MOST_CELLS, len(words))
        places = np.argpartition(-totals, most - 1, axis=1)[:, :most]
        places.sort(axis=1)
        return cls(
            vocabulary=vocabulary,
            outputs=outputs,
            weight=totals.sum(axis=1),
            keys=(outputs[:, None] * vocabulary + words[places]).ravel(),
            total=np.take_along_axis(totals, places, axis=1).ravel(),
        )

    @classmethod
    def joined(cls, parts: list[PosteriorSums], *, vocabulary: int) -> PosteriorSums:
        """Put together sums of different outputs."""
        parts = [cls.none(vocabulary), *parts]
        outputs = np.concatenate([part.outputs for part in parts])
        weight = np.concatenate([part.weight for part in parts])
        keys = np.concatenate([part.keys for part in parts])
        total = np.concatenate([part.total for part in parts])
        output_order = np.argsort(outputs, kind="stable")
        key_order = np.argsort(keys, kind="stable")
        return cls(
            vocabulary=vocabulary,
            outputs=outputs[output_order],
            weight=weight[output_order],
            keys=keys[key_order],
            total=total[key_order],
        )

    def added(self, other: PosteriorSums, prior: Floats) -> PosteriorSums:
        """Add sums over other points; all outputs of ``other`` must be here.

        A word that one of them has no cell for has there its share, by the prior (V,), of what is
        left.
        """
        both = np.concatenate([self.keys, other.keys])
        merged = np.argsort(both, kind="stable")  # of two ascending parts: quick
        is_new = np.diff(both[merged], prepend=-1) > 0
        keys = both[merged][is_new]
        places = np.empty(len(both), dtype=np.int64)
        places[merged] = np.cumsum(is_new) - 1
        totals = np.concatenate([self.total, other.total])
        total: Floats = np.bincount(places, weights=totals).astype(np.float64)
        places_of_self, places_of_other = np.split(places, [len(self.keys)])
        for part, cells in ((self, places_of_self), (other, places_of_other)):
            lacks = np.ones(len(keys), dtype=np.bool_)
            lacks[cells] = False
            outputs, words = np.divmod(keys[lacks], self.vocabulary)
            remainder = part.left(self.outputs, prior)
            total[lacks] += prior[words] * remainder[np.searchsorted(self.outputs, outputs)]
        weight = self.weight.copy()
        weight[np.searchsorted(self.outputs, other.outputs)] += other.weight
        cells = _likeliest_cells(keys // self.vocabulary, total)
        return replace(self, weight=weight, keys=keys[cells], total=total[cells])

    def guesses(self) -> Ints:
        """Return the likeliest word of each output, int64 (u,), of equally likely the lowest."""
        outputs, words = np.divmod(self.keys, self.vocabulary)
        starts = np.flatnonzero(np.diff(outputs, prepend=-1))
        sizes = np.diff(starts, append=len(outputs))
        largest = np.repeat(np.maximum.reduceat(self.total, starts), sizes)
        cells = np.flatnonzero(self.total == largest)
        first_cells = cells[np.flatnonzero(np.diff(outputs[cells], prepend=-1))]
        return np.asarray(words[first_cells])

    def left(self, outputs: Ints, prior: Floats) -> Floats:
        """Return what words without a cell have, over their prior, of outputs (u,)."""
        cell_outputs, cell_words = np.divmod(self.keys, self.vocabulary)
        places = np.searchsorted(self.outputs, cell_outputs)
        listed = np.bincount(places, weights=self.total, minlength=len(self.outputs))
        covered = np.bincount(places, weights=prior[cell_words], minlength=len(self.outputs))
        remainder = np.maximum(self.weight - listed, 0.0) / np.maximum(1.0 - covered, 1e-9)
        remainder[covered > 1.0 - 1e-9] = 0.0
        at = np.minimum(np.searchsorted(self.outputs, outputs), len(self.outputs) - 1)
        return np.where(self.outputs[at] == outputs, remainder[at], 0.0)

    def channel(
        self, prior: Floats, *, outputs: int, size: int, difference: float | None
    ) -> Channel:
        """Divide sums of all outputs by the prior (V,) of the drawn words, by Bayes' rule."""
        cell_words = self.keys % len(prior)
        scale = self.weight.sum()
        probability = self.total / prior[cell_words] / scale
        of_output = self.left(np.arange(outputs), prior) / scale
        return Channel(
            method="posteriors",
            keys=self.keys,
            probability=probability.astype(np.float32),
            of_word=np.ones(len(prior)),
            of_output=of_output,
            size=size,
            difference=difference,
        )


def _likeliest_cells(outputs: Ints, total: Floats) -> Ints:
    """Return the places of the ``MOST_CELLS`` likeliest cells of each output, ascending.

    Outputs of cells (c,) ascend; of equally likely cells the first are taken.
    """
    starts = np.flatnonzero(np.diff(outputs, prepend=-1))
    ends = np.append(starts[1:], len(outputs))
    least = np.full(len(starts), -np.inf)
    for number in np.flatnonzero(ends - starts > MOST_CELLS):
        of_output = total[starts[number] : ends[number]]
        least[number] = np.partition(of_output, -MOST_CELLS)[-MOST_CELLS]
    least_of_cell = np.repeat(least, ends - starts)
    is_above = total > least_of_cell
    is_tied = total == least_of_cell
    # Of tied cells there is room for some.
    above_before = np.append(0, np.cumsum(is_above))
    tied_before = np.append(0, np.cumsum(is_tied))
    room = MOST_CELLS - (above_before[ends] - above_before[starts])
    rank = tied_before[:-1] - np.repeat(tied_before[starts], ends - starts)
    return np.flatnonzero(is_above | (is_tied & (rank < np.repeat(room, ends - starts))))


class Rounds(ABC):
    """Where points are drawn: in this process, or on workers."""

    @abstractmethod
    def imagined(self) -> PosteriorSums:
        """Return :meth:`Guesser.imagined` of all outputs."""

    @abstractmethod
    def drawn(self, blocks: range) -> PosteriorSums:
        """Return :meth:`Guesser.sums` of the points of some blocks."""

    @abstractmethod
    def success(self, *guesses: Ints) -> Floats:
        """Add up :meth:`Guesser.success` over the ``JUDGED_BLOCKS``."""

    def channel(self, prior: Floats, *, outputs: int, limit: float = LIMIT) -> Channel:
        """Draw points until half of them do nearly as well, for a prior (V,) that sums to 1."""
        sums = self.imagined()
        next_blocks = min(_FIRST_BLOCKS, -(-_POINTS_OF_OUTPUT * outputs // BLOCK_POINTS))
        blocks = 0
        difference = np.inf
        while difference > limit and blocks + next_blocks <= _MOST_BLOCKS:
            half = sums
            sums = half.added(self.drawn(range(blocks, blocks + next_blocks)), prior)
            blocks += next_blocks
            next_blocks = blocks
            less, most = self.success(half.guesses(), sums.guesses())
            difference = float(most - less) / (JUDGED_BLOCKS * BLOCK_POINTS)
        size = blocks * BLOCK_POINTS
        return sums.channel(prior, outputs=outputs, size=size, difference=difference)


@dataclass(frozen=True, kw_only=True)
class LocalRounds(Rounds):
    """Points drawn in this process."""

    guesser: Guesser

    def imagined(self) -> PosteriorSums:
        return self.guesser.imagined(self.guesser.outputs)

    def drawn(self, blocks: range) -> PosteriorSums:
        drawn = [self.guesser.draw(block) for block in blocks]
        outputs = np.concatenate([part.outputs for part in drawn])
        points = np.concatenate([part.points for part in drawn])
        order = np.argsort(outputs, kind="stable")
        return self.guesser.sums(outputs[order], points[order])

    def success(self, *guesses: Ints) -> Floats:
        totals = [self.guesser.success(block, *guesses) for block in range(JUDGED_BLOCKS)]
        return np.asarray(np.sum(totals, axis=0))
