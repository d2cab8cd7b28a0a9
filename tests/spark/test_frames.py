"""privatize(df, ...): the columns asked for, each row once, the same words however Spark computes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark import (
    Embedding,
    Laplace,
    Mahalanobis,
    NoiseKey,
    Privatizer,
    ReleaseCounts,
    TextPolicy,
    privatize,
    privatize_udf,
    register_udf,
)
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.privatizer import TokenCounts
from tests.helpers.tables import RING_WORDS, agreement, by_id, spark_settings, texts
from tests.helpers.worlds import KEY, LABEL, release

pytestmark = pytest.mark.spark

Sanitize = Callable[[DataFrame], DataFrame]

MECHANISM = Laplace(epsilon=10.0)  # on the ring: a typical word moves by some places
TINY = Laplace(epsilon=1e-3)  # the output says next to nothing about the input
EXACT = Laplace(epsilon=1e9)  # no word moves
ROWS = 240
FALSE_ALARM = 1e-9


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Ids from 100 on, texts of 8 words, in 3 partitions."""
    table = pa.table({"id": list(range(100, 100 + ROWS)), "text": texts(ROWS)})
    return spark.createDataFrame(table).repartition(3, "id")


def reference(
    ring: Embedding,
    ids: list[Any],
    values: list[Any],
    column: str = "text",
    mechanism: Laplace | Mahalanobis = MECHANISM,
    **policy: str,
) -> dict[Any, Any]:
    """What the Privatizer gives without Spark, under the fixed key."""
    privatizer = Privatizer(
        embedding=ring,
        mechanism=mechanism,
        noise=release(mechanism, ring, salt=LABEL),
        policy=TextPolicy(**policy),
    )
    released = privatizer.sanitize(pa.array(values), pa.array(ids), column=column).values
    return dict(zip(ids, released.to_pylist(), strict=True))


# Columns, types, rows


def test_the_output_has_the_named_columns_in_the_frames_order(spark: SparkSession, ring: Embedding) -> None:
    frame = spark.createDataFrame(
        [(["w01"], 1.5, "w02", "secret", 7, "w03")],
        "words array<string>, score double, note string, extra string, id int, text string",
    )
    out = privatize(
        frame,
        embedding=ring.path,
        mechanism=EXACT,
        id="id",
        text=["text", "note"],
        tokens="words",
        keep=["id", "score"],
    )
    wanted = frame.select("words", "score", "note", "id", "text")
    assert_df_equality(out, wanted, ignore_nullable=True)


def test_nulls_empties_and_row_count_are_kept(spark: SparkSession, ring: Embedding) -> None:
    schema = "id int, text string, words array<string>"
    rows = [
        (1, None, None),
        (2, "", []),
        (3, " \t!? \U0001f600", [None]),
        (4, "W01, w02... unheard-of", ["", None, "W01", "unheard-of"]),
        (5, "w63", ["w63", "w63"]),
    ]
    expected = [
        (1, None, None),
        (2, "", []),
        (3, "", [None]),
        (4, "w01 w02 [MASK] [MASK]", ["", None, "w01", "[MASK]"]),
        (5, "w63", ["w63", "w63"]),
    ]
    out = privatize(
        spark.createDataFrame(rows, schema).repartition(3),
        embedding=ring,
        mechanism=EXACT,
        id="id",
        text="text",
        tokens="words",
        keep="id",
    )
    assert_df_equality(
        out, spark.createDataFrame(expected, schema), ignore_nullable=True, ignore_row_order=True
    )


def test_kept_columns_of_every_type_come_through_unchanged(spark: SparkSession, ring: Embedding) -> None:
    frame = spark.sql(
        "select 1 as id, 'w00' as text, timestamp'2024-11-03 01:30:00' as moment, "
        "timestamp_ntz'2024-01-01 00:00:00' as wall, date'0001-01-01' as day, "
        "cast(1.5 as decimal(38, 10)) as price, map('a', 1) as pairs, struct(1 as x, 'w01' as y) as pair, "
        "array(struct(1 as q), null) as list, cast('ab' as binary) as bytes, cast(null as int) as nothing, "
        "-0.0D as zero, interval '1' day as span, cast(1 as tinyint) as tiny, 'Raw!' as raw, null as void"
    )
    kept = [name for name in frame.columns if name != "text"]
    out = privatize(frame, embedding=ring, mechanism=MECHANISM, id="id", text="text", keep=kept)
    assert_df_equality(out.select(kept), frame.select(kept), ignore_nullable=True)


