"""dptext evaluate: its numbers against the core's on the same rows, its choice, its page."""

import json
import re
import shlex
import stat
from contextlib import nullcontext

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dptext_spark.cli import main
from dptext_spark.errors import DptextError
from dptext_spark.evaluation.classes import ClassCounts
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.local import evaluate as evaluate_here
from dptext_spark.evaluation.measures import LABELS, Risk
from dptext_spark.evaluation.simulate import ATTACKED, count_pairs, third_of
from dptext_spark.jobs import evaluate
from dptext_spark.mechanisms import Laplace
from dptext_spark.options import EvaluateOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.tables import partitioning
from tests.helpers.drawing import without_drawing
from tests.helpers.made_texts import sentences
from tests.helpers.tables import spark_settings, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROWS = 90
OF_ROWS = ("singled_out(2)", "singled_out(6)", "pieces(figures)", "pieces(codes)", "linked")
TEXTS = sentences(ROWS, 1)


def table_of(folder, files):
    """The same rows in so many files."""
    for number in range(files):
        ids = list(range(number, ROWS, files))
        write_table(folder / f"{number}.parquet", {"id": ids, "text": [TEXTS[i] for i in ids]})
    return folder


def options(table, embedding, output, **given):
    values = {
        "input": str(table),
        "text": "text",
        "id": "id",
        "embedding": embedding.path,
        "output": str(output),
        "mechanism": ["laplace", "exponential:truncate=0.9"],
        "epsilon": (5.0,),
        "versions": 2,
        "release_words": 100,
        "target": "recovery(top1) <= 0.99",
    }
    return {name.replace("_", "-"): value for name, value in (values | given).items()}


def run(table, embedding, output, *, drawn=False, **given):
    """Run the job; what evaluation.json says."""
    with nullcontext() if drawn else without_drawing():
        answer = evaluate.run(EvaluateOptions.of(options(table, embedding, output, **given)))
    found = json.loads((output / "evaluation.json").read_text())
    assert found == json.loads(answer.to_json())
    assert not list(output.parent.glob(".*.part"))
    return dict(found)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return table_of(tmp_path_factory.mktemp("table") / "in", 3)


@pytest.fixture(scope="module")
def undisturbed(spark, small, table, tmp_path_factory):
    """The folder of an evaluation of all rows."""
    output = tmp_path_factory.mktemp("evaluation") / "out"
    run(table, small, output, drawn=True)
    return output


@pytest.fixture(scope="module")
def found(undisturbed):
    return dict(json.loads((undisturbed / "evaluation.json").read_text()))


def thirds_of(spark):
    """The third of each row."""
    rows = spark.range(ROWS).select("id", third_of(F.col("id").cast("string")).alias("third"))
    return [row["third"] for row in rows.orderBy("id").collect()]


def test_the_partitioning_and_the_batches_do_not_matter(spark, small, found, tmp_path, monkeypatch):
    """Rejects noise that hangs on a row's place, and sums whose last bits hang on their order."""
    # Nor does the length of tasks: rejects one that has most rows of a row group, and rows that no task has.
    tasks = []

    def counted(rows):
        tasks.extend(
            row["count"] for row in rows.frame.groupBy(F.spark_partition_id()).count().collect()
        )
        return count_pairs(rows)

    monkeypatch.setattr(evaluate, "count_pairs", counted)
    monkeypatch.setattr(partitioning, "_SHORTEST", 0.0)
    monkeypatch.setattr(partitioning, "_TASKS_OF_CORE", 3)
    table = table_of(tmp_path / "in", 1)
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=7):
        # The job has a session of its own, which takes the settings over.
        other = run(table, small, tmp_path / "out", mechanism=["laplace"])
    for name in ("risk", "utility"):
        assert other[name] == [row for row in found[name] if row["mechanism"] == "laplace"]
    assert other["sample"] == found["sample"]
    assert sum(tasks) == ROWS and len(tasks) >= 6 and max(tasks) <= ROWS // 3


def test_a_setting_is_chosen_on_one_third_and_checked_on_another(found, spark):
    target, thirds = found["target"], thirds_of(spark)
    assert target["options"] == "--mechanism laplace --epsilon 5"  # the other one misses the target
    assert [row["recommended"] for row in found["settings"]].count(True) == 1
    sample = found["sample"]
    assert sample["rows"] == sample["of"] == ROWS
    assert (sample["known"], sample["attacked"]) == (thirds.count(0), ROWS - thirds.count(0))
    rows = [target[third]["rows"] for third in ("chosen_on", "checked_on")]
    assert rows == [thirds.count(1), thirds.count(2)]
    shares = [target[third]["measured"] for third in ("chosen_on", "checked_on")]
    chosen = found["settings"][target["number"]]
    assert shares[0] != shares[1]
    assert min(shares) < chosen["recovered"] < max(shares)  # of both thirds together
    assert target["checked_on"]["met"]
    assert target["command"].endswith(f" --epsilon-from-private-rows {target['options']}")
    assert (
        "--text text --id id" in target["command"] and "--release-words 100 " in target["command"]
    )
    assert {row["release_words"] for row in found["settings"]} == {100}


