"""Actions: what becomes of a span of a type of identifiers. Each is one class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final, NamedTuple

from dptext_spark.errors import ConfigError
from dptext_spark.noise import NoiseKey
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.patterns.calendar import date_of, year_of
from dptext_spark.text.patterns.forms import canonical

TAG_BITS: Final = 64
"""The length of a surrogate's tag."""

MOST_DAYS: Final = 365
"""How far dates are moved, at most."""

DATE: Final = "date"
NO_TAGS: Final = frozenset(["date", "time", "age", "ip", "coordinates", "number"])
"""Types with few values, of which a dictionary is quickly made."""


class Span(NamedTuple):
    """A span that a pattern recognized."""

    type: str
    text: str
    owner: bytes = b""  # names the row that it is in, or its person


class Action(NamedPolicy, ABC):
    """What becomes of the spans of a type.

    Attributes:
        is_marked: Whether patterns look for the type at all.
        is_shown: Whether something stands in the place of a span.
        of_text: Whether what comes out depends on the span's text.
        of_owner: Whether what comes out depends on the row or its person.
        reveals: What it lets out besides type and place, in words before a column's name.
    """

    kind = "action"
    option = "--identifiers TYPE=ACTION"
    policies: ClassVar[dict[str, type[Action]]] = {}
    is_marked: ClassVar[bool] = True
    is_shown: ClassVar[bool] = True
    of_text: ClassVar[bool] = True
    of_owner: ClassVar[bool] = False
    reveals: ClassVar[str] = ""

    def check(self, name: str) -> None:
        """Refuse a type that the action does not suit."""

    def key(self, key: NoiseKey | None) -> NoiseKey | None:
        """Return the key of stand-ins, derived from the user's key, if there are keyed ones."""
        return None

    @abstractmethod
    def stand_in(self, span: Span, key: NoiseKey | None) -> str:
        """Return what is released for a span, by the derived key."""

    def mark(self, span: Span, detail: str = "") -> str:
        """Return a mark with the name of the span's type."""
        if detail:
            detail = f"-{detail}"
        return f"[{span.type.upper()}{detail}]"


class Mask(Action):
    """A mark with the type's name."""

    name = "mask"
    of_text = False
    scope = ""  # that of all marks

    def stand_in(self, span: Span, key: NoiseKey | None) -> str:
        return self.mark(span)


@dataclass(frozen=True)
class Surrogate(Action):
    """A mark with a keyed tag: equal spans, keys and labels have equal tags."""

    name = "surrogate"
    reveals = "which identifiers are equal in"
    scope = (
        "Marks of {listed} have a tag, such as [{first}-3f9a2c51d07be644]. THE TAGS ARE "
        "PSEUDONYMS, OUTSIDE OF THE BOUND: equal spans, however they are spelled, have equal tags "
        "in all rows, columns and tables under one key and the name {label}. Anyone who can put a "
        "text into such a table has a dictionary of them: a row of phone numbers comes out with "
        f"their tags in order. So has anyone with the key. A tag has {TAG_BITS} bits."
    )

    label: str

    def check(self, name: str) -> None:
        if name in NO_TAGS:
            raise ConfigError(
                f"Type {name} takes no surrogate: it has so few values that a tag hides none",
                do=f"Give {name}=mask",
            )

    def key(self, key: NoiseKey | None) -> NoiseKey:
        if key is None:
            raise ConfigError(
                f"Surrogates, as {self} has them, need a key that is kept",
                do="Give --key-file, or take --identifiers mask",
            )
        return key.derive(b"surrogates", self.label.encode())

    def stand_in(self, span: Span, key: NoiseKey | None) -> str:
        if key is None:
            return self.mark(span)
        form = canonical(span.type, span.text)
        tag = key.derive(span.type.encode(), form.encode()).secret.hex()
        return self.mark(span, tag[: TAG_BITS // 4])


class Drop(Mask):
    """Nothing."""

    name = "drop"
    is_shown = False
    scope = "Spans of {listed} are left out, with the rest of the word that they are in."


class Words(Mask):
    """What the text has, as words and numbers like all others."""

    name = "words"
    is_marked = False
    scope = "Spans of {listed} are words and numbers like all others."


class _OfDates(Action):
    """An action for dates."""

    def check(self, name: str) -> None:
        if name != DATE:
            raise ConfigError(
                f"Action {self.name} is for dates", allowed=f"{DATE}={self}", got=f"{name}={self}"
            )


class Year(_OfDates):
    """A mark with the year of a date."""

    name = "year"
    reveals = "the years of dates in"
    scope = (
        "Marks of dates have the year, such as [DATE-1984], AS IT IS, OUTSIDE OF THE BOUND; dates "
        "without a year of four figures have none."
    )

    def stand_in(self, span: Span, key: NoiseKey | None) -> str:
        year = year_of(span.text)
        return self.mark(span, f"{year:04}" if year is not None else "")


@dataclass(frozen=True)
class Shift(_OfDates):
    """A mark with the date, moved by one keyed number of days for all dates of a row or person.

    A date without a day, a month and a year of four figures is a mark alone.
    """

    name = "shift"
    of_owner = True
    reveals = "intervals between dates in"
    scope = (
        f"Marks of dates have the date moved by up to {MOST_DAYS} days back or forth, such as "
        "[DATE-1984-05-17], by one keyed number of days for all dates of a row, or of a person "
        "where --person is given, in all tables under one key that is kept and the name {label}. "
        "INTERVALS BETWEEN DATES ARE RELEASED AS THEY ARE, OUTSIDE OF THE BOUND; one date that an "
        "observer knows reveals all others, and every year is known to within one."
    )

    label: str

    def key(self, key: NoiseKey | None) -> NoiseKey:
        """Return the key of moves; without a key of the user's a fresh one, which is discarded."""
        return (key or NoiseKey.generate()).derive(b"shifts", self.label.encode())

    def stand_in(self, span: Span, key: NoiseKey | None) -> str:
        date = date_of(span.text)
        if date is None or key is None:
            return self.mark(span)
        of_owner = key.derive(span.owner).secret
        # One of 731 numbers; all are equally likely, to within 2^-54.
        days = int.from_bytes(of_owner[:8], "little") % (2 * MOST_DAYS + 1) - MOST_DAYS
        try:
            moved = date + timedelta(days=days)
        except OverflowError:
            return self.mark(span)
        return self.mark(span, moved.isoformat())
