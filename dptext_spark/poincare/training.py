"""Riemannian stochastic gradient descent on is-a pairs, repeatable to the bit on one kind of processor.

All pairs of a batch share one set of negatives. Distances and gradients are then products of two matrices,
which makes an epoch far faster than with negatives of each pair's own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from dptext_spark.bars import progress_bar
from dptext_spark.errors import ConfigError
from dptext_spark.noise import ColumnNoise, NoiseKey, to_uniform
from dptext_spark.poincare.objective import LARGEST_RADIUS, exponential_map, loss_and_gradients
from dptext_spark.poincare.quality import reconstruction
from dptext_spark.poincare.relations import Relations

CHECKPOINT: Final = "poincare-checkpoint.npz"
BURN_IN: Final = 10
"""Epochs at a tenth of the learning rate, in which words settle around the centre in the right directions."""

_FORMAT_VERSION: Final = 2
_PUBLIC_KEY: Final = NoiseKey(hashlib.sha256(b"dptext-spark public training").digest())
_EVALUATE_EVERY: Final = 5
_EVALUATED_WORDS: Final = 1000
_DAMPENING: Final = 0.75
_LARGEST_START: Final = 1e-3
_LONGEST_STEP: Final = 1.0
_LAST_RATE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an embedding is trained."""

    dimension: int = 10
    epochs: int = 200  # passes over the pairs, at most
    negatives: int = 128  # words drawn for each batch; training pushes its hyponyms away from them
    # Hyperbolic length of a step for a gradient of length 1; a tenth of it in the first ``BURN_IN`` epochs,
    # falling in a line to a hundredth of it in the last one.
    learning_rate: float = 0.3
    batch_size: int = 128
    patience: int = 50  # epochs without a better mean rank after which training ends
    max_radius: float | None = None  # hyperbolic, at most ``LARGEST_RADIUS``; None leaves it to the dimension
    seed: int = 0

    @property
    def radius(self) -> float:
        """The hyperbolic radius that no point leaves; by default one at which ranks came out best."""
        return self.max_radius or LARGEST_RADIUS / math.sqrt(self.dimension - 1)


