"""The text policy of a release: which tokens are protected, and what becomes of unknown ones."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import ClassVar, Final, Never, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.errors import ConfigError, InputError, check_names
from dptext_spark.text.columns import (
    DROP,
    KEEP,
    MASK,
    PLACEHOLDER,
    Spans,
    Tokens,
    read_spans,
    with_letter,
)
from dptext_spark.text.identifiers import MARKS, NUMBER, NUMBERS, VERSION, Identifiers
from dptext_spark.text.layout import Layout
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.tokens import Segmentation, tokenize

# Below n words there are ln n points in the mean: with 10^7 words more than these in 10^-18 of all cases.
_POINTS: Final = 64

# NLTK has these only as pieces of contractions that were cut at the apostrophe. As words of a text they are
# initials, units and names: T. N., Don, New Haven.
_PIECES: Final = frozenset(
    tokenize(
        "ain aren couldn d didn doesn don hadn hasn haven isn ll m ma mightn mustn needn o re s shan shouldn "
        "t ve wasn weren won wouldn y"
    )
)


Uniforms: TypeAlias = Callable[[int], Iterator[NDArray[np.float64]]]
"""Gives float64 (t, k) in (0, 1), for k uniforms per token, in chunks."""


class OovPolicy(NamedPolicy):
    """A policy for tokens outside the vocabulary: one stand-in, unless :meth:`release` is overridden."""

    kind = "out-of-vocabulary policy"
    option = "--oov"
    policies: ClassVar[dict[str, type[OovPolicy]]] = {}
    stand_in: ClassVar[int] = MASK  # or KEEP or DROP
    shape: ClassVar[
        str
    ] = (  # what a row still reveals without its words; ``words`` may be marks, too
        "The number of {words} in each row and which rows are null or have none are released as they are."
    )

    def release(
        self, count: int, release_words: int, uniforms: Uniforms, column: str
    ) -> NDArray[np.int64] | int:
        """Give what is released in place of ``count`` > 0 tokens: word ids or stand-ins, or one for all."""
        return self.stand_in


class Mask(OovPolicy):
    """A fixed placeholder."""

    name = "mask"
    scope = f"{{unknown}} become {PLACEHOLDER}: their positions are visible."


class Drop(OovPolicy):
    """Nothing."""

    name = "drop"
    scope = "{unknown} are left out."
    stand_in = DROP
    shape = (
        "The number of {words} in each row that are not left out, and which rows are null or have none of "
        "these, are released as they are."
    )


class RandomWord(OovPolicy):
    """A word drawn uniformly from the release vocabulary.

    It is the last point below the vocabulary's size n, rounded down, of a Poisson process of intensity 1/x,
    whose points go up from 1 by factors 1 / uniform: none lies between x and n with probability x / n. So the
    word drawn among n is drawn among fewer too where it is one of these, as the nearest word to a noisy point
    is: releases under one key with different vocabularies do not reveal by it which words are unknown.
    """

    name = "random"
    scope = "{unknown} become a uniformly random word of those that may be output."

    def release(
        self, count: int, release_words: int, uniforms: Uniforms, column: str
    ) -> NDArray[np.int64]:
        points = (np.cumprod(1.0 / drawn, axis=1) for drawn in uniforms(_POINTS))
        words = [np.where(each < release_words, each, 0.0).max(axis=1) for each in points]
        return np.concatenate(words).astype(np.int64)


class Fail(OovPolicy):
    """There must be none."""

    name = "fail"
    scope = "{unknown} fail the run: there are none."

    def release(self, count: int, release_words: int, uniforms: Uniforms, column: str) -> NoReturn:
        raise InputError(
            f"Column {column} has words outside the vocabulary, which --oov fail forbids",
            allowed="words of the embedding bundle",
            got=f"{count} unknown words in one batch of rows",
            do="Choose another --oov policy or a bundle with a larger vocabulary",
        )


class KeepUnprotected(OovPolicy):
    """The token itself, without any protection."""

    name = "keep-unprotected"
    scope = "{unknown} ARE RELEASED AS THEY ARE, WITHOUT ANY PROTECTION."
    stand_in = KEEP


class Protection(NamedPolicy, ABC):
    """A policy for which tokens are protected; the others are released as they are."""

    kind = "protection policy"
    option = "--protect"
    policies: ClassVar[dict[str, type[Protection]]] = {}
    unknown: ClassVar[str] = (
        "Protected words outside the vocabulary"  # as scopes of unknown words call them
    )

    @property
    def identity(self) -> str:
        """What decides which tokens are protected, so that a ledger can compare releases."""
        return str(self)

    @property
    def slots_column(self) -> str | None:
        """The column with each row's slots, if the policy has one."""
        return getattr(self, "column", None)

    @abstractmethod
    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Mark the tokens of some rows that are protected, bool (tokens,)."""


class AllWords(Protection):
    """Every token."""

    name = "all"
    scope = "Every word of the sanitized columns that the vocabulary has is covered."
    unknown = "Words outside the vocabulary"

    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        return np.ones(len(tokens), dtype=np.bool_)


@cache
def stop_words() -> frozenset[str]:
    """The English stop words of NLTK (as the papers use), contractions whole and as the tokens of a text."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # a large package, rarely needed

    parts = (part for word in STOPWORDS_EN_PLUS for part in tokenize(word))
    return frozenset({*STOPWORDS_EN_PLUS, *parts} - _PIECES)


