"""The loss, its gradients and the steps, against the formulas and at the rim."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dptext_spark.poincare import Objective, exponential_map
from tests.helpers.poincare import EDGE, distance, points


def loss(u: np.ndarray, v: np.ndarray, negatives: np.ndarray, sharpness: float = 1.0) -> float:
    """The loss of one pair, written down as in the paper, with distances that count ``sharpness`` times."""
    near, *far = (np.exp(-sharpness * distance(u, other)) for other in (v, *negatives))
    return -np.log(near / (near + sum(far))) / sharpness


@pytest.mark.parametrize("sharpness", [1.0, 3.5])
@pytest.mark.parametrize(("dimension", "largest"), [(2, 0.999), (5, 0.95)])
def test_values_and_gradients_are_those_of_the_formula(
    dimension: int, largest: float, sharpness: float
) -> None:
    u, v, z = (points(size, dimension, largest=largest, seed=seed) for seed, size in enumerate((3, 3, 4)))
    excluded = np.zeros((3, 4), dtype=bool)
    excluded[0, 1] = excluded[2, 3] = True

    def losses(u: np.ndarray, v: np.ndarray, z: np.ndarray) -> list[float]:
        return [loss(u[i], v[i], z[~excluded[i]], sharpness) for i in range(3)]

    found = Objective.of(u, v, z, excluded, sharpness=sharpness)
    np.testing.assert_allclose(found.losses, losses(u, v, z), rtol=1e-9)
    for place, gradient in enumerate((found.hyponyms, found.hypernyms, found.negatives)):
        arrays = [u, v, z]
        numeric = np.empty_like(gradient)
        for index in np.ndindex(gradient.shape):
            edge = 1 - (arrays[place][index[0]] ** 2).sum()
            step = 1e-5 * edge
            sides = []
            for sign in (1, -1):
                moved = [array.copy() for array in arrays]
                moved[place][index] += sign * step
                sides.append(sum(losses(*moved)))
            # The inverse of the metric: (1 - |x|²)² / 4.
            numeric[index] = (sides[0] - sides[1]) / (2 * step) * edge**2 / 4
        np.testing.assert_allclose(gradient, numeric, rtol=2e-5, atol=1e-7 * np.abs(gradient).max())


def test_a_pairs_gradient_has_the_hyperbolic_length_of_the_distances_derivative() -> None:
    # With one negative, d loss / d distance is its softmax p; a distance's gradient has length 1.
    u, v, z = points(1, 3, seed=1), points(1, 3, largest=0.999, seed=2), points(1, 3, seed=3)
    found = Objective.of(u, v, z, np.zeros((1, 1), dtype=bool), sharpness=1.0)
    p = 1 - np.exp(-loss(u[0], v[0], z))
    for point, gradient in ((v, found.hypernyms), (z, found.negatives)):
        assert 2 / (1 - (point**2).sum()) * np.linalg.norm(gradient) == pytest.approx(p, rel=1e-9)


def test_coinciding_and_outermost_points_give_finite_numbers() -> None:
    """And where nothing is a negative, there is no loss."""
    out = np.array([[EDGE, 0.0], [-EDGE, 0.0], [0.0, 0.0], [EDGE, 0.0]])
    with np.errstate(all="raise"):
        for u, v in itertools.product(range(4), repeat=2):
            found = Objective.of(out[[u]], out[[v]], out, np.zeros((1, 4), dtype=bool), sharpness=3.5)
            for array in (found.losses, found.hyponyms, found.hypernyms, found.negatives):
                assert np.isfinite(array).all()
            alone = Objective.of(out[[u]], out[[v]], out, np.ones((1, 4), dtype=bool), sharpness=3.5)
            assert not any(array.any() for array in vars(alone).values())


# Steps


def test_steps_go_the_given_distance_the_given_way() -> None:
    start, step = points(50, 4), points(50, 4, largest=0.01, seed=1)
    reached = exponential_map(start, step, longest=1.0, max_radius=12.0)
    for x, s, y in zip(start, step, reached, strict=True):
        length = min(2 * np.linalg.norm(s) / (1 - x @ x), 1.0)
        assert distance(x, y) == pytest.approx(length, rel=1e-6)
    # From the centre it is a straight line.
    reached = exponential_map(np.zeros((50, 4)), step, longest=9.0, max_radius=12.0)
    np.testing.assert_allclose(
        reached, step * (np.tanh(np.linalg.norm(step, axis=1)) / np.linalg.norm(step, axis=1))[:, None]
    )


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-12, 1.0, 1e12, 1e150])
def test_steps_stay_inside_the_ball(size: float) -> None:
    start = points(200, 3, largest=1.0)
    start[:100] *= (EDGE / np.linalg.norm(start[:100], axis=1))[:, None]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        steps = points(200, 3, seed=1) * size
        reached = exponential_map(start, steps, longest=50.0, max_radius=12.0)
        nearer = exponential_map(start, steps, longest=50.0, max_radius=1.5)
    assert np.linalg.norm(reached, axis=1).max() <= EDGE * (1 + 1e-15)
    if size == 0:
        np.testing.assert_allclose(reached, start, rtol=1e-15)
    # Beyond the radius a point goes back on the ray that it is on; within, it stays where it is.
    norms, largest = np.linalg.norm(reached, axis=1), np.tanh(1.5 / 2)
    assert (norms > largest).any() and (size > 1 or (norms < largest).any())
    back = np.where(norms > largest, largest / norms, 1.0)[:, None]
    np.testing.assert_allclose(nearer, reached * back, rtol=1e-12)