def train(
    relations: Relations, settings: Settings, *, checkpoint: Path | None = None
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Train an embedding; a run that is killed and started again ends with the same bits.

    The folder ``checkpoint`` has the state, written after every evaluation. Gives the points with the best
    mean rank, float64 (V, n), and each evaluation's ``loss`` (hyperbolic length a pair) and ``mean_rank``.

    Source: Nickel and Kiela 2017, sections 3.1 and 4. Differences: shared negatives, steps along geodesics
    instead of straight lines, the mean of a word's gradients in a batch instead of their sum.
    """
    identity = {
        "format_version": _FORMAT_VERSION,
        "relations": relations.fingerprint,
        "settings": asdict(settings),
    }
    shape = len(relations.words), settings.dimension
    points = _LARGEST_START * (2 * uniforms(settings.seed, "start", 0, shape) - 1)
    best = points.copy()
    done: dict[str, Any] = {"best_epoch": 0, "epoch": 0, "history": []}
    if checkpoint is not None and (checkpoint / CHECKPOINT).exists():
        done, best, points = _load(checkpoint / CHECKPOINT, identity)
    history = done["history"]
    bar = progress_bar(total=settings.epochs, initial=done["epoch"], desc="poincare", unit="epoch")
    # One thread: with more, BLAS splits its sums differently and the last bits follow their number.
    with threadpool_limits(limits=1, user_api="blas"), bar:
        while (
            done["epoch"] < settings.epochs
            and done["epoch"] - max(done["best_epoch"], BURN_IN) < settings.patience
        ):
            last = min(done["epoch"] + _EVALUATE_EVERY, settings.epochs)
            for epoch in range(done["epoch"], last):
                loss = run_epoch(points, epoch, relations, settings)
                bar.update()
            rank = reconstruction(points, relations, words=_EVALUATED_WORDS)["mean_rank"]
            if rank < min((entry["mean_rank"] for entry in history), default=np.inf):
                best, done["best_epoch"] = points.copy(), last
            done["epoch"] = last
            history.append({"epoch": last, "loss": loss, "mean_rank": rank})
            if checkpoint is not None:
                _save(checkpoint, identity | done, best, points)
            bar.set_postfix(history[-1])
    return best, {"epochs": done["epoch"], "best_epoch": done["best_epoch"], "history": history}


def run_epoch(points: NDArray[np.float64], epoch: int, relations: Relations, settings: Settings) -> float:
    """Move points, float64 (V, n), in place by one pass over the pairs; return the mean loss before."""
    pairs, size, total = relations.pairs, settings.batch_size, 0.0
    rate = settings.learning_rate / 10
    if epoch >= BURN_IN:
        passed = (epoch - BURN_IN) / max(settings.epochs - BURN_IN, 1)
        rate = settings.learning_rate * (1 - (1 - _LAST_RATE) * passed)
    order = np.argsort(uniforms(settings.seed, "order", epoch, (len(pairs),)), kind="stable")
    starts = range(0, len(pairs), size)
    for start, drawn in zip(starts, draw_negatives(relations, settings, epoch, len(starts)), strict=True):
        (low, high), negatives = pairs[order[start : start + size]].T, np.unique(drawn)
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
        # The mean for each word: its gradients in a batch say nearly the same, and their sum would overshoot.
        places, shape = (inverse, np.arange(len(touched))), (len(rows), len(touched))
        steps = sparse.csr_array(((1 / counts)[inverse], places), shape=shape) @ np.concatenate(gradients)
        points[rows] = exponential_map(
            points[rows], -rate * steps, longest=_LONGEST_STEP, max_radius=settings.radius
        )
    return total / len(pairs)


def draw_negatives(relations: Relations, settings: Settings, epoch: int, batches: int) -> NDArray[np.int64]:
    """Draw words, by their links in the burn-in and else uniformly: int64 (batches, k)."""
    drawn = uniforms(settings.seed, "negatives", epoch, (batches, settings.negatives))
    if epoch >= BURN_IN:
        return (drawn * len(relations.words)).astype(np.int64)
    cumulative = np.cumsum(relations.links**_DAMPENING)
    words: NDArray[np.int64] = np.searchsorted(cumulative, drawn * cumulative[-1], side="right")
    return words


def uniforms(seed: int, purpose: str, epoch: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw uniforms, float64 of a shape, from seed, purpose and epoch: a checkpoint needs no generator.

    They are public, as the pairs are: they protect nothing.
    """
    noise = ColumnNoise(key=_PUBLIC_KEY.derive(str(seed).encode("ascii")), uint64s_per_token=1)
    words = np.empty(shape, dtype=np.uint64)
    noise.fill(words, noise.row_key(purpose.encode("ascii"), (str(epoch).encode("ascii"),)), 0)
    return to_uniform(words)


def _save(folder: Path, about: dict[str, Any], best: NDArray[np.float64], now: NDArray[np.float64]) -> None:
    """Write the state such that a reader finds the old one or the new one, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    making = folder / f".{CHECKPOINT}.part"
    with making.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), vectors=best, current=now)
        file.flush()
        os.fsync(file.fileno())
    making.replace(folder / CHECKPOINT)


def _load(
    path: Path, identity: dict[str, Any]
) -> tuple[dict[str, Any], NDArray[np.float64], NDArray[np.float64]]:
    """Read the state of a run with this identity: what was done, the best points and those now."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            best, now = arrays["vectors"], arrays["current"]
    except (ValueError, KeyError, OSError, EOFError):
        raise ConfigError(f"The checkpoint {path} cannot be read", do="Remove it") from None
    if {name: about.get(name) for name in identity} != identity:
        raise ConfigError(
            f"The checkpoint {path} is of another run",
            allowed="the same pairs, filters and training options",
            do="Choose another --checkpoint, or remove it",
        )
    return {name: about[name] for name in ("best_epoch", "epoch", "history")}, best, now
