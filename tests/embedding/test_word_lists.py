"""Lists of words as people write them."""

import codecs
import sys
import unicodedata

import pytest

from dptext_spark.embedding.word_lists import WordList, caseless
from dptext_spark.errors import BundleError

WORDS = [
    "the", "Istanbul", "\u0130STANBUL", "istanbuls", "Bad", "bad", "badly", "new_york", "u.s.", "u.s.-led",
    "o'clock", "stra\u00dfe", "red_neck_party", "rock\u00adn", "e-mail-list", "'s", "s", "_", "...",
    "caf\u00e9", "\u200b",
]  # fmt: skip
ISTANBUL = ["Istanbul", "\u0130STANBUL"]


def listed(tmp_path, content):
    path = tmp_path / "list.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return WordList.read(path, "--option")


@pytest.mark.parametrize(
    ("use", "content", "named", "unmatched"),
    [
        ("denied", codecs.BOM_UTF8 + b"bad\nthe\n", ["the", "Bad", "bad"], []),
        ("denied", "bad\rthe\r", ["the", "Bad", "bad"], []),
        ("denied", "\r\n \t bad \r\n\r\nabsent\nthe", ["the", "Bad", "bad"], [4]),
        ("denied", "bad\n\ufeffthe", ["the", "Bad", "bad"], []),
        ("denied", "istanbul", ISTANBUL, []),
        ("denied", "\u0130stanbul", ISTANBUL, []),
        ("denied", "\u0131STANBUL", ISTANBUL, []),
        ("denied", "I\u0307stanbul\nSTRASSE\nCAFE\u0301", [*ISTANBUL, "stra\u00dfe", "caf\u00e9"], []),
        ("denied", "O\u2019Clock\n\uff22\uff41\uff44\nro\u200bckn",
         ["Bad", "bad", "o'clock", "rock\u00adn"], []),
        ("denied", "New  York\nRed Neck\nE-Mail\nU.S.",
         ["new_york", "u.s.", "u.s.-led", "red_neck_party", "e-mail-list"], []),
        ("denied", "'s\n...\n_", ["'s", "_", "..."], []),
        ("denied", "the\n'bad'\nbad,\nbad # worse\n# bad\n\u00ad", ["the"], [2, 3, 4, 5, 6]),
        # Release words are taken as they are written where a word is written so, and never as parts of words.
        ("chosen", codecs.BOM_UTF8 + b"bad\rthe\r", ["the", "bad"], []),
        ("chosen", "BAD\nthe", ["the", "Bad", "bad"], []),
        ("chosen", "New York\nistanbul\n 's ", [*ISTANBUL, "new_york", "'s"], []),
        ("chosen", "the\nabsent\nred neck", ["the"], [2, 3]),
    ],
)  # fmt: skip
def test_a_list_names_what_people_mean(tmp_path, use, content, named, unmatched):
    """Rejects lists that name nothing for their line ends, mark, capitals or blanks, and parts of tokens."""
    matches = getattr(listed(tmp_path, content), use)(WORDS)
    assert [word for word, flag in zip(WORDS, matches.words, strict=True) if flag] == named
    assert matches.unmatched == unmatched


def test_matches_are_described_by_line_numbers(tmp_path):
    matches = listed(tmp_path, "the\n\n" + "zebra\n" * 1200).denied(WORDS)
    counted = "--option list.txt: 1 of 1,201 entries match words; no match: lines "
    assert matches.describe() == f"{counted}3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 1,190 more"
    assert matches.to_json() == {
        "entries": 1201,
        "matched": 1,
        "unmatched_lines": [*range(3, 1203)],
    }
    whole = listed(tmp_path, "THE\nbad").denied(WORDS)
    assert whole.describe() == "--option list.txt: 2 of 2 entries match words"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "",
            "No entry of list.txt .--option.*without quotes, commas or comments. Got: an empty list",
        ),
        ('"the"\n\n"bad"', "No entry of list.txt.*none of lines 1, 3"),
        ("the,bad", "none of line 1"),
        ("the\nzebra".encode("utf-16"), "line 1: .*not valid UTF-8. Save the file as UTF-8"),
        ("the\nzebra".encode("utf-16-le"), "line 1: .*not valid UTF-8"),
        ("the\rzebr\u00e4".encode("latin-1"), "list.txt, line 2: .*not valid UTF-8"),
        (
            "the\nzebr\ud83d".encode("utf-8", "surrogatepass"),
            "line 2: .*not valid UTF-8. Save the file",
        ),
    ],
)
def test_a_list_of_which_nothing_matches_is_refused(tmp_path, content, message):
    for use in (WordList.denied, WordList.chosen):
        with pytest.raises(BundleError, match=message) as caught:
            use(listed(tmp_path, content), WORDS)
        assert "zebr" not in str(caught.value)


def test_all_capitals_of_all_letters_are_one():
    """All characters that have other capitals or compositions, by themselves and between letters."""
    tried = 0
    for letter in (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000):
        capitals = {
            letter.upper(),
            letter.lower(),
            letter.title(),
            unicodedata.normalize("NFD", letter),
        }
        if capitals == {letter}:
            continue
        for word in (letter, f"a{letter}b"):
            spellings = {
                word,
                word.upper(),
                word.lower(),
                word.title(),
                word.swapcase(),
                word.casefold(),
            }
            spellings |= {
                unicodedata.normalize(form, each) for form in ("NFC", "NFD") for each in spellings
            }
            assert len({*map(caseless, spellings)}) == 1, [hex(ord(sign)) for sign in word]
            tried += len(spellings)
    assert tried > 50_000
