"""Identifiers: what is marked, where it begins and ends, and what stands in its place."""

import pickle
import re

import pyarrow as pa
import pytest

from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.noise import NoiseKey
from dptext_spark.text.identifiers import NUMBER, TYPES, find
from tests.helpers import worlds

ALL = frozenset([*TYPES, NUMBER])
EXACT = Laplace(epsilon=1e6)

SPANS = [
    ("mail john.smith+x@mail.example.co.uk.", "email:john.smith+x@mail.example.co.uk"),
    ("m\u00fcller@ex\u00e4mple.de's", "email:m\u00fcller@ex\u00e4mple.de"),
    ("\u90ae\u7bb1john@example.com\u3002", "email:john@example.com"),  # scripts without spaces
    ("not@mail, a@b, @handle", ""),
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
    ("10.0.0.1 fe80::1ff:fe23:4567:890a 12:30:45", "ip:10.0.0.1 ip:fe80::1ff:fe23:4567:890a"),
    (
        "12/05/1984, 1984-05-12 3. M\u00e4rz 2021",
        "date:12/05/1984 date:1984-05-12 date:3._M\u00e4rz_2021",
    ),
    ("Dec 6, 2031 or 4th of july at 5", "date:Dec_6,_2031 date:4th_of_july"),
    ("2020-07-11T02:00:52.78Z", "date:2020-07-11T02:00:52.78Z"),
    ("+49 170 1234567; (030) 123-4567x12", "phone:+49_170_1234567 phone:(030)_123-4567x12"),
    ("05.06.52.16.25 +41 (0)27 240 04 99", "phone:05.06.52.16.25 phone:+41_(0)27_240_04_99"),
    ("\u7535\u8bdd013812345678", "phone:013812345678"),
    ("in 2023 or 1,000.50 or 123-45-6789", "number:2023 number:1,000.50 phone:123-45-6789"),
    ("12 monkeys, 9 to 5, 24/7, 1990s, covid19, x123", ""),
    (
        "\uff11\uff12\uff13 \u0661\u0662\u0663",
        "number:\uff11\uff12\uff13 number:\u0661\u0662\u0663",
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
    # Where figures behind a phone number, or around a number in groups, are not known to be others.
    ("0170 1234567 20", "phone:0170_1234567_20"),
    ("20 170 1234567", "phone:20_170_1234567"),
]


@pytest.mark.parametrize(("text", "spans"), SPANS)
def test_spans_and_their_types(text, spans):
    """Rejects the word or full stop behind a span, a part of a word, and a number without its check digit."""
    found = [f"{kind}:{text[start:end].replace(' ', '_')}" for start, end, kind in find(text, ALL)]
    assert " ".join(found) == spans
    # A span by itself is the same: nothing around it counts.
    for start, end, kind in find(text, ALL):
        assert find(text[start:end], ALL) == [(0, end - start, kind)]
        assert find(f"zebra {text[start:end]} york", ALL) == [(6, 6 + end - start, kind)]


AROUND = ["zebra", "7", "20", "room 12", "1234", "AB12", "x, 3,"]


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


@pytest.mark.parametrize(
    "phone", ["0170 1234567", "+49 170 1234567", "(030) 123-4567", "0049 170 1234567"]
)
def test_a_phone_number_begins_where_it_says(phone):
    """Rejects a mark that has the room before it, as three tags for one number."""
    for before in AROUND:
        spans = find(f"{before} {phone} x", ALL)
        assert (len(before) + 1, len(before) + 1 + len(phone), "phone") in spans


def test_long_rows_take_no_longer_by_the_letter():
    """Rejects a pattern that goes back to the start at each letter: 200,000 of them would take hours."""
    for part in ("1 ", "1.1.", "a@", "a.", "AA11 AAAA ", "a1@a.", "http://", "1-", "(1) ", "1"):
        find(part * (200_000 // len(part)), ALL)


def sanitized(bundle, values, slots=None, column="t", **options):
    release = worlds.sanitizer(bundle, EXACT, **options)
    ids = range(len(values))
    return list(release.sanitize(values, ids, column=column, slots=slots).values.to_pylist())


TICKET = "w1 john.smith@example.com, +49 170 1234567 (2023) 1,000's w2"
ROW = ["w1", "mail:john@example.com", "+49 170", "1234567", None, "", "12", "w1 2023"]


@pytest.mark.parametrize(
    ("options", "value", "released"),
    [
        ({}, TICKET, "w1 [EMAIL] [PHONE] [NUMBER] [NUMBER] [MASK] w2"),
        ({"layout": "keep"}, TICKET, "w1 [EMAIL], [PHONE] ([NUMBER]) [NUMBER] [MASK] w2"),
        ({"oov": "drop"}, TICKET, "w1 [EMAIL] [PHONE] [NUMBER] [NUMBER] w2"),
        (
            {"oov": "keep-unprotected", "protect": "content"},
            TICKET,
            "w1 [EMAIL] [PHONE] [NUMBER] [NUMBER] 's w2",
        ),
        ({"identifiers": "mask:phone", "numbers": "words", "oov": "drop"}, TICKET, "w1 [PHONE] w2"),
        (
            {"identifiers": "off", "oov": "drop"},
            TICKET,
            "w1 [NUMBER] [NUMBER] [NUMBER] [NUMBER] w2",
        ),
        ({}, "jo\u00adhn@exam\u200bple.com 56\u20607", "[EMAIL] [NUMBER]"),
        ({"oov": "drop"}, "o'12345 w1-12345", "[NUMBER] w1 [NUMBER]"),
        # Each element by itself, the longest span in it.
        ({}, ROW, ["w1", "[EMAIL]", "[NUMBER]", "[NUMBER]", None, "", "[MASK]", "[NUMBER]"]),
        ({}, ["call 170 or +49 170 1234567"], ["[PHONE]"]),
    ],
)
def test_marks_stand_in_place(options, value, released, small):
    """Rejects a mark that is treated as an unknown word, a stop word or a word, and signs of a span."""
    assert sanitized(small, [value], **options) == [released]


NAMES = [
    ("w1. John Smith called", [(4, 14)], "w1 [MASK]"),
    ("w1 John, w2", [(3, 7)], "w1 [MASK] w2"),
    ("w1 Johnson w2", [(3, 7)], "w1 [MASK] w2"),  # the rest of the word, too
    ("w1 Jo and Al w2", [(3, 5), (10, 12)], "w1 [MASK] [MASK] w2"),
    ("w1 w2", [], "w1 w2"),
    ("w1 w2", None, "[MASK]"),
    ("", None, ""),
    ("w1 w2", [(0, 99)], "[MASK]"),
    (["w1", "Jo", "w2"], [(1, 3)], ["w1", "[MASK]", "[MASK]"]),
    (["w1", None], None, ["[MASK]", "[MASK]"]),
]


@pytest.mark.parametrize(("value", "spans", "released"), NAMES)
def test_spans_of_a_column_are_masked(value, spans, released, small):
    """Rejects a mark for each word of a span, the rest of its word, and a row that passes without spans."""
    given = [spans and [{"start": start, "end": end} for start, end in spans]]
    given = pa.array(given, pa.list_(pa.struct({"start": pa.int32(), "end": pa.int32()})))
    assert sanitized(small, [value], given, mask_spans="names", oov="drop") == [released]
    with pytest.raises(
        InputError, match=r"needs the spans of each row.*Give the values of column names"
    ):
        sanitized(small, [value], mask_spans="names")


@pytest.mark.parametrize("value", ["w1 w2 w3 w4", ["w1", "w2", "w3", "w4"]], ids=["text", "tokens"])
def test_no_two_settings_share_a_draw(value, small, monkeypatch):
    """One text, key, id and column. Rejects a setting that is not in the row's key: noise would cancel."""
    spans = pa.array([[]], pa.list_(pa.struct({"start": pa.int32(), "end": pa.int32()})))

    def draws(**options):
        release = worlds.sanitizer(small, Laplace(epsilon=1.0), **options)
        slots = spans if "mask_spans" in options else None
        ((key, *_),) = release.contexts([value], [1], column="t", slots=slots)
        return key

    settings = [
        {"identifiers": "off", "numbers": "words"}, {"identifiers": "off"}, {}, {"numbers": "words"},
        {"identifiers": "mask:email"}, {"identifiers": "surrogate:a"}, {"identifiers": "surrogate:b"},
        {"mask_spans": "s"},
    ]  # fmt: skip
    keys = [draws(**each) for each in settings]
    monkeypatch.setattr("dptext_spark.text.policies.VERSION", "another")  # of the patterns
    keys.append(draws())
    assert len({*keys}) == len(keys) == len(settings) + 1
    # Equal settings share their noise, however they are written; no tokenizer touches lists.
    assert draws(identifiers="mask:phone,email") == draws(identifiers="mask:email,phone")
    assert TextPolicy(identifiers=f"mask:{','.join(TYPES)}") == TextPolicy()
    assert (draws(tokenizer="icu") == draws()) == isinstance(value, list)


def test_a_stand_in_is_equal_in_all_tables_and_for_all_spellings(small):
    """Rejects one that follows from the name of the release, a column, or how the identifier is written."""

    def surrogates(text, *, key=worlds.KEY, **options):
        options = {"identifiers": "surrogate:a", **options}
        return str(sanitized(small, [text], key=key, **options)[0]).split()

    first = surrogates("John@Example.com +49 170 1234567 DE89370400440532013000 2023")
    again = surrogates(
        "john@example.com w1 0049 170 123-4567 DE89 3704 0044 0532 0130 00 2023",
        name="b",
        column="u",
    )
    assert first[:3] == [again[0], *again[2:4]] and first[3] == again[4] == "[NUMBER]"
    assert [part.partition("-")[0] for part in first] == ["[EMAIL", "[PHONE", "[IBAN", "[NUMBER]"]
    text = "john@example.com jahn@example.com"
    ways = [{}, {"identifiers": "surrogate:b"}, {"key": NoiseKey(bytes(32))}]
    others = [surrogates(text, **each) for each in ways]
    assert first[0] == others[0][0] and len({part for each in others for part in each}) == 6
    # The span alone: not the rest of its word, nor of its element.
    assert surrogates("\u90ae\u7bb1john@example.com\u3002") == [first[0]]
    assert (
        surrogates("w1 room 12 0049 170 1234567 w2")[-2] == surrogates("call 7 +49 170 1234567")[-1]
    )
    elements = sanitized(
        small, [["mail: john@example.com"], ["john@example.com"]], identifiers="surrogate:a"
    )
    assert elements == [[first[0]], [first[0]]]


def test_surrogates_need_a_key_that_is_kept(small):
    policy = TextPolicy(identifiers="surrogate:a:phone,email")
    release = Release.open(embedding=small, mechanism=EXACT, policy=policy)
    with pytest.raises(ConfigError, match=r"surrogate:a:email,phone needs a key.*Give --key-file"):
        Sanitizer.open(release)
    made = Sanitizer.open(release, worlds.KEY)
    assert pickle.loads(
        pickle.dumps(made)
    ).surrogates == made.surrogates and "NoiseKey" not in repr(made)
    assert worlds.KEY.secret not in pickle.dumps(made)
    assert re.search(
        r"\(email, phone\).*PSEUDONYMS, OUTSIDE OF THE BOUND", " ".join(policy.describe())
    )
