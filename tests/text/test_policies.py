"""Policies are values that say what they do not cover; a new one is one class."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report.facts import describe, release_facts, token_counts
from dptext_spark.sanitizer import TokenCounts
from dptext_spark.text.layout import AsItStood, Layout
from dptext_spark.text.policies import AllWords, Drop, OovPolicy, Protection, Slots, TextPolicy, UnknownTokens
from dptext_spark.text.token_columns import DROP, Tokens
from tests.helpers import worlds

UNKNOWN = {
    "all": "Words outside the vocabulary",
    "content": "Words outside the vocabulary that are no stop words",
    "slots:s": "Words inside the slots that the vocabulary lacks",
}


@pytest.mark.parametrize("oov", ["mask", "drop", "random", "keep-unprotected"])
@pytest.mark.parametrize("protect", UNKNOWN)
def test_what_policies_say_is_what_happens(oov: str, protect: str, small: Embedding) -> None:
    """Rejects a sentence that holds under another policy only: on unknown words, and on a row's length."""
    policy = TextPolicy(oov=oov, protect=protect)
    assert (str(policy.oov), str(policy.protect)) == (oov, protect)
    privatizer = worlds.sanitizer(small, Laplace(epsilon=1e6), oov=oov, protect=protect)
    slots = pa.array([[{"start": 0, "end": 6}], [{"start": 0, "end": 3}], [], None])
    texts = pa.array(["w1 Zyx the", "Zyx", "", None])
    released = privatizer.sanitize(texts, pa.array(range(4)), column="text", slots=slots).values.to_pylist()
    lines = policy.describe()
    said, unprotected = " ".join(lines), protect != "all"

    assert ("the" in released[0].split()) == (unprotected or oov == "keep-unprotected")
    assert ("WITHOUT ANY PROTECTION" in said) == (oov == "keep-unprotected")
    assert (
        ("Stop words are released as they are" in said)
        == ("THERE IS NO BOUND" in said)
        == (protect == "content")
    )
    assert ("Only words inside the slots" in said) == (protect == "slots:s")
    (about_unknown,) = [line for line in lines if line.startswith(UNKNOWN[protect])]
    assert about_unknown.removeprefix(UNKNOWN[protect]).split()[0] in ("become", "are", "ARE")
    lengths = [text and len(text.split()) for text in released]
    if "The number of words in each row and which rows are null or empty are released as they are." in lines:
        assert lengths == [3, 1, "", None]
    else:
        assert "The number of words in each row that are not left out" in said
        assert lengths == [1 + unprotected, "", "", None]


@pytest.mark.parametrize(
    ("option", "values", "message"),
    [
        ("oov", ["", "MASK", "unprotected", "mask:", "mask:x", None, 1, AllWords()],
         r"--oov.*mask, drop, random, fail, keep-unprotected.*Got"),
        ("protect", ["", "slots", "slots:", "ALL", "all:", "slot:x", " all", None],
         r"--protect.*all, content, slots:COLUMN.*Got"),
        ("protect", ["rare", "rare:3"], r"no --protect rare: .*without any bound.*content or slots"),
        ("protect", ["slots-by-text:s", "slots-in-order:s"],
         r"does not say where its slot stands.*slots:COLUMN, with the start"),
        ("layout", ["kept"], r"layout \(--layout\) is unknown. Allowed: words, keep. Got: 'kept'"),
        ("tokenizer", ["ICU", "icu:78.3", "jieba"], r"--tokenizer\) is unknown\. Allowed: words, icu\. Got"),
    ],
)  # fmt: skip
def test_unknown_policies_are_refused(option: str, values: list[Any], message: str) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=message):
            TextPolicy(**{option: value})


