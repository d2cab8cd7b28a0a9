"""Released words as texts again: what stands between them, which are joined, and whose capitals they have."""

import hashlib
import json
import re
import string
import subprocess
import sys
import unicodedata
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError
from dptext_spark.text import layout
from dptext_spark.text.columns import DROP, KEEP, MASK, Tokens
from dptext_spark.text.layout import (
    CLITICS,
    SHA256,
    SIGNS,
    UNICODE,
    KeepLayout,
    Layout,
    assemble,
    passing_signs,
)
from dptext_spark.text.tokens import straight, tokenize

WORDS = [
    *CLITICS, "do", "cat", "x", "9", "\u00e9t\u00e9", "stra\u00dfe", "o'clock", "rock'n", "n", "iPhone",
    "\u03c3\u03c2",
]  # fmt: skip
VOCABULARY = pa.array(WORDS)
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
STAND_INS = {"[MASK]": MASK, "=": KEEP, "-": DROP}


def laid_out(layout, texts, *released):
    """Put words, or stand-ins, in the places of the tokens of some texts."""
    numbers = [STAND_INS[word] if word in STAND_INS else WORDS.index(word) for word in released]
    places = np.array(numbers, dtype=np.int64)
    tokens = Tokens.of(pa.array(texts, pa.string()))
    done = assemble(tokens, places, VOCABULARY, Layout.of(layout), [None] * len(tokens.distinct))
    done.validate(full=True)
    return done.to_pylist()


@pytest.mark.parametrize(
    ("text", "released", "words", "kept"),
    [
        ("one two", ["do", "cat"], "do cat", "do cat"),
        ("One, TWO!", ["do", "cat"], "do cat", "Do, CAT!"),
        (" one\n\n\ttwo ", ["do", "cat"], "do cat", " do\n\n cat "),
        ("one\r\ntwo\u2028\u2029\u3000\x85\r\x1f", ["do", "cat"], "do cat", "do\ncat\n\n \n\n"),
        ("One iPhone", ["=", "="], "One iPhone", "One iPhone"),
        # Clitics are joined to the word before them, wherever they come from.
        ("I don\u2019t", ["x", "do", "n't"], "x don't", "X don't"),
        ("one, two", ["x", "'d"], "x'd", "x, 'd"),
        ("ONE TWO", ["do", "n't"], "don't", "DON'T"),
        # Not where nothing stands before them, or where the tokenizer would not split them again.
        ("one two", ["[MASK]", "'s"], "[MASK] 's", "[MASK] 's"),
        ("one two three", ["[MASK]", "'s", "'ve"], "[MASK] 's've", "[MASK] 's've"),
        # A word that stands for a clitic keeps away from the one before it.
        ("don't", ["cat", "x"], "cat x", "cat x"),
        ("it's'one", ["cat", "do", "x"], "cat do x", "cat do' x"),
        # What is left out takes what stood before it along.
        ("one, two; three", ["do", "-", "cat"], "do cat", "do; cat"),
        ("(one) two", ["-", "cat"], "cat", ") cat"),
        ("one two's", ["do", "-", "'s"], "do's", "do's"),
        # Rows without words, and what is no letter in any script.
        ("", [], "", ""),
        (" \u2026?! ", [], "", " \u2026?! "),
        (f"one {FAMILY} two\u2764\ufe0f", ["do", "cat"], "do cat", f"do {FAMILY} cat\u2764\ufe0f"),
        ("cafe\u0301-bar \u0301", ["do", "cat"], "do cat", "do-cat "),
        ("one_two@three.com", ["do", "cat", "x", "n"], "do cat x n", "do_cat@x.n"),
        # Signs that stand for letters never pass, nor what only looks like nothing.
        ("\u24bf\u24de\u24d7\u24dd one\u2122 \u2121\U000e0041", ["do"], "do", " do "),
        ("\u2764" + "\ufe0f\ufe0e" * 3 + "\u200d one", ["do"], "do", "\u2764\ufe0f do"),
        ("one\u02bc \u02bctwo\uff07!", ["do", "cat"], "do cat", "do cat\uff07!"),
    ],
)  # fmt: skip
def test_texts_by_layout(text, released, words, kept):
    assert laid_out("words", [text], *released) == [words]
    assert laid_out("keep", [text], *released) == [kept]


