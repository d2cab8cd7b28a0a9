"""Whole columns: nothing leaks, everything is counted, and nothing but key, id and content matters."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from dptext_spark import sanitizer as sanitizer_module
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import BundleError, ConfigError, InputError
from dptext_spark.lookup import look_up
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis, Mechanism
from dptext_spark.noise import ColumnNoise, NoiseKey
from dptext_spark.sanitizer import Sanitized, Sanitizer, TokenCounts
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text import token_columns
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.token_columns import PLACEHOLDER, Tokens
from dptext_spark.text.tokens import token_spans, tokenize
from tests.helpers import worlds
from tests.helpers.bundles import glove, vectors_of

EPSILON = 4.0


def private(
    world: Embedding,
    *,
    mechanism: Mechanism | None = None,
    salt: str = "",
    key: NoiseKey = worlds.KEY,
    release_words: int | None = None,
    kind: type[Sanitizer] = Sanitizer,
    **policy: str,
) -> Sanitizer:
    made = worlds.sanitizer(
        world,
        mechanism or Laplace(epsilon=EPSILON),
        key=key,
        name=salt,
        search=ExactSearch.over(world, release_words),
        **policy,
    )
    return kind(release=made.release, noise=made.noise)


def sanitize(
    privatizer: Sanitizer, rows: Iterable[Any], *, kind: pa.DataType | None = None, slots: Any = None
) -> Sanitized:
    values = pa.array(rows, kind or pa.string())
    ids = pa.array(range(len(values)), pa.int64())
    done = privatizer.sanitize(values, ids, column="text", slots=slots)
    done.values.validate(full=True)
    assert done.values.type == values.type and len(done.values) == len(values)
    counts = {name: getattr(done.counts, name) for name in TokenCounts.names()}
    assert (counts.pop("dropped") <= counts["out_of_vocabulary"]).all()
    kept = counts.pop("kept_characters") + counts.pop("kept_capitals")
    assert privatizer.release.policy.layout == Layout.of("keep") or not kept.any()
    np.testing.assert_array_equal(counts.pop("tokens"), sum(counts.values()))
    return done


TOKENS = pa.list_(pa.string())
ROWS = ["w1 w2 Zyx w3", None, "", "zyx", "...", "w1 W2 w299"]


# What becomes of the words


def test_null_stays_null_and_every_word_is_accounted_for(small: Embedding) -> None:
    done = sanitize(private(small), ROWS)
    texts = done.values.to_pylist()
    assert [texts[row] for row in (1, 2, 3, 4)] == [None, "", PLACEHOLDER, ""]
    assert [len((text or "").split()) for text in texts] == [4, 0, 0, 1, 0, 3]
    assert done.counts.tokens.tolist() == [4, 0, 0, 1, 0, 3]
    assert done.counts.out_of_vocabulary.tolist() == [1, 0, 0, 1, 0, 0]
    assert (done.counts.replaced + done.counts.unchanged).tolist() == [3, 0, 0, 0, 0, 3]
    pairs = [pair for row in (0, 5) for pair in zip(ROWS[row].split(), texts[row].split(), strict=True)]
    assert done.counts.unchanged.sum() == sum(a.lower() == b for a, b in pairs)
    assert {word for _, word in pairs} <= {*worlds.words(200), PLACEHOLDER}


def test_nothing_in_nothing_out(small: Embedding) -> None:
    for kind in (pa.string(), pa.large_string(), TOKENS, pa.large_list(pa.large_string())):
        for rows in ([], [None, None]):
            assert sanitize(private(small), rows, kind=kind).values.to_pylist() == rows


def test_token_lists_keep_their_places(small: Embedding) -> None:
    rows = [["w1", None, "", "zyx", "W2", "a b"], None, [], [None]]
    done = sanitize(private(small), rows, kind=TOKENS)
    first, *others = done.values.to_pylist()
    assert others == [None, [], [None]]
    assert first[1:4] == [None, "", PLACEHOLDER] and first[5] == PLACEHOLDER
    assert {first[0], first[4]} <= set(worlds.words(200))
    assert done.counts.blank.tolist() == [2, 0, 0, 1]


def test_unknown_words(small: Embedding) -> None:
    known = sanitize(private(small), ROWS).values.to_pylist()[0].split()
    for oov, expected in (("mask", [PLACEHOLDER]), ("drop", []), ("keep-unprotected", ["Zyx"])):
        done = sanitize(private(small, oov=oov), ROWS)
        assert done.values.to_pylist()[0].split() == [*known[:2], *expected, known[3]]
        assert done.counts.out_of_vocabulary.tolist() == [1, 0, 0, 1, 0, 0]
        assert done.counts.dropped.tolist() == ([1, 0, 0, 1, 0, 0] if oov == "drop" else [0] * 6)
        tokens = sanitize(private(small, oov=oov), [["w1", "Zyx"], ["Zyx"]], kind=TOKENS).values.to_pylist()
        assert tokens[1] == expected


@pytest.mark.statistical
def test_random_words_are_uniform_over_the_release_vocabulary(small: Embedding) -> None:
    """Chi-square, 10^-4 false alarms; the mutants are drawn with a stream of their own."""
    done = sanitize(private(small, oov="random", release_words=50), ["zyx " * 500] * 40)
    words = [word for text in done.values.to_pylist() for word in text.split()]
    seen = np.array([words.count(name) for name in worlds.words(50)])
    assert seen.sum() == len(words) == 20_000  # none outside
    assert stats.chisquare(seen).pvalue > 1e-4
    uniforms = np.random.default_rng(0).random(20_000)
    for mutant in (uniforms * 49, np.rint(uniforms * 49), 1 + uniforms * 49, 50 * uniforms**1.1):
        assert stats.chisquare(np.bincount(mutant.astype(int), minlength=50)).pvalue < 1e-6
    # Not a function of the word's place or of the row alone.
    assert len(set(done.values.to_pylist())) == 40


def test_two_release_vocabularies_do_not_tell_which_words_are_unknown(small: Embedding) -> None:
    """Known or unknown, a word drawn among 200 is drawn among 150 too if it is one of these.

    Rejects one uniform for both sizes, as it was, and one for each: nearly all unknown words change then.
    """
    names = {name: place for place, name in enumerate(worlds.words(200))}

    def moved(text: str) -> float:
        """The share of words that are among 150, and are others in the release among 150."""
        releases = [
            sanitize(private(small, mechanism=Laplace(epsilon=0.5), oov="random", release_words=size), [text])
            for size in (200, 150)
        ]
        (more, fewer) = (r.values.to_pylist()[0].split() for r in releases)
        both = [(a, b) for a, b in zip(more, fewer, strict=True) if names[a] < 150]
        assert len(both) > 1000 and len(set(both)) > 100
        return sum(a != b for a, b in both) / len(both)

    assert moved("zyx " * 2000) == moved(" ".join(worlds.words(200) * 10)) == 0.0
    uniforms = np.random.default_rng(0).random((2, 2000))
    for other in (0, 1):
        more, fewer = (uniforms[0] * 200).astype(int), (uniforms[other] * 150).astype(int)
        assert np.mean((more != fewer)[more < 150]) > 0.9


def test_unknown_words_can_fail_the_run_without_being_quoted(small: Embedding) -> None:
    with pytest.raises(InputError, match=r"text has words outside.*Got: 2 unknown words") as caught:
        sanitize(private(small, oov="fail"), ROWS)
    assert "zyx" not in f"{caught.value} {caught.value!r} {caught.value.args}".lower()
    assert sanitize(private(small, oov="fail"), ["w1 w2"]).counts.tokens.tolist() == [2]


@pytest.mark.parametrize(
    ("values", "ids", "policy"),
    [
        (pa.array([b"secret"]), [1], {}),
        (pa.array([[b"secret"]]), [1], {}),
        (pa.array(["secret"]), [b"secret"], {}),
        (pa.array(["secret"] * 2), ["secret", None], {}),
        (pa.array(["secret"]), ["secret"], {"protect": "slots:s"}),
    ],
)
def test_messages_never_hold_rows(
    small: Embedding, values: pa.Array, ids: list[Any], policy: dict[str, str]
) -> None:
    with pytest.raises(InputError) as caught:
        private(small, **policy).sanitize(values, pa.array(ids), column="text")
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__


def test_impossible_release_vocabularies_are_refused(small: Embedding) -> None:
    for count in (1, 0, -1, 201, 300):
        with pytest.raises(ConfigError, match="2 to 200 words"):
            private(small, release_words=count)


def alter_in_place(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(-4, os.SEEK_END)
        opened.write(b"\0\0\0\0")


def replace_whole(file: Path) -> None:
    file.with_suffix(".new").write_bytes(file.read_bytes())
    file.with_suffix(".new").replace(file)


@pytest.mark.parametrize("alter", [alter_in_place, replace_whole, Path.unlink])
def test_a_bundle_that_changes_while_it_is_in_use_gives_no_result(
    tmp_path: Path, alter: Callable[[Path], None]
) -> None:
    bundle = worlds.build(tmp_path, worlds.uneven(20, 3))
    privatizer = worlds.sanitizer(bundle, Laplace(epsilon=1.0))
    texts, ids = pa.array(["w00 w01"]), pa.array([1])
    assert privatizer.sanitize(texts, ids, column="text").counts.tokens.sum() == 2
    alter(bundle.path / "vectors.npy")
    with pytest.raises(BundleError, match=r"changed while it was in use.*vectors\.npy"):
        privatizer.sanitize(texts, ids, column="text")


@pytest.mark.parametrize("count", [2, 17, None])
def test_only_released_words_come_out(small: Embedding, count: int | None) -> None:
    """Also where a word that may not come out is its own nearest: it is perturbed, but only into others."""
    for epsilon in (EPSILON, 1e6):
        world = private(small, mechanism=Laplace(epsilon=epsilon), release_words=count)
        (text,) = sanitize(world, [" ".join(worlds.words(300))]).values.to_pylist()
        assert {*text.split()} <= {*worlds.words(count or 200)}


# Which words are protected


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """A lower-case vocabulary of real words in the plane."""
    names = ["the", "to", "in", "paris", "london", "new", "york", "fly", "me", "a", "cheap", "flight"]
    points = np.random.default_rng(8).standard_normal((len(names), 2))
    return worlds.build(tmp_path_factory.mktemp("spoken"), points, names)


TEXT = "Fly me to New York, the new York!"
SAID = tokenize(TEXT)


def passed(done: Sanitized, row: int = 0) -> set[int]:
    """Places of the words that stand in the output as they stood in the input, capitals included."""
    output = done.values.to_pylist()[row]
    words = output.split() if isinstance(output, str) else output
    return {place for place, (a, b) in enumerate(zip(SAID, words, strict=True)) if a == b}


def protected_places(world: Embedding, kind: pa.DataType, slots: Any = None, **policy: str) -> set[int]:
    """Places that change under at least one of many keys: those that the policy lets perturb."""
    row = TEXT if kind == pa.string() else SAID
    places = set(range(len(SAID)))
    for seed in range(12):
        privatizer = private(
            world, mechanism=Laplace(epsilon=0.01), key=NoiseKey(bytes([seed] * 32)), **policy
        )
        done = sanitize(privatizer, [row], kind=kind, slots=slots)
        places &= passed(done)
        assert done.counts.tokens.sum() == len(SAID)
    assert done.counts.unprotected.tolist() == [len(places)]
    return set(range(len(SAID))) - places


EVERYTHING = set(range(8))


@pytest.mark.parametrize(
    ("policy", "slots", "expected"),
    [
        ("all", None, EVERYTHING),
        ("content", None, {0, 3, 4, 6, 7}),  # me, to and the pass
        ("slots:s", [[{"start": 4, "end": 5}, {"start": 7, "end": 8}]], {4, 7}),
        ("slots:s", [[{"start": 1, "end": 3}]], {1, 2}),
        ("slots:s", [[]], set()),
        ("slots:s", [None], EVERYTHING),
        ("slots:s", [[{"start": 4, "end": 99}]], EVERYTHING),
    ],
)
def test_what_a_policy_protects(spoken: Embedding, policy: str, slots: Any, expected: set[int]) -> None:
    """Rejects a policy that lets one word more or one word less pass."""
    for kind in (pa.string(), TOKENS):
        spans = in_characters(slots) if slots and kind == pa.string() else slots
        column = None if slots is None else pa.array(spans)
        assert protected_places(spoken, kind, slots=column, protect=policy) == expected


def in_characters(slots: list[Any]) -> list[Any]:
    """Turn spans of words of ``TEXT`` into spans of characters."""
    spans = [*token_spans(TEXT, SAID), *[(999, 999)] * 99]
    return [
        row and [{"start": spans[s["start"]][0], "end": spans[s["end"] - 1][1]} for s in row] for row in slots
    ]


def test_unknown_words_are_masked_wherever_they_are_protected(spoken: Embedding) -> None:
    for policy in ("all", "content"):
        done = sanitize(private(spoken, protect=policy), ["Zyx the"])
        assert done.values.to_pylist()[0].split()[0] == PLACEHOLDER
    slots = pa.array([[{"start": 4, "end": 9}]])
    text = sanitize(private(spoken, protect="slots:s"), ["zyx paris"], slots=slots).values.to_pylist()[0]
    assert text.split()[0] == "zyx"


@pytest.mark.parametrize("layout", ["words", "keep"])
def test_all_outside_the_slots_of_a_text_passes(spoken: Embedding, layout: str) -> None:
    """As the layout has it: rejects slots that are off by the marks and signs before them."""
    text = "\U0001f600 Fly to\u00a0Paris\u2019s cafe\u0301, (LONDON)!"
    slots = [{"start": text.index(word), "end": text.index(word) + len(word)} for word in ("Paris", "LONDON")]
    privatizer = private(spoken, mechanism=Laplace(epsilon=1e9), protect="slots:s", layout=layout)
    done = sanitize(privatizer, [text, text], slots=[slots, None])
    kept = text.replace("\u2019", "'").replace("\u00a0", " ")
    expected = {"words": "Fly to paris's cafe\u0301 london", "keep": kept}[layout]
    assert done.values[0].as_py() == expected
    assert done.counts.unprotected.tolist() == [4, 0] and done.counts.unchanged.tolist() == [2, 4]
    noisy = private(spoken, mechanism=Laplace(epsilon=1e-3), protect="slots:s", layout=layout)
    outputs = {sanitize(noisy, [text], slots=[slots]).values[0].as_py() for _ in range(2)}
    (output,) = outputs
    before = "\U0001f600 " if layout == "keep" else ""
    assert output.startswith(f"{before}Fly to ") and "s cafe\u0301" in output


# Words without spaces between them


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """A vocabulary of Chinese words in the plane, one of which is two to ICU."""
    names = ["我", "喜欢", "吃", "苹果", "香蕉", "香蕉苹果", "和", "n't"]
    points = np.random.default_rng(3).standard_normal((len(names), 2))
    return worlds.build(tmp_path_factory.mktemp("chinese"), points, names)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, f"{PLACEHOLDER} {PLACEHOLDER}"),
        ({"tokenizer": "icu"}, f"我 喜欢 吃 香蕉苹果 {PLACEHOLDER} {PLACEHOLDER}"),
        ({"tokenizer": "icu", "layout": "keep"}, f"我 喜欢 吃 香蕉苹果\u3002{PLACEHOLDER} {PLACEHOLDER}!"),
        ({"tokenizer": "icu", "protect": "slots:s", "oov": "drop"}, "我 喜欢 吃 香蕉苹果 iPhone 手机"),
    ],
)
def test_words_of_texts_without_spaces(chinese: Embedding, policy: dict[str, str], expected: str) -> None:
    """Rejects segments that a joined word of the vocabulary cannot be found in, or that slots do not cut."""
    privatizer = private(chinese, mechanism=Laplace(epsilon=1e6), **policy)
    slots = pa.array([[{"start": 1, "end": 3}, {"start": 3, "end": 4}]]) if "protect" in policy else None
    done = sanitize(privatizer, ["我喜欢吃香蕉苹果\u3002iPhone手机!"], slots=slots)
    assert done.values.to_pylist() == [expected]
    if slots is not None:
        assert done.counts.unprotected.tolist() == [4]


# What the noise depends on


def corpus(rows: int = 120, *, seed: int = 5) -> list[str | None]:
    """Texts of many lengths, some null, some empty, some alike, some words unknown."""
    rng = np.random.default_rng(seed)
    texts: list[str | None] = [
        " ".join(f"w{word}" for word in rng.integers(0, 330, size)) for size in rng.integers(0, 40, rows)
    ]
    texts[3], texts[7], texts[11], texts[12] = None, "", texts[10], "w1 " * 5000
    return texts


@pytest.mark.parametrize(
    "mechanism", [Laplace(epsilon=EPSILON), Mahalanobis(epsilon=EPSILON, **{"lambda": 0.5})], ids=["l", "m"]
)
@pytest.mark.parametrize("as_tokens", [False, True])
def test_rows_come_out_the_same_however_they_are_batched(
    small: Embedding, mechanism: Mechanism, as_tokens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects noise by batch, by place in the batch, and a row key that is carried over to the next row."""
    privatizer = private(small, mechanism=mechanism, oov="random")
    texts = corpus()
    values = pa.array([t and t.split() for t in texts], TOKENS) if as_tokens else pa.array(texts)
    ids = pa.array(range(len(texts)))

    def parts(borders: list[int]) -> pa.Array:
        cuts = [slice(a, b) for a, b in pairwise(borders)]
        done = [privatizer.sanitize(values[c], ids[c], column="text").values for c in cuts]
        return pa.concat_arrays(done)

    keyed: list[bytes] = []

    def row_key(noise: ColumnNoise, row: bytes, content: Any) -> bytes:
        keyed.append(row)
        return ROW_KEY(noise, row, content)

    monkeypatch.setattr(ColumnNoise, "row_key", row_key)
    whole = privatizer.sanitize(values, ids, column="text").values
    assert len(keyed) <= 2 * len(
        {*keyed}
    )  # for the words and for the unknown ones, not for each word or chunk
    assert parts([*range(len(texts) + 1)]).equals(whole)
    inner = np.random.default_rng(0).choice(np.arange(1, len(texts)), 9, replace=False)
    assert parts([0, *sorted(inner.tolist()), len(texts)]).equals(whole)
    order = pa.array(np.random.default_rng(9).permutation(len(texts)))
    shuffled = privatizer.sanitize(values.take(order), ids.take(order), column="text").values
    assert shuffled.equals(whole.take(order))


