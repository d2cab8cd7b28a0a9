"""The look before a run: which words count as known, of which rows, and that it is told before a write."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dptext_spark.errors import InputError
from dptext_spark.jobs import vectors
from dptext_spark.mechanisms import Laplace
from dptext_spark.options import VectorsOptions
from dptext_spark.report.facts import coverage
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables import sampling
from dptext_spark.tables.batch import Batch, FieldPaths
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.formats.parquet import Parquet
from dptext_spark.tables.sampling import (
    NAMED_ROWS,
    SAMPLE_ROWS,
    SAMPLE_TASKS,
    Coverage,
    Sample,
    _speed,
    count_rows_named,
)
from dptext_spark.text.columns import SLICE_BYTES
from dptext_spark.text.patterns.names import TYPES
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import WordReader
from tests.helpers import worlds
from tests.helpers.tables import run_table, write_table

CHINESE = "\u6211\u559c\u6b22\u5403\u82f9\u679c"
ROOT = Path(__file__).parents[2]
FATE = "They become [MASK]."
OF = "of column text, in a sample of 1,000 rows, are"


def measure(values, world, **policy):
    return Coverage.measure(pa.array(values), WordReader(bundle=world, policy=TextPolicy(**policy)))


def test_tokens_are_known_as_a_run_knows_them(small):
    """Rejects a lookup without lower case, blank tokens that count as unknown, and more than a MB."""
    assert measure(["w1 W2, zyx", None, ""], small) == Coverage(rows=3, tokens=3, unknown=1)
    assert measure([["w1", None, "", "zyx", "w2 w3"], None], small) == Coverage(
        rows=2, tokens=3, unknown=2
    )
    assert measure(["the w1 zyx"], small, protect="content") == Coverage(
        rows=1, tokens=2, unknown=1
    )
    reader = WordReader(bundle=small, policy=TextPolicy(protect="slots:s"))
    assert Coverage.measure(pa.array([], pa.string()), reader) == Coverage()
    found = Coverage.measure(pa.array(["w1 zyx abc"]), reader, pa.array([[{"start": 3, "end": 5}]]))
    assert found == Coverage(rows=1, tokens=1, unknown=1)
    found = measure(["zyx " * 25_000] * 12, small)
    assert (found["rows"], found["tokens"]) == (SLICE_BYTES // 100_001, found["rows"] * 25_000)
    assert measure(["zyx " * SLICE_BYTES, "w1"], small)["rows"] == 1


def test_rows_that_kept_columns_name_uniquely_are_counted(spark):
    """Rejects distinct values for unique ones, rows with null left out, and maps that are refused."""
    rows = [(1, "a", None, {"k": [1]}), (1, "b", 1.0, {"k": [1]}), (1, "b", 1.0, {"k": [2]})]
    frame = spark.createDataFrame(rows, "x int, y string, z double, m map<string, array<int>>")
    counts = count_rows_named(frame, ["x", "y", "z", "m"], 3, read=F.col("x"))
    assert counts == {
        "rows": 3,
        "together": 3,
        "alone": {"x": 0, "y": 1, "z": 1, "m": 1},
        "share": 1.0,
    }
    assert count_rows_named(frame, ["x", "y"], 3, read=F.col("x"))["together"] == 1
    numbers = spark.range(4000).selectExpr("id", "id div 2 as pair")
    estimated = count_rows_named(numbers, ["id", "pair"], 3 * NAMED_ROWS, read=F.col("id"))
    assert estimated["share"] == 0.25 and estimated["alone"]["pair"] == 0
    # Of 4,000 hashes a quarter: 5 standard deviations are 548 rows.
    assert abs(estimated["alone"]["id"] - 4000) < 548


def test_letters_of_scripts_without_spaces_are_counted(small):
    """Rejects complaints of texts that are cut into words."""
    assert measure([CHINESE, "w1"], small) == Coverage(
        rows=2, tokens=2, unknown=1, unspaced=6 / 7 * 2
    )
    assert (
        measure([[CHINESE, "abcdef"]], small).unspaced_share == 0.0
    )  # its words were distinguished already
    pytest.importorskip("icu4py")
    cut = measure([CHINESE, "w1"], small, tokenizer="icu")
    assert cut["unspaced"] == 0.0 and cut["tokens"] > 2


def test_what_is_said_of_a_sample():
    sample = {"rows": 20, "tokens": 100, "unknown": 10}
    whole = Coverage(**sample, unspaced=2.0, email=2, phone=4)
    found = dict.fromkeys(TYPES, 0) | {"email": 2, "phone": 4}
    left = {"figures": 0, "signs": 0, "codes": 0}
    assert whole.to_json() == {**sample, "unspaced": 0.1, "identifiers": found, "left": left}
    said = "90.0% of 100 words are in the vocabulary (a sample of 20 rows)"
    assert whole.describe() == f"{said}; identifiers that patterns find: 2 email, 4 phone"
    assert Coverage(rows=5).describe() == "no words in a sample of 5 rows"
    # What lies in arrays is no row.
    assert Coverage(rows=5).describe("turns[].text") == "no words in a sample of 5 elements"
    many = Coverage(rows=5, tokens=9, unknown=9)
    assert "column a[], in a sample of 5 elements, are not" in many.warning("a[]", FATE)
    with_pieces = Coverage(**sample, left_codes=3)
    assert with_pieces.describe() == (
        f"{said}; what may be left of others: 3 words of capitals and figures"
    )
    assert with_pieces.to_json()["left"] == left | {"codes": 3}


@pytest.mark.parametrize(("places", "warns"), [(10, False), (11, True)])
def test_pieces_of_identifiers_are_warned_of(small, places, warns):
    """Rejects a warning of a few in a thousand rows, and one for each column."""
    coverage = {"t": Coverage(rows=1000), "a": Coverage(rows=1000, left_figures=places)}
    coverage["b"] = coverage["a"]
    reader = WordReader(bundle=small, policy=TextPolicy())
    sample = Sample(columns=None, table=None, reader=reader, fate=FATE, coverage=coverage)
    begin = f"Column a may keep pieces of identifiers that no pattern recognizes ({places} chains"
    assert [line.startswith(begin) for line in sample.warnings()] == [True] * warns
    assert all("1,000 rows); so may 1 other column (b). Look" in line for line in sample.warnings())


def of_1000(tokens, unknown, unspaced):
    return Coverage(rows=1000, tokens=tokens, unknown=unknown, unspaced=unspaced)


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        (Coverage(), []),
        (of_1000(100, 10, 100.0), []),
        (of_1000(1000, 278, 0.0), [f"27.8% of the words {OF} not", f"vocabulary. {FATE}"]),
        (of_1000(1000, 990, 950.0), [f"95% of the letters {OF}", "--tokenizer icu"]),
        (
            of_1000(9000, 890, 200.0),
            ["A run of such letters counts as one word: 9.9% of the words"],
        ),
    ],
)
def test_what_is_warned_of(coverage, said):
    warning = coverage.warning("text", FATE)
    assert all(each in warning for each in said) and bool(warning) == bool(said)


def look(frame, ring, policy=None, **names):
    columns = TableColumns(**{"keep": (), "id": "id", **names})
    reader = WordReader(
        bundle=BundleFiles.send(frame.sparkSession, ring), policy=policy or TextPolicy()
    )
    sample = Sample(columns=columns, table=frame.schema, reader=reader, fate=FATE)
    sample.identifiers = reader.policy.identifiers.advice
    sample(columns.select(frame))
    return sample


@pytest.mark.spark
def test_columns_and_fields_are_counted_each(spark, ring, capsys):
    """Rejects a sample that reads what passes through, and words or rows in a warning."""
    turns = "array<struct<who: string, said: string>>"
    schema = f"id int, turns {turns}, note string, marks array<struct<start: int, end: int>>"
    rows = [
        (1, [("a", "w00 secret"), ("b", "w01")], "W02 secret w03", [(4, 10)]),
        (2, None, None, None),
    ]
    frame = (
        spark.createDataFrame(rows, schema)
        .coalesce(1)
        .withColumn("kept", F.raise_error(F.lit("read")))
    )
    sample = look(frame, ring, text=("note", "turns[].said"), keep=("kept", "turns[].who"))
    assert sample.coverage == {
        "note": Coverage(rows=2, tokens=3, unknown=1),
        "turns[].said": Coverage(rows=2, tokens=3, unknown=1),
    }
    assert sample.lengths == {"median": 0, "longest": 6, "sample": 2} and sample.mean_words == 3.0
    said = capsys.readouterr().err
    begin = (
        "Warning, for those who run the job: 33.3% of the words of column note, in a sample of 2"
    )
    assert said.count("Warning") == said.count(begin) == 1
    assert "vocabulary; in 1 other column (turns[].said) more than 10%. " in said
    assert "secret" not in said
    for given in ({"protect": "slots:marks"}, {"mask_spans": "marks"}):
        slots = look(frame, ring, TextPolicy(**given), text=("note",), slots="marks")
        tokens, unknown = (1, 1) if "protect" in given else (2, 0)
        raw = 1 if "protect" in given else 0  # W02, as it stands
        expected = Coverage(rows=2, tokens=tokens, unknown=unknown, left_codes=raw)
        assert slots.coverage == {"note": expected}


def test_many_columns_have_one_warning_of_a_kind(small):
    """Rejects a warning for each of 60 columns, and the first column in place of that with most."""
    found = {f"c{n}": Coverage(rows=9, tokens=100, unknown=20 + n % 50, email=1) for n in range(60)}
    found |= {
        "fine": of_1000(100, 1, 0.0),
        "b": of_1000(100, 99, 900.0),
        "a": of_1000(100, 99, 950.0),
    }
    reader = WordReader(bundle=small, policy=TextPolicy(identifiers="off"))
    sample = Sample(
        columns=None, table=None, reader=reader, fate=FATE, identifiers="MARK.", coverage=found
    )
    unspaced, unknown, identified = sample.warnings()
    assert (
        unspaced.startswith("95% of the letters of column a,")
        and "; in 1 other column (b) more" in unspaced
    )
    assert unknown.startswith("69.0% of the words of column c49,")
    assert f"{FATE} 100,000 words" in unknown and unknown.endswith("see docs/guide/embeddings.md.")
    assert (ROOT / "docs/guide/embeddings.md").exists()
    assert "; in 59 other columns (c48, c47, c46, c45, c44, 54 more) more than 10%. " in unknown
    assert identified == (
        "Column c0 has identifiers (1 email), in a sample of 9 rows; so have 59 other columns "
        "(c1, c2, c3, c4, c5, 54 more). MARK."
    )


@pytest.mark.spark
def test_a_row_is_as_large_as_what_is_released_of_it(spark, ring):
    """Rejects bytes of texts alone, and of the table's other columns."""
    rows = [(row, "w00 w01", "x" * 500, "y" * 9000) for row in range(40)]
    frame = spark.createDataFrame(rows, "id int, note string, kept string, other string")
    columns = TableColumns(text=("note",), keep=("kept",), id="id")
    reader = WordReader(bundle=BundleFiles.send(spark, ring), policy=TextPolicy())
    sizes = {}
    for is_sized in (True, False):
        sample = Sample(
            columns=columns, table=frame.schema, reader=reader, fate=FATE, is_sized=is_sized
        )
        sample(columns.select(frame))
        sizes[is_sized] = sample.row_bytes
    assert sizes[False] is None and 507 < sizes[True] < 530
    assert sample.words_per_second is None


