"""What is found in texts: where a span of each type begins and ends, and that nothing around it counts."""

import pytest

from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import NUMBER, OPTIONAL, TYPES
from tests.helpers.made_texts import AROUND

ALL = frozenset([*TYPES, NUMBER])


SPANS = [
    ("mail john.smith+x@mail.example.co.uk.", "email:john.smith+x@mail.example.co.uk"),
    ("m\u00fcller@ex\u00e4mple.de's", "email:m\u00fcller@ex\u00e4mple.de"),
    ("\u90ae\u7bb1john@example.com\u3002", "email:john@example.com"),  # scripts without spaces
    ("not@mail, a@b, a@1.5, @handle", "handle:not@mail handle:@handle"),
    ("(https://example.com/a(b)?c=d@e.com#f).", "url:https://example.com/a(b)?c=d@e.com#f"),
    ("see www.foo.org, foo.org/x and Itv.com", "url:www.foo.org url:foo.org/x url:Itv.com"),
    ("the end.So it is. The end.Info", ""),
    (
        "WWW.EXAMPLE.DE HTTP://intra/x EXAMPLE.COM",
        "url:WWW.EXAMPLE.DE url:HTTP://intra/x url:EXAMPLE.COM",
    ),
    ("IBAN DE89 3704 0044 0532 0130 00 AND MORE", "iban:DE89_3704_0044_0532_0130_00"),
    ("gb29nwbk60161331926819", "iban:gb29nwbk60161331926819"),
    ("DE88370400440532013000", ""),  # a wrong check digit: one word, which the vocabulary lacks
    ("4111 1111 1111 1111, 4111111111111111", "card:4111_1111_1111_1111 card:4111111111111111"),
    ("4111111111111112", "number:4111111111111112"),
    (
        "10.0.0.1 fe80::1ff:fe23:4567:890a 12:30",
        "ip:10.0.0.1 ip:fe80::1ff:fe23:4567:890a time:12:30",
    ),
    (
        "12/05/1984, 1984-05-12 3. M\u00e4rz 2021",
        "date:12/05/1984 date:1984-05-12 date:3._M\u00e4rz_2021",
    ),
    ("Dec 6, 2031 or 4th of july at 5", "date:Dec_6,_2031 date:4th_of_july"),
    ("2020-07-11T02:00:52.78Z", "date:2020-07-11T02:00:52.78Z"),
    ("+49 170 1234567; (030) 123-4567x12", "phone:+49_170_1234567 phone:(030)_123-4567x12"),
    ("05.06.52.16.25 +41 (0)27 240 04 99", "phone:05.06.52.16.25 phone:+41_(0)27_240_04_99"),
    ("\u7535\u8bdd013812345678", "phone:013812345678"),
    ("in 2023 or 1,000.50 or 123-45-6789", "number:2023 number:1,000.50 ssn:123-45-6789"),
    ("12 monkeys, 9 to 5, 24/7, 1990s, covid19, x123", ""),
    (
        "\uff11\uff12\uff13 \u0661\u0662\u0663",
        "number:\uff11\uff12\uff13_\u0661\u0662\u0663",
    ),
    # The longest first; what is left of another one is looked through once more.
    ("4/18/1960 12:30,555", "date:4/18/1960_12:30 number:555"),
    ("mail john@example.com/x", "email:john@example.com"),
    # What is certain is not taken along by a longer phone number.
    ("4111 1111 1111 1111 0170 1234567", "card:4111_1111_1111_1111 phone:0170_1234567"),
    ("5 May 2021 0170 1234567", "date:5_May_2021 phone:0170_1234567"),
    ("0049 170 1234567@x.de", "phone:0049_170 email:1234567@x.de"),
    ("1 800 555 1234; 44 (0)20 7946 0958", "phone:1_800_555_1234 phone:44_(0)20_7946_0958"),
    ("41 60 052 81 27, 060417590258", "phone:41_60_052_81_27 card:060417590258"),
    # No number next to a phone number is taken along where the plan, or its length, shows it.
    ("0170 1234567 20", "phone:0170_1234567"),
    ("+33 6 12 34 56 78 20", "phone:+33_6_12_34_56_78"),
    ("20 170 1234567", "number:20_170_1234567"),
]


