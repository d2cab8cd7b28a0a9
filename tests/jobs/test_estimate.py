"""dptext estimate: sums of workers against NumPy's, a release from its table to its page, refusals."""

import json
import re
from contextlib import nullcontext
from datetime import date

import numpy as np
import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import DptextError
from dptext_spark.estimates.cells import cluster_terms, row_values
from dptext_spark.estimates.frames import Estimation
from dptext_spark.estimates.on_spark import NULL, ReadTable
from dptext_spark.jobs import estimate
from dptext_spark.options import EstimateOptions
from dptext_spark.tables.source import own_session
from tests.helpers.drawing import without_drawing
from tests.helpers.made_texts import sentences
from tests.helpers.tables import rows_of, run_table, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROWS = 300
TEXTS = sentences(ROWS, 1)
GROUPS = ["even", "odd", None]
LISTS = {"low": [f"w{i}" for i in range(10)], "some": ["w11", "w12"], "one": ["w3"]}


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    columns = {
        "id": list(range(ROWS)),
        "text": [None if i == 7 else f"{TEXTS[i]} 0170 1234567" for i in range(ROWS)],
        "group": [GROUPS[i % 3] for i in range(ROWS)],
        "day": [date(2026, 1 + i % 2, 1 + i % 5) for i in range(ROWS)],
        "person": [None if i == 8 else f"p{i % 40}" for i in range(ROWS)],
    }
    return write_table(tmp_path_factory.mktemp("private") / "in.parquet", columns)


def released(folder, private, bundle, **options):
    """A release of the table, with all other columns."""
    values = {"mechanism": "exponential", "epsilon": 6.0, "id": "id"} | options
    run_table(input=private, output=folder / "out", embedding=bundle.path, keep=["*"], **values)
    return folder / "out"


@pytest.fixture(scope="module")
def release(private, small, tmp_path_factory):
    return released(tmp_path_factory.mktemp("release"), private, small)


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    path = tmp_path_factory.mktemp("topics") / "topics.txt"
    path.write_text("".join(f"{name}: {' '.join(words)}\n" for name, words in LISTS.items()))
    return path


def run(release, embedding, output, *, drawn=False, **given):
    values = {
        "input": str(release),
        "release": f"{release}.release.json",
        "embedding": embedding.path,
        "text": "text",
        "output": str(output),
        "cache": release.parent / "channels",
    }
    options = {name.replace("_", "-"): value for name, value in (values | given).items()}
    with nullcontext() if drawn else without_drawing():
        report = estimate.run(EstimateOptions.of(options))
    facts = json.loads((output / "estimates.json").read_text())
    assert facts == json.loads(report.to_json())
    return facts, report.describe()


def opened(spark, release, embedding, **given):
    session = own_session(spark)
    return Estimation.open(
        session.read.parquet(str(release)),
        report=(release.parent / "out.release.json").read_text(),
        embedding=embedding,
        text="text",
        cache=release.parent / "channels",
        **given,
    )


def expected_sums(estimation, release, weights, by, *, persons=False):
    """The sums of groups by NumPy."""
    rows = [row for row in rows_of(release) if row["text"] is not None]
    column = estimation.reader.read(
        pq.read_table(release)["text"].combine_chunks().drop_null(), column="text"
    )
    is_output = column.outputs >= 0
    places = np.repeat(np.arange(len(rows)), np.diff(column.offsets))[is_output]
    epsilons = np.zeros(len(rows), dtype=np.int64)
    values, sizes = row_values(column.outputs[is_output], places, weights[None], epsilons)
    sums = {}
    for group in {tuple(row[name] for name in by) for row in rows}:
        mine = [i for i, row in enumerate(rows) if tuple(row[name] for name in by) == group]
        of_rows, of_sizes = values[mine], sizes[mine]
        if persons:
            names = [rows[i]["person"] for i in mine]
            whose = sorted({*names} - {None})
            if not whose:
                continue
            of_rows = np.stack([values[mine][[n == p for n in names]].sum(axis=0) for p in whose])
            of_sizes = np.stack([sizes[mine][[n == p for n in names]].sum(axis=0) for p in whose])
        terms = cluster_terms(of_rows, of_sizes)
        sums[group] = np.stack([term.sum(axis=0) for term in terms])
    return sums


