"""privatize(df, ...): the columns asked for, each row once, the same words however Spark computes them."""

import re
import sys
from functools import reduce
from types import SimpleNamespace

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dptext_spark import (
    Laplace,
    NoiseKey,
    ReleaseCounts,
    RowBudget,
    TextPolicy,
    privatize,
    privatize_udf,
    register_udf,
)
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.sanitizer import TokenCounts
from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.fields import quoted
from tests.helpers.tables import RING_WORDS, by_id, spark_settings, texts
from tests.helpers.worlds import KEY, LABEL, release, sanitizer

pytestmark = pytest.mark.spark


MECHANISM = Laplace(epsilon=10.0)  # on the ring: a typical word moves by some places
EXACT = Laplace(epsilon=1e9)  # no word moves
KEYED = {"key": KEY, "name": LABEL}
ROWS = 120


@pytest.fixture(scope="module")
def values():
    """Columns of equal content: texts of 8 words, and their tokens, some null; some texts come again."""
    words = [None if i % 9 == 0 else text.split() for i, text in enumerate(texts(ROWS))]
    return {"text": texts(ROWS), "note": texts(ROWS), "words": words}


@pytest.fixture(scope="module")
def frame(spark, values):
    """Ids from 100 on, in 3 partitions."""
    table = pa.table({"id": list(range(100, 100 + ROWS)), **values})
    return from_arrow(spark, table).repartition(3, "id").cache()


def reference(ring, ids, values, column="text"):
    """What the Sanitizer gives without Spark, under the fixed key."""
    release = sanitizer(ring, MECHANISM, name=LABEL)
    released = release.sanitize(pa.array(values), pa.array(ids), column=column).values
    return dict(zip(ids, released.to_pylist(), strict=True))


def ours(ring, mechanism=MECHANISM, **options):
    given = {"id": "id", "text": "text", "keep": "id", "trust_id": True, **KEYED, **options}
    return lambda df: privatize(df, embedding=ring, mechanism=mechanism, **given)


def test_a_streaming_frame_is_refused_in_one_sentence(spark, ring):
    """Rejects Spark's "Queries with streaming sources must be executed ..." of a check; byzer-lang #1620."""
    frame = spark.readStream.format("rate").load()
    with pytest.raises(
        ConfigError, match=r"A streaming frame .*foreachBatch, or run dptext .*--incr"
    ):
        privatize(frame, embedding=ring, mechanism=MECHANISM, id="value", text="timestamp")


ODD_NAMES = [
    "a.b",
    "a b",
    "tick`s`",
    "東京 é",
    "`",
    "x.`y`.z",
    "(1+1)",
    "__dptext_row_id",
    "c0",
    "Ä;{}",
]


def test_kept_columns_of_every_type_come_through_unchanged(spark, ring):
    """And columns of any name are sanitized."""
    frame = spark.sql(
        "select 1 as `row.id ```, 'w00' as text, timestamp'2024-11-03 01:30:00' as moment, "
        "timestamp_ntz'2024-01-01 00:00:00' as wall, date'0001-01-01' as day, "
        "cast(1.5 as decimal(38, 10)) as price, map('a', 1) as pairs, struct(1 as x, 'w01' as y) as pair, "
        "array(struct(1 as q), null) as list, cast('ab' as binary) as bytes, cast(null as int) as nothing, "
        "-0.0D as zero, interval '1' day as span, cast(1 as tinyint) as tiny, 'Raw!' as `raw.``t`, "
        "null as void"
    )
    kept = [quoted(name) for name in frame.columns if name != "text"]
    odd = dict(zip(ODD_NAMES, map(F.lit, RING_WORDS), strict=False))
    given = {
        "id": "row.id `",
        "text": ODD_NAMES,
        "keep": [name for name in frame.columns if name != "text"],
    }
    out = ours(ring, EXACT, **given)(frame.withColumns(odd))
    assert_df_equality(out.select(*kept), frame.select(*kept), ignore_nullable=True)
    assert out.select(*map(quoted, ODD_NAMES)).first() == (*RING_WORDS[: len(ODD_NAMES)],)


