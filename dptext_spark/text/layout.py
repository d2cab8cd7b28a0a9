"""Sanitized columns from released words: what stands between words, and their capitals.

All of it acts on what is released and on what the layout lets pass, never on the words of the
input.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import compress
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex
from numpy.typing import NDArray

from dptext_spark.errors import ConfigError
from dptext_spark.text.columns import DROP, KEEP, MARK, PLACEHOLDER, Tokens
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.tokens import Tokenizer, between, straight, token_spans

CLITICS: Final = ("n't", "'s", "'m", "'d", "'ll", "'re", "'ve")
"""The clitics of English, which the tokenizer splits from the word before them."""

# Gaps that do not keep words apart: the tokenizer takes an apostrophe between letters for a part of
# the word.
_JOINING: Final = ("", "'", "\u2019", "\uff07", "\u05f3")

# Patterns of capitals by number. The first is for words of mixed capitals, and without letters.
_PATTERNS: Final = (lambda strings: strings, pc.utf8_lower, pc.utf8_capitalize, pc.utf8_upper)

# The signs that may pass: a list of one Unicode version (scripts/make_signs.py). The Unicode tables
# of this machine are not asked: versions differ.
SIGNS: Final = files("dptext_spark.text").joinpath("signs.json")  # the package may be a zip
SHA256: Final = "35c2eefc6306f2c15d2bc95c3c4219f48ec4156fec494a3bfaf947070d2c3b8e"
UNICODE: Final = "17.0"
_SIGNS_IDENTITY: Final = f"Unicode {UNICODE}, list {SHA256[:12]}"

_LINE_END: Final = re.compile("\r\n|[\n-\r\x85\u2028\u2029]")
_SPACE: Final = re.compile("[\t \xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")


@cache
def passing_signs() -> Callable[[str], str]:
    """Return a function that keeps a text's listed signs, emoji, spaces and line feeds alone."""
    content = SIGNS.read_bytes() if SIGNS.is_file() else b""
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise ConfigError(
            "The list of signs that may be between words (--layout keep) is damaged",
            allowed=f"SHA-256 {SHA256[:12]}",
            got=f"{digest[:12]} for {SIGNS.name}",
            do="Install dptext-spark again",
        )
    entries = json.loads(content)
    signs = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in entries["signs"])
    unlisted = re.compile(f"[^ \n{signs}]+")
    # Selectors and joiners pass inside of listed emoji alone, of which it finds the longest.
    emoji = regex.compile(r"(\L<emoji>)", emoji=entries["sequences"])

    def passing(text: str) -> str:
        text = _SPACE.sub(" ", _LINE_END.sub("\n", text))
        parts = [text]
        if "\ufe0f" in text or "\u200d" in text:
            parts = emoji.split(text)  # every second part is an emoji
        parts[::2] = [unlisted.sub("", part) for part in parts[::2]]
        return "".join(parts)

    return passing


class Layout(NamedPolicy, ABC):
    """A policy for what surrounds the released words of texts; token columns have none."""

    kind = "layout"
    option = "--layout"
    policies: ClassVar[dict[str, type[Layout]]] = {}
    capitals: ClassVar[bool]  # whether each word takes the capitals of the token that it replaces

    @property
    def identity(self) -> str:
        """What the layout lets pass, so that no growing table has rows of two layouts."""
        return self.name

    @abstractmethod
    def gaps(self, text: str, tokens: Sequence[str]) -> list[str]:
        """Return what passes before each token of a text, and after the last one."""


class SingleSpaces(Layout):
    """Nothing but the words, with single spaces between them."""

    name = "words"
    scope = "Capitals, punctuation, emoji and spacing of the covered words are not in the output."
    capitals = False

    def gaps(self, text: str, tokens: Sequence[str]) -> list[str]:
        return [""] * (len(tokens) + 1)


@dataclass(frozen=True)
class KeepLayout(Layout):
    """The words in the tokens' places: listed signs around them and capitals are kept."""

    name = "keep"
    scope = (
        "PUNCTUATION, SYMBOLS, EMOJI, SPACES AND LINE BREAKS BETWEEN WORDS ARE RELEASED AS THEY "
        f"ARE, if they are on a list of signs ({_SIGNS_IDENTITY}), which has no letters, digits "
        "and invisible characters. THE CHOICE AMONG THESE SIGNS CAN STILL CARRY A MESSAGE. Each "
        "word takes the capitals (lower, Capitalized, UPPER) of the word that it replaces."
    )
    capitals = True

    def __post_init__(self) -> None:
        passing_signs()

    @property
    def identity(self) -> str:
        return f"{self.name}, {_SIGNS_IDENTITY}"

    def gaps(self, text: str, tokens: Sequence[str]) -> list[str]:
        gaps = between(token_spans(straight(text), tokens), len(text))
        return [passing_signs()(text[start:end]) for start, end in gaps]