def test_a_sample_is_chosen_by_ids_and_its_numbers_are_the_cores(spark, small, tmp_path):
    """Rejects a share of the table, rows by their places, and rows that are lost or counted twice."""
    # Also rejects other noise, other emissions, and other pairs. A public corpus teaches less.
    corpus = str(write_table(tmp_path / "public.parquet", {"text": sentences(15, 2)}))
    few = {"sample": 40, "versions": 1, "mechanism": ["laplace"], "target": None}
    found = run(table_of(tmp_path / "in", 2), small, tmp_path / "out", **few, public_corpus=corpus)
    names = spark.range(ROWS).select(
        "id", F.xxhash64(F.lit("sample"), F.col("id").cast("string")).alias("n")
    )
    evaluated = {row["id"] for row in names.orderBy("n").limit(40).collect()}
    own = [i for i, third in enumerate(thirds_of(spark)) if third and i in evaluated]
    sample = found["sample"]
    assert (sample["rows"], sample["of"], sample["known"]) == (40, ROWS, 40 - len(own))
    assert found["corpus"]["from"] == corpus and found["target"] is None
    settings = {"mechanisms": [Laplace(epsilon=5.0)], "search": ExactSearch.over(small, 100)}
    texts = [TEXTS[i] for i in own]
    here = evaluate_here(texts, own, embedding=small, corpus=sentences(15, 2), **settings)
    for name, expected in (("risk", here.risk()), ("utility", here.utility())):
        numbers_by_name = (found[name], expected.to_pylist())
        # Rows that stick out do so among all thirds, and are linked within one: tests of simulate.
        of_words = (
            [row for row in rows if row.get("attacker") not in OF_ROWS] for rows in numbers_by_name
        )
        for row, other in zip(*of_words, strict=True):
            number = {k: v for k, v in other.items() if isinstance(v, float)}
            assert {k: row[k] for k in number} == pytest.approx(number, rel=1e-9, abs=1e-9)
            assert row | number == other
    taught = evaluate_here(texts, own, embedding=small, **settings)
    shares = [Risk().totals(of.outcomes[0].sums).ratio[0] for of in (here, taught)]
    assert found["settings"][0]["recovered"] == pytest.approx(shares[0]) and shares[0] < shares[1]


def test_the_choice_sees_nothing_of_the_rows_of_the_check(spark, small, found, tmp_path):
    """Rejects attackers who learn the language of all rows: other rows of the check change the choice."""
    texts = [
        " ".join(reversed(text.split())) if third == 2 else text
        for text, third in zip(TEXTS, thirds_of(spark), strict=True)
    ]
    table = write_table(tmp_path / "backwards.parquet", {"id": list(range(ROWS)), "text": texts})
    target, other = (
        found["target"],
        run(table, small, tmp_path / "out", mechanism=["laplace"])["target"],
    )
    assert other["chosen_on"]["measured"] == target["chosen_on"]["measured"]
    assert other["checked_on"]["measured"] != target["checked_on"]["measured"]


