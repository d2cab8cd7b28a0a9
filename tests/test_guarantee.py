"""Bounds as they are printed: never below themselves."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_spark.guarantee import WEAK_LOSS, factor, rounded_up

BOUNDS = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)


@given(BOUNDS, st.integers(1, 6))
def test_a_printed_bound_is_never_below_itself(bound: float, digits: int) -> None:
    """Rejects rounding to the nearest."""
    printed, exact = Fraction(rounded_up(bound, digits)), Fraction(repr(bound))
    assert exact <= printed <= exact * (1 + Fraction(10) ** (1 - digits))


@pytest.mark.parametrize(
    ("bound", "printed"),
    [
        (0.0, "0"),
        (10.0, "10"),
        (0.1, "0.1"),
        (2.001, "2.01"),
        (12.5301, "12.6"),
        (99999.5, "100000"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (1.2345e300, "1.24e+300"),
    ],
)
def test_a_bound_is_printed_in_three_digits(bound: float, printed: str) -> None:
    assert rounded_up(bound) == printed


@given(st.floats(min_value=0.0, max_value=1e6))
def test_a_printed_factor_is_never_below_itself(loss: float) -> None:
    """Rejects 10^12.5 for 10^12.53."""
    printed = factor(loss).replace(",", "")
    if loss < WEAK_LOSS:
        assert math.exp(loss) <= float(printed) <= 1.0012 * math.exp(loss)
    else:
        exponent = float(printed.removeprefix("10^"))
        assert loss / math.log(10) <= exponent <= 1.012 * loss / math.log(10)


@pytest.mark.parametrize(
    ("loss", "printed"),
    [(0.0, "1"), (1.0, "2.719"), (9.0, "8,104"), (12.53 * math.log(10), "10^12.6"), (1e4, "10^4,350")],
)
def test_a_factor_is_printed_so_that_a_person_can_feel_it(loss: float, printed: str) -> None:
    assert factor(loss) == printed
