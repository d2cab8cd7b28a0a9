"""Mechanisms at several epsilons at once: each word as at its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dptext_spark import Exponential, Hyperbolic, HyperbolicIcdm, Laplace, Mahalanobis, Projection
from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.mechanism import ByRung
from dptext_spark.mechanisms.noisy import NoiseOfRungs
from dptext_spark.search.exact import ExactSearch
from tests.helpers.bundles import ball_of, poincare_bundle

EPSILONS = (9.0, 4.0, 2.5)


@pytest.fixture
def disk(tmp_path: Path) -> Embedding:
    return poincare_bundle(tmp_path, ball_of(60, 3))


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [
        (Laplace(epsilon=9.0), NoiseOfRungs),
        (Laplace(epsilon=9.0, select="vickrey", t=0.5), NoiseOfRungs),
        (Mahalanobis(epsilon=9.0, lambda_=0.5), NoiseOfRungs),
        (Projection(epsilon=9.0, dimension=6), NoiseOfRungs),
        (Projection(epsilon=9.0, dimension=6, sensitivity="paper"), NoiseOfRungs),
        (Exponential(epsilon=9.0), ByRung),
        (Exponential(epsilon=9.0, truncate=0.7), ByRung),
        (Hyperbolic(epsilon=9.0), ByRung),
        (HyperbolicIcdm(epsilon=9.0), ByRung),
    ],
    ids=repr,
)
def test_each_word_at_its_own_epsilon(
    mechanism: Mechanism, kind: type, small: Embedding, disk: Embedding
) -> None:
    """Rejects rungs that are mixed up, a factor upside down, and one epsilon for all."""
    embedding = disk if mechanism.name.startswith("hyperbolic") else small
    search = ExactSearch.over(embedding)
    mechanism.prepare(embedding)
    together = mechanism.bind_rungs(embedding, search, EPSILONS)
    assert isinstance(together, kind)
    rng = np.random.default_rng(8)
    words = rng.integers(0, len(embedding.words), 900)
    rungs = rng.integers(0, 3, 900)
    uniforms = rng.uniform(1e-12, 1.0, (900, mechanism.uniforms_per_token(embedding.dimension)))
    alone = [mechanism.at(epsilon).bind(embedding, search)(words, uniforms.copy()) for epsilon in EPSILONS]
    found = together(words, uniforms.copy(), rungs)
    assert found.tolist() == np.choose(rungs, alone).tolist()
    for wrong in (alone[0], np.choose(2 - rungs, alone), np.choose((rungs + 1) % 3, alone)):
        assert (found != wrong).mean() > 0.005
    order = rng.permutation(900)
    assert together(words[order], uniforms[order], rungs[order]).tolist() == found[order].tolist()


def test_few_rungs_are_kept() -> None:
    made: list[int] = []

    def bind(rung: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        made.append(rung)
        return lambda words, uniforms: words + rung

    several, one = ByRung(bind=bind), np.zeros(1, dtype=np.int64)
    for rung in [*range(ByRung.most), 0, ByRung.most, 0, 1]:
        assert several(one, np.zeros((1, 1)), np.array([rung])).tolist() == [rung]
    assert len(several.bound) == ByRung.most
    assert made == [*range(ByRung.most + 1), 1]  # 0 was used again, 1 was not


def test_the_ladder_of_a_mechanism(small: Embedding) -> None:
    """Its law is the guarantee's: rejects epsilons by the Euclidean distance where another one counts."""
    budget = RowBudget(loss=5.0, within=2.0)
    for mechanism in (
        Laplace(epsilon=100.0),
        Mahalanobis(epsilon=100.0, lambda_=0.9),
        Projection(epsilon=100.0, dimension=6, sensitivity="paper"),
        Exponential(epsilon=100.0, truncate=0.5),
    ):
        mechanism.prepare(small)
        ladder = mechanism.ladder(budget, small)
        for words in (1, 3, 50):
            epsilon = ladder.epsilon(words)
            loss = words * mechanism.at(epsilon).guarantee(small).loss(2.0)
            assert 0.8 * 5.0 < loss <= 5.0


def test_a_mechanism_without_small_epsilons(disk: Embedding) -> None:
    budget = RowBudget(loss=5.0, within=1.0)
    with pytest.raises(
        ConfigError, match=r"hyperbolic cannot keep to a row budget.*epsilon above 2.*exponential"
    ):
        Hyperbolic(epsilon=9.0).ladder(budget, disk)
    with pytest.raises(ConfigError, match=r"at any epsilon a word loses more.*exponential"):
        HyperbolicIcdm(epsilon=9.0).ladder(budget, disk)
    assert Exponential(epsilon=9.0).ladder(budget, disk).epsilon(5) == 1.0
