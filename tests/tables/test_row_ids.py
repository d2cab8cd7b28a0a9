"""Rows that are named by their file and their position in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from pyspark.sql import SparkSession
from scipy import stats

from dptext_spark import Embedding, Laplace
from tests.helpers.spark_fixtures import Opened
from tests.helpers.tables import names, refused, rows_of, spark_settings, texts, write_table
from tests.helpers.worlds import LABEL, sanitizer

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

TINY = 1e-3


@pytest.fixture
def release_of(
    dptext: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[dict[str, Any]]]:
    """Run at a tiny epsilon, where equal words mean equal noise; give the rows in a settled order."""

    def run(source: Path | str, *options: str) -> list[dict[str, Any]]:
        output = tmp_path_factory.mktemp("released") / "out"
        result = dptext(source, "--epsilon", str(TINY), *options, output=output)
        assert result.exit_code == 0, result.output
        # Spark orders files of equal size as the file system lists them.
        return sorted(rows_of(output), key=lambda row: row["text"])

    return run


@pytest.fixture
def named(opened: Opened) -> Callable[..., list[str]]:
    """What the rows of a table are named by, in a settled order."""

    def run(source: Path | str) -> list[str]:
        read = opened(source, "parquet")
        return sorted(row[0] for row in read.df.select(read.position).collect())

    return run


def test_a_copy_of_the_table_elsewhere_gets_the_same_names(
    named: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Two files of equal content, and rows of equal content within one, have names of their own."""
    name = "per%20cent% 東京 é a+b&c;d#e (x)$^~'q'"
    for place in ("here", f"else {name}/deep"):
        for file in (f"flat/{name}", "flat/x", f"deep/p={name}/x", "deep/p=q/x"):
            write_table(tmp_path / place / f"{file}.parquet", {"text": texts(10)})
    for table in ("flat", "deep"):
        here = named(tmp_path / "here" / table)
        assert here == named(tmp_path / f"else {name}" / "deep" / table)
        assert len({*here}) == 20


def test_a_file_alone_has_the_names_that_it_has_in_its_folder(
    named: Callable[..., list[str]], tmp_path: Path
) -> None:
    for name in "ab":
        write_table(tmp_path / "in" / f"{name}.parquet", {"text": texts(10)})
    names = named(tmp_path / "in")
    assert sorted(row for name in "ab" for row in named(tmp_path / "in" / f"{name}.parquet")) == names
    assert named(f"{tmp_path}/./in/") == names == named(f"file:{tmp_path}/in")


def test_how_spark_splits_a_file_does_not_matter(
    named: Callable[..., list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts(60)}), tmp_path / "in" / "x.parquet", row_group_size=10)
    whole = named(tmp_path / "in")
    with spark_settings(spark, files_maxPartitionBytes=1000, files_openCostInBytes=0):
        assert named(tmp_path / "in") == whole
        assert spark.read.parquet(str(tmp_path / "in")).rdd.getNumPartitions() > 3  # it was split indeed
    assert len({*whole}) == 60


def test_a_column_named_metadata_is_no_row_id(
    release_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    fake = [{"file_path": "x", "row_index": 0}] * 10
    write_table(tmp_path / "in" / "x.parquet", {"_metadata": fake, "text": ["w00 w01 w02 w03 w04"] * 10})
    rows = release_of(tmp_path / "in")
    assert len({row["text"] for row in rows}) == 10


def test_a_pattern_as_input_needs_an_id(
    dptext: Callable[..., Result], ring: Embedding, table: Path, tmp_path: Path
) -> None:
    assert refused(dptext(f"{table}/*.parquet"), "cannot be named by file and position.*--id")
    assert names(tmp_path) == {"in"}
    assert dptext(f"{table}/*.parquet", "--id", "id", "--keep", "id").exit_code == 0
    rows, mechanism = rows_of(table), Laplace(epsilon=10.0)
    privatizer = sanitizer(ring, mechanism, name=LABEL)
    given, ids = pa.array([row["text"] for row in rows]), pa.array([row["id"] for row in rows])
    expected = privatizer.sanitize(given, ids, column="text").values.to_pylist()
    assert {row["id"]: row["text"] for row in rows_of(tmp_path / "out")} == dict(
        zip(ids.to_pylist(), expected, strict=True)
    )


def test_tables_under_labels_of_their_own_do_not_tell_which_texts_are_equal(
    release_of: Callable[..., list[dict[str, Any]]],
    dptext: Callable[..., Result],
    tmp_path: Path,
) -> None:
    """Two files of one name, so of the same row ids; half of their texts are equal.

    Rejects, as a mutant, one label for both, as where there need not be one. False alarms: 1e-9 each.
    """
    count = 500
    one = [f"w{row % 64:02d}" for row in range(2 * count)]
    two = one[:count] + [f"w{(row + 1) % 64:02d}" for row in range(count, 2 * count)]
    for name, words in {"a": one, "b": two}.items():
        write_table(tmp_path / name / "part-0.parquet", {"row": range(2 * count), "text": words})

    def released(name: str, label: str) -> dict[int, str]:
        rows = release_of(tmp_path / name / "part-0.parquet", "--keep", "row", "--name", label)
        return {row["row"]: row["text"] for row in rows}

    first = released("a", "a 2026-03-01")

    def equal_outputs(second: dict[int, str]) -> tuple[int, int]:
        """How many of the equal texts, and how many of the others, came out as in the first table."""
        equal = [first[row] == second[row] for row in range(2 * count)]
        return sum(equal[:count]), sum(equal[count:])

    by_chance = stats.binom.isf(1e-9, count, 1 / 64)
    assert max(equal_outputs(released("b", "b 2026-03-01"))) <= by_chance
    same = equal_outputs(released("b", "a 2026-03-01"))
    assert same[0] == count and same[1] <= by_chance
    unnamed = dptext(tmp_path / "a" / "part-0.parquet", "--name", "")
    assert unnamed.exit_code == 2 and "needs the name of this release" in unnamed.output
