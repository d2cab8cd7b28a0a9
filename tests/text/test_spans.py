"""Slots: how their spans are read, and how texts are cut at them."""

import pyarrow as pa
import pytest

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.text.columns import Tokens, check_positions, read_spans
from dptext_spark.text.joined import JoinedWords, unused_letter
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.tokens import PLAIN, Segmentation

SPANS = pa.list_(pa.struct({"start": pa.int64(), "end": pa.int64()}))


def column_of(spans, kind=SPANS):
    """One row's spans, given as pairs, as a table has them."""
    return pa.array(
        [spans and [pair and dict(zip(("start", "end"), pair, strict=True)) for pair in spans]],
        kind,
    )


def cut(values, slots, tokenizer=PLAIN):
    """The tokens of a row, those that the policy protects with a star."""
    column = pa.array([values], pa.string() if isinstance(values, str) else pa.list_(pa.string()))
    spans = slots if isinstance(slots, pa.Array) else column_of(slots)
    chosen = TextPolicy(protect="slots:s")
    tokens = Tokens.of(column, tokenizer, chosen.read(column, spans, "")[1])
    (row,) = tokens.row_tokens()
    flags = chosen.protect.protected(tokens).tolist()
    return ["*" * flag + str(word) for word, flag in zip(row, flags, strict=True)]


TEXT = "Fly to New York, \U0001f600 not Nice"
ALL = "*Fly|*to|*New|*York|*not|*Nice"
ELEMENTS = ["fly", None, "New York", "", "in"]
EVERY = "*fly|*None|*New York|*|*in"
SMALL, LARGE = (pa.list_(pa.struct({"start": k, "end": k})) for k in (pa.int8(), pa.uint64()))
WORDS = ["new_york", "new_a", "to_new", "york", "u.s.", "u.s.-led", "x_y", "x_y_z", "kans."]
JOINED, ICU = JoinedWords.of(pa.array(WORDS)), Segmentation.of("icu")
THAI = "\u0e01\u0e34\u0e19"


