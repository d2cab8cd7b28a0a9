"""The loss, its gradients and the steps, against the formulas and at the rim."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dptext_spark.poincare.objective import exponential_map, loss_and_gradients
from tests.helpers.poincare import EDGE, distance, points


def loss(u: np.ndarray, v: np.ndarray, negatives: np.ndarray, sharpness: float) -> float:
    """The loss of one pair, written down as in the paper, with distances that count ``sharpness`` times."""
    near, *far = (np.exp(-sharpness * distance(u, other)) for other in (v, *negatives))
    return -np.log(near / (near + sum(far))) / sharpness


@pytest.mark.parametrize("sharpness", [1.0, 3.5])
@pytest.mark.parametrize(("dimension", "largest"), [(2, 0.999), (5, 0.95)])
def test_values_and_gradients_are_those_of_the_formula(
    dimension: int, largest: float, sharpness: float
) -> None:
    """Rejects the Euclidean gradient: differences count by the inverse of the metric, (1 - |x|²)² / 4."""
    arrays = [points(size, dimension, largest=largest, seed=seed) for seed, size in enumerate((3, 3, 4))]
    excluded = np.zeros((3, 4), dtype=bool)
    excluded[0, 1] = excluded[2, 3] = True

    def losses(u: np.ndarray, v: np.ndarray, z: np.ndarray) -> list[float]:
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


def test_coinciding_and_outermost_points_give_finite_numbers() -> None:
    """And where nothing is a negative, there is no loss."""
    out = np.array([[EDGE, 0.0], [-EDGE, 0.0], [0.0, 0.0], [EDGE, 0.0]])
    with np.errstate(all="raise"):
        for u, v in itertools.product(range(4), repeat=2):
            for excluded in (np.zeros((1, 4), dtype=bool), np.ones((1, 4), dtype=bool)):
                found = loss_and_gradients(out[[u]], out[[v]], out, excluded, sharpness=3.5)
                assert all(np.isfinite(array).all() for array in found)
                assert not (excluded.all() and any(array.any() for array in found))


def test_steps_go_the_given_distance_the_given_way() -> None:
    start, step = points(50, 4), points(50, 4, largest=0.01, seed=1)
    reached = exponential_map(start, step, longest=1.0, max_radius=12.0)
    for x, s, y in zip(start, step, reached, strict=True):
        length = min(2 * np.linalg.norm(s) / (1 - x @ x), 1.0)
        assert distance(x, y) == pytest.approx(length, rel=1e-6)
    # From the centre it is a straight line.
    reached = exponential_map(np.zeros((50, 4)), step, longest=9.0, max_radius=12.0)
    lengths = np.linalg.norm(step, axis=1)
    np.testing.assert_allclose(reached, step * (np.tanh(lengths) / lengths)[:, None])


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-12, 1.0, 1e12, 1e150])
def test_steps_stay_inside_the_ball(size: float) -> None:
    start = points(200, 3, largest=1.0)
    start[:100] *= (EDGE / np.linalg.norm(start[:100], axis=1))[:, None]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        steps = points(200, 3, seed=1) * size
        reached, nearer = (
            exponential_map(start, steps, longest=50.0, max_radius=radius) for radius in (12.0, 1.5)
        )
    norms, largest = np.linalg.norm(reached, axis=1), np.tanh(1.5 / 2)
    assert norms.max() <= EDGE * (1 + 1e-15)
    if size == 0:
        np.testing.assert_allclose(reached, start, rtol=1e-15)
    # Beyond the radius a point goes back on the ray that it is on; within, it stays where it is.
    assert (norms > largest).any() and (size > 1 or (norms < largest).any())
    back = np.where(norms > largest, largest / norms, 1.0)[:, None]
    np.testing.assert_allclose(nearer, reached * back, rtol=1e-12)