def test_several_columns_get_the_words_of_the_privatizer_without_spark(
    spark: SparkSession, ring: Embedding
) -> None:
    ids = [f"row-{i}" for i in range(60)]
    words = [None if i % 9 == 0 else text.split() for i, text in enumerate(texts(60))]
    frame = spark.createDataFrame(
        pa.table({"id": ids, "a": texts(60), "b": texts(60), "words": words, "more": words})
    )
    out = privatize(
        frame,
        embedding=ring,
        mechanism=MECHANISM,
        id="id",
        text=["b", "a"],
        tokens=["words", "more"],
        keep="id",
        key=KEY,
        salt=LABEL,
    ).repartition(4)
    for column, values in {"a": texts(60), "b": texts(60), "words": words, "more": words}.items():
        assert by_id(out, column) == reference(ring, ids, values, column)
    assert by_id(out, "a") != by_id(out, "b")  # equal content, other column: other noise


SPANS = "array<struct<start: bigint, end: smallint, kind: string>>"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"oov": "mask"}, "w01 [MASK] w02"),
        ({"oov": "drop"}, "w01 w02"),
        ({"oov": "keep-unprotected"}, "w01 unheard w02"),
        ({"protect": "slots:spans"}, "W01 unheard w02"),
        ({"protect": "slots:none"}, "w01 [MASK] w02"),
    ],
)
def test_policies_reach_the_workers(
    spark: SparkSession, ring: Embedding, options: dict[str, str], expected: str
) -> None:
    row = (1, "W01 unheard w02!", [(12, 15, "x")], None)
    frame = spark.createDataFrame([row], f"id int, text string, spans {SPANS}, none {SPANS}")
    out = privatize(frame, embedding=ring, mechanism=EXACT, id="id", text="text", **options)
    assert out.columns == ["text"]
    assert out.first() == (expected,)


def test_only_release_words_come_out(frame: DataFrame, ring: Embedding) -> None:
    out = privatize(
        frame,
        embedding=ring,
        mechanism=MECHANISM,
        id="id",
        text="text",
        release_words=5,
        keep="id",
        key=KEY,
        salt=LABEL,
    )
    found = {word for text in by_id(out).values() for word in text.split()}
    assert found == set(RING_WORDS[:5])


# Recomputation


def ours(ring: Embedding, mechanism: Laplace = MECHANISM) -> Sanitize:
    return lambda df: privatize(
        df,
        embedding=ring,
        mechanism=mechanism,
        id="id",
        text="text",
        keep="id",
        key=KEY,
        salt=LABEL,
        trust_id=True,
    )


def random_noise(df: DataFrame) -> DataFrame:
    """Mutant: ordinary random draws."""
    return _drawn(df, None)


def seeded_noise(df: DataFrame) -> DataFrame:
    """Mutant: a generator that every partition seeds anew."""
    return _drawn(df, 7)


def _drawn(df: DataFrame, seed: int | None) -> DataFrame:
    vocabulary = np.array(RING_WORDS)

    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(seed)
        for batch in batches:
            rows = [" ".join(rng.choice(vocabulary, len(t.split()))) for t in batch["text"].to_pylist()]
            yield pa.RecordBatch.from_arrays([batch["id"], pa.array(rows, pa.string())], names=["id", "text"])

    return df.select("id", "text").mapInArrow(draw, "id long, text string")


def count_first(sanitize: Sanitize, df: DataFrame) -> dict[Any, str]:
    out = sanitize(df)
    assert out.count() == ROWS
    return by_id(out)


def cached(sanitize: Sanitize, df: DataFrame) -> dict[Any, str]:
    out = sanitize(df).cache()
    try:
        return by_id(out)
    finally:
        out.unpersist()


def repartitioned(count: int) -> Callable[[Sanitize, DataFrame], dict[Any, str]]:
    return lambda sanitize, df: by_id(sanitize(df.repartition(count)))


def batches_of(records: int) -> Callable[[Sanitize, DataFrame], dict[Any, str]]:
    def way(sanitize: Sanitize, df: DataFrame) -> dict[Any, str]:
        with spark_settings(df.sparkSession, execution_arrow_maxRecordsPerBatch=records):
            return by_id(sanitize(df))

    return way


