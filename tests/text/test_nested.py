"""Fields inside Arrow columns: each value once, under its row and its place, and back where it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from dptext_spark.text.nested import ELEMENTS, FieldValues, Route, replace_values
from tests.helpers import worlds

INNER = pa.struct([("who", pa.string()), ("text", pa.string()), ("words", pa.list_(pa.string()))])
STRUCT = pa.struct([("lang", pa.int64()), ("payload", INNER)])
DEEP = pa.list_(pa.list_(pa.struct([("words", pa.list_(pa.string()))])))
ROUTES: list[tuple[pa.DataType, Route]] = [
    (STRUCT, (1, 1)),
    (STRUCT, (1, 2, ELEMENTS)),
    (pa.list_(INNER), (ELEMENTS, 1)),
    (pa.list_(INNER), (ELEMENTS, 2)),
    (pa.large_list(pa.large_string()), (ELEMENTS,)),
    (DEEP, (ELEMENTS, ELEMENTS, 0)),
    (pa.string(), ()),  # the column itself
]


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of an Arrow type, null at every level."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    return st.none() | (st.integers(0, 9) if pa.types.is_integer(kind) else st.sampled_from(["", "a", "b c"]))


def reference(value: Any, route: Route, kind: pa.DataType, places: tuple[int, ...] = ()) -> Iterator[Any]:
    """Walk one row in plain Python: the places in arrays, and the value, of each leaf."""
    if not route:
        yield places, value
    elif route[0] == ELEMENTS:
        for place, element in enumerate(value or []):
            yield from reference(element, route[1:], kind.value_type, (*places, place))
    else:
        field = kind.field(route[0])
        yield from reference(value and value[field.name], route[1:], field.type, places)


def replaced(value: Any, route: Route, kind: pa.DataType, names: Iterator[Any]) -> Any:
    """Put the next of ``names`` in the place of each leaf that is not inside a null."""
    if not route:
        return next(names)
    if route[0] == ELEMENTS:
        return value and [replaced(element, route[1:], kind.value_type, names) for element in value]
    field = kind.field(route[0])
    inside = replaced(value and value[field.name], route[1:], field.type, names)
    return value and {**value, field.name: inside}


@pytest.mark.parametrize(("kind", "route"), ROUTES)
@settings(derandomize=True, max_examples=25)
@given(data=st.data())
def test_leaves_are_taken_out_and_put_back(kind: pa.DataType, route: Route, data: st.DataObject) -> None:
    """Also of a slice, whose buffers hold other rows."""
    rows = data.draw(st.lists(values_of(kind), max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    column, rows = pa.array(rows, kind)[start:], rows[start:]
    leaves = FieldValues.of(column, route)
    expected = [(row, *leaf) for row, value in enumerate(rows) for leaf in reference(value, route, kind)]
    places = map(tuple, leaves.positions.tolist())
    assert [*zip(leaves.rows.tolist(), places, leaves.values.to_pylist(), strict=True)] == expected
    per_row = leaves.sum_by_row(np.ones(len(expected), dtype=np.int64), len(rows))
    assert per_row.tolist() == [sum(row == i for row, _, _ in expected) for i in range(len(rows))]
    assert replace_values(column, route, leaves.values).to_pylist() == rows
    new = [None if value is None else f"new {i}" for i, (_, _, value) in enumerate(expected)]
    if pa.types.is_list(leaves.values.type):
        new = [None if value is None else [value, value] for value in new]
    names = iter(new)
    back = replace_values(column, route, pa.array(new, leaves.values.type))
    back.validate(full=True)
    assert back.to_pylist() == [replaced(value, route, kind, names) for value in rows]


def words_at(world: Embedding, ids: list[int], places: list[list[int]] | None = None) -> list[str]:
    """Release one text of 12 words several times at a tiny epsilon, where equal outputs mean equal noise."""
    privatizer = worlds.sanitizer(world, Laplace(epsilon=1e-3))
    positions = None if places is None else np.array(places, dtype=np.int64).reshape(len(ids), -1)
    texts = pa.array([" ".join(worlds.words(12))] * len(ids))
    done = privatizer.sanitize(texts, pa.array(ids), column="t", positions=positions)
    return list(done.values.to_pylist())


def test_equal_texts_have_the_noise_of_their_row_and_place(small: Embedding) -> None:
    """Rejects noise by row alone, by the last array's place, by the places' sum and by rank in the batch.

    Two texts of 12 words out of 200 agree by chance with 200^-12.
    """
    flat, one = words_at(small, [7]), words_at(small, [7], [[0]])
    several = words_at(small, [7] * 6, [[0, 0], [0, 1], [1, 0], [1, 1], [0, 256], [1, 65536]])
    assert len({*flat, *one, *several}) == 8
    among = words_at(small, [6, 6, 7, 7], [[0], [1], [0], [1]])
    assert among[3:] == words_at(small, [7], [[1]]) and len({*among}) == 4
    # Fields of structs have the noise of columns.
    assert words_at(small, [1, 2], [[], []]) == words_at(small, [1, 2])
