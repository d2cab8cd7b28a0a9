"""Whole columns: nothing leaks, everything is counted, and nothing but key, id and content matters."""

import re
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from dptext_spark import RowBudget
from dptext_spark import sanitizer as sanitizer_module
from dptext_spark.errors import BundleError, InputError
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis
from dptext_spark.noise import ColumnNoise, NoiseKey
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text import columns
from dptext_spark.text.columns import PLACEHOLDER
from dptext_spark.text.layout import CLITICS
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.pieces import PIECES
from dptext_spark.text.tokens import tokenize
from tests.helpers import worlds
from tests.helpers.bundles import vectors_of

NOISY = Laplace(epsilon=4.0)
EXACT = Laplace(epsilon=1e9)  # no word moves
TOKENS = pa.list_(pa.string())


def private(world, mechanism=NOISY, *, words=None, **options):
    return worlds.sanitizer(world, mechanism, search=ExactSearch.over(world, words), **options)


def sanitize(sanitizer, rows, *, kind=None, slots=None):
    """Sanitize rows with the ids 0, 1, ..., and check that every token is counted once."""
    values = pa.array(rows, kind or pa.string())
    done = sanitizer.sanitize(
        values, pa.array(range(len(values)), pa.int64()), column="text", slots=slots
    )
    done.values.validate(full=True)
    assert done.values.type == values.type and len(done.values) == len(values)
    counts = {name: getattr(done.counts, name) for name in TokenCounts._fields}
    for kind in PIECES:
        counts.pop(f"left_{kind}")
    assert (counts.pop("dropped") <= counts["out_of_vocabulary"]).all()
    np.testing.assert_array_equal(counts.pop("tokens"), sum(counts.values()))
    return done


def words_of(done, row=0):
    return done.values.to_pylist()[row].split()


TEXTS = ["w1 w2 Zyx w3", None, "", "zyx", "...", "w1 W2"]
LISTS = [["w1", None, "", "zyx", "W2", "a b"], None, [], [None]]


@pytest.mark.parametrize(
    ("oov", "text", "alone", "elements"),
    [
        ("mask", "w1 w2 [MASK] w3", "[MASK]", ["w1", None, "", "[MASK]", "w2", "[MASK]"]),
        ("drop", "w1 w2 w3", "", ["w1", None, "", "w2"]),
        ("keep-unprotected", "w1 w2 Zyx w3", "zyx", ["w1", None, "", "zyx", "w2", "a b"]),
    ],
)
def test_every_value_is_accounted_for(small, oov, text, alone, elements):
    """Rejects nulls and empties that become one another, and elements that lose their places."""
    release = private(small, EXACT, oov=oov)
    for kind in (pa.string(), pa.large_string()):
        done = sanitize(release, TEXTS, kind=kind)
        assert done.values.to_pylist() == [text, None, "", alone, "", "w1 w2"]
        unknown = done.counts.out_of_vocabulary.tolist()
        assert (done.counts.tokens.tolist(), unknown) == ([4, 0, 0, 1, 0, 2], [1, 0, 0, 1, 0, 0])
        assert done.counts.dropped.tolist() == (unknown if oov == "drop" else [0] * 6)
        assert done.counts.unchanged.tolist() == [3, 0, 0, 0, 0, 2]
    for kind in (TOKENS, pa.large_list(pa.large_string())):
        done = sanitize(release, LISTS, kind=kind)
        assert done.values.to_pylist() == [elements, None, [], [None]]
        assert done.counts.blank.tolist() == [2, 0, 0, 1]
        assert sanitize(release, [], kind=kind).values.to_pylist() == []


def test_only_released_words_come_out(small):
    """Also where a word that may not come out is its own nearest: it is perturbed, but only into others."""
    words = worlds.words(300)
    for count, mechanism in product([2, 17, None], [NOISY, Laplace(epsilon=1e6)]):
        done = sanitize(private(small, mechanism, words=count), [" ".join(words)])
        assert {*words_of(done)} <= {*worlds.words(count or 200)}
        assert done.counts.unchanged[0] == sum(map(str.__eq__, words, words_of(done)))
        assert done.counts.replaced[0] + done.counts.unchanged[0] == 300
    # Rejects numbers of a faulty mechanism that are taken for "as it is".
    for number in (-1, -2, -3):
        vars(release := private(small))["_perturb"] = lambda ids, *_, n=number: np.full(len(ids), n)
        assert words_of(sanitize(release, ["w1 w2"])) == [PLACEHOLDER] * 2


