"""Texts in, sanitized texts out, in NumPy and Arrow: the main flow, free of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, partial
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.arguments import must_be, naming_arguments
from dptext_spark.display import Displayed
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.mechanisms.mechanism import Perturbation
from dptext_spark.noise import ColumnNoise, NoiseKey, ReleaseNoise, to_uniform
from dptext_spark.release import Release
from dptext_spark.text.actions import Action, Mask, Span
from dptext_spark.text.columns import (
    DROP,
    KEEP,
    MASK,
    PythonColumn,
    Tokens,
    as_arrow,
    check_lengths,
    check_unique,
    id_bytes,
)
from dptext_spark.text.layout import assemble
from dptext_spark.text.patterns.names import USER
from dptext_spark.text.pieces import count_pieces
from dptext_spark.text.tokens import straight, token_spans
from dptext_spark.word_reader import MARK_CODES, TokenLookup

# Tokens perturbed at once, or more where they take little noise: enough for BLAS to run at full
# speed, and 5 MB of noise.
CHUNK: Final = 2048
_CHUNK_UNIFORMS: Final = 300 * CHUNK


MASKED: Final = Mask()
"""The action of spans that a column names."""
_OPEN: Final = "Make one with Release.open(embedding=..., mechanism=Laplace(epsilon=8))"
_COLUMN: Final = "Write column='text': the noise depends on this name"

CountT = TypeVar("CountT", NDArray[np.int64], int)


class TokenCounts(NamedTuple, Generic[CountT]):
    """What was done to the tokens of a column: int64 (rows,) each, or the sums."""

    tokens: CountT  # the sum of the next five, and of all marks
    replaced: CountT  # perturbed into another word
    unchanged: CountT  # perturbed into themselves
    unprotected: CountT  # released as they are because the policy leaves them out
    out_of_vocabulary: CountT  # treated by the policy
    blank: CountT  # null or empty elements of a token column, passed as they are
    dropped: CountT  # tokens that the policy leaves out
    # Marks of each type.
    email: CountT
    url: CountT
    iban: CountT
    card: CountT
    ip: CountT
    date: CountT
    phone: CountT
    mac: CountT
    path: CountT
    handle: CountT
    time: CountT
    coordinates: CountT
    age: CountT
    ssn: CountT
    nino: CountT
    dni: CountT
    fiscale: CountT
    nir: CountT
    cpf: CountT
    pesel: CountT
    steuerid: CountT
    bsn: CountT
    nhs: CountT
    code: CountT
    number: CountT
    mask: CountT  # of the column of spans
    user: CountT  # of types of a user's own
    # Places of the released values that look like pieces of identifiers, by ``PIECES``.
    left_figures: CountT
    left_signs: CountT
    left_codes: CountT


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


class Run(NamedTuple):
    """A run of rows of a column, with all that their noise is drawn from."""

    lookup: TokenLookup
    row_names: list[tuple[bytes, ...]]
    """A row's id, inside arrays its place in them, under a row budget its epsilon.

    Two lengths never collide.
    """
    epsilons: NDArray[np.float64] | None  # (rows,), under a row budget
    owners: list[bytes]  # the row's id, or what names its person


@dataclass(frozen=True, kw_only=True, repr=False)
class Sanitizer(Displayed):
    """Sanitizes columns of one release; small and picklable.

    It binds its mechanism when it is first used. What a row becomes is a pure function of the key,
    the row's id and its content, whatever its batch.
    """

    counters: ClassVar = TokenCounts
    release: Release
    noise: ReleaseNoise = field(repr=False)  # of a derived key: the user's stays on the driver
    # Derived too, the same for all releases; of the actions that have keys.
    action_keys: tuple[tuple[Action, NoiseKey], ...] = field(default=(), repr=False)

    @classmethod
    @naming_arguments()
    def open(cls, release: Release, key: NoiseKey | Path | str | None = None) -> Self:
        """Create a sanitizer from the user's key or its file, or from a fresh, discarded key."""
        if not isinstance(release, Release):
            raise must_be("release", "a Release", release, _OPEN)
        key = NoiseKey.of(key)
        action_keys = {}
        for action in dict.fromkeys(release.policy.actions.values()):
            action_key = action.key(key)
            if action_key is not None:
                action_keys[action] = action_key
        return cls(
            release=release, noise=release.noise(key), action_keys=tuple(action_keys.items())
        )

    def blocks(self) -> Iterator[Any]:
        """Yield what shows its release."""
        return self.release.blocks()

    def __getstate__(self) -> dict[str, object]:
        return {part.name: getattr(self, part.name) for part in fields(self)}  # nothing bound

    @cached_property
    def embedding(self) -> Embedding:
        return self.release.embedding

    @property
    def visible_words(self) -> Callable[..., NDArray[np.int64]] | None:
        """:meth:`WordReader.visible_words`, if the words of all columns decide on a row's noise."""
        if self.release.row_epsilons is None:
            return None
        return self.release.reader.visible_words

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
        persons: PythonColumn | None = None,
        trust_id: bool = False,
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
            persons: What names the person of each row, for dates that are moved together; without
                it, and where it is null, the row's id.
            trust_id: Take ids that repeat, as those of array elements may. Rows of one id show
                whether their texts are equal.
        """
        if not isinstance(column, str):
            raise must_be("column", "the name of the column", column, _COLUMN)
        values = as_arrow(values, f"Column {column}")
        ids = as_arrow(ids, "The column of row ids")
        if not trust_id and positions is None:
            check_unique(ids)
        runs = self._runs(values, ids, column, slots, positions, words, persons)
        arrays = []
        counts = [np.zeros((len(TokenCounts._fields), 0), dtype=np.int64)]
        unchanged = [np.zeros((2, 0), dtype=np.int64)]
        try:
            for run in runs:
                part = self._sanitize(run, column)
                arrays.append(part.values)
                counts.append(np.array(part.counts))
                unchanged.append(part.unchanged)
            released = pa.concat_arrays(arrays or [values])
        except (pa.ArrowCapacityError, pa.ArrowInvalid) as error:
            if isinstance(error, pa.ArrowInvalid) and "overflow" not in str(error):
                raise
            raise InputError(
                f"Column {column} has too much text for one Arrow array once its words are "
                "replaced",
                allowed="2 GB in the rows that are sanitized at once, and in each row",
                do="Cut long rows into several, or sanitize fewer rows at once",
            ) from None
        self.embedding.check_unchanged()
        return Sanitized(
            values=released,
            counts=TokenCounts(*np.concatenate(counts, axis=1)),
            unchanged=np.concatenate(unchanged, axis=1),
        )

    def contexts(
        self, values: PythonColumn, ids: PythonColumn, *, column: str, **of_rows: Any
    ) -> Iterator[Context]:
        """Yield for each value its noise's key in :meth:`sanitize`, and what is released raw."""
        values = as_arrow(values, f"Column {column}")
        for run in self._runs(values, ids, column, **of_rows):
            lookup = run.lookup
            tokens = lookup.tokens
            noise = self._word_noise(tokens, column)
            unprotected = _placed(tokens, lookup.passing)
            keeps_unknown = self.release.policy.oov.stand_in == KEEP
            unknown = _placed(tokens, lookup.unknown & keeps_unknown)
            for row, row_name in enumerate(run.row_names):
                yield Context(
                    key=_row_key(noise, tokens, row, row_name),
                    unprotected=unprotected.get(row, []),
                    unknown=unknown.get(row, []),
                )

    def _runs(
        self,
        values: pa.Array,
        ids: PythonColumn,
        column: str,
        slots: PythonColumn | None = None,
        positions: NDArray[np.int64] | None = None,
        words: NDArray[np.int64] | None = None,
        persons: PythonColumn | None = None,
    ) -> Iterator[Run]:
        """Yield a column in runs of rows, each with all that its noise is drawn from."""
        ids = as_arrow(ids, "The column of row ids")
        if slots is not None:
            slots = as_arrow(slots, "The column of slots")
        owners = id_bytes(ids)
        row_names: list[tuple[bytes, ...]] = [(row_id,) for row_id in owners]
        is_of_owner = any(action.of_owner for action in self.release.policy.actions.values())
        if persons is not None and is_of_owner:
            owners = _owners(as_arrow(persons, "The column of persons"), owners)
        check_lengths(column, len(values), len(ids), "id")
        if slots is not None:
            check_lengths(column, len(values), len(slots), "slot row")
        if positions is not None and positions.shape[1]:
            row_names = _extended(row_names, positions.astype("<i8"))
        epsilons = None
        if self.release.row_epsilons is not None:
            if words is None:
                words = self.release.reader.visible_words(values, slots)
            epsilons = self.release.row_epsilons.of_rows(words)
            # Equal rows that differ in another column have other epsilons, and must not share
            # noise.
            row_names = _extended(row_names, epsilons.astype("<f8"))
        for lookup in self.release.reader.runs(values, slots, column=column):
            rows = lookup.rows
            yield Run(
                lookup=lookup,
                row_names=row_names[rows],
                epsilons=None if epsilons is None else epsilons[rows],
                owners=owners[rows],
            )

    def _sanitize(self, run: Run, column: str) -> Sanitized:
        """Sanitize a run of rows."""
        lookup = run.lookup
        tokens = lookup.tokens
        policy = self.release.policy
        released = self._released(run, column)
        stand_ins, of_places = self._stand_ins(run)
        is_same = lookup.known & (released == lookup.token_ids)
        same = np.flatnonzero(is_same)
        marks: dict[str, NDArray[np.int64]] = {}
        for name, code in MARK_CODES.items():
            marks[name] = tokens.count(lookup.token_ids == code)
        marks[USER] = tokens.count(lookup.token_ids <= MARK_CODES[USER])
        values = assemble(
            tokens, released, self.embedding.words, policy.layout, stand_ins, of_places
        )
        pieces = {f"left_{kind}": places for kind, places in count_pieces(values).items()}
        counts = TokenCounts(
            tokens=np.diff(tokens.offsets),
            replaced=tokens.count(lookup.known & ~is_same),
            unchanged=tokens.count(is_same),
            unprotected=tokens.count(lookup.passing),
            out_of_vocabulary=tokens.count(lookup.unknown),
            blank=tokens.count(lookup.blank),
            dropped=tokens.count(released == DROP),
            **marks,
            **pieces,
        )
        return Sanitized(
            values=values,
            counts=counts,
            unchanged=np.stack([tokens.rows[same] + lookup.rows.start, lookup.token_ids[same]]),
        )

    def _released(self, run: Run, column: str) -> NDArray[np.int64]:
        """Return int64 (tokens,): what is released for each, the id of a word or a stand-in."""
        lookup = run.lookup
        tokens = lookup.tokens
        released = np.full(len(tokens), MASK, dtype=np.int64)
        if lookup.unknown.any():
            places = np.flatnonzero(lookup.unknown)

            def draw(width: int) -> Iterator[NDArray[np.float64]]:
                noise = self._unknown_noise(tokens, column, width)
                for _, uniforms in token_uniforms(noise, tokens, run.row_names, places):
                    yield uniforms

            oov = self.release.policy.oov
            outputs = self.release.search.outputs
            rows = np.asarray(oov.release(len(places), len(outputs), draw, column))
            # A row is one of the words that may be output; stand-ins are below 0.
            released[places] = np.where(rows < 0, rows, outputs[rows])
        noise = self._word_noise(tokens, column)
        word_places = np.flatnonzero(lookup.known)
        for chunk, uniforms in token_uniforms(noise, tokens, run.row_names, word_places):
            epsilons = None
            if run.epsilons is not None:
                epsilons = run.epsilons[tokens.rows[chunk]]
            perturbed = self._perturb(lookup.token_ids[chunk], uniforms, epsilons)
            # Where a mechanism has no word the placeholder stands, never the token itself.
            released[chunk] = np.where(perturbed < 0, MASK, perturbed)
        released[~lookup.protected] = KEEP
        released[lookup.marked] = lookup.token_ids[lookup.marked]
        released[lookup.left_out] = DROP
        return released

    def _stand_ins(self, run: Run) -> tuple[list[str | None], dict[int, str]]:
        """Return what stands for marks: of each distinct token, and of tokens by their places.

        The latter are those whose stand-ins differ between rows.
        """
        lookup = run.lookup
        tokens = lookup.tokens
        of_tokens: list[str | None] = [None] * len(tokens.distinct)
        of_places: dict[int, str] = {}
        keys = dict(self.action_keys)
        for code, name in lookup.mark_types().items():
            action = lookup.actions.get(name, MASKED)
            text = ""
            if action.of_text:  # patterns look at it once more
                text = lookup.marker.longest_span(name, tokens.distinct[code].as_py())
            stand_in = partial(action.stand_in, key=keys.get(action))
            if not action.of_owner:
                of_tokens[code] = stand_in(Span(name, text))
                continue
            for place in np.flatnonzero(tokens.codes == code).tolist():
                owner = run.owners[tokens.rows[place]]
                of_places[place] = stand_in(Span(name, text, owner))
        return of_tokens, of_places

    def _word_noise(self, tokens: Tokens, column: str) -> ColumnNoise:
        """Return the noise of words that are perturbed."""
        width = self.release.mechanism.uniforms_per_token(self.embedding.dimension)
        purpose = self._purpose(tokens)
        return self.noise.column(column, purpose=purpose, uint64s_per_token=width)

    def _unknown_noise(self, tokens: Tokens, column: str, width: int) -> ColumnNoise:
        """Return the noise of unknown words, which take so many uniforms each."""
        purpose = f"unknown {self._purpose(tokens)}"
        return self.noise.column(column, purpose=purpose, uint64s_per_token=width)

    def _purpose(self, tokens: Tokens) -> str:
        """Return what is drawn for; in it is all that decides what the words of a text are."""
        policy = self.release.policy
        # The vocabulary's joined words are in the noise's context by the bundle's fingerprint.
        parts = [f"{tokens.kind} word"]
        if tokens.kind == "text":
            parts.append(policy.tokenizer.identity)
        parts.append(policy.marks_identity)
        return ", ".join(filter(None, parts))


