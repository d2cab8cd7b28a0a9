"""Ways to release vectors, as the experiments with private vectors compare them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.projection import (
    RandomProjection,
    gaussian_projection,
    least_dimension,
    spectral_constant,
    vocabulary_constant,
)

DISTORTION_DELTA: Final = 1e-6
"""The paper's delta."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """Releases matrix x + noise of density proportional to exp(-epsilon |z| / Delta).

    Attributes:
        matrix: float64 (m, n), public.
        constant: Delta, in lengths of images per length of inputs.
        stretch: The most by which the matrix stretches any vector; epsilon stretch / Delta is proven for all.
    """

    matrix: NDArray[np.float64]
    constant: float
    stretch: float

    @classmethod
    def spectral(cls, matrix: NDArray[np.float64]) -> Self:
        """Scale the noise by the most that the matrix stretches any vector: epsilon for all vectors."""
        stretch = spectral_constant(matrix)
        return cls(matrix=matrix, constant=stretch, stretch=stretch)

    @property
    def dimension(self) -> int:
        """m, the length of released vectors."""
        return len(self.matrix)

    def images(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """Project vectors (t, n) without noise: float64 (t, m)."""
        return vectors.astype(np.float64) @ self.matrix.T

    def noise(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the noise of epsilon = 1, float64 (count, m); that of another epsilon is this over epsilon."""
        return self.constant * self.unit_noise(count, rng)

    def unit_noise(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the noise of epsilon = Delta, float64 (count, m): the same for all laws of this m."""
        noise = rng.standard_normal((count, self.dimension))
        noise *= (rng.gamma(self.dimension, size=count) / np.linalg.norm(noise, axis=1))[:, None]
        return noise


class VocabularyConstants:
    """The largest stretches of differences of two words, kept in a file, for they take long."""

    def __init__(self, embedding: Embedding, file: Path | None = None) -> None:
        self._vectors, self._name, self._file = embedding.vectors, embedding.fingerprint, file
        self._known: dict[str, float] = json.loads(file.read_text()) if file and file.exists() else {}

    def of(self, matrix: NDArray[np.float64], seed: int) -> float:
        """Find that of the projection of a seed."""
        name = f"{self._name} {len(matrix)} {seed}"
        if name not in self._known:
            self._known[name] = vocabulary_constant(self._vectors, RandomProjection(matrix))
            if self._file:
                self._file.write_text(json.dumps(self._known))
        return self._known[name]


def plain(dimension: int) -> Law:
    """Give the paper's M1: noise on the vector itself."""
    return Law(matrix=np.eye(dimension), constant=1.0, stretch=1.0)


def projected(
    embedding: Embedding, constants: VocabularyConstants, *, beta: float, seed: int, delta: float
) -> dict[str, Law]:
    """Give the paper's M2 under each Delta, and two other projections to as many dimensions.

    ``paper``, ``vocabulary`` and ``spectral`` share the Gaussian projection of the seed. ``orthogonal`` has
    orthonormal rows of the same span. ``principal`` has the embedding's main axes for rows. Both are scaled
    so that they keep the mean square of distances, of all vectors and of the vocabulary's.
    """
    columns = embedding.dimension
    rows = least_dimension(columns, beta, delta)
    gaussian = gaussian_projection(seed, rows, columns)
    any_vector = Law.spectral(gaussian)
    orthonormal = np.linalg.qr(gaussian.T)[0].T
    values, axes = np.linalg.eigh(np.cov(embedding.vectors, rowvar=False, dtype=np.float64))
    return {
        "paper": Law(matrix=gaussian, constant=1.0 + beta, stretch=any_vector.stretch),
        "vocabulary": Law(matrix=gaussian, constant=constants.of(gaussian, seed), stretch=any_vector.stretch),
        "spectral": any_vector,
        "orthogonal": Law.spectral(math.sqrt(columns / rows) * orthonormal),
        "principal": Law.spectral(math.sqrt(values.sum() / values[-rows:].sum()) * axes[:, -rows:].T),
    }
