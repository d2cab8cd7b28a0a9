"""Riemannian stochastic gradient descent on is-a pairs, repeatable on one kind of processor.

The objective is that of Nickel and Kiela, with its Riemannian gradient, and steps that stay in the
ball.

All pairs of a batch share one set of negatives. Distances and gradients are then products of two
matrices, which makes an epoch far faster than with negatives of each pair's own.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from dptext_spark.bars import progress_bar
from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.metric import squared_norms
from dptext_spark.noise import ColumnNoise, NoiseKey, to_uniform
from dptext_spark.poincare.relations import Relations, reconstruction

LARGEST_RADIUS: Final = 12.0
"""Largest hyperbolic radius of a point, a norm of 1 - 1.2e-5: float64 resolves distances there."""

BURN_IN: Final = 10
"""Epochs at a tenth of the learning rate, in which words find the right directions."""

_PUBLIC_KEY: Final = NoiseKey(hashlib.sha256(b"dptext-spark public training").digest())
_EVALUATE_EVERY: Final = 5
_LONGEST_STEP: Final = 1.0
_SMALLEST_EXCESS: Final = 1e-18


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an embedding is trained."""

    dimension: int = 10
    epochs: int = 200  # passes over the pairs, at most
    negatives: int = 128  # words drawn for each batch; training pushes its hyponyms away from them
    # Hyperbolic length of a step for a gradient of length 1; a tenth of it in the first ``BURN_IN``
    # epochs, falling in a line to a hundredth of it in the last one.
    learning_rate: float = 0.3
    batch_size: int = 128
    patience: int = 50  # epochs without a better mean rank after which training ends
    # Hyperbolic, at most ``LARGEST_RADIUS``; None leaves it to the dimension.
    max_radius: float | None = None
    seed: int = 0

    @property
    def radius(self) -> float:
        """The hyperbolic radius that no point leaves; by default one at which ranks are best."""
        return self.max_radius or LARGEST_RADIUS / math.sqrt(self.dimension - 1)


def train(relations: Relations, settings: Settings) -> tuple[Floats, dict[str, Any]]:
    """Return the points with the best mean rank, float64 (V, n), and the history of training.

    A ``loss`` is a hyperbolic length a pair.

    Source: Nickel and Kiela 2017, sections 3.1 and 4. Differences: shared negatives, steps along
    geodesics instead of straight lines, the mean of a word's gradients in a batch instead of their
    sum.
    """
    shape = (len(relations.words), settings.dimension)
    points = 1e-3 * (2 * uniforms(settings.seed, "start", 0, shape) - 1)
    best = points.copy()
    best_epoch = 0
    best_rank = math.inf
    last = 0
    history: list[dict[str, Any]] = []
    # One thread: with more, BLAS splits its sums differently and the last bits follow their number.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar(total=settings.epochs, desc="poincare", unit="epoch") as bar,
    ):
        while last < settings.epochs and last - max(best_epoch, BURN_IN) < settings.patience:
            for epoch in range(last, min(last + _EVALUATE_EVERY, settings.epochs)):
                loss = run_epoch(points, epoch, relations, settings)
                last += 1
                bar.update()
            rank = reconstruction(points, relations, words=1000)["mean_rank"]
            if rank < best_rank:
                best = points.copy()
                best_epoch = last
                best_rank = rank
            history.append({"epoch": last, "loss": loss, "mean_rank": rank})
            bar.set_postfix(history[-1])
    return best, {"epochs": last, "best_epoch": best_epoch, "history": history}


def run_epoch(points: Floats, epoch: int, relations: Relations, settings: Settings) -> float:
    """Train points, float64 (V, n), in place by one pass over the pairs; return the mean loss."""
    pairs = relations.pairs
    rate = _learning_rate(epoch, settings)
    order = np.argsort(uniforms(settings.seed, "order", epoch, (len(pairs),)), kind="stable")
    starts = range(0, len(pairs), settings.batch_size)
    total = 0.0
    batches = draw_negatives(relations, settings, epoch, len(starts))
    for start, drawn in zip(starts, batches, strict=True):
        low, high = pairs[order[start : start + settings.batch_size]].T
        negatives = np.unique(drawn)
        losses, *gradients = loss_and_gradients(
            points[low],
            points[high],
            points[negatives],
            relations.are_related(low, negatives),
            # The farthest points of a ball of any size are then equally distinct.
            sharpness=LARGEST_RADIUS / settings.radius,
        )
        total += float(losses.sum())
        touched = np.concatenate([low, high, negatives])
        rows, inverse, counts = np.unique(touched, return_inverse=True, return_counts=True)
        # The mean for each word: its gradients in a batch say nearly the same, and their sum would
        # overshoot.
        places = (inverse, np.arange(len(touched)))
        shape = (len(rows), len(touched))
        means = sparse.csr_array(((1 / counts)[inverse], places), shape=shape)
        steps = means @ np.concatenate(gradients)
        points[rows] = exponential_map(
            points[rows], -rate * steps, longest=_LONGEST_STEP, max_radius=settings.radius
        )
    return total / len(pairs)


def _learning_rate(epoch: int, settings: Settings) -> float:
    """Return the hyperbolic length of a step for a gradient of length 1."""
    passed = (epoch - BURN_IN) / max(settings.epochs - BURN_IN, 1)
    if passed < 0:
        return settings.learning_rate / 10
    return settings.learning_rate * (1 - 0.99 * passed)


