"""Columns of every library as tokens and back, in every layout of the same rows."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dptext_spark.errors import InputError
from dptext_spark.mechanisms import Laplace
from dptext_spark.text.columns import DROP, KEEP, Tokens, id_bytes, slices
from dptext_spark.text.layout import KeepLayout, SingleSpaces, assemble
from dptext_spark.text.tokens import tokenize
from tests.helpers import worlds

TEXTS = ["to be or", None, "", "not to be", "...", "\u00e9t\u00e9 to"]
TOKENS = [["to", "be", "or"], None, [], ["not", None, "to", ""], ["a b"], ["\u00e9t\u00e9"]]
VOCABULARY = pa.array(["zero", "one", "two"])


STRINGS = [pa.string(), pa.large_string()]
LISTS = [
    *map(pa.list_, STRINGS),
    *map(pa.large_list, STRINGS),
    pa.list_(pa.field("element", pa.string())),
]


def sliced(array):
    """The same rows inside a longer array, so that offsets do not start at 0."""
    rows = array.to_pylist()
    return pa.array([rows[0], None, *rows, rows[0]], array.type)[2:-1]


def with_hidden_values(lists):
    """The same lists, the null row's slot holding words that nobody may see."""
    rows = [["hidden", "words"] if row is None else row for row in lists.to_pylist()]
    filled = pa.array(rows, lists.type)
    kind = pa.LargeListArray if pa.types.is_large_list(lists.type) else pa.ListArray
    return kind.from_arrays(filled.offsets, filled.values, mask=lists.is_null()).cast(lists.type)


TEXT_COLUMNS = [
    made for kind in STRINGS for made in (pa.array(TEXTS, kind), sliced(pa.array(TEXTS, kind)))
]
TOKEN_COLUMNS = [
    way(pa.array(TOKENS, kind))
    for kind in LISTS
    for way in (lambda array: array, sliced, with_hidden_values)
]


def rebuilt(tokens, released):
    """The column, whose words alone come out; token columns have no layout."""
    marks = [None] * len(tokens.distinct)
    done, kept = (
        assemble(tokens, released, VOCABULARY, way(), marks) for way in (SingleSpaces, KeepLayout)
    )
    done.validate(full=True)
    assert done.type == tokens.data_type
    assert tokens.kind == "text" or kept.equals(done)
    return done.to_pylist()


@pytest.mark.parametrize("columns", [TEXT_COLUMNS, TOKEN_COLUMNS], ids=["texts", "tokens"])
def test_columns_become_tokens_and_columns_again(columns):
    """Rejects hidden words of null rows, types, nulls and places that change, and a null taken for a word."""
    # And content read at the wrong offset: another row's content would then key this row's noise.
    contents = []
    for column in columns:
        tokens = Tokens.of(column)
        contents.append([*map(tokens.row_content, range(len(column)))])
        masked = rebuilt(tokens, np.where(tokens.flag(lambda token: token == "to"), 2, -1))
        nothing = rebuilt(tokens, np.full(len(tokens), DROP))
        if tokens.kind == "text":
            assert [*tokens.row_tokens()] == [(tokenize(text) if text else []) for text in TEXTS]
            assert masked == ["two [MASK] [MASK]", None, "", "[MASK] two [MASK]", "", "[MASK] two"]
            assert nothing == ["", None, "", "", "", ""]
        else:
            assert [*tokens.row_tokens()] == [row or [] for row in TOKENS]
            assert masked[:4] == [
                ["two", *["[MASK]"] * 2],
                None,
                [],
                [*["[MASK]"] * 2, "two", "[MASK]"],
            ]
            assert nothing == [[], None, [], [], [], []]
            assert rebuilt(tokens, np.full(len(tokens), KEEP)) == TOKENS
        empty = column[:0]
        assert list(slices(empty)) == rebuilt(Tokens.of(empty), np.zeros(0, np.int64)) == []
    assert all(content == contents[0] for content in contents)
    # Null and empty rows of tokens hold nothing to perturb and may agree; all others differ.
    assert len({*contents[0]}) >= 5


def test_other_elements_are_other_content():
    for pair in (
        *((["ab", "c"], ["a", "bc"]), (["ab"], ["ab", ""]), (["ab", None], ["ab", ""])),
        *(([None, "ab"], ["ab", None]), (["abc"], ["ab", "c"])),
    ):
        tokens = Tokens.of(pa.array(pair, pa.list_(pa.string())))
        assert tokens.row_content(0) != tokens.row_content(1)


def test_equal_ids_of_all_types_have_equal_bytes():
    """Rejects ids hashed by their width: a table that is read with another schema would get other noise."""
    for kind in (pa.int8(), pa.int64(), pa.uint64(), pa.string(), pa.large_string()):
        ids = pa.array([7, 0, 100]).cast(kind)
        assert (id_bytes(ids), id_bytes(ids[1:])) == ([b"7", b"0", b"100"], [b"0", b"100"])
    assert id_bytes(pa.array(["\u00e9", "", "a b"])) == ["\u00e9".encode(), b"", b"a b"]
    for wrong in (pa.array([1.0]), pa.array([True]), pa.array([b"1"]), pa.array([None, "1"])):
        with pytest.raises(InputError, match=r"wrong type|must not be null"):
            id_bytes(wrong)


