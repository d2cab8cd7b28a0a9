"""A summary from sums as Spark gives them."""

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.statistics import mean_limits
from dptext_spark.calibration.summary import NUMBERS, OF_WORDS, STATISTICS, summary
from dptext_spark.mechanisms import Mahalanobis
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
    won = guesses or dict.fromkeys(
        ("uniform", "uniform_judged", "zipf", "zipf_judged"), Decimal(60)
    )
    outputs = {"k_w": moments.pop("k_w"), **{name: {"sum": sums} for name, sums in won.items()}}
    keys = [(one.name, epsilon) for one in grids for epsilon in one.epsilons]
    return summary(grids, *(dict.fromkeys(keys, own) for own in (moments, outputs)))


def test_rows_come_in_the_order_of_mechanisms_epsilons_and_statistics():
    """Not by name; n_w has limits by units of noise, unless it is exact, and counts have none."""
    # Rejects numbers of one grid for another's rows, a variance over n - 1, and rounding that leaves one
    # where all values are equal.
    weighted = tuple(Mahalanobis(epsilon=e, **{"lambda": 0.9}) for e in (2.0, 40.0))
    sample, given = grid(mechanisms=weighted), {"s_w": ["1", "3", "2", "4"], "h_0": ["0.1"] * 3}
    rows = rows_of(
        sample, replace(grid(), estimator="exact"), **given, n_w=["0.25"] * 4, posterior=["0.1"]
    )
    assert [(row["mechanism"], row["epsilon"], row["statistic"]) for row in rows] == [
        (name, epsilon, statistic)
        for name in ("mahalanobis:lambda=0.9", "laplace")
        for epsilon in (2.0, 40.0)
        for statistic in STATISTICS
    ]
    assert list(rows[0]) == ["mechanism", "epsilon", "statistic", *NUMBERS]
    for name in ("n_w", "bayes_risk_uniform"):
        certain = {
            row["mechanism"]
            for row in rows
            if row["statistic"] == name and row["low"] == row["high"]
        }
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


def test_a_risk_lies_between_what_a_guesser_won_and_what_all_runs_say_of_themselves():
    """By hand. Rejects runs that judge what they taught, their number in either limit, and a single unit."""
    weights, sample = (
        1.0 / np.arange(1, 9) / (1.0 / np.arange(1, 9)).sum(),
        grid(8, runs=60, estimator="plain"),
    )
    sums = {"zipf": 0.8 * 60 / weights[0], "zipf_judged": 0.6 * 30 / weights[0]}
    rows = rows_of(sample, guesses=sums | {"uniform": 0.2 * 8 * 60, "uniform_judged": 0.0})
    found = {row["statistic"]: [row[n] for n in ("mean", "low", "high", "floor")] for row in rows}
    low, _ = mean_limits(0.6, 30, weights[0], 0.025)
    high, alike = (
        math.sqrt(math.log(40.0) * squares / 120) for squares in (np.square(weights).sum(), 1 / 8)
    )
    assert weights[0] < low < 0.6 < 0.8 + high < 1.0
    assert found["bayes_risk_zipf"] == pytest.approx([0.6, low, 0.8 + high, weights[0]])
    assert found["bayes_risk_uniform"] == pytest.approx([1 / 8, 1 / 8, 0.2 + alike, 1 / 8])


NEAR = stats.norm.pdf(np.arange(60) / 5.0, np.arange(12)[:, None], 0.6)
ENDS = ((0, ""), (1, "_judged"))
WORLDS = {
    "spread": np.full((12, 300), 1.0 / 300),  # nothing is told: every word becomes any of 300
    "kept": np.eye(12),
    "near": NEAR / NEAR.sum(axis=1, keepdims=True),
}


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["uniform", "zipf"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_true_risk_lies_between_the_limits(world, prior):
    """300 seeds of 8 and of 60 runs, at 95 %: false alarm 1e-4. Refused: what runs say of themselves."""
    law, weights = WORLDS[world], np.ones(12) if prior == "uniform" else 1.0 / np.arange(1, 13)
    truth, laws = oracle.risk(law, weights), np.cumsum(law, axis=1)
    for runs in (8, 60):
        rows, own, sample = [], [], grid(12, runs=runs, estimator="plain")
        for seed in range(300):
            rng = np.random.default_rng(seed)
            draws = [np.searchsorted(each / each[-1], rng.random(runs)) for each in laws]
            counted = oracle.counted(
                np.array([draws], np.int32), np.arange(12), release_words=law.shape[1]
            )
            won = {name: oracle.guessed(counted, sample, name) for name in ("uniform", "zipf")}
            sums = {f"{name}{end}": each[i][0] for name, each in won.items() for i, end in ENDS}
            found = {row["statistic"]: row for row in rows_of(sample, guesses=sums)}
            rows.append(found[f"bayes_risk_{prior}"])
            own.append(sums["uniform"] / (12 * runs))
        missed = sum(
            not row["low"] <= truth * (1 + 1e-12) <= row["high"] * (1 + 2e-12) for row in rows
        )
        assert stats.binomtest(missed, 300, 0.05, "greater").pvalue > 1e-4
        if (world, prior) == ("spread", "uniform"):
            assert stats.ttest_1samp(own, 1.2 * truth, alternative="greater").pvalue < 1e-6