@pytest.mark.parametrize(
    ("rows", "time", "oov", "measured_rows"),
    [(1, 600, "mask", 1), (70, 600, "mask", 69), (70, -1, "mask", 1), (70, 600, "fail", 0)],
)
def test_the_speed_of_a_release_is_measured_on_its_own_words(
    small, rows, time, oov, measured_rows, monkeypatch
):
    """Rejects the first row's words, rows without an end, long texts, and an error of the rows."""
    monkeypatch.setattr(sampling, "_REHEARSAL", time)
    sanitizer = worlds.sanitizer(small, Laplace(epsilon=8), oov=oov)
    texts = pa.array(["w1 w2 secret" + " " * 2000 + "w3"] * rows)
    batch = Batch(
        row=pa.StructArray.from_arrays([texts], names=["note"]),
        ids=pa.array([""] * rows),
        slots=None,
        persons=None,
        paths=FieldPaths(paths={"note": ("note",)}),
    )
    words, seconds = _speed(sanitizer, batch)
    assert words == 3 * measured_rows
    assert (seconds > 0) == (measured_rows > 0)


@pytest.mark.spark
@pytest.mark.parametrize("identifiers", ["mask", "mask:phone"])
def test_identifiers_are_counted_and_their_option_is_named(spark, ring, capsys, identifiers):
    """Also where they are words; rejects a warning that quotes one, and one where all are marked."""
    rows = [(1, "w00 canary@example.com on 12/05/1984"), (2, "+49 170 1234567")]
    frame = spark.createDataFrame(rows, "id int, note string").coalesce(1)
    policy = TextPolicy(identifiers=identifiers, oov="drop")
    found = look(frame, ring, policy, text=("note",)).coverage["note"]
    assert found.identified() == "1 email, 1 date, 1 phone"
    said = capsys.readouterr().err
    warned = "has identifiers (1 email, 1 date), in a sample of 2 rows. "
    warned += f"With --identifiers {identifiers} they are"
    assert (
        (warned in said) == (identifiers != "mask") and "canary" not in said and "1984" not in said
    )