# Spellings, and what nothing else may be, of each type.
SPELLINGS = {
    "phone": [
        *(f"06{gap}12{gap}34{gap}56{gap}78" for gap in "\u00a0\u202f\u2009\t\n\u2011\u2013\u00b7_"),
        "06  12  34  56  78",
        "+33 6 12 34 56 78",
        "+61 2 9876 5432",
        "(+33) 6 12 34 56 78",
        "(06 1) 234 7999",
        "0033 6 12 34 56 78",
        "+44 (0)20 7946 0958",
        "8 (912) 345-26-10",
        "+49 170 1234567 ext. 12",
    ],
    "ip": [
        "::ffff:10.0.0.5",
        "192.0.2.1:443",
        "192.0.2.1/24",
        "fe80::1%eth0",
        "[2001:db8::1]:443",
    ],
    "mac": [
        "00:1A:2B:3C:4D:5E",
        "00-1a-2b-3c-4d-5e",
        "001a.2b3c.4d5e",
    ],
    "url": [
        "HTTPS://JOHN-SMITH.COM/x",
        "WWW.X.DE",
        "git@github.com:igor/x.git",
        "t.me/kelly",
        "mailto:j@x.de",
        "postgres://alex:pw@db5:5432/x",
        "jdbc:mysql://db/x;user=al;password=b",
        "s3://bucket/maria.csv",
        "file:///home/isis/x",
        "http://x.de/{a}|b",
        "hxxps://x[.]com/a",
        "https%3A%2F%2Fx.com%2Fa",
    ],
    "email": [
        "john [at] example [dot] com",
        "john(at)example(dot)com",
        "john at example dot com",
        "john\uff20x.com",
        "john%40x.com",
        "john&#64;x.com",
        "john&commat;x.com",
        "john=40x.com",
        "JOHN@X.COM",
    ],
    "path": [
        "C:\\Users\\maria\\My Files\\x.txt",
        "/home/maria/x",
        "\\\\srv\\maria\\x",
        "~maria/x",
        "C:/Users/maria",
    ],
    "handle": [
        "@handle",
        "@some_one1",
    ],
    "coordinates": [
        "52\xb0 31' 12\" N",
        "52\xb031\u203212\u2033N, 13\xb024\u203218\u2033E",
        "52.5200, 13.4050",
    ],
    "date": [
        "12 f\xe9vrier 1984",
        "12 fe\u0301vrier 1984",
        "28 de octubre de 2012",
        "27. z\xe1\u0159\xed 1957",
        "14-Nov-1952",
        "28. 02. 1985",
        "28 02 1985",
        "14/Nov/1952:13:55:36 +0000",
        "Mon, 14 Nov 1952",
        "1957. szeptember 27",
        "5 DE FEBRERO DE 1938",
        "2012\u5e7410\u670828\u65e5",
        "8 \u0438\u044e\u043b\u044f 1995",
        "2012\u201310\u201328",
    ],
    "time": [
        "14:35",
        "14:35:12",
        "2:30 pm",
        "14h35",
        "14.35 Uhr",
        "2.30pm",
    ],
    "age": [
        "94 years old",
        "aged 101",
        "93-year-old",
        "94 ans",
    ],
    "ssn": [
        "123-45-6789",
        "123 45 6789",
    ],
    "nino": [
        "AB 12 34 56 C",
        "ab123456c",
    ],
    "dni": [
        "12345678-Z",
        "X1234567L",
    ],
    "fiscale": [
        "RSSMRA85T10A562S",
        "RSS MRA 85T10 A562S",
    ],
    "nir": [
        "1 85 05 78 006 084 91",
    ],
    "cpf": [
        "529.982.247-25",
    ],
    "number": [
        "3.14159265",
        "1984-1990",
        "1.2.34",
        "1.2.3.4",
        "12*34*56",
        "0b7e2f8a-3c1d-4e5f-8a9b-0c1d2e3f4a5b",
    ],
}


