"""Rows as a release under a public seed would give them: what attackers see, and what they are after.

A simulated release is looked at where the private table is, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import WORDS_ALONE, AllWords, TextPolicy
from dptext_spark.word_reader import Bundle, WordReader

_COLUMN = "rehearsed"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class SimulatedRows:
    """Rows in k versions, each a release of its own, as word ids; a token has one place in all of them."""

    offsets: Ints  # (rows + 1,), where each row's tokens start
    inputs: Ints  # (t,), the words; -1 for a token outside the vocabulary
    outputs: Ints  # (k, t), the released words; without meaning where tokens are not perturbed
    # (t,); attackers know what is not perturbed: the word itself, or that it is outside the vocabulary.
    perturbed: NDArray[np.bool_]

    @cached_property
    def rows(self) -> Ints:
        """int64 (t,), the row of each token."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def released(self) -> Ints:
        """int64 (t,), the words of the first version; -1 for a token outside the vocabulary."""
        return np.where(self.perturbed, self.outputs[0], self.inputs)

    def batches(self, tokens: int) -> Iterator[tuple[Ints, SimulatedRows]]:
        """Give whole rows of similar lengths, the longest first, about so many tokens at once, and which."""
        lengths = np.diff(self.offsets)
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        before = np.cumsum(lengths[order]) - lengths[order]
        for rows in np.split(order, np.flatnonzero(np.diff(before // tokens)) + 1):
            sizes = lengths[rows]
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            chosen = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
            inputs, outputs, perturbed = (
                self.inputs[chosen],
                self.outputs[:, chosen],
                self.perturbed[chosen],
            )
            yield (
                chosen,
                SimulatedRows(offsets=offsets, inputs=inputs, outputs=outputs, perturbed=perturbed),
            )


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Simulates releases of one column; small and hashable, as workers want it."""

    bundle: Bundle
    policy: TextPolicy  # decides what words are and which are perturbed
    search: Search
    seed: int = 0  # public, 0 or more: equal seeds give equal outputs

    @property
    def embedding(self) -> Embedding:
        """The open embedding."""
        return self.bundle.shared()

    def read(self, values: pa.Array, slots: pa.Array | None = None) -> SimulatedRows:
        """Read texts or token lists (rows,), and mark the words that would be perturbed; no version yet."""
        reader = WordReader(bundle=self.bundle, policy=self.policy)
        runs = list(reader.runs(values, slots, column=_COLUMN))
        words = np.concatenate([np.zeros(0, np.int64), *(run.word_ids for run in runs)])
        return SimulatedRows(
            offsets=np.cumsum(
                np.concatenate([[0], *(np.diff(run.tokens.offsets) for run in runs)])
            ),
            inputs=words,
            outputs=np.zeros((0, len(words)), dtype=np.int64),
            perturbed=np.concatenate([np.zeros(0, np.bool_), *(run.known for run in runs)]),
        )

    def pairs(self, rows: SimulatedRows) -> PairCounts:
        """Count the pairs of words of some rows, before any noise."""
        return PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=len(self.embedding.words))

    @property
    def public(self) -> Simulation:
        """What reads a corpus, cut as the column is; which of its words are perturbed does not matter."""
        return replace(self, policy=replace(self.policy, protect=AllWords(), mask_spans=""))

    def release(
        self, rows: SimulatedRows, ids: pa.Array, mechanism: Mechanism, *, versions: int = 1
    ) -> SimulatedRows:
        """Release rows in this number of versions, each with noise of its own, as every release goes."""
        vocabulary, outputs = self.embedding.words, []
        # Token lists, null where a token is not perturbed.
        words = vocabulary.take(pa.array(rows.inputs, mask=~rows.perturbed))
        texts = pa.ListArray.from_arrays(pa.array(rows.offsets, pa.int32()), words)
        # Independent of what emissions are estimated with: no attacker knows the noise of a release.
        key = NoiseKey(self.seed.to_bytes(KEY_BYTES, "little")).derive(b"rehearsal")
        for number in range(versions):
            name = f"version {number}"
            release = Release(
                bundle=self.bundle, mechanism=mechanism, search=self.search, name=name
            )
            release = replace(release, policy=WORDS_ALONE)
            values = (
                Sanitizer.open(release, key).sanitize(texts, ids, column=_COLUMN).values.flatten()
            )
            places = pc.fill_null(pc.index_in(values, value_set=vocabulary), -1)
            outputs.append(places.to_numpy(zero_copy_only=False).astype(np.int64))
        return replace(rows, outputs=np.stack(outputs))