@pytest.mark.spark
def test_few_rows_of_few_tasks_are_looked_at(spark, ring):
    """Rejects Spark's own order as well: one task, for which all other cores wait, and then the rest."""
    # And rows of the first batch for a later one, of a part of the tasks, and of a part of a task.
    context = spark.sparkContext

    def table(rows, tasks):
        return spark.range(0, rows, numPartitions=tasks).withColumn("text", F.lit("w00 zyx"))

    spark.conf.unset("spark.sql.limit.initialNumPartitions")
    context.setJobGroup("sample", "")
    many = table(40 * SAMPLE_ROWS, 20)
    try:
        found = look(many, ring, text=("text",)).coverage["text"]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    rows = SAMPLE_ROWS * SAMPLE_TASKS
    assert found == Coverage(rows=rows, tokens=2 * rows, unknown=rows)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    (job,) = tracker.getJobIdsForGroup("sample")
    (stage,) = tracker.getJobInfo(job).stageIds
    assert tracker.getStageInfo(stage).numTasks == SAMPLE_TASKS
    assert look(many.filter("id < 0"), ring, text=("text",)).coverage == {"text": Coverage()}
    empty = spark.createDataFrame([], "id int, text string")
    assert look(empty, ring, text=("text",)).coverage in ({}, {"text": Coverage()})

    sample = look(table(30, 3), ring, text=("text",))
    assert sample.partition_rows == [10, 10, 10]
    sample(sample.columns.select(table(8, 1)))
    assert sample.partition_rows is None
    for rows, tasks in ((40, SAMPLE_TASKS), (SAMPLE_ROWS + 1, 1)):
        assert look(table(rows, tasks), ring, text=("text",)).partition_rows is None


