"""Mechanisms at several epsilons at once: each word as at its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dptext_spark import Exponential, Hyperbolic, HyperbolicIcdm, Laplace, Mahalanobis, Projection
from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.exponential import CACHE_BYTES
from dptext_spark.mechanisms.exponential import EPSILONS as EPSILONS_KEPT
from dptext_spark.search.exact import ExactSearch
from tests.helpers.bundles import ball_of, poincare_bundle

EPSILONS = (9.0, 4.0, 2.5)


@pytest.fixture
def disk(tmp_path: Path) -> Embedding:
    return poincare_bundle(tmp_path, ball_of(60, 3))


@pytest.mark.parametrize(
    "mechanism",
    [
        Laplace(epsilon=9.0),
        Laplace(epsilon=9.0, select="vickrey", t=0.5),
        Mahalanobis(epsilon=9.0, lambda_=0.5),
        Projection(epsilon=9.0, dimension=6),
        Projection(epsilon=9.0, dimension=6, sensitivity="paper"),
        Exponential(epsilon=9.0),
        Exponential(epsilon=9.0, truncate=0.7),
    ],
    ids=repr,
)
def test_each_word_at_its_own_epsilon(mechanism: Mechanism, small: Embedding) -> None:
    """Rejects epsilons that are mixed up, a factor upside down, and one epsilon for all."""
    embedding, search = small, ExactSearch.over(small)
    mechanism.prepare(embedding)
    together = mechanism.bind(embedding, search)
    rng = np.random.default_rng(8)
    words = rng.integers(0, len(embedding.words), 900)
    which = rng.integers(0, 3, 900)
    epsilons = np.array(EPSILONS)[which]
    uniforms = rng.uniform(1e-12, 1.0, (900, mechanism.uniforms_per_token(embedding.dimension)))
    alone = [mechanism.at(epsilon).bind(embedding, search)(words, uniforms.copy()) for epsilon in EPSILONS]
    found = together(words, uniforms.copy(), epsilons)
    assert found.tolist() == np.choose(which, alone).tolist()
    for wrong in (alone[0], np.choose(2 - which, alone), np.choose((which + 1) % 3, alone)):
        assert (found != wrong).mean() > 0.005
    order = rng.permutation(900)
    assert together(words[order], uniforms[order], epsilons[order]).tolist() == found[order].tolist()


def test_noise_in_the_ball_has_one_epsilon(disk: Embedding) -> None:
    bound = Hyperbolic(epsilon=9.0).bind(disk, ExactSearch.over(disk))
    uniforms = np.full((1, Hyperbolic(epsilon=9.0).uniforms_per_token(3)), 0.5)
    with pytest.raises(ConfigError, match="one epsilon for all words"):
        bound(np.zeros(1, dtype=np.int64), uniforms, np.array([4.0]))


def test_lists_of_few_epsilons_are_kept(small: Embedding) -> None:
    """Rejects lists of every epsilon that any row ever had, and lists that are made again for each batch."""
    bound = Exponential(epsilon=9.0).bind(small, ExactSearch.over(small))
    assert bound.at is not None and bound.at(2.0) is bound.at(2.0)
    first = bound.at(2.0)
    for step in range(EPSILONS_KEPT):
        bound.at(3.0 + step)
    assert bound.at(2.0) is not first
    assert len(first.cache.lists.shares) <= CACHE_BYTES // EPSILONS_KEPT // 12


def test_the_row_epsilons_of_a_mechanism(small: Embedding) -> None:
    """Its law is the guarantee's: rejects epsilons by the Euclidean distance where another one counts."""
    budget = RowBudget(loss=5.0, within=2.0)
    for mechanism in (
        Laplace(epsilon=100.0),
        Mahalanobis(epsilon=100.0, lambda_=0.9),
        Projection(epsilon=100.0, dimension=6, sensitivity="paper"),
        Exponential(epsilon=100.0, truncate=0.5),
    ):
        mechanism.prepare(small)
        epsilons = mechanism.row_epsilons(budget, small)
        for words in (1, 3, 50):
            epsilon = epsilons.epsilon(words)
            loss = words * mechanism.at(epsilon).guarantee(small).loss(2.0)
            assert 0.8 * 5.0 < loss <= 5.0


def test_a_mechanism_without_small_epsilons(disk: Embedding) -> None:
    budget = RowBudget(loss=5.0, within=1.0)
    with pytest.raises(
        ConfigError, match=r"hyperbolic cannot keep to a row budget.*epsilon above 2.*exponential"
    ):
        Hyperbolic(epsilon=9.0).row_epsilons(budget, disk)
    with pytest.raises(ConfigError, match=r"at any epsilon a word loses more.*exponential"):
        HyperbolicIcdm(epsilon=9.0).row_epsilons(budget, disk)
    assert Exponential(epsilon=9.0).row_epsilons(budget, disk).epsilon(5) == 1.0
