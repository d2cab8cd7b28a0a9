"""Texts that a policy calls neighbours: whatever can come out for one can come out for the other.

Rows are computed with symbols in place of what is drawn, so no output is missed and nothing is sampled.
"""

import re
from itertools import cycle, pairwise

import numpy as np
import pyarrow as pa
import pytest
import regex
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dptext_spark import word_reader
from dptext_spark.text import columns, identifiers, joined, policies, tokens
from dptext_spark.text.columns import KEEP, Tokens, read_spans
from dptext_spark.text.identifiers import Marker
from dptext_spark.text.layout import Layout, assemble
from dptext_spark.text.patterns.find import find
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.tokens import lookup_form, lookup_forms, straight, token_spans
from dptext_spark.word_reader import WordReader, joining, look_up
from tests.helpers import worlds

STOP_WORD = "don't"  # written otherwise it is none

# What a slot holds, or a word that is hidden: each is one word. Within a group each may stand for the others.
LETTERS = [
    "zebra", "york", "mail", "zeb\u00adra", "pa\u200dr\u200bis", "ze\u2060\ufe0fbra", "caf\u00e9",
    "cafe\u0301",
]  # fmt: skip
FOREIGN = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u0645\u0635\u0631",
]  # found as written
JOINED = [
    "new york", "new\u00ad  york", "u.s.", "u.\u2060s.", "e-mail", "e-\u200dmail", "st. louis", "don't",
    "don\u2019\u00adt", "col\u00b7legi", "\u05e6\u05d4\u05f4\u05dc", "\u05d2\u05f3\u05d5", "\u05e8\u05f3",
]  # fmt: skip
UNSPACED = ["\u559c\u6b22", "\u5317\u4eac", "\u82f9\u679c", "\u0e41\u0e21\u0e27"]
UNKNOWN = ["qqzz", "qq\u200bzz", "vvxx"]
# Identifiers of one type, and of one form where a number may stand next to them; 1,000 is a word, too.
MARKED = [
    ["john@example.com", "jo\u00adhn.d\u200boe+x@mail.example.org", "m\u00fcller@ex-\u00e4mple.de"],
    ["https://example.com/a?b=1", "https://f\u00ado.org/~x"],
    ["+49 170 1234567", "+33 612 7654321"], ["12/05/1984", "11/06/19\u200b85"],
    ["1,000", "2,345", "2,3\u00ad46"], ["1234", "56\u20607\uff18"],
    ["DE89370400440532013000", "GB29NWBK60161331926819"], ["4111111111111111", "42424242\u00ad42424242"],
]  # fmt: skip
SPANS_OF = [
    "zebra", "new york", "a b, c d", "john@example.com", "1,000", "'s", ".", " ", "u.s.", "\u559c\u6b22 x",
]  # fmt: skip
WORLD = [
    "zebra", "paris", "caf\u00e9", *FOREIGN, "new_york", "u.s.", "e-mail", "st._louis", "don't", *UNSPACED,
    "kans.", "col\u00b7legi", '\u05e6\u05d4"\u05dc', "\u05d2'\u05d5", "\u05e8\u05f3", "york", "new",
    "mail", "the", "'s", "n't", "a", "s", "1,000", "x_y",
]  # fmt: skip

# What stands around it.
OUTSIDE = [
    "the", "see", "new", "york", "e", "mail", "u", "s", "st", "louis", "a", "do", "n't", "x", "y", "kans",
    "7", "\u00b7", "\u05f3", "\u05f4", "\u05d2", "\u05e8", "'s", "\u2019s", "'", "\u2019", ".", ",", "-",
    "_", "&", "/", ":", "(", ")", " ", " ", " ", "  ",
    "\n", "\u00e9", "e\u0301", "\u0301", "\u00ad", "\u200b", "\u200c", "\u200d", "\u2060", "\ufe0f", "\x00",
    "\u2764\ufe0f", "\u0e44\u0e17\u0e22", "\u0e01\u0e34", "\u6211", "\u5403", "\u3099", "\u0645\u0635\u0631",
    "\U0001f600", "\u16a0", "new ", "e-", "st. ", "'s ", "\u2019s ", "u.s.", "new york", "1,000", "x y",
    "kans.",
]  # fmt: skip
# What stands right before and right behind it: with a word in its place it may be one.
BEFORE = [
    "", " ", "new ", "e-", "st. ", "x_", "un", "o\u2019", "\u05d2\u05f3", "the new ", "7,",
    "\u0e44\u0e17\u0e22",
]  # fmt: skip
AFTER = [
    "",
    " ",
    "'s ",
    "\u2019s",
    ".",
    "s",
    "n't",
    " y",
    "-led",
    ",000",
    "\u0301",
    "\u200b",
    "\u6211",
]

# What separates words that are all protected, with or without stop words: no two of them are one.
BETWEEN = [
    " ", "  ", "\n", ", ", " - ", ": ", " (", "! ", " \u2764\ufe0f ", "; \u200d", " \u200b", " the ", " of ",
    " \u2019\u2019 ",
]  # fmt: skip

