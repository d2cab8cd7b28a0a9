"""Words in scripts that put no spaces between them: how much of them there is, and how they are cut."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import icu4py
import pyarrow as pa
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError
from dptext_spark.text import segmentation
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.segmentation import IcuWords, Segmentation, unspaced_share
from dptext_spark.text.tokens import straight, token_spans, tokenize


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


LIKELY = "我喜欢吃了東京のンー々\u3099ｶﾞกินไທາក្ាကြ်abN1's \u2019.\u0301한"


@given(st.text(st.sampled_from(LIKELY) | st.characters(exclude_categories=["Cs"]), max_size=30))
def test_tokens_of_icu_are_pieces_of_the_text(text: str) -> None:
    """Rejects positions in another encoding than Python's, lost or doubled letters, tokens without any."""
    found = Segmentation.of("icu")(text)
    assert len([*token_spans(straight(text), found)]) == len(found)
    letter = regex.compile(r"[\p{L}\p{N}]")
    assert letter.findall("".join(found)) == letter.findall("".join(tokenize(text)))
    assert all(letter.search(token) for token in found)
    # Other scripts are cut as ever.
    other = "".join(character for character in text if character < "\u0e00")
    assert Segmentation.of("icu")(other) == tokenize(other)


def test_tokenizers_are_policies() -> None:
    """Rejects a tokenizer whose version the noise's context does not have."""
    icu = Segmentation.of("icu")
    assert icu == IcuWords() == pickle.loads(pickle.dumps(icu)) and hash(icu) == hash(IcuWords())
    assert (str(icu), icu.identity) == ("icu", f"icu {icu4py.icu_version}")
    assert Segmentation.of("words").identity == ""
    said = TextPolicy(tokenizer="icu").describe()
    assert f"cut into words by ICU {icu4py.icu_version}" in said[-1]
    assert said[:-1] == TextPolicy().describe()


@pytest.fixture
def _fresh() -> Iterator[None]:
    """A process that has cut no text yet, before and after."""
    segmentation._icu_breaker.cache_clear()
    yield
    segmentation._icu_breaker.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_without_icu_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the driver before the run, and on a worker that lacks it and has such letters to cut."""
    sent = pickle.dumps(Segmentation.of("icu"))
    monkeypatch.setitem(sys.modules, "icu4py", None)
    needed = r"icu4py, which is not installed here.*pip install 'dptext-spark\[segmentation\]'.*workers too"
    with pytest.raises(ConfigError, match=needed):
        TextPolicy(tokenizer="icu")
    worker = pickle.loads(sent)
    assert worker("plain words") == ["plain", "words"]
    with pytest.raises(ConfigError, match=needed) as caught:
        worker("我喜欢")
    assert "我" not in str(caught.value)


@pytest.mark.usefixtures("_fresh")
def test_another_icu_than_where_the_run_began_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects hosts that cut one text in two ways: a task that is tried again would release other words."""
    icu = Segmentation.of("icu")
    monkeypatch.setattr(segmentation, "icu_version", lambda: "1.0")
    with pytest.raises(ConfigError, match=rf"Allowed: ICU {icu4py.icu_version}\. Got: ICU 1\.0\."):
        icu("我喜欢")
