"""Texts in, sanitized texts out, in NumPy and Arrow: the main flow, free of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.accounting.row_budget import Ladder
from dptext_spark.counts import Counts, CountT
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.lookup import TokenLookup, joining, visible_words
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import ColumnNoise, NoiseKey, ReleaseNoise, to_uniform
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.layout import assemble
from dptext_spark.text.policies import TextPolicy, UnknownTokens
from dptext_spark.text.python_columns import PythonColumn, as_arrow
from dptext_spark.text.token_columns import (
    DROP,
    KEEP,
    MASK,
    Tokens,
    check_unicode,
    column_kind,
    id_bytes,
    slices,
)

# Tokens perturbed at once, or more where they take little noise: enough for BLAS to run at full speed, and
# 5 MB of noise.
CHUNK: Final = 2048
_CHUNK_UNIFORMS: Final = 300 * CHUNK


@dataclass(frozen=True, kw_only=True)
class TokenCounts(Counts[CountT]):
    """What was done to the tokens of a column.

    Attributes:
        tokens: All tokens: those replaced, unchanged, unprotected, out of the vocabulary and blank.
        replaced: Tokens perturbed into another word.
        unchanged: Tokens perturbed into themselves.
        unprotected: Tokens released as they are because the policy leaves them out.
        out_of_vocabulary: Tokens outside the vocabulary, treated by the policy.
        blank: Null or empty elements of a token column, passed as they are.
        dropped: Tokens outside the vocabulary that the policy leaves out.
        kept_characters: Characters that the layout lets pass between words, single spaces apart.
        kept_capitals: Released words that the layout gives the capitals of the tokens in their places.
    """

    tokens: CountT
    replaced: CountT
    unchanged: CountT
    unprotected: CountT
    out_of_vocabulary: CountT
    blank: CountT
    dropped: CountT
    kept_characters: CountT
    kept_capitals: CountT


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """A sanitized column: values of the input's type, and what was done to each row."""

    values: pa.Array
    counts: TokenCounts[NDArray[np.int64]]


