"""Columns read as words: cut into tokens, looked up in a vocabulary, flagged by the policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.text.actions import Action
from dptext_spark.text.columns import DROP, MARK, Tokens, check_unicode, column_kind, slices
from dptext_spark.text.identifiers import Marker
from dptext_spark.text.joined import JoinedWords, unused_letter, vocabulary_forms
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.tokens import Tokenizer, lookup_forms

FEW: Final = (2, 6)
"""A word is rare if fewer rows than one of these have it: with 2, it is in no other row."""

MARK_CODES: Final = {name: MARK - place for place, name in enumerate(MARKS)}
"""By type, what a mark has in place of a word's id, as a token and as what is released for it.

Types of a user's own have the codes below these.
"""


def look_up(tokens: Tokens, embedding: Embedding) -> NDArray[np.int64]:
    """Return int64 (tokens,): each token's word id, as written or in lower case; -1 for none."""
    forms_of: Callable[[str], tuple[str, ...]] = lookup_forms
    if tokens.kind == "text":
        forms_of = vocabulary_forms
    token_forms = [forms_of(token) for token in tokens.distinct.to_pylist()]
    # A token has 2 forms or 4: as many for all, so that they make a matrix.
    most = max(map(len, token_forms), default=1)
    variants: list[str] = []
    for forms in token_forms:
        variants += forms * (most // len(forms))
    encoded = pa.array(variants, pa.string()).dictionary_encode()
    # Arrow hashes the set that it looks in each time: the few forms, not the whole vocabulary.
    places = pc.index_in(embedding.forms, value_set=encoded.dictionary)
    rows = np.full(len(encoded.dictionary), -1, dtype=np.int64)
    rows[places.drop_null()] = pc.indices_nonzero(places.is_valid())
    variant_ids = rows[encoded.indices].reshape(len(token_forms), most)
    # The first form that the vocabulary has, or else the first one.
    columns = (variant_ids >= 0).argmax(axis=1)
    word_ids = np.take_along_axis(variant_ids, columns[:, None], axis=1)[:, 0]
    return np.append(word_ids, -1)[tokens.codes]  # code -1, a null, picks the last


def rows_with_words(
    words: NDArray[np.int64], rows: NDArray[np.int64], *, vocabulary: int
) -> NDArray[np.int64]:
    """Count the rows that have each word: int64 (V,).

    Args:
        words: (t,), negative for a token outside the vocabulary.
        rows: (t,), the row of each; a row counts once, however often it has the word.
    """
    is_word = words >= 0
    pairs = np.unique(rows[is_word] * vocabulary + words[is_word])
    return np.bincount(pairs % vocabulary, minlength=vocabulary)


@lru_cache(maxsize=2)  # columns share one; a reused worker must not keep those of all its bundles
def joining(embedding: Embedding, tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the vocabulary's joined words; see :class:`JoinedWords`."""
    return JoinedWords.of(embedding.forms.drop_null(), tokenizer)


class Bundle(Hashable, Protocol):
    """An embedding, or where a worker finds it."""

    def shared(self) -> Embedding:
        """Return the embedding, opened once in a process."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class TokenLookup:
    """The tokens of some rows of a column, looked up in the vocabulary; arrays are (tokens,)."""

    rows: slice
    tokens: Tokens
    token_ids: NDArray[np.int64]  # a word's id, -1 for what the vocabulary lacks, a mark's code
    blank: NDArray[np.bool_]  # null or empty elements of a token list
    protected: NDArray[np.bool_]  # those that the policy protects; blank ones and marks are not
    marker: Marker
    mark_names: tuple[str, ...]
    actions: Mapping[str, Action]  # of marks, by name

    @property
    def word_ids(self) -> NDArray[np.int64]:
        """int64 (tokens,): -1 for a mark, and for a token that the vocabulary lacks."""
        return np.maximum(self.token_ids, -1)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Protected words of the vocabulary, which are perturbed."""
        return self.protected & (self.token_ids >= 0)

    @property
    def marked(self) -> NDArray[np.bool_]:
        """Tokens that become marks."""
        return self.token_ids <= MARK

    @property
    def passing(self) -> NDArray[np.bool_]:
        """Words that the policy does not protect, which go out as they are."""
        return ~self.protected & ~self.blank & ~self.marked

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Protected tokens that the vocabulary lacks."""
        return self.protected & (self.token_ids < 0)

    def mark_types(self) -> dict[int, str]:
        """Return the types of marks, by their places among ``tokens.distinct``."""
        places, first = np.unique(self.tokens.codes[self.marked], return_index=True)
        codes = self.token_ids[self.marked][first]
        types = [self.mark_names[MARK - code] for code in codes.tolist()]
        return dict(zip(places.tolist(), types, strict=True))

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """Marks whose action leaves nothing of them."""
        codes = []
        for place, name in enumerate(self.mark_names):
            action = self.actions.get(name)
            if action is not None and not action.is_shown:
                codes.append(MARK - place)
        return np.isin(self.token_ids, codes)


def _mark_codes(tokens: Tokens, marker: Marker, mark_names: Sequence[str]) -> NDArray[np.int64]:
    """Return int64 (tokens,): the codes of those that become marks, -1 for all others."""
    codes = []
    for token in tokens.distinct.to_pylist():
        kind = marker.kind(token)
        code = -1
        if kind is not None:
            code = MARK - mark_names.index(kind)
        codes.append(code)
    codes.append(-1)  # code -1, a null, picks the last
    return np.array(codes, dtype=np.int64)[tokens.codes]


@dataclass(frozen=True, kw_only=True)
class WordReader:
    """Turns a column into tokens with word ids and policy flags: small, hashable, without a key."""

    bundle: Bundle
    policy: TextPolicy

    def runs(
        self, values: pa.Array, slots: pa.Array | None = None, *, column: str = "to be sanitized"
    ) -> Iterator[TokenLookup]:
        """Read a column of texts or token lists (rows,), in runs of about a MB of text."""
        column_kind(values.type, column)
        check_unicode(values, column)
        embedding = self.bundle.shared()
        tokenizer = joining(embedding, self.policy.tokenizer)
        letter = ""
        if self.policy.masks_spans:
            letter = unused_letter(tokenizer)
        marker = Marker(tokenizer, self.policy.types, letter, self.policy.patterns)
        mark_names = self.policy.mark_names
        actions = self.policy.actions
        for rows in slices(values):
            row_slots = None if slots is None else slots[rows]
            texts, spans = self.policy.read(values[rows], row_slots, letter)
            tokens = Tokens.of(texts, marker, spans)
            marks = _mark_codes(tokens, marker, mark_names)
            is_mark = marks <= MARK
            blank = (tokens.codes < 0) | tokens.flag(lambda token: not token)
            protected = self.policy.protect.protected(tokens)
            yield TokenLookup(
                rows=rows,
                tokens=tokens,
                token_ids=np.where(is_mark, marks, look_up(tokens, embedding)),
                blank=blank,
                protected=protected & ~blank & ~is_mark,
                marker=marker,
                mark_names=mark_names,
                actions=actions,
            )

    def visible_words(
        self, values: pa.Array, slots: pa.Array | None = None, *, column: str = "to be sanitized"
    ) -> NDArray[np.int64]:
        """Return int64 (rows,): how many words each row's output shows.

        These are all that the policy does not drop.
        """
        counts = [np.empty(0, dtype=np.int64)]
        for run in self.runs(values, slots, column=column):
            words = np.diff(run.tokens.offsets) - run.tokens.count(run.left_out)
            if self.policy.oov.stand_in == DROP:
                words -= run.tokens.count(run.unknown)
            counts.append(words)
        return np.concatenate(counts)
