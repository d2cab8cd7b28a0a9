"""Fields inside columns: named by their path, sanitized in place, and nothing beside them passes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from dptext_spark import Laplace, TextPolicy, privatize
from dptext_spark.errors import InputError
from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.fields import bare
from tests.helpers.tables import RING_WORDS, spark_settings
from tests.helpers.worlds import KEY, LABEL, sanitizer

pytestmark = pytest.mark.spark

EXACT = Laplace(epsilon=1e9)  # no word moves
TINY = Laplace(epsilon=1e-3)  # equal words mean equal noise
TEXT = " ".join(RING_WORDS[:12])  # two releases of it agree by chance with 64^-12


def struct(*fields):
    return StructType([StructField(*field) for field in fields])


STRING = StringType()
MESSAGE = ("message", STRING, False, {"comment": "what was said"})
TURN = struct(
    ("who", STRING), ("text", STRING), ("words", ArrayType(STRING)), ("secret", IntegerType())
)
SCHEMA = struct(
    ("id", IntegerType(), False, {"comment": "the key"}),
    ("payload", struct(("secret", STRING), MESSAGE, ("lang", STRING), ("odd.name`", STRING))),
    ("turns", ArrayType(TURN)),
    ("dotted.name", STRING, True, {"comment": "no struct"}),
    ("notes", ArrayType(STRING)),
    ("brackets[]", STRING),
    ("deep", ArrayType(ArrayType(struct(("text", STRING))))),
    ("tags", MapType(STRING, STRING)),
)
ROWS = [
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
TEXTS = [
    "payload.message",
    "payload.odd.name`",
    "turns[].text",
    "dotted.name",
    "notes[]",
    "brackets[]",
]
ALL = {"text": [*TEXTS, "deep[][].text"], "tokens": "turns[].words"}
GIVEN = {"mechanism": EXACT, "id": "id", "trust_id": True}


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(ROWS, SCHEMA).coalesce(1)


def test_the_fields_that_were_named_come_out_in_their_places(frame, ring):
    """Rejects structs in place of null, arrays without their nulls, other nullability or order."""
    out = privatize(
        frame, embedding=ring, keep=["turns[].who", "payload.lang", "id"], **GIVEN, **ALL
    )
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
    wanted = bare(SCHEMA).jsonValue()["fields"][:-1]
    wanted[1]["type"]["fields"].pop(0)
    wanted[2]["type"]["elementType"]["fields"].pop()
    assert out.schema.jsonValue()["fields"] == wanted


def test_all_that_is_beside_what_is_sanitized_may_be_kept(frame, ring):
    """Rejects a struct that is lost, or kept whole, because a field of it is sanitized."""
    out = privatize(frame, embedding=ring, keep="*", **GIVEN, **ALL)
    assert out.schema == bare(SCHEMA)
    payloads = [("s", "w01 [MASK]", "de", "w02"), None, ("s", "", None, None)]
    assert [row["payload"] for row in out.collect()] == payloads
    whole = privatize(
        frame, embedding=ring, text="dotted.name", keep=["payload", "payload.lang"], **GIVEN
    )
    assert whole.schema["payload"] == bare(SCHEMA)["payload"]
    assert [row[0] for row in whole.collect()] == [row[1] for row in ROWS]
    columns = TableColumns(
        text=("payload.message", "turns[].text", "notes[]", "deep[][].text"),
        keep=("payload.lang", "*"),
        left_out=("payload.secret", "turns[].secret", "tags"),
        id=None,
        slots="brackets[]",
    )
    rest = (
        "payload.lang",
        "id",
        "payload.odd.name`",
        "turns[].who",
        "turns[].words",
        "dotted.name",
    )
    assert columns.named(SCHEMA).keep == rest
    assert replace(columns, keep=("*", "brackets[]")).named(SCHEMA).keep[0] == "brackets[]"
    with pytest.raises(InputError, match=r"lacks columns.*Got: tag\."):
        replace(columns, left_out=("tag",)).named(SCHEMA)


def test_every_element_and_field_has_noise_of_its_own(spark, ring):
    """The words are those of the Sanitizer; rejects noise by row or column name alone."""
    turns = [[{"text": TEXT, "note": TEXT}] * 2, [{"text": TEXT, "note": TEXT}]]
    table = pa.table(
        {"id": ["a", "b"], "turns": turns, "turn": [t[0] for t in turns], "flat": [TEXT] * 2}
    )
    names = ["turns[].text", "turns[].note", "turn.text", "flat"]
    frame = from_arrow(spark, table)
    options = GIVEN | {"mechanism": TINY, "key": KEY, "name": LABEL, "id": "meta.id"}
    frame = frame.withColumn("meta", F.struct("id")).drop("id")  # ids may be fields
    out = privatize(frame, embedding=ring, text=names, keep="turn.note", **options)
    with pytest.raises(InputError, match=r"meta\.id cannot be the id.*2 duplicates in 4 rows"):
        privatize(frame.union(frame), embedding=ring, text=names, **options | {"trust_id": False})
    rows = out.collect()
    released = [turn[field] for row in rows for turn in row["turns"] for field in ("text", "note")]
    released += [text for row in rows for text in (row["turn"]["text"], row["flat"])]
    assert len(set(released)) == len(released) == 10
    assert all(row["turn"]["note"] == TEXT for row in rows)

    privatizer = sanitizer(ring, TINY, name=LABEL)
    places = np.array([[0], [1], [0]])
    ids, texts = pa.array(["a", "a", "b"]), pa.array([TEXT] * 3)
    expected = privatizer.sanitize(
        texts, ids, column="turns[].note", positions=places
    ).values.to_pylist()
    assert [turn["note"] for row in rows for turn in row["turns"]] == expected
    flat = privatizer.sanitize(
        texts[:2], pa.array(["a", "b"]), column="turn.text"
    ).values.to_pylist()
    assert [row["turn"]["text"] for row in rows] == flat


def test_slots_lie_beside_their_texts(spark, ring):
    """In structs, and in arrays of arrays; rejects slots of another element, or of the row's first."""
    spans = "slots: array<struct<start: int, end: int, kind: string>>"
    deep = f"array<array<struct<who: string, text: string, mark: struct<{spans}>>>>"
    first = [
        ("a", "W01 W02", ([(4, 5, None)],)),
        None,
        ("b", "W03 W04", None),
        ("c", "W05 W06", ([],)),
    ]
    deeper = [first, None, [], [("b", "W03", ([(0, 9, None)],)), ("c", None, ([],))]]
    rows = [
        (1, deeper, ([(5, 8, "x")],), "W01! W02"),
        (2, None, None, None),
        (3, [None], None, None),
    ]
    frame = spark.createDataFrame(
        rows, f"id int, deep {deep}, meta struct<{spans}>, note string"
    ).coalesce(1)
    texts = ["W01 w02", None, "w03 w04", "W05 W06"]
    for text, slots, expected in (
        ("note", "meta.slots", ["W01 w02", None, None]),
        ("deep[][].text", "deep[][].mark.slots", [[texts, None, [], ["w03", None]], None, [None]]),
    ):
        policy = TextPolicy(protect=f"slots:{slots}")
        out = privatize(frame, embedding=ring, text=text, policy=policy, **GIVEN)
        found = [row[0] for row in out.collect()]
        assert ([without_structs(value) for value in found] if "[]" in text else found) == expected