NAMED = {
    "code": ["AB-123-CD", "SW1A 1AA", "INV-2023-42"],
    "pesel": ["44051401359"],
    "steuerid": ["86 095 742 719"],
    "bsn": ["111222333"],
    "nhs": ["943 476 5919"],
}


@pytest.mark.parametrize(("text", "spans"), SPANS)
def test_spans_and_their_types(text, spans):
    """Rejects the word or full stop behind a span, a part of a word, and a number without its check digit."""
    found = [f"{kind}:{text[start:end].replace(' ', '_')}" for start, end, kind in find(text, ALL)]
    assert " ".join(found) == spans
    # A span by itself is the same: nothing around it counts.
    for start, end, kind in find(text, ALL):
        assert find(text[start:end], ALL) == [(0, end - start, kind)]
        assert find(f"zebra {text[start:end]} york", ALL) == [(6, 6 + end - start, kind)]


@pytest.mark.parametrize("name", [*SPELLINGS, *NAMED])
def test_one_mark_for_each_spelling(name):
    """Rejects a pattern of one separator, one case or one language, and a part that is left over."""
    types = {name, *ALL} if name in NAMED else ALL
    spellings = SPELLINGS.get(name) or NAMED[name]
    for spelling in spellings:
        span = (0, len(spelling), name)
        assert find(spelling, types) == [span], spelling
        assert find(f"zebra {spelling} york.", types) == [(6, 6 + span[1], name)], spelling
        assert find(f"({spelling})", types) == [(1, 1 + span[1], name)], spelling
    assert {*SPELLINGS, "card", "iban"} == ALL and {*NAMED} == {*OPTIONAL}


def test_what_no_type_takes():
    """Rejects words and small numbers that look like a part of a date, an age, a host or a path."""
    text = (
        "12 out of 20, set 5, 90 years ago, i.e. main.py, and/or n/a, 5 more, at 10, ii) x:y, 1/2"
    )
    assert find(text, ALL) == []


@pytest.mark.parametrize(
    "span",
    [
        *[
            "email:JOHN@EXAMPLE.COM",
            "url:WWW.EXAMPLE.DE",
            "url:foo.org",
            "iban:DE89 3704 0044 0532 0130 00",
        ],
        *[
            "card:4111 1111 1111 1111",
            "card:4111111111111111",
            "ip:192.168.10.10",
            "date:12-05-1984",
        ],
        *["date:2020-07-11T02:00:52Z", "date:12.05.1984", "date:Dec 6, 2031"],
    ],
)
def test_no_word_around_a_span_counts(span):
    """Rejects a phone number that takes a card, an address or a date along, or what stands before one."""
    kind, _, text = span.partition(":")
    for before in AROUND:
        for after in AROUND:
            spans = find(f"{before} {text} {after}", ALL)
            assert (len(before) + 1, len(before) + 1 + len(text), kind) in spans


HOSTILE = [
    *("1 ", "1.1.", "a@", "a.", "AA11 AAAA ", "a1@a.", "http://", "1-", "(1) ", "1", "ab12", "1:"),
    *(
        "1/1/",
        "a at a dot ",
        "C:\\a ",
        "&#64;",
        "1 may ",
        "+1 ",
        "e\u0301",
        "1\u00b0",
        "(at)",
        "=40",
    ),
]


def test_long_rows_take_no_longer_by_the_letter():
    """Rejects a pattern that goes back to the start at each letter: 200,000 of them would take hours."""
    for part in HOSTILE:
        find(part * (200_000 // len(part)), {*ALL, *OPTIONAL})
