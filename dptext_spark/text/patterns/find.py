"""Spans of identifiers in texts.

A span's own characters alone decide whether it is marked and as what. No word around it counts. An
ordered list of patterns decides: each looks at what those before it left.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from dptext_spark.text.patterns.addresses import LINKS, MAC, NETWORKS
from dptext_spark.text.patterns.dates import AGES, DATES, SHORT_DATES, TIMES, has_month
from dptext_spark.text.patterns.numbers import (
    ACCOUNTS,
    CARDS,
    CODES,
    COORDINATES,
    INTERNATIONAL,
    NATIONAL,
    NUMBERS,
    PHONE_NUMBERS,
    UUID,
)
from dptext_spark.text.patterns.pattern import FIGURE, MONTH, Pattern
from dptext_spark.text.patterns.tables import SHA256
from dptext_spark.text.patterns.user import UserPatterns
from dptext_spark.text.patterns.view import BLANK, View, zones

PATTERNS: Final = (
    *LINKS,
    UUID,
    MAC,
    *ACCOUNTS,
    *NETWORKS,
    *DATES,
    *COORDINATES,
    INTERNATIONAL,
    *NATIONAL,
    *CARDS,
    *TIMES,
    *PHONE_NUMBERS,
    *SHORT_DATES,
    *AGES,
    *CODES,
    *NUMBERS,
)
_REVISION: Final = "4"  # another one whenever what is found changes without its pattern
VERSION: Final = hashlib.sha256(
    f"{[(p.type, p.regex.pattern) for p in PATTERNS]}{SHA256}{_REVISION}".encode()
).hexdigest()[:12]
"""The version of the patterns: others may give a row other words, so it is in the noise context."""


_FIGURES: Final = re.compile("[0-9]")


@lru_cache(maxsize=64)
def _chosen(types: frozenset[str], hints: str) -> tuple[Pattern, ...]:
    """Return the patterns of some types that may match a view with these hints, in order."""
    patterns = (pattern for pattern in PATTERNS if pattern.type in types)
    return tuple(pattern for pattern in patterns if _may_match(pattern, hints))


def _may_match(pattern: Pattern, hints: str) -> bool:
    needs = {*pattern.needs} & {FIGURE, MONTH}
    return not needs or any(need in hints for need in needs)


def find(
    text: str, types: Collection[str], user: UserPatterns | None = None
) -> list[tuple[int, int, str]]:
    """Find spans of these types in a visible text: start, end and type, in order.

    A user's own types come first, and what the user allows is no span.
    """
    types = frozenset(types)
    spans: list[tuple[int, int, str]] = []
    rest = text
    if user is not None:
        spans = user.find(text)
        rest = _blanked(text, spans)
    for first, end in zones(rest):
        view = View(rest[first:end])
        for start, stop, name in _view_spans(view.text, types):
            start, stop = view.place(start, stop)
            spans.append((first + start, first + stop, name))
    if user is not None:
        spans = [
            span for span in sorted(spans) if not user.allows(span[2], text[span[0] : span[1]])
        ]
    return spans


def _blanked(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with a sign that no pattern has in the place of spans, in order."""
    pieces: list[str] = []
    place = 0
    for start, end, _ in spans:
        pieces += [text[place:start], BLANK * (end - start)]
        place = end
    return "".join([*pieces, text[place:]])


def _view_spans(view: str, types: frozenset[str]) -> list[tuple[int, int, str]]:
    """Return spans of a view in order: each pattern looks at what those before it left."""
    hints = ""
    if _FIGURES.search(view):
        hints += FIGURE
    if has_month(view):
        hints += MONTH
    spans: list[tuple[int, int, str]] = []
    signs = view + hints
    for pattern in _chosen(types, hints):
        for need in pattern.needs:
            if need in signs:
                break
        else:
            continue
        new_spans = [(start, end, pattern.type) for start, end in pattern.spans(view)]
        if new_spans:
            spans += new_spans
            view = _blanked(view, new_spans)
    return sorted(spans)
