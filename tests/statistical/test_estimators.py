"""Estimators against each other and against closed forms, with the wrong estimators that this rejects.

Plain runs take every draw's noise anew; shared rays must give each word the same law. Two-sample chi-squares
of each word's outputs, rare ones together, at 3,000 runs; Bonferroni over words and epsilons. The key is
fixed, so a run is deterministic; over seeds each check of the real estimator would fail at the rate REAL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import Transitions, estimator, rays, word_statistics
from dptext_spark.calibration.estimators import EuclideanRayEstimator
from dptext_spark.calibration.rays import NearestOnRays
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import line_outputs

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one check of the real estimator, over seeds
MUTANT = 1e-6  # a wrong implementation must be at most this likely to be right
RUNS = 3000
EPSILONS = (15.0, 6.0, 2.0)
WORDS = np.arange(0, 1200, 60)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "laplace": ("laplace", {}),
    "mahalanobis": ("mahalanobis", {"lambda": 0.5}),
    "vickrey": ("laplace", {"select": "vickrey", "t": 0.3}),
}


def report(name: str, value: float) -> None:
    print(f"p-value of {name}: {value:.3g}")


def grid(case: str, epsilons: tuple[float, ...] = EPSILONS) -> list[Mechanism]:
    name, parameters = CASES[case]
    return [mechanism(name, epsilon=epsilon, **parameters) for epsilon in epsilons]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """1,200 words in 20 dimensions, so many that the search stops early; 1,100 to release."""
    points = worlds.uneven(1200, 20, spread=3.0)
    return worlds.build(tmp_path_factory.mktemp("estimators"), points, release_words=1100)


@cache
def plain(world: Embedding, case: str) -> Transitions:
    with threadpool_limits(1):
        return estimator(grid(case), world, search=ExactSearch.over(world), runs=RUNS, seed=1, name="plain")(
            WORDS, block=0
        )


def shared(world: Embedding, case: str) -> EuclideanRayEstimator:
    made = estimator(grid(case), world, search=ExactSearch.over(world), runs=RUNS, seed=2)
    assert isinstance(made, EuclideanRayEstimator)
    return made


def dense(transitions: Transitions, epsilon: int, word: int, size: int) -> np.ndarray:
    chosen = (transitions.epsilon_index == epsilon) & (transitions.word == word)
    return np.bincount(transitions.output[chosen], transitions.count[chosen], size)


def two_samples(one: np.ndarray, other: np.ndarray) -> float:
    """Chi-square of two samples of one size; outputs seen less than 20 times together count as one."""
    rare = one + other < 20
    table = np.stack([np.append(c[~rare], c[rare].sum()) for c in (one, other)])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def agreement(one: Transitions, other: Transitions, size: int) -> float:
    values = [
        two_samples(dense(one, epsilon, word, size), dense(other, epsilon, word, size))
        for epsilon in range(len(EPSILONS))
        for word in WORDS
    ]
    return len(values) * min(values)


@pytest.mark.parametrize("case", CASES)
def test_shared_rays_agree_with_plain_runs(world: Embedding, case: str) -> None:
    found = shared(world, case)(WORDS, block=0)
    n_w = word_statistics(found)["n_w"].to_numpy().reshape(len(EPSILONS), -1).mean(axis=1)
    assert n_w[0] > 0.7 and n_w[-1] < 0.2
    value = agreement(plain(world, case), found, world.releasable)
    report(f"shared rays and plain runs, {case}", value)
    assert value > REAL


# Wrong estimators


def stop_without_threshold(patch: pytest.MonkeyPatch, made: EuclideanRayEstimator) -> EuclideanRayEstimator:
    """Takes the best of the words that lead where the ray starts, whatever else there is."""
    real = rays._settle

    def few(near: np.ndarray, far: np.ndarray, *words: np.ndarray, others: np.ndarray, **rest: Any) -> Any:
        return real(near, np.full_like(far, -np.inf), *words, others=np.full_like(others, -np.inf), **rest)

    patch.setattr(rays, "LEADERS", (16,))
    patch.setattr(rays, "_settle", few)
    return made


def one_ray(patch: pytest.MonkeyPatch, made: EuclideanRayEstimator) -> EuclideanRayEstimator:
    """All runs go along the first run's direction."""
    bound = made.bound[0]

    class OneRay(type(bound)):  # type: ignore[misc]
        def directions(self, uniforms: np.ndarray) -> np.ndarray:
            directions = super().directions(uniforms)
            directions[:] = directions[0]
            return directions

    fields = {name: getattr(bound, name) for name in bound.__dataclass_fields__}
    return replace(made, bound=(OneRay(**fields), *made.bound[1:]))


