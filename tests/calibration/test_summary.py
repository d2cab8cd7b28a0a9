"""The rows of a summary, from sums as Spark gives them, and gains of mechanisms."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptext_spark.calibration.statistics import mean_limits
from dptext_spark.calibration.summary import NUMBERS, gains, summary
from dptext_spark.mechanisms import Laplace, Mahalanobis
from tests.helpers import calibration_oracle as oracle
from tests.helpers.calibration_oracle import grid

GUESSES = ("uniform", "uniform_judged", "zipf", "zipf_judged")
LEVELS = {"min": 1.0, "p5": 1.0, "p50": 2.0, "p95": 4.0, "max": 4.0}


def sums(mechanism: str, epsilon: float, statistic: str, values: list[str]) -> dict[str, Any]:
    numbers = list(map(Decimal, values))
    return {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "statistic": statistic,
        "n": len(numbers),
        "sum": sum(numbers),
        "short_sum": sum(numbers),
        "squares": sum(number * number for number in numbers),
        **LEVELS,
    }


def batches_of(*keys: tuple[str, float]) -> dict[tuple[str, float], Any]:
    """What a summary needs besides moments, the same for each mechanism and epsilon."""
    zipf = np.array([0.03, 0.02, 0.035, 0.04])
    own = {"posterior": np.array([0.1, 0.15, 0.05, 0.1]), "n_w_zipf": zipf, "n": np.full(4, 16.0)}
    return dict.fromkeys(keys, own)


def several() -> list[Any]:
    """Grids of three mechanisms at epsilons 2 and 40."""
    weights = (0.5, 0.05, 0.9)
    others = [tuple(Mahalanobis(epsilon=e, **{"lambda": w}) for e in (2.0, 40.0)) for w in weights[1:]]
    return [grid(), *(grid(mechanisms=own) for own in others)]


def test_rows_come_in_the_order_of_mechanisms_epsilons_and_statistics() -> None:
    """Not by name: rejects an order of the alphabet, and numbers of one grid for another's rows."""
    grids = [several()[2], several()[0], replace(several()[1], estimator="exact")]
    keys = [(own.name, epsilon) for own in grids for epsilon in (2.0, 40.0)]
    moments = [
        sums(*key, name, ["0.5"]) for key in keys for name in ("k_w", "posterior", "s_w", "n_w", "unseen")
    ]
    won = [{"mechanism": m, "epsilon": e} | dict.fromkeys(GUESSES, Decimal(60)) for m, e in keys]
    rows = summary(grids, moments[::-1], batches_of(*keys), won)
    statistics = ("n_w", "s_w", "unseen", "posterior", "k_w", "n_w_zipf", "deniability")
    statistics += ("bayes_risk_uniform", "bayes_risk_zipf")
    assert [(row["mechanism"], row["epsilon"], row["statistic"]) for row in rows] == [
        (*key, name) for key in keys for name in statistics
    ]
    assert list(rows[0]) == ["mechanism", "epsilon", "statistic", *NUMBERS]
    for name in ("n_w", "bayes_risk_uniform"):
        certain = {row["mechanism"] for row in rows if row["statistic"] == name and row["low"] == row["high"]}
        assert certain == {"mahalanobis:lambda=0.05"}


def found_of(*moments: dict[str, Any], sample: Any = None, guesses: Any = ()) -> dict[str, dict[str, Any]]:
    """Rows of a summary of one epsilon, by statistic."""
    given = [*moments, sums("laplace", 2.0, "unseen", ["0.01"])]
    rows = summary([sample or grid()], given, batches_of(("laplace", 2.0)), guesses)
    return {row["statistic"]: row for row in rows}


def test_mean_and_deviation_are_exact() -> None:
    """Rejects a variance over n - 1, and rounding that leaves one where all values are equal."""
    found = found_of(
        sums("laplace", 2.0, "s_w", ["1", "3", "2", "4"]), sums("laplace", 2.0, "h_0", ["0.1"] * 3)
    )
    first, equal = found["s_w"], found["h_0"]
    assert (first["mean"], first["sd"]) == (2.5, 1.25**0.5)
    assert (equal["mean"], equal["sd"]) == (0.1, 0.0)
    assert {name: first[name] for name in LEVELS} == LEVELS
    assert first["low"] is first["high"] is first["floor"] is None