def test_policies_are_values() -> None:
    """Rejects equality by identity, under which each plan would be another one, and by fields alone."""
    policy = TextPolicy(oov="drop", protect="slots:a:b")
    same = [TextPolicy(oov=Drop(), protect=Slots("a:b")), pickle.loads(pickle.dumps(policy))]
    others = [
        TextPolicy(protect="slots:a:b"),
        TextPolicy(oov="drop", protect="slots:b"),
        TextPolicy(oov="drop"),
    ]
    assert len({policy, *same}) == 1 and len({policy, *others}) == 4
    columns = [
        TextPolicy(protect=name).protect.slots_column for name in ("all", "content", "slots:x", "slots:a:b")
    ]
    assert columns == [None, None, "x", "a:b"]
    assert TextPolicy(layout="keep").layout == AsItStood()
    kept = " ".join(TextPolicy(layout="keep").describe())
    assert "ARE RELEASED AS THEY ARE" in kept and "CAN STILL CARRY A MESSAGE" in kept
    assert (
        Layout.of("keep").identity == "keep, Unicode 17.0, list 35c2eefc6306"
        and Layout.of("words").identity == "words"
    )
    assert "Capitals, punctuation, emoji and spacing of the covered words are not" in " ".join(
        TextPolicy().describe()
    )


@pytest.fixture
def _new_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make policies known to this test alone."""
    for kind in (OovPolicy, Protection):
        monkeypatch.setattr(kind, "policies", dict(kind.policies))

    @dataclass(frozen=True)
    class First(OovPolicy):
        """One of the first words, or nothing, by a coin for each token."""

        name = "first"
        scope = "Words outside the vocabulary become one of the first {count} words, or nothing."

        count: str

        def release(self, unknown: UnknownTokens) -> NDArray[np.int64]:
            word, coin = np.concatenate([*unknown.uniforms(2)]).T
            return np.where(coin < 0.5, (word * int(self.count)).astype(np.int64), DROP)

    class Capitals(Protection):
        """Tokens with a capital."""

        name = "capitals"
        scope = "Words without a capital are released as they are."

        def protected(self, tokens: Tokens, slots: pa.Array | None) -> NDArray[np.bool_]:
            return tokens.flag(lambda token: token != token.lower())

    assert First and Capitals


@pytest.mark.usefixtures("_new_policies")
def test_a_new_policy_is_one_class(small: Embedding) -> None:
    """From option to report; rejects a branch on the policies that there are today."""
    given = {
        "input": "in", "output": "out", "embedding": small.path, "mechanism": "laplace", "epsilon": 4.0,
        "text": ["text"], "oov": "first:3", "protect": "capitals",
    }  # fmt: skip
    options = PrivatizeOptions.of(given)
    privatizer = worlds.sanitizer(small, Laplace(epsilon=4.0), oov="first:3", protect="capitals")
    texts = pa.array(["W1 " + "Zyx " * 400 + "zyx w2"])
    done = privatizer.sanitize(texts, pa.array([1]), column="text")
    (first, *middle, zyx, w2) = done.values.to_pylist()[0].split()
    assert first in worlds.words(200) and (zyx, w2) == ("zyx", "w2")
    assert {*middle} == {"w0", "w1", "w2"} and 130 < len(middle) < 270
    counts = {name: int(getattr(done.counts, name).sum()) for name in TokenCounts.names()}
    assert (counts["tokens"], counts["out_of_vocabulary"], counts["unprotected"]) == (403, 400, 2)
    found = release_facts(
        privatizer.release,
        options.mechanism.guarantee(small),
        options=options.to_json(),
        row_id="",
        kept=(),
        sanitized=("text",),
    )
    columns = {"text": token_counts(TokenCounts(**counts), "first:3")}
    said = describe({**found, "rows": 1, "columns": columns})
    assert "Words without a capital are released as they are." in said
    assert "Words outside the vocabulary become one of the first 3 words, or nothing." in said
    assert "400 out of vocabulary (first:3)" in said
    with pytest.raises(ConfigError, match=r"fail, keep-unprotected, first:COUNT\. Got: 'x'"):
        PrivatizeOptions.of({**given, "oov": "x"})
