"""Rows under a budget on Spark: the same words however they are computed, and a report that says lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import Result
from pyspark.sql import DataFrame, SparkSession

from dptext_spark import Embedding, Exponential, Laplace, RowBudget, TextPrivatizer, privatize
from dptext_spark.accounting.composition import loss_beyond
from dptext_spark.errors import ConfigError
from dptext_spark.jobs.privatize import open_release
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import PrivatizeOptions
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.sample import CoveragePlan
from dptext_spark.tables.sums_of_persons import count_persons
from dptext_spark.text.policies import TextPolicy
from tests.helpers import worlds
from tests.helpers.tables import RING_WORDS, spark_settings, write_table
from tests.helpers.worlds import KEY

pytestmark = pytest.mark.spark

BUDGET = RowBudget(loss=30.0, within=0.2)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Rows of 0 to 39 words in two columns, one of them inside an array."""
    rng = np.random.default_rng(6)
    rows: list[Any] = [(1000, None, None), (1001, "", []), (1002, "w01", [(None,)])]
    for number in range(40):
        note = " ".join(rng.choice(RING_WORDS, number))
        turns = [(" ".join(rng.choice(RING_WORDS, part)),) for part in rng.integers(0, 6, number % 4)]
        rows.append((number, note, turns))
    schema = "id int, note string, turns array<struct<said: string>>"
    return spark.createDataFrame(rows, schema).repartition(3, "id")


def outputs(frame: DataFrame) -> dict[int, Any]:
    return {row["id"]: (row["note"], row["turns"]) for row in frame.collect()}


@pytest.mark.parametrize("mechanism", [Laplace(epsilon=40.0), Exponential(epsilon=40.0)], ids=repr)
def test_batches_and_partitions_change_nothing(
    spark: SparkSession, frame: DataFrame, ring: Embedding, mechanism: Mechanism
) -> None:
    """And each column is what the privatizer makes of it with the words of the whole row.

    Rejects an epsilon by the words of one column.
    """

    def release(df: DataFrame) -> dict[int, Any]:
        return outputs(
            privatize(
                df,
                embedding=ring,
                mechanism=mechanism,
                id="id",
                text=("note", "turns[].said"),
                keep="id",
                row_budget=BUDGET,
                key=KEY,
                name="here",
            )
        )

    first = release(frame)
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=1):
        assert release(frame.coalesce(1)) == first

    privatizer = worlds.sanitizer(ring, mechanism, key=KEY, name="here", row_budget=BUDGET)
    rows = sorted(frame.collect(), key=lambda row: row["id"])
    told = [
        len((row["note"] or "").split()) + sum(len((t["said"] or "").split()) for t in row["turns"] or [])
        for row in rows
    ]
    notes, ids = [row["note"] for row in rows], [row["id"] for row in rows]
    expected = privatizer.sanitize(notes, ids, column="note", words=np.array(told)).values.to_pylist()
    assert [first[number][0] for number in ids] == expected
    assert privatizer.sanitize(notes, ids, column="note").values.to_pylist() != expected


MARKED = (
    "id int, author string, turns array<struct<said: string, marks: array<struct<start: int, end: int>>>>"
)
TURNS: list[Any] = [("w01 w02 w03", [(4, 7)]), ("w04 nope", [(0, 3)]), (None, None), ("w05", [(0, 9)])]


def test_slots_of_elements(spark: SparkSession, ring: Embedding) -> None:
    """All that reads a row gives an element its own slots; rejects those of the first one, or of the row."""
    rows = [(1, "a", TURNS), (2, None, TURNS[:1]), (3, "a", None), (4, "b", [])]
    frame = spark.createDataFrame(rows, MARKED)
    mechanism, policy = Laplace(epsilon=40.0), TextPolicy(protect="slots:turns[].marks")
    options: dict[str, Any] = {"id": "id", "text": "turns[].said", "keep": "id", "embedding": ring.path}
    options |= {"mechanism": mechanism, "name": "here", "protect": policy.protect, "key": KEY}
    made = {row["id"]: row["turns"] for row in privatize(frame, **options, row_budget=BUDGET).collect()}

    release = worlds.sanitizer(ring, mechanism, key=KEY, name="here", row_budget=BUDGET, **vars(policy))
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

    columns = TableColumns(text=("turns[].said",), keep=("id",), id="id", protect=policy.protect)
    plan = CoveragePlan(bundle=BundleFiles.send(spark, ring), policy=policy)
    persons = count_persons(frame, columns, "author", plan, 0.3)
    assert persons is not None and (persons.persons, persons.nobody) == (2, 1)
    assert persons.words["largest"] == told.sum() == 6


