"""P[output | word] as one matrix, for statistics that count with it: unbiased, and kept on disk.

A channel of attackers may be off by a factor for each output, since Bayes' rule divides by it.
Sums over outputs need probabilities that add up to 1 for each word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.channel.channel import Channel
from dptext_spark.channel.posteriors import BLOCK_POINTS, Guesser, PosteriorSums
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import NO_ARRAY
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.mechanisms import MECHANISMS, Mechanism
from dptext_spark.sealing import json_sha256
from dptext_spark.search.nearest import Search

UNKNOWN: Final = -1
"""In place of a word's id: any token that the vocabulary lacks."""

MOST_CELLS: Final = 1 << 28
"""Words times outputs of a matrix, 1 GB."""

# Simulated points of each output: the more, the sharper topics are. Between the first two numbers,
# as many as take no more than the third one of posteriors; and no fewer blocks than the last.
_LEAST_POINTS: Final = 32
_MOST_POINTS: Final = 128
_POSTERIORS: Final = 1 << 31
_LEAST_BLOCKS: Final = 16
_VERSION: Final = 2  # of what is written to disk
_COMPUTED_AT_ONCE: Final = 16  # words
_OUTPUTS_AT_ONCE: Final = 512
_LARGEST_SUM: Final = 1.001  # of a word's probabilities, in single precision
_LEAST_SHARE: Final = 1e-9  # of a word that Bayes' rule takes into account


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelMatrix:
    """P[output | word] for k words under a prior, with all outputs of a release."""

    words: Ints  # (k,), ids; may have UNKNOWN as the last one
    prior: Floats  # (k,), sums to 1
    table: Floats32  # (k, outputs), each row sums to 1
    # (k,); the others are unknown, or go out as they are.
    is_perturbed: NDArray[np.bool_]
    released: Ints  # ids of the words that may be output

    @property
    def outputs(self) -> int:
        """The number of first words among which are those that may be output."""
        return int(self.table.shape[1])

    @cached_property
    def output_prior(self) -> Floats:
        """P[output] under the prior, float64 (outputs,), above 0."""
        return np.maximum(self.prior @ self.table, np.finfo(np.float32).tiny)

    def passing(self, words: Ints) -> ChannelMatrix:
        """Return the matrix where these words, of those that may be output, go out as they are."""
        places = np.flatnonzero(np.isin(self.words, np.intersect1d(words, self.released)))
        table = self.table.copy()
        table[places] = 0.0
        table[places, self.words[places]] = 1.0
        is_perturbed = self.is_perturbed.copy()
        is_perturbed[places] = False
        return replace(self, table=table, is_perturbed=is_perturbed)

    def with_unknown(self, share: float) -> ChannelMatrix:
        """Return the matrix with one more word: unknown tokens, which become any output alike."""
        row = np.zeros((1, self.outputs), dtype=np.float32)
        row[:, self.released] = 1.0 / len(self.released)
        prior = np.append(self.prior * (1.0 - share), share)
        table = np.concatenate([self.table, row])
        is_perturbed = np.append(self.is_perturbed, False)
        words = np.append(self.words, UNKNOWN)
        return replace(self, words=words, prior=prior, table=table, is_perturbed=is_perturbed)

    def channel(self, shares: Floats, *, vocabulary: int) -> tuple[Channel, Floats]:
        """Return what attackers read, and the prior (V,) that it is for; unknown words left out.

        The likeliest words of each output, by their ``shares`` (k,), have a probability of their
        own.
        """
        named = np.flatnonzero(self.words != UNKNOWN)
        likely = np.maximum(shares[named], _LEAST_SHARE)
        likely /= likely.sum()
        parts = []
        for start in range(0, self.outputs, _OUTPUTS_AT_ONCE):
            outputs = np.arange(start, min(start + _OUTPUTS_AT_ONCE, self.outputs))
            block = self.table[named, start : start + len(outputs)].astype(np.float64)
            totals = block.T * likely
            part = PosteriorSums.likeliest(
                outputs, totals, self.words[named], vocabulary=vocabulary
            )
            parts.append(part)
        prior = np.zeros(vocabulary)
        prior[self.words[named]] = likely
        sums = PosteriorSums.joined(parts, vocabulary=vocabulary)
        return sums.channel(prior, outputs=self.outputs, size=0, difference=None), prior


