"""The ladder on made words: rungs of one loss, and some are faster by far more than turns stray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.made_embeddings import made_embeddings, tried

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rungs on 12,000 x 50."""
    data: Path = made_embeddings(tmp_path_factory.mktemp("data"))
    found = tried("ladder", data)["rows"]
    assert {row["embedding"] for row in found} == {"3,000 x 40", "12,000 x 50"}
    return [row for row in found if row["embedding"] == "12,000 x 50"]


def rung(rows: Rows, *names: str) -> dict[str, Any]:
    return next(row for row in rows if all(name in row["rung"] for name in names))


def test_no_rung_promises_less_than_another(rows: Rows) -> None:
    """Rejects one epsilon for all mechanisms, under which they lose unlike much."""
    losses = {row["loss but for 10⁻⁶, nats"] for row in rows}
    assert max(losses) == pytest.approx(min(losses), rel=1e-3)
    assert rung(rows, "exponential")["ε"] < rung(rows, "exact")["ε"]


@pytest.mark.long  # it compares times
def test_words_that_are_no_release_words_are_replaced(rows: Rows) -> None:
    """Rejects rungs that search all words, whatever their name."""
    few, all_words = rung(rows, "1,500 release words"), rung(rows, "exact")
    assert few["multiple"] > 1.5
    assert all_words["recall"] is None
    assert rung(rows, "lists, recall")["recall"] >= 0.98


@pytest.mark.long  # it compares times
def test_lists_that_are_made_make_the_difference(rows: Rows) -> None:
    """Rejects first words whose lists an earlier turn made, and lists that are made in a turn that counts."""
    first, made = (rung(rows, "truncated", when)["multiple"] for when in ("first words", "lists made"))
    assert made > 3.0 > 1.5 * first
    assert rung(rows, "truncated")["N_w"] < rung(rows, "exponential")["N_w"]


def test_hours_go_with_the_rate(rows: Rows) -> None:
    """Rejects hours of 10^9 words where 10^10 are meant, and seconds in their place."""
    for row in rows:
        assert row["core-hours, 10 bn words"] == pytest.approx(1e10 / row["words/s"] / 3600)
