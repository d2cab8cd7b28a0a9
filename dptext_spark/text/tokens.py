"""Tokens of a text, and the form in which they are looked up."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import regex

from dptext_spark.text.marks import Span

# A token is a run of letters and digits with their combining marks; inner apostrophes stay, and the
# clitics of English are tokens of their own ("do" + "n't"), as in GloVe's vocabularies.
_CHARACTER: Final = r"[\p{L}\p{M}\p{N}]"
_STEM: Final = rf"[\p{{L}}\p{{N}}]{_CHARACTER}*"
_NEGATION: Final = rf"n't(?!{_CHARACTER})"
_CLITIC: Final = rf"'(?:s|m|d|ll|re|ve)(?!{_CHARACTER})"
_TOKEN: Final = regex.compile(
    rf"(?<=\p{{L}}){_NEGATION}"
    rf"|(?<={_CHARACTER}){_CLITIC}"
    rf"|[\p{{L}}\p{{N}}]{_CHARACTER}*?(?={_NEGATION})"
    rf"|{_STEM}(?:'(?!(?:s|m|d|ll|re|ve)(?!{_CHARACTER})){_STEM})*",
    regex.IGNORECASE,
)
_PLAIN_TOKEN: Final = regex.compile(_STEM)
_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u02bc": "'", "\uff07": "'"})


class Tokenizer(Hashable, Protocol):
    """Splits texts into tokens: small, picklable, comparable.

    The tokens of a text are pieces of ``straight(text)`` as they stand, in their order and without overlap;
    every letter and every digit is in one of them. How the marked spans of a text are cut, and how all else
    is, does not depend on the other: no token is put together from tokens of which only some touch a span.
    """

    @property
    def identity(self) -> str:
        """What enters the noise of texts, so that no two tokenizers share any; empty for the plain one."""

    def __call__(self, text: str, marked: Sequence[Span] = ()) -> list[str]: ...


class PlainTokenizer:
    """Splits by :func:`tokenize`."""

    identity: Final = ""

    def __call__(self, text: str, marked: Sequence[Span] = ()) -> list[str]:
        return tokenize(text)


PLAIN: Final = PlainTokenizer()


def straight(text: str) -> str:
    """Give a text with straight apostrophes, character for character."""
    return text.translate(_APOSTROPHES)


def tokenize(text: str) -> list[str]:
    """Split a text into its tokens; everything between them is dropped.

    >>> tokenize("Don't e-mail bob@example.com, it's 5 o\u2019clock!")
    ['Do', "n't", 'e', 'mail', 'bob', 'example', 'com', 'it', "'s", '5', "o'clock"]
    """
    text = straight(text)
    # Without apostrophes both patterns find the same tokens, this one four times as fast.
    tokens: list[str] = (_TOKEN if "'" in text else _PLAIN_TOKEN).findall(text)
    return tokens


def token_spans(text: str, tokens: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Find where the tokens of a text with straight apostrophes start and end in it."""
    end = 0
    for token in tokens:
        # The next letter or digit is this token's: what lies between tokens has none.
        start = text.index(token, end)
        end = start + len(token)
        yield start, end


def match_form(token: str, *, lower: bool) -> str:
    """Give the form in which a token is looked up: Unicode NFC, and lower case if ``lower``."""
    token = unicodedata.normalize("NFC", token)
    return unicodedata.normalize("NFC", token.lower()) if lower else token
