"""The objective of Nickel and Kiela, its Riemannian gradient, and steps that stay in the ball."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = NDArray[np.float64]

LARGEST_RADIUS: Final = 12.0
"""Largest hyperbolic radius of a point, a norm of 1 - 1.2e-5: float64 still resolves distances there."""

_SMALLEST_EXCESS: Final = 1e-18


def squared_norms(points: Points) -> NDArray[np.float64]:
    """Sum the squares of each row: (t, n) -> (t,)."""
    squares: NDArray[np.float64] = np.square(points).sum(axis=1)
    return squares


def loss_and_gradients(
    u: Points, v: Points, z: Points, excluded: NDArray[np.bool_], *, sharpness: float
) -> tuple[NDArray[np.float64], Points, Points, Points]:
    """Evaluate the objective over a batch of b pairs (u, v) that share k negatives z.

    For a pair with negatives N(u) the loss is ``d(u,v) + ln(exp(-s d(u,v)) + sum_N exp(-s d(u,v'))) / s``:
    how much farther v is than the nearest word, by a soft minimum of sharpness s. It is 1/s of the negative
    logarithm of the softmax of -s d; with s = 1 it is the paper's.

    ``excluded`` (b, k) is true where a negative is none for this hyponym; points are (b, n) and (k, n),
    within ``LARGEST_RADIUS``. Gives losses (b,), hyperbolic lengths, and the Riemannian gradients of their
    sum at u, v and z, in the coordinates of the ball.

    Source: Nickel and Kiela 2017, sections 3 (distance, gradient) and 4.1 (loss).
    """
    edge_u, edge_v, edge_z = (1 - squared_norms(points) for points in (u, v, z))
    gap = squared_norms(u - v)
    sinh_near, weight_near = _sinh_and_weight(2 * gap / (edge_u * edge_v), sharpness)
    # cosh(d) - 1 of all distances by one product, of Lorentz coordinates: (b, k).
    left = np.column_stack([u * (-2 / edge_u)[:, None], 2 / edge_u - 1, np.ones(len(u))])
    right = np.column_stack([z * (2 / edge_z)[:, None], 2 / edge_z - 1, np.full(len(z), -1.0)])
    far = left @ right.T
    sinh_far, weight_far = _sinh_and_weight(far, sharpness)
    weight_far[excluded] = 0
    away = weight_far.sum(axis=1)
    total = weight_near + away
    # d loss / d distance, over sinh(distance), which every distance's derivative has below it.
    pull = away / total / sinh_near
    push = weight_far
    push /= -total[:, None]
    push /= sinh_far
    far *= push
    to_z = push @ np.column_stack([z / edge_z[:, None], 1 / edge_z])
    to_u = push.T @ np.column_stack([u / edge_u[:, None], 1 / edge_u])
    near_u, near_v = pull / edge_v, pull / edge_u
    scale_u = edge_u * (far.sum(axis=1) / 2 + to_z[:, -1]) + near_u * (gap + edge_u)
    scale_z = edge_z * (far.sum(axis=0) / 2 + to_u[:, -1])
    return (
        np.log(total / weight_near) / sharpness,
        scale_u[:, None] * u - edge_u[:, None] * (to_z[:, :-1] + near_u[:, None] * v),
        (near_v * (gap + edge_v))[:, None] * v - (near_v * edge_v)[:, None] * u,
        scale_z[:, None] * z - edge_z[:, None] * to_u[:, :-1],
    )


def _sinh_and_weight(
    excess: NDArray[np.float64], sharpness: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give sinh(d) and exp(-sharpness d) where excess is cosh(d) - 1; no logarithm is needed."""
    # Rounding can make it negative; and closer points have no direction but rounding's.
    np.maximum(excess, _SMALLEST_EXCESS, out=excess)
    sinh = excess + 2
    sinh *= excess
    np.sqrt(sinh, out=sinh)
    weight = excess + 1
    weight += sinh
    return sinh, np.power(weight, -sharpness, out=weight)


def exponential_map(points: Points, steps: Points, *, longest: float, max_radius: float) -> Points:
    """Follow geodesics from points of the ball: ``x ⊕ tanh(λ|s|/2) s/|s|`` with ``λ = 2/(1-|x|²)``.

    Steps are tangent vectors (t, n) in the coordinates of the ball, cut at the hyperbolic length ``longest``;
    points beyond the hyperbolic ``max_radius`` go back to it, towards the centre.

    Source: Ganea et al. 2018, "Hyperbolic Neural Networks", lemma 2.
    """
    edge, lengths = 1 - squared_norms(points), np.sqrt(squared_norms(steps))
    travelled = np.tanh(np.minimum(2 * lengths / edge, longest) / 2)
    moves = steps * (travelled / np.maximum(lengths, np.finfo(np.float64).tiny))[:, None]
    inner, squares = (points * moves).sum(axis=1), np.square(travelled)
    reached: Points = (1 + 2 * inner + squares)[:, None] * points + edge[:, None] * moves
    reached /= (1 + 2 * inner + (1 - edge) * squares)[:, None]
    norms, largest = np.sqrt(squared_norms(reached)), math.tanh(max_radius / 2)
    reached *= np.where(norms > largest, largest / np.maximum(norms, largest), 1.0)[:, None]
    return reached