def filtered_on_the_output(sanitize: Sanitize, df: DataFrame) -> dict[Any, str]:
    """Rows that a filter on the released words lets through still fit it, and none is lost."""
    out = sanitize(df)
    low, high = out.filter("text < 'w32'"), out.filter("text >= 'w32'")
    below, above = by_id(low), by_id(high)
    assert below
    assert above
    assert max(below.values()) < "w32" <= min(above.values())
    assert not set(below) & set(above)
    return below | above


def union_of_two_branches(sanitize: Sanitize, df: DataFrame) -> dict[Any, str]:
    out = sanitize(df)
    both = out.filter("id % 2 = 0").union(out.orderBy(F.desc("id"))).distinct()
    rows = both.collect()
    assert len(rows) == ROWS  # both branches agree, or more than one text would stand under an id
    return {row["id"]: row["text"] for row in rows}


def joined_with_itself(sanitize: Sanitize, df: DataFrame) -> dict[Any, str]:
    out = sanitize(df)
    other = out.select("id", F.col("text").alias("again")).repartition(3)
    rows = out.join(other, "id").collect()
    assert all(row["text"] == row["again"] for row in rows)
    return {row["id"]: row["text"] for row in rows}


WAYS: dict[str, Callable[[Sanitize, DataFrame], dict[Any, str]]] = {
    "count first": count_first,
    "cached": cached,
    "1 partition": repartitioned(1),
    "2 partitions": repartitioned(2),
    "7 partitions": repartitioned(7),
    "batches of 1": batches_of(1),
    "batches of 10,000": batches_of(10_000),
    "filter on the output": filtered_on_the_output,
    "union of two branches": union_of_two_branches,
    "joined with itself": joined_with_itself,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_words_do_not_depend_on_how_spark_computes_them(
    frame: DataFrame, ring: Embedding, way: str
) -> None:
    expected = reference(ring, list(range(100, 100 + ROWS)), texts(ROWS))
    assert WAYS[way](ours(ring), frame) == expected


@pytest.mark.parametrize("way", ["count first", "filter on the output", "joined with itself"])
def test_the_recompute_checks_catch_ordinary_random_noise(frame: DataFrame, way: str) -> None:
    with pytest.raises(AssertionError):
        assert WAYS[way](random_noise, frame) == by_id(random_noise(frame))


def test_the_recompute_checks_catch_generators_seeded_per_partition(frame: DataFrame) -> None:
    with pytest.raises(AssertionError):
        assert WAYS["7 partitions"](seeded_noise, frame) == by_id(seeded_noise(frame))


def test_the_number_of_blas_threads_does_not_matter(demo_bundle: Embedding) -> None:
    # The search is settled in double precision, so the last bits of a threaded sgemm do not decide.
    words = demo_bundle.words.to_pylist()
    rows = [" ".join(words[row * 40 : row * 40 + 40]) for row in range(100)]
    privatizer = Privatizer(
        embedding=demo_bundle, mechanism=MECHANISM, noise=release(MECHANISM, demo_bundle, salt=LABEL)
    )
    released = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            whole = privatizer.sanitize(pa.array(rows), pa.array(range(100)), column="text").values
        one_by_one = [
            privatizer.sanitize(pa.array([row]), pa.array([i]), column="text").values[0].as_py()
            for i, row in enumerate(rows[:5])
        ]
        released.append((whole.to_pylist(), one_by_one))
    assert released[0] == released[1]
    assert released[0][0][:5] == released[0][1]
    assert released[0][0] != rows


# Noise is shared by nothing


def share_noise(left: dict[Any, str], right: dict[Any, str]) -> bool:
    """Say whether two releases at a tiny epsilon agree more often than independent ones.

    Independent ring words agree with chance 1/64; the bound is their exact quantile at 1 - 1e-9.
    """
    equal, words = agreement(left, right)
    return equal > stats.binom.isf(FALSE_ALARM, words, 1 / len(RING_WORDS))


@pytest.fixture(scope="module")
def tiny(frame: DataFrame, ring: Embedding) -> dict[Any, str]:
    return by_id(ours(ring, TINY)(frame))


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": Laplace(epsilon=2e-3)},
        {"mechanism": Mahalanobis(epsilon=1e-3, lambda_=0.5)},
        {"salt": "other"},
        {"key": NoiseKey(bytes(range(1, 33)))},
    ],
    ids=["epsilon", "mechanism", "salt", "key"],
)
def test_another_release_shares_no_noise(
    frame: DataFrame, ring: Embedding, tiny: dict[Any, str], change: dict[str, Any]
) -> None:
    options = {"mechanism": TINY, "key": KEY, "salt": LABEL} | change
    out = privatize(frame, embedding=ring, id="id", text="text", keep="id", **options)
    assert not share_noise(by_id(out), tiny)


