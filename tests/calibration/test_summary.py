"""The rows of a summary, from sums as Spark gives them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import Transitions, mean_limits
from dptext_spark.calibration.summary import NUMBERS, OF_OUTPUTS, OF_WORDS, SINGLE, summary
from dptext_spark.mechanisms import Mahalanobis
from tests.helpers import calibration_oracle as oracle
from tests.helpers.calibration_oracle import grid

GUESSES = ("uniform", "uniform_judged", "zipf", "zipf_judged")
LEVELS = {"min": 1.0, "p5": 1.0, "p50": 2.0, "p95": 4.0, "max": 4.0}
BATCHES = {
    "posterior": np.array([0.1, 0.15, 0.05, 0.1]),
    "n_w_zipf": np.array([0.03, 0.02, 0.035, 0.04]),
    "n": np.full(4, 16.0),
}


def rows_of(*grids: Grid, guesses: Any = None, **values: list[str]) -> list[dict[str, Any]]:
    """Rows of a summary; each statistic has ``values``, by default one 0.5."""
    moments = []
    for name in (*OF_OUTPUTS, *OF_WORDS[::-1]):
        own = list(map(Decimal, values.get(name, ["0.5"])))
        row = {"statistic": name, "n": len(own), "sum": sum(own), "short_sum": sum(own)}
        moments.append(row | {"squares": sum(number * number for number in own), **LEVELS})
    keys = [(one.name, epsilon) for one in grids for epsilon in one.epsilons]
    won = guesses or dict.fromkeys(GUESSES, Decimal(60))
    return summary(grids, *(dict.fromkeys(keys, own) for own in (moments, BATCHES, won)))


def found_of(sample: Grid | None = None, **given: Any) -> dict[str, dict[str, Any]]:
    """Rows of the first epsilon, by statistic."""
    return {row["statistic"]: row for row in rows_of(sample or grid(), **given) if row["epsilon"] == 2.0}


def test_rows_come_in_the_order_of_mechanisms_epsilons_and_statistics() -> None:
    """Not by name: rejects an order of the alphabet, and numbers of one grid for another's rows."""
    others = [
        grid(mechanisms=tuple(Mahalanobis(epsilon=e, **{"lambda": w}) for e in (2.0, 40.0)))
        for w in (0.9, 0.05)
    ]
    grids = [others[0], grid(), replace(others[1], estimator="exact")]
    rows = rows_of(*grids)
    assert [(row["mechanism"], row["epsilon"], row["statistic"]) for row in rows] == [
        (one.name, epsilon, name)
        for one in grids
        for epsilon in (2.0, 40.0)
        for name in (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
    ]
    assert list(rows[0]) == ["mechanism", "epsilon", "statistic", *NUMBERS]
    for name in ("n_w", "bayes_risk_uniform"):
        certain = {row["mechanism"] for row in rows if row["statistic"] == name and row["low"] == row["high"]}
        assert certain == {"mahalanobis:lambda=0.05"}


def test_numbers_of_an_example() -> None:
    """N_w has limits by units of noise, a posterior by batches; counts have none.

    Rejects a variance over n - 1, and rounding that leaves one where all values are equal.
    """
    sample, given = grid(), {"s_w": ["1", "3", "2", "4"], "h_0": ["0.1"] * 3, "n_w": ["0.25"] * 4}
    found = found_of(**given, posterior=["0.1"])
    first = found["s_w"]
    assert (first["mean"], first["sd"]) == (2.5, 1.25**0.5)
    assert (found["h_0"]["mean"], found["h_0"]["sd"]) == (0.1, 0.0)
    assert {name: first[name] for name in LEVELS} == LEVELS
    assert first["low"] is first["high"] is first["floor"] is None
    zipf = 2 / (1 / np.arange(1, 65)).sum()  # 16 words of each batch, of 0.125 in all
    for name, mean, prior in (("n_w", 0.25, "uniform"), ("n_w_zipf", zipf, "zipf")):
        limits = mean_limits(mean, 60, float(sample.units(prior).max()), 0.025)  # type: ignore[arg-type]
        assert [found[name][n] for n in ("mean", "low", "high")] == pytest.approx([mean, *limits])
    low, high = stats.ttest_1samp(BATCHES["posterior"], 0.0).confidence_interval(0.95)
    assert [found["posterior"][n] for n in ("low", "high")] == pytest.approx([low, high])
    row = [found["deniability"][n] for n in ("mean", "low", "high", "floor")]
    assert row == pytest.approx([10.0, 1 / high, 1 / low, 64.0])
    certain = found_of(grid(estimator="exact"), **given)["n_w"]
    assert [certain[name] for name in ("mean", "low", "high")] == [0.25] * 3


# Risks

NEAR = stats.norm.pdf(np.arange(60) / 5.0, np.arange(12)[:, None], 0.6)
WORLDS = {
    "spread": np.full((12, 300), 1.0 / 300),  # nothing is told: every word becomes any of 300
    "kept": np.eye(12),
    "near": NEAR / NEAR.sum(axis=1, keepdims=True),
}


def sampled(law: np.ndarray, runs: int, seed: int) -> tuple[Grid, Transitions]:
    """Transitions of a law's words."""
    rng, laws = np.random.default_rng(seed), np.cumsum(law, axis=1)
    draws = [np.searchsorted(own / own[-1], rng.random(runs)) for own in laws]
    counted = oracle.counted(np.array([draws], np.int32), np.arange(len(law)), release_words=law.shape[1])
    return grid(len(law), runs=runs, estimator="plain"), counted


def risks(law: np.ndarray, runs: int, seed: int) -> dict[str, dict[str, Any]]:
    sample, transitions = sampled(law, runs, seed)
    return found_of(sample, guesses=oracle.sums_of_guesses(transitions, sample))


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["uniform", "zipf"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_true_risk_lies_between_the_limits(world: str, prior: Any) -> None:
    """300 seeds of 8 and of 60 runs, at 95 %: false alarm 1e-4. Refused: what runs say of themselves."""
    law = WORLDS[world]
    weights = np.ones(12) if prior == "uniform" else 1.0 / np.arange(1, 13)
    truth = oracle.risk(law, weights)
    for runs in (8, 60):
        rows = [risks(law, runs, seed)[f"bayes_risk_{prior}"] for seed in range(300)]
        missed = sum(not row["low"] <= truth * (1 + 1e-12) <= row["high"] * (1 + 2e-12) for row in rows)
        assert all(row["floor"] <= row["mean"] <= row["high"] for row in rows)
        assert rows[0]["floor"] == pytest.approx(weights.max() / weights.sum())
        assert stats.binomtest(missed, 300, 0.05, "greater").pvalue > 1e-4
        if world == "spread" and prior == "uniform":
            own = [
                oracle.guessed(sampled(law, runs, seed)[1], np.full(12, 1 / 12))[0][0] for seed in range(300)
            ]
            assert stats.ttest_1samp(own, 1.2 * truth, alternative="greater").pvalue < 1e-6


def test_a_guesser_of_outputs_it_has_not_seen_does_not_look_at_the_runs_that_judge() -> None:
    """All outputs are new: only the first word is named. Rejects a guesser who takes whoever is there."""
    transitions = oracle.counted(np.arange(24).reshape(1, 3, 8).astype(np.int32), np.arange(3))
    sample = grid(3, runs=8, estimator="plain")
    row = found_of(sample, guesses=oracle.sums_of_guesses(transitions, sample))["bayes_risk_uniform"]
    assert (row["mean"], row["high"]) == (pytest.approx(1 / 3), 1.0)


def test_zipfs_law_is_over_the_measured_words_whatever_the_vocabulary() -> None:
    """Rejects ranks in the vocabulary, by which the first of 200 words of 8,000 has weight 0.85."""
    few, expected = grid(200, 8000), 1 / (1 / np.arange(1, 201)).sum()
    np.testing.assert_allclose(few.weights("zipf"), expected / np.arange(1, 201))
    found = found_of(few)
    assert found["bayes_risk_zipf"]["mean"] == pytest.approx(60 / 30 * expected)
    floors = [found[name]["floor"] for name in ("bayes_risk_zipf", "bayes_risk_uniform", "deniability")]
    assert floors == pytest.approx([expected, 1 / 200, 200.0])
