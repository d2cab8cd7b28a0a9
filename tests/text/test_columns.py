"""Arrow columns as tokens and back, in every layout that Arrow has for the same rows."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.errors import InputError
from dptext_spark.mechanisms import Laplace
from dptext_spark.text.columns import DROP, KEEP, Tokens, column_kind, id_bytes, slices
from dptext_spark.text.layout import AsItStood, SingleSpaces, assemble
from dptext_spark.text.tokens import tokenize
from tests.helpers import worlds

TEXTS = ["to be or", None, "", "not to be", "...", "\u00e9t\u00e9 to"]
TOKENS = [["to", "be", "or"], None, [], ["not", None, "to", ""], ["a b"], ["\u00e9t\u00e9"]]
VOCABULARY = pa.array(["zero", "one", "two"])

STRINGS = [pa.string(), pa.large_string()]
LISTS = [*map(pa.list_, STRINGS), *map(pa.large_list, STRINGS), pa.list_(pa.field("element", pa.string()))]


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


TEXT_COLUMNS = [made for kind in STRINGS for made in (pa.array(TEXTS, kind), sliced(pa.array(TEXTS, kind)))]
TOKEN_COLUMNS = [
    way(pa.array(TOKENS, kind)) for kind in LISTS for way in (lambda array: array, sliced, with_hidden_values)
]


def rebuilt(tokens, released):
    """The column, whose words alone come out; token columns have no layout."""
    done, kept = (assemble(tokens, released, VOCABULARY, way()) for way in (SingleSpaces, AsItStood))
    done.validate(full=True)
    assert done.type == tokens.data_type
    assert tokens.kind == "text" or kept.equals(done)
    return done.to_pylist()


def test_columns_become_tokens_and_columns_again():
    """Rejects hidden words of null rows, types, nulls and places that change, and a null taken for a word."""
    for column in [*TEXT_COLUMNS, *TOKEN_COLUMNS]:
        tokens, mask = Tokens.of(column), "[MASK]"
        masked = rebuilt(tokens, np.where(tokens.flag(lambda token: token == "to"), 2, -1))
        nothing = rebuilt(tokens, np.full(len(tokens), DROP))
        if tokens.kind == "text":
            assert [*tokens.row_tokens()] == [(tokenize(text) if text else []) for text in TEXTS]
            assert masked == [f"two {mask} {mask}", None, "", f"{mask} two {mask}", "", f"{mask} two"]
            assert nothing == ["", None, "", "", "", ""]
        else:
            assert [*tokens.row_tokens()] == [row or [] for row in TOKENS]
            assert tokens.count(tokens.codes < 0).tolist() == [0, 0, 0, 1, 0, 0]
            assert masked[:4] == [["two", mask, mask], None, [], [mask, mask, "two", mask]]
            assert nothing == [[], None, [], [], [], []]
            assert rebuilt(tokens, np.full(len(tokens), KEEP)) == TOKENS
        empty = column[:0]
        assert list(slices(empty)) == rebuilt(Tokens.of(empty), np.zeros(0, np.int64)) == []


def content(column):
    tokens = Tokens.of(column)
    return [(lengths, bytes(data)) for lengths, data in map(tokens.row_content, range(len(column)))]


def test_the_content_of_a_row_is_its_own_in_every_layout():
    """Rejects content read at the wrong offset: another row's content would then key this row's noise."""
    for layouts in (TEXT_COLUMNS, TOKEN_COLUMNS):
        first, *others = map(content, layouts)
        assert all(other == first for other in others)
        # Null and empty rows of tokens hold nothing to perturb and may agree; all others differ.
        assert len(set(first)) >= 5
    for pair in (
        *((["ab", "c"], ["a", "bc"]), (["ab"], ["ab", ""]), (["ab", None], ["ab", ""])),
        *(([None, "ab"], ["ab", None]), (["abc"], ["ab", "c"])),
    ):
        one, other = content(pa.array(pair, pa.list_(pa.string())))
        assert one != other


def test_other_types_are_refused():
    inner = pa.list_(pa.list_(pa.string()))
    for kind in (pa.int64(), pa.binary(), pa.list_(pa.int64()), inner, pa.struct([("a", pa.string())])):
        with pytest.raises(InputError, match="Column note cannot be sanitized"):
            column_kind(kind, "note")


def test_equal_ids_of_all_types_have_equal_bytes():
    """Rejects ids hashed by their width: a table that is read with another schema would get other noise."""
    for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.string(), pa.large_string()):
        ids = pa.array([7, 0, 100]).cast(kind)
        assert (id_bytes(ids), id_bytes(ids[1:])) == ([b"7", b"0", b"100"], [b"0", b"100"])
    assert id_bytes(pa.array([-1, 2**63 - 1])) == [b"-1", b"9223372036854775807"]
    assert id_bytes(pa.array(["é", "", "a b"])) == ["é".encode(), b"", b"a b"]
    for wrong in (pa.array([1.0]), pa.array([True]), pa.array([b"1"]), pa.array([None, "1"])):
        with pytest.raises(InputError, match=r"wrong type|must not be null"):
            id_bytes(wrong)


def test_equal_texts_have_the_noise_of_their_row_and_place(small):
    """Rejects noise by row alone, by the last array's place, by the places' sum and by rank in the batch."""
    # One text of 12 words out of 200, at a tiny epsilon: two outputs agree by chance with 200^-12.
    privatizer = worlds.sanitizer(small, Laplace(epsilon=1e-3))

    def words_at(ids, places=None):
        positions = None if places is None else np.array(places, dtype=np.int64).reshape(len(ids), -1)
        texts = pa.array([" ".join(worlds.words(12))] * len(ids))
        return list(
            privatizer.sanitize(texts, pa.array(ids), column="t", positions=positions).values.to_pylist()
        )

    flat, one = words_at([7]), words_at([7], [[0]])
    several = words_at([7] * 6, [[0, 0], [0, 1], [1, 0], [1, 1], [0, 256], [1, 65536]])
    assert len({*flat, *one, *several}) == 8
    among = words_at([6, 6, 7, 7], [[0], [1], [0], [1]])
    assert among[3:] == words_at([7], [[1]]) and len({*among}) == 4
    assert words_at([1, 2], [[], []]) == words_at([1, 2])  # fields of structs have the noise of columns
