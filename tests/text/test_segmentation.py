"""Words in scripts that put no spaces between them: how much of them there is, and how they are cut."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace
from typing import Any

import icu4py
import pyarrow as pa
import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.text import segmentation
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.segmentation import IcuWords, Segmentation, unspaced_share
from dptext_spark.text.tokens import tokenize


def test_the_share_of_letters_without_spaces() -> None:
    """Rejects bytes for letters, and Cyrillic or Korean, whose words have spaces, for such scripts."""
    vowel_signs = ["我喜欢吃苹果\u3002", "東京へ", "カタカナ", "ฉันรัก", "ພາສາ", "ភាសា", "မြန်"]
    shares: list[tuple[list[Any], float]] = [
        ([], 0.0), ([None, "", "12 !? \U0001f600"], 0.0),
        (["plain words", "caf\u00e9", "при", "한국어"], 0.0), (vowel_signs, 1.0),
        (["ab 我喜", None, "..."], 0.5), (["abc", "\U00020bb7"], 0.25),
    ]  # fmt: skip
    for texts, share in shares:
        assert {unspaced_share(pa.array(texts, kind)) for kind in (pa.string(), pa.large_string())} == {share}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我喜欢吃苹果\u3002", ["我", "喜欢", "吃", "苹果"]),
        ("コンピュータを使う", ["コンピュータ", "を", "使う"]),
        ("ฉันรักไทย", ["ฉัน", "รัก", "ไทย"]),
        ("ພາສາລາວ", ["ພາສາ", "ລາວ"]),
        ("ស្អាតណាស់", ["ស្អាត", "ណាស់"]),
        # What is around them is cut as ever: other scripts and digits, clitics, letters with marks.
        ("iPhone手机2024年", ["iPhone", "手机", "2024", "年"]),
        ("Don't 我\u2019s a\u0301b", ["Do", "n't", "我", "'s", "a\u0301b"]),
        ("O'Neill我'x e-mail", ["O'Neill", "我", "x", "e", "mail"]),
        ("한국어공부", ["한국어공부"]),
        ("\U00020bb7野家", ["\U00020bb7", "野家"]),  # beyond 16 bits
        ("... \U0001f600", []),
        ("", []),
    ],
)
def test_icu_cuts_runs_of_such_letters(text: str, expected: list[str]) -> None:
    assert Segmentation.of("icu")(text) == expected
    assert Segmentation.of("words")(text) == tokenize(text)


def test_tokenizers_are_policies() -> None:
    """Rejects a tokenizer whose version the noise's context does not have."""
    icu = Segmentation.of("icu")
    assert icu == IcuWords() == pickle.loads(pickle.dumps(icu)) and hash(icu) == hash(IcuWords())
    assert (str(icu), icu.identity) == ("icu", f"icu {icu4py.icu_version}")
    assert Segmentation.of("words").identity == ""
    said = TextPolicy(tokenizer="icu").describe()
    assert f"cut into words by ICU {icu4py.icu_version}" in said[-1]
    assert said[:-1] == TextPolicy().describe()


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (
            None,
            r"icu4py, which is not installed here.*pip install 'dptext-spark\[segmentation\]'.*workers too",
        ),
        (SimpleNamespace(icu_version="1.0"), rf"Allowed: ICU {icu4py.icu_version}\. Got: ICU 1\.0\."),
    ],
    ids=["none", "another"],
)
def test_a_worker_without_the_icu_of_the_driver_is_refused(
    installed: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects hosts that cut one text in two ways: a task that is tried again would release other words."""
    sent = pickle.dumps(Segmentation.of("icu"))
    monkeypatch.setattr(segmentation, "_icu_breaker", segmentation._icu_breaker.__wrapped__)
    monkeypatch.setitem(sys.modules, "icu4py", installed)
    worker = pickle.loads(sent)
    assert worker("plain words") == ["plain", "words"]  # it has none of its letters to cut
    with pytest.raises(ConfigError, match=message) as caught:
        worker("我喜欢")
    assert "我" not in str(caught.value)
    if not installed:
        with pytest.raises(ConfigError, match=message):
            TextPolicy(tokenizer="icu")