SPANS = "array<struct<start: bigint, end: smallint, kind: string>>"
CHINESE = "W01, w02... (W03)\n\u559c\u6b22\u82f9\u679c"
POLICIES = [
    ({"policy": TextPolicy(oov="drop")}, "W01 unheard w02!", "w01 w02"),
    ({"policy": TextPolicy(oov="keep-unprotected")}, "W01 unheard w02!", "w01 unheard w02"),
    ({"policy": TextPolicy(protect="slots:spans")}, "W01 unheard w02!", "W01 unheard w02"),
    ({"policy": TextPolicy(mask_spans="spans")}, "W01 unheard w02!", "w01 [MASK] [MASK]"),
    (
        {"policy": TextPolicy(layout="keep", tokenizer="icu")},
        CHINESE,
        "W01, w02... (W03)\n[MASK] [MASK]",
    ),
    ({"release_words": 2}, "w01 w63", "w01 w00"),
]


def test_policies_reach_the_workers(spark, ring):
    """Rejects options that only the driver has heard of, in frames and in UDFs."""
    outs, wanted = [], []
    for options, text, expected in POLICIES:
        frame = spark.createDataFrame(
            [(1, text, [(12, 15, "x")])], f"id int, text string, spans {SPANS}"
        )
        outs.append(ours(ring, EXACT, keep=(), **options)(frame))
        wanted.append((expected,))
        given = {"embedding": ring, "mechanism": EXACT, "column": "text", **options}
        if "policy" in options and options["policy"].spans_column is not None:
            with pytest.raises(ConfigError, match=r"sees one column.* Got: spans in column spans"):
                privatize_udf(**given)
        else:
            outs.append(frame.select(privatize_udf(**given)("id", "text")))
            wanted.append((expected,))
    assert reduce(DataFrame.union, outs).collect() == wanted


COLUMNS = ("text", "note", "words")


def test_the_words_are_the_sanitizers_however_spark_computes_them(frame, ring, values):
    """Rejects noise that the contents of two columns, or of rows in two partitions, share."""
    sanitize, ids = (
        ours(ring, text=["note", "text"], tokens=["words"]),
        list(range(100, 100 + ROWS)),
    )
    expected = [reference(ring, ids, values[name], name) for name in COLUMNS]
    with spark_settings(frame.sparkSession, execution_arrow_maxRecordsPerBatch=1):
        alone = sanitize(frame.repartition(1)).collect()
    out = sanitize(frame.repartition(7))  # computed twice, in other partitions
    twice = out.join(out.select("id", F.col("text").alias("again")).repartition(3), "id").collect()
    assert all(row["text"] == row["again"] for row in twice)
    for rows in (alone, twice):
        found = {row["id"]: tuple(row[name] for name in COLUMNS) for row in rows}
        assert found == {row: tuple(each[row] for each in expected) for row in ids}


def test_a_fresh_key_is_another_for_each_call(frame, ring):
    """Two releases of a row of 8 words would hardly ever agree by chance."""
    fresh, few = ours(ring, Laplace(epsilon=1e-3), key=None, name=""), frame.where("id < 103")
    assert not by_id(fresh(few)).items() & by_id(fresh(few)).items()


def test_ids_that_do_not_name_the_rows_are_refused(spark, ring):
    """Unchecked, equal rows under one id share their noise: by chance two agree with 64^-12."""
    tiny = Laplace(epsilon=1e-3)
    for ids, fault in (
        ([1, 1, 2], "0 nulls and 1 duplicates"),
        ([1, None, None], "2 nulls and 0 duplicates"),
    ):
        rows = [(i, " ".join(RING_WORDS[:12])) for i in ids]
        frame = spark.createDataFrame(rows, "id int, text string").coalesce(1)
        with pytest.raises(InputError, match=f"{fault} in 3 rows"):
            ours(ring, tiny, trust_id=False)(frame)
        trusted = ours(ring, tiny)(frame)
        if None in ids:
            with pytest.raises(PythonException, match="Row ids must not be null"):
                trusted.collect()
        else:
            first, second, other = [row["text"] for row in trusted.collect()]
            assert first == second != other


