"""Training: trees are reconstructed, mutants are not; repeatability and checkpoints."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.poincare import Relations, Settings, measure, train, training
from dptext_spark.poincare.objective import exponential_map, loss_and_gradients
from dptext_spark.poincare.quality import reconstruction
from tests.helpers.poincare import EDGE, tree

SETTINGS = Settings(dimension=5, epochs=120, negatives=50, batch_size=32)
PLANE = replace(SETTINGS, dimension=2, learning_rate=0.15)


def rank_in_the_plane() -> float:
    rank: float = reconstruction(train(tree(5), PLANE)[0], tree(5), words=100)["mean_rank"]
    return rank


def test_a_tree_is_reconstructed() -> None:
    relations = tree(4)
    found = measure(train(relations, SETTINGS)[0], relations)
    assert found["reconstruction"]["mean_average_precision"] > 0.97
    assert found["reconstruction"]["mean_rank"] < 1.1
    assert found["norm_depth_correlation"] > 0.8
    assert found["largest_norm"] <= EDGE
    assert rank_in_the_plane() < 2


def euclidean(u: np.ndarray, v: np.ndarray, z: np.ndarray, *given: Any, **sharpness: float) -> Any:
    """The gradients without the inverse of the metric."""
    losses, *gradients = loss_and_gradients(u, v, z, *given, **sharpness)
    factors = [4 / (1 - (x**2).sum(axis=1, keepdims=True)) ** 2 for x in (u, v, z)]
    return losses, *(gradient * factor for gradient, factor in zip(gradients, factors, strict=True))


MUTANTS = {
    "euclidean gradient": (training, "loss_and_gradients", euclidean),
    "no negatives": (Relations, "are_related", lambda _, low, z: np.ones((len(low), len(z)), dtype=bool)),
    "uphill": (training, "exponential_map", lambda x, s, **limits: exponential_map(x, -s, **limits)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_training_does_not_reconstruct_the_tree(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    # With seeds 0 to 4 the right training has mean ranks of 1.3 to 1.6, the Euclidean gradient 2.6 to 3.3.
    assert rank_in_the_plane() > 2.3


def test_a_small_ball_keeps_the_tree_and_its_words_near() -> None:
    relations, radius = tree(5), 2.0
    small, wide = (
        measure(train(relations, replace(SETTINGS, epochs=60, max_radius=most))[0], relations)
        for most in (radius, 12.0)
    )
    assert small["largest_norm"] == pytest.approx(np.tanh(radius / 2), rel=1e-12)
    assert max(small["nearest_distances"]) < min(wide["nearest_distances"])
    assert small["reconstruction"]["mean_average_precision"] > 0.95
    assert [Settings(dimension=n).radius for n in (2, 5, 10)] == [12, 6, 4]


def test_the_seed_names_the_vectors() -> None:
    one, again, other = (train(tree(3), replace(SETTINGS, epochs=15, seed=seed))[0] for seed in (1, 1, 2))
    assert one.tobytes() == again.tobytes() != other.tobytes()


def test_no_two_draws_of_a_run_are_alike() -> None:
    given = itertools.product((0, 1), ("start", "order", "negatives"), (0, 1, 2))
    draws = np.concatenate([training.uniforms(*each, (5,)) for each in given])
    assert len({*draws}) == len(draws) == 90
    assert (draws > 0).all() and (draws < 1).all()


def test_negatives_are_drawn_by_links_at_first_and_evenly_later() -> None:
    relations, settings = tree(3), replace(SETTINGS, negatives=1000)
    weights = relations.links**0.75
    for epoch, expected in ((0, weights / weights.sum()), (training.BURN_IN, np.full(15, 1 / 15))):
        drawn = training.draw_negatives(relations, settings, epoch, 50)
        counts = np.bincount(drawn.ravel(), minlength=15)
        assert drawn.shape == (50, 1000)
        # The seed is fixed, so this never fails by chance; five standard deviations otherwise.
        assert (np.abs(counts - 50_000 * expected) < 5 * np.sqrt(50_000 * expected * (1 - expected))).all()


def test_a_run_goes_on_from_any_checkpoint_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relations, settings, folder = tree(3), replace(SETTINGS, epochs=22), tmp_path / "deep" / "state"
    vectors, facts = train(relations, settings)
    right = training._save

    def save_and_stop(*state: Any) -> None:
        right(*state)
        raise KeyboardInterrupt

    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(training, "_save", save_and_stop)
            with pytest.raises(KeyboardInterrupt):
                train(relations, settings, checkpoint=folder)
    resumed, said = train(relations, settings, checkpoint=folder)
    assert resumed.tobytes() == vectors.tobytes()
    assert said == facts


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    relations, settings = tree(2), replace(SETTINGS, epochs=5)
    train(relations, settings, checkpoint=tmp_path)
    for other in (
        (tree(3), settings),
        (relations, replace(settings, seed=9)),
        (relations, replace(settings, epochs=6)),
    ):
        with pytest.raises(ConfigError, match="another run"):
            train(*other, checkpoint=tmp_path)
    (tmp_path / training.CHECKPOINT).write_bytes(b"PK broken")
    with pytest.raises(ConfigError, match="cannot be read"):
        train(relations, settings, checkpoint=tmp_path)


def test_training_ends_when_the_mean_rank_gets_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects the last points in place of the best ones; waiting starts after the burn-in."""

    def nothing_then_worse(points: np.ndarray, epoch: int, *_: object) -> float:
        points *= epoch < 5
        return 0.0

    monkeypatch.setattr(training, "run_epoch", nothing_then_worse)
    vectors, facts = train(tree(2), replace(SETTINGS, patience=20, epochs=500))
    assert (facts["best_epoch"], facts["epochs"]) == (5, training.BURN_IN + 20)
    assert vectors.any()
