"""A release as it would be, under a public seed, of which inputs and outputs are known word by word.

What is rehearsed is no release: it is looked at where the private table is, and forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.lookup import Bundle, WordReader
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy

_COLUMN = "rehearsed"


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Rehearses releases of one column; small and hashable, as workers want it.

    Attributes:
        bundle, policy, search: As for the release; of the policy what words are and which are perturbed.
        seed: Public, 0 or more: equal seeds give equal outputs.
    """

    bundle: Bundle
    policy: TextPolicy
    search: Search
    seed: int = 0

    @property
    def embedding(self) -> Embedding:
        """The open embedding."""
        return self.bundle.shared()

    def unreleased(self, values: pa.Array, slots: pa.Array | None = None) -> ReleasedRows:
        """Read texts or token lists (rows,), and say which words would be perturbed; no version yet.

        Raises:
            InputError: The column has another type, a text is not Unicode, or the policy lacks its slots.
        """
        reader = WordReader(bundle=self.bundle, policy=self.policy)
        lengths, inputs, perturbed = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        for run in reader.runs(values, slots, column=_COLUMN):
            lengths.append(np.diff(run.tokens.offsets))
            inputs.append(run.word_ids)
            perturbed.append(run.known)
        words = np.concatenate(inputs)
        return ReleasedRows(
            offsets=np.cumsum(np.concatenate(lengths)),
            inputs=words,
            outputs=np.zeros((0, len(words)), dtype=np.int64),
            perturbed=np.concatenate(perturbed),
        )

    def pairs(self, values: pa.Array) -> PairCounts:
        """Count the pairs of words of other texts or token lists, cut as the column is.

        Raises:
            InputError: As above.
        """
        policy = TextPolicy(tokenizer=self.policy.tokenizer)
        rows = Rehearsal(bundle=self.bundle, policy=policy, search=self.search).unreleased(values)
        return PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=len(self.embedding.words))

    def released(
        self, rows: ReleasedRows, ids: pa.Array, mechanism: Mechanism, *, versions: int = 1
    ) -> ReleasedRows:
        """Release rows in so many versions, by the path that every release takes.

        Args:
            rows: The rows, in any versions.
            ids: Row ids (rows,), integers or strings, without nulls.
            mechanism: How words are perturbed.
            versions: How many; each has noise of its own.

        Raises:
            InputError: The ids are of the wrong type or number, or null.
        """
        vocabulary, outputs = self.embedding.words, []
        # Token lists, null where a token is not perturbed.
        words = vocabulary.take(pa.array(rows.inputs, mask=~rows.perturbed))
        texts = pa.ListArray.from_arrays(pa.array(rows.offsets, pa.int32()), words)
        # Apart from what emissions are estimated with: an attacker has no share in a release's noise.
        key = NoiseKey(self.seed.to_bytes(KEY_BYTES, "little")).derive(b"rehearsal")
        for number in range(versions):
            release = Release(
                bundle=self.bundle, mechanism=mechanism, search=self.search, name=f"version {number}"
            )
            made = Sanitizer.open(release, key).sanitize(texts, ids, column=_COLUMN).values.flatten()
            found = pc.fill_null(pc.index_in(made, value_set=vocabulary), -1)
            outputs.append(found.to_numpy(zero_copy_only=False).astype(np.int64))
        return rows.with_outputs(np.stack(outputs))
