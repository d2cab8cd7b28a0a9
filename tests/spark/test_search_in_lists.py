"""Search in lists on Spark: the words that it gives without Spark, and a report that says what it misses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from dptext_spark import Laplace
from dptext_spark.embedding.lists import make_lists
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers import worlds
from tests.helpers.tables import write_table
from tests.helpers.worlds import LABEL, sanitizer

pytestmark = pytest.mark.spark

MECHANISM = Laplace(epsilon=6.0)
ROWS = 120


def test_a_job_finds_what_the_lists_have(dptext: Callable[..., Result], tmp_path: Path) -> None:
    """Rejects a job that searches all words, one that says another recall, and lists that stay behind."""
    (tmp_path / "listed").mkdir()
    listed = worlds.build(tmp_path / "listed", worlds.uneven(500, 12))
    make_lists(listed, 16)
    values = [" ".join(f"w{(7 * row + 31 * place) % 500}" for place in range(6)) for row in range(ROWS)]
    table = write_table(tmp_path / "in" / "a.parquet", {"id": list(range(ROWS)), "text": values})
    given = ["--embedding", listed.path, "--epsilon", "6", "--id", "id", "--keep", "id"]
    lists = IvfSearch.over(listed, lists=16, probes=2)
    found = []
    for name, chosen, search in (
        ("exact", [], ExactSearch.over(listed)),
        ("lists", ["--search", "ivf:probes=2"], lists),
    ):
        out = tmp_path / name
        result = dptext(table, *given, *chosen, output=out)
        assert result.exit_code == 0, result.output
        found.append(pq.read_table(out).sort_by("id")["text"].to_pylist())
        expected = sanitizer(listed, MECHANISM, name=LABEL, search=search)
        assert found[-1] == expected.sanitize(values, range(ROWS), column="text").values.to_pylist()
        report = json.loads((tmp_path / f"{name}.release.json").read_text())
        assert ("recall" in report) == (name == "lists")
    assert found[0] != found[1]
    assert report["search"] == "ivf, 2 of 16 lists" and report["recall"]["probes"] == 2
    assert "Search ivf looks at 2 of 16 lists" in result.output


def test_a_bundle_without_lists_is_told(dptext: Callable[..., Result], tmp_path: Path) -> None:
    table = write_table(tmp_path / "in" / "a.parquet", {"id": [1], "text": ["w01"]})
    result = dptext(table, "--id", "id", "--search", "ivf")
    assert result.exit_code == 2 and "no such index" in result.output