def _owners(persons: pa.Array, row_ids: list[bytes]) -> list[bytes]:
    """Return what names the person of each row, or else the row; no two of them are alike."""
    owners = []
    for person, row_id in zip(persons.to_pylist(), row_ids, strict=True):
        owners.append(b"row " + row_id if person is None else b"person " + str(person).encode())
    return owners


def _extended(
    row_names: Iterable[tuple[bytes, ...]], more: NDArray[Any]
) -> list[tuple[bytes, ...]]:
    """Return each row's name with one part more, the bytes of its row of an array."""
    return [(*name, part.tobytes()) for name, part in zip(row_names, more, strict=True)]


def _row_key(noise: ColumnNoise, tokens: Tokens, row: int, row_name: tuple[bytes, ...]) -> bytes:
    """Return the key of a row's noise."""
    row_id, *place = row_name
    return noise.row_key(row_id, (*place, *tokens.row_content(row)))


def _placed(tokens: Tokens, flags: NDArray[np.bool_]) -> dict[int, list[tuple[int, str]]]:
    """Return, by row, the flagged tokens and where they start in their text or list."""
    placed: dict[int, list[tuple[int, str]]] = {}
    flagged_rows = {*tokens.rows[flags].tolist()}
    if not flagged_rows:
        return placed
    for row, row_tokens in enumerate(tokens.row_tokens()):
        if row not in flagged_rows:
            continue
        words = [word or "" for word in row_tokens]
        starts = [*range(len(words))]
        if tokens.kind == "text":
            text = straight(tokens.strings[row] or "")
            starts = [start for start, _ in token_spans(text, words)]
        row_flags = flags[tokens.offsets[row] : tokens.offsets[row + 1]]
        placed[row] = [*compress(zip(starts, words, strict=True), row_flags)]
    return placed


def token_uniforms(
    noise: ColumnNoise,
    tokens: Tokens,
    row_names: Sequence[tuple[bytes, ...]],
    places: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield the places of tokens, ascending, in chunks with their uniforms.

    These are float64 (t, uint64s_per_token). The less noise a token takes, the longer a chunk is.
    """

    @lru_cache(maxsize=1)  # however many chunks a long row is cut into
    def row_key(row: int) -> bytes:
        return _row_key(noise, tokens, row, row_names[row])

    size = max(CHUNK, _CHUNK_UNIFORMS // noise.uint64s_per_token)
    for first in range(0, len(places), size):
        chunk = places[first : first + size]
        rows = tokens.rows[chunk]
        positions = chunk - tokens.offsets[rows]
        uint64s = np.empty((len(chunk), noise.uint64s_per_token), dtype=np.uint64)
        # One cipher serves each run of neighbouring tokens of a row.
        borders = np.flatnonzero((np.diff(chunk) != 1) | (np.diff(rows) != 0)) + 1
        for start, stop in pairwise([0, *borders.tolist(), len(chunk)]):
            noise.fill(uint64s[start:stop], row_key(int(rows[start])), int(positions[start]))
        yield chunk, to_uniform(uint64s)
