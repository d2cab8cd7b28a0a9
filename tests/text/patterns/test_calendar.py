"""Days and years of dates as they are written."""

import pytest

from dptext_spark.text.patterns.calendar import date_of, year_of


@pytest.mark.parametrize(
    ("span", "date", "year"),
    [
        ("05/13/1984", "1984-05-13", 1984),  # no 13th month
        ("05/06/1984", "1984-06-05", 1984),
        ("1984-05-06T10:30:00Z", "1984-05-06", 1984),
        ("Saturday, 12 May 1984 at 10:30", "1984-05-12", 1984),
        ("2020:03:04 10:00", "2020-03-04", 2020),
        ("1984\u5e745\u670812\u65e5", "1984-05-12", 1984),
        ("12. Februar 1984", None, 1984),
        ("30/02/1984", None, 1984),
        ("12/05/84", None, None),
        ("May 1984", None, 1984),
    ],
)
def test_days_and_years_of_dates(span, date, year):
    """Rejects months by the number that comes first, centuries by guess, and days that do not exist."""
    day = date_of(span)
    assert (day.isoformat() if day else None, year_of(span)) == (date, year)