def epsilon_left_out(patch: pytest.MonkeyPatch, made: EuclideanRayEstimator) -> EuclideanRayEstimator:
    """The first epsilon's lengths serve all."""
    return replace(made, bound=(made.bound[0],) * len(made.bound))


def without_the_word(patch: pytest.MonkeyPatch, made: EuclideanRayEstimator) -> EuclideanRayEstimator:
    """The word itself is dropped from the choice."""
    real = NearestOnRays._starts

    def starts(self: NearestOnRays, centres: np.ndarray) -> np.ndarray:
        found = real(self, centres)
        found[np.arange(len(found)), found.argmax(axis=1)] = -1e30
        return found

    patch.setattr(NearestOnRays, "_starts", starts)
    return made


def nearest_always(patch: pytest.MonkeyPatch, made: EuclideanRayEstimator) -> EuclideanRayEstimator:
    return replace(made, bound=tuple(replace(bound, vickrey=None) for bound in made.bound))


def coin_of_the_radius(patch: pytest.MonkeyPatch, made: EuclideanRayEstimator) -> EuclideanRayEstimator:
    """The radius and the coin share a uniform."""
    real = EuclideanRayEstimator._uniforms

    def uniforms(self: EuclideanRayEstimator, row_id: str, runs: slice) -> np.ndarray:
        found = real(self, row_id, runs)
        found[:, -1] = found[:, 0]
        return found

    patch.setattr(EuclideanRayEstimator, "_uniforms", uniforms)
    return made


MUTANTS: list[tuple[str, Callable[[pytest.MonkeyPatch, EuclideanRayEstimator], EuclideanRayEstimator]]] = [
    *(("laplace", mutant) for mutant in (stop_without_threshold, one_ray, epsilon_left_out)),
    *(("vickrey", mutant) for mutant in (without_the_word, nearest_always, coin_of_the_radius)),
]


@pytest.mark.parametrize(("case", "mutant"), MUTANTS, ids=[f"{c}-{m.__name__}" for c, m in MUTANTS])
def test_wrong_estimators_are_rejected(
    world: Embedding,
    case: str,
    mutant: Callable[[pytest.MonkeyPatch, EuclideanRayEstimator], EuclideanRayEstimator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = mutant(monkeypatch, shared(world, case))(WORDS, block=0)
    value = agreement(plain(world, case), found, world.releasable)
    report(f"mutant {mutant.__name__}, {case}", value)
    assert value < MUTANT


@pytest.mark.parametrize("name", ["plain", "shared-ray"])
def test_words_stay_as_often_as_the_closed_form_says(line: Embedding, name: str) -> None:
    """N_w on a line: exact binomial tests, Bonferroni over 15; rejects epsilon off by 5 %."""
    epsilons, runs = (0.5, 1.0, 4.0), 40_000
    made = estimator(
        grid("laplace", epsilons),
        line,
        search=among(5),
        runs=runs,
        seed=3,
        name=name,  # type: ignore[arg-type]
    )
    hits = np.rint(word_statistics(made(np.arange(5), block=0))["n_w"].to_numpy().reshape(3, 5) * runs)
    positions = line.vectors[:, 0].astype(np.float64)

    def p_value(factor: float) -> float:
        laws = [np.diag(line_outputs(positions, 1 / (factor * epsilon))) for epsilon in epsilons]
        values = [
            stats.binomtest(int(hit), runs, law).pvalue
            for hit, law in zip(hits.ravel(), np.ravel(laws), strict=True)
        ]
        return float(15 * min(values))

    report(f"N_w on a line, {name}", p_value(1.0))
    assert p_value(1.0) > REAL
    assert max(p_value(1.05), p_value(0.95), p_value(2.0)) < MUTANT


def test_blocks_have_rays_of_their_own(world: Embedding) -> None:
    """Correlation of one word's hits, run by run, over blocks; the mutant is one block twice."""
    made = shared(world, "laplace")
    one, other = (made.draws(WORDS[:1], block=block)[1, 0] == WORDS[0] for block in (0, 1))
    value = float(
        stats.fisher_exact(
            [[np.sum(one & other), np.sum(one & ~other)], [np.sum(~one & other), np.sum(~one & ~other)]]
        ).pvalue
    )
    report("independence of blocks", value)
    assert value > REAL
    same = float(stats.fisher_exact([[one.sum(), 0], [0, (~one).sum()]]).pvalue)
    assert same < MUTANT
