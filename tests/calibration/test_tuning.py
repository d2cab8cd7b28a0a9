"""Where the search for the largest epsilon of a target ends, and what it tells."""

from __future__ import annotations

import math

import pytest

from dptext_spark.calibration.target import Target
from dptext_spark.calibration.tuning import largest_epsilon, tuned
from dptext_spark.errors import ConfigError
from tests.helpers.calibration_oracle import grid


@pytest.mark.parametrize("epsilons", [[5.0], [0.01], [900.0], [1.0, 12.0, 300.0], [11.3], [11.4]])
def test_the_largest_epsilon_has_three_digits(epsilons: list[float]) -> None:
    tried = []

    def meets(epsilon: float) -> bool:
        tried.append(epsilon)
        return epsilon <= 11.37

    assert largest_epsilon(meets, epsilons) == (11.3, 11.4)
    assert len(set(tried)) == len(tried) <= 22


def test_a_search_ends_where_nothing_is_found() -> None:
    met, missed = largest_epsilon(lambda epsilon: False, [8.0])
    assert met is None
    assert missed is not None
    assert 0.0 < missed < 1e-5
    met, missed = largest_epsilon(lambda epsilon: True, [8.0])
    assert missed is None
    assert met is not None
    assert 1e5 < met < math.inf


def test_epsilons_that_a_mechanism_refuses_bound_the_search() -> None:
    def meets(epsilon: float) -> bool:
        if epsilon <= 4.0:
            raise ConfigError("The epsilon is too low")
        return epsilon <= limit

    limit = 4.5
    assert largest_epsilon(meets, [9.0])[0] == limit
    limit = 4.001
    assert largest_epsilon(meets, [9.0])[0] is None


def test_a_found_epsilon_comes_with_its_numbers_and_the_options_of_its_release() -> None:
    def measure(epsilon: float) -> tuple[float, float]:
        if epsilon < 1.0:
            raise ConfigError("The epsilon is too low")
        return epsilon / 20.0, epsilon / 10.0  # judged by its bound, not as measured

    target = Target.parse("mean(n_w) <= 0.5")
    found = tuned(target, grid(), 0, measure, release_words=30)
    assert (found["epsilon"], found["missed"]) == (5.0, 5.01)
    assert (found["measured"], found["bound"]) == (0.25, 0.5)
    assert found["options"] == "--mechanism laplace --epsilon 5 --release-words 30"
    assert (found["target"], found["setting"], found["confidence"]) == ("mean(n_w) <= 0.5", "", 0.95)
    epsilons = [tried["epsilon"] for tried in found["tried"]]
    assert epsilons == sorted(epsilons) and {2.0, 40.0, 5.0, 5.01} <= set(epsilons)

    def never(epsilon: float) -> tuple[float, float]:
        return 1.0, 1.0

    none = tuned(target, grid(), 0, never, release_words=None)
    assert none["epsilon"] is none["measured"] is none["bound"] is none["options"] is None
    assert min(tried["epsilon"] for tried in none["tried"]) == none["missed"]
