"""What reports say of rows' lengths and of persons: the guarantee's own numbers, or a budget's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dptext_spark import Embedding, Laplace, RowBudget
from dptext_spark.report.persons import Persons
from dptext_spark.report.row_lengths import RowLengths

MECHANISM = Laplace(epsilon=2.0)
BUDGET = RowBudget(loss=3.0, within=0.5)
LENGTHS = RowLengths(median=2, longest=31)
SIZES = {"rows": {"50%": 1, "largest": 4}, "words": {"50%": 0, "largest": 30}}
PERSONS = Persons(column="author", persons=7, nobody=0, within=0.5, **SIZES)


def test_rows_without_a_budget(line: Embedding) -> None:
    """Rejects numbers of one word, and those of the other length."""
    guarantee = MECHANISM.guarantee(line)
    assert guarantee.distances is not None
    near = guarantee.distances.nearest
    found = LENGTHS.to_json(guarantee, None)["losses"]
    assert [(x["row"], x["words"], x["pure"]) for x in found] == [
        ("median", 2, pytest.approx(4.0 * near)),
        ("longest", 31, pytest.approx(62.0 * near)),
    ]
    assert [x["1e-09"] for x in found] == [guarantee.loss_beyond(1e-9, near, words) for words in (2, 31)]
    median, longest = LENGTHS.describe(guarantee, None)
    assert median.startswith(
        "A row of the table's median length (2 words), each word told from a nearest one: "
    )
    assert longest.startswith("A row of the table's longest length (31 words), each")


def test_rows_under_a_budget(line: Embedding) -> None:
    guarantee, epsilons = MECHANISM.guarantee(line), MECHANISM.row_epsilons(BUDGET, line)
    assert LENGTHS.describe(guarantee, epsilons) == [
        "A row of the table's median length (2 words) has epsilon 2.",
        "A row of the table's longest length (31 words) has epsilon 0.188.",  # 3 / (32 * 0.5): the rung is 32
    ]
    sampled = RowLengths(median=None, longest=1, sample=1200)
    assert sampled.describe(guarantee, epsilons) == [
        "A row of the table's longest length (1 word, in a sample of 1,200 rows) has epsilon 2."
    ]
    assert RowLengths(median=0, longest=0).describe(guarantee, epsilons) == []


def test_persons(line: Embedding) -> None:
    guarantee, epsilons = MECHANISM.guarantee(line), MECHANISM.row_epsilons(BUDGET, line)
    losses = PERSONS.losses(guarantee, None)
    assert losses.keys() == {"largest"} and losses["largest"]["pure"] == 30.0
    assert losses["largest"]["1e-06"] == guarantee.loss_beyond(1e-6, 0.5, 30)
    title, half, largest = PERSONS.describe(guarantee, None)
    assert (title, half) == ("Persons, by column author: 7", "50%: 1 rows, 0 words")
    assert largest.startswith("largest: 4 rows, 30 words; each word told from one 0.5 away: ")
    assert PERSONS.losses(guarantee, epsilons) == {"50%": {"pure": 3.0}, "largest": {"pure": 12.0}}


def test_persons_under_a_budget_with_a_delta(line: Embedding) -> None:
    """Budgets of rows add up, and so do their deltas."""
    guarantee, epsilons = MECHANISM.guarantee(line), MECHANISM.row_epsilons(BUDGET, line)
    epsilons = replace(epsilons, budget=replace(BUDGET, delta=0.01))
    assert PERSONS.losses(guarantee, epsilons)["largest"] == {"loss": 12.0, "delta": 0.04}
    assert "additional probability of 0.04" in PERSONS.describe(guarantee, epsilons)[-1]
