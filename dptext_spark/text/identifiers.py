"""Identifiers: what stands in texts in the place of what patterns find."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from dptext_spark.errors import ConfigError, nearest
from dptext_spark.text.actions import Action, Mask, Surrogate, Words
from dptext_spark.text.joined import cut_marked
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import NUMBER, OPTIONAL, SPAN, TYPES
from dptext_spark.text.patterns.user import UserPatterns
from dptext_spark.text.tokens import (
    Tokenizer,
    all_visible,
    cut_visible,
    lookup_form,
    straight,
)

_NAMES: Final = (*TYPES, *OPTIONAL)
TAGGED: Final = frozenset(["email", "phone", "card", "iban"])
"""What has tags under ``surrogate:LABEL``, with the types of a user's own."""


@dataclass(frozen=True)
class Marker:
    """A tokenizer for which each span of some types is one token, with the rest of its word."""

    base: Tokenizer  # cuts all else
    types: frozenset[str]
    letter: str  # stands in texts for what a column of spans marks
    user: UserPatterns | None = None

    @property
    def words(self) -> Collection[str]:
        return getattr(self.base, "words", ())

    def __call__(self, text: str) -> list[str]:
        text = straight(text)
        if all_visible(text):
            return self._cut(text)
        return cut_visible(text, self._cut)

    def _cut(self, text: str) -> list[str]:
        spans = find(text, self.types, self.user)
        if not spans:
            return self.base(text)
        places = [(start, end) for start, end, _ in spans]
        tokens, _ = cut_marked(text, places, self.base, whole=True)
        return tokens

    def kind(self, token: str) -> str | None:
        """Return the type of the longest span in a token or an element; None for a word."""
        form = lookup_form(token)
        if self.letter and self.letter in form:
            return SPAN
        spans = find(form, self.types, self.user)
        if not spans:
            return None
        _, _, name = max(spans, key=lambda span: span[1] - span[0])
        return name

    def longest_span(self, name: str, token: str) -> str:
        """Return the longest span of a type, the first of equal ones; the token if it has none.

        A token has the rest of a word too, and an element of a list any text.
        """
        form = lookup_form(token)
        spans = [
            form[start:end]
            for start, end, kind in find(form, self.types, self.user)
            if kind == name
        ]
        return max(spans, key=len, default=form)


class Identifiers(NamedPolicy):
    """A policy for spans that patterns recognize: an action for each type."""

    kind = "policy for identifiers"
    option = "--identifiers"
    policies: ClassVar[dict[str, type[Identifiers]]] = {}
    scope = ""  # that of its actions

    @abstractmethod
    def action(self, name: str) -> Action | None:
        """Return the action of a type; None where another option decides.

        A type that is not built in is one of the user's own.
        """

    @classmethod
    def of(cls, value: Self | str) -> Self:
        if isinstance(value, str) and "=" in value:
            return ActionsByType.read(value)  # type: ignore[return-value]
        return super().of(value)

    @classmethod
    def forms(cls) -> list[str]:
        return [*super().forms(), "TYPE=ACTION,TYPE=ACTION"]

    @property
    def marked(self) -> tuple[str, ...]:
        """The built-in types that become marks or are left out, numbers apart."""
        marked = []
        for name in _NAMES:
            action = self.action(name)
            if action is not None and action.is_marked:
                marked.append(name)
        return tuple(marked)

    @property
    def named_types(self) -> tuple[str, ...]:
        """The types that the option's value names."""
        return ()

    @property
    def advice(self) -> str:
        """What to do where some are found that become no marks; empty if all become marks."""
        if {*TYPES} <= {*self.marked}:
            return ""
        return (
            f"With --identifiers {self} they are words like all others. "
            "Mark them with --identifiers mask."
        )


class _OfTypes(Identifiers):
    """One action for some types, or for those that are marked by default where none is named."""

    types: str

    def __post_init__(self) -> None:
        unknown_types = {*filter(None, self.types.split(","))} - {*_NAMES}
        if unknown_types:
            raise _unknown(unknown_types, _NAMES)
        # One spelling, as it decides on the noise.
        names = [name for name in _NAMES if name in self.types.split(",")]
        if names == [*TYPES]:
            names = []
        object.__setattr__(self, "types", ",".join(names))

    @property
    def named_types(self) -> tuple[str, ...]:
        return tuple(filter(None, self.types.split(",")))


@dataclass(frozen=True)
class MaskIdentifiers(_OfTypes):
    """A mark with the type's name, whatever the span holds."""

    name = "mask"

    types: str = ""

    def action(self, name: str) -> Action | None:
        if name == NUMBER:
            return None
        if name in _NAMES and name not in (self.named_types or TYPES):
            return Words()
        return Mask()