def test_a_stage_of_a_pipeline(frame: DataFrame, ring: Embedding, key_file: Path, tmp_path: Path) -> None:
    given = {
        "embedding": ring.path,
        "mechanism": Laplace(epsilon=40.0),
        "id": "id",
        "text": "note",
        "name": "here",
    }
    stage = TextPrivatizer(**given, keep="id", row_budget=BUDGET, key_file=key_file)
    stage.write().save(str(tmp_path / "stage"))
    again = TextPrivatizer.load(str(tmp_path / "stage"))
    again.key_file = key_file
    made, other, plain = (
        {row["id"]: row["note"] for row in each.transform(frame).collect()}
        for each in (stage, again, TextPrivatizer(**given, keep="id", key_file=key_file))
    )
    assert made == other != plain


OPTIONS = ("--id", "id", "--row-budget", 30, "--within", 0.2)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Nine rows of 1 to 9 words, one of them with a word that the vocabulary lacks, and a null."""
    texts = [" ".join(RING_WORDS[:words]) for words in range(1, 9)] + ["w01 nope " + "w02 " * 7, None]
    rows = {"id": list(range(10)), "text": texts, "author": [1] * 10}
    return write_table(tmp_path / "in" / "notes.parquet", rows)


def test_a_job(dptext: Callable[..., Result], notes: Path, tmp_path: Path) -> None:
    result = dptext(notes, *map(str, OPTIONS), "--row-delta", "1e-6", "--reports", tmp_path / "reports")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "reports/private/report.json").read_text())
    ladder = report["row_budget"]
    assert (ladder["loss"], ladder["within"], ladder["delta"]) == (30.0, 0.2, 1e-6)
    epsilons = {rung["words"]: rung["epsilon"] for rung in ladder["epsilons"]}
    assert epsilons[1] == 10.0 >= epsilons[2] > epsilons[1 << 31] > 0.0  # --epsilon is the largest
    lengths = report["row_lengths"]
    assert (lengths["median"], lengths["longest"]) == (4, 9)
    assert lengths["epsilons"] == {"median": epsilons[4], "longest": epsilons[9]}
    assert "Budget of each row\nWhoever sees a whole row's output" in result.output
    assert "additional probability of 1e-6" in result.output
    assert "A row of the table's longest length (9 words) has epsilon" in result.output


def test_lengths_of_rows_are_told(dptext: Callable[..., Result], notes: Path, tmp_path: Path) -> None:
    """Before the run, of a sample, and after it, of all; what is left out is not counted."""
    dry = dptext(notes, "--id", "id", "--dry-run")
    assert dry.exit_code == 0, dry.output
    said = "A row of the table's longest length (9 words, in a sample of 10 rows), each word told from"
    assert said in dry.output
    result = dptext(notes, "--id", "id", "--oov", "drop", "--reports", tmp_path / "reports")
    assert "A row of the table's median length (4 words), each word told" in result.output
    assert "longest length (8 words), each word told from a nearest one" in result.output
    report = json.loads((tmp_path / "reports/private/report.json").read_text())
    losses = {loss["words"]: loss for loss in report["row_lengths"]["losses"]}
    nearest = next(x for x in report["guarantee"]["losses"] if x["from"] == "its nearest word")
    assert losses[8]["pure"] == pytest.approx(8 * nearest["pure"])
    assert losses[8]["1e-06"] < losses[8]["pure"] and losses[8]["1e-06"] > nearest["1e-06"]


def test_a_budget_is_for_words_as_far_as_a_nearest_one_unless_told(
    ring: Embedding, ring_release: dict[str, Any]
) -> None:
    given = {**ring_release, "mechanism": "laplace", "epsilon": 10.0, "text": ["text"], "row_budget": 5.0}
    given = {
        name.replace("_", "-"): str(value) if isinstance(value, Path) else value
        for name, value in given.items()
    }
    nearest = Laplace(epsilon=10.0).guarantee(ring).distances
    assert nearest is not None
    for told, within in (({}, nearest.nearest), ({"within": 1.5}, 1.5)):
        epsilons = open_release(PrivatizeOptions.of({**given, **told}))[0].row_epsilons
        assert epsilons is not None and epsilons.budget.within == within


def test_a_table_without_words(dptext: Callable[..., Result], tmp_path: Path) -> None:
    empty = write_table(tmp_path / "in" / "a.parquet", {"id": [1, 2], "text": [None, ""]})
    for arguments in ((), ("--dry-run",)):
        result = dptext(empty, "--id", "id", "--mode", "overwrite", *arguments)
        assert result.exit_code == 0 and "length" not in result.output, result.output


def test_files_that_are_added(dptext: Callable[..., Result], notes: Path, tmp_path: Path) -> None:
    """The longest row of all runs; a run under another budget is refused."""
    budget = [str(option) for option in OPTIONS if option not in ("--id", "id")]
    incremental = ("--incremental", tmp_path / "checkpoint", *budget)
    first = dptext(notes.parent, *incremental)
    assert first.exit_code == 0, first.output
    write_table(notes.parent / "more.parquet", {"id": [50], "text": ["w01 w02"], "author": [2]})
    second = dptext(notes.parent, *incremental)
    assert second.exit_code == 0 and "longest length (9 words) has epsilon" in second.output, second.output
    assert "Rows: 11, 1 of them added" in second.output
    other = dptext(notes.parent, *incremental[:2], "--row-budget", "31", *budget[2:])
    assert other.exit_code == 2 and "row-budget" in other.output


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"within": 5.0}, "--within needs --row-budget or --person"),
        ({"row-delta": 1e-6}, "--row-delta needs --row-budget"),
        ({"person": "author", "incremental": "c"}, "--person and --incremental do not go together"),
        ({"row-budget": 0.0, "within": 1.0}, "--row-budget has a wrong value"),
        ({"row-budget": 1.0, "within": 1.0, "row-delta": 1e-12}, "--row-delta has a wrong value"),
    ],
)
def test_options_that_do_not_go_together(changes: dict[str, Any], message: str) -> None:
    given = {"input": "in", "output": "out", "embedding": "e", "mechanism": "laplace", "epsilon": 10.0}
    with pytest.raises(ConfigError, match=message):
        PrivatizeOptions.of({**given, "text": "text", **changes})


@pytest.fixture
def diaries(tmp_path: Path) -> Path:
    """Rows of two columns: ten persons of one row of 3 words, one of 8 rows of 5, and two rows of nobody."""
    authors = [*(f"author{k}" for k in range(10)), *["diarist"] * 8, None, None]
    texts = [*["w01 w02"] * 10, *["w03 w04 w05 nope"] * 8, "w01 " * 50, None]
    tags = [*[["w07"]] * 18, ["w01"] * 50, None]
    rows = {"id": list(range(20)), "text": texts, "tags": tags, "author": authors}
    return write_table(tmp_path / "in" / "diaries.parquet", rows)


def test_persons(dptext: Callable[..., Result], ring: Embedding, diaries: Path, tmp_path: Path) -> None:
    """All columns and rows of a person add up; rows of nobody are in no sum.

    Rejects sums of one column, rows for persons, and nobody as a person, who would be the largest.
    """
    report = tmp_path / "reports/private/report.json"
    arguments = (
        "--id",
        "id",
        "--tokens",
        "tags",
        "--person",
        "author",
        "--within",
        "0.3",
        "--reports",
        tmp_path / "reports",
    )
    result = dptext(diaries, *arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())["persons"]
    assert (found["column"], found["persons"], found["nobody"]) == ("author", 11, 2)
    assert found["rows"] == {"50%": 1, "90%": 1, "99%": 8, "largest": 8}
    assert found["words"] == {"50%": 3, "90%": 3, "99%": 40, "largest": 40}
    assert found["losses"]["largest"]["pure"] == pytest.approx(40 * 10.0 * 0.3)
    law = Laplace(epsilon=10.0).guarantee(ring).law
    assert found["losses"]["largest"]["1e-06"] == loss_beyond(law, 0.3, words=40, delta=1e-6)
    assert "Persons, by column author: 11; 2 rows name none" in result.output
    assert "largest: 8 rows, 40 words; each word told from one 0.3 away" in result.output
    assert "diarist" not in result.output + report.read_text()


def test_persons_under_a_budget(dptext: Callable[..., Result], diaries: Path, tmp_path: Path) -> None:
    report = tmp_path / "reports/private/report.json"
    budget = (
        "--row-budget",
        "4",
        "--within",
        "0.3",
        "--oov",
        "drop",
        "--dry-run",
        "--reports",
        tmp_path / "reports",
    )
    result = dptext(diaries, "--id", "id", "--tokens", "tags", "--person", "author", *budget)
    assert result.exit_code == 0, result.output
    assert "Persons, by column author: 11; 2 rows name none" in result.output
    found = json.loads(report.read_text())["persons"]
    assert found["words"]["largest"] == 32  # the unknown ones are left out
    assert found["losses"]["largest"] == {"pure": 32.0} and found["losses"]["50%"] == {"pure": 4.0}


def test_no_persons(dptext: Callable[..., Result], tmp_path: Path) -> None:
    """A table without rows, and one without names."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("author", pa.string())])
    for name, rows in (("none", []), ("unnamed", [{"id": 1, "text": "w01", "author": None}])):
        table = pa.Table.from_pylist(rows, schema)
        source = write_table(tmp_path / name / "a.parquet", {name: table[name] for name in schema.names})
        result = dptext(source, "--id", "id", "--person", "author", "--dry-run")
        assert result.exit_code == 0 and "Persons" not in result.output, result.output
    absent = dptext(source, "--id", "id", "--person", "nobody")
    assert absent.exit_code == 2 and "lacks columns" in absent.output
