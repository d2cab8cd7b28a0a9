"""Benchmarks: each section shows its help; small runs on made words count what they say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.benchmarks.__main__ import SECTIONS
from tests.helpers.made_embeddings import made_embeddings, tried


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_is_imported_and_shows_its_help(section: str) -> None:
    result = CliRunner().invoke(importlib.import_module(f"scripts.benchmarks.{section}").main, ["--help"])
    assert result.exit_code == 0, result.output


@pytest.mark.long
def test_workers_share_one_matrix(tmp_path: Path) -> None:
    """Rejects a copy for each worker, and peaks of the process that measures."""
    rows = tried("large_vocabulary", made_embeddings(tmp_path))["rows"]
    (shared,) = (row["multiple"] for row in rows if "together" in row["what"])
    assert shared == pytest.approx(1.0, abs=0.05)
    for row in rows:
        if row["what"].startswith("open"):
            assert 0 < row["MB"] < 200


@pytest.mark.long
def test_searches_find_the_nearest_word(tmp_path: Path) -> None:
    """Rejects points of another search, and a recall that is not of the exact nearest word."""
    rows = tried("searches", made_embeddings(tmp_path))["rows"]
    assert all(row["recall"] == 1.0 for row in rows if row["search"] == "exact, ours")
    assert min(row["recall"] for row in rows) > 0.9
    stays = [row["N_w"] for row in rows if row["search"] == "exact, ours"]
    assert stays == sorted(stays[:3]) + sorted(stays[3:6]) + sorted(stays[6:])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.e2e
def test_words_cost_no_memory(tmp_path: Path) -> None:
    """Rejects peaks of another role, a table whose words do not grow, and memory that grows with them."""
    few, many = tried("memory", made_embeddings(tmp_path))["rows"]
    assert (few["words of the table"], many["words of the table"]) == (400, 8_000)
    worker, executor = "a Python worker, resident", "an executor's JVM, resident"
    for row in (few, many):
        assert 50 < row[worker] < row[executor]
    assert many[worker] < 1.5 * few[worker]