class Sanitizer:
    """Sanitizes columns under one release's mechanism, policy and noise.

    What a row becomes is a pure function of the key, the row's id and its content, whatever its batch.

    Args:
        embedding: A bundle or its folder.
        mechanism: For example ``Laplace(epsilon=15)``.
        noise: The release's noise; by default from a fresh key that is never written.
        policy: Treatment of unknown and unprotected tokens, layout and tokenizer of texts; by default all
            tokens are protected, unknown ones masked, and texts are their words alone. Joined words of the
            vocabulary are one token each.
        search: How released words are searched, and how many there are; by default exactly, and all that the
            bundle allows.
        ladder: The epsilon of each row, by its number of words; by default all have the mechanism's own.

    Raises:
        ConfigError: The parts do not go together.
        BundleError: There is no bundle in that folder.
    """

    def __init__(
        self,
        *,
        embedding: Embedding | Path | str,
        mechanism: Mechanism,
        noise: ReleaseNoise | None = None,
        policy: TextPolicy | None = None,
        search: Search | None = None,
        ladder: Ladder | None = None,
    ) -> None:
        self.embedding = embedding = Embedding.of(embedding)
        self.mechanism = mechanism = Mechanism.of(mechanism)
        self.policy = policy or TextPolicy()
        self.search = search or ExactSearch.over(embedding)
        self.tokenizer = joining(embedding, self.policy.tokenizer)
        self.ladder = ladder
        self._noise = noise or mechanism.release_noise(
            NoiseKey.generate(), salt="", embedding=embedding, search=self.search, ladder=ladder
        )
        if ladder is None:
            self._perturb = mechanism.bind(embedding, self.search)
        else:
            self._perturb_rungs = mechanism.bind_rungs(embedding, self.search, ladder.epsilons)

    def __repr__(self) -> str:
        return f"Sanitizer({self.mechanism!r}, {self.embedding!r}, {self._chosen})"

    @property
    def _chosen(self) -> str:
        words = f"{self.search.label} search among {self.search.release_words:,} words"
        policies = (f"{part.name} {getattr(self.policy, part.name)}" for part in fields(self.policy))
        return ", ".join([*policies, words])

    def sanitize(
        self,
        values: PythonColumn,
        ids: PythonColumn,
        *,
        column: str,
        slots: PythonColumn | None = None,
        positions: NDArray[np.int64] | None = None,
        words: NDArray[np.int64] | None = None,
    ) -> Sanitized:
        """Sanitize rows of one column.

        Values, ids and slots may be Arrow arrays (chunked ones too), pandas Series, NumPy arrays or lists.

        Args:
            values: Texts (string) or token lists (list of string); null, None and NaN stay null.
            ids: Row ids, integers or strings, unique in the whole table, without nulls.
            column: The column's name, which keeps its noise apart from other columns'.
            slots: Slots of each row, for the policy ``slots:COLUMN``: structs with ``start`` and ``end``, in
                code points of a text or elements of a token list, the end exclusive.
            positions: int64 (rows, arrays), for values that are elements of arrays and share their row's
                id: the place of each in those arrays; see :class:`~dptext_spark.text.nested.FieldValues`.
            words: int64 (rows,), for a row budget: how many words each row has in all columns and arrays of
                the release, as :meth:`visible_words` counts them; by default those of this column.

        Returns:
            The values as an Arrow array, of the type that they have in Arrow.

        Raises:
            InputError: Types or lengths are wrong, an id is null, a text is not Unicode, or the policy
                refuses a token.
            BundleError: The bundle was changed since it was opened.
        """
        values, slots = self._columns(values, slots, column)
        parts = [
            self._sanitize(part, column) for part in self._parts(values, ids, column, slots, positions, words)
        ]
        self.embedding.check_unchanged()
        return Sanitized(
            values=pa.concat_arrays([part.values for part in parts] or [values]),
            counts=TokenCounts.concat(part.counts for part in parts),
        )

    def contexts(
        self,
        values: PythonColumn,
        ids: PythonColumn,
        *,
        column: str,
        slots: PythonColumn | None = None,
        positions: NDArray[np.int64] | None = None,
        words: NDArray[np.int64] | None = None,
    ) -> Iterator[tuple[tuple[bytes | memoryview, ...], bytes]]:
        """Give what :meth:`sanitize` draws the noise of each value from, without drawing any.

        Args:
            values, ids, column, slots, positions, words: As for :meth:`sanitize`.

        Yields:
            For each value its content, and the secret key of its noise. Two values have one key if and only
            if they get the same noise, and then they have the same tokens in the same places.

        Raises:
            InputError: As :meth:`sanitize` does.
        """
        values, slots = self._columns(values, slots, column)
        for part in self._parts(values, ids, column, slots, positions, words):
            draws = self._draws(part, column)
            for row in range(len(part.names)):
                yield part.tokens.row_content(row), draws.row_key(row)

    def visible_words(
        self, values: PythonColumn, slots: PythonColumn | None = None, *, column: str = "to be sanitized"
    ) -> NDArray[np.int64]:
        """int64 (rows,): count the words of a column's rows that their outputs tell, which is no secret.

        These are all tokens but those that the policy leaves out: which of them the vocabulary has, and
        which are perturbed, does not matter.

        Raises:
            InputError: As :meth:`sanitize` does.
        """
        return visible_words(*self._columns(values, slots, column), self.embedding, self.policy)

    @staticmethod
    def _columns(
        values: PythonColumn, slots: PythonColumn | None, column: str
    ) -> tuple[pa.Array, pa.Array | None]:
        values = as_arrow(values, f"Column {column}")
        column_kind(values.type, column)
        check_unicode(values, column)
        return values, None if slots is None else as_arrow(slots, "The column of slots")

    def _parts(
        self,
        values: pa.Array,
        ids: PythonColumn,
        column: str,
        slots: pa.Array | None,
        positions: NDArray[np.int64] | None,
        words: NDArray[np.int64] | None,
    ) -> Iterator[_Part]:
        """Cut a column into runs of rows, each with all that its noise is drawn from."""
        ids = as_arrow(ids, "The column of row ids")
        names = _names(ids, positions)
        if len(ids) != len(values) or (slots is not None and len(slots) != len(values)):
            raise InputError(
                f"Column {column} has other rows than its ids or slots",
                got=f"{len(values)} rows, {len(ids)} ids",
            )
        rungs = None
        if self.ladder is not None:
            rungs = self.ladder.rungs(self.visible_words(values, slots) if words is None else words)
            epsilons = np.array(self.ladder.epsilons)[rungs].astype("<f8")
            # Equal rows that differ in another column have other epsilons, and must not share noise.
            names = [(*name, epsilon.tobytes()) for name, epsilon in zip(names, epsilons, strict=True)]
        for part in slices(values):
            own = None if slots is None else slots[part]
            marks = self.policy.protect.marks(values[part], own)
            yield _Part(
                tokens=Tokens.of(values[part], self.tokenizer, marks),
                slots=own,
                names=names[part],
                rungs=None if rungs is None else rungs[part],
            )

    def _draws(self, part: _Part, column: str, unknown: int = 0) -> _Draws:
        """Give the noise of known tokens, or that of ``unknown`` ones, which take so many uniforms each."""
        width = unknown or self.mechanism.uniforms_per_token(self.embedding.dimension)
        purpose = f"unknown {part.tokens.units}" if unknown else part.tokens.units
        return _Draws(self._noise.column(column, purpose=purpose, uint64s_per_token=width), part)

    def _sanitize(self, part: _Part, column: str) -> Sanitized:
        tokens = part.tokens
        found = TokenLookup.of(tokens, self.embedding, self.policy, part.slots)
        word_ids, blank, unprotected = found.word_ids, found.blank, found.unprotected
        known, unknown = found.known, found.unknown
        released = self._release(part, found, column)
        released[blank | unprotected] = KEEP
        assembled = assemble(tokens, released, self.embedding.words, self.policy.layout)
        counts = TokenCounts(
            tokens=np.diff(tokens.offsets),
            replaced=tokens.count(known & (released != word_ids)),
            unchanged=tokens.count(known & (released == word_ids)),
            unprotected=tokens.count(unprotected),
            out_of_vocabulary=tokens.count(unknown),
            blank=tokens.count(blank),
            dropped=tokens.count(released == DROP),
            kept_characters=assembled.characters,
            kept_capitals=assembled.capitals,
        )
        return Sanitized(values=assembled.values, counts=counts)

    def _release(self, part: _Part, found: TokenLookup, column: str) -> NDArray[np.int64]:
        """int64 (tokens,): what is released in place of known and of unknown tokens."""
        released = np.full(len(part.tokens), MASK, dtype=np.int64)
        if found.unknown.any():
            chosen = np.flatnonzero(found.unknown)
            released[chosen] = self.policy.oov.release(
                UnknownTokens(
                    column=column,
                    count=len(chosen),
                    release_words=self.search.release_words,
                    uniforms=lambda k: (own for _, own in self._draws(part, column, k).chunks(chosen)),
                )
            )
        for chunk, uniforms in self._draws(part, column).chunks(np.flatnonzero(found.known)):
            if part.rungs is None:
                words = self._perturb(found.word_ids[chunk], uniforms)
            else:
                rungs = part.rungs[part.tokens.rows[chunk]]
                words = self._perturb_rungs(found.word_ids[chunk], uniforms, rungs)
            # Where a mechanism gives no word the placeholder stands, never the token itself.
            released[chunk] = np.maximum(words, MASK)
        return released


