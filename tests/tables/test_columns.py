"""What comes out has the frame's types, and nothing else that a schema says."""

import re
from dataclasses import replace

from hypothesis import given
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

from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.fields import bare

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