@pytest.mark.parametrize(("slice_bytes", "chunk"), [(1, 2048), (1 << 20, 7), (300, 7)])
def test_the_sizes_of_inner_blocks_do_not_matter(
    small: Embedding, monkeypatch: pytest.MonkeyPatch, slice_bytes: int, chunk: int
) -> None:
    """Rejects ids or slots that are not cut with their rows, and positions that restart with a chunk."""
    texts = corpus()
    spans = [[(0, len(text or "") // 2), (1, len(text or ""))] if text else None for text in texts]
    slots = pa.array([row and [{"start": a, "end": b} for a, b in row] for row in spans])
    release = private(small, oov="random", protect="slots:s")
    expected = sanitize(release, texts, slots=slots)
    monkeypatch.setattr(token_columns, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(sanitizer_module, "CHUNK", chunk)
    done = sanitize(release, texts, slots=slots)
    assert done.values.equals(expected.values)
    for name in TokenCounts.names():
        np.testing.assert_array_equal(getattr(done.counts, name), getattr(expected.counts, name))


def known_words(done: Sanitized, row: int = 0) -> list[str]:
    return done.values.to_pylist()[row].split()


@pytest.mark.parametrize("oov", ["drop", "random", "keep-unprotected"])
def test_policies_do_not_change_the_noise_of_other_words(small: Embedding, oov: str) -> None:
    """Rejects positions counted after words were dropped: one noise would serve two policies' two words."""
    text = "zyx w1 w2 zyx w3 w4"
    masked = known_words(sanitize(private(small), [text]))
    other = known_words(sanitize(private(small, oov=oov), [text]))
    places = [1, 2, 4, 5]
    assert [masked[p] for p in places] == (other if oov == "drop" else [other[p] for p in places])


def test_layouts_and_protection_leave_the_words_as_they_are(small: Embedding, spoken: Embedding) -> None:
    """Rejects noise that hangs on the layout: what stands around the words is no part of their secret."""
    rows = ["W1, w2! (W3)\n\n", None, "", "...", "\u201cw4 W5\u201d \U0001f600 w6-zyx"]
    alone, kept = (sanitize(private(small, layout=layout), rows) for layout in ("words", "keep"))
    words, texts = alone.values.to_pylist(), kept.values.to_pylist()
    assert [(text or "").split() for text in words] == [
        [word.replace("mask", PLACEHOLDER) for word in tokenize((text or "").lower())] for text in texts
    ]
    assert [text and "".join(c for c in text if not c.isalnum()) for text in texts] == [
        ", ! ()\n\n", None, "", "...", "\u201c \u201d \U0001f600 -[]",
    ]  # fmt: skip
    assert kept.counts.kept_characters.tolist() == [8, 0, 0, 3, 6]
    assert kept.counts.kept_capitals.tolist() == [2, 0, 0, 0, 1]
    everything, content = (
        known_words(sanitize(private(spoken, protect=p), [TEXT])) for p in ("all", "content")
    )
    assert [content[p] for p in (0, 3, 4, 6, 7)] == [everything[p] for p in (0, 3, 4, 6, 7)]


LONG = " ".join(worlds.words(200))
ROW_KEY = ColumnNoise.row_key


@pytest.mark.parametrize(
    "other",
    [
        lambda w: sanitize(private(w, salt="april"), [LONG]),
        lambda w: sanitize(private(w, key=NoiseKey(bytes(32))), [LONG]),
        lambda w: sanitize(private(w, mechanism=Laplace(epsilon=EPSILON + 1e-9)), [LONG]),
        lambda w: private(w).sanitize(pa.array([LONG]), pa.array([1]), column="text"),
        lambda w: private(w).sanitize(pa.array([LONG]), pa.array([0]), column="title"),
        lambda w: sanitize(private(w), [LONG + "."]),
        lambda w: sanitize(private(w, tokenizer="icu"), [LONG]),
        lambda w: Sanitizer.open(private(w).release).sanitize(pa.array([LONG]), pa.array([0]), column="text"),
    ],
    ids=["salt", "key", "epsilon", "id", "column", "content", "tokenizer", "fresh key"],
)
def test_another_context_is_another_draw(small: Embedding, other: Callable[[Embedding], Sanitized]) -> None:
    first, second = known_words(sanitize(private(small), [LONG])), known_words(other(small))
    assert np.mean([a == b for a, b in zip(first, second, strict=True)]) < 0.5


def test_a_changed_row_is_seen_and_spends_epsilon_for_all_its_words(
    plane: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two releases under one key and label tell: enumerated, and measured on 5,000 rows.

    A row that did not change comes out equal, one of whose words became its nearest hardly ever: the event
    "equal" loses many times what one word's bound says. Rejects noise without the text in its context, which
    changed words would share. False alarms: 1e-9.
    """
    mechanism, rows = Exponential(epsilon=1.0), 5_000
    before, after = "w0 w1 w2 w3", "w0 w1 w2 w5"
    bound = mechanism.guarantee(plane).loss(float(np.linalg.norm(plane.vectors[3] - plane.vectors[5])))
    chances = mechanism.bind(plane, ExactSearch.over(plane)).probabilities(np.arange(6))
    pairs = zip(before.split(), after.split(), strict=True)
    equal = np.prod([chances[int(a[1:])] @ chances[int(b[1:])] for a, b in pairs])

    def stayed(text: str) -> int:
        """How many rows come out as the row before did."""
        outputs = [sanitize(private(plane, mechanism=mechanism), [t] * rows).values for t in (before, text)]
        return int(pc.sum(pc.equal(*outputs)).as_py())

    assert stayed(before) == rows  # in both releases: the event is certain
    assert stats.binomtest(stayed(after), rows, equal).pvalue > 1e-9
    assert -np.log(equal) > 4.0 * bound
    monkeypatch.setattr(ColumnNoise, "row_key", lambda self, row_id, content: ROW_KEY(self, row_id, ()))
    assert stats.binomtest(stayed(after), rows, equal).pvalue < 1e-9


def test_rows_of_one_id_show_whether_their_texts_are_equal(small: Embedding) -> None:
    """What --trust-id lets pass: equal texts come out equal, others by chance alone."""
    given = [*corpus(50), *corpus(50)[::-1]]
    ids = pa.array([*range(50), *range(50)])
    released = private(small).sanitize(pa.array(given), ids, column="text").values.to_pylist()
    pairs = [(given[i] == given[50 + i], released[i] == released[50 + i]) for i in range(50)]
    assert all(out for same, out in pairs if same)
    assert not any(out for same, out in pairs if not same)


# Hostile tables

HOSTILE = [
    "The Quick BROWN FoX",
    "Bob.Smith@Example.com wrote to bob@example.com",
    "card 4111 1111 1111 1111 or 4111-1111-1111-1111",
    "Ren\u00e9e cafe\u0301 NA\u00cfVE \ufb01nance Stra\u00dfe STRASSE \u212bngstr\u00f6m",
    "\u0130stanbul \u0131\u015f\u0131k \uff26\uff35\uff2c\uff2c\uff37\uff29\uff24\uff34\uff28 \u210cello",
    "hi \U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 5\ufe0f\u20e3",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u202e\u0645\u0631\u062d\u0628\u202c \u6771\u4eac\u3078",
    "zero\u200bwidth pass\u00adword bom\ufeffmark",
    "don't can\u2019t o\u02bcclock rock'n'roll 's",
    "snake_case __secret__ a\x00b \ud7a3",
    "zzyzx qwrtp",
]


def forms(word: str) -> set[str]:
    """Every spelling in which a reader may recognise a word."""
    normal = {unicodedata.normalize(form, word) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    folded = normal | {form.casefold() for form in normal}
    return folded | {unicodedata.normalize("NFKD", form) for form in folded}


def pieces(text: str) -> set[str]:
    """Words of a text under the tokenizer, between spaces, and with all that is invisible taken out."""
    visible = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return {*tokenize(text), *text.split(), *visible.split(), *tokenize(visible)}


def leaks(world: Embedding, texts: list[str], outputs: list[str]) -> set[str]:
    """Words of the input that came out although nothing but released words may."""
    allowed = {form for word in world.words.to_pylist()[: world.releasable] for form in forms(word)}
    allowed |= forms(PLACEHOLDER) | forms(PLACEHOLDER.strip("[]"))
    found = set()
    for text, output in zip(texts, outputs, strict=True):
        given = {form for piece in pieces(text) for form in forms(piece)}
        shown = {form for piece in pieces(output) for form in forms(piece)}
        found |= (given & shown) - allowed
    return found


class PassesUnknown(Sanitizer):
    """Ignores the policy for unknown words: what a bare ``except: return word`` does."""

    def sanitize(self, values: pa.Array, ids: pa.Array, **options: Any) -> Sanitized:
        release = replace(self.release, policy=TextPolicy(oov="keep-unprotected"))
        return Sanitizer(release=release, noise=self.noise).sanitize(values, ids, **options)


class Passes(PassesUnknown):
    """Lets unknown words through in another spelling."""

    spelling: Callable[[str], str]

    def sanitize(self, values: pa.Array, ids: pa.Array, **options: Any) -> Sanitized:
        done = super().sanitize(values, ids, **options)
        respelled = [type(self).spelling(text) for text in done.values.to_pylist()]
        return Sanitized(values=pa.array(respelled), counts=done.counts)


class PassesFolded(Passes):
    spelling = staticmethod(str.casefold)


class PassesCompatible(Passes):
    spelling = staticmethod(lambda text: unicodedata.normalize("NFKD", text))


def hostile_outputs(world: Embedding, kind: type[Sanitizer]) -> list[str]:
    return sanitize(private(world, kind=kind), HOSTILE).values.to_pylist()


def test_hostile_texts_leak_nothing(demo_bundle: Embedding) -> None:
    outputs = hostile_outputs(demo_bundle, Sanitizer)
    rows = [text.split() for text in HOSTILE]
    lists = sanitize(private(demo_bundle), rows, kind=TOKENS).values.to_pylist()
    assert (
        leaks(demo_bundle, HOSTILE, outputs) == leaks(demo_bundle, HOSTILE, [*map(" ".join, lists)]) == set()
    )
    released = {*demo_bundle.words.to_pylist(), PLACEHOLDER}
    assert {word for text in [*map(str.split, outputs), *lists] for word in text} <= released
    assert outputs[-1] == f"{PLACEHOLDER} {PLACEHOLDER}"


def test_a_leaking_privatizer_is_found_out(demo_bundle: Embedding) -> None:
    """The power of the check above."""
    for kind in (PassesUnknown, PassesFolded, PassesCompatible):
        assert {"zzyzx", "qwrtp", "4111"} <= leaks(demo_bundle, HOSTILE, hostile_outputs(demo_bundle, kind))


def test_a_mechanism_that_gives_no_word_releases_no_token(
    small: Embedding,
) -> None:
    """Rejects numbers of a faulty mechanism that are taken for "as it is"."""
    release = private(small)
    for number in (-1, -2, -3):
        vars(release)["_perturb"] = lambda ids, uniforms, epsilons, n=number: np.full(len(ids), n)
        assert sanitize(release, ["w1 w2"]).values.to_pylist() == [f"{PLACEHOLDER} {PLACEHOLDER}"]


# Joined words


def joined_world(tmp_path: Path) -> Embedding:
    words = ["new_york", "e-mail", "u.s.", "a", "b", "new", ",", "(800)"]
    return build_embedding(glove(tmp_path / "g.txt", words, vectors_of(8, 3)), tmp_path / "bundle")


def test_joined_words_are_perturbed_once_and_unmatchable_ones_never_come_out(tmp_path: Path) -> None:
    """Rejects [MASK] [MASK] for "e-mail", which the vocabulary has, and "(800)" as a substitute."""
    world = joined_world(tmp_path)
    privatizer = private(world, mechanism=Laplace(epsilon=1e6))
    done = sanitize(privatizer, ["An E-mail from New  York, U.S. (800), a new one"])
    assert done.values.to_pylist() == ["[MASK] e-mail [MASK] new_york u.s. [MASK] a new [MASK]"]
    assert done.counts.unchanged.tolist() == [5] and done.counts.out_of_vocabulary.tolist() == [4]
    # Elements of arrays are looked up as they are, and what may not come out is still perturbed.
    elements = [["e-mail", ",", "(800)", "new york", "New_York"]]
    done = sanitize(private(world, mechanism=Laplace(epsilon=0.01)), elements * 200, kind=TOKENS)
    assert done.counts.out_of_vocabulary.tolist() == [1] * 200
    released = {word for row in done.values.to_pylist() for word in row}
    assert len(released) > 4 and not released & {",", "(800)"}


def test_words_are_looked_up_as_they_stand_and_else_in_lower_case(tmp_path: Path) -> None:
    """Rejects lower case before the form that stands, rows of other words, and unknown words that get one."""
    known = ["us", "US", "new_york", "naïve", "of"]
    embedding = worlds.build(tmp_path, np.eye(len(known), dtype=np.float32), known)
    wanted = {"US": "US", "us": "us", "Us": "us", "OF": "of", "NAI\u0308VE": "naïve", "far": None, "": None}
    tokens = Tokens.of(pa.array([[*wanted], [None, "of", "US"], []], pa.list_(pa.string())))
    ids = [-1 if word is None else known.index(word) for word in wanted.values()]
    assert look_up(tokens, embedding).tolist() == [*ids, -1, 4, 1]
    assert look_up(Tokens.of(pa.array([], pa.list_(pa.string()))), embedding).tolist() == []
