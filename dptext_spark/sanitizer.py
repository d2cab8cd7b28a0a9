"""Texts in, sanitized texts out, in NumPy and Arrow: the main flow, free of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import compress, pairwise
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.mechanisms.mechanism import Perturbation
from dptext_spark.noise import ColumnNoise, NoiseKey, ReleaseNoise, to_uniform
from dptext_spark.release import Release
from dptext_spark.text.columns import (
    DROP,
    KEEP,
    MARK,
    MASK,
    PythonColumn,
    Tokens,
    as_arrow,
    id_bytes,
)
from dptext_spark.text.identifiers import MARKS
from dptext_spark.text.layout import assemble
from dptext_spark.text.tokens import straight, token_spans
from dptext_spark.word_reader import TokenLookup

# Tokens perturbed at once, or more where they take little noise: enough for BLAS to run at full
# speed, and 5 MB of noise.
CHUNK: Final = 2048
_CHUNK_UNIFORMS: Final = 300 * CHUNK


CountT = TypeVar("CountT", NDArray[np.int64], int)


class TokenCounts(NamedTuple, Generic[CountT]):
    """What was done to the tokens of a column: int64 (rows,) each, or the sums."""

    tokens: CountT  # the sum of the next five, and of all marks
    replaced: CountT  # perturbed into another word
    unchanged: CountT  # perturbed into themselves
    unprotected: CountT  # released as they are because the policy leaves them out
    out_of_vocabulary: CountT  # treated by the policy
    blank: CountT  # null or empty elements of a token column, passed as they are
    dropped: CountT  # tokens outside the vocabulary that the policy leaves out
    # Marks of each type.
    email: CountT
    url: CountT
    iban: CountT
    card: CountT
    ip: CountT
    date: CountT
    phone: CountT
    number: CountT
    mask: CountT  # of the column of spans


class Sanitized(NamedTuple):
    """A sanitized column: values of the input's type, and what was done to each row."""

    values: pa.Array
    counts: TokenCounts[NDArray[np.int64]]
    # Row and word id of each token that was perturbed into itself, int64 (2, tokens).
    unchanged: NDArray[np.int64]


