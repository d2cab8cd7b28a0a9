"""Words of a vocabulary that are several tokens of a text."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from dptext_spark.text import joined
from dptext_spark.text.joined import JOINERS, JoinedWords
from dptext_spark.text.tokens import PLAIN, all_visible, match_form, straight, token_spans, tokenize

WORDS = [
    "u.s.", "e-mail", "covid-19", "1,000", "harbor_seal", "new_york", "new_york_times",
    "york_times_reader", "kans.", "mr.", "mr", "st._louis", "don't", "u.s.-led", "it", "is", "i", "new",
    "york", "B.B._King", "at&t", "Jr.", "jr",
]  # fmt: skip
TOKENIZER = JoinedWords.of(pa.array([*WORDS, "big apple"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S. sent e-mail.", "The|U.S.|sent|e-mail"),
        ("u.s", "u|s"),  # without the stop it is no word of the vocabulary
        ("COVID-19, 1,000 cases 1,000,000", "COVID-19|1,000|cases|1,000|000"),
        ("a harbor  seal, a harbor-seal", "a|harbor  seal|a|harbor|seal"),
        ("New\nYork new_york", "New\nYork|new_york"),
        ("new york times", "new york times"),  # the longest
        ("new york times reader", "new york times|reader"),  # of the longest, the leftmost
        ("the york times reader", "the|york times reader"),
        ("b.b. Big Apple", "b|b|Big Apple"),
        ("From St. Louis, Kans. by u.s.-led", "From|St. Louis|Kans.|by|u.s.-led"),
        ("Mr. Jr. said mr.", "Mr|Jr|said|mr"),  # known without the stop, which may end a sentence
        ("b.b. king B.B. King", "b|b|king|B.B. King"),  # lower case is not in the vocabulary
        ("I don\u2019t DON'T", "I|don't|DON'T"),
        ("e--mail e - mail e- mail at&t", "e|mail|e|mail|e|mail|at&t"),
        ("u.\u2060s. e-\u200dmail", "u.\u2060s.|e-\u200dmail"),
    ],
)  # fmt: skip
def test_joined_words_are_one_token(text: str, expected: str) -> None:
    assert TOKENIZER(text) == expected.split("|")


def test_a_vocabulary_without_joined_words_is_split_as_before() -> None:
    """Such a tokenizer costs nothing; what looks joined and can stand in no text is none."""
    words = [
        "it", "'s", "n't", "o'clock", "été", ",", "...", "--", ".com", "c++", "a--b", "e\u0301-x", "mr.",
        "Mr",
    ]  # fmt: skip
    assert JoinedWords.of(pa.array(words)) is PLAIN


class AsPlain:
    """Splits as the plain tokenizer does, and is another."""

    identity = ""

    def __call__(self, text: str) -> list[str]:
        return tokenize(text)


@given(
    st.lists(st.text(st.sampled_from("aAbB1-.,/&_+:@' \n\u2019é\u0301"), min_size=1, max_size=9), max_size=9)
)
@example(["a-b", "a-b-a", "a-b.", "A-b-1.", "a-b'b", "u.s.", "a.-b", "a-b\n", "é-b", "a-b-b-é"])
@example(["a-b-a", "a-b"])
def test_what_is_clearly_joined_is_what_any_word_goes_through(words: list[str]) -> None:
    """Rejects a full stop that counts as a token, a shorter word in a longer one's place, a line's end."""
    vocabulary = pa.array(words, pa.string())
    fast, slow = JoinedWords.of(vocabulary), JoinedWords.of(vocabulary, AsPlain())
    if not isinstance(fast, JoinedWords) or not isinstance(slow, JoinedWords):
        assert fast is PLAIN and isinstance(slow, AsPlain)
        return
    assert (fast.words, fast.longest, fast.stopped) == (slow.words, slow.longest, slow.stopped)


def oracle(text: str, words: list[str]) -> list[str]:
    """The rule, slowly: all runs of tokens, the longest words first, then the leftmost."""
    text, tokens = straight(text), tokenize(text)
    spans = list(token_spans(text, tokens))
    gap = regex.compile(rf"\.?([{regex.escape(JOINERS)}]|\s+)?")
    others = {word.lower() for word in words}
    usable = {w for w in words if len(tokenize(w)) > 1 or (w[-1] == "." and w[:-1].lower() not in others)}

    def known(form: str) -> bool:
        forms = (form, re.sub(r"\s+", " ", form), re.sub(r"\s+", "_", form))
        return any(match_form(form, lower=lower) in usable for form in forms for lower in (False, True))

    joined: dict[int, tuple[int, str]] = {}
    runs = combinations(range(len(tokens) + 1), 2)
    for first, after in sorted(runs, key=lambda run: (run[0] - run[1], run[0])):
        start, end = spans[first][0], spans[after - 1][1]
        between = zip(spans[first : after - 1], spans[first + 1 : after], strict=True)
        forms = [text[start : end + 1]] if text[end : end + 1] == "." else []
        forms += [text[start:end]] if after - first > 1 else []
        is_free = not any(first < b and a < after for a, (b, _) in joined.items())
        if is_free and all(gap.fullmatch(text[a[1] : b[0]]) for a, b in between) and any(map(known, forms)):
            joined[first] = (after, next(filter(known, forms)))
    out, i = [], 0
    while i < len(tokens):
        i, token = joined.get(i, (i + 1, tokens[i]))
        out.append(token)
    return out


VOCABULARY = [
    "a.b", "a.b.", "a-b", "b-a", "a_b", "b_a_b", "a_b-a", "b.", "it's", "s_a", "a.-b", "B_B", "é_a", "σσ-a",
    "a",
]  # fmt: skip
HOSTILE = st.text(st.sampled_from("aabB._- -\n'sités\u0301Σς,"), max_size=14) | st.text(max_size=20)


@given(HOSTILE)
@example("Σς-a")
@example("a.b.")
@example("a b a b a. b.")
def test_the_rule_is_what_is_written_down(text: str) -> None:
    if all_visible(text):
        assert JoinedWords.of(pa.array(VOCABULARY))(text) == oracle(text, VOCABULARY)


def test_what_is_remembered_is_bounded() -> None:
    """Rejects a cache that grows with the texts: memory of a worker that runs for days."""
    tokenizer: Any = JoinedWords.of(pa.array(["a-b", "b-c"]))
    assert {joined._fold.cache_info().maxsize, tokenizer._is_word.cache_info().maxsize} == {1 << 17}
