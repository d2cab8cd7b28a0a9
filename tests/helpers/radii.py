"""Radii of random balls, as tests of their geometry and of the mechanism draw them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dptext_spark.geometry import Floats
from dptext_spark.geometry.lebesgue import BallRadii


def rim_of(radius: ArrayLike) -> Floats:
    """1 - |p|² of words so far out, hyperbolically."""
    rim: Floats = 1.0 / np.cosh(np.asarray(radius) / 2.0) ** 2
    return rim


def law(n: int, epsilon: float, farthest: float = 14.0) -> BallRadii:
    return BallRadii.of(dimension=n, epsilon=epsilon, least_rim=float(rim_of(farthest)))
