"""Words, policies and slots."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from hashlib import sha256

import pytest
from bm25s.stopwords import STOPWORDS_EN_PLUS
from hypothesis import example, given
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError
from dptext_spark.text import tokens
from dptext_spark.text.policies import Oov, TextPolicy, protected_by_slots, slot_values
from dptext_spark.text.tokens import match_form, stop_words, tokenize


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\r\n\u00a0\u3000\u2028", []),
        ("plain words here", ["plain", "words", "here"]),
        ("don't Can't WON'T", ["do", "n't", "Ca", "n't", "WO", "N'T"]),
        (
            "it's I'm we'd they'll you're I've",
            ["it", "'s", "I", "'m", "we", "'d", "they", "'ll", "you", "'re", "I", "'ve"],
        ),
        ("it\u2019s don\u02bct o\uff07clock", ["it", "'s", "do", "n't", "o'clock"]),
        ("rock'n'roll O'Neill's 'quoted' dogs'", ["rock'n'roll", "O'Neill", "'s", "quoted", "dogs"]),
        ("'s 'tis n't", ["s", "tis", "n't"]),
        ("''' ' a''b", ["a", "b"]),
        ("bob@example.com, 4111-1111-1111-1111", ["bob", "example", "com", "4111", "1111", "1111", "1111"]),
        ("snake_case __init__ a_b", ["snake", "case", "init", "a", "b"]),
        ("3.14 1,000 5th ½ Ⅷ", ["3", "14", "1", "000", "5th", "½", "Ⅷ"]),
        ("hi😀there 👩‍👩‍👧 ❤️ ok", ["hi", "there", "ok"]),
        (
            "zero\u200bwidth soft\u00adhyphen bom\ufeffmark",
            ["zero", "width", "soft", "hyphen", "bom", "mark"],
        ),
        ("cafe\u0301 na\u0308ive \u0301", ["cafe\u0301", "na\u0308ive"]),
        ("\u0634\u0644\u0645\u060c \u202e\u0639\u0645\u202c", ["\u0634\u0644\u0645", "\u0639\u0645"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("東京へ行く。한국어!", ["東京へ行く", "한국어"]),
        ("हिन्दी", ["हिन्दी"]),
        ("a\x00b\x1fc", ["a", "b", "c"]),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert tokenize(text) == words


def is_word_character(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LMN" or category == "Cn"  # regex knows letters newer than this Python


APOSTROPHES = "'\u2019\u02bc\uff07"
LIKELY = st.text(
    st.sampled_from("nt sdlmrevoS'\u2019_-.@é\u0301😀\u200d\u200b1東") | st.characters(), max_size=30
)


@given(LIKELY)
@example("n't's'd")
@example("\u02bc\u0301a")
def test_words_hold_nothing_but_letters_digits_marks_and_apostrophes(text: str) -> None:
    """Rejects a tokenizer that lets punctuation, spaces or control characters of the text through."""
    words = tokenize(text)
    for word in words:
        assert word
        assert all(is_word_character(c) or c == "'" for c in word)
        assert not word.endswith("'")
        assert not word.startswith("'") or word.lower().replace("\u017f", "s") in {
            "'s",
            "'m",
            "'d",
            "'ll",
            "'re",
            "'ve",
        }
    # Nothing is lost, repeated or put in another order: letters and digits all come out once.
    kept = [c for c in "".join(words) if unicodedata.category(c)[0] in "LN"]
    expected = [c for c in text if unicodedata.category(c)[0] in "LN" and c not in APOSTROPHES]
    assert kept == expected


@given(LIKELY)
def test_the_fast_pattern_finds_the_same_words(text: str) -> None:
    for apostrophe in APOSTROPHES:
        text = text.replace(apostrophe, "")
    assert tokens._PLAIN_WORD.findall(text) == tokens._WORD.findall(text) == tokenize(text)


@pytest.mark.parametrize(
    ("word", "kept", "lower"),
    [
        ("Cafe\u0301", "Caf\u00e9", "caf\u00e9"),
        ("\u212b", "\u00c5", "\u00e5"),  # the Angstrom sign is the letter in NFC
        ("STRASSE", "STRASSE", "strasse"),
        ("H\u0331", "H\u0331", "\u1e96"),  # only the small letter has a composed form
        ("\u0130", "\u0130", "i\u0307"),  # lower case of the dotted I is two characters
        ("ﬁ", "ﬁ", "ﬁ"),  # no compatibility folding: words that look alike may be different words
        ("東京", "東京", "東京"),
    ],
)
def test_match_form(word: str, kept: str, lower: str) -> None:
    assert match_form(word, lower=False) == kept
    assert match_form(word, lower=True) == lower


@given(st.text(max_size=8), st.booleans())
def test_match_form_is_settled(word: str, lower: bool) -> None:
    """A form is its own form: rejects lower case that leaves decomposed letters behind."""
    form = match_form(word, lower=lower)
    assert unicodedata.is_normalized("NFC", form)
    assert match_form(form, lower=lower) == form


def test_the_stop_words_are_the_179_of_nltk_as_words() -> None:
    assert len(STOPWORDS_EN_PLUS) == 179
    words = stop_words()
    # What --protect content releases may not change with a version of bm25s.
    assert sha256(" ".join(sorted(words)).encode()).hexdigest()[:16] == "5f810bd8b1d3c7a6"
    assert {"the", "of", "you", "do", "n't", "'s", "'ve", "ain", "wouldn"} <= words
    assert not {"don't", "paris", "", "'"} & words
    # Every form in which a text holds a stop word is one.
    assert all(word in words for stop in STOPWORDS_EN_PLUS for word in tokenize(f"x {stop} x")[1:-1])


# Policies


@pytest.mark.parametrize("oov", [*Oov, "mask", "keep-unprotected"])
@pytest.mark.parametrize("protect", ["all", "content", "slots:entities", "slots:a:b"])
def test_policies_say_what_is_not_covered(oov: str, protect: str) -> None:
    described = " ".join(TextPolicy(oov=oov, protect=protect).describe())
    assert ("WITHOUT ANY PROTECTION" in described) == (oov == "keep-unprotected")
    assert ("Stop words are released as they are" in described) == (protect == "content")
    assert ("Only words inside the slots" in described) == protect.startswith("slots")


@pytest.mark.parametrize(
    ("protect", "column"), [("all", None), ("content", None), ("slots:x", "x"), ("slots:a:b", "a:b")]
)
def test_the_column_of_the_slots(protect: str, column: str | None) -> None:
    assert TextPolicy(protect=protect).slots_column == column


@pytest.mark.parametrize("oov", ["", "MASK", "keep", "unprotected", None, 1])
def test_unknown_oov_policies_are_refused(oov: str) -> None:
    with pytest.raises(ConfigError, match=r"--oov.*mask, drop, random, fail, keep-unprotected.*Got"):
        TextPolicy(oov=oov)


@pytest.mark.parametrize("protect", ["", "none", "slots", "slots:", "ALL", "slot:x", " all"])
def test_unknown_protect_policies_are_refused(protect: str) -> None:
    with pytest.raises(ConfigError, match=r"--protect.*all, content, slots:COLUMN.*Got"):
        TextPolicy(protect=protect)


# Slots


@pytest.mark.parametrize(
    ("slots", "values"),
    [
        (["Paris", "two days"], ["Paris", "two days"]),
        ([{"text": "Paris", "kind": "city"}], ["Paris"]),
        ([{"text": "Paris"}, "Rome"], ["Paris", "Rome"]),
        ('["Paris"]', ["Paris"]),
        ('[{"text": "Paris", "start": 3}]', ["Paris"]),
        ([], []),
        ("[]", []),
        (None, None),
        ("", None),
        ("Paris", None),
        ('"Paris"', None),
        ('{"text": "Paris"}', None),
        ({"text": "Paris"}, None),
        ("[1]", None),
        ([None], None),
        (["Paris", None], None),
        ([{"value": "Paris"}], None),
        ([{"text": None}], None),
        ([["Paris"]], None),
        (b"Paris", None),
        (7, None),
    ],
)
def test_slots_are_read_or_not_understood(slots: object, values: list[str] | None) -> None:
    assert slot_values(slots) == values


WORDS = ["fly", "me", "To", "New", "York", None, "new", "york", "Paris", "new"]


@pytest.mark.parametrize(
    ("slots", "protected"),
    [
        (["Paris"], [8]),
        (["new york"], [3, 4, 6, 7]),
        (["new"], [3, 6, 9]),
        ([{"text": "NEW YORK"}, {"text": "paris"}], [3, 4, 6, 7, 8]),
        (json.dumps([{"text": "new york"}]), [3, 4, 6, 7]),
        (["York new"], "all"),  # a null lies between
        (["york paris new"], [7, 8, 9]),
        ([], []),
    ],
)
def test_every_occurrence_of_a_slot_is_protected(slots: object, protected: list[int] | str) -> None:
    expected = [protected == "all" or row in protected for row in range(len(WORDS))]
    assert protected_by_slots(WORDS, slots) == expected


@pytest.mark.parametrize(
    "slots", [None, "no JSON", "[1]", [None], ["London"], ["Paris", "Londo"], ["Pari"], ["paris new york"], 5]
)
def test_in_doubt_the_whole_row_is_protected(slots: object) -> None:
    """Rejects the tempting default, that a slot which is not found protects nothing."""
    assert protected_by_slots(WORDS, slots) == [True] * len(WORDS)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(
            lambda: protected_by_slots(["😀", "hi"], ["😀"]),
            id="token without letters",
        ),
        pytest.param(
            lambda: protected_by_slots(["a", "b"], "[" * 200_000),
            id="deep JSON",
        ),
    ],
)
def test_slots_that_words_cannot_match_protect_the_whole_row(read: Callable[[], list[bool]]) -> None:
    assert read() == [True, True]
