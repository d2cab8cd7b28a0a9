"""The text policy of a release: which tokens are protected, and what becomes of unknown ones."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Final, Literal, Never, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from dptext_spark.arguments import must_be, naming_arguments
from dptext_spark.errors import ConfigError, InputError, check_parameters, faults
from dptext_spark.text.actions import Action
from dptext_spark.text.columns import (
    DROP,
    KEEP,
    MASK,
    PLACEHOLDER,
    Spans,
    Tokens,
    column_kind,
    read_spans,
    with_letter,
)
from dptext_spark.text.detectors import Detector
from dptext_spark.text.identifiers import (
    NUMBERS,
    Identifiers,
    MaskIdentifiers,
    actions_of,
    described,
)
from dptext_spark.text.layout import Layout, SingleSpaces
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.patterns.find import VERSION
from dptext_spark.text.patterns.names import MARKS, NUMBER
from dptext_spark.text.patterns.user import UserPatterns
from dptext_spark.text.tokens import PLAIN, Segmentation, tokenize

# For n words there are ln n points on average: with 10^7 words more than these in 10^-18 of cases.
_POINTS: Final = 64

# NLTK has these only as pieces of contractions that were cut at the apostrophe. As words of a text
# they are initials, units and names: T. N., Don, New Haven.
_PIECES: Final = frozenset(
    tokenize(
        "ain aren couldn d didn doesn don hadn hasn haven isn ll m ma mightn mustn needn o re s "
        "shan shouldn t ve wasn weren won wouldn y"
    )
)


Uniforms: TypeAlias = Callable[[int], Iterator[NDArray[np.float64]]]
"""Yields float64 (t, k) in (0, 1), for k uniforms per token, in chunks."""


class OovPolicy(NamedPolicy):
    """A policy for tokens outside the vocabulary: one stand-in, unless it overrides ``release``."""

    kind = "out-of-vocabulary policy"
    option = "--oov"
    policies: ClassVar[dict[str, type[OovPolicy]]] = {}
    stand_in: ClassVar[int] = MASK  # or KEEP or DROP
    # What a row still reveals without its words; ``words`` may be marks, too.
    shape: ClassVar[str] = (
        "The output shows how many {words} each row has, and which rows are null or have none."
    )

    def release(
        self, count: int, release_words: int, uniforms: Uniforms, column: str
    ) -> NDArray[np.int64] | int:
        """Return what replaces ``count`` > 0 tokens: word ids or stand-ins, or one for all."""
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
        "The output shows how many {words} of each row are not left out, and which rows are null "
        "or have none of these."
    )


class RandomWord(OovPolicy):
    """A word drawn uniformly from the release vocabulary.

    It is the last point below the vocabulary's size n, rounded down, of a Poisson process of
    intensity 1/x, whose points go up from 1 by factors 1 / uniform: none lies between x and n with
    probability x / n. So the word drawn among n is drawn among fewer too where it is one of these,
    as the nearest word to a noisy point is: releases under one key with different vocabularies do
    not reveal by it which words are unknown.
    """

    name = "random"
    scope = "{unknown} become a uniformly random word of those that may be output."

    def release(
        self, count: int, release_words: int, uniforms: Uniforms, column: str
    ) -> NDArray[np.int64]:
        words = []
        for chunk in uniforms(_POINTS):
            points = np.cumprod(1.0 / chunk, axis=1)
            words.append(np.where(points < release_words, points, 0.0).max(axis=1))
        return np.concatenate(words).astype(np.int64)


class Fail(OovPolicy):
    """There must be none."""

    name = "fail"
    scope = "{unknown} fail the run: there are none."

    def release(self, count: int, release_words: int, uniforms: Uniforms, column: str) -> NoReturn:
        raise InputError(
            f"Column {column} has words outside the vocabulary, which the policy oov=fail forbids",
            allowed="words of the embedding bundle",
            got=f"{count} unknown words in one batch of rows",
            do="Choose another oov policy, or a bundle with a larger vocabulary",
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
    # What scopes call the words that an out-of-vocabulary policy replaces.
    unknown: ClassVar[str] = "Protected words outside the vocabulary"

    @classmethod
    def forms(cls) -> list[str]:
        """Return the option's values; slots have a column, unless a detector finds them."""
        return [*super().forms(), f"{Slots.name}:COLUMN"]

    @property
    def identity(self) -> str:
        """What decides which tokens are protected, so that a ledger can compare releases."""
        return str(self)

    @property
    def slots_column(self) -> str | None:
        """The column with each row's slots, if the policy has one."""
        return getattr(self, "column", None) or None

    @abstractmethod
    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Return bool (tokens,): which tokens are protected."""


class AllWords(Protection):
    """Every token."""

    name = "all"
    scope = "Every word of the sanitized columns that the vocabulary has is covered."
    unknown = "Words outside the vocabulary"

    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        return np.ones(len(tokens), dtype=np.bool_)


@cache
def stop_words() -> frozenset[str]:
    """Return NLTK's English stop words (as the papers use), contractions whole and as tokens."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # a large package, rarely needed

    words = set(STOPWORDS_EN_PLUS)
    for word in STOPWORDS_EN_PLUS:
        words.update(tokenize(word))
    return frozenset(words - _PIECES)


