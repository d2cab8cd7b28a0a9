"""Rows under a budget on Spark: the same words however they are computed, and a report that says lengths."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark import Laplace, RowBudget, privatize
from dptext_spark.accounting.laws import loss_beyond
from dptext_spark.jobs.privatize import open_release
from dptext_spark.lookup import WordReader
from dptext_spark.options import PrivatizeOptions
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.look import count_persons
from dptext_spark.text.policies import TextPolicy
from tests.helpers import worlds
from tests.helpers.tables import RING_WORDS, spark_settings, write_table
from tests.helpers.worlds import KEY

pytestmark = pytest.mark.spark

BUDGET, MECHANISM = RowBudget(loss=30.0, within=0.2), Laplace(epsilon=40.0)


@pytest.fixture(scope="module")
def frame(spark):
    """Rows of 0 to 39 words in two columns, one of them inside an array."""
    rng = np.random.default_rng(6)
    rows = [(1000, None, None), (1001, "", []), (1002, "w01", [(None,)])]
    for number in range(40):
        note = " ".join(rng.choice(RING_WORDS, number))
        turns = [(" ".join(rng.choice(RING_WORDS, part)),) for part in rng.integers(0, 6, number % 4)]
        rows.append((number, note, turns))
    schema = "id int, note string, turns array<struct<said: string>>"
    return spark.createDataFrame(rows, schema).repartition(3, "id")


def outputs(frame):
    return {row["id"]: (row["note"], row["turns"]) for row in frame.collect()}


def test_batches_and_partitions_change_nothing(spark, frame, ring):
    """And each column is what the sanitizer makes of it with the words of the whole row."""
    # Rejects an epsilon by the words of one column.
    options = {"embedding": ring, "mechanism": MECHANISM, "id": "id", "keep": "id"}
    options |= {"text": ("note", "turns[].said"), "row_budget": BUDGET, "key": KEY, "name": "here"}
    first = outputs(privatize(frame, **options))
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=1):
        assert outputs(privatize(frame.coalesce(1), **options)) == first

    sanitizer = worlds.sanitizer(ring, MECHANISM, key=KEY, name="here", row_budget=BUDGET)
    rows = sorted(frame.collect(), key=lambda row: row["id"])
    told = [
        len((row["note"] or "").split()) + sum(len((t["said"] or "").split()) for t in row["turns"] or [])
        for row in rows
    ]
    notes, ids = [row["note"] for row in rows], [row["id"] for row in rows]
    expected = sanitizer.sanitize(notes, ids, column="note", words=np.array(told)).values.to_pylist()
    assert [first[number][0] for number in ids] == expected
    assert sanitizer.sanitize(notes, ids, column="note").values.to_pylist() != expected


MARKED = (
    "id int, author string, turns array<struct<said: string, marks: array<struct<start: int, end: int>>>>"
)
TURNS = [("w01 w02 w03", [(4, 7)]), ("w04 nope", [(0, 3)]), (None, None), ("w05", [(0, 9)])]


def test_slots_of_elements(spark, ring):
    """All that reads a row gives an element its own slots; rejects those of the first one, or of the row."""
    rows = [(1, "a", TURNS), (2, None, TURNS[:1]), (3, "a", None), (4, "b", [])]
    frame = spark.createDataFrame(rows, MARKED)
    policy = TextPolicy(protect="slots:turns[].marks")
    options = {"id": "id", "text": "turns[].said", "keep": "id", "embedding": ring.path}
    options |= {"mechanism": MECHANISM, "name": "here", "protect": policy.protect, "key": KEY}
    made = {row["id"]: row["turns"] for row in privatize(frame, **options, row_budget=BUDGET).collect()}

    release = worlds.sanitizer(ring, MECHANISM, key=KEY, name="here", row_budget=BUDGET, **vars(policy))
    texts, marks = zip(*TURNS, strict=True)
    slots = pa.array([each and [{"start": s, "end": e} for s, e in each] for each in marks])
    told = release.visible_words(pa.array(texts), slots)
    for number, turns in ((1, 4), (2, 1)):
        expected = release.sanitize(
            pa.array(texts[:turns]),
            pa.array([number] * turns),
            column="turns[].said",
            slots=slots[:turns],
            positions=np.arange(turns)[:, None],
            words=np.full(turns, told[:turns].sum()),
        )
        assert [turn["said"] for turn in made[number]] == expected.values.to_pylist()
    assert made[1][0]["said"].split()[::2] == ["w01", "w03"] and (made[3], made[4]) == (None, [])

    columns = TableColumns(text=("turns[].said",), keep=("id",), id="id", slots=policy.spans_column)
    reader = WordReader(bundle=BundleFiles.send(spark, ring), policy=policy)
    persons = count_persons(frame, columns, "author", reader, 0.3)
    assert persons is not None and (persons["persons"], persons["nobody"]) == (2, 1)
    assert persons["words"]["largest"] == told.sum() == 6


@pytest.fixture
def release(dptext, tmp_path):
    """Run ``dptext privatize`` with ids; gives what it prints, and the facts of its report."""

    def run(source, *arguments):
        folder = tmp_path / f"reports{len(list(tmp_path.iterdir()))}"
        given = ("--id", "id", "--mode", "overwrite", "--reports", folder)
        result = dptext(source, *given, *arguments)
        assert result.exit_code == 0, result.output
        return result.output, json.loads((folder / "private" / "report.json").read_text())

    return run


@pytest.fixture
def notes(tmp_path):
    """Nine rows of 1 to 9 words, one of them with a word that the vocabulary lacks, and a null."""
    texts = [" ".join(RING_WORDS[:words]) for words in range(1, 9)] + ["w01 nope " + "w02 " * 7, None]
    rows = {"id": list(range(10)), "text": texts, "author": [1] * 10}
    return write_table(tmp_path / "in" / "notes.parquet", rows)


def test_a_job(release, notes):
    """Rejects lengths that count what the policy leaves out."""
    printed, report = release(notes, "--row-budget", "30:within=0.2,delta=1e-6", "--oov", "drop")
    ladder = report["row_budget"]
    assert (ladder["loss"], ladder["within"], ladder["delta"]) == (30.0, 0.2, 1e-6)
    epsilons = {rung["words"]: rung["epsilon"] for rung in ladder["epsilons"]}
    assert epsilons[1] == 10.0 >= epsilons[2] > epsilons[1 << 31] > 0.0  # --epsilon is the largest
    lengths = report["row_lengths"]
    assert (lengths["median"], lengths["longest"]) == (4, 8)
    assert lengths["epsilons"] == {"median": epsilons[4], "longest": epsilons[8]}
    assert "Budget of each row\n" in printed and "probability 1e-6" in printed
    assert "longest length (8 words) has epsilon" in printed


def test_a_budget_is_for_words_as_far_as_a_nearest_one_unless_told(ring, ring_release):
    given = {**ring_release, "mechanism": "laplace", "epsilon": 10.0, "text": ["text"]}
    given = {k.replace("_", "-"): str(v) if isinstance(v, Path) else v for k, v in given.items()}
    nearest = Laplace(epsilon=10.0).guarantee(ring).distances
    assert nearest is not None
    for budget, within in ((5.0, nearest.nearest), ("5:within=1.5", 1.5)):
        epsilons = open_release(PrivatizeOptions.of({**given, "row-budget": budget}))[0].row_epsilons
        assert epsilons is not None and epsilons.budget.within == within


def test_files_that_are_added(dptext, notes, tmp_path):
    """The longest row of all runs; a run under another budget is refused."""
    given = ("--incremental", tmp_path / "checkpoint", "--row-budget")
    assert dptext(notes.parent, *given, "30:within=0.2").exit_code == 0
    write_table(notes.parent / "more.parquet", {"id": [50], "text": ["w01 w02"], "author": [2]})
    second = dptext(notes.parent, *given, "30:within=0.2")
    assert second.exit_code == 0 and "longest length (9 words) has epsilon" in second.output, second.output
    assert "Rows: 11, 1 of them added" in second.output
    other = dptext(notes.parent, *given, "31:within=0.2")
    assert other.exit_code == 2 and "row-budget" in other.output


def test_persons(release, ring, tmp_path):
    """All columns and rows of a person add up; rows of nobody are in no sum."""
    # Rejects sums of one column, rows for persons, and nobody as a person, who would be the largest.
    # Ten persons of one row of 3 words, one of 8 rows of 5, and two rows of nobody.
    authors = [*(f"author{k}" for k in range(10)), *["diarist"] * 8, None, None]
    texts = [*["w01 w02"] * 10, *["w03 w04 w05 nope"] * 8, "w01 " * 50, None]
    tags = [*[["w07"]] * 18, ["w01"] * 50, None]
    rows = {"id": list(range(20)), "text": texts, "tags": tags, "author": authors}
    diaries = write_table(tmp_path / "in" / "diaries.parquet", rows)
    options = ("--tokens", "tags", "--person", "author")
    printed, report = release(diaries, *options)
    found = report["persons"]
    assert (found["column"], found["persons"], found["nobody"]) == ("author", 11, 2)
    assert found["rows"] == {"50%": 1, "90%": 1, "99%": 8, "largest": 8}
    assert found["words"] == {"50%": 3, "90%": 3, "99%": 40, "largest": 40}
    guarantee = Laplace(epsilon=10.0).guarantee(ring)
    near = guarantee.distances.nearest if guarantee.distances else 0.0
    assert found["losses"]["largest"]["pure"] == pytest.approx(40 * 10.0 * near)
    assert found["losses"]["largest"]["1e-06"] == loss_beyond(guarantee.law, near, words=40, delta=1e-6)
    assert "Persons, by column author: 11; 2 rows name none" in printed
    assert "largest: 8 rows, 40 words" in printed and "diarist" not in printed + json.dumps(report)

    printed, report = release(diaries, *options, "--row-budget", "4:within=0.3", "--oov", "drop", "--dry-run")
    assert "Persons, by column author: 11; 2 rows name none" in printed
    assert "longest 51, in a sample of 20 rows" in printed
    found = report["persons"]
    assert found["words"]["largest"] == 32  # the unknown ones are left out
    assert found["losses"]["largest"] == {"pure": 32.0} and found["losses"]["50%"] == {"pure": 4.0}


def test_nothing_to_tell(release, tmp_path):
    """Of a table without words, one without rows, and one without names."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("author", pa.string())])
    unnamed = {"id": 1, "text": "w01", "author": None}
    for name, rows in (("none", []), ("unnamed", [unnamed]), ("wordless", [unnamed | {"text": ""}])):
        table = pa.Table.from_pylist(rows, schema)
        source = write_table(tmp_path / name / "a.parquet", {name: table[name] for name in schema.names})
        printed, _ = release(source, "--person", "author", "--dry-run")
        assert "Persons" not in printed and ("Words of a row" in printed) == (name == "unnamed")
