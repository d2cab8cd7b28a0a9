"""Policies are values that say what they do not cover; a new one is one class."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace
from dptext_spark.options import PrivatizeOptions
from dptext_spark.privatizer import Privatizer, TokenCounts
from dptext_spark.report.sanitized_table import Report
from dptext_spark.text.policies import AllWords, Drop, OovPolicy, Protection, Slots, TextPolicy, UnknownTokens
from dptext_spark.text.token_columns import LEFT_OUT, PLACEHOLDER, Tokens
from tests.helpers import worlds
from tests.helpers.worlds import among


@pytest.mark.parametrize("oov", ["mask", "drop", "random", "fail", "keep-unprotected"])
@pytest.mark.parametrize("protect", ["all", "content", "slots:entities", "slots:a:b"])
def test_policies_say_what_is_not_covered(oov: str, protect: str) -> None:
    policy = TextPolicy(oov=oov, protect=protect)
    assert (str(policy.oov), str(policy.protect)) == (oov, protect)
    described = " ".join(policy.describe())
    assert ("WITHOUT ANY PROTECTION" in described) == (oov == "keep-unprotected")
    assert ("Stop words are released as they are" in described) == (protect == "content")
    assert ("THERE IS NO BOUND" in described) == (protect == "content")
    assert ("Only words inside the slots" in described) == protect.startswith("slots")


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
    privatizer = Privatizer(embedding=small, mechanism=Laplace(epsilon=1e6), policy=policy)
    given = ["w1 Zyx the", "Zyx", "", None]
    slots = pa.array([[{"start": 0, "end": 6}], [{"start": 0, "end": 3}], [], None])
    done = privatizer.sanitize(pa.array(given), pa.array(range(4)), column="text", slots=slots)
    released = done.values.to_pylist()
    said = policy.describe()

    unprotected = protect != "all"
    assert ("the" in released[0].split()) == (unprotected or oov == "keep-unprotected")
    (about_unknown,) = [line for line in said if line.startswith(UNKNOWN[protect])]
    assert about_unknown.removeprefix(UNKNOWN[protect]).split()[0] in ("become", "are", "ARE")
    assert "all others are released as they are" not in " ".join(said)

    lengths = [text and len(text.split()) for text in released]
    told = (
        "The number of words in each row and which rows are null or empty are released as they are." in said
    )
    assert told == (lengths == [3, 1, "", None])
    if not told:
        assert any(line.startswith("The number of words in each row that are not left out") for line in said)
        assert lengths == [1 + unprotected, "", "", None]


@pytest.mark.parametrize(
    ("protect", "column"),
    [
        ("all", None),
        ("content", None),
        ("slots:x", "x"),
        ("slots:a:b", "a:b"),
    ],
)
def test_the_column_of_the_slots(protect: str, column: str | None) -> None:
    assert TextPolicy(protect=protect).protect.slots_column == column


@pytest.mark.parametrize("oov", ["", "MASK", "keep", "unprotected", "mask:", "mask:x", None, 1, AllWords()])
def test_unknown_oov_policies_are_refused(oov: Any) -> None:
    with pytest.raises(ConfigError, match=r"--oov.*mask, drop, random, fail, keep-unprotected.*Got"):
        TextPolicy(oov=oov)


@pytest.mark.parametrize("protect", ["", "none", "slots", "slots:", "ALL", "all:", "slot:x", " all", None])
def test_unknown_protect_policies_are_refused(protect: Any) -> None:
    with pytest.raises(ConfigError, match=r"--protect.*all, content, slots:COLUMN.*Got"):
        TextPolicy(protect=protect)


def test_policies_are_values() -> None:
    """Rejects equality by identity, under which each plan would be another one, and by fields alone."""
    policy = TextPolicy(oov="drop", protect="slots:a")
    assert policy == TextPolicy(oov=Drop(), protect=Slots("a")) == pickle.loads(pickle.dumps(policy))
    assert hash(policy) == hash(TextPolicy(oov=Drop(), protect=Slots("a")))
    others = [
        TextPolicy(protect="slots:a"),
        TextPolicy(oov="drop", protect="slots:b"),
        TextPolicy(oov="drop"),
    ]
    assert len({policy, *others}) == 4


# New policies


@pytest.fixture
def new_policies(monkeypatch: pytest.MonkeyPatch) -> None:
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
            return np.where(coin < 0.5, (word * int(self.count)).astype(np.int64), LEFT_OUT)

    class Capitals(Protection):
        """Tokens with a capital."""

        name = "capitals"
        note = "small words pass"
        scope = "Words without a capital are released as they are."

        def protected(self, tokens: Tokens, slots: pa.Array | None) -> NDArray[np.bool_]:
            return tokens.flag(lambda token: token != token.lower())

    assert First and Capitals


@pytest.mark.usefixtures("new_policies")
def test_a_new_policy_is_one_class(small: Embedding) -> None:
    """From option to report; rejects a branch on the policies that there are today."""
    given = {
        "input": "in",
        "output": "out",
        "embedding": small.path,
        "mechanism": "laplace",
        "epsilon": 4.0,
        "text": ["text"],
        "oov": "first:3",
        "protect": "capitals",
    }
    options = PrivatizeOptions.of(given)
    privatizer = Privatizer(embedding=small, mechanism=Laplace(epsilon=4.0), policy=options.policy)
    texts = pa.array(["W1 " + "Zyx " * 400 + "zyx w2"])
    done = privatizer.sanitize(texts, pa.array([1]), column="text")
    (first, *middle, zyx, w2) = done.values.to_pylist()[0].split()
    assert first in worlds.words(200) and (zyx, w2) == ("zyx", "w2")
    assert {*middle} == {"w0", "w1", "w2"} and 130 < len(middle) < 270
    counts = {name: int(getattr(done.counts, name).sum()) for name in TokenCounts.names()}
    assert (counts["tokens"], counts["out_of_vocabulary"], counts["unprotected"]) == (403, 400, 2)
    report = Report(
        options=options.to_json(),
        guarantee=options.mechanism.guarantee(small),
        policy=options.policy,
        embedding=small,
        search=among(200),
        row_id="",
        kept=(),
        sanitized=("text",),
        rows=1,
        columns={"text": TokenCounts(**counts)},
    )
    said = report.describe()
    assert "Words without a capital are released as they are." in said
    assert "Words outside the vocabulary become one of the first 3 words, or nothing." in said
    assert "400 out of vocabulary (first:3)" in said
    assert '"policy": "first:3"' in report.to_json() and f'"dropped": {400 - len(middle)}' in report.to_json()
    # Nothing else of the release has changed.
    masked = replace(report, policy=TextPolicy())
    assert PLACEHOLDER in masked.describe() and "(mask)" in masked.describe()
    with pytest.raises(ConfigError, match=r"fail, keep-unprotected or first:COUNT\. Got: 'x'"):
        PrivatizeOptions.of({**given, "oov": "x"})
    with pytest.raises(ConfigError, match=r"all, content, slots:COLUMN, capitals\. Got: 'x'"):
        TextPolicy(protect="x")
    assert Protection.choices().endswith("all else passes) or capitals (small words pass)")
