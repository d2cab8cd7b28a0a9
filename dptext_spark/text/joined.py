"""Vocabulary words of several tokens (``u.s.``, ``new_york``), and texts cut at spans."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex
from numpy.typing import NDArray

from dptext_spark.errors import ConfigError
from dptext_spark.text.tokens import (
    PLAIN,
    Tokenizer,
    all_visible,
    between,
    cut_visible,
    lookup_form,
    lookup_forms,
    straight,
    token_spans,
)

JOINERS: Final = ".-',/&_+:@\"\u00b7"
"""What may stand by itself between the tokens of a joined word."""

_GAP: Final = regex.compile(rf"\.?(?:[{regex.escape(JOINERS)}]|\s+)?")
_STOP: Final = regex.compile(r"\.|(?<=\p{Hebrew})'")  # a geresh is part of its word
_ODD: Final = "[^A-Za-z0-9]"  # of words that may be other than one token

# Runes, and the syllables of Canada: of scripts with spaces, without capitals, and never a part of
# a letter.
_RARE_LETTERS: Final = [*map(chr, (*range(0x16A0, 0x16EB), *range(0x1401, 0x166D)))]


def vocabulary_forms(token: str) -> tuple[str, ...]:
    """Return the forms under which a text's token is looked up: gaps as a space, then as ``_``."""
    words = lookup_form(token).split()
    forms = lookup_forms(" ".join(words))
    if len(words) > 1:
        return *forms, *lookup_forms("_".join(words))
    return forms


@lru_cache(maxsize=1 << 17)  # nearly all that occur, in some tens of MB at most
def _folded(token: str) -> str:
    return lookup_form(lookup_form(token).casefold())


def _fold(token: str) -> str:
    """Return one form of a token for all its capitals."""
    if len(token) <= 32:
        return _folded(token)
    return _folded.__wrapped__(token)  # in the cache long ones would fill a worker's memory


@dataclass(frozen=True, eq=False)
class JoinedWords:
    """A tokenizer for which each joined word of a vocabulary is one token.

    Neighbouring tokens of ``base`` are joined where together they are a word of the vocabulary:

    * Between two of them stands nothing, one of ``JOINERS``, or whitespace, and a full stop may
    stand before
      these: ``don't``, ``e-mail``, ``New York``, ``u.s.-led``, ``St. Louis``.
    * They are looked up as they stand, whitespace as one space or else as ``_``, with a full stop
    that
      follows and then without: ``U.S.``, ``new york``, ``New_York``. As with any token, as written
      comes first and lower case second.
    * The longest word wins, counted in tokens; of several, the leftmost.
    * A single token has its full stop (``kans.``), or a Hebrew one its geresh, only where the
    vocabulary
      lacks it without, in any capitals.
    """

    base: Tokenizer
    words: frozenset[str]  # the joined words of the vocabulary
    # By their first two tokens, folded, or the one that has a full stop, how many they have at
    # most.
    longest: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, words: pa.StringArray, base: Tokenizer = PLAIN) -> Tokenizer:
        """Return the tokenizer for a vocabulary: ``base`` itself where that has no joined words."""
        joined: list[str] = []
        longest: dict[tuple[str, ...], int] = {}
        stopped: dict[str, str] = {}
        for word in words.filter(pc.match_substring_regex(words, _ODD)).to_pylist():
            parts = base(word)
            if parts in ([], [word]) or not _joins(word, parts):
                continue
            if len(parts) == 1:
                stopped[word] = parts[0]
            else:
                joined.append(word)
                pair = (_fold(parts[0]), _fold(parts[1]))
                longest[pair] = max(len(parts), longest.get(pair, 0))
        for word, token in _only_stopped(stopped, words).items():
            joined.append(word)
            longest[(_fold(token),)] = 1
        if not joined:
            return base
        return cls(base=base, words=frozenset(joined), longest=longest)

    def __call__(self, text: str) -> list[str]:
        if all_visible(text):
            return self._cut(text)
        return cut_visible(straight(text), self._cut)

    def _cut(self, text: str) -> list[str]:
        tokens = self.base(text)
        starts = self._starts(tokens)
        if not starts:
            return tokens
        text = straight(text)
        spans = [*token_spans(text, tokens)]
        next_starts = [*(start for start, _ in spans[1:]), len(text)]
        # What they are sorted by, the longest first and then the leftmost; and the word.
        candidates: list[tuple[int, int, str]] = []
        for first, most in starts.items():
            for last in range(first, min(first + most, len(tokens))):
                if last > first and not _GAP.fullmatch(text, spans[last - 1][1], spans[last][0]):
                    break
                start = spans[first][0]
                end = spans[last][1]
                word = None
                # An apostrophe may begin the next token: "'d" behind a word of Hebrew.
                if end < next_starts[last] and _STOP.match(text, end) is not None:
                    word = self._joined(text[start : end + 1])
                if word is None and last > first:
                    word = self._joined(text[start:end])
                if word is not None:
                    candidates.append((first - last, first, word))
        joined: list[str | None] = [*tokens]
        is_free = [True] * len(tokens)
        for minus_others, first, word in sorted(candidates):
            place = slice(first, first - minus_others + 1)
            if all(is_free[place]):
                is_free[place] = [False] * (1 - minus_others)
                joined[place] = [word, *[None] * -minus_others]
        return [token for token in joined if token is not None]

    def _starts(self, tokens: Sequence[str]) -> dict[int, int]:
        """Return the tokens where a joined word may start, and how many tokens it has at most."""
        starts = {}
        for place, pair in enumerate(pairwise([*map(_fold, tokens), ""])):
            most = self.longest.get(pair) or self.longest.get(pair[:1])
            if most is not None:
                starts[place] = most
        return starts

    def _joined(self, word: str) -> str | None:
        """Return a piece of a text if it is one of the joined words."""
        return None if self.words.isdisjoint(vocabulary_forms(word)) else word


