"""Tokens of a text, the policies that find them, and the form in which they are looked up."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import regex

from dptext_spark.errors import ConfigError
from dptext_spark.text.named_policy import NamedPolicy

# Scripts without spaces between words: Chinese, Japanese, Thai, Lao, Khmer and Burmese.
UNSPACED_SCRIPTS: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
# With the signs that they share: for long sounds, voiced sounds and repetition.
UNSPACED_LETTERS: Final = rf"{UNSPACED_SCRIPTS}\u3006\u3031-\u3035\u303c\u30fc\uff70\uff9e\uff9f"

# Invisible characters: of Unicode 16 those of format (Cf), those that fonts leave out (default
# ignorable), and control characters that are no white space.
_INVISIBLE: Final = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891"
    "\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
INVISIBLE: Final = re.compile(f"[{_INVISIBLE}]")
"""Finds each invisible character."""

# A space of no width is the border of words in scripts that have no other.
_WITHOUT_SPACE: Final = _INVISIBLE.replace("\u200b-", "\u200c-")
_LEFT_OUT: Final = regex.compile(
    rf"(?<![{UNSPACED_LETTERS}{_INVISIBLE}])[{_INVISIBLE}]++(?![{UNSPACED_LETTERS}])"
    rf"|[{_WITHOUT_SPACE}]+"
)
_OF_EMOJI: Final = regex.compile(
    r"(?<=(?!\+)\p{S})[\u200d\ufe0e\ufe0f\U000e0020-\U000e007f]++"
    rf"(?![\p{{L}}\p{{M}}\p{{N}}'{_INVISIBLE}])"
    r"|\ufe0f(?=\u20e3)"
)

# A token is a run of letters and digits with their combining marks. Inner apostrophes are kept. The
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
# With Hebrew's geresh and gershayim.
_STRAIGHT: Final = str.maketrans(dict.fromkeys("\u2019\u02bc\uff07\u05f3", "'") | {"\u05f4": '"'})
_DOTTED: Final = re.compile("i\u0307+")
# Fast, and rarely true.
_MAYBE_BY_FORM: Final = re.compile('["\u00b7\u0130\u0307\u0590-\u05ff\ufb1d-\ufb4f]')
_BY_FORM: Final = regex.compile(
    r"[\u00b7\u0130\u0307\u05f3\u05f4]|\w\.?\"\w|(?<=\p{Hebrew})['\u2019\u02bc\uff07]"
)

_RUN: Final = regex.compile(rf"((?!\p{{M}})[{UNSPACED_LETTERS}][{UNSPACED_LETTERS}\p{{M}}]*)")


class Tokenizer(Hashable, Protocol):
    """Splits texts into tokens: small, picklable, comparable.

    The tokens of a text are pieces of ``straight(text)``, unchanged, in their order and without
    overlap. Every visible letter and digit is in one of them. Invisible characters (soft hyphens,
    joiners, variation selectors) end no word.
    """

    def __call__(self, text: str) -> list[str]: ...


def straight(text: str) -> str:
    """Return a text with straight apostrophes and quotes, character for character."""
    return text.translate(_STRAIGHT)


def all_visible(text: str) -> bool:
    """Return whether a text has no invisible character."""
    # This is true of most texts, and takes a sixth of the time.
    if text.isascii() and text.replace("\n", " ").isprintable():
        return True
    return INVISIBLE.search(text) is None


def by_form(text: str, *, elements: bool = False) -> bool:
    """Return whether lookup forms may decide which words a text, or the elements of a list, has.

    Such rows have noise of their own: earlier versions cut them or looked them up in another way.
    """
    if not all_visible(text):
        if elements:
            return True
        without_emoji_parts = _OF_EMOJI.sub("", straight(text))
        if not all_visible(without_emoji_parts):
            return True
    if _MAYBE_BY_FORM.search(text) is not None and _BY_FORM.search(text) is not None:
        return True
    return elements and straight(text) != text


def cut_visible(text: str, cut: Callable[[str], list[str]]) -> list[str]:
    """Return the tokens of a text's visible characters, with the invisible ones inside them."""
    invisible = (match.span() for match in _LEFT_OUT.finditer(text))
    places: list[int] = []
    for start, end in between(invisible, len(text)):
        places += range(start, end)
    visible = "".join(text[place] for place in places)
    tokens = []
    for start, end in token_spans(visible, cut(visible)):
        tokens.append(text[places[start] : places[end - 1] + 1])
    return tokens


