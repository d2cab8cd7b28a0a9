"""Addresses, paths and handles: common spellings are marks, code and prose are not."""

import pytest

from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import NUMBER, TYPES

ALL = frozenset([*TYPES, NUMBER])


def spans(text, types=ALL):
    return [(name, text[start:end]) for start, end, name in find(text, types)]


SPELLINGS = [
    ("mail maria @ perez.net or", [("email", "maria @ perez.net")]),
    ("mail maria@ perez.net", [("email", "maria@ perez.net")]),
    ('to "maria"@perez.example now', [("email", '"maria"@perez.example')]),
    ('{"a": "maria\\u0040perez.net"}', [("email", "maria\\u0040perez.net")]),
    ("to maria(a)perez.net now", [("email", "maria(a)perez.net")]),
    ("ssh maria@db5 now", [("handle", "maria@db5")]),
    ("at db5:5432/maria now", [("url", "db5:5432/maria")]),
    ("in /c/Users/maria/x", [("path", "/c/Users/maria/x")]),
    ("at http[s]://a.b/maria now", [("url", "http[s]://a.b/maria")]),
    ("at shop.co.za/maria now", [("url", "shop.co.za/maria")]),
    ("at wiki.internal/maria now", [("url", "wiki.internal/maria")]),
    ("at \u0431\u0443\u043a\u0432\u0430.\u043e\u043d\u043b\u0430\u0439\u043d/maria", None),
    ("in /var/lib/maria/x.db.", [("path", "/var/lib/maria/x.db")]),
    ("in /mnt/maria, then", [("path", "/mnt/maria")]),
    ("in ~maria/x", [("path", "~maria/x")]),
    ("in C:\\Users\\maria now", [("path", "C:\\Users\\maria")]),
    ("in \\\\server\\maria", [("path", "\\\\server\\maria")]),
    ("hi .@maria", [("handle", "@maria")]),
    ("hi @maria.lopez!", [("handle", "@maria.lopez")]),
    ("by u/maria_x, then", [("handle", "u/maria_x")]),
    ("by /u/maria", [("handle", "/u/maria")]),
    ("lat=52.52, lon=13.4", [("coordinates", "lat=52.52"), ("coordinates", "lon=13.4")]),
    ('"lat": 52.52', [("coordinates", 'lat": 52.52')]),
    ("D E 3 6 0 5 6 0 5 8 0 1 8 8 9 6 6 6 3 2 2 9 so", None),
    ("Torsdag den 5. november 1987", [("date", "Torsdag den 5. november 1987")]),
    ("Donnerstag, den 5. November 1987", [("date", "Donnerstag, den 5. November 1987")]),
]


@pytest.mark.parametrize(("text", "marked"), SPELLINGS)
def test_common_spellings_are_marked_whole(text, marked):
    """Rejects patterns that know one spelling: what is left of another stays in the text."""
    if marked is None:
        ((_, span),) = spans(text)
        assert len(span) > 12
    else:
        assert spans(text) == marked


NO_MARKS = [
    "@property def x",
    "@dataclass(frozen=True) class A",
    "@pytest.mark.parametrize('x', [])",
    "@functools.cache",
    "@app.route('/x')",
    "@width.setter",
    "@Override public",
    "* @param x the first",
    "@media print",
    "@maria(",
    "see u @ work.so what",
    "at home.Then we went",
    "msgs@150p each, at 10:3000/5",
    "see (a) b.c and f(a)b",
    "and/or w/o u/ur r/u/x /tmp/.",
    "print('%s:\\n', r'\\\\d+', '\\\\n')",
    "translate: 5 flat: 3 plat=2",
]


@pytest.mark.parametrize("text", NO_MARKS)
def test_code_and_prose_are_no_addresses(text):
    """Rejects decorators and annotations as handles, escapes as paths, words as hosts."""
    names = {name for name, _ in spans(text)}
    assert not names & {"email", "url", "path", "handle", "coordinates"}
