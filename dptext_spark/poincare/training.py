"""Riemannian stochastic gradient descent on is-a pairs, repeatable to the bit on one kind of processor.

All pairs of a batch share one set of negatives. Distances and gradients are then products of two matrices,
which makes an epoch far faster than with negatives of each pair's own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits
from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from dptext_spark.bars import progress_bar
from dptext_spark.errors import ConfigError
from dptext_spark.noise import ColumnNoise, NoiseKey, to_uniform
from dptext_spark.poincare.objective import LARGEST_RADIUS, Objective, exponential_map
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
    """How an embedding is trained.

    Attributes:
        dimension: Dimension n of the ball.
        epochs: Passes over the pairs, at most.
        negatives: Words drawn for each batch, which all its pairs are told apart from.
        learning_rate: Hyperbolic length of a step for a gradient of length 1; a tenth of it in the first
            ``BURN_IN`` epochs, falling in a line to a hundredth of it in the last one.
        batch_size: Pairs of one update.
        patience: Epochs without a better mean rank after which training ends.
        max_radius: Hyperbolic radius that no point leaves, at most ``LARGEST_RADIUS``; None leaves it to
            the dimension.
        seed: Names one sequence of random numbers.
    """

    dimension: int = 10
    epochs: int = 200
    negatives: int = 128
    learning_rate: float = 0.3
    batch_size: int = 128
    patience: int = 50
    max_radius: float | None = None
    seed: int = 0

    @property
    def radius(self) -> float:
        """The hyperbolic radius that no point leaves; by default one at which ranks came out best."""
        return self.max_radius or LARGEST_RADIUS / math.sqrt(self.dimension - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """The state of a training run after a number of epochs; the result, after the last.

    Attributes:
        vectors: float64 (V, n), the points with the best mean rank so far.
        best_epoch, epoch: Number of epochs after which they were reached, and so far.
        history: For each evaluation ``epoch``, ``loss`` (hyperbolic length a pair) and ``mean_rank``.
        current: float64 (V, n), the points now.
    """

    vectors: NDArray[np.float64] = field(repr=False)
    best_epoch: int = 0
    epoch: int = 0
    history: tuple[Mapping[str, float], ...] = ()
    current: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trainer:
    """Trains an embedding of pairs; a run that is killed and started again ends with the same bits.

    Attributes:
        checkpoint: Folder for the state, written after every evaluation; None keeps none.
        progress: Show the progress bar even where stderr is no terminal.

    Source: Nickel and Kiela 2017, sections 3.1 and 4. Differences: shared negatives, steps along geodesics
    instead of straight lines, the mean of a word's gradients in a batch instead of their sum.
    """

    relations: Relations
    settings: Settings
    checkpoint: Path | None = None
    progress: bool = False

    def run(self) -> Trained:
        """Train to the end, from the checkpoint where there is one.

        Raises:
            ConfigError: The checkpoint is of other pairs or settings, or no checkpoint.
        """
        state = self._load() or self._start()
        bar = progress_bar(
            anywhere=self.progress,
            total=self.settings.epochs,
            initial=state.epoch,
            desc="poincare",
            unit="epoch",
        )
        # One thread: with more, BLAS splits its sums differently and the last bits follow their number.
        with threadpool_limits(limits=1, user_api="blas"), bar:
            while (
                state.epoch < self.settings.epochs
                and state.epoch - max(state.best_epoch, BURN_IN) < self.settings.patience
            ):
                state = self._advance(state, bar)
                self._save(state)
                bar.set_postfix(state.history[-1])
        return state

    def _start(self) -> Trained:
        shape = len(self.relations.words), self.settings.dimension
        points = _LARGEST_START * (2 * self._uniforms("start", 0, shape) - 1)
        return Trained(vectors=points, current=points)

    def _advance(self, state: Trained, bar: tqdm[Any]) -> Trained:
        """Train up to the next evaluation, and evaluate."""
        points = state.current.copy()
        last = min(state.epoch + _EVALUATE_EVERY, self.settings.epochs)
        for epoch in range(state.epoch, last):
            loss = self._epoch(points, epoch)
            bar.update()
        found = reconstruction(points, self.relations, words=_EVALUATED_WORDS)
        better = found.mean_rank < min((entry["mean_rank"] for entry in state.history), default=np.inf)
        best: dict[str, Any] = {"vectors": points, "best_epoch": last} if better else {}
        history = (*state.history, {"epoch": last, "loss": loss, "mean_rank": found.mean_rank})
        return replace(state, epoch=last, history=history, current=points, **best)

    def _epoch(self, points: NDArray[np.float64], epoch: int) -> float:
        """Update the points by one pass over the pairs; return the mean loss."""
        pairs, size = self.relations.pairs, self.settings.batch_size
        order = np.argsort(self._uniforms("order", epoch, (len(pairs),)), kind="stable")
        starts = range(0, len(pairs), size)
        negatives = self._negatives(epoch, len(starts))
        loss = 0.0
        for start, drawn in zip(starts, negatives, strict=True):
            batch = pairs[order[start : start + size]]
            loss += self._update(points, batch, np.unique(drawn), self._rate(epoch))
        return loss / len(pairs)

    def _update(
        self, points: NDArray[np.float64], pairs: NDArray[np.int64], negatives: NDArray[np.int64], rate: float
    ) -> float:
        """Move the points of a batch down the Riemannian gradient, in place; return the sum of losses before.

        Args:
            points: float64 (V, n), within ``LARGEST_RADIUS``.
            pairs: int64 (b, 2), rows of hyponyms and hypernyms.
            negatives: int64 (k,), rows of the words to tell them apart from.
            rate: Hyperbolic length of a step for a gradient of length 1.
        """
        touched = np.concatenate([pairs[:, 0], pairs[:, 1], negatives])
        # The farthest points of any ball are then told apart alike.
        sharpness = LARGEST_RADIUS / self.settings.radius
        low, high = points[pairs.T]
        excluded = self._excluded(pairs[:, 0], negatives)
        found = Objective.of(low, high, points[negatives], excluded, sharpness=sharpness)
        rows, inverse, counts = np.unique(touched, return_inverse=True, return_counts=True)
        # The mean for each word: its gradients in a batch say nearly the same, and their sum would overshoot.
        places, shape = (inverse, np.arange(len(touched))), (len(rows), len(touched))
        averaging = sparse.csr_array(((1 / counts)[inverse], places), shape=shape)
        steps = averaging @ np.concatenate([found.hyponyms, found.hypernyms, found.negatives])
        points[rows] = exponential_map(
            points[rows], -rate * steps, longest=_LONGEST_STEP, max_radius=self.settings.radius
        )
        return float(found.losses.sum())

    def _rate(self, epoch: int) -> float:
        if epoch < BURN_IN:
            return self.settings.learning_rate / 10
        passed = (epoch - BURN_IN) / max(self.settings.epochs - BURN_IN, 1)
        return self.settings.learning_rate * (1 - (1 - _LAST_RATE) * passed)

    def _negatives(self, epoch: int, batches: int) -> NDArray[np.int64]:
        """Draw words, by their links in the burn-in and else uniformly: int64 (batches, k)."""
        uniforms = self._uniforms("negatives", epoch, (batches, self.settings.negatives))
        if epoch >= BURN_IN:
            return (uniforms * len(self.relations.words)).astype(np.int64)
        cumulative = np.cumsum(self.relations.links**_DAMPENING)
        drawn: NDArray[np.int64] = np.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
        return drawn

    def _uniforms(self, purpose: str, epoch: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Draw uniforms, float64 of a shape, for a purpose in an epoch.

        They follow from the seed, purpose and epoch alone, so that a checkpoint needs no generator's state.
        They are public, as the pairs are: they protect nothing.
        """
        key = _PUBLIC_KEY.derive(str(self.settings.seed).encode("ascii"))
        noise = ColumnNoise(key=key, uint64s_per_token=1)
        words = np.empty(shape, dtype=np.uint64)
        noise.fill(words, noise.row_key(purpose.encode("ascii"), (str(epoch).encode("ascii"),)), 0)
        return to_uniform(words)

    def _excluded(self, hyponyms: NDArray[np.int64], negatives: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark, bool (b, k), which words are a hyponym itself or its hypernym."""
        starts, batch = self.relations.starts, np.arange(len(hyponyms))
        counts = starts[hyponyms + 1] - starts[hyponyms]
        rows = np.repeat(batch, counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        hypernyms = self.relations.pairs[starts[hyponyms][rows] + within, 1]
        rows, words = np.concatenate([rows, batch]), np.concatenate([hypernyms, hyponyms])
        columns = np.minimum(np.searchsorted(negatives, words), len(negatives) - 1)
        hit = negatives[columns] == words
        excluded = np.zeros((len(hyponyms), len(negatives)), dtype=np.bool_)
        excluded[rows[hit], columns[hit]] = True
        return excluded

    # Checkpoints

    @property
    def _identity(self) -> dict[str, Any]:
        identity = {"format_version": _FORMAT_VERSION, "relations": self.relations.fingerprint}
        return identity | {"settings": asdict(self.settings)}

    def _save(self, state: Trained) -> None:
        """Write the state such that a reader finds the old one or the new one, whole."""
        if self.checkpoint is None:
            return
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        progress = {"best_epoch": state.best_epoch, "epoch": state.epoch, "history": state.history}
        about = json.dumps({**self._identity, **progress})
        making = self.checkpoint / f".{CHECKPOINT}.part"
        with making.open("wb") as file:
            np.savez(file, about=np.array(about), vectors=state.vectors, current=state.current)
            file.flush()
            os.fsync(file.fileno())
        making.replace(self.checkpoint / CHECKPOINT)

    def _load(self) -> Trained | None:
        if self.checkpoint is None or not (self.checkpoint / CHECKPOINT).exists():
            return None
        path = self.checkpoint / CHECKPOINT
        try:
            with np.load(path, allow_pickle=False) as arrays:
                about = json.loads(str(arrays["about"]))
                vectors, current = arrays["vectors"], arrays["current"]
        except (ValueError, KeyError, OSError, EOFError):
            raise ConfigError(f"The checkpoint {path} cannot be read", do="Remove it") from None
        if {name: about.get(name) for name in self._identity} != self._identity:
            raise ConfigError(
                f"The checkpoint {path} is of another run",
                allowed="the same pairs, filters and training options",
                do="Choose another --checkpoint, or remove it",
            )
        best, history = about["best_epoch"], tuple(about["history"])
        return Trained(
            vectors=vectors, current=current, best_epoch=best, epoch=about["epoch"], history=history
        )
