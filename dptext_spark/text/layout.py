"""Sanitized columns out of released words: what stands between the words of a text, and their capitals.

All of it acts on what is released and on what the layout lets pass, never on the words of the input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.signs import IDENTITY, listed_signs
from dptext_spark.text.token_columns import DROP, KEEP, PLACEHOLDER, Tokens
from dptext_spark.text.tokens import Tokenizer, straight, token_spans

CLITICS: Final = ("n't", "'s", "'m", "'d", "'ll", "'re", "'ve")
"""The clitics of English, which the tokenizer splits from the word before them."""

# Gaps that do not keep words apart: the tokenizer takes an apostrophe between letters for a part of the word.
_JOINING: Final = ("", "'", "\u2019", "\uff07")

# Patterns of capitals by number; of the first are words with both and words without letters that have them.
_PATTERNS: Final = (lambda strings: strings, pc.utf8_lower, pc.utf8_capitalize, pc.utf8_upper)
_CAPITALIZED: Final = 2


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """What a layout lets pass of the texts between their tokens.

    Attributes:
        distinct: The distinct gaps.
        before: int64 (tokens,), index of what stands before each token and after the one before it.
        after: int64 (rows,), index of what stands after the last token of each row.
    """

    distinct: pa.StringArray
    before: NDArray[np.int64]
    after: NDArray[np.int64]


class Layout(NamedPolicy, ABC):
    """A policy for what surrounds the released words of texts; token columns have none.

    Attributes:
        capitals: Whether each word takes the capitals of the token in whose place it stands.
    """

    kind = "layout"
    option = "--layout"
    policies: ClassVar[dict[str, type[Layout]]] = {}
    capitals: ClassVar[bool]

    @property
    def identity(self) -> str:
        """What the layout lets pass, so that no growing table has rows of two layouts."""
        return self.name

    @abstractmethod
    def gaps(self, tokens: Tokens) -> Gaps:
        """Give what passes of what stands between the tokens of texts."""


class SingleSpaces(Layout):
    """Nothing but the words, with single spaces between them."""

    name = "words"
    scope = "Capitals, punctuation, emoji and spacing of the covered words are not in the output."
    capitals = False

    def gaps(self, tokens: Tokens) -> Gaps:
        none, after = np.zeros(len(tokens), dtype=np.int64), np.zeros(len(tokens.null_rows), dtype=np.int64)
        return Gaps(distinct=pa.array([""]), before=none, after=after)


@dataclass(frozen=True)
class AsItStood(Layout):
    """The words where the tokens stood: listed signs around them stay, and the pattern of capitals.

    Raises:
        ConfigError: The list of signs is damaged.
    """

    name = "keep"
    scope = (
        "PUNCTUATION, SYMBOLS, EMOJI, SPACES AND LINE BREAKS OF TEXTS ARE RELEASED AS THEY ARE, if a list of "
        f"signs has them ({IDENTITY}); it has no letters, digits and invisible characters. THE CHOICE AMONG "
        "THESE SIGNS CAN STILL CARRY A MESSAGE. Words have the capitals (lower, Capitalized, UPPER) of those "
        "in whose places they stand."
    )
    capitals = True

    def __post_init__(self) -> None:
        listed_signs()

    @property
    def identity(self) -> str:
        return f"{self.name}, {IDENTITY}"

    def gaps(self, tokens: Tokens) -> Gaps:
        before, after, passing = [], [], listed_signs().passing
        for text, row in zip(tokens.content.to_pylist(), tokens.row_tokens(), strict=True):
            text, last = text or "", 0
            for start, end in token_spans(straight(text), map(str, row)):
                before.append(text[last:start])
                last = end
            after.append(text[last:])
        encoded = pa.array(before + after, pa.string()).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        return Gaps(
            distinct=pa.array(map(passing, encoded.dictionary.to_pylist()), pa.string()),
            before=codes[: len(before)],
            after=codes[len(before) :],
        )


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A sanitized column.

    Attributes:
        values: Of the input's type.
        characters: int64 (rows,), characters that passed between words, where they are more than one space.
        capitals: int64 (rows,), released words that took capitals.
    """

    values: pa.Array
    characters: NDArray[np.int64]
    capitals: NDArray[np.int64]


