"""Texts in, sanitized texts out, in NumPy and Arrow: the main flow, free of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.counts import Counts, CountT
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.lookup import TokenLookup
from dptext_spark.mechanisms.mechanism import Perturbation
from dptext_spark.noise import ColumnNoise, NoiseKey, ReleaseNoise, to_uniform
from dptext_spark.release import Release
from dptext_spark.text.columns import DROP, KEEP, MARK, MASK, id_bytes
from dptext_spark.text.identifiers import MARKS
from dptext_spark.text.layout import assemble
from dptext_spark.text.policies import UnknownTokens
from dptext_spark.text.python_columns import PythonColumn, as_arrow

# Tokens perturbed at once, or more where they take little noise: enough for BLAS to run at full speed, and
# 5 MB of noise.
CHUNK: Final = 2048
_CHUNK_UNIFORMS: Final = 300 * CHUNK


@dataclass(frozen=True, kw_only=True)
class TokenCounts(Counts[CountT]):
    """What was done to the tokens of a column."""

    shown = ("tokens", "dropped")

    tokens: CountT  # the sum of the next five, and of all marks
    replaced: CountT  # perturbed into another word
    unchanged: CountT  # perturbed into themselves
    unprotected: CountT  # released as they are because the policy leaves them out
    out_of_vocabulary: CountT  # treated by the policy
    blank: CountT  # null or empty elements of a token column, passed as they are
    dropped: CountT  # tokens outside the vocabulary that the policy leaves out
    kept_characters: CountT  # that the layout lets pass between words, single spaces apart
    kept_capitals: CountT  # released words that the layout gives the capitals of the tokens in their places
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


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """A sanitized column: values of the input's type, and what was done to each row."""

    values: pa.Array
    counts: TokenCounts[NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Sanitizer:
    """Sanitizes columns of one release; small and picklable, it binds its mechanism when it is first used.

    What a row becomes is a pure function of the key, the row's id and its content, whatever its batch.
    """

    counts: ClassVar = TokenCounts
    release: Release
    noise: ReleaseNoise = field(repr=False)  # of a derived key: the user's stays on the driver
    surrogates: NoiseKey | None = field(default=None, repr=False)  # derived too, the same for all releases

    @classmethod
    def open(cls, release: Release, key: NoiseKey | None = None) -> Self:
        """Get ready to sanitize under the user's key; by default under a fresh one that is never kept."""
        surrogates = release.policy.identifiers.key(key)
        return cls(release=release, noise=release.noise(key), surrogates=surrogates)

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # nothing that is bound

    @cached_property
    def embedding(self) -> Embedding:
        """The open embedding."""
        return self.release.embedding

    @property
    def by_words(self) -> bool:
        """Whether what becomes of a row depends on its number of words in all columns together."""
        return self.release.row_epsilons is not None

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
            InputError: Types or lengths are wrong, an id is null, a text is not Unicode, the policy refuses
                a token, or what comes out is too long.
            BundleError: The bundle was changed since it was opened.
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
        return Sanitized(values=released, counts=TokenCounts.concat(part.counts for part in parts))

    def contexts(
        self, values: PythonColumn, ids: PythonColumn, *, column: str, **of_rows: Any
    ) -> Iterator[tuple[tuple[bytes | memoryview, ...], bytes]]:
        """Give what :meth:`sanitize`, with the same arguments, draws the noise of each value from.

        That is for each value its content, and the secret key of its noise. Two values have one key if and
        only if they get the same noise, and then they have the same tokens in the same places.
        """
        values = as_arrow(values, f"Column {column}")
        for run in self._runs(values, ids, column, **of_rows):
            draws = self._draws(run, column)
            for row in range(len(run.names)):
                yield run.lookup.tokens.row_content(row), draws.row_key(row)

    def visible_words(
        self, values: PythonColumn, slots: PythonColumn | None = None, *, column: str = "to be sanitized"
    ) -> NDArray[np.int64]:
        """int64 (rows,): count the words that outputs show; see :meth:`WordReader.visible_words`."""
        values = as_arrow(values, f"Column {column}")
        return self.release.reader.visible_words(values, _slots(slots), column=column)

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
        slots, ids = _slots(slots), as_arrow(ids, "The column of row ids")
        names: list[tuple[bytes, ...]] = [(row_id,) for row_id in id_bytes(ids)]
        if len(ids) != len(values) or (slots is not None and len(slots) != len(values)):
            got = f"{len(values)} rows, {len(ids)} ids"
            raise InputError(f"Column {column} has other rows than its ids or slots", got=got)
        if positions is not None and positions.shape[1]:
            places = positions.astype("<i8")
            names = [(*name, place.tobytes()) for name, place in zip(names, places, strict=True)]
        epsilons = None
        if self.release.row_epsilons is not None:
            words = self.visible_words(values, slots) if words is None else words
            epsilons = self.release.row_epsilons.of_rows(words)
            # Equal rows that differ in another column have other epsilons, and must not share noise.
            own = epsilons.astype("<f8")
            names = [(*name, epsilon.tobytes()) for name, epsilon in zip(names, own, strict=True)]
        for lookup in self.release.reader.runs(values, slots, column=column):
            own_epsilons = None if epsilons is None else epsilons[lookup.rows]
            yield _Run(lookup=lookup, names=names[lookup.rows], epsilons=own_epsilons)

    def _draws(self, run: _Run, column: str, unknown: int = 0) -> _Draws:
        """Give the noise of known tokens, or that of ``unknown`` ones, which take so many uniforms each."""
        width = unknown or self.release.mechanism.uniforms_per_token(self.embedding.dimension)
        units = ", ".join(filter(None, [run.lookup.tokens.units, self.release.policy.marks_identity]))
        purpose = f"unknown {units}" if unknown else units
        return _Draws(self.noise.column(column, purpose=purpose, uint64s_per_token=width), run)

    def _sanitize(self, run: _Run, column: str) -> Sanitized:
        tokens, lookup = run.lookup.tokens, run.lookup
        known, unknown = lookup.known, lookup.unknown
        released = np.full(len(tokens), MASK, dtype=np.int64)
        if unknown.any():
            chosen = np.flatnonzero(unknown)
            released[chosen] = self.release.policy.oov.release(
                UnknownTokens(
                    column=column,
                    count=len(chosen),
                    release_words=self.release.search.release_words,
                    uniforms=lambda k: (own for _, own in self._draws(run, column, k).chunks(chosen)),
                )
            )
        for chunk, uniforms in self._draws(run, column).chunks(np.flatnonzero(known)):
            epsilons = None if run.epsilons is None else run.epsilons[tokens.rows[chunk]]
            words = self._perturb(lookup.word_ids[chunk], uniforms, epsilons)
            # Where a mechanism gives no word the placeholder stands, never the token itself.
            released[chunk] = np.maximum(words, MASK)
        released[~lookup.protected] = KEEP
        released[lookup.marks >= 0] = MARK
        marks = lookup.stand_ins(self.surrogates)
        assembled = assemble(tokens, released, self.embedding.words, self.release.policy.layout, marks)
        counts = TokenCounts(
            tokens=np.diff(tokens.offsets),
            replaced=tokens.count(known & (released != lookup.word_ids)),
            unchanged=tokens.count(known & (released == lookup.word_ids)),
            unprotected=tokens.count(~lookup.protected & ~lookup.blank & (lookup.marks < 0)),
            out_of_vocabulary=tokens.count(unknown),
            blank=tokens.count(lookup.blank),
            dropped=tokens.count(released == DROP),
            kept_characters=assembled.characters,
            kept_capitals=assembled.capitals,
            **{kind: tokens.count(lookup.marks == place) for place, kind in enumerate(MARKS)},
        )
        return Sanitized(values=assembled.values, counts=counts)


def _slots(slots: PythonColumn | None) -> pa.Array | None:
    return None if slots is None else as_arrow(slots, "The column of slots")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class _Run:
    """A run of rows of a column: their tokens, and their epsilons under a row budget.

    A name is a row's id, inside arrays its place in them, under a row budget its epsilon: two lengths never
    collide.
    """

    lookup: TokenLookup
    names: list[tuple[bytes, ...]]
    epsilons: NDArray[np.float64] | None


@dataclass(eq=False, repr=False)  # it holds keys
class _Draws:
    """The keyed uniforms of the tokens of a run of rows, for one purpose."""

    noise: ColumnNoise
    run: _Run
    _last: tuple[int, bytes] = (-1, b"")

    def chunks(self, chosen: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Cut chosen tokens, ascending, into chunks with their uniforms, float64 (t, uint64s_per_token).

        The less noise a token takes, the longer they are.
        """
        tokens, width = self.run.lookup.tokens, self.noise.uint64s_per_token
        size = max(CHUNK, _CHUNK_UNIFORMS // width)
        for first in range(0, len(chosen), size):
            chunk = chosen[first : first + size]
            rows = tokens.rows[chunk]
            positions = chunk - tokens.offsets[rows]
            out = np.empty((len(chunk), width), dtype=np.uint64)
            # One cipher serves each run of neighbouring tokens of a row.
            borders = (np.diff(chunk) != 1) | (np.diff(rows) != 0)
            starts = np.concatenate([[0], np.flatnonzero(borders) + 1, [len(chunk)]])
            for start, stop in pairwise(starts.tolist()):
                self.noise.fill(out[start:stop], self.row_key(int(rows[start])), int(positions[start]))
            yield chunk, to_uniform(out)

    def row_key(self, row: int) -> bytes:
        """Derive the key of a row's noise, once however many chunks a long row is cut into."""
        if self._last[0] != row:
            row_id, *place = self.run.names[row]
            content = self.run.lookup.tokens.row_content(row)
            self._last = (row, self.noise.row_key(row_id, (*place, *content)))
        return self._last[1]