@pytest.mark.parametrize(
    ("values", "kind", "spans", "expected"),
    [
        (
            TEXT,
            SPANS,
            [(10, 11)],
            "Fly|to|*New|*York|not|Nice",
        ),  # the space, where a letter may stand
        (
            TEXT,
            SPANS,
            [(15, 18)],
            "Fly|to|New|*York|not|Nice",
        ),  # a comma and an emoji, at the end of a word
        (TEXT, SPANS, [(17, 18)], ALL.replace("*", "")),  # an emoji by itself
        (TEXT, SPANS, [(23, 27), (7, 10), (0, 3)], "*Fly|to|*New|York|not|*Nice"),  # in any order
        (TEXT, SPANS, [(0, 27)], ALL),
        (TEXT, SPANS, [], ALL.replace("*", "")),
        # In doubt all is protected: one too far, what UTF-16 counts, empty, backward, malformed.
        *((TEXT, SPANS, [pair], ALL) for pair in ((23, 28), (25, 29), (-1, 3), (3, 3), (5, 3))),
        *((TEXT, SPANS, [pair], ALL) for pair in ((0, None), (None, 3))),
        (TEXT, SPANS, [(0, 3), (99, 100)], ALL),
        (TEXT, SPANS, [(0, 3), None], ALL),
        (TEXT, SPANS, None, ALL),
        (TEXT, LARGE, [(0, 3)], "*Fly|to|New|York|not|Nice"),
        (TEXT, LARGE, [(0, 2**63 + 3)], ALL),
        (TEXT, LARGE, [(2**64 - 1, 3)], ALL),
        # Positions of a token list are elements.
        (ELEMENTS, SMALL, [(2, 3), (0, 1)], "*fly|None|*New York||in"),
        (ELEMENTS, SMALL, [(1, 5)], "fly|*None|*New York|*|*in"),
        (ELEMENTS, SMALL, [(5, 6)], EVERY),
        (ELEMENTS, SMALL, None, EVERY),
        # Outside of slots a text is cut without what they hold.
        ("in New York now", JOINED, [(3, 11)], "in|*New York|now"),
        ("in New York now", JOINED, [(7, 11)], "in|New|*York|now"),
        ("in New York", JOINED, [(3, 6), (7, 11)], "in|*New|*York"),
        ("in New York", JOINED, [(3, 6), (6, 11)], "in|*New York"),  # they touch
        ("in New York", JOINED, [(3, 8), (5, 11)], "in|*New York"),  # they overlap
        ("in New York", JOINED, None, "*in|*New York"),
        ("to New York", JOINED, [(7, 11)], "to New|*York"),
        ("a U.S.-led x", JOINED, [(2, 6)], "a|*U.S.|led|x"),
        ("x y z", JOINED, [(2, 3)], "x|*y|z"),
        ("kans.boston", JOINED, [(4, 11)], "*kans.|*boston"),
        ("the u.s.'s economy", JOINED, [(4, 8)], "the|*u.s.|'s|economy"),
        ("Boston\u2019s rain", JOINED, [(6, 8)], "*Boston|*'s|rain"),
        ("see zeb\u200b\u0301ra now", JOINED, [(4, 7)], "see|*zeb\u200b\u0301ra|now"),
        ("don\u2060\u2019t", JOINED, [(0, 2)], "*do|n\u2060't"),
        ("cafe\u0301 noir", JOINED, [(4, 5)], "*cafe\u0301|noir"),  # the combining accent alone
        ("\U0001f469\u200d\U0001f692 Ann met Bo", JOINED, [(4, 7), (12, 14)], "*Ann|met|*Bo"),
        ("a\u16a0 \u16a0b c", JOINED, [(4, 5)], "a\u16a0|*\u16a0b|c"),  # the letter in their place
        (
            "\u6211\u559c\u6b22\u5403",
            PLAIN,
            [(1, 3)],
            "*\u6211\u559c\u6b22\u5403",
        ),  # a run is one word
        ("\u6211\u559c\u6b22\u5403", ICU, [(1, 3)], "\u6211|*\u559c\u6b22|\u5403"),
        ("\u6211\u559c\u6b22\u5403\u82f9", ICU, [(2, 4)], "\u6211|\u559c|*\u6b22|*\u5403|\u82f9"),
        (
            f"{THAI}\u0e02\u0e49\u0e32\u0e27",
            ICU,
            [(0, 1)],
            f"*{THAI[:2]}|{THAI[2:]}\u0e02\u0e49\u0e32\u0e27",
        ),
    ],
)
def test_words_that_a_span_touches_are_protected(values, kind, spans, expected):
    """Rejects bytes, UTF-16, inclusive ends, numbers that wrap around, and doubt that lets words pass."""
    # And "new york" for one token with a slot on "york": with another city "new" would pass.
    column, tokenizer = (
        (column_of(spans, kind), PLAIN) if isinstance(kind, pa.DataType) else (spans, kind)
    )
    assert "|".join(cut(values, column, tokenizer)) == expected


def test_rows_keep_their_own_slots():
    """Rejects spans that count on into the next row: nulls, empty rows and rows in doubt lie between."""
    first, second, far = ({"start": n, "end": n + 1} for n in (0, 2, 9))
    texts, lists = pa.array(["a b", None, "a b", "", "a b", "a b"]), pa.array([["a", "b", "c"]] * 6)
    slots = pa.array([[second], [far, first], None, [], [first, second, far], [first]], SPANS)
    for values, expected in (
        (texts, [[0, 1], [], [1, 1], [], [1, 1], [1, 0]]),
        (lists, [[0, 0, 1], [1] * 3, [1] * 3, [0] * 3, [1] * 3, [1, 0, 0]]),
    ):
        for start in range(6):
            marked = Tokens.of(
                values[start:], PLAIN, read_spans(slots[start:], values[start:], "s")
            ).marked
            assert marked.tolist() == [flag for row in expected[start:] for flag in row]
    # Slots that are forgotten on the way let nothing pass.
    protection = TextPolicy(protect="slots:s").protect
    assert protection.protected(Tokens.of(pa.array(["a b"]))).tolist() == [True, True]


