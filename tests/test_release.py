"""A release: its noise follows from all of its parts; what it and they show of themselves is never a key."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from dptext_spark import Laplace, Mahalanobis, Release, RowBudget, TextPolicy
from dptext_spark.guarantee import TypicalDistances
from dptext_spark.mechanisms import mechanism
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.release import euclidean_guarantee
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import KEY


def test_noise_follows_from_all_that_decides_words_and_from_nothing_else(line):
    """Rejects noise without name, mechanism or budget in its context, or with the policy in it."""
    release = Release.open(embedding=line.path, mechanism=Laplace(epsilon=5.0), name="label")
    same = [
        pickle.loads(pickle.dumps(release)),
        replace(release, bundle=line),
        replace(release, policy=TextPolicy(protect="slots:s", oov="drop")),
        replace(release, search=ExactSearch.over(line, 3)),
    ]
    given = {"embedding": line, "mechanism": Laplace(epsilon=5.0), "name": "label"}
    budgets = [RowBudget(loss=loss, within=within) for loss, within in ((1, 1), (2, 1), (2, 2))]
    others = [Release.open(**given, row_budget=budget) for budget in budgets]
    others += [replace(release, name="other"), replace(release, mechanism=Laplace(epsilon=6.0))]
    assert {each.noise(KEY).key.secret for each in [release, *same]} == {
        release.noise(KEY).key.secret
    }
    assert len({each.noise(KEY).key.secret for each in [release, *others]}) == 6
    assert release.noise() != release.noise()


@pytest.mark.parametrize("mixing", [0.3, 0.1000000001, 1.0])
def test_a_ledger_counts_in_euclidean_distance(small, mixing):
    """For pairs of words: what is counted is no less than the loss in the norm of the mechanism."""
    # Rejects the mechanism's own epsilon or law, typical distances in its norm, and a lambda that is rounded.
    mahalanobis = Mahalanobis(epsilon=5.0, lambda_=mixing)
    own = mahalanobis.guarantee(small)
    counted = euclidean_guarantee(own, small)
    assert repr(mixing) in own.metric and counted.metric == "Euclidean distance of their vectors"
    assert counted.epsilon == own.euclidean_epsilon > own.epsilon
    norms = mahalanobis.metric(small), small.space.metric()
    assert counted.distances == TypicalDistances.measure(norms[1]) != own.distances
    pairs = np.random.default_rng(3).integers(0, 300, (2, 200))
    between = zip(*(norm.between(*pairs) for norm in norms), strict=True)
    for place, (elliptical, euclidean) in enumerate(between):
        assert counted.law.bound(euclidean) * (1 + 1e-12) >= own.law.bound(elliptical)
        assert place or counted.law.atoms(euclidean)[0].max() >= own.law.atoms(elliptical)[0].max()


@pytest.mark.parametrize("name", ["laplace", "hyperbolic"])
def test_an_epsilon_in_the_geometrys_own_distance_stays_as_it_is(name, ball, small):
    embedding = small if name == "laplace" else ball
    own = mechanism(name, epsilon=9.0).guarantee(embedding)
    assert euclidean_guarantee(own, embedding) is own


def test_what_is_long_is_short_and_without_a_key(small):
    """Rejects a dataclass's own representation, which holds keys and arrays."""
    laplace, paper = Laplace(epsilon=2.0), ProjectedVectors(epsilon=2.0, sensitivity="paper")
    release = worlds.sanitizer(small, laplace)
    facts = f"300 words, 200 may be output, 50 dimensions, fingerprint {small.fingerprint[:16]}"
    claim = "laplace, epsilon 2: an output word shifts the odds between any two input words by at "
    for made, parts in (
        (small, [f"Embedding('bundle': {facts})"]),
        (
            laplace.guarantee(small),
            [f"{claim}most exp(2 x distance).\nFor nearly all outputs, ", "\nany other word "],
        ),
        (
            paper.of_length(50).guarantee(),
            ["projected vectors, epsilon 2: ", "exp(2.07758 x "],
        ),
        (release, ["mechanism    Laplace(epsilon=2.0)\n", "oov          mask\nprotect      all\n"]),
    ):
        shown = repr(made)
        assert all(part in shown for part in parts) and len(shown) < 1200
        for secret in (worlds.KEY.secret, release.noise.key.secret):
            assert secret.hex() not in shown and repr(secret)[2:-1] not in shown
