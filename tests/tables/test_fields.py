"""Fields inside columns: named by their path, sanitized in place, and nothing beside them passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from dptext_spark import Embedding, Laplace, privatize
from dptext_spark.errors import InputError
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.fields import bare
from dptext_spark.text.policies import Slots
from tests.helpers.tables import RING_WORDS, spark_settings
from tests.helpers.worlds import KEY, LABEL, sanitizer

pytestmark = pytest.mark.spark

EXACT = Laplace(epsilon=1e9)  # no word moves
TINY = Laplace(epsilon=1e-3)  # equal words mean equal noise
TEXT = " ".join(RING_WORDS[:12])  # two releases of it agree by chance with 64^-12

SCHEMA = StructType(
    [
        StructField("id", IntegerType(), False, {"comment": "the key"}),
        StructField(
            "payload",
            StructType(
                [
                    StructField("secret", StringType()),
                    StructField("message", StringType(), False, {"comment": "what was said"}),
                    StructField("lang", StringType()),
                    StructField("odd.name`", StringType()),
                ]
            ),
        ),
        StructField(
            "turns",
            ArrayType(
                StructType(
                    [
                        StructField("who", StringType()),
                        StructField("text", StringType()),
                        StructField("words", ArrayType(StringType(), True)),
                        StructField("secret", IntegerType()),
                    ]
                )
            ),
        ),
        StructField("dotted.name", StringType(), True, {"comment": "no struct"}),
        StructField("notes", ArrayType(StringType())),
        StructField("brackets[]", StringType()),
        StructField("deep", ArrayType(ArrayType(StructType([StructField("text", StringType())])))),
        StructField("tags", MapType(StringType(), StringType())),
    ]
)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        ("s", "w01 Unheard", "de", "w02"),
        [("me", "w03 w03", ["w04", None, "x"], 1), None, (None, None, None, None)],
        "w05!",
        ["w06", None, ""],
        "w07",
        [[("w08",), None], None, [], [(None,)]],
        {"k": "v"},
    ),
    (2, None, [], "w05", [], None, [], {}),
    (3, ("s", "", None, None), None, None, None, "w07", None, None),
]
TEXTS = ["payload.message", "payload.odd.name`", "turns[].text", "dotted.name", "notes[]", "brackets[]"]
ALL: dict[str, Any] = {"text": [*TEXTS, "deep[][].text"], "tokens": "turns[].words"}
GIVEN: dict[str, Any] = {"mechanism": EXACT, "id": "id", "trust_id": True}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA).coalesce(1)


def test_the_fields_that_were_named_come_out_in_their_places(frame: DataFrame, ring: Embedding) -> None:
    """Also rejects structs in place of null, arrays without their nulls, and the order of the options."""
    out = privatize(frame, embedding=ring, keep=["turns[].who", "payload.lang", "id"], **GIVEN, **ALL)
    assert [tuple(row) for row in out.collect()] == [
        (
            1,
            ("w01 [MASK]", "de", "w02"),
            [("me", "w03 w03", ["w04", None, "[MASK]"]), None, (None, None, None)],
            "w05",
            ["w06", None, ""],
            "w07",
            [[("w08",), None], None, [], [(None,)]],
        ),
        (2, None, [], "w05", [], None, []),
        (3, ("", None, None), None, None, None, "w07", None),
    ]


def test_types_and_nullability_are_those_of_the_frame(frame: DataFrame, ring: Embedding) -> None:
    out = privatize(frame, embedding=ring, keep=["payload.lang", "id"], **GIVEN, **ALL)
    wanted = bare(SCHEMA).jsonValue()["fields"][:-1]
    wanted[1]["type"]["fields"].pop(0)
    wanted[2]["type"]["elementType"]["fields"] = wanted[2]["type"]["elementType"]["fields"][1:3]
    assert out.schema.jsonValue()["fields"] == wanted


def test_all_that_is_beside_what_is_sanitized_may_be_kept(frame: DataFrame, ring: Embedding) -> None:
    """Rejects a struct that is lost, or kept whole, because a field of it is sanitized."""
    out = privatize(frame, embedding=ring, keep="*", **GIVEN, **ALL)
    assert out.schema == bare(SCHEMA)
    assert [row["payload"] for row in out.collect()] == [
        ("s", "w01 [MASK]", "de", "w02"),
        None,
        ("s", "", None, None),
    ]
    columns = TableColumns(
        text=("payload.message", "turns[].text", "notes[]", "deep[][].text"),
        keep=("payload.lang", "*"),
        left_out=("payload.secret", "turns[].secret", "tags"),
        id=None,
        protect=Slots("brackets[]"),
    )
    rest = ("payload.lang", "id", "payload.odd.name`", "turns[].who", "turns[].words", "dotted.name")
    assert columns.named(SCHEMA).keep == rest
    assert replace(columns, keep=("*", "brackets[]")).named(SCHEMA).keep[0] == "brackets[]"
    absent = replace(columns, left_out=("tag", "payload.secret"))
    with pytest.raises(InputError, match=r"lacks columns.*Got: tag\."):
        absent.named(SCHEMA)


def test_a_kept_struct_passes_whole(frame: DataFrame, ring: Embedding) -> None:
    out = privatize(frame, embedding=ring, text="dotted.name", keep=["payload", "payload.lang"], **GIVEN)
    assert out.schema["payload"] == bare(SCHEMA)["payload"]
    assert [row[0] for row in out.collect()] == [row[1] for row in ROWS]


def test_every_element_and_field_has_noise_of_its_own(spark: SparkSession, ring: Embedding) -> None:
    """The words are those of the Sanitizer; rejects noise by row or column name alone."""
    turns = [[{"text": TEXT, "note": TEXT}] * 2, [{"text": TEXT, "note": TEXT}]]
    table = pa.table({"id": ["a", "b"], "turns": turns, "turn": [t[0] for t in turns], "flat": [TEXT] * 2})
    names = ["turns[].text", "turns[].note", "turn.text", "flat"]
    frame = spark.createDataFrame(table)
    out = privatize(
        frame,
        embedding=ring,
        text=names,
        key=KEY,
        name=LABEL,
        keep="turn.note",
        **GIVEN | {"mechanism": TINY},
    )
    rows = out.collect()
    released = [turn[field] for row in rows for turn in row["turns"] for field in ("text", "note")]
    released += [text for row in rows for text in (row["turn"]["text"], row["flat"])]
    assert len(set(released)) == len(released) == 10
    assert all(row["turn"]["note"] == TEXT for row in rows)

    privatizer = sanitizer(ring, TINY, name=LABEL)
    places = np.array([[0], [1], [0]])
    ids, texts = pa.array(["a", "a", "b"]), pa.array([TEXT] * 3)
    expected = privatizer.sanitize(texts, ids, column="turns[].note", positions=places).values.to_pylist()
    assert [turn["note"] for row in rows for turn in row["turns"]] == expected
    flat = privatizer.sanitize(texts[:2], pa.array(["a", "b"]), column="turn.text").values.to_pylist()
    assert [row["turn"]["text"] for row in rows] == flat


def test_ids_and_slots_may_be_fields(spark: SparkSession, ring: Embedding) -> None:
    spans = "array<struct<start: int, end: int>>"
    frame = spark.createDataFrame(
        [((7, [(5, 8)]), "W01! W02")], f"meta struct<id: int, slots: {spans}>, note string"
    )
    options: dict[str, Any] = {"embedding": ring, "mechanism": EXACT, "id": "meta.id", "text": "note"}
    assert privatize(frame, protect="slots:meta.slots", trust_id=True, **options).first() == ("W01 w02",)
    twice = frame.union(frame)
    with pytest.raises(InputError, match=r"meta\.id does not name the rows.*1 duplicates in 2 rows"):
        privatize(twice, **options)


def test_slots_lie_beside_their_texts(spark: SparkSession, ring: Embedding) -> None:
    """In structs, arrays and arrays of arrays; rejects slots of another element, or of the row's first."""
    spans = "slots: array<struct<start: int, end: int, kind: string>>"
    turns = f"array<struct<who: string, text: string, mark: struct<{spans}>>>"
    schema = f"id int, message struct<text: string, {spans}>, turns {turns}, deep array<{turns}>"
    row = (
        1,
        ("W01 W02", [(4, 7, "x")]),
        [("a", "W01 W02", ([(0, 1, None)],)), None, ("b", "W03 W04", None), ("c", "W05 W06", ([],))],
        [
            [("a", "W01 W02", ([(4, 5, None)],))],
            None,
            [],
            [("b", "W03", ([(0, 9, None)],)), ("c", None, ([],))],
        ],
    )
    frame = spark.createDataFrame([row, (2, None, None, None), (3, None, [], [None])], schema).coalesce(1)
    for text, slots, expected in (
        ("message.text", "message.slots", [("W01 w02",), None, None]),
        ("turns[].text", "turns[].mark.slots", [["w01 W02", None, "w03 w04", "W05 W06"], None, []]),
        ("deep[][].text", "deep[][].mark.slots", [[["W01 w02"], None, [], ["w03", None]], None, [None]]),
    ):
        out = privatize(frame, embedding=ring, text=text, protect=f"slots:{slots}", **GIVEN)
        found = [row[0] for row in out.collect()]
        if "[]" in text:
            found = [without_structs(value) for value in found]
        assert found == expected