def test_what_is_wrong_is_refused_before_the_first_action(frame, ring, ball):
    unread = frame.where("raise_error('read') is null")
    for options, message in (
        ({"text": "nope"}, "Got: nope"),
        ({"embedding": ball}, "Got: geometry poincare"),
        ({"release_words": 65}, "Got: 65"),
        ({"policy": "drop"}, r"TextPolicy\(oov='drop'\); got str"),
    ):
        given = {"id": "id", "text": "text", "embedding": ring, "mechanism": MECHANISM}
        with pytest.raises((ConfigError, InputError), match=message):
            privatize(unread, **given | options)


def test_a_key_needs_the_name_of_what_is_released(frame, ring):
    """Rejects frames and UDFs of two tables whose equal ids and texts come out equal unasked."""
    given = {"embedding": ring, "mechanism": EXACT, "key": KEY}
    with pytest.raises(ConfigError, match=r"needs the name of this release.*Got: none"):
        privatize(frame, id="id", text="text", **given)
    with pytest.raises(ConfigError, match=r"needs the name of this release.*Got: none"):
        register_udf(frame.sparkSession, "unnamed", column="text", **given)


def test_no_plan_shows_a_key(frame, ring):
    canary = NoiseKey(bytes.fromhex("c0ffee" * 10 + "c0ff"))
    out = ours(ring, key=canary)(frame)
    execution, modes = (
        out._jdf.queryExecution(),
        out.sparkSession._jvm.org.apache.spark.sql.execution,
    )
    plans = [execution.toString(), execution.logical().treeString(), repr(out)]
    plans += [
        execution.explainString(modes.ExplainMode.fromString(m)) for m in ("extended", "codegen")
    ]
    derived = release(MECHANISM, ring, key=canary, salt=LABEL).key.secret
    for secret in (canary.secret, derived):
        for shown in (secret.hex(), repr(secret)[2:-1], str(list(secret))[1:-1]):
            assert not any(re.search(re.escape(shown), plan, re.IGNORECASE) for plan in plans)
    assert all("MapInArrow" in plan for plan in plans[:2])


@pytest.mark.versions
def test_the_udf_gives_the_words_of_privatize(frame, ring):
    """In frames and in SQL; the optimizer evaluates a UDF again where its output is filtered."""
    spark = frame.sparkSession
    extra = spark.createDataFrame([(1, None), (2, ""), (3, "W05 zzz")], "id long, text string")
    texts = frame.select("id", "text").union(extra)
    expected = by_id(ours(ring)(texts))
    assert (expected[1], expected[2], expected[3][-6:]) == (None, "", "[MASK]")
    words = {"embedding": ring.path, "mechanism": MECHANISM, "column": "text", **KEYED}
    out = texts.select("id", privatize_udf(**words)("id", "text").alias("text"))
    below = {row: text for row, text in expected.items() if text is not None and text < "w32"}
    assert by_id(out.filter("text < 'w32'")) == below
    register_udf(spark, "clean", **words)
    texts.createOrReplaceTempView("texts")
    try:
        assert by_id(spark.sql("SELECT id, clean(id, text) AS text FROM texts")) == expected
    finally:
        spark.catalog.dropTempView("texts")
        spark.sql("DROP TEMPORARY FUNCTION clean")


def test_a_udf_takes_the_id_and_the_text(frame, ring):
    """Rejects "not enough values to unpack" of a worker, and a text that is sanitized as its id."""
    spark = frame.sparkSession
    words = {"embedding": ring.path, "mechanism": "laplace", "epsilon": 10.0, "column": "text"}
    for columns in (("text",), ("id", "text", "note")):
        with pytest.raises(PythonException, match=f"Got: {len(columns)}. Write sanitize"):
            frame.select(privatize_udf(**words)(*columns)).collect()
    register_udf(spark, "unnamed", **words)
    frame.createOrReplaceTempView("texts")
    try:
        with pytest.raises(PythonException, match=r"the row's id and its text. Got: 1"):
            spark.sql("SELECT unnamed(text) FROM texts").collect()
    finally:
        spark.catalog.dropTempView("texts")
        spark.sql("DROP TEMPORARY FUNCTION unnamed")


