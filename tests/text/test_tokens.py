"""Tokens of a text: plain ones, the joined words of a vocabulary, words of scripts without spaces."""

import pickle
import sys
import unicodedata
from types import SimpleNamespace

import icu4py
import pyarrow as pa
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError
from dptext_spark.text import tokens
from dptext_spark.text.joined import JoinedWords
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.tokens import (
    PLAIN,
    IcuWords,
    Segmentation,
    all_visible,
    lookup_form,
    lookup_forms,
    straight,
    token_spans,
    tokenize,
    unspaced_share,
)

ICU = Segmentation.of("icu")
WORDS = [
    "u.s.", "e-mail", "covid-19", "1,000", "harbor_seal", "new_york_times", "new_york",
    "york_times_reader", "a.-b", "b_a_b", "mr.", "mr", "st._louis", "don't", "u.s.-led", "it", "is", "i",
    "new", "kans.", "york", "B.B._King", "at&t", "Jr.", "jr", "big apple",
]  # fmt: skip
JOINING = JoinedWords.of(pa.array(WORDS))

INVISIBLE = regex.compile(r"[\p{Cf}\p{DI}[\p{Cc}--\s]]", regex.VERSION1)
CLITICS = {"'s", "'m", "'d", "'ll", "'re", "'ve"}
APOSTROPHES = "'\u2019\u02bc\uff07"
LIKELY = st.text(
    st.sampled_from("nt sdlmrevoS'\u2019_-.@é\u0301😀\u200d\u200b1abc了京のンー々\u3099ｶﾞกินາក្ကြ်한")
    | st.characters(),
    max_size=30,
)


def visible(text):
    """A text without its invisible characters; in scripts without spaces one of no width stays."""
    return tokens._LEFT_OUT.sub("", text)


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        (PLAIN, "", ""),
        (PLAIN, " \t\r\n\u00a0\u3000\u2028", ""),
        (PLAIN, "don't Can't WON'T", "do|n't|Ca|n't|WO|N'T"),
        (PLAIN, "it's I'm we'd they'll you're I've", "it|'s|I|'m|we|'d|they|'ll|you|'re|I|'ve"),
        (PLAIN, "it\u2019s don\u02bct o\uff07clock", "it|'s|do|n't|o'clock"),
        (PLAIN, "rock'n'roll O'Neill's 'quoted' dogs'", "rock'n'roll|O'Neill|'s|quoted|dogs"),
        (PLAIN, "'s 'tis n't ''' ' a''b", "s|tis|n't|a|b"),
        (PLAIN, "bob@example.com, 4111-1111", "bob|example|com|4111|1111"),
        (PLAIN, "snake_case __init__ a_b", "snake|case|init|a|b"),
        (PLAIN, "3.14 1,000 5th ½ Ⅷ", "3|14|1|000|5th|½|Ⅷ"),
        (PLAIN, "hi😀there 👩‍👩‍👧 ❤️ ok", "hi|there|ok"),
        (PLAIN, "cafe\u0301 na\u0308ive \u0301", "cafe\u0301|na\u0308ive"),
        (PLAIN, "\u0634\u0644\u0645\u060c \u202e\u0639\u0645\u202c שָׁלוֹם हिन्दी",
         "\u0634\u0644\u0645|\u0639\u0645|שָׁלוֹם|हिन्दी"),
        (PLAIN, "東京へ行く。한국어!", "東京へ行く|한국어"),
        # What nobody sees ends no word.
        (PLAIN, "zero\u200bwidth soft\u00adhyphen \ufeffbom\ufeffmark\u200b. \u200d \u3164",
         "zero\u200bwidth|soft\u00adhyphen|bom\ufeffmark"),
        (PLAIN, "a\x00b\x1fc d\te\nf", "a\x00b\x1fc|d|e|f"),
        (PLAIN, "do\u00adn\u200b\u2019t it\u2060\u2019s o\u2019\u200dclock",
         "do|n\u200b't|it|'s|o'\u200dclock"),
        (PLAIN, "\u0645\u06cc\u200c\u062e 1\ufe0f\u20e3 x\ufe0f \u6211\u2060\u559c",
         "\u0645\u06cc\u200c\u062e|1\ufe0f\u20e3|x|\u6211\u2060\u559c"),
        # But a space of no width stands between words of scripts that have no other.
        (PLAIN, "\u0e01\u0e34\u0e19\u200b\u0e02\u0e49\u0e32\u0e27",
         "\u0e01\u0e34\u0e19|\u0e02\u0e49\u0e32\u0e27"),
        (PLAIN, "\u0e01\u0e34\u0e19\u2060\u200b\u2060ab\u200bcd", "\u0e01\u0e34\u0e19|ab\u200bcd"),
        (JOINING, "The U.S. sent e-mail.", "The|U.S.|sent|e-mail"),
        (JOINING, "COVID-19, 1,000 cases 1,000,000", "COVID-19|1,000|cases|1,000|000"),
        (JOINING, "New\nYork new_york", "New\nYork|new_york"),
        (JOINING, "new york times reader", "new york times|reader"),  # of the longest, the leftmost
        (JOINING, "new york new york\u2013times", "new york|new york|times"),  # no dash of typographers
        (JOINING, "a.-b a b a b -b", "a|b a b|a|b|b"),  # the longest first, the leftmost of two
        (JOINING, "From St. Louis, Kans. by u.s.-led", "From|St. Louis|Kans.|by|u.s.-led"),
        (JOINING, "Mr. Jr. said mr.", "Mr|Jr|said|mr"),  # known without the stop, which may end a sentence
        (JOINING, "b.b. king B.B. King", "b|b|king|B.B. King"),  # lower case is not in the vocabulary
        (JOINING, "I don\u2019t DON'T", "I|don't|DON'T"),
        (JOINING, "u.\u2060s. e-\u200dmail", "u.\u2060s.|e-\u200dmail"),
        (ICU, "我喜欢吃苹果\u3002", "我|喜欢|吃|苹果"),
        (ICU, "コンピュータを使う", "コンピュータ|を|使う"),
        (ICU, "ฉันรักไทย", "ฉัน|รัก|ไทย"),
        (ICU, "ພາສາລາວ", "ພາສາ|ລາວ"),
        (ICU, "ស្អាតណាស់", "ស្អាត|ណាស់"),
        # What is around them is cut as ever: other scripts and digits, clitics, letters with marks.
        (ICU, "iPhone手机2024年", "iPhone|手机|2024|年"),
        (ICU, "Don't 我\u2019s a\u0301b", "Do|n't|我|'s|a\u0301b"),
        (ICU, "O'Neill我'x e-mail", "O'Neill|我|x|e|mail"),
        (ICU, "한국어공부 苹\u2060果", "한국어공부|苹\u2060果"),
        (ICU, "\U00020bb7野家", "\U00020bb7|野家"),  # beyond 16 bits
        (JoinedWords.of(pa.array(["香蕉苹果"]), ICU), "吃香蕉苹果", "吃|香蕉苹果"),
        # A geresh that begins the next token is not the end of this one, too.
        (JoinedWords.of(pa.array(["שלום'", "x"])), "שלום'd שלום' d", "שלום|'d|שלום'|d"),
    ],
)  # fmt: skip
def test_tokens_of_a_text(tokenizer, text, expected):
    assert tokenizer(text) == expected.split("|") * bool(expected)


