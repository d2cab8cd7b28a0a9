"""Patterns of dates, times and ages."""

from __future__ import annotations

import re
from typing import Final

from dptext_spark.text.patterns.pattern import MONTH, Pattern, Span, W, is_even
from dptext_spark.text.patterns.tables import DAYS, MONTHS, SHORT_MONTHS
from dptext_spark.text.patterns.view import DAY_SIGN, MONTH_SIGN, YEAR_SIGN

_DAY: Final = "(?:0?[1-9]|[12][0-9]|3[01])(?![0-9])"
_MONTH: Final = "(?:0?[1-9]|1[0-2])(?![0-9])"
_YEAR: Final = "[12][0-9]{3}(?![0-9])"
_SHORT: Final = "[0-9]{2}(?![0-9])"
_BETWEEN: Final = r"(?: ?[./_\u00b7-] ?| )"
_ZONE: Final = r"(?: ?(?:Z|UTC|GMT|CET|[+-][0-9]{2}:?[0-9]{2}))?"
_HALF: Final = r"(?: ?(?i:[ap]m|[ap]\.m\.|uhr|h))?"
_SECONDS: Final = r"(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
_CLOCK: Final = rf"[0-9]{{1,2}}(?::| ?h ?)[0-9]{{2}}{_SECONDS}{_HALF}{_ZONE}"
_THEN: Final = rf"(?:(?:,? ?(?i:at |um |a las |- ?)?|T|:){_CLOCK})?"
_NAME: Final = r"[^\W\d_]{3,15}"

# Those that say a month with a day alone; others need a year.
_ENGLISH: Final = frozenset(
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"]
)
_PLAIN: Final = _ENGLISH | {"march", "april", "june", "july"}
_WEEKDAY_BEFORE: Final = re.compile(
    rf"(?<!{W})([^\W\d_]{{3,15}}(?:-[^\W\d_]{{3,10}})?)[,.]{{0,2}} (?i:(?:de[nm]|the|el|le) )?$"
)
_WEEKDAY_AFTER: Final = re.compile(rf",? ([^\W\d_]{{3,15}}(?:-[^\W\d_]{{3,10}})?)(?!{W})")


_WORDS: Final = re.compile(r"[^\W\d_]{3,15}")
_MONTHS: Final = MONTHS | SHORT_MONTHS | _ENGLISH


def has_month(view: str) -> bool:
    """Return whether a view has the name of a month."""
    return not _MONTHS.isdisjoint(_WORDS.findall(view.lower()))


def _is_month(name: str, *, has_year: bool) -> bool:
    name = name.lower()
    if name in MONTHS or name in _ENGLISH:
        return True
    return has_year and name in SHORT_MONTHS


def _named(match: re.Match[str]) -> Span:
    """Return a date with the name of a month, and with the day of the week next to it."""
    return _dated(match, has_year=bool(match["year"]))


def _dated(match: re.Match[str], *, has_year: bool) -> Span:
    start, end = match.span("all")
    if not _is_month(match["month"], has_year=has_year):
        return None
    day = _WEEKDAY_BEFORE.search(match.string, max(start - 30, 0), start)
    if day is not None and day[1].lower() in DAYS:
        start = day.start()
    day = _WEEKDAY_AFTER.match(match.string, end)
    if day is not None and day[1].lower() in DAYS:
        end = day.end()
    return start, end


def _month_first(match: re.Match[str]) -> Span:
    """Return a day that a month known as one stands before."""
    name = match["month"].lower()
    if len(name) < 6 and name not in _PLAIN:
        return None
    return _dated(match, has_year=False)


def _numeric(match: re.Match[str]) -> Span:
    """Return a date whose numbers are separated alike."""
    if not is_even(match["day"] or ""):
        return None
    return match.span("all")


def _clock(match: re.Match[str]) -> Span:
    """Return a time of a day."""
    hours, minutes, *_ = map(int, _NUMBERS.findall(match["all"]))
    if hours > 24 or minutes > 59:
        return None
    return match.span("all")


_NUMBERS: Final = re.compile("[0-9]+")

