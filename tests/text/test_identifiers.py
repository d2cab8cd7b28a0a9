"""Identifiers: what stands in their place; patterns/test_find.py has where they begin and end."""

import pickle
import re

import pyarrow as pa
import pytest

from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.noise import NoiseKey
from dptext_spark.text.patterns.names import TYPES
from tests.helpers import worlds

EXACT = Laplace(epsilon=1e6)


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
            "w1 [NUMBER] [NUMBER] [NUMBER] w2",
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
        {"identifiers": "mask:email,code"}, {"mask_spans": "s"},
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
    with pytest.raises(
        ConfigError, match=r"surrogate:a has them, need a key.*Give key, or take identifiers='mask'"
    ):
        Sanitizer.open(release)
    made = Sanitizer.open(release, worlds.KEY)
    assert pickle.loads(
        pickle.dumps(made)
    ).action_keys == made.action_keys and "NoiseKey" not in repr(made)
    assert worlds.KEY.secret not in pickle.dumps(made)
    assert re.search(
        r"Marks of email, phone.*PSEUDONYMS, OUTSIDE OF THE BOUND", " ".join(policy.describe())
    )
