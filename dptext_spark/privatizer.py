"""Texts in, sanitized texts out, in NumPy and Arrow: the main flow, free of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import ColumnNoise, NoiseKey, ReleaseNoise, to_uniform
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import Oov, TextPolicy, protected_by_slots
from dptext_spark.text.tokens import match_form, stop_words
from dptext_spark.text.words import Words, check_unicode, column_kind, id_bytes, slices

# Words perturbed at once, or more where they take little noise: enough for BLAS to run at full speed, and
# 5 MB of noise.
CHUNK: Final = 2048
_CHUNK_UNIFORMS: Final = 300 * CHUNK


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was done to the words of each row of a column, int64 (rows,) each; the parts add up.

    Attributes:
        tokens: Words of the row, the sum of the others.
        replaced: Words perturbed into another word.
        unchanged: Words perturbed into themselves.
        unprotected: Words released as they are because the policy leaves them out.
        out_of_vocabulary: Words outside the vocabulary, treated by the policy.
        blank: Null or empty elements of a token column, passed as they are.
    """

    tokens: NDArray[np.int64]
    replaced: NDArray[np.int64]
    unchanged: NDArray[np.int64]
    unprotected: NDArray[np.int64]
    out_of_vocabulary: NDArray[np.int64]
    blank: NDArray[np.int64]


COUNTERS: Final = tuple(field.name for field in fields(Counts))


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """A sanitized column: values of the input's type, and what was done to each row."""

    values: pa.Array
    counts: Counts


def look_up(words: Words, embedding: Embedding) -> NDArray[np.int64]:
    """int64 (words,): each word's row in the bundle, as it stands or else in lower case; -1 for none."""
    distinct = words.distinct.to_pylist()
    exact, lower = (
        pc.index_in(
            pa.array([match_form(word, lower=lower) for word in distinct], pa.string()),
            value_set=embedding.words,
        )
        for lower in (False, True)
    )
    found = pc.fill_null(pc.coalesce(exact, lower), -1).to_numpy(zero_copy_only=False)
    return np.append(found.astype(np.int64), -1)[words.codes]  # code -1, a null, picks the last


class Privatizer:
    """Sanitizes columns under one release's mechanism, policy and noise.

    What a row becomes is a pure function of the key, the row's id and its content; batches, their
    order and their sizes do not matter.

    Args:
        embedding: The embedding bundle.
        mechanism: The configured mechanism.
        noise: The release's noise; by default from a fresh key that is never written.
        policy: Treatment of unknown and unprotected words; by default all words are protected and
            unknown ones masked.
        search: How released words are searched, and how many there are; by default exactly, and all that the
            bundle allows.

    Raises:
        ConfigError: The parts do not go together.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        mechanism: Mechanism,
        noise: ReleaseNoise | None = None,
        policy: TextPolicy | None = None,
        search: Search | None = None,
    ) -> None:
        self.embedding = embedding
        self.mechanism = mechanism
        self.policy = policy or TextPolicy()
        self.search = search or ExactSearch.over(embedding)
        self._noise = noise or mechanism.release_noise(
            NoiseKey.generate(), salt="", embedding=embedding, search=self.search
        )
        self._perturb = mechanism.bind(embedding, self.search)

    def sanitize(
        self,
        values: pa.Array,
        ids: pa.Array,
        *,
        column: str,
        slots: pa.Array | None = None,
        positions: NDArray[np.int64] | None = None,
    ) -> Sanitized:
        """Sanitize rows of one column.

        Args:
            values: Texts (string) or token lists (list of string); null stays null.
            ids: Row ids, integers or strings, unique in the whole table, without nulls.
            column: The column's name, which keeps its noise apart from other columns'.
            slots: Slots of each row, for the policy ``slots:COLUMN``.
            positions: int64 (rows, arrays), for values that are elements of arrays and share their row's
                id: the place of each in those arrays, as :class:`~dptext_spark.text.nested.Leaves` has it.

        Raises:
            InputError: Types or lengths are wrong, an id is null, a text is not Unicode, or a word is
                unknown under the policy ``fail``.
            BundleError: The bundle was changed since it was opened.
        """
        column_kind(values.type, column)
        check_unicode(values, column)
        names = _names(ids, positions)
        if len(ids) != len(values) or (slots is not None and len(slots) != len(values)):
            raise InputError(
                f"Column {column} has other rows than its ids or slots",
                got=f"{len(values)} rows, {len(ids)} ids",
            )
        parts = [
            self._sanitize(values[part], names[part], column, None if slots is None else slots[part])
            for part in slices(values)
        ]
        self.embedding.check_unchanged()
        if not parts:
            return Sanitized(values=values, counts=Counts(**{name: _NO_ROWS for name in COUNTERS}))
        counts = {name: np.concatenate([getattr(p.counts, name) for p in parts]) for name in COUNTERS}
        return Sanitized(values=pa.concat_arrays([p.values for p in parts]), counts=Counts(**counts))

    def _sanitize(
        self, values: pa.Array, names: list[Name], column: str, slots: pa.Array | None
    ) -> Sanitized:
        words = Words.of(values)
        found = look_up(words, self.embedding)
        blank = (words.codes < 0) | words.flag(lambda word: not word)
        unprotected = ~blank & ~self._protected(words, slots)
        known = (found >= 0) & ~blank & ~unprotected
        unknown = (found < 0) & ~blank & ~unprotected
        if self.policy.oov == Oov.FAIL and unknown.any():
            raise InputError(
                f"Column {column} has words outside the vocabulary, which --oov fail forbids",
                allowed="words of the embedding bundle",
                got=f"{int(unknown.sum())} unknown words in one batch of rows",
                do="Choose another --oov policy or a bundle with a larger vocabulary",
            )
        released = self._release(words, found, known, unknown, _Draws(names, words), column)
        values = words.assemble(
            released,
            self.embedding.words,
            raw=blank | unprotected | (unknown & (self.policy.oov == Oov.KEEP_UNPROTECTED)),
            drop=unknown & (self.policy.oov == Oov.DROP),
        )
        counts = Counts(
            tokens=np.diff(words.offsets),
            replaced=words.count(known & (released != found)),
            unchanged=words.count(known & (released == found)),
            unprotected=words.count(unprotected),
            out_of_vocabulary=words.count(unknown),
            blank=words.count(blank),
        )
        return Sanitized(values=values, counts=counts)

    def _protected(self, words: Words, slots: pa.Array | None) -> NDArray[np.bool_]:
        if self.policy.protect == "all":
            return np.ones(len(words), dtype=np.bool_)
        if self.policy.protect == "content":
            return ~words.flag(lambda word: match_form(word, lower=True) in stop_words())
        if slots is None:
            raise InputError(
                f"The policy {self.policy.protect} needs the slots of each row",
                do=f"Give the values of column {self.policy.slots_column}",
            )
        rows = zip(words.row_words(), slots.to_pylist(), strict=True)
        flags = [flag for row, row_slots in rows for flag in protected_by_slots(row, row_slots)]
        return np.array(flags, dtype=np.bool_)

    def _release(
        self,
        words: Words,
        found: NDArray[np.int64],
        known: NDArray[np.bool_],
        unknown: NDArray[np.bool_],
        draws: _Draws,
        column: str,
    ) -> NDArray[np.int64]:
        """int64 (words,): the row of each released word, -1 where the policy releases none."""
        released = np.full(len(words), -1, dtype=np.int64)
        noise = self._noise.column(
            column,
            purpose=f"{words.kind} word",
            words_per_position=self.mechanism.uniforms_per_token(self.embedding.dimension),
        )
        for chunk in _chunks(known, noise):
            released[chunk] = self._perturb(found[chunk], draws.uniforms(noise, chunk))
        if self.policy.oov == Oov.RANDOM:
            noise = self._noise.column(column, purpose=f"unknown {words.kind} word", words_per_position=1)
            for chunk in _chunks(unknown, noise):
                released[chunk] = draws.uniforms(noise, chunk)[:, 0] * self.search.release_words
        return released


_NO_ROWS: Final = np.zeros(0, dtype=np.int64)

Name = tuple[bytes, ...]
"""What names a text: its row's id and, inside arrays, its place in them. Two lengths never collide."""


