"""A large vocabulary, made small: what is built, opened, shared and searched is what the table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.made_embeddings import made_embeddings, tried

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    data: Path = made_embeddings(tmp_path_factory.mktemp("data"))
    rows: Rows = tried("large_vocabulary", data, "--dimension", "30")["rows"]
    assert {row["embedding"] for row in rows} == {"4,000 x 30"}
    return rows


def test_workers_share_one_matrix(found: Rows) -> None:
    """Rejects a copy for each worker, and the index's matrix counted as the bundle's."""
    [shared] = (row["multiple"] for row in found if "together" in row["what"])
    assert shared == pytest.approx(1.0, abs=0.05)


def test_memory_is_what_is_held_beside_mapped_files(found: Rows) -> None:
    """Rejects peaks that were not sampled, and those of the process that measures."""
    build = next(row for row in found if row["what"].startswith("build"))
    assert 20 < build["MB"] < 1_000 and build["processor seconds"] > 0.1
    for row in found:
        if row["what"].startswith("open"):
            assert 0 < row["MB"] < 200


def test_searches_keep_their_recall(found: Rows) -> None:
    """Rejects one search for all epsilons: less noise needs fewer lists for the same recall."""
    far, near = (row for row in found if row["what"] == "search in lists")
    assert far["ε"] < near["ε"] and far["looked at"] > near["looked at"]
    assert min(far["recall"], near["recall"]) >= 0.98
    assert far["N_w"] < near["N_w"]
