"""What comes out has the frame's types, and nothing else that a schema says."""

import re
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    CharType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from dptext_spark.mechanisms import Laplace
from dptext_spark.tables import batch
from dptext_spark.tables.batch import FieldPaths, FieldValues, replace_values
from dptext_spark.tables.columns import TableColumns, _sanitize_batches
from dptext_spark.tables.fields import bare
from tests.helpers import worlds

CANARY = "qzmetadata"
METADATA = [
    {"comment": CANARY},
    {"ml_attr": {"type": "nominal", "vals": [CANARY]}},
    {"__CHAR_VARCHAR_TYPE_STRING": "varchar(9)", CANARY: 1},
    {"delta.generationExpression": f"'{CANARY}'"},
    {},
]
COLLATED = [StringType("UTF8_LCASE")] if hasattr(StringType(), "collation") else []  # since Spark 4
LEAVES = [LongType(), StringType(), *COLLATED, CharType(3), VarcharType(3)]


def structs(inner):
    facts = st.tuples(inner, st.booleans(), st.sampled_from(METADATA))
    fields = st.lists(facts, min_size=1, max_size=3)
    return fields.map(
        lambda all: StructType([StructField(f"f{n}", *fact) for n, fact in enumerate(all)])
    )


TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        structs(inner)
        | st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
    ),
    max_leaves=8,
)


def without_metadata(value):
    """The JSON form of a type, without its metadata; ``char`` and ``varchar`` are strings."""
    if isinstance(value, list):
        return [*map(without_metadata, value)]
    if isinstance(value, dict):
        return {name: without_metadata(each) for name, each in value.items() if name != "metadata"}
    return "string" if value in ("char(3)", "varchar(3)") else value


COLUMNS = TableColumns(text=("f0[].f0",), keep=("f1", "f2.f0"), id=None)


@given(structs(TYPES), structs(TYPES), st.booleans())
def test_a_schema_comes_out_with_all_but_metadata(kept, around, vectors):
    """Of whole columns, parts of columns, and texts that become vectors."""
    found = bare(kept)
    assert without_metadata(found.jsonValue()) == without_metadata(kept.jsonValue())
    assert (
        re.sub("(var)?char.3.", "string", kept.simpleString()) == found.simpleString()
    )  # with collations
    assert CANARY not in found.json()
    texts = ArrayType(StructType([StructField("f0", StringType(), True, METADATA[0])]))
    fields = [("f0", texts), ("f1", kept), ("f2", around)]
    table = StructType([StructField(name, kind, True, METADATA[1]) for name, kind in fields])
    assert CANARY in table.json()
    assert CANARY not in replace(COLUMNS, vectors=vectors).released(table).json()


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
