"""Words of a vocabulary that are several tokens (``u.s.``, ``new_york``), and texts cut at spans."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice, pairwise
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

# Runes, and the syllables of Canada: of scripts with spaces, without capitals, and never a part of a letter.
_RARE_LETTERS: Final = [chr(code) for code in (*range(0x16A0, 0x16EB), *range(0x1401, 0x166D))]


def vocabulary_forms(token: str) -> tuple[str, ...]:
    """Give the forms under which a text's token is looked up: with one space for whitespace, then ``_``."""
    words = lookup_form(token).split()
    return (
        *lookup_forms(" ".join(words)),
        *(lookup_forms("_".join(words)) if len(words) > 1 else ()),
    )


@lru_cache(maxsize=1 << 17)  # nearly all that occur, in some tens of MB at most
def _folded(token: str) -> str:
    return lookup_form(lookup_form(token).casefold())


def _fold(token: str) -> str:
    """Fold what lower case makes of a token into one form; long ones would fill a worker's memory."""
    return _folded(token) if len(token) <= 32 else _folded.__wrapped__(token)


@dataclass(frozen=True, eq=False)
class JoinedWords:
    """A tokenizer that gives the joined words of a vocabulary as one token each.

    Neighbouring tokens of ``base`` are joined where together they are a word of the vocabulary:

    * Between two of them stands nothing, one of ``JOINERS``, or whitespace, and a full stop may stand before
      these: ``don't``, ``e-mail``, ``New York``, ``u.s.-led``, ``St. Louis``.
    * They are looked up as they stand, whitespace as one space or else as ``_``, with a full stop that
      follows and then without: ``U.S.``, ``new york``, ``New_York``. As with any token, as written comes
      first and lower case second.
    * The longest word wins, counted in tokens; of several, the leftmost.
    * A single token has its full stop (``kans.``), or a Hebrew one its geresh, only where the vocabulary
      lacks it without, in any capitals.
    """

    base: Tokenizer
    words: frozenset[str]  # the joined words of the vocabulary
    # By their first two tokens, folded, or the one that has a full stop, how many they have at most.
    longest: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, words: pa.StringArray, base: Tokenizer = PLAIN) -> Tokenizer:
        """Make the tokenizer for a vocabulary: ``base`` itself where that has no joined words."""
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
        if stopped:  # most full stops end a sentence
            bare = pa.array([token.lower() for token in stopped.values()], pa.string())
            known = pc.is_in(bare, value_set=pc.utf8_lower(words)).to_pylist()
            stopped = {
                word: token
                for (word, token), k in zip(stopped.items(), known, strict=True)
                if not k
            }
            longest |= {(_fold(token),): 1 for token in stopped.values()}
        all_words = frozenset([*joined, *stopped])
        return cls(base=base, words=all_words, longest=longest) if all_words else base

    def __call__(self, text: str) -> list[str]:
        return self._cut(text) if all_visible(text) else cut_visible(straight(text), self._cut)

    def _cut(self, text: str) -> list[str]:
        tokens, longest = self.base(text), self.longest
        # By the tokens where a word may start, how many tokens it has at most.
        pairs = enumerate(pairwise([*map(_fold, tokens), ""]))
        starts = {
            i: most for i, pair in pairs if (most := longest.get(pair) or longest.get(pair[:1]))
        }
        if not starts:
            return tokens
        text = straight(text)
        spans = list(token_spans(text, tokens))
        candidates = []
        for first, most in starts.items():
            start = spans[first][0]
            for last, (begin, end) in enumerate(spans[first : first + most], first):
                if last > first and not _GAP.fullmatch(text, spans[last - 1][1], begin):
                    break
                stops = [end + 1] * bool(_STOP.match(text, end)) + [end] * (last > first)
                words = (text[start:stop] for stop in stops)
                known = (
                    word for word in words if not self.words.isdisjoint(vocabulary_forms(word))
                )
                candidates += [(first - last, first, word) for word in islice(known, 1)]
        joined: list[str | None] = [*tokens]
        free = [True] * len(tokens)
        for shorter, first, word in sorted(candidates):
            taken = slice(first, first - shorter + 1)
            if all(free[taken]):
                free[taken] = [False] * (1 - shorter)
                joined[taken] = [word, *[None] * -shorter]
        return [token for token in joined if token is not None]