@pytest.mark.parametrize("person", [None, "person"])
@pytest.mark.parametrize("by", [(), ("group",), ("group", "person")])
def test_workers_add_up_what_numpy_does(spark, release, small, by, person):
    """Rejects rows or persons that are torn apart, null groups that are lost, and marks that count."""
    estimation = opened(spark, release, small, by=("group", "person"), person=person)
    weights = np.random.default_rng(0).normal(0.1, 0.3, (200, 3))
    sums = estimation.table.sums(estimation.released, {6.0: weights}, by)
    expected = expected_sums(estimation, release, weights, by, persons=person is not None)
    named = {tuple(value or NULL for value in group): of for group, of in expected.items()}
    assert {*sums} == {*named}
    for group, of_group in sums.items():
        assert np.allclose(of_group, named[group], rtol=1e-9, atol=1e-9), group
    estimation.closed()


def test_a_release_is_estimated_from_its_table_and_public_report(
    release, small, topics, tmp_path, private
):
    """Rejects shares of the outputs' words, tables that the folder lacks, and a page without them."""
    facts, text = run(
        release, small, tmp_path / "e", drawn=True, topics=topics, by=["group"],
        time="day:month", frequencies=5, words="3",
    )  # fmt: skip
    # Each row has a number, which is a mark; a row has no text.
    assert facts["table"]["rows"] == ROWS - 1 and facts["table"]["marks"] >= ROWS - 1
    words = [word for text in TEXTS for word in text.split() if word != "strange"]
    overall = {row["topic"]: row for row in facts["topics"] if row["group"] is None}
    counted = dict.fromkeys(LISTS, 0.0)
    for row in pq.read_table(tmp_path / "e" / "weights").to_pylist():
        if row["topic"] in counted:
            counted[row["topic"]] += row["weight"] * words.count(row["word"]) / len(words)
    for name, share in counted.items():
        row = overall[name]
        # Four standard errors.
        assert abs(row["share"] - share) < 2.05 * (row["high"] - row["low"]), name
        assert row["low"] < row["share"] < row["high"] and 0.0 < row["sharpness"] <= 1.0
    tables = {path.name for path in (tmp_path / "e").iterdir() if path.is_dir()}
    assert tables == {"topics", "weights", "differences", "frequencies", "plots"}
    cells = {(row.get("group"), row.get("time")) for row in facts["topics"]}
    assert ("even", "2026-02-01") in cells and (None, None) in cells
    assert {row["against"] for row in rows_of(tmp_path / "e" / "differences")} == {
        "all others",
        "2026-01-01",
    }
    assert len(facts["frequencies"]) == 5 and len(facts["lists"]) == 6
    page = (tmp_path / "e" / "report.html").read_text()
    assert "Likeliest frequencies" in page and "low" in text and "Shares are of" in text


def test_a_channel_is_worked_out_once_and_the_partitioning_does_not_matter(
    spark, release, small, topics, tmp_path
):
    """Rejects a channel that each run works out again, and estimates that hang on files."""
    first, _ = run(release, small, tmp_path / "a", topics=topics)
    spread = tmp_path / "spread"
    spark.read.parquet(str(release)).repartition(5).write.parquet(str(spread))
    given = {"input": str(spread), "topics": topics}
    second, _ = run(release, small, tmp_path / "b", **given)
    assert second["channel"]["reused"]
    for one, other in zip(first["topics"], second["topics"], strict=True):
        assert one["share"] == pytest.approx(other["share"], rel=1e-9)


def test_rows_of_a_budget_are_read_through_their_own_channels(small, private, topics, tmp_path):
    """Rejects the largest epsilon for all rows, of which the report says others."""
    release = released(tmp_path, private, small, row_budget="40:within=1")
    facts, _ = run(release, small, tmp_path / "e", topics=topics)
    assert len(facts["channel"]["epsilons"]) > 3
    words = [word for text in TEXTS for word in text.split() if word != "strange"]
    (low,) = (row for row in facts["topics"] if row["topic"] == "low")
    counted = [r for r in rows_of(tmp_path / "e" / "weights") if r["topic"] == "low"]
    share = sum(row["weight"] * words.count(row["word"]) for row in counted) / len(words)
    assert abs(low["share"] - share) < 2.05 * (low["high"] - low["low"])


def test_simulated_noise_is_inverted_too(small, private, topics, tmp_path):
    """Rejects a channel of laplace that is off: of the few words of this table most are known."""
    release = released(tmp_path, private, small, mechanism="laplace", epsilon=30.0)
    facts, _ = run(release, small, tmp_path / "e", topics=topics)
    words = [word for text in TEXTS for word in text.split() if word != "strange"]
    assert facts["channel"]["method"] == "posteriors" and facts["channel"]["points"] > 0
    (low,) = (row for row in facts["topics"] if row["topic"] == "low")
    counted = [r for r in rows_of(tmp_path / "e" / "weights") if r["topic"] == "low"]
    share = sum(row["weight"] * words.count(row["word"]) for row in counted) / len(words)
    assert abs(low["share"] - share) < 2.05 * (low["high"] - low["low"])


