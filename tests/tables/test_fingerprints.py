"""Fingerprints of rows: of the noise that is drawn, and of nothing else."""

from functools import cache
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dptext_spark import Exponential, Laplace, RowBudget
from dptext_spark.embedding.build import build_embedding
from dptext_spark.noise import ColumnNoise
from dptext_spark.tables.batch import ID, ROW, SLOTS, FieldPaths
from dptext_spark.tables.columns import _sanitize_batches, shared
from dptext_spark.tables.fingerprints import fingerprint_batches
from dptext_spark.text.policies import Mask, OovPolicy
from tests.helpers.bundles import glove
from tests.helpers.worlds import KEY, sanitizer


@pytest.fixture
def drawn(monkeypatch):
    """What the cipher is given: how many integers a token takes, and the key of its row."""
    keys = []
    fill = ColumnNoise.fill

    def filled(self, out, row_key, first_token):
        keys.append((self.uint64s_per_token, row_key))
        fill(self, out, row_key, first_token)

    monkeypatch.setattr(ColumnNoise, "fill", filled)
    return keys


WAYS = {"a": ("a",), "b": ("b",)}


def contexts(release, batch, key=b"ledger", ways=WAYS):
    shared.cache_clear()  # a mutant may equal the release that it is a mutant of
    made = fingerprint_batches(KEY.derive(key), release, ways_of(batch, ways), [batch])
    return pa.Table.from_batches(made)


def ways_of(batch, ways=WAYS):
    return FieldPaths(paths=ways, slots=() if SLOTS in batch.schema.names else None)


def batch(a, b):
    kind = pa.struct({"a": pa.string(), "b": pa.list_(pa.string())})
    rows = pa.array([{"a": one, "b": other} for one, other in zip(a, b, strict=True)], kind)
    return pa.RecordBatch.from_pydict({ROW: rows, ID: pa.array(range(len(a)))})


def test_what_names_depend_on(ring):
    """Rejects contents that are equal for two ids or columns, contexts without the label, raw values."""
    # And a context for each element of an array, where elements that move would cost nothing.
    ways = WAYS | {"b": ("b", None)}

    def made(a, b, name="label", key=b"ledger"):
        release = sanitizer(ring, Laplace(epsilon=3.0), name=name)
        return contexts(release, batch(a, b), key, ways).to_pydict()

    given = ["w01", "w01"], [["w01"], ["w02", "w03"]]
    first, label = made(*given), made(*given, name="other")
    assert first["column"] == ["a", "a", "b", "b"] and first["row"][:2] == first["row"][2:]
    assert len({*first["content"]}) == len({*first["context"]}) == 4
    assert {len(value) for name in ("row", "content", "context") for value in first[name]} == {16}
    assert (label["row"], label["content"]) == (first["row"], first["content"])
    assert not {*label["context"]} & {*first["context"]}
    assert not {*made(*given, key=b"another")["row"]} & {*first["row"]}

    moved = made(["w01", "w09"], [["w01"], ["w03", "w02"]])
    for name in ("content", "context"):
        assert [*map(bytes.__eq__, first[name], moved[name])] == [True, False, True, False]

    # One element at three places has three noises; place by place there would be two contexts each.
    # Any spelling of a column's name is the same column; without spans and raw tokens there are none.
    spelled = contexts(
        sanitizer(ring, Laplace(epsilon=3.0)), batch(*given), ways={"A": ("a",)}
    ).to_pydict()
    assert spelled["content"] == first["content"][:2] and spelled["context"] != first["context"][:2]
    assert {*first["spans"]} == {None} and first["unprotected"] == first["unknown"] == [[]] * 4
    turns = [made(["w01"], [["w02"] * at + ["w01"] + ["w02"] * (2 - at)]) for at in range(3)]
    assert [each["column"] for each in turns] == [["a", "b"]] * 3
    assert [len({each["context"][place] for each in turns}) for place in (0, 1)] == [1, 3]


WORDS = ["the", "of", "w01", "w02", "new york", "東京", "大学"]
CHOICES = {
    "oov": ["mask", "drop", "random", "keep-unprotected"],
    "protect": ["all", "content", "slots:s"],
    "layout": ["words", "keep"],
    "tokenizer": ["words", "icu"],
    "mechanism": [Laplace(epsilon=3.0), Laplace(epsilon=4.0), Exponential(epsilon=3.0)],
    "row_budget": [None, RowBudget(loss=2.0, within=1.0), RowBudget(loss=3.0, within=1.0)],
    "name": ["x", "y"],
}
PIECES = st.sampled_from([*WORDS, "Unknown", "東京大学", ","])
SPAN = st.sampled_from([(0, 2), (0, 3), (4, 8), (2, 6)]).map(
    lambda span: {"start": span[0], "end": span[1]}
)
ROWS = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["1", "2"]),
        "a": st.just("new york") | st.lists(PIECES, max_size=4).map(" ".join),
        "b": st.lists(PIECES, max_size=2).map(" ".join),
        "s": st.lists(SPAN, max_size=2),
    }
)


@st.composite
def pairs(draw):
    """Two releases of a row, of which the second differs in few things, or in none."""
    everything = {n: st.sampled_from(v) for n, v in CHOICES.items()}
    one = {**draw(st.fixed_dictionaries(everything)), **draw(ROWS)}
    changed = draw(
        st.lists(st.sampled_from([*CHOICES, "id", "a", "b", "s"]), max_size=2, unique=True)
    )
    another = {**draw(st.fixed_dictionaries(everything)), **draw(ROWS)}
    return one, {**one, **{name: another[name] for name in changed}}


SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))
CASES = 100
MADE = {name: values[0] for name, values in CHOICES.items()}
MADE |= {"id": "1", "a": "東京大学 w01 w02", "b": "", "s": [{"start": 5, "end": 8}]}
BUDGETED, SLOTTED = (
    MADE | {"row_budget": RowBudget(loss=2.0, within=1.0)},
    MADE | {"protect": "slots:s"},
)


def test_contexts_are_equal_if_and_only_if_the_noise_is(tmp_path, drawn):
    """And equal keys have equal tokens in equal places: held against the keys that the cipher gets."""
    bundle = build_embedding(glove(tmp_path / "g.txt", WORDS), tmp_path / "bundle")
    open_release, found = cache(lambda **choices: sanitizer(bundle, **choices)), []

    def released(made):
        """Of each column with known words: the ledger's context, the key of its noise, and its tokens."""
        release = open_release(**{name: made[name] for name in CHOICES})
        columns = [pa.array([made[name]]) for name in ("a", "b", "id")]
        slots = (
            pa.array([made["s"]], SPANS) if release.release.policy.protect.slots_column else None
        )
        row = pa.StructArray.from_arrays(columns[:2], names=["a", "b"])
        rows = pa.RecordBatch.from_pydict(
            {ROW: row, ID: columns[2], **({} if slots is None else {SLOTS: slots})}
        )
        drawn.clear()
        [*_sanitize_batches(release, ways_of(rows), [rows])]
        width = release.release.mechanism.uniforms_per_token(release.embedding.dimension)
        used = {key for its, key in drawn if its == width}
        words = sum(release.release.reader.visible_words(column, slots) for column in columns[:2])
        said = contexts(release, rows)["context"].to_pylist()
        for context, column, values in zip(said, "ab", columns[:2], strict=True):
            ((key, *_),) = release.contexts(
                values, columns[2], column=column, slots=slots, words=words
            )
            if key in used:
                used.remove(key)
                (run,) = release.release.reader.runs(values, slots)
                yield context, key, [*run.tokens.row_tokens()]
        assert not used

    @settings(max_examples=CASES, derandomize=True, database=None)
    @given(pairs())
    # Releases that differ in one thing alone: the words of another column, the slots, the tokenizer.
    @example((BUDGETED, BUDGETED | {"b": "w01 w02"}))
    @example((SLOTTED, SLOTTED | {"s": [{"start": 9, "end": 12}]}))
    @example((MADE, MADE | {"tokenizer": "icu"}))
    def check(pair):
        one, other = ([*released(made)] for made in pair)
        for (context, key, tokens), (other_context, other_key, other_tokens) in product(one, other):
            found.append(key == other_key)
            assert (context == other_context) == (key == other_key)
            assert key != other_key or tokens == other_tokens

    check()
    assert min(found.count(True), found.count(False)) > CASES / 3


def fingerprints(ring, texts, spans=None, **policies):
    release = sanitizer(ring, Laplace(epsilon=3.0), **policies)
    columns = {ROW: pa.array([{"a": text} for text in texts]), ID: pa.array(range(len(texts)))}
    if release.release.policy.spans_column:
        columns[SLOTS] = pa.array(spans, SPANS)
    return contexts(release, pa.RecordBatch.from_pydict(columns), ways={"a": ("a",)}).to_pydict()


def test_raw_tokens_are_named_by_their_places_in_the_text(ring):
    """Rejects tokens without places, places in a masked text, and contents that depend on the policy."""
    texts = ["Bob the w01 Bob", "the w02 Bob"]
    spans = [[{"start": 0, "end": 3}], None]  # of the second row none can be read
    safe, keeps, masks, slots, stops = (
        fingerprints(ring, texts, spans, **policies)
        for policies in (
            {},
            {"oov": "keep-unprotected"},
            {"oov": "keep-unprotected", "mask_spans": "s"},
            {"protect": "slots:s"},
            {"protect": "content"},
        )
    )
    assert safe["content"] == keeps["content"] == masks["content"] == slots["content"]
    assert [*map(len, keeps["unknown"])] == [3, 2] and not any(keeps["unprotected"])
    # All but the masked Bob, in its place.
    assert [*map(len, masks["unknown"])] == [2, 0] and {*masks["unknown"][0]} < {
        *keeps["unknown"][0]
    }
    assert [*map(len, slots["unprotected"])] == [3, 0]
    assert {*stops["unprotected"][0]} <= {*keeps["unknown"][0]} and len(
        stops["unprotected"][0]
    ) == 1
    elements = [["Bob", "the", "w01", "Bob"]], [[{"start": 0, "end": 2}]]
    all_of_list, masked_list = (
        fingerprints(ring, *elements, oov="keep-unprotected", mask_spans=spans)["unknown"][0]
        for spans in (None, "s")
    )
    assert len(masked_list) == 1 and {*masked_list} < {*all_of_list}
    # Spans that cannot be read protect all of a row, and those that are empty nothing.
    empty = fingerprints(ring, texts, [spans[0], []], protect="slots:s")
    assert empty["spans"][0] == slots["spans"][0] and empty["spans"][1] != slots["spans"][1]
    assert len(empty["unprotected"][1]) == 3


def test_what_a_policy_from_elsewhere_lets_out_is_not_known(ring, monkeypatch):
    """Rejects tokens that are taken for all that goes out."""
    monkeypatch.setattr(OovPolicy, "policies", dict(OovPolicy.policies))
    custom = type("Custom", (Mask,), {"__module__": "elsewhere"})
    lines = fingerprints(ring, ["w01 Bob"], oov=custom())
    assert lines["unprotected"] == lines["unknown"] == [None]