def tokenize(text: str) -> list[str]:
    """Split a text into its tokens, and drop everything between them.

    >>> tokenize("Don't e-mail bob@example.com, it's 5 o\u2019clock!")
    ['Do', "n't", 'e', 'mail', 'bob', 'example', 'com', 'it', "'s", '5', "o'clock"]
    """
    text = straight(text)
    # Without apostrophes both patterns find the same tokens, and this one is four times as fast.
    pattern = _TOKEN if "'" in text else _PLAIN_TOKEN
    if all_visible(text):
        return pattern.findall(text)
    return cut_visible(text, pattern.findall)


def token_spans(text: str, tokens: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield where the tokens of a text with straight apostrophes start and end in it."""
    end = 0
    for token in tokens:
        # The next visible letter or digit is this token's: there is none between tokens.
        start = text.index(token, end)
        end = start + len(token)
        yield start, end


def between(spans: Iterable[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """Yield where each part of a text before, between and after some spans starts and ends."""
    end = 0
    for start, after in spans:
        yield end, start
        end = after
    yield end, length


def lookup_form(word: str) -> str:
    """Return the form by which vocabularies, lists and texts are compared; it keeps capitals."""
    if word.isascii() and word.isprintable():  # most words have it already
        return word
    composed = unicodedata.normalize("NFC", INVISIBLE.sub("", straight(word)))
    # The lower case of Turkish İ has a dot of its own.
    return unicodedata.normalize("NFC", _DOTTED.sub("i", composed))


def lookup_forms(token: str) -> tuple[str, str]:
    """Return the forms under which a token is looked up, in order: as written, and lower case."""
    form = lookup_form(token)
    return form, lookup_form(form.lower())


def unspaced_share(texts: pa.Array) -> float:
    """Return the share of texts' letters that are of scripts without spaces; 0 without letters."""
    unspaced = _count_characters(texts, UNSPACED_SCRIPTS)
    all_letters = _count_characters(texts, rf"\p{{L}}{UNSPACED_SCRIPTS}")
    return unspaced / max(all_letters, 1)


def _count_characters(texts: pa.Array, characters: str) -> int:
    counts = pc.count_substring_regex(texts, pattern=f"[{characters}]")
    return pc.sum(counts).as_py() or 0


class Segmentation(NamedPolicy, Tokenizer):
    """A policy for how texts are cut into tokens."""

    kind = "tokenizer"
    option = "--tokenizer"
    policies: ClassVar[dict[str, type[Segmentation]]] = {}
    scope = ""

    @property
    def identity(self) -> str:
        """What enters the noise of texts, so that two tokenizers never share noise.

        It is empty for the tokenizer ``words``.
        """
        return self.name


class WordRuns(Segmentation):
    """Runs of letters and digits, as :func:`tokenize` finds them."""

    name = "words"
    identity = ""

    def __call__(self, text: str) -> list[str]:
        return tokenize(text)


PLAIN: Final = Segmentation.of(WordRuns.name)


def icu_version() -> str:
    """Return the version of ICU, whose dictionaries have the words of scripts without spaces."""
    try:
        from icu4py import icu_version as version
    except ImportError:
        raise ConfigError(
            "The tokenizer icu needs the library icu4py, which is not installed here",
            do="Run: pip install 'dptext-spark[segmentation]', on a cluster for the workers too",
        ) from None
    return str(version)


@dataclass(frozen=True)
class IcuWords(Segmentation):
    """Runs of letters and digits, and in them the words of scripts without spaces."""

    name = "icu"
    scope = (
        "Chinese, Japanese, Thai, Lao, Khmer and Burmese are cut into words by ICU {version}: how "
        "many words each of their texts has is released."
    )

    # Other versions may cut differently.
    version: str = field(init=False, default_factory=icu_version)

    @property
    def identity(self) -> str:
        return f"icu {self.version}"

    def __call__(self, text: str) -> list[str]:
        words: list[str] = []
        for token in tokenize(text):
            if all_visible(token):
                words += self._cut(token)
            else:
                words += cut_visible(token, self._cut)
        return words

    def _cut(self, token: str) -> list[str]:
        if _RUN.search(token) is None:
            return [token]
        words: list[str] = []
        for number, part in enumerate(_RUN.split(token)):
            if number % 2:  # every second one is a run
                words += _icu_breaker(self.version)(part)
            else:
                words += tokenize(part)
        return words


@cache
def _icu_breaker(version: str) -> Callable[[str], Iterable[str]]:
    here = icu_version()
    if here != version:
        raise ConfigError(
            "This host has another version of ICU than the driver",
            allowed=f"ICU {version}",
            got=f"ICU {here}",
            do="Install one version of icu4py everywhere",
        )
    from icu4py.breakers import WordBreaker  # only this package's extra brings it

    # For these scripts all languages give the same words.
    return lambda run: WordBreaker(run, "root")
