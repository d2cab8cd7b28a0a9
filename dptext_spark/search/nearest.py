"""What every search is: the nearest words of points."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class NearestWords(ABC):
    """Exact nearest-word search over a (memory-mapped) embedding matrix."""

    @abstractmethod
    def __call__(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Find the nearest word of each point; among words equally near, the lowest row wins.

        Args:
            points: float64 (t, n), finite.

        Returns:
            int64 (t,), row numbers of the embedding.
        """

    @abstractmethod
    def nearest_two(self, points: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find the two nearest words of each point; among words equally near, the lowest rows win.

        Args:
            points: float64 (t, n), finite.

        Returns:
            int64 (t, 2), row numbers of the embedding, the nearest first, and float64 (t, 2), their
            distances, ascending.
        """