def test_a_word_has_the_capitals_of_the_token_in_whose_place_it_stands():
    """Rejects capitals that change how many letters a word has (SS for a sharp s)."""
    given_words = ["do", "iPhone", "stra\u00dfe", "n't", "9"]
    for tokens, expected in (
        (["oNe", "McOne", "2026", "\u6771\u4eac"], given_words),
        (["one", "1st"], ["do", "iphone", "stra\u00dfe", "n't", "9"]),
        (["One", "O'Neill", "I", "\u00c9t\u00e9"], ["Do", "Iphone", "Stra\u00dfe", "N't", "9"]),
        # O'N as U.S., where the vocabulary has it
        (["ONE", "O'N", "1ST", "\u00c9T\u00c9"], ["DO", "IPHONE", "STRA\u1e9eE", "N'T", "9"]),
    ):
        for token in tokens:
            assert laid_out("keep", [token] * 5, *given_words) == expected


INSIDE = {"\ufe0f", "\u200d"}
LIST = json.loads(SIGNS.read_text(encoding="utf-8"))
SEQUENCES = LIST["sequences"]
EMOJI = "|".join(map(re.escape, sorted(SEQUENCES, key=len, reverse=True)))
NO_SIGN = regex.compile(
    r"[\p{L}\p{N}\p{M}\p{Z}\p{Alphabetic}\p{DI}\p{Co}\p{Cc}\p{Cf}\p{Regional_Indicator}]|(?=\p{S})[\p{Braille}\p{Han}\p{Yi}]"
)


def test_of_all_characters_signs_alone_pass():
    """All of Unicode: by themselves, and each before a letter."""
    text = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    parts = ["a ".join(text[i : i + 4096]) for i in range(0, len(text), 4096)]
    tokens = Tokens.of(pa.array(parts))
    x = np.full(len(tokens), WORDS.index("x"))
    done = assemble(tokens, x, VOCABULARY, KeepLayout(), [None] * len(tokens.distinct))
    passed = {*passing_signs()(text)} - {*" \n"}
    assert {*"".join(done.to_pylist())} - {*"xX \n"} == passed
    assert NO_SIGN.findall(unicodedata.normalize("NFKC", "".join(sorted(passed)))) == []
    assert len(passed) == 6803 and {*string.punctuation} <= passed and not passed & INSIDE
    # White space becomes spaces and line feeds.
    spaces = "".join(regex.findall(r"\p{White_Space}", text)).replace("\r", "") + "\r"
    expected = regex.sub(r"[\n-\r\x85\u2028\u2029]", "\n", spaces)
    assert passing_signs()(spaces) == regex.sub(r"[^\n]", " ", expected)
    assert passing_signs()("\r\n\n\r") == "\n\n\n"


def test_the_list_is_the_one_that_is_named():
    """Rejects, among its emoji, keycaps, flags, tags, and single signs, which need no sequence."""
    assert hashlib.sha256(SIGNS.read_bytes()).hexdigest() == SHA256 and LIST["unicode"] == UNICODE
    assert len({*SEQUENCES}) == 1810
    for sequence in SEQUENCES:
        bare = sequence.replace("\ufe0f", "").replace("\u200d", "")
        assert (
            len(bare) < len(sequence) and passing_signs()(bare) == bare and not NO_SIGN.search(bare)
        )
    whole = [f"{way}{emoji}{way}" for emoji in SEQUENCES for way in ("", " ", ",")]
    assert laid_out("keep", whole) == whole


