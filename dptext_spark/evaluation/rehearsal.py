"""A release as it would be, under a public seed, of which inputs and outputs are known word by word.

What is rehearsed is no release: it is looked at where the private table is, and forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.lookup import joining, look_up
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.spans import Spans
from dptext_spark.text.token_columns import Tokens, check_unicode, column_kind

_COLUMN = "rehearsed"


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Rehearses releases of one column.

    Attributes:
        embedding, policy, search: As for the release; of the policy what words are and which are perturbed.
        seed: Public, 0 or more: equal seeds give equal outputs.
    """

    embedding: Embedding
    policy: TextPolicy
    search: Search
    seed: int = 0

    def unreleased(self, values: pa.Array, slots: pa.Array | None = None) -> ReleasedRows:
        """Read texts or token lists (rows,), and say which words would be perturbed; no version yet.

        Raises:
            InputError: The column has another type, a text is not Unicode, or the policy lacks its slots.
        """
        # Checked first: spans are places in texts.
        self._check(values)
        tokens, words = self._read(values, self.policy.protect.marks(values, slots))
        blank = (tokens.codes < 0) | tokens.flag(lambda token: not token)
        return ReleasedRows(
            offsets=tokens.offsets,
            inputs=words,
            outputs=np.zeros((0, len(words)), dtype=np.int64),
            perturbed=(words >= 0) & ~blank & self.policy.protect.protected(tokens, slots),
        )

    def pairs(self, values: pa.Array) -> PairCounts:
        """Count the pairs of words of other texts or token lists, read as the column is.

        Raises:
            InputError: As above.
        """
        self._check(values)
        tokens, words = self._read(values)
        return PairCounts.of_rows(words, tokens.offsets, vocabulary=len(self.embedding.words))

    @staticmethod
    def _check(values: pa.Array) -> None:
        column_kind(values.type, _COLUMN)
        check_unicode(values, _COLUMN)

    def _read(self, values: pa.Array, spans: Spans | None = None) -> tuple[Tokens, NDArray[np.int64]]:
        tokens = Tokens.of(values, joining(self.embedding, self.policy.tokenizer), spans)
        return tokens, look_up(tokens, self.embedding)

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
        texts = self._lists(rows)
        outputs = [self._version(texts, ids, mechanism, number) for number in range(versions)]
        return rows.with_outputs(np.stack(outputs))

    def _lists(self, rows: ReleasedRows) -> pa.ListArray:
        """The rows' words as token lists, null where a token is not perturbed."""
        words = self.embedding.words.take(pa.array(rows.inputs, mask=~rows.perturbed))
        return pa.ListArray.from_arrays(pa.array(rows.offsets, pa.int32()), words)

    def _version(
        self, texts: pa.ListArray, ids: pa.Array, mechanism: Mechanism, number: int
    ) -> NDArray[np.int64]:
        noise = mechanism.release_noise(
            self._key, salt=f"version {number}", embedding=self.embedding, search=self.search
        )
        privatizer = Sanitizer(embedding=self.embedding, mechanism=mechanism, noise=noise, search=self.search)
        released = privatizer.sanitize(texts, ids, column=_COLUMN).values.flatten()
        found = pc.fill_null(pc.index_in(released, value_set=self.embedding.words), -1)
        outputs: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return outputs

    @cached_property
    def _key(self) -> NoiseKey:
        # Apart from what emissions are estimated with: an attacker has no share in a release's noise.
        return NoiseKey(self.seed.to_bytes(KEY_BYTES, "little")).derive(b"rehearsal")
