"""The rows of a summary, from sums as Spark gives them."""

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.estimators import PRIORS
from dptext_spark.calibration.facts import (
    NUMBERS,
    OF_WORDS,
    STATISTICS,
    Target,
    bounding_rank,
    largest_epsilon,
    searched,
    summary,
    tuned,
)
from dptext_spark.calibration.statistics import mean_limits
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis
from tests.helpers import calibration_oracle as oracle
from tests.helpers.calibration_oracle import grid

LEVELS = {"min": 1.0, "p5": 1.0, "p50": 2.0, "p95": 4.0, "max": 4.0}


def rows_of(*grids, guesses=None, **values):
    """Rows of a summary; each statistic has ``values``, by default one 0.5."""
    moments = {}
    for name in ("k_w", *OF_WORDS[::-1]):
        own = list(map(Decimal, values.get(name, ["0.5"])))
        row = {"n": len(own), "sum": sum(own), "short_sum": sum(own), **LEVELS}
        moments[name] = row | {"squares": sum(number * number for number in own)}
    won = guesses or dict.fromkeys(("uniform", "uniform_judged", "zipf", "zipf_judged"), Decimal(60))
    outputs = {"k_w": moments.pop("k_w"), **{name: {"sum": sums} for name, sums in won.items()}}
    keys = [(one.name, epsilon) for one in grids for epsilon in one.epsilons]
    return summary(grids, *(dict.fromkeys(keys, own) for own in (moments, outputs)))