def without_structs(value: Any) -> Any:
    if isinstance(value, Row):
        return value[0]
    return value if value is None else [without_structs(each) for each in value]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"text": "payload.nope"},
            r"lacks columns\. Allowed: id, payload\.secret.*, turns\[\]\.text.*Got: payl",
        ),
        ({"text": "turns.text"}, r"Got: turns\.text"),
        ({"text": "payload[].message"}, r"Got: payload\[\]\.message"),
        ({"text": "Payload.message"}, r"Got: Payload\.message"),
        ({"text": "tags.k"}, r"Got: tags\.k\. What is in a map cannot be named"),
        ({"text": "tags"}, r"tags \(map<string,string>\), not string"),
        ({"text": "payload"}, r"payload \(struct<.*>\), not string"),
        ({"text": "turns[].words"}, r"turns\[\]\.words \(array<string>\), not string"),
        ({"tokens": "turns[].text"}, r"turns\[\]\.text \(string\), not array<string>"),
        ({"text": "notes[]", "id": "turns[].who"}, r"turns\[\]\.who, which is in an array"),
        ({"text": "notes[]", "protect": "slots:turns[].who"}, r"does not lie beside.*Got: notes\[\]"),
        ({"text": "notes[]", "protect": "slots:payload.lang"}, r"does not lie beside.*Got: notes\[\]"),
        ({"text": "dotted.name", "protect": "slots:notes[]"}, r"does not lie beside.*Got: dotted\.name"),
        (
            {"text": ["notes[]", "dotted.name"], "protect": "slots:turns[].who"},
            r"in one column.*Got: notes\[\], dotted\.name",
        ),
        ({"text": "notes[]", "tokens": "notes"}, r"inside one another\. Got: notes\[\] in notes"),
        (
            {"text": "payload.message", "keep": "payload"},
            r"both .*payload\.message and payload\. Keep the fields",
        ),
        (
            {"text": "turns[].text", "keep": "turns[].text"},
            r"both sanitized and kept raw\. Got: turns\[\]\.text\.$",
        ),
        ({"tokens": "notes", "keep": "notes[]"}, r"both sanitized and kept raw\. Got: notes and notes\[\]"),
    ],
)
def test_wrong_fields_are_refused_at_once(
    frame: DataFrame, ring: Embedding, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        privatize(frame, embedding=ring, mechanism=EXACT, **{"id": "id", **options})


def test_names_that_can_be_read_in_two_ways_are_refused(spark: SparkSession, ring: Embedding) -> None:
    """A wrong guess with --keep would let raw text out."""
    frame = spark.createDataFrame(
        [(1, ("w01", "w02"), "w03", ["w04"], "w05")],
        "id int, a struct<b: string, c: string>, `a.b` string, l array<string>, `l[]` string",
    )
    options: dict[str, Any] = {"embedding": ring, **GIVEN}
    for wrong in ({"text": "a.b"}, {"text": "a.c", "keep": "a.b"}, {"text": "l[]"}):
        with pytest.raises(InputError, match=r"as a column's, and as the path.*Got: (a\.b|l\[\])\. Rename"):
            privatize(frame, **options, **wrong)
    assert privatize(frame, text="a.c", tokens="l", **options).first() == (("w02",), ["w04"])


def test_fields_that_differ_in_capitals_only(spark: SparkSession, ring: Embedding) -> None:
    inner = StructType([StructField(name, StringType()) for name in ("text", "TEXT", "note")])
    schema = StructType([StructField("id", IntegerType()), StructField("a", ArrayType(inner))])
    options: dict[str, Any] = {"embedding": ring, **GIVEN}
    with spark_settings(spark, caseSensitive="true"):
        frame = spark.createDataFrame([(1, [("w00", "w01", "w02")])], schema)
        out = privatize(frame, text=["a[].text", "a[].TEXT"], **options)
        assert out.first() == ([("w00", "w01")],)
    with pytest.raises(InputError, match=r"the same name.*Got: a\[\]\.text\. .*spark.sql.caseSensitive"):
        privatize(frame, text="a[].text", **options)
    assert privatize(frame, text="a[].note", **options).first() == ([("w02",)],)


def test_large_arrow_types(frame: DataFrame, ring: Embedding, spark: SparkSession) -> None:
    options = {"embedding": ring, "key": KEY, "name": LABEL, **GIVEN, "mechanism": TINY, **ALL}
    plain = privatize(frame, **options).collect()
    with spark_settings(spark, execution_arrow_useLargeVarTypes="true"):
        assert privatize(frame, **options).collect() == plain