DATES: Final = (
    Pattern.of(
        "date",
        rf"(?<![0-9][./-])(?P<day>{_DAY}{_BETWEEN}{_MONTH}{_BETWEEN}{_YEAR}"
        rf"|{_MONTH}{_BETWEEN}{_DAY}{_BETWEEN}{_YEAR}"
        rf"|{_YEAR}(?:{_BETWEEN}|:){_MONTH}(?:{_BETWEEN}|:){_DAY})(?![./-][0-9]){_THEN}"
        rf"|{_YEAR} ?[{YEAR_SIGN}\ub144] ?{_MONTH} ?[{MONTH_SIGN}\uc6d4]"
        rf"(?: ?{_DAY} ?[{DAY_SIGN}\uc77c])?",
        _numeric,
    ),
    Pattern.of(
        "date",
        rf"(?P<month>{_NAME})\.?[ -]?{_DAY}(?:st|nd|rd|th)?(?:,? |, ?|-)(?P<year>'{_SHORT}|{_YEAR})"
        rf"{_THEN}",
        _named,
        first=r"^\W\d_",
        needs=(MONTH,),
    ),
    Pattern.of(
        "date",
        rf"(?P<year>{_YEAR})(?:\.|,| [mg]\.|\. gada)?[ -](?:{_DAY}\. )?(?P<month>{_NAME})"
        rf"(?:\.?[ -]{_DAY}(?: d)?)?",
        _named,
        needs=(MONTH,),
    ),
    Pattern.of(
        "date",
        rf"{_DAY}(?i:st|nd|rd|th|er|e|\u00b0|\.|:e)?(?i:,? (?:of|de|a|den) | d'|[ ./-]{{0,2}})"
        rf"(?P<month>{_NAME})"
        rf"(?:\.?(?:,? ?(?i:de |del )?|[-/.])"
        rf"(?P<year>'?{_SHORT}(?!:)|{_YEAR})(?i: ?[gr\u0433\u0440]\.)?)?"
        rf"{_THEN}",
        _named,
        needs=(MONTH,),
    ),
    Pattern.of(
        "date",
        rf"(?P<month>{_NAME})\.?[ -]?{_DAY}(?:st|nd|rd|th)?{_THEN}",
        _month_first,
        first=r"^\W\d_",
        needs=(MONTH,),
    ),
    Pattern.of(
        "date",
        rf"(?P<month>{_NAME})\.?,?[ -]?(?i:de |del |of )?(?P<year>{_YEAR}){_THEN}",
        _named,
        first=r"^\W\d_",
        needs=(MONTH,),
    ),
)
TIMES: Final = (
    Pattern.of(
        "time",
        rf"(?<![0-9][:.,])T?(?:{_CLOCK}"
        rf"|[0-9]{{1,2}}\.[0-9]{{2}}(?i: ?[ap]m| ?[ap]\.m\.| uhr))(?![:.,]?[0-9])",
        _clock,
        first="0-9T",
        needs=":h.",
    ),
)
SHORT_DATES: Final = (
    Pattern.of(
        "date",
        rf"(?<![0-9][./-])(?P<day>{_DAY}[/-]{_MONTH}[/-]{_SHORT}|{_MONTH}[/-]{_DAY}[/-]{_SHORT}"
        rf"|(?=[0-9]{{2}}){_DAY}\. ?(?=[0-9]{{2}}){_MONTH}\. ?{_SHORT})(?![./-][0-9]){_THEN}",
        _numeric,
    ),
)
AGES: Final = (
    Pattern.of(
        "age",
        r"(?i:aged?|agee? de):? ?(?:9[0-9]|1[01][0-9])(?i: years?)?"
        r"|(?:9[0-9]|1[01][0-9])(?i:[ -]?(?:years?|yrs?)[ -](?:olds?|of age)"
        r"| ?y/?o|[- ]?jahrige[nrs]?"
        r"| (?:ans|anos|anni|jahre(?: alt)?|jaar(?: oud)?|ar gammal|lat))",
        first="0-9Aa",
    ),
)
