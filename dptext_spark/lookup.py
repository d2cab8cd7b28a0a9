"""Tokens looked up in a vocabulary: which it knows, which are perturbed, and how many a row tells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.text.joined_words import JoinedWords, vocabulary_forms
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.token_columns import DROP, Tokens, slices
from dptext_spark.text.tokens import Tokenizer, match_form, visible


def look_up(tokens: Tokens, embedding: Embedding) -> NDArray[np.int64]:
    """int64 (tokens,): each token's word id, as it stands or else in lower case; -1 for none.

    Whitespace in a token of a text, which :class:`JoinedWords` left there, is one space or else one ``_``. A
    token that the vocabulary lacks is looked up again without its invisible characters.
    """
    distinct = tokens.distinct.to_pylist()
    seen = [visible(token) for token in distinct]
    forms = []
    for written in [distinct] if seen == distinct else [distinct, seen]:
        both = [vocabulary_forms(token) if tokens.kind == "text" else (token,) for token in written]
        spaces = any(len(each) > 1 for each in both)
        forms += [[each[place] for each in both] for place in ((0, -1) if spaces else (0,))]
    variants = [
        [match_form(form, lower=lower) for form in written] for written in forms for lower in (False, True)
    ]
    found = _rows_of(pa.array(chain.from_iterable(variants), pa.string()), embedding.words)
    found = found.reshape(len(variants), len(distinct))
    # The first form that the vocabulary has, or else the first one.
    word_ids = np.take_along_axis(found, (found >= 0).argmax(axis=0)[None], axis=0)[0]
    return np.append(word_ids, -1)[tokens.codes]  # code -1, a null, picks the last


def _rows_of(forms: pa.StringArray, words: pa.StringArray) -> NDArray[np.int64]:
    """int64 (forms,): where each form stands among distinct words, -1 for nowhere."""
    encoded = forms.dictionary_encode()
    # Arrow hashes what is looked in anew each time: that are the few forms, not the whole vocabulary.
    places = pc.index_in(words, value_set=encoded.dictionary)
    rows = np.full(len(encoded.dictionary), -1, dtype=np.int64)
    rows[places.drop_null()] = pc.indices_nonzero(places.is_valid())
    found: NDArray[np.int64] = rows[encoded.indices]
    return found


@lru_cache(maxsize=2)  # columns share one; a reused worker must not keep those of all its bundles
def joining(embedding: Embedding, tokenizer: Tokenizer) -> Tokenizer:
    """Make a tokenizer join what is one word of the vocabulary; see :class:`JoinedWords`."""
    return JoinedWords.of(embedding.words, tokenizer)


@dataclass(frozen=True, kw_only=True)
class TokenLookup:
    """Word ids of tokens, int64 (tokens,), and what the policy makes of each, bool (tokens,)."""

    word_ids: NDArray[np.int64]
    blank: NDArray[np.bool_]
    unprotected: NDArray[np.bool_]
    known: NDArray[np.bool_]
    unknown: NDArray[np.bool_]

    @classmethod
    def of(cls, tokens: Tokens, embedding: Embedding, policy: TextPolicy, slots: pa.Array | None) -> Self:
        """Look tokens up, and ask the policy; ``slots`` are those of the tokens' rows, if it has any."""
        word_ids = look_up(tokens, embedding)
        blank = (tokens.codes < 0) | tokens.flag(lambda token: not token)
        unprotected = ~blank & ~policy.protect.protected(tokens, slots)
        return cls(
            word_ids=word_ids,
            blank=blank,
            unprotected=unprotected,
            known=(word_ids >= 0) & ~blank & ~unprotected,
            unknown=(word_ids < 0) & ~blank & ~unprotected,
        )


def visible_words(
    values: pa.Array, slots: pa.Array | None, embedding: Embedding, policy: TextPolicy
) -> NDArray[np.int64]:
    """int64 (rows,): count the words of a column's rows that outputs tell; see :class:`Sanitizer`."""
    counted, tokenizer = [np.empty(0, dtype=np.int64)], joining(embedding, policy.tokenizer)
    for part in slices(values):
        own = None if slots is None else slots[part]
        tokens = Tokens.of(values[part], tokenizer, policy.protect.marks(values[part], own))
        words = np.diff(tokens.offsets)
        if policy.oov.stand_in == DROP:
            found = TokenLookup.of(tokens, embedding, policy, own)
            words -= tokens.count(found.unknown)
        counted.append(words)
    return np.concatenate(counted)
