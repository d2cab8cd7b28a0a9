"""Bounds as they are printed: never below themselves."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_spark.accounting.composition import loss_beyond
from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.audit import bounds
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.guarantee import WEAK_LOSS, factor, rounded_up
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis, Mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds

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


# Losses but for a small probability


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    points = np.random.default_rng(4).normal(size=(120, 20))
    return worlds.build(tmp_path_factory.mktemp("guarantee"), points)


def test_losses_are_stated_for_words_and_rows(world: Embedding) -> None:
    guarantee = Laplace(epsilon=4.0).guarantee(world)
    far = guarantee.distances
    assert far is not None
    losses = {loss["from"]: loss for loss in guarantee.losses()}
    assert [loss["distance"] for loss in losses.values()] == [
        far.nearest,
        far.tenth,
        far.hundredth,
        far.largest,
        far.nearest,
        far.nearest,
    ]
    assert [loss["words"] for loss in losses.values()] == [1, 1, 1, 1, 10, 100]
    law = SphericalLaplace(dimension=20, epsilon=4.0)
    for loss in losses.values():
        assert loss["pure"] == pytest.approx(4.0 * loss["distance"] * loss["words"])
        for delta in (1e-6, 1e-9):
            expected = loss_beyond(law, loss["distance"], words=loss["words"], delta=delta)
            assert loss[f"{delta:g}"] == expected < loss["pure"]
    computed = loss_beyond.cache_info().misses
    assert guarantee.to_json()["losses"] == list(losses.values())
    described = guarantee.describe()
    assert loss_beyond.cache_info().misses == computed  # once, for all that states them
    nearest = losses["its nearest word"]
    shown = [factor(nearest[name]) for name in ("1e-06", "1e-09", "pure")]
    assert f"away: {shown[0]} or {shown[1]}, at worst {shown[2]}" in described


@pytest.mark.parametrize(
    ("epsilon", "said", "unsaid"),
    [(1000.0, "too weak", "hardly"), (3.6, "hardly", "too weak"), (1.0, "factor", "too weak")],
)
def test_a_weak_bound_is_called_weak(world: Embedding, epsilon: float, said: str, unsaid: str) -> None:
    described = Laplace(epsilon=epsilon).guarantee(world).describe()
    assert said in described and unsaid not in described


@pytest.mark.parametrize(
    "mechanism", [Laplace(epsilon=3.0), Mahalanobis(epsilon=3.0, **{"lambda": 0.5})], ids=repr
)
def test_the_stated_loss_holds_for_outputs(tmp_path: Path, mechanism: Mechanism) -> None:
    """Of 200,000 outputs each of two words of a grid, half choose the event, half test it.

    False alarms below 10^-6. A loss that is stated 40 % too low is told.
    """
    points = np.stack(np.meshgrid(np.arange(15.0) + 1, np.arange(9.0)), axis=-1).reshape(-1, 2)
    world, delta = worlds.build(tmp_path, points), 0.01
    one, other = 66, 68  # in the middle row
    apart = float(mechanism.metric(world).between(np.array([one]), np.array([other]))[0])
    stated = mechanism.guarantee(world).loss_beyond(delta, apart)
    bound, runs = mechanism.bind(world, ExactSearch.over(world)), 100_000
    uniforms = np.random.default_rng(8).random((4, runs, mechanism.uniforms_per_token(2)))
    chosen, against, tested, misses = (
        np.bincount(bound(np.full(runs, word), u), minlength=len(points))
        for word, u in zip((one, other, one, other), uniforms, strict=True)
    )

    def shown(loss: float) -> bool:
        event = chosen > math.exp(loss) * against
        counts = (np.array([counted[event].sum()]) for counted in (tested, misses))
        return bool(bounds.loss_bound(*counts, runs, 1e-6, delta)[0] > loss)

    assert not shown(stated)
    assert shown(0.6 * stated)


def test_whom_the_bound_of_one_word_is_for(plane: Embedding) -> None:
    """Odds of two words by the outputs of two, enumerated.

    Rejects "whoever sees the output": where a second word goes with the first, its output tells of it too.
    """
    mechanism = Exponential(epsilon=1.0)
    guarantee = mechanism.guarantee(plane)
    chances = mechanism.bind(plane, ExactSearch.over(plane)).probabilities(np.arange(6))

    def odds(second: np.ndarray, other: np.ndarray) -> float:
        """The most that outputs favour words 3 to 5, the second word having these chances beside each."""
        first = chances[3] / chances[5]
        return float(np.log(np.max(first[:, None] * ((second @ chances) / (other @ chances))[None, :])))

    def bound(a: int, b: int) -> float:
        return guarantee.loss(float(np.linalg.norm(plane.vectors[a] - plane.vectors[b])))

    known, independent = np.eye(6)[1], np.array([0.3, 0.1, 0.1, 0.2, 0.2, 0.1])
    assert odds(known, known) <= bound(3, 5)
    assert odds(independent, independent) <= bound(3, 5)
    together = odds(np.eye(6)[1], np.eye(6)[4])
    assert 2.0 * bound(3, 5) < together <= bound(3, 5) + bound(1, 4)
    said = guarantee.describe()
    assert (
        "Whoever knows the other words of its row, or for whom they say nothing of it, gains no more" in said
    )
    assert "the bounds of all words that may differ add up" in said