def test_a_mean_has_the_limits_of_the_runs() -> None:
    """N_w by units of noise, a posterior by batches; single numbers by theirs. Counts have no limits."""
    sample = grid()
    found = found_of(
        *(
            sums("laplace", 2.0, n, v)
            for n, v in (("n_w", ["0.25"] * 4), ("entropy", ["4"]), ("posterior", ["0.1"]))
        )
    )
    zipf = 2 / (1 / np.arange(1, 65)).sum()  # 16 words of each batch, of 0.125 in all
    for name, mean, weights in (
        ("n_w", 0.25, sample.units("uniform")),
        ("n_w_zipf", zipf, sample.units("zipf")),
    ):
        limits = mean_limits(mean, 60, float(weights.max()), 0.025)
        assert [found[name][n] for n in ("mean", "low", "high")] == pytest.approx([mean, *limits])
    assert found["entropy"]["low"] is found["entropy"]["high"] is None
    low, high = stats.ttest_1samp([0.1, 0.15, 0.05, 0.1], 0.0).confidence_interval(0.95)
    assert [found["posterior"][n] for n in ("low", "high")] == pytest.approx([low, high])
    row = [found["deniability"][n] for n in ("mean", "low", "high", "floor")]
    assert row == pytest.approx([10.0, 1 / high, 1 / low, 64.0])
    certain = found_of(sums("laplace", 2.0, "n_w", ["0.25"]), sample=grid(estimator="exact"))
    assert [certain["n_w"][name] for name in ("mean", "low", "high")] == [0.25] * 3


# Risks

SPREAD = np.full((12, 300), 1.0 / 300)  # nothing is told: every word becomes any of 300
KEPT = np.eye(12)
NEAR = stats.norm.pdf(np.arange(60) / 5.0, np.arange(12)[:, None], 0.6)
NEAR /= NEAR.sum(axis=1, keepdims=True)
WORLDS = {"spread": SPREAD, "kept": KEPT, "near": NEAR}


def sampled(law: np.ndarray, runs: int, seed: int, *, together: bool) -> Any:
    """Transitions of a law's words; ``together`` lets the words of a block share the uniform of a run."""
    sample = grid(len(law), runs=runs, estimator="shared-ray" if together else "plain", block_words=6)
    rng = np.random.default_rng(seed)
    uniforms = rng.random((sample.blocks if together else len(law), runs))
    rows = np.arange(len(law)) % len(uniforms)
    laws = np.cumsum(law, axis=1)
    draws = [np.searchsorted(own / own[-1], uniforms[row]) for own, row in zip(laws, rows, strict=True)]
    words = np.arange(len(law))
    return sample, oracle.counted(np.array([draws], np.int32), words, release_words=law.shape[1])


def risks(law: np.ndarray, runs: int, seed: int, *, together: bool = False) -> dict[str, dict[str, Any]]:
    sample, transitions = sampled(law, runs, seed, together=together)
    return found_of(sample=sample, guesses=[oracle.sums_of_guesses(transitions, sample)])


