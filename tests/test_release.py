"""A release: its parts are checked against each other, and its noise follows from all of them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from dptext_spark import Laplace, Mahalanobis, Release, RowBudget, TextPolicy
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import TypicalDistances
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.release import in_euclidean_distance
from dptext_spark.search.exact import ExactSearch
from tests.helpers.worlds import KEY


def test_noise_follows_from_all_that_decides_words_and_from_nothing_else(line: Embedding) -> None:
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
    assert {each.noise(KEY).key.secret for each in [release, *same]} == {release.noise(KEY).key.secret}
    assert len({each.noise(KEY).key.secret for each in [release, *others]}) == 6
    assert release.noise() != release.noise()


def test_parts_that_do_not_go_together_are_refused(line: Embedding) -> None:
    with pytest.raises(ConfigError, match="does not work on this embedding bundle"):
        Release.open(embedding=line, mechanism=mechanism("hyperbolic", epsilon=9.0))


@pytest.mark.parametrize("mixing", [0.3, 0.1000000001, 1.0])
def test_a_ledger_counts_in_euclidean_distance(small: Embedding, mixing: float) -> None:
    """For pairs of words: what is counted is no less than the loss in the norm of the mechanism.

    Rejects the mechanism's own epsilon or law, typical distances in its norm, and a lambda that is rounded.
    """
    mahalanobis = Mahalanobis(epsilon=5.0, lambda_=mixing)
    own = mahalanobis.guarantee(small)
    counted = in_euclidean_distance(own, small)
    assert repr(mixing) in own.metric and counted.metric == "Euclidean distance of their vectors"
    assert counted.epsilon == own.euclidean_epsilon > own.epsilon
    norms = mahalanobis.metric(small), small.space.metric()
    assert counted.distances == TypicalDistances.measure(norms[1]) != own.distances
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 300, (2, 200))
    for elliptical, euclidean in zip(*(norm.between(*pairs) for norm in norms), strict=True):
        assert counted.law.bound(euclidean) * (1 + 1e-12) >= own.law.bound(elliptical)
    loss, of_mechanism = (
        law.atoms(norm.between(*pairs[:, :1])[0])[0].max()
        for law, norm in ((counted.law, norms[1]), (own.law, norms[0]))
    )
    assert loss >= of_mechanism


@pytest.mark.parametrize("name", ["laplace", "hyperbolic"])
def test_an_epsilon_in_the_geometrys_own_distance_stays_as_it_is(
    name: str, ball: Embedding, small: Embedding
) -> None:
    configured: Mechanism = mechanism(name, epsilon=9.0)
    embedding = small if name == "laplace" else ball
    own = configured.guarantee(embedding)
    assert in_euclidean_distance(own, embedding) is own