class Context(NamedTuple):
    """What a value's noise is drawn from, and its tokens that go out raw, with their places."""

    key: bytes  # secret; values with one key get one noise, and have equal tokens in equal places
    unprotected: list[tuple[int, str]]
    unknown: list[tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class Sanitizer:
    """Sanitizes columns of one release; small and picklable, it binds its mechanism when it is first used.

    What a row becomes is a pure function of the key, the row's id and its content, whatever its
    batch.
    """

    counts: ClassVar = TokenCounts
    release: Release
    noise: ReleaseNoise = field(repr=False)  # of a derived key: the user's stays on the driver
    surrogates: NoiseKey | None = field(
        default=None, repr=False
    )  # derived too, the same for all releases

    @classmethod
    def open(cls, release: Release, key: NoiseKey | None = None) -> Self:
        """Get ready to sanitize under the user's key; by default under a fresh one that is never kept."""
        surrogates = release.policy.identifiers.key(key)
        return cls(release=release, noise=release.noise(key), surrogates=surrogates)

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # nothing that is bound

    @cached_property
    def embedding(self) -> Embedding:
        return self.release.embedding

    @property
    def visible_words(self) -> Callable[..., NDArray[np.int64]] | None:
        """:meth:`WordReader.visible_words`, if the words of all columns together decide on a row's noise."""
        return None if self.release.row_epsilons is None else self.release.reader.visible_words

    @cached_property
    def _perturb(self) -> Perturbation:
        return self.release.mechanism.bind(self.embedding, self.release.search)

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

        Values, ids and slots may be Arrow arrays (chunked ones too), pandas Series, NumPy arrays or
        lists.

        Args:
            values: Texts (string) or token lists (list of string); null, None and NaN stay null.
            ids: Row ids, integers or strings, unique in the whole table, without nulls.
            slots: For the policy ``slots:COLUMN``: structs with ``start`` and ``end``, in code
                points of text or elements of token lists, the end exclusive.
            positions: int64 (rows, arrays), for values that are elements of arrays and share their
                row's id: the place of each in those arrays; see
                :class:`~dptext_spark.tables.batch.FieldValues`.
            words: int64 (rows,), for a row budget: how many words each row has in all columns and
                arrays of the release, as :meth:`visible_words` counts them; by default those of
                this column.
        """
        values = as_arrow(values, f"Column {column}")
        runs = self._runs(values, ids, column, slots, positions, words)
        try:
            parts = [self._sanitize(run, column) for run in runs]
            released = pa.concat_arrays([part.values for part in parts] or [values])
        except (pa.ArrowCapacityError, pa.ArrowInvalid) as error:
            if isinstance(error, pa.ArrowInvalid) and "overflow" not in str(error):
                raise
            raise InputError(
                f"Column {column} has too much text for one Arrow array once its words are replaced",
                allowed="2 GB in the rows that are sanitized at once, and in each row",
                do="Cut long rows into several, or sanitize fewer rows at once",
            ) from None
        self.embedding.check_unchanged()
        nothing = np.zeros((len(TokenCounts._fields), 0), dtype=np.int64)
        counts = np.concatenate([nothing, *(part.counts for part in parts)], axis=1)
        nowhere = np.zeros((2, 0), dtype=np.int64)
        unchanged = np.concatenate([nowhere, *(part.unchanged for part in parts)], axis=1)
        return Sanitized(values=released, counts=TokenCounts(*counts), unchanged=unchanged)

    def contexts(
        self, values: PythonColumn, ids: PythonColumn, *, column: str, **of_rows: Any
    ) -> Iterator[Context]:
        """Yield for each value the key of its noise in :meth:`sanitize`, and what goes out raw."""
        for lookup, names, _ in self._runs(
            as_arrow(values, f"Column {column}"), ids, column, **of_rows
        ):
            tokens = lookup.tokens
            noise = self._noise(tokens, column)
            unprotected = _placed(tokens, lookup.passing)
            keeps_unknown = self.release.policy.oov.stand_in == KEEP
            unknown = _placed(tokens, lookup.unknown & keeps_unknown)
            for row, (row_id, *place) in enumerate(names):
                key = noise.row_key(row_id, (*place, *tokens.row_content(row)))
                yield Context(
                    key=key, unprotected=unprotected.get(row, []), unknown=unknown.get(row, [])
                )

    def _runs(
        self,
        values: pa.Array,
        ids: PythonColumn,
        column: str,
        slots: PythonColumn | None = None,
        positions: NDArray[np.int64] | None = None,
        words: NDArray[np.int64] | None = None,
    ) -> Iterator[_Run]:
        """Cut a column into runs of rows, each with all that its noise is drawn from."""
        ids = as_arrow(ids, "The column of row ids")
        slots = None if slots is None else as_arrow(slots, "The column of slots")
        names: list[tuple[bytes, ...]] = [(row_id,) for row_id in id_bytes(ids)]
        if len(ids) != len(values) or (slots is not None and len(slots) != len(values)):
            got = f"{len(values)} rows, {len(ids)} ids"
            raise InputError(f"Column {column} has other rows than its ids or slots", got=got)
        if positions is not None and positions.shape[1]:
            places = positions.astype("<i8")
            names = [(*name, place.tobytes()) for name, place in zip(names, places, strict=True)]
        epsilons = None
        if self.release.row_epsilons is not None:
            words = self.release.reader.visible_words(values, slots) if words is None else words
            epsilons = self.release.row_epsilons.of_rows(words)
            # Equal rows that differ in another column have other epsilons, and must not share
            # noise.
            own = epsilons.astype("<f8")
            names = [(*name, epsilon.tobytes()) for name, epsilon in zip(names, own, strict=True)]
        for lookup in self.release.reader.runs(values, slots, column=column):
            yield lookup, names[lookup.rows], None if epsilons is None else epsilons[lookup.rows]

    def _noise(self, tokens: Tokens, column: str, unknown: int = 0) -> ColumnNoise:
        """Give the noise of known tokens, or that of ``unknown`` ones, which take so many uniforms each."""
        width = unknown or self.release.mechanism.uniforms_per_token(self.embedding.dimension)
        policy = self.release.policy
        # The vocabulary's joined words are in the noise's context by the bundle's fingerprint.
        cut = policy.tokenizer.identity if tokens.kind == "text" else ""
        units = ", ".join(filter(None, [f"{tokens.kind} word", cut, policy.marks_identity]))
        purpose = f"unknown {units}" if unknown else units
        return self.noise.column(column, purpose=purpose, uint64s_per_token=width)

    def _sanitize(self, run: _Run, column: str) -> Sanitized:
        lookup, names, epsilons = run
        policy, tokens, known, unknown = (
            self.release.policy,
            lookup.tokens,
            lookup.known,
            lookup.unknown,
        )
        released = np.full(len(tokens), MASK, dtype=np.int64)
        if unknown.any():
            chosen = np.flatnonzero(unknown)

            def uniforms(count: int) -> Iterator[NDArray[np.float64]]:
                noise = self._noise(tokens, column, count)
                return (drawn for _, drawn in _draws(noise, tokens, names, chosen))

            words = self.release.search.release_words
            released[chosen] = policy.oov.release(len(chosen), words, uniforms, column)
        noise = self._noise(tokens, column)
        for chunk, drawn in _draws(noise, tokens, names, np.flatnonzero(known)):
            own = None if epsilons is None else epsilons[tokens.rows[chunk]]
            # Where a mechanism gives no word the placeholder stands, never the token itself.
            released[chunk] = np.maximum(self._perturb(lookup.word_ids[chunk], drawn, own), MASK)
        released[~lookup.protected] = KEEP
        released[lookup.marks >= 0] = MARK
        stand_ins = [
            None if kind is None else policy.identifiers.stand_in(kind, token, self.surrogates)
            for kind, token in zip(lookup.kinds, tokens.distinct.to_pylist(), strict=True)
        ]
        is_same = known & (released == lookup.word_ids)
        same = np.flatnonzero(is_same)
        counts = TokenCounts(
            tokens=np.diff(tokens.offsets),
            replaced=tokens.count(known & (released != lookup.word_ids)),
            unchanged=tokens.count(is_same),
            unprotected=tokens.count(~lookup.protected & ~lookup.blank & (lookup.marks < 0)),
            out_of_vocabulary=tokens.count(unknown),
            blank=tokens.count(lookup.blank),
            dropped=tokens.count(released == DROP),
            **{kind: tokens.count(lookup.marks == place) for place, kind in enumerate(MARKS)},
        )
        return Sanitized(
            values=assemble(tokens, released, self.embedding.words, policy.layout, stand_ins),
            counts=counts,
            unchanged=np.stack([tokens.rows[same] + lookup.rows.start, lookup.word_ids[same]]),
        )


_Run: TypeAlias = tuple[TokenLookup, list[tuple[bytes, ...]], NDArray[np.float64] | None]
"""A run of rows of a column: their tokens, names and, under a row budget, epsilons.

A name is a row's id, inside arrays its place in them, under a row budget its epsilon: two lengths
never collide.
"""


def _placed(tokens: Tokens, flags: NDArray[np.bool_]) -> dict[int, list[tuple[int, str]]]:
    """Return, by row, the flagged tokens and where they start in their text or list."""
    flagged = set(tokens.rows[flags].tolist())
    placed: dict[int, list[tuple[int, str]]] = {}
    for row, words in enumerate(tokens.row_tokens() if flagged else ()):
        if row not in flagged:
            continue
        cut = [word or "" for word in words]
        starts = list(range(len(cut)))
        if tokens.kind == "text":
            starts = [start for start, _ in token_spans(straight(tokens.strings[row] or ""), cut)]
        of_row = flags[tokens.offsets[row] : tokens.offsets[row + 1]]
        placed[row] = [*compress(zip(starts, cut, strict=True), of_row)]
    return placed


def _draws(
    noise: ColumnNoise,
    tokens: Tokens,
    names: Sequence[tuple[bytes, ...]],
    chosen: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Cut chosen tokens, ascending, into chunks with their uniforms, float64 (t, uint64s_per_token).

    The less noise a token takes, the longer they are.
    """

    @lru_cache(maxsize=1)  # however many chunks a long row is cut into
    def row_key(row: int) -> bytes:
        row_id, *place = names[row]
        return noise.row_key(row_id, (*place, *tokens.row_content(row)))

    size = max(CHUNK, _CHUNK_UNIFORMS // noise.uint64s_per_token)
    for first in range(0, len(chosen), size):
        chunk = chosen[first : first + size]
        rows = tokens.rows[chunk]
        positions = chunk - tokens.offsets[rows]
        out = np.empty((len(chunk), noise.uint64s_per_token), dtype=np.uint64)
        # One cipher serves each run of neighbouring tokens of a row.
        borders = np.flatnonzero((np.diff(chunk) != 1) | (np.diff(rows) != 0)) + 1
        for start, stop in pairwise([0, *borders.tolist(), len(chunk)]):
            noise.fill(out[start:stop], row_key(int(rows[start])), int(positions[start]))
        yield chunk, to_uniform(out)