def test_arguments_are_objects_or_names(frame, ring, key_file):
    """Rejects a name that is another mechanism, and a key that is not the file's."""
    expected = by_id(ours(ring)(frame))
    named = {"mechanism": "laplace", "epsilon": 10.0, "key": str(key_file), "name": LABEL}
    given = {"id": "id", "text": "text", "keep": ["id"], "trust_id": True}
    assert by_id(privatize(frame, embedding=str(ring.path), **named, **given)) == expected
    with pytest.raises(ConfigError, match=r"text must be the name .* list of names; got pyspark"):
        privatize(frame, embedding=ring, **named, **given | {"text": frame["text"]})
    with pytest.raises(ConfigError, match=r"counts must be a ReleaseCounts; got bool"):
        privatize(frame, embedding=ring, **named, **given, counts=True)
    budgets = [RowBudget(loss=30.0, within=ring_nearest(ring)), 30, "30"]
    outs = [by_id(ours(ring, row_budget=budget)(frame)) for budget in budgets]
    assert outs[0] == outs[1] == outs[2] != expected


def ring_nearest(ring):
    """How far a typical word's nearest one is."""
    return MECHANISM.guarantee(ring).distances.nearest


def test_the_counts_are_known_after_the_first_action(spark, ring):
    rows = [(1, "W05 zzz w06", ["w00"]), (2, None, None), (3, "", [""])]
    frame = spark.createDataFrame(rows, "id int, text string, words array<string>")
    counts = ReleaseCounts()
    options = {"embedding": ring, "mechanism": EXACT, "id": "id", "text": "text"}
    out = privatize(frame, **options, tokens="words", policy=TextPolicy(oov="drop"), counts=counts)
    assert repr(counts).startswith("No counts yet")
    out.collect()
    assert repr(counts) == counts.describe() and "<p>Rows: 3<br>" in counts._repr_html_()
    assert counts.rows == 3
    none = dict.fromkeys(TokenCounts._fields, 0)
    text = {"tokens": 3, "unchanged": 2, "out_of_vocabulary": 1, "dropped": 1}
    assert counts.columns == {
        "text": TokenCounts(**none | text),
        "words": TokenCounts(**none | {"tokens": 2, "unchanged": 1, "blank": 1}),
    }
    assert counts.describe().splitlines() == [
        "Rows: 3",
        "text: 3 words: 2 unchanged by the noise (66.7%), 1 out of vocabulary (drop) (33.3%)",
        "words: 2 words: 1 unchanged by the noise (50.0%), 1 blank (50.0%)",
    ]
    with pytest.raises(ConfigError, match="belong to another call"):
        privatize(frame, **options, counts=counts)
    with pytest.raises(ConfigError, match="Nothing is counted yet"):
        _ = ReleaseCounts().rows


def test_a_notebook_shows_the_guarantee(frame, ring, monkeypatch, capsys):
    shown = ours(ring, policy=TextPolicy(oov="keep-unprotected"))
    shown(frame)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    shown(frame)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    ours(ring, show=False)(frame)
    assert capsys.readouterr().out == ""
    shown(frame)
    said = capsys.readouterr().out
    assert said.startswith("Release of text\nGuarantee\nlaplace, epsilon 10: ")
    assert "WITHOUT ANY PROTECTION" in said and "protection: id" in said


def test_empty_partitions(frame, ring):
    out = ours(ring, trust_id=False)(frame.filter("id < 103").repartition(7, "id"))
    assert out.dtypes == [("id", "bigint"), ("text", "string")]
    assert by_id(out) == reference(ring, [100, 101, 102], texts(3))
    assert ours(ring, trust_id=False)(frame.filter("id < 0")).isEmpty()
