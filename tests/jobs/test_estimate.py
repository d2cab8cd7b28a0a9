"""dptext estimate: a release from its table to its page, and refusals."""

import json
import re
from contextlib import nullcontext

import pyarrow.parquet as pq
import pytest

from dptext_spark.errors import DptextError
from dptext_spark.jobs import estimate
from dptext_spark.options import EstimateOptions
from tests.helpers.drawing import without_drawing
from tests.helpers.estimated import ROWS, TEXTS, released, write_private
from tests.helpers.made_texts import sentences
from tests.helpers.tables import rows_of, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LISTS = {"low": [f"w{i}" for i in range(10)], "some": ["w11", "w12"], "one": ["w3"]}


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    return write_private(tmp_path_factory.mktemp("private"))


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
