"""dptext vectors: Parquet in, projected noisy vectors out, and the projections that belong to them."""

import json
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.mechanisms.vectors import ProjectedVectors, PublicPrior
from dptext_spark.noise import ReleaseNoise
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.vector_sanitizer import VectorSanitizer
from dptext_spark.word_reader import WordReader
from tests.helpers import worlds
from tests.helpers.tables import hashes, refused, rows_of, spark_settings, write_table
from tests.helpers.worlds import KEY, LABEL

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROWS = 60
FLOATS, DOUBLES = pa.list_(pa.float32()), pa.list_(pa.float64())


def command(key_file, place):
    """``dptext vectors`` in this process, under the fixed key."""

    def invoke(source, *arguments, output=place, epsilon=10):
        given = ["--input", source, "--output", output, "--key-file", key_file]
        given += ["--epsilon", epsilon]
        given += ["--name", LABEL, *arguments]
        return CliRunner().invoke(main, ["vectors", *map(str, given)])

    return invoke


@pytest.fixture
def dptext(key_file, tmp_path):
    return command(key_file, tmp_path / "out")


def done(result):
    assert result.exit_code == 0, result.output
    return result


def write_rows(folder):
    """One file of 60 rows in 6 row groups: ids, the same vectors in both widths, texts of ring words."""
    vectors = np.random.default_rng(3).normal(size=(ROWS, 12)).astype(np.float32).tolist()
    columns = {
        "id": range(ROWS),
        "narrow": pa.array(vectors, FLOATS),
        "wide": pa.array(vectors, DOUBLES),
        "text": [f"w{row:02d} W{row % 7:02d}, unheardof{row}" for row in range(ROWS)],
        "words": pa.array([[f"w{row:02d}", "unheardof", None][: row % 4] for row in range(ROWS)]),
    }
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "x.parquet", row_group_size=10)
    return folder


@pytest.fixture
def table(tmp_path):
    return write_rows(tmp_path / "in")


ALL = ("--vector", "narrow", "--vector", "wide", "--text", "text", "--tokens", "words")
ALL += ("--id", "id", "--keep", "id")


@pytest.fixture(scope="module")
def whole(spark, ring, key_file, tmp_path_factory):
    """A folder with the table ``in`` and the release ``out`` of all its columns."""
    folder = tmp_path_factory.mktemp("whole")
    dptext = command(key_file, folder / "out")
    done(dptext(write_rows(folder / "in"), *ALL, "--embedding", ring.path, "--seed", 7))
    return folder


def kinds(output):
    return {field.name: field.type for field in pq.read_schema(next(output.glob("part-*")))}


def test_each_column_is_what_the_privatizer_gives_without_spark(ring, whole):
    got, source = rows_of(whole / "out"), pq.read_table(whole / "in")
    assert [set(row) for row in got] == [{"id", "narrow", "wide", "text", "words"}] * ROWS
    assert kinds(whole / "out") == {
        "id": pa.int64(),
        "narrow": FLOATS,
        "wide": DOUBLES,
        "text": FLOATS,
        "words": pa.list_(FLOATS),
    }
    parameters = ProjectedVectors(epsilon=10.0, seed=7)
    of_texts = PublicPrior.of(ring.space, words=10)
    of_words = PublicPrior.of(ring.space)
    for column, length, embedding, prior in (
        ("narrow", 12, None, None),
        ("wide", 12, None, None),
        ("text", 2, ring, of_texts),
        ("words", 2, ring, of_words),
    ):
        used = parameters.of_length(length, prior)
        fingerprint = embedding.fingerprint if embedding else ""
        noise = ReleaseNoise.of(
            KEY, salt=LABEL, noise_parameters=used.noise_parameters(), fingerprint=fingerprint
        )
        reader = None if embedding is None else WordReader(bundle=embedding, policy=WORDS_ALONE)
        private = VectorSanitizer(
            mechanism=used, noise=noise, reader=reader, by_word=column == "words"
        )
        values = source[column].combine_chunks()
        expected = private.sanitize(
            values, source["id"].combine_chunks(), column=column
        ).values.to_pylist()
        assert [row[column] for row in got] == expected, column
    assert [row["narrow"] for row in got] != [
        row["wide"] for row in got
    ]  # each column has noise of its own

    projections = json.loads((whole / "out.projection.json").read_text())["projections"]
    assert [p["columns"] for p in projections] == [["narrow", "wide"], ["text"], ["words"]]
    for described, length, prior in zip(
        projections, (12, 2, 2), (None, of_texts, of_words), strict=True
    ):
        expected = parameters.of_length(length, prior).to_json()
        assert {name: described[name] for name in expected} == expected
    guarantees = json.loads((whole / "out.private" / "report.json").read_text())["guarantees"]
    expected = [(["narrow", "wide"], False), (["text"], True), (["words"], True)]
    assert [(g["columns"], bool(g["fingerprint"])) for g in guarantees] == expected
    public = json.loads((whole / "out.release.json").read_text())
    assert [g.get("spread", {}).get("vectors", "") for g in public["guarantees"]] == [
        "",
        "texts of 10 words of the embedding",
        "words of the embedding",
    ]