@pytest.mark.parametrize(
    ("column", "change"),
    [("text", "id + 1000"), ("note", "id")],
    ids=["ids", "column"],
)
def test_other_ids_and_columns_share_no_noise(
    frame: DataFrame, ring: Embedding, tiny: dict[Any, str], column: str, change: str
) -> None:
    changed = frame.select(F.expr(change).alias("row"), F.col("text").alias(column), "id")
    out = privatize(
        changed, embedding=ring, mechanism=TINY, id="row", text=column, keep="id", key=KEY, salt=LABEL
    )
    assert not share_noise(by_id(out, column), tiny)


def test_other_content_under_the_same_id_shares_no_noise(
    frame: DataFrame, ring: Embedding, tiny: dict[Any, str]
) -> None:
    changed = frame.withColumn("text", F.concat("text", F.lit("!")))  # the same words, another row
    assert not share_noise(by_id(ours(ring, TINY)(changed)), tiny)


def test_a_fresh_key_for_every_call(frame: DataFrame, ring: Embedding) -> None:
    first, second = (
        by_id(privatize(frame, embedding=ring, mechanism=TINY, id="id", text="text", keep="id")) for _ in "12"
    )
    assert not share_noise(first, second)


def test_the_check_catches_noise_without_epsilon_in_its_context(ring: Embedding) -> None:
    ids, rows = list(range(ROWS)), texts(ROWS)
    released = [
        Privatizer(embedding=ring, mechanism=mechanism, noise=release(TINY, ring, salt=LABEL))
        .sanitize(pa.array(rows), pa.array(ids), column="text")
        .values.to_pylist()
        for mechanism in (TINY, Laplace(epsilon=2e-3))
    ]
    assert share_noise(*(dict(zip(ids, texts, strict=True)) for texts in released))


def rows_repeat(sanitize: Sanitize, spark: SparkSession) -> bool:
    """Say whether equal texts under different ids come out equal anywhere.

    Two rows of 12 words agree by chance with 64^-12; over all pairs of 240 rows: 6e-18.
    """
    table = pa.table({"id": list(range(ROWS)), "text": [" ".join(RING_WORDS[:12])] * ROWS})
    released = by_id(sanitize(spark.createDataFrame(table).repartition(4, "id")))
    return len(set(released.values())) < ROWS


def test_no_two_rows_share_noise(spark: SparkSession, ring: Embedding) -> None:
    assert not rows_repeat(ours(ring, TINY), spark)


def test_the_check_catches_generators_that_repeat_across_partitions(spark: SparkSession) -> None:
    assert rows_repeat(seeded_noise, spark)
    assert not rows_repeat(random_noise, spark)


