"""Search in lists on Spark: the words that it gives without Spark, and a report that says what it misses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from dptext_spark import Embedding, Laplace
from dptext_spark.embedding.lists import make_lists
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers import worlds
from tests.helpers.tables import write_table
from tests.helpers.worlds import LABEL, sanitizer

pytestmark = pytest.mark.spark

MECHANISM = Laplace(epsilon=6.0)
ROWS = 120


@pytest.fixture
def listed(tmp_path: Path) -> Embedding:
    """500 words in 12 dimensions, in 16 lists."""
    folder = tmp_path / "listed"
    folder.mkdir()
    bundle = worlds.build(folder, worlds.uneven(500, 12))
    make_lists(bundle, 16)
    return bundle


def expected(bundle: Embedding, search: IvfSearch | ExactSearch, values: list[str]) -> list[str]:
    privatizer = sanitizer(bundle, MECHANISM, name=LABEL, search=search)
    return list(privatizer.sanitize(values, range(ROWS), column="text").values.to_pylist())  # type: ignore[arg-type]


def test_a_job_finds_what_the_lists_have(
    listed: Embedding, dptext: Callable[..., Result], tmp_path: Path
) -> None:
    """Rejects a job that searches all words, one that says another recall, and lists that stay behind."""
    values = [" ".join(f"w{(7 * row + 31 * place) % 500}" for place in range(6)) for row in range(ROWS)]
    table = write_table(tmp_path / "in" / "a.parquet", {"id": list(range(ROWS)), "text": values})
    given = ["--embedding", listed.path, "--epsilon", "6", "--id", "id", "--keep", "id"]
    found = {}
    for name, chosen in (("exact", []), ("lists", ["--search", "ivf:probes=2"])):
        out = tmp_path / name
        result = dptext(table, *given, *chosen, output=out)
        assert result.exit_code == 0, result.output
        rows = pq.read_table(out).sort_by("id")
        found[name] = rows["text"].to_pylist()
        report = json.loads((tmp_path / f"{name}.release.json").read_text())
        assert ("recall" in report) == (name == "lists")
    lists = IvfSearch.over(listed, lists=16, probes=2)
    assert found["lists"] == expected(listed, lists, values)
    assert found["exact"] == expected(listed, ExactSearch.over(listed), values)
    assert found["lists"] != found["exact"]
    assert report["search"] == "ivf, 2 of 16 lists" and report["recall"]["probes"] == 2
    assert "Search ivf looks at 2 of 16 lists" in result.output


def test_a_bundle_without_lists_is_told(dptext: Callable[..., Result], tmp_path: Path) -> None:
    table = write_table(tmp_path / "in" / "a.parquet", {"id": [1], "text": ["w01"]})
    result = dptext(table, "--id", "id", "--search", "ivf")
    assert result.exit_code == 2 and "no such index" in result.output
