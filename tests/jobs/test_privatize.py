"""dptext privatize: budgets of rows, and what its report says of their lengths and of persons."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from dptext_spark import Laplace
from dptext_spark.accounting.laws import loss_beyond
from dptext_spark.jobs.privatize import open_release
from dptext_spark.options import PrivatizeOptions
from tests.helpers.tables import RING_WORDS, write_table

pytestmark = pytest.mark.spark


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
    texts = [" ".join(RING_WORDS[:words]) for words in range(1, 9)] + [
        "w01 nope " + "w02 " * 7,
        None,
    ]
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
        epsilons = open_release(PrivatizeOptions.of({**given, "row-budget": budget}))[
            0
        ].row_epsilons
        assert epsilons is not None and epsilons.budget.within == within


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
    assert found["losses"]["largest"]["1e-06"] == loss_beyond(
        guarantee.law, near, words=40, delta=1e-6
    )
    assert "Persons, by column author: 11; 2 rows name none" in printed
    assert "largest: 8 rows, 40 words" in printed and "diarist" not in printed + json.dumps(report)

    printed, report = release(
        diaries, *options, "--row-budget", "4:within=0.3", "--oov", "drop", "--dry-run"
    )
    assert "Persons, by column author: 11; 2 rows name none" in printed
    lengths = report["row_lengths"]
    assert (lengths["longest"], lengths["sample"]) == (100, 20)
    found = report["persons"]
    assert found["words"]["largest"] == 32  # the unknown ones are left out
    assert found["losses"]["largest"] == {"pure": 32.0} and found["losses"]["50%"] == {"pure": 4.0}


def test_nothing_to_tell(release, tmp_path):
    """Of a table without words, and one without rows."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("author", pa.string())])
    unnamed = {"id": 1, "text": "", "author": None}
    for name, rows in (("none", []), ("wordless", [unnamed])):
        table = pa.Table.from_pylist(rows, schema)
        source = write_table(
            tmp_path / name / "a.parquet", {name: table[name] for name in schema.names}
        )
        printed, _ = release(source, "--person", "author", "--dry-run")
        assert "Persons" not in printed and "Words of a row" not in printed