Name = tuple[bytes, ...]
"""What names a text: its row's id, inside arrays its place in them, under a row budget its epsilon.

Two lengths never collide.
"""


def _names(ids: pa.Array, positions: NDArray[np.int64] | None) -> list[Name]:
    if positions is None or positions.shape[1] == 0:
        return [(row_id,) for row_id in id_bytes(ids)]
    places = positions.astype("<i8")
    return [(row_id, place.tobytes()) for row_id, place in zip(id_bytes(ids), places, strict=True)]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A run of rows of a column: tokens, slots if there are any, names, and rungs under a row budget."""

    tokens: Tokens
    slots: pa.Array | None
    names: list[Name]
    rungs: NDArray[np.int64] | None


@dataclass(eq=False, repr=False)  # it holds keys
class _Draws:
    """The keyed uniforms of the tokens of a run of rows, for one purpose."""

    noise: ColumnNoise
    part: _Part
    _last: tuple[int, bytes] = (-1, b"")

    def chunks(self, chosen: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Cut chosen tokens into chunks with their uniforms: the less noise a token takes, the longer."""
        size = max(CHUNK, _CHUNK_UNIFORMS // self.noise.uint64s_per_token)
        for start in range(0, len(chosen), size):
            yield (chunk := chosen[start : start + size]), self.uniforms(chunk)

    def uniforms(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64 (t, uint64s_per_token): uniforms of the chosen tokens (ascending, int64 (t,), t > 0)."""
        rows = self.part.tokens.rows[chosen]
        positions = chosen - self.part.tokens.offsets[rows]
        out = np.empty((len(chosen), self.noise.uint64s_per_token), dtype=np.uint64)
        # One cipher serves each run of neighbouring tokens of a row.
        borders = (np.diff(chosen) != 1) | (np.diff(rows) != 0)
        starts = np.concatenate([[0], np.flatnonzero(borders) + 1, [len(chosen)]])
        for start, stop in pairwise(starts.tolist()):
            self.noise.fill(out[start:stop], self.row_key(int(rows[start])), int(positions[start]))
        return to_uniform(out)

    def row_key(self, row: int) -> bytes:
        """Derive the key of a row's noise, once however many chunks a long row is cut into."""
        if self._last[0] != row:
            row_id, *place = self.part.names[row]
            content = self.part.tokens.row_content(row)
            self._last = (row, self.noise.row_key(row_id, (*place, *content)))
        return self._last[1]