SEEN = regex.compile(r"[\p{Cf}\p{DI}[\p{Cc}--\s]]", regex.VERSION1)
LETTER = r"[\p{L}\p{M}\p{N}]"
# A slot, written as X, that is a word by itself whatever it holds.
QUOTE = "['\u2019\u05f3]"
FREE = regex.compile(rf"(?<!{LETTER}{QUOTE}*)X(?!{LETTER}|{QUOTE}(?!s(?!{LETTER})))")

SYMBOLS = [["zebra"], ["'s", "paris", "n't", "new_york"]]
"""What is drawn in place of a row's words, by turns."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    points = np.random.default_rng(1).standard_normal((len(WORLD), 2))
    return worlds.build(tmp_path_factory.mktemp("hostile"), points, WORLD)


def contents(draw, *, free, unknown, stop=True, marked=()):
    joined = [word for word in JOINED if stop or word != STOP_WORD]
    groups = [[*LETTERS, *FOREIGN, *joined]] if free else [LETTERS, FOREIGN]
    chosen = draw(
        st.sampled_from([*groups, *groups, UNSPACED, *([UNKNOWN] if unknown else []), *marked])
    )
    place = draw(st.integers(0, len(chosen) - 1))
    # With letters around it a word is one that the vocabulary lacks, and may pass where unknown ones do.
    step = draw(st.integers(1, len(chosen) - 1)) if free or unknown else 0
    return chosen[place], chosen[(place + step) % len(chosen)]


def spans_of(draw, start, end):
    """One span, two that touch or two that overlap."""
    middle, more = draw(st.integers(start, end)), draw(st.integers(0, 2))
    pieces = [(start, middle), (max(start, middle - more), end)]
    return [piece for piece in pieces if piece[0] < piece[1]]


@st.composite
def marked_texts(draw, unknown, marked):
    """Texts that are equal outside of their slots, which hold one word each, or whatever is ``marked``."""
    signs = st.lists(st.sampled_from(OUTSIDE), max_size=2)
    space, after, before = (st.sampled_from(each) for each in (["", " "], AFTER, BEFORE))
    parts = st.tuples(after, st.builds(str.join, space, signs), before)
    around = draw(st.lists(parts.map("".join), min_size=2, max_size=4))
    # What belongs to a slot is no word by itself next to letters; to see that, slots are one letter each.
    shown = SEEN.sub("", "X".join(part.replace("X", "") for part in around))
    free = {match.start() for match in FREE.finditer(shown)}
    places = [place for place, letter in enumerate(shown) if letter == "X"]
    pair = [(around[0], []), (around[0], [])]
    for place, after in zip(places, around[1:], strict=True):
        whatever = st.tuples(*[st.sampled_from(SPANS_OF)] * 2)
        own = {"free": place in free, "unknown": unknown, "marked": marked if place in free else ()}
        held = draw(whatever) if marked is None else contents(draw, **own)
        pair = [
            (text + word + after, [*slots, *spans_of(draw, len(text), len(text + word))])
            for (text, slots), word in zip(pair, held, strict=True)
        ]
    return pair


@st.composite
def hidden_words(draw, unknown, marked):
    """Texts of as many words, of which some are others."""
    texts = ["", ""]
    for part in draw(st.lists(st.sampled_from(BETWEEN), min_size=1, max_size=4)):
        held = contents(draw, free=True, unknown=unknown, stop=False, marked=marked)
        texts = [text + word + part for text, word in zip(texts, held, strict=True)]
    return [(text, []) for text in texts]


SPANS = pa.list_(pa.struct({"start": pa.int64(), "end": pa.int64()}))


def differ(world, policy, pair):
    """Whether something can come out for one text and not for the other: try each choice of what is drawn."""
    values = pa.array([text for text, _ in pair])
    slots = pa.array([[{"start": a, "end": b} for a, b in own] for _, own in pair], SPANS)
    (run,) = WordReader(bundle=world, policy=policy).runs(
        values, slots if policy.spans_column else None
    )
    cut, protected = run.tokens, run.protected
    drawn = run.known | (run.unknown & (str(policy.oov) == "random"))
    for symbols in SYMBOLS:
        released = np.full(len(cut), policy.oov.stand_in)
        for start, end in pairwise(cut.offsets):
            (own,) = np.nonzero(drawn[start:end])
            released[start + own] = [
                WORLD.index(word) for _, word in zip(own, cycle(symbols), strict=False)
            ]
        released[~protected] = KEEP
        released[run.marked] = run.token_ids[run.marked]
        marks = [None] * len(cut.distinct)
        for place, kind in run.mark_types().items():
            marks[place] = f"[{kind.upper()}]"
        first, second = assemble(cut, released, world.words, policy.layout, marks)
        if first != second:
            return True
    return False


FIXED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[*HealthCheck],
    print_blob=False,
)


def check(world, protect, tokenizer, examples, *phases):
    """Try pairs of neighbours, under layouts and policies for unknown words."""

    @settings(FIXED, max_examples=examples, phases=phases or [*Phase])
    @given(st.data())
    def supports_are_equal(data):
        layout = data.draw(st.sampled_from([*Layout.policies]))
        oov = data.draw(st.sampled_from(["mask", "drop", "random", "keep-unprotected"]))
        given = {"tokenizer": tokenizer, "layout": layout, "oov": oov}
        given["identifiers"] = found = data.draw(
            st.sampled_from(["mask", "mask", "off", "mask:email"])
        )
        given["numbers"] = numbers = data.draw(st.sampled_from(["mask", "mask", "words"]))
        spans = protect == "mask"
        policy = TextPolicy(**given, **({"mask_spans": "s"} if spans else {"protect": protect}))
        marked = MARKED if found == numbers == "mask" else MARKED[:1] if "mask" in found else []
        texts = hidden_words if protect in ("all", "content") else marked_texts
        pair = data.draw(texts(unknown=oov != "keep-unprotected", marked=None if spans else marked))
        assert not differ(world, policy, pair), (policy, pair)

    supports_are_equal()


@pytest.mark.parametrize("tokenizer", ["words", "icu"])
@pytest.mark.parametrize("protect", ["all", "content", "slots:s", "mask"])
@pytest.mark.parametrize("examples", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_what_can_come_out_is_equal_for_neighbours(world, protect, tokenizer, examples):
    """Always the same pairs of texts; 80,000 of them in the long test."""
    check(world, protect, tokenizer, examples)


def cut_as_it_stands(text, spans, tokenizer):
    """Slots only mark tokens: "the [u.s.]'s economy" leaves "s", "the [zebra]'s" leaves "'s"."""
    found = tokenizer(text)
    places = token_spans(straight(text), found)
    return found, [any(a < end and start < b for a, b in spans) for start, end in places]


def by_the_hidden_words(slots, values, column):
    """The words of a slot are protected wherever they stand."""
    marked = []
    for text, own in zip(values.to_pylist(), slots.to_pylist(), strict=True):
        words = [re.escape(text[slot["start"] : slot["end"]]) for slot in own]
        hits = [hit.span() for word in words for hit in re.finditer(word, text, re.IGNORECASE)]
        marked.append([{"start": a, "end": b} for a, b in hits])
    return read_spans(pa.array(marked, SPANS), values, column)


def hidden_in_stop_words(_, tokens):
    """A stop word passes with the invisible characters in it."""
    return ~tokens.flag(lambda token: lookup_forms(token)[1] in policies.stop_words())


def as_it_stands(token):
    """A word with an invisible character is unknown."""
    return token, token.lower()


def by_the_word_before(text, types, user):
    """What stands before a span makes it more likely that it is one."""
    return [span for span in find(text, types, user) if len(text[: span[0]].strip()) % 2]


def with_letters(values, spans, letter):
    """Each word of a span is a mark."""
    texts = [
        text[:a] + " ".join(letter for _ in text[a:b].split()) + text[b:]
        for text, ((a, b), *_) in zip(values.to_pylist(), spans, strict=True)
    ]
    return pa.array(texts)


def words_first(marker, token):
    """What the vocabulary has is a word."""
    return None if lookup_form(token) in WORLD else KIND(marker, token)


KIND = Marker.kind

WRONG = [
    ("all", [identifiers], "find", by_the_word_before),
    ("all", [identifiers], "all_visible", lambda text: True),
    ("all", [Marker], "kind", words_first),
    ("mask", [policies], "with_letter", with_letters),
    ("slots:s", [columns], "cut_marked", cut_as_it_stands),
    ("slots:s", [policies], "read_spans", by_the_hidden_words),
    # An invisible character ends a token.
    ("all", [tokens, joined, identifiers], "all_visible", lambda text: True),
    ("all", [word_reader], "vocabulary_forms", as_it_stands),
    ("content", [policies.ContentWords], "protected", hidden_in_stop_words),
]


@pytest.mark.parametrize(("protect", "modules", "name", "wrong"), WRONG)
def test_wrong_policies_are_found_out(world, protect, modules, name, wrong, monkeypatch):
    for module in modules:
        monkeypatch.setattr(module, name, wrong)
    joining.cache_clear()
    with pytest.raises(AssertionError, match="TextPolicy"):
        check(world, protect, "words", 2000, Phase.generate)
    joining.cache_clear()


def test_what_is_one_word_here_is_one_word(world):
    """The premise of the pairs above, for what is known and what is not."""
    for known, texts in ((True, [*LETTERS, *FOREIGN, *JOINED, *UNSPACED]), (False, UNKNOWN)):
        cut = Tokens.of(pa.array(texts), joining(world, TextPolicy(tokenizer="icu").tokenizer))
        assert [len(row) for row in cut.row_tokens()] == [1] * len(texts)
        assert ((look_up(cut, world) >= 0) == known).all()