# Ids and columns are checked


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([1, 1, 2], "0 nulls and 1 duplicates in 3 rows"),
        ([1, None, None], "2 nulls and 0 duplicates in 3 rows"),
    ],
)
def test_ids_that_do_not_name_the_rows_are_refused(
    spark: SparkSession, ring: Embedding, ids: list[int | None], found: str
) -> None:
    # Two releases of 12 words agree by chance with 64^-12.
    frame = spark.createDataFrame([(i, " ".join(RING_WORDS[:12])) for i in ids], "id int, text string")
    options = {"embedding": ring, "mechanism": TINY, "id": "id", "text": "text"}
    with pytest.raises(InputError, match=found):
        privatize(frame, **options)
    trusted = privatize(frame, **options, trust_id=True)
    if None in ids:
        with pytest.raises(PythonException, match="Row ids must not be null"):
            trusted.collect()
    else:
        first, second, other = [row["text"] for row in trusted.collect()]
        assert first == second  # what the check is for: equal rows under one id share their noise
        assert other != first


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "string"])
def test_an_ids_width_does_not_matter(frame: DataFrame, ring: Embedding, kind: str) -> None:
    few = frame.filter("id < 120")
    out = ours(ring)(few.withColumn("id", F.col("id").cast(kind)))
    assert {int(i): text for i, text in by_id(out).items()} == by_id(ours(ring)(few))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"text": ["text", "nope"], "keep": "gone", "id": "idd"},
            r"id, text, words, real.*Got: nope, gone, idd",
        ),
        ({"text": "text", "protect": "slots:marks"}, "Got: marks"),
        ({"text": "text", "protect": "slots:words"}, "Got: words, .*Give positions, not texts"),
        ({"text": "text", "protect": "slots:numbers"}, "cannot hold the positions of slots.*Got: numbers"),
        ({"text": "text", "protect": "slots:text"}, "cannot hold the positions of slots.*Got: text, string"),
        ({"text": "text", "tokens": "words", "protect": "slots:text"}, "in one column.*Got: text, words"),
        ({"text": ["words", "id"]}, r"words \(array<string>\), not string; id \(int\), not string"),
        ({"tokens": ["text", "numbers"]}, r"text \(string\), not array<string>; numbers \(array<int>\), not"),
        ({"text": "text", "id": "real"}, r"real \(double\), not an integer or string id"),
        ({"text": "text", "keep": "text"}, "both sanitized and kept raw.*Got: text"),
        ({"text": ["text", "text"]}, "named twice.*Got: text"),
        ({"keep": "id"}, "No column is to be sanitized"),
        ({"text": "Text"}, "Got: Text"),
    ],
)
def test_wrong_columns_are_refused_at_once(
    spark: SparkSession, ring: Embedding, options: dict[str, Any], message: str
) -> None:
    frame = spark.createDataFrame(
        [], "id int, text string, words array<string>, real double, numbers array<int>"
    )
    with pytest.raises(InputError, match=message):
        privatize(frame, embedding=ring, mechanism=MECHANISM, **{"id": "id", **options})