@pytest.mark.spark
def test_a_run_tells_it_before_it_writes(dptext, table, tmp_path, monkeypatch):
    """Rejects a warning that comes with the counts, after hours of work; a dry run is of the wanted rows."""

    def write(*_):
        raise InputError("Column text has words outside the vocabulary")

    dry = dptext(table, "--dry-run", "--where", "id > 99")
    assert dry.exit_code == 2 and "No row of the input meets the filter" in dry.stderr
    assert "Warning" not in dry.stderr
    with monkeypatch.context() as patch:
        patch.setattr(Parquet, "write", write)
        refused = dptext(table, "--oov", "fail")
    assert refused.exit_code == 2
    first, second = (line for line in refused.stderr.splitlines() if not line.endswith(" ..."))
    said = "Warning, for those who run the job: 11.1% of the words of column text, in a sample"
    assert first.startswith(said) and "another --oov than fail" in first
    assert second.startswith("dptext privatize: Column text has words outside the vocabulary")
    assert not (tmp_path / "out").exists()
    done = dptext(table)
    assert done.exit_code == 0
    assert "become [MASK]" in done.stderr and "Coverage" not in done.stdout
    report = json.loads((tmp_path / "out.private" / "report.json").read_text())
    assert report["coverage"] == coverage({"text": Coverage(rows=12, tokens=108, unknown=12)})


@pytest.mark.spark
def test_a_growing_table_tells_it_of_the_files_that_are_new(table, ring_release, tmp_path, capsys):
    options = ring_release | {"incremental": tmp_path / "c", "read_option": "maxFilesPerTrigger=1"}
    report = run_table(**options)
    assert report.facts["coverage"] == coverage({"text": Coverage(rows=6, tokens=54, unknown=6)})
    assert capsys.readouterr().err.count("Warning") == 1  # of the first batch alone
    write_table(table / "new.parquet", {"id": [12], "text": ["w01 w02 w03"]})
    assert run_table(**options).facts["coverage"] == coverage({"text": Coverage(rows=1, tokens=3)})
    assert capsys.readouterr().err.count("Warning") == 0


@pytest.mark.spark
def test_texts_that_become_vectors_are_looked_at(ring, tmp_path, capsys):
    numbers = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64()))
    source = write_table(tmp_path / "in.parquet", {"v": numbers, "text": ["w01 zyx", "w02"]})
    options = {
        "input": str(source),
        "output": str(tmp_path / "out"),
        "epsilon": 9.0,
        "vector": ["v"],
    }
    words = {"text": ["text"], "embedding": str(ring.path)}
    report = vectors.run(VectorsOptions.of({**options, **words, "dry-run": True}))
    assert report.facts["coverage"] == coverage({"text": Coverage(rows=2, tokens=3, unknown=1)})
    assert "left out of the averages" in capsys.readouterr().err
    assert "\ntext: 66.7% of 3 words are in the vocabulary" in report.describe()
    bare = vectors.run(
        VectorsOptions.of({**options, "dry-run": True, "output": str(tmp_path / "bare")})
    )
    assert "coverage" not in bare.facts and "Coverage" not in bare.describe()
