"""Targets: what they say, which values bound them, and where the search for the largest epsilon ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from dptext_spark.binomial import upper_limit
from dptext_spark.calibration.target import (
    Target,
    bounded_column,
    bounded_mean,
    bounding_rank,
    largest_epsilon,
    looks,
    mean_columns,
    searched,
    tuned,
)
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mahalanobis
from tests.helpers.calibration_oracle import grid

MEDIAN_OF_NINE = 5
LOOKS = 2 + 24  # the grid's epsilons, and twelve doublings and twelve halvings


def test_a_target_is_read_and_written() -> None:
    target, least = Target.parse(" p95( n_w )<=0.50"), Target.parse("min(s_w) >= 20")
    assert (target.measure, target.arguments, target.limit) == ("p95", ("n_w",), 0.5)
    assert str(target) == "p95(n_w) <= 0.5" and Target.parse(str(least)) == least
    assert target.met(0.5) and not target.met(0.51) and least.met(20.0) and not least.met(19.0)
    assert not target.met(math.nan) and not least.met(math.nan)


@pytest.mark.parametrize(
    "text",
    [
        *("", "n_w <= 0.5", "p90(n_w) <= 0.5", "p95(k_w) >= 5", "p95(n_w) >= 0.5", "p5(s_w) <= 20"),
        *("p95(n_w) <= 1", "p95(n_w) <= 0", "p95(n_w) <= nan", "p5(s_w) >= inf", "p5(s_w) >= many"),
        *("p95(n_w) <= 0.5; p5(s_w) >= 20", "p95(n_w, s_w) <= 0.5", "p95() <= 0.5"),
    ],
)
def test_a_target_without_meaning_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--target has a wrong value.*STATISTIC"):
        Target.parse(text)


def rank(text: str, words: int, *, whole: bool = False, exact: bool = True, monotone: bool = True) -> int:
    kind = {"estimator": "exact" if exact else "plain", "monotone": monotone}
    target = Target.parse(text)
    found = bounding_rank(target, searched(target, grid(words, words if whole else 2 * words, **kind)))
    assert found is not None
    return found


@pytest.mark.parametrize("words", [59, 100, 1000, 10_000])
def test_a_sample_bounds_a_quantile_by_the_binomial_law(words: int) -> None:
    upper = rank("p95(n_w) <= 0.5", words)
    assert stats.binom.sf(upper - 1, words, 0.95) <= 0.05 < stats.binom.sf(upper - 2, words, 0.95)
    lower = rank("p50(s_w) >= 5", words)
    each = 0.05 / LOOKS
    assert stats.binom.cdf(lower - 1, words, 0.5) <= each < stats.binom.cdf(lower, words, 0.5)
    limited = rank("p50(s_eta) >= 5", words, exact=False)
    level = 0.5 * (1.0 - each / 2.0)  # but for the words whose limits are too high
    assert stats.binom.cdf(limited - 1, words, level) <= each < stats.binom.cdf(limited, words, level)
    with_runs = rank("p95(n_w) <= 0.5", words, exact=False) if words > 59 else words
    assert upper <= with_runs <= upper + 0.002 * words


def test_a_small_sample_bounds_no_far_quantile() -> None:
    for text, words in (("p95(n_w) <= 0.5", 58), ("max(n_w) <= 0.5", 10**6), ("min(s_w) >= 5", 10**6)):
        with pytest.raises(ConfigError, match="words are too few"):
            rank(text, words)


def test_all_words_are_no_sample() -> None:
    for text, words, kind, expected in (
        ("p95(n_w) <= 0.5", 100, {}, 95),
        ("max(n_w) <= 0.5", 100, {}, 100),
        ("max(n_w) <= 0.5", 100, {"exact": False}, 100),
        ("max(n_w) <= 0.5", 100, {"exact": False, "monotone": False}, 100),
        ("p50(n_w) <= 0.5", 9, {}, MEDIAN_OF_NINE),
        ("min(s_w) >= 5", 100, {"exact": False}, 1),
        ("min(entropy) >= 5", 100, {"exact": False}, 1),
    ):
        assert rank(text, words, whole=True, **kind) == expected, (text, kind)
    # Of 51 words at or above the median some upper limits are too low: up to 3 but for a chance of 5%.
    allowed = rank("p50(n_w) <= 0.5", 100, whole=True, exact=False) - 50
    assert stats.binom.sf(allowed, 51, 0.025) <= 0.05 < stats.binom.sf(allowed - 1, 51, 0.025)


@pytest.mark.statistical
def test_the_bound_of_p95_holds_as_often_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """5,000 samples of 200 words with 50 runs each; false alarm 1e-4. Refused: the sample's own p95."""
    rng = np.random.default_rng(11)
    samples, words, runs = 5000, 200, 50
    true = np.sort(rng.beta(2.0, 2.0, (samples, words)), axis=1)
    hits = rng.binomial(runs, true)
    high = np.where(hits < runs, special.betaincinv(hits + 1.0, np.maximum(runs - hits, 1), 0.975), 1.0)
    p95 = stats.beta.ppf(0.95, 2.0, 2.0)
    place = rank("p95(n_w) <= 0.5", words, exact=False)
    misses = int((np.sort(high, axis=1)[:, place - 1] < p95).sum())
    naive = int((np.sort(hits / runs, axis=1)[:, 189] < p95).sum())
    unshifted = int((true[:, 189] < p95).sum())
    real, *wrong = (stats.binomtest(n, samples, 0.05, "greater").pvalue for n in (misses, naive, unshifted))
    with capsys.disabled():
        print(f"\n  bound of p95: p = {real:.3g}; own p95 of n_w {wrong[0]:.3g}, of the words {wrong[1]:.3g}")
    assert real > 1e-4
    assert max(wrong) < 1e-6


