"""Benchmarks: each section is imported; small runs on made words count what they say."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.made_embeddings import made_embeddings, tried

SECTIONS: Final = sorted((Path(__file__).parents[2] / "scripts" / "benchmarks").glob("[a-z]*.py"))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda file: file.stem)
def test_a_section_is_imported(section: Path) -> None:
    importlib.import_module(f"scripts.benchmarks.{section.stem}")


@pytest.mark.long
def test_workers_share_one_matrix(tmp_path: Path) -> None:
    """Rejects a copy for each worker, and peaks of the process that measures."""
    rows = tried("large_vocabulary", made_embeddings(tmp_path), "--dimension", "30")["rows"]
    (shared,) = (row["multiple"] for row in rows if "together" in row["what"])
    assert shared == pytest.approx(1.0, abs=0.05)
    for row in rows:
        if row["what"].startswith("open"):
            assert 0 < row["MB"] < 200


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.e2e
def test_words_cost_time_and_no_memory(tmp_path: Path) -> None:
    """Rejects a table whose words do not grow, a first row that is no unit, and peaks of another role."""
    few, many = tried("growth", made_embeddings(tmp_path), "--series", "words")["rows"]
    assert (few["words"], many["words"]) == (1_000, 50_000)
    assert few["rate / first"] == few["processor time of a word / first"] == 1.0
    # Most of a small run is Spark's start.
    assert many["rate / first"] > 5 and many["processor time of a word / first"] < 0.2
    each: dict[str, Any]
    for each in (few, many):
        assert 50 < each["worker, MB"] < each["JVM, MB"]
    assert many["worker, MB"] < 1.5 * few["worker, MB"]
