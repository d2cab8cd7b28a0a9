"""Bounds as they are printed: never below themselves."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_spark.accounting.laws import SphericalLaplace, loss_beyond
from dptext_spark.guarantee import WEAK_LOSS, factor, rounded_up
from dptext_spark.mechanisms import Laplace
from tests.helpers import worlds

BOUNDS = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)


@given(BOUNDS, st.integers(1, 6))
def test_a_printed_bound_is_never_below_itself(bound, digits):
    """Rejects rounding to the nearest."""
    printed, exact = Fraction(rounded_up(bound, digits)), Fraction(repr(bound))
    assert exact <= printed <= exact * (1 + Fraction(10) ** (1 - digits))


@given(st.floats(min_value=0.0, max_value=1e6))
def test_a_printed_factor_is_never_below_itself(loss):
    """Rejects e^12.5 for e^12.53."""
    printed = factor(loss).replace(",", "")
    if loss < WEAK_LOSS:
        assert math.exp(loss) <= float(printed) <= 1.0012 * math.exp(loss)
    else:
        assert loss <= float(printed.removeprefix("e^")) <= 1.01 * loss


def test_bounds_and_factors_are_printed_so_that_a_person_can_feel_them():
    bounds = {0.0: "0", 10.0: "10", 0.1: "0.1", 2.001: "2.01", 12.5301: "12.6", 99999.5: "100000"}
    bounds |= {1e-7: "1e-7", 5e-324: "5e-324", 1.2345e300: "1.24e+300"}
    assert {bound: rounded_up(bound) for bound in bounds} == bounds
    factors = {0.0: "1", 1.0: "2.719", 9.0: "8,104", 28.81: "e^28.9", 1e4: "e^10,000"}
    assert {loss: factor(loss) for loss in factors} == factors


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    points = np.random.default_rng(4).normal(size=(120, 20))
    return worlds.build(tmp_path_factory.mktemp("guarantee"), points)


def test_losses_are_stated_for_words_and_rows(world):
    guarantee = Laplace(epsilon=4.0).guarantee(world)
    far, law = guarantee.distances, SphericalLaplace(dimension=20, epsilon=4.0)
    losses = {loss["from"]: loss for loss in guarantee.losses()}
    away = [far.nearest, far.tenth, far.hundredth, far.largest, far.nearest, far.nearest]
    stated = [(loss["distance"], loss["words"]) for loss in losses.values()]
    assert stated == [*zip(away, [1, 1, 1, 1, 10, 100], strict=True)]
    for loss in losses.values():
        assert loss["pure"] == pytest.approx(4.0 * loss["distance"] * loss["words"])
        for delta in (1e-6, 1e-9):
            expected = loss_beyond(law, loss["distance"], words=loss["words"], delta=delta)
            assert loss[f"{delta:g}"] == expected < loss["pure"]
    computed = loss_beyond.cache_info().misses
    assert guarantee.to_json()["losses"] == list(losses.values())
    described, nearest = guarantee.describe(), losses["its nearest word"]
    assert "the bounds of all words that may differ add up" in described
    assert loss_beyond.cache_info().misses == computed  # once, for all that states them
    shown = [factor(nearest[name]) for name in ("1e-06", "1e-09", "pure")]
    assert f"away: {shown[0]} or {shown[1]}; worst case {shown[2]}" in described
    _, bound, worst = guarantee.summary().splitlines()
    assert f"at most {shown[0]} (failure probability 1e-06)" in bound
    assert worst.startswith(f"Worst case: a factor of {shown[2]}.")


@pytest.mark.parametrize(
    ("epsilon", "said", "unsaid"),
    [
        (1000.0, "even among its nearest", "more than its"),
        (3.6, "among more than its nearest neighbours.", "even among"),
        (1.0, "factor", "too weak"),
    ],
)
def test_a_weak_bound_is_called_weak(world, epsilon, said, unsaid):
    described = Laplace(epsilon=epsilon).guarantee(world).describe()
    assert said in described and unsaid not in described
