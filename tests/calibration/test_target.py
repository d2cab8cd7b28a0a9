"""Targets: bounded by a rank, and met by the largest epsilon."""

import math

import pytest
from scipy import stats

from dptext_spark.calibration.target import (
    Target,
    bounding_rank,
    largest_epsilon,
    searched,
    tuned,
)
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis
from tests.helpers.calibration_oracle import grid

LOOKS = 2 + 24  # the grid's epsilons, and twelve doublings and twelve halvings
VICKREY = tuple(Laplace(epsilon=e, select="vickrey", t=0.5) for e in (2.0, 40.0))
EXACT = {"mechanisms": tuple(Exponential(epsilon=e) for e in (2.0, 40.0)), "estimator": "exact"}


def rank(text, words, *, whole=False, **changes):
    target = Target.parse(text)
    return bounding_rank(
        target, searched(target, grid(words, words if whole else 2 * words, **changes))
    )


@pytest.mark.parametrize(
    ("text", "changes", "looks"),
    [
        ("p95(n_w) <= 0.5", {}, 1),
        ("p95(n_w) <= 0.5", {"mechanisms": VICKREY}, LOOKS),
        ("p5(entropy) >= 2", {}, LOOKS),
        ("p50(n_w) <= 0.5", EXACT, LOOKS),
        ("p50(n_w) <= 0.5", {"vocabulary": 64, **EXACT}, 1),
    ],
)
def test_what_grows_with_epsilon_is_searched_at_full_confidence_and_all_else_shares_it(
    text, changes, looks
):
    asked = grid(64, **{"vocabulary": 128} | changes)
    assert 1.0 - searched(Target.parse(text), asked).confidence == pytest.approx(0.05 / looks)


@pytest.mark.parametrize("words", [150, 10_000])
def test_a_sample_bounds_a_quantile_by_the_binomial_law(words):
    each = 0.05 / LOOKS
    for changes, level, error in (
        (EXACT, 0.95, each),
        ({}, 0.95 + 0.05 * 0.025, 0.05),  # counted runs: the limits of some words are too low
    ):
        upper = rank("p95(n_w) <= 0.5", words, **changes)
        assert (
            stats.binom.sf(upper - 1, words, level)
            <= error
            < stats.binom.sf(upper - 2, words, level)
        )
    lower = rank("p50(s_w) >= 5", words)
    assert stats.binom.cdf(lower - 1, words, 0.5) <= each < stats.binom.cdf(lower, words, 0.5)
    for text in ("max(n_w) <= 0.5", "min(s_w) >= 5"):
        with pytest.raises(ConfigError, match="words are too few"):
            rank(text, words)


@pytest.mark.parametrize(
    ("text", "words", "changes", "expected"),
    [
        ("p95(n_w) <= 0.5", 100, EXACT, 95),
        ("max(n_w) <= 0.5", 100, {}, 100),
        ("p50(n_w) <= 0.5", 9, EXACT, 5),
        ("min(s_w) >= 5", 100, {}, 1),
        # Of 51 words at or above the median some upper limits are too low: up to 3 but for a chance of 5%.
        ("p50(n_w) <= 0.5", 100, {}, 50 + int(stats.binom.isf(0.05, 51, 0.025))),
    ],
)
def test_all_words_are_no_sample(text, words, changes, expected):
    assert rank(text, words, whole=True, **changes) == expected


@pytest.mark.parametrize(
    ("most", "epsilons", "expected"),
    [
        *(
            (11.37, own, (11.3, 11.4))
            for own in ([5.0], [0.01], [900.0], [1.0, 12.0, 300.0], [11.3], [11.4])
        ),
        (4.5, [9.0], (4.5, 4.51)),
        (math.inf, [8.0], (1.33e8, None)),
        (-math.inf, [8.0], (None, 4.75e-07)),
        (4.001, [9.0], (None, 4.01)),
    ],
)
def test_the_largest_epsilon_has_three_digits(most, epsilons, expected):
    """A mechanism refuses 4 and less: such epsilons bound the search, none is tried twice."""
    tried = []

    def meets(epsilon):
        tried.append(epsilon)
        if epsilon <= 4.0 < most < 5.0:
            raise ConfigError("The epsilon is too low")
        return epsilon <= most

    assert largest_epsilon(meets, epsilons) == expected
    assert len(set(tried)) == len(tried) <= 25


def test_a_found_epsilon_comes_with_its_numbers_and_the_options_of_its_release():
    """Judged by its bound, not as measured. Rejects an epsilon in the options that nobody measured."""
    target = Target.parse("p50(n_w) <= 0.5")
    found = tuned(
        target,
        grid(),
        lambda epsilon: (epsilon / 20.0, epsilon / 10.0),
        release_options={"release-words": 30},
    )
    assert found == {
        "target": "p50(n_w) <= 0.5",
        "confidence": 0.95,
        "mechanism": "laplace",
        "epsilon": 5.0,
        "missed": 5.01,
        "measured": 0.25,
        "bound": 0.5,
        "options": "--mechanism laplace --epsilon 5 --release-words 30",
    }
    none = tuned(target, grid(), lambda _: (1.0, 1.0), release_options={})
    assert none["epsilon"] is none["measured"] is none["bound"] is none["options"] is None
    exact = grid(mechanisms=(Mahalanobis(epsilon=11.3456789, **{"lambda": 0.25}),))
    found = tuned(target, exact, lambda e: (0.1, float(e > 11.3456789)), release_options={})
    assert found["options"] == "--mechanism mahalanobis:lambda=0.25 --epsilon 11.3456789"
