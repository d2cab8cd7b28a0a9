"""What a pattern of a type of identifiers is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

FIGURE: Final = "0"
"""Stands for any figure in what a pattern needs."""
MONTH: Final = "month"
"""Stands for a month's name in what a pattern needs."""

W: Final = r"[^\W_]"
"""A letter or a figure."""

GAP: Final = r"(?: ?[-\u2014./_\u00b7] ?| )"
"""What may stand between the figures of one number."""

Span: TypeAlias = tuple[int, int] | None


def whole(match: re.Match[str]) -> Span:
    """Return where what was matched starts and ends."""
    return match.span("all")


def even(match: re.Match[str]) -> Span:
    """Return where what was matched starts and ends, if all its parts are separated alike."""
    return match.span("all") if is_even(match["all"]) else None


def is_even(text: str) -> bool:
    """Return whether the parts of a number are separated alike."""
    return len({*_NO_PART.findall(text)}) <= 1


_NO_PART: Final = re.compile("[^0-9A-Za-z]+")


@dataclass(frozen=True)
class Pattern:
    """A pattern of one type.

    Attributes:
        type: The name of what it finds.
        needs: A view without any of these has none.
        regex: What it matches, as the group ``all``; no letter or figure may stand next to that.
        span: Returns what of a match is a span, or None if nothing is; an empty one where no span
            begins before it.
    """

    type: str
    needs: tuple[str, ...]
    regex: re.Pattern[str]
    span: Callable[[re.Match[str]], Span]

    @classmethod
    def of(
        cls,
        name: str,
        expression: str,
        span: Callable[[re.Match[str]], Span] = whole,
        *,
        first: str = "0-9",
        needs: Iterable[str] = (FIGURE,),
        open_end: bool = False,
    ) -> Pattern:
        """Compile a pattern that begins with one of the ``first`` signs.

        It begins with that sign, as only then the search is fast, and looks behind it for all else.
        Behind an ``open_end`` a word may go on.
        """
        end = "" if open_end else f"(?!{W})"
        regex = re.compile(f"[{first}](?<!{W}.)(?<=(?=(?P<all>{expression}){end}).)")
        return cls(type=name, needs=tuple(needs), regex=regex, span=span)

    def spans(self, view: str) -> Iterator[tuple[int, int]]:
        """Yield where spans start and end in a view, in order."""
        match = self.regex.search(view)
        while match is not None:
            place = match.start() + 1
            span = self.span(match)
            if span is not None:
                start, place = span
                if start < place:
                    yield span
            match = self.regex.search(view, place)
