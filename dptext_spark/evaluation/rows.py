"""Rows as a release under a public seed would give them: what attackers see, and what they seek.

A simulated release is looked at where the private table is, and forgotten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.language import Language, PairCounts
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import WORDS_ALONE, AllWords, TextPolicy
from dptext_spark.word_reader import Bundle, WordReader

_COLUMN = "rehearsed"

SHADOW_ROWS: Final = 800
"""Known rows, at most, that attackers release themselves; no more than half of them."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class SimulatedRows:
    """Rows in k versions, each a release of its own, as word ids; a token has one place in all."""

    offsets: Ints  # (rows + 1,), where each row's tokens start
    inputs: Ints  # (t,), the words; -1 for a token outside the vocabulary
    outputs: Ints  # (k, t), the released words; without meaning where tokens are not perturbed
    # (t,); attackers know what is not perturbed: the word itself, or that it is outside the
    # vocabulary.
    perturbed: NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[SimulatedRows]) -> SimulatedRows:
        """Put rows together that have no version yet."""
        inputs = np.concatenate([part.inputs for part in parts])
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        return cls(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            inputs=inputs,
            outputs=np.zeros((0, len(inputs)), dtype=np.int64),
            perturbed=np.concatenate([part.perturbed for part in parts]),
        )

    def shadow_and_others(self) -> tuple[SimulatedRows, SimulatedRows]:
        """Cut rows in two: those that attackers release themselves, and those that they only read.

        Which are which follows from their words, whatever order they come in.
        """
        digests = []
        for start, stop in pairwise(self.offsets.tolist()):
            row = self.inputs[start:stop].tobytes()
            digests.append(hashlib.blake2b(row, digest_size=8).digest())
        order = np.argsort(np.array(digests, dtype="S8"), kind="stable")
        shadow = min(SHADOW_ROWS, len(order) // 2)
        return self.taken(order[:shadow]), self.taken(order[shadow:])

    def languages(self, counts: PairCounts, *, of_attacked: bool) -> tuple[Language, Language]:
        """Learn the language of all of these rows, and of those that are no shadow rows.

        Shadow rows stand in for the attacked ones: the second language has their pairs only where
        the ``counts`` are also ``of_attacked`` rows.
        """
        shadow, rest = self.shadow_and_others()
        rows = SimulatedRows.joined([shadow, rest])
        counts_of_rest = counts
        if not of_attacked:
            counts_of_rest = counts - PairCounts.of_rows(
                shadow.inputs, shadow.offsets, vocabulary=counts.vocabulary
            )
        return (
            Language.learn(counts, rows.inputs, rows.offsets),
            Language.learn(counts_of_rest, rest.inputs, rest.offsets),
        )

    @cached_property
    def rows(self) -> Ints:
        """int64 (t,), the row of each token."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def tokens(self, rows: Ints) -> Ints:
        """Return the places of all tokens of some rows, row by row."""
        sizes = np.diff(self.offsets)[rows]
        starts = np.cumsum(sizes) - sizes
        return np.asarray(np.arange(sizes.sum()) + np.repeat(self.offsets[rows] - starts, sizes))

    def taken(self, rows: Ints) -> SimulatedRows:
        """Return some of the rows, in the order given."""
        tokens = self.tokens(rows)
        lengths = np.diff(self.offsets)[rows]
        return SimulatedRows(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            inputs=self.inputs[tokens],
            outputs=self.outputs[:, tokens],
            perturbed=self.perturbed[tokens],
        )

    @property
    def released(self) -> Ints:
        """int64 (t,), the words of the first version; -1 for a token outside the vocabulary."""
        return np.where(self.perturbed, self.outputs[0], self.inputs)

    def batches(self, tokens: int) -> Iterator[tuple[Ints, SimulatedRows]]:
        """Yield places and rows, about this number of tokens at once.

        Rows are whole, of similar lengths, the longest first.
        """
        lengths = np.diff(self.offsets)
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        before = np.cumsum(lengths[order]) - lengths[order]
        for rows in np.split(order, np.flatnonzero(np.diff(before // tokens)) + 1):
            yield self.tokens(rows), self.taken(rows)


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
        """Read texts or token lists (rows,), and mark the words to perturb; no version yet."""
        reader = WordReader(bundle=self.bundle, policy=self.policy)
        words = [np.zeros(0, np.int64)]
        lengths = [np.zeros(1, np.int64)]
        is_perturbed = [np.zeros(0, np.bool_)]
        for run in reader.runs(values, slots, column=_COLUMN):
            words.append(run.word_ids)
            lengths.append(np.diff(run.tokens.offsets))
            is_perturbed.append(run.known)
        inputs = np.concatenate(words)
        return SimulatedRows(
            offsets=np.cumsum(np.concatenate(lengths)),
            inputs=inputs,
            outputs=np.zeros((0, len(inputs)), dtype=np.int64),
            perturbed=np.concatenate(is_perturbed),
        )

    def pairs(self, rows: SimulatedRows) -> PairCounts:
        """Count the pairs of words of some rows, before any noise."""
        return PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=len(self.embedding.words))

    @property
    def public(self) -> Simulation:
        """What reads a corpus, cut as the column is, whichever of its words are perturbed."""
        no_spans = {"protect": AllWords(), "mask_spans": None, "spans_by": None}
        policy = self.policy.model_copy(update=no_spans)
        return replace(self, policy=policy)

    def release(
        self,
        rows: SimulatedRows,
        ids: pa.Array,
        mechanism: Mechanism,
        *,
        versions: int = 1,
        by: bytes = b"rehearsal",
    ) -> SimulatedRows:
        """Release rows in this number of versions, each with noise of its own.

        ``by`` names who does: two of them never draw the same noise.
        """
        vocabulary = self.embedding.words
        # Token lists, null where a token is not perturbed.
        words = vocabulary.take(pa.array(rows.inputs, mask=~rows.perturbed))
        texts = pa.ListArray.from_arrays(pa.array(rows.offsets, pa.int32()), words)
        # Independent of what emissions are estimated with: no attacker knows the noise of a
        # release.
        key = NoiseKey(self.seed.to_bytes(KEY_BYTES, "little")).derive(by)
        outputs = []
        for number in range(versions):
            release = Release(
                bundle=self.bundle,
                mechanism=mechanism,
                search=self.search,
                name=f"version {number}",
            )
            sanitizer = Sanitizer.open(replace(release, policy=WORDS_ALONE), key)
            values = sanitizer.sanitize(texts, ids, column=_COLUMN, trust_id=True).values.flatten()
            places = pc.fill_null(pc.index_in(values, value_set=vocabulary), -1)
            outputs.append(places.to_numpy(zero_copy_only=False).astype(np.int64))
        return replace(rows, outputs=np.stack(outputs))

    def shadow(self, rows: SimulatedRows, mechanism: Mechanism, *, versions: int) -> SimulatedRows:
        """Release the shadow rows among known ones, with noise that no other release has."""
        shadow, _ = rows.shadow_and_others()
        ids = pa.array(range(len(shadow.offsets) - 1), pa.int64())
        return self.release(shadow, ids, mechanism, versions=versions, by=b"shadow")
