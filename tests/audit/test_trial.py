"""The audit: real mechanisms pass, named wrong ones do not, and it says what it could not catch.

The false-alarm rate of one audit is 1 - confidence, 0.001 by default, by exact bounds and Bonferroni. The
noise seed is fixed, so a run is deterministic. What needs many outputs is ``long``; computed probabilities
show the power of the search.
"""

import numpy as np
import pytest
from scipy import stats

from dptext_spark.audit import trial
from dptext_spark.mechanisms import MECHANISMS
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from tests.helpers.audits import report

pytestmark = pytest.mark.statistical

SMALL = ("line", "star", "clusters")


def audit(spec="laplace", **given):
    return report(spec, **given).facts["worlds"]


CHANGES = {
    "right": lambda law, _: law,
    "without 1/2": lambda law, _: np.square(law) / np.square(law).sum(axis=1, keepdims=True),
    "input told once in a hundred": lambda law, words: (
        0.99 * law + 0.01 * np.eye(law.shape[1])[words]
    ),
    "top three": lambda law, _: np.where(law < np.sort(law, axis=1)[:, -3:-2], 0.0, law),
}


@pytest.mark.parametrize(
    ("name", "world", "caught"),
    [
        *(("right", "line", 2.0), ("right", "clusters", 1.3)),
        *(
            ("without 1/2", "line", None),
            ("without 1/2", "clusters", None),
            ("top three", "line", None),
        ),
        ("input told once in a hundred", "clusters", None),
    ],
)
def test_the_search_finds_what_probabilities_show(name, world, caught, monkeypatch):
    """Of ``exponential``: outputs as often as their law has it, and what would be caught."""

    def expected(e, m, words, runs, *_):
        law = m.bind(e, ExactSearch.over(e)).probabilities(words)
        law = CHANGES[name](law, words).cumsum(axis=1)
        counts = np.diff(np.rint(runs * law / law[:, -1:]), axis=1, prepend=0)
        return counts.astype(np.int64), np.zeros(len(words) + 1, np.int64)

    monkeypatch.setattr(trial, "sampled", expected)
    facts, _ = audit("exponential", world=(world,), runs=400_000)  # on the plane, and in the ball
    assert (facts["caught"], facts["violations"] == []) == (caught, caught is not None)
    assert (facts["nats"] > facts["claim"]) == (caught is None)


REAL = {
    "laplace": 2.0,
    "laplace:select=vickrey,t=0.3": 2.0,
    "mahalanobis:lambda=0.5,select=vickrey,t=0.7": 2.0,
    "hyperbolic": 1.5,
    "hyperbolic:select=vickrey,t=0.5": 1.5,
    "hyperbolic-icdm": 0.5,
    "hyperbolic-lebesgue": 1.0,
    "hyperbolic-lebesgue:select=vickrey,t=0.5": 1.0,
    "projection:dimension=1": 2.0,
    "projection:dimension=2,sensitivity=spectral": 2.0,
    "exponential": 2.0,
    "exponential:truncate=1": 2.0,
}


@pytest.mark.parametrize(
    "worlds", [("line",), pytest.param(SMALL, marks=pytest.mark.long)], ids=len
)
@pytest.mark.parametrize("spec", REAL)
def test_a_real_mechanism_passes(spec, worlds):
    """False-alarm rate over seeds: 0.001 for each. Rejects worlds in which nothing could be caught."""
    kind = MECHANISMS[spec.partition(":")[0]]
    trials = audit(spec, epsilon=REAL[spec], world=worlds, runs=4000 if worlds == SMALL else 1000)
    assert len(trials) == len(worlds) * len(kind.spaces)
    assert all(facts["violations"] == [] for facts in trials)
    assert all(facts["caught"] for facts in trials if facts["world"] == "line")


def test_words_that_may_not_come_out_are_leaks(small, monkeypatch):
    """Unknown ones that pass, and those outside the release vocabulary."""
    given = {"world": ("bundle",), "embedding": small.path}
    assert audit(**given)[0]["violations"] == []
    every = classmethod(
        lambda cls, embedding, release_words=None: cls(release_words=len(embedding.words))
    )
    with monkeypatch.context() as patch:
        patch.setattr(ExactSearch, "over", every)
        (facts,) = audit(**given)
    assert "outside the release vocabulary" in facts["violations"][0]
    keeping = TextPolicy(oov="keep-unprotected", identifiers="off", numbers="words")
    monkeypatch.setattr(trial, "WORDS_ALONE", keeping)
    assert audit()[0]["violations"] == ["1,000 outputs of an unknown word are not [MASK]"]


def test_a_loss_bound_is_that_of_clopper_and_pearson_and_wrong_as_rarely_as_it_says():
    """The probability of all counts that show too much, added up. Rejects one bound for two, and none."""
    ends = [stats.binomtest(n, 1000).proportion_ci(1 - 2e-4, method="exact") for n in (500, 100)]
    shown = trial.loss_bound(np.array([500, 10, 0]), np.array([100, 500, 1000]), 1000, 1e-4)
    assert shown.tolist() == [pytest.approx(np.log(ends[0].low / ends[1].high)), 0, 0]
    runs, level, p, q = 150, 0.02, 0.4, 0.1
    hits, others = np.divmod(np.arange((runs + 1) ** 2), runs + 1)
    wrong = trial.loss_bound(hits, others, runs, level) > np.log(p / q)
    law = stats.binom.pmf(hits, runs, p) * stats.binom.pmf(others, runs, q)
    assert 1e-5 < law[wrong].sum() <= 2 * level


def test_the_chance_of_a_false_alarm_is_shared_out_and_halves_are_independent(monkeypatch):
    """Over worlds, the pairs of eight and of nine words both ways, and two bounds of each."""
    # Rejects an event that is tested on the outputs that chose it, and two halves under one key.
    given = {"sampled_losses": [], "sampled": []}
    losses = trial.sampled_losses
    for name, seen in given.items():
        right = getattr(trial, name)
        monkeypatch.setattr(
            trial, name, lambda *a, seen=seen, right=right: seen.append(a[4]) or right(*a)
        )
    audit(world=("line", "star"), runs=100, confidence=0.99)
    levels, keys = given.values()
    assert {*np.round(levels, 12)} == {
        round(0.01 / 2 / (2 * pairs), 12) for pairs in (8 * 7, 9 * 8)
    }
    assert len({key.derive(b"").secret for key in keys[:2]}) == 2
    counts, pairs = np.array([[50, 0], [0, 50]]), np.array([[0, 1], [1, 0]])
    assert (losses(pairs, counts, counts, 50, 0.01)[0] > 1).all()
    assert (losses(pairs, counts, counts[::-1], 50, 0.01)[0] == 0).all()


@pytest.mark.parametrize("epsilon", [1e-12, 1e9])
@pytest.mark.parametrize("name", ["laplace", "hyperbolic", "exponential"])
def test_extreme_epsilons_have_worlds_too(name, epsilon):
    assert report(name, epsilon=epsilon, world=SMALL, runs=100).facts["verdict"] == "PASS"


def test_a_world_has_the_dimensions_that_a_mechanism_needs():
    assert audit("projection:dimension=6", runs=100)[0]["dimension"] == 8