class ContentWords(Protection):
    """All but stop words."""

    name = "content"
    scope = (
        "Stop words are released as they are (NLTK's English list: about 160, such as the, not, "
        "she), with their places and capitals; the other words of the vocabulary are covered. "
        "BETWEEN A STOP WORD AND ANY OTHER WORD THERE IS NO BOUND, nor between two stop words: the "
        "factor is infinite."
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
    """The tokens that spans touch, by their positions: :func:`read_spans`, or a detector's."""

    name = "slots"
    scope = (
        "Only words inside the slots of {source} that the vocabulary has are covered; words "
        "outside the slots are released unchanged. Letters next to a slot belong to it. The output "
        "shows the positions of slots, how many words they have, and which rows have none that can "
        "be read; the choice of the marked words is not covered."
    )
    unknown = "Words inside the slots that the vocabulary lacks"

    column: str = ""  # empty where a detector finds them

    def protected(self, tokens: Tokens) -> NDArray[np.bool_]:
        if tokens.spans is None:  # they were read without their spans: in doubt nothing passes
            return np.ones(len(tokens), dtype=np.bool_)
        return tokens.marked


MASKED_SPANS: Final = (
    f"Spans of {{source}} become {PLACEHOLDER}, with the rest of each word that they touch: their "
    "places are visible. {unreadable}The choice of the spans is not covered."
)
_UNREADABLE: Final = (
    f"Where a row's spans cannot be read, its text is one {PLACEHOLDER}, and so is each element of "
    "a list. "
)


WORD: Final = partial(Field, title="Words")
"""A parameter that the help lists among those about words."""

TOKENIZER: Final = partial(
    WORD,
    PLAIN,
    description="how texts are split: words, or icu (Chinese, Japanese, Thai, Lao, Khmer, Burmese "
    "too)",
)


IDENTIFIERS: Final = partial(
    WORD,
    MaskIdentifiers(),
    description="what to do with identifiers: mask, mask:TYPE,TYPE, surrogate:LABEL, off or "
    "TYPE=ACTION,TYPE=ACTION",
)
"""A parameter of all that must know which words may be output."""

OWN_PATTERNS: Final = partial(
    WORD,
    None,
    validate_default=True,
    description="TOML file of own identifiers: types, words, an allow list",
)
"""Another one."""

NUMBER_POLICY: Final = partial(
    WORD,
    "mask",
    description="what to do with numbers of more than two digits: mask, or treat as words",
)
"""Another one."""

NumberPolicy: TypeAlias = Literal["mask", "words"]


class PolicyParameters(BaseModel):
    """What a user chooses about words, besides the noise.

    Each is a policy, or an option's value for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    oov: Annotated[OovPolicy, "NAME"] = WORD(
        Mask(), description=f"what to do with unknown words: {', '.join(OovPolicy.forms())}"
    )
    protect: Annotated[Protection, "NAME"] = WORD(
        AllWords(),
        description="words that get noise: all, content (not stop words), slots:COLUMN, "
        "slots (of --spans-by)",
    )
    layout: Annotated[Layout, Layout.forms] = WORD(
        SingleSpaces(),
        description="what to keep around words: nothing (words), or punctuation, symbols and "
        "capitals (keep)",
    )
    tokenizer: Annotated[Segmentation, Segmentation.forms] = TOKENIZER()
    identifiers: Annotated[Identifiers, "POLICY"] = IDENTIFIERS()
    identifier_patterns: Annotated[UserPatterns, "FILE"] | None = OWN_PATTERNS()
    numbers: NumberPolicy = NUMBER_POLICY()
    mask_spans: Annotated[str, "COLUMN"] | None = WORD(
        None, description="column of spans to mask, e.g. names from a detector"
    )
    spans_by: Annotated[Detector, "DETECTOR"] | None = WORD(
        None,
        validate_default=True,
        description="what finds the spans to mask, or slots: presidio:MODEL, spacy:MODEL or "
        "MODULE:FUNCTION",
    )

    @field_validator("identifier_patterns")
    @classmethod
    def _check_types(cls, user: UserPatterns | None, info: ValidationInfo) -> UserPatterns | None:
        """Check that identifiers name types that are built in, or in the file."""
        identifiers = info.data.get("identifiers")
        if isinstance(identifiers, Identifiers):
            try:
                actions_of(identifiers, Action.of("mask"), user)
            except ConfigError as error:
                raise ValueError(str(error)) from None
        return user

    @property
    def actions(self) -> dict[str, Action]:
        """The action of each type of identifiers, built in or a user's own."""
        return actions_of(self.identifiers, Action.of(self.numbers), self.identifier_patterns)

    @field_validator("mask_spans")
    @classmethod
    def _check_spans(cls, column: str | None, info: ValidationInfo) -> str | None:
        """Check that one column has spans: those of slots, or those to mask."""
        protect = info.data.get("protect")
        if column and isinstance(protect, Protection) and protect.slots_column:
            error = ConfigError(
                "Options --mask-spans and --protect slots:COLUMN do not go together",
                do="Leave one of them out",
            )
            raise ValueError(str(error))
        return column

    @field_validator("spans_by")
    @classmethod
    def _check_detector(cls, detector: Detector | None, info: ValidationInfo) -> Detector | None:
        """Check that a detector's spans are the only ones, and that slots have a source."""
        protect = info.data.get("protect")
        column = info.data.get("mask_spans")
        error = None
        if isinstance(protect, Slots):
            column = column or protect.column
            if detector is None and not protect.column:
                error = ConfigError(
                    "Slots without a column need a detector",
                    do="Give --spans-by, or --protect slots:COLUMN",
                )
        if detector is not None and column:
            error = ConfigError(
                "Options --spans-by and a column of spans do not go together",
                got=column,
                do="Leave one of them out; a detector's slots have no column",
            )
        if error is not None:
            raise ValueError(str(error))
        return detector


class TextPolicy(PolicyParameters):
    """How texts are split, which words get noise, and what becomes of all other characters.

    Parameters are the options of ``dptext privatize`` by name, with ``_`` for ``-``:
    ``TextPolicy(oov="drop", protect="slots:where", mask_spans="names")``. All that are wrong are
    one ConfigError.
    """

    @naming_arguments()
    def __init__(self, /, *unnamed: Never, **parameters: Any) -> None:
        owner = type(self).__name__
        names = type(self).model_fields
        check_parameters(owner, names, unnamed, sorted(parameters.keys() - names.keys()))
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            problems = faults(
                error,
                lambda problem: f"Parameter {problem['loc'][0]} of {owner}",
                unknown="is unknown",
                known=names,
            )
            if len(problems) == 1:
                raise ConfigError(problems[0].rstrip(".")) from None
            raise ConfigError(f"Parameters of {owner} are wrong", faults=problems) from None

    @staticmethod
    def of(value: object) -> TextPolicy:
        """Return a policy, by default that of ``TextPolicy()``; refuse what is none."""
        if value is None:
            return TextPolicy()
        if isinstance(value, TextPolicy):
            return value
        raise must_be("policy", "a TextPolicy, such as TextPolicy(oov='drop')", value)

    def to_json(self) -> dict[str, Any]:
        """Return the options' values, JSON-ready."""
        return self.model_dump(mode="json")

    @property
    def spans_column(self) -> str | None:
        """The column with each row's slots or masked spans, if there is any."""
        return self.mask_spans or self.protect.slots_column

    @property
    def spans_source(self) -> str:
        """What slots or masked spans are of, in words; empty where there are none."""
        if self.spans_by is not None:
            return f"detector {self.spans_by.identity}"
        if self.spans_column:
            return f"column {self.spans_column}"
        return ""

    @property
    def masks_spans(self) -> bool:
        """Whether spans of a column or a detector become marks."""
        by_detector = self.spans_by is not None and not isinstance(self.protect, Slots)
        return bool(self.mask_spans) or by_detector

    @property
    def types(self) -> frozenset[str]:
        """The types of spans that patterns look for."""
        return frozenset(name for name, action in self.actions.items() if action.is_marked)

    @property
    def mark_names(self) -> tuple[str, ...]:
        """The names of all marks, in the order of their codes."""
        return (*MARKS, *(name for name in self.actions if name not in MARKS))

    @property
    def patterns(self) -> UserPatterns | None:
        """The user's own patterns, without types that are words like all others."""
        if self.identifier_patterns is None:
            return None
        return self.identifier_patterns.of_types(self.types)

    @property
    def patterns_identity(self) -> str:
        """What decides where marks are, of what is looked for."""
        if self.identifier_patterns is None:
            return VERSION
        return f"{VERSION}, own {self.identifier_patterns.identity}"

    @property
    def marks_identity(self) -> str:
        """What decides which parts of texts are marks, for the noise's context; empty if none."""
        identities = []
        if self.types:
            identities.append(
                f"identifiers {self.identifiers}, numbers {self.numbers}, "
                f"patterns {self.patterns_identity}"
            )
        if self.masks_spans:
            identities.append("masked spans")
        if self.spans_by is not None:
            identities.append(f"by {self.spans_by.identity}")
        return ", ".join(identities)

    def check_tokens(self, tokens: Collection[str]) -> None:
        """Refuse columns of token lists where a detector reads texts."""
        if self.spans_by is not None and tokens:
            raise ConfigError(
                "A detector reads texts, not token lists",
                got=", ".join(tokens),
                do="Give the texts by --text, or the spans by --mask-spans",
            )

    def row_spans(self, values: pa.Array, spans: pa.Array | None) -> Spans | None:
        """Return the slots or masked spans of rows, of a column or a detector; None without any."""
        if self.spans_by is not None:
            if column_kind(values.type, "") == "tokens":
                self.check_tokens([str(values.type)])
            return self.spans_by.spans(values.to_pylist())
        if self.spans_column is None:
            return None
        if spans is None:
            raise InputError(
                "The policy needs the spans of each row",
                do=f"Give the values of column {self.spans_column}",
            )
        return read_spans(spans, values, self.spans_column)

    def read(
        self, values: pa.Array, spans: pa.Array | None, letter: str
    ) -> tuple[pa.Array, Spans | None]:
        """Return values with a letter in place of masked spans, and the slots, if there are any."""
        row_spans = self.row_spans(values, spans)
        if row_spans is not None and self.masks_spans:
            return with_letter(values, row_spans, letter), None
        return values, row_spans

    def describe(self) -> list[str]:
        """Return what the guarantee does not cover under this policy, in sentences."""
        protect = self.protect.describe(source=self.spans_source)
        oov = self.oov.describe(unknown=self.protect.unknown)
        words = "words"
        # Words of a span are neither covered nor unknown: a mark stands in their place.
        if self.types:
            example = min(self.types, key=self.mark_names.index)
            protect = f"Outside of marks such as [{example.upper()}], {_continued(protect)}"
            oov = f"Outside of marks, {_continued(oov)}"
            words = "words and marks"
        elif self.masks_spans:
            protect = f"Outside of masked spans, {_continued(protect)}"
            oov = f"Outside of masked spans, {_continued(oov)}"
            words = "words and masked spans"
        actions = self.actions
        numbers = actions.pop(NUMBER)
        sentences = [
            protect,
            oov,
            self.oov.shape.format(words=words),
            self.layout.describe(),
            *described(actions),
            NUMBERS[numbers.name],
        ]
        if self.masks_spans:
            unreadable = "" if self.spans_by is not None else _UNREADABLE
            sentences.append(MASKED_SPANS.format(source=self.spans_source, unreadable=unreadable))
        if self.tokenizer.scope:
            sentences.append(self.tokenizer.describe())
        return sentences


def _continued(sentence: str) -> str:
    """Return a sentence as the rest of a longer one."""
    return sentence[:1].lower() + sentence[1:]


WORDS_ALONE: Final = TextPolicy(identifiers="off", numbers="words")  # for what is words already
