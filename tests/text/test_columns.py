"""Arrow columns as tokens and back: every layout that Arrow has for the same rows gives the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text import columns
from dptext_spark.text.columns import DROP, KEEP, Tokens, column_kind, id_bytes, slices
from dptext_spark.text.layout import AsItStood, SingleSpaces, assemble
from dptext_spark.text.tokens import tokenize

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


def test_columns_become_tokens() -> None:
    for column in TEXT_COLUMNS:
        tokens = Tokens.of(column)
        assert [*tokens.row_tokens()] == [(tokenize(text) if text else []) for text in TEXTS]
        assert (tokens.kind, len(tokens)) == ("text", 8)
        assert tokens.null_rows.tolist() == [False, True, False, False, False, False]
        assert tokens.rows.tolist() == [0, 0, 0, 3, 3, 3, 5, 5]
    for column in TOKEN_COLUMNS:
        tokens = Tokens.of(column)
        assert [*tokens.row_tokens()] == [row or [] for row in TOKENS]
        assert (tokens.kind, len(tokens)) == ("tokens", 9)
        assert tokens.flag(lambda token: token == "to").tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0]
        assert tokens.count(tokens.codes < 0).tolist() == [0, 0, 0, 1, 0, 0]


def rebuilt(tokens: Tokens, released: NDArray[np.int64]) -> list[Any]:
    """The column, whose words alone come out; token columns have no layout."""
    done = assemble(tokens, released, VOCABULARY, SingleSpaces()).values
    done.validate(full=True)
    assert done.type == tokens.data_type
    if tokens.kind == "tokens":
        kept = assemble(tokens, released, VOCABULARY, AsItStood())
        assert kept.values.equals(done) and not kept.characters.any() and not kept.capitals.any()
    return done.to_pylist()


def test_assembling_keeps_type_nulls_and_rows() -> None:
    for column in [*TEXT_COLUMNS, *TOKEN_COLUMNS]:
        tokens, mask = Tokens.of(column), "[MASK]"
        masked = rebuilt(tokens, np.where(tokens.flag(lambda token: token == "to"), 2, -1))
        nothing = rebuilt(tokens, np.full(len(tokens), DROP))
        if tokens.kind == "text":
            assert masked == [f"two {mask} {mask}", None, "", f"{mask} two {mask}", "", f"{mask} two"]
            assert nothing == ["", None, "", "", "", ""]
        else:
            assert masked[:4] == [["two", mask, mask], None, [], [mask, mask, "two", mask]]
            assert nothing == [[], None, [], [], [], []]
            assert rebuilt(tokens, np.full(len(tokens), KEEP)) == TOKENS


def content(column: pa.Array) -> list[tuple[bytes, bytes]]:
    tokens = Tokens.of(column)
    return [(lengths, bytes(data)) for lengths, data in map(tokens.row_content, range(len(column)))]


def test_the_content_of_a_row_is_its_own_in_every_layout() -> None:
    """Rejects content read at the wrong offset: another row's content would then key this row's noise."""
    for layouts in (TEXT_COLUMNS, TOKEN_COLUMNS):
        first, *others = map(content, layouts)
        assert all(other == first for other in others)
        # Null and empty rows of tokens hold nothing to perturb and may agree; all others differ.
        assert len(set(first)) >= 5
        assert [content(layouts[0][row : row + 1]) for row in range(6)] == [[row] for row in first]
    pairs = [
        (["ab", "c"], ["a", "bc"]), (["ab"], ["ab", ""]), (["ab", None], ["ab", ""]),
        ([None, "ab"], ["ab", None]), (["abc"], ["ab", "c"]),
    ]  # fmt: skip
    for pair in pairs:
        one, other = content(pa.array(pair, pa.list_(pa.string())))
        assert one != other


def test_empty_columns() -> None:
    for kind in [*STRINGS, *LISTS]:
        empty = pa.array([], kind)
        assert list(slices(empty)) == rebuilt(Tokens.of(empty), np.zeros(0, np.int64)) == []


@pytest.mark.parametrize("limit", [1, 5, 12, 1000])
def test_slices_cover_each_row_once(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SLICE_BYTES", limit)
    texts = pa.array(["ab", None, "", "x" * 30, "y", "é" * 5, *[""] * 40])
    lists = pa.array([["ab", None], None, [], ["x" * 15, "x" * 15], ["y"], ["é" * 5], *[["z" * 4] * 3] * 9])
    for array in (texts, lists, sliced(texts), sliced(lists)):
        parts = list(slices(array))
        assert [row for part in parts for row in range(*part.indices(len(array)))] == list(range(len(array)))
        for rows in (array[part].to_pylist() for part in parts):
            texts = [text for row in rows for text in ([row] if isinstance(row, str) else row or []) if text]
            assert sum(len(text.encode()) for text in texts) <= limit or len(rows) == 1
        assert limit < 1000 or len(parts) == 1


def test_other_types_are_refused() -> None:
    inner = pa.list_(pa.list_(pa.string()))
    for kind in (pa.int64(), pa.binary(), pa.list_(pa.int64()), inner, pa.struct([("a", pa.string())])):
        with pytest.raises(InputError, match="Column note cannot be sanitized"):
            column_kind(kind, "note")


def test_equal_ids_of_all_types_have_equal_bytes() -> None:
    """Rejects ids hashed by their width: a table that is read with another schema would get other noise."""
    for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.string(), pa.large_string()):
        ids = pa.array([7, 0, 100]).cast(kind)
        assert (id_bytes(ids), id_bytes(ids[1:])) == ([b"7", b"0", b"100"], [b"0", b"100"])
    assert id_bytes(pa.array([-1, 2**63 - 1])) == [b"-1", b"9223372036854775807"]
    assert id_bytes(pa.array(["é", "", "a b"])) == ["é".encode(), b"", b"a b"]
    for wrong in (pa.array([1.0]), pa.array([True]), pa.array([b"1"]), pa.array([None, "1"])):
        with pytest.raises(InputError, match=r"wrong type|must not be null"):
            id_bytes(wrong)
