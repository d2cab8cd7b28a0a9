"""Batches as workers read them: fields are taken out and put back, and long rows go in parts."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.mechanisms import Laplace
from dptext_spark.tables import batch
from dptext_spark.tables.batch import FieldPaths, FieldValues, replace_values
from dptext_spark.tables.columns import _sanitize_batches
from tests.helpers import worlds

INNER = pa.struct([("who", pa.string()), ("text", pa.string()), ("words", pa.list_(pa.string()))])
OUTER = pa.struct([("lang", pa.int64()), ("payload", INNER)])
DEEP = pa.list_(pa.list_(pa.struct([("words", pa.list_(pa.string()))])))
PATHS = [
    (OUTER, ("payload", "text")),
    (OUTER, ("payload", "words", None)),
    (pa.list_(INNER), (None, "text")),
    (pa.list_(INNER), (None, "words")),
    (pa.large_list(pa.large_string()), (None,)),
    (DEEP, (None, None, "words")),
    (pa.string(), ()),  # the column itself
]


def values_of(kind):
    """Values of an Arrow type, null at every level."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries(
            {field.name: values_of(field.type) for field in kind}
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    return st.none() | (
        st.integers(0, 9) if pa.types.is_integer(kind) else st.sampled_from(["", "a", "b c"])
    )


def reference(value, path, kind, places=()):
    """Walk one row in plain Python: the places in arrays, and the value, of each leaf."""
    if not path:
        yield places, value
    elif path[0] is None:
        for place, element in enumerate(value or []):
            yield from reference(element, path[1:], kind.value_type, (*places, place))
    else:
        inside = kind.field(path[0]).type
        yield from reference(value and value[path[0]], path[1:], inside, places)


@pytest.mark.parametrize(("kind", "path"), PATHS)
@settings(derandomize=True, max_examples=25)
@given(data=st.data())
def test_leaves_are_taken_out_and_put_back(kind, path, data):
    """Also of a slice, whose buffers hold other rows."""
    rows = data.draw(st.lists(values_of(kind), max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    column, rows = pa.array(rows, kind)[start:], rows[start:]
    leaves = FieldValues.of(column, path)
    expected = [
        (row, *leaf) for row, value in enumerate(rows) for leaf in reference(value, path, kind)
    ]
    places = map(tuple, leaves.positions.tolist())
    assert [*zip(leaves.rows.tolist(), places, leaves.values.to_pylist(), strict=True)] == expected
    back = replace_values(column, path, leaves.values)
    back.validate(full=True)
    assert back.to_pylist() == rows
    emptied = replace_values(column, path, pa.nulls(len(expected), leaves.values.type))
    assert FieldValues.of(emptied, path).values.null_count == len(expected)


def test_long_rows_go_through_workers_in_parts(line, monkeypatch):
    """In order, with the words, slots and counts of one batch, and no more at once than a part holds."""
    # Rejects parts of one length in rows, a row twice or never, and slots or ids of the whole batch.
    words = [3, 0, 40, 1, 1, 1, 25, 2, 1]
    slots = [[{"start": 0, "end": 2 * count % 5}] for count in words]
    rows = [{"n": n, "turns": [{"text": "w1 " * count}, None]} for n, count in enumerate(words)]
    columns = {
        "row": rows,
        "id": [f"{n}" for n in range(9)],
        "slots": [[own, None] for own in slots],
    }
    whole = pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()})
    ways = FieldPaths(paths={"turns[].text": ("turns", None, "text")}, slots=(None,))
    sanitizer = worlds.sanitizer(line, Laplace(epsilon=0.5), protect="slots:slots")
    (alone,) = _sanitize_batches(sanitizer, ways, [whole])
    monkeypatch.setattr(batch, "_PART_BYTES", 200)
    parts = [
        *_sanitize_batches(sanitizer, ways, [whole.slice(0, 0), whole.slice(0, 4), whole.slice(4)])
    ]
    assert pa.Table.from_batches(parts).to_pylist() == alone.to_pylist() != whole.to_pylist()
    assert len(parts) > 4 and {len(part) for part in parts} >= {0, 1}
    read = [part for part in batch.Batch.parts([whole], ways) if len(part) > 1]
    assert read and all(part.row.nbytes + part.ids.nbytes <= 200 for part in read)