def assemble(tokens: Tokens, released: NDArray[np.int64], words: pa.StringArray, layout: Layout) -> Assembled:
    """Build a sanitized column.

    In texts a space keeps words apart where nothing else does, but for clitics, which are joined to the word
    before them. What is left out takes the gap before it along.

    Args:
        tokens: The column's tokens.
        released: int64 (tokens,): in each token's place stands the id of one of ``words``, the vocabulary,
            or ``MASK``, ``KEEP`` or ``DROP``.
        words: The vocabulary.
        layout: What surrounds the words of texts.
    """
    capitals = np.zeros(len(tokens), dtype=np.int64)
    if layout.capitals and tokens.kind == "text":
        capitals[released >= 0] = _capitals(tokens.distinct)[tokens.codes[released >= 0]]
    outputs = _Outputs.of(tokens, released, words, capitals)
    if tokens.kind == "tokens":
        listed = outputs.distinct.take(pa.array(outputs.codes, mask=outputs.codes < 0))
        strings = _lists(outputs.offsets, listed, tokens.null_rows)
        characters = np.zeros_like(outputs.offsets[1:])
    else:
        gaps = layout.gaps(tokens)
        strings, characters = _texts(tokens, outputs, gaps), _characters(tokens, outputs, gaps)
    return Assembled(
        values=strings.cast(tokens.data_type),
        characters=characters,
        capitals=tokens.count(capitals >= _CAPITALIZED),
    )


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """What stands in the places of the tokens that are not left out.

    Attributes:
        distinct: The distinct strings.
        codes: int64 (k,), index into ``distinct``; -1 for null.
        places: int64 (k,), the tokens' numbers.
        offsets: int64 (rows + 1,), where each row's outputs start.
    """

    distinct: pa.StringArray
    codes: NDArray[np.int64]
    places: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        tokens: Tokens,
        released: NDArray[np.int64],
        words: pa.StringArray,
        capitals: NDArray[np.int64],
    ) -> _Outputs:
        word, ways = released >= 0, len(_PATTERNS)
        forms = released[word] * ways + capitals[word]
        used = np.unique(forms)
        code = np.empty(used.max(initial=-1) + 1, dtype=np.int64)
        code[used] = np.arange(len(used))
        chosen = words.take(pa.array(used // ways))
        if capitals.any():
            chosen = pc.choose(pa.array(used % ways), *(pattern(chosen) for pattern in _PATTERNS))
        codes = np.full(len(tokens), len(used))
        codes[word], raw = code[forms], released == KEEP
        codes[raw] = np.where(tokens.codes[raw] < 0, -1, len(used) + 1 + tokens.codes[raw])
        places = np.flatnonzero(released != DROP)
        return cls(
            distinct=pa.concat_arrays([chosen, pa.array([PLACEHOLDER], pa.string()), tokens.distinct]),
            codes=codes[places],
            places=places,
            offsets=np.searchsorted(places, tokens.offsets),
        )

    @property
    def inner(self) -> NDArray[np.bool_]:
        """bool (k,): those that are not the first of their row."""
        inner = np.ones(len(self.codes) + 1, dtype=np.bool_)
        inner[self.offsets[:-1]] = False  # of rows without any, a later row's first, or the one too many
        return inner[:-1]


def _lists(offsets: NDArray[np.int64], strings: pa.Array, nulls: NDArray[np.bool_]) -> pa.LargeListArray:
    strings = strings.cast(pa.large_string())
    return pa.LargeListArray.from_arrays(pa.array(offsets), strings, mask=pa.array(nulls))


def _texts(tokens: Tokens, outputs: _Outputs, gaps: Gaps) -> pa.Array:
    """Join outputs and what stands around them to texts."""
    before, inner = gaps.before[outputs.places], outputs.inner
    joined = _joined(outputs, inner & _among(gaps.distinct, ["", " "])[before], tokens.tokenizer)
    spaced = inner & _among(gaps.distinct, _JOINING)[before]
    known = len(gaps.distinct)
    pool = pa.concat_arrays(
        [gaps.distinct, pc.binary_join_element_wise(gaps.distinct, " ", ""), pa.array([""]), outputs.distinct]
    )
    # Each row is gap, output, gap, output, ..., gap.
    rows = np.arange(len(tokens.null_rows))
    places = 2 * np.arange(len(before)) + tokens.rows[outputs.places]
    pieces = np.empty(2 * len(before) + len(rows), dtype=np.int64)
    pieces[places] = np.where(joined, 2 * known, before + known * spaced)
    pieces[places + 1] = 2 * known + 1 + outputs.codes
    pieces[2 * outputs.offsets[1:] + rows] = gaps.after
    offsets = 2 * outputs.offsets + np.arange(len(outputs.offsets))
    lists = _lists(offsets, pool.take(pa.array(pieces)), tokens.null_rows)
    return pc.binary_join(lists, pa.scalar("", pa.large_string()))


def _joined(outputs: _Outputs, near: NDArray[np.bool_], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Mark the clitics that the tokenizer splits again from the word before them, where that is near."""
    clitic = _among(pc.utf8_lower(outputs.distinct), CLITICS)[outputs.codes]
    places, ways = np.flatnonzero(clitic & near), len(outputs.distinct)
    pairs, pair = np.unique(outputs.codes[places - 1] * ways + outputs.codes[places], return_inverse=True)
    words, clitics = (outputs.distinct.take(pa.array(c)).to_pylist() for c in divmod(pairs, ways))
    joined = np.zeros(len(clitic), dtype=np.bool_)
    joined[places] = _split(tokenizer, words, clitics)[pair]
    return joined


def _split(tokenizer: Tokenizer, words: list[str], clitics: list[str]) -> NDArray[np.bool_]:
    """Mark the pairs of a word and a clitic that the tokenizer takes apart again, bool (pairs,)."""
    # Of two clitics the first is taken for one that is joined itself: "I" + "'d" + "'ve".
    words = [f"x{word}" if word.lower() in CLITICS else word for word in words]
    text = straight("".join(f"{word}{clitic} | " for word, clitic in zip(words, clitics, strict=True)))
    spans = [*token_spans(text, tokenizer(text))]
    apart, ends = {*spans}, {end for _, end in spans}
    clitic_ends = (
        np.cumsum([len(word) + len(clitic) + 3 for word, clitic in zip(words, clitics, strict=True)]) - 3
    )
    places = ((end - len(clitic), end) for clitic, end in zip(clitics, clitic_ends.tolist(), strict=True))
    return np.array([place in apart and place[0] in ends for place in places], dtype=np.bool_)


def _characters(tokens: Tokens, outputs: _Outputs, gaps: Gaps) -> NDArray[np.int64]:
    """int64 (rows,): count what passed between words, single spaces apart."""
    lengths: NDArray[np.int64] = np.array(pc.utf8_length(gaps.distinct), dtype=np.int64)
    lengths[_among(gaps.distinct, [" "])] = 0
    passed = outputs.places[lengths[gaps.before[outputs.places]] > 0]
    before = np.bincount(tokens.rows[passed], lengths[gaps.before[passed]], minlength=len(gaps.after))
    return lengths[gaps.after] + before.astype(np.int64)


def _among(strings: pa.StringArray, wanted: Iterable[str]) -> NDArray[np.bool_]:
    return np.array(pc.is_in(strings, pa.array([*wanted], pa.string())), dtype=np.bool_)


def _capitals(strings: pa.StringArray) -> NDArray[np.int64]:
    """int64 (s,): tell each string's pattern of capitals."""
    lower, capitalized, upper = (
        np.array(pc.equal(strings, pattern(strings)), dtype=np.bool_) for pattern in _PATTERNS[1:]
    )
    # New York and O'Neill, but not U.S.
    capitalized |= np.array(pc.utf8_is_title(strings), dtype=np.bool_) & ~upper
    return np.select([lower & upper, lower, capitalized, upper], [0, 1, _CAPITALIZED, 3], 0)
