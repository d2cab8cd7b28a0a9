"""Arrow columns as tokens and back: every layout that Arrow has for the same rows gives the same tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text import token_columns
from dptext_spark.text.joined_words import JoinedWords
from dptext_spark.text.layout import AsItStood, SingleSpaces, assemble
from dptext_spark.text.token_columns import AS_IT_IS, LEFT_OUT, Tokens, column_kind, id_bytes, slices
from dptext_spark.text.tokens import PLAIN, PlainTokenizer

TEXTS = ["to be or", None, "", "not to be", "...", "\u00e9t\u00e9 to"]
TOKENS = [["to", "be", "or"], None, [], ["not", None, "to", ""], ["a b"], ["\u00e9t\u00e9"]]
VOCABULARY = pa.array(["zero", "one", "two"])

STRINGS = [pa.string(), pa.large_string()]
LISTS = [
    *(pa.list_(inner) for inner in STRINGS),
    *(pa.large_list(inner) for inner in STRINGS),
    pa.list_(pa.field("element", pa.string())),
]


def sliced(array: pa.Array) -> pa.Array:
    """The same rows inside a longer array, so that offsets do not start at 0."""
    rows = array.to_pylist()
    return pa.array([rows[0], None, *rows, rows[0]], array.type)[2:-1]


def with_hidden_values(lists: pa.Array) -> pa.Array:
    """The same lists, the null row's slot holding words that nobody may see."""
    rows = [["hidden", "words"] if row is None else row for row in lists.to_pylist()]
    filled = pa.array(rows, lists.type)
    kind = pa.LargeListArray if pa.types.is_large_list(lists.type) else pa.ListArray
    nulls = pa.array([row is None for row in lists.to_pylist()])
    return kind.from_arrays(filled.offsets, filled.values, mask=nulls).cast(lists.type)


LAYOUTS: list[Callable[[pa.Array], pa.Array]] = [lambda array: array, sliced]
TEXT_COLUMNS = [layout(pa.array(TEXTS, kind)) for kind in STRINGS for layout in LAYOUTS]
TOKEN_COLUMNS = [
    layout(pa.array(TOKENS, kind)) for kind in LISTS for layout in [*LAYOUTS, with_hidden_values]
]


def decoded(tokens: Tokens) -> list[list[str | None]]:
    return [list(row) for row in tokens.row_tokens()]


@pytest.mark.parametrize("column", TEXT_COLUMNS)
def test_texts_become_tokens(column: pa.Array) -> None:
    tokens = Tokens.of(column)
    expected = [["to", "be", "or"], [], [], ["not", "to", "be"], [], ["\u00e9t\u00e9", "to"]]
    assert decoded(tokens) == expected
    assert (tokens.kind, len(tokens)) == ("text", 8)
    assert tokens.null_rows.tolist() == [False, True, False, False, False, False]
    assert tokens.rows.tolist() == [0, 0, 0, 3, 3, 3, 5, 5]


@pytest.mark.parametrize("column", TOKEN_COLUMNS)
def test_token_lists_become_tokens(column: pa.Array) -> None:
    tokens = Tokens.of(column)
    assert decoded(tokens) == [row or [] for row in TOKENS]
    assert (tokens.kind, len(tokens)) == ("tokens", 9)
    assert tokens.flag(lambda token: token == "to").tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0]
    assert tokens.count(tokens.codes < 0).tolist() == [0, 0, 0, 1, 0, 0]


def rebuilt(tokens: Tokens, released: NDArray[np.int64]) -> pa.Array:
    """The column, whose words alone come out; token columns have no layout."""
    values = assemble(tokens, released, VOCABULARY, SingleSpaces()).values
    if tokens.kind == "tokens":
        kept = assemble(tokens, released, VOCABULARY, AsItStood())
        assert kept.values.equals(values) and not kept.characters.any() and not kept.capitals.any()
    return values


@pytest.mark.parametrize("column", [*TEXT_COLUMNS, *TOKEN_COLUMNS])
def test_assembling_keeps_type_nulls_and_rows(column: pa.Array) -> None:
    tokens = Tokens.of(column)
    released = np.where(tokens.flag(lambda token: token == "to"), 2, -1)
    masked = rebuilt(tokens, released)
    masked.validate(full=True)
    assert masked.type == column.type
    if tokens.kind == "text":
        mask = "[MASK]"
        expected = [f"two {mask} {mask}", None, "", f"{mask} two {mask}", "", f"{mask} two"]
        assert masked.to_pylist() == expected
    else:
        assert masked.to_pylist()[:4] == [
            ["two", "[MASK]", "[MASK]"],
            None,
            [],
            ["[MASK]", "[MASK]", "two", "[MASK]"],
        ]
    nothing = rebuilt(tokens, np.full(len(tokens), LEFT_OUT))
    empty = "" if tokens.kind == "text" else []
    assert nothing.to_pylist() == [empty, None, *[empty] * 4]
    raw = rebuilt(tokens, np.full(len(tokens), AS_IT_IS))
    if tokens.kind == "tokens":
        assert raw.to_pylist() == TOKENS