@lru_cache(maxsize=4)
def unused_letter(tokenizer: Tokenizer) -> str:
    """Give a letter that no joined word of a tokenizer has, so that none is found where it stands."""
    words = getattr(tokenizer, "words", ())
    if unused := [*filter(frozenset().union(*words).isdisjoint, _RARE_LETTERS)]:
        return unused[0]
    raise ConfigError(
        "Slots need a letter that no joined word of the vocabulary has", got="no such letter"
    )


def cut_marked(
    text: str, spans: Sequence[tuple[int, int]] | None, tokenizer: Tokenizer, *, whole: bool = False
) -> tuple[list[str], list[bool]]:
    """Cut a text into tokens so that those outside of its spans do not depend on what the spans hold.

    The text is cut with one letter in place of each span. A token without such a letter is outside, and
    stands as it is. What a token with one covers in the text belongs to the spans, and is cut on its own, or
    is one token where it stays ``whole``. Gives the tokens in their order, and which of them belong to spans.
    """
    if not spans:
        tokens = tokenizer(text)
        return tokens, [spans is None] * len(tokens)
    outside = [text[start:end] for start, end in between(spans, len(text))]
    covered = straight(unused_letter(tokenizer).join(outside))
    letters = [end + n for n, end in enumerate(accumulate(map(len, outside[:-1])))]
    longer = [0, *accumulate(end - start - 1 for start, end in spans)]
    tokens, marked = [], []
    for start, end in token_spans(covered, tokenizer(covered)):
        first, after = bisect_left(letters, start), bisect_left(letters, end)
        inside = first < after
        held = text[start + longer[first] : end + longer[after]] if inside else covered[start:end]
        own = tokenizer(held) if inside and not whole else [held]
        tokens += own
        marked += [inside] * len(own)
    return tokens, marked


def unique_forms(words: Sequence[str]) -> pa.StringArray:
    """Give the lookup forms of a vocabulary's words (V,): null where an earlier word has the same one."""
    forms = [*map(lookup_form, words)]
    first = dict(zip(reversed(forms), range(len(forms) - 1, -1, -1), strict=True))
    return pa.array(
        [form if first[form] == at else None for at, form in enumerate(forms)], pa.string()
    )


def matchable(forms: pa.StringArray) -> NDArray[np.bool_]:
    """bool (V,): which forms of a vocabulary some text holds as one token; the others no text ever does."""
    tokenizer = JoinedWords.of(forms.drop_null())
    odd = pc.fill_null(pc.match_substring_regex(forms, f"{_ODD}|^$"), True).to_numpy(
        zero_copy_only=False
    )
    flags = np.ones(len(forms), dtype=np.bool_)
    flags[odd] = [
        bool(form)
        and form == vocabulary_forms(form)[0]
        and (tokenizer(form) == [form] or form in PLAIN(f"x{form}")[1:])  # 's after a word
        for form in forms.filter(pa.array(odd)).to_pylist()
    ]
    return flags


def _joins(word: str, parts: Sequence[str]) -> bool:
    """Whether a text can hold a word of the vocabulary that has these tokens."""
    if word != vocabulary_forms(word)[0]:
        return False
    spans = list(token_spans(word, parts))
    gaps = (_GAP.fullmatch(word, end, start) for (_, end), (start, _) in pairwise(spans))
    return (
        spans[0][0] == 0
        and (spans[-1][1] == len(word) or _STOP.fullmatch(word, spans[-1][1]) is not None)
        and all(gaps)
    )