def _names(ids: pa.Array, positions: NDArray[np.int64] | None) -> list[Name]:
    if positions is None or positions.shape[1] == 0:
        return [(row_id,) for row_id in id_bytes(ids)]
    places = positions.astype("<i8")
    return [(row_id, place.tobytes()) for row_id, place in zip(id_bytes(ids), places, strict=True)]


def _chunks(flags: NDArray[np.bool_], noise: ColumnNoise) -> Iterator[NDArray[np.int64]]:
    """Cut the flagged words into chunks: the less noise a word takes, the more of them."""
    chosen, size = np.flatnonzero(flags), max(CHUNK, _CHUNK_UNIFORMS // noise.words_per_position)
    return (chosen[start : start + size] for start in range(0, len(chosen), size))


class _Draws:
    """The keyed uniforms of the words of a slice of rows."""

    def __init__(self, names: list[Name], words: Words) -> None:
        self._names = names
        self._words = words
        self._last: tuple[ColumnNoise, int, bytes] | None = None

    def uniforms(self, noise: ColumnNoise, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64 (t, words_per_position): uniforms of the chosen words (ascending, int64 (t,))."""
        rows = self._words.rows[chosen]
        positions = chosen - self._words.offsets[rows]
        out = np.empty((len(chosen), noise.words_per_position), dtype=np.uint64)
        # One cipher serves each run of neighbouring words of a row.
        borders = (np.diff(chosen) != 1) | (np.diff(rows) != 0)
        starts = np.concatenate([[0], np.flatnonzero(borders) + 1, [len(chosen)]])
        for start, stop in pairwise(starts.tolist()):
            key = self._row_key(noise, int(rows[start]))
            noise.fill(out[start:stop], key, int(positions[start]))
        return to_uniform(out)

    def _row_key(self, noise: ColumnNoise, row: int) -> bytes:
        """Derive a row's key once, however many chunks a long row is cut into."""
        if self._last is None or self._last[:2] != (noise, row):
            row_id, *place = self._names[row]
            key = noise.row_key(row_id, (*place, *self._words.row_content(row)))
            self._last = (noise, row, key)
        return self._last[2]