@dataclass(frozen=True)
class Surrogates(_OfTypes):
    """A mark with a keyed tag for types whose values are many; for others a mark."""

    name = "surrogate"

    label: str
    types: str = ""

    def __post_init__(self) -> None:
        label, comma, types = self.label.partition(",")
        if comma or label in _NAMES:
            if label in _NAMES:
                types = self.label
                label = "LABEL"
            raise ConfigError(
                "Surrogates have a name, and then perhaps types behind another colon",
                allowed=f"{self.name}:LABEL, {self.name}:LABEL:TYPE,TYPE",
                got=str(self),
                do=f"Give {self.name}:{label}:{types}",
            )
        super().__post_init__()
        for name in self.named_types:
            Surrogate(self.label).check(name)

    def action(self, name: str) -> Action | None:
        if name == NUMBER:
            return None
        if name not in _NAMES or name in (self.named_types or TAGGED):
            return Surrogate(self.label)
        if self.types or name in OPTIONAL:
            return Words()
        return Mask()


class IdentifiersOff(Identifiers):
    """Identifiers are words like all others, except types of a user's own."""

    name = "off"

    def action(self, name: str) -> Action | None:
        if name == NUMBER:
            return None
        return Words() if name in _NAMES else Mask()


@dataclass(frozen=True)
class ActionsByType(Identifiers):
    """An action for each of some types; all others have that of ``mask``.

    Attributes:
        actions: Types with their actions, ordered by type.
    """

    name: ClassVar[str]

    actions: tuple[tuple[str, Action], ...]

    @classmethod
    def read(cls, value: str) -> Self:
        """Read ``TYPE=ACTION,TYPE=ACTION``; types of a user's own are checked with their file."""
        actions: dict[str, Action] = {}
        for part in value.split(","):
            name, equals, written = part.partition("=")
            if not equals or name in actions:
                raise ConfigError(
                    f"{cls.option} must name each type once, with its action",
                    allowed="TYPE=ACTION,TYPE=ACTION",
                    got=repr(part),
                )
            action = Action.of(written)
            action.check(name)
            actions[name] = action
        ordered = {}
        for name in (*_NAMES, NUMBER, *sorted(actions)):
            if name in actions:
                ordered[name] = actions[name]
        return cls(tuple(ordered.items()))

    def __str__(self) -> str:
        return ",".join(map("{0[0]}={0[1]}".format, self.actions))

    def action(self, name: str) -> Action | None:
        return dict(self.actions).get(name) or MaskIdentifiers().action(name)

    @property
    def named_types(self) -> tuple[str, ...]:
        return tuple(dict(self.actions))


def actions_of(
    identifiers: Identifiers, numbers: Action, user: UserPatterns | None
) -> dict[str, Action]:
    """Return the action of each type, built in or a user's own.

    Raises:
        ConfigError: A type has an action that is neither.
    """
    names = [*_NAMES, NUMBER]
    if user is not None:
        names += user.names
    unknown_types = {*identifiers.named_types} - {*names}
    if unknown_types:
        raise _unknown(unknown_types, names)
    return {name: identifiers.action(name) or numbers for name in names}


def described(actions: Mapping[str, Action]) -> list[str]:
    """Return what the guarantee does not cover of types with these actions, in sentences."""
    sentences = []
    marks = []
    by_action: dict[Action, list[str]] = {}
    for name, action in actions.items():
        if action.is_marked and action.is_shown:
            marks.append(name)
        # What is looked for only where it is named goes without saying.
        if action.scope and (action.is_marked or name not in OPTIONAL):
            by_action.setdefault(action, []).append(name)
    if marks:
        sentences.append(_MARKED.format(listed=", ".join(marks), first=marks[0].upper()))
    for action, names in by_action.items():
        sentences.append(action.describe(listed=", ".join(names), first=names[0].upper()))
    return sentences


def _unknown(unknown_types: Collection[str], names: Collection[str]) -> ConfigError:
    return ConfigError(
        "Types of identifiers are unknown",
        allowed=", ".join(names),
        got=", ".join(sorted(unknown_types)),
        do=nearest(sorted(unknown_types), names),
    )


_MARKED: Final = (
    "Each span that a pattern recognizes ({listed}) becomes one mark such as [{first}], with the "
    "rest of the word or the list's element that it is in: its type and place are visible. "
    "Between a mark and a word, or marks of two types, there is no bound: the factor is infinite. "
    "Names, and what no pattern recognizes, are words or numbers like all others."
)

NUMBERS: Final = {
    "mask": "Numbers with more than two figures in a row become [NUMBER], unless they are in "
    "another mark: places are visible, with no bound to a word.",
    "words": "Numbers that are no marks are words: noise in the embedding space means little for "
    "them.",
    "drop": "Numbers with more than two figures in a row are left out, unless they are in a mark.",
}
"""What runs of more than two figures become: the scope of each action."""
