"""Delta and Iceberg tables, as their own libraries wrote them, without any package of Spark's."""

import pyarrow as pa
import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType

from dptext_spark.errors import ConfigError, JobError
from dptext_spark.tables.source import where
from dptext_spark.tables.storage import Storage
from tests.helpers.lakes import KEPT, SCHEMA, DeltaLake, read, rows
from tests.helpers.tables import RING_WORDS, hashes, names, rows_of, spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture(params=["deltas", "icebergs"])
def lake(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def write(spark):
    """Write six rows to the table ``out`` of a lake, as a run does."""

    def invoke(lake, mode="error", count=6):
        out = lake.kind(lake.place("out"), mode=mode)
        out.check_place(Storage(spark))
        out.write(spark.createDataFrame(rows([*range(count)]).to_pylist(), SCHEMA))

    return invoke


def test_deleted_and_replaced_rows_are_not_read(lake, spark):
    """Rejects the folder's files as they are, an input that changes, and the newest version always."""
    lake.write("in", rows([*range(6)]))
    lake.change("in")
    lake.write("in", rows([10, 11]), mode="append")
    before, live = hashes(lake.files("in")), lake.rows("in")
    df = read(spark, lake, lake.place("in"))
    assert [row.asDict() for row in df.orderBy("id").collect()] == live
    assert [row["id"] for row in live] == [0, 2, 3, 5, 10, 11] and live[1]["text"] == RING_WORDS[9]
    assert len(rows_of(lake.files("in"))) > len(live)
    first = read(spark, lake, lake.place("in"), **lake.old())
    assert sorted(row["id"] for row in first.collect()) == [*range(6)]
    assert hashes(lake.files("in")) == before


def test_partitions_keep_their_types_and_values(run, lake, spark):
    """Rejects partitions that are strings, times of the session's zone, and files that only Spark reads."""
    table = pa.table(KEPT | {"place": ["a b/c=%d é #?%41", lake.other, None, "x"]})
    lake.write("in", table, lake.partitions)
    lake.write("empty", table.slice(0, 0), lake.partitions)
    empty = read(spark, lake, lake.place("empty"))
    assert empty.collect() == [] and empty.dtypes == read(spark, lake, lake.place("in")).dtypes
    kept = [name for name in KEPT if name not in {"id", "text"}]
    if isinstance(lake, DeltaLake):
        lake.table("in").alter.add_columns([Field("later", PrimitiveType("double"))])
        kept.append("later")
    with spark_settings(spark, session_timeZone="America/New_York"):
        result = run(lake, *[part for name in kept for part in ("--keep", name)])
    assert result.exit_code == 0, result.output
    assert lake.types("out") == lake.types("in")
    before, after = (
        [{n: row[n] for n in ("id", *kept)} for row in lake.rows(name)] for name in ("in", "out")
    )
    assert before == after and len(before) == 4
    given, again = (read(spark, lake, lake.place(name)) for name in ("in", "out"))
    assert again.dtypes == given.select("id", "text", *kept).dtypes
    for df in (given, again):
        assert [row["id"] for row in where(df, "place is null and day is not null").collect()] == [
            3
        ]


def test_rows_are_added_and_replaced_in_one_commit_each(write, lake, spark):
    write(lake, count=0)
    assert read(spark, lake, lake.place("out")).collect() == lake.rows("out") == []
    for mode, times in (("append", 1), ("append", 2), ("overwrite", 1)):
        write(lake, mode)
        assert [row["id"] for row in lake.rows("out")] == sorted([*range(6)] * times)
    assert lake.commits("out") == 4
    assert names(lake.folder) == {"out"}
    lake.write("other", pa.table({"id": ["a"], "text": ["b"], "more": [1]}))
    before = hashes(lake.folder)
    schema = spark.createDataFrame([], SCHEMA).schema
    lacking = "id is bigint in the output and string in the table; more is absent in the output and bigint"
    with pytest.raises(ConfigError, match=lacking):
        lake.kind(lake.place("other"), mode="append").check_schema(spark, schema)
    assert hashes(lake.folder) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_commit_that_fails_leaves_nothing(write, lake, tmp_path, exists):
    """Rejects files that stay, and a message that quotes values of the files."""
    if exists:
        lake.write("out", rows([0]))
    error, said = (
        (ValueError("quartz is no date"), "ValueError") if exists else (lake.failed, "no room")
    )

    def failing(_):
        def fail(*_, **__):
            raise error

        return fail

    with lake.broken_commits(failing), pytest.raises(JobError, match=rf"part of .*Got: {said}\."):
        write(lake, "append")
    assert not [*tmp_path.rglob("*dptext*")]
    if exists:
        assert [row["id"] for row in lake.rows("out")] == [0]
    else:
        write(lake)


def test_a_commit_whose_answer_is_lost_is_made_once(write, lake):
    """Rejects files that are removed after their commit, and a second commit."""
    lake.write("out", rows([0]))

    def losing(commit):
        def lose(*arguments, **options):
            commit(*arguments, **options)
            raise OSError("connection reset")

        return lose

    before = lake.commits("out")
    with lake.broken_commits(losing):
        write(lake, "overwrite")
    assert [row["id"] for row in lake.rows("out")] == [*range(6)]
    assert lake.commits("out") == before + 1