@pytest.mark.statistical
def test_random_words_are_uniform_over_the_release_vocabulary(small):
    """Chi-square, 10^-4 false alarms; the mutant is drawn with a stream of its own."""
    done = sanitize(private(small, oov="random", words=50), ["zyx " * 500] * 40)
    words = [word for text in done.values.to_pylist() for word in text.split()]
    seen = np.array([words.count(name) for name in worlds.words(50)])
    assert seen.sum() == len(words) == 20_000  # none outside
    assert stats.chisquare(seen).pvalue > 1e-4
    mutant = (50 * np.random.default_rng(0).random(20_000) ** 1.1).astype(int)
    assert stats.chisquare(np.bincount(mutant)).pvalue < 1e-6
    assert len(set(done.values.to_pylist())) == 40  # no function of the word's place alone


def test_two_release_vocabularies_do_not_show_which_words_are_unknown(small):
    """Known or unknown, a word drawn among 200 is drawn among 150 too if it is one of these."""
    # Rejects one uniform for both sizes, as it was, and one for each: nearly all unknown words change then.
    half, fewest = Laplace(epsilon=0.5), {*worlds.words(150)}
    for text in ("zyx " * 2000, " ".join(worlds.words(200) * 10)):
        more, fewer = (
            words_of(sanitize(private(small, half, oov="random", words=n), [text]))
            for n in (200, 150)
        )
        both = [(a, b) for a, b in zip(more, fewer, strict=True) if a in fewest]
        assert len(both) > 1000 and len(set(both)) > 100
        assert all(a == b for a, b in both)


@pytest.mark.parametrize(
    ("values", "ids", "policy"),
    [
        (["secret secret"], [1], {"oov": "fail"}),
        (["secret"], [b"secret"], {}),
        (["secret"] * 2, ["secret", None], {}),
        (["secret"], ["secret"], {"protect": "slots:s"}),
    ],
)
def test_messages_never_hold_rows(small, values, ids, policy):
    """Rejects an unknown word that a failed run quotes; known words do not fail it."""
    said = "text has words outside.*Got: 2 unknown words" if "oov" in policy else None
    with pytest.raises(InputError, match=said) as caught:
        private(small, **policy).sanitize(pa.array(values), pa.array(ids), column="text")
    error = caught.value
    while error is not None:
        assert "secret" not in f"{error} {error!r} {error.args}".lower()
        error = error.__cause__ or error.__context__
    assert sanitize(private(small, oov="fail"), ["w1 w2"]).counts.tokens.tolist() == [2]


def test_a_bundle_that_changes_while_it_is_in_use_gives_no_result(tmp_path):
    bundle = worlds.build(tmp_path, worlds.uneven(20, 3))
    release, file = private(bundle), bundle.path / "vectors.npy"
    assert sanitize(release, ["w00 w01"]).counts.tokens.sum() == 2
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(BundleError, match=r"changed while it was in use.*vectors\.npy"):
        sanitize(release, ["w00 w01"])


@pytest.fixture(scope="session")
def spoken(tmp_path_factory):
    """A lower-case vocabulary of real words in the plane."""
    names = [
        "the",
        "to",
        "in",
        "paris",
        "london",
        "new",
        "york",
        "fly",
        "me",
        "a",
        "cheap",
        "flight",
    ]
    points = np.random.default_rng(8).standard_normal((len(names), 2))
    return worlds.build(tmp_path_factory.mktemp("spoken"), points, names)


SPOKEN = "FLY ME TO ZYX YORK, THE NEW YORK!"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("all", "fly me to [MASK] york the new york"),
        ("content", "fly ME TO [MASK] york THE new york"),
        ("slots:s", "FLY me to [MASK] YORK THE NEW YORK"),
    ],
)
def test_what_a_policy_protects(spoken, policy, expected):
    """Rejects a policy that lets one word more or one word less pass: what passes keeps its capitals."""
    release, said = private(spoken, EXACT, protect=policy), tokenize(SPOKEN)
    for row, kind, start, end in ((SPOKEN, pa.string(), 4, 13), (said, TOKENS, 1, 4)):
        slots = pa.array([[{"start": start, "end": end}]]) if policy == "slots:s" else None
        done = sanitize(release, [row], kind=kind, slots=slots)
        (output,) = done.values.to_pylist()
        assert (output if isinstance(output, str) else " ".join(output)) == expected
        passed = sum(a == b for a, b in zip(said, expected.split(), strict=True))
        assert done.counts.unprotected.tolist() == [passed]