def test_what_has_no_positions_is_refused():
    """Texts, also as JSON, do not say where a slot stands; no message quotes them."""
    for column in (
        *(
            [["Paris"]],
            [[{"text": "Paris", "kind": "city"}]],
            ['[{"start": 3, "end": 8}]'],
            [5],
            [[[0, 3]]],
        ),
        *([[{"start": 1.0, "end": 2.0}]], [[{"start": 1}]], [{"start": 1, "end": 2}]),
    ):
        with pytest.raises(
            InputError, match=r"positions of slots.*start: int.*Got: s, .*not texts"
        ) as error:
            cut("to Paris", pa.array(column))
        assert "Paris" not in str(error.value)
    with pytest.raises(InputError, match="positions of slots"):  # which of the two would it be?
        check_positions(
            pa.list_(pa.struct([(name, pa.int64()) for name in ("start", "end", "end")])), "s"
        )
    for slots in (
        pa.nulls(2),
        pa.nulls(2, pa.string()),
        pa.array([None, []]),
    ):  # without any, none is needed
        spans = read_spans(slots, pa.array(["a b", "c"]), "s")
        assert spans == [None if null else [] for null in slots.is_null().to_pylist()]


def test_the_letter_in_place_of_slots_is_in_no_joined_word():
    runes = "".join(map(chr, range(0x16A0, 0x16EB)))
    word = f"{runes[0]}-{runes[2:]}"
    tokenizer = JoinedWords.of(pa.array([word, "a_b"]))
    assert (unused_letter(PLAIN), unused_letter(tokenizer)) == (runes[0], runes[1])
    assert cut(f"a {word}", [(0, 1)], tokenizer) == ["*a", word]
    assert cut(f"a-{runes[2:]}", [(0, 1)], tokenizer) == ["*a", runes[2:]]
    full = JoinedWords.of(pa.array([f"{runes}-{''.join(map(chr, range(0x1401, 0x166D)))}"]))
    with pytest.raises(ConfigError, match="Slots need a letter"):
        unused_letter(full)


def test_equal_content_means_equal_tokens():
    """Rejects equal noise for other words: a second release with other slots would share it, word by word."""
    values, contents = pa.array(["in new york now"]), {}
    merged = [[(3, 11)], [(3, 6), (6, 11)], [(7, 11), (3, 8)]]
    for spans in ([], *merged, [(7, 11)], [(3, 6)], [(0, 2)], [(0, 99)]):
        tokens = Tokens.of(values, JOINED, read_spans(column_of(spans), values, "s"))
        assert tokens.row_content(0)[1] == b"in new york now"
        contents.setdefault(tokens.row_content(0)[0], []).append(next(tokens.row_tokens()))
    assert all(row == rows[0] for rows in contents.values() for row in rows)
    # A row without spans, or marked whole, has the content that it always had.
    assert sorted(map(len, contents.values())) == [1, 1, 1, 2, 3]
    assert len(contents[(15).to_bytes(8, "little")]) == 2


def test_texts_that_were_cut_otherwise_have_noise_of_their_own():
    """Those whose words the lookup form may decide; all others, emoji too, keep what they had before."""
    same = [
        "", "plain", "caf\u00e9\n", "I \u2764\ufe0f it", "1\ufe0f\u20e3", "\U0001f469\u200d\U0001f692!",
        "the dogs' \"a\"", "o\u2019clock",
    ]  # fmt: skip
    changed = [
        "zeb\u00adra", "x\u200b", "\u2764\ufe0f's", "+\u200d", "a\x00b", "\u0130ZM\u0130R", "i\u0307",
        "col\u00b7legi", "\u05e6\u05d4\u05f4\u05dc", '\u05e6\u05d4"\u05dc', "\u05e8\u05d7'", "\u05d2\u05f3",
    ]  # fmt: skip
    tokens = Tokens.of(pa.array([*same, *changed]))
    for row, text in enumerate([*same, *changed]):
        assert tokens.row_content(row) == (
            len(text.encode()).to_bytes(8, "little") + b"form" * (text in changed), text.encode()
        )  # fmt: skip
    lists = Tokens.of(
        pa.array([["o'clock", None, "caf\u00e9"], ["a", "o\u2019clock"], ["\u2764\ufe0f"]])
    )
    assert [b"form" in lists.row_content(row)[0] for row in range(3)] == [False, True, True]