def draw_negatives(relations: Relations, settings: Settings, epoch: int, batches: int) -> Ints:
    """Draw words, by their links in the burn-in and else uniformly: int64 (batches, k)."""
    drawn = uniforms(settings.seed, "negatives", epoch, (batches, settings.negatives))
    if epoch >= BURN_IN:
        return (drawn * len(relations.words)).astype(np.int64)
    cumulative = np.cumsum(relations.links**0.75)
    words: Ints = np.searchsorted(cumulative, drawn * cumulative[-1], side="right")
    return words


def uniforms(seed: int, purpose: str, epoch: int, shape: tuple[int, ...]) -> Floats:
    """Draw uniforms, float64 of a shape, from seed, purpose and epoch; they protect nothing."""
    noise = ColumnNoise(key=_PUBLIC_KEY.derive(str(seed).encode("ascii")), uint64s_per_token=1)
    row_key = noise.row_key(purpose.encode("ascii"), (str(epoch).encode("ascii"),))
    integers = np.empty(shape, dtype=np.uint64)
    noise.fill(integers, row_key, 0)
    return to_uniform(integers)


def loss_and_gradients(
    u: Floats, v: Floats, z: Floats, excluded: NDArray[np.bool_], *, sharpness: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute the objective over a batch of b pairs (u, v) that share k negatives z.

    For a pair with negatives N(u) the loss is
    ``d(u,v) + ln(exp(-s d(u,v)) + sum_N exp(-s d(u,v'))) / s``: how much farther v is than the
    nearest word, by a soft minimum of sharpness s. It is 1/s of the negative logarithm of the
    softmax of -s d; with s = 1 it is the paper's.

    ``excluded`` (b, k) is true where a negative is none for this hyponym; points are (b, n) and
    (k, n), within ``LARGEST_RADIUS``. Returns losses (b,), hyperbolic lengths, and the Riemannian
    gradients of their sum at u, v and z, in the coordinates of the ball.

    Source: Nickel and Kiela 2017, sections 3 (distance, gradient) and 4.1 (loss).
    """
    edge_u = 1 - squared_norms(u)
    edge_v = 1 - squared_norms(v)
    edge_z = 1 - squared_norms(z)
    gap = squared_norms(u - v)
    sinh_near, weight_near = _sinh_and_weight(2 * gap / (edge_u * edge_v), sharpness)
    # cosh(d) - 1 of all distances by one product, of Lorentz coordinates: (b, k).
    lorentz_u = np.column_stack([u * (-2 / edge_u)[:, None], 2 / edge_u - 1, np.ones(len(u))])
    lorentz_z = np.column_stack([z * (2 / edge_z)[:, None], 2 / edge_z - 1, np.full(len(z), -1.0)])
    far = lorentz_u @ lorentz_z.T
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
    near_u = pull / edge_v
    near_v = pull / edge_u
    scale_u = edge_u * (far.sum(axis=1) / 2 + to_z[:, -1]) + near_u * (gap + edge_u)
    scale_v = near_v * (gap + edge_v)
    scale_z = edge_z * (far.sum(axis=0) / 2 + to_u[:, -1])
    losses = np.log(total / weight_near) / sharpness
    at_u = scale_u[:, None] * u - edge_u[:, None] * (to_z[:, :-1] + near_u[:, None] * v)
    at_v = scale_v[:, None] * v - (near_v * edge_v)[:, None] * u
    at_z = scale_z[:, None] * z - edge_z[:, None] * to_u[:, :-1]
    return losses, at_u, at_v, at_z


def _sinh_and_weight(excess: Floats, sharpness: float) -> tuple[Floats, Floats]:
    """Compute sinh(d) and exp(-sharpness d) where excess is cosh(d) - 1, without a logarithm."""
    # Rounding can make it negative; and closer points have no direction but rounding's.
    np.maximum(excess, _SMALLEST_EXCESS, out=excess)
    sinh = excess + 2
    sinh *= excess
    np.sqrt(sinh, out=sinh)
    weight = excess + 1
    weight += sinh
    return sinh, np.power(weight, -sharpness, out=weight)


def exponential_map(points: Floats, steps: Floats, *, longest: float, max_radius: float) -> Floats:
    """Compute the ends of geodesics: ``x ⊕ tanh(λ|s|/2) s/|s|`` with ``λ = 2/(1-|x|²)``.

    They begin at points of the ball, (t, n).

    Steps are tangent vectors (t, n) in the coordinates of the ball, cut at the hyperbolic length
    ``longest``; points beyond the hyperbolic ``max_radius`` go back to it, towards the centre.

    Source: Ganea et al. 2018, "Hyperbolic Neural Networks", lemma 2.
    """
    edge = 1 - squared_norms(points)
    lengths = np.sqrt(squared_norms(steps))
    travelled = np.tanh(np.minimum(2 * lengths / edge, longest) / 2)
    moves = steps * (travelled / np.maximum(lengths, np.finfo(np.float64).tiny))[:, None]
    inner = (points * moves).sum(axis=1)
    squares = np.square(travelled)
    reached: Floats = (1 + 2 * inner + squares)[:, None] * points + edge[:, None] * moves
    reached /= (1 + 2 * inner + (1 - edge) * squares)[:, None]
    norms = np.sqrt(squared_norms(reached))
    largest = math.tanh(max_radius / 2)
    reached *= np.where(norms > largest, largest / np.maximum(norms, largest), 1.0)[:, None]
    return reached