@pytest.mark.parametrize("columns_alike", [TEXT_COLUMNS, TOKEN_COLUMNS], ids=["text", "tokens"])
def test_the_content_of_a_row_does_not_depend_on_the_layout(columns_alike: list[pa.Array]) -> None:
    """Rejects content read at the wrong offset: another row's content would then key this row's noise."""
    contents = [
        [tuple(map(bytes, Tokens.of(column).row_content(row))) for row in range(6)]
        for column in columns_alike
    ]
    assert all(content == contents[0] for content in contents)
    # Null and empty rows of tokens hold nothing to perturb and may agree; all others differ.
    assert len(set(contents[0])) >= 5
    for row in range(6):
        assert [tuple(map(bytes, Tokens.of(columns_alike[0][row : row + 1]).row_content(0)))] == [
            contents[0][row]
        ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["ab"], ["ab", ""]),
        (["ab", None], ["ab", ""]),
        ([None, "ab"], ["ab", None]),
        (["abc"], ["ab", "c"]),
    ],
)
def test_different_token_lists_have_different_content(one: list[str | None], other: list[str | None]) -> None:
    content = [
        tuple(map(bytes, Tokens.of(pa.array([row], pa.list_(pa.string()))).row_content(0)))
        for row in (one, other)
    ]
    assert content[0] != content[1]


@pytest.mark.parametrize("kind", [*STRINGS, *LISTS])
def test_empty_columns(kind: pa.DataType) -> None:
    column = pa.array([], kind)
    tokens = Tokens.of(column)
    assert len(tokens) == 0 and list(slices(column)) == []
    assert rebuilt(tokens, np.zeros(0, np.int64)).equals(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["ab", None, "", "x" * 30, "y", "é" * 5, *[""] * 40]),
        pa.array([["ab", None], None, [], ["x" * 15, "x" * 15], ["y"], ["é" * 5], *[[""]] * 40]),
    ],
    ids=["text", "tokens"],
)
@pytest.mark.parametrize("limit", [1, 5, 12, 1000])
def test_slices_cover_each_row_once(column: pa.Array, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_columns, "SLICE_BYTES", limit)
    for array in (column, sliced(column)):
        parts = list(slices(array))
        assert [row for part in parts for row in range(*part.indices(len(array)))] == list(range(len(array)))
        for part in parts:
            rows = array[part].to_pylist()
            size = sum(
                len(text.encode())
                for row in rows
                for text in ([row] if isinstance(row, str) else row or [])
                if text
            )
            assert size <= limit or len(rows) == 1
        assert limit < 1000 or len(parts) == 1


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.binary(),
        pa.list_(pa.int64()),
        pa.list_(pa.list_(pa.string())),
        pa.struct([("a", pa.string())]),
    ],
)
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InputError, match="Column note cannot be sanitized"):
        column_kind(kind, "note")


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.string(), pa.large_string()]
)
def test_equal_ids_of_all_types_have_equal_bytes(kind: pa.DataType) -> None:
    """Rejects ids hashed by their width: a table that is read with another schema would get other noise."""
    ids = pa.array([7, 0, 100]).cast(kind)
    assert id_bytes(ids) == [b"7", b"0", b"100"]
    assert id_bytes(ids[1:]) == [b"0", b"100"]


def test_negative_large_and_textual_ids() -> None:
    assert id_bytes(pa.array([-1, 2**63 - 1])) == [b"-1", b"9223372036854775807"]
    assert id_bytes(pa.array(["é", "", "a b"])) == ["é".encode(), b"", b"a b"]


@pytest.mark.parametrize("ids", [pa.array([1.0]), pa.array([True]), pa.array([b"1"]), pa.array([None, "1"])])
def test_ids_that_are_none_are_refused_without_quoting_them(ids: pa.Array) -> None:
    with pytest.raises(InputError, match=r"wrong type|must not be null"):
        id_bytes(ids)


class Other(PlainTokenizer):
    """Another tokenizer."""

    identity = "other 1"  # type: ignore[misc]


def test_tokenizers_of_texts_are_told_apart_in_the_noise() -> None:
    """Rejects noise that two segmentations of a text would share between different words."""
    texts, lists = pa.array(["a b"]), pa.array([["a", "b"]])
    joined = JoinedWords.of(pa.array(["a_b"]), Other())
    units = [Tokens.of(texts, tokenizer).units for tokenizer in (PLAIN, Other(), joined)]
    assert units == ["text word", "text word, other 1", "text word, other 1"]
    assert Tokens.of(lists, joined).units == "tokens word"  # no tokenizer touches them
