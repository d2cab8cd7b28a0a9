"""The day that a date's span names."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from dptext_spark.text.patterns.view import View

_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_ENGLISH: Final = re.compile(
    r"(?<![^\W\d_])(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![^\W\d_])"
)
_CLOCK: Final = re.compile(r"t?\d{1,2}(?::| ?h ?)\d{2}.*")
_YEAR_FIRST_CLOCK: Final = re.compile(r"^\d{4}:\d{1,2}:\d{1,2}")
_NUMBERS: Final = re.compile(r"\d+")
_NAME: Final = re.compile(r"[^\W\d_]{3,}")


def year_of(span: str) -> int | None:
    """Return the year of a date; None where it has none of four figures."""
    years = [number for number in _numbers(View(span).text.casefold()) if len(number) == 4]
    return int(years[0]) if len(years) == 1 else None


def date_of(span: str) -> date | None:
    """Return the day of a date; None where a part of it is missing, or a name is not English.

    Of two numbers that may both be the month, the first one is the day.
    """
    text = View(span).text.casefold()
    numbers = _numbers(text)
    year = year_of(span)
    if year is None:
        return None
    others = [int(number) for number in numbers if len(number) != 4]
    is_year_first = len(numbers[0]) == 4
    month_name = _ENGLISH.search(text)
    if month_name is not None and len(others) == 1:
        month = _MONTHS.index(month_name[0][:3]) + 1
        day = others[0]
    elif len(others) == 2 and not _NAME.search(text):
        day, month = others
        if is_year_first or month > 12:
            month, day = others
    else:
        return None
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _numbers(text: str) -> list[str]:
    """Return the numbers of a date, without those of a time behind it."""
    if _YEAR_FIRST_CLOCK.match(text):  # as cameras write it
        text = text[:10].replace(":", "-")
    return _NUMBERS.findall(_CLOCK.sub("", text))