class ContentWords(Protection):
    """All but stop words."""

    name = "content"
    scope = (
        "Stop words are released as they are (NLTK's English list: about 160, such as the, not, she), "
        "with their places and capitals; the other words of the vocabulary are covered. BETWEEN A STOP WORD "
        "AND ANY OTHER WORD THERE IS NO BOUND, nor between two stop words: the factor is infinite."
    )
    unknown = "Words outside the vocabulary that are no stop words"

    @property
    def identity(self) -> str:
        digest = hashlib.sha256("\n".join(sorted(stop_words())).encode()).hexdigest()
        return f"{self.name}, list {digest[:12]}"

    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        # As written, not by its lookup form: an invisible character in a word would pass with it.
        return ~tokens.flag(lambda token: token.lower() in stop_words())


@dataclass(frozen=True)
class Slots(Protection):
    """The tokens that the spans of a column touch, by their positions: :func:`read_spans`."""

    name = "slots"
    scope = (
        "Only words inside the slots of column {column} that the vocabulary has are covered; words outside "
        "the slots are released as they are. Letters next to a slot belong to it. The output shows where "
        "slots stand, how many words they have, and which rows have none that can be read; the choice of the "
        "marked words is not covered."
    )
    unknown = "Words inside the slots that the vocabulary lacks"

    column: str

    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        # Tokens that were read without their spans: in doubt nothing passes.
        return np.ones(len(tokens), dtype=np.bool_) if tokens.spans is None else tokens.marked


MASKED_SPANS: Final = (
    f"Spans of column {{column}} become {PLACEHOLDER}, with the rest of each word that they touch: their "
    f"places are visible. Where a row's spans cannot be read, its text is one {PLACEHOLDER}, and so is each "
    "element of a list. The choice of the spans is not covered."
)


@dataclass(frozen=True, init=False)
class TextPolicy:
    """What tokens are, which are perturbed, what becomes of unknown ones, and what surrounds them in texts.

    All are policies, or options' values for them; ``mask_spans`` is a column of spans that become marks.
    """

    oov: OovPolicy
    protect: Protection
    layout: Layout
    tokenizer: Segmentation
    identifiers: Identifiers
    numbers: str
    mask_spans: str

    def __init__(
        self,
        *unnamed: Never,
        oov: OovPolicy | str = "mask",
        protect: Protection | str = "all",
        layout: Layout | str = "words",
        tokenizer: Segmentation | str = "words",
        identifiers: Identifiers | str = "mask",
        numbers: str = "mask",
        mask_spans: str | None = None,
        **unknown: Never,
    ) -> None:
        check_names(type(self).__name__, [field.name for field in fields(self)], unnamed, unknown)
        if numbers not in NUMBERS:
            raise ConfigError(
                "--numbers has a wrong value", allowed=", ".join(NUMBERS), got=repr(numbers)
            )
        vars(self).update(
            oov=OovPolicy.of(oov),
            protect=Protection.of(protect),
            layout=Layout.of(layout),
            tokenizer=Segmentation.of(tokenizer),
            identifiers=Identifiers.of(identifiers),
            numbers=numbers,
            mask_spans=mask_spans or "",
        )
        if self.mask_spans and self.protect.slots_column:
            what = "Options --mask-spans and --protect slots:COLUMN do not go together"
            raise ConfigError(what, do="Leave one of them out")

    @property
    def spans_column(self) -> str | None:
        """The column with each row's slots or masked spans, if there is any."""
        return self.mask_spans or self.protect.slots_column

    @property
    def types(self) -> frozenset[str]:
        """The types of spans that patterns mark."""
        return frozenset([*self.identifiers.marked, *[NUMBER] * (self.numbers == "mask")])

    @property
    def marks_identity(self) -> str:
        """What decides which parts of texts are marks, as the noise's context has it; empty where none is."""
        patterns = f"identifiers {self.identifiers}, numbers {self.numbers}, patterns {VERSION}"
        return ", ".join(
            [*[patterns] * bool(self.types), *["masked spans"] * bool(self.mask_spans)]
        )

    def read(
        self, values: pa.Array, spans: pa.Array | None, letter: str
    ) -> tuple[pa.Array, Spans | None]:
        """Put a letter in place of masked spans of texts or token lists; give the slots, if there are any."""
        if self.spans_column is None:
            return values, None
        if spans is None:
            do = f"Give the values of column {self.spans_column}"
            raise InputError("The policy needs the spans of each row", do=do)
        found = read_spans(spans, values, self.spans_column)
        return (with_letter(values, found, letter), None) if self.mask_spans else (values, found)

    def describe(self) -> list[str]:
        """Say what the guarantee does not cover under this policy."""
        protect = self.protect.describe()
        oov = self.oov.describe(unknown=self.protect.unknown)
        words = "words"
        # Words of a span are neither covered nor unknown: a mark stands in their place.
        if self.types:
            example = min(self.types, key=MARKS.index)
            protect = f"Outside of marks such as [{example.upper()}], {_continued(protect)}"
            oov = f"Outside of marks, {_continued(oov)}"
            words = "words and marks"
        elif self.mask_spans:
            protect = f"Outside of masked spans, {_continued(protect)}"
            oov = f"Outside of masked spans, {_continued(oov)}"
            words = "words and masked spans"
        return [
            protect,
            oov,
            self.oov.shape.format(words=words),
            self.layout.describe(),
            self._about_identifiers(),
            NUMBERS[self.numbers],
            *[MASKED_SPANS.format(column=self.mask_spans)] * bool(self.mask_spans),
            *filter(None, [self.tokenizer.describe()]),
        ]

    def _about_identifiers(self) -> str:
        marked = self.identifiers.marked
        return self.identifiers.describe(
            listed=", ".join(marked), first=next(iter(marked), "").upper()
        )


def _continued(sentence: str) -> str:
    """Return a sentence as it goes on after a first part."""
    return sentence[:1].lower() + sentence[1:]


WORDS_ALONE: Final = TextPolicy(identifiers="off", numbers="words")  # for what is words already
