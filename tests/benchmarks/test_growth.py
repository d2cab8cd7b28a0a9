"""The growth of the job on made words: time that grows with words, and memory that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.made_embeddings import made_embeddings, tried


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.e2e
def test_words_cost_time_and_no_memory(tmp_path: Path) -> None:
    """Rejects a table whose words do not grow, a first row that is no unit, and peaks of another role."""
    few, many = tried("growth", made_embeddings(tmp_path), "--series", "words")["rows"]
    assert (few["words"], many["words"]) == (1_000, 50_000) and few["vocabulary"] == many[
        "vocabulary"
    ] == 3_000
    assert few["rate / first"] == few["processor time of a word / first"] == 1.0
    # Most of a small run is Spark's start.
    assert many["rate / first"] > 5 and many["processor time of a word / first"] < 0.2
    for row in (few, many):
        assert 50 < row["worker, MB"] < row["JVM, MB"]
    assert many["worker, MB"] < 1.5 * few["worker, MB"]