def test_a_mean_is_bounded_on_the_side_that_matters() -> None:
    """Its Student limit at each look's share of the error; itself where nothing was left to chance."""
    means = {"n_w": np.array([0.2, 0.3, 0.25, 0.4]), "s_w": np.array([4.0, 5.0, 3.0, 6.0])}
    means["n"] = np.full(4, 7.0)
    level = 1.0 - 2 * 0.05 / LOOKS
    limits = {name: stats.ttest_1samp(means[name], 0.0).confidence_interval(level) for name in ("n_w", "s_w")}
    for text, bound in (("mean(n_w) <= 0.5", limits["n_w"].high), ("mean(s_w) >= 2", limits["s_w"].low)):
        target = Target.parse(text)
        assert bounding_rank(target, grid()) is None
        found = bounded_mean(target, means, searched(target, grid()))
        assert found == pytest.approx((means[target.arguments[0]].mean(), bound))
        for one in ({"vocabulary": 99, "estimator": "exact"}, {"estimator": "plain"}):
            assert bounded_mean(target, means, searched(target, grid(**one)))[1] == pytest.approx(bound)
        mean, certain = bounded_mean(target, means, grid(estimator="exact"))
        assert certain == mean


@pytest.mark.parametrize(
    ("text", "bounded", "mean"),
    [
        ("p95(n_w) <= 0.5", "n_w_high", "n_w"),
        ("p5(s_eta) >= 2", "s_eta_low", "s_eta_low"),
        ("p5(s_w) >= 2", "s_w", "s_w"),
        ("p5(entropy) >= 2", "entropy", "entropy"),
    ],
)
def test_what_bounds_a_column(text: str, bounded: str, mean: str) -> None:
    """Rejects a limit on the wrong side, and n_w as counted in place of its limit."""
    target = Target.parse(text)
    assert (bounded_column(target), mean_columns(target)) == (bounded, (target.arguments[0], mean))


# The confidence of the whole search


def test_what_grows_with_epsilon_is_searched_at_full_confidence_and_all_else_shares_it() -> None:
    whole = {"vocabulary": 64, "estimator": "exact", "monotone": False}
    for text, changes, expected in (
        ("p95(n_w) <= 0.5", {}, 1),
        ("p95(n_w) <= 0.5", {"monotone": False}, LOOKS),
        ("mean(n_w) <= 0.5", {}, LOOKS),
        ("p5(entropy) >= 2", {}, LOOKS),
        ("mean(n_w) <= 0.5", whole, 1),
    ):
        target, asked = Target.parse(text), grid(64, **{"vocabulary": 128} | changes)
        assert looks(target, asked) == expected
        assert 1.0 - searched(target, asked).confidence == pytest.approx(0.05 / expected)


BEYOND = np.linspace(math.log(2.0) + 1e-6, 0.75, 26)
"""Epsilons at which a word of n_w = 1 - exp(-epsilon) misses max(n_w) <= 0.5, but for the luck of a look."""


