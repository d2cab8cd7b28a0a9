"""Formulas of the geometries: how uniforms become directions, radii and points."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import scipy

from dptext_spark.geometry import Floats

# Relative error of SciPy's quantiles of the normal distribution and of Gamma distributions of
# shapes from 1 to 1,000: measured against 40 digits, below half of this.
QUANTILE_ERROR: Final = 2.0**-47


def noise_error(dimension: int) -> float:
    """Bound the rounding error of a computed length times a direction, over that length.

    The sum of n squares in any order is good to n roundoffs, its root to half of these.
    """
    return 2.0 * QUANTILE_ERROR + (dimension / 2.0 + 8.0) * 2.0**-53


def bits_left(error: float, dimension: int) -> int:
    """Return how many bits of a coordinate, 1 / sqrt(n) of noise of length 1, exceed an error."""
    return max(0, math.floor(-math.log2(error * math.sqrt(dimension))))


def uniform_directions(uniforms: Floats) -> Floats:
    """Turn uniforms (t, n) in (0, 1) into uniform points (t, n) of the unit sphere, in place.

    Source: Muller 1959, by normalised Gaussians.
    """
    normals: Floats = scipy.special.ndtri(uniforms, out=uniforms)
    # A plain row-wise reduction, not BLAS: its bits do not depend on the batch around the row.
    norms = np.sqrt(np.square(normals).sum(axis=1))
    normals /= norms[:, None]
    return normals


def gamma_quantile(shape: float, uniforms: Floats) -> Floats:
    """Compute quantiles (t,) of the Gamma distribution of a shape and unit scale.

    They are radii of multivariate Laplace noise.
    """
    return np.asarray(scipy.special.gammaincinv(shape, uniforms), dtype=np.float64)