BORDERS = ["\u05d0'", "a.b.", "a-b", "b_a", "b.", "it's", "s_a", "\u00e9_a", "\u4e86_\u4eac", "1-n"]
TOKENIZERS = [PLAIN, ICU, *(JoinedWords.of(pa.array(BORDERS), base) for base in (PLAIN, ICU))]
UNSPACED = regex.compile(rf"[{tokens.UNSPACED_LETTERS}]")


@given(LIKELY)
@example("n't's'd")
@example("\u05d0'd")
@example("\u02bc\u0301a")
def test_tokens_are_pieces_of_the_text_in_its_order(text):
    """Rejects letters that are lost or come twice, positions in another encoding, and punctuation."""
    letter = regex.compile(r"[\p{L}\p{N}]")
    for tokenizer in TOKENIZERS:
        found = tokenizer(text)
        assert [straight(text)[a:b] for a, b in token_spans(straight(text), found)] == found
        assert letter.findall(visible("".join(found))) == letter.findall(visible(straight(text)))
        assert all(map(letter.search, found))
    # Without the scripts that it knows, icu cuts as the plain tokenizer does.
    other = UNSPACED.sub("", text)
    assert ICU(other) == tokenize(other)
    for token in map(visible, tokenize(text)):
        kinds = {unicodedata.category(c) for c in token if c != "'"}
        assert {kind[0] for kind in kinds - {"Cn"}} <= {
            *"LMN"
        }  # regex knows letters newer than this Python
        assert token and not token.endswith("'")
        assert not token.startswith("'") or token.lower().replace("\u017f", "s") in CLITICS
    # Invisible characters and the fast pattern change no token.
    seen = INVISIBLE.sub("", text)
    assert all_visible(seen) and visible(seen) == seen
    if not UNSPACED.search(text):
        found = tokenize(text)
        assert all(
            token[0] == visible(token)[0] and token[-1] == visible(token)[-1] for token in found
        )
        assert [INVISIBLE.sub("", token) for token in found] == tokenize(seen)
    seen = regex.sub(f"[{APOSTROPHES}]", "", seen)
    assert tokens._PLAIN_TOKEN.findall(seen) == tokens._TOKEN.findall(seen) == tokenize(seen)


