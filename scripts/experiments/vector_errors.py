"""How far distances and inner products of released vectors are from the true ones, and what Phi stretches.

Source: Feyisetan and Kasiviswanathan 2021, section 5, Figures 1 and 2; Lemma 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist

from dptext_spark.embedding.bundle import Embedding
from scripts.experiments.vector_laws import Law


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Words of two sets, all pairs of which are compared.

    Attributes:
        left: float32 (t, n).
        right: float32 (t, n).
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32]

    @classmethod
    def sample(cls, embedding: Embedding, count: int, seed: int) -> Pairs:
        """Draw twice ``count`` words of the vocabulary, all different."""
        words = np.random.default_rng(seed).choice(len(embedding.vectors), 2 * count, replace=False)
        vectors = embedding.vectors[np.sort(words)][np.random.default_rng(seed).permutation(2 * count)]
        return cls(left=vectors[:count], right=vectors[count:])

    @property
    def distances(self) -> NDArray[np.float64]:
        """True distances (t, t)."""
        return cdist(self.left, self.right)

    @property
    def products(self) -> NDArray[np.float64]:
        """True inner products (t, t)."""
        return self.left.astype(np.float64) @ self.right.astype(np.float64).T

    def typical(self) -> dict[str, float]:
        """Give the error of one public number for all pairs: their median."""
        return {
            "distance": float(np.abs(self.distances - np.median(self.distances)).mean()),
            "product": float(np.abs(self.products - np.median(self.products)).mean()),
        }


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Of one release of both sets, over all pairs.

    Attributes:
        distance: Mean absolute error of distances.
        corrected: The same after the noise's mean square, which is public, is taken off squared distances.
        product: Mean absolute error of inner products.
        order: Spearman's correlation of true and released distances.
    """

    distance: float
    corrected: float
    product: float
    order: float


def errors(law: Law, pairs: Pairs, epsilon: float, rng: np.random.Generator) -> Errors:
    """Release both sets and compare; ``epsilon`` may be infinite."""
    left, right = (
        law.images(vectors) + law.noise(len(vectors), rng) / epsilon for vectors in (pairs.left, pairs.right)
    )
    distances = cdist(left, right)
    # The length of one vector's noise has the Gamma law of shape m.
    excess = 2.0 * law.dimension * (law.dimension + 1) * (law.constant / epsilon) ** 2
    true = pairs.distances
    return Errors(
        distance=float(np.abs(distances - true).mean()),
        corrected=float(np.abs(np.sqrt(np.maximum(distances**2 - excess, 0.0)) - true).mean()),
        product=float(np.abs(left @ right.T - pairs.products).mean()),
        order=float(stats.spearmanr(distances.ravel(), true.ravel()).statistic),
    )


def distance_bound(law: Law, pairs: Pairs, epsilon: float, *, beta: float, delta: float) -> float:
    """Bound the error of distances as the paper does, up to a probability delta (Proposition 7)."""
    return 2.0 * beta * _longest(pairs) + _noise_bound(law, pairs, delta) * 4.0 / epsilon


def product_bound(law: Law, pairs: Pairs, epsilon: float, *, beta: float, delta: float) -> float:
    """Bound the error of inner products as the paper does, up to a probability delta (Proposition 8)."""
    longest, noise = _longest(pairs), _noise_bound(law, pairs, delta) / epsilon
    return beta * longest**2 + 8.0 * longest * noise + (2.0 * noise) ** 2


def _longest(pairs: Pairs) -> float:
    both: NDArray[np.float32] = np.concatenate([pairs.left, pairs.right])
    return float(np.linalg.norm(both, axis=1).max())


def _noise_bound(law: Law, pairs: Pairs, delta: float) -> float:
    vectors = len(pairs.left) + len(pairs.right)
    return law.dimension * math.log(2.0 * vectors * law.dimension / delta)


def text_stretch(law: Law, embedding: Embedding, words: int) -> float:
    """Give by how much the projection stretches the difference of two texts that follow it.

    Each text averages ``words`` different words: those that lie furthest along the direction that Phi
    stretches most, either way, where directions in which the vocabulary spreads much count less.
    """
    direction = np.linalg.svd(law.matrix, full_matrices=False)[2][0]
    vectors = embedding.vectors.astype(np.float64)
    scores = vectors @ np.linalg.solve(np.cov(vectors, rowvar=False), direction)
    order = np.argsort(scores, kind="stable")
    gap = vectors[order[-words:]].mean(axis=0) - vectors[order[:words]].mean(axis=0)
    return float(np.linalg.norm(law.matrix @ gap) / np.linalg.norm(gap))