def corpus(rows=60):
    """Texts of many lengths, some null, some empty, some alike, some words unknown."""
    rng = np.random.default_rng(5)
    texts = [
        " ".join(f"w{word}" for word in rng.integers(0, 330, size))
        for size in rng.integers(0, 40, rows)
    ]
    texts[3], texts[7], texts[11], texts[12] = None, "", texts[10], "w1 " * 1500
    return texts


ROW_KEY = ColumnNoise.row_key
BUDGET = RowBudget(loss=40.0, within=1.0)


@pytest.mark.parametrize(
    ("mechanism", "budget", "as_tokens"),
    [
        (NOISY, None, False),
        (Mahalanobis(epsilon=4.0, lambda_=0.5), None, True),
        (Laplace(epsilon=50.0), BUDGET, True),
        (Exponential(epsilon=50.0, truncate=1.0), BUDGET, False),
    ],
)
def test_rows_come_out_the_same_however_they_are_batched(
    small, mechanism, budget, as_tokens, monkeypatch
):
    """Rejects noise by batch, by place in it, and a row key or an epsilon of another row."""
    release, texts = private(small, mechanism, oov="random", row_budget=budget), corpus()
    values = pa.array([t and t.split() for t in texts], TOKENS) if as_tokens else pa.array(texts)
    ids, keyed = pa.array(range(len(texts))), []

    def row_key(noise, row, content):
        keyed.append(row)
        return ROW_KEY(noise, row, content)

    monkeypatch.setattr(ColumnNoise, "row_key", row_key)
    whole = release.sanitize(values, ids, column="text").values
    # For the words and for the unknown ones, not for each word or chunk.
    assert len(keyed) <= 2 * len({*keyed})
    inner = np.random.default_rng(0).choice(np.arange(1, len(texts)), 9, replace=False)
    for borders in ([*range(len(texts) + 1)], [0, *sorted(inner.tolist()), len(texts)]):
        cuts = [slice(a, b) for a, b in pairwise(borders)]
        parts = [release.sanitize(values[c], ids[c], column="text").values for c in cuts]
        assert pa.concat_arrays(parts).equals(whole)
    order = pa.array(np.random.default_rng(9).permutation(len(texts)))
    shuffled = release.sanitize(values.take(order), ids.take(order), column="text").values
    assert shuffled.equals(whole.take(order))
    # Nor do the sizes of inner blocks matter, in which slots are cut with their rows.
    spans = [
        None if text is None else [{"start": 0, "end": max(1, len(text) // 2)}] for text in texts
    ]
    marked = private(small, mechanism, oov="random", row_budget=budget, protect="slots:s")
    expected = marked.sanitize(values, ids, column="text", slots=pa.array(spans))
    for slice_bytes, chunk in ((1, 2048), (300, 97)):
        monkeypatch.setattr(columns, "SLICE_BYTES", slice_bytes)
        monkeypatch.setattr(sanitizer_module, "CHUNK", chunk)
        monkeypatch.setattr(sanitizer_module, "_CHUNK_UNIFORMS", chunk)
        done = marked.sanitize(values, ids, column="text", slots=pa.array(spans))
        assert done.values.equals(expected.values)
        np.testing.assert_equal(done.counts, expected.counts)


def test_policies_and_layouts_do_not_change_the_noise_of_other_words(small, spoken):
    """Rejects positions counted after words were dropped: one noise would serve two policies' two words."""
    # And noise that hangs on the layout: what stands around the words is no part of their secret.
    masked, places = words_of(sanitize(private(small), ["zyx w1 w2 zyx w3 w4"])), [1, 2, 4, 5]
    for oov in ("drop", "random", "keep-unprotected"):
        other = words_of(sanitize(private(small, oov=oov), ["zyx w1 w2 zyx w3 w4"]))
        assert [masked[p] for p in places] == (
            other if oov == "drop" else [other[p] for p in places]
        )
    every, content = (
        words_of(sanitize(private(spoken, protect=p), [SPOKEN])) for p in ("all", "content")
    )
    assert [content[p] for p in (0, 3, 4, 6, 7)] == [every[p] for p in (0, 3, 4, 6, 7)]

    rows = ["W1, w2! (W3)\n\n", None, "", "...", "\u201cw4 W5\u201d \U0001f600 w6-zyx"]
    alone, kept = (sanitize(private(small, layout=layout), rows) for layout in ("words", "keep"))
    assert [(text or "").split() for text in alone.values.to_pylist()] == [
        [word.replace("mask", PLACEHOLDER) for word in tokenize((text or "").lower())]
        for text in kept.values.to_pylist()
    ]


def test_another_context_is_another_draw(small):
    """Rejects noise that forgets the key, the id, the column, the whole text or its tokenizer."""
    text = " ".join(worlds.words(200))
    first = words_of(sanitize(private(small), [text]))
    for release, content, number, column in (
        (private(small), text, 1, "text"),
        (private(small), text, 0, "title"),
        (private(small), text + ".", 0, "text"),
        (private(small, tokenizer="icu"), text, 0, "text"),
        (private(small, key=NoiseKey(bytes(32))), text, 0, "text"),
        (Sanitizer.open(private(small).release), text, 0, "text"),  # under a fresh key
    ):
        done = release.sanitize(pa.array([content]), pa.array([number]), column=column)
        assert np.mean([a == b for a, b in zip(first, words_of(done), strict=True)]) < 0.5


HOSTILE = [
    "The Quick BROWN FoX Bob.Smith@Example.com card 4111 1111 1111 1111",
    "Ren\u00e9e cafe\u0301 NA\u00cfVE \ufb01nance Stra\u00dfe STRASSE \u212bngstr\u00f6m",
    "\u0130stanbul \u0131\u015f\u0131k \uff26\uff35\uff2c\uff2c\uff37\uff29\uff24\uff34\uff28 \u210cello",
    "hi \U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 5\ufe0f\u20e3",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u202e\u0645\u0631\u062d\u0628\u202c \u6771\u4eac\u3078",
    "zero\u200bwidth pass\u00adword bom\ufeffmark don't can\u2019t o\u02bcclock rock'n'roll",
    "snake_case __secret__ a\x00b \ud7a3 zzyzx qwrtp",
]


@pytest.fixture(scope="module")
def masking(demo_bundle):
    return private(demo_bundle)


@given(texts=st.lists(st.text(max_size=30) | st.sampled_from(HOSTILE), max_size=6))
@example(texts=HOSTILE)
def test_whatever_a_text_holds_no_other_word_comes_out(masking, texts):
    """Rejects words that pass as they are: what a bare ``except: return word`` does, or another spelling."""
    marks = {f"[{kind.upper()}]" for kind in MARKS}
    released = {*masking.embedding.words.to_pylist(), PLACEHOLDER, "", None} | marks
    rows = [texts, [word for text in texts for word in (*tokenize(text), *text.split())]]
    elements = {
        word for row in sanitize(masking, rows, kind=TOKENS).values.to_pylist() for word in row
    }
    text = " ".join(sanitize(masking, texts).values.to_pylist())
    # A clitic that was drawn is joined to the word before it.
    words = {*re.sub(f"({'|'.join(CLITICS)})(?!\\S)", r" \1", text).split()}
    assert elements | words <= released


def test_joined_words_are_perturbed_once_and_unmatchable_ones_never_come_out(tmp_path):
    """Rejects [MASK] [MASK] for "e-mail", which the vocabulary has, and "(800)" as a substitute."""
    words = ["new_york", "e-mail", "u.s.", "a", "b", "new", ",", "(800)"]
    world = worlds.build(tmp_path, vectors_of(8, 3), words)
    done = sanitize(
        private(world, EXACT, numbers="words"), ["An E-mail from New  York, U.S. (800), a new one"]
    )
    assert done.values.to_pylist() == ["[MASK] e-mail [MASK] new_york u.s. [MASK] a new [MASK]"]
    # Elements of arrays are looked up as they are, and what may not come out is still perturbed.
    elements = [["e-mail", ",", "(800)", "new york", "New_York"]]
    done = sanitize(
        private(world, Laplace(epsilon=0.01), numbers="words"), elements * 200, kind=TOKENS
    )
    assert done.counts.out_of_vocabulary.tolist() == [1] * 200
    released = {word for row in done.values.to_pylist() for word in row}
    assert len(released) > 4 and not released & {",", "(800)"}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(1, id="one row"),
        pytest.param(2, id="several rows", marks=pytest.mark.long),  # Arrow copies 2 GB
    ],
)
def test_what_is_too_long_for_arrow_is_named(line, monkeypatch, rows):
    """Rejects Arrow's own errors, of one array and of several that are put together."""
    size = (1 << 30) + 1  # two of them are more than Arrow can have in one array
    offsets = pa.py_buffer(np.array([0, size], dtype=np.int32))
    half = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(np.zeros(size, dtype=np.uint8)))

    def assemble(*_):
        if rows == 1:
            raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
        return half

    monkeypatch.setattr(columns, "SLICE_BYTES", 1)
    monkeypatch.setattr(sanitizer_module, "assemble", assemble)
    with pytest.raises(
        InputError, match=r"Column text has too much text .* Allowed: 2 GB .* Cut long rows"
    ):
        sanitize(private(line), ["w1"] * rows)