@dataclass(frozen=True, kw_only=True, eq=False)
class MatrixSource:
    """Works out a mechanism's matrix: computes it, or averages posteriors of noisy points."""

    mechanism: Mechanism
    embedding: Embedding
    search: Search
    prior: Floats  # (V,), public; words with 0 are not in the matrix
    # (V,), by which words are drawn whose noise is simulated, such as what a table shows of its
    # words; None draws them by prior. It decides how exact the matrix is for which words.
    drawn: Floats | None = None
    seed: int = 0  # public

    def __post_init__(self) -> None:
        cells = len(self.words) * self.search.release_words
        if cells > MOST_CELLS:
            raise ConfigError(
                "The channel has too many words and outputs for memory",
                allowed=f"{MOST_CELLS:,} pairs of a word and an output",
                got=f"{len(self.words):,} words and {self.search.release_words:,} outputs",
                do="Take fewer words with --channel-words",
            )
        if not self.is_computed and self._guesser is None:
            raise ConfigError(
                f"The noise of {self.mechanism.name} cannot be inverted: its density is not known",
                allowed=", ".join(sorted({*MECHANISMS} - {self.mechanism.name})),
            )

    @cached_property
    def words(self) -> Ints:
        """Ids of the words in the matrix, (k,), ascending."""
        return np.flatnonzero(self.prior > 0.0)

    @cached_property
    def _bound(self) -> Any:
        return self.mechanism.bind(self.embedding, self.search)

    @property
    def is_computed(self) -> bool:
        """Whether probabilities are computed from the mechanism's formula."""
        return hasattr(self._bound, "probabilities")

    @cached_property
    def _guesser(self) -> Guesser | None:
        guesser = Guesser.of(
            self.mechanism, self.embedding, self.search, self.prior, seed=self.seed
        )
        if guesser is None or self.drawn is None:
            return guesser
        of_words = self.drawn[self.words]
        mixed = of_words / of_words.sum() + guesser.prior + 1.0 / len(self.words)
        return replace(guesser, drawn=mixed / mixed.sum())

    @property
    def points(self) -> int:
        """How many noisy points are simulated; 0 where probabilities are computed."""
        return 0 if self.is_computed else self._blocks * BLOCK_POINTS

    @property
    def _blocks(self) -> int:
        outputs = self.search.release_words
        affordable = _POSTERIORS // (outputs * len(self.words))
        points = min(max(affordable, _LEAST_POINTS), _MOST_POINTS)
        return max(-(-points * outputs // BLOCK_POINTS), _LEAST_BLOCKS)

    @property
    def name(self) -> str:
        """A name that no other matrix has: a hash of all that decides on it."""
        settings = {
            "version": _VERSION,
            "fingerprint": self.embedding.fingerprint,
            "search": self.search.label,
            "outputs": self.search.release_words,
            "withheld": self.search.withheld.identity,
            "words": self.words.tolist(),
            "points": self.points,
            **self.mechanism.to_json(),
        }
        if not self.is_computed and self._guesser is not None:
            settings["drawn"] = self._guesser.drawn.tolist()
            settings["seed"] = self.seed
        return json_sha256(settings)[:32]

    def matrix(self, cache: Path) -> tuple[ChannelMatrix, bool]:
        """Read the matrix from a folder, or else make it and write it there; also if it was read.

        Another process never reads a part of it: the file takes its name when it is whole.
        """
        path = cache / f"{self.name}.npy"
        cached = self._cached(path)
        table = cached
        if table is None:
            table = self._computed() if self.is_computed else self._averaged()
            _write(path, table)
            table = np.asarray(np.load(path, mmap_mode="r"))
        prior = self.prior[self.words]
        matrix = ChannelMatrix(
            words=self.words,
            prior=prior / prior.sum(),
            table=table,
            is_perturbed=np.ones(len(self.words), dtype=np.bool_),
            released=self.search.outputs,
        )
        return matrix, cached is not None

    def _cached(self, path: Path) -> Floats32 | None:
        """Map the matrix of a file; None where there is none, or it is no channel of this shape."""
        try:
            table = np.load(path, mmap_mode="r")
        except NO_ARRAY:
            return None
        shape = (len(self.words), self.search.release_words)
        if getattr(table, "shape", None) != shape or table.dtype != np.float32:
            return None
        is_channel = table.min() >= 0.0 and table.sum(axis=1).max() <= _LARGEST_SUM
        return table if is_channel else None

    def _computed(self) -> Floats32:
        table = np.empty((len(self.words), self.search.release_words), dtype=np.float32)
        for start in range(0, len(self.words), _COMPUTED_AT_ONCE):
            block = slice(start, start + _COMPUTED_AT_ONCE)
            table[block] = self._bound.probabilities(self.words[block])
        return table

    def _averaged(self) -> Floats32:
        """Average the posteriors of the points of each output, and divide by the prior."""
        totals = np.zeros((self.search.release_words, len(self.words)), dtype=np.float32)
        for outputs, posterior in self._posteriors(range(self._blocks)):
            # A row may be there several times.
            order = np.argsort(outputs, kind="stable")
            borders = np.flatnonzero(np.diff(outputs[order], prepend=-1))
            totals[outputs[order[borders]]] += np.add.reduceat(posterior[order], borders, axis=0)
        table = totals.T / self.prior[self.words, None].astype(np.float32)
        table /= np.maximum(table.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return np.ascontiguousarray(table)

    def counted(
        self, matrix: ChannelMatrix, weights: Floats, shares: Floats
    ) -> tuple[Floats, Floats]:
        """Return what weights of outputs (outputs, T) count of each word of the matrix.

        Where points are simulated they are other ones than those that the matrix, and so the
        weights, were made of: then what is counted is not biased by the choice of the weights.

        Returns:
            The mean weight of each word's outputs, float64 (k, T), and the standard error of its
            mean over words with these ``shares`` (k,): (T,), 0 where probabilities are computed.
        """
        counted = matrix.table @ weights
        if self.is_computed:
            return counted, np.zeros(weights.shape[1])
        ratio = shares[: len(self.words)] / self.prior[self.words]
        sums = np.zeros((len(self.words), weights.shape[1]))
        block_sums = np.zeros((self._blocks, weights.shape[1]))
        block_mass = np.zeros((self._blocks, len(self.words)))
        for number in range(self._blocks):
            fresh = self._blocks + number
            for outputs, posterior in self._posteriors(range(fresh, fresh + 1)):
                part = posterior.T.astype(np.float64) @ weights[outputs]
                sums += part
                block_sums[number] += ratio @ part
                block_mass[number] += posterior.sum(axis=0)
        mass = np.maximum(block_mass.sum(axis=0), np.finfo(np.float64).tiny)
        of_words = sums / mass[:, None]
        residuals = (block_sums - (block_mass * ratio) @ of_words) / BLOCK_POINTS
        places = np.flatnonzero(matrix.is_perturbed)
        counted[places] = of_words[places]
        return counted, residuals.std(axis=0, ddof=1) / np.sqrt(self._blocks)

    def _posteriors(self, blocks: range) -> Iterator[tuple[Ints, Floats32]]:
        """Yield outputs (b,) of noisy points and P[word | point] (b, k)."""
        guesser = self._guesser
        if guesser is None:
            raise TypeError(f"The noise of {self.mechanism.name} has no density")
        for block in blocks:
            points = guesser.draw(block)
            for rows, posterior in guesser.weighted(points.points):
                yield points.outputs[rows], posterior


def _write(path: Path, table: Floats32) -> None:
    """Write an array under its name when it is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".channel-") as folder:
            part = Path(folder, path.name)
            np.save(part, table)
            os.replace(part, path)
    except OSError as error:
        raise ConfigError(
            f"The channel cannot be written to {path.parent}",
            got=str(error.strerror),
            do="Name a folder for it with --cache",
        ) from None
