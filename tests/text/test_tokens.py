"""Tokens of a text, and the form in which they are looked up."""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from dptext_spark.text import tokens
from dptext_spark.text.joined import JoinedWords
from dptext_spark.text.segmentation import Segmentation
from dptext_spark.text.tokens import PLAIN, all_visible, match_form, straight, token_spans, tokenize, visible

INVISIBLE = regex.compile(r"[\p{Cf}\p{DI}[\p{Cc}--\s]]", regex.VERSION1)
CLITICS = {"'s", "'m", "'d", "'ll", "'re", "'ve"}
APOSTROPHES = "'\u2019\u02bc\uff07"
LIKELY = st.text(
    st.sampled_from("nt sdlmrevoS'\u2019_-.@é\u0301😀\u200d\u200b1abc了京のンー々\u3099ｶﾞกินາក្ကြ်한")
    | st.characters(),
    max_size=30,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \t\r\n\u00a0\u3000\u2028", ""),
        ("don't Can't WON'T", "do n't Ca n't WO N'T"),
        ("it's I'm we'd they'll you're I've", "it 's I 'm we 'd they 'll you 're I 've"),
        ("it\u2019s don\u02bct o\uff07clock", "it 's do n't o'clock"),
        ("rock'n'roll O'Neill's 'quoted' dogs'", "rock'n'roll O'Neill 's quoted dogs"),
        ("'s 'tis n't ''' ' a''b", "s tis n't a b"),
        ("bob@example.com, 4111-1111", "bob example com 4111 1111"),
        ("snake_case __init__ a_b", "snake case init a b"),
        ("3.14 1,000 5th ½ Ⅷ", "3 14 1 000 5th ½ Ⅷ"),
        ("hi😀there 👩‍👩‍👧 ❤️ ok", "hi there ok"),
        ("cafe\u0301 na\u0308ive \u0301", "cafe\u0301 na\u0308ive"),
        ("\u0634\u0644\u0645\u060c \u202e\u0639\u0645\u202c שָׁלוֹם हिन्दी",
         "\u0634\u0644\u0645 \u0639\u0645 שָׁלוֹם हिन्दी"),
        ("東京へ行く。한국어!", "東京へ行く 한국어"),
        # What nobody sees ends no word.
        ("zero\u200bwidth soft\u00adhyphen \ufeffbom\ufeffmark\u200b. \u200d \u3164",
         "zero\u200bwidth soft\u00adhyphen bom\ufeffmark"),
        ("a\x00b\x1fc d\te\nf", "a\x00b\x1fc d e f"),
        ("do\u00adn\u200b\u2019t it\u2060\u2019s o\u2019\u200dclock", "do n\u200b't it 's o'\u200dclock"),
        ("\u0645\u06cc\u200c\u062e 1\ufe0f\u20e3 x\ufe0f \u6211\u2060\u559c",
         "\u0645\u06cc\u200c\u062e 1\ufe0f\u20e3 x \u6211\u2060\u559c"),
        # But a space of no width stands between words of scripts that have no other.
        ("\u0e01\u0e34\u0e19\u200b\u0e02\u0e49\u0e32\u0e27", "\u0e01\u0e34\u0e19 \u0e02\u0e49\u0e32\u0e27"),
        ("\u0e01\u0e34\u0e19\u2060\u200b\u2060ab\u200bcd", "\u0e01\u0e34\u0e19 ab\u200bcd"),
    ],
)  # fmt: skip
def test_tokens_of_a_text(text: str, expected: str) -> None:
    assert tokenize(text) == expected.split(" ") * bool(expected)


@given(LIKELY)
@example("n't's'd")
@example("\u02bc\u0301a")
def test_tokens_hold_letters_digits_marks_and_apostrophes(text: str) -> None:
    """Rejects a tokenizer that lets punctuation, spaces or control characters of the text through."""
    for token in map(visible, tokenize(text)):
        kinds = {unicodedata.category(c) for c in token if c != "'"}
        assert {kind[0] for kind in kinds - {"Cn"}} <= {*"LMN"}  # regex knows letters newer than this Python
        assert token and not token.endswith("'")
        assert not token.startswith("'") or token.lower().replace("\u017f", "s") in CLITICS


WORDS = pa.array(["a.b.", "a-b", "b_a", "b.", "it's", "s_a", "\u00e9_a", "\u4e86_\u4eac", "1-n"])
TOKENIZERS = [PLAIN, Segmentation.of("icu")]
TOKENIZERS += [JoinedWords.of(WORDS, base) for base in TOKENIZERS]


@given(LIKELY)
def test_tokens_are_pieces_of_the_text_in_its_order(text: str) -> None:
    """Rejects letters that are lost or come twice, positions in another encoding, tokens without letters."""
    letter = regex.compile(r"[\p{L}\p{N}]")
    for tokenizer in TOKENIZERS:
        found = tokenizer(text)
        assert [straight(text)[a:b] for a, b in token_spans(straight(text), found)] == found
        assert letter.findall(visible("".join(found))) == letter.findall(visible(text))
        assert all(map(letter.search, found))
    # Without the scripts that it knows, icu cuts as the plain tokenizer does.
    other = regex.sub(rf"[{tokens.UNSPACED_LETTERS}]", "", text)
    assert Segmentation.of("icu")(other) == tokenize(other)


@given(LIKELY)
def test_invisible_characters_and_the_fast_pattern_change_no_token(text: str) -> None:
    seen = INVISIBLE.sub("", text)
    assert all_visible(seen) and visible(seen) == seen
    if not regex.search(rf"[{tokens.UNSPACED_LETTERS}]", text):
        found = tokenize(text)
        assert all(token[0] == visible(token)[0] and token[-1] == visible(token)[-1] for token in found)
        assert [INVISIBLE.sub("", token) for token in found] == tokenize(seen)
    for apostrophe in APOSTROPHES:
        seen = seen.replace(apostrophe, "")
    assert tokens._PLAIN_TOKEN.findall(seen) == tokens._TOKEN.findall(seen) == tokenize(seen)


def test_the_invisible_characters_are_those_of_unicode() -> None:
    """A fixed list, so that no two machines cut a text in two ways."""
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert [c for c in every if not all_visible(c)] == INVISIBLE.findall("".join(every))


def test_a_long_run_of_invisible_characters_is_searched_once() -> None:
    """Rejects a search for each of them that goes on to the end of the run: it would take hours."""
    for text in ("\u200b" * 10**5, "\u0e01" + "\u200b\u200d" * 10**5, "\u2060a\u200b\u0e01" * 10**4):
        assert len(tokenize(text)) <= 2 * 10**4


@pytest.mark.parametrize(
    ("word", "kept", "lower"),
    [
        ("Cafe\u0301", "Caf\u00e9", "caf\u00e9"),
        ("\u212b", "\u00c5", "\u00e5"),  # the Angstrom sign is the letter in NFC
        ("STRASSE", "STRASSE", "strasse"),
        ("H\u0331", "H\u0331", "\u1e96"),  # only the small letter has a composed form
        ("\u0130", "\u0130", "i\u0307"),  # lower case of the dotted I is two characters
        ("ﬁ", "ﬁ", "ﬁ"),  # no compatibility folding: words that look alike may be different words
    ],
)
def test_match_form_is_composed_and_settled(word: str, kept: str, lower: str) -> None:
    """Rejects lower case that leaves decomposed letters behind."""
    assert match_form(word, lower=False) == match_form(kept, lower=False) == kept
    assert match_form(word, lower=True) == match_form(lower, lower=True) == lower