def test_the_invisible_characters_are_those_of_unicode():
    """A fixed list, so that no two machines cut a text in two ways."""
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert [c for c in every if not all_visible(c)] == INVISIBLE.findall("".join(every))


def test_a_tokenizer_that_invents_tokens_releases_nothing():
    """Rejects a gap that ends where a token was not found: it would be raw text."""
    with pytest.raises(ValueError, match="substring not found"):
        [*token_spans("secret words", ["secret", "invented"])]


def test_a_long_run_of_invisible_characters_is_searched_once():
    """Rejects a search for each of them that goes on to the end of the run: it would take hours."""
    for text in (
        "\u200b" * 10**5,
        "\u0e01" + "\u200b\u200d" * 10**5,
        "\u2060a\u200b\u0e01" * 10**4,
    ):
        assert len(tokenize(text)) <= 2 * 10**4


@given(
    LIKELY
    | st.text(
        st.sampled_from(
            "iI\u0130\u0307\u0301\u0323\u200d\u034f\u0e01\u0e38\u09a1\u09bc\u2019\u05f3\u0345\u03b1"
        )
    )
)
@example("i\u0307\u0307")
@example("\u0301\u034f\u0e38\u200ba")
def test_lookup_forms_are_settled(text):
    """Rejects steps in an order in which the form of a form is another, so that two sides differ."""
    form, lower = lookup_forms(text)
    for each in (form, lower):
        assert lookup_form(each) == each == unicodedata.normalize("NFC", each) and all_visible(each)
    assert lookup_forms(form) == (form, lower) == lookup_forms(unicodedata.normalize("NFD", form))
    assert lookup_forms(lower)[0] == lower


def test_a_vocabulary_without_joined_words_is_split_as_before():
    """Such a tokenizer costs nothing; what looks joined and can stand in no text is none."""
    words = [
        "it",
        "'s",
        "n't",
        "o'clock",
        "été",
        ",",
        "--",
        ".com",
        "c++",
        "a--b",
        "e\u0301-x",
        "mr.",
        "Mr",
    ]
    assert JoinedWords.of(pa.array(words)) is PLAIN


def test_the_share_of_letters_without_spaces():
    """Rejects bytes for letters, and Cyrillic or Korean, whose words have spaces, for such scripts."""
    vowel_signs = ["我喜欢吃苹果\u3002", "東京へ", "カタカナ", "ฉันรัก", "ພາສາ", "ភាសា", "မြန်"]
    for texts, share in (
        *(([], 0.0), ([None, "", "12 !? \U0001f600"], 0.0), (vowel_signs, 1.0)),
        *((["plain words", "caf\u00e9", "при", "한국어"], 0.0), (["ab 我喜", None, "..."], 0.5)),
        (["abc", "\U00020bb7"], 0.25),
    ):
        assert unspaced_share(pa.array(texts, pa.string())) == share


def test_the_tokenizer_of_icu_is_a_value():
    assert IcuWords() == ICU == pickle.loads(pickle.dumps(ICU)) and hash(ICU) == hash(IcuWords())
    assert (str(ICU), ICU.identity) == ("icu", f"icu {icu4py.icu_version}")
    said = TextPolicy(tokenizer="icu").describe()
    assert f"cut into words by ICU {icu4py.icu_version}" in said[-1]
    assert said[:-1] == TextPolicy().describe()


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (None, r"icu4py, which is not installed here.*'dptext-spark\[segmentation\]'.*workers too"),
        (
            SimpleNamespace(icu_version="1.0"),
            rf"Allowed: ICU {icu4py.icu_version}\. Got: ICU 1\.0\.",
        ),
    ],
)
def test_a_worker_without_the_icu_of_the_driver_is_refused(installed, message, monkeypatch):
    """Rejects hosts that cut one text in two ways: a task that is tried again would release other words."""
    worker = pickle.loads(pickle.dumps(ICU))
    monkeypatch.setattr(tokens, "_icu_breaker", tokens._icu_breaker.__wrapped__)
    monkeypatch.setitem(sys.modules, "icu4py", installed)
    assert worker("plain words") == ["plain", "words"]  # it has none of its letters to cut
    with pytest.raises(ConfigError, match=message) as caught:
        worker("我喜欢")
    assert "我" not in str(caught.value)
    if not installed:
        with pytest.raises(ConfigError, match=message):
            TextPolicy(tokenizer="icu")
