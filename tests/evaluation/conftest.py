"""Comparisons that several modules look at; each is made once per session."""

from dataclasses import replace

import pytest

from dptext_spark.evaluation.comparison import Comparison
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.local import evaluate
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis
from tests.helpers.evaluations import labels, thirds
from tests.helpers.made_texts import sentences

ROWS = 150
SETTINGS = (
    Laplace(epsilon=5.0),
    Laplace(epsilon=8.0),
    Laplace(epsilon=1e6),
    Exponential(epsilon=3.0),
)
QUICK = {"mechanisms": SETTINGS[:1], "candidates": 60, "channel_limit": 0.05}


@pytest.fixture(scope="session")
def compared(small):
    options = QUICK | {"mechanisms": SETTINGS, "versions": 3}
    return evaluate(sentences(ROWS, 1), list(range(ROWS)), embedding=small, **options)


@pytest.fixture(scope="session")
def three(compared):
    return replace(compared, outcomes=compared.outcomes[:3])


@pytest.fixture(scope="session")
def found(small):
    return thirds(small)


@pytest.fixture(scope="session")
def attacked(small):
    """A comparison of rows whose channel is computed, which is fast."""
    settings = {"mechanisms": [Exponential(epsilon=3.0)], "candidates": 20}
    return evaluate(sentences(24, 1), list(range(24)), embedding=small, **settings)


@pytest.fixture(scope="session")
def learnt(attacked):
    """Two settings by their labels, of which the first one risks less; everything is ham to the floor."""
    (outcome,) = attacked.outcomes
    key = "recovered/1/adaptive/1"
    ratio = ClusterSums.of_rows(0, 100)
    recovered = {name: ratio for name in outcome.sums if name.startswith("recovered/1/")}
    safe = {**outcome.sums, **recovered, key: ClusterSums.of_rows(20, 100), **labels(866, 30)}
    useful = {**outcome.sums, **recovered, key: ClusterSums.of_rows(40, 100), **labels(860, 115)}
    lambdas = [Mahalanobis(epsilon=5.0, **{"lambda": weight}) for weight in (0.2, 0.8)]
    outcomes = [
        replace(outcome, mechanism=mechanism, sums=sums)
        for mechanism, sums in zip(lambdas, (safe, useful), strict=True)
    ]
    floor = {
        **attacked.floor,
        "recovered/1/adaptive/1": ClusterSums.of_rows(5, 100),
        **labels(870, 0),
    }
    return Comparison(outcomes=tuple(outcomes), floor=floor, ideal=labels(868, 120))