def test_another_list_is_refused(tmp_path, monkeypatch):
    """Where the options are read, on the driver, and by a worker that has another copy."""
    worker = Layout.of("keep")
    monkeypatch.setattr(layout, "SIGNS", tmp_path / "signs.json")
    monkeypatch.setattr(
        layout, "passing_signs", passing_signs.__wrapped__
    )  # nothing has been read yet
    for content in (None, SIGNS.read_bytes().replace(b"[33,47]", b"[33,90]")):
        if content is not None:
            (tmp_path / "signs.json").write_bytes(content)
        for read in (lambda: Layout.of("keep"), lambda: worker.gaps("a", ["a"])):
            with pytest.raises(
                ConfigError, match=r"--layout keep\) is damaged.*Install dptext-spark"
            ):
                read()
    assert worker.identity == "keep, Unicode 17.0, list 35c2eefc6306"


def test_workers_read_it_from_a_package_in_a_zip(tmp_path):
    """As ``spark-submit --py-files dptext_spark.zip`` sends it."""
    package, archived = Path(layout.__file__).parents[1], tmp_path / "package.zip"
    with zipfile.ZipFile(archived, "w") as archive:
        for path in [
            *package.glob("*.py"),
            *package.glob("text/*.py"),
            package / "text" / "signs.json",
        ]:
            archive.write(path, path.relative_to(package.parent))
    code = "from dptext_spark.text.layout import SIGNS, passing_signs; print(passing_signs()(', a'), SIGNS)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(archived)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(",  ") and "package.zip" in done.stdout


@given(
    st.lists(
        st.sampled_from([*INSIDE, *"\U0001f3fd\U0001f3f4\U000e0067\U0001f1e6\ufe0e5\u20e3a"])
        | st.sampled_from(SEQUENCES),
        max_size=8,
    )
)
def test_what_makes_emoji_passes_only_in_listed_ones(pieces):
    """Rejects selectors and joiners, which can hide a text, after an emoji that does not have them."""
    text = "".join(pieces)
    (done,) = laid_out("keep", [text], *["x"] * len(tokenize(text)))
    assert INSIDE.isdisjoint(re.sub(EMOJI, "", done))
    assert laid_out("keep", [done], *["x"] * len(tokenize(done))) == [done]


LIKELY = "ntN sdlmrevoS'\u2019_-.@\u00e9\u0301\U0001f600\u200d1\u6771\u24bf\n"
TEXTS = st.text(st.sampled_from(LIKELY) | st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(st.sampled_from(WORDS), max_size=8))
@example(["x", "'d", "'ve"])
@example(["x", "'s", "n't", "'s"])
@example(["rock'n", "n't", "'s"])
def test_the_tokenizer_finds_the_words_again(released):
    """Rejects clitics joined where the tokenizer does not split them, or left apart where it would."""
    if released and released[0] in CLITICS:
        released[0] = "cat"
    (done,) = laid_out("words", ["token " * len(released)], *released)
    assert tokenize(done) == released


@given(TEXTS, st.data())
@example("it's'one", None)
@example("\u0301a'\u0301'b", None)
def test_the_tokenizer_finds_them_in_what_stood_around(text, data):
    """Rejects words that run together, or into an apostrophe between them, and gaps that are lost."""
    given_tokens = tokenize(text)
    some = st.sampled_from([*WORDS, *STAND_INS])
    count = len(given_tokens)
    released = (
        data.draw(st.lists(some, min_size=count, max_size=count)) if data else ["cat"] * count
    )
    (done,) = laid_out("keep", [text], *released)
    pairs = zip(released, given_tokens, strict=True)
    outputs = [token if word == "=" else word for word, token in pairs if word != "-"]
    expected = [part for output in outputs for part in tokenize(output)]
    # A clitic that stands apart has lost its apostrophe.
    seen, wanted = (
        [part.lower().lstrip("'") for part in parts] for parts in (tokenize(done), expected)
    )
    assert seen == wanted
    # As they are, tokens give the text back.
    (done,) = laid_out("keep", [text], *["="] * count)
    released, left = straight(done), iter(straight(text))
    assert tokenize(done) == given_tokens
    assert all(sign in left for sign in released if not sign.isspace())  # in the text's order
    assert not {*(Counter(straight(text)) - Counter(released))} & {*string.punctuation}