def without_structs(value):
    if isinstance(value, Row):
        return value[0]
    return value if value is None else [without_structs(each) for each in value]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"text": "payload.nope"},
            r"Allowed: id, payload\.sec.*, turns\[\]\.text.*Got: payload\.n",
        ),
        (
            {"text": "turns.text payload[].message Turns tags.k"},
            r"turns\.text, p.*, Turns, tags\.k\. Per",
        ),
        ({"text": "tags"}, r"tags \(map<string,string>\), not string"),
        ({"tokens": "turns[].text"}, r"turns\[\]\.text \(string\), not array<string>"),
        ({"text": "notes[]", "id": "turns[].who"}, r"turns\[\]\.who, which is in an array"),
        (
            {"text": "notes[]", "id": "notes"},
            r"notes \(array<string>\), not an integer or string id",
        ),
        (
            {"text": "dotted.name", "slots": "notes[]"},
            r"is not in the same array.*Got: dotted\.name",
        ),
        (
            {"text": "dotted.name", "tokens": "notes", "slots": "id"},
            r"spans of one column.*dotted\.name, notes",
        ),
        ({"text": "dotted.name", "slots": "notes"}, "Got: notes, .*Give positions, not texts"),
        ({"text": "dotted.name", "slots": "brackets[]"}, "cannot hold the positions.*, string"),
        ({"text": "notes[]", "tokens": "notes"}, r"contain each other\. Got: notes\[\] in notes"),
        ({"text": "notes[] notes[]"}, r"named twice.*Got: notes\[\]"),
        (
            {"text": "payload.message", "keep": "payload"},
            r"both .*payload\.message and payload\. Keep the f",
        ),
        (
            {"text": "turns[].text", "keep": "turns[].text"},
            r"both sanitized and .* Got: turns\[\]\.text\.$",
        ),
        (
            {"tokens": "notes", "keep": "notes[]"},
            r"both sanitized and kept\. Got: notes and notes\[\]",
        ),
        (
            {"text": "notes[] nope", "keep": "gone", "id": "idd", "slots": "m"},
            "Got: nope, gone, idd, m",
        ),
        ({"keep": "id"}, "No column to sanitize was given"),
    ],
)
def test_wrong_fields_are_refused_at_once(options, message):
    names = {name: tuple(options.get(name, "").split()) for name in ("text", "tokens", "keep")}
    with pytest.raises(InputError, match=message):
        TableColumns(**names, id=options.get("id", "id"), slots=options.get("slots")).check_schema(
            SCHEMA
        )