def test_labels_and_authors_come_with_floors_and_ceilings(small, tmp_path, monkeypatch):
    """Rejects another column's classes, and another setting's models; one label is null."""
    columns = {"id": list(range(ROWS)), "text": TEXTS, "author": [i % 3 for i in range(ROWS)]}
    table = write_table(
        tmp_path / "in.parquet", columns | {"label": ["a", "b", None] * (ROWS // 3)}
    )

    def learnt(rows, column, names, mechanism, *, original=False, by_class=False, means=None):
        assert (means is None) == (original or not by_class)
        of_class = F.count(F.col(f"row.{column}")).alias("given")
        given = {
            row["third"]: row["given"]
            for row in rows.frame.groupBy("third").agg(of_class).collect()
        }
        right = 9 if original else {None: 1, 4.0: 3, 1e6: 8}[mechanism and mechanism.epsilon]
        sums = {
            third: {
                name: ClusterSums.of_rows(right + n, given[third]) for n, name in enumerate(names)
            }
            for third in ATTACKED
        }
        for third in ATTACKED if by_class else ():
            counts = ClassCounts.empty(["a", "b"])
            counts.confusion[:2, :2] = [[right, 10 - right], [0, 10]]
            sums[third][LABELS] = counts
        return sums

    monkeypatch.setattr(evaluate, "classify", learnt)
    given = {"mechanism": ["laplace"], "epsilon": (4.0, 1e6), "versions": 1}
    given |= {"label": "label", "author": "author", "target": "attribution <= 0.2"}
    found = run(table, small, tmp_path / "a", **given, drawn=True)
    thirds = thirds_of(SparkSession.active())
    authors = sum(third > 0 for third in thirds)
    labels = sum(third > 0 for i, third in enumerate(thirds) if i % 3 < 2)
    assert found["sample"]["attacked"] == authors
    accuracies = [row for row in found["utility"] if row["measure"].startswith("accuracy")]
    shares = [[row[n] * labels / 2 for n in ("floor", "value", "ceiling")] for row in accuracies]
    assert np.ravel(shares) == pytest.approx([1, 3, 9, 2, 4, 10, 1, 8, 9, 2, 9, 10])
    attributed = [row for row in found["risk"] if row["attacker"] == "attribution"]
    shares = [[row[n] * authors / 2 for n in ("floor", "recovered")] for row in attributed]
    assert np.ravel(shares) == pytest.approx([1, 3, 1, 8])
    noisy, bare = found["settings"]
    assert noisy["accuracy"] == accuracies[0]["value"]
    recalls = [row for row in found["utility"] if row["measure"] == "recall(a)"]
    shares = [[row[n] for n in ("floor", "value", "ceiling")] for row in recalls]
    assert np.ravel(shares) == pytest.approx([0.1, 0.3, 0.9, 0.1, 0.8, 0.9])
    assert found["labels"] == [{"class": "a", "rows": 20}, {"class": "b", "rows": 20}]
    assert found["target"]["options"] in (None, "--mechanism laplace --epsilon 4")
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("<img ") == 2 and "attribution" in page
    assert (bare["recovered"], bare["kept"]) == (1.0, 1.0)  # without noise
    assert bare["recovered_floor"] < noisy["recovered_low"] < noisy["recovered_high"] < 1.0
    assert noisy["recovered_floor"] == bare["recovered_floor"]


def test_no_word_of_a_text_leaves_the_job(undisturbed):
    """Rejects a page or facts with a word of a text."""
    page = re.sub(
        r"data:image/png;base64,[^\"]+|</?span>", "", (undisturbed / "report.html").read_text()
    )
    for text in (page, (undisturbed / "evaluation.json").read_text()):
        assert not re.search(r"\bw\d+\b|strange", text)
    assert "dptext privatize --input" in page and "Checked on" in page and page.count("<img ") == 1
    assert {file.stem for file in (undisturbed / "plots").iterdir()} == {"similarity"}


@pytest.mark.parametrize(
    ("rows", "given", "message"),
    [
        ({"id": [1, 1], "text": TEXTS[:2]}, {}, "cannot be the id"),
        ({"id": [1], "text": ["strange"]}, {}, "no word of the attacked rows is perturbed"),
        (
            {"id": ["T1"], "text": TEXTS[:1]},
            {"where": "id % 6 = 0"},
            "No row of the input meets the filter",
        ),
        (
            {"id": [*range(9)], "text": TEXTS[:9], "class": [*"abcabcabc"]},
            {"label": "class", "target": "recall(junk) >= 0.5"},
            r"No known row has this class of the label\. Allowed: one of the \d classes",
        ),
        (
            {"id": [*range(9)], "text": TEXTS[:9]},
            {"public_corpus": "strange"},
            "no word of the embedding",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(small, tmp_path, rows, given, message):
    if "public_corpus" in given:
        given = {
            "public_corpus": str(write_table(tmp_path / "strange", {"text": ["nothing known"]}))
        }
    with pytest.raises(DptextError, match=message):
        run(write_table(tmp_path / "in", rows), small, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_rows_are_linked_where_spark_encrypts_what_it_shuffles(small, table, tmp_path, monkeypatch):
    """Rejects private words on disks as they are, for a target, too."""
    monkeypatch.setattr(evaluate, "is_encrypted", lambda spark: False)
    with pytest.raises(DptextError, match=r"linked <= 0\.5.*spark\.io\.encryption\.enabled=true"):
        run(table, small, tmp_path / "out", target="linked <= 0.5")
    assert not (tmp_path / "out").exists()


def test_findings_are_their_owners_alone(undisturbed):
    """Rejects facts about private rows that all users of the machine may read: JSON, page and figures."""
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in [undisturbed, *undisturbed.rglob("*")]
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {"evaluation.json", "report.html", "similarity.png"} <= {path.name for path in modes}


@pytest.mark.versions
def test_the_command_prints_the_answer(small, table, tmp_path):
    """Rows are named by their places; few rows leave nothing to choose, and the output says so."""
    arguments = [
        "--input",
        table,
        "--text",
        "text",
        "--embedding",
        small.path,
        "--output",
        tmp_path / "out",
    ]
    arguments += ["--mechanism", "laplace", "--epsilon", "5", "--sample", "12"]
    arguments += ["--target", "recovery(top1)<=0.001"]
    result = CliRunner().invoke(main, ["evaluate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert "Facts about private rows" in result.output
    assert "12 of 90 rows" in result.output
    assert "no setting here meets it with 95% confidence" in result.output
    assert (
        result.output.splitlines()[-1] == f"Page, which is private: {tmp_path / 'out'}/report.html"
    )


def test_vectors_are_attacked_and_chosen(small, table, tmp_path):
    """Rejects floors or measures that are missing, and a choice of a setting that misses the target."""
    labels = ["a" if "w1" in text.split() else "b" for text in TEXTS]
    rows = {"id": list(range(ROWS)), "text": TEXTS, "label": labels, "person": labels}
    write_table(tmp_path / "in.parquet", rows)
    given = {
        "mechanism": (),
        "vectors": ["main-axes:dimension=5", "random"],
        "epsilon": (1.0, 1e3),
        "versions": 1,
        "release_words": None,
        "label": "label",
        "author": "person",
        "target": "linked <= 0.9",
    }
    facts = run(tmp_path / "in.parquet", small, tmp_path / "out", drawn=True, **given)
    assert [row["epsilon"] for row in facts["settings"]] == [1.0, 1e3, 1.0, 1e3]
    weak, strong, *_ = facts["settings"]
    for name in ("recovered_words", "linked", "membership", "attribution", "distances", "auc"):
        assert weak[f"{name}_low"] <= weak[name] <= strong[f"{name}_high"], name
        assert weak[f"{name}_floor"] is not None and weak[f"{name}_ceiling"] is not None
    assert strong["distances"] > 0.7 > 0.5 > abs(weak["distances"])
    assert strong["linked"] > 0.9 and weak["membership_floor"] == 0.5
    assert weak["spread"]["is_useless"] and not strong["spread"]["is_useless"]
    target = facts["target"]
    assert "--epsilon 1" in target["options"] and target["checked_on"]["met"]
    assert target["command"].startswith("dptext vectors --input ")
    named = {row["attacker"] for row in facts["risk"]}
    assert named >= {"recovered_words", "recovered_words(nearest)", "linked", "membership"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What attackers get" in page and "main-axes" in page


def test_bags_are_attacked_and_chosen(small, table, tmp_path):
    """Rejects attackers who do not know where words are hashed, and a command with an embedding."""
    given = {
        "mechanism": (),
        "vectors": ["bags:dimension=512", "bags:kgrams=2", "main-axes"],
        "epsilon": (1.0, 1e4),
        "versions": 1,
        "release_words": None,
        "target": "linked <= 0.9",
    }
    facts = run(table, small, tmp_path / "out", **given)
    weak, strong, pairs_weak, pairs, *axes = facts["settings"]
    assert (weak["mechanism"], pairs["mechanism"]) == ("1-grams", "2-grams")
    assert strong["recovered_words"] > 0.8 > 0.5 > weak["recovered_words"]
    assert strong["distances"] > 0.95 and strong["products"] > 0.95
    for of_weak, of_strong in ((weak, strong), (pairs_weak, pairs)):
        assert of_strong["linked"] > 0.95 > 0.3 > of_weak["linked"]
        assert of_strong["distances"] > 0.9 > 0.5 > abs(of_weak["distances"])
    # Texts of equal words in another order have other pairs.
    assert weak["recovered_words_floor"] < pairs["recovered_words"]
    assert axes[1]["linked"] > 0.95
    command = facts["target"]["command"]
    assert "--embedding" not in command and "--kgrams" in command
    arguments = shlex.split(command.removesuffix(facts["target"]["options"]))
    assert arguments[:2] == ["dptext", "vectors"]


def test_words_vectors_are_evaluated_by_row(small, tmp_path):
    """Rejects one vector for each text, and links between words of a row; labels are of rows."""
    rows = {"id": list(range(ROWS)), "words": [text.split() for text in TEXTS]}
    write_table(tmp_path / "in.parquet", rows)
    given = {"mechanism": (), "vectors": ["main-axes"], "epsilon": (500.0,), "target": None}
    given |= {"text": None, "tokens": "words", "versions": 1, "release_words": None}
    facts = run(tmp_path / "in.parquet", small, tmp_path / "out", **given)
    (setting,) = facts["settings"]
    assert setting["recovered_words"] > 0.95 and "linked" not in setting
    assert setting["spread"]["vectors"] == "words of the embedding"
