"""Poincaré embeddings: loss, steps and training, against the formula."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dptext_spark.poincare import Settings, measure, train, training
from dptext_spark.poincare.relations import reconstruction
from dptext_spark.poincare.training import LARGEST_RADIUS, exponential_map, loss_and_gradients
from tests.helpers.poincare import distance, points, tree

EDGE = float(np.tanh(LARGEST_RADIUS / 2))
SETTINGS = Settings(dimension=5, epochs=120, negatives=50, batch_size=32)
PLANE = replace(SETTINGS, dimension=2, learning_rate=0.15)


def loss(u, v, negatives, sharpness):
    """The loss of one pair, written down as in the paper, with distances that count ``sharpness`` times."""
    near, *far = (np.exp(-sharpness * distance(u, other)) for other in (v, *negatives))
    return -np.log(near / (near + sum(far))) / sharpness


@pytest.mark.parametrize("sharpness", [1.0, 3.5])
@pytest.mark.parametrize(("dimension", "largest"), [(2, 0.999), (5, 0.95)])
def test_values_and_gradients_are_those_of_the_formula(dimension, largest, sharpness):
    """Rejects the Euclidean gradient: differences count by the inverse of the metric, (1 - |x|²)² / 4."""
    arrays = [
        points(size, dimension, largest=largest, seed=seed) for seed, size in enumerate((3, 3, 4))
    ]
    excluded = np.zeros((3, 4), dtype=bool)
    excluded[0, 1] = excluded[2, 3] = True

    def losses(u, v, z):
        return [loss(u[i], v[i], z[~excluded[i]], sharpness) for i in range(3)]

    values, *gradients = loss_and_gradients(*arrays, excluded, sharpness=sharpness)
    np.testing.assert_allclose(values, losses(*arrays), rtol=1e-9)
    for place, gradient in enumerate(gradients):
        numeric = np.empty_like(gradient)
        for index in np.ndindex(gradient.shape):
            edge = 1 - (arrays[place][index[0]] ** 2).sum()
            sides = []
            for step in (1e-5 * edge, -1e-5 * edge):
                moved = [array.copy() for array in arrays]
                moved[place][index] += step
                sides.append(sum(losses(*moved)))
            numeric[index] = (sides[0] - sides[1]) / (2e-5 * edge) * edge**2 / 4
        np.testing.assert_allclose(gradient, numeric, rtol=2e-5, atol=1e-7 * np.abs(gradient).max())


def test_coinciding_and_outermost_points_give_finite_numbers():
    """And where nothing is a negative, there is no loss."""
    out = np.array([[EDGE, 0.0], [-EDGE, 0.0], [0.0, 0.0], [EDGE, 0.0]])
    with np.errstate(all="raise"):
        for u, v, none in itertools.product(range(4), range(4), (False, True)):
            found = loss_and_gradients(
                out[[u]], out[[v]], out, np.full((1, 4), none), sharpness=3.5
            )
            assert all(np.isfinite(array).all() for array in found)
            assert not (none and any(array.any() for array in found))


def test_steps_go_the_given_distance_the_given_way():
    start, step = points(50, 4), points(50, 4, largest=0.3, seed=1)
    for first, longest in ((start, 1.0), (np.zeros((50, 4)), 9.0)):
        reached = exponential_map(first, step, longest=longest, max_radius=12.0)
        far = np.minimum(
            2 * np.linalg.norm(step, axis=1) / (1 - np.square(first).sum(axis=1)), longest
        )
        assert list(map(distance, first, reached)) == pytest.approx(far, rel=1e-6)
    # From the centre it is a straight line.
    np.testing.assert_allclose(
        reached / np.linalg.norm(reached, axis=1)[:, None] * far[:, None] / 2, step
    )


@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e150])
def test_steps_stay_inside_the_ball(size):
    start = points(200, 3, largest=1.0)
    start[:100] *= (EDGE / np.linalg.norm(start[:100], axis=1))[:, None]
    steps = points(200, 3, seed=1) * size
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        reached, nearer = (
            exponential_map(start, steps, longest=50.0, max_radius=r) for r in (12.0, 1.5)
        )
    norms, largest = np.linalg.norm(reached, axis=1), np.tanh(1.5 / 2)
    assert norms.max() <= EDGE * (1 + 1e-15)
    if size == 0:
        np.testing.assert_allclose(reached, start, rtol=1e-15)
    # Beyond the radius a point goes back on the ray that it is on; within, it stays where it is.
    assert (norms > largest).any() and (size > 1 or (norms < largest).any())
    back = np.where(norms > largest, largest / norms, 1.0)[:, None]
    np.testing.assert_allclose(nearer, reached * back, rtol=1e-12)


def test_a_tree_is_reconstructed():
    """In five dimensions, in two, and in a small ball, which keeps words near: rejects its radius ignored."""
    relations, small = tree(5), replace(SETTINGS, epochs=60, max_radius=2.0)
    wide, near = (
        measure(train(relations, settings)[0], relations) for settings in (SETTINGS, small)
    )
    for found, radius in ((wide, 6.0), (near, 2.0)):
        assert found["reconstruction"]["mean_average_precision"] > 0.95
        assert found["reconstruction"]["mean_rank"] < 1.2
        assert found["largest_norm"] == pytest.approx(np.tanh(radius / 2), rel=1e-2)
    assert max(near["nearest_distances"]) < min(wide["nearest_distances"])
    assert [Settings(dimension=n).radius for n in (2, 5, 10)] == [12, 6, 4]
    assert reconstruction(train(relations, PLANE)[0], relations, words=100)["mean_rank"] < 2


def test_no_two_draws_of_a_run_are_alike_and_the_seed_names_them():
    given = itertools.product((0, 1), ("start", "order", "negatives"), (0, 1, 2))
    draws = np.concatenate([training.uniforms(*each, (5,)) for each in given])
    assert len({*draws}) == len(draws) == 90
    assert (draws > 0).all() and (draws < 1).all()
    one, again, other = (
        train(tree(3), replace(SETTINGS, epochs=15, seed=seed))[0] for seed in (1, 1, 2)
    )
    assert one.tobytes() == again.tobytes() != other.tobytes()


def test_negatives_are_drawn_by_links_at_first_and_evenly_later():
    relations, settings = tree(3), replace(SETTINGS, negatives=1000)
    weights = relations.links**0.75
    for epoch, expected in ((0, weights / weights.sum()), (training.BURN_IN, np.full(15, 1 / 15))):
        drawn = training.draw_negatives(relations, settings, epoch, 50)
        counts = np.bincount(drawn.ravel(), minlength=15)
        assert drawn.shape == (50, 1000)
        # The seed is fixed, so this never fails by chance; five standard deviations otherwise.
        assert (
            np.abs(counts - 50_000 * expected) < 5 * np.sqrt(50_000 * expected * (1 - expected))
        ).all()


def test_training_ends_when_the_mean_rank_gets_no_better(monkeypatch):
    """Rejects the last points in place of the best ones; waiting starts after the burn-in."""

    def nothing_then_worse(points, epoch, *_):
        points *= epoch < 5
        return 0.0

    monkeypatch.setattr(training, "run_epoch", nothing_then_worse)
    vectors, facts = train(tree(2), replace(SETTINGS, patience=20, epochs=500))
    assert (facts["best_epoch"], facts["epochs"]) == (5, training.BURN_IN + 20)
    assert vectors.any()
