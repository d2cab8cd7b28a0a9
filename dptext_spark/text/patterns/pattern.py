"""What a pattern of a type of identifiers is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

DIGITS: Final = frozenset("0123456789")

W: Final = r"[^\W_]"
"""A letter or a figure."""

GAP: Final = r"(?: ?[-\u2014./_\u00b7] ?| )"
"""What may stand between the figures of one number."""

Span: TypeAlias = tuple[int, int] | None


def whole(match: re.Match[str]) -> Span:
    """Return where a match starts and ends."""
    return match.span()


@dataclass(frozen=True)
class Pattern:
    """A pattern of one type.

    Attributes:
        type: The name of what it finds.
        signs: A view without any of these has none.
        regex: What it matches; no letter or figure may stand next to that.
        span: Returns what of a match is a span, or None if nothing is.
    """

    type: str
    signs: frozenset[str]
    regex: re.Pattern[str]
    span: Callable[[re.Match[str]], Span]

    @classmethod
    def of(
        cls,
        name: str,
        expression: str,
        span: Callable[[re.Match[str]], Span] = whole,
        *,
        signs: str = "0123456789",
        open_end: bool = False,
    ) -> Pattern:
        """Compile a pattern; behind an ``open_end`` a word may go on."""
        end = "" if open_end else f"(?!{W})"
        regex = re.compile(f"(?<!{W})(?:{expression}){end}")
        return cls(type=name, signs=frozenset(signs), regex=regex, span=span)

    def spans(self, view: str) -> Iterator[tuple[int, int]]:
        """Yield where spans start and end in a view, in order."""
        match = self.regex.search(view)
        while match is not None:
            place = match.start() + 1
            span = self.span(match)
            if span is not None:
                yield span
                _, place = span
            match = self.regex.search(view, place)
