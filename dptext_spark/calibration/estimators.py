"""What a calibration measures: how often each output of a word comes, at several epsilons.

The noise of all runs follows from a public seed: calibration reads no private text and can be
repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dptext_spark.calibration import rays
from dptext_spark.calibration.statistics import GAMMA, Transitions
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.noisy import AdditiveNoise, NoiseMechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey, ReleaseNoise, to_uniform
from dptext_spark.search.exact import EuclideanNearest
from dptext_spark.search.nearest import Search

EstimatorName: TypeAlias = Literal["plain", "shared-ray", "exact"]

BLOCK_WORDS: Final = {"plain": 64, "shared-ray": 512, "exact": 16}
"""Words that one call does best to take, by the estimator's name."""

# Draws whose noise is made at once, and numbers that rays may take at once (200 MB of them).
_DRAWS: Final = 1024
_CELLS: Final = 50 << 20
_WORD_CELLS: Final = 1 << 23

# Expected counts below this add nothing to a statistic, and would be most of the cells.
_LEAST_COUNT: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """Estimates transitions of words at a grid of epsilons, in the way of its ``name``.

    ``plain`` runs the mechanism as a release would. ``shared-ray`` lets the words of a block, and
    all epsilons, share the rays along which noise goes: each word's runs are independent, errors of
    words of one block are not. ``exact`` computes probabilities: counts are the expected ones.
    """

    name: EstimatorName
    bound: tuple[Any, ...]  # the mechanism at each epsilon, bound to the embedding
    # Keyed without epsilon: each run has the same uniforms at every one, in any grid.
    noise: ReleaseNoise
    width: int  # uniforms that a word takes
    search: Search
    runs: int

    @property
    def release_words(self) -> int:
        """The words that may be output are among the first so many."""
        return self.search.release_words

    def __call__(self, words: Ints, *, block: int) -> Transitions:
        """Estimate the transitions of distinct words (k,).

        No two blocks of one estimation share a number.
        """
        if self.name == "exact":
            return self._computed(np.sort(words))
        outputs = self.draws(words, block=block)
        return Transitions.of_draws(words, outputs, release_words=len(self.search.outputs))

    def _computed(self, words: Ints) -> Transitions:
        """Compute the transitions of ascending words (k,)."""
        parts = []
        for epsilon, bound in enumerate(self.bound):
            for part in _slices(len(words), max(1, _WORD_CELLS // self.release_words)):
                with np.errstate(under="ignore"):
                    counts = bound.probabilities(words[part]) * self.runs
                rows, outputs = np.nonzero(counts >= _LEAST_COUNT)
                index = np.full(len(rows), epsilon)
                parts.append((index, words[part][rows], outputs, counts[rows, outputs]))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        index, word, output, count = columns
        judged = count * (self.runs // 2 / self.runs)
        return Transitions(
            epsilon_index=index.astype(np.int16),
            word=word.astype(np.int32),
            output=output.astype(np.int32),
            count=count,
            judged=judged,
            runs=self.runs,
            release_words=len(self.search.outputs),
        )

    def draws(self, words: Ints, *, block: int) -> NDArray[np.int32]:
        """Draw the outputs of words (k,), int32 (epsilons, k, runs)."""
        outputs = np.empty((len(self.bound), len(words), self.runs), dtype=np.int32)
        if self.name == "plain":
            self._run(words, outputs)
        else:
            self._share_rays(words, block, outputs)
        return outputs

    def _run(self, words: Ints, outputs: NDArray[np.int32]) -> None:
        """Write what the mechanism makes of each word in each run into ``outputs``."""
        for row, word in enumerate(words):
            for runs in _slices(self.runs, _DRAWS):
                uniforms = self._uniforms(str(word), runs)
                for epsilon, perturb in enumerate(self.bound):
                    inputs = np.full(len(uniforms), word)
                    outputs[epsilon, row, runs] = perturb(inputs, uniforms.copy())  # overwritten

    def _share_rays(self, words: Ints, block: int, outputs: NDArray[np.int32]) -> None:
        """Write the nearest words on rays that a block shares into ``outputs``."""
        first = self.bound[0]
        cells = rays.cells(self.release_words, len(self.bound))
        for runs in _slices(self.runs, max(1, min(_DRAWS, _CELLS // cells))):
            uniforms = self._uniforms(str(block), runs)
            lengths = np.stack([bound.lengths(uniforms[:, 0]) for bound in self.bound])
            directions = first.directions(uniforms[:, 1:-1].copy())
            search = rays.NearestOnRays(first.search, directions, lengths)
            for part in _slices(len(words), max(1, _WORD_CELLS // self.release_words)):
                nearest = search.chosen(first.centres(words[part]), first.vickrey, uniforms[:, -1])
                outputs[:, part, runs] = nearest.swapaxes(0, 1)

    def _uniforms(self, row_id: str, runs: slice) -> Floats:
        """Return the uniforms (runs, width) of whatever the row id names."""
        column = self.noise.column("calibration", purpose=self.name, uint64s_per_token=self.width)
        integers = np.empty((runs.stop - runs.start, self.width), dtype=np.uint64)
        column.fill(integers, column.row_key(row_id.encode(), ()), runs.start)
        return to_uniform(integers)


def estimator(
    mechanisms: Sequence[Mechanism],
    embedding: Embedding,
    *,
    search: Search,
    runs: int,
    seed: int = 0,
) -> Estimator:
    """Build an estimator with a public seed; it computes, or else shares rays, where it can."""
    first = mechanisms[0]
    if any(mechanism.at(first.epsilon) != first for mechanism in mechanisms):
        specs = ", ".join(dict.fromkeys(mechanism.spec for mechanism in mechanisms))
        raise ConfigError("The mechanisms of one estimation differ in more than epsilon", got=specs)
    bound = tuple(configured.bind(embedding, search) for configured in mechanisms)
    name: EstimatorName = "plain"
    if hasattr(bound[0], "probabilities"):
        name = "exact"
    if isinstance(bound[0], AdditiveNoise) and isinstance(bound[0].search, EuclideanNearest):
        name = "shared-ray"  # an approximate search is part of what is measured
    key = NoiseKey(seed.to_bytes(KEY_BYTES, "little"))
    noise = first.at(1.0).release_noise(key, salt="calibration", embedding=embedding, search=search)
    return Estimator(
        name=name,
        bound=bound,
        noise=noise,
        width=first.uniforms_per_token(embedding.dimension),
        search=search,
        runs=runs,
    )


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


Prior: TypeAlias = Literal["uniform", "zipf"]
"""How likely each measured word is to be the input.

All are alike, or the k-th of them, by their order in the bundle, has weight 1 / k, which is Zipf's
law where a bundle's words come by falling frequency.
"""

PRIORS: Final[tuple[Prior, ...]] = ("uniform", "zipf")

BATCHES: Final = 16
"""Blocks come in multiples of this, so that a few tasks share them evenly."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A mechanism at its epsilons, and the words that it is measured at."""

    mechanisms: tuple[Mechanism, ...]  # the mechanism at each epsilon, ascending, else alike
    estimator: EstimatorName
    search: Search
    runs: int  # of each word at each epsilon
    seed: int  # public; the noise follows from it
    vocabulary: int  # words of the embedding that a text can have, among the ``first`` ones
    first: int
    words: int  # of the sample
    confidence: float  # of each word's interval, and of what is said of all of them
    eta: float  # mass that s_eta may leave out
    gamma: float = GAMMA  # factor within which k_gamma takes probabilities for alike

    @classmethod
    def over(
        cls,
        embedding: Embedding,
        search: Search,
        mechanisms: Sequence[Mechanism],
        *,
        words: int | Literal["all"],
        **rest: Any,
    ) -> Self:
        """Choose the estimator and the words of a bundle; the ``rest`` are attributes."""
        ordered = tuple(sorted(mechanisms, key=lambda mechanism: mechanism.epsilon))
        vocabulary = len(search.withheld.others(embedding.inputs))
        sample = vocabulary
        if words != "all":
            sample = min(words, vocabulary)
        return cls(
            mechanisms=ordered,
            search=search,
            estimator=estimator(ordered[:1], embedding, search=search, runs=1).name,
            vocabulary=vocabulary,
            first=embedding.inputs,
            words=sample,
            **rest,
        )

    @property
    def name(self) -> str:
        """The mechanism with its parameters, epsilon apart."""
        return self.mechanisms[0].spec

    @property
    def epsilons(self) -> list[float]:
        """The epsilons, ascending."""
        return [mechanism.epsilon for mechanism in self.mechanisms]

    @property
    def exact(self) -> bool:
        """Whether probabilities are computed."""
        return self.estimator == "exact"

    @property
    def monotone(self) -> bool:
        """Whether a run in which a word stays is one at every larger epsilon too.

        The points nearest to a word are a convex set, and a ray that left it never returns; not so
        with Vickrey's choice, nor with an approximate search, which has cells of any shape, nor
        with noise that does not move along rays.
        """
        first = self.mechanisms[0]
        if not isinstance(first, NoiseMechanism):
            return False
        return first.along_rays and first.select == "nearest" and self.search.convex_cells

    @property
    def blocks(self) -> int:
        """Blocks that words are dealt out to in turn: whole batches, unless words are too few."""
        batches = -(-self.words // (BATCHES * BLOCK_WORDS[self.estimator]))
        return min(BATCHES * batches, self.words)

    def ranks_of(self, number: int) -> Ints:
        """Return the places of a block's words among all of the sample, from 1."""
        return np.arange(number, self.words, self.blocks) + 1

    def block(self, number: int) -> Ints:
        """Return the ids of a block's words, evenly spread over the vocabulary."""
        places = (self.ranks_of(number) - 1) * self.vocabulary // self.words
        return self.search.withheld.others(self.first)[places]

    def weights(self, prior: Prior) -> Floats:
        """Return the prior probabilities of the sample's words, (words,)."""
        weights = np.ones(self.words)
        if prior == "zipf":
            weights /= np.arange(1, self.words + 1)
        return weights / float(weights.sum())

    def units(self, prior: Prior) -> Floats:
        """Return the prior probabilities of units of noise: of each block, or of each word."""
        weights = self.weights(prior)
        if self.estimator != "shared-ray":
            return weights
        return np.bincount(np.arange(self.words) % self.blocks, weights).astype(np.float64)

    def at(self, *epsilons: float) -> Self:
        """Return a grid of other epsilons, all else as here."""
        first = self.mechanisms[0]
        return replace(self, mechanisms=tuple(first.at(epsilon) for epsilon in sorted(epsilons)))