@pytest.mark.statistical
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("prior", ["uniform", "zipf"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_true_risk_lies_between_the_limits(world: str, prior: str, together: bool) -> None:
    """300 seeds of 8 and of 60 runs, at 95 %: false alarm 1e-4. Refused: what runs say of themselves."""
    law = WORLDS[world]
    weights = np.ones(12) if prior == "uniform" else 1.0 / np.arange(1, 13)
    truth = oracle.risk(law, weights)
    for runs in (8, 60):
        own, missed = [], 0
        for seed in range(300):
            row = risks(law, runs, seed, together=together)[f"bayes_risk_{prior}"]
            missed += not row["low"] <= truth * (1 + 1e-12) or not truth <= row["high"] * (1 + 1e-12)
            assert row["floor"] == pytest.approx(weights.max() / weights.sum())
            assert row["floor"] <= row["mean"] <= row["high"]
            if world == "spread":
                sample, transitions = sampled(law, runs, seed, together=together)
                own.append(oracle.guessed(transitions, sample.weights(prior))[0][0])  # type: ignore[arg-type]
        assert stats.binomtest(missed, 300, 0.05, "greater").pvalue > 1e-4
        if own and prior == "uniform":
            assert stats.ttest_1samp(own, 1.2 * truth, alternative="greater").pvalue < 1e-6


def test_a_guesser_of_outputs_it_has_not_seen_does_not_look_at_the_runs_that_judge() -> None:
    """All outputs are new: only the first word is named. Rejects a guesser who takes whoever is there."""
    draws = np.arange(24).reshape(1, 3, 8)
    transitions = oracle.counted(draws.astype(np.int32), np.arange(3))
    sample = grid(3, runs=8, estimator="plain")
    row = found_of(sample=sample, guesses=[oracle.sums_of_guesses(transitions, sample)])["bayes_risk_uniform"]
    assert (row["mean"], row["high"]) == (pytest.approx(1 / 3), 1.0)


def test_zipfs_law_is_over_the_measured_words_whatever_the_vocabulary() -> None:
    """Rejects ranks in the vocabulary, by which the first of 200 words of 8,000 has weight 0.85."""
    few, expected = grid(200, 8000), 1 / (1 / np.arange(1, 201)).sum()
    np.testing.assert_allclose(few.weights("zipf"), expected / np.arange(1, 201))
    guesses = dict.fromkeys(GUESSES, Decimal(60)) | {"mechanism": "laplace", "epsilon": 2.0}
    found = found_of(sample=few, guesses=[guesses])
    assert found["bayes_risk_zipf"]["mean"] == pytest.approx(60 / 30 * expected)
    floors = [found[f"bayes_risk_{prior}"]["floor"] for prior in ("zipf", "uniform")]
    assert [*floors, found["deniability"]["floor"]] == pytest.approx([expected, 1 / 200, 200.0])


@pytest.mark.statistical
@pytest.mark.parametrize("world", WORLDS)
def test_a_posterior_does_not_measure_the_runs(world: str) -> None:
    """Mean of 12 words, 200 seeds, within 5 standard errors and 2 %; mutant: a run that counts itself."""
    law = WORLDS[world]
    truth = float((law * law / law.sum(axis=0)[None].clip(1e-300)).sum() / 12)
    for runs in (20, 200):
        given = [sampled(law, runs, seed, together=False)[1] for seed in range(200)]
        found = np.array([oracle.posterior(transitions).mean() for transitions in given])
        error = found.std() / np.sqrt(200)
        assert abs(found.mean() - truth) <= 5 * error + 0.02 * truth, (found.mean(), truth)
        if world == "spread" and runs == 20:
            own = [counted_with_its_own_run(transitions) for transitions in given]
            assert stats.ttest_1samp(own, 1.2 * truth, alternative="greater").pvalue < 1e-6


def counted_with_its_own_run(transitions: Any) -> float:
    counts = oracle.dense(transitions, 320)[0]
    return float((counts * counts / counts.sum(axis=0).clip(1e-300)).sum() / counts.sum())


def test_gains_are_differences_within_batches() -> None:
    """Rejects an interval of each mechanism for itself, a one-sided tail, and epsilons of one alone."""
    rng = np.random.default_rng(2)
    shared = rng.normal(size=16)  # what the rays of a batch do to both mechanisms
    first, second = grid(), grid(mechanisms=(Laplace(epsilon=2.0, select="vickrey", t=0.5),))
    means = {
        (own.name, epsilon): {"n_w": shared + i + 0.01 * rng.normal(size=16), "s_w": shared, "n": np.ones(16)}
        for i, own in enumerate((first, second))
        for epsilon in own.epsilons
    }
    found = list(gains(means, (first, second)))
    assert [(g["mechanism"], g["baseline"], g["epsilon"], g["statistic"]) for g in found] == [
        (second.name, "laplace", 2.0, name) for name in ("n_w", "s_w")
    ]
    apart = means[second.name, 2.0]["n_w"] - means["laplace", 2.0]["n_w"]
    expected = stats.ttest_1samp(apart, 0.0).confidence_interval(0.95)
    assert (found[0]["low"], found[0]["high"]) == pytest.approx((expected.low, expected.high))
    assert found[1]["difference"] == found[1]["high"] == 0.0
    assert not list(gains({}, [grid()]))