def test_an_interval_is_no_id():
    """Its name, too, begins as that of integers does."""
    schema = struct(("id", DayTimeIntervalType()), ("text", STRING))
    with pytest.raises(
        InputError, match=r"id \(interval day to second\), not an integer or string id"
    ):
        TableColumns(text=("text",), keep=(), id="id").check_schema(schema)


AMBIGUOUS = struct(
    ("id", IntegerType()),
    ("a", struct(("b", STRING), ("c", STRING), ("C", STRING))),
    ("a.b", STRING),
    ("l", ArrayType(STRING)),
    ("l[]", STRING),
    ("text", STRING),
    ("TEXT", STRING),
    ("twice", STRING),
    ("twice", STRING),
)
TWO_WAYS = r"both that of a column and the path.*Got: {}\. Rename"


@pytest.mark.parametrize(
    ("options", "exact", "message"),
    [
        ({"text": "a.b"}, True, TWO_WAYS.format(r"a\.b")),
        ({"text": "text", "keep": "a.b"}, True, TWO_WAYS.format(r"a\.b")),
        ({"text": "a.c"}, False, r"Several columns.*Got: a\.c\. .*spark.sql.caseSensitive"),
        ({"text": "twice"}, True, r"Several columns.*Got: twice\. Rename them\.?$"),
    ],
)
def test_names_that_can_be_read_in_two_ways_are_refused(options, exact, message):
    """A wrong guess with --keep would let raw text out; names that are not named are not in the way."""
    TableColumns(text=("text", "a.C"), tokens=("l",), keep=(), id="id").check_schema(
        AMBIGUOUS, exact=True
    )
    names = {name: tuple(options.get(name, "").split()) for name in ("text", "keep")}
    with pytest.raises(InputError, match=message):
        TableColumns(**names, id="id").check_schema(AMBIGUOUS, exact=exact)


def test_names_that_differ_in_capitals_only(spark, ring):
    words = [(name, STRING) for name in ("text", "TEXT", "note")]
    schema = struct(("id", IntegerType()), *words, ("a", ArrayType(struct(*words))))
    row = ("w00", "w01", "w02")
    frame = spark.createDataFrame([(1, *row, [row])], schema)
    with spark_settings(spark, caseSensitive="true"):
        out = privatize(
            frame, embedding=ring, text=["text", "TEXT", "a[].text", "a[].TEXT"], **GIVEN
        )
        assert out.first() == ("w00", "w01", [("w00", "w01")])


def test_large_arrow_types(frame, ring, spark):
    options = {"embedding": ring, "key": KEY, "name": LABEL, **GIVEN, "mechanism": TINY, **ALL}
    plain = privatize(frame, **options).collect()
    with spark_settings(spark, execution_arrow_useLargeVarTypes="true"):
        assert privatize(frame, **options).collect() == plain