ROWS = ["w1 w2 Zyx", None, "", "w3"]
WORDS = [["w1", None, "zyx"], None, [], ["w3"]]
IDS = [10, 11, 12, 13]
FIRST = {"start": 0, "end": 2}

SAME_TEXTS = [
    ROWS, (text for text in ROWS), np.array(ROWS, dtype=object), pd.Series(["w9", *ROWS])[1:],
    *(["w1 w2 Zyx", missing, "", "w3"] for missing in (math.nan, pd.NA)),
    pa.chunked_array([ROWS[:1], ROWS[1:]]).dictionary_encode(),
    pd.Series(["w1 w2 Zyx", np.nan, "", "w3"], index=[9, 9, 2, 0]),
    *(pd.Series(ROWS, dtype=kind) for kind in ("string", "category", pd.ArrowDtype(pa.string()))),
]  # fmt: skip
SAME_WORDS = [
    [["w1", math.nan, "zyx"], math.nan, [], ["w3"]],
    pd.Series([None if row is None else np.array(row, dtype=object) for row in WORDS]),
    pa.chunked_array([WORDS[:2], WORDS[2:]]),
]
SAME_IDS = [
    range(10, 14), np.arange(10, 14, dtype=np.int16), pd.Series(IDS), pd.RangeIndex(10, 14),
    np.array(["10", "11", "12", "13"]), pa.chunked_array([[10, 11], [12, 13]]),
]  # fmt: skip


@pytest.fixture(scope="module")
def private(small):
    """One text of 12 words out of 200: two outputs agree by chance with 200^-12."""
    return worlds.sanitizer(small, Laplace(epsilon=1e-3))


def sanitized(private, values, ids=IDS, **options):
    done = private.sanitize(values, ids, column="text", **options).values
    assert isinstance(done, pa.Array)
    return done.to_pylist()


def test_columns_of_every_library_get_the_same_words(private, small):
    texts, words = (sanitized(private, pa.array(rows), pa.array(IDS)) for rows in (ROWS, WORDS))
    assert texts[1:3] == [None, ""] and texts[0].endswith("[MASK]")
    assert words[0][1:] == [None, "[MASK]"] and words[1:3] == [None, []]
    assert [sanitized(private, column) for column in SAME_TEXTS] == [texts] * len(SAME_TEXTS)
    assert [sanitized(private, column) for column in SAME_WORDS] == [words] * len(SAME_WORDS)
    assert [sanitized(private, ROWS, ids) for ids in SAME_IDS] == [texts] * len(SAME_IDS)
    for values in ([], pd.Series([], dtype=object), pa.chunked_array([], pa.string())):
        assert sanitized(private, values, []) == []
    for values, out in (
        ([None, None],) * 2,
        (pd.Series([np.nan] * 2), [None, None]),
        ([[None], []],) * 2,
    ):
        assert sanitized(private, values, [0, 1]) == out  # without a single word
    marked = worlds.sanitizer(small, Laplace(epsilon=4.0), protect="slots:s")
    for slots in (
        [[FIRST]],
        pd.Series([np.array([FIRST], dtype=object)]),
        pa.chunked_array([[[FIRST]]]),
    ):
        assert sanitized(marked, ["w1 W2"], [1], slots=slots)[0].endswith(" W2")


@pytest.mark.parametrize("wrong_ids", [False, True])
def test_what_is_no_column_is_refused_and_not_quoted(private, wrong_ids):
    """Rejects a text taken apart into letters, a table into names, and messages that quote values."""
    for values in (
        [1.5, 2.5], [b"secret"], "ab", None, ["secret", 7], [7, "secret"], ["secret \ud800"],
        np.array([["secret", "b"]]), pd.DataFrame({"secret": ["secret"]}), pa.table({"a": ["x"], "b": ["x"]}),
        {"a": 1, "b": 2}, {"a", "b"}, pa.scalar("secret"), pd.Series(pd.date_range("2024-01-01", periods=2)),
        [[["secret"]]], [2**64], [{"a": "secret"}],
    ):  # fmt: skip
        given = (["w1", "w2"], values) if wrong_ids else (values, [1, 2])
        with pytest.raises(InputError) as caught:
            private.sanitize(*given, column="text")
        error = caught.value
        while error is not None:
            assert "secret" not in f"{error} {error!r} {error.args}"
            error = error.__cause__ or error.__context__


def test_equal_texts_have_the_noise_of_their_row_and_place(private):
    """Rejects noise by row alone, by the last array's place, by the places' sum and by rank in the batch."""

    def words_at(ids, places=None):
        positions = (
            None if places is None else np.array(places, dtype=np.int64).reshape(len(ids), -1)
        )
        return sanitized(private, [" ".join(worlds.words(12))] * len(ids), ids, positions=positions)

    several = words_at([7] * 6, [[0, 0], [0, 1], [1, 0], [1, 1], [0, 256], [1, 65536]])
    assert len({*words_at([7]), *words_at([7], [[0]]), *several}) == 8
    among = words_at([6, 6, 7, 7], [[0], [1], [0], [1]])
    assert among[3:] == words_at([7], [[1]]) and len({*among}) == 4
    assert words_at([1, 2], [[], []]) == words_at(
        [1, 2]
    )  # fields of structs have the noise of columns
