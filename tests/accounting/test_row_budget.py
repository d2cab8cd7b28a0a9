"""The epsilon of a row by its number of words: never too large, hardly too small."""

import math

import numpy as np
import pytest

from dptext_spark.accounting.laws import BoundedRange, LebesgueLaw, SphericalLaplace, loss_beyond
from dptext_spark.accounting.row_budget import RowBudget, RowEpsilons
from dptext_spark.errors import ConfigError


def spherical(epsilon):
    return SphericalLaplace(dimension=50, epsilon=epsilon)


def ranged(epsilon):
    return BoundedRange(epsilon=epsilon, truncation=0.8)


@pytest.mark.parametrize("law", [spherical, ranged])
@pytest.mark.parametrize("loss", [0.1, 10.0, 1e4])
def test_a_pure_budget(law, loss):
    """No row's bounds add up to more; rejects a length that is rounded down to the rung before."""
    epsilons = RowEpsilons.of(RowBudget(loss=loss, within=1.5), law, math.inf)
    for words in [*range(1, 40), 1000, 16_384, 16_385, 10**7]:
        lost = words * law(epsilons.epsilon(words)).bound(1.5)
        assert (0.999 if words < 17 else 0.83 if words < 16_385 else 0.415) * loss < lost <= loss
    for words, before in zip(epsilons.lengths[1:], epsilons.epsilons, strict=False):
        assert words * law(before).bound(1.5) > loss


def test_a_composed_budget():
    """By finer arithmetic than its own; rejects a length rounded down, and the sum of pure bounds."""
    composed = RowEpsilons.of(RowBudget(loss=10.0, within=2.0, delta=1e-6), spherical, math.inf)
    wasted, told = [], 0
    for words in (1, 2, 3, 7, 10, 17, 30, 100, 1000):
        epsilon = composed.epsilon(words)
        loss = loss_beyond(spherical(epsilon), 2.0, words=words, delta=1e-6)
        assert loss <= 10.0
        wasted.append(1.0 - loss / 10.0)
        rung = composed.epsilons.index(epsilon)
        if rung and composed.lengths[rung] == words:
            before = loss_beyond(
                spherical(composed.epsilons[rung - 1]), 2.0, words=words, delta=1e-6
            )
            told += before > 10.0
        assert words < 2 or epsilon > 1.2 * 10.0 / (words * 2.0)
    assert told >= 4 and max(wasted) < 0.2 and wasted[0] < 0.03
    assert list(composed.epsilons) == sorted(composed.epsilons, reverse=True)


def test_epsilons_of_lengths():
    """Rejects an epsilon above the largest, that of a shorter row, and one context for two budgets."""
    capped = RowEpsilons.of(RowBudget(loss=12.0, within=1.0), spherical, 5.0)
    assert capped.epsilons[:3] == (5.0, 5.0, 4.0)
    few = [
        RowEpsilons(
            budget=RowBudget(loss=a, within=b, delta=d), lengths=(1, 2, 4), epsilons=(3.0, 2.0, 1.0)
        )
        for a, b, d in ((1, 1, 0), (2, 1, 0), (2, 2, 0), (1, 1, 0.1))
    ]
    assert few[0].of_rows(np.array([0, 1, 2, 3, 4])).tolist() == [3.0, 3.0, 2.0, 1.0, 1.0]
    assert len({epsilons.identity for epsilons in few}) == 4
    with pytest.raises(ConfigError, match="more words than a row budget allows"):
        few[0].of_rows(np.array([5]))


@pytest.mark.parametrize(("law", "delta"), [(spherical, 0.0), (spherical, 1e-6), (ranged, 0.0)])
def test_no_row_gets_an_epsilon_that_no_mechanism_may_have(law, delta):
    """Rejects noise that single precision cannot hold, and a run that fails where no row is so long."""
    tiny = RowBudget(loss=1e-12, within=1e10, delta=delta)
    with pytest.raises(ConfigError, match=r"too small: rows of 16,384 words .* least one, 1e-12"):
        RowEpsilons.of(tiny, law, math.inf)
    small = RowEpsilons.of(RowBudget(loss=1e-7, within=3.0, delta=delta), law, math.inf)
    assert small.epsilon(small.longest) >= 1e-12 and small.longest in (32_768, 65_536)
    with pytest.raises(ConfigError, match=f"more words than .*{small.longest:,} under this budget"):
        small.of_rows(np.array([1, small.longest + 1]))


def test_a_mechanism_that_loses_at_any_epsilon():
    with pytest.raises(ConfigError, match="each word costs 3 nats"):
        RowEpsilons.of(
            RowBudget(loss=10.0, within=1.0), lambda e: LebesgueLaw(dimension=3, epsilon=e), 9.0
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("loss", value) for value in (0.0, 1e-36, 1e19, math.inf)),
        *(("within", value) for value in (1e-300, 1e308, math.nan)),
        *(("delta", value) for value in (1e-11, 1.0)),
    ],
)
def test_budgets_that_are_none(name, value):
    with pytest.raises(ConfigError, match=f"The {name} of a row budget must be"):
        RowBudget(**{"loss": 1.0, "within": 1.0, name: value})