def test_noise_that_hides_everything_is_named(dptext, ring, table):
    """Rejects a release of mere noise that nothing on the terminal tells of, before the work and after it."""
    texts = ("--text", "text", "--embedding", ring.path, "--dry-run")
    result = done(dptext(table, *texts, epsilon=0.01))
    assert "Warning: column text: The noise is" in result.stderr
    assert "WARNING: a constant would serve nearly as well. Raise --epsilon" in result.stdout
    strong = done(dptext(table, *texts, epsilon=50))
    assert "Warning: column" not in strong.output and "WARNING" not in strong.output
    assert "The release keeps" in strong.stdout


def test_vectors_on_the_axes_of_public_ones(dptext, table, tmp_path):
    """Rejects axes of the private vectors: a bundle of their kind gives them, and its length decides."""
    (tmp_path / "public").mkdir()
    public = worlds.build(tmp_path / "public", worlds.uneven(40, 12))
    axes = ("--vector", "narrow", "--projection", "main-axes", "--dimension", 2)
    result = done(dptext(table, *axes, "--embedding", public.path))
    (projection,) = json.loads((tmp_path / "out.projection.json").read_text())["projections"]
    prior = PublicPrior.of(public.space)
    used = ProjectedVectors(epsilon=10.0, projection="main-axes", dimension=2)
    assert projection["matrix"] == used.of_length(12, prior).to_json()["matrix"]
    assert "words of the embedding are" in result.output