def seem_to_meet(seed: int, *, shared: bool) -> bool:
    """Whether any of ``BEYOND`` seems to meet the target, of one word with 400 runs.

    ``shared`` gives runs the same noise at every epsilon: an Exp(1) radius, within which the word stays if it
    is below epsilon. Else each epsilon has noise of its own, as where epsilon is part of what names it.
    """
    rng = np.random.default_rng(seed)
    radii = rng.exponential(size=(1 if shared else len(BEYOND), 400))
    hits = (radii < BEYOND[:, None]).sum(axis=1)
    target = Target.parse("max(n_w) <= 0.5")
    return any(target.met(float(bound)) for bound in upper_limit(hits, 400, 0.025))


@pytest.mark.statistical
def test_a_search_over_shared_noise_errs_no_more_often_than_one_test() -> None:
    """Wherever it looks: of 4,000 seeds at most 1 in 40 has an epsilon that misses and seems to meet.

    False alarm 1e-4. Refused: noise of its own at each epsilon, whose looks have luck of their own.
    """
    sample = grid(1, estimator="plain")
    target = Target.parse("max(n_w) <= 0.5")
    assert (looks(target, sample), bounding_rank(target, sample)) == (1, 1)  # the word's own limit decides

    def p_value(shared: bool) -> float:
        wrong = sum(seem_to_meet(seed, shared=shared) for seed in range(4000))
        print(f"  {wrong / 4000:.4f} seem to meet the target, {'shared' if shared else 'own'} noise")
        return float(stats.binomtest(wrong, 4000, 0.025, "greater").pvalue)

    assert p_value(shared=True) > 1e-4
    assert p_value(shared=False) < 1e-6


# The largest epsilon


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
    assert met is None and missed is not None and 0.0 < missed < 1e-5
    met, missed = largest_epsilon(lambda epsilon: True, [8.0])
    assert missed is None and met is not None and 1e5 < met < math.inf


@pytest.mark.parametrize(("limit", "found"), [(4.5, 4.5), (4.001, None)])
def test_epsilons_that_a_mechanism_refuses_bound_the_search(limit: float, found: float | None) -> None:
    def meets(epsilon: float) -> bool:
        if epsilon <= 4.0:
            raise ConfigError("The epsilon is too low")
        return epsilon <= limit

    assert largest_epsilon(meets, [9.0])[0] == found


def test_a_found_epsilon_comes_with_its_numbers_and_the_options_of_its_release() -> None:
    def measure(epsilon: float) -> tuple[float, float]:
        if epsilon < 1.0:
            raise ConfigError("The epsilon is too low")
        return epsilon / 20.0, epsilon / 10.0  # judged by its bound, not as measured

    target = Target.parse("mean(n_w) <= 0.5")
    found = tuned(target, grid(), measure, release_words=30)
    tried = [own["epsilon"] for own in found.pop("tried")]
    assert tried == sorted(tried) and {2.0, 40.0, 5.0, 5.01} <= set(tried)
    assert found == {
        "target": "mean(n_w) <= 0.5",
        "confidence": 0.95,
        "looks": LOOKS,
        "mechanism": "laplace",
        "epsilon": 5.0,
        "missed": 5.01,
        "measured": 0.25,
        "bound": 0.5,
        "options": "--mechanism laplace --epsilon 5 --release-words 30",
    }
    none = tuned(target, grid(), lambda _: (1.0, 1.0), release_words=None)
    assert none["epsilon"] is none["measured"] is none["bound"] is none["options"] is None
    assert min(tried["epsilon"] for tried in none["tried"]) == none["missed"]


def test_the_options_have_all_digits_of_the_epsilon_that_was_measured() -> None:
    """Rejects 11.3457 for 11.3456789: the release would be at an epsilon that nobody measured."""
    target = Target.parse("mean(n_w) <= 0.5")
    for epsilon, weight in ((11.3456789, 0.25), (0.1 + 0.2, 0.5), (1e22, 0.75), (10.0, 0.125)):
        asked = grid(mechanisms=(Mahalanobis(epsilon=epsilon, **{"lambda": weight}),))
        found = tuned(target, asked, lambda e, most=epsilon: (0.1, float(e > most)), release_words=None)  # type: ignore[misc]
        name, _, digits = found["options"].partition(" --epsilon ")
        assert name == f"--mechanism mahalanobis:lambda={weight}"
        assert found["epsilon"] == float(digits) == epsilon and not digits.endswith(".0")
