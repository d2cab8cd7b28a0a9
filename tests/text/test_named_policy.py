"""Policies that options name: unknown ones are refused, and a new one is one class."""

from dataclasses import dataclass

import numpy as np
import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace
from dptext_spark.options import PrivatizeOptions
from dptext_spark.text.columns import DROP
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import AllWords, OovPolicy, Protection, TextPolicy
from dptext_spark.text.tokens import Segmentation
from tests.helpers import worlds


@pytest.mark.parametrize(
    ("option", "values", "message"),
    [
        ("oov", ["", "MASK", "mask:", "mask:x", None, AllWords()], "mask, .*keep-unpro"),
        (
            "protect",
            ["slots:", "ALL", "all:", " all", "rare:3"],
            "all, content, slots, slots:COLUMN",
        ),
        ("layout", ["kept"], "words, keep.* Got: 'kept'"),
        ("tokenizer", ["ICU", "icu:78.3"], "words, .*icu"),
        ("identifiers", ["surrogate", "off:email"], "mask, surrogate:LABEL, off"),
        ("identifiers", ["mask:emial"], "email, .*Perhaps you meant email"),
        ("numbers", ["off"], r"mask or words\. Got: 'off'"),
    ],
)
def test_unknown_policies_are_refused(option, values, message):
    for value in values:
        with pytest.raises(ConfigError, match=rf"{option}.*Allowed: {message}"):
            TextPolicy(**{option: value})


def test_a_new_policy_is_one_class(small, monkeypatch):
    """From option to output; rejects a branch on the policies that there are today."""
    for kind in (OovPolicy, Protection, Layout, Segmentation):
        monkeypatch.setattr(kind, "policies", dict(kind.policies))

    @dataclass(frozen=True)
    class First(OovPolicy):
        name = "first"
        scope = "{unknown} become one of the first {count} words, or nothing."
        count: str

        def release(self, count, release_words, uniforms, column):
            word, coin = np.concatenate([*uniforms(2)]).T
            return np.where(coin < 0.5, (word * int(self.count)).astype(np.int64), DROP)

    class Capitals(Protection):
        name = "capitals"
        scope = "Words without a capital are released as they are."

        def protected(self, tokens):
            return tokens.flag(lambda token: token != token.lower())

    class Dashes(Layout):
        name = "dashes"
        scope = "Dashes stand in the output."
        capitals = False

        def gaps(self, text, tokens):
            return ["", *["-"] * len(tokens)]

    class Spaced(Segmentation):
        name = "spaced"
        identity = "spaced 1"

        def __call__(self, text):
            return text.split()

    assert First and Capitals and Dashes and Spaced
    options = {"oov": "first:3", "protect": "capitals", "layout": "dashes", "tokenizer": "spaced"}
    private = worlds.sanitizer(small, Laplace(epsilon=4.0), **options)
    done = private.sanitize(["W1 " + "Zy.x " * 400 + "zyx w2"], [1], column="text")
    (first, *middle, zyx, w2, end) = done.values.to_pylist()[0].split("-")
    assert first in worlds.words(200) and (zyx, w2, end) == ("zyx", "w2", "")
    assert {*middle} == {"w0", "w1", "w2"} and 130 < len(middle) < 270
    assert (done.counts.unprotected[0], done.counts.dropped[0]) == (2, 400 - len(middle))
    given = {
        "input": "in",
        "output": "out",
        "embedding": small.path,
        "mechanism": "laplace",
        "epsilon": 4.0,
    }
    assert PrivatizeOptions.of({**given, "text": ["text"], **options}).policy.describe()[:4] == [
        "Outside of marks such as [EMAIL], words without a capital are released as they are.",
        "Outside of marks, protected words outside the vocabulary become one of the first 3 words, or "
        "nothing.",
        OovPolicy.shape.format(words="words and marks"),
        "Dashes stand in the output.",
    ]
    with pytest.raises(ConfigError, match=r"fail, keep-unprotected.*, first:COUNT\. Got: 'x'"):
        TextPolicy(oov="x")