def test_partitions_and_batches_do_not_matter(dptext, spark, ring, whole, tmp_path):
    """The same rows in three files, another order, more partitions and batches of one row."""
    rows = pq.read_table(whole / "in").take(list(range(ROWS))[::-1])
    (tmp_path / "three").mkdir()
    for part in range(3):
        pq.write_table(
            rows.slice(part * 20, 20), tmp_path / "three" / f"{part}.parquet", row_group_size=10
        )
    small = {"files_maxPartitionBytes": 4000, "files_openCostInBytes": 0}
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=1, **small):
        assert spark.read.parquet(str(tmp_path / "three")).rdd.getNumPartitions() > 3
        done(dptext(tmp_path / "three", *ALL, "--embedding", ring.path, "--seed", 7))
    first, other = (
        sorted(rows_of(folder / "out"), key=lambda row: row["id"]) for folder in (whole, tmp_path)
    )
    assert first == other
    assert len({tuple(row["narrow"]) for row in first}) == ROWS
    name = "out.projection.json"
    assert (whole / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_dry_run_writes_nothing(dptext, ring, table, tmp_path):
    """But for the report; rejects a projection of a release that was never made."""
    before, report = hashes(tmp_path), tmp_path / "r" / "private" / "report.json"
    result = done(
        dptext(table, *ALL, "--embedding", ring.path, "--dry-run", "--reports", tmp_path / "r")
    )
    for said in (
        "Guarantee of narrow, wide",
        "Guarantee of text",
        f"release.html and the report: {report}",
    ):
        assert said in result.output
    assert "Rows:" not in result.output and json.loads(report.read_text())["rows"] is None
    assert {*hashes(tmp_path)} == {*before, "r/private/report.json", "r/release.html"}


def test_a_hostile_table(dptext, ring, tmp_path):
    texts = [
        *("w00", None, "", "unheardof", " \U0001f469\u200d\U0001f469 "),
        *("w01 " * 5000, "W02\u0301 w02", "e\x00e"),
    ]
    vectors = [None if i == 3 else [float(i), 1e-300, -0.0] for i in range(len(texts))]
    columns = {"text": texts, "v`1.x": pa.array(vectors, DOUBLES), "secret": ["s"] * len(texts)}
    columns["none"] = pa.nulls(len(texts), FLOATS)
    source = write_table(tmp_path / "in.parquet", columns)
    named = ("--text", "text", "--vector", "v`1.x", "--vector", "none")
    result = done(dptext(source, *named, "--embedding", ring.path))
    empty = "Columns without a single vector, null in every row: none."
    for said in ("words unknown", "Rows: 8", "out.projection.json", empty):
        assert said in result.output
    rows = rows_of(tmp_path / "out")
    assert [row.keys() for row in rows] == [{"text", "v`1.x", "none"}] * len(texts)
    for column, given, length in (
        ("text", texts, 2),
        ("v`1.x", vectors, 3),
        ("none", [None] * 8, 0),
    ):
        released = [row[column] for row in rows]
        assert [each is None for each in released] == [each is None for each in given]
        assert {len(each) for each in released if each} == {length} - {0}
        assert np.isfinite([number for each in released for number in each or []]).all()
    assert len({tuple(row["text"]) for row in rows if row["text"]}) == len(texts) - 1
    columns = json.loads((tmp_path / "out.private" / "report.json").read_text())["columns"]
    counts = {"released": 7, "null": 1, "wordless": 4, "known": 5002, "unknown": 3}
    assert columns["text"] == {"input_dimension": 2, "dimension": 2, **counts}
    assert [(columns[n]["released"], columns[n]["null"]) for n in ("v`1.x", "none")] == [
        (7, 1),
        (0, 8),
    ]


def test_vectors_that_cannot_be_released(dptext, tmp_path):
    """Rejects a message that quotes a number, and an output that a failed run leaves."""
    for columns, message in (
        (
            {"v": [[1.0, 2.0], [1.0]], "w": [[], []]},
            "unequal lengths, or empty.*Got: v: 1 to 2; w: 0 to 0",
        ),
        (
            {"v": [[1.0, 2.0], [77.5, 1e30]]},
            "too long to be released.*1 longer vectors.*lower --epsilon",
        ),
    ):
        columns = {name: pa.array(rows, FLOATS) for name, rows in columns.items()}
        source, named = (
            write_table(tmp_path / "in.parquet", columns),
            [("--vector", n) for n in columns],
        )
        result = dptext(source, *chain(*named))
        assert refused(result, message) and "77.5" not in result.output
        assert {path.name for path in tmp_path.iterdir()} == {"in.parquet"}


def test_bags_need_no_embedding(dptext, table, tmp_path):
    """Rejects bags that differ from those without Spark, and a report that looks words up in a vocabulary."""
    result = done(dptext(table, "--text", "text", "--kgrams", 2, "--id", "id", "--keep", "id"))
    used = ProjectedVectors(epsilon=10.0, kgrams=2).of_bags()
    noise = ReleaseNoise.of(
        KEY, salt=LABEL, noise_parameters=used.noise_parameters(), fingerprint=""
    )
    private = VectorSanitizer(mechanism=used, noise=noise, reader=used.bags(WORDS_ALONE.tokenizer))
    source = pq.read_table(table)
    expected = private.sanitize(
        source["text"].combine_chunks(), source["id"].combine_chunks(), column="text"
    )
    got = sorted(rows_of(tmp_path / "out"), key=lambda row: row["id"])
    assert [row["text"] for row in got] == expected.values.to_pylist()
    assert "text: 60 vectors released, 120 grams" in result.output
    assert "Warning" not in result.output
    (projection,) = json.loads((tmp_path / "out.projection.json").read_text())["projections"]
    assert projection == {"columns": ["text"], **used.to_json()}
    public = json.loads((tmp_path / "out.release.json").read_text())
    assert "at most 20 nats" in public["guarantees"][0]["words"]
    assert (public["options"]["kgrams"], public["options"]["tokenizer"]) == (2, "words")
    random = ("--text", "text", "--kgrams", 2, "--projection", "random", "--dry-run")
    result = done(dptext(table, *random, output=tmp_path / "none"))
    assert "Warning: column text: The noise is" in result.stderr


def test_a_table_without_a_row(dptext, tmp_path):
    source = write_table(tmp_path / "in.parquet", {"v": pa.array([], FLOATS)})
    done(dptext(source, "--vector", "v"))
    assert (kinds(tmp_path / "out"), rows_of(tmp_path / "out")) == ({"v": FLOATS}, [])


def test_columns_and_ids_that_cannot_be_used(dptext, ring, ball, table, tmp_path):
    twice = {"id": [1, 1, None], "v": pa.array([[1.0]] * 3, FLOATS), "s": [{"x": "w01"}] * 3}
    source = write_table(tmp_path / "twice.parquet", twice)
    for result, message in [
        (dptext(table, "--vector", "text"), r"text \(string\), not array<float> or array<double>"),
        (
            dptext(source, "--text", "s.x", "--embedding", ring.path),
            r"Fields inside columns.*Got: s\.x\.",
        ),
        (
            dptext(source, "--vector", "v", "--id", "id"),
            "it has 1 nulls and 1 duplicates in 3 rows",
        ),
        (
            dptext(table, "--text", "text", "--embedding", ball.path),
            "has no vectors to release.*geometry poincare",
        ),
        (
            dptext(table, "--vector", "narrow", "--dimension", 13),
            "vectors of length 12.*at most 12.*Got: 13",
        ),
        (dptext(table, "--text", "text", "--embedding", ring.path, "--dimension", 3), "at most 2"),
        (
            dptext(table, "--vector", "narrow", "--where", "id < 0"),
            "No row of the input meets the filter",
        ),
    ]:
        assert refused(result, message)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "twice.parquet"}
