"""How texts are cut into words, also those of scripts that put no spaces between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import regex

from dptext_spark.errors import ConfigError
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.tokens import (
    UNSPACED_LETTERS,
    UNSPACED_SCRIPTS,
    Tokenizer,
    all_visible,
    cut_visible,
    tokenize,
)

_RUN: Final = regex.compile(rf"((?!\p{{M}})[{UNSPACED_LETTERS}][{UNSPACED_LETTERS}\p{{M}}]*)")


def unspaced_share(texts: pa.Array) -> float:
    """Give the share of the letters of texts that are of scripts without spaces; 0 without letters."""
    unspaced, all_letters = (
        pc.sum(pc.count_substring_regex(texts, pattern=pattern)).as_py() or 0
        for pattern in (rf"[{UNSPACED_SCRIPTS}]", rf"[\p{{L}}{UNSPACED_SCRIPTS}]")
    )
    return unspaced / max(all_letters, 1)


class Segmentation(NamedPolicy, Tokenizer):
    """A policy for how texts are cut into tokens."""

    kind = "tokenizer"
    option = "--tokenizer"
    policies: ClassVar[dict[str, type[Segmentation]]] = {}
    scope = ""


class WordRuns(Segmentation):
    """Runs of letters and digits, as :func:`~dptext_spark.text.tokens.tokenize` finds them."""

    name = "words"
    identity = ""

    def __call__(self, text: str) -> list[str]:
        return tokenize(text)


PLAIN: Final = Segmentation.of(WordRuns.name)


def icu_version() -> str:
    """Give the version of ICU, whose dictionaries know the words of scripts without spaces."""
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
        "Chinese, Japanese, Thai, Lao, Khmer and Burmese are cut into words by ICU {version}: how many words "
        "each of their texts has is released."
    )

    version: str = field(init=False, default_factory=icu_version)  # other versions may cut differently

    @property
    def identity(self) -> str:
        return f"icu {self.version}"

    def __call__(self, text: str) -> list[str]:
        cuts = (
            self._cut(token) if all_visible(token) else cut_visible(token, self._cut)
            for token in tokenize(text)
        )
        return [word for words in cuts for word in words]

    def _cut(self, token: str) -> list[str]:
        if _RUN.search(token) is None:
            return [token]
        words: list[str] = []
        for number, part in enumerate(_RUN.split(token)):  # every second one is a run
            words += _icu_breaker(self.version)(part) if number % 2 else tokenize(part)
        return words


@cache
def _icu_breaker(version: str) -> Callable[[str], Iterable[str]]:
    if (here := icu_version()) != version:
        raise ConfigError(
            "Texts would be cut by another ICU than where the run began",
            allowed=f"ICU {version}",
            got=f"ICU {here}",
            do="Install one version of icu4py everywhere",
        )
    from icu4py.breakers import WordBreaker  # only this package's extra brings it

    # For these scripts all languages give the same words.
    return lambda run: WordBreaker(run, "root")