def test_features_keep_the_other_columns(release, small, tmp_path):
    """Rejects a table with the released texts, or without ids."""
    run(release, small, tmp_path / "e", features=str(tmp_path / "f"))
    rows = rows_of(tmp_path / "f")
    assert {*rows[0]} == {"id", "group", "day", "person", "vector", "words", "weights"}
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    (empty,) = (row for row in rows if row["id"] == 7)
    assert empty["vector"] is None and empty["words"] == []
    assert all(len(row["vector"]) == 50 for row in rows if row["id"] != 7)


def test_features_in_context_are_of_all_outputs_of_a_row(release, small, tmp_path):
    """Rejects vectors of single outputs, and a run that does not say how far it trusts the corpus."""
    corpus = write_table(tmp_path / "corpus.parquet", {"text": sentences(80, 3)})
    given = {"public_corpus": str(corpus)}
    run(release, small, tmp_path / "a", features=str(tmp_path / "single"), **given)
    facts, text = run(
        release, small, tmp_path / "b", features=str(tmp_path / "rows"), in_context=True, **given
    )
    single = {row["id"]: row["vector"] for row in rows_of(tmp_path / "single")}
    rows = {row["id"]: row["vector"] for row in rows_of(tmp_path / "rows")}
    assert {*rows} == {*single} and rows[7] is None
    assert rows[0] != pytest.approx(single[0], abs=1e-5)
    assert 0.0 <= facts["trust"] <= 1.0 and "all outputs of a row" in text


def test_some_rows_are_the_same_however_the_table_is_cut(spark):
    """Rejects the first rows of whatever partition is first."""
    lists = [([number, 40 - number],) for number in range(40)]
    frame = spark.createDataFrame(lists, "outputs array<int>")
    looked_at = []
    for parts in (1, 3):
        table = ReadTable(frame=frame.repartition(parts), groups=(), has_person=False)
        outputs, starts = table.texts(10)
        assert starts.tolist() == [*range(0, 21, 2)]
        looked_at.append(outputs.tolist())
    assert looked_at[0] == looked_at[1]


def test_a_public_corpus_makes_the_prior(release, small, topics, tmp_path):
    """Rejects a corpus that nothing reads: words that it has leak less."""
    corpus = write_table(tmp_path / "corpus.parquet", {"text": sentences(50, 2)})
    by_rank, _ = run(release, small, tmp_path / "a", topics=topics)
    by_corpus, _ = run(release, small, tmp_path / "b", topics=topics, public_corpus=str(corpus))
    assert by_corpus["prior"] == str(corpus) != by_rank["prior"]
    assert by_corpus["lists"][0]["sharpness"] != by_rank["lists"][0]["sharpness"]
    nothing = write_table(tmp_path / "nothing.parquet", {"text": ["no such"]})
    with pytest.raises(DptextError, match="public-corpus has no word of the embedding"):
        run(release, small, tmp_path / "c", topics=topics, public_corpus=str(nothing))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": "other"}, "did not sanitize this column"),
        ({"by": ["absent"]}, "released table lacks a column.*Got: absent"),
        ({"time": "group:day"}, "Column group of --time has no times.*dates or timestamps"),
        ({"words": "absent.txt"}, "The words absent.txt cannot be read"),
        ({"words": "5", "where": "id = 7"}, "no word that the mechanism could have given"),
        ({"topics": "absent.txt"}, "topics absent.txt cannot be read"),
        ({}, "nothing to estimate"),
        ({"in_context": True, "words": "5"}, "Give --features and --public-corpus"),
        ({"by": ["text"], "words": "5"}, "--text column cannot be used for groups"),
        ({"time": "day:hour", "words": "5"}, "--time has a wrong value"),
    ],
)
def test_what_cannot_be_estimated_is_refused(release, small, tmp_path, given, message):
    """Rejects an error of Spark or Python, and a folder that is left."""
    if not {"topics", "words"} & {*given} and given:
        given = given | {"words": "5"}
    with pytest.raises(DptextError) as caught:
        run(release, small, tmp_path / "e", **given)
    assert re.search(message, str(caught.value)) and not (tmp_path / "e").exists()


def test_estimates_that_exist_are_replaced_on_demand(release, small, tmp_path):
    """Rejects a folder of other files that is replaced."""
    run(release, small, tmp_path / "e", words="2")
    with pytest.raises(DptextError, match=r"exists.*--overwrite"):
        run(release, small, tmp_path / "e", words="2")
    run(release, small, tmp_path / "e", words="2", overwrite=True)
