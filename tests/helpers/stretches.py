"""How a projection stretches vectors, from their differences."""

from __future__ import annotations

import numpy as np


def stretches(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """All ratios |matrix (x - y)| / |x - y| of distinct vectors, from the differences."""
    first, second = np.triu_indices(len(vectors), 1)
    gaps = vectors[first].astype(np.float64) - vectors[second]
    lengths = np.sqrt((gaps**2).sum(axis=1))
    images = np.sqrt(((gaps @ matrix.T) ** 2).sum(axis=1))
    ratios: np.ndarray = images[lengths > 0] / lengths[lengths > 0]
    return ratios