def _only_stopped(stopped: Mapping[str, str], words: pa.StringArray) -> dict[str, str]:
    """Return words with a full stop, and their tokens, that the vocabulary lacks without one.

    Most full stops end a sentence.
    """
    if not stopped:
        return {}
    tokens = pa.array([token.lower() for token in stopped.values()], pa.string())
    is_lacking = pc.invert(pc.is_in(tokens, value_set=pc.utf8_lower(words))).to_pylist()
    return dict(compress(stopped.items(), is_lacking))


@lru_cache(maxsize=4)
def unused_letter(tokenizer: Tokenizer) -> str:
    """Return a placeholder letter that occurs in no joined word."""
    words = getattr(tokenizer, "words", ())
    letters = frozenset().union(*words)
    for letter in _RARE_LETTERS:
        if letter not in letters:
            return letter
    raise ConfigError(
        "Slots need a letter that no joined word of the vocabulary has", got="no such letter"
    )


def cut_marked(
    text: str, spans: Sequence[tuple[int, int]] | None, tokenizer: Tokenizer, *, whole: bool = False
) -> tuple[list[str], list[bool]]:
    """Return a text's tokens, and which of them belong to its spans.

    Tokens outside of the spans do not depend on what the spans hold: the text is cut with one
    letter in place of each span. A token without such a letter is outside, and is kept as it is.
    What a token with one covers in the text belongs to the spans. It is cut on its own, or is one
    token where it stays ``whole``.
    """
    if not spans:
        tokens = tokenizer(text)
        return tokens, [spans is None] * len(tokens)
    outside = [text[start:end] for start, end in between(spans, len(text))]
    covered = straight(unused_letter(tokenizer).join(outside))
    letters = [end + n for n, end in enumerate(accumulate(map(len, outside[:-1])))]
    # How much longer the text is than the covered one, after so many spans.
    longer = [0, *accumulate(end - start - 1 for start, end in spans)]
    tokens = []
    marked: list[bool] = []
    for start, end in token_spans(covered, tokenizer(covered)):
        first = bisect_left(letters, start)
        after = bisect_left(letters, end)
        if first == after:
            tokens.append(covered[start:end])
            marked.append(False)
            continue
        in_spans = text[start + longer[first] : end + longer[after]]
        span_tokens = [in_spans] if whole else tokenizer(in_spans)
        tokens += span_tokens
        marked += [True] * len(span_tokens)
    return tokens, marked


def unique_forms(words: Sequence[str]) -> pa.StringArray:
    """Return the lookup forms of words (V,): null where an earlier word has the same form."""
    earlier_forms: set[str] = set()
    unique: list[str | None] = []
    for form in map(lookup_form, words):
        unique.append(None if form in earlier_forms else form)
        earlier_forms.add(form)
    return pa.array(unique, pa.string())


def matchable(forms: pa.StringArray) -> NDArray[np.bool_]:
    """Return bool (V,): which forms of a vocabulary a text can hold as one token."""
    tokenizer = JoinedWords.of(forms.drop_null())
    is_odd = pc.fill_null(pc.match_substring_regex(forms, f"{_ODD}|^$"), True)
    odd_forms = forms.filter(is_odd).to_pylist()
    flags = np.ones(len(forms), dtype=np.bool_)
    flags[is_odd.to_numpy(zero_copy_only=False)] = [
        _is_matchable(form, tokenizer) for form in odd_forms
    ]
    return flags


def _is_matchable(form: str | None, tokenizer: Tokenizer) -> bool:
    if not form or form != vocabulary_forms(form)[0]:
        return False
    return tokenizer(form) == [form] or form in PLAIN(f"x{form}")[1:]  # 's after a word


def _joins(word: str, parts: Sequence[str]) -> bool:
    """Return whether a text can hold a word of the vocabulary that has these tokens."""
    if word != vocabulary_forms(word)[0]:
        return False
    spans = [*token_spans(word, parts)]
    if spans[0][0] != 0:
        return False
    _, end = spans[-1]
    if end < len(word) and not _STOP.fullmatch(word, end):
        return False
    return all(_GAP.fullmatch(word, end, start) for (_, end), (start, _) in pairwise(spans))