def assemble(
    tokens: Tokens,
    released: NDArray[np.int64],
    words: pa.StringArray,
    layout: Layout,
    marks: Sequence[str | None],
    marks_of_places: Mapping[int, str] | None = None,
) -> pa.Array:
    """Build a sanitized column, of the input's type.

    In texts a space keeps words apart where nothing else does, except for clitics, which are joined
    to the word before them. Dropping a word also drops the gap before it.

    Args:
        released: int64 (tokens,): for each token the id of one of ``words``, the vocabulary, or
            ``MASK``, ``KEEP``, ``DROP`` or, from ``MARK`` down, a mark's code.
        marks: What stands for each distinct token where it is a mark.
        marks_of_places: What stands for tokens in some places instead.
    """
    outputs = _outputs(tokens, released, words, layout, marks)
    for number, mark in (marks_of_places or {}).items():
        outputs[number] = mark
    is_kept = (released != DROP).tolist()
    clitics = {output for output in {*outputs} if output and straight(output.lower()) in CLITICS}
    is_apart = cache(partial(_is_apart, tokens.tokenizer))
    rows: list[str | list[str | None] | None] = []
    start = 0
    for row, row_tokens in enumerate(tokens.row_tokens()):
        place = slice(start, start + len(row_tokens))
        start += len(row_tokens)
        row_outputs = [*compress(outputs[place], is_kept[place])]
        if tokens.null_rows[row]:
            rows.append(None)
        elif tokens.kind == "tokens":
            rows.append(row_outputs)
        else:
            *before, after = layout.gaps(tokens.strings[row] or "", [*map(str, row_tokens)])
            gaps = compress(before, is_kept[place])
            pieces: list[str] = []
            for gap, output in zip(gaps, map(str, row_outputs), strict=True):
                is_joined = output in clitics and gap in ("", " ")
                if pieces and is_joined and is_apart(pieces[-1], output):
                    gap = ""
                elif pieces and gap in _JOINING:
                    gap += " "
                pieces += gap, output
            rows.append("".join([*pieces, after]))
    return pa.array(rows, tokens.data_type)


def _outputs(
    tokens: Tokens,
    released: NDArray[np.int64],
    words: pa.StringArray,
    layout: Layout,
    marks: Sequence[str | None],
) -> list[str | None]:
    """Return the string of each token; that of a token that is dropped means nothing."""
    is_word = released >= 0
    capitals = np.zeros(np.count_nonzero(is_word), dtype=np.int64)
    if layout.capitals and tokens.kind == "text":
        capitals = _capitals(tokens.distinct)[tokens.codes[is_word]]
    # Each string is made once: old Arrow cannot hold the strings of all tokens of a long row, and
    # does not say so.
    encoded = pa.array(released[is_word] * len(_PATTERNS) + capitals).dictionary_encode()
    word_ids, patterns = np.divmod(np.asarray(encoded.dictionary), len(_PATTERNS))
    strings = words.take(pa.array(word_ids))
    strings = pc.choose(pa.array(patterns), *(pattern(strings) for pattern in _PATTERNS))
    pool = [*strings.to_pylist(), PLACEHOLDER, *marks, *tokens.distinct.to_pylist(), None]
    first_mark = len(word_ids) + 1
    first_token = first_mark + len(marks)
    codes = np.full(len(tokens), len(word_ids), dtype=np.int64)  # of the placeholder
    codes[is_word] = encoded.indices
    is_mark = released <= MARK
    codes[is_mark] = first_mark + tokens.codes[is_mark]
    is_token = released == KEEP
    codes[is_token] = first_token + tokens.codes[is_token]
    codes[is_token & (tokens.codes < 0)] = -1  # a null element
    return [pool[code] for code in codes.tolist()]


def _is_apart(tokenizer: Tokenizer, word: str, clitic: str) -> bool:
    """Return whether the tokenizer splits a clitic again from the word before it."""
    text = straight(f"{word}{clitic}")
    if straight(word.lower()) in CLITICS:
        # Of two clitics the first is taken for one that is joined itself: "I" + "'d" + "'ve".
        text = f"x{text}"
    spans = [*token_spans(text, tokenizer(text))]
    start = len(text) - len(clitic)
    return (start, len(text)) in spans and start in {end for _, end in spans}


def _capitals(strings: pa.StringArray) -> NDArray[np.int64]:
    """Return int64 (s,): the number of each string's pattern of capitals."""
    lower, capitalized, upper = (
        np.array(pc.equal(strings, pattern(strings)), dtype=np.bool_) for pattern in _PATTERNS[1:]
    )
    # New York and O'Neill, but not U.S.
    capitalized |= np.array(pc.utf8_is_title(strings), dtype=np.bool_) & ~upper
    return np.select([lower & upper, lower, capitalized, upper], [0, 1, 2, 3], 0)
