"""Policies are values that say what they do not cover; a new one is one class."""

import pickle
import re
from hashlib import sha256

import pyarrow as pa
import pytest
from bm25s.stopwords import STOPWORDS_EN_PLUS

from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.policies import (
    Drop,
    Slots,
    TextPolicy,
    stop_words,
)
from dptext_spark.text.tokens import tokenize
from tests.helpers import worlds

ALL_ROWS = "shows how many words and marks each row has, and which rows are null or have none."
NOT_LEFT_OUT = "shows how many words and marks of each row are not left out"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            {},
            [
                "marks such as .EMAIL., every word of the",
                "Outside of marks, words outside the vocabulary become .MASK",
                ALL_ROWS,
                "Capitals,",
            ],
        ),
        (
            {"oov": "drop", "protect": "content"},
            [
                "marks such as .EMAIL., stop words are released.* BETWEEN A STOP WORD",
                "that are no stop words are left",
                NOT_LEFT_OUT,
            ],
        ),
        (
            {"oov": "random", "protect": "slots:s", "tokenizer": "icu"},
            [
                "only words inside the slots of column s",
                "words inside the slots that the",
                ALL_ROWS,
            ],
        ),
        (
            {"oov": "keep-unprotected", "layout": "keep"},
            [
                "every word",
                "ARE RELEASED AS .* WITHOUT ANY",
                ALL_ROWS,
                "ARE RELEASED AS .*CAN STILL CARRY A",
            ],
        ),
        (
            {"identifiers": "off", "mask_spans": "s"},
            [".NUMBER., every word", *[""] * 3, "numbers like all", "NUMBER", "Spans of column s"],
        ),
        (
            {"identifiers": "off", "numbers": "words"},
            [
                "^Every word of",
                "^Words outside the vocabulary become",
                "^The output shows how many words each row has",
            ],
        ),
    ],
)
def test_what_policies_say(policy, said):
    """Rejects a sentence that holds under another policy only: on unknown words, and on a row's length."""
    lines = TextPolicy(**policy).describe()
    for line, part in zip(lines, said, strict=False):
        assert re.search(part, line)


MARKED = [
    ({}, r"^Outside of marks such as \[EMAIL\], "),
    ({"identifiers": "off"}, r"^Outside of marks such as \[NUMBER\], "),
    ({"identifiers": "mask:url", "numbers": "words"}, r"^Outside of marks such as \[URL\], "),
    ({"identifiers": "off", "numbers": "words", "mask_spans": "s"}, "^Outside of masked spans, "),
    ({"identifiers": "off", "numbers": "words"}, "^(Every|Stop|Only)"),
]


@pytest.mark.parametrize("protect", ["all", "content", "slots:s"])
@pytest.mark.parametrize(("marks", "begin"), MARKED)
def test_what_is_covered_leaves_out_what_marks_replace(protect, marks, begin, tmp_path):
    """Rejects "every word that the vocabulary has", of which numbers and words inside marks are some."""
    if "mask_spans" in marks and protect.startswith("slots"):
        return  # they do not go together
    embedding = worlds.build(tmp_path, worlds.uneven(5, 3), ["w0", "2023", "www", "com", "x"])
    text, slots = "w0 2023 www.x.com", pa.array([[{"start": 3, "end": 17}]])
    private = worlds.sanitizer(embedding, Laplace(epsilon=1.0), protect=protect, **marks)
    slots = slots if private.release.policy.spans_column else None
    counts = private.sanitize([text], [1], column="t", slots=slots).counts
    is_marked = sum(int(getattr(counts, kind)[0]) for kind in MARKS) > 0
    first, unknown, shape, *_ = private.release.policy.describe()
    assert re.search(begin, first) and is_marked == first.startswith("Outside of ")
    assert is_marked == unknown.startswith("Outside of ") == ("words and ma" in shape)


def test_policies_are_values():
    """Rejects equality by identity, under which each plan would be another one, and by fields alone."""
    policy = TextPolicy(oov="drop", protect="slots:a:b")
    same = [TextPolicy(oov=Drop(), protect=Slots("a:b")), pickle.loads(pickle.dumps(policy))]
    others = [{"protect": "slots:a:b"}, {"oov": "drop", "protect": "slots:b"}, {"oov": "drop"}]
    assert (
        len({policy, *same}) == 1 and len({policy, *(TextPolicy(**each) for each in others)}) == 4
    )
    assert (policy.spans_column, TextPolicy(protect="content").spans_column) == ("a:b", None)
    with pytest.raises(ConfigError, match=r"^mask_spans and protect='slots:COLUMN' do not go"):
        TextPolicy(mask_spans="names", protect="slots:s")


def test_the_stop_words_are_those_of_nltk_as_words():
    """Rejects NLTK's list as it is, by which the T of "T N pension" is released as it stands."""
    words = stop_words()
    # What --protect content releases may not change with a version of bm25s.
    assert sha256(" ".join(sorted(words)).encode()).hexdigest()[:16] == "f00c3a8bf1a63740"
    assert {"the", "do", "n't", "'ve", "don't", "i"} <= words and not {
        "paris",
        "",
        "'",
        "t",
        "don",
    } & words
    # Every form in which a text holds a stop word is one, except the pieces of cut contractions.
    forms = {word for stop in STOPWORDS_EN_PLUS for word in tokenize(f"x {stop} x")[1:-1]}
    assert len(forms - words) == 29 and forms - words <= {*STOPWORDS_EN_PLUS}
