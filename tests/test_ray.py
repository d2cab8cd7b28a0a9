"""The block for Ray Data of docs/recipes/engines.md; run by scripts/package check ray."""

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dptext_spark.demo import GLOVE, QUERIES
from dptext_spark.embedding.build import build_embedding
from dptext_spark.noise import NoiseKey

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[1] / "docs/recipes/engines.md"
FUNCTION, BLOCK = re.findall(
    r"^```py(?:thon)?\n((?:from dptext_spark import Laplace|import ray).*?)^```$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def test_ray_gives_the_words_of_one_call(tmp_path, monkeypatch):
    """Rejects tasks with keys of their own; the page itself compares the words of one call with Spark's."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.chdir(tmp_path)
    build_embedding(GLOVE, tmp_path / "glove-50d")
    key = tmp_path / "release.key"
    key.write_bytes(NoiseKey.generate().secret)
    key.chmod(0o600)
    shutil.copy(QUERIES, "queries.parquet")
    ray.init(num_cpus=2, include_dashboard=False)
    names = {}
    try:
        exec(FUNCTION + BLOCK.replace(".map_batches(", ".repartition(4).map_batches("), names)
    finally:
        ray.shutdown()
    released = pq.read_table(tmp_path / "by-ray").sort_by("id")
    assert len([*(tmp_path / "by-ray").iterdir()]) > 1  # several tasks
    queries = pq.read_table(QUERIES, columns=["id", "intent", "text"]).sort_by("id")
    expected = names["sanitized"](queries)
    assert released["text"].to_pylist() == expected["text"].to_pylist()
    assert released["id"].equals(expected["id"])
    assert released["text"].to_pylist() != queries["text"].to_pylist()