def test_rows_come_in_the_order_of_mechanisms_epsilons_and_statistics():
    """Not by name; n_w has limits by units of noise, unless it is exact, and counts have none."""
    # Rejects numbers of one grid for another's rows, a variance over n - 1, and rounding that leaves one
    # where all values are equal.
    weighted = tuple(Mahalanobis(epsilon=e, **{"lambda": 0.9}) for e in (2.0, 40.0))
    sample, given = grid(mechanisms=weighted), {"s_w": ["1", "3", "2", "4"], "h_0": ["0.1"] * 3}
    rows = rows_of(sample, replace(grid(), estimator="exact"), **given, n_w=["0.25"] * 4, posterior=["0.1"])
    assert [(row["mechanism"], row["epsilon"], row["statistic"]) for row in rows] == [
        (name, epsilon, statistic)
        for name in ("mahalanobis:lambda=0.9", "laplace")
        for epsilon in (2.0, 40.0)
        for statistic in STATISTICS
    ]
    assert list(rows[0]) == ["mechanism", "epsilon", "statistic", *NUMBERS]
    for name in ("n_w", "bayes_risk_uniform"):
        certain = {row["mechanism"] for row in rows if row["statistic"] == name and row["low"] == row["high"]}
        assert certain == {"laplace"}
    found = {row["statistic"]: row for row in rows[: len(rows) // 4]}
    first = found["s_w"]
    assert (first["mean"], first["sd"]) == (2.5, 1.25**0.5)
    assert (found["h_0"]["mean"], found["h_0"]["sd"]) == (0.1, 0.0)
    assert {name: first[name] for name in LEVELS} == LEVELS
    assert first["low"] is first["high"] is first["floor"] is None
    limits = mean_limits(0.25, 60, float(sample.units("uniform").max()), 0.025)
    assert [found["n_w"][n] for n in ("mean", "low", "high")] == pytest.approx([0.25, *limits])
    row = [found["deniability"][n] for n in ("mean", "low", "high", "floor")]
    assert row == pytest.approx([10.0, None, None, 64.0])


NEAR = stats.norm.pdf(np.arange(60) / 5.0, np.arange(12)[:, None], 0.6)
WORLDS = {
    "spread": np.full((12, 300), 1.0 / 300),  # nothing is told: every word becomes any of 300
    "kept": np.eye(12),
    "near": NEAR / NEAR.sum(axis=1, keepdims=True),
}


def risks(law, runs, seed):
    """The summary of draws of a law's words, and what guessers win."""
    rng, laws = np.random.default_rng(seed), np.cumsum(law, axis=1)
    draws = [np.searchsorted(own / own[-1], rng.random(runs)) for own in laws]
    counted = oracle.counted(np.array([draws], np.int32), np.arange(len(law)), release_words=law.shape[1])
    sample = grid(len(law), runs=runs, estimator="plain")
    guesses = {}
    for prior in PRIORS:
        own, won = oracle.guessed(counted, sample, prior)
        guesses |= {prior: own[0], f"{prior}_judged": won[0]}
    return {row["statistic"]: row for row in rows_of(sample, guesses=guesses)}, guesses


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["uniform", "zipf"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_true_risk_lies_between_the_limits(world, prior):
    """300 seeds of 8 and of 60 runs, at 95 %: false alarm 1e-4. Refused: what runs say of themselves."""
    law, weights = WORLDS[world], np.ones(12) if prior == "uniform" else 1.0 / np.arange(1, 13)
    truth = oracle.risk(law, weights)
    for runs in (8, 60):
        found, guesses = zip(*(risks(law, runs, seed) for seed in range(300)), strict=True)
        rows = [own[f"bayes_risk_{prior}"] for own in found]
        missed = sum(not row["low"] <= truth * (1 + 1e-12) <= row["high"] * (1 + 2e-12) for row in rows)
        assert all(row["floor"] <= row["mean"] <= row["high"] for row in rows)
        assert rows[0]["floor"] == pytest.approx(weights.max() / weights.sum())
        assert stats.binomtest(missed, 300, 0.05, "greater").pvalue > 1e-4
        if (world, prior) == ("spread", "uniform"):
            own = [won["uniform"] / (12 * runs) for won in guesses]
            assert stats.ttest_1samp(own, 1.2 * truth, alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize(
    ("text", "written", "met", "missed"),
    [
        (" p95( n_w )<=0.50", "p95(n_w) <= 0.5", 0.5, 0.51),
        ("min(s_w) >= 20", "min(s_w) >= 20", 20.0, 19.0),
        *((text, None, None, None) for text in ("mean(n_w) <= 0.5", "p95(k_w) >= 5", "p95() <= 0.5")),
        *((text, None, None, None) for text in ("p95(n_w) >= 0.5", "p5(s_w) <= 20", "p95(n_w) <= 1")),
    ],
)
def test_a_target_is_read_and_written_or_refused(text, written, met, missed):
    """Rejects a limit on the wrong side."""
    if written is None:
        with pytest.raises(ConfigError, match=r"--target has a wrong value.*STATISTIC"):
            Target.parse(text)
        return
    target = Target.parse(text)
    assert str(target) == written and Target.parse(written) == target
    assert target.met(met) and not target.met(missed) and not target.met(math.nan)


LOOKS = 2 + 24  # the grid's epsilons, and twelve doublings and twelve halvings
VICKREY = tuple(Laplace(epsilon=e, select="vickrey", t=0.5) for e in (2.0, 40.0))
EXACT = {"mechanisms": tuple(Exponential(epsilon=e) for e in (2.0, 40.0)), "estimator": "exact"}


def rank(text, words, *, whole=False, **changes):
    target = Target.parse(text)
    return bounding_rank(target, searched(target, grid(words, words if whole else 2 * words, **changes)))


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
def test_what_grows_with_epsilon_is_searched_at_full_confidence_and_all_else_shares_it(text, changes, looks):
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
        assert stats.binom.sf(upper - 1, words, level) <= error < stats.binom.sf(upper - 2, words, level)
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
        *((11.37, own, (11.3, 11.4)) for own in ([5.0], [0.01], [900.0], [1.0, 12.0, 300.0], [11.3], [11.4])),
        (4.5, [9.0], (4.5, 4.51)),
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
    assert len(set(tried)) == len(tried) <= 22


def test_a_search_ends_where_nothing_is_found():
    met, missed = largest_epsilon(lambda epsilon: False, [8.0])
    assert met is None and missed is not None and 0.0 < missed < 1e-5
    met, missed = largest_epsilon(lambda epsilon: True, [8.0])
    assert missed is None and met is not None and 1e5 < met < math.inf


def test_a_found_epsilon_comes_with_its_numbers_and_the_options_of_its_release():
    """Judged by its bound, not as measured. Rejects an epsilon in the options that nobody measured."""
    target = Target.parse("p50(n_w) <= 0.5")
    found = tuned(target, grid(), lambda epsilon: (epsilon / 20.0, epsilon / 10.0), release_words=30)
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
    none = tuned(target, grid(), lambda _: (1.0, 1.0), release_words=None)
    assert none["epsilon"] is none["measured"] is none["bound"] is none["options"] is None
    exact = grid(mechanisms=(Mahalanobis(epsilon=11.3456789, **{"lambda": 0.25}),))
    found = tuned(target, exact, lambda e: (0.1, float(e > 11.3456789)), release_words=None)
    assert found["options"] == "--mechanism mahalanobis:lambda=0.25 --epsilon 11.3456789"
