"""The epsilon of a row by its number of words: never too large, hardly too small."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dptext_spark.accounting.composition import loss_beyond
from dptext_spark.accounting.laws import BoundedRange, LebesgueLaw, LossLaw, SphericalLaplace
from dptext_spark.accounting.row_budget import RowBudget, RowEpsilons
from dptext_spark.errors import ConfigError


def spherical(epsilon: float, dimension: int = 50) -> LossLaw:
    return SphericalLaplace(dimension=dimension, epsilon=epsilon)


def ranged(epsilon: float) -> LossLaw:
    return BoundedRange(epsilon=epsilon, truncation=0.8)


@pytest.mark.parametrize("law", [spherical, ranged])
@pytest.mark.parametrize("loss", [0.1, 10.0, 1e4])
def test_a_pure_budget(law: Callable[[float], LossLaw], loss: float) -> None:
    """No row's bounds add up to more; rejects a length that is rounded down to the rung before."""
    epsilons = RowEpsilons.of(RowBudget(loss=loss, within=1.5), law, math.inf)
    for words in [*range(1, 40), 1000, 16_384, 16_385, 10**7]:
        epsilon = epsilons.epsilon(words)
        assert 0.83 * loss < words * law(epsilon).bound(1.5) * (1 if words < 16_385 else 2) <= 2 * loss
        assert words * law(epsilon).bound(1.5) <= loss
    for words, before in zip(epsilons.lengths[1:], epsilons.epsilons, strict=False):
        assert words * law(before).bound(1.5) > loss
    assert all(words * law(epsilons.epsilon(words)).bound(1.5) > 0.999 * loss for words in range(1, 17))


@pytest.fixture(scope="module")
def composed() -> RowEpsilons:
    return RowEpsilons.of(RowBudget(loss=10.0, within=2.0, delta=1e-6), spherical, math.inf)


def test_a_composed_budget(composed: RowEpsilons) -> None:
    """By finer arithmetic than the epsilons's; rejects a length rounded down, and the sum of pure bounds."""
    wasted, told = [], 0
    for words in (1, 2, 3, 7, 10, 17, 30, 100, 1000):
        epsilon = composed.epsilon(words)
        loss = loss_beyond(spherical(epsilon), 2.0, words=words, delta=1e-6)
        assert loss <= 10.0
        wasted.append(1.0 - loss / 10.0)
        rung = composed.epsilons.index(epsilon)
        if rung and composed.lengths[rung] == words:
            before = loss_beyond(spherical(composed.epsilons[rung - 1]), 2.0, words=words, delta=1e-6)
            told += before > 10.0
        assert words < 2 or epsilon > 1.2 * 10.0 / (words * 2.0)
    assert told >= 4 and max(wasted) < 0.2 and wasted[0] < 0.03
    assert list(composed.epsilons) == sorted(composed.epsilons, reverse=True)


@pytest.mark.long
def test_a_budget_of_a_mechanism_of_bounded_range() -> None:
    epsilons = RowEpsilons.of(RowBudget(loss=3.0, within=0.5, delta=1e-6), ranged, math.inf)
    for words in (1, 5, 40, 300):
        law = ranged(epsilons.epsilon(words))
        assert 2.3 < loss_beyond(law, 0.5, words=words, delta=1e-6) <= 3.0


def test_no_row_gets_more_than_the_largest() -> None:
    epsilons = RowEpsilons.of(RowBudget(loss=12.0, within=1.0), spherical, 5.0)
    assert epsilons.epsilons[:3] == (5.0, 5.0, 4.0)


def test_epsilons_of_lengths() -> None:
    epsilons = RowEpsilons(
        budget=RowBudget(loss=1.0, within=1.0), lengths=(1, 2, 4), epsilons=(3.0, 2.0, 1.0)
    )
    assert epsilons.of_rows(np.array([0, 1, 2, 3, 4])).tolist() == [3.0, 3.0, 2.0, 1.0, 1.0]
    with pytest.raises(ConfigError, match="more words than a row budget allows"):
        epsilons.of_rows(np.array([5]))


def test_epsilons_that_differ_share_no_context() -> None:
    budgets = [
        RowBudget(loss=a, within=b, delta=d) for a, b, d in ((1, 1, 0), (2, 1, 0), (2, 2, 0), (1, 1, 0.1))
    ]
    budgeted = [RowEpsilons(budget=budget, lengths=(1, 2), epsilons=(3.0, 2.0)) for budget in budgets]
    assert len({epsilons.identity for epsilons in budgeted}) == 4


def test_a_mechanism_that_loses_at_any_epsilon() -> None:
    with pytest.raises(ConfigError, match="rows of 3 words"):
        RowEpsilons.of(RowBudget(loss=10.0, within=1.0), lambda e: LebesgueLaw(dimension=3, epsilon=e), 9.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": 0.0},
        {"loss": math.inf},
        {"within": math.nan},
        *({"delta": d} for d in (1e-11, 1.0, math.nan)),
    ],
)
def test_budgets_that_are_none(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="of a row budget is wrong"):
        RowBudget(**{"loss": 1.0, "within": 1.0, **wrong})