def test_wrong_parameters_are_refused_at_once(frame: DataFrame, ring: Embedding, ball: Embedding) -> None:
    options: dict[str, Any] = {"embedding": ring, "mechanism": MECHANISM, "id": "id", "text": "text"}
    for wrong, message in [
        ({"embedding": ball}, "Got: geometry poincare"),
        ({"release_words": 65}, "Got: 65"),
        ({"oov": "ignore"}, "Got: 'ignore'"),
        ({"protect": "some"}, "Got: 'some'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            privatize(frame, **options | wrong)


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
    "select",
    "Ä;{}",
]


def test_odd_column_names(spark: SparkSession, ring: Embedding) -> None:
    names = ["row.id `", *ODD_NAMES, "kept.raw`"]
    row = (7, *RING_WORDS[: len(ODD_NAMES)], "as it is")
    frame = spark.createDataFrame([row], _schema(names))
    out = privatize(
        frame,
        embedding=ring,
        mechanism=EXACT,
        id=names[0],
        text=ODD_NAMES,
        keep=[names[-1]],
        key=KEY,
        salt=LABEL,
    )
    assert out.columns == names[1:]
    assert out.collect()[0] == row[1:]


def _schema(names: list[str]) -> Any:
    from pyspark.sql.types import IntegerType, StringType, StructType

    schema = StructType()
    for name in names:
        schema = schema.add(name, IntegerType() if name.startswith("row") else StringType())
    return schema


def test_names_that_differ_in_capitals_only(spark: SparkSession, ring: Embedding) -> None:
    schema = _schema(["row", "text", "TEXT", "note"])
    frame = spark.createDataFrame([(1, "w00", "w01", "w02")], schema)
    options: dict[str, Any] = {"embedding": ring, "mechanism": EXACT, "id": "row"}
    with pytest.raises(InputError, match=r"Got: text\. .*spark.sql.caseSensitive"):
        privatize(frame, text="text", **options)
    assert privatize(frame, text="note", **options).collect() == [("w02",)]  # the others are not in the way
    with spark_settings(spark, caseSensitive="true"):
        out = privatize(frame, text=["text", "TEXT"], **options)
        assert out.columns == ["text", "TEXT"]
        assert out.collect() == [("w00", "w01")]
        twice = spark.createDataFrame([(1, "w00", "w01")], _schema(["row", "text", "text"]))
        with pytest.raises(InputError, match="Several columns"):
            privatize(twice, text="text", **options)


# A label for a key


def test_a_key_needs_the_name_of_what_is_released(spark: SparkSession, ring: Embedding) -> None:
    """Rejects frames and UDFs of two tables whose equal ids and texts come out equal unasked."""
    frame = spark.createDataFrame([(1, "w00")], "id int, text string")
    given = {"embedding": ring, "mechanism": TINY, "key": KEY}
    for make in (
        lambda salt: privatize(frame, id="id", text="text", **given, **salt),
        lambda salt: privatize_udf(column="text", **given, **salt),
        lambda salt: register_udf(spark, "unnamed", column="text", **given, **salt),
    ):
        for salt in ({}, {"salt": ""}):
            with pytest.raises(
                ConfigError, match=r"needs a label of what is released, --salt LABEL.*Got: none"
            ):
                make(salt)
    assert privatize(frame, id="id", text="text", embedding=ring, mechanism=EXACT).first() == ("w00",)


# The UDF


def test_the_udf_gives_the_words_of_privatize(frame: DataFrame, ring: Embedding) -> None:
    expected = by_id(ours(ring)(frame))
    udf = privatize_udf(embedding=ring, mechanism=MECHANISM, column="text", key=KEY, salt=LABEL)
    out = frame.select("id", udf("id", "text").alias("text"))
    assert by_id(out) == expected
    # The optimizer evaluates a UDF again where its output is filtered: the words must not change.
    kept = by_id(out.filter("text < 'w32'"))
    assert kept == {i: text for i, text in expected.items() if text < "w32"}


def test_layout_and_tokenizer_reach_the_workers(spark: SparkSession, ring: Embedding) -> None:
    """Rejects options that only the driver has heard of, in frames and in UDFs."""
    policy = {"layout": "keep", "tokenizer": "icu"}
    rows = {1: "W01, w02... (W03)\n\u559c\u6b22\u82f9\u679c", 2: None, 3: "..."}
    frame = spark.createDataFrame([*rows.items()], "id int, text string")
    expected = reference(ring, [*rows], [*rows.values()], **policy)
    assert expected[1].endswith(")\n[MASK] [MASK]")
    given = {"embedding": ring, "mechanism": MECHANISM, "key": KEY, "salt": LABEL, **policy}
    assert by_id(privatize(frame, id="id", text="text", keep="id", **given)) == expected
    udf = privatize_udf(column="text", **given)
    assert by_id(frame.select("id", udf("id", "text").alias("text"))) == expected


def test_the_udf_keeps_nulls_and_masks(spark: SparkSession, ring: Embedding) -> None:
    udf = privatize_udf(embedding=ring, mechanism=EXACT, column="text")
    frame = spark.createDataFrame([("a", None), ("b", ""), ("c", "W05 zzz")], "id string, text string")
    out = frame.select("id", udf("id", "text").alias("text"))
    expected = spark.createDataFrame([("a", None), ("b", ""), ("c", "w05 [MASK]")], "id string, text string")
    assert_df_equality(out, expected, ignore_nullable=True, ignore_row_order=True)


def test_the_udf_refuses_slots(spark: SparkSession, ring: Embedding) -> None:
    with pytest.raises(ConfigError, match="sees no slots"):
        privatize_udf(embedding=ring, mechanism=MECHANISM, column="text", protect="slots:s")


def test_sql_calls_the_registered_udf(frame: DataFrame, ring: Embedding) -> None:
    expected = by_id(ours(ring)(frame))
    spark = frame.sparkSession
    register_udf(spark, "clean", embedding=ring.path, mechanism=MECHANISM, column="text", key=KEY, salt=LABEL)
    frame.createOrReplaceTempView("texts")
    try:
        assert by_id(spark.sql("SELECT id, clean(id, text) AS text FROM texts")) == expected
    finally:
        spark.catalog.dropTempView("texts")
        spark.sql("DROP TEMPORARY FUNCTION clean")


def test_a_spark_without_arrow_udfs_is_named(
    spark: SparkSession, ring: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pyspark.sql.functions.arrow_udf")
    for make in (privatize_udf, lambda **options: register_udf(spark, "clean", **options)):
        with pytest.raises(ConfigError, match=r"Allowed: Spark 4\.1 or newer\. Got: \d"):
            make(embedding=ring, mechanism=MECHANISM, column="text")


# Counts and guarantee


def test_the_counts_are_known_after_the_first_action(spark: SparkSession, ring: Embedding) -> None:
    rows = [(1, "W05 zzz w06", ["w00"]), (2, None, None), (3, "", [""])]
    frame = spark.createDataFrame(rows, "id int, text string, words array<string>")
    counts = ReleaseCounts()
    options: dict[str, Any] = {"embedding": ring, "mechanism": EXACT, "id": "id", "text": "text"}
    out = privatize(frame, **options, tokens="words", oov="drop", counts=counts)
    assert repr(counts) == "ReleaseCounts(of text, words)"  # rejects a repr that waits for an action
    out.collect()
    assert counts.rows == 3
    none = dict.fromkeys(TokenCounts.names(), 0)
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
    with pytest.raises(ConfigError, match="belong to no release"):
        _ = ReleaseCounts().rows


def test_a_notebook_shows_each_guarantee_once(
    frame: DataFrame, ring: Embedding, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"embedding": ring, "mechanism": Laplace(epsilon=7.5), "id": "id"}
    privatize(frame, text="text", **options)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    privatize(frame, text="text", **options, show=False)
    assert capsys.readouterr().out == ""
    for _ in range(2):
        privatize(frame, text="text", **options)
    privatize(frame, text="text", **options, keep="id", oov="keep-unprotected")
    before, first, second = capsys.readouterr().out.split("Release of text\n")
    assert not before and first.startswith("Guarantee\nlaplace, epsilon 7.5: whoever")
    assert "are not in the output" in first
    assert "WITHOUT ANY PROTECTION" in second and "protection: id" in second
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    privatize(frame, text="text", **options, salt="imported, but no notebook", release_words=9)
    assert capsys.readouterr().out == ""


# Sizes


def test_an_empty_frame_stays_empty(frame: DataFrame, ring: Embedding) -> None:
    out = ours(ring)(frame.filter("id < 0"))
    assert out.dtypes == [("id", "bigint"), ("text", "string")]
    assert out.collect() == []
    assert (
        privatize(frame.filter("id < 0"), embedding=ring, mechanism=MECHANISM, id="id", text="text").collect()
        == []
    )


def test_partitions_without_rows(frame: DataFrame, ring: Embedding) -> None:
    few = frame.filter("id < 103").repartition(7, "id")
    assert few.rdd.getNumPartitions() == 7
    expected = reference(ring, [100, 101, 102], texts(3))
    assert by_id(ours(ring)(few)) == expected


def test_a_row_of_a_million_words(spark: SparkSession, ring: Embedding) -> None:
    words = 1_000_000
    line = " ".join(RING_WORDS * (words // len(RING_WORDS)))
    table = pa.table({"id": [1, 2, 3], "text": ["w00", line, None]})
    out = by_id(ours(ring, TINY)(spark.createDataFrame(table)))
    released = out[2].split(" ")
    assert len(released) == words
    assert out[3] is None
    # The words are uniform and no stretch repeats: at this epsilon each is 1 of 64 (chi-square at 1e-9).
    counts = np.unique(released, return_counts=True)[1]
    assert len(counts) == len(RING_WORDS)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    stretches = {tuple(released[start : start + 16]) for start in range(0, words, 16)}
    assert len(stretches) == words // 16  # two stretches agree with 64^-16; over all pairs: 2e-20


# The key


def test_no_plan_shows_a_key(frame: DataFrame, ring: Embedding) -> None:
    canary = NoiseKey(bytes.fromhex("c0ffee" * 10 + "c0ff"))
    out = privatize(frame, embedding=ring, mechanism=MECHANISM, id="id", text="text", key=canary, salt=LABEL)
    out.collect()
    plans = [
        out._jdf.queryExecution().toString(),
        repr(out),
        out._jdf.queryExecution().logical().treeString(),
    ]
    modes = out.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode
    plans += [out._jdf.queryExecution().explainString(modes.fromString(m)) for m in ("extended", "codegen")]
    derived = release(MECHANISM, ring, key=canary, salt=LABEL).key.secret
    for secret in (canary.secret, derived):
        for shown in (secret.hex(), repr(secret)[2:-1], str(list(secret))[1:-1]):
            assert not any(re.search(re.escape(shown), plan, re.IGNORECASE) for plan in plans)
    assert all("MapInArrow" in plan for plan in (plans[0], plans[2]))
